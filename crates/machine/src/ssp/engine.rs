//! What the designs have in common: the trait, and the floor, which has no atomicity.

use super::bytes::{Bytes, Owner};
use super::hardware::Hardware;
use super::parameters::PAGE_LINES;
use super::tlb::Translation;
use std::fmt;

/// Why a store was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The section changes more pages than the write-set buffer holds. It was aborted; run it again by
    /// [`Processor::fall_back`](super::Processor::fall_back).
    TooManyPages {
        /// Pages that the buffer holds.
        pages: usize,
    },
    /// The section changes more than the log holds. It was aborted.
    LogFull {
        /// Lines of the log.
        lines: u32,
    },
    /// The access is outside of the memory, or not at a word.
    OutOfRange {
        /// The offset asked for.
        at: u64,
        /// Bytes of the memory.
        bytes: u64,
    },
    /// The core has no open section, or one already.
    NoSection {
        /// The core.
        core: usize,
    },
    /// The core commits, or falls back with other stores, and goes on with that until it is acknowledged.
    Busy {
        /// The core.
        core: usize,
    },
    /// Power has failed, and recovery is not over.
    NotRecovered,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::TooManyPages { pages } => {
                write!(
                    f,
                    "the section changes more than {pages} pages and was aborted; use the fall-back"
                )
            }
            Refused::LogFull { lines } => {
                write!(
                    f,
                    "the section changes more than its log of {lines} lines holds and was aborted"
                )
            }
            Refused::OutOfRange { at, bytes } => {
                write!(f, "offset {at} is not that of a word in a memory of {bytes} bytes")
            }
            Refused::NoSection { core } => {
                write!(
                    f,
                    "core {core} must be in a section for this, or must not; see Processor::begin"
                )
            }
            Refused::Busy { core } => {
                write!(
                    f,
                    "core {core} commits or falls back; go on with that until it is acknowledged"
                )
            }
            Refused::NotRecovered => {
                write!(f, "power has failed; call Processor::recover until it is over")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// What is left of a commit after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// More steps. Other cores, and a crash, may come between.
    Again,
    /// Acknowledged.
    Done,
}

/// A core's section, as a design makes it failure-atomic. Lines are those of the program.
pub(super) trait Engine: fmt::Debug + Send {
    /// The core begins a section.
    fn begin(&mut self, on: &mut Hardware, core: usize);
    /// Where the program's line lies for a load by the core.
    fn place(&mut self, on: &mut Hardware, core: usize, line: u32) -> u32;
    /// Stores to words of a line, from `first` on.
    fn store(
        &mut self,
        on: &mut Hardware,
        core: usize,
        line: u32,
        first: usize,
        words: &[u64],
    ) -> Result<(), Refused>;
    /// The next step of the core's commit.
    fn commit(&mut self, on: &mut Hardware, core: usize) -> Commit;
    /// Takes the core's section back.
    fn abort(&mut self, on: &mut Hardware, core: usize);
    /// The next step of the background's work, if it has any.
    fn background(&mut self, _on: &mut Hardware) -> bool {
        false
    }
    /// When the background is at, if it has work.
    fn background_clock(&self, _on: &Hardware) -> Option<u64> {
        None
    }
    /// Stores words atomically without regard to their number: steps as of a commit. A design whose sections have
    /// room for as much as their log does it by a section.
    fn fall_back(
        &mut self,
        on: &mut Hardware,
        core: usize,
        stores: &[(u64, u64)],
    ) -> Result<Commit, Refused> {
        self.begin(on, core);
        for (at, value) in stores {
            self.store(on, core, (at / 64) as u32, (at / 8 % 8) as usize, &[*value])?;
        }
        while self.commit(on, core) == Commit::Again {}
        Ok(Commit::Done)
    }
    /// The next step of recovery from what memory holds; other state is as it was made.
    fn recover(&mut self, bytes: &mut Bytes) -> Commit;
    /// Where the program's line lies in memory that has recovered.
    fn recovered_place(&self, line: u32) -> u32;
}

/// Translates by a TLB that knows one place of each page; a miss costs a walk.
pub(super) fn translate(on: &mut Hardware, core: usize, line: u32) -> u32 {
    let page = line / PAGE_LINES;
    if on.cores[core].tlb.look(page).is_none() {
        on.events.tlb_misses += 1;
        on.compute(core, on.parameters.walk_cycles);
        on.cores[core].tlb.insert(page, Translation { places: [page; 2], current: 0 });
    }
    line
}

/// Sorted lines that the open sections of cores have changed.
pub(super) type Changed = Vec<Vec<u32>>;

/// Notes a changed line; returns whether it is the first time in this section.
pub(super) fn note(changed: &mut Vec<u32>, line: u32) -> bool {
    match changed.contains(&line) {
        true => false,
        false => {
            changed.push(line);
            true
        }
    }
}

/// Counts a section that ends with these lines changed.
pub(super) fn count(on: &mut Hardware, changed: &[u32]) {
    let mut pages: Vec<u32> = changed.iter().map(|line| line / PAGE_LINES).collect();
    pages.sort_unstable();
    pages.dedup();
    on.events.lines_changed += changed.len() as u64;
    on.events.pages_changed += pages.len() as u64;
    on.events.sections += 1;
}

/// Writes lines back and has the core wait until they are durable; they are so after its next settling.
pub(super) fn flush(on: &mut Hardware, core: usize, lines: &[u32]) {
    on.barrier(core);
    let now = on.cores[core].clock;
    for line in lines {
        if let Some(done) = on.write_back(now, *line, Owner::Core(core)) {
            on.until(core, done);
        }
    }
    on.barrier(core);
}

/// No atomicity: the floor.
#[derive(Debug)]
pub(super) struct NoAtomicity {
    changed: Changed,
    is_flushed: Vec<bool>,
}

impl NoAtomicity {
    pub fn new(cores: usize) -> NoAtomicity {
        NoAtomicity { changed: vec![Vec::new(); cores], is_flushed: vec![false; cores] }
    }
}

impl Engine for NoAtomicity {
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
        note(&mut self.changed[core], line);
        on.store(core, line);
        on.bytes.newest_mut(line)[first..first + words.len()].copy_from_slice(words);
        Ok(())
    }

    fn commit(&mut self, on: &mut Hardware, core: usize) -> Commit {
        if !std::mem::replace(&mut self.is_flushed[core], true) {
            flush(on, core, &self.changed[core]);
            return Commit::Again;
        }
        on.bytes.settle(Owner::Core(core));
        count(on, &self.changed[core]);
        self.changed[core].clear();
        self.is_flushed[core] = false;
        Commit::Done
    }

    fn abort(&mut self, _on: &mut Hardware, core: usize) {
        // Nothing can be taken back.
        self.changed[core].clear();
    }

    fn recover(&mut self, _bytes: &mut Bytes) -> Commit {
        Commit::Done
    }

    fn recovered_place(&self, line: u32) -> u32 {
        line
    }
}
