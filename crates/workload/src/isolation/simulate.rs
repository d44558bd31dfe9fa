//! A store of a few lines, with snapshot isolation or a fault: what the checker is tested with.

use super::Transaction;
use super::drive::{Client, Load, Open, Shared, Target, read_all};
use crate::Failure;
use crate::random::Rng;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a simulated store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it has snapshot isolation.
    None,
    /// The second of two that write a key is not refused.
    LostUpdate,
    /// What is read is of the moment of the read, not of the beginning.
    ReadCommitted,
    /// The same of ranges alone.
    Phantom,
    /// Others see a write before its transaction is committed.
    DirtyRead,
    /// A transaction does not see what it wrote itself.
    OwnWritesUnseen,
    /// A commit is visible one key after the other.
    HalfCommit,
    /// A transaction may read a moment before the last commit that was acknowledged.
    Stale,
    /// A commit is acknowledged and leaves nothing.
    LostCommit,
    /// What is aborted stays.
    KeptAbort,
}

/// All faults that break snapshot isolation.
pub const FAULTS: [Fault; 9] = [
    Fault::LostUpdate,
    Fault::ReadCommitted,
    Fault::Phantom,
    Fault::DirtyRead,
    Fault::OwnWritesUnseen,
    Fault::HalfCommit,
    Fault::Stale,
    Fault::LostCommit,
    Fault::KeptAbort,
];

#[derive(Default)]
struct State {
    moment: u64,
    /// Of each key, what it was from which moment on.
    lists: BTreeMap<u64, Vec<(u64, Vec<u64>)>>,
    /// Commits so far; and writes of half of one, that are still to come.
    commits: u64,
    late: Vec<(u64, Vec<u64>)>,
    /// Written by transactions that are open.
    dirty: BTreeMap<u64, Vec<u64>>,
}

impl State {
    fn put(&mut self, key: u64, list: Vec<u64>) {
        self.lists.entry(key).or_default().push((self.moment, list));
    }

    fn at(&self, key: u64, moment: u64) -> Vec<u64> {
        let lists = self.lists.get(&key).map_or(&[][..], Vec::as_slice);
        let found = lists.iter().rev().find(|(since, _)| *since <= moment);
        found.map(|(_, list)| list.clone()).unwrap_or_default()
    }
}

/// The store.
pub struct Simulated {
    fault: Fault,
    /// Whether reads are certified: with [`Fault::None`] it is serializable then.
    certifies: bool,
    state: Mutex<State>,
}

impl Simulated {
    /// An empty store.
    pub fn new(fault: Fault, certifies: bool) -> Simulated {
        Simulated { fault, certifies, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OpenHere<'a> {
    store: &'a Simulated,
    moment: u64,
    read: Vec<u64>,
    writes: BTreeMap<u64, Vec<u64>>,
}

impl Target for Simulated {
    fn begin(&self) -> Result<Box<dyn Open + '_>, Failure> {
        let mut state = self.state();
        for (key, list) in std::mem::take(&mut state.late) {
            state.moment += 1;
            state.put(key, list);
        }
        let old = if self.fault == Fault::Stale { 2 } else { 0 };
        let moment = state.moment.saturating_sub(old);
        Ok(Box::new(OpenHere { store: self, moment, read: Vec::new(), writes: BTreeMap::new() }))
    }
}

impl Open for OpenHere<'_> {
    fn read(&mut self, key: u64) -> Result<Vec<u64>, Failure> {
        self.read.push(key);
        let (state, fault) = (self.store.state(), self.store.fault);
        let own = self.writes.get(&key).filter(|_| fault != Fault::OwnWritesUnseen);
        if let Some(own) = own {
            return Ok(own.clone());
        }
        Ok(match fault {
            Fault::ReadCommitted => state.at(key, u64::MAX),
            Fault::DirtyRead if state.dirty.contains_key(&key) => state.dirty[&key].clone(),
            _ => state.at(key, self.moment),
        })
    }

    fn range(&mut self, first: u64, last: u64) -> Result<BTreeMap<u64, Vec<u64>>, Failure> {
        let moment = self.moment;
        if self.store.fault == Fault::Phantom {
            self.moment = self.store.state().moment;
        }
        let mut lists = BTreeMap::new();
        for key in first..=last {
            let list = self.read(key)?;
            if !list.is_empty() {
                lists.insert(key, list);
            }
        }
        self.moment = moment;
        Ok(lists)
    }

    fn write(&mut self, key: u64, list: &[u64]) -> Result<(), Failure> {
        let mut state = self.store.state();
        match self.store.fault {
            Fault::DirtyRead => drop(state.dirty.insert(key, list.to_vec())),
            Fault::KeptAbort => {
                state.moment += 1;
                state.put(key, list.to_vec());
                self.moment = state.moment;
            }
            _ => {}
        }
        self.writes.insert(key, list.to_vec());
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<bool, Failure> {
        let mut state = self.store.state();
        self.writes.keys().for_each(|key| drop(state.dirty.remove(key)));
        let fault = self.store.fault;
        if matches!(fault, Fault::KeptAbort) {
            return Ok(true);
        }
        let later = |key: &u64| {
            state
                .lists
                .get(key)
                .and_then(|of| of.last())
                .is_some_and(|(since, _)| *since > self.moment)
        };
        let is_refused = self.writes.keys().any(later)
            || (self.store.certifies && !self.writes.is_empty() && self.read.iter().any(later));
        if is_refused && fault != Fault::LostUpdate {
            return Ok(false);
        }
        state.commits += 1;
        if fault == Fault::LostCommit && state.commits.is_multiple_of(64) {
            return Ok(true);
        }
        state.moment += 1;
        for (nth, (key, list)) in self.writes.into_iter().enumerate() {
            match fault {
                Fault::HalfCommit if nth > 0 => state.late.push((key, list)),
                _ => state.put(key, list),
            }
        }
        Ok(true)
    }
}

/// A history of clients that take turns by chance; the same for the same seed.
///
/// # Errors
/// None: a simulated store does not fail.
pub fn history(store: &Simulated, load: Load, seed: u64) -> Result<Vec<Transaction>, Failure> {
    let shared = Shared::default();
    let mut rng = Rng::new(seed);
    let mut clients: Vec<_> = (0..load.clients)
        .map(|client| Client::new(store, load, &shared, rng.bits() ^ client))
        .collect();
    let mut history = Vec::new();
    while !clients.is_empty() {
        let turn = rng.below(clients.len() as u64) as usize;
        clients[turn].step()?;
        if clients[turn].is_done() {
            history.extend(clients.swap_remove(turn).done);
        }
    }
    history.push(read_all(store, load, &shared)?);
    Ok(history)
}
