//! Who holds a line in a private cache, machine-wide.
//!
//! Set-associative like the snoop filters it stands for, indexed by a hash and with room for four
//! times the lines that all private caches can hold. When a set is full nevertheless, an entry is
//! given up and its holders lose the line.

use crate::random::{Rng, mix};
use terrace_memory::instructions;

const WAYS: usize = 8;

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
    mask: u64,
    rng: Rng,
}

/// Entries, 0 where one is free. From below: owned, held by several, the holder where it is one, the
/// line's number plus one. A set is one line of the computer that this runs on, and nearly
/// always all that is looked at.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set([u64; WAYS]);

const ENTRY_OWNED: u64 = 1;
const ENTRY_SEVERAL: u64 = 2;
const CORE_SHIFT: u32 = 2;
const LINE_SHIFT: u32 = 9;

/// A line's set, and its way if it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    set: usize,
    way: Option<usize>,
}

impl Directory {
    pub fn new(private_lines: u64, seed: u64) -> Self {
        let sets = (4 * private_lines / WAYS as u64).next_power_of_two();
        Directory {
            sets: vec![Set([0; WAYS]); sets as usize].into(),
            several: vec![[0; WAYS]; sets as usize].into(),
            mask: sets - 1,
            rng: Rng::new(seed),
        }
    }

    fn set_of(&self, line: u64) -> usize {
        (mix(line) & self.mask) as usize
    }

    /// Fetches what [`Directory::find`] will look at, for the computer that this runs on.
    pub fn fetch(&self, line: u64) {
        instructions::prefetch((&raw const self.sets[self.set_of(line)]).cast());
    }

    /// Who holds the line, nobody by default; and where that is noted.
    pub fn find(&self, line: u64) -> (Holders, Place) {
        let set = self.set_of(line);
        let way = self.sets[set].0.iter().position(|entry| entry >> LINE_SHIFT == line + 1);
        let holders = way.map_or(Holders::default(), |way| self.at(set, way));
        (holders, Place { set, way })
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
    pub fn set(&mut self, line: u64, place: Place, holders: Holders) -> Option<(u64, Holders)> {
        let Place { set, way: known } = place;
        if holders.cores == 0 {
            if let Some(way) = known {
                self.sets[set].0[way] = 0;
            }
            return None;
        }
        let way = known.unwrap_or_else(|| {
            let free = self.sets[set].0.iter().position(|tag| *tag == 0);
            free.unwrap_or_else(|| self.rng.below(WAYS as u64) as usize)
        });
        let old = (self.sets[set].0[way], self.at(set, way));
        let mut entry = (line + 1) << LINE_SHIFT | u64::from(holders.owned);
        if holders.cores.is_power_of_two() {
            entry |= u64::from(holders.cores.trailing_zeros()) << CORE_SHIFT;
        } else {
            entry |= ENTRY_SEVERAL;
            self.several[set][way] = holders.cores;
        }
        self.sets[set].0[way] = entry;
        (known.is_none() && old.0 != 0).then(|| ((old.0 >> LINE_SHIFT) - 1, old.1))
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
        let mut directory = Directory::new(64, 1);
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
        let mut directory = Directory::new(2, 1);
        let mut given_up = 0;
        for line in 0..30 {
            let place = directory.find(line).1;
            let old = directory.set(line, place, Holders { cores: 1, owned: true });
            given_up += usize::from(old.is_some());
        }
        assert_eq!(given_up, 22, "8 ways, one set");
    }
}
