//! The fully atomic list: nodes are changed where they lie, each by one set.
//!
//! A lock is taken by a compare-and-swap of the word about the node, from that word as the search read it. The word has
//! a version that every change raises, so the lock also says that the node is still what was read: it is not read
//! again, which the paper's list does under its locks. The set that publishes the change frees the lock with it. An
//! insertion locks one node; the paper's locks its predecessor, too, which only an unlinking needs.
//!
//! The first node of a list is never unlinked, and so may be empty. Every other node that becomes empty is: it is
//! marked dead, which freezes it, and then the link of the node before it, locked as well, leads past it.
//!
//! Beyond the cost table stands one compare-and-swap for each lock.

use super::node::{self, ABOUT, About, NEXT, Place, place};
use super::{Step, Tried, Walker};
use crate::backend::{Backend, NULL};
use crate::object::CPointer;

/// Where a search stopped.
struct Stopped {
    /// The node before, [`NULL`] if it is the first.
    before: u64,
    at: u64,
    about: About,
    place: Place,
}

impl<B: Backend> Walker<'_, B> {
    /// Stops at the first node with a key that is not smaller, or at the last.
    fn full_search(&mut self, head: u64, key: u64) -> Stopped {
        let (mut before, mut at) = (NULL, head);
        loop {
            CPointer::new(at).get(&mut self.context, &mut self.here, self.chains.access);
            let about = About(self.here.near()[ABOUT]);
            let place = place(&self.here, &mut self.context, about.keys(), key);
            let next = self.here.near()[NEXT];
            if place != Place::Behind || next == NULL {
                return Stopped { before, at, about, place };
            }
            (before, at) = (at, next);
            std::mem::swap(&mut self.before, &mut self.here);
        }
    }

    pub(super) fn full_contains(&mut self, head: u64, key: u64) -> bool {
        matches!(self.full_search(head, key).place, Place::Found(_))
    }

    pub(super) fn full_insert(&mut self, head: u64, key: u64) -> Tried {
        let found = self.full_search(head, key);
        let i = match found.place {
            Place::Found(_) => return Tried::Done(false),
            Place::Before(i) => i,
            Place::Behind => found.about.keys(),
        };
        if !self.lock(found.at, found.about) {
            return Tried::Again;
        }
        if found.about.keys() < self.chains.elements {
            node::insert(&mut self.here, i, key);
        } else {
            let new = self.nodes.take();
            if found.place == Place::Behind {
                node::only(&mut self.spare, key, NULL);
            } else {
                node::split(&mut self.here, &mut self.spare, i, key);
            }
            CPointer::new(new).set(&mut self.context, &self.spare, self.chains.access);
            self.here.near()[NEXT] = new;
        }
        self.set_here(found.at);
        Tried::Done(true)
    }

    pub(super) fn full_remove(&mut self, head: u64, key: u64) -> Tried {
        let found = self.full_search(head, key);
        let Place::Found(i) = found.place else {
            return Tried::Done(false);
        };
        if found.about.keys() == 1 && found.before != NULL {
            return self.unlink(&found);
        }
        if !self.lock(found.at, found.about) {
            return Tried::Again;
        }
        node::remove(&mut self.here, i);
        self.set_here(found.at);
        Tried::Done(true)
    }

    /// Unlinks a node whose only key is to go.
    fn unlink(&mut self, found: &Stopped) -> Tried {
        let about_before = About(self.before.near()[ABOUT]);
        if !self.lock(found.before, about_before) {
            return Tried::Again;
        }
        if !self.lock(found.at, found.about) {
            CPointer::new(found.before).store(&mut self.context, ABOUT, about_before.0);
            return Tried::Again;
        }
        let next = self.here.near()[NEXT];
        let left = found.about.with_keys(0).changed();
        let is_marked = !self.chains.left_out.is(Step::Mark);
        self.here.near()[ABOUT] = if is_marked { left.dead().0 } else { left.0 };
        CPointer::new(found.at).set(&mut self.context, &self.here, self.chains.access);
        self.before.near()[NEXT] = next;
        self.before.near()[ABOUT] = about_before.changed().0;
        CPointer::new(found.before).set(&mut self.context, &self.before, self.chains.access);
        self.unlinked(found.at);
        Tried::Done(true)
    }

    /// Locks a node if it is still what was read.
    fn lock(&mut self, at: u64, read: About) -> bool {
        let far = CPointer::new(at);
        if self.chains.left_out.is(Step::Lock) {
            return true;
        }
        let now = match self.chains.left_out.is(Step::VersionCheck) {
            true => About(far.load(&mut self.context, ABOUT)),
            false => read,
        };
        let is_free = |about: About| !about.is_locked() && !about.is_dead();
        is_free(read)
            && is_free(now)
            && far.compare_and_swap(&mut self.context, ABOUT, now.0, now.locked().0).is_ok()
    }

    /// Publishes a change of the locked node that was read last, and frees it.
    fn set_here(&mut self, at: u64) {
        let near = self.here.near();
        near[ABOUT] = About(near[ABOUT]).changed().0;
        CPointer::new(at).set(&mut self.context, &self.here, self.chains.access);
    }
}
