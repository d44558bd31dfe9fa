//! Hash sets: an array of lists of coalesced nodes.

use crate::backend::Backend;
use crate::error::{Error, Result};
#[cfg(any(test, feature = "faults"))]
use crate::list::Step;
use crate::list::{Chains, LeftOut, Options, Walker};
use std::sync::Arc;

/// A set of keys, in buckets that are lists.
///
/// The number of buckets stays. In the fully atomic regime the first node of a bucket lies in the array itself, so
/// that a key of a bucket that does not overflow is found by one access; in the element-wise regime the array has
/// links.
///
/// ```
/// use terrace_coalesced::{HashSet, Method, Native, Options, Regime};
/// use std::sync::Arc;
///
/// let options = Options { elements: 8, regime: Regime::ElementWise, method: Method::Bypass };
/// let set = HashSet::new(Arc::new(Native::new(1 << 16)), 100, options)?;
/// let mut session = set.session()?;
/// assert!(session.insert(7)? && session.contains(7) && session.remove(7)? && !session.remove(7)?);
/// # Ok::<(), terrace_coalesced::Error>(())
/// ```
#[derive(Debug)]
pub struct HashSet<B> {
    chains: Chains<B>,
    buckets: u64,
}

impl<B: Backend> HashSet<B> {
    /// An empty set of so many buckets in the memory of `backend`.
    ///
    /// # Errors
    /// [`Error::Buckets`], and those of [`List::new`](crate::List::new).
    pub fn new(backend: Arc<B>, buckets: usize, options: Options) -> Result<HashSet<B>> {
        HashSet::with(LeftOut::default(), backend, buckets, options)
    }

    /// A set that leaves a step out: a negative control.
    ///
    /// # Errors
    /// Those of [`HashSet::new`].
    #[cfg(any(test, feature = "faults"))]
    pub fn without(
        step: Step,
        backend: Arc<B>,
        buckets: usize,
        options: Options,
    ) -> Result<HashSet<B>> {
        HashSet::with(LeftOut { step: Some(step) }, backend, buckets, options)
    }

    fn with(
        left_out: LeftOut,
        backend: Arc<B>,
        buckets: usize,
        options: Options,
    ) -> Result<HashSet<B>> {
        let most = backend.words() as usize;
        if !(1..=most).contains(&buckets) {
            return Err(Error::Buckets { buckets, most });
        }
        Ok(HashSet {
            chains: Chains::new(backend, buckets, options, left_out)?,
            buckets: buckets as u64,
        })
    }

    /// Access for one more thread.
    ///
    /// # Errors
    /// [`Error::Sessions`].
    pub fn session(&self) -> Result<HashSession<'_, B>> {
        Ok(HashSession { walker: self.chains.session()?, buckets: self.buckets })
    }
}

/// One thread's access to a [`HashSet`].
pub struct HashSession<'s, B: Backend> {
    walker: Walker<'s, B>,
    buckets: u64,
}

impl<'s, B: Backend> HashSession<'s, B> {
    /// Whether `key` is there.
    pub fn contains(&mut self, key: u64) -> bool {
        self.walker.contains(self.bucket(key), key)
    }

    /// Puts `key` there; false if it was.
    ///
    /// # Errors
    /// [`Error::KeyOverLimit`], [`Error::Full`].
    pub fn insert(&mut self, key: u64) -> Result<bool> {
        self.walker.insert(self.bucket(key), key)
    }

    /// Takes `key` out; false if it was not there.
    ///
    /// # Errors
    /// [`Error::Full`]: the element-wise regime replaces the node that held the key.
    pub fn remove(&mut self, key: u64) -> Result<bool> {
        self.walker.remove(self.bucket(key), key)
    }

    /// This thread's access to far memory.
    pub fn context(&self) -> &B::Context<'s> {
        &self.walker.context
    }

    /// The upper bits of a product with a random odd number, scaled to the number of buckets.
    #[inline]
    fn bucket(&self, key: u64) -> usize {
        let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((u128::from(mixed) * u128::from(self.buckets)) >> 64) as usize
    }
}
