//! The element-wise list: nodes are replaced, not changed.
//!
//! A node that can be found keeps its keys for ever; only its link changes. An update first *claims* the node whose
//! keys change: a compare-and-swap sets `LOCKED` in the node's own link, from the link as it was read. Nobody clears
//! it again, so of two updates of a node one fails, and no update goes into a node that has been replaced. (As
//! printed, the paper's list lacks this: see `printed.rs`.) The claimed link is frozen, so the replacement can be
//! copied from it. It is published by a compare-and-swap of the link that leads to the claimed node. That link may be
//! claimed or replaced meanwhile; then the claimed node's predecessor is looked for again. It is there: only the
//! claimer unlinks a node. And claims do not wait in a circle, since each waits for nodes nearer to the head only.
//!
//! Beyond the cost table stand one load of the head's link, and one compare-and-swap for the claim.

use super::node::{self, ABOUT, About, LOCKED, NEXT, Place, place, target};
use super::{Step, Tried, Walker};
use crate::backend::{Backend, Context, NULL};
use crate::object::CPointer;

/// Where a search stopped.
struct Stopped {
    /// The link that leads to the node.
    link: u64,
    /// The node, [`NULL`] if the list is empty.
    at: u64,
    keys: usize,
    next: u64,
    place: Place,
}

impl<B: Backend> Walker<'_, B> {
    fn replace_search(&mut self, head: u64, key: u64) -> Stopped {
        let (mut link, mut at) = (head, target(self.context.load(head)));
        if at == NULL {
            return Stopped { link, at, keys: 0, next: NULL, place: Place::Behind };
        }
        loop {
            CPointer::new(at).get(&mut self.context, &mut self.here, self.chains.access);
            let keys = About(self.here.load(&mut self.context, ABOUT)).keys();
            let place = place(&self.here, &mut self.context, keys, key);
            let next = self.here.load(&mut self.context, NEXT);
            if place != Place::Behind || target(next) == NULL {
                return Stopped { link, at, keys, next, place };
            }
            (link, at) = (at + NEXT as u64, target(next));
        }
    }

    pub(super) fn replace_contains(&mut self, head: u64, key: u64) -> bool {
        matches!(self.replace_search(head, key).place, Place::Found(_))
    }

    pub(super) fn replace_insert(&mut self, head: u64, key: u64) -> Tried {
        let found = self.replace_search(head, key);
        let i = match found.place {
            Place::Found(_) => return Tried::Done(false),
            Place::Before(i) => i,
            // The last node is full, or there is none: a new one goes behind it, if that is still the end.
            Place::Behind if found.at == NULL || found.keys == self.chains.elements => {
                let end = if found.at == NULL { found.link } else { found.at + NEXT as u64 };
                return self.append(end, key);
            }
            Place::Behind => found.keys,
        };
        if !self.claim(&found) {
            return Tried::Again;
        }
        self.here.fill(&mut self.context);
        let first = self.nodes.take();
        if found.keys == self.chains.elements {
            let second = self.nodes.take();
            node::split(&mut self.here, &mut self.spare, i, key);
            CPointer::new(second).set(&mut self.context, &self.spare, self.chains.access);
            self.here.near()[NEXT] = second;
        } else {
            node::insert(&mut self.here, i, key);
            self.here.near()[NEXT] = target(found.next);
        }
        CPointer::new(first).set(&mut self.context, &self.here, self.chains.access);
        self.publish(head, &found, first);
        Tried::Done(true)
    }

    pub(super) fn replace_remove(&mut self, head: u64, key: u64) -> Tried {
        let found = self.replace_search(head, key);
        let Place::Found(i) = found.place else {
            return Tried::Done(false);
        };
        if !self.claim(&found) {
            return Tried::Again;
        }
        let mut instead = target(found.next);
        if found.keys > 1 {
            self.here.fill(&mut self.context);
            node::remove(&mut self.here, i);
            self.here.near()[NEXT] = instead;
            instead = self.nodes.take();
            CPointer::new(instead).set(&mut self.context, &self.here, self.chains.access);
        }
        self.publish(head, &found, instead);
        Tried::Done(true)
    }

    /// Puts a node of one key behind the end of the list, whose link is at `end`.
    fn append(&mut self, end: u64, key: u64) -> Tried {
        let new = self.nodes.take();
        node::only(&mut self.spare, key, NULL);
        CPointer::new(new).set(&mut self.context, &self.spare, self.chains.access);
        // Fails if the end is claimed, or is no longer the end.
        match self.context.compare_and_swap(end, NULL, new) {
            Ok(()) => Tried::Done(true),
            Err(_) => {
                self.nodes.give_back(new);
                Tried::Again
            }
        }
    }

    /// Whether the node is this session's now, for good, with the link that was read.
    fn claim(&mut self, found: &Stopped) -> bool {
        if self.chains.left_out.is(Step::Lock) {
            return true;
        }
        let claimed = found.next | LOCKED;
        found.next & LOCKED == 0
            && CPointer::new(found.at)
                .compare_and_swap(&mut self.context, NEXT, found.next, claimed)
                .is_ok()
    }

    /// Has the link to the claimed node lead to `instead`.
    fn publish(&mut self, head: u64, claimed: &Stopped, instead: u64) {
        let (mut link, mut tries) = (claimed.link, 0);
        // Fails at a link that is claimed itself, or that leads elsewhere by now.
        while self.context.compare_and_swap(link, claimed.at, instead).is_err() {
            if self.chains.left_out.is(Step::Lock) {
                return;
            }
            self.context.pause(tries);
            tries += 1;
            link = self.link_to(head, claimed.at);
        }
        self.unlinked(claimed.at);
    }

    /// The link that leads to a node which only this session can unlink.
    fn link_to(&mut self, head: u64, node: u64) -> u64 {
        let mut link = head;
        loop {
            let at = target(self.context.load(link));
            if at == node {
                return link;
            }
            assert_ne!(at, NULL, "a claimed node stays in the list");
            link = at + NEXT as u64;
        }
    }
}
