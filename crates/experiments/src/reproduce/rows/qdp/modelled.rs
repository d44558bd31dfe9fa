//! The query on the modelled machine: threads of node 0's tile, engines, and the memories that both read.

use crate::reproduce::error::Result;
use crate::reproduce::tiles::Tiles;
use terrace_machine::fluid::{Copy, World, WorldOptions};

/// Where the columns lie, and whether b is prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    Ddr,
    Hbm,
    SameNode,
    Distributed,
}

impl Placement {
    pub fn name(self) -> &'static str {
        match self {
            Placement::Ddr => "DDR5",
            Placement::Hbm => "b in HBM",
            Placement::SameNode => "prefetching",
            Placement::Distributed => "prefetching, columns apart",
        }
    }

    fn is_prefetched(self) -> bool {
        matches!(self, Placement::SameNode | Placement::Distributed)
    }

    /// The node of column b.
    fn node_of_b(self) -> u16 {
        match self {
            Placement::Ddr | Placement::SameNode => 0,
            Placement::Hbm => HBM,
            Placement::Distributed => 1,
        }
    }
}

/// The tile that all threads run on, and the HBM beside it.
const TILE: usize = 0;
const HBM: u16 = 8;

/// Sizes of the query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub column_bytes: u64,
    /// What is filtered, prefetched and added up at a time.
    pub chunk_bytes: u64,
    /// Parts of the columns, each worked on by threads of its own.
    pub groups: usize,
}

impl Query {
    /// The paper's: columns of 4 GiB; 64 threads in the first stage, 32 in the second. Assumed: 32 groups, which make
    /// these one thread of a group for each part; and chunks of 256 KiB, as the paper speaks of many small submissions.
    pub const PAPER: Query = Query { column_bytes: 4 << 30, chunk_bytes: 256 << 10, groups: 32 };
}

/// Threads of the first stage for each of the second.
const FIRST_STAGE: usize = 2;

/// Doublings of the time between two tries of a full queue.
const TRIES_MOST: u32 = 6;

/// What a run took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timed {
    pub total_ns: f64,
    /// Until the last chunk of a was filtered.
    pub scan_a_ns: f64,
    /// Until the last copy was complete.
    pub copies_ns: f64,
    /// Chunks of b that were read from their copies.
    pub hit_rate: f64,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    ScanA,
    ScanB { is_submitting: bool },
    Aggregate { is_reading: bool },
}

struct Group {
    /// Chunks of a that no thread has begun, and that none has ended.
    to_begin: usize,
    to_end: usize,
    next_b: usize,
    /// Refusals of that one by a full queue.
    tries: u32,
    next_sum: usize,
    has_copy: Vec<bool>,
}

struct Running<'a> {
    tiles: &'a Tiles,
    query: Query,
    placement: Placement,
    groups: Vec<Group>,
    /// Part and group of each thread.
    threads: Vec<(Part, usize)>,
    found: Timed,
    hits: usize,
}

/// Numbers from here on are copies: group by group, chunk by chunk.
const COPIES: u64 = 1 << 32;

impl Query {
    /// Runs it.
    pub fn run(self, tiles: &Tiles, placement: Placement, options: WorldOptions) -> Result<Timed> {
        let mut world = tiles.world(options)?;
        let per_group = self.chunks_of_group();
        let group = || Group {
            to_begin: per_group,
            to_end: per_group,
            next_b: 0,
            tries: 0,
            next_sum: 0,
            has_copy: vec![false; per_group],
        };
        let mut running = Running {
            tiles,
            query: self,
            placement,
            groups: (0..self.groups).map(|_| group()).collect(),
            threads: Vec::new(),
            found: Timed::default(),
            hits: 0,
        };
        running.begin(&mut world)?;
        while let Some(number) = world.next() {
            running.go_on(number, &mut world)?;
        }
        running.found.hit_rate = running.hits as f64 / (per_group * self.groups) as f64;
        Ok(running.found)
    }

    fn chunks_of_group(self) -> usize {
        (self.column_bytes / self.chunk_bytes) as usize / self.groups
    }
}

impl Running<'_> {
    fn begin(&mut self, world: &mut World) -> Result<()> {
        for group in 0..self.groups.len() {
            let is_prefetched = self.placement.is_prefetched();
            let scanning = if is_prefetched { FIRST_STAGE - 1 } else { FIRST_STAGE };
            for _ in 0..scanning {
                self.start(Part::ScanA, group, world)?;
            }
            if is_prefetched {
                self.start(Part::ScanB { is_submitting: false }, group, world)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, part: Part, group: usize, world: &mut World) -> Result<()> {
        self.threads.push((part, group));
        self.next(self.threads.len() - 1, world)
    }

    /// The thread's next step, if it has one.
    fn next(&mut self, thread: usize, world: &mut World) -> Result<()> {
        let (part, group) = self.threads[thread];
        let (chunk_bytes, count) = (self.query.chunk_bytes, self.query.chunks_of_group());
        let (access_ns, submit_ns) = (world.spec().access_ns, world.spec().submit_ns);
        let of = &mut self.groups[group];
        match part {
            Part::ScanA if of.to_begin > 0 => {
                of.to_begin -= 1;
                world.scan(TILE, self.tiles.memory(0), chunk_bytes, thread as u64);
            }
            Part::ScanB { .. } if of.next_b < count => {
                self.threads[thread].0 = Part::ScanB { is_submitting: true };
                world.compute(TILE, access_ns + submit_ns, thread as u64);
            }
            Part::Aggregate { .. } if of.next_sum < count => {
                self.threads[thread].0 = Part::Aggregate { is_reading: false };
                let ns = if self.placement.is_prefetched() { access_ns } else { 0.0 };
                world.compute(TILE, ns, thread as u64);
            }
            _ => {}
        }
        Ok(())
    }

    /// After a step.
    fn go_on(&mut self, number: u64, world: &mut World) -> Result<()> {
        let count = self.query.chunks_of_group();
        if number >= COPIES {
            let chunk = (number - COPIES) as usize;
            self.groups[chunk / count].has_copy[chunk % count] = true;
            self.found.copies_ns = world.now();
            return Ok(());
        }
        let thread = number as usize;
        let (part, group) = self.threads[thread];
        match part {
            Part::ScanA => {
                self.groups[group].to_end -= 1;
                self.found.scan_a_ns = world.now();
                if self.groups[group].to_end == 0 {
                    self.start(Part::Aggregate { is_reading: false }, group, world)?;
                }
                self.next(thread, world)
            }
            Part::ScanB { .. } => self.submit(thread, group, world),
            Part::Aggregate { is_reading: false } => {
                let of = &mut self.groups[group];
                let is_hit = of.has_copy[of.next_sum];
                of.next_sum += 1;
                self.hits += usize::from(is_hit);
                let node = if is_hit { HBM } else { self.placement.node_of_b() };
                self.threads[thread].0 = Part::Aggregate { is_reading: true };
                world.scan(TILE, self.tiles.memory(node), self.query.chunk_bytes, thread as u64);
                Ok(())
            }
            Part::Aggregate { is_reading: true } => {
                self.found.total_ns = world.now();
                self.next(thread, world)
            }
        }
    }

    /// The descriptor of the group's next chunk; a full queue is asked again.
    fn submit(&mut self, thread: usize, group: usize, world: &mut World) -> Result<()> {
        let of = &mut self.groups[group];
        let chunk = group * self.query.chunks_of_group() + of.next_b;
        let copy = Copy {
            bytes: self.query.chunk_bytes,
            count: 1,
            from: self.tiles.memory(self.placement.node_of_b()),
            to: self.tiles.memory(HBM),
        };
        if !world.submit(self.tiles.next_engine()?, copy, COPIES + chunk as u64) {
            // It tries ever less often, and keeps its processor: the same time, in fewer steps.
            let ns = world.spec().retry_ns * f64::from(1 << of.tries.min(TRIES_MOST));
            of.tries += 1;
            world.compute(TILE, ns, thread as u64);
            return Ok(());
        }
        of.next_b += 1;
        of.tries = 0;
        self.next(thread, world)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_prefetching_both_columns_are_read_once() {
        let tiles = Tiles::new().expect("the preset has engines");
        let query = Query { column_bytes: 256 << 20, ..Query::PAPER };
        let run = |placement| query.run(&tiles, placement, WorldOptions::default()).expect("a run");
        let node = |number| tiles.preset.node[tiles.memory(number)].read_gb_s;
        let bytes = query.column_bytes as f64;
        let ddr = run(Placement::Ddr);
        assert!((ddr.total_ns / (2.0 * bytes / node(0)) - 1.0).abs() < 1e-3, "{ddr:?}");
        let hbm = run(Placement::Hbm);
        assert!((hbm.total_ns / (bytes / node(0) + bytes / node(8)) - 1.0).abs() < 1e-3, "{hbm:?}");
        assert_eq!((ddr.hit_rate, ddr.copies_ns), (0.0, 0.0));
        let same = run(Placement::SameNode);
        assert!(same.copies_ns > 0.0 && (0.0..=1.0).contains(&same.hit_rate), "{same:?}");
        assert!(same.scan_a_ns > 1.3 * hbm.scan_a_ns, "{same:?} {hbm:?}");
    }
}
