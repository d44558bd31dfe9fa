//! The tail: pops become durable in their order, and their slots free.

use super::head::HeadWord;
use super::transactions::Transaction;
use super::{CLAIMED, Form, LEADER, Ring, SETTLED, Step, popped, ready};
use terrace_memory::{Memory, Spin};

impl<M: Memory, T: Memory> Ring<M, T> {
    /// Returns when all pops before `to` are durable. Whoever comes first leads: it moves the tail over all that
    /// are popped, also others', with one fence.
    #[inline]
    pub(super) fn settle(&self, to: u64) {
        if self.is_settled_by_owner() {
            return;
        }
        let spin = Spin::on(&self.turns);
        while self.turn_word(SETTLED) < to {
            if self.turn_word_goes(LEADER, 0, 1) {
                let end = self.popped_through();
                if end > self.turn_word(SETTLED) {
                    self.store_tail(end);
                    self.set_turn_word(SETTLED, end);
                }
                self.set_turn_word(LEADER, 0);
                if end >= to || !self.steps.has(Step::InOrder) {
                    return;
                }
            }
            spin.wait();
        }
    }

    fn store_tail(&self, tail: u64) {
        if self.options.form == Form::Volatile {
            return;
        }
        let is_transaction = self.options.form == Form::Tx;
        let (at, word) = (HeadWord::Tail.at(), HeadWord::Tail.word(tail));
        let transaction: Option<Transaction> = is_transaction.then(|| self.begin_pop(at));
        // SAFETY: a word of the first page, which only the leader stores to.
        unsafe { self.memory.store(at, word) };
        self.write_back(Step::TailWriteBack, at, 8);
        self.fence(Step::TailFence);
        if let Some(transaction) = transaction {
            self.commit(&transaction);
        }
    }

    /// How far everything is popped. For the owner of a ring on a disk.
    pub fn popped_through(&self) -> u64 {
        let mut end = self.turn_word(SETTLED);
        let claimed = self.turn_word(CLAIMED);
        while end < claimed && self.turn_word(self.turn_at(end)) == popped(end) {
            end += 1;
        }
        end
    }

    /// How far everything is durably popped, and its slots free.
    pub fn settled_through(&self) -> u64 {
        self.turn_word(SETTLED)
    }

    /// How far pops have claimed.
    pub fn claimed_through(&self) -> u64 {
        self.turn_word(CLAIMED)
    }

    /// Frees the slots before `tail`: the owner of a ring on a disk says that it is durable. One
    /// thread at a time.
    ///
    /// # Panics
    /// If not all before it were popped: they would be filled while pops copy them.
    pub fn settled(&self, tail: u64) {
        let may_be = self.turn_word(SETTLED)..=self.popped_through();
        assert!(may_be.contains(&tail), "{tail} is behind what was popped, {may_be:?}");
        self.set_turn_word(SETTLED, tail);
    }

    /// Waits until all pushes of `[from, to)` have finished; they are claimed, so none waits for room.
    pub fn await_pushes(&self, from: u64, to: u64) {
        let spin = Spin::on(&self.turns);
        for position in from..to {
            while self.turn_word(self.turn_at(position)) < ready(position) {
                spin.wait();
            }
        }
    }
}
