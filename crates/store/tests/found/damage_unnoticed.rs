//! Damage that is not noticed.

use super::*;

fn closed_image(durability: Durability, keys: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(durability)).expect("open");
    for key in 0..keys {
        map.put(&key.to_be_bytes(), &[5; 200]).expect("put");
    }
    map.close().expect("close");
    file_now(dir.path())
}

/// Of two checkpoints the newest that verifies is believed. A bad sector in the newest is thereby taken
/// for a torn write, and the map silently goes back to the checkpoint before it; recovery even frees,
/// durably, what came after.
#[test]
fn a_damaged_checkpoint_is_damage_and_no_older_state() {
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

/// Where every intact record counts, an open log ends at the first item that does not verify, whatever the checkpoint
/// says: one flipped bit in the log that was open at an orderly close hides everything behind it.
#[test]
fn damage_below_the_last_checkpoint_is_no_torn_tail() {
    let image = closed_image(Durability::Sync, 100);
    let mut damaged = image.clone();
    let at =
        (SEGMENT..image.len()).find(|at| image[*at] == 5 && image[at + 150] == 5).expect("an item");
    damaged[at + 10] ^= 1;
    if let Ok((_dir, map)) = opened(&damaged, options(Durability::Sync)) {
        assert_eq!(map.len(), 100, "opened without a word, {:?}", map.recovery());
    }
}

/// The first checkpoint of a new file promises nothing. A file that lost everything behind that checkpoint opens
/// as an empty map; one that lost everything, as a new one.
#[test]
fn a_file_truncated_in_its_head_is_not_an_empty_map() {
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
        let salvaged = Map::open(
            truncated.path(),
            MapOptions { access: Access::Salvage, ..options(Durability::Sync) },
        );
        drop(salvaged);
        assert_eq!(file_now(truncated.path()).len(), bytes, "salvage changed the file's length");
    }
}

/// On a byte-addressable medium the memory is the file: the headers that salvage closes "only in
/// memory" are written to the damaged file.
#[test]
fn salvage_leaves_a_mapped_file_untouched() {
    let mapped =
        |access| MapOptions { domain: Domain::Eadr, access, ..one_writer(Durability::Sync) };
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), mapped(Access::Write)).expect("open");
    for key in 0..100u64 {
        map.put(&key.to_be_bytes(), &[5; 200]).expect("put");
    }
    let image = file_now(dir.path());
    let (copy, salvaged) = opened(&image, mapped(Access::Salvage)).expect("salvage");
    assert_eq!(salvaged.len(), 100);
    drop(salvaged);
    assert!(file_now(copy.path()) == image, "salvage wrote to the file");
}

/// One flipped bit in the superblock, which holds four numbers that never change, and nothing can
/// be salvaged; nor can anything when both checkpoints are bad.
#[test]
fn salvage_reads_what_is_intact_behind_a_damaged_head() {
    let image = closed_image(Durability::Sync, 100);
    for blocks in [&[0][..], &[1], &[2], &[1, 2], &[0, 1, 2]] {
        let mut damaged = image.clone();
        blocks.iter().for_each(|block| damaged[block * BLOCK + 9] ^= 1);
        let salvage = MapOptions { access: Access::Salvage, ..options(Durability::Sync) };
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
    let salvage = MapOptions { access: Access::Salvage, ..one_writer(Durability::None) };
    let (_dir, map) = opened(&image, salvage).expect("salvage");
    let took = start.elapsed();
    assert_eq!(map.get(b"behind").expect("get"), Some(b"it".to_vec()));
    // A quarter of a second, or hours for whoever looks for an item at every byte.
    assert!(took < Duration::from_secs(60), "3 MB of damage took {took:?}");
}

/// The checkpoint names the logs that were open. One of them whose header reads as zero, a sector lost,
/// is taken for a free log all the same, and its keys are gone without a word.
#[test]
fn a_log_that_the_checkpoint_names_is_not_free() {
    for durability in [LONG_INTERVAL, Durability::Sync] {
        let image = closed_image(durability, 100);
        let headers =
            (SEGMENT..image.len()).step_by(SEGMENT).filter(|at| image[*at..*at + 4] == *b"TLO2");
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
        .atomic(|session| {
            session.put(b"a", &[2; 3_000], None)?;
            session.put(b"b", &[2; 3_000], None)
        })
        .expect("batch");
    // Not committed. Its log fills up with dead items and is collected.
    for _ in 0..150 {
        session.put(b"filler", &[3; 40_000], None).expect("put");
    }
    let deadline = Instant::now() + Duration::from_secs(60);
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
        .find(|at| image[*at..*at + 3] == *b"TLO")
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
        access: Access::Write,
    };
    let medium = Medium::open(&spec).expect("medium");
    let logs = Logs::open(medium, 1, &Arc::new(Budget::new(1 << 30))).expect("head");
    logs.recover(1, &|_, _, _| ()).expect("recover");
    let new = NewItem {
        key: b"key",
        value: &vec![1; 3 << 20],
        version: 1,
        expires_at_ms: None,
        tombstone: false,
    };
    for round in 0..40 {
        // Two logs are filled, the checkpointer makes others ready, the first are collected, and all but a
        // few free ones are given back.
        (0..2).for_each(|_| {
            logs.appender(1, new.item_bytes(), Room::Ordinary)
                .expect("room")
                .append(&new, &mut terrace_durable::sections::Changes::new());
        });
        logs.prepare(2).expect("room");
        logs.flush_all().expect("flush");
        let claimed: Vec<u32> =
            logs.survey().iter().map(|view| view.number).filter(|s| logs.claim(*s)).collect();
        logs.free(&claimed).expect("free").reuse_after_readers(&crossbeam_epoch::pin());
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
