//! A recording on a modelled machine, with its structures where one likes.

use super::engine::{Operation, Recording};
use std::io;
use std::time::Duration;
use terrace_machine::model::{NodeCounts, Player, PresetError, Stage};
use terrace_machine::{Access, Machine, Preset};

/// The nodes that the index and the records lie on.
pub type Layout<'a> = [&'a str; 2];

/// Of all operations, the part that only fills the caches and is not measured: one in so many.
const WARM_UP: usize = 4;
/// Seed of the modelled caches.
const SEED: u64 = 1;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Played {
    /// Operations that were measured.
    pub operations: usize,
    /// How long they took.
    pub time: Duration,
    /// What was counted on the node of the index meanwhile, and on that of the records.
    pub counts: [NodeCounts; 2],
    /// How long each read took, ns, in rising order.
    pub reads_ns: Vec<f64>,
    /// How long each insert took, as above.
    pub inserts_ns: Vec<f64>,
}

impl Played {
    /// Operations a second.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.time.as_secs_f64()
    }
}

/// Plays a recording with `threads` threads on the cores of the first socket; operations are dealt to
/// them in turn, and each has `server_ns` of work before it that is no access to the structures.
///
/// # Errors
/// The machine has no such nodes.
pub fn play(
    preset: &Preset,
    recording: &Recording,
    layout: Layout<'_>,
    threads: usize,
    server_ns: f64,
) -> io::Result<Played> {
    let machine = Machine::new(preset, threads, SEED);
    let stages = stages(&machine, recording, layout, threads).map_err(io::Error::other)?;
    let warm_up = recording.operations.len() / WARM_UP;
    let (before, measured) = recording.operations.split_at(warm_up);
    run(&machine, &stages, before, server_ns);
    let count = || layout.map(|node| machine.node_counts(node).unwrap_or_default());
    let earlier = count();
    let (time, [reads_ns, inserts_ns]) = run(&machine, &stages, measured, server_ns);
    let later = count();
    let counts = [later[0] - earlier[0], later[1] - earlier[1]];
    Ok(Played { operations: measured.len(), time, counts, reads_ns, inserts_ns })
}

/// Where each thread finds the two memories: they are the same for all, but for the logs.
fn stages(
    machine: &Machine,
    recording: &Recording,
    layout: Layout<'_>,
    threads: usize,
) -> Result<Vec<Vec<Stage>>, PresetError> {
    let mut stages = vec![Vec::new(); threads];
    for (which, node) in layout.into_iter().enumerate() {
        let room = machine.room(node, recording.memory_bytes[which])?;
        let log = &recording.logs[which];
        for of_thread in &mut stages {
            let own = machine.room(node, log.end - log.start)?;
            of_thread.push(Stage::new(room).with_own(log.clone(), own));
        }
    }
    Ok(stages)
}

/// How long operations took together, and each one of them, by its kind, in rising order.
fn run(
    machine: &Machine,
    stages: &[Vec<Stage>],
    operations: &[Operation],
    server_ns: f64,
) -> (Duration, [Vec<f64>; 2]) {
    let hand = |thread: usize| operations.iter().skip(thread).step_by(stages.len());
    let accesses: Vec<Vec<&[Access]>> = (0..stages.len())
        .map(|thread| hand(thread).map(|operation| &operation.accesses[..]).collect())
        .collect();
    let players = stages.iter().zip(&accesses);
    let mut players: Vec<Player<'_>> = players
        .map(|(stages, hand)| Player::new(machine, stages.clone(), hand).working(server_ns))
        .collect();
    let time = machine.run_steps(&mut players);
    let mut took_ns = [Vec::new(), Vec::new()];
    for (thread, player) in players.iter().enumerate() {
        for (operation, ps) in hand(thread).zip(player.took_ps()) {
            took_ns[operation.kind as usize].push(*ps as f64 / 1e3);
        }
    }
    took_ns.iter_mut().for_each(|took| took.sort_by(f64::total_cmp));
    (time, took_ns)
}
