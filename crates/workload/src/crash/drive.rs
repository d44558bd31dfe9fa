//! A client that writes at random and notes what it does, until it is stopped or refused.

use super::ledger::{CrashRecord, Write};
use super::value::{MIN_VALUE_BYTES, name_of, value_of};
use crate::Failure;
use crate::random::Rng;
use std::sync::atomic::{AtomicBool, Ordering};

/// One client's way of writing to a store.
///
/// A call has returned only when the store has acknowledged.
pub trait Writer {
    /// Writes a key.
    ///
    /// # Errors
    /// Whatever went wrong; the write may have been done.
    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Removes a key.
    ///
    /// # Errors
    /// As for [`Writer::put`].
    fn delete(&mut self, name: &[u8]) -> Result<(), Failure>;

    /// Writes several keys, all or none of which survive. Called only where the script has
    /// batches.
    ///
    /// # Errors
    /// As for [`Writer::put`].
    fn put_all(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), Failure> {
        let _ = pairs;
        Err("this writer has no batches".into())
    }

    /// Makes everything acknowledged so far durable. Called only where the script has syncs.
    ///
    /// # Errors
    /// As for [`Writer::put`].
    fn sync(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// What a client does, by chance; the same for the same seed.
#[derive(Clone, Debug)]
pub struct Script {
    /// What follows from.
    pub rng: Rng,
    /// Keys written are this one and those after it.
    pub first_key: u64,
    /// How many keys there are. Few, so that keys are written over, deleted and come back.
    pub keys: u64,
    /// Values are up to this long; most are short.
    pub max_value_bytes: usize,
    /// One write in so many is a deletion; 0 for none.
    pub delete_one_in: u64,
    /// One write in so many is a batch of 2 to 8 puts; 0 for none.
    pub batch_one_in: u64,
    /// One write in so many is followed by a sync; 0 for none.
    pub sync_one_in: u64,
}

impl Script {
    /// A mix that finds most faults: 1000 keys, a quarter deletions, values up to 4 KiB, neither
    /// batches nor syncs.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            first_key: 0,
            keys: 1000,
            max_value_bytes: 4096,
            delete_one_in: 4,
            batch_one_in: 0,
            sync_one_in: 0,
        }
    }

    fn key(&mut self) -> u64 {
        self.first_key + self.rng.below(self.keys)
    }

    /// Half of the values are under 100 bytes, the others anything.
    fn value_bytes(&mut self) -> usize {
        let longest = self.max_value_bytes.max(MIN_VALUE_BYTES);
        let longest = if self.rng.one_in(2) { longest.min(100) } else { longest };
        MIN_VALUE_BYTES + self.rng.below((longest - MIN_VALUE_BYTES) as u64 + 1) as usize
    }

    fn chance(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.rng.one_in(one_in)
    }
}

/// How a client ended.
#[derive(Debug)]
pub struct Driven {
    /// Writes acknowledged, batches counted once.
    pub acknowledged: u64,
    /// Why it ended, if it was not told to: the kill, as a client sees it.
    pub failure: Option<Failure>,
}

/// Writes by the script until `stop` is set or something fails.
pub fn drive(
    record: &impl CrashRecord,
    writer: &mut impl Writer,
    script: &mut Script,
    stop: &AtomicBool,
) -> Driven {
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Err(failure) = step(record, writer, script) {
            return Driven { acknowledged, failure: Some(failure) };
        }
        acknowledged += 1;
    }
    Driven { acknowledged, failure: None }
}

fn step(
    record: &impl CrashRecord,
    writer: &mut impl Writer,
    script: &mut Script,
) -> Result<(), Failure> {
    let ticket = if script.chance(script.batch_one_in) {
        let mut keys: Vec<u64> = (0..2 + script.rng.below(7)).map(|_| script.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let writes: Vec<_> = keys.iter().map(|key| (*key, Write::Put)).collect();
        let ticket = record.begin(&writes)?;
        let pairs: Vec<_> = keys
            .iter()
            .map(|key| (name_of(*key), value_of(*key, ticket, script.value_bytes())))
            .collect();
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_slice(), v.as_slice())).collect();
        writer.put_all(&pairs)?;
        ticket
    } else if script.chance(script.delete_one_in) {
        let key = script.key();
        let ticket = record.begin(&[(key, Write::Delete)])?;
        writer.delete(&name_of(key))?;
        ticket
    } else {
        let key = script.key();
        let ticket = record.begin(&[(key, Write::Put)])?;
        writer.put(&name_of(key), &value_of(key, ticket, script.value_bytes()))?;
        ticket
    };
    record.acknowledge(ticket)?;
    if script.chance(script.sync_one_in) {
        let mark = record.begin_sync()?;
        writer.sync()?;
        record.synced(mark)?;
    }
    Ok(())
}
