//! Popping: claim what is ready, copy it, make it popped, and return when it durably is.

use super::slot::{Content, HEADER_BYTES, Kind, position_of};
use super::{CLAIMED, HEAD, Ring, popped, ready};
use terrace_memory::{Memory, Spin};

/// Elements that were popped, one behind the other in one buffer that may be used again.
#[derive(Clone, Debug, Default)]
pub struct Popped {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Popped {
    /// None yet.
    pub fn new() -> Popped {
        Popped::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The elements in the order of the ring.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    /// Forgets them, and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// What a pop takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Elements.
    pub elements: usize,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes that each costs beside its own, where they are put.
    pub each_bytes: u64,
}

impl Most {
    /// So many elements, whatever their size.
    pub fn elements(elements: usize) -> Most {
        Most { elements, bytes: u64::MAX, each_bytes: 0 }
    }
}

/// The next element alone is larger than what was to be taken; nothing was popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the next element has {bytes} bytes")]
pub struct TooLarge {
    /// Its bytes.
    pub bytes: u64,
}

/// What is at a position.
enum Found {
    /// An element of so many bytes up to here; or nothing, up to here.
    Element { end: u64, bytes: Option<u64> },
    /// A push has not finished.
    Unready,
    /// Another pop has it.
    Gone,
}

impl<M: Memory, T: Memory> Ring<M, T> {
    /// Pops at most `most` elements to the end of `into`; how many. None if the ring is empty; then, too, every
    /// pop before is durable. Waits for a push that has begun and is next. Durable on return on a
    /// byte-addressable medium.
    pub fn try_pop_many(&self, most: usize, into: &mut Popped) -> usize {
        let popped = self.try_pop_within(Most::elements(most), into);
        popped.expect("no element is larger than all bytes")
    }

    /// The same with a bound on bytes: what would go beyond it stays in the ring.
    ///
    /// # Errors
    /// [`TooLarge`], if the first element alone does.
    pub fn try_pop_within(&self, most: Most, into: &mut Popped) -> Result<usize, TooLarge> {
        let before = into.len();
        while into.len() == before && most.elements > 0 {
            let Some((from, to)) = self.claim_elements(most)? else {
                self.settle(self.turn_word(CLAIMED));
                return Ok(0);
            };
            let mut position = from;
            while position < to {
                position = self.copy_element(position, into);
            }
            self.let_go(from, to);
        }
        Ok(into.len() - before)
    }

    /// Pops everything before `end`, and perhaps what was pushed since, without a copy; how many elements.
    /// Durable on return on a byte-addressable medium.
    pub fn discard(&self, end: u64) -> u64 {
        let mut discarded = 0;
        while self.claimed_through() < end {
            let claimed = self.claim_elements(Most::elements(usize::MAX));
            let claimed = claimed.expect("no element is larger than all bytes");
            let Some((from, to)) = claimed else { break };
            let mut position = from;
            while position < to {
                let content = self.content(position);
                discarded += u64::from(content.is_some());
                position += 1 + content.map_or(0, |content| u64::from(content.follow));
            }
            self.let_go(from, to);
        }
        self.settle(self.turn_word(CLAIMED));
        discarded
    }

    /// Pops one element.
    pub fn try_pop(&self) -> Option<Vec<u8>> {
        let mut popped = Popped::new();
        (self.try_pop_many(1, &mut popped) == 1).then_some(popped.bytes)
    }

    /// Claimed positions are popped: returns when that is durable.
    fn let_go(&self, from: u64, to: u64) {
        for position in from..to {
            self.set_turn_word(self.turn_at(position), popped(position));
        }
        self.settle(to);
    }

    /// Claims positions with at most `most`, and void ones among them; none if the ring is empty.
    fn claim_elements(&self, most: Most) -> Result<Option<(u64, u64)>, TooLarge> {
        let spin = Spin::on(&self.turns);
        loop {
            let from = self.turn_word(CLAIMED);
            let head = self.turn_word(HEAD);
            if from == head {
                return Ok(None);
            }
            // Headers are looked at before they are ours. If another pop was faster they may be of other
            // elements; then the claim has moved too, and what they said is not used.
            match self.reach(from, head, most) {
                Ok(to) if to > from => {
                    if self.turn_word_goes(CLAIMED, from, to) {
                        return Ok(Some((from, to)));
                    }
                    spin.wait();
                }
                Err(too_large) if self.turn_word(CLAIMED) == from => return Err(too_large),
                Err(_) => spin.wait(),
                Ok(_) => spin.wait(),
            }
        }
    }

    /// How far from `from` on there is not more than `most`; `from` if not even the first is ready.
    fn reach(&self, from: u64, head: u64, most: Most) -> Result<u64, TooLarge> {
        let (mut to, mut elements, mut room) = (from, 0, most.bytes);
        while elements < most.elements && to < head {
            let Found::Element { end, bytes } = self.look(to, head) else { break };
            if let Some(bytes) = bytes {
                match room.checked_sub(bytes.saturating_add(most.each_bytes)) {
                    Some(left) => room = left,
                    None if to == from => return Err(TooLarge { bytes }),
                    None => break,
                }
                elements += 1;
            }
            to = end;
        }
        Ok(to)
    }

    fn look(&self, position: u64, head: u64) -> Found {
        match self.turn_word(self.turn_at(position)) {
            turn if turn == ready(position) => {}
            turn if turn < ready(position) => return Found::Unready,
            _ => return Found::Gone,
        }
        let Some(content) = self.content(position) else {
            return Found::Element { end: position + 1, bytes: None };
        };
        let end = position + 1 + u64::from(content.follow);
        let is_ready = |position| self.turn_word(self.turn_at(position)) == ready(position);
        match end <= head && (position + 1..end).all(is_ready) {
            true => Found::Element { end, bytes: Some(self.element_bytes(content, end)) },
            false => Found::Unready,
        }
    }

    /// Bytes of the element that begins with `content` and ends before `end`: all its slots but the last are
    /// full.
    #[inline(always)]
    fn element_bytes(&self, content: Content, end: u64) -> u64 {
        if content.follow == 0 {
            return content.bytes.into();
        }
        // SAFETY: a word of a slot.
        let last = unsafe { self.memory.load(self.at(end - 1) + 8) };
        let full = u64::from(content.follow) * self.options.payload_bytes();
        full + u64::from(Content::from_word(last).bytes)
    }

    /// The content of the first slot of an element, if one begins here.
    #[inline(always)]
    fn content(&self, position: u64) -> Option<Content> {
        let at = self.at(position);
        // SAFETY: words of a slot.
        let (sequence, content) = unsafe { (self.memory.load(at), self.memory.load(at + 8)) };
        let is_first = position_of(sequence) == Some((position, Kind::First));
        is_first.then(|| Content::from_word(content))
    }

    /// Copies the element at a claimed position; returns the position behind it.
    fn copy_element(&self, first: u64, into: &mut Popped) -> u64 {
        let Some(content) = self.content(first) else { return first + 1 };
        let end = first + 1 + u64::from(content.follow);
        for position in first..end {
            let at = self.at(position);
            // SAFETY: a slot that this thread has claimed: nobody writes it until the tail has passed it.
            unsafe {
                let content = Content::from_word(self.memory.load(at + 8));
                let bytes = u64::from(content.bytes).min(self.options.payload_bytes());
                into.bytes.extend_from_slice(self.memory.bytes(at + HEADER_BYTES, bytes));
            }
        }
        into.ends.push(into.bytes.len());
        end
    }
}
