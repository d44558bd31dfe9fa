//! Slots that hold neither an item nor nothing: how many of them a crash explains.
//!
//! The word that says that the file is in use also says how many slots a crash may tear. An item's checksum is stored
//! last, so that under eADR, where stores survive in their order, none is torn; nor is one under sections, whose
//! checksum is a word of the section. Otherwise each writer may leave one. Whatever else does not verify was damaged.
//!
//! ```text
//! bit 0   the file is in use            bits 8-15   slots that may be torn, and one; 0: as in files of before, 64
//! ```

use super::{IN_USE_AT, MAX_WRITERS, Slabs};
use crate::error::Result;
use terrace_memory::Memory;

const IN_USE: u64 = 1;
const MOST_SHIFT: u32 = 8;

impl<M: Memory> Slabs<M> {
    /// Slots that a crash from here on may tear.
    pub(super) fn may_tear(&self) -> usize {
        if self.allocation.get().is_some() || self.is_ordered { 0 } else { self.writers.len() }
    }

    /// Says so, durably on return; or that the file is not in use.
    pub(super) fn set_in_use(&self, most_torn: Option<usize>) {
        let word = most_torn.map_or(0, |most| IN_USE | (most as u64 + 1) << MOST_SHIFT);
        let memory = self.medium.memory();
        // SAFETY: the word was grown by `open`; recovery and drop, its only users, are alone.
        unsafe {
            memory.store(IN_USE_AT, word);
            memory.persist(IN_USE_AT, 8);
        }
    }

    /// Slots that a crash may have torn, if the file was in use.
    pub(super) fn may_be_torn(&self) -> Result<Option<usize>> {
        // What is not mended may end before the word.
        let is_there = self.medium.file_bytes()? >= IN_USE_AT + 8;
        // SAFETY: in the file; otherwise as in `set_in_use`.
        let word = if is_there { unsafe { self.medium.memory().load(IN_USE_AT) } } else { 0 };
        let most =
            (word >> MOST_SHIFT & 0xff).checked_sub(1).map_or(MAX_WRITERS, |most| most as usize);
        Ok((word != 0).then_some(most))
    }
}
