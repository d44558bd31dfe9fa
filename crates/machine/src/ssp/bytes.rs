//! What persistent memory holds, what caches hold of it, and what a crash leaves.
//!
//! A line has a durable value and a newest one, which is what loads see. A write on its way is durable once its owner
//! has waited for it; a crash before may keep it, lose it, or tear it at words. A line that a cache gives up is durable
//! at once: the adversary of a crash test chooses when that happens.

use super::parameters::LINE_WORDS;
use crate::random::Rng;

/// A line of 64 bytes.
pub(super) type LineWords = [u64; LINE_WORDS];

/// Who waits for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A core, at its fences.
    Core(usize),
    /// The thread that consolidates and takes checkpoints, and recovery.
    Background,
    /// The batch of the journal that begins at this position.
    Batch(u64),
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    line: u32,
    owner: Owner,
    words: LineWords,
}

/// Persistent memory, by physical lines.
#[derive(Clone, Debug)]
pub(super) struct Bytes {
    durable: Vec<LineWords>,
    newest: Vec<LineWords>,
    in_flight: Vec<InFlight>,
}

impl Bytes {
    pub fn new(lines: u32) -> Bytes {
        let zeros = vec![[0; LINE_WORDS]; lines as usize];
        Bytes { durable: zeros.clone(), newest: zeros, in_flight: Vec::new() }
    }

    #[inline]
    pub fn newest(&self, line: u32) -> &LineWords {
        &self.newest[line as usize]
    }

    #[inline]
    pub fn newest_mut(&mut self, line: u32) -> &mut LineWords {
        &mut self.newest[line as usize]
    }

    pub fn durable(&self, line: u32) -> &LineWords {
        &self.durable[line as usize]
    }

    /// The newest value is on its way to memory.
    pub fn post(&mut self, line: u32, owner: Owner) {
        self.in_flight.push(InFlight { line, owner, words: self.newest[line as usize] });
    }

    /// The newest value is durable: a cache gave the line up.
    pub fn write_now(&mut self, line: u32) {
        self.in_flight.retain(|write| write.line != line);
        self.durable[line as usize] = self.newest[line as usize];
    }

    /// Memory's value is the newest again: a cache dropped the line.
    pub fn forget(&mut self, line: u32) {
        let on_its_way = self.in_flight.iter().rev().find(|write| write.line == line);
        self.newest[line as usize] =
            on_its_way.map_or(self.durable[line as usize], |write| write.words);
    }

    /// What the owner has written is durable, and so is what was sent to the same lines before.
    pub fn settle(&mut self, owner: Owner) {
        self.settle_where(|of| of == owner);
    }

    /// Batches that begin up to `position` are durable.
    pub fn settle_batches(&mut self, position: u64) {
        self.settle_where(|of| matches!(of, Owner::Batch(at) if at <= position));
    }

    fn settle_where(&mut self, is_settled: impl Fn(Owner) -> bool) {
        let Bytes { durable, in_flight, .. } = self;
        // Of two writes to one line the later counts: an earlier one of another owner cannot come after it.
        for at in 0..in_flight.len() {
            let write = in_flight[at];
            if is_settled(write.owner) {
                durable[write.line as usize] = write.words;
                in_flight[..at]
                    .iter_mut()
                    .filter(|w| w.line == write.line)
                    .for_each(|w| *w = write);
            }
        }
        in_flight.retain(|write| !is_settled(write.owner));
    }

    /// Power fails: each write on its way arrives, is lost, or is torn.
    pub fn crash(&mut self, rng: &mut Rng) {
        for write in std::mem::take(&mut self.in_flight) {
            let kept = match rng.below(3) {
                0 => 0,
                1 => 0xff,
                _ => rng.bits(),
            };
            let target = &mut self.durable[write.line as usize];
            for (word, value) in write.words.into_iter().enumerate() {
                if kept >> word & 1 == 1 {
                    target[word] = value;
                }
            }
        }
        self.newest.clone_from(&self.durable);
    }

    /// Everything is durable: the start of a run.
    pub fn settle_all(&mut self) {
        self.in_flight.clear();
        self.durable.clone_from(&self.newest);
    }
}

/// A word that vouches for others: any of them changed, and it is another.
pub(super) fn hash(seed: u64, words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(crate::random::mix(seed), |hash, word| {
        crate::random::mix(hash.rotate_left(23) ^ word)
    })
}
