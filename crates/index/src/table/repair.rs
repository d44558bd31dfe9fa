//! What a crash leaves of a table that is kept, and how it is put right.
//!
//! Every change is one durable word, but for two that take several, whose steps are durable in this
//! order:
//! * *An overflow line more*: the line, then its link. A crash between leaves a line nobody links to:
//!   free.
//! * *A split*: the new bucket, then the count, then the old bucket without what moved. A crash before
//!   the count leaves a line behind the last bucket, which is cleared. A crash after it leaves entries
//!   of the last bucket also in the one it was split from, as they were, since the new bucket stays
//!   locked until the old one is done: those are removed. Overflow lines are pulled in by copies, then
//!   unlinked: what is found twice in one bucket is removed once.
//!
//! Lock bits mean nothing after a crash.

use super::HashIndex;
use super::line::*;
use super::shard::{Ground, Growth, OverflowLines, Shard};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::{Budget, Memory};

impl<I: Memory> HashIndex<I> {
    /// Takes up the index that [`HashIndex::kept`] made on the same grounds, after a crash or not.
    /// O(buckets).
    ///
    /// # Errors
    /// Those of the grounds, and [`io::ErrorKind::InvalidData`] where no crash could have left what is
    /// there.
    pub fn repair(grounds: Vec<[Ground<I>; 2]>, budget: &Arc<Budget>) -> io::Result<HashIndex<I>> {
        let shards: io::Result<Vec<_>> = grounds
            .into_iter()
            .map(|[buckets, overflow]| {
                Shard::repaired(buckets, overflow, budget).map(CachePadded::new)
            })
            .collect();
        Ok(HashIndex::of(shards?))
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Bytes committed for `count` buckets and one more: in the steps a growing table takes.
fn committed_for(count: u64) -> u64 {
    let mut committed = FIRST_COMMIT_BYTES;
    while committed < (count + 1) * LINE {
        committed += committed.min(COMMIT_BYTES);
    }
    committed
}

impl<I: Memory> Shard<I> {
    fn repaired(
        buckets: Ground<I>,
        overflow: Ground<I>,
        budget: &Arc<Budget>,
    ) -> io::Result<Shard<I>> {
        (overflow.commit)(0, FIRST_COMMIT_BYTES)?;
        // SAFETY: line 0, committed.
        let [count, overflow_bytes] =
            [COUNT_AT, OVERFLOW_BYTES_AT].map(|at| unsafe { overflow.memory.load(at) });
        let bucket_bytes = committed_for(count.min(buckets.memory.len() / LINE));
        if count < FIRST_BUCKETS || bucket_bytes > buckets.memory.len() {
            return Err(damaged("the number of buckets is none that a table can have"));
        }
        if overflow_bytes < FIRST_COMMIT_BYTES || overflow_bytes > overflow.memory.len() {
            return Err(damaged("the number of overflow lines is none that a table can have"));
        }
        (buckets.commit)(0, bucket_bytes)?;
        (overflow.commit)(0, overflow_bytes)?;
        budget.take_anyway(bucket_bytes + overflow_bytes);
        let lines = OverflowLines { free: Vec::new(), next: 1, committed: overflow_bytes };
        let shard = Shard {
            buckets: buckets.memory,
            overflow: overflow.memory,
            is_kept: true,
            count: AtomicU64::new(count),
            entries: AtomicU64::new(0),
            growth: Mutex::new(Growth { committed: bucket_bytes }),
            lines: Mutex::new(lines),
            budget: Arc::clone(budget),
            commit_buckets: buckets.commit,
            commit_overflow: overflow.commit,
        };
        shard.clear_line_behind(count);
        let linked = shard.unlock_all(count)?;
        shard.finish_split(count);
        shard.forget_copies(count, linked);
        Ok(shard)
    }

    /// The line the next split fills may hold what an unfinished one left.
    fn clear_line_behind(&self, count: u64) {
        if (count + 1) * LINE <= self.buckets.len() {
            for word in 0..LINE / 8 {
                // SAFETY: committed, and behind the last bucket: nobody looks there.
                unsafe { self.buckets.store(count * LINE + 8 * word, 0) };
            }
            self.keep(&self.buckets, count * LINE, LINE);
        }
    }

    /// Releases every bucket; returns the overflow lines that are linked to.
    fn unlock_all(&self, count: u64) -> io::Result<HashSet<u64>> {
        let lines = self.lines.lock().committed / LINE;
        let mut linked = HashSet::new();
        for bucket in 0..count {
            let at = bucket * LINE;
            // SAFETY: the header of a committed bucket, here and below of committed overflow lines.
            let header = unsafe { self.buckets.load(at) };
            if header & LOCKED != 0 {
                // SAFETY: as above. Not made durable: the next repair would do it again.
                unsafe { self.buckets.store(at, header & !LOCKED) };
            }
            let mut next = header >> OVERFLOW_SHIFT & OVERFLOW_MASK;
            while next != 0 {
                if next >= lines || !linked.insert(next) {
                    return Err(damaged("overflow lines are linked as no table links them"));
                }
                // SAFETY: as above.
                next = unsafe { self.overflow.load(next * LINE) } >> OVERFLOW_SHIFT & OVERFLOW_MASK;
            }
        }
        Ok(linked)
    }

    /// Removes from the bucket that was split last what its new half holds too.
    fn finish_split(&self, count: u64) {
        if count == FIRST_BUCKETS {
            return;
        }
        let last = count - 1;
        let level = if last.is_power_of_two() { last } else { last.next_power_of_two() / 2 };
        let mut moved = HashSet::new();
        self.lock(last).each(|_, _, entry| _ = moved.insert(entry));
        self.lock(last - level).each(|memory, at, entry| {
            if moved.contains(&entry) {
                self.set(memory, at, 0);
            }
        });
    }

    /// Removes what is twice in one bucket, counts entries, and frees the overflow lines nobody links
    /// to.
    fn forget_copies(&self, count: u64, linked: HashSet<u64>) {
        let mut entries = 0;
        let mut seen = Vec::new();
        for bucket in 0..count {
            seen.clear();
            self.lock(bucket).each(|memory, at, entry| {
                if seen.contains(&entry) {
                    self.set(memory, at, 0);
                } else {
                    seen.push(entry);
                }
            });
            entries += seen.len() as u64;
        }
        self.entries.store(entries, Ordering::Relaxed);
        let mut lines = self.lines.lock();
        lines.next = linked.iter().max().map_or(1, |last| last + 1);
        lines.free = (1..lines.next).filter(|line| !linked.contains(line)).collect();
    }
}
