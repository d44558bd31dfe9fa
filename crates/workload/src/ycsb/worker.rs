//! One thread's part of one workload: the loop that is timed.
//!
//! What is forbidden here: allocation, locks, system calls (but for the clock, once in
//! `sample_every` operations), and anything shared that is written, save the numbers of inserts.

use super::distribution::Choices;
use super::insertion::Insertions;
use super::keys::{Values, write_key};
use super::latency::Latencies;
use super::settings::{Mix, Settings};
use super::target::Handle;
use crate::Failure;
use crate::random::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A kind of operation; latencies are kept for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Kind {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
    BatchRead,
}

/// Names of the kinds in reports, by number.
pub(super) const KINDS: [&str; 6] =
    ["read", "update", "insert", "scan", "read_modify_write", "batch_read"];

/// What a worker counted.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) operations: u64,
    pub(super) misses: u64,
    pub(super) bad: u64,
    pub(super) scanned_records: u64,
    pub(super) user_bytes_written: u64,
    pub(super) latencies: Vec<Latencies>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            operations: 0,
            misses: 0,
            bad: 0,
            scanned_records: 0,
            user_bytes_written: 0,
            latencies: KINDS.iter().map(|_| Latencies::new()).collect(),
        }
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.misses += other.misses;
        self.bad += other.bad;
        self.scanned_records += other.scanned_records;
        self.user_bytes_written += other.user_bytes_written;
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.add(theirs);
        }
    }
}

/// When a worker stops: at whichever comes first.
pub(super) struct Limits<'a> {
    /// Set by the first worker to finish, so that none ever runs alone.
    pub(super) stop: &'a AtomicBool,
    pub(super) end: Instant,
    /// This worker's own.
    pub(super) operations: u64,
}

/// What the workers of one run share.
pub(super) struct Shared<'a> {
    pub(super) settings: &'a Settings,
    pub(super) mix: Mix,
    pub(super) values: &'a Values,
    pub(super) insertions: &'a Insertions,
}

/// One thread's buffers and place in its stream of choices.
pub(super) struct Worker<'a, H> {
    shared: &'a Shared<'a>,
    handle: H,
    thread: usize,
    choices: &'a Choices,
    next_choice: usize,
    rng: Rng,
    key: Vec<u8>,
    value: Vec<u8>,
    read: Vec<u8>,
    batch_keys: Vec<u8>,
    batch_records: Vec<u64>,
    tally: Tally,
}

impl<'a, H: Handle> Worker<'a, H> {
    pub(super) fn new(
        shared: &'a Shared<'a>,
        handle: H,
        thread: usize,
        choices: &'a Choices,
        seed: u64,
    ) -> Self {
        let settings = shared.settings;
        let mut rng = Rng::new(seed ^ ((thread as u64) << 32));
        Self {
            shared,
            handle,
            thread,
            choices,
            next_choice: rng.below(choices.len() as u64) as usize,
            rng,
            key: vec![0; settings.key_bytes],
            value: vec![0; settings.value_bytes],
            read: Vec::with_capacity(settings.value_bytes + 16),
            batch_keys: vec![0; settings.key_bytes * settings.batch_keys],
            batch_records: vec![0; settings.batch_keys],
            tally: Tally::new(),
        }
    }

    /// Works until a limit is met.
    pub(super) fn run(mut self, limits: &Limits<'_>) -> Result<Tally, Failure> {
        let sample_every = self.shared.settings.sample_every;
        // Batches and scans are long enough to be timed more often.
        let mix = self.shared.mix;
        let sample_every = match mix.scan + mix.batch_read {
            0 => sample_every,
            _ => (sample_every / 8).max(1),
        };
        let mut until_sample = 1 + self.rng.below(sample_every);
        while self.tally.operations < limits.operations {
            until_sample -= 1;
            if until_sample > 0 {
                self.step(false)?;
                continue;
            }
            until_sample = sample_every;
            let start = Instant::now();
            if start >= limits.end || limits.stop.load(Ordering::Relaxed) {
                break;
            }
            let kind = self.step(true)?;
            self.tally.latencies[kind as usize].record(start.elapsed());
        }
        Ok(self.tally)
    }

    /// One operation of the mix. `whole` asks for the value read to be checked in full.
    #[inline]
    fn step(&mut self, whole: bool) -> Result<Kind, Failure> {
        let mix = self.shared.mix;
        self.tally.operations += 1;
        let mut choice = self.rng.below(100);
        if choice < mix.read {
            return self.read_one(whole);
        }
        choice -= mix.read;
        if choice < mix.update {
            return self.update();
        }
        choice -= mix.update;
        if choice < mix.insert {
            return self.insert();
        }
        choice -= mix.insert;
        if choice < mix.scan {
            return self.scan();
        }
        choice -= mix.scan;
        if choice < mix.read_modify_write { self.read_modify_write() } else { self.read_batch() }
    }

    /// The next record.
    #[inline]
    fn choose(&mut self) -> u64 {
        let at = self.next_choice;
        self.next_choice = if at + 1 == self.choices.len() { 0 } else { at + 1 };
        match self.choices {
            Choices::Records(records) => u64::from(records[at]),
            Choices::Latest(ranks) => {
                let acknowledged = self.shared.insertions.acknowledged();
                acknowledged.saturating_sub(1 + u64::from(ranks[at]))
            }
        }
    }

    #[inline]
    fn check(&mut self, record: u64, found: bool, whole: bool) {
        let values = self.shared.values;
        if !found {
            self.tally.misses += 1;
        } else if !values.is_stamped(record, &self.read)
            || (whole && !values.is_whole(record, &self.read))
        {
            self.tally.bad += 1;
        }
    }

    #[inline]
    fn read_one(&mut self, whole: bool) -> Result<Kind, Failure> {
        let record = self.choose();
        write_key(self.shared.settings.insert_order, record, &mut self.key);
        let found = self.handle.get(&self.key, &mut self.read)?;
        self.check(record, found, whole);
        Ok(Kind::Read)
    }

    #[inline]
    fn write(&mut self, record: u64) -> Result<(), Failure> {
        write_key(self.shared.settings.insert_order, record, &mut self.key);
        self.shared.values.write(record, &mut self.rng, &mut self.value);
        self.put()
    }

    #[inline]
    fn put(&mut self) -> Result<(), Failure> {
        self.handle.put(&self.key, &self.value)?;
        self.tally.user_bytes_written += (self.key.len() + self.value.len()) as u64;
        Ok(())
    }

    #[inline]
    fn update(&mut self) -> Result<Kind, Failure> {
        let record = self.choose();
        self.write(record)?;
        Ok(Kind::Update)
    }

    #[inline]
    fn insert(&mut self) -> Result<Kind, Failure> {
        let record = self.shared.insertions.begin(self.thread);
        // A failed insert stays marked for ever: no one may read it.
        self.write(record)?;
        self.shared.insertions.end(self.thread);
        Ok(Kind::Insert)
    }

    #[inline]
    fn read_modify_write(&mut self) -> Result<Kind, Failure> {
        let record = self.choose();
        write_key(self.shared.settings.insert_order, record, &mut self.key);
        let found = self.handle.get(&self.key, &mut self.read)?;
        self.check(record, found, false);
        self.shared.values.modify(record, &self.read, &mut self.value);
        self.put()?;
        Ok(Kind::ReadModifyWrite)
    }

    fn scan(&mut self) -> Result<Kind, Failure> {
        let record = self.choose();
        write_key(self.shared.settings.insert_order, record, &mut self.key);
        let limit = 1 + self.rng.below(self.shared.settings.scan_records as u64) as usize;
        let (mut bytes, mut first_differs, mut first) = (0u64, false, true);
        let (key, read) = (self.key.as_slice(), &mut self.read);
        let seen = self.handle.scan(key, limit, |found, value| {
            // Copied out, as `get` does.
            read.clear();
            read.extend_from_slice(value);
            bytes += found.len() as u64 + read.last().map_or(0, |byte| u64::from(*byte));
            first_differs |= first && found != key;
            first = false;
        })?;
        std::hint::black_box(bytes);
        self.tally.scanned_records += seen as u64;
        self.tally.misses += u64::from(seen == 0);
        self.tally.bad += u64::from(first_differs);
        Ok(Kind::Scan)
    }

    #[inline]
    fn read_batch(&mut self) -> Result<Kind, Failure> {
        let key_bytes = self.shared.settings.key_bytes;
        for i in 0..self.batch_records.len() {
            let record = self.choose();
            self.batch_records[i] = record;
            write_key(
                self.shared.settings.insert_order,
                record,
                &mut self.batch_keys[i * key_bytes..(i + 1) * key_bytes],
            );
        }
        with_slices(&self.batch_keys, key_bytes, |keys| {
            let (mut misses, mut bad) = (0, 0);
            let (values, records, read) = (self.shared.values, &self.batch_records, &mut self.read);
            self.handle.multi_get(keys, |i, value| match value {
                None => misses += 1,
                Some(value) => {
                    // Copied out, as `get` does.
                    read.clear();
                    read.extend_from_slice(value);
                    bad += u64::from(!values.is_stamped(records[i], read));
                }
            })?;
            self.tally.misses += misses;
            self.tally.bad += bad;
            Ok::<(), Failure>(())
        })?;
        self.tally.operations += self.batch_records.len() as u64 - 1;
        Ok(Kind::BatchRead)
    }
}

/// Calls `f` with the pieces of `bytes`, each `piece_bytes` long; up to 64 of them without an
/// allocation.
#[inline]
fn with_slices<R>(bytes: &[u8], piece_bytes: usize, f: impl FnOnce(&[&[u8]]) -> R) -> R {
    const FEW: usize = 64;
    let count = bytes.len() / piece_bytes;
    if count > FEW {
        return f(&bytes.chunks_exact(piece_bytes).collect::<Vec<_>>());
    }
    let mut pieces: [&[u8]; FEW] = [&[]; FEW];
    for (piece, chunk) in pieces.iter_mut().zip(bytes.chunks_exact(piece_bytes)) {
        *piece = chunk;
    }
    f(&pieces[..count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_the_pieces_in_order() {
        for count in [1, 63, 64, 65, 200] {
            let bytes: Vec<u8> = (0..count * 3).map(|i| i as u8).collect();
            with_slices(&bytes, 3, |pieces| {
                assert_eq!(pieces.len(), count);
                assert_eq!(pieces.concat(), bytes);
            });
        }
    }
}
