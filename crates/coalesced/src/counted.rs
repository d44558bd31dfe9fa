//! A memory that counts the transactions of each context.

use crate::backend::{Backend, Context, Method, Objects, Regime, Transactions};
use crate::error::{Error, Result};

/// Another memory, with each transaction counted. A transaction moves up to so many words of one object.
///
/// ```
/// use terrace_coalesced::{Access, Backend, CObject, CPointer, Context, Counted, Method, Native, Regime};
///
/// let memory = Counted::new(Native::new(1024), 8)?;
/// let far = CPointer::new(memory.allocate(1, 10, Regime::ElementWise)?.first);
/// let mut context = memory.context();
/// let access = Access::new(Regime::ElementWise, Method::CopyPointer)?;
/// far.get(&mut context, &mut CObject::new(10), access);
/// assert_eq!(context.transactions().gets, 2);
/// # Ok::<(), terrace_coalesced::Error>(())
/// ```
#[derive(Debug)]
pub struct Counted<B> {
    inner: B,
    words: usize,
}

impl<B> Counted<B> {
    /// Counts what is moved in `inner` by transactions of up to `words` words (a line of a processor has 8, one of a
    /// GPU 16, a packet of a network 512).
    ///
    /// # Errors
    /// [`Error::NoWords`].
    pub fn new(inner: B, words: usize) -> Result<Counted<B>> {
        if words == 0 {
            return Err(Error::NoWords);
        }
        Ok(Counted { inner, words })
    }
}

impl<B: Backend> Backend for Counted<B> {
    type Context<'a>
        = CountedContext<B::Context<'a>>
    where
        B: 'a;

    fn context(&self) -> Self::Context<'_> {
        CountedContext {
            inner: self.inner.context(),
            words: self.words,
            counts: Transactions::default(),
        }
    }

    fn allocate(&self, objects: usize, words: usize, regime: Regime) -> Result<Objects> {
        self.inner.allocate(objects, words, regime)
    }

    fn most_words(&self, regime: Regime) -> Result<usize> {
        self.inner.most_words(regime)
    }

    fn words(&self) -> u64 {
        self.inner.words()
    }
}

/// A thread's access to a [`Counted`] memory.
#[derive(Debug)]
pub struct CountedContext<C> {
    inner: C,
    words: usize,
    counts: Transactions,
}

impl<C: Context> Context for CountedContext<C> {
    fn load(&mut self, at: u64) -> u64 {
        self.counts.loads += 1;
        self.inner.load(at)
    }

    fn store(&mut self, at: u64, value: u64) {
        self.counts.stores += 1;
        self.inner.store(at, value);
    }

    fn compare_and_swap(
        &mut self,
        at: u64,
        current: u64,
        new: u64,
    ) -> std::result::Result<(), u64> {
        self.counts.swaps += 1;
        self.inner.compare_and_swap(at, current, new)
    }

    fn get(&mut self, at: u64, copy: &mut [u64], regime: Regime, method: Method) {
        self.counts.gets += copy.len().div_ceil(self.words) as u64;
        self.inner.get(at, copy, regime, method);
    }

    fn set(&mut self, at: u64, copy: &[u64], regime: Regime, method: Method) {
        self.counts.sets += copy.len().div_ceil(self.words) as u64;
        self.inner.set(at, copy, regime, method);
    }

    fn pause(&mut self, tries: u32) {
        self.counts.waits += 1;
        self.inner.pause(tries);
    }

    fn transactions(&self) -> Transactions {
        self.counts
    }
}
