//! Checkpoints of several maps at one instant.
//!
//! Under [`Rule::Bounded`](crate::superblock::Rule) a map is recovered as of its last checkpoint. A transaction that
//! writes to two maps *ties* them: the checkpoint of one that has the transaction must be one of the other's that has
//! it too, or a crash finds half of it. So none of them takes a checkpoint alone from then on. All of them are locked
//! out at one instant, written out, and go over to their new checkpoints by one record of the commit journal
//! ([`commits`](crate::commits)); that unties them.
//!
//! # What is durable when
//! What each checkpoint has is durable before the record is. The record is durable before the first checkpoint is
//! stored in its file, and an opening goes over to those that were not. A crash before the record finds all maps as of
//! their checkpoints before.
//!
//! # Order of locks
//! Each kind in the order of the maps, which all callers have in common: the checkpoints, the leads of commit queues,
//! the writers. Maps are tied by who holds a writer of each, so the ties do not change under all writers' locks.

use super::Logs;
use super::commit::Collected;
use super::commit_queue::Lead;
use super::turns::Held;
use crate::commits::{Commits, NotBegun, Part, Survives};
use crate::error::Result;
use crate::superblock::Checkpoint;
use parking_lot::MutexGuard;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_memory::Memory;

type Together = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// Whether a map's next checkpoint is taken together with others', and how.
#[derive(Default)]
pub(super) struct Ties {
    is_tied: AtomicBool,
    /// Who are about to take a checkpoint that must be this map's alone.
    alone: AtomicUsize,
    together: OnceLock<Together>,
}

impl fmt::Debug for Ties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ties").field(&self.is_tied).finish()
    }
}

impl<M: Memory> Logs<M> {
    /// The map takes no checkpoint alone from here on. The caller holds a writer, and has said to whom it is tied.
    pub fn tie(&self) {
        #[cfg(any(test, feature = "faults"))]
        if self.faults.has(super::Fault::CheckpointAlone) {
            return;
        }
        self.ties.is_tied.store(true, Ordering::Relaxed);
    }

    /// Under all writers' locks.
    pub(super) fn is_tied(&self) -> bool {
        self.ties.is_tied.load(Ordering::Relaxed)
    }

    /// Whether it is not to be tied now. Asked by who holds a writer.
    pub fn stays_alone(&self) -> bool {
        self.ties.alone.load(Ordering::SeqCst) > 0
    }

    /// From here on it is not tied, until what is returned is dropped: a checkpoint that must be this map's alone
    /// follows one that is taken together.
    pub(super) fn alone(&self) -> Alone<'_> {
        self.ties.alone.fetch_add(1, Ordering::SeqCst);
        Alone(&self.ties)
    }

    /// `together` takes the checkpoint of all maps that this one is tied to, by [`checkpoint_together`].
    pub fn ties_by(&self, together: impl Fn() -> Result<()> + Send + Sync + 'static) {
        let _the_first_stays = self.ties.together.set(Box::new(together));
    }

    /// A checkpoint of this map and all that it is tied to. No lock may be held.
    pub(super) fn flush_together(&self) -> Result<()> {
        self.ties.together.get().map_or(Ok(()), |together| together())
    }

    /// Whoever stores a checkpoint of this map is done on return.
    pub fn await_checkpoint(&self) {
        drop(self.lock_checkpoint());
    }
}

/// Keeps a map from being tied.
pub(super) struct Alone<'a>(&'a Ties);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.alone.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A map whose checkpoint is taken, under its locks.
struct OfMap<'a, M: Memory> {
    logs: &'a Logs<M>,
    name: &'a Arc<str>,
    checkpoint: MutexGuard<'a, Checkpoint>,
    leads: Vec<Lead<'a>>,
}

/// Takes the checkpoint of all `maps`, with their names, at one instant; in the order that all callers have in common.
/// `is_whole` is asked under all locks whether no map is missing that one of them is tied to, and if so forgets the
/// ties. `false` if one is: nothing was done.
///
/// # Errors
/// Those of the media: all of the maps stop, since none of them can be as of later than the one that failed.
pub fn checkpoint_together<M: Memory>(
    maps: &[(&Logs<M>, Arc<str>)],
    is_whole: impl FnOnce() -> bool,
    commits: &dyn Commits,
) -> Result<bool> {
    let checkpoints: Vec<_> = maps.iter().map(|(logs, _)| logs.lock_checkpoint()).collect();
    let locked = maps.iter().zip(checkpoints).map(|((logs, name), checkpoint)| OfMap {
        logs,
        name,
        checkpoint,
        leads: logs.lead_all(),
    });
    let mut maps: Vec<OfMap<'_, M>> = locked.collect();
    let collected: Vec<Collected> = {
        let locks: Vec<_> = maps.iter().map(|map| map.logs.lock_writers()).collect();
        if !is_whole() {
            return Ok(false);
        }
        let collect = |(OfMap { logs, checkpoint, .. }, locks): (&OfMap<'_, M>, &Vec<Held<'_>>)| {
            logs.ties.is_tied.store(false, Ordering::Relaxed);
            logs.collect(checkpoint, checkpoint.rule, locks)
        };
        maps.iter().zip(&locks).map(collect).collect()
    };
    let stored = store(&mut maps, collected, commits);
    if let Err(error) = &stored {
        for OfMap { logs, .. } in &maps {
            logs.stop(error.to_string());
            logs.has_failed.store(true, Ordering::Release);
        }
    }
    stored.map(|()| true)
}

/// Makes what was collected of the maps durable, and has them go over to it.
fn store<M: Memory>(
    maps: &mut [OfMap<'_, M>],
    collected: Vec<Collected>,
    commits: &dyn Commits,
) -> Result<()> {
    maps.iter().try_for_each(|map| map.logs.check_writable())?;
    let mut written = Vec::with_capacity(maps.len());
    for (map, collected) in maps.iter().zip(collected) {
        written.push(map.logs.write_collected(collected, &map.checkpoint, &map.leads)?);
    }
    let part = |(map, collected): (&OfMap<'_, M>, &Collected)| {
        let does = || map.checkpoint.to(&collected.next);
        collected.changed.then(|| Part { map: Arc::clone(map.name), does: does() })
    };
    let parts: Vec<Part> = maps.iter().zip(&written).filter_map(part).collect();
    // One alone is stored as it always is.
    let number = match parts.len() {
        0 | 1 => None,
        _ => Some(commits.begin(Survives::Power, parts).map_err(NotBegun::into_error)?),
    };
    let stored = maps.iter_mut().zip(written).try_for_each(|(map, collected)| {
        map.logs.store_collected(collected, &mut map.checkpoint, &map.leads)
    });
    if stored.is_err() {
        // Whoever opens the maps anew goes over to it.
        number.into_iter().for_each(|number| commits.abandon(number));
    }
    stored?;
    number.map_or(Ok(()), |number| commits.end(number))
}
