//! What the data layer is made of: links in the order of their keys, each a boundary marker or an element.
//!
//! A pointer to the next link carries three bits: whether its *owner* is deleted (Harris), whether what it
//! leads *to* is a marker, and one more of the owner: of a marker that its bucket is split, of an element that
//! it waits in the graveyard. So whoever follows a pointer knows what it comes to, and a bucket is 16 bytes for
//! keys of eight: the marker itself, which lies in the array of its level. A look-up finds the pointer to the
//! first element where the paper's finds a pointer to a marker elsewhere, and one to its version: two cache
//! lines less.

use super::version::State;
use crossbeam_epoch::Guard;
use std::sync::atomic::{AtomicPtr, Ordering};

const DELETED: usize = 1;
const TO_MARKER: usize = 2;
const FLAG: usize = 4;
const BITS: usize = DELETED | TO_MARKER | FLAG;
const OWN: usize = DELETED | FLAG;

/// A link of the data layer. Alone it is a marker; an element begins with one.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Link<K> {
    next: AtomicPtr<Link<K>>,
    pub key: K,
}

/// An element: a key, its value, and since when.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Node<K> {
    pub link: Link<K>,
    pub state: State,
    /// The value that the key was first inserted with.
    pub value: u64,
}

/// What a link's pointer says.
#[derive(Debug)]
pub(super) struct Word<K>(*mut Link<K>);

impl<K> Clone for Word<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Word<K> {}

/// A link that a pointer leads to.
#[derive(Debug)]
pub(super) enum Target<'g, K> {
    Marker(&'g Link<K>),
    Element(&'g Node<K>),
}

impl<K> Clone for Target<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Target<'_, K> {}

impl<'g, K> Target<'g, K> {
    #[inline(always)]
    pub fn link(self) -> &'g Link<K> {
        match self {
            Target::Marker(link) => link,
            Target::Element(node) => &node.link,
        }
    }
}

impl<K> Word<K> {
    pub fn is_deleted(self) -> bool {
        self.0.addr() & DELETED != 0
    }

    pub fn has_flag(self) -> bool {
        self.0.addr() & FLAG != 0
    }

    /// The same owner's pointer, leading where another's does.
    pub fn leading_like(self, other: Word<K>) -> Word<K> {
        let own = self.0.addr() & OWN;
        Word(other.0.map_addr(|address| address & !OWN | own))
    }

    fn leading_to(self, link: *mut Link<K>, is_marker: usize) -> Word<K> {
        let own = self.0.addr() & OWN;
        Word(link.map_addr(|address| address | own | is_marker))
    }

    /// The same owner's pointer, leading to an element that is not yet in the list.
    pub fn leading_to_element(self, node: *mut Node<K>) -> Word<K> {
        self.leading_to(node.cast(), 0)
    }

    /// The same owner's pointer, leading to a marker that is not yet in the list.
    pub fn leading_to_marker(self, marker: *const Link<K>) -> Word<K> {
        self.leading_to(marker.cast_mut(), TO_MARKER)
    }

    /// Where it leads, unless it is the last.
    #[inline(always)]
    pub fn target<'g>(self, _: &'g Guard) -> Option<Target<'g, K>> {
        let link = self.0.map_addr(|address| address & !BITS);
        if link.is_null() {
            return None;
        }
        // SAFETY: a word is read from a link that the guard, pinned before, protects. What it leads to was in
        // the list while the guard was pinned, or is led to by a deleted link that was: it is freed only after
        // it is unlinked and every guard pinned by then is dropped. The bit tells markers from elements since
        // both are only set together.
        unsafe {
            if self.0.addr() & TO_MARKER != 0 {
                Some(Target::Marker(&*link))
            } else {
                Some(Target::Element(&*link.cast::<Node<K>>()))
            }
        }
    }

    /// Where it leads, as an address to prefetch.
    pub fn address(self) -> *const u8 {
        self.0.map_addr(|address| address & !BITS).cast()
    }

    /// The element that it leads to, for whoever owns it.
    pub fn element(self) -> Option<*mut Node<K>> {
        let link = self.0.map_addr(|address| address & !BITS);
        (self.0.addr() & TO_MARKER == 0 && !link.is_null()).then_some(link.cast())
    }
}

impl<K> Link<K> {
    /// A link that leads nowhere, and is in no list.
    pub fn new(key: K) -> Link<K> {
        Link { next: AtomicPtr::new(std::ptr::null_mut()), key }
    }

    #[inline(always)]
    pub fn word(&self) -> Word<K> {
        Word(self.next.load(Ordering::Acquire))
    }

    /// Sets the pointer of a link that is in no list yet; its flag stays.
    pub fn lead_like(&self, other: Word<K>) {
        self.next.store(self.word().leading_like(other).0, Ordering::Relaxed);
    }

    pub fn swap(&self, old: Word<K>, new: Word<K>) -> bool {
        self.next.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Sets bits of its own; returns the word before.
    fn set(&self, bit: usize) -> Word<K> {
        Word(self.next.fetch_or(bit, Ordering::AcqRel))
    }

    /// From here on its pointer leads where it leads now.
    pub fn delete(&self) {
        self.set(DELETED);
    }

    /// Sets the flag; returns whether it was set before.
    pub fn flag(&self) -> bool {
        self.set(FLAG).has_flag()
    }

    pub fn unflag(&self) {
        self.next.fetch_and(!FLAG, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_16_bytes_and_an_element_32() {
        assert_eq!((size_of::<Link<u64>>(), size_of::<Node<u64>>()), (16, 32));
    }
}
