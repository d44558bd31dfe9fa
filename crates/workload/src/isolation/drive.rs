//! Random transactions against a store, and the history of what it told.

use super::{Operation, Outcome, Transaction};
use crate::Failure;
use crate::random::{Rng, mix};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store with transactions over lists of numbers.
pub trait Target: Sync {
    /// Begins a transaction.
    ///
    /// # Errors
    /// What went wrong.
    fn begin(&self) -> Result<Box<dyn Open + '_>, Failure>;
}

/// A transaction of a [`Target`]; dropped it leaves nothing.
pub trait Open {
    /// The list of a key; empty, if there is none.
    ///
    /// # Errors
    /// What went wrong.
    fn read(&mut self, key: u64) -> Result<Vec<u64>, Failure>;

    /// All lists from one key to another, both included.
    ///
    /// # Errors
    /// What went wrong.
    fn range(&mut self, first: u64, last: u64) -> Result<BTreeMap<u64, Vec<u64>>, Failure>;

    /// Replaces the list of a key.
    ///
    /// # Errors
    /// What went wrong.
    fn write(&mut self, key: u64, list: &[u64]) -> Result<(), Failure>;

    /// Whether it is committed; if not, others came first, and nothing is written.
    ///
    /// # Errors
    /// What went wrong.
    fn commit(self: Box<Self>) -> Result<bool, Failure>;
}

/// What is asked of a store.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Keys, from 0 on.
    pub keys: u64,
    /// Clients, each with one transaction at a time.
    pub clients: u64,
    /// Transactions of each client.
    pub transactions: usize,
    /// Operations of a transaction, at the most.
    pub operations: u64,
    /// Whether ranges are read too.
    pub ranges: bool,
}

/// What all clients share: the order of beginnings and ends, and elements.
#[derive(Default)]
pub(super) struct Shared {
    clock: AtomicU64,
    elements: AtomicU64,
}

impl Shared {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// A client, and the transaction that it has open.
pub(super) struct Client<'a> {
    target: &'a dyn Target,
    load: Load,
    shared: &'a Shared,
    rng: Rng,
    open: Option<Box<dyn Open + 'a>>,
    left: u64,
    pub done: Vec<Transaction>,
}

impl<'a> Client<'a> {
    pub fn new(target: &'a dyn Target, load: Load, shared: &'a Shared, seed: u64) -> Client<'a> {
        let rng = Rng::new(mix(seed));
        Client { target, load, shared, rng, open: None, left: 0, done: Vec::new() }
    }

    pub fn is_done(&self) -> bool {
        self.open.is_none() && self.done.len() >= self.load.transactions
    }

    /// Does one thing: begins a transaction, or goes on with it, or ends it.
    pub fn step(&mut self) -> Result<(), Failure> {
        let Some(open) = &mut self.open else {
            let began = self.shared.now();
            let (outcome, operations) = (Outcome::Aborted, Vec::new());
            self.open = Some(self.target.begin()?);
            self.left = 1 + self.rng.below(self.load.operations);
            self.done.push(Transaction { began, ended: began, outcome, operations });
            return Ok(());
        };
        let transaction = self.done.last_mut().ok_or("a transaction is open")?;
        if self.left > 0 {
            self.left -= 1;
            return one(&mut **open, (&self.load, self.shared), &mut self.rng, transaction);
        }
        // Some are given up.
        if let Some(open) = self.open.take().filter(|_| !self.rng.one_in(16))
            && open.commit()?
        {
            transaction.outcome = Outcome::Committed;
        }
        transaction.ended = self.shared.now();
        Ok(())
    }
}

/// One operation of an open transaction.
fn one(
    open: &mut dyn Open,
    (load, shared): (&Load, &Shared),
    rng: &mut Rng,
    transaction: &mut Transaction,
) -> Result<(), Failure> {
    if load.ranges && rng.one_in(5) {
        let (one, other) = (rng.below(load.keys), rng.below(load.keys));
        let (first, last) = (one.min(other), one.max(other));
        let lists = open.range(first, last)?;
        transaction.operations.push(Operation::Range { first, last, lists });
        return Ok(());
    }
    let key = rng.below(load.keys);
    let list = open.read(key)?;
    transaction.operations.push(Operation::Read { key, list: list.clone() });
    if rng.one_in(2) {
        let element = shared.elements.fetch_add(1, Ordering::Relaxed);
        open.write(key, &[&list[..], &[element]].concat())?;
        transaction.operations.push(Operation::Append { key, element });
    }
    Ok(())
}

/// One more transaction, that reads all: it has what nobody read before.
pub(super) fn read_all(
    target: &dyn Target,
    load: Load,
    shared: &Shared,
) -> Result<Transaction, Failure> {
    let began = shared.now();
    let mut open = target.begin()?;
    let mut operations = Vec::new();
    for key in 0..load.keys {
        operations.push(Operation::Read { key, list: open.read(key)? });
    }
    let outcome = if open.commit()? { Outcome::Committed } else { Outcome::Aborted };
    Ok(Transaction { began, ended: shared.now(), outcome, operations })
}

/// Runs transactions from as many threads as there are clients, and then one that reads all keys.
///
/// # Errors
/// The first that the store told.
pub fn drive(target: &dyn Target, load: Load, seed: u64) -> Result<Vec<Transaction>, Failure> {
    let shared = Shared::default();
    let run = |client: u64| {
        let mut client = Client::new(target, load, &shared, mix(seed) ^ client);
        while !client.is_done() {
            client.step()?;
        }
        Ok::<_, Failure>(client.done)
    };
    let mut history = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..load.clients).map(|client| scope.spawn(move || run(client))).collect();
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.join().map_err(|_| "a client panicked")??);
        }
        Ok::<_, Failure>(all)
    })?;
    history.push(read_all(target, load, &shared)?);
    Ok(history)
}
