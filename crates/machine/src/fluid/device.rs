//! A copy engine with its work queue.
//!
//! A descriptor waits in the queue, is taken, starts, moves its bytes as a flow, and its end is seen by whoever polls.
//! Of one engine, beginnings are `dispatch_ns` apart and `in_flight` descriptors are under way. A batch is one place of
//! the queue; its list is read first, and it has ended when all of it has.

use super::flows::{Flow, Fluid, Use};
use crate::model::preset::EngineSpec;
use std::collections::VecDeque;

/// A descriptor: one copy, or a batch of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Bytes of each.
    pub bytes: u64,
    /// Copies of the batch; 1 is no batch.
    pub count: u32,
    /// The memory that is read, by its place in the preset.
    pub from: usize,
    /// The memory that is written.
    pub to: usize,
}

/// What an engine has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// Descriptors that it executed, those of batches one by one.
    pub executed: u64,
    /// Submissions that its full queue refused.
    pub retries: u64,
    /// Bytes of what it executed.
    pub bytes: u64,
}

/// What happens next, of an engine or of whoever uses the world.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token {
    User(u64),
    /// The list of the batch that the engine took is there.
    Fetched(usize),
    /// The engine can begin its next descriptor.
    Dispatched(usize),
    /// A descriptor's first bytes are there; engine and work.
    Started(usize, usize),
    /// A descriptor's last bytes are there.
    Moved(usize, usize),
}

#[derive(Debug)]
struct Work {
    copy: Copy,
    uses: Vec<Use>,
    token: u64,
    /// Copies that have not begun, and those that have not ended.
    to_begin: u32,
    to_end: u32,
}

/// One engine.
#[derive(Debug)]
pub(super) struct Device {
    number: usize,
    queue: VecDeque<usize>,
    works: Vec<Work>,
    free: Vec<usize>,
    /// The descriptor that was taken and of which something has not begun.
    taken: Option<usize>,
    under_way: usize,
    is_dispatching: bool,
    counts: EngineCounts,
}

impl Device {
    pub fn new(number: usize) -> Device {
        Device {
            number,
            queue: VecDeque::new(),
            works: Vec::new(),
            free: Vec::new(),
            taken: None,
            under_way: 0,
            is_dispatching: false,
            counts: EngineCounts::default(),
        }
    }

    pub fn counts(&self) -> EngineCounts {
        self.counts
    }

    /// False if the queue is full.
    pub fn submit(
        &mut self,
        copy: Copy,
        uses: Vec<Use>,
        token: u64,
        spec: &EngineSpec,
        fluid: &mut Fluid<Token>,
    ) -> bool {
        if self.queue.len() >= spec.queue {
            self.counts.retries += 1;
            return false;
        }
        let count = copy.count.max(1);
        let work = Work { copy, uses, token, to_begin: count, to_end: count };
        let at = match self.free.pop() {
            Some(at) => {
                self.works[at] = work;
                at
            }
            None => {
                self.works.push(work);
                self.works.len() - 1
            }
        };
        self.queue.push_back(at);
        self.pump(spec, fluid);
        true
    }

    /// Begins what can begin.
    fn pump(&mut self, spec: &EngineSpec, fluid: &mut Fluid<Token>) {
        if self.is_dispatching || self.under_way >= spec.in_flight {
            return;
        }
        if self.taken.is_none() {
            let Some(next) = self.queue.pop_front() else { return };
            self.taken = Some(next);
            if self.works[next].to_begin > 1 {
                self.is_dispatching = true;
                fluid.after(spec.fetch_ns, Token::Fetched(self.number));
                return;
            }
        }
        self.is_dispatching = true;
        fluid.after(spec.dispatch_ns, Token::Dispatched(self.number));
    }

    pub fn fetched(&mut self, spec: &EngineSpec, fluid: &mut Fluid<Token>) {
        self.is_dispatching = false;
        self.pump(spec, fluid);
    }

    pub fn dispatched(&mut self, spec: &EngineSpec, fluid: &mut Fluid<Token>) {
        self.is_dispatching = false;
        let Some(at) = self.taken else { return };
        let work = &mut self.works[at];
        work.to_begin -= 1;
        if work.to_begin == 0 {
            self.taken = None;
        }
        self.under_way += 1;
        fluid.after(spec.start_ns, Token::Started(self.number, at));
        self.pump(spec, fluid);
    }

    pub fn started(&mut self, at: usize, spec: &EngineSpec, fluid: &mut Fluid<Token>) {
        let work = &self.works[at];
        let flow = Flow {
            amount: work.copy.bytes as f64,
            alone: spec.gb_s,
            uses: work.uses.clone(),
            cores: None,
        };
        fluid.begin(flow, Token::Moved(self.number, at));
    }

    pub fn moved(&mut self, at: usize, spec: &EngineSpec, fluid: &mut Fluid<Token>) {
        self.under_way -= 1;
        let work = &mut self.works[at];
        self.counts.executed += 1;
        self.counts.bytes += work.copy.bytes;
        work.to_end -= 1;
        if work.to_end == 0 {
            fluid.after(spec.finish_ns, Token::User(work.token));
            self.free.push(at);
        }
        self.pump(spec, fluid);
    }
}
