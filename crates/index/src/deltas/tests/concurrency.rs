//! Threads at once: what one wrote it reads, what others read of it never goes back, and a walk sees every
//! key that stays.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Keys of a writer that stay, and that come and go.
const KEYS: u64 = 400;
const WRITERS: u64 = 3;
const ROUNDS: u64 = 20_000;

/// The `n`-th key of a writer: keys of different writers share leaves.
fn key(writer: u64, n: u64) -> [u8; 16] {
    sixteen(n * WRITERS + writer)
}

fn write(index: &Index, writer: u64, written: &[AtomicU64]) {
    let mut random = Random(writer);
    let mut own = vec![None; 2 * KEYS as usize];
    for round in 1..=ROUNDS {
        let n = random.below(2 * KEYS);
        let key = key(writer, n);
        let own = &mut own[n as usize];
        // The first half stays once it is there.
        let change = match n >= KEYS && random.below(2) == 0 {
            true => Change::Remove,
            false => Change::Set([round, n]),
        };
        let before =
            index.update_then(&key, &Sixteen, |before, _| (change, before), |_| ()).expect("room");
        assert_eq!(before, *own, "writer {writer}, key {n}");
        *own = match change {
            Change::Set(value) => Some(value),
            _ => None,
        };
        assert_eq!(index.get(&key, &Sixteen), *own, "writer {writer}, key {n}");
        if n < KEYS {
            written[(writer * KEYS + n) as usize].store(round, Relaxed);
        }
    }
}

/// Looks keys up, alone and in batches, and walks.
fn read(index: &Index, written: &[AtomicU64], is_over: &AtomicBool) {
    let mut random = Random(99);
    let mut walks = 0;
    while !is_over.load(Relaxed) || walks < 3 {
        for _ in 0..500 {
            let (writer, n) = (random.below(WRITERS), random.below(KEYS));
            let least = written[(writer * KEYS + n) as usize].load(Relaxed);
            let [alone, batched] = {
                let key = key(writer, n);
                let mut batched = [None; 2];
                index.multi_get(&[key, sixteen(7)], &Sixteen, &mut batched);
                [index.get(&key, &Sixteen), batched[0]]
            };
            for found in [alone, batched] {
                let round = found.map_or(0, |[round, of]| {
                    assert_eq!(of, n);
                    round
                });
                assert!(round >= least, "writer {writer}, key {n}: {round} after {least}");
            }
        }
        let there: Vec<bool> = written.iter().map(|round| round.load(Relaxed) > 0).collect();
        let direction = if walks % 2 == 0 { Direction::Up } else { Direction::Down };
        let mut entries = walked_whole(index, direction, 20);
        if direction == Direction::Down {
            entries.reverse();
        }
        assert!(entries.is_sorted_by(|a, b| a.head < b.head), "in order, and once");
        let seen: std::collections::HashSet<u128> =
            entries.iter().map(|entry| entry.head).collect();
        for (place, _) in there.iter().enumerate().filter(|(_, there)| **there) {
            let (writer, n) = (place as u64 / KEYS, place as u64 % KEYS);
            assert!(
                seen.contains(&u128::from_be_bytes(key(writer, n))),
                "a walk misses a key that stays"
            );
        }
        walks += 1;
    }
}

#[test]
fn threads_see_what_was_written_while_segments_are_collected() {
    // So little that segments are used again all the time.
    let memory = region(1 << 20);
    let options =
        Options { logs: 2, segment_bytes: 16 << 10, node_bytes: 256, ..Options::default() };
    let index = create(&memory, &options, &Sixteen);
    let written: Vec<AtomicU64> = (0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (index, written) = (&index, &written);
                scope.spawn(move || write(index, writer, written))
            })
            .collect();
        scope.spawn(|| read(&index, &written, &is_over));
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                index.collect(8 << 10, &Sixteen).expect("room");
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("a writer"));
    });
    let before = walked_whole(&index, Direction::Up, 1000);
    assert_eq!(index.len(), before.len() as u64);
    drop(index);
    let index = recover(&memory, &options, 2, &Sixteen);
    assert_eq!(walked_whole(&index, Direction::Up, 1000), before);
}

/// Readers go on while everything is removed and segments, leaves and nodes are used again: they find what was there at
/// some time since they began.
#[test]
fn readers_do_not_mind_that_an_index_is_cleared() {
    const CLEARED: u64 = 150;
    let memory = region(1 << 20);
    let index = create(&memory, &Options { node_bytes: 128, ..small(2) }, &Sixteen);
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let read = |seed: u64| {
            let (index, written, is_over) = (&index, &written, &is_over);
            move || {
                let mut random = Random(seed);
                while !is_over.load(Relaxed) {
                    let (n, least) = (random.below(KEYS), written.load(Relaxed));
                    if let Some([round, of]) = index.get(&sixteen(n), &Sixteen) {
                        assert!(of == n && round > least, "{round} of {of}, {least} of {n}");
                    }
                    let from = sixteen(n);
                    let mut last = None;
                    index.range(Bound::Included(&from), Direction::Up, 9, &Sixteen, |page| {
                        for entry in page {
                            assert!(last < Some(entry.head), "in order");
                            assert!(entry.value[0] > least, "{entry:?}, {least}");
                            last = Some(entry.head);
                        }
                    });
                }
            }
        };
        let readers = [1, 2].map(|seed| scope.spawn(read(seed)));
        for round in 1..=CLEARED {
            for n in 0..KEYS {
                put(&index, &sixteen(n * 7 % KEYS), [round, n * 7 % KEYS], &Sixteen);
            }
            index.clear(&Sixteen).expect("cleared");
            written.store(round, Relaxed);
        }
        is_over.store(true, Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
    });
    assert!(index.is_empty());
}
