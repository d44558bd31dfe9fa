//! A bounded ring of byte strings for many producers and many consumers, in three forms (Gugnani,
//! section 6.3 and figures 14 to 16).
//!
//! Elements lie in slots of one size; one that is longer takes several, side by side. Positions count up
//! for ever, and position `p` lies in slot `p mod slots`. A push claims positions, fills their slots and
//! makes them *ready*; a pop claims ready ones, copies them and makes them *popped*; the room of popped
//! ones comes back in order, as the *tail* passes them.
//!
//! ```text
//! memory   page 0: what this is, how much counts, the tail, logs of transactions
//!          slots: sequence word, checksum and lengths, bytes
//! turns    head, claims, settled tail, locks; a word for each slot: whose turn it is
//! ```
//! What must survive is in `memory`, and only that, and it has checksums: each slot, each word of page 0, each log.
//! Who may do what is in `turns`, in DRAM, and is made
//! anew by recovery.
//!
//! # Three forms
//! | form | a push | a pop |
//! |---|---|---|
//! | [`Form::Volatile`] | the slot | - |
//! | [`Form::TxFree`] | slot and header written back, one fence | the tail written back, one fence |
//! | [`Form::Tx`] | the same as a transaction with an undo log: three fences | the same |
//!
//! Under eADR nothing is written back but, if so wished ([`RingOptions::write_back`]), the slots, for the
//! sake of the medium; fences stay. In a memory that is not byte-addressable, such as the image of a disk, the
//! ring makes nothing durable by itself: its owner writes slots and tail out and then calls [`Ring::settled`].
//! The order of stores means nothing to such a medium, so transactions are refused there: their logs would reach
//! it in pieces.
//!
//! # What is durable when
//! * A push is durable when it returns, and before anyone can pop what it pushed. What makes it so is the
//!   *sequence word* of each slot, its position and kind, stored last. Under ADR the lines of a slot may
//!   persist in any order until the fence, so a checksum over position, lengths and bytes tells a whole slot
//!   from a torn one; under eADR, and in a transaction, none is torn, and one that does not match is damaged.
//! * A pop is durable when it returns: the tail is behind what it took. Several pops share one store of the
//!   tail. A pop returns only when all pops before it are durable, so no crash can bring an element back
//!   before one whose pop was acknowledged. Slots are filled again only when the tail that frees them is
//!   durable.
//! * "Empty" is answered only when the pops that made it so are durable.
//! * A push cut off by a crash leaves a hole, or, if it was whole, its element. Recovery declares holes *void*,
//!   in place: nothing is moved, order is kept, and a crash in recovery is as harmless as any other. A
//!   position that was seen is never used again, so that what was torn can never become whole.
//! * A pop cut off by a crash has happened or not; if it has, its element is gone.
//!
//! The published design recovers by each thread's *last* position and so loses completed pushes of a thread
//! that ran ahead of a stalled one; `experiments` keeps it as a negative control.
//!
//! # Progress
//! No locks, but not lock-free: a thread that stalls between claim and end keeps others waiting. One in a push
//! stops pops at its position; one in a pop, or while it settles the tail, stops the return of later pops and,
//! once the ring is full, pushes. Positions behind and before it go on meanwhile. The paper's ring has
//! the same property.
//!
//! # Cost
//! Besides payload a push writes 16 bytes for each slot and a pop 8: 1.006 times the payload of 4 KiB elements.

mod error;
mod form;
mod head;
mod pop;
mod push;
mod recover;
mod salvage;
mod settle;
mod slot;
mod step;
mod transactions;

#[cfg(test)]
mod tests;

pub use error::{OpenError, PushError};
pub use form::Form;
pub use pop::{Most, Popped, TooLarge};
pub use recover::Recovery;
pub use salvage::Damage;
pub use step::{Step, Steps};

use head::{HeadWord, MAGICS};
use slot::{HEADER_BYTES, MOST_PARTS};
use terrace_memory::{Claim, Memory, Native};

/// How a ring is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// How it is made durable. It is not kept with the ring and may change from opening to opening: each form takes
    /// up what another left, transactions under way among it. What a volatile ring holds is in its memory and
    /// no further.
    pub form: Form,
    /// Slots, 2 to 2^40.
    pub slots: u64,
    /// Bytes of a slot, 16 of them its header: a multiple of 64 up to 65472.
    pub slot_bytes: u64,
    /// Under eADR, write slots back although they survive without it: they leave the caches together and in
    /// order, which such a medium likes (001, figure 15).
    pub write_back: bool,
}

/// Where things are in the memory.
const MAGIC_AT: u64 = 0;
const SLOTS_AT: u64 = 8;
const SLOT_BYTES_AT: u64 = 16;
const CHECK_AT: u64 = 24;
/// Behind it are words that change (`head.rs`).
const CHANGING_AT: u64 = 64;
/// Undo logs of transactions: a line each; the last is the pops'.
const LOGS_AT: u64 = 1024;
const LOGS: u64 = 16;
/// First slot.
const FIRST_SLOT_AT: u64 = 4096;

/// And in the turns: words that many write, far apart.
const HEAD: u64 = 0;
const CLAIMED: u64 = 128;
const SETTLED: u64 = 256;
const LEADER: u64 = 384;
/// Locks of the logs, a line each.
const LOG_LOCKS: u64 = 512;
const TURNS: u64 = LOG_LOCKS + 64 * LOGS;

impl RingOptions {
    /// Bytes that a ring takes in its memory.
    pub fn bytes(&self) -> u64 {
        FIRST_SLOT_AT + self.slots * self.slot_bytes
    }

    /// Bytes that its turns take.
    pub fn turn_bytes(&self) -> u64 {
        TURNS + 8 * self.slots
    }

    /// Bytes of an element in one slot.
    pub fn payload_bytes(&self) -> u64 {
        self.slot_bytes - HEADER_BYTES
    }

    /// Bytes of the longest element: all slots, or 65536 of them.
    pub fn longest_element(&self) -> u64 {
        self.slots.min(MOST_PARTS) * self.payload_bytes()
    }

    /// Slots that an element of so many bytes takes.
    #[inline(always)]
    pub fn slots_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.payload_bytes()).max(1)
    }

    fn check(&self) -> Result<(), OpenError> {
        let refused = |field, why: String| Err(OpenError::BadOption { field, why });
        if !(2..=1 << 40).contains(&self.slots) {
            return refused("slots", format!("{} is not from 2 to 2^40", self.slots));
        }
        if !(64..=65472).contains(&self.slot_bytes) || !self.slot_bytes.is_multiple_of(64) {
            let why = format!("{} is not a multiple of 64 from 64 to 65472", self.slot_bytes);
            return refused("slot_bytes", why);
        }
        Ok(())
    }
}

/// The ring. Slots in `M`, turns in `T`.
#[derive(Debug)]
pub struct Ring<M: Memory, T: Memory = Native> {
    memory: M,
    turns: T,
    _claims: [Claim; 2],
    options: RingOptions,
    steps: Steps,
    /// Until recovery has made it one of the second.
    is_first_version: bool,
}

impl<M: Memory, T: Memory> Ring<M, T> {
    /// Makes the memory an empty ring, whatever it held; durable on return. A crash before leaves no ring.
    ///
    /// # Errors
    /// [`OpenError::BadOption`], [`OpenError::TooSmall`]; then the memory is as it was.
    pub fn create(memory: M, turns: T, options: RingOptions) -> Result<Ring<M, T>, OpenError> {
        Ring::create_with(memory, turns, options, Steps::ALL)
    }

    fn create_with(
        memory: M,
        turns: T,
        options: RingOptions,
        steps: Steps,
    ) -> Result<Ring<M, T>, OpenError> {
        options.check()?;
        Ring::<M, T>::check_form(&memory, options.form)?;
        let claims = claim_all(&memory, &turns);
        let ring = Ring { memory, turns, _claims: claims, options, steps, is_first_version: false };
        ring.check_room()?;
        // SAFETY: inside the memory (checked), and nobody else has it.
        unsafe {
            ring.memory.store(MAGIC_AT, 0);
            ring.memory.persist(MAGIC_AT, 8);
            for at in (CHANGING_AT..4096).step_by(8).chain((0..options.slots).map(|n| ring.at(n))) {
                // What is zero is not written: a new file stays as short as it is.
                if ring.memory.load(at) != 0 {
                    ring.memory.store(at, 0);
                    ring.memory.persist(at, 8);
                }
            }
            ring.memory.store(SLOTS_AT, options.slots);
            ring.memory.store(SLOT_BYTES_AT, options.slot_bytes);
            ring.memory.store(CHECK_AT, recover::check_of(MAGICS[1], &options));
            ring.memory.persist(SLOTS_AT, 24);
            ring.memory.store(MAGIC_AT, MAGICS[1]);
            ring.memory.persist(MAGIC_AT, 8);
        }
        ring.take_turns(0, 0);
        Ok(ring)
    }

    /// Transactions order stores, and that means something to byte-addressable memory alone.
    fn check_form(memory: &M, form: Form) -> Result<(), OpenError> {
        let domain = memory.domain();
        if form != Form::Tx || domain.is_byte_addressable() {
            return Ok(());
        }
        let why = format!(
            "tx orders stores to byte-addressable memory (adr, eadr), and this is {domain}; tx-free and volatile are \
             for any"
        );
        Err(OpenError::BadOption { field: "form", why })
    }

    fn check_room(&self) -> Result<(), OpenError> {
        let wanted = [
            ("memory", self.options.bytes(), self.memory.len()),
            ("turns", self.options.turn_bytes(), self.turns.len()),
        ];
        match wanted.into_iter().find(|(_, needed, found)| found < needed) {
            Some((what, needed, found)) => Err(OpenError::TooSmall { what, needed, found }),
            None => Ok(()),
        }
    }

    /// Marks an orderly end, after which every slot between tail and head is known to be whole. Nobody pushes or
    /// pops meanwhile, or afterwards.
    pub fn close(&self) {
        if self.options.form != Form::Volatile {
            self.set_head_word(HeadWord::Bound, self.head() + 1);
        }
    }

    /// Says in the memory what counts from here on: what lies behind `tail`, and before `bound`, where everything
    /// is whole; without a bound, whatever is whole. For the owner of a ring on a disk, who writes
    /// the first [`Ring::HEAD_BYTES`] out afterwards.
    pub fn checkpoint(&self, tail: u64, bound: Option<u64>) {
        self.set_head_word(HeadWord::Tail, tail);
        self.set_head_word(HeadWord::Bound, bound.map_or(0, |bound| bound + 1));
    }

    /// Bytes at the front of the memory that say what counts.
    pub const HEAD_BYTES: u64 = 4096;

    /// A word of 54 bits that the owner keeps with the ring; 0 at first.
    pub fn note(&self) -> u64 {
        self.head_word(HeadWord::Note).unwrap_or_default()
    }

    /// Changes it; durable on return on a byte-addressable medium.
    pub fn set_note(&self, note: u64) {
        self.set_head_word(HeadWord::Note, note);
    }

    /// How it was made.
    pub fn options(&self) -> &RingOptions {
        &self.options
    }

    /// The memory of its slots.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The position that the next push claims.
    #[inline(always)]
    pub fn head(&self) -> u64 {
        self.turn_word(HEAD)
    }

    /// Slots in use: pushes under way and pops that are not durable count.
    pub fn used_slots(&self) -> u64 {
        let settled = self.turn_word(SETTLED);
        self.head() - settled
    }

    /// Slots that pops have not claimed: elements and pushes under way.
    pub fn waiting_slots(&self) -> u64 {
        let claimed = self.turn_word(CLAIMED);
        self.head() - claimed
    }

    /// Whether the owner writes slots and tail out: instructions make nothing durable here.
    #[inline(always)]
    fn is_settled_by_owner(&self) -> bool {
        self.options.form != Form::Volatile && !self.memory.domain().is_byte_addressable()
    }

    /// Where the slot of a position is.
    #[inline(always)]
    fn at(&self, position: u64) -> u64 {
        FIRST_SLOT_AT + position % self.options.slots * self.options.slot_bytes
    }

    #[inline(always)]
    fn turn_at(&self, position: u64) -> u64 {
        TURNS + 8 * (position % self.options.slots)
    }

    #[inline(always)]
    fn turn_word(&self, at: u64) -> u64 {
        // SAFETY: a word of the turns, all of which are there (`check_room`).
        unsafe { self.turns.load(at) }
    }

    #[inline(always)]
    fn set_turn_word(&self, at: u64, word: u64) {
        // SAFETY: as above.
        unsafe { self.turns.store(at, word) };
    }

    /// Takes a word of the turns from `from` to `to`; whether it was `from`.
    #[inline(always)]
    fn turn_word_goes(&self, at: u64, from: u64, to: u64) -> bool {
        // SAFETY: as above.
        unsafe { self.turns.compare_exchange(at, from, to) }.is_ok()
    }
}

fn claim_all(memory: &impl Memory, turns: &impl Memory) -> [Claim; 2] {
    [memory.claim(0, memory.len()), turns.claim(0, turns.len())]
}

/// The word of a slot whose position may be popped.
#[inline(always)]
const fn ready(position: u64) -> u64 {
    (position + 1) << 1
}

/// The word of a slot whose position was popped; behind [`ready`].
#[inline(always)]
const fn popped(position: u64) -> u64 {
    ready(position) + 1
}
