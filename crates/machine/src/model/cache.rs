//! Set-associative caches: which lines they hold and which they give up.
//!
//! Tags only; the bytes lie in the memory itself. A set is a row of words, each a line's number and
//! its flags, so a look is a handful of compares and nothing is hashed or allocated.

use crate::random::Rng;
use terrace_memory::instructions;

/// The line is held.
const VALID: u64 = 1;
/// The line was written and memory does not have it.
pub(super) const DIRTY: u64 = 2;
/// No other core holds the line: it may be written without asking.
pub(super) const OWNED: u64 = 4;
const FLAGS: u64 = 7;

/// Which line of a full set is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replacement {
    /// The one longest unused.
    Lru,
    /// The one that a tree of bits points away from: nearly the longest unused, at a bit a way.
    TreePlru,
    /// Any.
    Random,
    /// Tree-PLRU, and any in so many of 100 cases.
    Mixed(u8),
}

/// A line that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub line: u64,
    pub flags: u64,
}

impl Victim {
    pub fn is_dirty(self) -> bool {
        self.flags & DIRTY != 0
    }
}

/// One cache.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    entries: Box<[u64]>,
    trees: Box<[u32]>,
    sets: u64,
    ways: usize,
    replacement: Replacement,
    rng: Rng,
}

impl Cache {
    pub fn new(lines: u64, ways: usize, replacement: Replacement, seed: u64) -> Self {
        let sets = (lines / ways as u64).max(1);
        let trees = match replacement {
            Replacement::TreePlru | Replacement::Mixed(_) => sets as usize,
            Replacement::Lru | Replacement::Random => 0,
        };
        Cache {
            entries: vec![0; sets as usize * ways].into(),
            trees: vec![0; trees].into(),
            sets,
            ways,
            replacement,
            rng: Rng::new(seed),
        }
    }

    #[inline]
    fn set(&self, line: u64) -> usize {
        if self.sets.is_power_of_two() {
            (line & (self.sets - 1)) as usize
        } else {
            (line % self.sets) as usize
        }
    }

    /// Fetches what a look at the line's set will want, for the computer that this runs on.
    #[inline]
    pub fn fetch(&self, line: u64) {
        let start = self.set(line) * self.ways;
        for word in (0..self.ways).step_by(8) {
            instructions::prefetch((&raw const self.entries[start + word]).cast());
        }
    }

    /// The line that would likely be given up for `line`, whose set is near: to fetch what that will want.
    #[inline]
    pub fn likely_victim(&self, line: u64) -> Option<u64> {
        let set = self.set(line);
        let way = match self.replacement {
            Replacement::Lru => self.ways - 1,
            Replacement::TreePlru | Replacement::Mixed(_) => self.pointed_at(set),
            Replacement::Random => return None,
        };
        let entry = self.entries[set * self.ways + way];
        (entry != 0).then_some(entry >> 3)
    }

    #[inline]
    fn find(&self, line: u64) -> Option<(usize, usize)> {
        let set = self.set(line);
        let wanted = (line << 3) | VALID;
        let row = &self.entries[set * self.ways..(set + 1) * self.ways];
        // No branch between the ways: all are compared at once.
        let ways = row.iter().enumerate().fold(0u32, |ways, (way, entry)| {
            ways | u32::from(entry & !(FLAGS & !VALID) == wanted) << way
        });
        (ways != 0).then_some((set, ways.trailing_zeros() as usize))
    }

    /// The line's flags, if it is held; it counts as used now, and `set` is added to its flags.
    #[inline]
    pub fn touch(&mut self, line: u64, set: u64) -> Option<u64> {
        let (row, way) = self.find(line)?;
        let at = row * self.ways + way;
        let flags = self.entries[at] & FLAGS;
        self.entries[at] |= set;
        self.used(row, way);
        Some(flags)
    }

    /// Marks the line dirty if it is held and may be written without asking; returns whether.
    #[inline]
    pub fn write(&mut self, line: u64) -> bool {
        let Some((row, way)) = self.find(line) else {
            return false;
        };
        let entry = &mut self.entries[row * self.ways + way];
        if *entry & OWNED == 0 {
            return false;
        }
        *entry |= DIRTY;
        self.used(row, way);
        true
    }

    /// The line's flags, if it is held; changes nothing.
    pub fn peek(&self, line: u64) -> Option<u64> {
        self.find(line).map(|(set, way)| self.entries[set * self.ways + way] & FLAGS)
    }

    /// Takes flags from a held line; returns those it had.
    pub fn clear(&mut self, line: u64, flags: u64) -> Option<u64> {
        let (set, way) = self.find(line)?;
        let entry = &mut self.entries[set * self.ways + way];
        let had = *entry & FLAGS;
        *entry &= !(flags & !VALID);
        Some(had)
    }

    /// Takes the line out; returns its flags.
    pub fn remove(&mut self, line: u64) -> Option<u64> {
        let (set, way) = self.find(line)?;
        let start = set * self.ways;
        let flags = self.entries[start + way] & FLAGS;
        if self.replacement == Replacement::Lru {
            // Used lines stand in front: the gap goes to the end.
            self.entries[start + way..start + self.ways].rotate_left(1);
            self.entries[start + self.ways - 1] = 0;
        } else {
            self.entries[start + way] = 0;
        }
        Some(flags)
    }

    /// Puts in a line that is not held; returns the one given up for it.
    pub fn insert(&mut self, line: u64, flags: u64) -> Option<Victim> {
        let set = self.set(line);
        let start = set * self.ways;
        let row = self.entries[start..start + self.ways].iter().enumerate();
        let free = row.fold(0u32, |free, (way, entry)| free | u32::from(*entry == 0) << way);
        let way = if free == 0 { self.victim(set) } else { free.trailing_zeros() as usize };
        let old = std::mem::replace(&mut self.entries[start + way], (line << 3) | flags | VALID);
        self.used(set, way);
        (old != 0).then_some(Victim { line: old >> 3, flags: old & FLAGS })
    }

    /// How many of 100 lines given up are any from now on, where replacement is mixed.
    pub fn mix(&mut self, percent: u8) {
        if let Replacement::Mixed(random) = &mut self.replacement {
            *random = percent;
        }
    }

    /// Every held line, which leaves.
    pub fn drain(&mut self) -> Vec<Victim> {
        let held = self.entries.iter_mut().filter(|entry| **entry != 0);
        held.map(|entry| {
            let old = std::mem::take(entry);
            Victim { line: old >> 3, flags: old & FLAGS }
        })
        .collect()
    }

    #[inline]
    fn used(&mut self, set: usize, way: usize) {
        match self.replacement {
            Replacement::Lru => {
                let start = set * self.ways;
                self.entries[start..=start + way].rotate_right(1);
            }
            Replacement::TreePlru | Replacement::Mixed(_) => self.point_away(set, way),
            Replacement::Random => {}
        }
    }

    fn victim(&mut self, set: usize) -> usize {
        match self.replacement {
            Replacement::Lru => self.ways - 1,
            Replacement::TreePlru => self.pointed_at(set),
            Replacement::Random => self.rng.below(self.ways as u64) as usize,
            Replacement::Mixed(percent) => {
                if self.rng.below(100) < u64::from(percent) {
                    self.rng.below(self.ways as u64) as usize
                } else {
                    self.pointed_at(set)
                }
            }
        }
    }

    /// Sets the bits of the tree on the way to `way` to the other side. Node `n` has the children
    /// `2n` and `2n + 1`; a set bit says that the right one is the less recently used.
    fn point_away(&mut self, set: usize, way: usize) {
        let levels = self.ways.next_power_of_two().trailing_zeros();
        let (mut node, mut tree) = (1u32, self.trees[set]);
        for level in (0..levels).rev() {
            let right = (way >> level) as u32 & 1;
            tree = tree & !(1 << node) | (1 - right) << node;
            node = 2 * node + right;
        }
        self.trees[set] = tree;
    }

    /// The way that the tree points at. Where the ways are no power of two some leaves are missing;
    /// a side without leaves is not taken.
    fn pointed_at(&self, set: usize) -> usize {
        let levels = self.ways.next_power_of_two().trailing_zeros();
        let (mut node, mut way) = (1u32, 0usize);
        for level in (0..levels).rev() {
            let mut right = (self.trees[set] >> node) as usize & 1;
            if way + (right << level) >= self.ways {
                right = 0;
            }
            way += right << level;
            node = 2 * node + right as u32;
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_up(replacement: Replacement, uses: &[u64]) -> Vec<u64> {
        // One set of four ways.
        let mut cache = Cache::new(4, 4, replacement, 7);
        let mut lines = Vec::new();
        for line in uses {
            if cache.touch(*line, 0).is_none() {
                lines.extend(cache.insert(*line, 0).map(|victim| victim.line));
            }
        }
        lines
    }

    #[test]
    fn lru_gives_up_the_longest_unused() {
        assert_eq!(given_up(Replacement::Lru, &[1, 2, 3, 4, 1, 5, 6, 2]), [2, 3, 4]);
    }

    #[test]
    fn a_tree_forgets_what_lru_remembers() {
        // Worked by hand: after 1 2 3 4 the root and the left pair point at way 0. Using 1 turns the
        // root to the right pair, whose bit still points at 3, although 2 is older.
        assert_eq!(given_up(Replacement::TreePlru, &[1, 2, 3, 4, 1, 5]), [3]);
        assert_eq!(given_up(Replacement::Lru, &[1, 2, 3, 4, 1, 5]), [2]);
    }

    #[test]
    fn random_is_of_the_seed() {
        let uses: Vec<u64> = (0..100).collect();
        let lines = given_up(Replacement::Random, &uses);
        assert_eq!(lines, given_up(Replacement::Random, &uses));
        assert_ne!(lines, given_up(Replacement::Lru, &uses));
    }

    #[test]
    fn three_ways_are_all_used() {
        let mut cache = Cache::new(3, 3, Replacement::TreePlru, 7);
        for line in 0..100 {
            let victim = cache.insert(line, DIRTY);
            assert_eq!(victim.is_some(), line >= 3, "line {line}");
        }
        assert_eq!(cache.drain().len(), 3);
    }

    #[test]
    fn flags_come_and_go() {
        for replacement in [Replacement::Lru, Replacement::TreePlru] {
            let mut cache = Cache::new(8, 4, replacement, 7);
            cache.insert(5, OWNED);
            assert_eq!(cache.touch(5, DIRTY), Some(OWNED | VALID));
            assert_eq!(cache.clear(5, DIRTY), Some(DIRTY | OWNED | VALID));
            assert_eq!(cache.peek(5), Some(OWNED | VALID));
            assert_eq!(cache.remove(5), Some(OWNED | VALID));
            assert_eq!(cache.touch(5, 0), None);
        }
    }
}
