//! The paper's machine of copy engines, modelled: two packages of four tiles, each with an engine, DDR5 and HBM
//! (Fuerst, section 3.1). Which engines take part in a copy, and which part each gets, is decided by the product's own
//! balancers ([`Fleet`]); the fluid model says how long it takes.

use super::error::{Error, Result};
use std::io;
use terrace_machine::Preset;
use terrace_machine::fluid::{Copied, Copies, Copy, Mover, Submitter, World, WorldOptions};
use terrace_movement::{Balancer, Engine, Fleet, Node, Station};

/// The preset.
pub(super) const PRESET: &str = "xeon-max";
/// What notes say of the figures that the model rests on.
pub(super) const RESTS_ON: &str = "The fluid model was given: an engine's limit (29.5 GiB/s), DDR5 of a tile \
     (61.0 GiB/s, from table 6.1), reads across packages (MLC); work and waits of a descriptor are \
     assumed (presets/xeon-max.toml)";

/// The machine.
pub(super) struct Tiles {
    pub preset: Preset,
    fleet: Fleet,
    memories: Vec<usize>,
    engines: usize,
}

pub(super) fn other(error: terrace_movement::Error) -> Error {
    Error::system("use copy engines")(io::Error::other(error))
}

fn refused(error: terrace_machine::model::PresetError) -> Error {
    Error::system("model copy engines")(io::Error::other(error))
}

impl Tiles {
    pub fn new() -> Result<Tiles> {
        let preset = Preset::named(PRESET).map_err(refused)?;
        let world = World::new(&preset, WorldOptions::default()).map_err(refused)?;
        let memories = (0..world.nodes() as u16).filter_map(|node| world.numbered(node)).collect();
        let engines = world.engines();
        // Engines of the model are chosen by their nodes; nothing is submitted to those of the fleet.
        let station = |tile: usize| Station {
            engine: Engine::cached(),
            node: Node(tile as u16),
            socket: world.package(tile) as u16,
        };
        let stations = (0..engines).map(station).collect();
        // HBM of a tile has the number of the tile and eight more.
        let homes: Vec<(Node, Node)> =
            (0..engines as u16).map(|tile| (Node(tile + engines as u16), Node(tile))).collect();
        let fleet = Fleet::new(stations, &homes).map_err(other)?;
        Ok(Tiles { preset, fleet, memories, engines })
    }

    /// A memory by the paper's number: 0 to 7 are DDR5, 8 to 15 the HBM beside them.
    pub fn memory(&self, number: u16) -> usize {
        self.memories[usize::from(number)]
    }

    /// One copy, divided by a balancer: each part is submitted by a thread on its engine's tile.
    pub fn divided(
        &self,
        balancer: Balancer,
        from: u16,
        to: u16,
        bytes: u64,
    ) -> Result<Vec<Submitter>> {
        let choice = self.fleet.choose(balancer, Node(from), Node(to)).map_err(other)?;
        let parts = choice.parts(bytes as usize);
        let submitter = |(node, (_, bytes)): (&Node, &(usize, usize))| {
            let tile = usize::from(node.0);
            self.by_engine(tile, from, to, *bytes as u64, 1)
        };
        Ok(choice.nodes.iter().zip(&parts).map(submitter).collect())
    }

    /// A thread that has an engine copy once, or a batch.
    pub fn by_engine(&self, tile: usize, from: u16, to: u16, bytes: u64, count: u32) -> Submitter {
        let copy = Copy { bytes, count, from: self.memory(from), to: self.memory(to) };
        Submitter { tile, mover: Mover::Engine(tile), copy, repetitions: 1 }
    }

    /// A thread that copies.
    pub fn by_core(&self, tile: usize, from: u16, to: u16, bytes: u64) -> Submitter {
        Submitter { mover: Mover::Core, ..self.by_engine(tile, from, to, bytes, 1) }
    }

    /// One thread on each tile.
    pub fn tiles(&self) -> std::ops::Range<usize> {
        0..self.engines
    }

    pub fn run(&self, submitters: Vec<Submitter>) -> Result<Copied> {
        Copies(submitters).run(&self.preset).map_err(refused)
    }

    pub fn run_with(&self, submitters: Vec<Submitter>, options: WorldOptions) -> Result<Copied> {
        Copies(submitters).run_with(&self.preset, options).map_err(refused)
    }

    /// The empty machine.
    pub fn world(&self, options: WorldOptions) -> Result<World> {
        World::new(&self.preset, options).map_err(refused)
    }

    /// The engine of the next task, each in its turn.
    pub fn next_engine(&self) -> Result<usize> {
        let choice = self.fleet.choose(Balancer::RoundRobin, Node(0), Node(0)).map_err(other)?;
        Ok(choice.nodes.first().map_or(0, |node| usize::from(node.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balancers_choose_the_papers_engines_and_parts_are_the_whole() {
        let tiles = Tiles::new().expect("the preset has engines");
        let engines = |balancer, to| -> Vec<usize> {
            let submitters = tiles.divided(balancer, 0, to, 1 << 30).expect("nodes of the machine");
            assert_eq!(submitters.iter().map(|of| of.copy.bytes).sum::<u64>(), 1 << 30);
            submitters.iter().map(|of| of.tile).collect()
        };
        assert_eq!(engines(Balancer::Single, 15), [0]);
        assert_eq!(engines(Balancer::PushPull, 11), [0, 3]);
        assert_eq!(engines(Balancer::PushPull, 15), [0, 7]);
        assert_eq!(
            engines(Balancer::PushPull, 8),
            [0, 1],
            "one engine of both sides, and a neighbour"
        );
        assert_eq!(engines(Balancer::Four, 11), [0, 1, 2, 3]);
        assert_eq!(engines(Balancer::BruteForce, 12).len(), 8);
        let turns: Vec<usize> = (0..9).map(|_| tiles.next_engine().expect("engines")).collect();
        assert_eq!(turns, [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    }
}
