//! Set-associative caches: which lines they hold and which they give up.
//!
//! Tags only; the bytes lie in the memory itself. A set is a row of short words, each the part of a line's number
//! that the set does not say and its flags: a look is a handful of compares, and the tags of a machine's cores fit the
//! caches of the computer that models it.

use crate::random::Rng;
use terrace_memory::instructions;

/// The line is held.
const VALID: u32 = 1;
/// The line was written and memory does not have it.
pub(crate) const DIRTY: u32 = 2;
/// No other core holds the line: it may be written without asking.
pub(crate) const OWNED: u32 = 4;
const FLAGS: u32 = 7;
/// Above the flags, the tag: the line's number by that of sets.
const TAG_SHIFT: u32 = 3;
const TAG_BITS: u32 = u32::BITS - TAG_SHIFT;
/// Bytes of a line of the computer that this runs on.
const HOST_LINE: usize = 64;

/// Which line of a full set is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// The one longest unused.
    Lru,
    /// The one that a tree of bits points away from: nearly the longest unused, at a bit a way.
    TreePlru,
    /// Any.
    Random,
    /// Tree-PLRU, but a random line in this percentage of cases.
    Mixed(u8),
}

/// A line that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub line: u64,
    pub flags: u32,
}

impl Victim {
    pub fn is_dirty(self) -> bool {
        self.flags & DIRTY != 0
    }
}

/// One cache.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Rows from `first` on, `stride` words each: none of up to 16 ways lies in two lines of the computer that
    /// this runs on.
    entries: Box<[u32]>,
    first: usize,
    stride: usize,
    /// It holds nothing since it was made or drained: the shared cache of a socket that runs nothing.
    is_empty: bool,
    trees: Box<[u32]>,
    sets: u64,
    ways: usize,
    replacement: Replacement,
    rng: Rng,
}

fn sets(lines: u64, ways: usize) -> u64 {
    (lines / ways as u64).max(1)
}

impl Cache {
    /// Bits of the numbers of lines that a cache like this can tell apart.
    pub fn line_bits(lines: u64, ways: usize) -> u32 {
        TAG_BITS + sets(lines, ways).ilog2()
    }

    pub fn new(lines: u64, ways: usize, replacement: Replacement, seed: u64) -> Self {
        let sets = sets(lines, ways);
        let trees = match replacement {
            Replacement::TreePlru | Replacement::Mixed(_) => sets as usize,
            Replacement::Lru | Replacement::Random => 0,
        };
        let stride = ways.next_power_of_two();
        let entries: Box<[u32]> = vec![0; sets as usize * stride + HOST_LINE / 4].into();
        let first = entries.as_ptr().align_offset(HOST_LINE).min(HOST_LINE / 4);
        Cache {
            entries,
            first,
            stride,
            is_empty: true,
            trees: vec![0; trees].into(),
            sets,
            ways,
            replacement,
            rng: Rng::new(seed),
        }
    }

    /// The line's set and its tag.
    #[inline]
    fn place(&self, line: u64) -> (usize, u32) {
        let (set, tag) = if self.sets.is_power_of_two() {
            (line & (self.sets - 1), line >> self.sets.trailing_zeros())
        } else {
            (line % self.sets, line / self.sets)
        };
        debug_assert!(tag >> TAG_BITS == 0, "line {line} in one of {} sets", self.sets);
        (set as usize, tag as u32)
    }

    /// Where the row of a set begins.
    #[inline]
    fn row(&self, set: usize) -> usize {
        self.first + set * self.stride
    }

    /// The line in a way of a set, if there is one.
    #[inline]
    fn held(&self, set: usize, entry: u32) -> Option<Victim> {
        let line = u64::from(entry >> TAG_SHIFT) * self.sets + set as u64;
        (entry != 0).then_some(Victim { line, flags: entry & FLAGS })
    }

    /// Fetches what a look at the line's set will want, for the computer that this runs on.
    #[inline]
    pub fn fetch(&self, line: u64) {
        if self.is_empty {
            return;
        }
        let start = self.row(self.place(line).0);
        for word in [start, start + self.ways - 1] {
            instructions::prefetch((&raw const self.entries[word]).cast());
        }
    }

    /// The line that would likely be given up for `line`, whose set is near: to fetch what that will want.
    #[inline]
    pub fn likely_victim(&self, line: u64) -> Option<u64> {
        let set = self.place(line).0;
        let way = match self.replacement {
            Replacement::Lru => self.ways - 1,
            Replacement::TreePlru | Replacement::Mixed(_) => self.pointed_at(set),
            Replacement::Random => return None,
        };
        self.held(set, self.entries[self.row(set) + way]).map(|victim| victim.line)
    }

    #[inline]
    fn find(&self, line: u64) -> Option<(usize, usize)> {
        if self.is_empty {
            return None;
        }
        let (set, tag) = self.place(line);
        let wanted = tag << TAG_SHIFT | VALID;
        let start = self.row(set);
        let row = &self.entries[start..start + self.ways];
        // No branch between the ways: all are compared at once.
        let ways = row.iter().enumerate().fold(0u32, |ways, (way, entry)| {
            ways | u32::from(entry & !(FLAGS & !VALID) == wanted) << way
        });
        (ways != 0).then_some((set, ways.trailing_zeros() as usize))
    }

    /// The line's flags, if it is held; it counts as used now, and `set` is added to its flags.
    #[inline]
    pub fn touch(&mut self, line: u64, set: u32) -> Option<u32> {
        let (row, way) = self.find(line)?;
        let at = self.row(row) + way;
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
        let at = self.row(row) + way;
        let entry = &mut self.entries[at];
        if *entry & OWNED == 0 {
            return false;
        }
        *entry |= DIRTY;
        self.used(row, way);
        true
    }

    /// The line's flags, if it is held; changes nothing.
    pub fn peek(&self, line: u64) -> Option<u32> {
        self.find(line).map(|(set, way)| self.entries[self.row(set) + way] & FLAGS)
    }

    /// Takes flags from a held line; returns those it had.
    pub fn clear(&mut self, line: u64, flags: u32) -> Option<u32> {
        let (set, way) = self.find(line)?;
        let at = self.row(set) + way;
        let entry = &mut self.entries[at];
        let had = *entry & FLAGS;
        *entry &= !(flags & !VALID);
        Some(had)
    }

    /// Takes the line out; returns its flags.
    pub fn remove(&mut self, line: u64) -> Option<u32> {
        let (set, way) = self.find(line)?;
        let start = self.row(set);
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
    pub fn insert(&mut self, line: u64, flags: u32) -> Option<Victim> {
        let (set, tag) = self.place(line);
        let start = self.row(set);
        let row = self.entries[start..start + self.ways].iter().enumerate();
        let free = row.fold(0u32, |free, (way, entry)| free | u32::from(*entry == 0) << way);
        let way = if free == 0 { self.victim(set) } else { free.trailing_zeros() as usize };
        let entry = tag << TAG_SHIFT | flags | VALID;
        self.is_empty = false;
        let old = std::mem::replace(&mut self.entries[start + way], entry);
        self.used(set, way);
        self.held(set, old)
    }

    /// How many of 100 lines given up are any from now on, where replacement is mixed.
    pub fn mix(&mut self, percent: u8) {
        if let Replacement::Mixed(random) = &mut self.replacement {
            *random = percent;
        }
    }

    /// Every held line, which leaves.
    pub fn drain(&mut self) -> Vec<Victim> {
        let rows = (0..self.sets as usize).map(|set| (set, self.row(set)));
        let places =
            rows.flat_map(|(set, start)| (start..start + self.ways).map(move |at| (set, at)));
        let held = places.filter_map(|(set, at)| self.held(set, self.entries[at])).collect();
        self.entries.fill(0);
        self.is_empty = true;
        held
    }

    #[inline]
    fn used(&mut self, set: usize, way: usize) {
        match self.replacement {
            Replacement::Lru => {
                let start = self.row(set);
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

    #[test]
    fn the_largest_line_is_distinguished_from_all_others() {
        for lines in [4, 64, 57344 * 4] {
            let last = (1 << Cache::line_bits(lines, 4)) - 1;
            let mut cache = Cache::new(lines, 4, Replacement::Lru, 7);
            let mut held: Vec<u64> = (0..40).map(|bit| last & (1 << bit)).chain([last]).collect();
            held.sort_unstable();
            held.dedup();
            for line in &held {
                let given_up = cache.insert(*line, DIRTY);
                assert!(given_up.is_none_or(|victim| held.contains(&victim.line)));
                assert_eq!(cache.peek(*line), Some(DIRTY | VALID), "line {line}");
            }
            assert!(cache.drain().iter().all(|victim| held.contains(&victim.line)));
        }
    }
}
