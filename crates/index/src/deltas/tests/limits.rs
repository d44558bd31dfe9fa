//! Full memories, damage, and settings that cannot be.

use super::*;
use terrace_durable::BucketLock;

#[test]
fn settings_that_cannot_be_are_named() {
    let fine = Options::default();
    let cases = [
        (Options { logs: 0, ..fine }, "logs = 0: it is 1 to 1024"),
        (Options { logs: 1025, ..fine }, "logs = 1025"),
        (
            Options { node_bytes: 500, ..fine },
            "node_bytes = 500: it is a power of two from 128 to 4096",
        ),
        (Options { node_bytes: 64, ..fine }, "node_bytes = 64"),
        (Options { recent: 9, ..fine }, "recent = 9: it is 1 to 8"),
        (
            Options { segment_bytes: 512, ..fine },
            "segment_bytes = 512: with leaves of 512 bytes it is a multiple of 64 from 640 on",
        ),
    ];
    for (options, words) in cases {
        let refused = options.check().expect_err("refused").to_string();
        assert!(refused.starts_with(words), "{refused}");
    }
    let tiny = region(8 << 10);
    let refused =
        Deltas::create(regions(&tiny), &fine, &Sixteen, &budget()).expect_err("too small");
    assert!(refused.to_string().contains("8 logs need 10 at least"), "{refused}");
}

#[test]
fn a_full_memory_refuses_inserts_and_keeps_what_it_has() {
    let memory = region(64 << 10);
    let options = Options { logs: 2, segment_bytes: 2048, ..Options::default() };
    let index = create(&memory, &options, &Sixteen);
    let mut count = 0;
    let refused = loop {
        let mut has_run = false;
        let insert = |_: Option<[u64; 2]>, _: &BucketLock| {
            has_run = true;
            (Change::Set([count + 1, 0]), ())
        };
        match index.update_then(&sixteen(count), &Sixteen, insert, |()| ()) {
            Ok(_) => count += 1,
            Err(refused) => {
                assert!(!has_run, "nothing was begun");
                break refused;
            }
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!(
        refused.to_string().contains("the delta logs are full: 30 segments of 2048 bytes"),
        "{refused}"
    );
    assert!(count > 700, "{count} entries of 32 bytes in 60 KiB");
    let all_there =
        |index: &Index| (0..count).all(|n| index.get(&sixteen(n), &Sixteen) == Some([n + 1, 0]));
    assert!(all_there(&index));
    drop(index);
    let index = recover(&memory, &options, 1, &Sixteen);
    assert!(all_there(&index));
    // Whatever is deleted makes room again.
    for n in 0..count {
        remove(&index, &sixteen(n), &Sixteen);
    }
    for n in 0..count / 2 {
        put(&index, &sixteen(n + 10_000), [1, 0], &Sixteen);
    }
    assert_eq!(index.len(), count / 2);
}

fn word_at(memory: &Region, at: u64) -> u64 {
    // SAFETY: a word of a memory that recovery has committed and nobody writes.
    unsafe { memory.native().load(at) }
}

/// The same keys again and again take no more memory than garbage is let be.
#[test]
fn overwritten_entries_are_collected_without_being_asked() {
    let memory = region(64 << 10);
    let options = Options { logs: 2, segment_bytes: 2048, ..Options::default() };
    let index = create(&memory, &options, &Sixteen);
    for round in 1..2000u64 {
        for n in 0..50 {
            put(&index, &sixteen(n), [round, n], &Sixteen);
        }
    }
    assert_eq!(index.len(), 50);
    assert!((0..50).all(|n| index.get(&sixteen(n), &Sixteen) == Some([1999, n])));
    drop(index);
    assert_eq!(recover(&memory, &options, 1, &Sixteen).len(), 50);
}

/// Keys that come at one end and go at the other leave nothing behind.
#[test]
fn a_moving_window_of_keys_takes_no_more_and_more() {
    let memory = region(256 << 10);
    let options = Options { logs: 2, segment_bytes: 4096, node_bytes: 128, ..Options::default() };
    let index = create(&memory, &options, &Sixteen);
    let mut most = Stats::default();
    for n in 0..60_000u64 {
        put(&index, &sixteen(n), [n + 1, 0], &Sixteen);
        if n >= 300 {
            assert_eq!(remove(&index, &sixteen(n - 300), &Sixteen), Some([n - 299, 0]));
        }
        if n == 20_000 {
            most = index.stats();
        }
    }
    let now = index.stats();
    assert_eq!(now.entries, 300);
    assert!(now.dram_bytes <= most.dram_bytes + (64 << 10), "{most:?}, then {now:?}");
    assert!(now.inner_nodes <= 2 * most.inner_nodes + 8, "{most:?}, then {now:?}");
}

#[test]
fn damage_is_named_with_its_place() {
    let memory = region(256 << 10);
    let options = Options { logs: 1, segment_bytes: 2048, ..Options::default() };
    let index = create(&memory, &options, &Sixteen);
    for n in 0..200 {
        put(&index, &sixteen(n), [n + 1, 0], &Sixteen);
    }
    // The last record of a log that rests is not the last: what is lost of it is no torn end.
    for _ in 0..2 {
        while index.tidy(&Sixteen).expect("room") {}
    }
    drop(index);
    let native = memory.native();
    let refused_with = |at: u64| {
        // SAFETY: words of a committed memory that nothing else uses.
        let before = unsafe { native.load(at) };
        // SAFETY: as above.
        unsafe { native.store(at, before ^ 4) };
        let refused = Deltas::recover(regions(&memory), &options, 1, &Sixteen, &budget())
            .expect_err("damaged");
        // SAFETY: as above.
        unsafe { native.store(at, before) };
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        refused.to_string()
    };
    assert!(refused_with(0).contains("something else than delta logs"));
    assert!(refused_with(8).contains("the first line of the delta logs is damaged"));
    for at in [24, 32] {
        assert!(refused_with(at).contains("the first line of the delta logs is damaged"));
    }
    assert!(refused_with(4096).contains("the head of segment 0 at 0x1000 is damaged"));
    let is_used = |n: &u64| word_at(&memory, 4096 + 2048 * n) & 0xffff != 0xffff;
    let in_use = (word_at(&memory, 24) & 0xffff_ffff_ffff) / 2048 - 2;
    // A head that was lost is no free segment's, nor is one that says it is free and was damaged.
    let free = (0..in_use).find(|n| !is_used(n)).expect("a free segment");
    let head = |n| format!("the head of segment {n} at");
    assert!(refused_with(4096 + 2048 * free).contains(&head(free)));
    // SAFETY: words of a committed memory that nothing else uses.
    let name = unsafe { native.load(4096 + 2048) };
    // SAFETY: as above.
    unsafe { native.store(4096 + 2048, 4) };
    assert!(refused_with(4096 + 2048).contains(&head(1)));
    // SAFETY: as above.
    unsafe { native.store(4096 + 2048, name) };
    let first = 4096 + 2048 * (0..in_use).find(is_used).expect("a segment in use");
    let words = refused_with(first + 64 + 40);
    assert!(words.contains(&format!("log 0 is damaged at {:#x}", first + 64)), "{words}");
    // In the last segment too: nothing that was acknowledged is taken for the end.
    let last = (0..in_use).rev().find(is_used).expect("a segment in use");
    let words = refused_with(4096 + 2048 * last + 64 + 40);
    assert!(words.contains("does not match its checksum"), "{words}");
    let empty = region(256 << 10);
    let refused =
        Deltas::recover(regions(&empty), &options, 1, &Sixteen, &budget()).expect_err("empty");
    assert!(refused.to_string().contains("holds no delta logs"), "{refused}");
    assert_eq!(recover(&memory, &options, 1, &Sixteen).len(), 200);
}

#[test]
fn sorted_entries_are_loaded_and_others_refused() {
    let memory = region(4 << 20);
    let options = Options { logs: 3, ..Options::default() };
    let index = create(&memory, &options, &Sixteen);
    let entry = |n: u64| Entry { head: u128::from_be_bytes(sixteen(n)), value: [n + 1, 0] };
    let refused = index.bulk_load([1, 2, 2].map(entry), &Sixteen).expect_err("twice");
    assert!(refused.to_string().contains("does not stand behind"), "{refused}");
    assert!(index.is_empty());
    index.bulk_load((0..5000).map(|n| entry(2 * n)), &Sixteen).expect("loaded");
    let refused = index.bulk_load([entry(1)], &Sixteen).expect_err("not empty");
    assert!(refused.to_string().contains("5000 entries are there"), "{refused}");
    put(&index, &sixteen(3), [4, 0], &Sixteen);
    drop(index);
    let index = recover(&memory, &options, 2, &Sixteen);
    assert_eq!(walked_whole(&index, Direction::Up, 100).len(), 5001);
    assert!((0..5000).all(|n| index.get(&sixteen(2 * n), &Sixteen) == Some([2 * n + 1, 0])));
    index.clear(&Sixteen).expect("cleared");
    drop(index);
    assert!(recover(&memory, &options, 1, &Sixteen).is_empty());
}

/// What a load that was cut off forgets is how often segments were used: what lies in them from before would
/// count again.
#[test]
fn uses_of_segments_are_numbered_on_when_a_load_was_cut_off() {
    let memory = region(64 << 10);
    let entry = |n: u64| Entry { head: u128::from_be_bytes(sixteen(n)), value: [n + 1, 0] };
    let index = create(&memory, &small(1), &Sixteen);
    index.bulk_load((0..100).map(entry), &Sixteen).expect("loaded");
    index.clear(&Sixteen).expect("cleared");
    // The power fails before anything of the second load is there.
    let survived = region(64 << 10);
    for memory in [&memory, &survived] {
        memory.commit(0, 64 << 10).expect("memory");
    }
    let cut_off = || {
        for at in (0..64 << 10).step_by(8) {
            // SAFETY: words of committed memories that nobody else writes.
            unsafe { survived.native().store(at, word_at(&memory, at)) };
        }
        None
    };
    index.bulk_load(std::iter::from_fn(cut_off), &Sixteen).expect("nothing is loaded");
    for n in 0..20 {
        let index = recover(&survived, &small(1), 1, &Sixteen);
        assert_eq!(walked_whole(&index, Direction::Up, 100).len() as u64, n);
        put(&index, &sixteen(n), [n + 1, 0], &Sixteen);
    }
}

/// The rest of the face: what a map's collector and readers ask for.
#[test]
fn redirects_looks_and_watches() {
    let memory = region(4 << 20);
    let index = create(&memory, &Options::default(), &Sixteen);
    let key = sixteen(1);
    put(&index, &key, [5, 6], &Sixteen);
    assert!(index.holds(&key, [5, 6], &Sixteen) && !index.holds(&key, [5, 7], &Sixteen));
    let never = |_: &BucketLock| panic!("it is another value");
    assert!(!index.update_at(&key, [5, 7], &Sixteen, never).expect("room"));
    assert!(index.update_at(&key, [5, 6], &Sixteen, |_| Change::Set([8, 9])).expect("room"));
    assert_eq!(index.look(&key, &Sixteen, |value| value), Some([8, 9]));
    let watch = index.watch(&key, &Sixteen);
    assert!(watch.saw_no_overwrite());
    assert_eq!(
        index.look(&key, &Sixteen, |_| watch.saw_no_overwrite()),
        Some(false),
        "while it is latched"
    );
    assert!(watch.saw_no_overwrite());
    index.update_then(&key, &Sixteen, |_, _| (Change::Keep, ()), |()| ()).expect("room");
    assert!(watch.saw_no_overwrite());
    index.update_then(&key, &Sixteen, |_, _| (Change::Overwritten, ()), |()| ()).expect("room");
    assert!(!watch.saw_no_overwrite());
    assert_eq!(index.get(&key, &Sixteen), Some([8, 9]));
}

/// The last record of a log that is damaged is taken for a torn one, so recovery finds what was there before it; if
/// that does not go with what other logs say, it is reported. One change is lost at the most, and no more than that.
#[test]
fn a_lost_last_record_takes_one_change_or_is_reported() {
    let options = Options { node_bytes: 128, ..small(3) };
    let (mut told, mut lost, mut whole) = (0, 0, 0);
    for seed in 0..300 {
        let memory = region(1 << 20);
        let mut random = Random(seed);
        let index = create(&memory, &options, &Sixteen);
        let mut model = BTreeMap::new();
        for number in 1..=20 + random.below(60) {
            let n = random.below(40);
            if random.below(4) == 0 {
                remove(&index, &sixteen(n), &Sixteen);
                model.remove(&n);
            } else {
                put(&index, &sixteen(n), [number, n], &Sixteen);
                model.insert(n, number);
            }
        }
        let tails: Vec<u64> = (0..3).map(|log| index.logs.tail(log, &index.table)).collect();
        drop(index);
        for tail in tails.into_iter().filter(|tail| *tail > 0 && tail % 1024 != 64) {
            let native = memory.native();
            let before = word_at(&memory, tail - 64);
            // SAFETY: a word of a committed memory that nothing else uses.
            unsafe { native.store(tail - 64, before ^ 1 << random.below(64)) };
            match Deltas::recover(regions(&memory), &options, 1, &Sixteen, &budget()) {
                Err(refused) => {
                    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
                    assert!(refused.to_string().contains("damaged"), "{refused}");
                    told += 1;
                }
                Ok(index) => {
                    let entries = walked_whole(&index, Direction::Up, 7);
                    let found: BTreeMap<u64, u64> =
                        entries.iter().map(|entry| (entry.value[1], entry.value[0])).collect();
                    assert_eq!((found.len(), index.len()), (entries.len(), found.len() as u64));
                    let differs = (0..40).filter(|n| found.get(n) != model.get(n)).count();
                    assert!(differs < 2, "seed {seed}: {found:?}, {model:?}");
                    lost += differs;
                    whole += 1 - differs;
                }
            }
            // SAFETY: as above.
            unsafe { native.store(tail - 64, before) };
        }
    }
    assert!(told > 0 && lost > 0 && whole > 0, "{told}, {lost}, {whole}");
}
