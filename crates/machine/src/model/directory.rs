//! Who holds a line in a private cache, machine-wide.
//!
//! Set-associative like the snoop filters it stands for, indexed by a hash and with room for twice the
//! lines that all private caches can hold. When a set is full nevertheless, an entry is given up
//! and its holders lose the line.

use crate::random::{Rng, mix};

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
    /// Line number plus one, and below it a bit that says owned; 0 is free.
    tags: Box<[u64]>,
    cores: Box<[u128]>,
    mask: u64,
    rng: Rng,
}

impl Directory {
    pub fn new(private_lines: u64, seed: u64) -> Self {
        let sets = (2 * private_lines / WAYS as u64).next_power_of_two();
        Directory {
            tags: vec![0; sets as usize * WAYS].into(),
            cores: vec![0; sets as usize * WAYS].into(),
            mask: sets - 1,
            rng: Rng::new(seed),
        }
    }

    fn start(&self, line: u64) -> usize {
        (mix(line) & self.mask) as usize * WAYS
    }

    fn find(&self, line: u64) -> Option<usize> {
        let start = self.start(line);
        let way = self.tags[start..start + WAYS].iter().position(|tag| tag >> 1 == line + 1)?;
        Some(start + way)
    }

    fn at(&self, at: usize) -> Holders {
        Holders { cores: self.cores[at], owned: self.tags[at] & 1 == 1 }
    }

    /// Who holds the line; nobody by default.
    pub fn get(&self, line: u64) -> Holders {
        self.find(line).map_or(Holders::default(), |at| self.at(at))
    }

    /// Says who holds the line from now on; returns the line whose entry was given up for it.
    pub fn set(&mut self, line: u64, holders: Holders) -> Option<(u64, Holders)> {
        let known = self.find(line);
        if holders.cores == 0 {
            if let Some(at) = known {
                self.tags[at] = 0;
            }
            return None;
        }
        let at = known.unwrap_or_else(|| {
            let start = self.start(line);
            let free = self.tags[start..start + WAYS].iter().position(|tag| *tag == 0);
            start + free.unwrap_or_else(|| self.rng.below(WAYS as u64) as usize)
        });
        let old = self.at(at);
        let tag = (line + 1) << 1 | u64::from(holders.owned);
        let old_tag = std::mem::replace(&mut self.tags[at], tag);
        self.cores[at] = holders.cores;
        (known.is_none() && old_tag != 0).then(|| ((old_tag >> 1) - 1, old))
    }

    /// Nobody holds anything.
    pub fn clear(&mut self) {
        self.tags.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_kept_and_forgotten() {
        let mut directory = Directory::new(64, 1);
        let holders = Holders { cores: 0b101, owned: false };
        assert_eq!(directory.set(9, holders), None);
        assert_eq!(directory.get(9), holders);
        assert_eq!(cores_of(holders.others(0)).collect::<Vec<_>>(), [2]);
        directory.set(9, Holders::default());
        assert_eq!(directory.get(9), Holders::default());
    }

    #[test]
    fn a_full_set_gives_one_up() {
        let mut directory = Directory::new(4, 1);
        let mut given_up = 0;
        for line in 0..30 {
            given_up +=
                usize::from(directory.set(line, Holders { cores: 1, owned: true }).is_some());
        }
        assert_eq!(given_up, 14, "16 ways, one set");
    }
}
