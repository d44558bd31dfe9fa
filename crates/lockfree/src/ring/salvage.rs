//! What is intact of a damaged ring.
//!
//! Nothing that a slot says is believed without its checksum. A damaged slot holds nothing; a bound that cannot
//! be is none; and a tail that is further back than the slots are from the newest whole one was not where the
//! ring began: then everything whole counts, and some of it may have been popped before. A tail too far ahead
//! cannot be told from one that popped it all.

use super::head::HeadWord;
use super::recover::LAST_POSITION;
use super::{Form, OpenError, Recovery, Ring, Steps, slot};
use terrace_memory::Memory;

/// A place of a ring that no crash explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset.
    pub at: u64,
    /// What was found.
    pub what: String,
}

impl<M: Memory, T: Memory> Ring<M, T> {
    /// Opens what is intact of a ring, in a memory that is a copy: it is written to, and makes nothing durable.
    /// What was damaged is added to `damage`.
    ///
    /// # Errors
    /// [`OpenError`] where not even the head is intact: slots cannot be told apart.
    pub fn salvage(
        memory: M,
        turns: T,
        damage: &mut Vec<Damage>,
    ) -> Result<(Ring<M, T>, Recovery), OpenError> {
        let mut ring = Ring::unrecovered(memory, turns, Form::Volatile, false, Steps::ALL)?;
        let mut note = |at, what| {
            damage.push(Damage { at, what });
            Ok(())
        };
        // Before its words are believed; another roll back finds nothing to do.
        let rolled_back = ring.roll_back(&mut note)?;
        let converted = ring.is_first_version;
        if converted {
            // Slots elsewhere are damaged. Where the tail cannot be, nothing says which.
            let tail = ring.head_word(HeadWord::Tail).ok().filter(|tail| *tail <= LAST_POSITION);
            let counted = tail.map_or(0..LAST_POSITION, |tail| tail..tail + ring.options.slots);
            ring.make_second(counted);
        }
        ring.mend_head(damage);
        let mut note = |at, what| {
            if damage.iter().all(|known| known.at != at) {
                damage.push(Damage { at, what });
            }
            Ok(())
        };
        let recovery = Recovery { rolled_back, converted, ..ring.reopen(&mut note)? };
        Ok((ring, recovery))
    }

    /// Puts the tail where it can be, and makes what does not match its sum nothing.
    fn mend_head(&self, damage: &mut Vec<Damage>) {
        for which in [HeadWord::Bound, HeadWord::Note] {
            if let Err(word) = self.head_word(which) {
                let what = format!("a word of the head does not match its sum: {word:#018x}");
                damage.push(Damage { at: which.at(), what });
                self.set_head_word(which, 0);
            }
        }
        // SAFETY: words of slots; nobody else has the memory.
        let word = |at| unsafe { self.memory.load(at) };
        let tail = self.head_word(HeadWord::Tail).unwrap_or(u64::MAX);
        let slots = self.options.slots;
        let positions = (0..slots).filter_map(|number| {
            let (position, _) = slot::position_of(word(self.at(number)))?;
            let can_be = position % slots == number && position <= LAST_POSITION;
            (can_be && self.is_whole(position)).then_some(position)
        });
        // All slots together end where the newest does, and where nothing is whole the tail says nothing.
        let first = positions.max().map_or(0, |newest| (newest + 1).saturating_sub(slots));
        if tail < first || tail > LAST_POSITION {
            let what = match self.head_word(HeadWord::Tail) {
                Ok(tail) => format!("the tail is at {tail}, and the slots begin at {first}"),
                Err(word) => format!("the tail does not match its sum: {word:#018x}"),
            };
            damage.push(Damage { at: HeadWord::Tail.at(), what });
            self.set_head_word(HeadWord::Tail, first);
        }
    }
}
