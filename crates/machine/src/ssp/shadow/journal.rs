//! The metadata journal: 16 bytes for each page that a section changed, and an explicit commit mark.
//!
//! ```text
//! batch:  | count, hash | slot and places, bitmap | .. |, padded to lines; one for each section or consolidation
//! tail:   | position, 40 bits; epoch, 24 |, one word of the header
//! ```
//! The paper leaves open how recovery knows that it has a section's records whole. Here a mark goes before them, in the
//! same lines and the same flush: its hash covers the records, the position, and the epoch, which each recovery
//! raises. So neither a torn batch, nor one of an earlier round of the journal, nor one that was written beyond the end
//! before a crash and became reachable after it, passes for a commit.
//!
//! Batches are durable, and sections acknowledged, in the order of the journal: recovery stops at the first batch that
//! is not whole. A record has all of a slot's durable state, so replaying it on whatever a torn checkpoint has left is
//! right, and twice is the same as once. The paper's record has one of the two places; with the other one inferred
//! ("swap if it is the extra page"), replaying twice is not.

use super::super::bytes::{Bytes, LineWords, Owner, hash};
use super::super::controller::Class;
use super::super::hardware::Hardware;
use super::super::layout::Layout;
use super::super::parameters::Ps;
use super::slots::Record;
use std::collections::VecDeque;

const EPOCH_BITS: u32 = 24;
const PLACE_BITS: u32 = 24;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Records of a line, the mark counted as one.
const PER_LINE: usize = 4;

/// A slot's record as the journal has it.
pub(super) type Entry = (usize, Record);

/// A batch that was written and is not acknowledged.
#[derive(Clone, Debug)]
struct Batch {
    position: u64,
    done: Ps,
    entries: Vec<Entry>,
}

/// The journal. Positions are in lines, and only grow.
#[derive(Debug)]
pub(super) struct Journal {
    first_line: u32,
    lines: u32,
    /// Odd, and the lines a power of two, so that each position of a round has a line of its own.
    stride: u32,
    pub epoch: u64,
    pub tail: u64,
    head: u64,
    batches: VecDeque<Batch>,
    /// Records that wait in the controller's buffer.
    pub waiting: Vec<Entry>,
}

fn encode(entries: &[Entry]) -> impl Iterator<Item = u64> + '_ {
    entries.iter().flat_map(|(slot, record)| {
        let [place, other] = record.places.map(u64::from);
        [(*slot as u64) << (2 * PLACE_BITS) | place << PLACE_BITS | other, record.committed]
    })
}

fn decode([head, committed]: [u64; 2]) -> Entry {
    let places = [(head >> PLACE_BITS & PLACE_MASK) as u32, (head & PLACE_MASK) as u32];
    ((head >> (2 * PLACE_BITS)) as usize, Record { places, committed })
}

impl Journal {
    pub fn new(layout: &Layout, lines: u32, stride: u32) -> Journal {
        Journal {
            first_line: layout.journal,
            lines,
            stride,
            epoch: 0,
            tail: 0,
            head: 0,
            batches: VecDeque::new(),
            waiting: Vec::new(),
        }
    }

    fn line(&self, position: u64) -> u32 {
        self.first_line + (position * u64::from(self.stride) % u64::from(self.lines)) as u32
    }

    /// Whether a batch of so many lines fits.
    pub fn has_room(&self, lines: u32) -> bool {
        self.head - self.tail + u64::from(lines) <= u64::from(self.lines)
    }

    pub fn is_half_full(&self) -> bool {
        2 * (self.head - self.tail) > u64::from(self.lines)
    }

    /// Up to here all batches are acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.batches.front().map_or(self.head, |batch| batch.position)
    }

    pub fn tail_word(&self) -> u64 {
        self.tail << EPOCH_BITS | self.epoch
    }

    /// Writes a batch, for which there is room; returns its position, and when it and all before it are durable. The
    /// first `of_section` entries are a section's, others are consolidated pages', to which the lines count that they
    /// add.
    pub fn append(
        &mut self,
        on: &mut Hardware,
        now: Ps,
        of_section: usize,
        entries: Vec<Entry>,
    ) -> (u64, Ps) {
        let position = self.head;
        let vouched = hash(self.epoch ^ position << EPOCH_BITS, encode(&entries));
        let mut words = vec![entries.len() as u64, vouched];
        words.extend(encode(&entries));
        let mut done = self.batches.back().map_or(now, |batch| batch.done.max(now));
        let own_lines = if of_section == 0 { 0 } else { (of_section + 1).div_ceil(PER_LINE) };
        for (number, words) in words.chunks(2 * PER_LINE).enumerate() {
            let class = if number < own_lines { Class::Log } else { Class::Consolidation };
            let line: LineWords = std::array::from_fn(|word| words.get(word).copied().unwrap_or(0));
            let at = self.line(self.head);
            done = done.max(on.write_uncached(now, at, line, Owner::Batch(position), class));
            self.head += 1;
        }
        self.batches.push_back(Batch { position, done, entries });
        (position, done)
    }

    /// The batch at `position` is acknowledged, and all before it: the records that count now.
    pub fn acknowledge(&mut self, on: &mut Hardware, position: u64, in_order: bool) -> Vec<Entry> {
        match in_order {
            true => on.bytes.settle_batches(position),
            false => on.bytes.settle(Owner::Batch(position)),
        }
        let mut entries = Vec::new();
        while self.batches.front().is_some_and(|batch| batch.position <= position) {
            entries.extend(self.batches.pop_front().into_iter().flat_map(|batch| batch.entries));
        }
        entries
    }

    /// Reads the tail, and the batches from it on, from what memory holds.
    pub fn read(
        &mut self,
        bytes: &Bytes,
        tail_word: u64,
        checks_marks: bool,
        slots: usize,
    ) -> Vec<Entry> {
        self.epoch = tail_word & ((1 << EPOCH_BITS) - 1);
        self.tail = tail_word >> EPOCH_BITS;
        self.head = self.tail;
        let mut found = Vec::new();
        while self.head - self.tail < u64::from(self.lines) {
            let Some(entries) = self.batch_at(bytes, self.head, checks_marks) else { break };
            let is_sound = entries.iter().all(|(slot, _)| *slot < slots);
            if !is_sound {
                break;
            }
            self.head += (entries.len() + 1).div_ceil(PER_LINE) as u64;
            found.extend(entries);
        }
        found
    }

    fn batch_at(&self, bytes: &Bytes, position: u64, checks_marks: bool) -> Option<Vec<Entry>> {
        let word = |number: usize| {
            let line = self.line(position + (number / (2 * PER_LINE)) as u64);
            bytes.durable(line)[number % (2 * PER_LINE)]
        };
        let (count, vouched) = (word(0) as usize, word(1));
        if count == 0 || count >= self.lines as usize {
            return None;
        }
        let entries: Vec<Entry> =
            (1..=count).map(|entry| decode([word(2 * entry), word(2 * entry + 1)])).collect();
        let is_whole = vouched == hash(self.epoch ^ position << EPOCH_BITS, encode(&entries));
        (is_whole || !checks_marks).then_some(entries)
    }

    /// Recovery has moved everything to the table: the journal is empty, under the next epoch.
    pub fn restart(&mut self, raises_epoch: bool) {
        self.tail = self.head;
        self.epoch += u64::from(raises_epoch);
    }
}
