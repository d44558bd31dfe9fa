//! The parts of a probe and their settings.

use super::ProbeError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use terrace_machine::test_bed::TestBed;

/// A part of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Dependent loads by working set.
    Latency,
    /// Bandwidth by flavour, order, piece and threads.
    Bandwidth,
    /// Latency while others move bytes.
    Loaded,
    /// Single pieces written, by flavour.
    Stores,
    /// Misses into a dirty cache.
    DirtyCache,
    /// Pieces of files, of tiers that are files.
    Files,
    /// Copies from and to every memory.
    Copies,
    /// Every node's processors on every memory.
    Remote,
    /// Page faults and huge pages.
    Pages,
}

impl Part {
    /// All of them, in the order they are measured in.
    pub const ALL: [Part; 9] = [
        Part::Latency,
        Part::Bandwidth,
        Part::Loaded,
        Part::Stores,
        Part::DirtyCache,
        Part::Files,
        Part::Copies,
        Part::Remote,
        Part::Pages,
    ];

    fn name(self) -> &'static str {
        match self {
            Part::Latency => "latency",
            Part::Bandwidth => "bandwidth",
            Part::Loaded => "loaded",
            Part::Stores => "stores",
            Part::DirtyCache => "dirty-cache",
            Part::Files => "files",
            Part::Copies => "copies",
            Part::Remote => "remote",
            Part::Pages => "pages",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Part, String> {
        Part::ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| {
            let names = Part::ALL.map(Part::name).join(", ");
            format!("no part `{name}`; known parts: {names}")
        })
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// Nodes and tiers by name; all where empty.
    pub only: Vec<String>,
    /// Parts, in this order.
    pub parts: Vec<Part>,
    /// The most threads; as many as there are processors where absent.
    pub threads: Option<usize>,
    /// Fewer settings.
    pub is_quick: bool,
    /// No measurement begins after so long, on models too; [`QUICK`](super::QUICK) for about a minute in all.
    pub limit: Option<Duration>,
}

impl ProbePlan {
    /// The nodes and tiers it is of.
    pub(super) fn nodes<G: TestBed>(&self, test_bed: &G) -> Result<Vec<String>, ProbeError> {
        let known = [test_bed.nodes(), test_bed.tiers()].concat();
        if self.only.is_empty() {
            return Ok(known);
        }
        match self.only.iter().find(|node| !known.contains(node)) {
            Some(node) => {
                Err(ProbeError::NoSuchNode { node: node.clone(), known: known.join(", ") })
            }
            None => Ok(known.into_iter().filter(|node| self.only.contains(node)).collect()),
        }
    }

    /// Thread counts: 1, 2, 4, ... and the most.
    pub(super) fn threads_of<G: TestBed>(&self, test_bed: &G) -> Vec<usize> {
        let most = self.threads.unwrap_or(test_bed.most_threads());
        let doubled = std::iter::successors(Some(1), |threads| Some(threads * 2));
        let mut counts: Vec<usize> = doubled.take_while(|threads| *threads < most).collect();
        counts.push(most);
        if self.is_quick && counts.len() > 2 {
            counts = vec![1, counts[counts.len() / 2], most];
        }
        counts
    }

    /// Bytes of pieces.
    pub(super) fn pieces(&self) -> &'static [u64] {
        if self.is_quick { &[64, 256, 4096] } else { &[64, 128, 256, 512, 1024, 4096, 65536] }
    }

    /// Bytes of pieces of files.
    pub(super) fn file_pieces(&self) -> &'static [u64] {
        if self.is_quick {
            &[4096, 1 << 20]
        } else {
            &[4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
        }
    }

    /// How long a setting of files is measured.
    pub(super) fn file_time(&self) -> Duration {
        Duration::from_millis(if self.is_quick { 200 } else { 1000 })
    }

    /// Of 100 pieces moved, those written.
    pub(super) fn mixtures(&self) -> &'static [u64] {
        if self.is_quick { &[0, 50] } else { &[0, 25, 50, 75, 100] }
    }

    /// Pauses of the threads that move bytes, ns, the longest first.
    pub(super) fn pauses(&self) -> &'static [u64] {
        if self.is_quick {
            &[20_000, 1_000, 200, 0]
        } else {
            &[20_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 0]
        }
    }

    /// Samples of a distribution.
    pub(super) fn samples(&self) -> u64 {
        if self.is_quick { 2_000 } else { 20_000 }
    }
}
