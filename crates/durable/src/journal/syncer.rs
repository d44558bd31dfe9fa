//! How much of a journal's log is durable; shared with threads that make it so beside the journal's owner.

use crate::error::{Error, Result};
use crate::medium::Medium;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::{Claim, Memory, Native};

/// A journal's medium, and how many of its records are durable there.
#[derive(Debug)]
pub struct Syncer<M: Memory = Native> {
    pub(super) medium: Medium<M>,
    _claim: Claim,
    /// Records that were written out, and those of them that are durable; counted from the opening on, over all
    /// generations.
    appended: AtomicU64,
    synced: AtomicU64,
    /// A write or a sync failed: what is on the medium is not known.
    failed: OnceLock<String>,
}

impl<M: Memory> Syncer<M> {
    /// `records` are there, and durable, in the memory of `medium`, which was claimed.
    pub(super) fn new(medium: Medium<M>, claim: Claim, records: u64) -> Syncer<M> {
        let (appended, synced) = (AtomicU64::new(records), AtomicU64::new(records));
        Syncer { medium, _claim: claim, appended, synced, failed: OnceLock::new() }
    }

    /// The medium below.
    pub fn medium(&self) -> &Medium<M> {
        &self.medium
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// A record was written out.
    pub(super) fn append(&self, is_durable: bool) {
        self.appended.fetch_add(1, Ordering::AcqRel);
        if is_durable {
            self.is_durable();
        }
    }

    /// All records so far are durable.
    pub(super) fn is_durable(&self) {
        self.synced.fetch_max(self.appended(), Ordering::AcqRel);
    }

    /// Whether every record is durable.
    pub fn is_synced(&self) -> bool {
        self.synced() == self.appended()
    }

    /// Every record that was appended before the call is durable on return.
    ///
    /// # Errors
    /// Those of the medium: the journal takes no more then.
    pub fn sync(&self) -> Result<()> {
        self.check()?;
        let appended = self.appended();
        if self.synced() < appended {
            self.stop_on_error(self.medium.sync())?;
            // What another thread failed to sync meanwhile may be what was appended before.
            self.check()?;
            self.synced.fetch_max(appended, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The write or sync that failed, if one did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    pub(super) fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), |reason| Err(Error::Stopped(reason.into())))
    }

    pub(super) fn stop_on_error(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            // The first reason stays.
            let _later = self.failed.set(error.to_string());
        }
        result
    }
}
