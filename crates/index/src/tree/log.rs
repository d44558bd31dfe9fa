//! The logs of forms that write ahead: what is to change is durable in a log before it changes.
//!
//! A log is a ring of records behind a line that says which record is the last that is done, and where
//! the next one begins. A record: its number and how many words follow; a checksum; and the words that
//! change, in runs of an offset, a number and as many words. Its checksum makes it count, so writing it
//! takes one fence; the second is behind the words where they belong, the third behind the line that
//! says so, before the leaf is let go. A crash in between leaves at most one record a log that is not
//! done, and nobody has changed its words since: replay stores them once more.

use crate::keys::{high, low};
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use terrace_durable::lock;
use terrace_memory::Memory;
use terrace_memory::instructions::LINE_BYTES as LINE;

/// Writers of different leaves rarely meet at one of so many.
const LOGS: u64 = 8;
/// Records a log has room for.
const RECORDS: u64 = 4;
/// In the line before the records, and in a record's first word: bits below the number.
const NUMBER_SHIFT: u32 = 24;
/// Words of a record before its runs.
const HEADER_WORDS: u64 = 2;

/// The logs of a tree, or none.
pub(super) struct Logs {
    /// Of each where its next record begins, from its own beginning, and the number that it gets.
    logs: Box<[CachePadded<Mutex<Next>>]>,
    first_at: u64,
    log_bytes: u64,
    record_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    at: u64,
    number: u64,
}

/// A record that is being written. Nobody else writes to its log meanwhile.
pub(super) struct Record<'a, L: Memory> {
    memory: &'a L,
    logs: &'a Logs,
    next: MutexGuard<'a, Next>,
    log_at: u64,
    /// Words of runs so far.
    words: u64,
}

impl Logs {
    pub(super) fn none() -> Logs {
        Logs { logs: Box::new([]), first_at: 0, log_bytes: 0, record_bytes: 0 }
    }

    /// Logs from `first_at` on, empty if what is there is zero.
    pub(super) fn new(first_at: u64, node_bytes: u64) -> Logs {
        // All entries of a leaf, and what runs and the record itself take.
        let record_bytes = (node_bytes + 128).next_multiple_of(LINE);
        let next = Next { at: LINE, number: 1 };
        let logs = (0..LOGS).map(|_| CachePadded::new(Mutex::new(next))).collect();
        Logs { logs, first_at, log_bytes: LINE + RECORDS * record_bytes, record_bytes }
    }

    /// Where they end.
    pub(super) fn end(&self) -> u64 {
        self.first_at + self.log_bytes * self.logs.len() as u64
    }

    /// Begins a record in one of the logs; changes with the same `key` go to the same.
    pub(super) fn begin<'a, L: Memory>(&'a self, memory: &'a L, key: u64) -> Record<'a, L> {
        let log = key % self.logs.len() as u64;
        let next = lock(memory, &*self.logs[log as usize]);
        let log_at = self.first_at + log * self.log_bytes;
        Record { memory, logs: self, next, log_at, words: 0 }
    }

    /// Stores once more what the record of each log says that was not done. Leaves lie before `committed`; places in
    /// errors are counted from `start` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] naming the offset of what no tree writes. Logs before it may have been
    /// replayed, which harms nothing: it is done once more next time.
    pub(super) fn replay<L: Memory>(
        &self,
        memory: &L,
        start: u64,
        committed: u64,
    ) -> io::Result<()> {
        for log in 0..self.logs.len() as u64 {
            let mut record = self.begin(memory, log);
            // SAFETY: the first word of a log's own line, committed.
            let done = unsafe { memory.load(record.log_at) };
            if done != 0 {
                let at = done & ((1 << NUMBER_SHIFT) - 1);
                let fits =
                    at.checked_add(self.record_bytes).is_some_and(|end| end <= self.log_bytes);
                if at < LINE || !at.is_multiple_of(LINE) || !fits {
                    let what = format!("a record that begins {at} bytes into its log");
                    return Err(damaged(start + record.log_at, &what));
                }
                *record.next = Next { at, number: (done >> NUMBER_SHIFT) + 1 };
            }
            let [head, checksum] = [0, 8].map(|at| record.load(at));
            record.words = head & ((1 << NUMBER_SHIFT) - 1);
            let fits = (HEADER_WORDS + record.words) * 8 <= self.record_bytes;
            if head >> NUMBER_SHIFT == record.next.number && fits && record.checksum() == checksum {
                record.check_runs(start, committed)?;
                record.apply();
                record.finish();
            }
        }
        Ok(())
    }
}

fn damaged(at: u64, what: &str) -> io::Error {
    let what = format!("the log of the tree at offset {at}: {what}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<L: Memory> Record<'_, L> {
    fn at(&self) -> u64 {
        self.log_at + self.next.at
    }

    fn load(&self, at: u64) -> u64 {
        // SAFETY: callers pass words of this record, which lies in a committed log.
        unsafe { self.memory.load(self.at() + at) }
    }

    fn store(&self, at: u64, word: u64) {
        // SAFETY: as above; only the holder of the log writes it.
        unsafe { self.memory.store(self.at() + at, word) };
    }

    fn push(&mut self, word: u64) {
        let at = 8 * (HEADER_WORDS + self.words);
        assert!(at < self.logs.record_bytes, "a record has room for all that a leaf changes");
        self.store(at, word);
        self.words += 1;
    }

    /// Adds words that are to be stored from `at` on.
    pub(super) fn add(&mut self, at: u64, words: impl IntoIterator<Item = u64>) {
        self.push(at);
        let count_at = 8 * (HEADER_WORDS + self.words);
        self.push(0);
        let before = self.words;
        words.into_iter().for_each(|word| self.push(word));
        self.store(count_at, self.words - before);
    }

    fn head(&self) -> u64 {
        self.next.number << NUMBER_SHIFT | self.words
    }

    /// Of the head and all words: a record that a crash cut short, or an older one, does not match it.
    fn checksum(&self) -> u64 {
        let mix = |sum: u64, word: u64| {
            let product = u128::from(sum ^ word) * u128::from(0x9e37_79b9_7f4a_7c15u64);
            high(product) ^ low(product).rotate_left(29) ^ word
        };
        let words = (0..self.words).map(|word| self.load(8 * (HEADER_WORDS + word)));
        words.fold(mix(0x2545_f491_4f6c_dd1d, self.head()), mix)
    }

    /// Makes the record durable, then its words where they belong, then that this is done.
    pub(super) fn commit(mut self) {
        self.store(8, self.checksum());
        self.store(0, self.head());
        // SAFETY: the record lies in a committed log.
        unsafe { self.memory.persist(self.at(), 8 * (HEADER_WORDS + self.words)) };
        self.apply();
        self.finish();
    }

    /// Whether its runs are whole, and store to leaves alone.
    fn check_runs(&self, start: u64, committed: u64) -> io::Result<()> {
        let end = HEADER_WORDS + self.words;
        let mut at = HEADER_WORDS;
        while at < end {
            let [to, count] = [at, at + 1].map(|word| self.load(8 * word));
            let behind = (at + 2).checked_add(count).filter(|behind| *behind <= end);
            let to_end = count.checked_mul(8).and_then(|bytes| to.checked_add(bytes));
            let is_in_leaves = to >= self.logs.end() && to_end.is_some_and(|end| end <= committed);
            let Some(behind) = behind.filter(|_| is_in_leaves && to.is_multiple_of(8)) else {
                let what = format!("{count} words for offset {to}, which is no place in a leaf");
                return Err(damaged(start + self.at() + 8 * at, &what));
            };
            at = behind;
        }
        Ok(())
    }

    /// Stores the words where they belong, durably on return.
    fn apply(&self) {
        let mut at = HEADER_WORDS;
        while at < HEADER_WORDS + self.words {
            let [to, count] = [at, at + 1].map(|word| self.load(8 * word));
            for word in 0..count {
                let value = self.load(8 * (at + 2 + word));
                // SAFETY: a word of a leaf that the caller has latched, or that a crash left so.
                unsafe { self.memory.store(to + 8 * word, value) };
            }
            if self.memory.domain() == terrace_memory::Domain::Adr {
                // SAFETY: as above.
                unsafe { self.memory.write_back(to, 8 * count) };
            }
            at += 2 + count;
        }
        self.memory.fence();
    }

    /// Notes durably that the record is done, and where the next one goes.
    fn finish(&mut self) {
        let end = self.next.at + (8 * (HEADER_WORDS + self.words)).next_multiple_of(LINE);
        let fits = end + self.logs.record_bytes <= self.logs.log_bytes;
        let (at, number) = (if fits { end } else { LINE }, self.next.number);
        // SAFETY: the first word of a log's own line, committed; only its holder writes it.
        unsafe {
            self.memory.store(self.log_at, number << NUMBER_SHIFT | at);
            self.memory.persist(self.log_at, 8);
        }
        *self.next = Next { at, number: number + 1 };
    }
}
