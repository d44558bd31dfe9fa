//! Lazy lists of coalesced nodes (Miller, section 5.4; Heller et al., 2005): sets of keys, in order, searched without
//! locks.
//!
//! A node holds up to N keys and a link. How a list changes depends on what the back end promises:
//!
//! * *fully atomic* (`full.rs`): a node is changed where it lies, by one set, by whoever holds its lock;
//! * *element-wise* (`replace.rs`): keys of a node never change once it can be found. An update *claims* the node for
//!   good, writes its replacement, and publishes that by one compare-and-swap of the link that led to it. So a reader
//!   cannot find a node half old and half new: only the link changes, and it is one element.
//!
//! `printed.rs` is the element-wise list as the paper prints it, which loses updates.
//!
//! # Why a search needs no lock
//! Every node that a search visits was in the list at some moment since the search began: it was found by a link, and
//! either that link's node was still in the list, or its link had been frozen when it left. And as long as a node is in
//! the list, the largest key before it never grows: a key is only put before a larger one, or at the very end. So the
//! node that a search stops at is the only one that could hold the key, until that node leaves the list or changes, and
//! both are noticed by the lock or the claim, which succeeds only on the node as it was read.

mod full;
mod node;
#[cfg(any(test, feature = "faults"))]
pub(crate) mod printed;
mod replace;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, Context, Method, Objects, Regime};
use crate::error::{Error, Result};
use crate::object::{Access, CObject};
use crate::pool::{Nodes, Pool};
use node::{KEYS, MOST_KEYS};
use std::sync::Arc;

/// The largest key: one more stands for "no key".
pub const MOST_KEY: u64 = u64::MAX - 1;

/// How the nodes of a structure are, and how they are moved.
///
/// ```
/// use terrace_coalesced::{Method, Options, Regime};
///
/// let options = Options { elements: 6, regime: Regime::Full, method: Method::CopyPointer };
/// assert_eq!(options.words(), 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Keys of a node, N.
    pub elements: usize,
    /// What is asked of the back end.
    pub regime: Regime,
    /// How nodes are read.
    pub method: Method,
}

impl Options {
    /// Words of a list's node: the keys, a word about them, and the link.
    pub fn words(self) -> usize {
        self.elements.saturating_add(KEYS)
    }

    /// How nodes of a list are moved, if there can be such nodes.
    fn access(self, backend: &impl Backend) -> Result<Access> {
        let access = Access::new(self.regime, self.method)?;
        let most = backend.most_words(self.regime)?.saturating_sub(KEYS).min(MOST_KEYS as usize);
        match self.elements {
            elements if (1..=most).contains(&elements) => Ok(access),
            elements => Err(Error::Elements { elements, least: 1, most }),
        }
    }
}

/// A step that a negative control leaves out.
#[cfg_attr(
    not(any(test, feature = "faults")),
    allow(dead_code, reason = "nothing is left out then")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The lock of a node that is changed where it lies, or the claim of one that is replaced.
    Lock,
    /// That a lock is taken only on the node as it was read.
    VersionCheck,
    /// The mark of a node that left its structure. (Where nodes are replaced, that is the claim: see `Lock`.)
    Mark,
}

/// A step that is left out, if there is one: nobody can leave one out but tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftOut {
    #[cfg(any(test, feature = "faults"))]
    pub step: Option<Step>,
}

impl LeftOut {
    #[cfg_attr(
        not(any(test, feature = "faults")),
        allow(unused_variables, reason = "nothing is left out then")
    )]
    #[inline(always)]
    pub fn is(self, step: Step) -> bool {
        #[cfg(any(test, feature = "faults"))]
        return self.step == Some(step);
        #[cfg(not(any(test, feature = "faults")))]
        false
    }

    /// Whether any step is: nodes are not used again then, so that what goes wrong stays in the list.
    #[inline(always)]
    pub fn any(self) -> bool {
        self.is(Step::Lock) || self.is(Step::VersionCheck) || self.is(Step::Mark)
    }
}

/// Lists that share their nodes: one, or the buckets of a hash set.
#[derive(Debug)]
pub(crate) struct Chains<B> {
    pool: Pool<B>,
    access: Access,
    elements: usize,
    /// In the fully atomic regime the first node of each list, which is never unlinked; otherwise the link to it.
    heads: Objects,
    left_out: LeftOut,
}

impl<B: Backend> Chains<B> {
    pub fn new(
        backend: Arc<B>,
        lists: usize,
        options: Options,
        left_out: LeftOut,
    ) -> Result<Chains<B>> {
        let access = options.access(&*backend)?;
        let words = options.words();
        let head_words = if options.regime == Regime::Full { words } else { 1 };
        let heads = backend.allocate(lists, head_words, options.regime)?;
        let pool = Pool::new(backend, words, options.regime);
        Ok(Chains { pool, access, elements: options.elements, heads, left_out })
    }

    pub fn session(&self) -> Result<Walker<'_, B>> {
        let near = || CObject::new(KEYS + self.elements);
        Ok(Walker {
            chains: self,
            context: self.pool.backend().context(),
            nodes: self.pool.nodes()?,
            here: near(),
            before: near(),
            spare: near(),
        })
    }
}

/// One thread's way through lists.
pub(crate) struct Walker<'l, B: Backend> {
    chains: &'l Chains<B>,
    pub context: B::Context<'l>,
    nodes: Nodes<'l, B>,
    /// The node that a search stopped at.
    here: CObject,
    /// The node before it, in the fully atomic regime.
    before: CObject,
    /// A node that is being made.
    spare: CObject,
}

/// What a try of an update came to.
enum Tried {
    /// The answer.
    Done(bool),
    /// Somebody else was faster, or holds a node.
    Again,
}

impl<B: Backend> Walker<'_, B> {
    /// Whether `key` is in list `list`.
    pub fn contains(&mut self, list: usize, key: u64) -> bool {
        let head = self.chains.heads.at(list);
        self.nodes.enter();
        let found = match self.chains.access.regime() {
            Regime::Full => self.full_contains(head, key),
            Regime::ElementWise => self.replace_contains(head, key),
        };
        self.nodes.leave();
        found
    }

    /// Puts `key` into list `list`; false if it was there.
    pub fn insert(&mut self, list: usize, key: u64) -> Result<bool> {
        if key > MOST_KEY {
            return Err(Error::KeyOverLimit { key, most: MOST_KEY });
        }
        self.nodes.reserve(2)?;
        Ok(self.update(list, |walker, head| match walker.chains.access.regime() {
            Regime::Full => walker.full_insert(head, key),
            Regime::ElementWise => walker.replace_insert(head, key),
        }))
    }

    /// Takes `key` out of list `list`; false if it was not there.
    pub fn remove(&mut self, list: usize, key: u64) -> Result<bool> {
        self.nodes.reserve(1)?;
        Ok(self.update(list, |walker, head| match walker.chains.access.regime() {
            Regime::Full => walker.full_remove(head, key),
            Regime::ElementWise => walker.replace_remove(head, key),
        }))
    }

    /// A node is no longer in the list.
    fn unlinked(&mut self, node: u64) {
        if !self.chains.left_out.any() {
            self.nodes.unlinked(node);
        }
    }

    fn update(&mut self, list: usize, mut attempt: impl FnMut(&mut Self, u64) -> Tried) -> bool {
        let head = self.chains.heads.at(list);
        self.nodes.enter();
        let mut tries = 0;
        let done = loop {
            match attempt(self, head) {
                Tried::Done(done) => break done,
                // Without a step a dead node may be in the list again, and nobody gets past it.
                Tried::Again if tries == 1_000 && self.chains.left_out.any() => break false,
                Tried::Again => {
                    self.context.pause(tries);
                    tries += 1;
                }
            }
        };
        self.nodes.leave();
        done
    }
}

/// A set of keys in order: a list of nodes of several keys each.
///
/// ```
/// use terrace_coalesced::{List, Method, Native, Options, Regime};
/// use std::sync::Arc;
///
/// let options = Options { elements: 6, regime: Regime::Full, method: Method::CopyPointer };
/// let list = List::new(Arc::new(Native::new(1 << 16)), options)?;
/// let mut session = list.session()?;
/// assert!(session.insert(7)? && !session.insert(7)?);
/// assert!(session.contains(7) && session.remove(7)? && !session.contains(7));
/// # Ok::<(), terrace_coalesced::Error>(())
/// ```
#[derive(Debug)]
pub struct List<B>(Chains<B>);

impl<B: Backend> List<B> {
    /// An empty list in the memory of `backend`.
    ///
    /// # Errors
    /// [`Error::Elements`], [`Error::BypassIsNotAtomic`] or [`Error::NotAtomic`] if the back end cannot have such
    /// nodes, [`Error::Full`] if it has no room.
    pub fn new(backend: Arc<B>, options: Options) -> Result<List<B>> {
        Ok(List(Chains::new(backend, 1, options, LeftOut::default())?))
    }

    /// A list that leaves a step out: a negative control.
    ///
    /// # Errors
    /// Those of [`List::new`].
    #[cfg(any(test, feature = "faults"))]
    pub fn without(step: Step, backend: Arc<B>, options: Options) -> Result<List<B>> {
        Ok(List(Chains::new(backend, 1, options, LeftOut { step: Some(step) })?))
    }

    /// Access for one more thread.
    ///
    /// # Errors
    /// [`Error::Sessions`].
    pub fn session(&self) -> Result<ListSession<'_, B>> {
        Ok(ListSession(self.0.session()?))
    }
}

/// One thread's access to a [`List`].
pub struct ListSession<'l, B: Backend>(Walker<'l, B>);

impl<'l, B: Backend> ListSession<'l, B> {
    /// Whether `key` is there.
    pub fn contains(&mut self, key: u64) -> bool {
        self.0.contains(0, key)
    }

    /// Puts `key` there; false if it was.
    ///
    /// # Errors
    /// [`Error::KeyOverLimit`], [`Error::Full`].
    pub fn insert(&mut self, key: u64) -> Result<bool> {
        self.0.insert(0, key)
    }

    /// Takes `key` out; false if it was not there.
    ///
    /// # Errors
    /// [`Error::Full`]: the element-wise list replaces the node that held the key.
    pub fn remove(&mut self, key: u64) -> Result<bool> {
        self.0.remove(0, key)
    }

    /// This thread's access to far memory.
    pub fn context(&self) -> &B::Context<'l> {
        &self.0.context
    }
}
