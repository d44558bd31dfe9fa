//! Clusters first, then each of them once, in block order, side by side (Miller, section 4.6: "Dag").
//!
//! Nothing is undone and nothing is atomic, but nothing starts before the clusters are known, and the longest
//! cluster takes as long as it takes. Where several blocks are there at once, the last worker finds the clusters of
//! the next while the others begin with this one ([`Pipe`]), as the paper has a device do.

use super::bank::{Plan, Task};
use super::clusters::Clusters;
use super::orders::{Alone, Orders};
use super::sum::Sum;
use super::worker_pool::{Job, Meeting};
use parking_lot::Mutex;
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
        execute_clusters(task, clusters, &self.next, sum);
    }
}

/// Executes clusters that nobody has taken, until all are.
fn execute_clusters<O: Orders, M: Memory>(
    task: &Task<O, M>,
    clusters: &Clusters,
    next: &AtomicUsize,
    sum: &mut Sum,
) {
    let mut alone = Alone { accounts: &task.accounts, sum };
    loop {
        let from = next.fetch_add(TOGETHER, Relaxed);
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

/// A block whose accounts and clusters are found, unless it has an account that there is not.
pub(super) struct Stage<O: Orders, M: Memory> {
    pub task: Task<O, M>,
    clusters: Option<Clusters>,
}

impl<O: Orders, M: Memory> Stage<O, M> {
    pub fn of(task: Task<O, M>) -> Stage<O, M> {
        task.find(0..task.orders.len(), |_| {});
        let clusters = (!task.has_unknown()).then(|| Clusters::of(&task.orders));
        Stage { task, clusters }
    }
}

/// One block that is executed while the next is prepared. Accounts keep their lines meanwhile.
pub(super) struct Pipe<O: Orders, M: Memory> {
    now: Stage<O, M>,
    taken: AtomicUsize,
    sum: Mutex<Sum>,
    /// The next one's task, until it is prepared.
    next: Mutex<Option<Task<O, M>>>,
    prepared: Mutex<Option<Stage<O, M>>>,
}

impl<O: Orders, M: Memory> Pipe<O, M> {
    pub fn new(now: Stage<O, M>, next: Option<Task<O, M>>) -> Pipe<O, M> {
        let (next, prepared) = (Mutex::new(next), Mutex::new(None));
        Pipe { now, taken: AtomicUsize::new(0), sum: Mutex::default(), next, prepared }
    }

    /// When it was executed: the block, its hash's change, and the next one.
    pub fn end(self) -> (Task<O, M>, Sum, Option<Stage<O, M>>) {
        (self.now.task, self.sum.into_inner(), self.prepared.into_inner())
    }
}

impl<O: Orders, M: Memory> Job for Pipe<O, M> {
    fn work(&self, worker: usize, meeting: &Meeting) {
        if worker + 1 == meeting.workers()
            && let Some(next) = self.next.lock().take()
        {
            *self.prepared.lock() = Some(Stage::of(next));
        }
        let Some(clusters) = &self.now.clusters else { return };
        let mut sum = Sum::default();
        execute_clusters(&self.now.task, clusters, &self.taken, &mut sum);
        let mut all = self.sum.lock();
        *all = all.and(sum);
    }
}
