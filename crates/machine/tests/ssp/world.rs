//! Cores that begin, store, load, commit, abort and fall back at random, while caches give up lines, the background
//! works and power fails; and what must be true of it.

use std::collections::{BTreeMap, BTreeSet};
use terrace_machine::ssp::{Design, Parameters, Processor, Refused};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }
}

type Words = BTreeMap<u64, u64>;

/// What a core is doing.
enum Doing {
    Nothing,
    Storing,
    Committing,
    FallingBack,
}

struct Core {
    doing: Doing,
    stores: Words,
    /// Sub-pages that no other core may touch.
    held: BTreeSet<u64>,
}

pub struct World {
    processor: Processor,
    design: Design,
    pages: u64,
    /// Bytes of a sub-page: what a lock protects.
    unit: u64,
    cores: Vec<Core>,
    acknowledged: Words,
    random: Random,
    next_value: u64,
}

/// A small processor, in which everything overflows.
pub fn small(cores: usize, random: &mut Random) -> Parameters {
    let mut small = Parameters::ssp_sim(cores);
    small.tlb_entries = 1 + random.below(3) as usize;
    small.write_set_entries = 2 + random.below(3) as usize;
    small.spare_slots = 1 + random.below(2) as usize;
    small.consolidated_together = 1 + random.below(3) as usize;
    small.records_wait = random.below(2) == 0;
    // Short, so that it goes around; of some seeds' a power of two, which a stride can reach.
    small.journal_lines = 4 * (cores as u32 + 2);
    if random.below(4) == 0 {
        (small.journal_lines, small.journal_stride) = (32, 5);
    }
    (small.l1.lines, small.l1.ways) = (4, 2);
    (small.l2.lines, small.l2.ways) = (8, 4);
    (small.l3.lines, small.l3.ways) = (32, 8);
    small.ssp_slice_entries = 3;
    small.redo_buffer_lines = 2;
    small.log_lines = 64;
    small
}

impl World {
    pub fn new(parameters: &Parameters, design: Design, pages: u32, seed: u64) -> World {
        let core = || Core { doing: Doing::Nothing, stores: Words::new(), held: BTreeSet::new() };
        World {
            processor: Processor::new(parameters, design, pages),
            design,
            pages: pages.into(),
            unit: 64 * u64::from(parameters.sub_page_lines),
            cores: (0..parameters.cores).map(|_| core()).collect(),
            acknowledged: Words::new(),
            random: Random(seed),
            next_value: 1,
        }
    }

    pub fn fallbacks(&self) -> u64 {
        self.processor.events().fallbacks
    }

    /// A word that no other core holds; this one holds it now.
    fn word(&mut self, core: usize) -> Option<u64> {
        // Few sub-pages, so that sections meet, and pages of which more lies in the other place than in the first.
        let page = self.random.below(self.pages);
        let lines = if self.unit < 1024 { 10 } else { 64 };
        let at = 4096 * page + 64 * self.random.below(lines) + 8 * self.random.below(8);
        let unit = at / self.unit;
        let is_taken = (0..self.cores.len())
            .any(|other| other != core && self.cores[other].held.contains(&unit));
        (!is_taken).then(|| {
            self.cores[core].held.insert(unit);
            at
        })
    }

    fn seen(&self, core: usize, at: u64) -> u64 {
        let own = self.cores[core].stores.get(&at);
        own.or_else(|| self.acknowledged.get(&at)).copied().unwrap_or(0)
    }

    /// Something happens. An error says what must not have.
    pub fn step(&mut self) -> Result<(), String> {
        if self.random.below(3) == 0 {
            let number = self.random.below(1 << 40);
            self.processor.evict(number);
        }
        if self.random.below(3) == 0 {
            self.processor.background();
        }
        let core = self.random.below(self.cores.len() as u64) as usize;
        match self.cores[core].doing {
            Doing::Nothing => {
                self.processor.begin(core).map_err(|refused| refused.to_string())?;
                self.cores[core].doing = Doing::Storing;
            }
            Doing::Storing => self.in_section(core)?,
            Doing::Committing => {
                if self.processor.commit(core).map_err(|refused| refused.to_string())? {
                    self.acknowledge(core);
                }
            }
            Doing::FallingBack => {
                let stores: Vec<(u64, u64)> =
                    self.cores[core].stores.iter().map(|(at, value)| (*at, *value)).collect();
                if self.processor.fall_back(core, &stores).map_err(|refused| refused.to_string())? {
                    self.acknowledge(core);
                }
            }
        }
        Ok(())
    }

    fn in_section(&mut self, core: usize) -> Result<(), String> {
        match self.random.below(12) {
            0 => {
                self.processor.abort(core).map_err(|refused| refused.to_string())?;
                self.leave(core);
            }
            1 | 2 => self.cores[core].doing = Doing::Committing,
            3..=5 => {
                let Some(at) = self.word(core) else { return Ok(()) };
                let mut word = [0];
                self.processor.load(core, at, &mut word).map_err(|refused| refused.to_string())?;
                let wanted = self.seen(core, at);
                if word[0] != wanted {
                    return Err(format!("core {core} loaded {} at {at}, not {wanted}", word[0]));
                }
            }
            _ => {
                let Some(at) = self.word(core) else { return Ok(()) };
                let value = self.next_value;
                self.next_value += 1;
                self.cores[core].stores.insert(at, value);
                match self.processor.store(core, at, &[value]) {
                    Ok(()) => {}
                    Err(Refused::TooManyPages { .. } | Refused::LogFull { .. }) => {
                        self.cores[core].doing = Doing::FallingBack;
                    }
                    Err(refused) => return Err(refused.to_string()),
                }
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self, core: usize) {
        let stores = std::mem::take(&mut self.cores[core].stores);
        self.acknowledged.extend(stores);
        self.leave(core);
    }

    fn leave(&mut self, core: usize) {
        let core = &mut self.cores[core];
        core.doing = Doing::Nothing;
        core.stores.clear();
        core.held.clear();
    }

    /// Power fails, recovery runs, and perhaps fails too; then memory is what it must be.
    pub fn crash(&mut self) -> Result<(), String> {
        let seed = self.random.below(u64::MAX);
        self.processor.crash(seed);
        while !self.processor.recover() {
            if self.random.below(8) == 0 {
                let seed = self.random.below(u64::MAX);
                self.processor.crash(seed);
            }
        }
        // Sections that were about to commit are there as a whole, or not at all; others are not.
        for core in 0..self.cores.len() {
            if matches!(self.cores[core].doing, Doing::Committing | Doing::FallingBack) {
                let stores = &self.cores[core].stores;
                let is_there = stores
                    .iter()
                    .next()
                    .is_some_and(|(at, value)| self.processor.recovered(*at) == Some(*value));
                if is_there {
                    self.acknowledge(core);
                }
            }
            self.leave(core);
        }
        for at in (0..self.pages * 4096).step_by(8) {
            let (found, wanted) =
                (self.processor.recovered(at), self.acknowledged.get(&at).copied().unwrap_or(0));
            if found != Some(wanted) {
                let design = self.design.name();
                return Err(format!("{design}: recovery found {found:?} at {at}, not {wanted}"));
            }
        }
        Ok(())
    }
}
