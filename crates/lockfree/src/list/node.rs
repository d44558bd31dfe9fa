//! A node, its link, and the memory that nodes lie in.
//!
//! A node is one line: `| link | key | value | valid | deleted | kept | gone | - |`, words of which each list
//! uses its own. A link is the slot of the next node (0: none, since slot 0 is the head of the file)
//! above two bits that say the state of the node that *has* the link, so that one compare-exchange
//! decides about both. Slots instead of addresses: the file means the same wherever it is mapped.

use super::slots::Slots;
use super::step::{Step, Steps};
pub(super) use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::{Claim, Domain, Memory};

/// No node.
pub(super) const END: u64 = 0;

pub(super) const LINK: u64 = 0;
pub(super) const KEY: u64 = 8;
pub(super) const VALUE: u64 = 16;
pub(super) const VALID: u64 = 24;
pub(super) const DELETED: u64 = 32;
pub(super) const KEPT: u64 = 40;
pub(super) const GONE: u64 = 48;

/// What a link says of the node that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is in the set.
    Present = 0,
    /// It is, and someone is taking it out: only where the removal must be durable first (SOFT).
    Leaving = 1,
    /// It is not yet: only where the insertion must be durable first (SOFT).
    Coming = 2,
    /// It is not any more, and the link never changes again.
    Gone = 3,
}

/// The word of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(pub(super) u64);

impl Link {
    pub(super) fn to(slot: u64, state: State) -> Link {
        Link(slot << 2 | state as u64)
    }

    /// The next node.
    #[inline(always)]
    pub(super) fn slot(self) -> u64 {
        self.0 >> 2
    }

    #[inline(always)]
    pub(super) fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Present,
            1 => State::Leaving,
            2 => State::Coming,
            _ => State::Gone,
        }
    }

    #[inline(always)]
    pub(super) fn is_gone(self) -> bool {
        self.0 & 3 == State::Gone as u64
    }

    /// The same state, another next node.
    #[inline(always)]
    pub(super) fn with_slot(self, slot: u64) -> Link {
        Link(slot << 2 | self.0 & 3)
    }

    #[inline(always)]
    pub(super) fn with_state(self, state: State) -> Link {
        Link(self.0 & !3 | state as u64)
    }
}

/// Where an operation stands: two neighbours that are not gone, as they were a moment ago.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The node whose link led to `left`; none if `left` is the head of the bucket.
    pub(super) before: u64,
    pub(super) left: u64,
    /// The link of `left`, which leads to `right`.
    pub(super) left_link: Link,
    /// The first node with the key or a larger one.
    pub(super) right: u64,
    pub(super) right_link: Link,
}

/// How the slots are divided: the head of the file, a line of log for each session, the heads of the
/// buckets, nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Lines of log.
    pub(super) logs: u64,
    /// Buckets, a power of two.
    pub(super) buckets: u64,
    /// Nodes.
    pub(super) capacity: u64,
}

impl Shape {
    pub(super) fn log(&self, session: usize) -> u64 {
        1 + session as u64
    }

    pub(super) fn head(&self, bucket: u64) -> u64 {
        1 + self.logs + bucket
    }

    pub(super) fn first_node(&self) -> u64 {
        self.head(self.buckets)
    }

    /// Behind the last slot.
    pub(super) fn end(&self) -> u64 {
        self.first_node() + self.capacity
    }

    pub(super) fn is_node(&self, slot: u64) -> bool {
        (self.first_node()..self.end()).contains(&slot)
    }

    /// The bucket of a key, by the high bits of a product (Fibonacci hashing): it is part of the format.
    #[inline(always)]
    pub(super) fn bucket(&self, key: u64) -> u64 {
        // Two shifts, so that one bucket is legal.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash >> 1 >> (63 - self.buckets.trailing_zeros())
    }
}

/// Slots of 64 bytes in one memory or two: where links are followed, and where nodes survive.
#[derive(Debug)]
pub struct Nodes<M> {
    _claims: [Option<Claim>; 2],
    /// Where links, and keys beside them, are read.
    pub(super) links: M,
    /// Where what survives is written; the same memory but for SOFT.
    pub(super) kept: M,
    domain: Domain,
    pub(super) steps: Steps,
    pub(super) shape: Shape,
    pub(super) slots: Slots,
}

// SAFETY, for every access: slots come from links and from the bitmap, both of which name slots of the
// shape alone (links of a file are checked when it is opened), and the shape lies inside both memories;
// words are aligned and only ever accessed as words.
impl<M: Memory> Nodes<M> {
    /// `links` are the same memory if there is no second one, which is told by `is_one`.
    pub(super) fn new(kept: M, links: M, is_one: bool, shape: Shape, steps: Steps) -> Nodes<M> {
        let second = (!is_one).then(|| links.claim(0, links.len()));
        let claims = [Some(kept.claim(0, kept.len())), second];
        let slots = Slots::new(shape.first_node(), shape.end());
        Nodes { _claims: claims, domain: kept.domain(), links, kept, steps, shape, slots }
    }

    #[inline(always)]
    pub(super) fn link(&self, slot: u64) -> Link {
        // SAFETY: above.
        Link(unsafe { self.links.load(slot * LINE + LINK) })
    }

    #[inline(always)]
    pub(super) fn key(&self, slot: u64) -> u64 {
        // SAFETY: above.
        unsafe { self.links.load(slot * LINE + KEY) }
    }

    #[inline(always)]
    pub(super) fn value(&self, slot: u64) -> u64 {
        // SAFETY: above.
        unsafe { self.links.load(slot * LINE + VALUE) }
    }

    /// Changes a link if it is still `from`.
    #[inline(always)]
    pub(super) fn swap(&self, slot: u64, from: Link, to: Link) -> bool {
        // SAFETY: above.
        unsafe { self.links.compare_exchange(slot * LINE + LINK, from.0, to.0) }.is_ok()
    }

    /// A word of a slot where links are.
    pub(super) fn near(&self, slot: u64, word: u64) -> u64 {
        // SAFETY: above.
        unsafe { self.links.load(slot * LINE + word) }
    }

    pub(super) fn set_near(&self, slot: u64, word: u64, value: u64) {
        // SAFETY: above.
        unsafe { self.links.store(slot * LINE + word, value) }
    }

    /// A word of a slot where nodes survive.
    pub(super) fn get(&self, slot: u64, word: u64) -> u64 {
        // SAFETY: above.
        unsafe { self.kept.load(slot * LINE + word) }
    }

    pub(super) fn set(&self, slot: u64, word: u64, value: u64) {
        // SAFETY: above.
        unsafe { self.kept.store(slot * LINE + word, value) }
    }

    /// Starts the write-back of a slot, where caches do not survive, unless the step is left out.
    #[inline(always)]
    pub(super) fn write_back(&self, slot: u64, step: Step) {
        if self.domain == Domain::Adr && self.steps.has(step) {
            // SAFETY: above.
            unsafe { self.kept.write_back(slot * LINE, LINE) }
        }
    }

    /// Waits for write-backs; orders stores where caches survive.
    #[inline(always)]
    pub(super) fn fence(&self, step: Step) {
        if self.domain.is_byte_addressable() && self.steps.has(step) {
            self.kept.fence();
        }
    }

    /// Makes a slot durable outside of any protocol: what creation and recovery write.
    pub(super) fn settle(&self, slot: u64) {
        // SAFETY: above.
        unsafe { self.kept.persist(slot * LINE, LINE) }
    }

    /// Makes every slot read as zero, durably.
    pub(super) fn clear(&self) {
        let zeros = [0; 4096];
        let end = self.shape.end() * LINE;
        let mut at = 0;
        while at < end {
            let bytes = (end - at).min(zeros.len() as u64);
            // SAFETY: above; nobody else uses the memory while a table is made.
            unsafe { self.kept.write(at, &zeros[..bytes as usize]) };
            at += bytes;
        }
        // SAFETY: above.
        unsafe { self.kept.persist(0, end) };
    }

    #[inline(always)]
    pub(super) fn head_of(&self, key: u64) -> u64 {
        self.shape.head(self.shape.bucket(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_where_and_how() {
        let link = Link::to(77, State::Leaving);
        assert_eq!((link.slot(), link.state()), (77, State::Leaving));
        assert_eq!(link.with_slot(5), Link::to(5, State::Leaving));
        assert!(link.with_state(State::Gone).is_gone());
        assert_eq!(Link(0), Link::to(END, State::Present), "zeros are the end of a bucket");
    }

    #[test]
    fn every_key_has_a_bucket() {
        for bits in [0, 1, 5] {
            let shape = Shape { logs: 64, buckets: 1 << bits, capacity: 10 };
            let mut met = vec![0; 1 << bits];
            (0..1000).for_each(|key| met[shape.bucket(key) as usize] += 1);
            assert!(met.iter().all(|count| *count > 0), "{met:?}");
        }
    }
}
