//! Changing a leaf: deltas, consolidation, splits, leaves with nothing left.

use super::Deltas;
use super::chain::{Chain, Found};
use super::logs::{Logs, Place};
use super::record::{Delta, Header, Kind, LINE, NOTHING, Record};
use super::step::Step;
use super::table::{Latch, Leaf, State, Table};
use crate::keys::{Change, Entry, Keys, Probe, Separator, UNTOLD};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use terrace_durable::BucketLock;
use terrace_memory::Memory;

/// A latched leaf with room for one delta more, in its chain and in its log.
struct Held<'a, P: Memory, D: Memory, K: Keys> {
    latch: Latch<'a, D>,
    leaf: Leaf,
    claim: Claim<'a, P, D, K>,
}

/// A line that was claimed of a log; given back on drop, panics included, unless it was used.
struct Claim<'a, P: Memory, D: Memory, K: Keys> {
    logs: &'a Logs<P>,
    table: &'a Table<D>,
    keys: &'a K,
    log: u32,
    is_used: bool,
}

impl<P: Memory, D: Memory, K: Keys> Claim<'_, P, D, K> {
    /// Appends the line that was claimed; durable on return.
    #[inline]
    fn append(&mut self, delta: &mut Delta, entries: i64) -> Place {
        self.is_used = true;
        self.logs.append_claimed(self.log, delta, entries, self.table, self.keys)
    }
}

impl<P: Memory, D: Memory, K: Keys> Drop for Claim<'_, P, D, K> {
    fn drop(&mut self) {
        if !self.is_used {
            self.logs.disclaim(self.log, self.table, self.keys);
        }
    }
}

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// Runs `f` on the value of `key`, if it has one, while no writer can change it.
    pub fn look<R>(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce([u64; 2]) -> R,
    ) -> Option<R> {
        let probe = Probe::of(key, keys);
        let latch = self.latch(&probe);
        self.found(&latch, &probe).map(|found| f(found.value))
    }

    /// Runs `f` on the value of `key` while no other writer can change it, and does what `f` says, durably.
    /// Returns the value before. `f` must not touch this index.
    ///
    /// # Errors
    /// As [`Deltas::update_then`].
    pub fn update(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce(Option<[u64; 2]>) -> Change,
    ) -> io::Result<Option<[u64; 2]>> {
        self.update_then(key, keys, |value, _| (f(value), ()), |()| ())
    }

    /// Runs `f` on the value of `key` while no other writer can change it, and does what `f` says, durably;
    /// then passes on to `then` what `f` gave beside, still alone. Returns the value before. Neither may
    /// touch this index.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the logs have no room for one entry more, though they were collected;
    /// [`io::ErrorKind::OutOfMemory`] if a region in DRAM has none; and those of the regions. `f` has not run
    /// then.
    ///
    /// # Durability
    /// The change is durable before `then` runs, and before anybody sees it.
    pub fn update_then<T>(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce(Option<[u64; 2]>, &BucketLock) -> (Change, T),
        then: impl FnOnce(T),
    ) -> io::Result<Option<[u64; 2]>> {
        let probe = Probe::of(key, keys);
        let mut held = self.hold(&probe)?;
        let found = self.found(&held.latch, &probe);
        let before = found.map(|found| found.value);
        // SAFETY: the leaf is latched.
        let (change, rest) = f(before, &unsafe { BucketLock::held() });
        self.change(&mut held, found, change, &probe);
        then(rest);
        Ok(before)
    }

    /// As [`Deltas::update_then`], for the key whose value is exactly `value`; `f` runs only if it still is.
    /// Returns whether it was: the compare-and-swap redirect of a collector.
    ///
    /// # Errors
    /// The errors of [`Deltas::update_then`].
    pub fn update_at(
        &self,
        key: &[u8],
        value: [u64; 2],
        keys: &impl Keys,
        f: impl FnOnce(&BucketLock) -> Change,
    ) -> io::Result<bool> {
        let probe = Probe::of(key, keys);
        let mut held = self.hold(&probe)?;
        let found = self.latched_chain(&held.latch).find_exactly(Entry { head: probe.head, value });
        let found = found.expect("a latched chain does not change");
        if found.is_some() {
            // SAFETY: the leaf is latched.
            let change = f(&unsafe { BucketLock::held() });
            self.change(&mut held, found, change, &probe);
        }
        Ok(found.is_some())
    }

    /// Latches the leaf of a key.
    fn latch(&self, probe: &Probe<'_, impl Keys>) -> Latch<'_, D> {
        loop {
            if let Some(latch) = self.table.latch_seen(self.see(probe)) {
                return latch;
            }
        }
    }

    fn latched_chain(&self, latch: &Latch<'_, D>) -> Chain<'_, P, impl Fn() -> bool> {
        Chain { segments: &self.logs.segments, head: self.table.head(latch.leaf), holds: || true }
    }

    #[inline]
    fn found(&self, latch: &Latch<'_, D>, probe: &Probe<'_, impl Keys>) -> Option<Found> {
        let chain = self.latched_chain(latch);
        chain.prefetch(&self.table.recent(latch.leaf), P::prefetch);
        chain.find(probe).expect("a latched chain does not change")
    }

    /// All entries of a latched leaf, in order.
    pub(super) fn entries(&self, latch: &Latch<'_, D>, keys: &impl Keys) -> Vec<Entry> {
        self.latched_chain(latch).gather(keys).expect("a latched chain does not change")
    }

    /// Latches the leaf of a key with room for a delta more: what `f` does cannot be taken back.
    fn hold<'a, K: Keys>(&'a self, probe: &Probe<'a, K>) -> io::Result<Held<'a, P, D, K>> {
        loop {
            let latch = self.latch(probe);
            let leaf = self.table.leaf(latch.leaf);
            let made = match usize::from(leaf.items) < self.items {
                true => self.claim(latch, leaf, probe.keys).map(Some),
                false => self.make_room(latch, leaf, probe.keys).map(|()| None),
            };
            match made {
                Ok(Some(held)) => return Ok(held),
                Ok(None) => {}
                // Nothing is latched here, so whatever is in the way can be moved.
                Err(full) => self.collect_or(full, probe.keys)?,
            }
        }
    }

    fn claim<'a, K: Keys>(
        &'a self,
        latch: Latch<'a, D>,
        leaf: Leaf,
        keys: &'a K,
    ) -> io::Result<Held<'a, P, D, K>> {
        let (logs, table) = (&self.logs, &self.table);
        let log = logs.of(latch.leaf);
        logs.claim(log, table, keys)?;
        Ok(Held { latch, leaf, claim: Claim { logs, table, keys, log, is_used: false } })
    }

    /// Does to a key's entry what `change` says.
    fn change<K: Keys>(
        &self,
        held: &mut Held<'_, P, D, K>,
        found: Option<Found>,
        change: Change,
        probe: &Probe<'_, K>,
    ) {
        match (change, found) {
            (Change::Set(value), _) => {
                let entry = Entry { head: probe.head, value };
                self.add_delta(held, Kind::Put, Some(entry), found);
            }
            (Change::Remove, Some(_)) => {
                self.add_delta(held, Kind::Remove, None, found);
                if held.leaf.live == 0 {
                    self.retire(held, probe);
                }
            }
            (Change::Overwritten, _) => held.latch.change(),
            (Change::Keep, _) | (Change::Remove, None) => {}
        }
    }

    /// Appends a delta, and lets the table lead to it when it is durable.
    #[inline]
    fn add_delta<K: Keys>(
        &self,
        held: &mut Held<'_, P, D, K>,
        kind: Kind,
        entry: Option<Entry>,
        kills: Option<Found>,
    ) {
        let Held { latch, leaf, claim } = held;
        let more = i64::from(entry.is_some()) - i64::from(kills.is_some());
        let header = Header {
            version: leaf.version + 1,
            next: leaf.head,
            ordinal: leaf.items,
            kills: kills.map_or(NOTHING, |found| found.ordinal),
            ..header(latch.leaf, kind)
        };
        let place = claim.append(&mut Delta::of(header, entry), more);
        latch.change();
        if leaf.head == 0 {
            leaf.base = header.version;
        } else {
            self.table.remember(latch.leaf, leaf.head);
        }
        leaf.head = place.at;
        leaf.version = header.version;
        leaf.items += 1;
        leaf.live = (i64::from(leaf.live) + more) as u8;
        leaf.bytes += LINE as u32;
        self.table.set(latch.leaf, leaf);
    }

    /// Makes a full chain one with room: one part of what counts, or two leaves of it.
    fn make_room(&self, mut latch: Latch<'_, D>, leaf: Leaf, keys: &impl Keys) -> io::Result<()> {
        let entries = self.entries(&latch, keys);
        match entries.len() * 4 > self.items * 3 {
            true => self.split(latch, leaf, &entries, keys),
            false => self.consolidate(&mut latch, leaf, &entries, false, keys),
        }
    }

    /// Writes what counts of a leaf as one part, at the end of its log. `spare`: to the last segment.
    pub(super) fn consolidate(
        &self,
        latch: &mut Latch<'_, D>,
        leaf: Leaf,
        entries: &[Entry],
        spare: bool,
        keys: &impl Keys,
    ) -> io::Result<()> {
        let header = Header { version: leaf.version + 1, ..header(latch.leaf, Kind::Base) };
        let mut record = Record::of(header, entries);
        let log = self.logs.of(latch.leaf);
        let place = self.logs.append(log, &mut record, spare, &self.table, keys)?;
        latch.change();
        self.supersede(latch.leaf, &leaf);
        let now = Leaf {
            bytes: record.bytes() as u32,
            other_bytes: 0,
            ..rebased(leaf, place.at, entries.len())
        };
        self.table.remember(latch.leaf, 0);
        self.table.set(latch.leaf, &now);
        Ok(())
    }

    /// Makes two leaves of one. One record holds both halves, in the log of the left one; from the fence
    /// behind it on there are two. Readers find the right one when the inner nodes lead to it, and all others
    /// wait at the latches until then.
    fn split(
        &self,
        latch: Latch<'_, D>,
        leaf: Leaf,
        entries: &[Entry],
        keys: &impl Keys,
    ) -> io::Result<()> {
        let _prepared = self.inner.prepare()?;
        let (right_latch, right) = self.table.take(keys)?;
        let middle = middle(entries);
        let (left_entries, right_entries) = entries.split_at(middle);
        let separator = Separator::between(entries[middle - 1], entries[middle], keys);
        if !keys.could_tell() {
            self.table.give(right_latch.leaf);
            return Err(io::Error::new(io::ErrorKind::InvalidData, UNTOLD));
        }
        let of_left = Header { version: leaf.version + 1, ..header(latch.leaf, Kind::Base) };
        let of_right =
            Header { version: right.version + 1, ..header(right_latch.leaf, Kind::Base) };
        let log = self.logs.of(latch.leaf);
        let append = |record: &mut Record| self.logs.append(log, record, false, &self.table, keys);
        let mut record = Record::of(of_left, left_entries);
        let (place, right_at) = if self.logs.segments.steps.has(Step::SplitWhole) {
            record = record.and(of_right, right_entries);
            append(&mut record).map(|place| (place, place.at + record.second_at()))
        } else {
            let place = append(&mut record);
            let right = append(&mut Record::of(of_right, right_entries));
            place.and_then(|place| Ok((place, right?.at)))
        }
        .inspect_err(|_| self.table.give(right_latch.leaf))?;

        latch.change();
        right_latch.change();
        self.supersede(latch.leaf, &leaf);
        let right_bytes = of_right_bytes(right_entries);
        let left_bytes = record.bytes() as u32 - right_bytes;
        let mut right = rebased(right, right_at, right_entries.len());
        match self.logs.of(right_latch.leaf) == log {
            true => right.bytes = right_bytes,
            false => (right.other_bytes, right.other) = (right_bytes, Some((log, place.stamp))),
        }
        let left = Leaf {
            bytes: left_bytes,
            other_bytes: 0,
            ..rebased(leaf, place.at, left_entries.len())
        };
        for (leaf, now) in [(right_latch.leaf, right), (latch.leaf, left)] {
            self.table.remember(leaf, 0);
            self.table.set(leaf, &now);
        }
        self.inner.insert(&separator, right_latch.leaf, keys);
        Ok(())
    }

    /// A chain's bytes do not count any more.
    pub(super) fn supersede(&self, leaf: u32, before: &Leaf) {
        let own = self.logs.log(self.logs.of(leaf));
        own.live.fetch_sub(i64::from(before.bytes), Relaxed);
        if let Some((log, _)) = before.other {
            self.logs.log(log).live.fetch_sub(i64::from(before.other_bytes), Relaxed);
        }
    }

    /// Takes a leaf with nothing left out of the inner nodes, unless it is the only one. Nothing of that is
    /// durable: recovery finds an empty leaf and does the same.
    fn retire<K: Keys>(&self, held: &mut Held<'_, P, D, K>, probe: &Probe<'_, K>) {
        if self.inner.remove(probe, &held.latch) {
            held.latch.change();
            self.supersede(held.latch.leaf, &held.leaf);
            held.leaf = Leaf { state: State::Gone, bytes: 0, other_bytes: 0, ..held.leaf };
            self.table.set(held.latch.leaf, &held.leaf);
        }
    }
}

/// The header of a part that begins a chain, without version.
pub(super) fn header(leaf: u32, kind: Kind) -> Header {
    Header {
        leaf,
        version: 0,
        units: 0,
        stamp: 0,
        kind,
        count: 0,
        next: 0,
        ordinal: 0,
        kills: NOTHING,
    }
}

/// A leaf whose chain is one part with its next version.
pub(super) fn rebased(leaf: Leaf, at: u64, entries: usize) -> Leaf {
    let version = leaf.version + 1;
    Leaf { head: at, version, base: version, items: entries as u8, live: entries as u8, ..leaf }
}

/// Bytes of a second part.
fn of_right_bytes(entries: &[Entry]) -> u32 {
    (super::UNIT * (1 + entries.len() as u64)) as u32
}

/// Where to split: near the middle, if possible between different heads, so that no key must be copied.
fn middle(entries: &[Entry]) -> usize {
    let half = entries.len() / 2;
    let differs = |at: &usize| entries[*at - 1].head != entries[*at].head;
    let near = (0..=half / 2).flat_map(|away| [half - away, half + away]);
    near.filter(|at| (1..entries.len()).contains(at)).find(differs).unwrap_or(half.max(1))
}
