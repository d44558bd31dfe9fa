//! The element-wise list as printed (Miller, algorithms 18 and 19), which loses updates: a negative control.
//!
//! An update locks a node and its predecessor, and replaces the node by a copy; the node that was replaced looks as
//! before. Whoever had found it as the *predecessor* of a later node still locks it, finds that it leads to that node
//! and is not marked deleted, and has it lead to a replacement of that node, which nobody finds: the node that counts
//! is the copy. The update was told as done, and is lost.
//!
//! Two things are as the paper says elsewhere, or must mean: an insertion at the end also locks the node before the
//! last one, whose link it changes; nodes are never used again.

use super::node::{self, ABOUT, About, KEYS, LOCKED as DELETED, NEXT, Place, place, target};
use super::{Error, MOST_KEY, Options, Result};
use crate::backend::{Backend, Context, NULL, Regime};
use crate::object::{Access, CObject, CPointer};
use std::sync::Arc;

/// The list as printed.
#[derive(Debug)]
pub struct PrintedList<B> {
    backend: Arc<B>,
    access: Access,
    elements: usize,
    /// A node without keys, which is never replaced.
    head: u64,
}

impl<B: Backend> PrintedList<B> {
    /// An empty list in the memory of `backend`; the regime is element-wise, whatever `options` say.
    ///
    /// # Errors
    /// Those of [`List::new`](super::List::new).
    pub fn new(backend: Arc<B>, options: Options) -> Result<PrintedList<B>> {
        let access = Options { regime: Regime::ElementWise, ..options }.access(&*backend)?;
        let elements = options.elements;
        let mut list = PrintedList { backend, access, elements, head: NULL };
        list.head = list.node()?;
        Ok(list)
    }

    /// Access for one more thread.
    pub fn session(&self) -> PrintedSession<'_, B> {
        let near = || CObject::new(KEYS + self.elements);
        PrintedSession {
            list: self,
            context: self.backend.context(),
            prev: near(),
            curr: near(),
            spare: near(),
        }
    }

    /// A fresh node, whose lock stands behind the object.
    fn node(&self) -> Result<u64> {
        Ok(self.backend.allocate(1, KEYS + self.elements + 1, self.access.regime())?.first)
    }
}

/// One thread's access to a [`PrintedList`].
pub struct PrintedSession<'l, B: Backend> {
    list: &'l PrintedList<B>,
    context: B::Context<'l>,
    prev: CObject,
    curr: CObject,
    spare: CObject,
}

/// What a search came to, and the last three nodes; none stands for the end.
struct Reached {
    place: Place,
    before: u64,
    prev: u64,
    curr: u64,
}

impl<'l, B: Backend> PrintedSession<'l, B> {
    /// This thread's access to far memory.
    pub fn context(&self) -> &B::Context<'l> {
        &self.context
    }

    /// Whether `key` is there.
    pub fn contains(&mut self, key: u64) -> bool {
        matches!(self.search(key).place, Place::Found(_))
    }

    /// Puts `key` there; false if it was.
    ///
    /// # Errors
    /// [`Error::KeyOverLimit`], [`Error::Full`].
    pub fn insert(&mut self, key: u64) -> Result<bool> {
        if key > MOST_KEY {
            return Err(Error::KeyOverLimit { key, most: MOST_KEY });
        }
        let new = [self.list.node()?, self.list.node()?];
        for tries in 0.. {
            let reached = self.search(key);
            let is_done = match reached.place {
                Place::Found(_) => return Ok(false),
                Place::Before(_) => self.insert_before(&reached, key, new),
                Place::Behind => self.insert_at_end(&reached, key, new),
            };
            if is_done {
                break;
            }
            self.context.pause(tries);
        }
        Ok(true)
    }

    /// Takes `key` out; false if it was not there.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn remove(&mut self, key: u64) -> Result<bool> {
        let new = self.list.node()?;
        for tries in 0.. {
            let reached = self.search(key);
            if !matches!(reached.place, Place::Found(_)) {
                return Ok(false);
            }
            if self.remove_from(&reached, key, new) {
                break;
            }
            self.context.pause(tries);
        }
        Ok(true)
    }

    fn search(&mut self, key: u64) -> Reached {
        let (mut before, mut prev) = (NULL, self.list.head);
        let mut curr = self.get_curr(prev);
        loop {
            if curr == NULL {
                return Reached { place: Place::Behind, before, prev, curr };
            }
            let next = self.get_curr(curr);
            let keys = About(self.curr.load(&mut self.context, ABOUT)).keys();
            let place = place(&self.curr, &mut self.context, keys, key);
            if next & DELETED != 0 {
                let _ = CPointer::new(prev).compare_and_swap(
                    &mut self.context,
                    NEXT,
                    curr,
                    target(next),
                );
                curr = target(next);
                continue;
            }
            if place != Place::Behind {
                return Reached { place, before, prev, curr };
            }
            (before, prev, curr) = (prev, curr, next);
        }
    }

    /// Reads the node at `at`; what its link says.
    fn get_curr(&mut self, at: u64) -> u64 {
        CPointer::new(at).get(&mut self.context, &mut self.curr, self.list.access);
        self.curr.load(&mut self.context, NEXT)
    }

    fn insert_before(&mut self, reached: &Reached, key: u64, new: [u64; 2]) -> bool {
        let locks = [reached.prev, reached.curr];
        self.locked(locks, |list| {
            let (keys, place) = list.read(reached, key);
            let Place::Before(i) = place else { return false };
            if keys < list.list.elements {
                node::insert(&mut list.curr, i, key);
            } else {
                node::split(&mut list.curr, &mut list.spare, i, key);
                CPointer::new(new[1]).set(&mut list.context, &list.spare, list.list.access);
                list.curr.near()[NEXT] = new[1];
            }
            CPointer::new(new[0]).set(&mut list.context, &list.curr, list.list.access);
            CPointer::new(reached.prev).store(&mut list.context, NEXT, new[0]);
            true
        })
    }

    fn insert_at_end(&mut self, reached: &Reached, key: u64, new: [u64; 2]) -> bool {
        let is_head = reached.prev == self.list.head;
        let locks = if is_head { [reached.prev, NULL] } else { [reached.before, reached.prev] };
        self.locked(locks, |list| {
            node::only(&mut list.spare, key, NULL);
            if is_head {
                if list.get_curr(reached.prev) != NULL {
                    return false;
                }
                CPointer::new(new[0]).set(&mut list.context, &list.spare, list.list.access);
                CPointer::new(reached.prev).store(&mut list.context, NEXT, new[0]);
                return true;
            }
            let moved = Reached { prev: reached.before, curr: reached.prev, ..*reached };
            let (keys, place) = list.read(&moved, key);
            if place != Place::Behind || list.curr.near()[NEXT] != NULL {
                return false;
            }
            if keys < list.list.elements {
                node::insert(&mut list.curr, keys, key);
            } else {
                CPointer::new(new[1]).set(&mut list.context, &list.spare, list.list.access);
                list.curr.near()[NEXT] = new[1];
            }
            CPointer::new(new[0]).set(&mut list.context, &list.curr, list.list.access);
            CPointer::new(moved.prev).store(&mut list.context, NEXT, new[0]);
            true
        })
    }

    fn remove_from(&mut self, reached: &Reached, key: u64, new: u64) -> bool {
        self.locked([reached.prev, reached.curr], |list| {
            let (keys, place) = list.read(reached, key);
            let Place::Found(i) = place else { return false };
            let (prev, curr) = (CPointer::new(reached.prev), CPointer::new(reached.curr));
            if keys == 1 {
                let next = list.curr.near()[NEXT];
                curr.store(&mut list.context, NEXT, next | DELETED);
                prev.store(&mut list.context, NEXT, next);
            } else {
                node::remove(&mut list.curr, i);
                CPointer::new(new).set(&mut list.context, &list.curr, list.list.access);
                prev.store(&mut list.context, NEXT, new);
            }
            true
        })
    }

    /// Reads both locked nodes, `curr` into `self.curr`: its keys, and where `key` is in it. `Behind` also where the
    /// nodes are not valid: `prev` leads elsewhere or has larger keys, or `curr` is deleted.
    fn read(&mut self, reached: &Reached, key: u64) -> (usize, Place) {
        CPointer::new(reached.prev).get(&mut self.context, &mut self.prev, self.list.access);
        let next = self.get_curr(reached.curr);
        self.prev.fill(&mut self.context);
        self.curr.fill(&mut self.context);
        let before = About(self.prev.near()[ABOUT]).keys();
        let is_below = before == 0 || self.prev.near()[KEYS + before - 1] < key;
        let is_valid = self.prev.near()[NEXT] == reached.curr && next & DELETED == 0 && is_below;
        let keys = About(self.curr.near()[ABOUT]).keys();
        if !is_valid {
            self.curr.near()[NEXT] = DELETED;
            return (keys, Place::Behind);
        }
        (keys, place(&self.curr, &mut self.context, keys, key))
    }

    fn locked(&mut self, nodes: [u64; 2], f: impl FnOnce(&mut Self) -> bool) -> bool {
        let locks = nodes.map(|at| at + (KEYS + self.list.elements) as u64);
        let count = nodes.iter().filter(|at| **at != NULL).count();
        for lock in &locks[..count] {
            let mut tries = 0;
            while self.context.compare_and_swap(*lock, 0, 1).is_err() {
                self.context.pause(tries);
                tries += 1;
            }
        }
        let done = f(self);
        locks[..count].iter().for_each(|lock| self.context.store(*lock, 0));
        done
    }
}
