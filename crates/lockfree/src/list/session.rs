//! The algorithm all four share: Harris' sorted list (DISC 2001), one session for each thread.
//!
//! A node is taken out of the set by the state in its own link, and out of the list afterwards, by whoever
//! comes by. [`Session::find`] unlinks runs of such nodes as it goes, so the two nodes it returns are
//! neighbours; readers go past them and write nothing. Where the operations take effect is one
//! compare-exchange; what makes it durable is the protocol's.

use super::epochs::{Retired, SESSIONS};
use super::error::{Error, Result};
use super::node::*;
use super::protocol::{Entry, Protocol};
use super::table::ListTable;
use std::sync::Arc;
use terrace_memory::Memory;

/// One thread's handle to a [`ListTable`].
///
/// Operations of any sessions are linearizable. Cost: a walk over the nodes of the key's bucket with
/// smaller keys, a line each.
#[derive(Debug)]
pub struct Session<M: Memory, P: Protocol> {
    list: Arc<ListTable<M, P>>,
    number: usize,
    /// Its line of log.
    log: u64,
    retired: Retired,
    /// Where it found the last free slot.
    from: usize,
}

/// No slot was free.
struct NoRoom;

impl<M: Memory, P: Protocol> Session<M, P> {
    pub(super) fn new(list: Arc<ListTable<M, P>>) -> Result<Session<M, P>> {
        let joined = list.epochs.join();
        let (number, retired) = joined.ok_or(Error::Sessions { sessions: SESSIONS })?;
        let log = list.nodes.shape.log(number);
        let from = list.nodes.slots.words() * number / SESSIONS;
        Ok(Session { list, number, log, retired, from })
    }

    /// Adds `key` with its value, unless it is there. Returns whether it was not.
    ///
    /// # Errors
    /// [`Error::Full`]; nothing has changed then. Also where keys were removed, but another thread's
    /// operation that began before has not ended: it may look at their slots.
    pub fn insert(&mut self, key: u64, value: u64) -> Result<bool> {
        let entry = Entry { key, value };
        if let Ok(is_new) = self.operation(|session| session.try_insert(entry)) {
            return Ok(is_new);
        }
        let Session { list, retired, .. } = self;
        list.epochs.advance(retired, |slot| list.nodes.slots.give(slot));
        let capacity = list.nodes.shape.capacity;
        self.operation(|session| session.try_insert(entry))
            .map_err(|NoRoom| Error::Full { capacity })
    }

    /// Removes `key`; returns its value if it was there.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        self.operation(|session| session.try_remove(key))
    }

    /// The value of `key`, if it is there.
    #[inline]
    pub fn get(&mut self, key: u64) -> Option<u64> {
        self.operation(|session| {
            let nodes = &session.list.nodes;
            let mut at = nodes.link(nodes.head_of(key)).slot();
            while at != END {
                let found = nodes.key(at);
                if found >= key {
                    let is_there = found == key && P::sees(nodes, at);
                    return is_there.then(|| nodes.value(at));
                }
                at = nodes.link(at).slot();
            }
            None
        })
    }

    /// Visits every key with its value, bucket by bucket, each bucket in the order of its keys. A key that
    /// is there from the first step to the last is visited once; one that comes or goes meanwhile may be
    /// or not. Slots wait for the bucket that is visited, not for all.
    pub fn visit(&mut self, mut visit: impl FnMut(u64, u64)) {
        for bucket in 0..self.list.nodes.shape.buckets {
            self.operation(|session| {
                let nodes = &session.list.nodes;
                let mut at = nodes.link(nodes.shape.head(bucket)).slot();
                while at != END {
                    if P::sees(nodes, at) {
                        visit(nodes.key(at), nodes.value(at));
                    }
                    at = nodes.link(at).slot();
                }
            });
        }
    }

    /// Within an epoch: no node that it comes to see is used again before it ends.
    #[inline(always)]
    fn operation<T>(&mut self, operation: impl FnOnce(&mut Self) -> T) -> T {
        self.list.epochs.enter(self.number);
        let told = operation(self);
        self.list.epochs.leave(self.number);
        told
    }

    fn try_insert(&mut self, entry: Entry) -> std::result::Result<bool, NoRoom> {
        let mut mine = None;
        loop {
            let place = self.find(entry.key);
            let nodes = &self.list.nodes;
            if place.right != END && nodes.key(place.right) == entry.key {
                P::found(nodes, place.right);
                if let Some(node) = mine {
                    // Nothing may name the slot when it is free.
                    P::done(nodes, self.log);
                    nodes.slots.give(node);
                }
                return Ok(false);
            }
            let node = match mine {
                Some(node) => node,
                None => nodes.slots.take(&mut self.from).ok_or(NoRoom)?,
            };
            mine = Some(node);
            P::prepare(nodes, self.log, node, entry, &place);
            if nodes.swap(place.left, place.left_link, place.left_link.with_slot(node)) {
                P::inserted(nodes, place.left, node);
                P::done(nodes, self.log);
                return Ok(true);
            }
        }
    }

    fn try_remove(&mut self, key: u64) -> Option<u64> {
        let mut is_recorded = false;
        loop {
            let place = self.find(key);
            let nodes = &self.list.nodes;
            let is_there = place.right != END && nodes.key(place.right) == key;
            let state = place.right_link.state();
            if is_there && state == State::Leaving {
                // Another takes it out: its removal is durable before this one tells that it is gone.
                P::removed(nodes, place.right);
            }
            if !is_there || state != State::Present {
                if is_recorded {
                    P::done(nodes, self.log);
                }
                return None;
            }
            P::intend_to_remove(nodes, self.log, place.right);
            is_recorded = true;
            let out = place.right_link.with_state(P::LEAVING);
            if nodes.swap(place.right, place.right_link, out) {
                return Some(self.take_out(&place, key));
            }
        }
    }

    /// The node right of `place` is taken out of the set by this session: the rest.
    fn take_out(&mut self, place: &Place, key: u64) -> u64 {
        let nodes = &self.list.nodes;
        P::removed(nodes, place.right);
        let value = nodes.value(place.right);
        let next = nodes.link(place.right).slot();
        if !self.unlink(place.left, place.left_link, next) {
            // The neighbours are others by now; whoever finds them unlinks it.
            self.find(key);
        }
        P::done(&self.list.nodes, self.log);
        value
    }

    /// Where a key is or belongs, with nothing between the two nodes that is gone.
    fn find(&mut self, key: u64) -> Place {
        'again: loop {
            let mut before = END;
            let mut left = self.list.nodes.head_of(key);
            let mut left_link = self.list.nodes.link(left);
            loop {
                let nodes = &self.list.nodes;
                let mut right = left_link.slot();
                let mut right_link = Link(0);
                while right != END {
                    right_link = nodes.link(right);
                    if !right_link.is_gone() {
                        break;
                    }
                    P::before_unlink(nodes, right);
                    right = right_link.slot();
                }
                if right != left_link.slot() {
                    if !self.unlink(left, left_link, right) {
                        continue 'again;
                    }
                    left_link = left_link.with_slot(right);
                }
                let nodes = &self.list.nodes;
                if right == END || nodes.key(right) >= key {
                    return Place { before, left, left_link, right, right_link };
                }
                (before, left, left_link) = (left, right, right_link);
            }
        }
    }

    /// Links `left` past the run of nodes that are gone, up to `until`; whether its link was still that.
    fn unlink(&mut self, left: u64, left_link: Link, until: u64) -> bool {
        let Session { list, retired, .. } = self;
        let nodes = &list.nodes;
        if !nodes.swap(left, left_link, left_link.with_slot(until)) {
            return false;
        }
        P::unlinked(nodes, left);
        let mut gone = left_link.slot();
        while gone != until {
            let next = nodes.link(gone).slot();
            list.epochs.retire(retired, gone, |slot| nodes.slots.give(slot));
            gone = next;
        }
        true
    }
}

impl<M: Memory, P: Protocol> Drop for Session<M, P> {
    fn drop(&mut self) {
        self.list.epochs.part(self.number, &mut self.retired);
    }
}
