//! Balancers: which engines take part in a copy, and which part each gets (Fuerst, section 3.2.3).
//!
//! A [`Fleet`] knows beside which memory each engine works. *Single* takes the engine of the source, *push-pull* those
//! of source and destination, *four* as many near them, *brute force* all. *Round-robin* gives whole tasks to one
//! engine after another, for tasks that are too small to divide. Two cases that the paper leaves open are decided
//! here, and told: memory without an engine of its own uses that of its home node; and where source and destination
//! have one engine in common, push-pull adds a neighbour of the same socket, or stays with one engine where there is
//! none.

use crate::engine::{Engine, Refused};
use crate::error::{Error, Result};
use crate::job::Handle;
use crate::range::Node;
use crate::task::Task;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Parts begin at multiples of this.
const STEP_BYTES: usize = 64;
/// Below this a part costs more to hand over than to copy.
pub(crate) const LEAST_BYTES: usize = 256 << 10;

/// How a copy is spread over engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// The engine beside the source.
    Single,
    /// The engines beside source and destination.
    PushPull,
    /// Four: those of the source's socket, and of the destination's where that is another one.
    Four,
    /// All.
    BruteForce,
    /// One engine for each task, each in its turn.
    RoundRobin,
}

/// An engine and its place.
#[derive(Clone, Debug)]
pub struct Station {
    /// The engine.
    pub engine: Engine,
    /// The node beside which it works.
    pub node: Node,
    /// The socket of that node.
    pub socket: u16,
}

/// What a balancer chose.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The engines, each once; never empty.
    pub engines: Vec<Engine>,
    /// The node beside which each of them works.
    pub nodes: Vec<Node>,
    /// Why it is not what the balancer's name says, if so.
    pub remark: Option<&'static str>,
}

impl Choice {
    /// Which part of a copy of so many bytes each engine gets, in their order: its begin and its length, as
    /// [`Engine::submit_over`] divides it. A short copy has fewer parts than there are engines.
    ///
    /// ```
    /// use terrace_movement::{Balancer, Engine, Fleet, Node, Station};
    ///
    /// let station = |node| Station { engine: Engine::cached(), node: Node(node), socket: 0 };
    /// let fleet = Fleet::new(vec![station(0), station(1)], &[]).unwrap();
    /// let choice = fleet.choose(Balancer::BruteForce, Node(0), Node(1)).unwrap();
    /// assert_eq!(choice.nodes, [Node(0), Node(1)]);
    /// assert_eq!(choice.parts(200), [(0, 64), (64, 136)]);
    /// assert_eq!(choice.parts(10), [(0, 10)]);
    /// ```
    pub fn parts(&self, bytes: usize) -> Vec<(usize, usize)> {
        divide(bytes, self.engines.len(), 1)
    }
}

/// Engines with their places.
///
/// ```
/// use terrace_movement::{Balancer, Buffer, Engine, Fleet, Node, Source, Station, Task};
///
/// let station = |node, name| Station { engine: Engine::pool(1, 8).unwrap(), node: Node(node), socket: name };
/// // Node 8 is memory without an engine: its home is node 0.
/// let fleet = Fleet::new(vec![station(0, 0), station(1, 0)], &[(Node(8), Node(0))]).unwrap();
/// let choice = fleet.choose(Balancer::PushPull, Node(0), Node(8)).unwrap();
/// assert_eq!((choice.engines.len(), choice.remark.is_some()), (2, true));
///
/// let source = Source::from(vec![3; 1 << 20]);
/// let task = Task::copy(&source, Buffer::new(vec![0; 1 << 20]), 0).unwrap();
/// let report = fleet.submit(Balancer::PushPull, task, Node(0), Node(8)).unwrap().wait().result.unwrap();
/// assert_eq!(report.shares.len(), 2);
/// ```
#[derive(Debug)]
pub struct Fleet {
    stations: Vec<Station>,
    homes: Vec<(Node, Node)>,
    turn: AtomicUsize,
}

impl Fleet {
    /// Of these engines; `homes` are memory nodes without an engine, each with the node whose engine serves it.
    ///
    /// # Errors
    /// [`Error::NoEngine`] if there is none; [`Error::NoNode`] if a home has none.
    pub fn new(stations: Vec<Station>, homes: &[(Node, Node)]) -> Result<Fleet> {
        if stations.is_empty() {
            return Err(Error::NoEngine("in an empty fleet".into()));
        }
        let fleet = Fleet { stations, homes: homes.to_vec(), turn: AtomicUsize::new(0) };
        for (_, home) in homes {
            fleet.beside(*home)?;
        }
        Ok(fleet)
    }

    /// The engines for a copy from one node to another.
    ///
    /// # Errors
    /// [`Error::NoNode`].
    pub fn choose(&self, balancer: Balancer, from: Node, to: Node) -> Result<Choice> {
        let (source, target) = (self.beside(from)?, self.beside(to)?);
        let (mut chosen, mut remark) = (vec![source], None);
        match balancer {
            Balancer::Single => {}
            Balancer::RoundRobin => {
                chosen = vec![self.turn.fetch_add(1, Relaxed) % self.stations.len()]
            }
            Balancer::PushPull if source != target => chosen.push(target),
            Balancer::PushPull => match self.neighbours(source).next() {
                Some(neighbour) => {
                    chosen.push(neighbour);
                    remark = Some(
                        "source and destination share an engine; a neighbour of the socket helps",
                    );
                }
                None => remark = Some("source and destination share the only engine of the socket"),
            },
            Balancer::Four => {
                let is_one_socket = self.stations[source].socket == self.stations[target].socket;
                // Two of each side, or four of one.
                let own = if is_one_socket { 3 } else { 1 };
                chosen.extend(self.neighbours(source).take(own));
                if !is_one_socket {
                    chosen.push(target);
                    chosen.extend(self.neighbours(target).take(1));
                }
                if chosen.len() < 4 {
                    remark = Some("fewer than four engines on these sockets");
                }
            }
            Balancer::BruteForce => chosen = (0..self.stations.len()).collect(),
        }
        let stations = || chosen.iter().map(|at| &self.stations[*at]);
        let engines = stations().map(|station| station.engine.clone()).collect();
        let nodes = stations().map(|station| station.node).collect();
        Ok(Choice { engines, nodes, remark })
    }

    /// Chooses, and submits.
    ///
    /// # Errors
    /// As [`Fleet::choose`] and [`Engine::submit_over`].
    pub fn submit(
        &self,
        balancer: Balancer,
        task: Task,
        from: Node,
        to: Node,
    ) -> std::result::Result<Handle, Box<Refused>> {
        match self.choose(balancer, from, to) {
            Ok(choice) => Engine::submit_over(&choice.engines, task),
            Err(error) => Err(Box::new(Refused { task, error })),
        }
    }

    /// The engine that serves a node.
    fn beside(&self, node: Node) -> Result<usize> {
        let home =
            self.homes.iter().find(|(memory, _)| *memory == node).map_or(node, |(_, home)| *home);
        let at = self.stations.iter().position(|station| station.node == home);
        at.ok_or_else(|| {
            let mut known: Vec<Node> = self.stations.iter().map(|station| station.node).collect();
            known.extend(self.homes.iter().map(|(memory, _)| *memory));
            let known: Vec<String> = known.iter().map(|node| node.0.to_string()).collect();
            Error::NoNode { node: node.0, known: known.join(", ") }
        })
    }

    /// The other engines of a socket.
    fn neighbours(&self, of: usize) -> impl Iterator<Item = usize> {
        let socket = self.stations[of].socket;
        let others = self.stations.iter().enumerate();
        others.filter(move |(at, station)| *at != of && station.socket == socket).map(|(at, _)| at)
    }
}

/// Divides so many bytes into at most `parts` ranges, which begin at multiples of 64 and have `least` bytes each, the
/// last one what is left over. Never an empty range.
pub(crate) fn divide(bytes: usize, parts: usize, least: usize) -> Vec<(usize, usize)> {
    let parts = parts.min(bytes / least.max(STEP_BYTES)).max(1);
    let part = bytes / parts / STEP_BYTES * STEP_BYTES;
    let range = |at: usize| (at * part, if at + 1 == parts { bytes - at * part } else { part });
    (0..parts).map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::divide;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_the_whole_and_none_is_empty(
            bytes in 1usize..10_000_000, parts in 1usize..20, least in 1usize..100_000,
        ) {
            let ranges = divide(bytes, parts, least);
            prop_assert!(ranges.len() <= parts);
            let mut end = 0;
            for (at, length) in &ranges {
                prop_assert_eq!(*at, end);
                prop_assert!(*length > 0 && at % 64 == 0);
                end += length;
            }
            prop_assert_eq!(end, bytes);
        }
    }
}
