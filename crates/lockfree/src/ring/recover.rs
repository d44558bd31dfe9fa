//! Opening a ring: what is whole stays, in its order; what a crash has cut off becomes void, in its place.
//!
//! Of a position `p` between the tail and the last one seen, the slot holds
//! * a whole element, or a whole part of one: its sequence word says `p`, and its checksum, if it has one, fits;
//! * nothing: its sequence word says an earlier position. The push of `p` had claimed it and not got far;
//! * something torn: it says `p`, but the checksum does not fit.
//!
//! The last two become void, and so does a part whose others are missing. Nothing is moved. The head goes on
//! behind the last position seen, whatever was there: were a torn position filled again, a second crash
//! could leave a mixture of both that matches the first one's checksum. For the same reason a slot that says an
//! earlier position forgets what a cut off push has written behind that.

use super::head::{HeadWord, MAGICS, is_intact};
use super::slot::{Content, HEADER_BYTES, Kind, ORDERED, position_of, sequence};
use super::{
    CHECK_AT, CLAIMED, Form, HEAD, LEADER, LOG_LOCKS, LOGS, MAGIC_AT, OpenError, Ring, RingOptions,
    SETTLED, SLOT_BYTES_AT, SLOTS_AT, Step, Steps, claim_all, ready,
};
use terrace_durable::checksum::Crc;
use terrace_memory::Memory;

/// What opening a ring found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Elements in the ring.
    pub elements: u64,
    /// The first position in use.
    pub tail: u64,
    /// The position behind the last in use.
    pub head: u64,
    /// Positions between them that hold nothing.
    pub void: u64,
    /// Slots that a crash had torn, or whose element was not whole. They are among the void.
    pub torn: u64,
    /// Transactions that were taken back.
    pub rolled_back: u64,
    /// Where what counted ended; none: whatever was whole counted.
    pub bound: Option<u64>,
    /// Whether it was of the first version, and is of the second now: all of it has changed.
    pub converted: bool,
}

/// No ring comes so far: at ten million a second it takes 28 years. Words of the head have room for as many again.
pub(super) const LAST_POSITION: u64 = 1 << 53;

/// Of the unchanging words.
pub(super) fn check_of(magic: u64, options: &RingOptions) -> u64 {
    let crc = Crc::new(1).update(&magic.to_le_bytes()).update(&options.slots.to_le_bytes());
    crc.update(&options.slot_bytes.to_le_bytes()).finish().into()
}

/// Hears of what no crash explains, at a byte offset; an error ends the recovery.
pub(super) type Damaged<'d> = &'d mut dyn FnMut(u64, String) -> Result<(), OpenError>;

/// What recovery finds at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Whole(Kind, Content),
    Void,
    /// An earlier position's.
    Nothing,
    Torn,
    /// It says the position, and no crash leaves it like this.
    Damaged,
}

impl<M: Memory, T: Memory> Ring<M, T> {
    /// How the ring in `memory` was made; its form is not kept there.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn shape(memory: &M) -> Result<RingOptions, OpenError> {
        read_options(memory)
    }

    /// Opens a ring and recovers it. Reads every slot's header, and of those in use the bytes.
    ///
    /// # Errors
    /// [`OpenError::NoRing`], [`OpenError::TooSmall`], [`OpenError::Damaged`] for what no crash explains, and
    /// [`OpenError::BadOption`] for a form that the memory cannot have.
    pub fn open(
        memory: M,
        turns: T,
        form: Form,
        write_back: bool,
    ) -> Result<(Ring<M, T>, Recovery), OpenError> {
        Ring::open_with(memory, turns, form, write_back, Steps::ALL)
    }

    /// The same without some steps.
    ///
    /// # Errors
    /// As [`Ring::open`].
    #[doc(hidden)]
    pub fn open_with(
        memory: M,
        turns: T,
        form: Form,
        write_back: bool,
        steps: Steps,
    ) -> Result<(Ring<M, T>, Recovery), OpenError> {
        let mut ring = Ring::unrecovered(memory, turns, form, write_back, steps)?;
        let refuse: Damaged<'_> = &mut |at, what| Err(OpenError::Damaged { at, what });
        let recovery = ring.reopen(refuse)?;
        Ok((ring, recovery))
    }

    /// A ring that is there, as it was left.
    pub(super) fn unrecovered(
        memory: M,
        turns: T,
        form: Form,
        write_back: bool,
        steps: Steps,
    ) -> Result<Ring<M, T>, OpenError> {
        let options = RingOptions { form, write_back, ..read_options(&memory)? };
        Ring::<M, T>::check_form(&memory, form)?;
        // SAFETY: a word of the first page, which is there.
        let is_first_version = unsafe { memory.load(MAGIC_AT) } == MAGICS[0];
        let claims = claim_all(&memory, &turns);
        let ring = Ring { memory, turns, _claims: claims, options, steps, is_first_version };
        ring.check_room()?;
        Ok(ring)
    }

    /// Recovers it, as far as `damaged` does not refuse to go on.
    pub(super) fn reopen(&mut self, damaged: Damaged<'_>) -> Result<Recovery, OpenError> {
        let (rolled_back, converted) = (self.roll_back(damaged)?, self.is_first_version);
        let found = self.find(damaged)?;
        if converted {
            self.make_second(found.tail..found.tail + self.options.slots);
        }
        self.forget_unclaimed(found.tail);
        let mut recovery = Recovery { rolled_back, converted, ..found };
        self.make_void(&mut recovery, damaged)?;
        if recovery.bound.is_some() {
            self.set_head_word(HeadWord::Bound, 0);
        }
        self.take_turns(recovery.tail, recovery.head);
        Ok(recovery)
    }

    /// Tail, head and bound: all sequence words are looked at.
    fn find(&self, damaged: Damaged<'_>) -> Result<Recovery, OpenError> {
        let mut said = |which: HeadWord, what: &str| match self.head_word(which) {
            Ok(value) => Ok(value),
            Err(word) => {
                damaged(which.at(), format!("{what} does not match its sum: {word:#018x}"))?;
                Ok(0)
            }
        };
        let tail = said(HeadWord::Tail, "the tail")?;
        let bound = said(HeadWord::Bound, "the end of what counts")?;
        said(HeadWord::Note, "the word of the queue's user")?;
        if tail > LAST_POSITION {
            damaged(HeadWord::Tail.at(), format!("the tail is at {tail}"))?;
        }
        let end = tail.saturating_add(self.options.slots);
        let mut bound = bound.checked_sub(1);
        if let Some(wrong) = bound.filter(|bound| !(tail..=end).contains(bound)) {
            let what = format!("what counts ends at {wrong}, and the tail is at {tail}");
            damaged(HeadWord::Bound.at(), what)?;
            bound = None;
        }
        if !self.is_first_version {
            self.mend_sequences(tail);
        }
        let mut head = bound.unwrap_or(tail);
        let mut whole_head = head;
        for number in 0..self.options.slots {
            let at = self.at(number);
            // SAFETY: a word of a slot; nobody else has the memory.
            let word = unsafe { self.memory.load(at) };
            let Some((position, kind)) = position_of(word) else {
                if word != 0 {
                    damaged(at, format!("{word:#018x} is no sequence word of a slot"))?;
                }
                continue;
            };
            if position % self.options.slots != number || position >= end {
                damaged(at, format!("a slot of position {position}, with the tail at {tail}"))?;
                continue;
            }
            head = head.max(position + 1);
            if kind != Kind::Void && matches!(self.slot(position), Slot::Whole(..)) {
                whole_head = whole_head.max(position + 1);
            }
        }
        let head = if self.steps.has(Step::SeenStays) { head } else { whole_head };
        Ok(Recovery { tail, head, bound, ..Recovery::default() })
    }

    /// Says again what a slot is of whose checksum fits the position that it has now, though its sequence word does
    /// not say so: that is damaged, or a push was cut off before it. Either way the slot is whole.
    fn mend_sequences(&self, tail: u64) {
        let slots = self.options.slots;
        for number in 0..slots {
            let at = self.at(number);
            // SAFETY: words of a slot; nobody else has the memory.
            let (word, content) = unsafe { (self.memory.load(at), self.memory.load(at + 8)) };
            let content = Content::from_word(content);
            let is_impossible =
                content.check == 0 || u64::from(content.bytes) > self.options.payload_bytes();
            if is_impossible || self.has_check(at, word, content) {
                continue;
            }
            let position = tail + (number + slots - tail % slots) % slots;
            let may_be = [Kind::First, Kind::Rest].map(|kind| sequence(position, kind));
            let mut may_be = may_be.into_iter().flat_map(|word| [word, word | ORDERED]);
            if let Some(word) = may_be.find(|word| self.has_check(at, *word, content)) {
                // SAFETY: as above.
                unsafe {
                    self.memory.store(at, word);
                    self.memory.persist(at, 8);
                }
            }
        }
    }

    /// Takes the content, durably, from slots whose sequence word is of an earlier position and does not match it: a
    /// push was cut off before it could say its position, and that position will be given to another. What the two
    /// write could match this content together, after a second crash. Content without a checksum matches nothing.
    fn forget_unclaimed(&self, tail: u64) {
        let slots = self.options.slots;
        for number in 0..slots {
            let at = self.at(number);
            // SAFETY: words of a slot; nobody else has the memory.
            let (word, content) = unsafe { (self.memory.load(at), self.memory.load(at + 8)) };
            let is_earlier = word == 0 || position_of(word).is_some_and(|(found, _)| found < tail);
            let parsed = Content::from_word(content);
            if parsed.check == 0 || !is_earlier || self.has_check(at, word, parsed) {
                continue;
            }
            // SAFETY: as above.
            unsafe {
                self.memory.store(at + 8, 0);
                self.memory.persist(at, 16);
            }
        }
    }

    /// Whether the bytes of the slot at `at` match this content under this sequence word.
    fn has_check(&self, at: u64, word: u64, content: Content) -> bool {
        let bytes = u64::from(content.bytes);
        // SAFETY: bytes of the slot; nobody else has the memory.
        let part = || unsafe { self.memory.bytes(at + HEADER_BYTES, bytes) };
        bytes <= self.options.payload_bytes() && content.check_of(word, part()) == content.check
    }

    /// Counts elements, and makes everything else between tail and head void, durably.
    fn make_void(&self, recovery: &mut Recovery, damaged: Damaged<'_>) -> Result<(), OpenError> {
        let counts_to = recovery.bound.unwrap_or(u64::MAX);
        let mut position = recovery.tail;
        while position < recovery.head {
            let end = self.whole_until(position).filter(|_| position < counts_to);
            if let Some(end) = end.filter(|end| *end <= recovery.head) {
                recovery.elements += 1;
                position = end;
                continue;
            }
            let slot = self.slot(position);
            let at = self.at(position);
            if slot != Slot::Void && recovery.bound.is_some_and(|bound| position < bound) {
                damaged(at, format!("position {position} should be whole, and is not"))?;
            } else if slot == Slot::Damaged {
                damaged(
                    at,
                    format!("position {position} does not match its checksum, and is not torn"),
                )?;
            }
            recovery.void += 1;
            recovery.torn +=
                u64::from(matches!(slot, Slot::Torn | Slot::Damaged | Slot::Whole(..)));
            if slot != Slot::Void {
                // SAFETY: words of a slot, in one line and in this order; nobody else has the memory.
                unsafe {
                    self.memory.store(at + 8, Content::void(position).word());
                    self.memory.store(at, sequence(position, Kind::Void));
                    self.memory.persist(at, 16);
                }
            }
            position += 1;
        }
        Ok(())
    }

    /// The position behind the element that begins here, if all its slots are whole.
    fn whole_until(&self, first: u64) -> Option<u64> {
        let Slot::Whole(Kind::First, content) = self.slot(first) else { return None };
        let follow = u64::from(content.follow);
        let follows = |number: u64| {
            let wanted = (follow - number) as u16;
            matches!(self.slot(first + number), Slot::Whole(Kind::Rest, c) if c.follow == wanted)
        };
        let is_whole = !self.steps.has(Step::Together) || (1..=follow).all(follows);
        is_whole.then_some(first + 1 + follow)
    }

    /// Whether the slot of a position holds what was pushed there.
    pub(super) fn is_whole(&self, position: u64) -> bool {
        matches!(self.slot(position), Slot::Whole(..))
    }

    fn slot(&self, position: u64) -> Slot {
        let at = self.at(position);
        // SAFETY: words of a slot; nobody else has the memory.
        let (word, content) = unsafe { (self.memory.load(at), self.memory.load(at + 8)) };
        let kind = match position_of(word) {
            Some((found, kind)) if found == position => kind,
            _ => return Slot::Nothing,
        };
        let content = Content::from_word(content);
        if kind == Kind::Void && self.is_first_version {
            return Slot::Void;
        }
        let has_none = self.is_first_version && content.check == 0;
        let fits = u64::from(content.bytes) <= self.options.payload_bytes();
        let is_whole = fits && has_none || self.has_check(at, word, content);
        match (is_whole, kind) {
            (true, Kind::Void) => Slot::Void,
            (true, _) => Slot::Whole(kind, content),
            (false, Kind::Void) => Slot::Damaged,
            // A crash came while it was made void.
            _ if content == Content::void(position) => Slot::Torn,
            _ if !self.steps.has(Step::SlotChecksum) => Slot::Whole(kind, content),
            _ if !self.is_first_version && content.cannot_be_torn(word) => Slot::Damaged,
            _ => Slot::Torn,
        }
    }

    /// Makes the turns anew: everything of `[tail, head)` is ready, nobody is at work.
    pub(super) fn take_turns(&self, tail: u64, head: u64) {
        for number in 0..self.options.slots {
            self.set_turn_word(self.turn_at(number), 0);
        }
        for position in tail..head {
            self.set_turn_word(self.turn_at(position), ready(position));
        }
        for number in 0..LOGS {
            self.set_turn_word(LOG_LOCKS + 64 * number, 0);
        }
        for (at, word) in [(HEAD, head), (CLAIMED, tail), (SETTLED, tail), (LEADER, 0)] {
            self.set_turn_word(at, word);
        }
    }
}

/// What the memory says of its shape.
fn read_options<M: Memory>(memory: &M) -> Result<RingOptions, OpenError> {
    if memory.len() < super::FIRST_SLOT_AT {
        return Err(OpenError::NoRing);
    }
    // SAFETY: words of the first page, which is there; nobody else has the memory.
    let word = |at| unsafe { memory.load(at) };
    let magic = word(MAGIC_AT);
    if !MAGICS.contains(&magic) {
        // Before any checksum: whatever else of it may be elsewhere.
        let [name @ .., version] = magic.to_le_bytes();
        return Err(match version {
            b'3'..=b'9' if name == *b"TERRING" => OpenError::Newer { found: char::from(version) },
            _ => OpenError::NoRing,
        });
    }
    let (slots, slot_bytes) = (word(SLOTS_AT), word(SLOT_BYTES_AT));
    let options = RingOptions { form: Form::TxFree, slots, slot_bytes, write_back: false };
    if !is_intact(magic, word(CHECK_AT), &options) || options.check().is_err() {
        let what = "the head does not match its checksum".into();
        return Err(OpenError::Damaged { at: CHECK_AT, what });
    }
    Ok(options)
}
