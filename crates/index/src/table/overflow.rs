//! The overflow lines of a table: which are in use, and which are free.
//!
//! In a table whose changes are sections the free ones are a list through their headers, so that
//! taking and freeing a line are words of the section that needs it.

use super::line::*;
use super::shard::{Persistence, Shard};
use crate::COMMIT_BYTES;
use parking_lot::MutexGuard;
use std::io;
use terrace_durable::lock;
use terrace_durable::sections::Changes;
use terrace_memory::Memory;

/// Allocation of a table's overflow lines. Line 0 is never used: overflow number 0 means none.
pub(super) struct OverflowLines {
    /// The last one is taken next.
    pub(super) free: Vec<u64>,
    /// The first that was never used.
    pub(super) next: u64,
    /// Bytes.
    pub(super) committed: u64,
}

/// A table's overflow lines, its caller's alone from the first time they are needed to the end of the
/// section: others must not build on what it may not come to.
pub(super) struct Lines<'a, I: Memory> {
    shard: &'a Shard<I>,
    held: Option<MutexGuard<'a, OverflowLines>>,
}

impl<'a, I: Memory> Lines<'a, I> {
    pub(super) fn of(shard: &'a Shard<I>) -> Lines<'a, I> {
        Lines { shard, held: None }
    }

    fn held(&mut self) -> &mut OverflowLines {
        let shard = self.shard;
        self.held.get_or_insert_with(|| lock(&shard.buckets, &shard.lines))
    }

    /// Sees to it that there is a line to take.
    ///
    /// # Errors
    /// Those of the memory, and when there are as many lines as a header can tell apart.
    pub(super) fn reserve(&mut self) -> io::Result<()> {
        let shard = self.shard;
        let lines = self.held();
        if !lines.free.is_empty() || (lines.next + 1) * LINE <= lines.committed {
            return Ok(());
        }
        let left = shard.overflow.len().saturating_sub(lines.committed);
        if lines.next >= OVERFLOW_MASK || left < LINE {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "no overflow line is left"));
        }
        let step = shard.step(lines.committed.min(COMMIT_BYTES / 8)).min(left);
        (shard.commit_overflow)(lines.committed, step)?;
        shard.budget.take_anyway(step);
        lines.committed += step;
        shard.note(OVERFLOW_BYTES_AT, counted(lines.committed, OVERFLOW_BYTES_AT));
        Ok(())
    }

    /// Takes the line that was reserved.
    pub(super) fn take(&mut self, changes: &mut Changes) -> u64 {
        let shard = self.shard;
        let lines = self.held();
        let line = lines.free.pop();
        if line.is_some() {
            let first = lines.free.last().copied().unwrap_or(0);
            shard.book(changes, FREE_AT, first);
        }
        line.unwrap_or_else(|| {
            lines.next += 1;
            shard.book(changes, NEXT_AT, lines.next);
            lines.next - 1
        })
    }

    /// Gives a line back, which the same section unlinks.
    pub(super) fn free(&mut self, line: u64, changes: &mut Changes) {
        let shard = self.shard;
        let lines = self.held();
        let before = lines.free.last().copied().unwrap_or(0);
        lines.free.push(line);
        if shard.persistence == Persistence::Sections {
            shard.set(changes, &shard.overflow, line * LINE, before << VERSION_SHIFT);
            shard.book(changes, FREE_AT, line);
        }
    }
}
