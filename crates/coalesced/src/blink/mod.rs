//! A B-link tree of coalesced nodes: a map from keys to values, in order (Lehman and Yao, 1981).
//!
//! Every node knows the largest key that it stands for, and its right neighbour. A split first writes the new right
//! neighbour, then changes the node with one set, which also links the two, and only then tells the parent: a search
//! that comes between goes right. So searches hold no locks, and an update holds one at a time. The root stays where
//! it is: when it is split, its pairs move to two new nodes, and it becomes their parent.
//!
//! Nodes are changed where they lie, in both regimes. An update locks a node by a compare-and-swap of the word about
//! it, as it was read, version and all; so it need not be read again. What differs is how a reader knows that what it
//! has is of one version:
//!
//! * *fully atomic*: one get is one version.
//! * *element-wise*: a get may find elements of two versions, in any order. The reader loads the word about the node
//!   before the get and again after it, and begins anew unless both are the same and free; a writer frees the word only
//!   after all else is written. That is two loads more for each node, and readers wait for a writer that is at it. (A
//!   version *within* the get proves nothing: it may be the first element that was read.)
//!
//! A removal takes a key out of its leaf. Nodes are not merged, as in Lehman and Yao; an empty leaf stays, keeps its
//! part of the keys, and is filled again by them. So a tree has as many nodes as its keys ever needed in their places,
//! no node is ever used again, and a reader can go on from any node that it knows. Keys that move on for ever (a queue
//! by time) leave their empty leaves behind; merging needs the protocol of Lanin and Shasha (1986), which is not
//! built.

mod node;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, Context, NULL, Regime};
use crate::error::{Error, Result};
use crate::list::{LeftOut, MOST_KEY, Options, Step};
use crate::object::{Access, CObject, CPointer};
use crate::pool::{Nodes, Pool};
use node::{ABOUT, About, HIGH, KEYS, MOST_LEVELS, MOST_PAIRS, NO_BOUND, RIGHT, position};
use std::sync::Arc;

/// A map from keys to values, in nodes of several pairs. [`Options::elements`] are the pairs of a node: two at least,
/// since an inner node with one child leads nowhere.
///
/// ```
/// use terrace_coalesced::{BlinkTree, Method, Native, Options, Regime};
/// use std::sync::Arc;
///
/// let options = Options { elements: 6, regime: Regime::ElementWise, method: Method::CopyPointer };
/// let tree = BlinkTree::new(Arc::new(Native::new(1 << 16)), options)?;
/// let mut session = tree.session()?;
/// assert_eq!((session.put(7, 1)?, session.put(7, 2)?), (None, Some(1)));
/// assert_eq!((session.get(7), session.remove(7), session.get(7)), (Some(2), Some(2), None));
/// # Ok::<(), terrace_coalesced::Error>(())
/// ```
#[derive(Debug)]
pub struct BlinkTree<B> {
    pool: Pool<B>,
    access: Access,
    elements: usize,
    root: u64,
    left_out: LeftOut,
}

impl<B: Backend> BlinkTree<B> {
    /// An empty tree in the memory of `backend`.
    ///
    /// # Errors
    /// [`Error::Elements`], [`Error::BypassIsNotAtomic`] or [`Error::NotAtomic`] if the back end cannot have such
    /// nodes, [`Error::Full`] if it has no room.
    pub fn new(backend: Arc<B>, options: Options) -> Result<BlinkTree<B>> {
        BlinkTree::with(LeftOut::default(), backend, options)
    }

    /// A tree that leaves a step out: a negative control.
    ///
    /// # Errors
    /// Those of [`BlinkTree::new`].
    #[cfg(any(test, feature = "faults"))]
    pub fn without(step: Step, backend: Arc<B>, options: Options) -> Result<BlinkTree<B>> {
        BlinkTree::with(LeftOut { step: Some(step) }, backend, options)
    }

    fn with(left_out: LeftOut, backend: Arc<B>, options: Options) -> Result<BlinkTree<B>> {
        let Options { elements, regime, method } = options;
        let access = Access::new(regime, method)?;
        let most = (backend.most_words(regime)?.saturating_sub(KEYS) / 2).min(MOST_PAIRS);
        if !(2..=most).contains(&elements) {
            return Err(Error::Elements { elements, least: 2, most });
        }
        let words = KEYS + 2 * elements;
        let root = backend.allocate(1, words, regime)?.first;
        let mut empty = CObject::new(words);
        empty.near()[HIGH] = NO_BOUND;
        CPointer::new(root).set(&mut backend.context(), &empty, access);
        Ok(BlinkTree { pool: Pool::new(backend, words, regime), access, elements, root, left_out })
    }

    /// Access for one more thread.
    ///
    /// # Errors
    /// [`Error::Sessions`].
    pub fn session(&self) -> Result<BlinkSession<'_, B>> {
        let near = || CObject::new(KEYS + 2 * self.elements);
        Ok(BlinkSession {
            tree: self,
            context: self.pool.backend().context(),
            nodes: self.pool.nodes()?,
            here: near(),
            spare: near(),
            path: [NULL; MOST_LEVELS],
            levels: 1,
        })
    }
}

/// One thread's access to a [`BlinkTree`].
pub struct BlinkSession<'t, B: Backend> {
    tree: &'t BlinkTree<B>,
    context: B::Context<'t>,
    nodes: Nodes<'t, B>,
    /// The node that a search stopped at.
    here: CObject,
    /// A node that is being made.
    spare: CObject,
    /// The nodes through which the search went down, by level.
    path: [u64; MOST_LEVELS],
    /// Levels of the tree when it was last gone down.
    levels: usize,
}

/// A node, as it was read.
#[derive(Clone, Copy)]
struct Read {
    at: u64,
    about: About,
    /// Position of the key that was looked for.
    i: usize,
    /// Whether it is there, and with what value.
    found: Option<u64>,
}

/// Where a search goes from a node.
enum Way {
    Right(u64),
    Down(u64),
    Here(usize, Option<u64>),
}

impl<'t, B: Backend> BlinkSession<'t, B> {
    /// The value of `key`.
    pub fn get(&mut self, key: u64) -> Option<u64> {
        self.find(self.tree.root, key, 0).found
    }

    /// Gives `key` a value; its value before.
    ///
    /// # Errors
    /// [`Error::KeyOverLimit`], [`Error::Full`].
    pub fn put(&mut self, key: u64, value: u64) -> Result<Option<u64>> {
        if key > MOST_KEY {
            return Err(Error::KeyOverLimit { key, most: MOST_KEY });
        }
        // A node for each level that is split, and one more for the root.
        self.nodes.reserve(self.levels + 2)?;
        let read = self.lock(self.tree.root, key, 0);
        if let Some(before) = read.found {
            self.here.near()[KEYS + self.tree.elements + read.i] = value;
            self.publish(read.at, read.about.changed(0, read.about.pairs()));
            return Ok(Some(before));
        }
        self.add(read, (key, value));
        Ok(None)
    }

    /// Takes `key` out; the value that it had.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        let read = self.find(self.tree.root, key, 0);
        read.found?;
        let read = self.lock(read.at, key, 0);
        let pairs = read.about.pairs();
        if read.found.is_some() {
            node::remove(&mut self.here, self.tree.elements, pairs, read.i);
            self.publish(read.at, read.about.changed(0, pairs - 1));
        } else {
            self.free(read);
        }
        read.found
    }

    /// This thread's access to far memory.
    pub fn context(&self) -> &B::Context<'t> {
        &self.context
    }

    /// Goes from `at` down and right to the node of `level` that stands for `key`.
    fn find(&mut self, mut at: u64, key: u64, level: usize) -> Read {
        loop {
            let (about, way) = self.look(at, key, level);
            match way {
                // Only a node of two versions leads nowhere, which a negative control may come to.
                Way::Right(NULL) | Way::Down(NULL) => at = self.tree.root,
                Way::Right(right) => at = right,
                Way::Down(child) => {
                    self.path[about.level()] = at;
                    self.levels = self.levels.max(about.level() + 1);
                    at = child;
                }
                Way::Here(i, found) => return Read { at, about, i, found },
            }
        }
    }

    /// Reads a node, all of one version.
    fn look(&mut self, at: u64, key: u64, level: usize) -> (About, Way) {
        let far = CPointer::new(at);
        let is_whole = self.tree.access.regime() == Regime::Full;
        for tries in 0.. {
            if is_whole {
                far.get(&mut self.context, &mut self.here, self.tree.access);
                let about = About(self.here.near()[ABOUT]);
                return (about, self.way(about, key, level));
            }
            let about = About(far.load(&mut self.context, ABOUT));
            if !about.is_locked() {
                far.get(&mut self.context, &mut self.here, self.tree.access);
                let way = self.way(about, key, level);
                let is_checked = !self.tree.left_out.is(Step::VersionCheck);
                if !is_checked || far.load(&mut self.context, ABOUT) == about.0 {
                    return (about, way);
                }
            }
            self.context.pause(tries);
        }
        unreachable!("tries do not end")
    }

    /// Where `key` leads from the node that is being read. It may be of two versions: what comes out is checked then.
    #[inline]
    fn way(&mut self, about: About, key: u64, level: usize) -> Way {
        let (node, context) = (&self.here, &mut self.context);
        if key > node.load(context, HIGH) {
            return Way::Right(node.load(context, RIGHT));
        }
        let pairs = about.pairs();
        let i = position(node, context, pairs, key);
        let values = KEYS + self.tree.elements;
        if about.level() > level {
            return Way::Down(node.load(context, values + i.saturating_sub(1)));
        }
        let is_there = i < pairs && node.load(context, KEYS + i) == key;
        Way::Here(i, is_there.then(|| node.load(context, values + i)))
    }

    /// Locks the node of `level` that stands for `key`, from `at` on, and has all of it near.
    fn lock(&mut self, mut at: u64, key: u64, level: usize) -> Read {
        for tries in 0.. {
            let read = self.find(at, key, level);
            let far = CPointer::new(read.at);
            let seen = match self.tree.left_out {
                left_out if left_out.is(Step::VersionCheck) => {
                    About(far.load(&mut self.context, ABOUT))
                }
                _ => read.about,
            };
            let is_free = !seen.is_locked() && !read.about.is_locked();
            let is_left_out = self.tree.left_out.is(Step::Lock);
            if is_left_out
                || is_free
                    && far
                        .compare_and_swap(&mut self.context, ABOUT, seen.0, seen.locked().0)
                        .is_ok()
            {
                self.here.fill(&mut self.context);
                return read;
            }
            self.context.pause(tries);
            // Nodes stay, and so does what is to their right: from here it goes on.
            at = read.at;
        }
        unreachable!("tries do not end")
    }

    /// Unlocks a node that was not changed.
    fn free(&mut self, read: Read) {
        CPointer::new(read.at).store(&mut self.context, ABOUT, read.about.0);
    }

    /// Writes the locked node that is near, and frees it.
    fn publish(&mut self, at: u64, about: About) {
        let far = CPointer::new(at);
        let is_whole = self.tree.access.regime() == Regime::Full;
        // Element by element the word about it would be free while others are old.
        self.here.near()[ABOUT] = if is_whole { about.0 } else { about.locked().0 };
        far.set(&mut self.context, &self.here, self.tree.access);
        if !is_whole {
            far.store(&mut self.context, ABOUT, about.0);
        }
    }

    /// Writes a node that nobody can find yet.
    fn write(
        context: &mut B::Context<'t>,
        access: Access,
        at: u64,
        node: &mut CObject,
        about: About,
    ) {
        node.near()[ABOUT] = about.0;
        CPointer::new(at).set(context, node, access);
    }

    /// Adds a pair to the locked node that is near, and a pair for each new node to its parent.
    fn add(&mut self, mut read: Read, mut pair: (u64, u64)) {
        let elements = self.tree.elements;
        loop {
            let (pairs, level) = (read.about.pairs(), read.about.level());
            if pairs < elements {
                node::insert(&mut self.here, elements, pairs, read.i, pair);
                return self.publish(read.at, read.about.changed(level, pairs + 1));
            }
            if read.at == self.tree.root {
                return self.split_root(read, pair);
            }
            let new = self.nodes.take();
            let (left, right) =
                node::split(&mut self.here, &mut self.spare, elements, read.i, pair);
            let access = self.tree.access;
            Self::write(&mut self.context, access, new, &mut self.spare, About::of(level, right));
            let bound = self.bound(level, left);
            (self.here.near()[RIGHT], self.here.near()[HIGH]) = (new, bound);
            self.publish(read.at, read.about.changed(level, left));
            // The tree grew while this went on: the parent's nodes were not reserved. Searches go right instead.
            if !self.nodes.has(2) {
                return;
            }
            pair = (bound, new);
            read = self.lock_parent(level + 1, bound);
        }
    }

    /// The largest key of the left part of a split, whose pairs are near: of a leaf its last one, of an inner node the
    /// lower bound of the right part.
    fn bound(&mut self, level: usize, left: usize) -> u64 {
        if level == 0 { self.here.near()[KEYS + left - 1] } else { self.spare.near()[KEYS] }
    }

    /// Locks the node of `level` that is to have a child for the keys above `bound`.
    fn lock_parent(&mut self, level: usize, bound: u64) -> Read {
        // Only the root changes its level, and everything is found from there.
        let known = self.path[level];
        let from = if known == NULL { self.tree.root } else { known };
        // `bound` is smaller than the largest key of the parent, which stands for the right part, too.
        self.lock(from, bound + 1, level)
    }

    /// Splits the locked root, which is full, around one more pair.
    fn split_root(&mut self, read: Read, pair: (u64, u64)) {
        let (elements, level, access) = (self.tree.elements, read.about.level(), self.tree.access);
        let (at_left, at_right) = (self.nodes.take(), self.nodes.take());
        let (left, right) = node::split(&mut self.here, &mut self.spare, elements, read.i, pair);
        let bound = self.bound(level, left);
        Self::write(&mut self.context, access, at_right, &mut self.spare, About::of(level, right));
        (self.here.near()[RIGHT], self.here.near()[HIGH]) = (at_right, bound);
        Self::write(&mut self.context, access, at_left, &mut self.here, About::of(level, left));
        let near = self.here.near();
        (near[RIGHT], near[HIGH]) = (NULL, NO_BOUND);
        (near[KEYS], near[KEYS + elements]) = (0, at_left);
        (near[KEYS + 1], near[KEYS + elements + 1]) = (bound, at_right);
        self.levels = level + 2;
        self.publish(read.at, read.about.changed(level + 1, 2));
    }
}
