//! Links between sockets: a latency, and a bandwidth that all threads share.

use super::calendar::Calendar;
use super::preset::{Ablation, LinkSpec};
use super::time::{Ps, from_ns, of_bytes};

/// Both directions between every two sockets.
#[derive(Clone, Debug)]
pub(super) struct Links {
    sockets: usize,
    latency: Ps,
    line: Ps,
    ways: Vec<Calendar>,
}

impl Links {
    pub fn new(
        spec: Option<&LinkSpec>,
        sockets: usize,
        line_bytes: u64,
        without: Ablation,
    ) -> Self {
        let (latency, line) =
            spec.map_or((0, 0), |link| (from_ns(link.latency_ns), of_bytes(line_bytes, link.gb_s)));
        let way = Calendar::new(1, line, !without.queueing);
        Links { sockets, latency, line, ways: vec![way; sockets * sockets] }
    }

    /// Carries a line at `at`; returns when it is there. Nothing within a socket.
    pub fn carry(&mut self, from: usize, to: usize, at: Ps) -> Ps {
        if from == to {
            return at;
        }
        self.ways[from * self.sockets + to].reserve(at, self.line) + self.latency
    }

    /// The latency between two sockets, without a line.
    pub fn latency(&self, from: usize, to: usize) -> Ps {
        if from == to { 0 } else { self.latency }
    }
}
