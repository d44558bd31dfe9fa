//! Keys of elements that a snapshot still needs, to be looked at again once a snapshot is closed.
//!
//! A stack that threads push onto, and that one takes as a whole: so it needs no protection against a head that
//! returns. An element is in it once, since its flag says that it is.

use super::key::Key;
use super::link::Node;
use super::table::LookupTable;
use crossbeam_epoch::{Guard, pin};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Elements that an operation looks at, at most.
const AT_ONCE: usize = 64;

#[derive(Debug)]
struct Entry<K> {
    key: K,
    next: *mut Entry<K>,
}

/// The keys of elements that wait.
#[derive(Debug)]
pub(super) struct Graveyard<K> {
    top: AtomicPtr<Entry<K>>,
    /// A snapshot was closed since they were looked at.
    may_leave: AtomicBool,
}

impl<K> Default for Graveyard<K> {
    fn default() -> Self {
        Graveyard { top: AtomicPtr::default(), may_leave: AtomicBool::new(false) }
    }
}

impl<K> Graveyard<K> {
    fn push(&self, key: K) {
        let entry = Box::into_raw(Box::new(Entry { key, next: ptr::null_mut() }));
        self.push_all(entry, entry);
    }

    /// Pushes linked entries, which this thread owns, from the first to the last.
    fn push_all(&self, first: *mut Entry<K>, last: *mut Entry<K>) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: the entries are this thread's until they are pushed.
            unsafe { (*last).next = top };
            match self.top.compare_exchange_weak(top, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    /// Up to so many keys; the rest goes back.
    fn take(&self, most: usize) -> Vec<K> {
        let mut keys = Vec::new();
        let mut rest = self.top.swap(ptr::null_mut(), Ordering::Acquire);
        while !rest.is_null() && keys.len() < most {
            // SAFETY: whoever swapped the top owns all entries below it; each came from a box.
            let entry = unsafe { Box::from_raw(rest) };
            rest = entry.next;
            keys.push(entry.key);
        }
        if !rest.is_null() {
            self.may_leave.store(true, Ordering::Relaxed);
            let mut last = rest;
            loop {
                // SAFETY: it is one of those that this thread owns.
                let next = unsafe { (*last).next };
                if next.is_null() {
                    break;
                }
                last = next;
            }
            self.push_all(rest, last);
        }
        keys
    }

    /// A snapshot was closed.
    pub fn closed(&self) {
        if !self.top.load(Ordering::Relaxed).is_null() {
            self.may_leave.store(true, Ordering::Relaxed);
        }
    }
}

impl<K> Graveyard<K> {
    #[cfg(test)]
    pub fn is_restless(&self) -> bool {
        self.may_leave.load(Ordering::Relaxed)
    }
}

impl<K> Drop for Graveyard<K> {
    fn drop(&mut self) {
        self.take(usize::MAX);
    }
}

impl<K: Key> LookupTable<K> {
    /// After a change of an element: takes it out of the list if it is gone and no snapshot sees it, and notes it if a
    /// snapshot does, or needs one of its versions.
    pub(super) fn settle(&self, node: &Node<K>, guard: &Guard) {
        if node.kill(&self.time, guard) {
            super::step::step();
            node.link.delete();
            // On its way there it unlinks what is deleted.
            self.locate(&node.link.key, guard);
        } else if !node.prune(&self.time, guard) && !node.link.flag() {
            self.graveyard.push(node.link.key.clone());
            // The snapshot may have been closed before it could see this.
            if !self.time.clock.is_read(0, u64::MAX) {
                self.graveyard.closed();
            }
        }
    }

    /// Looks again at some elements that a snapshot needed, if one was closed since.
    #[inline]
    pub(super) fn tidy(&self) {
        if self.graveyard.may_leave.load(Ordering::Relaxed) {
            self.tidy_some();
        }
    }

    #[cold]
    fn tidy_some(&self) {
        self.graveyard.may_leave.store(false, Ordering::Relaxed);
        for key in self.graveyard.take(AT_ONCE) {
            let guard = pin();
            if let Some(node) = self.find(&key, &mut (), &guard) {
                node.link.unflag();
                self.settle(node, &guard);
            }
        }
    }
}
