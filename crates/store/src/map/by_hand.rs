//! What tests and the laboratory do to a map by hand: its threads' work step by step, its medium, its mistakes.

use super::Map;
use crate::error::Result;
use terrace_durable::Medium;
use terrace_durable::slabs::Census;
use terrace_memory::Memory;

impl<M: Memory, I: Memory> Map<M, I> {
    /// A tick of the checkpointer by hand, for a map without threads of its own under a promise that takes
    /// checkpoints: the oldest logs are written out, but for so many bytes, and a checkpoint is taken if it is due.
    /// With that, everything before the call survives once it has returned.
    ///
    /// # Errors
    /// Those of the medium.
    #[doc(hidden)]
    pub fn keep(&self, unwritten_bytes: u64, is_checkpoint_due: bool) -> Result<()> {
        Ok(crate::background::keep(&self.inner.engine, unwritten_bytes, is_checkpoint_due)?)
    }

    /// Saves the index, as a thread of the map does when it is worth it; whether it was.
    ///
    /// # Errors
    /// Those of the medium.
    #[doc(hidden)]
    pub fn save_index(&self) -> Result<bool> {
        self.inner.engine.save_index()
    }

    /// The medium below, for tests that record or break it.
    #[doc(hidden)]
    pub fn medium(&self) -> &Medium<M> {
        self.inner.engine.values.medium()
    }

    /// For tests: how many logs are in use, open and sealed; none of a map in slabs.
    #[doc(hidden)]
    pub fn logs_in_use(&self) -> Option<usize> {
        self.inner.engine.values.logs().map(|logs| logs.survey().len())
    }

    /// For tests: closes the logs that are open.
    #[doc(hidden)]
    pub fn seal_open_logs(&self) {
        self.inner.engine.values.logs().iter().for_each(|logs| logs.seal_open());
    }

    /// For tests: waits until nobody reads what was freed, or has left memory.
    ///
    /// # Errors
    /// The system's, which does not take memory back.
    #[doc(hidden)]
    pub fn await_readers(&self) -> Result<()> {
        let Some(logs) = self.inner.engine.values.logs() else { return Ok(()) };
        while logs.waiting_segments() + logs.leaving_segments() + logs.waiting_far() > 0 {
            logs.release_left()?;
            logs.release_free_far()?;
            crossbeam_epoch::pin().flush();
        }
        Ok(())
    }

    /// For tests: of a map in slabs, whether each slot has one owner, and how many there are.
    #[doc(hidden)]
    pub fn check_slots(&self) -> Option<std::result::Result<Census, String>> {
        self.inner.engine.values.slabs().map(|slabs| slabs.check())
    }

    /// For tests: notes where logs end, as the checkpointer does.
    #[doc(hidden)]
    pub fn note_tails(&self) -> Result<()> {
        let noted = self.inner.engine.values.logs().map(|logs| logs.note_tails());
        Ok(noted.transpose().map(drop)?)
    }

    /// For tests: from here on its logs make this mistake.
    #[doc(hidden)]
    #[cfg(feature = "faults")]
    pub fn commit_fault(&self, fault: terrace_durable::logs::Fault) {
        self.inner.engine.values.logs().iter().for_each(|logs| logs.commit_fault(fault));
    }
}
