//! A preset's memories, links, engines and cores as resources of a fluid.

use super::device::{Copy, Device, EngineCounts, Token};
use super::flows::{Flow, Fluid, Use};
use crate::model::Preset;
use crate::model::preset::{EngineSpec, PresetError};
use std::collections::HashMap;

/// 10^9 bytes a second that nothing here comes near.
const NO_LIMIT: f64 = 1e6;

/// Parts of the model that can be left out, to see what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldOptions {
    /// Engines have no limit of their own.
    pub unlimited_engines: bool,
    /// Memories have no limit.
    pub unlimited_memories: bool,
}

/// A machine with copy engines, in virtual time. Whoever uses it begins something with a number of its own, and hears
/// that number from [`World::next`] when it has ended.
///
/// ```
/// use terrace_machine::Preset;
/// use terrace_machine::fluid::{Copy, World, WorldOptions};
///
/// let preset = Preset::named("xeon-max").unwrap();
/// let mut world = World::new(&preset, WorldOptions::default()).unwrap();
/// // Node 0 is DDR5 and node 8 is the HBM beside it.
/// let (from, to) = (world.numbered(0).unwrap(), world.numbered(8).unwrap());
/// assert!(world.submit(0, Copy { bytes: 1 << 30, count: 1, from, to }, 7));
/// assert_eq!(world.next(), Some(7));
/// let gib_s = 1e9 / world.now();
/// assert!((29.0..30.0).contains(&gib_s), "what one engine copies: {gib_s}");
/// ```
#[derive(Debug)]
pub struct World {
    fluid: Fluid<Token>,
    spec: EngineSpec,
    devices: Vec<Device>,
    /// The resource of each engine, memory and tile's cores.
    engines: Vec<usize>,
    memories: Vec<usize>,
    groups: Vec<usize>,
    /// Resources of reads and writes between tiles of two packages: from the first to the second.
    reads: HashMap<(usize, usize), usize>,
    writes: HashMap<(usize, usize), usize>,
    tile_of: Vec<usize>,
    read_ns: Vec<f64>,
    /// Lines of a sequence that a thread has on their way, in bytes.
    ahead_bytes: f64,
    numbered: Vec<usize>,
}

impl World {
    /// The machine of a preset that has engines.
    ///
    /// # Errors
    /// It has none.
    pub fn new(preset: &Preset, options: WorldOptions) -> Result<World, PresetError> {
        let mut spec =
            preset.engines.clone().ok_or_else(|| PresetError::without_engines(&preset.name))?;
        if options.unlimited_engines {
            spec.gb_s = NO_LIMIT;
        }
        let mut fluid = Fluid::new();
        let tiles = preset.processor.sockets;
        let per_tile = preset.processor.cores_per_socket * preset.processor.threads_per_core;
        let rates = preset
            .node
            .iter()
            .map(|node| if options.unlimited_memories { NO_LIMIT } else { node.read_gb_s });
        let memories = rates.map(|rate| fluid.resource(rate)).collect();
        let engines = (0..tiles).map(|_| fluid.resource(spec.gb_s)).collect();
        let groups = (0..tiles).map(|_| fluid.cores(per_tile as f64)).collect();
        let (mut reads, mut writes) = (HashMap::new(), HashMap::new());
        for (from, to) in (0..tiles).flat_map(|from| (0..tiles).map(move |to| (from, to))) {
            if from / spec.tiles != to / spec.tiles {
                reads.insert((from, to), fluid.resource(spec.package_read_gb_s));
                let link = preset.link.as_ref().map_or(NO_LIMIT, |link| link.gb_s);
                writes.insert((from, to), fluid.resource(link));
            }
        }
        let tile_of: Vec<usize> = preset.node.iter().map(|node| node.socket).collect();
        let is_first = |node: &usize| !tile_of[..*node].contains(&tile_of[*node]);
        let mut numbered: Vec<usize> = (0..tile_of.len()).filter(is_first).collect();
        numbered.extend((0..tile_of.len()).filter(|node| !is_first(node)));
        Ok(World {
            devices: (0..tiles).map(Device::new).collect(),
            read_ns: preset.node.iter().map(|node| node.read_ns).collect(),
            ahead_bytes: (preset.processor.prefetch_lines.max(1) * preset.processor.line_bytes)
                as f64,
            spec,
            fluid,
            engines,
            memories,
            groups,
            reads,
            writes,
            tile_of,
            numbered,
        })
    }

    /// The place in the preset of the node that Linux gives this number: nodes with cores first, each the first memory
    /// of its tile, and then the other memories.
    pub fn numbered(&self, node: u16) -> Option<usize> {
        self.numbered.get(usize::from(node)).copied()
    }

    /// Nodes that there are.
    pub fn nodes(&self) -> usize {
        self.numbered.len()
    }

    /// Engines, one for each tile.
    pub fn engines(&self) -> usize {
        self.devices.len()
    }

    /// The tile of a memory.
    ///
    /// # Panics
    /// If the preset has no such memory.
    pub fn tile(&self, memory: usize) -> usize {
        self.tile_of[memory]
    }

    /// The package of a tile.
    pub fn package(&self, tile: usize) -> usize {
        tile / self.spec.tiles
    }

    /// The figures of the engines.
    pub fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    /// The time, in nanoseconds.
    pub fn now(&self) -> f64 {
        self.fluid.now()
    }

    /// What an engine has counted.
    ///
    /// # Panics
    /// If there is no such engine.
    pub fn counts(&self, engine: usize) -> EngineCounts {
        self.devices[engine].counts()
    }

    /// Puts a descriptor into an engine's queue, in no time; false if it is full. The thread's own work for it is
    /// [`World::compute`].
    ///
    /// # Panics
    /// If there is no such engine or memory.
    pub fn submit(&mut self, engine: usize, copy: Copy, number: u64) -> bool {
        let mut uses = vec![Use { resource: self.engines[engine], cost: 1.0 }];
        self.reads_of(engine, copy.from, 1.0, &mut uses);
        self.writes_of(engine, copy.to, &mut uses);
        self.devices[engine].submit(copy, uses, number, &self.spec, &mut self.fluid)
    }

    /// Waits.
    pub fn after(&mut self, ns: f64, number: u64) {
        self.fluid.after(ns, Token::User(number));
    }

    /// Work of a thread on a tile, of so many nanoseconds with a processor for itself.
    ///
    /// # Panics
    /// If there is no such tile.
    pub fn compute(&mut self, tile: usize, ns: f64, number: u64) {
        let flow =
            Flow { amount: ns, alone: 1.0, uses: Vec::new(), cores: Some(self.groups[tile]) };
        self.fluid.begin(flow, Token::User(number));
    }

    /// A thread on a tile reads so many bytes in order. Alone it has as many lines on their way as the prefetcher runs
    /// ahead, each for the latency of that memory.
    ///
    /// # Panics
    /// If there is no such tile or memory.
    pub fn scan(&mut self, tile: usize, memory: usize, bytes: u64, number: u64) {
        let mut uses = Vec::new();
        self.reads_of(tile, memory, 1.0, &mut uses);
        let alone = self.ahead_bytes / self.latency_ns(tile, memory);
        let flow = Flow { amount: bytes as f64, alone, uses, cores: Some(self.groups[tile]) };
        self.fluid.begin(flow, Token::User(number));
    }

    /// A thread on a tile copies so many bytes by plain stores: each line of the target is read before it is written.
    /// Source and target are two sequences, and the slower one decides.
    ///
    /// # Panics
    /// If there is no such tile or memory.
    pub fn copy_by_core(&mut self, tile: usize, copy: Copy, number: u64) {
        let mut uses = Vec::new();
        self.reads_of(tile, copy.from, 1.0, &mut uses);
        self.reads_of(tile, copy.to, 1.0, &mut uses);
        self.writes_of(tile, copy.to, &mut uses);
        let slower = self.latency_ns(tile, copy.from).max(self.latency_ns(tile, copy.to));
        let amount = copy.bytes as f64 * f64::from(copy.count.max(1));
        let flow =
            Flow { amount, alone: self.ahead_bytes / slower, uses, cores: Some(self.groups[tile]) };
        self.fluid.begin(flow, Token::User(number));
    }

    /// Goes on until something of the user has ended, and returns its number; none if nothing goes on.
    #[allow(
        clippy::should_implement_trait,
        reason = "what it returns depends on what is begun meanwhile"
    )]
    pub fn next(&mut self) -> Option<u64> {
        loop {
            let (spec, fluid) = (&self.spec, &mut self.fluid);
            match fluid.next()? {
                Token::User(number) => return Some(number),
                Token::Fetched(engine) => self.devices[engine].fetched(spec, fluid),
                Token::Dispatched(engine) => self.devices[engine].dispatched(spec, fluid),
                Token::Started(engine, work) => self.devices[engine].started(work, spec, fluid),
                Token::Moved(engine, work) => self.devices[engine].moved(work, spec, fluid),
            }
        }
    }

    fn latency_ns(&self, tile: usize, memory: usize) -> f64 {
        let of = self.tile_of[memory];
        let way = match (tile == of, self.package(tile) == self.package(of)) {
            (true, _) => 0.0,
            (false, true) => self.spec.tile_ns,
            (false, false) => self.spec.package_ns,
        };
        // Never 0: a rate follows from it.
        (self.read_ns[memory] + way).max(1.0)
    }

    fn reads_of(&self, tile: usize, memory: usize, cost: f64, uses: &mut Vec<Use>) {
        uses.push(Use { resource: self.memories[memory], cost });
        if let Some(link) = self.reads.get(&(tile, self.tile_of[memory])) {
            uses.push(Use { resource: *link, cost });
        }
    }

    fn writes_of(&self, tile: usize, memory: usize, uses: &mut Vec<Use>) {
        uses.push(Use { resource: self.memories[memory], cost: self.spec.write_cost });
        if let Some(link) = self.writes.get(&(tile, self.tile_of[memory])) {
            uses.push(Use { resource: *link, cost: 1.0 });
        }
    }
}
