//! Pushing: claim positions, fill their slots, make them ready.

use super::slot::{Content, HEADER_BYTES, Kind, ORDERED, sequence};
use super::{Form, HEAD, PushError, Ring, SETTLED, Step, ready};
use terrace_memory::{Domain, Memory, Spin};

impl<M: Memory, T: Memory> Ring<M, T> {
    /// Pushes one element.
    ///
    /// # Errors
    /// As [`Ring::try_push_all`].
    #[inline]
    pub fn try_push(&self, element: &[u8]) -> Result<u64, PushError> {
        self.try_push_all(&[element])
    }

    /// Pushes elements side by side, all or none, with one fence between them; returns the position behind
    /// them. Durable on return on a byte-addressable medium. A crash before may keep some of them, and of
    /// each all or nothing.
    ///
    /// # Errors
    /// [`PushError`]: nothing was pushed.
    pub fn try_push_all(&self, elements: &[&[u8]]) -> Result<u64, PushError> {
        let slots = self.slots_together(elements)?;
        let first = self.claim_room(slots)?;
        let mut position = first;
        for element in elements {
            position = self.fill(position, element);
        }
        debug_assert_eq!(position, first + slots, "as many slots as were claimed");
        if self.options.form == Form::TxFree {
            for (at, bytes) in self.ranges(first, position) {
                self.write_back(Step::SlotWriteBack, at, bytes);
            }
            self.fence(Step::SlotFence);
        }
        for position in first..position {
            self.set_turn_word(self.turn_at(position), ready(position));
        }
        Ok(position)
    }

    /// Slots that elements take together.
    fn slots_together(&self, elements: &[&[u8]]) -> Result<u64, PushError> {
        let most = self.options.longest_element();
        let mut slots = 0;
        for element in elements {
            let bytes = element.len() as u64;
            if bytes > most {
                return Err(PushError::TooLong { bytes, most });
            }
            slots += self.options.slots_of(bytes);
        }
        if slots > self.options.slots {
            return Err(PushError::TooMany { slots, most: self.options.slots });
        }
        Ok(slots)
    }

    fn claim_room(&self, slots: u64) -> Result<u64, PushError> {
        let spin = Spin::on(&self.turns);
        loop {
            let head = self.turn_word(HEAD);
            // Loaded behind the head, the tail may have passed it: then the head is an old one.
            let settled = self.turn_word(SETTLED);
            if settled <= head {
                if head + slots - settled > self.options.slots {
                    return Err(PushError::Full);
                }
                if self.turn_word_goes(HEAD, head, head + slots) {
                    return Ok(head);
                }
            }
            spin.wait();
        }
    }

    /// Writes an element from `first` on; returns the position behind it.
    fn fill(&self, first: u64, element: &[u8]) -> u64 {
        let payload = self.options.payload_bytes() as usize;
        let parts = self.options.slots_of(element.len() as u64);
        let mut rest = element;
        for part in 0..parts {
            let (bytes, behind) = rest.split_at(rest.len().min(payload));
            let kind = if part == 0 { Kind::First } else { Kind::Rest };
            self.write_slot(first + part, kind, parts - 1 - part, bytes);
            rest = behind;
        }
        first + parts
    }

    #[inline]
    fn write_slot(&self, position: u64, kind: Kind, follow: u64, bytes: &[u8]) {
        let at = self.at(position);
        let is_transaction = self.options.form == Form::Tx;
        let domain = self.memory.domain();
        let is_ordered = is_transaction || domain == Domain::Eadr;
        let sequence = sequence(position, kind) | if is_ordered { ORDERED } else { 0 };
        let content = match self.options.form {
            Form::Volatile => {
                Content { check: 0, follow: follow as u16, bytes: bytes.len() as u16 }
            }
            Form::Tx | Form::TxFree => Content::new(sequence, follow, bytes),
        };
        let transaction = is_transaction.then(|| self.begin_push(position));
        // SAFETY: the slot of a position that this thread has claimed and whose last owner is durably gone:
        // nobody else reads or writes it until it is ready, but for the words of its header, which claims of
        // pops load and do not rely on (`pop`).
        unsafe {
            self.memory.write(at + HEADER_BYTES, bytes);
            if self.options.write_back && domain == Domain::Eadr {
                self.memory.write_back(at + HEADER_BYTES, bytes.len() as u64);
            }
            self.memory.store(at + 8, content.word());
            self.memory.store(at, sequence);
        }
        if let Some(transaction) = transaction {
            self.write_back(Step::SlotWriteBack, at, HEADER_BYTES + bytes.len() as u64);
            self.fence(Step::SlotFence);
            self.commit(&transaction);
        }
    }

    /// The bytes of the slots of `[from, to)`: two ranges where they go round the end, the second else empty.
    pub fn ranges(&self, from: u64, to: u64) -> [(u64, u64); 2] {
        let slots = self.options.slots;
        let before_end = (to - from).min(slots - from % slots);
        let bytes = |count: u64| count * self.options.slot_bytes;
        [
            (self.at(from), bytes(before_end)),
            (self.at(from + before_end), bytes(to - from - before_end)),
        ]
    }
}
