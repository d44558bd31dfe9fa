//! Hardware redo logging after DHTM: the paper's stronger rival (Ni, section 3.3.1).
//!
//! ```text
//! log:    two areas a core, in turns: | sequence, low, words, hash | entries: line, new words .. |
//! store   in the cache, which keeps the line; a buffer of lines goes to the log late, so that a line goes once
//! commit  the rest of the log and its mark, WAIT: committed. Then the lines are written in place, in the background
//! begin   WAIT until the last section's lines are in place
//! recover logs whose marks vouch for them, from the highest `low` on, in the order of their sequence
//! ```
//! `low` is the first sequence number whose lines may not be in place yet. It spares a record of completion for each
//! section: an older log does not count once a mark with a higher `low` is durable. The areas take turns so that a
//! core's last mark lives until its next one is durable, whatever a crash interrupts.

use super::bytes::{Bytes, LineWords, Owner, hash};
use super::controller::Class;
use super::engine::{Changed, Commit, Engine, Refused, count, note, translate};
use super::hardware::Hardware;
use super::layout::Layout;
use super::parameters::{Fault, LINE_WORDS, Ps};
use std::collections::VecDeque;

/// Words of a mark, and of an entry.
const MARK: usize = 4;
const ENTRY: usize = 9;
/// The header's word that recovery writes.
const LOW_WORD: usize = 1;

/// A committed section whose lines are on their way to their places.
#[derive(Clone, Copy, Debug)]
struct Completing {
    sequence: u64,
    done: Ps,
}

#[derive(Debug, Default)]
struct Section {
    /// Lines in the buffer, the oldest first.
    buffer: VecDeque<u32>,
    /// The log: a mark's place, then entries.
    stream: Vec<u64>,
    /// Lines of the stream that were written, the mark's not among them.
    written: usize,
    area: u32,
    is_logged: bool,
    last: u64,
}

#[derive(Debug)]
pub(super) struct Redo {
    layout: Layout,
    area_lines: u32,
    changed: Changed,
    sections: Vec<Section>,
    completing: Vec<Option<Completing>>,
    sequence: u64,
    recovery: u32,
    checks_marks: bool,
}

struct Log {
    sequence: u64,
    low: u64,
    entries: Vec<(u32, LineWords)>,
}

fn vouch(sequence: u64, low: u64, words: &[u64]) -> u64 {
    hash(sequence ^ low << 32 ^ words.len() as u64, words.iter().copied())
}

impl Redo {
    pub fn new(layout: Layout, cores: usize, log_lines: u32, checks_marks: bool) -> Redo {
        Redo {
            layout,
            area_lines: log_lines / 2,
            changed: vec![Vec::new(); cores],
            sections: (0..cores)
                .map(|_| Section { stream: vec![0; MARK], ..Section::default() })
                .collect(),
            completing: vec![None; cores],
            sequence: 1,
            recovery: 0,
            checks_marks,
        }
    }

    fn area(&self, core: usize, area: u32) -> u32 {
        self.layout.log(core) + area * self.area_lines
    }

    /// Appends a line's newest words, and writes what lines of the log are full.
    fn append(&mut self, on: &mut Hardware, core: usize, line: u32) {
        let section = &mut self.sections[core];
        section.stream.push(line.into());
        section.stream.extend_from_slice(on.bytes.newest(line));
        let full = section.stream.len() / LINE_WORDS;
        self.write(on, core, full);
    }

    /// Writes the log's lines up to `end`, but for the first.
    fn write(&mut self, on: &mut Hardware, core: usize, end: usize) {
        let at = self.area(core, self.sections[core].area);
        let now = on.cores[core].clock;
        let section = &mut self.sections[core];
        for number in section.written + 1..end {
            let words = line_of(&section.stream, number);
            let done =
                on.write_uncached(now, at + number as u32, words, Owner::Core(core), Class::Log);
            on.until(core, done);
            section.written = number;
        }
    }

    /// Sections whose lines are in place by the core's clock are complete.
    fn complete(&mut self, on: &mut Hardware, core: usize) {
        let now = on.cores[core].clock;
        for (of, completing) in self.completing.iter_mut().enumerate() {
            if completing.is_some_and(|section| section.done <= now) {
                on.bytes.settle(Owner::Core(of));
                *completing = None;
            }
        }
    }

    fn commit_log(&mut self, on: &mut Hardware, core: usize) {
        let mut buffer = std::mem::take(&mut self.sections[core].buffer);
        buffer.drain(..).for_each(|line| self.append(on, core, line));
        let end = self.sections[core].stream.len().div_ceil(LINE_WORDS);
        self.write(on, core, end);
        if on.parameters.has(Fault::RedoCompletion) {
            self.complete(on, core);
        }
        let sequence = self.sequence;
        self.sequence += 1;
        let incomplete = self.completing.iter().flatten().map(|section| section.sequence).min();
        // A section that commits at the same time is not complete either.
        let committing =
            self.sections.iter().filter(|other| other.is_logged).map(|other| other.last).min();
        let low = [incomplete, committing].into_iter().flatten().min().unwrap_or(sequence);
        let low = if on.parameters.has(Fault::RedoCompletion) { low } else { sequence };
        let at = self.area(core, self.sections[core].area);
        let section = &mut self.sections[core];
        let words = (section.stream.len() - MARK) as u64;
        let vouched = vouch(sequence, low, &section.stream[MARK..]);
        section.stream[..MARK].copy_from_slice(&[sequence, low, words, vouched]);
        let first = line_of(&section.stream, 0);
        let now = on.cores[core].clock;
        let done = on.write_uncached(now, at, first, Owner::Core(core), Class::Log);
        on.until(core, done);
        on.barrier(core);
        (section.last, section.is_logged) = (sequence, true);
    }

    /// The log is durable: the lines go to their places.
    fn put_in_place(&mut self, on: &mut Hardware, core: usize) {
        on.bytes.settle(Owner::Core(core));
        let now = on.cores[core].clock;
        let mut done = now;
        for line in &self.changed[core] {
            on.pin(*line, false);
            done = on.write_back(now, *line, Owner::Core(core)).unwrap_or(now).max(done);
        }
        count(on, &self.changed[core]);
        self.changed[core].clear();
        self.completing[core] = Some(Completing { sequence: self.sections[core].last, done });
        self.clear(core);
        let section = &mut self.sections[core];
        (section.area, section.is_logged) = (1 - section.area, false);
    }

    fn clear(&mut self, core: usize) {
        let section = &mut self.sections[core];
        section.stream.truncate(MARK);
        section.written = 0;
        section.buffer.clear();
    }

    fn read(&self, bytes: &Bytes, at: u32) -> Option<Log> {
        let word =
            |number: usize| bytes.durable(at + (number / LINE_WORDS) as u32)[number % LINE_WORDS];
        let (sequence, low, words, vouched) = (word(0), word(1), word(2) as usize, word(3));
        let most = self.area_lines as usize * LINE_WORDS - MARK;
        if sequence == 0 || words > most || !words.is_multiple_of(ENTRY) {
            return None;
        }
        let stream: Vec<u64> = (MARK..MARK + words).map(word).collect();
        if self.checks_marks && vouch(sequence, low, &stream) != vouched {
            return None;
        }
        let (entries, _) = stream.as_chunks::<ENTRY>();
        let entries = entries.iter().map(|[line, words @ ..]| (*line as u32, *words));
        let entries = entries.filter(|(line, _)| *line < self.layout.header).collect();
        Some(Log { sequence, low, entries })
    }
}

fn line_of(stream: &[u64], number: usize) -> LineWords {
    let from = number * LINE_WORDS;
    std::array::from_fn(|word| stream.get(from + word).copied().unwrap_or(0))
}

impl Engine for Redo {
    fn begin(&mut self, on: &mut Hardware, core: usize) {
        on.barrier(core);
        if on.parameters.left_out == Some(Fault::RedoCompletion) {
            self.completing[core] = None;
            return;
        }
        // Its own, and those that committed before its own last one, so that `low` passes them.
        let last = self.sections[core].last;
        for of in 0..self.completing.len() {
            if let Some(section) = self.completing[of].filter(|section| section.sequence <= last) {
                if on.parameters.redo_waits {
                    on.until(core, section.done);
                }
                on.bytes.settle(Owner::Core(of));
                self.completing[of] = None;
            }
        }
        on.barrier(core);
    }

    fn place(&mut self, on: &mut Hardware, core: usize, line: u32) -> u32 {
        translate(on, core, line)
    }

    fn store(
        &mut self,
        on: &mut Hardware,
        core: usize,
        line: u32,
        first: usize,
        words: &[u64],
    ) -> Result<(), Refused> {
        translate(on, core, line);
        // Room for the line again, should the buffer let it go before its last store.
        let needs =
            self.sections[core].stream.len() + ENTRY * (self.sections[core].buffer.len() + 2);
        if needs > self.area_lines as usize * LINE_WORDS {
            self.abort(on, core);
            return Err(Refused::LogFull { lines: self.area_lines });
        }
        note(&mut self.changed[core], line);
        on.store(core, line);
        on.pin(line, true);
        on.bytes.newest_mut(line)[first..first + words.len()].copy_from_slice(words);
        if !self.sections[core].buffer.contains(&line) {
            self.sections[core].buffer.push_back(line);
            if self.sections[core].buffer.len() > on.parameters.redo_buffer_lines {
                let oldest = self.sections[core].buffer.pop_front();
                oldest.into_iter().for_each(|line| self.append(on, core, line));
            }
        }
        Ok(())
    }

    fn commit(&mut self, on: &mut Hardware, core: usize) -> Commit {
        if self.changed[core].is_empty() {
            on.barrier(core);
            on.events.sections += 1;
            return Commit::Done;
        }
        if !self.sections[core].is_logged {
            self.commit_log(on, core);
            return Commit::Again;
        }
        self.put_in_place(on, core);
        Commit::Done
    }

    fn abort(&mut self, on: &mut Hardware, core: usize) {
        for line in std::mem::take(&mut self.changed[core]) {
            on.drop_line(line);
        }
        self.clear(core);
    }

    fn recover(&mut self, bytes: &mut Bytes) -> Commit {
        bytes.settle(Owner::Background);
        self.recovery += 1;
        match self.recovery {
            1 => {
                let areas = (0..self.sections.len()).flat_map(|core| [(core, 0), (core, 1)]);
                let logs = areas.filter_map(|(core, area)| self.read(bytes, self.area(core, area)));
                let mut logs: Vec<Log> = logs.collect();
                let header = bytes.durable(self.layout.header)[LOW_WORD];
                let low = logs.iter().map(|log| log.low).max().unwrap_or(0).max(header);
                self.sequence =
                    logs.iter().map(|log| log.sequence + 1).max().unwrap_or(1).max(header);
                logs.retain(|log| log.sequence >= low);
                logs.sort_by_key(|log| log.sequence);
                for (line, words) in logs.into_iter().flat_map(|log| log.entries) {
                    *bytes.newest_mut(line) = words;
                    bytes.post(line, Owner::Background);
                }
                Commit::Again
            }
            2 => {
                bytes.newest_mut(self.layout.header)[LOW_WORD] = self.sequence;
                bytes.post(self.layout.header, Owner::Background);
                Commit::Again
            }
            _ => Commit::Done,
        }
    }

    fn recovered_place(&self, line: u32) -> u32 {
        line
    }
}
