//! Sections as they were recorded, and their play on a processor by virtual time.

use super::engine::{Commit, Refused};
use super::parameters::{LINE_WORDS, Ps};
use super::processor::Processor;

/// Set in a packed access that is a store.
const STORE: u64 = 1 << 63;
const WORDS_SHIFT: u32 = 48;
const AT_MASK: u64 = (1 << WORDS_SHIFT) - 1;

/// What one core does: sections of loads and stores. Values are not on it: a play stores its own.
///
/// ```
/// use terrace_machine::ssp::{Design, Parameters, Processor, Refused, SectionTape};
///
/// let mut tape = SectionTape::default();
/// for number in 0..100 {
///     tape.load(64 * number, 1);
///     tape.store(64 * number, 2);
///     tape.end_section();
/// }
/// let mut processor = Processor::new(&Parameters::ssp_sim(1), Design::Redo, 2);
/// processor.play(&[&tape], 0..100)?;
/// assert_eq!((processor.events().sections, processor.written().data), (100, 100));
/// assert!(processor.elapsed_ps() > 100 * 200_000, "a commit waits for a write");
/// # Ok::<(), Refused>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SectionTape {
    accesses: Vec<u64>,
    /// Where each section ends.
    ends: Vec<usize>,
}

impl SectionTape {
    fn push(&mut self, at: u64, words: u64, flag: u64) {
        let mut from = at / 8;
        let end = from.saturating_add(words);
        assert!(end <= AT_MASK / 8, "a tape has addresses of {WORDS_SHIFT} bits");
        while from < end {
            // Within a line: that is what a core asks for at once.
            let to = end.min((from / LINE_WORDS as u64 + 1) * LINE_WORDS as u64);
            self.accesses.push(flag | ((to - from) << WORDS_SHIFT) | (from * 8));
            from = to;
        }
    }

    /// Words are loaded.
    ///
    /// # Panics
    /// If they lie beyond 2^48 bytes.
    pub fn load(&mut self, at: u64, words: u64) {
        self.push(at, words, 0);
    }

    /// Words are stored.
    ///
    /// # Panics
    /// If they lie beyond 2^48 bytes.
    pub fn store(&mut self, at: u64, words: u64) {
        self.push(at, words, STORE);
    }

    /// What comes is another section's.
    pub fn end_section(&mut self) {
        self.ends.push(self.accesses.len());
    }

    /// How many sections it has.
    pub fn sections(&self) -> usize {
        self.ends.len()
    }

    /// Pages that it reaches.
    pub fn pages(&self) -> u32 {
        let last = self.accesses.iter().map(|access| access & AT_MASK).max();
        last.map_or(0, |last| u32::try_from(last / 4096 + 1).unwrap_or(u32::MAX))
    }

    fn start(&self, section: usize) -> usize {
        section.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

/// A core on its way through its tape.
struct Head<'t> {
    tape: &'t SectionTape,
    next: usize,
    /// Where the section ends that it is in.
    end: usize,
    section: usize,
    last: usize,
    is_open: bool,
    commits: bool,
    stamp: u64,
}

impl Head<'_> {
    fn is_over(&self) -> bool {
        self.section == self.last && !self.is_open
    }

    /// The core's next access, or step of a commit.
    #[inline]
    fn step(&mut self, processor: &mut Processor, core: usize) -> Result<(), Refused> {
        if !self.is_open {
            let cycles = processor.on.parameters.section_cycles;
            processor.on.compute(core, cycles);
            processor.engine.begin(&mut processor.on, core);
            (self.is_open, self.end) = (true, self.tape.ends[self.section]);
            return Ok(());
        }
        if self.next == self.end {
            self.commits = processor.engine.commit(&mut processor.on, core) == Commit::Again;
            if !self.commits {
                (self.is_open, self.section) = (false, self.section + 1);
            }
            return Ok(());
        }
        let access = self.tape.accesses[self.next];
        self.next += 1;
        let at = access & AT_MASK;
        let line = (at / 64) as u32;
        if access & STORE == 0 {
            let place = processor.engine.place(&mut processor.on, core, line);
            processor.on.load(core, place);
            return Ok(());
        }
        let (first, words) = ((at / 8) as usize % LINE_WORDS, (access & !STORE) >> WORDS_SHIFT);
        self.stamp += 1;
        let stamps = [self.stamp; LINE_WORDS];
        let words = &stamps[..(words as usize).min(LINE_WORDS)];
        let stored = processor.engine.store(&mut processor.on, core, line, first, words);
        stored.inspect_err(|_| self.is_open = false)
    }

    /// Leaves no section open: one whose commit has begun ends, another is taken back.
    fn stop(&mut self, processor: &mut Processor, core: usize) {
        while self.commits {
            self.commits = processor.engine.commit(&mut processor.on, core) == Commit::Again;
            self.is_open = self.commits;
        }
        if self.is_open {
            processor.engine.abort(&mut processor.on, core);
        }
    }
}

impl Processor {
    /// Plays sections of the tapes, one tape a core. The core that is furthest behind goes next, by one access or step
    /// of a commit; the background thread goes on as soon as all cores are past its clock.
    ///
    /// # Errors
    /// A section that is too large for its design: [`Refused::TooManyPages`], [`Refused::LogFull`]; no section is open
    /// then. [`Refused::NoSection`], [`Refused::Busy`] if a core was in the midst of something,
    /// [`Refused::NotRecovered`].
    ///
    /// # Panics
    /// If there are more tapes than cores, or a tape has fewer sections or reaches beyond the memory.
    pub fn play(
        &mut self,
        tapes: &[&SectionTape],
        sections: std::ops::Range<usize>,
    ) -> Result<(), Refused> {
        assert!(tapes.len() <= self.on.cores.len(), "the processor has fewer cores");
        (0..self.on.cores.len()).try_for_each(|core| self.check(core, false))?;
        for tape in tapes {
            assert!(sections.end <= tape.sections(), "a tape has {} sections", tape.sections());
            assert!(tape.pages() <= self.pages(), "a tape reaches {} pages", tape.pages());
        }
        let mut heads: Vec<Head<'_>> = tapes
            .iter()
            .map(|tape| {
                let next = tape.start(sections.start);
                let (section, last) = (sections.start, sections.end);
                Head {
                    tape,
                    next,
                    end: next,
                    section,
                    last,
                    is_open: false,
                    commits: false,
                    stamp: 0,
                }
            })
            .collect();
        let furthest = self.elapsed_ps();
        self.on.cores.iter_mut().for_each(|core| core.clock = furthest);
        let played = self.play_heads(&mut heads);
        heads.iter_mut().enumerate().for_each(|(core, head)| head.stop(self, core));
        for core in &mut self.on.cores {
            core.clock += std::mem::take(&mut core.owed);
        }
        played
    }

    fn play_heads(&mut self, heads: &mut [Head<'_>]) -> Result<(), Refused> {
        while let Some(core) = self.behind(heads) {
            let now = self.on.cores[core].clock;
            while self.engine.background_clock(&self.on).is_some_and(|clock| clock <= now) {
                self.engine.background(&mut self.on);
            }
            // It goes on as long as it is not ahead of another.
            let limit = self.limit(heads, core);
            while !heads[core].is_over() && self.on.cores[core].clock <= limit {
                heads[core].step(self, core)?;
                if self.engine.background_clock(&self.on).is_some_and(|clock| clock <= limit) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn behind(&self, heads: &[Head<'_>]) -> Option<usize> {
        let running = (0..heads.len()).filter(|core| !heads[*core].is_over());
        running.min_by_key(|core| self.on.cores[*core].clock)
    }

    fn limit(&self, heads: &[Head<'_>], core: usize) -> Ps {
        let others = (0..heads.len()).filter(|other| *other != core && !heads[*other].is_over());
        others.map(|other| self.on.cores[other].clock).min().unwrap_or(Ps::MAX)
    }
}
