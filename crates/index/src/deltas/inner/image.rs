//! A node's words, taken out of the memory to be changed and put back.

/// Bytes of a node.
pub(super) const NODE: u64 = 512;
pub(super) const WORDS: usize = NODE as usize / 8;
/// Children of a node, at most.
pub(super) const ROOM: usize = 20;
/// Children of a node that is built.
pub(super) const FILL: usize = 15;
pub(super) const META: usize = 1;
pub(super) const HIGH: usize = 2;
pub(super) const LOW: usize = HIGH + ROOM;
pub(super) const CHILD: usize = LOW + ROOM;

/// A separator's words: head, child, and the number of the tied key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    pub(super) head: u128,
    pub(super) child: u32,
    pub(super) tie: u32,
}

/// A node's words, to be changed and put back.
pub(super) struct Image(pub(super) [u64; WORDS]);

impl Image {
    pub(super) fn empty(level: u64) -> Image {
        let mut words = [0; WORDS];
        words[META] = level << 16;
        Image(words)
    }

    pub(super) fn count(&self) -> usize {
        count_of(self.0[META])
    }

    pub(super) fn level(&self) -> u64 {
        self.0[META] >> 16
    }

    pub(super) fn set_count(&mut self, count: usize) {
        self.0[META] = self.0[META] & !0xffff | count as u64;
    }

    pub(super) fn child(&self, place: usize) -> Child {
        let head = u128::from(self.0[HIGH + place]) << 64 | u128::from(self.0[LOW + place]);
        let word = self.0[CHILD + place];
        Child { head, child: word as u32, tie: (word >> 32) as u32 }
    }

    pub(super) fn set(&mut self, place: usize, child: Child) {
        self.0[HIGH + place] = (child.head >> 64) as u64;
        self.0[LOW + place] = child.head as u64;
        self.0[CHILD + place] = u64::from(child.child) | u64::from(child.tie) << 32;
    }

    pub(super) fn insert(&mut self, place: usize, child: Child) {
        let count = self.count();
        for row in [HIGH, LOW, CHILD] {
            self.0.copy_within(row + place..row + count, row + place + 1);
        }
        self.set_count(count + 1);
        self.set(place, child);
    }

    /// Removes a child; the next one takes over what was the first's. Returns the tie that is no more.
    pub(super) fn remove(&mut self, place: usize) -> u32 {
        let count = self.count();
        let gone = self.child(place.max(1)).tie;
        if place == 0 {
            let (first, second) = (self.child(0), self.child(1));
            self.set(1, Child { child: second.child, ..first });
        }
        for row in [HIGH, LOW, CHILD] {
            self.0.copy_within(row + place + 1..row + count, row + place);
        }
        self.set_count(count - 1);
        gone
    }

    pub(super) fn push(&mut self, child: Child) {
        self.insert(self.count(), child);
    }
}

#[inline(always)]
pub(super) fn count_of(meta: u64) -> usize {
    (meta as usize & 0xffff).min(ROOM)
}
