//! Hardware undo logging: the naive one of Ni, section 3.3.1.
//!
//! ```text
//! log:    | generation | entries, two lines each: line, generation, hash | old words |
//! store   the first to a line in a section: log the old words, WAIT, store in place
//! commit  write the lines back, WAIT, raise the generation, WAIT
//! recover put the old words of the generation back, last first; raise the generation
//! ```
//! The log's buffer remembers which lines a section has logged. An entry is durable on its own before the store goes
//! on, so it takes whole lines: the old one, and one for what it is.

use super::bytes::{Bytes, LineWords, Owner, hash};
use super::controller::Class;
use super::engine::{Changed, Commit, Engine, Refused, count, flush, note, translate};
use super::hardware::Hardware;
use super::layout::Layout;
use super::parameters::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Flushed,
    Marked,
}

#[derive(Debug)]
pub(super) struct Undo {
    layout: Layout,
    log_lines: u32,
    changed: Changed,
    /// Old words of the open sections, in the order of `changed`.
    old: Vec<Vec<LineWords>>,
    generation: Vec<u64>,
    phase: Vec<Phase>,
    recovery: u32,
}

fn vouch(line: u64, generation: u64, old: &LineWords) -> u64 {
    hash(line ^ generation << 32, old.iter().copied())
}

impl Undo {
    pub fn new(layout: Layout, cores: usize, log_lines: u32) -> Undo {
        Undo {
            layout,
            log_lines,
            changed: vec![Vec::new(); cores],
            old: vec![Vec::new(); cores],
            generation: vec![0; cores],
            phase: vec![Phase::Open; cores],
            recovery: 0,
        }
    }

    /// Logs the line's old words, and waits for them.
    fn log(&mut self, on: &mut Hardware, core: usize, line: u32) {
        let entry = self.layout.log(core) + 1 + 2 * self.old[core].len() as u32;
        let (old, generation) = (*on.bytes.newest(line), self.generation[core]);
        self.old[core].push(old);
        let vouched = vouch(line.into(), generation, &old);
        let head = [line.into(), generation, vouched, 0, 0, 0, 0, 0];
        let (now, owner) = (on.cores[core].clock, Owner::Core(core));
        let head_done = on.write_uncached(now, entry, head, owner, Class::Log);
        let done = on.write_uncached(now, entry + 1, old, owner, Class::Log).max(head_done);
        on.until(core, done);
        if on.parameters.has(Fault::UndoLog) {
            on.barrier(core);
            on.bytes.settle(owner);
        }
    }

    /// What was stored counts: the log's entries do not any more.
    fn raise(&mut self, on: &mut Hardware, core: usize) {
        self.generation[core] += 1;
        let mark = [self.generation[core], 0, 0, 0, 0, 0, 0, 0];
        let (now, at) = (on.cores[core].clock, self.layout.log(core));
        let done = on.write_uncached(now, at, mark, Owner::Core(core), Class::Log);
        on.until(core, done);
        on.barrier(core);
    }
}

impl Engine for Undo {
    fn begin(&mut self, on: &mut Hardware, core: usize) {
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
        if note(&mut self.changed[core], line) {
            if 2 * self.old[core].len() as u32 + 3 > self.log_lines {
                self.changed[core].pop();
                self.abort(on, core);
                return Err(Refused::LogFull { lines: self.log_lines });
            }
            // The old line comes to the core before it can go to the log.
            on.load(core, line);
            self.log(on, core, line);
        }
        on.store(core, line);
        on.bytes.newest_mut(line)[first..first + words.len()].copy_from_slice(words);
        Ok(())
    }

    fn commit(&mut self, on: &mut Hardware, core: usize) -> Commit {
        match self.phase[core] {
            Phase::Open if self.changed[core].is_empty() => {
                on.barrier(core);
                on.events.sections += 1;
                return Commit::Done;
            }
            Phase::Open => {
                flush(on, core, &self.changed[core]);
                self.phase[core] = Phase::Flushed;
            }
            Phase::Flushed => {
                on.bytes.settle(Owner::Core(core));
                self.raise(on, core);
                self.phase[core] = Phase::Marked;
            }
            Phase::Marked => {
                on.bytes.settle(Owner::Core(core));
                count(on, &self.changed[core]);
                self.changed[core].clear();
                self.old[core].clear();
                self.phase[core] = Phase::Open;
                return Commit::Done;
            }
        }
        Commit::Again
    }

    fn abort(&mut self, on: &mut Hardware, core: usize) {
        let lines = std::mem::take(&mut self.changed[core]);
        let old = std::mem::take(&mut self.old[core]);
        if lines.is_empty() {
            return;
        }
        for (line, old) in lines.iter().zip(&old) {
            on.store(core, *line);
            *on.bytes.newest_mut(*line) = *old;
        }
        flush(on, core, &lines);
        on.bytes.settle(Owner::Core(core));
        self.raise(on, core);
        on.bytes.settle(Owner::Core(core));
    }

    fn recover(&mut self, bytes: &mut Bytes) -> Commit {
        bytes.settle(Owner::Background);
        self.recovery += 1;
        let cores = self.generation.len();
        match self.recovery {
            1 => {
                for core in 0..cores {
                    let at = self.layout.log(core);
                    self.generation[core] = bytes.durable(at)[0];
                    let mut entries = Vec::new();
                    for entry in (at + 1..at + self.log_lines - 1).step_by(2) {
                        let ([line, of, vouched, ..], old) =
                            (*bytes.durable(entry), *bytes.durable(entry + 1));
                        if of != self.generation[core] || vouched != vouch(line, of, &old) {
                            break;
                        }
                        entries.push((line as u32, old));
                    }
                    for (line, old) in entries.into_iter().rev() {
                        *bytes.newest_mut(line) = old;
                        bytes.post(line, Owner::Background);
                    }
                }
                Commit::Again
            }
            2 => {
                for core in 0..cores {
                    self.generation[core] += 1;
                    let at = self.layout.log(core);
                    bytes.newest_mut(at)[0] = self.generation[core];
                    bytes.post(at, Owner::Background);
                }
                Commit::Again
            }
            _ => Commit::Done,
        }
    }

    fn recovered_place(&self, line: u32) -> u32 {
        line
    }
}
