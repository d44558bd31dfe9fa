//! The directory: which private caches of the machine hold a line.
//!
//! Set-associative like the snoop filters it stands for, with room for twice the lines that all private caches can
//! hold. When a set is full nevertheless, an entry is given up and its holders lose the line.

use crate::random::{Rng, mix};
use terrace_memory::instructions;

const WAYS: usize = 16;

/// The holders of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holders {
    /// A bit a core.
    pub cores: u128,
    /// The only holder may write without asking.
    pub owned: bool,
}

impl Holders {
    /// All but `core`.
    pub fn others(self, core: usize) -> u128 {
        self.cores & !(1 << core)
    }
}

/// The cores of a set of bits.
pub(super) fn cores_of(mut bits: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let core = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(core)
    })
}

#[derive(Clone, Debug)]
pub(super) struct Directory {
    sets: Box<[Set]>,
    /// Holders of lines that have several.
    several: Box<[[u128; WAYS]]>,
    set_bits: u32,
    rng: Rng,
}

/// Entries, 0 where one is free. From below: owned, held by several, the holder where it is one, the part of the line's
/// number that the set does not say, plus one. A set is one line of the computer that this runs on, and nearly
/// always all that is looked at.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set([u32; WAYS]);

const ENTRY_OWNED: u32 = 1;
const ENTRY_SEVERAL: u32 = 2;
const CORE_SHIFT: u32 = 2;
const TAG_SHIFT: u32 = 9;

/// A line's set, and its way if it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectorySlot {
    set: usize,
    way: Option<usize>,
}

impl Directory {
    /// For so many lines in private caches, of numbers of so many bits.
    pub fn new(private_lines: u64, line_bits: u32, seed: u64) -> Self {
        let sets = (2 * private_lines / WAYS as u64).max(1).next_power_of_two();
        // One more than the largest tag has a place in an entry too.
        let set_bits =
            sets.trailing_zeros().max((line_bits + 1 + TAG_SHIFT).saturating_sub(u32::BITS));
        Directory {
            sets: vec![Set([0; WAYS]); 1 << set_bits].into(),
            several: vec![[0; WAYS]; 1 << set_bits].into(),
            set_bits,
            rng: Rng::new(seed),
        }
    }

    /// The line's set and its tag: lines of one stretch lie in sets one behind the other, other stretches elsewhere.
    fn place(&self, line: u64) -> (usize, u32) {
        let tag = line >> self.set_bits;
        (self.turned(tag, line), tag as u32 + 1)
    }

    /// What is the set of a line among those of its stretch, and the other way round.
    fn turned(&self, tag: u64, place: u64) -> usize {
        ((place ^ mix(tag)) & ((1 << self.set_bits) - 1)) as usize
    }

    fn line(&self, set: usize, entry: u32) -> u64 {
        let tag = u64::from((entry >> TAG_SHIFT) - 1);
        tag << self.set_bits | self.turned(tag, set as u64) as u64
    }

    /// Fetches what [`Directory::find`] will look at, for the computer that this runs on.
    pub fn fetch(&self, line: u64) {
        instructions::prefetch((&raw const self.sets[self.place(line).0]).cast());
    }

    /// The holders of the line, none by default, and their entry.
    pub fn find(&self, line: u64) -> (Holders, DirectorySlot) {
        let (set, tag) = self.place(line);
        let ways =
            self.sets[set].0.iter().enumerate().fold(0u32, |ways, (way, entry)| {
                ways | u32::from(entry >> TAG_SHIFT == tag) << way
            });
        let way = (ways != 0).then_some(ways.trailing_zeros() as usize);
        let holders = way.map_or(Holders::default(), |way| self.at(set, way));
        (holders, DirectorySlot { set, way })
    }

    fn at(&self, set: usize, way: usize) -> Holders {
        let entry = self.sets[set].0[way];
        let cores = match entry & ENTRY_SEVERAL {
            0 => 1 << (entry >> CORE_SHIFT & 127),
            _ => self.several[set][way],
        };
        Holders { cores, owned: entry & ENTRY_OWNED != 0 }
    }

    /// Says who holds the line from now on, at the place where it was found; returns the line whose
    /// entry was given up for it.
    pub fn set(
        &mut self,
        line: u64,
        place: DirectorySlot,
        holders: Holders,
    ) -> Option<(u64, Holders)> {
        let DirectorySlot { set, way: known } = place;
        if holders.cores == 0 {
            if let Some(way) = known {
                self.sets[set].0[way] = 0;
            }
            return None;
        }
        let way = known.unwrap_or_else(|| {
            let free = self.sets[set].0.iter().position(|entry| *entry == 0);
            free.unwrap_or_else(|| self.rng.below(WAYS as u64) as usize)
        });
        let old = (self.sets[set].0[way], self.at(set, way));
        let mut entry = self.place(line).1 << TAG_SHIFT | u32::from(holders.owned);
        if holders.cores.is_power_of_two() {
            entry |= holders.cores.trailing_zeros() << CORE_SHIFT;
        } else {
            entry |= ENTRY_SEVERAL;
            self.several[set][way] = holders.cores;
        }
        self.sets[set].0[way] = entry;
        (known.is_none() && old.0 != 0).then(|| (self.line(set, old.0), old.1))
    }

    /// Nobody holds anything.
    pub fn clear(&mut self) {
        self.sets.fill(Set([0; WAYS]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_kept_and_forgotten() {
        let mut directory = Directory::new(64, 35, 1);
        let holders = Holders { cores: 0b101, owned: false };
        let (nobody, place) = directory.find(9);
        assert_eq!(nobody, Holders::default());
        assert_eq!(directory.set(9, place, holders), None);
        let (found, place) = directory.find(9);
        assert_eq!(found, holders);
        assert_eq!(cores_of(holders.others(0)).collect::<Vec<_>>(), [2]);
        directory.set(9, place, Holders::default());
        assert_eq!(directory.find(9).0, Holders::default());
    }

    #[test]
    fn a_full_set_gives_one_up() {
        let mut directory = Directory::new(2, 22, 1);
        let mut held = std::collections::HashSet::new();
        for line in 0..1000 {
            let place = directory.find(line).1;
            let holders = Holders { cores: 1 << (line % 128), owned: true };
            held.insert(line);
            if let Some((old, whose)) = directory.set(line, place, holders) {
                assert!(held.remove(&old), "{old} was held");
                assert_eq!(whose.cores, 1 << (old % 128));
            }
        }
        assert_eq!(held.len(), 16, "one set");
        assert!(held.iter().all(|line| directory.find(*line).1.way.is_some()));
    }

    #[test]
    fn lines_far_apart_are_told_apart() {
        let mut directory = Directory::new(1 << 10, 35, 1);
        let lines = (0..35).map(|bit| 1 << bit).chain([0, (1 << 35) - 1]);
        for (number, line) in lines.clone().enumerate() {
            let place = directory.find(line).1;
            directory.set(line, place, Holders { cores: 1 << number, owned: false });
        }
        for (number, line) in lines.enumerate() {
            let (holders, place) = directory.find(line);
            assert_eq!(holders.cores, 1 << number, "line {line}");
            let entry = directory.sets[place.set].0[place.way.unwrap()];
            assert_eq!(directory.line(place.set, entry), line);
        }
    }
}
