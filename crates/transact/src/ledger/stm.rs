//! Block-STM (Gelashvili et al., 2023), which Miller compares with: orders are executed speculatively, each
//! reading the last version that an earlier order wrote, and validated in block order; one that read what is no
//! longer so is executed again.
//!
//! Here versions are of whole accounts, and a block's accounts are numbered first, so that a version is found
//! without hashing keys. The bank's accounts are not touched before all orders are validated.

use super::bank::{Plan, Task};
use super::clusters::Locals;
use super::orders::{Additions, Orders, Rows};
use super::sum::Sum;
use super::worker_pool::Meeting;
use crate::ledger::accounts::{Field, Slot};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use terrace_memory::{Memory, Spin};

/// The execution of an order: how often it was tried before.
type Incarnation = u32;

/// What an order wrote to an account.
#[derive(Clone, Copy)]
struct Version {
    order: usize,
    incarnation: Incarnation,
    words: [i64; 4],
    /// It will be written again: who needs it waits.
    is_estimate: bool,
}

/// Where what was read came from: an order's execution, or the state before the block.
type Origin = Option<(usize, Incarnation)>;

/// What an execution read and wrote.
#[derive(Default)]
struct Trace {
    reads: Vec<(u32, Origin)>,
    writes: Vec<(u32, [i64; 4])>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TxState {
    Ready,
    Executing,
    Executed,
    Aborting,
}

struct Progress {
    state: TxState,
    incarnation: Incarnation,
    /// Orders that wait for this one's next execution.
    waiting: Vec<usize>,
}

enum Todo {
    Execute(usize, Incarnation),
    Validate(usize, Incarnation),
}

/// A block on its way.
pub(super) struct BlockStm {
    locals: OnceLock<Locals>,
    /// By account, in the order of orders.
    versions: OnceLock<Vec<Mutex<Vec<Version>>>>,
    orders: Vec<Mutex<Progress>>,
    traces: Vec<Mutex<Trace>>,
    next_execution: AtomicUsize,
    next_validation: AtomicUsize,
    /// How often one of the two went back.
    decreased: AtomicUsize,
    active: AtomicUsize,
    is_done: AtomicBool,
    executions: AtomicUsize,
}

impl BlockStm {
    pub fn new(orders: usize) -> BlockStm {
        let progress =
            || Mutex::new(Progress { state: TxState::Ready, incarnation: 0, waiting: Vec::new() });
        BlockStm {
            locals: OnceLock::new(),
            versions: OnceLock::new(),
            orders: (0..orders).map(|_| progress()).collect(),
            traces: (0..orders).map(|_| Mutex::default()).collect(),
            next_execution: AtomicUsize::new(0),
            next_validation: AtomicUsize::new(0),
            decreased: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            is_done: AtomicBool::new(false),
            executions: AtomicUsize::new(0),
        }
    }

    fn versions(&self) -> &[Mutex<Vec<Version>>] {
        self.versions.get().expect("made before anyone executes")
    }

    /// The last version of an account before an order; `Err` names the order that is to be waited for.
    fn read(&self, account: u32, order: usize) -> Result<Option<Version>, usize> {
        let versions = self.versions()[account as usize].lock();
        match versions.iter().rev().find(|version| version.order < order) {
            Some(version) if version.is_estimate => Err(version.order),
            found => Ok(found.copied()),
        }
    }

    /// Publishes what an execution wrote; whether it wrote where its predecessor had not.
    fn record(&self, order: usize, incarnation: Incarnation, trace: Trace) -> bool {
        let mut last = self.traces[order].lock();
        for (account, words) in &trace.writes {
            let version = Version { order, incarnation, words: *words, is_estimate: false };
            let mut versions = self.versions()[*account as usize].lock();
            match versions.binary_search_by_key(&order, |version| version.order) {
                Ok(at) => versions[at] = version,
                Err(at) => versions.insert(at, version),
            }
        }
        let has = |writes: &[(u32, [i64; 4])], account| writes.iter().any(|w| w.0 == account);
        for (account, _) in last.writes.iter().filter(|w| !has(&trace.writes, w.0)) {
            self.versions()[*account as usize].lock().retain(|version| version.order != order);
        }
        let is_wider = trace.writes.iter().any(|w| !has(&last.writes, w.0));
        *last = trace;
        is_wider
    }

    /// Whether what the last execution of an order read is what it would read now.
    fn is_valid(&self, order: usize) -> bool {
        let trace = self.traces[order].lock();
        trace.reads.iter().all(|(account, origin)| match self.read(*account, order) {
            Ok(version) => version.map(|v| (v.order, v.incarnation)) == *origin,
            Err(_) => false,
        })
    }

    fn mark_estimates(&self, order: usize) {
        for (account, _) in &self.traces[order].lock().writes {
            let mut versions = self.versions()[*account as usize].lock();
            versions.iter_mut().filter(|v| v.order == order).for_each(|v| v.is_estimate = true);
        }
    }

    fn go_back(&self, counter: &AtomicUsize, to: usize) {
        counter.fetch_min(to, SeqCst);
        self.decreased.fetch_add(1, SeqCst);
    }

    fn check_done(&self) {
        let decreased = self.decreased.load(SeqCst);
        let reached = self.next_execution.load(SeqCst).min(self.next_validation.load(SeqCst));
        if reached >= self.orders.len()
            && self.active.load(SeqCst) == 0
            && decreased == self.decreased.load(SeqCst)
        {
            self.is_done.store(true, SeqCst);
        }
    }

    /// Takes an order that is ready to be executed.
    fn start(&self, order: usize) -> Option<Todo> {
        if let Some(progress) = self.orders.get(order) {
            let mut progress = progress.lock();
            if progress.state == TxState::Ready {
                progress.state = TxState::Executing;
                return Some(Todo::Execute(order, progress.incarnation));
            }
        }
        self.active.fetch_sub(1, SeqCst);
        None
    }

    fn next(&self) -> Option<Todo> {
        if self.next_validation.load(SeqCst) < self.next_execution.load(SeqCst) {
            self.active.fetch_add(1, SeqCst);
            let order = self.next_validation.fetch_add(1, SeqCst);
            if let Some(progress) = self.orders.get(order) {
                let progress = progress.lock();
                if progress.state == TxState::Executed {
                    return Some(Todo::Validate(order, progress.incarnation));
                }
            }
            self.active.fetch_sub(1, SeqCst);
        } else if self.next_execution.load(SeqCst) < self.orders.len() {
            self.active.fetch_add(1, SeqCst);
            return self.start(self.next_execution.fetch_add(1, SeqCst));
        }
        self.check_done();
        None
    }

    /// Executes an order; what to do next, if that is known.
    fn execute<O: Orders, M: Memory>(
        &self,
        task: &Task<O, M>,
        order: usize,
        incarnation: Incarnation,
    ) -> Option<Todo> {
        self.executions.fetch_add(1, SeqCst);
        let mut rows =
            Speculative { stm: self, task, order, trace: Trace::default(), waits_for: None };
        let status = task.orders.run(order, &mut rows);
        let Speculative { trace, waits_for, .. } = rows;
        if let Some(other) = waits_for {
            if !self.wait_for(order, other) {
                // It has been executed meanwhile.
                return Some(Todo::Execute(order, incarnation));
            }
            self.active.fetch_sub(1, SeqCst);
            return None;
        }
        // The last execution, the one that is validated, tells last.
        task.tell(order, status);
        let is_wider = self.record(order, incarnation, trace);
        self.finish(order, incarnation, is_wider)
    }

    /// Lets `order` wait for the next execution of `other`; not if that has happened.
    fn wait_for(&self, order: usize, other: usize) -> bool {
        let mut progress = self.orders[other].lock();
        if progress.state == TxState::Executed {
            return false;
        }
        self.orders[order].lock().state = TxState::Aborting;
        progress.waiting.push(order);
        true
    }

    fn make_ready(&self, order: usize) {
        let mut progress = self.orders[order].lock();
        progress.incarnation += 1;
        progress.state = TxState::Ready;
    }

    fn finish(&self, order: usize, incarnation: Incarnation, is_wider: bool) -> Option<Todo> {
        let waiting = {
            let mut progress = self.orders[order].lock();
            progress.state = TxState::Executed;
            std::mem::take(&mut progress.waiting)
        };
        waiting.iter().for_each(|waiting| self.make_ready(*waiting));
        if let Some(first) = waiting.iter().min() {
            self.go_back(&self.next_execution, *first);
        }
        if self.next_validation.load(SeqCst) > order {
            if !is_wider {
                return Some(Todo::Validate(order, incarnation));
            }
            self.go_back(&self.next_validation, order);
        }
        self.active.fetch_sub(1, SeqCst);
        None
    }

    fn validate(&self, order: usize, incarnation: Incarnation) -> Option<Todo> {
        if !self.is_valid(order) && self.abort(order, incarnation) {
            self.mark_estimates(order);
            self.make_ready(order);
            self.go_back(&self.next_validation, order + 1);
            if self.next_execution.load(SeqCst) > order {
                return self.start(order);
            }
        }
        self.active.fetch_sub(1, SeqCst);
        None
    }

    /// The first who finds an execution invalid takes it back.
    fn abort(&self, order: usize, incarnation: Incarnation) -> bool {
        let mut progress = self.orders[order].lock();
        let is_first = progress.state == TxState::Executed && progress.incarnation == incarnation;
        if is_first {
            progress.state = TxState::Aborting;
        }
        is_first
    }
}

impl<O: Orders, M: Memory> Plan<O, M> for BlockStm {
    fn work(&self, task: &Task<O, M>, worker: usize, meeting: &Meeting, sum: &mut Sum) {
        if worker == 0 {
            let locals = Locals::of(&task.orders);
            let _first = self.versions.set((0..locals.len()).map(|_| Mutex::default()).collect());
            let _first = self.locals.set(locals);
        }
        meeting.meet();
        let mut todo = None;
        let mut idle = Spin::on(task.accounts.memory());
        while !self.is_done.load(SeqCst) {
            todo = match todo {
                Some(Todo::Execute(order, incarnation)) => self.execute(task, order, incarnation),
                Some(Todo::Validate(order, incarnation)) => self.validate(order, incarnation),
                None => self.next(),
            };
            match todo {
                Some(_) => idle = Spin::on(task.accounts.memory()),
                None => idle.wait(),
            }
        }
        meeting.meet();
        let locals = self.locals.get().expect("by worker 0");
        for account in meeting.part(worker, locals.len()) {
            let last = self.versions()[account].lock().last().copied();
            let slot = locals.slot(account as u32);
            for (field, word) in Field::KEPT.iter().zip(last.map_or([0; 4], |v| v.words)) {
                let by = word - task.accounts.get(slot, *field);
                if last.is_some() && by != 0 {
                    task.accounts.set(slot, *field, word);
                    sum.change(task.accounts.number(slot), *field, by);
                }
            }
        }
    }

    fn rerun(&self) -> usize {
        self.executions.load(SeqCst).saturating_sub(self.orders.len())
    }
}

/// The accounts as an order sees them that may be too early.
struct Speculative<'a, O, M: Memory> {
    stm: &'a BlockStm,
    task: &'a Task<O, M>,
    order: usize,
    trace: Trace,
    /// What it read is about to change: the execution counts for nothing.
    waits_for: Option<usize>,
}

impl<O: Orders, M: Memory> Speculative<'_, O, M> {
    /// The words of an account that this order has written, or writes now.
    fn words(&mut self, slot: Slot) -> &mut [i64; 4] {
        let account = self.stm.locals.get().expect("made before").number(slot);
        let at = self.trace.writes.iter().position(|write| write.0 == account);
        let at = at.unwrap_or_else(|| {
            let version = self.stm.read(account, self.order).unwrap_or_else(|other| {
                self.waits_for = Some(other);
                None
            });
            let before = || Field::KEPT.map(|field| self.task.accounts.get(slot, field));
            let words = version.map_or_else(before, |version| version.words);
            self.trace.reads.push((account, version.map(|v| (v.order, v.incarnation))));
            self.trace.writes.push((account, words));
            self.trace.writes.len() - 1
        });
        &mut self.trace.writes[at].1
    }
}

impl<O: Orders, M: Memory> Rows for Speculative<'_, O, M> {
    fn balance(&mut self, slot: Slot) -> i64 {
        self.words(slot)[0]
    }
}

impl<O: Orders, M: Memory> Additions for Speculative<'_, O, M> {
    fn add(&mut self, slot: Slot, field: Field, by: i64) {
        self.words(slot)[field as usize - Field::Balance as usize] += by;
    }
}
