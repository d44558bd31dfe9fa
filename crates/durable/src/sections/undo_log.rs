//! A log of old values, and writes in place under its protection.
//!
//! ```text
//! entry: | offset / 8, 40 bits; words, 24 bits | CRC-32C, 32; generation, 32 | old words .. |
//! ```
//! One entry per write, written back and fenced before the data are overwritten (Ni, section 3.2,
//! undo logging), so at most the last entry can be torn, and then nothing was overwritten yet. An
//! entry counts only under its generation: raising the generation voids the whole log in one store.
//! The checksum covers generation, place and contents, so what an earlier generation left behind
//! never counts.
//!
//! A word that was logged before in the same section may be logged again as part of a longer range,
//! with its newer value: entries are put back last first, so the oldest value wins.

use super::engine::{Grain, Recovery};
use super::error::{Error, Result};
use super::media::{LINE, Media, pieces};
use super::step::Step;
use super::{EngineKind, words};
use crate::checksum::Crc;
use std::collections::BTreeMap;
use terrace_memory::Memory;

const HEAD: u64 = 16;
const SEED: u32 = 0x554e_444f;

/// An old value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    at: u64,
    old: Vec<u8>,
}

/// Old values of one section, and the lines written in place since.
#[derive(Clone, Debug)]
pub(super) struct InPlace {
    engine: EngineKind,
    grain: Grain,
    log_at: u64,
    log_bytes: u64,
    tail: u64,
    /// Lines written, with a bit for each word whose old value is in the log.
    lines: BTreeMap<u64, u8>,
}

fn checksum(generation: u64, at: u64, head: u64, old: &[u8]) -> u32 {
    Crc::new(SEED)
        .update(&generation.to_le_bytes())
        .update(&at.to_le_bytes())
        .update(&head.to_le_bytes())
        .update(old)
        .finish()
}

/// Which words of a line the bytes `from .. to` of it touch.
fn words_mask(from: usize, to: usize) -> u8 {
    let (first, end) = (from / 8, to.div_ceil(8));
    (0xffu16 << first & !(0xffff << end)) as u8
}

impl InPlace {
    pub(super) fn new(engine: EngineKind, grain: Grain, log_at: u64, log_bytes: u64) -> InPlace {
        InPlace { engine, grain, log_at, log_bytes, tail: 0, lines: BTreeMap::new() }
    }

    /// Whether nothing was written since the last [`InPlace::settle`] or [`InPlace::roll_back`].
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.tail == 0
    }

    /// Writes at `at`, offset in the memory, after its old value is durable.
    ///
    /// # Errors
    /// [`Error::SectionTooLarge`]; then nothing was written.
    pub(super) fn write<M: Memory>(
        &mut self,
        media: &Media<M>,
        generation: u64,
        at: u64,
        source: &[u8],
    ) -> Result<()> {
        let unit = if self.grain == Grain::Word { 8 } else { LINE };
        let (from, to) = (at / unit * unit, (at + source.len() as u64).next_multiple_of(unit));
        if let Some((first, end)) = self.unlogged(from, to) {
            self.append(media, generation, first, end - first)?;
        }
        for (line, within, part) in pieces(from, (to - from) as usize) {
            *self.lines.entry(line).or_default() |= words_mask(within, within + part.len());
        }
        media.write(at, source);
        Ok(())
    }

    /// The smallest range of words that holds every word of `from .. to` not in the log yet.
    fn unlogged(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let mut range = None;
        for (line, within, part) in pieces(from, (to - from) as usize) {
            let logged = self.lines.get(&line).copied().unwrap_or(0);
            let missing = words_mask(within, within + part.len()) & !logged;
            if missing != 0 {
                let first = line * LINE + 8 * u64::from(missing.trailing_zeros());
                let end = line * LINE + 8 * u64::from(8 - missing.leading_zeros());
                range = Some((range.map_or(first, |(first, _)| first), end));
            }
        }
        range
    }

    fn append<M: Memory>(
        &mut self,
        media: &Media<M>,
        generation: u64,
        target: u64,
        bytes: u64,
    ) -> Result<()> {
        let needs_bytes = self.tail + HEAD + bytes;
        if needs_bytes > self.log_bytes {
            let (engine, has_bytes) = (self.engine, self.log_bytes);
            return Err(Error::SectionTooLarge { engine, needs_bytes, has_bytes });
        }
        let mut entry = vec![0; (HEAD + bytes) as usize];
        media.read(target, &mut entry[HEAD as usize..]);
        let at = self.log_at + self.tail;
        let head = (target / 8) | ((bytes / 8) << 40);
        let crc = checksum(generation, at, head, &entry[HEAD as usize..]);
        entry[..8].copy_from_slice(&head.to_le_bytes());
        entry[8..16].copy_from_slice(&(u64::from(crc) | generation << 32).to_le_bytes());
        media.write(at, &entry);
        media.write_back(Step::UndoLogWriteBack, at, entry.len() as u64);
        media.fence(Step::UndoLogFence);
        self.tail = needs_bytes;
        Ok(())
    }

    /// Starts the write-back of every line written, as `step`.
    pub(super) fn write_back<M: Memory>(&self, media: &Media<M>, step: Step) {
        for (first, count) in words::runs(self.lines.keys().copied()) {
            media.write_back(step, first * LINE, count * LINE);
        }
    }

    /// Forgets the section, whose entries the caller has made void.
    pub(super) fn settle(&mut self) {
        self.tail = 0;
        self.lines.clear();
    }

    /// Puts every old value back, durably, last first. The caller then makes the log void.
    pub(super) fn roll_back<M: Memory>(&mut self, media: &Media<M>) {
        let mut at = self.log_at;
        let mut entries = Vec::new();
        while at < self.log_at + self.tail {
            let head = media.load(at);
            let entry = read_entry(media, at, head);
            at += HEAD + entry.old.len() as u64;
            entries.push(entry);
        }
        put_back(media, &entries);
        self.settle();
    }

    /// After a crash: puts back the old values of `generation`, if there are any; whether there
    /// were. The caller then makes the log void.
    pub(super) fn recover<M: Memory>(
        &self,
        media: &Media<M>,
        generation: u64,
        report: &mut Recovery,
    ) -> Result<bool> {
        let (entries, end) = self.scan(media, generation);
        report.bytes_read += self.log_bytes;
        report.entries += entries.len() as u64;
        if self.is_torn(media, generation, end) {
            report.torn += 1;
        }
        if let Some(later) = self.intact_after(media, generation, end) {
            let what = format!(
                "an entry of the {} log does not match its checksum, and {later} follows it",
                self.engine
            );
            report.damaged(media.is_read_only(), self.log_at + end, what)?;
        }
        if entries.is_empty() {
            return Ok(false);
        }
        report.bytes_written += put_back(media, &entries);
        Ok(true)
    }

    /// Intact entries from the start of the log on, and where they end in it.
    fn scan<M: Memory>(&self, media: &Media<M>, generation: u64) -> (Vec<Entry>, u64) {
        let (mut entries, mut end) = (Vec::new(), 0);
        while let Some(entry) = self.intact(media, generation, end) {
            end += HEAD + entry.old.len() as u64;
            entries.push(entry);
        }
        (entries, end)
    }

    /// The entry at `end` in the log, if it counts under `generation`.
    fn intact<M: Memory>(&self, media: &Media<M>, generation: u64, end: u64) -> Option<Entry> {
        if !self.claims(media, generation, end) {
            return None;
        }
        let at = self.log_at + end;
        let head = media.load(at);
        let entry = read_entry(media, at, head);
        let crc = checksum(generation, at, head, &entry.old);
        let matches = media.load(at + 8) as u32 == crc || !media.has(Step::UndoChecksum);
        matches.then_some(entry)
    }

    /// Whether the words at `end` look like the head of an entry of `generation`.
    fn claims<M: Memory>(&self, media: &Media<M>, generation: u64, end: u64) -> bool {
        if end + HEAD > self.log_bytes {
            return false;
        }
        let (head, mark) = (media.load(self.log_at + end), media.load(self.log_at + end + 8));
        let (target, bytes) = (8 * (head & ((1 << 40) - 1)), 8 * (head >> 40));
        bytes > 0
            && mark >> 32 == generation & 0xffff_ffff
            && end + HEAD + bytes <= self.log_bytes
            && target + bytes <= media.len()
    }

    fn is_torn<M: Memory>(&self, media: &Media<M>, generation: u64, end: u64) -> bool {
        // Half a head is torn too: its generation may be there before its length.
        let marked = end + HEAD <= self.log_bytes
            && media.load(self.log_at + end + 8) >> 32 == generation & 0xffff_ffff;
        marked && generation & 0xffff_ffff != 0
    }

    /// An intact entry behind a bad one: fences forbid it, so no crash explains the bad one.
    fn intact_after<M: Memory>(
        &self,
        media: &Media<M>,
        generation: u64,
        end: u64,
    ) -> Option<String> {
        if !media.has(Step::UndoChecksum) || generation & 0xffff_ffff == 0 {
            return None;
        }
        (end + 8..self.log_bytes)
            .step_by(8)
            .find(|later| self.intact(media, generation, *later).is_some())
            .map(|later| format!("an intact one at {}", self.log_at + later))
    }
}

fn read_entry<M: Memory>(media: &Media<M>, at: u64, head: u64) -> Entry {
    let mut old = vec![0; 8 * (head >> 40) as usize];
    media.read(at + HEAD, &mut old);
    Entry { at: 8 * (head & ((1 << 40) - 1)), old }
}

/// Writes old values back, last first, durably; how many bytes.
fn put_back<M: Memory>(media: &Media<M>, entries: &[Entry]) -> u64 {
    let mut lines = std::collections::BTreeSet::new();
    for entry in entries.iter().rev() {
        media.write(entry.at, &entry.old);
        lines.extend(pieces(entry.at, entry.old.len()).map(|(line, ..)| line));
    }
    for (first, count) in words::runs(lines.into_iter()) {
        media.write_back(Step::RollBackWriteBack, first * LINE, count * LINE);
    }
    media.fence(Step::RollBackFence);
    entries.iter().map(|entry| entry.old.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_hold_the_words_that_bytes_touch() {
        for (from, to, mask) in [(0, 64, 0xff), (0, 1, 1), (7, 9, 3), (56, 64, 0x80), (8, 24, 6)] {
            assert_eq!(words_mask(from, to), mask, "{from}..{to}");
        }
    }
}
