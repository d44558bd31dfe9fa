//! What the sceptic found: each test is the smallest that shows one way to lose data, to hide a
//! loss, or to be told "done" when it is not. They stay here for ever, failing until mended.

mod adversary;

use adversary::{
    BLOCK, Random, SEGMENT, apply, contents, file_now, file_of, image_after, opened, options,
    planted, recording,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use terrace_durable::item::NewItem;
use terrace_durable::logs::{Logs, Room};
use terrace_durable::medium::Event;
use terrace_durable::{Medium, MediumSpec};
use terrace_memory::Budget;
use terrace_store::{Change, Domain, Durability, Error, Map, MapOptions, Session};

const LONG_INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

fn one_writer(durability: Durability) -> MapOptions {
    MapOptions { writers: 1, ..options(durability) }
}

fn is_header_of(event: &Event, zero: bool) -> bool {
    matches!(event, Event::Write { at, bytes, .. }
        if *at as usize >= SEGMENT
            && (*at as usize).is_multiple_of(SEGMENT)
            && bytes[..64].iter().all(|b| *b == 0) == zero)
}

/// The rule of the newest cut in the file: whether it bounds what counts.
fn newest_cut_is_bounded(dir: &Path) -> bool {
    let head = file_now(dir);
    let number = |block: usize| {
        u64::from_le_bytes(head[block * BLOCK + 8..block * BLOCK + 16].try_into().expect("eight"))
    };
    let newest = if number(2) > number(1) { 2 } else { 1 };
    head[newest * BLOCK + 4] == 1
}

// ---------------------------------------------------------------- power cuts and kills

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
fn what_a_recovery_cut_off_never_comes_back() {
    fn logs(dir: &Path) -> (Logs, BTreeSet<u64>) {
        let path = file_of(dir);
        let spec =
            MediumSpec { path, domain: Domain::PageCache, dax: false, capacity_bytes: 1 << 30 };
        let medium = Medium::open(&spec).expect("medium");
        medium.start_trace();
        let logs = Logs::open(medium, 1, false, &Arc::new(Budget::new(1 << 30))).expect("head");
        let found = std::sync::Mutex::new(BTreeSet::new());
        logs.recover(1, false, &|_, item, _| {
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
            appender.append(&new);
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
        started.appender(1, new.item_bytes(), Room::Ordinary).expect("room").append(&new);
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

/// `flush_all` reads the rule before it has the cut's lock. A flush that waits there while the
/// rule becomes `All` stores a cut that still says `Bounded`: from then on acknowledged writes do
/// not count, and the next crash loses them.
#[test]
fn a_flush_under_way_does_not_undo_a_change_of_rule() {
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
            if newest_cut_is_bounded(dir.path()) {
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
    let together: usize = (0..5).map(|_| tombstones_collected_with_what_they_shadow()).sum();
    assert!(together > 0, "no round freed two logs together: the test shows nothing");
}

/// Returns how many pairs of logs were freed together.
fn tombstones_collected_with_what_they_shadow() -> usize {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_writer(Durability::Sync)).expect("open");
    let base = recording(&map, dir.path());
    let mut session = map.session();
    let fill = |session: &mut Session, items: usize| {
        (0..items).for_each(|_| session.put(b"filler", &[2; 40_000], None).expect("put"));
    };
    // One log of keys; one of writes to a single key, and at its end the deletes; a third begun.
    for key in 0..100u64 {
        session.put(&key.to_be_bytes(), &[1; 40_000], None).expect("put");
    }
    fill(&mut session, 4 + 103);
    for key in 0..100u64 {
        session.delete(&key.to_be_bytes()).expect("delete");
    }
    fill(&mut session, 3);
    session.commit().expect("commit");
    let deadline = Instant::now() + Duration::from_secs(5);
    while map.stats().collections < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    map.close().expect("close");
    let events = map.medium().trace();
    let mut pairs = 0;
    for (i, pair) in
        events.windows(2).enumerate().filter(|(_, pair)| pair.iter().all(|e| is_header_of(e, true)))
    {
        pairs += 1;
        for only in pair {
            let Event::Write { at, bytes, .. } = only else { continue };
            let mut image = image_after(&base, &events[..i], i, &mut Random(0));
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
    pairs
}

/// While the rule changes to `All`, writes go on and are acknowledged under the old promise of an
/// interval. Those made behind the cut that changes the rule are in no cut, and under `sync` the
/// keeper takes no more: they stay in memory until somebody happens to commit that writer's log.
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
        // Far longer than the interval they were promised, and than the keeper's tick.
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
    };
    let medium = Medium::open(&spec).expect("medium");
    medium.start_trace();
    let logs = Logs::open(medium, 1, false, &Arc::new(Budget::new(1 << 30))).expect("head");
    logs.recover(1, false, &|_, _, _| ()).expect("recover");
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

// ---------------------------------------------------------------- what is told without being true

/// Under an interval an I/O failure stops the map; `close` then has nothing to write and answers
/// that all is well, though what was acknowledged is lost.
#[test]
fn a_close_that_saved_nothing_says_so() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    map.put(b"key", b"acknowledged").expect("put");
    map.medium().inject_write_fault(0);
    assert!(map.sync().is_err());
    let closed = map.close();
    drop(map);
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    assert!(
        closed.is_err() || map.get(b"key").expect("get").is_some(),
        "closed without error, and the key is lost"
    );
}

/// Only the opening of a new log asks whether the map still takes writes: after a failure, up to
/// 4 MB more are acknowledged and lost.
#[test]
fn nothing_is_acknowledged_after_a_failed_write() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    map.put(b"before", b"x").expect("put");
    map.medium().inject_write_fault(0);
    assert!(map.sync().is_err());
    assert!(map.stats().stopped.is_some());
    let answers: Vec<_> = (0..10u8).map(|n| map.put(&[n], b"value").is_ok()).collect();
    assert!(!answers.contains(&true), "acknowledged after the failure: {answers:?}");
}

/// The same after `close`, which promises that operations through other handles are refused.
#[test]
fn nothing_is_acknowledged_after_a_close() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    let other = map.clone();
    map.put(b"before", b"x").expect("put");
    map.close().expect("close");
    let answer = other.put(b"after", b"x");
    let mut session = other.session();
    let batch =
        session.atomic(100, |session| session.put(b"in a batch", b"x", None)).and_then(|put| put);
    drop((session, other, map));
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    assert!(
        answer.is_err() || map.get(b"after").expect("get").is_some(),
        "put acknowledged after close, and lost"
    );
    assert!(
        batch.is_err() || map.get(b"in a batch").expect("get").is_some(),
        "batch acknowledged after close, and lost"
    );
}

/// "The old durability stays", says `set_durability` of an error; what stays is no durability: the
/// flag that makes commits wait has been cleared.
#[test]
fn a_failed_change_of_durability_keeps_the_old_promise() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    map.put(b"before", b"x").expect("put");
    map.medium().inject_write_fault(0);
    assert!(map.set_durability(Durability::None).is_err());
    assert_eq!(map.options().durability, Durability::Sync);
    let answer = map.put(b"after", b"x");
    let image = file_now(dir.path());
    let (_dir, killed) = opened(&image, options(Durability::Sync)).expect("open");
    assert!(
        answer.is_err() || killed.get(b"after").expect("get").is_some(),
        "acknowledged under sync, and lost"
    );
}

/// A commit that failed has forgotten what it was to commit; asked again, it answers success.
#[test]
fn a_commit_that_failed_never_succeeds_later() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    let mut session = map.session();
    session.put(b"key", b"value", None).expect("put");
    map.medium().inject_write_fault(0);
    assert!(session.commit().is_err());
    assert!(session.commit().is_err(), "the second commit of the same writes answers success");
}

/// A scan skips deleted keys and forgets to note that their deletion is not durable yet: the
/// absence was told, and a crash brings the key back.
#[test]
fn an_absence_that_a_scan_told_survives() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    map.put(b"key", b"value").expect("put");
    let mut session = map.session();
    session.delete(b"key").expect("delete, not committed");
    assert!(contents(&map).is_empty(), "the map's own scan has committed what it tells");
    let (_dir, killed) =
        opened(&file_now(dir.path()), options(Durability::Sync)).expect("a kill is no damage");
    assert_eq!(killed.get(b"key").expect("get"), None, "a scan had told that the key is gone");
}

/// An error leaves the map as it was, except one of the medium: so says `Error`. A batch whose
/// second pair is refused has written the first.
#[test]
fn a_refused_batch_changes_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    let long = vec![0; 70_000];
    assert!(matches!(map.multi_put(&[(b"a", b"1"), (&long, b"2")]), Err(Error::KeySize(..))));
    assert_eq!(map.get(b"a").expect("get"), None, "a refused batch wrote its first pair");
}

/// `atomic` asks for room by its caller's bound; the operations inside ask for more than the bound
/// allows for (an update for 64 bytes of value it may never write). Near the end of a log a batch
/// that keeps to its bound is then cut in two: what was to be all or nothing is half.
#[test]
fn a_batch_that_keeps_to_its_bound_is_never_cut_short() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_writer(Durability::None)).expect("open");
    let mut session = map.session();
    for n in 0..200_000u64 {
        // Two writes of 8 + 8 bytes, 32 more for each, as documented.
        let value = n.to_le_bytes();
        let half = session
            .atomic(2 * (8 + 8 + 32), |session| {
                session.put(&1u64.to_be_bytes(), &value, None)?;
                session.update(&2u64.to_be_bytes(), |_| Change::Put {
                    value: &value,
                    expires_at_ms: None,
                })
            })
            .expect("the bound is small");
        assert!(half.is_ok(), "batch {n}: the first write was made, the second refused: {half:?}");
    }
}

// ---------------------------------------------------------------- damage that is not noticed

fn closed_image(durability: Durability, keys: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(durability)).expect("open");
    for key in 0..keys {
        map.put(&key.to_be_bytes(), &[5; 200]).expect("put");
    }
    map.close().expect("close");
    file_now(dir.path())
}

/// Of two cuts the newest that verifies is believed. A bad sector in the newest is thereby taken
/// for a torn write, and the map silently goes back to the cut before it; recovery even frees,
/// durably, what came after.
#[test]
fn a_damaged_cut_is_damage_and_no_older_state() {
    for durability in [LONG_INTERVAL, Durability::Sync] {
        let image = closed_image(durability, 100);
        for block in [1, 2] {
            let mut damaged = image.clone();
            damaged[block * BLOCK + 20] ^= 1;
            if let Ok((_dir, map)) = opened(&damaged, options(durability)) {
                assert_eq!(
                    map.len(),
                    100,
                    "{durability:?}: opened without a word after damage to block {block}"
                );
            }
        }
    }
}

/// Under the rule `All` an open log ends at the first item that does not verify, whatever the cut
/// says: one flipped bit in the log that was open at an orderly close hides everything behind it.
#[test]
fn damage_below_the_last_cut_is_no_torn_tail() {
    let image = closed_image(Durability::Sync, 100);
    let mut damaged = image.clone();
    let at =
        (SEGMENT..image.len()).find(|at| image[*at] == 5 && image[at + 150] == 5).expect("an item");
    damaged[at + 10] ^= 1;
    if let Ok((_dir, map)) = opened(&damaged, options(Durability::Sync)) {
        assert_eq!(map.len(), 100, "opened without a word, {:?}", map.recovery());
    }
}

/// The first cut of a new file promises nothing. A file that lost everything behind that cut opens
/// as an empty map; one that lost everything, as a new one.
#[test]
fn a_file_cut_off_in_its_head_is_not_an_empty_map() {
    let image = closed_image(Durability::Sync, 100);
    for bytes in [0, 1, 4095, 4096, 8191, 8192, 8193, 12_287, 12_288] {
        let truncated = planted(&image[..bytes]);
        std::fs::write(truncated.path().join("lock"), b"").expect("the lock a map leaves behind");
        if let Ok(map) = Map::open(truncated.path(), options(Durability::Sync)) {
            assert_eq!(map.len(), 100, "a file of {bytes} bytes opened without a word");
        }
    }
}

/// Salvage reads; it does not write. Not even to a file too short for its head.
#[test]
fn salvage_does_not_lengthen_a_short_file() {
    let image = closed_image(Durability::Sync, 100);
    for bytes in [0, 100, 4096, 8192] {
        let truncated = planted(&image[..bytes]);
        let salvaged =
            Map::open(truncated.path(), MapOptions { salvage: true, ..options(Durability::Sync) });
        drop(salvaged);
        assert_eq!(file_now(truncated.path()).len(), bytes, "salvage changed the file's length");
    }
}

/// On a byte-addressable medium the memory is the file: the headers that salvage closes "only in
/// memory" are written to the damaged file.
#[test]
fn salvage_leaves_a_mapped_file_untouched() {
    let mapped =
        |salvage| MapOptions { domain: Domain::Eadr, salvage, ..one_writer(Durability::Sync) };
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), mapped(false)).expect("open");
    for key in 0..100u64 {
        map.put(&key.to_be_bytes(), &[5; 200]).expect("put");
    }
    let image = file_now(dir.path());
    let (copy, salvaged) = opened(&image, mapped(true)).expect("salvage");
    assert_eq!(salvaged.len(), 100);
    drop(salvaged);
    assert!(file_now(copy.path()) == image, "salvage wrote to the file");
}

/// One flipped bit in the superblock, which holds four numbers that never change, and nothing can
/// be salvaged; nor can anything when both cuts are bad.
#[test]
fn salvage_reads_what_is_intact_behind_a_damaged_head() {
    let image = closed_image(Durability::Sync, 100);
    for blocks in [&[0][..], &[1], &[2], &[1, 2], &[0, 1, 2]] {
        let mut damaged = image.clone();
        blocks.iter().for_each(|block| damaged[block * BLOCK + 9] ^= 1);
        let salvage = MapOptions { salvage: true, ..options(Durability::Sync) };
        let (dir, map) =
            opened(&damaged, salvage).unwrap_or_else(|e| panic!("blocks {blocks:?}: {e}"));
        assert_eq!(map.len(), 100, "blocks {blocks:?}: {:?}", map.recovery());
        assert!(file_now(dir.path()) == damaged);
    }
}

/// Looking for the next intact item behind damage tries every byte, and every try may checksum
/// what a random length field says: seconds for one bad value.
#[test]
fn damage_in_a_large_value_is_passed_quickly() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_writer(Durability::None)).expect("open");
    let mut random = Random(8);
    let large: Vec<u8> = (0..3 << 20).map(|_| random.bits() as u8).collect();
    map.put(b"large", &large).expect("put");
    map.put(b"behind", b"it").expect("put");
    map.close().expect("close");
    let mut image = file_now(dir.path());
    let at = image.windows(5).position(|w| w == b"large").expect("the item");
    image[at] ^= 1;
    let start = Instant::now();
    let salvage = MapOptions { salvage: true, ..one_writer(Durability::None) };
    let (_dir, map) = opened(&image, salvage).expect("salvage");
    let took = start.elapsed();
    assert_eq!(map.get(b"behind").expect("get"), Some(b"it".to_vec()));
    assert!(took < Duration::from_secs(2), "3 MB of damage took {took:?}");
}

/// The cut names the logs that were open. One of them whose header reads as zero, a sector lost,
/// is taken for a free log all the same, and its keys are gone without a word.
#[test]
fn a_log_that_the_cut_names_is_not_free() {
    for durability in [LONG_INTERVAL, Durability::Sync] {
        let image = closed_image(durability, 100);
        let headers =
            (SEGMENT..image.len()).step_by(SEGMENT).filter(|at| image[*at..*at + 4] == *b"TLOG");
        for at in headers {
            let mut damaged = image.clone();
            damaged[at..at + 512].fill(0);
            if let Ok((_dir, map)) = opened(&damaged, options(durability)) {
                assert_eq!(
                    map.len(),
                    100,
                    "{durability:?}: opened without a word after the loss of a header at {at}"
                );
            }
        }
    }
}

/// The collector copies an item of a batch as an item of its own. If the batch is not durable yet,
/// a power cut in the collector's flush may keep the copy of one item and lose the batch.
#[test]
fn a_batch_stays_whole_when_it_is_collected_before_it_is_durable() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_writer(Durability::Sync)).expect("open");
    let base = recording(&map, dir.path());
    let mut session = map.session();
    for key in [b"a", b"b"] {
        session.put(key, &[1; 3_000], None).expect("put");
    }
    session.commit().expect("commit");
    let acknowledged = map.medium().trace_length();
    session
        .atomic(10_000, |session| {
            session.put(b"a", &[2; 3_000], None)?;
            session.put(b"b", &[2; 3_000], None)
        })
        .expect("bound")
        .expect("batch");
    // Not committed. Its log fills up with dead items and is collected.
    for _ in 0..150 {
        session.put(b"filler", &[3; 40_000], None).expect("put");
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while map.stats().moved_bytes < 6_000 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(map.stats().moved_bytes >= 6_000, "the batch was moved: {:?}", map.stats());
    let events = map.medium().trace();
    // The power fails while the collector's flush is under way: of it, only the collector's own log
    // has reached the disk so far, and of that all sectors but the last few.
    let flush = events.iter().position(|event| {
        matches!(event, Event::Write { at, bytes, .. }
            if *at as usize >= SEGMENT && (*at as usize).is_multiple_of(SEGMENT)
                && bytes[..4] == *b"TLOG" && bytes[4..8] == [0; 4])
    });
    let Some(Event::Write { at, bytes, durable: false }) = flush.map(|flush| &events[flush]) else {
        // Made durable beforehand, or at once: nothing to tear.
        return;
    };
    let synced = events[acknowledged..flush.expect("found")]
        .iter()
        .any(|event| matches!(event, Event::Sync { .. }));
    for sectors in 1..bytes.len() / 512 {
        let mut image = if synced {
            image_after(&base, &events, flush.expect("found"), &mut Random(0))
        } else {
            image_after(&base, &events[..acknowledged], acknowledged, &mut Random(0))
        };
        apply(&mut image, *at as usize, bytes, |sector| sector < sectors);
        let (_dir, map) =
            opened(&image, one_writer(Durability::Sync)).expect("a power cut is no damage");
        let found = contents(&map);
        let of = |key: &[u8]| found.get(key).map(|value| value[0]);
        assert_eq!(
            of(b"a"),
            of(b"b"),
            "the batch is half there with {sectors} sectors of the collector's log"
        );
    }
}

/// A log that claims the last sequence number there is (nobody wrote that; a fuzzer did) leaves no
/// number for the next one: refused, or read, but no panic and no number 0 begun anew.
#[test]
fn a_log_with_the_last_number_is_no_panic() {
    let mut image = closed_image(Durability::Sync, 10);
    let at = (SEGMENT..image.len())
        .step_by(SEGMENT)
        .find(|at| image[*at..*at + 4] == *b"TLOG")
        .expect("a log");
    image[at + 8..at + 16].fill(0xff);
    let crc = terrace_durable::checksum::Crc::new(u32::from_le_bytes(*b"TLOG"))
        .update(&image[at..at + 32])
        .finish();
    image[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
    if let Ok((_dir, map)) = opened(&image, options(Durability::Sync)) {
        map.put(b"key", b"value").expect("put");
    }
}

/// Logs made ready ahead of need are always new ones, at the end of the file, though there are free
/// ones whose blocks were given back: under `sync` the file gets longer and longer.
#[test]
fn the_file_does_not_grow_for_ever() {
    let path = tempfile::tempdir().expect("directory");
    let spec = MediumSpec {
        path: file_of(path.path()),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 1 << 30,
    };
    let medium = Medium::open(&spec).expect("medium");
    let logs = Logs::open(medium, 1, false, &Arc::new(Budget::new(1 << 30))).expect("head");
    logs.recover(1, false, &|_, _, _| ()).expect("recover");
    let new = NewItem {
        key: b"key",
        value: &vec![1; 3 << 20],
        version: 1,
        expires_at_ms: None,
        tombstone: false,
    };
    for round in 0..40 {
        // Two logs are filled, the keeper makes others ready, the first are collected, and all but a
        // few free ones are given back.
        (0..2).for_each(|_| {
            logs.appender(1, new.item_bytes(), Room::Ordinary).expect("room").append(&new);
        });
        logs.prepare(2).expect("room");
        logs.flush_all().expect("flush");
        let claimed: Vec<u32> =
            logs.survey().iter().map(|view| view.number).filter(|s| logs.claim(*s)).collect();
        logs.free(&claimed).expect("free");
        logs.reuse_after_readers(claimed, &crossbeam_epoch::pin());
        let deadline = Instant::now() + Duration::from_secs(5);
        while logs.waiting_segments() > 0 && Instant::now() < deadline {
            crossbeam_epoch::pin().flush();
        }
        logs.release_free(4).expect("release");
        let segments = logs.medium().file_bytes().expect("length") / SEGMENT as u64;
        assert!(segments <= 16, "round {round}: {segments} segments for one live item");
    }
}

/// A lock on a directory belongs to the open file, which a process that is just being started
/// still shares: a map that was closed stays locked until that process has begun its own program.
#[test]
fn a_closed_map_is_unlocked_whoever_is_being_started() {
    let dir = tempfile::tempdir().expect("directory");
    let stop = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                // Many bytes of environment, so that starting takes its time.
                let long = "x".repeat(100_000);
                while !stop.load(Ordering::Relaxed) {
                    let _started = std::process::Command::new("true").env("LONG", &long).status();
                }
            });
        }
        let refused = (0..150).find_map(|round| {
            let map = match Map::open(dir.path(), options(Durability::None)) {
                Ok(map) => map,
                Err(error) => return Some(format!("round {round}: {error}")),
            };
            drop(map);
            None
        });
        stop.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, None, "the map had been closed");
}

// ---------------------------------------------------------------- hanging and dying

/// The keeper takes a strong handle on the map at every tick; the user's last handle may then not
/// be the last. Its drop returns with the directory still locked, and the map is closed some time
/// later, by its own thread, which goes on to work on a file that may be somebody else's by then.
#[test]
fn a_map_is_closed_when_its_last_handle_is_gone() {
    let dir = tempfile::tempdir().expect("directory");
    for round in 0..60 {
        let map = match Map::open(dir.path(), options(Durability::Sync)) {
            Ok(map) => map,
            Err(error) => panic!("round {round}: the last handle was dropped, and yet: {error}"),
        };
        let until = Instant::now() + Duration::from_millis(15);
        let mut sync = false;
        while Instant::now() < until {
            map.set_durability(if sync { Durability::Sync } else { LONG_INTERVAL })
                .expect("switch");
            sync = !sync;
        }
        drop(map);
    }
}

/// A mapped file that ends early is read beyond its end: the kernel kills the process.
#[test]
fn a_truncated_mapped_file_is_damage_and_kills_nobody() {
    let mapped = || MapOptions { domain: Domain::Eadr, ..one_writer(Durability::Sync) };
    if let Some(dir) = std::env::var_os("TERRACE_TEST_TRUNCATED") {
        let opened = Map::open(Path::new(&dir), mapped());
        assert!(matches!(opened, Err(Error::Medium(_))), "opened, or a strange error");
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), mapped()).expect("open");
    map.put(b"key", &[7; 1 << 20]).expect("put");
    map.close().expect("close");
    drop(map);
    let file = std::fs::OpenOptions::new().write(true).open(file_of(dir.path())).expect("file");
    file.set_len(SEGMENT as u64 + 100_000).expect("truncated");
    let child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_truncated_mapped_file_is_damage_and_kills_nobody"])
        .env("TERRACE_TEST_TRUNCATED", dir.path())
        .output()
        .expect("child");
    assert!(child.status.success(), "{}", child.status);
}

/// Writers wait for the collector when the budget is spent, until a round has shown that it cannot
/// help. A round that ends with an error (a full disk refuses the collector's own log) shows
/// nothing: they wait for ever.
#[test]
fn writers_are_not_left_waiting_when_the_collector_fails() {
    let dir = tempfile::tempdir().expect("directory");
    let Some(_mount) = SmallDisk::mount(dir.path(), 21 << 20) else { return };
    let full = MapOptions { memory_budget_bytes: 21 << 20, ..one_writer(Durability::None) };
    let map = Map::open(dir.path(), full).expect("open");
    let (told, answer) = mpsc::channel();
    let writer = map.clone();
    std::thread::spawn(move || {
        for n in 0..100_000u64 {
            // Every log a little more than half dead: the collector is due, and needs a log.
            let refused = writer.put(&(n % 400).to_be_bytes(), &[1; 20_000]).err();
            let refused =
                refused.or_else(|| writer.put(&(1_000_000 + n).to_be_bytes(), &[1; 15_000]).err());
            if let Some(error) = refused {
                // Nobody listens only when the test is over.
                let _over = told.send(error.to_string());
                return;
            }
        }
    });
    let told = answer.recv_timeout(Duration::from_secs(20));
    assert!(told.is_ok(), "a put has waited for 20 seconds: {:?}", map.stats());
}

/// A tmpfs of a few megabytes, gone when dropped.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount(at: &Path, bytes: u64) -> Option<SmallDisk<'_>> {
        let size = format!("size={bytes}");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(at)
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(at));
        }
        eprintln!(
            "SKIPPED: no small disk can be mounted here (not root?), so a full one is not tested"
        );
        None
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Lazily: a map may still be open on it when a test fails.
        let _gone = std::process::Command::new("umount").arg("-l").arg(self.0).status();
    }
}
