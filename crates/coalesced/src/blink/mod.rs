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
//! A removal takes a key out of its leaf. A leaf that becomes empty merges with a neighbour (`merge.rs`), and so do the
//! nodes above it that become empty by that. The node that is left over is used again after all operations under way
//! have ended (`pool.rs`). The paper's tree has no removal.

mod merge;
mod node;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, Context, NULL, Regime};
use crate::error::{Error, Result};
use crate::list::{LeftOut, MOST_KEY, Options, Step};
use crate::object::{Access, CObject, CPointer};
use crate::pool::{Nodes, Pool};
use node::{ABOUT, About, HIGH, KEYS, Layout, MOST_KEYS, MOST_LEVELS, NO_BOUND, RIGHT, position};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A map from keys to values, in nodes of several keys. [`Options::elements`] are the keys of a node: two at least,
/// since of two children no two halves can be made that have two each.
///
/// ```
/// use terrace_coalesced::{BlinkTree, Method, Native, Options, Regime};
/// use std::sync::Arc;
///
/// let options = Options { elements: 6, regime: Regime::ElementWise, method: Method::CopyPointer };
/// let tree = BlinkTree::new(Arc::new(Native::new(1 << 16)), options)?;
/// let mut session = tree.session()?;
/// assert_eq!((session.put(7, 1)?, session.put(7, 2)?), (None, Some(1)));
/// assert_eq!(session.range(0..=100)?, [(7, 2)]);
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
        let most = (backend.most_words(regime)?.saturating_sub(node::words(0)) / 2).min(MOST_KEYS);
        if !(2..=most).contains(&elements) {
            return Err(Error::Elements { elements, least: 2, most });
        }
        let words = node::words(elements);
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
        let near = || CObject::new(node::words(self.elements));
        Ok(BlinkSession {
            tree: self,
            context: self.pool.backend().context(),
            nodes: self.pool.nodes()?,
            here: near(),
            spare: near(),
            parent: near(),
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
    /// A node that is being made, or the right one of a merge.
    spare: CObject,
    /// The parent in a merge.
    parent: CObject,
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
        self.nodes.enter();
        let found = self.find(self.tree.root, key, 0).found;
        self.nodes.leave();
        found
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
        self.nodes.enter();
        let read = self.lock(self.tree.root, key, 0);
        if read.found.is_some() {
            let at = Layout::of(self.tree.elements, 0).value(read.i);
            self.here.near()[at] = value;
            self.publish_here(read.at, read.about.changed(0, read.about.keys()));
        } else {
            self.add(read, (key, value));
        }
        self.nodes.leave();
        Ok(read.found)
    }

    /// Takes `key` out; the value that it had.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        self.nodes.enter();
        let found = self.take_out(key);
        self.nodes.leave();
        found
    }

    /// The pairs of the keys in `keys`, in order: of each leaf as it was at one moment, which need not be that of the
    /// next leaf. A pair that is there all the while is found.
    ///
    /// # Errors
    /// [`Error::Reversed`].
    pub fn range(&mut self, keys: RangeInclusive<u64>) -> Result<Vec<(u64, u64)>> {
        let (mut from, to) = keys.into_inner();
        if from > to {
            return Err(Error::Reversed { from, to });
        }
        self.nodes.enter();
        let layout = Layout::of(self.tree.elements, 0);
        let (mut pairs, mut at) = (Vec::new(), self.find(self.tree.root, from, 0).at);
        loop {
            let about = self.read_whole(at);
            let near = self.here.near();
            // A dead leaf leads to the one that took its keys over.
            if !about.is_dead() {
                let found = (0..about.keys()).map(|i| (near[KEYS + i], near[layout.value(i)]));
                pairs.extend(found.filter(|(key, _)| (from..=to).contains(key)));
                if near[HIGH] >= to {
                    break;
                }
                from = from.max(near[HIGH] + 1);
            }
            at = near[RIGHT];
        }
        self.nodes.leave();
        Ok(pairs)
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

    /// Where `key` leads from the node at `at`.
    fn look(&mut self, at: u64, key: u64, level: usize) -> (About, Way) {
        self.read(at, |session, about| session.way(about, key, level))
    }

    /// Reads the node at `at`, all of one version, and has it near.
    fn read_whole(&mut self, at: u64) -> About {
        self.read(at, |session, _| session.here.fill(&mut session.context)).0
    }

    /// Reads a node, all of one version, for `use_it`. It may be of two versions: then that is called again.
    #[inline]
    fn read<T>(&mut self, at: u64, mut use_it: impl FnMut(&mut Self, About) -> T) -> (About, T) {
        let far = CPointer::new(at);
        let is_whole = self.tree.access.regime() == Regime::Full;
        for tries in 0.. {
            if is_whole {
                far.get(&mut self.context, &mut self.here, self.tree.access);
                let about = About(self.here.near()[ABOUT]);
                return (about, use_it(self, about));
            }
            let about = About(far.load(&mut self.context, ABOUT));
            // What is dead does not change.
            if !about.is_locked() || about.is_dead() {
                far.get(&mut self.context, &mut self.here, self.tree.access);
                let used = use_it(self, about);
                let is_checked = !self.tree.left_out.is(Step::VersionCheck);
                if !is_checked || far.load(&mut self.context, ABOUT) == about.0 {
                    return (about, used);
                }
            }
            self.context.pause(tries);
        }
        unreachable!("tries do not end")
    }

    #[inline]
    fn way(&mut self, about: About, key: u64, level: usize) -> Way {
        let (node, context) = (&self.here, &mut self.context);
        if about.is_dead() || key > node.load(context, HIGH) {
            return Way::Right(node.load(context, RIGHT));
        }
        let i = position(node, context, about.keys(), key);
        let value = Layout::of(self.tree.elements, about.level()).value(i);
        if about.level() > level {
            return Way::Down(node.load(context, value));
        }
        let is_there = level == 0 && i < about.keys() && node.load(context, KEYS + i) == key;
        Way::Here(i, is_there.then(|| node.load(context, value)))
    }

    /// Locks the node of `level` that stands for `key`, from `at` on, and has all of it near.
    fn lock(&mut self, mut at: u64, key: u64, level: usize) -> Read {
        for tries in 0.. {
            let read = self.find(at, key, level);
            if self.try_lock(&read) {
                return read;
            }
            self.context.pause(tries);
            // What a node stands for is found from it for as long as this operation lasts.
            at = read.at;
        }
        unreachable!("tries do not end")
    }

    /// Locks a node if it is still what was read, and has all of it near.
    fn try_lock(&mut self, read: &Read) -> bool {
        let (far, left_out) = (CPointer::new(read.at), self.tree.left_out);
        let seen = match left_out.is(Step::VersionCheck) {
            true => About(far.load(&mut self.context, ABOUT)),
            false => read.about,
        };
        let is_free = !seen.is_locked() && !read.about.is_locked();
        let (current, locked) = (seen.0, seen.locked().0);
        let is_locked = left_out.is(Step::Lock)
            || is_free && far.compare_and_swap(&mut self.context, ABOUT, current, locked).is_ok();
        if is_locked {
            self.here.fill(&mut self.context);
        }
        is_locked
    }

    /// Writes a node: one that nobody can find yet, or one that stays locked.
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

    /// Writes a locked node, and frees it.
    fn publish(
        context: &mut B::Context<'t>,
        access: Access,
        at: u64,
        node: &mut CObject,
        about: About,
    ) {
        if access.regime() == Regime::Full {
            return Self::write(context, access, at, node, about);
        }
        // Element by element the word about it would be free, or dead, while others are old.
        Self::write(context, access, at, node, about.held());
        CPointer::new(at).store(context, ABOUT, about.0);
    }

    /// Writes the locked node that is near, and frees it.
    fn publish_here(&mut self, at: u64, about: About) {
        Self::publish(&mut self.context, self.tree.access, at, &mut self.here, about);
    }

    /// Takes a key out of its leaf, and the leaf out of the tree if it is empty then.
    fn take_out(&mut self, key: u64) -> Option<u64> {
        let mut at = self.tree.root;
        for tries in 0.. {
            let read = self.find(at, key, 0);
            read.found?;
            if self.try_lock(&read) {
                let keys = read.about.keys();
                Layout::of(self.tree.elements, 0).remove(&mut self.here, keys, read.i);
                self.publish_here(read.at, read.about.changed(0, keys - 1));
                if keys == 1 && read.at != self.tree.root {
                    self.merge_empty(key);
                }
                return read.found;
            }
            self.context.pause(tries);
            at = read.at;
        }
        unreachable!("tries do not end")
    }

    /// Adds a pair to the locked node that is near, and a separator for each new node to its parent.
    fn add(&mut self, mut read: Read, mut pair: (u64, u64)) {
        loop {
            let (keys, level) = (read.about.keys(), read.about.level());
            let layout = Layout::of(self.tree.elements, level);
            if keys < self.tree.elements {
                layout.insert(&mut self.here, keys, read.i, pair);
                return self.publish_here(read.at, read.about.changed(level, keys + 1));
            }
            if read.at == self.tree.root {
                return self.split_root(read, pair);
            }
            let new = self.nodes.take();
            let halves = layout.split(&mut self.here, &mut self.spare, read.i, pair);
            let about = About::of(level, halves.right);
            Self::write(&mut self.context, self.tree.access, new, &mut self.spare, about);
            let near = self.here.near();
            (near[RIGHT], near[HIGH]) = (new, halves.bound);
            self.publish_here(read.at, read.about.changed(level, halves.left));
            // The tree grew while this went on: the parent's nodes were not reserved. Searches go right instead.
            if !self.nodes.has(2) {
                return;
            }
            pair = (halves.bound, new);
            // The parent stands for the right half, too, and so for a key above the bound.
            let known = self.path[level + 1];
            let from = if known == NULL { self.tree.root } else { known };
            read = self.lock(from, halves.bound + 1, level + 1);
        }
    }

    /// Splits the locked root, which is full, around one more pair.
    fn split_root(&mut self, read: Read, pair: (u64, u64)) {
        let (level, access) = (read.about.level(), self.tree.access);
        let layout = Layout::of(self.tree.elements, level);
        let (left, right) = (self.nodes.take(), self.nodes.take());
        let halves = layout.split(&mut self.here, &mut self.spare, read.i, pair);
        let about = About::of(level, halves.right);
        Self::write(&mut self.context, access, right, &mut self.spare, about);
        let near = self.here.near();
        (near[RIGHT], near[HIGH]) = (right, halves.bound);
        let about = About::of(level, halves.left);
        Self::write(&mut self.context, access, left, &mut self.here, about);
        let above = Layout::of(self.tree.elements, level + 1);
        let near = self.here.near();
        (near[RIGHT], near[HIGH], near[KEYS]) = (NULL, NO_BOUND, halves.bound);
        (near[above.value(0)], near[above.value(1)]) = (left, right);
        self.levels = level + 2;
        self.publish_here(read.at, read.about.changed(level + 1, 1));
    }
}
