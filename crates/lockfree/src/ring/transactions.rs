//! Transactions of the form [`Form::Tx`](super::Form::Tx): an undo log of two words for each of a few threads.
//!
//! ```text
//! begin    old words into the log | write back | FENCE
//! (the transaction's stores) write back | FENCE
//! commit   the log is void | write back | FENCE
//! ```
//! A log lies in one line, so that its mark, stored last, vouches for what it holds; it has a checksum of that, so
//! that a damaged one overwrites nothing. What libpmemobj does
//! for the paper's ring, without its allocator: three barriers for what takes one without a transaction.

use super::recover::Damaged;
use super::{LOG_LOCKS, LOGS, LOGS_AT, OpenError, Ring, Step};
use terrace_durable::checksum::Crc;
use terrace_memory::{Domain, Memory, Spin};

/// The log of pops, which only who settles the tail uses.
const OF_POPS: u64 = LOGS - 1;

/// Words of a log: where two old words are from, what they were, and how many there are, above that a checksum.
const COUNT: u64 = 0;
const AT: u64 = 8;
const OLD: u64 = 16;

/// An open transaction.
pub(super) struct Transaction {
    log: u64,
}

impl<M: Memory, T: Memory> Ring<M, T> {
    /// Opens a transaction over the two words of a slot's header. Waits while others have its log.
    pub(super) fn begin_push(&self, position: u64) -> Transaction {
        let number = position % OF_POPS;
        let spin = Spin::on(&self.turns);
        while !self.turn_word_goes(LOG_LOCKS + 64 * number, 0, 1) {
            spin.wait();
        }
        self.log(number, self.at(position), 2)
    }

    /// Opens a transaction over one word. Under the leader's lock.
    pub(super) fn begin_pop(&self, at: u64) -> Transaction {
        self.log(OF_POPS, at, 1)
    }

    fn log(&self, number: u64, at: u64, words: u64) -> Transaction {
        let log = LOGS_AT + 64 * number;
        // SAFETY: words of the log, which is ours, and of what the caller is about to overwrite.
        unsafe {
            for word in 0..words {
                self.memory.store(log + OLD + 8 * word, self.memory.load(at + 8 * word));
            }
            self.memory.store(log + AT, at);
            self.memory.store(log + COUNT, words | self.check_of_log(log, words) << 32);
        }
        self.write_back(Step::UndoWriteBack, log, 64);
        self.fence(Step::UndoFence);
        Transaction { log: number }
    }

    /// Ends a transaction whose stores are durable. It is durable on return.
    pub(super) fn commit(&self, transaction: &Transaction) {
        if self.steps.has(Step::UndoVoid) {
            let log = LOGS_AT + 64 * transaction.log;
            // SAFETY: as above.
            unsafe {
                self.memory.store(log + COUNT, 0);
                self.memory.persist(log + COUNT, 8);
            }
        }
        self.set_turn_word(LOG_LOCKS + 64 * transaction.log, 0);
    }

    /// The checksum of a log of so many words.
    fn check_of_log(&self, log: u64, words: u64) -> u64 {
        let each = (AT..OLD + 8 * words).step_by(8);
        // SAFETY: words of the log's line.
        let each = each.map(|at| unsafe { self.memory.load(log + at) });
        let crc = Crc::new(words as u32);
        each.fold(crc, |crc, word| crc.update(&word.to_le_bytes())).finish().into()
    }

    /// Puts back what open transactions have overwritten, durably; how many there were.
    pub(super) fn roll_back(&self, damaged: Damaged<'_>) -> Result<u64, OpenError> {
        let mut open = 0;
        for log in (0..LOGS).map(|number| LOGS_AT + 64 * number) {
            // SAFETY: recovery has the memory alone.
            let (count, at) =
                unsafe { (self.memory.load(log + COUNT), self.memory.load(log + AT)) };
            let words = count & 0xffff_ffff;
            if count == 0 {
                continue;
            }
            let fits = (1..=2).contains(&words) && at % 8 == 0 && at < self.options.bytes() - 8;
            let is_whole =
                fits && (self.is_first_version || count >> 32 == self.check_of_log(log, words));
            if !is_whole {
                damaged(log, "the log of a transaction does not match its checksum".into())?;
                continue;
            }
            // SAFETY: as above; a log that is whole names words of the ring.
            unsafe {
                open += 1;
                if self.steps.has(Step::RollBack) {
                    for word in (0..words).rev() {
                        self.memory.store(at + 8 * word, self.memory.load(log + OLD + 8 * word));
                    }
                    self.memory.persist(at, 8 * words);
                }
                self.memory.store(log + COUNT, 0);
                self.memory.persist(log + COUNT, 8);
            }
        }
        Ok(open)
    }

    /// Writes back where that is needed, unless the step is left out.
    #[inline(always)]
    pub(super) fn write_back(&self, step: Step, at: u64, bytes: u64) {
        if self.memory.domain() == Domain::Adr && self.steps.has(step) {
            // SAFETY: callers name ranges of the ring.
            unsafe { self.memory.write_back(at, bytes) };
        }
    }

    /// A fence where stores survive by instructions, unless the step is left out.
    #[inline(always)]
    pub(super) fn fence(&self, step: Step) {
        if self.memory.domain().is_byte_addressable() && self.steps.has(step) {
            self.memory.fence();
        }
    }
}
