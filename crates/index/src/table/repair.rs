//! What a crash leaves of a table that is persistent, and how it is put right.
//!
//! Where changes are sections there is nothing to put right ([`HashIndex::reopen`]), nor after an
//! orderly end. Word by word every change is one durable word, but for three that take several, whose
//! steps are durable in this order:
//! * *An overflow line more*: the line, then its link. A crash between leaves a line nobody links to:
//!   free.
//! * *A split*: the new bucket, then the count, then the old bucket without what moved. A crash before
//!   the count leaves a line behind the last bucket, which is cleared. A crash after it leaves entries
//!   of the last bucket also in the one it was split from, as they were, since the new bucket stays
//!   locked until the old one is done: those are removed.
//! * *Overflow lines given up*, by a split or a removal: copies of what they have, then the unlinking.
//!   What is found twice in one bucket is removed once.
//!
//! Lock bits mean nothing after a crash.
//!
//! # Damage
//! Each line's header has a check of the line that it names and of its own place, and the words that say how far the
//! table reaches have sums: so lines that were zeroed or exchanged, and links that lead elsewhere, are noticed. Where
//! changes are sections, the number of all entries and a sum over them are words of each section, and so is any word
//! of an entry. Without sections an entry that is there is held against its item, and what the check cannot notice
//! is a word of an entry that became zero in a line that is otherwise as it was.

use super::HashIndex;
use super::line::*;
use super::overflow::OverflowLines;
use super::shard::{Persistence, Shard};
use crate::Reserved;
use crate::{COMMIT_BYTES, FIRST_COMMIT_BYTES};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_durable::checked_word;
use terrace_durable::sections::Changes;
use terrace_memory::{Budget, Memory};

impl<I: Memory> HashIndex<I> {
    /// Reopens the index that [`HashIndex::persistent`] made on the same regions, after a crash or not.
    /// O(buckets).
    ///
    /// # Errors
    /// Those of the regions, and [`io::ErrorKind::InvalidData`] where no crash could have left what is
    /// there.
    pub fn repair(
        regions: Vec<[Reserved<I>; 2]>,
        budget: &Arc<Budget>,
    ) -> io::Result<HashIndex<I>> {
        let shard = |region| Ok(CachePadded::new(Shard::existing(region, budget)?.repaired()?));
        let shards: io::Result<Vec<_>> = regions.into_iter().map(shard).collect();
        Ok(HashIndex::of(shards?))
    }

    /// Reopens the index as it stands: its changes were sections, or [`HashIndex::note_allocation`] was the
    /// last one. `is_intact` is asked before anything is changed, with what of the regions is in use (as
    /// by [`HashIndex::used`]). O(free overflow lines), and O(buckets) once in 255 times.
    ///
    /// # Errors
    /// As [`HashIndex::repair`]; [`io::ErrorKind::InvalidData`] too if it is not intact.
    pub fn reopen(
        regions: Vec<[Reserved<I>; 2]>,
        budget: &Arc<Budget>,
        is_intact: impl FnOnce(&[(u64, u64)]) -> io::Result<bool>,
    ) -> io::Result<HashIndex<I>> {
        let found: io::Result<Vec<_>> =
            regions.into_iter().map(|region| Shard::existing(region, budget)).collect();
        let found = found?;
        let used: Vec<_> = found.iter().flat_map(Shard::used).collect();
        if !is_intact(&used)? {
            return Err(damaged("the index is not as it was closed"));
        }
        let shard = |shard: Shard<I>| shard.reopened().map(CachePadded::new);
        let shards: io::Result<Vec<_>> = found.into_iter().map(shard).collect();
        Ok(HashIndex::of(shards?))
    }

    /// Notes, durably, what [`HashIndex::repair`] would find out. Nobody changes the index meanwhile.
    pub fn note_allocation(&self) {
        self.shards.iter().for_each(|shard| shard.note_allocation(&shard.lines.lock()));
    }
}

fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
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
    fn existing(
        [buckets, overflow]: [Reserved<I>; 2],
        budget: &Arc<Budget>,
    ) -> io::Result<Shard<I>> {
        let claims = [buckets.claim(), overflow.claim()];
        (overflow.commit)(0, FIRST_COMMIT_BYTES)?;
        // SAFETY: line 0, committed.
        let [count, overflow_bytes, next] =
            [COUNT_AT, OVERFLOW_BYTES_AT, NEXT_AT].map(|at| unsafe { overflow.memory.load(at) });
        if !checked_word::is_intact(count, COUNT_AT)
            || !checked_word::is_intact(overflow_bytes, OVERFLOW_BYTES_AT)
        {
            let at = overflow.start;
            return Err(damaged(format!(
                "at offset {at}: the size of the table does not match its sum"
            )));
        }
        let (count, overflow_bytes) = (checked_word::low(count), checked_word::low(overflow_bytes));
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
        let next = next.clamp(1, overflow_bytes / LINE);
        let lines = OverflowLines { free: Vec::new(), next, committed: overflow_bytes };
        Ok(Shard {
            _claims: claims,
            starts: [buckets.start, overflow.start],
            buckets: buckets.memory,
            overflow: overflow.memory,
            persistence: Persistence::Words,
            opening: 1,
            tags: Tags::PERSISTENT,
            count: AtomicU64::new(count),
            entries: AtomicU64::new(0),
            growth: Mutex::new(()),
            bucket_bytes: AtomicU64::new(bucket_bytes),
            lines: Mutex::new(lines),
            budget: Arc::clone(budget),
            commit_buckets: buckets.commit,
            commit_overflow: overflow.commit,
        })
    }

    fn repaired(self) -> io::Result<Shard<I>> {
        let count = self.count.load(Ordering::Relaxed);
        self.clear_line_behind(count);
        let linked = self.check_lines(count)?;
        self.unlock_all(count);
        self.note(OPENING_AT, 1);
        self.finish_split(count);
        self.forget_copies(count, linked);
        Ok(self)
    }

    fn reopened(mut self) -> io::Result<Shard<I>> {
        // SAFETY: words of line 0, committed.
        let word = |at| unsafe { self.overflow.load(at) };
        let [first, entries, before, sum] = [FREE_AT, ENTRIES_AT, OPENING_AT, SUM_AT].map(word);
        let next = self.lines.lock().next;
        let linked = self.check_lines(self.count.load(Ordering::Relaxed))?;
        if let Some(last) = linked.iter().max().filter(|last| **last >= next) {
            return Err(damaged(format!(
                "overflow line {last} is linked to, and {next} was never used"
            )));
        }
        let mut free = Vec::new();
        let mut line = first;
        while line != 0 {
            if line >= next || free.len() as u64 > next || linked.contains(&line) {
                return Err(damaged("free overflow lines are linked as no table links them"));
            }
            free.push(line);
            // SAFETY: a committed line.
            line = (unsafe { self.overflow.load(line * LINE) } & VERSION_MASK) >> VERSION_SHIFT;
        }
        free.reverse();
        self.lines.lock().free = free;
        self.clear_line_behind(self.count.load(Ordering::Relaxed));
        self.entries.store(entries, Ordering::Relaxed);
        // Locks of openings before mean nothing, until their number comes again.
        self.opening = (before % u64::from(u8::MAX)) as u8 + 1;
        if self.opening == 1 {
            self.unlock_all(self.count.load(Ordering::Relaxed));
        }
        let found = self.sum();
        if found != (entries, sum) {
            let start = self.starts[0];
            return Err(damaged(format!(
                "at offset {start}: the table holds {} entries, and {entries} were noted, or others",
                found.0
            )));
        }
        self.note(OPENING_AT, self.opening.into());
        Ok(self)
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

    /// The overflow lines that are linked to. Nothing is changed.
    fn check_lines(&self, count: u64) -> io::Result<HashSet<u64>> {
        let lines = self.lines.lock().committed / LINE;
        let mut linked = HashSet::new();
        let wrong = |start: u64, line: u64| {
            let at = start + line * LINE;
            damaged(format!("at offset {at}: a line that is not what the table wrote there"))
        };
        for bucket in 0..count {
            // SAFETY: the header of a committed bucket, here and below of committed overflow lines.
            let header = unsafe { self.buckets.load(bucket * LINE) };
            if !is_checked(header, bucket, false) {
                return Err(wrong(self.starts[0], bucket));
            }
            let mut next = overflow_of(header);
            while next != 0 {
                if next >= lines || !linked.insert(next) {
                    return Err(damaged("overflow lines are linked as no table links them"));
                }
                // SAFETY: as above.
                let header = unsafe { self.overflow.load(next * LINE) };
                if !is_checked(header, next, true) {
                    return Err(wrong(self.starts[1], next));
                }
                next = overflow_of(header);
            }
        }
        Ok(linked)
    }

    /// Releases every bucket, durably on return, since the next to take the table up does not look.
    fn unlock_all(&self, count: u64) {
        for at in (0..count).map(|bucket| bucket * LINE) {
            // SAFETY: the header of a committed bucket.
            let header = unsafe { self.buckets.load(at) };
            if header & LOCK_MASK != 0 {
                // SAFETY: as above.
                unsafe {
                    self.buckets.store(at, header & !LOCK_MASK);
                    self.buckets.write_back(at, 8);
                }
            }
        }
        self.buckets.fence();
    }

    /// Removes from the bucket that was split last what its new half holds too.
    fn finish_split(&self, count: u64) {
        if count == FIRST_BUCKETS {
            return;
        }
        let last = count - 1;
        let level = if last.is_power_of_two() { last } else { last.next_power_of_two() / 2 };
        let mut moved = HashSet::new();
        let nothing = Changes::new();
        self.lock(last).each(&nothing, |_, _, entry| _ = moved.insert(entry));
        self.lock(last - level).each(&nothing, |memory, at, entry| {
            if moved.contains(&entry) {
                self.set_now(memory, at, 0);
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
            self.lock(bucket).each(&Changes::new(), |memory, at, entry| {
                if seen.contains(&entry) {
                    self.set_now(memory, at, 0);
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
