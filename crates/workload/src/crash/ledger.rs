//! What was asked and acknowledged, kept as short as what may still be found.
//!
//! For each key the ledger keeps the writes whose effect may be the last: a write is dropped once
//! another that must be found was begun after it had been acknowledged. Writes of a key may come
//! from several clients at once; those that overlap may be found in either order.

use crate::Failure;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A write, or a batch of them, by the order in which they were begun. 0 stands for "never
/// written".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// What a write does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Puts [`super::value_of`] the key and the ticket.
    Put,
    /// Removes the key.
    Delete,
}

/// From when on a store promises to keep a write through the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// From its acknowledgement.
    OnAcknowledge,
    /// From the end of the first sync begun after its acknowledgement.
    OnSync,
}

/// The instant a sync was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncMark(u64);

impl SyncMark {
    pub(super) fn at(place: u64) -> Self {
        Self(place)
    }

    pub(super) fn place(self) -> u64 {
        self.0
    }
}

/// One write of one key, as far as it may still matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    pub(super) ticket: Ticket,
    pub(super) write: Write,
    /// When it was acknowledged, if it was. (When it was begun is its ticket.)
    pub(super) acknowledged_at: Option<u64>,
    /// Whether it must be found unless something later is.
    pub(super) kept: bool,
}

/// What a key holds when nobody has written it: the outcome of a deletion before all else.
const UNWRITTEN: Noted =
    Noted { ticket: Ticket(0), write: Write::Delete, acknowledged_at: Some(0), kept: true };

/// Every write that may still be found, and every deletion.
#[derive(Clone, Debug)]
pub struct Ledger {
    promise: Promise,
    /// Grows with every note.
    clock: u64,
    pub(super) keys: BTreeMap<u64, Vec<Noted>>,
    /// The keys of tickets in flight.
    pub(super) in_flight: HashMap<Ticket, Vec<u64>>,
}

impl Ledger {
    /// An empty ledger over an empty store.
    pub fn new(promise: Promise) -> Self {
        Self { promise, clock: 0, keys: BTreeMap::new(), in_flight: HashMap::new() }
    }

    /// The promise it holds the store to.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// Number of the last note; every ticket is at most that.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Keys ever written, deleted ones counted in.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.keys.keys().copied()
    }

    /// What may be found at `key`: the writes whose value it may hold, `None` for absence.
    pub fn allowed(&self, key: u64) -> Vec<Option<Ticket>> {
        let noted = self.keys.get(&key).map_or(&[UNWRITTEN][..], Vec::as_slice);
        noted.iter().map(|w| (w.write == Write::Put).then_some(w.ticket)).collect()
    }

    /// Notes writes about to be asked for, all or none of which are to be found.
    pub fn begin(&mut self, writes: &[(u64, Write)]) -> Ticket {
        self.clock += 1;
        let ticket = Ticket(self.clock);
        for (key, write) in writes {
            let noted = Noted { ticket, write: *write, acknowledged_at: None, kept: false };
            self.keys.entry(*key).or_insert_with(|| vec![UNWRITTEN]).push(noted);
        }
        self.in_flight.insert(ticket, writes.iter().map(|(key, _)| *key).collect());
        ticket
    }

    /// Notes that the store has acknowledged.
    pub fn acknowledge(&mut self, ticket: Ticket) {
        self.clock += 1;
        for key in self.in_flight.remove(&ticket).unwrap_or_default() {
            let Some(noted) = self.keys.get_mut(&key) else {
                continue;
            };
            for write in noted.iter_mut().filter(|write| write.ticket == ticket) {
                write.acknowledged_at = Some(self.clock);
                write.kept = self.promise == Promise::OnAcknowledge;
            }
            drop_superseded(noted);
        }
    }

    /// Notes that the store will never do it, having said so.
    pub fn refuse(&mut self, ticket: Ticket) {
        for key in self.in_flight.remove(&ticket).unwrap_or_default() {
            if let Some(noted) = self.keys.get_mut(&key) {
                noted.retain(|write| write.ticket != ticket);
            }
        }
    }

    /// Notes that a sync is about to be asked for.
    pub fn begin_sync(&mut self) -> SyncMark {
        self.clock += 1;
        SyncMark(self.clock)
    }

    /// Notes that the sync begun at `mark` has been acknowledged.
    pub fn synced(&mut self, mark: SyncMark) {
        for noted in self.keys.values_mut() {
            for write in noted.iter_mut() {
                write.kept |= write.acknowledged_at.is_some_and(|at| at < mark.0);
            }
            drop_superseded(noted);
        }
    }

    /// Takes what was found at a key for the truth: whatever else was in flight is now past.
    pub(super) fn settle(&mut self, key: u64, found: Option<Ticket>) {
        let write = if found.is_some() { Write::Put } else { Write::Delete };
        let ticket = found.unwrap_or(UNWRITTEN.ticket);
        // Acknowledged when it was begun: nothing that was begun before it can supersede it.
        let acknowledged_at = Some(ticket.0);
        self.keys.insert(key, vec![Noted { ticket, write, acknowledged_at, ..UNWRITTEN }]);
    }

    /// A ledger of settled keys, as after a verification.
    pub(super) fn settled(
        promise: Promise,
        clock: u64,
        found: impl Iterator<Item = (u64, Option<Ticket>)>,
    ) -> Self {
        let mut ledger = Self { clock, ..Self::new(promise) };
        found.for_each(|(key, ticket)| ledger.settle(key, ticket));
        ledger
    }
}

/// Drops the writes that were acknowledged before one that must be found was begun.
fn drop_superseded(noted: &mut Vec<Noted>) {
    let kept = noted.iter().filter(|write| write.kept);
    let Some(last_begun) = kept.map(|write| write.ticket.0).max() else {
        return;
    };
    noted.retain(|write| write.acknowledged_at.is_none_or(|at| at >= last_begun));
}

/// A ledger that several clients note in at once.
pub trait CrashRecord: Sync {
    /// As [`Ledger::begin`].
    ///
    /// # Errors
    /// The note could not be kept; then nothing may be asked of the store.
    fn begin(&self, writes: &[(u64, Write)]) -> Result<Ticket, Failure>;

    /// As [`Ledger::acknowledge`].
    ///
    /// # Errors
    /// The note could not be kept; the write then counts as in flight.
    fn acknowledge(&self, ticket: Ticket) -> Result<(), Failure>;

    /// As [`Ledger::begin_sync`].
    ///
    /// # Errors
    /// The note could not be kept.
    fn begin_sync(&self) -> Result<SyncMark, Failure>;

    /// As [`Ledger::synced`].
    ///
    /// # Errors
    /// The note could not be kept.
    fn synced(&self, mark: SyncMark) -> Result<(), Failure>;
}

/// A ledger in memory, for clients that outlive the kill.
#[derive(Debug)]
pub struct SharedLedger(Mutex<Ledger>);

impl SharedLedger {
    /// Shares `ledger`.
    pub fn new(ledger: Ledger) -> Self {
        Self(Mutex::new(ledger))
    }

    /// The ledger, for itself alone.
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Notes are single steps: a client that panicked left none half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger, shared no more.
    pub fn into_ledger(self) -> Ledger {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CrashRecord for SharedLedger {
    fn begin(&self, writes: &[(u64, Write)]) -> Result<Ticket, Failure> {
        Ok(self.lock().begin(writes))
    }

    fn acknowledge(&self, ticket: Ticket) -> Result<(), Failure> {
        self.lock().acknowledge(ticket);
        Ok(())
    }

    fn begin_sync(&self) -> Result<SyncMark, Failure> {
        Ok(self.lock().begin_sync())
    }

    fn synced(&self, mark: SyncMark) -> Result<(), Failure> {
        self.lock().synced(mark);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tickets that may be found at key 1.
    fn candidates(ledger: &Ledger) -> Vec<u64> {
        ledger.keys[&1].iter().map(|noted| noted.ticket.0).collect()
    }

    #[test]
    fn an_acknowledged_write_supersedes_what_was_acknowledged_before_it_began() {
        let mut ledger = Ledger::new(Promise::OnAcknowledge);
        let first = ledger.begin(&[(1, Write::Put)]);
        assert_eq!(candidates(&ledger), [0, first.0]);
        ledger.acknowledge(first);
        assert_eq!(candidates(&ledger), [first.0]);
        let second = ledger.begin(&[(1, Write::Put)]);
        let overlapping = ledger.begin(&[(1, Write::Delete)]);
        ledger.acknowledge(second);
        assert_eq!(candidates(&ledger), [second.0, overlapping.0]);
        ledger.acknowledge(overlapping);
        assert_eq!(candidates(&ledger), [second.0, overlapping.0]);
    }

    #[test]
    fn a_write_in_flight_is_never_superseded() {
        let mut ledger = Ledger::new(Promise::OnAcknowledge);
        let lost = ledger.begin(&[(1, Write::Put)]);
        for _ in 0..3 {
            let later = ledger.begin(&[(1, Write::Put)]);
            ledger.acknowledge(later);
            assert_eq!(candidates(&ledger), [lost.0, later.0]);
        }
        ledger.refuse(lost);
        assert_eq!(candidates(&ledger).len(), 1);
    }

    #[test]
    fn under_on_sync_only_a_sync_supersedes() {
        let mut ledger = Ledger::new(Promise::OnSync);
        let first = ledger.begin(&[(1, Write::Put)]);
        ledger.acknowledge(first);
        let second = ledger.begin(&[(1, Write::Put)]);
        let mark = ledger.begin_sync();
        ledger.acknowledge(second);
        assert_eq!(candidates(&ledger), [0, first.0, second.0]);
        ledger.synced(mark);
        assert_eq!(candidates(&ledger), [first.0, second.0]);
        let mark = ledger.begin_sync();
        ledger.synced(mark);
        assert_eq!(candidates(&ledger), [second.0]);
    }
}
