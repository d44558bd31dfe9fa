//! Which slots are free: a bit each, in DRAM (Gugnani, section 6.2).
//!
//! Nothing of it is persistent, so taking a slot needs no transaction and a crash leaks none: recovery
//! takes the slots of the nodes it finds, and all others are free.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each slot, set while it is free.
#[derive(Debug)]
pub struct Slots {
    words: Box<[AtomicU64]>,
}

impl Slots {
    /// Slots `first..end` free, those before `first` not.
    pub fn new(first: u64, end: u64) -> Slots {
        let words = (0..end.div_ceil(64)).map(|word| {
            let is_free = |bit: &u64| (first..end).contains(&(word * 64 + bit));
            AtomicU64::new((0..64).filter(is_free).fold(0, |bits, bit| bits | 1 << bit))
        });
        Slots { words: words.collect() }
    }

    /// Takes a free slot, the next one from `from` on that is found; `from` is left there, so that
    /// threads that begin apart stay apart. Lock-free.
    pub fn take(&self, from: &mut usize) -> Option<u64> {
        for step in 0..=self.words.len() {
            let number = (*from + step) % self.words.len();
            let word = &self.words[number];
            let mut free = word.load(Ordering::Relaxed);
            while free != 0 {
                let bit = 1 << free.trailing_zeros();
                let before = word.fetch_and(!bit, Ordering::Acquire);
                if before & bit != 0 {
                    *from = number;
                    return Some(number as u64 * 64 + u64::from(bit.trailing_zeros()));
                }
                free = before & !bit;
            }
        }
        None
    }

    /// Takes this slot; whether it was free.
    pub fn claim(&self, slot: u64) -> bool {
        let bit = 1 << (slot % 64);
        self.words[(slot / 64) as usize].fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Gives a slot back that nobody can reach any more.
    pub fn give(&self, slot: u64) {
        let bit = 1 << (slot % 64);
        let before = self.words[(slot / 64) as usize].fetch_or(bit, Ordering::Release);
        debug_assert!(before & bit == 0, "slot {slot} was free");
    }

    /// How many are free.
    pub fn free(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// Words of bits.
    pub fn words(&self) -> usize {
        self.words.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;
    use std::collections::HashSet;

    #[test]
    fn every_slot_is_had_once_and_the_whole_slab_is_there() {
        let slots = Slots::new(67, 300);
        let mut from = 3;
        let taken: HashSet<u64> = std::iter::from_fn(|| slots.take(&mut from)).collect();
        assert_eq!(taken, (67..300).collect());
        slots.give(70);
        assert_eq!(slots.free(), 1);
        assert!(slots.claim(70) && !slots.claim(70));
    }

    #[test]
    fn threads_never_get_the_same_slot() {
        let slots = Slots::new(0, 4096);
        let all: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let take = |_| {
                let slots = &slots;
                scope.spawn(move || {
                    let mut from = 0;
                    std::iter::from_fn(|| slots.take(&mut from)).collect::<Vec<u64>>()
                })
            };
            let threads: Vec<_> = (0..3).map(take).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let distinct: HashSet<u64> = all.iter().flatten().copied().collect();
        assert_eq!((distinct.len(), all.iter().map(Vec::len).sum::<usize>()), (4096, 4096));
    }
}
