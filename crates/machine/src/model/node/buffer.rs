//! The lines that a medium's buffer holds, in the order of their use.
//!
//! Every miss of the modelled machine comes by here, so nothing moves: places are linked in a ring, and a line
//! is found by comparing many at once.

use super::super::time::Ps;

/// No line of the medium, and not followed by one.
pub(super) const NOTHING: u64 = u64::MAX / 2;
/// Places compared at once.
const AT_ONCE: usize = 16;

/// Lines of the medium, at places that stay theirs while they are held.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Of each place the lower half of the line there, in whole groups of places.
    tags: Vec<u32>,
    blocks: Vec<u64>,
    /// The pieces of the line that were written.
    pub(super) dirty: Vec<u8>,
    /// When the line is there.
    pub(super) ready: Vec<Ps>,
    /// The places used right before and right after each. Behind the last place stands the ring's own, from
    /// which the latest used follows and before which the longest unused comes.
    ring: Vec<[u16; 2]>,
}

const BEFORE: usize = 0;
const AFTER: usize = 1;

impl Buffer {
    pub(super) fn new(lines: usize) -> Self {
        let places = u16::try_from(lines + 1).expect("a buffer has fewer lines than 2^16");
        let ring = |place| [(place + places - 1) % places, (place + 1) % places];
        Buffer {
            tags: vec![NOTHING as u32; lines.next_multiple_of(AT_ONCE)],
            blocks: vec![NOTHING; lines],
            dirty: vec![0; lines],
            ready: vec![0; lines],
            ring: (0..places).map(ring).collect(),
        }
    }

    /// Where the line is; it is used now.
    #[inline]
    pub(super) fn find(&mut self, block: u64) -> Option<usize> {
        let place = self.place_of(block)?;
        self.unlink(place);
        self.link_behind(self.blocks.len(), place);
        Some(place)
    }

    #[inline]
    fn place_of(&self, block: u64) -> Option<usize> {
        let tag = block as u32;
        for (group, tags) in self.tags.chunks_exact(AT_ONCE).enumerate() {
            if tags.iter().fold(false, |any, held| any | (*held == tag)) {
                let places = group * AT_ONCE..self.blocks.len().min((group + 1) * AT_ONCE);
                let found = self.blocks[places].iter().position(|held| *held == block);
                if let Some(place) = found {
                    return Some(group * AT_ONCE + place);
                }
            }
        }
        None
    }

    /// Takes a line that is not held, used now; returns its place, and the written pieces of the line that
    /// had to leave: the longest unused one.
    pub(super) fn insert(&mut self, block: u64, dirty: u8, ready: Ps) -> (usize, u8) {
        let place = usize::from(self.ring[self.blocks.len()][BEFORE]);
        self.unlink(place);
        self.link_behind(self.blocks.len(), place);
        self.hold(place, block);
        self.ready[place] = ready;
        (place, std::mem::replace(&mut self.dirty[place], dirty))
    }

    /// The place is free, and the next to be taken.
    pub(super) fn remove(&mut self, place: usize) {
        self.hold(place, NOTHING);
        self.dirty[place] = 0;
        self.unlink(place);
        let last = usize::from(self.ring[self.blocks.len()][BEFORE]);
        self.link_behind(last, place);
    }

    pub(super) fn clear(&mut self) {
        (0..self.blocks.len()).for_each(|place| self.hold(place, NOTHING));
        self.dirty.fill(0);
    }

    fn hold(&mut self, place: usize, block: u64) {
        self.blocks[place] = block;
        self.tags[place] = block as u32;
    }

    fn unlink(&mut self, place: usize) {
        let [before, after] = self.ring[place];
        self.ring[usize::from(before)][AFTER] = after;
        self.ring[usize::from(after)][BEFORE] = before;
    }

    fn link_behind(&mut self, before: usize, place: usize) {
        let after = self.ring[before][AFTER];
        self.ring[place] = [before as u16, after];
        self.ring[before][AFTER] = place as u16;
        self.ring[usize::from(after)][BEFORE] = place as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    /// What a buffer is to be: lines in a row, the latest used first.
    #[derive(Default)]
    struct Row(Vec<(u64, u8)>);

    #[test]
    fn it_gives_up_the_longest_unused_and_free_places_first() {
        for lines in [1, 5, 16, 64] {
            let (mut buffer, mut row, mut rng) = (Buffer::new(lines), Row::default(), Rng::new(7));
            for _ in 0..20_000 {
                // Distinguishes lines that differ only in their upper halves.
                let block = rng.below(2 * lines as u64) | rng.below(2) << 40;
                let known = row.0.iter().position(|(held, _)| *held == block);
                let found = buffer.find(block);
                assert_eq!(found.is_some(), known.is_some());
                match (found, known) {
                    (Some(place), Some(known)) if rng.below(4) == 0 => {
                        assert_eq!(buffer.dirty[place], row.0[known].1);
                        buffer.remove(place);
                        row.0.remove(known);
                    }
                    (Some(_), Some(known)) => row.0[..=known].rotate_right(1),
                    _ => {
                        let pieces = rng.below(16) as u8;
                        let left = if row.0.len() == lines { row.0.pop() } else { None };
                        let (place, dropped) = buffer.insert(block, pieces, 9);
                        assert_eq!(dropped, left.map_or(0, |(_, pieces)| pieces));
                        assert_eq!((buffer.dirty[place], buffer.ready[place]), (pieces, 9));
                        row.0.insert(0, (block, pieces));
                    }
                }
            }
            buffer.clear();
            assert_eq!(buffer.find(row.0[0].0), None);
        }
    }
}
