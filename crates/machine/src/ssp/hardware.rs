//! Cores, caches and memory: what all designs run on.
//!
//! The caches are tags for time; what lines hold is in [`Bytes`], where every core sees a line's newest value, as
//! coherent caches do. The shared level includes the others, so a line that it gives up leaves all of them. A load
//! waits for its line. A store goes to the store buffer and its line is fetched behind it; the end of a section, which
//! is a barrier, waits for that.
//!
//! The crate's other model has more of a machine (sockets, fill buffers, DIMMs) and less of this one: no line that
//! changes its tag, no TLB, no banks with rows. So this is one of its own, and shares the other's caches.

use super::bytes::{Bytes, Owner};
use super::controller::{Class, Controller};
use super::parameters::{CacheSize, Parameters, Ps};
use super::tlb::Tlb;
use crate::model::cache::{Cache, Replacement};

/// The line was written and memory does not have it.
const DIRTY: u8 = 1;
/// No cache may give the line up before its section is over: redo logging writes in place last.
const PINNED: u8 = 2;

/// One core.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub clock: Ps,
    /// When its stores, and whatever else its next barrier waits for, are done.
    pub posted: Ps,
    /// What it has to be charged with at the end of a run, where latencies are added from counts.
    pub owed: Ps,
    pub tlb: Tlb,
    l1: Cache,
    l2: Cache,
}

/// Events, over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Lines loaded from and stored to.
    pub accesses: u64,
    /// Sections that committed.
    pub sections: u64,
    /// Lines that sections changed: each once a section.
    pub lines_changed: u64,
    /// Pages that sections changed: each once a section.
    pub pages_changed: u64,
    /// TLB misses.
    pub tlb_misses: u64,
    /// Looks at an entry of the SSP cache that its slice of the last-level cache did not hold.
    pub ssp_cache_misses: u64,
    /// Flips broadcast.
    pub flips: u64,
    /// Pages consolidated.
    pub consolidations: u64,
    /// Pages that were wanted while they were being consolidated.
    pub busy_pages: u64,
    /// TLB misses that found no free slot, and waited for a consolidation.
    pub slot_waits: u64,
    /// Checkpoints of the journal.
    pub checkpoints: u64,
    /// Sections that took the fall-back.
    pub fallbacks: u64,
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Hardware {
    pub parameters: Parameters,
    pub cores: Vec<Core>,
    pub controller: Controller,
    pub bytes: Bytes,
    pub events: Events,
    l3: Cache,
    /// Flags of each physical line.
    flags: Vec<u8>,
    /// A bit for each core whose own caches may hold the line.
    sharers: Vec<u8>,
}

fn cache(size: CacheSize) -> Cache {
    Cache::new(size.lines, size.ways, Replacement::Lru, 0)
}

impl Hardware {
    pub fn new(parameters: &Parameters, lines: u32, pages: u32) -> Hardware {
        let core = Core {
            clock: 0,
            posted: 0,
            owed: 0,
            tlb: Tlb::new(parameters.tlb_entries, pages),
            l1: cache(parameters.l1),
            l2: cache(parameters.l2),
        };
        Hardware {
            parameters: parameters.clone(),
            cores: vec![core; parameters.cores],
            controller: Controller::new(parameters),
            bytes: Bytes::new(lines),
            events: Events::default(),
            l3: cache(parameters.l3),
            flags: vec![0; lines as usize],
            sharers: vec![0; lines as usize],
        }
    }

    /// Memory with so many lines, of which no cache holds one.
    pub fn resize(&mut self, lines: u32) {
        self.flags = vec![0; lines as usize];
        self.sharers = vec![0; lines as usize];
    }

    /// The core computes.
    #[inline]
    pub fn compute(&mut self, core: usize, cycles: u64) {
        self.cores[core].clock += self.parameters.cycles(cycles);
    }

    /// The core waits until everything that it posted is done.
    pub fn barrier(&mut self, core: usize) {
        let core = &mut self.cores[core];
        core.clock = core.clock.max(core.posted);
    }

    /// The core's next barrier waits until `done`.
    #[inline]
    pub fn until(&mut self, core: usize, done: Ps) {
        let posted = &mut self.cores[core].posted;
        *posted = done.max(*posted);
    }

    /// The core loads from the line, and waits for it.
    #[inline]
    pub fn load(&mut self, core: usize, line: u32) {
        self.events.accesses += 1;
        let done = self.fetch(core, line);
        self.cores[core].clock = done + self.parameters.cycles(self.parameters.access_cycles);
    }

    /// The core stores to the line, which it then holds alone and dirty.
    #[inline]
    pub fn store(&mut self, core: usize, line: u32) {
        self.events.accesses += 1;
        let done = self.fetch(core, line);
        let done = done.max(self.own(core, line));
        self.flags[line as usize] |= DIRTY;
        self.until(core, done);
        self.compute(core, self.parameters.store_cycles + self.parameters.access_cycles);
    }

    /// Takes the line from other cores; returns when they have answered.
    fn own(&mut self, core: usize, line: u32) -> Ps {
        let others = self.sharers[line as usize] & !(1 << core);
        if others == 0 {
            return 0;
        }
        self.leave_cores(line, others);
        self.cores[core].clock + self.parameters.cycles(self.parameters.l3.cycles)
    }

    fn leave_cores(&mut self, line: u32, cores: u8) {
        for core in (0..self.cores.len()).filter(|core| cores >> core & 1 == 1) {
            self.cores[core].l1.remove(line.into());
            self.cores[core].l2.remove(line.into());
        }
        self.sharers[line as usize] &= !cores;
    }

    /// Brings the line to the core; returns when it is there.
    #[inline]
    fn fetch(&mut self, core: usize, line: u32) -> Ps {
        let Parameters { cycle_ps, l1, l2, l3, .. } = self.parameters;
        let key = u64::from(line);
        let own = &mut self.cores[core];
        let now = own.clock;
        if own.l1.touch(key, 0).is_some() {
            return now + l1.cycles * cycle_ps;
        }
        if own.l2.touch(key, 0).is_some() {
            own.l1.insert(key, 0);
            return now + l2.cycles * cycle_ps;
        }
        let looked = now + l3.cycles * cycle_ps;
        let done = match self.l3.touch(key, 0) {
            Some(_) => looked,
            None => {
                let done = self.controller.read(looked, line);
                self.enter_l3(line, looked);
                done
            }
        };
        self.enter_core(core, line);
        done
    }

    fn enter_core(&mut self, core: usize, line: u32) {
        let own = &mut self.cores[core];
        if let Some(victim) = own.l2.insert(line.into(), 0) {
            own.l1.remove(victim.line);
            self.sharers[victim.line as usize] &= !(1 << core);
        }
        self.cores[core].l1.insert(line.into(), 0);
        self.sharers[line as usize] |= 1 << core;
    }

    fn enter_l3(&mut self, line: u32, now: Ps) {
        if let Some(victim) = self.l3.insert(line.into(), 0) {
            self.give_up(victim.line as u32, now);
        }
    }

    /// A line that the shared level gave up leaves all caches. A pinned one is kept aside, as in DHTM's overflow list.
    fn give_up(&mut self, line: u32, now: Ps) {
        self.leave_cores(line, self.sharers[line as usize]);
        if self.flags[line as usize] & (DIRTY | PINNED) == DIRTY {
            self.flags[line as usize] &= !DIRTY;
            self.controller.write(now, line, Class::Data);
            self.bytes.write_now(line);
        }
    }

    /// The line leaves all caches, and what was not written of it is lost.
    pub fn drop_line(&mut self, line: u32) {
        self.leave_cores(line, self.sharers[line as usize]);
        self.l3.remove(line.into());
        if self.flags[line as usize] & DIRTY != 0 {
            self.bytes.forget(line);
        }
        self.flags[line as usize] = 0;
    }

    /// The core has the line `from`, and calls it `to` from now on: what it holds is the same, and memory's `to` is
    /// not read.
    pub fn retag(&mut self, core: usize, from: u32, to: u32) {
        let done = self.fetch(core, from);
        let done = done.max(self.own(core, from));
        self.until(core, done);
        debug_assert!(self.flags[from as usize] & DIRTY == 0, "committed lines were written back");
        *self.bytes.newest_mut(to) = *self.bytes.newest(from);
        self.leave_cores(from, self.sharers[from as usize]);
        self.l3.remove(from.into());
        self.leave_cores(to, self.sharers[to as usize]);
        let now = self.cores[core].clock;
        if self.l3.touch(to.into(), 0).is_none() {
            self.enter_l3(to, now);
        }
        self.enter_core(core, to);
        self.flags[to as usize] |= DIRTY;
    }

    /// Writes the line back if it is dirty; it stays cached. Returns when it is durable, if it was sent.
    pub fn write_back(&mut self, now: Ps, line: u32, owner: Owner) -> Option<Ps> {
        let flags = &mut self.flags[line as usize];
        if *flags & DIRTY == 0 {
            return None;
        }
        *flags &= !DIRTY;
        self.bytes.post(line, owner);
        Some(self.controller.write(now, line, Class::Data))
    }

    /// Writes a line past the caches, which do not hold it afterwards. Returns when it is durable.
    pub fn write_uncached(
        &mut self,
        now: Ps,
        line: u32,
        words: [u64; 8],
        owner: Owner,
        class: Class,
    ) -> Ps {
        self.leave_cores(line, self.sharers[line as usize]);
        self.l3.remove(line.into());
        self.flags[line as usize] = 0;
        *self.bytes.newest_mut(line) = words;
        self.bytes.post(line, owner);
        self.controller.write(now, line, class)
    }

    /// Reads a line for the background, from a cache if one has it. Returns when it is there.
    pub fn read_uncached(&mut self, now: Ps, line: u32) -> Ps {
        let looked = now + self.parameters.cycles(self.parameters.l3.cycles);
        if self.l3.peek(line.into()).is_some() {
            looked
        } else {
            self.controller.read(looked, line)
        }
    }

    /// Keeps the line in the caches, or does not any more.
    pub fn pin(&mut self, line: u32, is_pinned: bool) {
        let flags = &mut self.flags[line as usize];
        *flags = if is_pinned { *flags | PINNED } else { *flags & !PINNED };
    }

    /// A cache gives the first dirty line from `from` on up, as the adversary of a crash test wants it.
    pub fn evict_from(&mut self, from: u32) {
        let lines = self.flags.len();
        let found = (0..lines)
            .map(|step| (from as usize + step) % lines)
            .find(|line| self.flags[*line] & (DIRTY | PINNED) == DIRTY);
        if let Some(line) = found {
            self.l3.remove(line as u64);
            let now = self.cores.iter().map(|core| core.clock).min().unwrap_or(0);
            self.give_up(line as u32, now);
        }
    }
}
