//! The redo log of a map under `interval`: when there is one, and what is done with one that was left.

use crate::engine::{Change, Engine, Hint};
use crate::error::Result;
use crate::pressure::{By, Wait};
use crate::recover::RecoveryReport;
use std::time::Instant;
use terrace_durable::Redo;
use terrace_durable::logs::Logs;
use terrace_durable::values::Room;
use terrace_memory::Memory;

/// Keys whose items are read from the disk together, and brought near.
const READ_TOGETHER: usize = 1024;
const PREFETCHED: usize = 32;

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Writes again what a process that died wrote behind its last checkpoint, durably on return, or in memory alone
    /// where the map is only read. `recovery` learns how many keys, and what was damaged if that is passed.
    ///
    /// # Errors
    /// The redo log is damaged, or there is no room.
    pub fn replay(&mut self, recovery: &mut RecoveryReport) -> Result<()> {
        let Some(left) = self.values.logs().and_then(|logs| logs.take_left()) else {
            return Ok(());
        };
        let start = Instant::now();
        let newest = left.newest()?;
        recovery.replayed = newest.keys.len() as u64;
        recovery.damage.extend(newest.damage);
        self.write_again(&newest.keys)?;
        self.values.logs().map_or(Ok(()), |logs| logs.finish_left(left))?;
        recovery.keys = self.len();
        recovery.steps.push(("replay the redo log", start.elapsed()));
        recovery.elapsed += start.elapsed();
        Ok(())
    }

    /// Writes again what was written before a crash, before anybody else writes.
    ///
    /// # Errors
    /// There is no room; those of the medium.
    pub fn write_again(&mut self, keys: &[Redo<'_>]) -> Result<()> {
        // There is no collector yet: whoever needs room collects.
        let has_threads = std::mem::replace(&mut self.has_threads, false);
        let together = self.near_at_once(READ_TOGETHER);
        let by = By { writer: 1, wait: Wait::ForRoom };
        for (number, redo) in keys.iter().enumerate() {
            let next = |most: usize| &keys[number..keys.len().min(number + most)];
            if number % together == 0 && self.has_away() {
                // What is written needs none of what there was.
                let deleted =
                    next(together).iter().filter(|redo| redo.value.is_none()).map(|redo| redo.key);
                let deleted: Vec<&[u8]> = deleted.collect();
                self.bring_keys_near(&deleted, &crossbeam_epoch::pin(), by.wait)?;
            }
            if number % PREFETCHED == 0 {
                let keys: Vec<&[u8]> = next(PREFETCHED).iter().map(|redo| redo.key).collect();
                self.prefetch(&keys);
            }
            let change = match redo.value {
                Some((value, expires_at_ms)) => Change::Put { value, expires_at_ms },
                None => Change::Delete,
            };
            let bytes = redo.value.map_or(8, |(value, _)| value.len());
            self.update(by, redo.key, Hint::Blind(bytes), Room::Anyway, |_| change)?;
        }
        self.has_threads = has_threads;
        Ok(())
    }

    /// From here on acknowledged writes survive the process; what was written before is durable on return if there
    /// was no redo log yet.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn begin_redo(&self) -> Result<()> {
        match self.values.logs() {
            // It counts from a checkpoint on.
            Some(logs) if logs.begin_redo()? => Ok(logs.flush_all()?),
            _ => Ok(()),
        }
    }

    /// Ends the redo log: everything written before is durable on return.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn end_redo(&self) -> Result<()> {
        self.values.logs().map_or(Ok(()), |logs| Ok(logs.end_redo()?))
    }

    /// Whether the redo log had no room for something that no checkpoint has yet.
    #[inline(always)]
    pub fn owes_checkpoint(&self) -> bool {
        self.values.logs().is_some_and(Logs::owes_checkpoint)
    }

    /// What the redo log had no room for is durable on return: it is about to be acknowledged.
    ///
    /// # Errors
    /// Those of the medium.
    #[inline(always)]
    pub fn settle_redo(&self) -> Result<()> {
        match self.values.logs() {
            Some(logs) if logs.owes_checkpoint() => Ok(logs.flush_all()?),
            _ => Ok(()),
        }
    }
}
