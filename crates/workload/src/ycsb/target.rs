//! What a store must offer to be measured.
//!
//! Static dispatch throughout: the worker's loop is compiled once a store, so that a call costs
//! what it would cost the store's own user.

use crate::Failure;

/// A store under test, shared by the threads that load it.
pub trait Target: Sync {
    /// What one thread talks to; made on that thread and never shared.
    type Handle<'a>: Handle
    where
        Self: 'a;

    /// Whether [`Handle::scan`] works: workload E is refused to stores of which it does not.
    fn is_ordered(&self) -> bool;

    /// A handle for the calling thread.
    fn handle(&self) -> Result<Self::Handle<'_>, Failure>;

    /// Returns once everything acknowledged before the call is durable.
    fn flush(&self) -> Result<(), Failure>;
}

/// One thread's way into a store.
///
/// An operation has returned only when the caller may tell others of it: a store that promises
/// durable writes must have made them durable.
pub trait Handle {
    /// Clears `value`, fills it with the key's value and returns true; or returns false and may
    /// leave anything in `value`.
    ///
    /// Reads copy because a server, or anyone who outlives the lookup, must; into a buffer that is
    /// reused, so that no store is charged an allocation for it.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure>;

    /// Writes the key's whole value.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Removes the key; no error where it is absent.
    fn delete(&mut self, key: &[u8]) -> Result<(), Failure>;

    /// Calls `each(i, value)` once for every key, in any order.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        let mut value = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let found = self.get(key, &mut value)?;
            each(i, found.then_some(value.as_slice()));
        }
        Ok(())
    }

    /// Calls `each` for up to `limit` pairs with keys from `start` on, in key order; returns how
    /// many. Called only where [`Target::is_ordered`]: a store without order need not have it.
    fn scan(
        &mut self,
        _start: &[u8],
        _limit: usize,
        _each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        Err("the store has no order to scan in".into())
    }

    /// Writes pairs in the store's cheapest way, all acknowledged on return.
    fn put_batch(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
        pairs.iter().try_for_each(|(key, value)| self.put(key, value))
    }
}

/// A store that does nothing: what it is measured at is the harness's own ceiling.
///
/// All its reads miss, so `misses` is not 0 here.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullTarget;

impl Target for NullTarget {
    type Handle<'a> = NullTarget;

    fn is_ordered(&self) -> bool {
        true
    }

    fn handle(&self) -> Result<NullTarget, Failure> {
        Ok(NullTarget)
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Handle for NullTarget {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        std::hint::black_box((key, value));
        Ok(false)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        std::hint::black_box((key, value));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        std::hint::black_box(key);
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        _limit: usize,
        _each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        std::hint::black_box(start);
        Ok(0)
    }
}
