//! The workload of Gugnani's lists (section 2.6): a list of half the keys of a range, threads that look
//! for keys chosen alike and, of 100 operations, insert or remove in so many.
//!
//! Nodes lie in the memory that survives, SOFT's links in DRAM. Bits of free slots and epochs are in DRAM
//! too; on a model they are charged for nothing, as are instructions.

use super::error::{Error, Result};
use crate::structures::Random;
use std::io;
use std::sync::Arc;
use terrace_lockfree::list::{
    LinkFree, ListTable, LogFree, Media, NOT_PUBLISHED, Protocol, Session, Size, Soft, Step, TLog,
};
use terrace_machine::test_bed::{Bench, TestBed};
use terrace_memory::{Domain, Memory};

/// Seed of the keys, the same for all lists, so that they walk to the same keys.
const SEED: u64 = 1;
/// Nodes for each thread beside the keys: those that wait for their slots.
const WAITING_NODES: u64 = 256;

/// A list of the row, and its name in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    TLog,
    Published,
    LogFree,
    LinkFree,
    Soft,
}

impl List {
    pub const ALL: [List; 5] =
        [List::TLog, List::Published, List::LogFree, List::LinkFree, List::Soft];

    pub fn name(self) -> &'static str {
        match self {
            List::TLog => "TLog",
            List::Published => "TLog as published",
            List::LogFree => "Log-free",
            List::LinkFree => "Link-free",
            List::Soft => "SOFT",
        }
    }

    /// Log-free is right where caches survive alone.
    pub fn exists_in(self, domain: Domain) -> bool {
        self != List::LogFree || domain == Domain::Eadr
    }
}

/// The measured quantity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub list: List,
    pub domain: Domain,
    /// Keys are below this; half of them are there.
    pub range: u64,
    /// Of 100 operations, those that insert or remove.
    pub updates: u64,
    pub threads: usize,
    /// Operations of a thread before the measurement, and in it.
    pub operations: [u64; 2],
}

/// Where nodes lie, and where links that need not survive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes<'a> {
    pub kept: &'a str,
    pub links: &'a str,
}

impl Load {
    /// Runs it on a test bed; `quietly` runs what is not to be measured. Million operations a second.
    pub fn run<G: TestBed>(
        &self,
        test_bed: &G,
        nodes: Nodes<'_>,
        quietly: impl Fn(&G::Bench, &mut dyn FnMut()),
    ) -> Result<f64> {
        let bench = test_bed.bench(self.threads).map_err(Error::system("have threads"))?;
        let fill = |f: &mut dyn FnMut()| quietly(&bench, f);
        match self.list {
            List::TLog => self.on::<G::Bench, TLog>(&bench, nodes, &[], fill),
            List::Published => self.on::<G::Bench, TLog>(&bench, nodes, &NOT_PUBLISHED, fill),
            List::LogFree => self.on::<G::Bench, LogFree>(&bench, nodes, &[], fill),
            List::LinkFree => self.on::<G::Bench, LinkFree>(&bench, nodes, &[], fill),
            List::Soft => self.on::<G::Bench, Soft>(&bench, nodes, &[], fill),
        }
    }

    fn on<B: Bench, P: Protocol>(
        &self,
        bench: &B,
        nodes: Nodes<'_>,
        left_out: &[Step],
        quietly: impl Fn(&mut dyn FnMut()),
    ) -> Result<f64> {
        let size = Size::list(self.range + WAITING_NODES * (self.threads as u64 + 1));
        let bytes = size.bytes::<P>().map_err(refused)?.next_multiple_of(4096);
        let memory = |node| bench.memory(node, bytes, self.domain);
        let kept = memory(nodes.kept).map_err(Error::system("have memory for a list"))?;
        let media = if P::LINKS_APART {
            let links = memory(nodes.links).map_err(Error::system("have memory for links"))?;
            Media::two(kept, links)
        } else {
            Media::one(kept)
        };
        let mut table = None;
        quietly(&mut || table = Some(self.filled(media.clone(), size, left_out)));
        let table: Arc<ListTable<B::Memory, P>> = table.expect("filled")?;
        let mut workers: Vec<Worker<B::Memory, P>> = (0..self.threads as u64)
            .map(|thread| Ok(Worker::new(table.session().map_err(refused)?, self, thread)))
            .collect::<Result<_>>()?;
        let run = |workers: &mut [Worker<B::Memory, P>], operations| {
            workers.iter_mut().for_each(|worker| worker.left = operations);
            let mut steps: Vec<_> = workers.iter_mut().map(|worker| || worker.step()).collect();
            bench.run(&mut steps)
        };
        // Every thread's caches have met the whole list.
        workers.iter_mut().for_each(|worker| worker.next = Some(u64::MAX));
        run(&mut workers, self.operations[0]);
        let time = run(&mut workers, self.operations[1]);
        let operations = self.operations[1] * self.threads as u64;
        Ok(operations as f64 / 1e6 / time.as_secs_f64())
    }

    /// A list with every other key, inserted in no order.
    fn filled<M: Memory + Clone, P: Protocol>(
        &self,
        media: Media<M>,
        size: Size,
        left_out: &[Step],
    ) -> Result<Arc<ListTable<M, P>>> {
        let table = ListTable::create_without(media, size, left_out).map_err(refused)?;
        let mut session = table.session().map_err(refused)?;
        let mut random = Random(SEED);
        let mut keys: Vec<u64> = (0..self.range).step_by(2).collect();
        for place in (1..keys.len()).rev() {
            keys.swap(place, random.below(place as u64 + 1) as usize);
        }
        for key in keys {
            session.insert(key, key).map_err(refused)?;
        }
        drop(session);
        Ok(table)
    }
}

fn refused(error: terrace_lockfree::list::Error) -> Error {
    Error::system("use a list")(io::Error::other(error))
}

/// A thread's operations.
struct Worker<M: Memory, P: Protocol> {
    session: Session<M, P>,
    random: Random,
    range: u64,
    updates: u64,
    left: u64,
    /// What it looks for next, instead of a key that is drawn.
    next: Option<u64>,
}

impl<M: Memory, P: Protocol> Worker<M, P> {
    fn new(session: Session<M, P>, load: &Load, thread: u64) -> Worker<M, P> {
        let random = Random(SEED ^ (thread + 1) << 32);
        Worker { session, random, range: load.range, updates: load.updates, left: 0, next: None }
    }

    fn step(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        if let Some(key) = self.next.take() {
            std::hint::black_box(self.session.get(key));
            return true;
        }
        let (key, kind) = (self.random.below(self.range), self.random.below(200));
        match kind {
            // A slab that is full for a moment refuses; the paper's would, too.
            kind if kind < self.updates => _ = self.session.insert(key, key),
            kind if kind < 2 * self.updates => _ = self.session.remove(key),
            _ => _ = std::hint::black_box(self.session.get(key)),
        }
        true
    }
}
