//! The durability in force: one word, which everything else asks, and how a map goes over to another.
//!
//! What follows from it is derived where it is needed: whether an acknowledgement waits for the medium
//! ([`InForce::is_sync`]), how often the checkpointer works, and which items recovery counts ([`Engine::policy_of`]).
//! That policy alone is in the file, because it must be known before anything else is.

use crate::engine::Engine;
use crate::error::Result;
use crate::options::Durability;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_durable::superblock::Rule;
use terrace_durable::{Values, lock};
use terrace_memory::Memory;

const SYNC: u64 = 0;
const NONE: u64 = u64::MAX;

/// The durability that a map or queue has now.
#[derive(Debug)]
pub(crate) struct InForce(AtomicU64);

impl InForce {
    pub fn new(durability: Durability) -> InForce {
        InForce(AtomicU64::new(word_of(durability)))
    }

    /// Whether what is acknowledged must be durable first.
    #[inline(always)]
    pub fn is_sync(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SYNC
    }

    pub fn get(&self) -> Durability {
        match self.0.load(Ordering::SeqCst) {
            SYNC => Durability::Sync,
            NONE => Durability::None,
            nanoseconds => Durability::Interval(Duration::from_nanos(nanoseconds - 1)),
        }
    }

    /// Whoever changes it keeps others from doing so at the same time.
    pub fn set(&self, durability: Durability) {
        self.0.store(word_of(durability), Ordering::SeqCst);
    }
}

/// An interval is its nanoseconds and one; longer than five hundred years is as long as that.
fn word_of(durability: Durability) -> u64 {
    match durability {
        Durability::Sync => SYNC,
        Durability::None => NONE,
        Durability::Interval(every) => {
            u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).saturating_add(1).min(NONE - 1)
        }
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Which items count after a crash. What a persistent index names is durable, and there is no going back
    /// to an earlier state of it.
    pub fn policy_of(&self, durability: Durability) -> Rule {
        // Where each item is durable as soon as it is written, leaving it out would only take back acknowledged writes.
        let is_at_once =
            self.values.medium().is_byte_addressable() && durability != Durability::None;
        let all = durability == Durability::Sync || is_at_once || self.kept.is_some();
        if all { Rule::All } else { Rule::Bounded }
    }

    /// Goes over to another durability; everything written before is durable on return.
    ///
    /// # Errors
    /// Those of the medium; the old durability stays.
    pub fn switch_durability(&self, to: Durability) -> Result<()> {
        let _alone = lock(self.values.medium().memory(), &self.switching);
        let from = self.durability.get();
        let switched = match to {
            Durability::Sync => self.switch_to_sync(),
            _ => self.switch_from_sync(to),
        };
        switched.inspect_err(|_| self.durability.set(from))
    }

    fn switch_to_sync(&self) -> Result<()> {
        // The promise is made once the policy holds. What was acknowledged under the old promise
        // while the policy changed is in no checkpoint: one more flush has it.
        self.values.set_rule(Rule::All)?;
        self.durability.set(Durability::Sync);
        self.values.flush_all()?;
        self.end_redo()
    }

    fn switch_from_sync(&self, to: Durability) -> Result<()> {
        // What keeps the new promise is there before the old one is taken back; that is taken back before the
        // policy that keeps it goes, and stands if that fails.
        let keeps_redo = matches!(to, Durability::Interval(_));
        if keeps_redo {
            self.begin_redo()?;
        }
        self.durability.set(to);
        self.values.set_rule(self.policy_of(to))?;
        if keeps_redo { Ok(()) } else { self.end_redo() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_durability_comes_back_as_it_was_set() {
        let intervals = [0, 1, 1_000_000_000, u64::MAX / 2].map(Duration::from_nanos);
        let all = [Durability::Sync, Durability::None].into_iter();
        for durability in all.chain(intervals.map(Durability::Interval)) {
            let in_force = InForce::new(Durability::Sync);
            in_force.set(durability);
            assert_eq!(in_force.get(), durability);
            assert_eq!(in_force.is_sync(), durability == Durability::Sync);
        }
    }

    /// The longest interval passes neither for `sync` nor for no promise at all.
    #[test]
    fn an_interval_without_end_stays_an_interval() {
        let Durability::Interval(longest) = InForce::new(Durability::Interval(Duration::MAX)).get()
        else {
            panic!("no interval");
        };
        assert!(longest > Duration::from_secs(500 * 365 * 24 * 3600), "{longest:?}");
    }
}
