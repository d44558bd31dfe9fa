//! Clusters first, then each of them once, in block order, side by side (paper 002, section 4.6: "Dag").
//!
//! Nothing is undone and nothing is atomic, but nothing starts before the clusters are known, and the longest
//! cluster takes as long as it takes.

use super::bank::{Plan, Task};
use super::clusters::Clusters;
use super::crew::Meeting;
use super::orders::{Alone, Orders};
use super::sum::Sum;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_memory::Memory;

/// Clusters a worker takes at a time.
const TOGETHER: usize = 16;

/// A block on its way.
pub(super) struct Dag {
    clusters: OnceLock<Clusters>,
    /// Clusters are found by all pairs of orders.
    by_pairs: bool,
    next: AtomicUsize,
}

impl Dag {
    pub fn new(by_pairs: bool) -> Dag {
        Dag { clusters: OnceLock::new(), by_pairs, next: AtomicUsize::new(0) }
    }
}

impl<O: Orders, M: Memory> Plan<O, M> for Dag {
    fn work(&self, task: &Task<O, M>, worker: usize, meeting: &Meeting, sum: &mut Sum) {
        if worker == 0 {
            let find = if self.by_pairs { Clusters::by_pairs::<O> } else { Clusters::of::<O> };
            let _first = self.clusters.set(find(&task.orders));
        }
        meeting.meet();
        let clusters = self.clusters.get().expect("by worker 0");
        let mut alone = Alone { accounts: &task.accounts, sum };
        loop {
            let from = self.next.fetch_add(TOGETHER, Relaxed);
            if from >= clusters.len() {
                return;
            }
            for cluster in from..(from + TOGETHER).min(clusters.len()) {
                for order in clusters.members(cluster) {
                    let status = task.orders.run(*order as usize, &mut alone);
                    task.tell(*order as usize, status);
                }
            }
        }
    }
}
