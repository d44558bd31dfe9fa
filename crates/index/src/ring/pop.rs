//! Popping: claim what is ready, copy it, make it popped, and return when it durably is.

use super::slot::{Content, HEADER_BYTES, Kind, position_of};
use super::{CLAIMED, HEAD, Ring, popped, ready};
use crossbeam_utils::Backoff;
use terrace_memory::Memory;

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

/// What is at a position.
enum Found {
    /// An element, or nothing, up to here.
    Element { end: u64, is_void: bool },
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
        let before = into.len();
        while into.len() == before && most > 0 {
            let Some((from, to)) = self.claim_elements(most) else {
                self.settle(self.turn_word(CLAIMED));
                return 0;
            };
            let mut position = from;
            while position < to {
                position = self.copy_element(position, into);
            }
            for position in from..to {
                self.set_turn_word(self.turn_at(position), popped(position));
            }
            self.settle(to);
        }
        into.len() - before
    }

    /// Pops one element.
    pub fn try_pop(&self) -> Option<Vec<u8>> {
        let mut popped = Popped::new();
        (self.try_pop_many(1, &mut popped) == 1).then_some(popped.bytes)
    }

    /// Claims positions with at most `most` elements, and void ones among them; none if the ring is empty.
    fn claim_elements(&self, most: usize) -> Option<(u64, u64)> {
        let backoff = Backoff::new();
        loop {
            let from = self.turn_word(CLAIMED);
            let head = self.turn_word(HEAD);
            if from == head {
                return None;
            }
            // Headers are looked at before they are ours. If another pop was faster they may be of other
            // elements; then the claim has moved too, and what they said is not used.
            match self.reach(from, head, most) {
                Some(to) if self.turn_word_goes(CLAIMED, from, to) => return Some((from, to)),
                Some(_) => backoff.spin(),
                None => {
                    self.turns.pause();
                    backoff.snooze();
                }
            }
        }
    }

    /// How far from `from` on there are `most` elements; none if not even the first is ready.
    fn reach(&self, from: u64, head: u64, most: usize) -> Option<u64> {
        let (mut to, mut elements) = (from, 0);
        while elements < most && to < head {
            let Found::Element { end, is_void } = self.look(to, head) else { break };
            to = end;
            elements += usize::from(!is_void);
        }
        (to > from).then_some(to)
    }

    fn look(&self, position: u64, head: u64) -> Found {
        match self.turn_word(self.turn_at(position)) {
            turn if turn == ready(position) => {}
            turn if turn < ready(position) => return Found::Unready,
            _ => return Found::Gone,
        }
        let Some(content) = self.content(position) else {
            return Found::Element { end: position + 1, is_void: true };
        };
        let end = position + 1 + u64::from(content.follow);
        let is_ready = |position| self.turn_word(self.turn_at(position)) == ready(position);
        match end <= head && (position + 1..end).all(is_ready) {
            true => Found::Element { end, is_void: false },
            false => Found::Unready,
        }
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
