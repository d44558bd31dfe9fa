//! The redo log of a map under `interval`: when there is one, and what is done with one that was left.

use crate::engine::{Change, Engine, Hint};
use crate::error::Result;
use crate::options::Durability;
use crate::pressure::{By, Wait};
use terrace_durable::logs::Room;
use terrace_memory::Memory;

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Writes again what a process that died wrote behind its last checkpoint, durably on return, or in memory alone
    /// where the map is only read; how many keys.
    ///
    /// # Errors
    /// The redo log is damaged, or there is no room.
    pub fn replay(&mut self) -> Result<u64> {
        let Some(left) = self.values.logs().and_then(|logs| logs.take_left()) else {
            return Ok(0);
        };
        // There is no collector yet: whoever needs room collects.
        let has_threads = std::mem::replace(&mut self.has_threads, false);
        let newest = left.newest()?;
        let keys = newest.len() as u64;
        let by = By { writer: 1, wait: Wait::ForRoom };
        for redo in newest {
            let change = match redo.value {
                Some((value, expires_at_ms)) => Change::Put { value, expires_at_ms },
                None => Change::Delete,
            };
            let bytes = redo.value.map_or(8, |(value, _)| value.len());
            self.update(by, redo.key, Hint::Bytes(bytes), Room::Anyway, |_| change)?;
        }
        self.values.logs().map_or(Ok(()), |logs| logs.finish_left(left))?;
        self.has_threads = has_threads;
        Ok(keys)
    }

    /// Begins or ends the redo log, as `durability` asks for one or not. Everything written before is durable on
    /// return.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn redo_under(&self, durability: Durability) -> Result<()> {
        let Some(logs) = self.values.logs() else { return Ok(()) };
        match durability {
            Durability::Interval(_) => {
                logs.begin_redo()?;
                // It counts from a checkpoint on.
                Ok(logs.flush_all()?)
            }
            Durability::Sync | Durability::None => {
                logs.end_redo();
                Ok(())
            }
        }
    }

    pub fn end_redo(&self) {
        self.values.logs().iter().for_each(|logs| logs.end_redo());
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
