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
    doing: Vec<Doing>,
    /// Power has failed and recovery is not over.
    is_down: bool,
}

/// What a core is in the midst of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Nothing,
    Section,
    Commit,
    /// With these stores.
    FallBack(Vec<(u64, u64)>),
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
    /// If the parameters contradict each other, or are more than this model has numbers for; it says which.
    pub fn new(parameters: &Parameters, design: Design, pages: u32) -> Processor {
        if let Err(what) = parameters.check(pages) {
            panic!("{what}");
        }
        let layout = Layout::new(parameters, pages);
        let mut on = Hardware::new(parameters, layout.end, pages);
        Shadow::new(layout, parameters).format(&mut on.bytes);
        let engine = engine(parameters, design, layout);
        let doing = vec![Doing::Nothing; parameters.cores];
        Processor { on, engine, design, layout, doing, is_down: false }
    }

    /// Pages of the program.
    pub(super) fn pages(&self) -> u32 {
        self.layout.pages
    }

    /// Whether the core may do something in a section, or begin one.
    pub(super) fn check(&self, core: usize, in_section: bool) -> Result<(), Refused> {
        if self.is_down {
            return Err(Refused::NotRecovered);
        }
        match self.doing.get(core) {
            Some(Doing::Section) if in_section => Ok(()),
            Some(Doing::Nothing) if !in_section => Ok(()),
            Some(Doing::Commit | Doing::FallBack(_)) => Err(Refused::Busy { core }),
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
    /// [`Refused::NoSection`] if it is in one; [`Refused::Busy`], [`Refused::NotRecovered`].
    pub fn begin(&mut self, core: usize) -> Result<(), Refused> {
        self.check(core, false)?;
        self.engine.begin(&mut self.on, core);
        self.doing[core] = Doing::Section;
        Ok(())
    }

    /// The core loads words, with its own section's stores in them.
    ///
    /// # Errors
    /// [`Refused::NoSection`], [`Refused::Busy`], [`Refused::NotRecovered`], [`Refused::OutOfRange`].
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
    /// Those of [`Processor::load`]; [`Refused::TooManyPages`] and [`Refused::LogFull`], after which the section is
    /// aborted and over.
    pub fn store(&mut self, core: usize, at: u64, words: &[u64]) -> Result<(), Refused> {
        self.check(core, true)?;
        self.check_range(at, words.len())?;
        let (mut at, mut left) = (at, words);
        while !left.is_empty() {
            let (line, first) = ((at / 64) as u32, (at / 8) as usize % LINE_WORDS);
            let (now, later) = left.split_at(left.len().min(LINE_WORDS - first));
            let stored = self.engine.store(&mut self.on, core, line, first, now);
            stored.inspect_err(|_| self.doing[core] = Doing::Nothing)?;
            (at, left) = (at + 8 * now.len() as u64, later);
        }
        Ok(())
    }

    /// The next step of the core's commit; whether it is acknowledged. Until it is, the core can do nothing else.
    ///
    /// # Errors
    /// [`Refused::NoSection`], [`Refused::NotRecovered`]; [`Refused::Busy`] if it falls back.
    pub fn commit(&mut self, core: usize) -> Result<bool, Refused> {
        if self.is_down || self.doing.get(core) != Some(&Doing::Commit) {
            self.check(core, true)?;
        }
        let is_done = self.engine.commit(&mut self.on, core) == Commit::Done;
        self.doing[core] = if is_done { Doing::Nothing } else { Doing::Commit };
        Ok(is_done)
    }

    /// Takes the core's section back.
    ///
    /// # Errors
    /// [`Refused::NoSection`], [`Refused::NotRecovered`]; [`Refused::Busy`] if its commit has begun.
    pub fn abort(&mut self, core: usize) -> Result<(), Refused> {
        self.check(core, true)?;
        self.engine.abort(&mut self.on, core);
        self.doing[core] = Doing::Nothing;
        Ok(())
    }

    /// The next step of storing words atomically by a software log, however many pages they are in; whether it is
    /// acknowledged. Called with the same stores until then. The handler of [`Refused::TooManyPages`].
    ///
    /// # Errors
    /// [`Refused::NoSection`] if the core is in one; [`Refused::Busy`] if it commits, or falls back with other stores;
    /// [`Refused::NotRecovered`], [`Refused::OutOfRange`], [`Refused::LogFull`].
    pub fn fall_back(&mut self, core: usize, stores: &[(u64, u64)]) -> Result<bool, Refused> {
        let is_next = match self.doing.get(core) {
            Some(Doing::FallBack(own)) => !self.is_down && own == stores,
            _ => false,
        };
        if !is_next {
            self.check(core, false)?;
            stores.iter().try_for_each(|(at, _)| self.check_range(*at, 1))?;
        }
        let is_done = self.engine.fall_back(&mut self.on, core, stores)? == Commit::Done;
        if is_done {
            self.doing[core] = Doing::Nothing;
        } else if !is_next {
            self.doing[core] = Doing::FallBack(stores.to_vec());
        }
        Ok(is_done)
    }

    /// The next step of the background thread; whether it had work. It has none until recovery is over.
    pub fn background(&mut self) -> bool {
        !self.is_down && self.engine.background(&mut self.on)
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
        self.doing.fill(Doing::Nothing);
        self.is_down = true;
    }

    /// The next step of recovery; whether it is over, after which cores may begin sections. Without a crash there is
    /// nothing to do.
    pub fn recover(&mut self) -> bool {
        self.is_down = self.is_down && self.engine.recover(&mut self.on.bytes) != Commit::Done;
        !self.is_down
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
