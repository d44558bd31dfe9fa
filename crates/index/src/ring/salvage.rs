//! What is intact of a damaged ring.
//!
//! Nothing that a slot says is believed without its checksum. A damaged slot holds nothing; a bound that cannot
//! be is none; and a tail that is further back than the slots are from the newest whole one was not where the
//! ring began: then everything whole counts, and some of it may have been popped before. A tail too far ahead
//! cannot be told from one that popped it all.

use super::recover::LAST_POSITION;
use super::{Form, OpenError, Recovery, Ring, Steps, TAIL_AT, slot};
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
        let ring = Ring::unrecovered(memory, turns, Form::Volatile, false, Steps::ALL)?;
        ring.mend_tail(damage);
        let mut note = |at, what| {
            damage.push(Damage { at, what });
            Ok(())
        };
        let recovery = ring.take_up(&mut note)?;
        Ok((ring, recovery))
    }

    /// Puts the tail where it can be.
    fn mend_tail(&self, damage: &mut Vec<Damage>) {
        // SAFETY: words of the first page and of slots; nobody else has the memory.
        let word = |at| unsafe { self.memory.load(at) };
        let tail = word(TAIL_AT);
        let slots = self.options.slots;
        let positions = (0..slots).filter_map(|number| {
            let (position, _) = slot::position_of(word(self.at(number)))?;
            (position % slots == number && self.is_whole(position)).then_some(position)
        });
        // All slots together end where the newest does, and where nothing is whole the tail says nothing.
        let first = positions.max().map_or(0, |newest| (newest + 1).saturating_sub(slots));
        if tail < first || tail > LAST_POSITION {
            let what = format!("the tail is at {tail}, and the slots begin at {first}");
            damage.push(Damage { at: TAIL_AT, what });
            self.set_word(TAIL_AT, first);
        }
    }
}
