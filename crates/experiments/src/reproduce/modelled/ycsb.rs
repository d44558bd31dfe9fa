//! YCSB on modelled maps: its choices of records and its operations, one after the other.

use super::{Operation, Work};
use crate::structures::Random;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_store::{Range, Value};
use terrace_workload::random::mix;
use terrace_workload::ycsb::{Choices, Distribution};

/// Choices drawn ahead, of which each operation takes any: no order is walked twice.
const DRAWN: usize = 1 << 20;
/// Records of a scan, at the most.
const LONGEST: u64 = 100;

/// Of 100 operations, those that do not read.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Mix {
    pub updates: u64,
    pub inserts: u64,
    pub scans: u64,
}

/// A workload on the records of one map.
pub(in super::super) struct Ycsb {
    mix: Mix,
    choices: Choices,
    seed: u64,
    value: Vec<u8>,
    /// Records that are there.
    records: AtomicU64,
}

impl Ycsb {
    /// On records of so many bytes, of which there are `records`. Workloads on one map are given another seed each:
    /// what the one before updated in this one's order would lie in a row in logs.
    pub fn new(
        mix: Mix,
        distribution: Distribution,
        records: u64,
        value_bytes: usize,
        seed: u64,
    ) -> Ycsb {
        let choices = distribution.choices(records, DRAWN, seed);
        Ycsb { mix, choices, seed, value: vec![2; value_bytes], records: records.into() }
    }

    /// Records that are there by now.
    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }

    /// Its operations, from the `from`-th of each thread on.
    pub fn from(&self, from: u64) -> impl Operation {
        move |worker, thread, number, random| self.one(worker, thread, from + number, random)
    }

    fn one(
        &self,
        worker: &mut super::Worker,
        thread: u64,
        number: u64,
        random: &mut Random,
    ) -> terrace_store::Result<Work> {
        let Mix { updates, inserts, scans } = self.mix;
        let choice = random.below(100);
        if choice < updates {
            let key = self.key(thread, number);
            worker.put(&key, &self.value, None)?;
            return Ok(Work::WRITE);
        }
        if choice < updates + inserts {
            let key = self.records.fetch_add(1, Relaxed).to_be_bytes();
            worker.put(&key, &self.value, None)?;
            return Ok(Work::WRITE);
        }
        let key = self.key(thread, number);
        if choice < updates + inserts + scans {
            let range = Range { from: Bound::Included(&key), ..Range::ALL };
            let mut scanned = 0;
            let each = |_: &[u8], value: Value<'_>| {
                scanned += u64::from(!black_box(value.bytes).is_empty())
            };
            worker.range(range, 1 + random.below(LONGEST) as usize, each)?;
            return Ok(Work::scan(scanned));
        }
        worker.get(&key, |value| black_box(value.bytes.len()))?;
        Ok(Work::READ)
    }

    /// The key of an operation of a thread.
    fn key(&self, thread: u64, number: u64) -> [u8; 8] {
        let at = mix(mix(self.seed << 32 | thread) ^ number) as usize % self.choices.len();
        let record = match &self.choices {
            Choices::Records(records) => u64::from(records[at]),
            Choices::Latest(ranks) => {
                self.records.load(Relaxed).saturating_sub(1 + u64::from(ranks[at]))
            }
        };
        record.to_be_bytes()
    }
}
