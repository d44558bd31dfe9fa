//! OranguTAN (Miller, section 4.4): nobody is tracked, nothing is locked. All withdrawals of the block, a
//! barrier, all deposits: two atomic additions a transfer. If every withdrawal found enough, the order did not matter.
//!
//! Where one did not, the order matters to its cluster and to no other. The clusters with such an order give back
//! what they withdrew and are executed again, each in block order by one thread, side by side with the deposits of
//! all others. The paper deposits first and compensates deposits too; since nobody deposits here before it is known
//! whose withdrawals failed, withdrawals are all there is to compensate.
//!
//! Which orders share accounts is found only when one has failed, or, if the last blocks suggest that one will, by
//! one worker beside the withdrawals of the others.

use super::Status;
use super::bank::{Plan, Task};
use super::clusters::Clusters;
use super::orders::{AHEAD, Alone, Among, Orders};
use super::sum::Sum;
use super::worker_pool::Meeting;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use terrace_memory::Memory;

/// An order's withdrawal.
const WITHDRAWN: u8 = 0;
const REFUSED: u8 = 1;
/// It has withdrawn, and what is left is below its floor.
const SHORT: u8 = 2;

/// Orders whose accounts are still near when their deposits come.
const NEAR: usize = 1024;

/// What an execution is wrong without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OmittedStep {
    /// Nobody deposits before all have withdrawn.
    Barrier,
    /// Those who share accounts with a failed order are executed again with it.
    Dependents,
    /// Orders with floors look again when all have withdrawn.
    Confirmation,
}

/// A block on its way.
pub(super) struct Fast {
    withdrawn: Vec<AtomicU8>,
    failed: AtomicUsize,
    /// Clusters are found beside the withdrawals.
    foresees: bool,
    clusters: OnceLock<Clusters>,
    again: OnceLock<Vec<u32>>,
    next: AtomicUsize,
    rerun: AtomicUsize,
    /// For tests that must notice.
    #[cfg(test)]
    pub left_out: Option<OmittedStep>,
    /// Workers that are done with their orders before the others begin.
    #[cfg(test)]
    early: AtomicUsize,
}

impl Fast {
    pub fn new(orders: usize, foresees: bool) -> Fast {
        Fast {
            withdrawn: (0..orders).map(|_| AtomicU8::new(WITHDRAWN)).collect(),
            failed: AtomicUsize::new(0),
            foresees,
            clusters: OnceLock::new(),
            again: OnceLock::new(),
            next: AtomicUsize::new(0),
            rerun: AtomicUsize::new(0),
            #[cfg(test)]
            left_out: None,
            #[cfg(test)]
            early: AtomicUsize::new(0),
        }
    }

    #[cfg(test)]
    fn leaves_out(&self, step: OmittedStep) -> bool {
        self.left_out == Some(step)
    }

    #[cfg(not(test))]
    fn leaves_out(&self, _step: OmittedStep) -> bool {
        false
    }

    /// The mistakes of [`OmittedStep::Barrier`] and [`OmittedStep::Confirmation`] at their worst: the worker with the
    /// later orders has finished them before the others begin.
    fn lets_later_orders_go_first(&self, _worker: usize, _meeting: &Meeting) {
        #[cfg(test)]
        while (self.leaves_out(OmittedStep::Barrier) || self.leaves_out(OmittedStep::Confirmation))
            && self.early.load(std::sync::atomic::Ordering::Acquire)
                < _meeting.workers() - 1 - _worker
        {
            std::thread::yield_now();
        }
    }

    fn lets_earlier_orders_begin(&self) {
        #[cfg(test)]
        self.early.fetch_add(1, std::sync::atomic::Ordering::Release);
    }

    fn fail(&self, order: usize, how: u8) {
        self.withdrawn[order].store(how, Relaxed);
        self.failed.fetch_add(1, Relaxed);
    }

    /// Finds the accounts of a range of orders and withdraws, in one pass, since each account is a miss. Returns when
    /// all have; false if there was an account that there is not, and everything is put back.
    fn withdraw<O: Orders, M: Memory>(
        &self,
        task: &Task<O, M>,
        range: Range<usize>,
        meeting: &Meeting,
        sum: &mut Sum,
    ) -> bool {
        let mut among = Among { accounts: &task.accounts, sum };
        let end = task.find(range.clone(), |order| {
            if !task.orders.withdraw(order, &mut among) {
                self.fail(order, REFUSED);
            }
        });
        if self.leaves_out(OmittedStep::Barrier) {
            self.deposit(task, range.clone(), None, among.sum);
        }
        self.lets_earlier_orders_begin();
        meeting.meet();
        if !task.has_unknown() {
            return true;
        }
        for order in range.start..end {
            if self.withdrawn[order].load(Relaxed) == WITHDRAWN {
                task.orders.take_back(order, &mut among);
            }
        }
        false
    }

    /// The same in two passes; while the others withdraw, the last worker finds the clusters.
    fn withdraw_foreseeing<O: Orders, M: Memory>(
        &self,
        task: &Task<O, M>,
        worker: usize,
        meeting: &Meeting,
        sum: &mut Sum,
    ) -> bool {
        let (orders, accounts) = (&task.orders, &*task.accounts);
        task.find(meeting.part(worker, orders.len()), |_| {});
        meeting.meet();
        if task.has_unknown() {
            return false;
        }
        let withdrawers = meeting.workers() - 1;
        if worker == withdrawers {
            let _first = self.clusters.set(Clusters::of(orders));
        } else {
            let range =
                orders.len() * worker / withdrawers..orders.len() * (worker + 1) / withdrawers;
            let mut among = Among { accounts, sum };
            for order in range {
                if order + AHEAD < orders.len() {
                    orders.each_account(order + AHEAD, |slot| accounts.prefetch_slot(slot));
                }
                if !orders.withdraw(order, &mut among) {
                    self.fail(order, REFUSED);
                }
            }
        }
        if self.leaves_out(OmittedStep::Barrier) {
            self.deposit(task, meeting.part(worker, orders.len()), None, sum);
        }
        meeting.meet();
        true
    }

    /// Numbers of the clusters that have to be executed again.
    fn again(&self) -> Vec<u32> {
        let clusters = self.clusters.get().expect("found before");
        let failed = |order: &u32| self.withdrawn[*order as usize].load(Relaxed) != WITHDRAWN;
        let again = (0..clusters.len()).filter(|c| clusters.members(*c).iter().any(failed));
        again.map(|cluster| cluster as u32).collect()
    }

    /// Deposits of a range of orders, but for those whose first order is in `but`, which is sorted.
    fn deposit<O: Orders, M: Memory>(
        &self,
        task: &Task<O, M>,
        range: Range<usize>,
        but: Option<(&Clusters, &[u32])>,
        sum: &mut Sum,
    ) {
        let mut among = Among { accounts: &task.accounts, sum };
        let firsts: Option<(&Clusters, Vec<u32>)> = but.map(|(clusters, again)| {
            (clusters, again.iter().map(|c| clusters.members(*c as usize)[0]).collect())
        });
        let is_far = range.len() > NEAR;
        for order in range.clone() {
            if is_far && order + AHEAD < range.end {
                task.orders.each_account(order + AHEAD, |slot| task.accounts.prefetch_slot(slot));
            }
            let is_again = firsts.as_ref().is_some_and(|(clusters, firsts)| {
                firsts.binary_search(&clusters.first_of(order)).is_ok()
            });
            if !is_again {
                task.orders.deposit(order, &mut among);
            }
        }
    }

    /// The mistake of [`OmittedStep::Dependents`]: what had succeeded stays.
    fn execute_failed<O: Orders, M: Memory>(
        &self,
        task: &Task<O, M>,
        members: &[u32],
        sum: &mut Sum,
    ) {
        for order in members {
            let order = *order as usize;
            if self.withdrawn[order].load(Relaxed) == WITHDRAWN {
                task.orders.deposit(order, &mut Among { accounts: &task.accounts, sum: &mut *sum });
            } else {
                let mut alone = Alone { accounts: &task.accounts, sum: &mut *sum };
                task.tell(order, task.orders.run(order, &mut alone));
            }
        }
        self.rerun.fetch_add(1, Relaxed);
    }

    /// Undoes a cluster's withdrawals, the last first, and executes it in order.
    fn execute_again<O: Orders, M: Memory>(
        &self,
        task: &Task<O, M>,
        members: &[u32],
        sum: &mut Sum,
    ) {
        if self.leaves_out(OmittedStep::Dependents) {
            return self.execute_failed(task, members, sum);
        }
        let mut alone = Alone { accounts: &task.accounts, sum };
        for order in members.iter().rev() {
            if self.withdrawn[*order as usize].load(Relaxed) != REFUSED {
                task.orders.take_back(*order as usize, &mut alone);
            }
        }
        for order in members {
            let status = task.orders.run(*order as usize, &mut alone);
            task.tell(*order as usize, status);
        }
        self.rerun.fetch_add(members.len(), Relaxed);
    }
}

impl<O: Orders, M: Memory> Plan<O, M> for Fast {
    const FINDS: bool = true;

    fn work(&self, task: &Task<O, M>, worker: usize, meeting: &Meeting, sum: &mut Sum) {
        let orders = &task.orders;
        let range = meeting.part(worker, orders.len());
        let went_on = if self.foresees && meeting.workers() > 1 {
            self.withdraw_foreseeing(task, worker, meeting, sum)
        } else {
            self.lets_later_orders_go_first(worker, meeting);
            self.withdraw(task, range.clone(), meeting, sum)
        };
        if !went_on {
            return;
        }
        if O::CONFIRMS && !self.leaves_out(OmittedStep::Confirmation) {
            for order in range.clone() {
                let has_withdrawn = self.withdrawn[order].load(Relaxed) == WITHDRAWN;
                if has_withdrawn && !orders.confirm(order, &task.accounts) {
                    self.fail(order, SHORT);
                }
            }
            meeting.meet();
        }
        if self.failed.load(Relaxed) == 0 {
            if !self.leaves_out(OmittedStep::Barrier) {
                self.deposit(task, range, None, sum);
            }
            return;
        }
        if worker == 0 {
            self.clusters.get_or_init(|| Clusters::of(orders));
            let _first = self.again.set(self.again());
        }
        meeting.meet();
        let clusters = self.clusters.get().expect("by worker 0");
        let again = self.again.get().expect("by worker 0");
        self.deposit(task, range, Some((clusters, again)), sum);
        while let Some(cluster) = again.get(self.next.fetch_add(1, Relaxed)) {
            self.execute_again(task, clusters.members(*cluster as usize), sum);
        }
    }

    fn rerun(&self) -> usize {
        self.rerun.load(Relaxed)
    }
}

/// One after another: what every other engine must come to.
pub(super) fn in_order<O: Orders, M: Memory>(task: &Task<O, M>, sum: &mut Sum) {
    let mut alone = Alone { accounts: &task.accounts, sum };
    for order in 0..task.orders.len() {
        if order + AHEAD < task.orders.len() {
            task.orders.each_account(order + AHEAD, |slot| task.accounts.prefetch_slot(slot));
        }
        let status = task.orders.run(order, &mut alone);
        if status != Status::Done {
            task.tell(order, status);
        }
    }
}
