//! The memory controller's time: DRAM and persistent memory with banks and row buffers, on one bus.
//!
//! First come, first served at each bank, since requests arrive in the order of virtual time. The bus carries a line at
//! a time; when it is taken is settled at the request, so that a read in its bank does not hold up others.

use super::parameters::{Durable, MemoryTiming, Parameters, Ps};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a line was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Data,
    Log,
    Consolidation,
    Checkpoint,
}

/// Lines written to persistent memory, by what they were for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinesWritten {
    /// Lines of sections, written back at their end or given up by a cache.
    pub data: u64,
    /// Sections' undo or redo entries and marks, and their lines of the journal.
    pub log: u64,
    /// Lines copied between a page's two places, with their lines of the journal and of the page table.
    pub consolidation: u64,
    /// Lines of the table of slots, and the journal's tail.
    pub checkpoint: u64,
}

impl LinesWritten {
    /// All of them.
    ///
    /// ```
    /// let written = terrace_machine::ssp::LinesWritten { data: 3, log: 1, ..Default::default() };
    /// assert_eq!(written.all(), 4);
    /// ```
    pub fn all(&self) -> u64 {
        self.data + self.log + self.consolidation + self.checkpoint
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bank {
    free: Ps,
    row: Option<u32>,
}

#[derive(Clone, Debug)]
struct Device {
    timing: MemoryTiming,
    banks: Vec<Bank>,
}

impl Device {
    fn new(timing: MemoryTiming) -> Device {
        Device { timing, banks: vec![Bank::default(); timing.banks as usize] }
    }

    /// The line's bank, and its row there.
    #[inline]
    fn place(&self, line: u32) -> (usize, u32) {
        let MemoryTiming { banks, row_bytes, run_lines, .. } = self.timing;
        let (run, rest) = (line / run_lines, line % run_lines);
        let in_bank = run / banks * run_lines + rest;
        ((run % banks) as usize, in_bank / (row_bytes / 64))
    }
}

/// Both memories and their bus.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    dram: Device,
    pmem: Device,
    bus_free: Ps,
    burst: Ps,
    durable: Durable,
    /// When the writes in the queue have reached their cells, under ADR.
    queue: BinaryHeap<Reverse<Ps>>,
    pub written: LinesWritten,
    pub reads: u64,
}

impl Controller {
    pub fn new(parameters: &Parameters) -> Controller {
        Controller {
            dram: Device::new(parameters.dram),
            pmem: Device::new(parameters.pmem),
            bus_free: 0,
            burst: parameters.burst_ps,
            durable: parameters.durable,
            queue: BinaryHeap::new(),
            written: LinesWritten::default(),
            reads: 0,
        }
    }

    /// When a line that goes to the bus now has passed it.
    #[inline]
    fn bus(&mut self, now: Ps) -> Ps {
        self.bus_free = self.bus_free.max(now) + self.burst;
        self.bus_free
    }

    /// When a line of persistent memory is there.
    pub fn read(&mut self, now: Ps, line: u32) -> Ps {
        self.reads += 1;
        let passed = self.bus(now);
        read(&mut self.pmem, passed, line)
    }

    /// When an entry in DRAM is there.
    pub fn read_dram(&mut self, now: Ps, line: u32) -> Ps {
        let passed = self.bus(now);
        read(&mut self.dram, passed, line)
    }

    /// When a write to persistent memory that is sent now is durable.
    pub fn write(&mut self, now: Ps, line: u32, class: Class) -> Ps {
        let written = &mut self.written;
        *match class {
            Class::Data => &mut written.data,
            Class::Log => &mut written.log,
            Class::Consolidation => &mut written.consolidation,
            Class::Checkpoint => &mut written.checkpoint,
        } += 1;
        let mut sent = now;
        if let Durable::InQueue(lines) = self.durable {
            while self.queue.peek().is_some_and(|Reverse(done)| *done <= now) {
                self.queue.pop();
            }
            if self.queue.len() >= lines.max(1) {
                let Reverse(done) = self.queue.pop().expect("invariant: a full queue is not empty");
                sent = sent.max(done);
            }
        }
        let link = self.pmem.timing.link_ns * 1000;
        let arrived = self.bus(sent) + link;
        let (bank, row) = self.pmem.place(line);
        let MemoryTiming { write_ns, write_hit_ns, .. } = self.pmem.timing;
        let bank = &mut self.pmem.banks[bank];
        let is_open = bank.row.replace(row) == Some(row);
        let takes_ns = write_hit_ns.filter(|_| is_open).unwrap_or(write_ns);
        bank.free = bank.free.max(arrived) + takes_ns * 1000;
        let in_cells = bank.free;
        match self.durable {
            // The answer has to come back.
            Durable::InCells => in_cells + link,
            Durable::InQueue(_) => {
                self.queue.push(Reverse(in_cells));
                arrived + link
            }
        }
    }
}

fn read(device: &mut Device, passed: Ps, line: u32) -> Ps {
    let (bank, row) = device.place(line);
    let timing = device.timing;
    let bank = &mut device.banks[bank];
    let is_open = bank.row.replace(row) == Some(row);
    let takes_ns = if is_open { timing.row_hit_ns } else { timing.read_ns };
    bank.free = bank.free.max(passed + timing.link_ns * 1000) + takes_ns * 1000;
    bank.free + timing.link_ns * 1000
}
