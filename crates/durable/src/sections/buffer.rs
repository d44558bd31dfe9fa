//! The new values of an open section, in memory: what both redo engines keep until its commit.

use super::engine::Grain;
use super::media::{LINE, Media, pieces};
use super::record::Record;
use super::words;
use std::collections::BTreeMap;
use terrace_memory::Memory;

/// A line as the open section sees it.
struct Line {
    bytes: [u8; LINE as usize],
    /// A bit for each word to be logged.
    written: u8,
}

/// Lines that the open section wrote to, over a heap at an offset of its memory.
pub(super) struct Buffer {
    data_at: u64,
    grain: Grain,
    lines: BTreeMap<u64, Line>,
}

impl Buffer {
    pub(super) fn new(data_at: u64, grain: Grain) -> Buffer {
        Buffer { data_at, grain, lines: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// Copies out of the memory, and what the section wrote over it.
    pub(super) fn read<M: Memory>(&self, media: &Media<M>, at: u64, target: &mut [u8]) {
        media.read(self.data_at + at, target);
        if self.lines.is_empty() {
            return;
        }
        for (line, within, part) in pieces(at, target.len()) {
            if let Some(line) = self.lines.get(&line) {
                let length = part.len();
                target[part].copy_from_slice(&line.bytes[within..within + length]);
            }
        }
    }

    /// Copies in.
    pub(super) fn write<M: Memory>(&mut self, media: &Media<M>, at: u64, source: &[u8]) {
        for (number, within, part) in pieces(at, source.len()) {
            let line = self.lines.entry(number).or_insert_with(|| {
                let mut bytes = [0; LINE as usize];
                media.read(self.data_at + number * LINE, &mut bytes);
                Line { bytes, written: 0 }
            });
            let end = within + part.len();
            line.bytes[within..end].copy_from_slice(&source[part]);
            line.written |= match self.grain {
                Grain::Word => (0xffu16 << (within / 8) & !(0xffff << end.div_ceil(8))) as u8,
                Grain::Line => 0xff,
            };
        }
    }

    /// The words that were written, as a record.
    pub(super) fn encode(&self) -> Record {
        let mut record = Record::new();
        for (number, line) in &self.lines {
            let (words, _) = line.bytes.as_chunks::<8>();
            for (word, new) in words.iter().enumerate() {
                if line.written >> word & 1 == 1 {
                    record.push(number * LINE + 8 * word as u64, *new);
                }
            }
        }
        record
    }

    /// Lines that were written to, those that follow each other as one: first, and how many.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        words::runs(self.lines.keys().copied())
    }
}
