//! Keys of elements that a snapshot still needs, to be looked at again once a snapshot is closed.
//!
//! Keys are *young* until they were looked at once, then *old*. A closed snapshot has the young ones looked at, and the
//! old ones only if it was announced by the time that the last of them became old: what is old waits for a snapshot
//! that was open then. So a slow reader, for which many elements wait, has them looked at when it is closed, and
//! not whenever a quick one is beside it. Each operation looks at a few.
//!
//! The keys lie on stacks that threads push onto, and that one takes as a whole: so they need no protection against a
//! head that returns. An element is on one of them once, since its flag says that it is.

use super::key::Key;
use super::link::Node;
use super::table::LookupTable;
use crossbeam_epoch::{Guard, pin};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Elements that an operation looks at, at most.
const AT_ONCE: usize = 64;

#[derive(Debug)]
struct Entry<K> {
    key: K,
    next: *mut Entry<K>,
}

/// A stack of keys. Whoever takes it has it alone.
#[derive(Debug)]
struct Stack<K>(AtomicPtr<Entry<K>>);

/// The keys of elements that wait.
#[derive(Debug)]
pub(super) struct Graveyard<K> {
    young: Stack<K>,
    old: Stack<K>,
    /// What is left of a stack that was taken: another operation goes on with it.
    taken: Stack<K>,
    /// Old keys wait for snapshots that were announced at this time or before.
    old_until: AtomicU64,
    /// One of those was closed.
    old_may_leave: AtomicBool,
    /// There is something to look at.
    may_leave: AtomicBool,
}

impl<K> Default for Graveyard<K> {
    fn default() -> Self {
        let stack = || Stack(AtomicPtr::default());
        Graveyard {
            young: stack(),
            old: stack(),
            taken: stack(),
            old_until: AtomicU64::new(0),
            old_may_leave: AtomicBool::new(false),
            may_leave: AtomicBool::new(false),
        }
    }
}

impl<K> Stack<K> {
    fn push(&self, key: K) {
        let entry = Box::into_raw(Box::new(Entry { key, next: ptr::null_mut() }));
        self.push_all(entry, entry);
    }

    /// Pushes linked entries, which this thread owns, from the first to the last.
    fn push_all(&self, first: *mut Entry<K>, last: *mut Entry<K>) {
        let mut top = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the entries are this thread's until they are pushed.
            unsafe { (*last).next = top };
            match self.0.compare_exchange_weak(top, first, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    /// Pushes entries of which this thread knows the first: at once onto an empty stack.
    fn push_from(&self, first: *mut Entry<K>) {
        let empty = ptr::null_mut();
        if self.0.compare_exchange(empty, first, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            return;
        }
        let mut last = first;
        loop {
            // SAFETY: the entries are this thread's until they are pushed.
            let next = unsafe { (*last).next };
            if next.is_null() {
                break;
            }
            last = next;
        }
        self.push_all(first, last);
    }

    fn take(&self) -> *mut Entry<K> {
        if self.is_empty() {
            ptr::null_mut()
        } else {
            self.0.swap(ptr::null_mut(), Ordering::SeqCst)
        }
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst).is_null()
    }
}

impl<K> Drop for Stack<K> {
    fn drop(&mut self) {
        let mut rest = self.take();
        while !rest.is_null() {
            // SAFETY: whoever took a stack owns its entries; each came from a box.
            rest = unsafe { Box::from_raw(rest) }.next;
        }
    }
}

impl<K> Graveyard<K> {
    /// Up to so many keys to look at; the rest waits for the next operation.
    fn take(&self, most: usize) -> Vec<K> {
        // Before the stacks are looked at: what comes to them afterwards is announced again.
        self.may_leave.store(false, Ordering::SeqCst);
        let mut rest = self.taken.take();
        // Young keys that are not looked at now were perhaps what was announced.
        let leaves_young = !rest.is_null();
        if !leaves_young {
            rest = self.young.take();
        }
        if rest.is_null() && self.old_may_leave.swap(false, Ordering::SeqCst) {
            rest = self.old.take();
        }
        let mut keys = Vec::new();
        while !rest.is_null() && keys.len() < most {
            // SAFETY: whoever took a stack owns its entries; each came from a box.
            let entry = unsafe { Box::from_raw(rest) };
            rest = entry.next;
            keys.push(entry.key);
        }
        if !rest.is_null() {
            self.taken.push_from(rest);
        }
        let is_more = !rest.is_null() || self.old_may_leave.load(Ordering::SeqCst);
        if is_more || leaves_young && !self.young.is_empty() {
            self.may_leave.store(true, Ordering::SeqCst);
        }
        keys
    }

    /// A snapshot was closed that was announced at this time.
    pub fn closed(&self, bound: u64) {
        // These look after the announcement was taken back, and whoever pushes a key looks at the announcements
        // afterwards: one of the two sees the other.
        if bound <= self.old_until.load(Ordering::SeqCst) && !self.old.is_empty() {
            self.old_may_leave.store(true, Ordering::SeqCst);
            self.may_leave.store(true, Ordering::SeqCst);
        } else if !self.young.is_empty() {
            self.may_leave.store(true, Ordering::SeqCst);
        }
    }

    #[cfg(test)]
    pub fn is_restless(&self) -> bool {
        self.may_leave.load(Ordering::Relaxed)
    }
}

impl<K: Key> LookupTable<K> {
    /// After a change of an element: takes it out of the list if it is gone and no snapshot sees it, and notes it if a
    /// snapshot does, or needs one of its versions.
    pub(super) fn settle(&self, node: &Node<K>, guard: &Guard) {
        if !self.is_settled(node, guard) && !node.link.flag() {
            self.graveyard.young.push(node.link.key.clone());
            // The snapshot may have been closed before it could see this. The key stays, for nothing.
            self.is_settled(node, guard);
        }
    }

    /// The same, after an element was looked at that had waited.
    fn settle_old(&self, node: &Node<K>, guard: &Guard) {
        if self.is_settled(node, guard) || node.link.flag() {
            return;
        }
        // The clock advances, so that no snapshot that is opened from now on was announced by this time.
        let now = self.time.clock.stamp() - 1;
        self.graveyard.old_until.fetch_max(now, Ordering::SeqCst);
        self.graveyard.old.push(node.link.key.clone());
        // What it waits for may have been closed before the key could be seen; a later one is not waited for.
        if !self.is_settled(node, guard) && !self.time.clock.is_read(0, now + 1) {
            self.graveyard.old_may_leave.store(true, Ordering::SeqCst);
            self.graveyard.may_leave.store(true, Ordering::SeqCst);
        }
    }

    /// Whether no snapshot needs anything of an element, which is then left with nothing for one.
    fn is_settled(&self, node: &Node<K>, guard: &Guard) -> bool {
        if node.kill(&self.time, guard) {
            super::step::step();
            node.link.delete();
            // On its way there it unlinks what is deleted.
            self.locate(&node.link.key, guard);
            return true;
        }
        node.prune(&self.time, guard)
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
        for key in self.graveyard.take(AT_ONCE) {
            let guard = pin();
            if let Some(node) = self.find(&key, &mut (), &guard) {
                node.link.unflag();
                self.settle_old(node, &guard);
            }
        }
    }
}
