//! Power cuts and kills.

use super::*;

/// A full log is sealed by rewriting its header, in the same unsynced group of writes as its last
/// items. A power cut may keep the header and lose the items, which were acknowledged to nobody;
/// recovery then calls the log damaged, and the map does not open.
#[test]
fn a_power_cut_while_a_log_is_sealed_is_no_damage() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_writer(Durability::Sync)).expect("open");
    let base = recording(&map, dir.path());
    let mut session = map.session();
    session.put(b"first", b"acknowledged", None).expect("put");
    session.commit().expect("commit");
    let before = map.medium().trace_length();
    for n in 0..300u64 {
        session.put(&n.to_be_bytes(), &[7; 20_000], None).expect("put");
    }
    session.commit().expect("commit");
    let events = map.medium().trace();
    let mut random = Random(3);
    for cut in before..events.len() {
        let image = image_after(&base, &events, cut, &mut random);
        let (_dir, map) = opened(&image, one_writer(Durability::Sync)).unwrap_or_else(|e| {
            panic!("a power cut after {cut} of {} events is no damage: {e}", events.len())
        });
        assert_eq!(map.get(b"first").expect("get"), Some(b"acknowledged".to_vec()));
    }
}

/// A log's items are told from those of the segment's former life by a salt made of sequence
/// number, generation and segment, "never reused". They are: when a power cut keeps a new log's
/// items but loses its header, recovery sees a free segment and gives the same number again. The
/// next log there then runs into its predecessor's items, and takes them up.
#[test]
fn items_that_a_recovery_truncated_never_come_back() {
    fn logs(dir: &Path) -> (Logs, BTreeSet<u64>) {
        let path = file_of(dir);
        let spec = MediumSpec {
            path,
            domain: Domain::PageCache,
            dax: false,
            capacity_bytes: 1 << 30,
            access: Access::Write,
        };
        let medium = Medium::open(&spec).expect("medium");
        medium.start_trace();
        let logs = Logs::open(medium, 1, &Arc::new(Budget::new(1 << 30))).expect("head");
        let found = std::sync::Mutex::new(BTreeSet::new());
        logs.recover(1, &|_, item, _| {
            found
                .lock()
                .expect("lock")
                .insert(u64::from_be_bytes(item.key.try_into().expect("eight")));
        })
        .expect("recover");
        (logs, found.into_inner().expect("lock"))
    }
    fn append(logs: &Logs, keys: std::ops::Range<u64>) {
        for key in keys {
            let key = key.to_be_bytes();
            let new = NewItem {
                key: &key,
                value: &[9; 100],
                version: 1,
                expires_at_ms: None,
                tombstone: false,
            };
            let mut appender = logs.appender(1, new.item_bytes(), Room::Ordinary).expect("room");
            appender.append(&new, &mut terrace_durable::sections::Changes::new());
            let ticket = appender.ticket();
            drop(appender);
            logs.commit(ticket).expect("commit");
        }
    }
    let first = tempfile::tempdir().expect("directory");
    let (started, _) = logs(first.path());
    let base = file_now(first.path());
    for key in 0..40u64 {
        let key = key.to_be_bytes();
        let new = NewItem {
            key: &key,
            value: &[9; 100],
            version: 1,
            expires_at_ms: None,
            tombstone: false,
        };
        started
            .appender(1, new.item_bytes(), Room::Ordinary)
            .expect("room")
            .append(&new, &mut terrace_durable::sections::Changes::new());
    }
    let before = started.medium().trace_length();
    started.flush_all().expect("flush");
    let events = started.medium().trace();
    // The power fails during that flush: of the log's only write, the first sector is lost.
    let mut image = base;
    for event in &events[..=before] {
        if let Event::Write { at, bytes, .. } = event {
            apply(&mut image, *at as usize, bytes, |sector| *at as usize != SEGMENT || sector > 0);
        }
    }
    image.resize(2 * SEGMENT, 0);
    let second = planted(&image);
    let (recovered, found) = logs(second.path());
    assert!(
        found.is_empty(),
        "none of it had been acknowledged, and without its header none counts: {found:?}"
    );
    append(&recovered, 100..105);
    drop(recovered);
    let (_, found) = logs(second.path());
    assert_eq!(
        found,
        (100..105).collect(),
        "what the first recovery had cut off came back at the second"
    );
}

/// `flush_all` reads the recovery policy before it has the checkpoint's lock. A flush that waits there while the policy
/// becomes "every intact record" stores a checkpoint record that still says "up to the last checkpoint": from then on
/// acknowledged writes do not count, and the next crash loses them.
#[test]
fn a_flush_under_way_does_not_undo_a_change_of_the_recovery_policy() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    let (stop, lost) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for n in 0..3u64 {
            let (map, stop) = (&map, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    map.put(&n.to_be_bytes(), b"busy").expect("put");
                    map.sync().expect("sync");
                }
            });
        }
        for round in 0..100u64 {
            map.set_durability(Durability::Sync).expect("to sync");
            map.put(b"acknowledged", &round.to_le_bytes()).expect("put");
            if newest_checkpoint_is_bounded(dir.path()) {
                let image = file_now(dir.path());
                let (_dir, killed) =
                    opened(&image, options(Durability::Sync)).expect("a kill is no damage");
                if killed.get(b"acknowledged").expect("get") != Some(round.to_le_bytes().to_vec()) {
                    lost.store(round + 1, Ordering::Relaxed);
                    break;
                }
            }
            map.set_durability(LONG_INTERVAL).expect("to interval");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let lost = lost.into_inner();
    assert!(lost == 0, "round {}: a write acknowledged under sync was lost by a kill", lost - 1);
}

/// A round of the collector may free a log with a tombstone together with the log whose old items
/// it shadows: both headers are zeroed in one unsynced group. A power cut between may keep the old
/// items and lose the tombstone, and the deleted keys are back.
#[test]
fn a_tombstone_outlives_what_it_shadows() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_writer(Durability::Sync)).expect("open");
    let base = recording(&map, dir.path());
    let mut session = map.session();
    let put = |session: &mut Session, key: u64| {
        session.put(&key.to_be_bytes(), &[1; 40_000], None).expect("put");
    };
    let delete = |session: &mut Session, key: u64| {
        assert!(session.delete(&key.to_be_bytes()).expect("delete"), "it was there");
    };
    let fill = |session: &mut Session, items: usize| {
        (0..items).for_each(|_| session.put(b"filler", &[2; 40_000], None).expect("put"));
    };
    // What is due is counted when a log is full. Nothing is until the third is, and then all three are, the second with
    // tombstones of what the first holds.
    (0..100).for_each(|key| put(&mut session, key));
    fill(&mut session, 5);
    (0..40).for_each(|key| delete(&mut session, key));
    (100..200).for_each(|key| put(&mut session, key));
    fill(&mut session, 5);
    session.commit().expect("commit");
    assert_eq!(map.stats().collections, 0, "none was due");
    (40..200).for_each(|key| delete(&mut session, key));
    fill(&mut session, 105);
    session.commit().expect("commit");
    let deadline = Instant::now() + Duration::from_secs(60);
    while map.stats().collections < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    map.close().expect("close");
    let events = map.medium().trace();
    let freed: Vec<usize> = events
        .iter()
        .enumerate()
        .filter(|(_, event)| {
            is_header_of(event, true)
                && matches!(event, Event::Write { bytes, .. } if bytes.len() == BLOCK)
        })
        .map(|(i, _)| i)
        .collect();
    assert!(freed.len() >= 3, "{} were freed", freed.len());
    // A sync between the first two is of another thread, and might as well have come later.
    for only in &freed[..2] {
        let mut image = image_after(&base, &events[..freed[0]], freed[0], &mut Random(0));
        let Event::Write { at, bytes, .. } = &events[*only] else { continue };
        apply(&mut image, *at as usize, bytes, |_| true);
        let (_dir, map) =
            opened(&image, one_writer(Durability::Sync)).expect("a power cut is no damage");
        assert_eq!(
            map.len(),
            1,
            "every key but one had been deleted, acknowledged, before the collection"
        );
    }
}

/// A snapshot told that a key was not there, and the delete that this came from was not durable: after a power cut the
/// key was back. What was there before a write was kept with the ticket of its commit, what was not was kept without.
#[test]
fn an_absence_that_a_snapshot_tells_is_durable() {
    let dir = tempfile::tempdir().expect("directory");
    let two = || MapOptions { writers: 2, ..options(Durability::Sync) };
    let map = Map::open(dir.path(), two()).expect("open");
    map.put(b"k", b"old").expect("put");
    let base = recording(&map, dir.path());
    let (mut deletes, mut writes) = (map.session(), map.session());
    assert!(deletes.delete(b"k").expect("delete"));
    let snapshot = map.snapshot();
    writes.put(b"k", b"new", None).expect("put");
    assert_eq!(snapshot.get(b"k").expect("get"), None);
    let events = map.medium().trace();
    let image = image_after(&base, &events, events.len(), &mut Random(0));
    let (_dir, after) = opened(&image, two()).expect("a power cut is no damage");
    assert_ne!(
        after.get(b"k").expect("get").as_deref(),
        Some(&b"old"[..]),
        "it was told to be gone"
    );
}

/// While the recovery policy changes to "every intact record", writes go on and are acknowledged under the old promise
/// of an interval. Those made behind the checkpoint that changes the policy are in no checkpoint, and under `sync` the
/// checkpointer takes no more: they stay in memory until somebody happens to commit that writer's log.
#[test]
fn writes_acknowledged_while_sync_begins_are_safe_once_it_has_begun() {
    let dir = tempfile::tempdir().expect("directory");
    let short = Durability::Interval(Duration::from_millis(1));
    let map = Map::open(dir.path(), MapOptions { writers: 4, ..options(short) }).expect("open");
    let mut missing = 0;
    for round in 0..20u64 {
        map.set_durability(short).expect("to interval");
        let stop = AtomicBool::new(false);
        let acknowledged = std::thread::scope(|scope| {
            let writer = |n: u64| {
                let (map, stop) = (&map, &stop);
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    let mut i = 0u64;
                    while !stop.load(Ordering::SeqCst) {
                        // Under an interval the commit has nothing to wait for.
                        let key = (round << 40 | n << 32 | i).to_be_bytes();
                        let mut session = map.session();
                        session.put(&key, b"value", None).expect("put");
                        session.commit().expect("commit");
                        mine.push(key);
                        i += 1;
                        std::thread::sleep(Duration::from_micros(20));
                    }
                    mine
                })
            };
            let writers: Vec<_> = (0..2).map(writer).collect();
            std::thread::sleep(Duration::from_millis(5));
            // The last writes are begun before the change has returned.
            let change = scope.spawn(|| map.set_durability(Durability::Sync).expect("to sync"));
            std::thread::sleep(Duration::from_micros(150));
            stop.store(true, Ordering::SeqCst);
            let all: Vec<_> = writers.into_iter().flat_map(|w| w.join().expect("writer")).collect();
            change.join().expect("change");
            all
        });
        // Far longer than the interval they were promised, and than the checkpointer's tick.
        std::thread::sleep(Duration::from_millis(30));
        let image = file_now(dir.path());
        let (_dir, killed) =
            opened(&image, options(Durability::Sync)).expect("a kill is no damage");
        missing +=
            acknowledged.iter().filter(|key| killed.get(&key[..]).expect("get").is_none()).count();
    }
    assert_eq!(missing, 0, "acknowledged writes that no cut and no commit ever made safe");
}

/// A kill leaves writes in the system's hands that were never synced. Recovery reads them, closes
/// their log by rewriting its header, and syncs only then. If the power fails before, the header
/// may be there and the items not: damage, where there was none.
#[test]
fn a_power_cut_during_the_recovery_from_a_kill_is_no_damage() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_writer(Durability::Sync)).expect("open");
    let base = recording(&map, dir.path());
    let mut session = map.session();
    for n in 0..40u64 {
        session.put(&n.to_be_bytes(), &[7; 2_000], None).expect("put");
    }
    session.commit().expect("commit");
    // Killed when the write had been handed to the system, before it was on the disk.
    let first: Vec<Event> = map.medium().trace().into_iter().map(unsynced).collect();
    let killed = image_after(
        &base,
        &[first.clone(), vec![Event::Sync { covers: first.len() }]].concat(),
        first.len() + 1,
        &mut Random(1),
    );
    let again = planted(&killed);
    let spec = MediumSpec {
        path: file_of(again.path()),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 1 << 30,
        access: Access::Write,
    };
    let medium = Medium::open(&spec).expect("medium");
    medium.start_trace();
    let logs = Logs::open(medium, 1, &Arc::new(Budget::new(1 << 30))).expect("head");
    logs.recover(1, &|_, _, _| ()).expect("recover");
    let later = |event| match event {
        Event::Sync { covers } => Event::Sync { covers: first.len() + covers },
        other => other,
    };
    let recovering = logs.medium().trace().into_iter().map(later);
    let events: Vec<Event> = first.iter().cloned().chain(recovering).collect();
    let mut random = Random(5);
    for cut in first.len()..events.len() {
        for _ in 0..20 {
            let image = image_after(&base, &events, cut, &mut random);
            if let Err(error) = opened(&image, one_writer(Durability::Sync)) {
                panic!("power cut after {cut} of {} events: {error}", events.len());
            }
        }
    }
}

fn unsynced(event: Event) -> Event {
    match event {
        Event::Write { at, bytes, .. } => Event::Write { at, bytes, durable: false },
        // Length is metadata; keep it, so that only the contents are at stake.
        Event::Sync { .. } => Event::Grow(0),
        grow => grow,
    }
}

/// Byte-addressable media promise eight bytes at a time, not sixty-four: a header rewritten in
/// place can be found half old, half new. That is a crash, not damage.
#[test]
fn a_header_torn_between_words_is_a_crash_and_no_damage() {
    let mapped = || MapOptions { domain: Domain::Eadr, ..one_writer(Durability::Sync) };
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), mapped()).expect("open");
    map.put(b"first", b"acknowledged").expect("put");
    let open = file_now(dir.path());
    for n in 0..300u64 {
        map.put(&n.to_be_bytes(), &[7; 20_000]).expect("put");
    }
    let sealed = file_now(dir.path());
    let at = (SEGMENT..sealed.len())
        .step_by(SEGMENT)
        .find(|at| open.len() > *at && open[*at..at + 64] != sealed[*at..at + 64]);
    let at = at.expect("the first log was sealed meanwhile");
    for words in 1..8 {
        let mut image = sealed.clone();
        image[at + words * 8..at + 64].copy_from_slice(&open[at + words * 8..at + 64]);
        let (_dir, map) = opened(&image, mapped()).unwrap_or_else(|e| {
            panic!("killed after {words} words of the header were stored: {e}")
        });
        assert_eq!(map.get(b"first").expect("get"), Some(b"acknowledged".to_vec()));
    }
}
