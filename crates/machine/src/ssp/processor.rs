//! The processor as a program sees it: sections on cores, power failures, recovery.

use super::controller::LinesWritten;
use super::engine::{Commit, Engine, NoAtomicity, Refused};
use super::hardware::{Events, Hardware};
use super::layout::Layout;
use super::parameters::{Design, Fault, LINE_WORDS, PAGE_LINES, Parameters, Ps};
use super::redo::Redo;
use super::shadow::Shadow;
use super::undo::Undo;
use crate::random::Rng;

/// A modelled processor with persistent memory, in virtual time.
///
/// Nothing happens by itself: whoever drives it says which core does what next, and when the background thread goes
/// on, so every interleaving can be had. [`Processor::play`] drives it by virtual time.
///
/// ```
/// use terrace_machine::ssp::{Design, Parameters, Processor, Refused};
///
/// let mut processor = Processor::new(&Parameters::ssp_sim(1), Design::Ssp, 8);
/// processor.begin(0)?;
/// processor.store(0, 4096, &[7, 8])?;
/// while !processor.commit(0)? {}
/// processor.begin(0)?;
/// processor.store(0, 4096, &[9])?;
/// processor.crash(1);
/// while !processor.recover() {}
/// assert_eq!(processor.recovered(4096), Some(7));
/// # Ok::<(), Refused>(())
/// ```
#[derive(Debug)]
pub struct Processor {
    pub(super) on: Hardware,
    pub(super) engine: Box<dyn Engine>,
    design: Design,
    layout: Layout,
    open: Vec<bool>,
}

fn engine(parameters: &Parameters, design: Design, layout: Layout) -> Box<dyn Engine> {
    let (cores, log_lines) = (parameters.cores, parameters.log_lines);
    match design {
        Design::None => Box::new(NoAtomicity::new(cores)),
        Design::Undo => Box::new(Undo::new(layout, cores, log_lines)),
        Design::Redo => {
            Box::new(Redo::new(layout, cores, log_lines, parameters.has(Fault::RedoMark)))
        }
        Design::Ssp => Box::new(Shadow::new(layout, parameters)),
    }
}

impl Processor {
    /// A processor of a design with so many pages of persistent memory for the program, all zero.
    ///
    /// # Panics
    /// If the parameters contradict each other: no core, or more than eight; sub-pages that do not divide a page; a
    /// journal too short for a section of each core, or a stride that does not reach all of it.
    pub fn new(parameters: &Parameters, design: Design, pages: u32) -> Processor {
        let each = parameters.batch_lines_max() + parameters.consolidation_lines_max();
        let needs = (parameters.cores as u32 + 2) * each;
        assert!((1..=8).contains(&parameters.cores), "a processor has 1 to 8 cores");
        assert!(
            parameters.sub_page_lines > 0 && PAGE_LINES.is_multiple_of(parameters.sub_page_lines),
            "sub-pages of {} lines do not divide a page of {PAGE_LINES}",
            parameters.sub_page_lines
        );
        let has = parameters.journal_lines;
        assert!(has >= needs, "the journal needs {needs} lines");
        let is_whole = parameters.journal_stride == 1
            || (has.is_power_of_two() && !parameters.journal_stride.is_multiple_of(2));
        assert!(is_whole, "a stride over {has} lines must reach all of them");
        let layout = Layout::new(parameters, pages);
        let mut on = Hardware::new(parameters, layout.end, pages);
        Shadow::new(layout, parameters).format(&mut on.bytes);
        let engine = engine(parameters, design, layout);
        Processor { on, engine, design, layout, open: vec![false; parameters.cores] }
    }

    fn check(&self, core: usize, is_open: bool) -> Result<(), Refused> {
        match self.open.get(core) {
            Some(open) if *open == is_open => Ok(()),
            _ => Err(Refused::NoSection { core }),
        }
    }

    fn check_range(&self, at: u64, words: usize) -> Result<(), Refused> {
        let bytes = u64::from(self.layout.pages * PAGE_LINES) * 64;
        let end = (words as u64).checked_mul(8).and_then(|length| at.checked_add(length));
        match end {
            Some(end) if end <= bytes && at.is_multiple_of(8) => Ok(()),
            _ => Err(Refused::OutOfRange { at, bytes }),
        }
    }

    /// The core begins a section.
    ///
    /// # Errors
    /// [`Refused::NoSection`] if it is in one.
    pub fn begin(&mut self, core: usize) -> Result<(), Refused> {
        self.check(core, false)?;
        self.engine.begin(&mut self.on, core);
        self.open[core] = true;
        Ok(())
    }

    /// The core loads words, with its own section's stores in them.
    ///
    /// # Errors
    /// [`Refused::NoSection`], [`Refused::OutOfRange`].
    pub fn load(&mut self, core: usize, at: u64, words: &mut [u64]) -> Result<(), Refused> {
        self.check(core, true)?;
        self.check_range(at, words.len())?;
        let (mut at, mut left) = (at, words);
        while !left.is_empty() {
            let (line, first) = ((at / 64) as u32, (at / 8) as usize % LINE_WORDS);
            let count = left.len().min(LINE_WORDS - first);
            let place = self.engine.place(&mut self.on, core, line);
            self.on.load(core, place);
            let (now, later) = left.split_at_mut(count);
            now.copy_from_slice(&self.on.bytes.newest(place)[first..first + count]);
            (at, left) = (at + 8 * count as u64, later);
        }
        Ok(())
    }

    /// The core stores words atomically. That no other core's open section changes the same lines (with sub-pages of
    /// four, the same four) is the program's care: sections are atomic and durable, and not isolated.
    ///
    /// # Errors
    /// [`Refused::NoSection`], [`Refused::OutOfRange`]; [`Refused::TooManyPages`] and [`Refused::LogFull`], after which
    /// the section is aborted and over.
    pub fn store(&mut self, core: usize, at: u64, words: &[u64]) -> Result<(), Refused> {
        self.check(core, true)?;
        self.check_range(at, words.len())?;
        let (mut at, mut left) = (at, words);
        while !left.is_empty() {
            let (line, first) = ((at / 64) as u32, (at / 8) as usize % LINE_WORDS);
            let (now, later) = left.split_at(left.len().min(LINE_WORDS - first));
            let stored = self.engine.store(&mut self.on, core, line, first, now);
            stored.inspect_err(|_| self.open[core] = false)?;
            (at, left) = (at + 8 * now.len() as u64, later);
        }
        Ok(())
    }

    /// The next step of the core's commit; whether it is acknowledged. Until it is, the core does nothing else.
    ///
    /// # Errors
    /// [`Refused::NoSection`].
    pub fn commit(&mut self, core: usize) -> Result<bool, Refused> {
        self.check(core, true)?;
        let is_done = self.engine.commit(&mut self.on, core) == Commit::Done;
        self.open[core] = !is_done;
        Ok(is_done)
    }

    /// Takes the core's section back, unless its commit has begun.
    ///
    /// # Errors
    /// [`Refused::NoSection`].
    pub fn abort(&mut self, core: usize) -> Result<(), Refused> {
        self.check(core, true)?;
        self.engine.abort(&mut self.on, core);
        self.open[core] = false;
        Ok(())
    }

    /// The next step of storing words atomically by a software log, however many pages they are in; whether it is
    /// acknowledged. Called with the same stores until then. The handler of [`Refused::TooManyPages`].
    ///
    /// # Errors
    /// [`Refused::NoSection`] if the core is in one, [`Refused::OutOfRange`], [`Refused::LogFull`].
    pub fn fall_back(&mut self, core: usize, stores: &[(u64, u64)]) -> Result<bool, Refused> {
        self.check(core, false)?;
        stores.iter().try_for_each(|(at, _)| self.check_range(*at, 1))?;
        Ok(self.engine.fall_back(&mut self.on, core, stores)? == Commit::Done)
    }

    /// The next step of the background thread; whether it had work.
    pub fn background(&mut self) -> bool {
        self.engine.background(&mut self.on)
    }

    /// A cache gives up a dirty line, chosen by a number, if one may be given up.
    pub fn evict(&mut self, number: u64) {
        self.on.evict_from((number % u64::from(self.layout.end)) as u32);
    }

    /// Power fails. Caches, buffers and everything transient are lost; what was on its way to memory arrives, is lost
    /// or is torn, as the seed says. [`Processor::recover`] comes next.
    pub fn crash(&mut self, seed: u64) {
        self.on.bytes.crash(&mut Rng::new(seed));
        let parameters = self.on.parameters.clone();
        let mut on = Hardware::new(&parameters, 0, self.layout.pages);
        std::mem::swap(&mut on.bytes, &mut self.on.bytes);
        on.resize(self.layout.end);
        self.engine = engine(&parameters, self.design, self.layout);
        self.on = on;
        self.open.fill(false);
    }

    /// The next step of recovery; whether it is over, after which cores may begin sections.
    pub fn recover(&mut self) -> bool {
        self.engine.recover(&mut self.on.bytes) == Commit::Done
    }

    /// The durable word at `at`, after recovery; none if there is no such word.
    pub fn recovered(&self, at: u64) -> Option<u64> {
        self.check_range(at, 1).ok()?;
        let line = self.engine.recovered_place((at / 64) as u32);
        Some(self.on.bytes.durable(line)[(at / 8) as usize % LINE_WORDS])
    }

    /// Counts events and lines written from zero again; time goes on.
    pub fn clear_counts(&mut self) {
        self.on.events = Events::default();
        self.on.controller.written = LinesWritten::default();
    }

    /// What has happened.
    pub fn events(&self) -> Events {
        self.on.events
    }

    /// What was written to persistent memory.
    pub fn written(&self) -> LinesWritten {
        self.on.controller.written
    }

    /// Virtual time of the core that is furthest, ps.
    pub fn elapsed_ps(&self) -> Ps {
        self.on.cores.iter().map(|core| core.clock).max().unwrap_or(0)
    }
}
