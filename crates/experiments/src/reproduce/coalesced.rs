//! Sweeps of the structures over coalesced nodes: this machine's memory, and the emulated remote one.

use super::error::Error;
use super::figure::{Figure, FigureKind};
use super::measure::{Samples, thread_ns};
use std::io;
use std::sync::Arc;
use terrace_coalesced::trial::{Asked, Set, SetSession};
use terrace_coalesced::{Atomicity, Method, Native, Network, Options, Regime, Remote, Schedule};
use terrace_workload::random::Rng;

/// Threads on this machine's memory.
pub(super) const THREADS: u64 = 2;
/// Clients of each server, as in the paper.
const CLIENTS_OF_A_SERVER: usize = 4;

/// What is asked of a structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Keys are below this; half of them are there at first.
    pub range: u64,
    /// Of a hundred operations.
    pub reads: u64,
    /// Whether half of the updates take keys out.
    pub removes: bool,
}

impl Load {
    fn draw(&self, random: &mut Rng) -> Asked {
        let key = random.below(self.range);
        match random.below(100) {
            kind if kind < self.reads => Asked::Contains(key),
            kind if self.removes && kind % 2 == 0 => Asked::Remove(key),
            _ => Asked::Insert(key),
        }
    }

    /// Puts half of the keys in, in random order.
    fn fill(&self, set: &impl Set) {
        let (mut session, mut random) = (set.enter(), Rng::new(17));
        let mut keys: Vec<u64> = (0..self.range).step_by(2).collect();
        for i in (1..keys.len()).rev() {
            keys.swap(i, random.below(i as u64 + 1) as usize);
        }
        keys.into_iter().for_each(|key| {
            session.ask(Asked::Insert(key));
        });
    }
}

/// Why a structure could not be made.
pub(super) fn refused(e: terrace_coalesced::Error) -> Error {
    Error::system("use a coalesced structure")(io::Error::other(e))
}

/// Operations on this machine's memory for each microsecond of processor time, the median of `repeats`.
pub(super) fn native<S: Set>(set: &S, load: Load, operations: u64, repeats: u64) -> f64 {
    load.fill(set);
    let once = |repeat: u64| {
        let thread = |number: u64| {
            let (mut session, mut random) = (set.enter(), Rng::new(repeat * THREADS + number));
            let start = thread_ns();
            let found = (0..operations).filter(|_| session.ask(load.draw(&mut random))).count();
            std::hint::black_box(found);
            thread_ns() - start
        };
        let ns: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|number| scope.spawn(move || thread(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread ends")).sum()
        });
        (THREADS * operations) as f64 * 1e3 / ns as f64
    };
    (0..repeats).map(once).collect::<Samples>().median()
}

/// Nodes for this machine's memory: replaced, or changed under a sequence lock; a line at a time comes near.
pub(super) fn native_options(elements: usize, regime: Regime) -> Options {
    Options { elements, regime, method: Method::Fragment }
}

/// A memory of this machine.
pub(super) fn native_memory(words: usize) -> Arc<Native> {
    Arc::new(Native::new(words))
}

/// Nodes for the remote memory: fully atomic if they fit into a line.
pub(super) fn remote_options(elements: usize, regime: Regime) -> Options {
    Options { elements, regime, method: Method::CopyPointer }
}

/// What clients of a remote memory did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    /// Operations of all clients for each millisecond of virtual time.
    pub rate: f64,
    /// Accesses over the network for each operation.
    pub trips: f64,
}

/// Has four clients for each of so many servers use a remote memory.
pub(super) fn remote<S: Set>(
    servers: usize,
    words: usize,
    load: Load,
    operations: u64,
    new: impl Fn(Arc<Remote>) -> terrace_coalesced::Result<S>,
) -> Result<Ran, Error> {
    let network = Network { servers, ..Network::default() };
    let memory = Arc::new(Remote::new(words, Atomicity::Line, network, 23).map_err(refused)?);
    let set = new(Arc::clone(&memory)).map_err(refused)?;
    load.fill(&set);
    let clients = servers * CLIENTS_OF_A_SERVER;
    memory.take_turns(clients, Schedule::Clock);
    let sessions: Vec<_> = (0..clients).map(|_| set.enter()).collect();
    std::thread::scope(|scope| {
        for (number, mut session) in sessions.into_iter().enumerate() {
            scope.spawn(move || {
                let mut random = Rng::new(number as u64);
                for _ in 0..operations {
                    session.ask(load.draw(&mut random));
                }
            });
        }
    });
    let all = (clients as u64 * operations) as f64;
    let trips = memory.ended_round_trips() as f64 / all;
    Ok(Ran { rate: all * 1e6 / memory.ended_ns() as f64, trips })
}

/// What a sweep of the remote memory found, for two and for five servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    pub elements: usize,
    pub two: Ran,
    pub five: Ran,
}

impl Swept {
    /// Of nodes of so many elements.
    pub fn of(all: &[Swept], elements: usize) -> Option<&Swept> {
        all.iter().find(|swept| swept.elements == elements)
    }

    /// How many times as fast five servers are as two; not a number of none.
    pub fn growth(swept: Option<&Swept>) -> f64 {
        swept.map_or(f64::NAN, |swept| swept.five.rate / swept.two.rate)
    }

    /// Rates by elements.
    pub fn figure(title: &str, across: &str, all: &[Swept]) -> Figure {
        Figure::new(title, across, "operations/ms", FigureKind::Bars)
            .over(all.iter().map(|swept| swept.elements.to_string()))
            .with("2 servers", all.iter().map(|swept| swept.two.rate))
            .with("5 servers", all.iter().map(|swept| swept.five.rate))
    }

    /// Round trips by elements, for a note.
    pub fn trips(all: &[Swept]) -> String {
        let trips = |swept: &Swept| format!("{:.1} with {}", swept.five.trips, swept.elements);
        all.iter().map(trips).collect::<Vec<_>>().join(", ")
    }
}

/// What to say of the network in a note.
pub(super) const NETWORK: &str = "The remote memory is emulated, in virtual time: 2 us for a round trip, 0.1 us of a \
     server's card for each access and 0.8 ns for each byte (10 Gbit/s, as the paper's network), 4 clients of each \
     server; these figures are given, and none is fitted";
