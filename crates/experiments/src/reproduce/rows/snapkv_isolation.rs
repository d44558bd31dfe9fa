//! `snapkv-isolation`: what concurrent transactions were told (Miller, section 3.2).
//!
//! Threads run random transactions over few keys of a map, or of several; the history goes to the checker of
//! [`terrace_workload::isolation`]. The controls are maps behind a liar, and a simulated store with one fault after the
//! other: each has to be found out.

use super::{Check, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use terrace_memory::Domain;
use terrace_store::{
    Direction, Durability, Kind, Map, MapOptions, Moments, Range, Together, Transaction, ValueDesign,
};
use terrace_workload::Failure;
use terrace_workload::isolation::drive::{Load, Open, Target, drive};
use terrace_workload::isolation::simulate::{FAULTS, Simulated, history};
use terrace_workload::isolation::{Anomaly, Level, Outcome as Ended, check};

pub(super) const ROW: Row = Row {
    id: "snapkv-isolation",
    source: "Miller, section 3.2",
    runs_on: "native",
    must_show: "no lost update, no phantom, own writes read, real-time order in every history; write skew is possible \
                under snapshot isolation and not with certified reads; every fault of a control is caught",
    run,
};

/// Few keys, so that transactions meet.
const LOAD: Load = Load { keys: 12, clients: 4, transactions: 400, operations: 4, ranges: false };

/// What is wrong with a map on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    None,
    /// Reads tell what is there now, not what was at the transaction's moment.
    ReadsNow,
    /// Who came second writes all the same.
    LastCommitterWins,
}

struct Asked {
    moments: Arc<Moments>,
    /// Keys are in them in turn.
    maps: Vec<Map>,
    certifies: bool,
    lie: Lie,
}

impl Asked {
    fn of(&self, key: u64) -> &Map {
        &self.maps[key as usize % self.maps.len()]
    }
}

struct OpenHere<'a> {
    asked: &'a Asked,
    transaction: Transaction,
    writes: BTreeMap<u64, Vec<u8>>,
}

fn decoded(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

impl Target for Asked {
    fn begin(&self) -> std::result::Result<Box<dyn Open + '_>, Failure> {
        let mut transaction = self.moments.begin();
        if self.certifies {
            transaction.certify_reads();
        }
        Ok(Box::new(OpenHere { asked: self, transaction, writes: BTreeMap::new() }))
    }
}

impl Open for OpenHere<'_> {
    fn read(&mut self, key: u64) -> std::result::Result<Vec<u64>, Failure> {
        let (map, name) = (self.asked.of(key), key.to_be_bytes());
        let found = self.transaction.get(map, &name)?;
        let is_now = self.asked.lie == Lie::ReadsNow && !self.writes.contains_key(&key);
        let found = if is_now { map.get(&name)? } else { found };
        Ok(found.as_deref().map(decoded).unwrap_or_default())
    }

    fn range(&mut self, first: u64, last: u64) -> std::result::Result<BTreeMap<u64, Vec<u64>>, Failure> {
        let mut lists = BTreeMap::new();
        for map in &self.asked.maps {
            range_of(&mut self.transaction, map, first, last, &mut lists)?;
        }
        Ok(lists)
    }

    fn write(&mut self, key: u64, list: &[u64]) -> std::result::Result<(), Failure> {
        let value: Vec<u8> = list.iter().flat_map(|one| one.to_le_bytes()).collect();
        self.transaction.put(self.asked.of(key), &key.to_be_bytes(), &value)?;
        self.writes.insert(key, value);
        Ok(())
    }

    fn commit(self: Box<Self>) -> std::result::Result<bool, Failure> {
        match self.transaction.commit() {
            Ok(()) => Ok(true),
            Err(terrace_store::Error::Conflict { .. }) if self.asked.lie == Lie::LastCommitterWins => {
                for (key, value) in &self.writes {
                    self.asked.of(*key).put(&key.to_be_bytes(), value)?;
                }
                Ok(true)
            }
            Err(terrace_store::Error::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The keys of a map in a range, with their lists.
fn range_of(
    transaction: &mut Transaction,
    map: &Map,
    first: u64,
    last: u64,
    lists: &mut BTreeMap<u64, Vec<u64>>,
) -> std::result::Result<(), Failure> {
    let (mut first, last) = (first.to_be_bytes().to_vec(), last.to_be_bytes());
    let mut is_first = true;
    loop {
        let from = if is_first { Bound::Included(&first[..]) } else { Bound::Excluded(&first[..]) };
        let range = Range { from, to: Bound::Included(&last), direction: Direction::Up };
        // In pages, so that the way from one to the next is tested too.
        let rest = transaction.range(map, range, 3, |key, value| {
            let key = key.try_into().map_or(u64::MAX, u64::from_be_bytes);
            lists.insert(key, decoded(value.bytes));
        })?;
        let Some(rest) = rest else { return Ok(()) };
        (first, is_first) = (rest, false);
    }
}

/// Kinds of maps, by what of them a transaction meets, and how many.
fn ways() -> [(&'static str, usize, MapOptions); 7] {
    let hash = MapOptions { writers: 4, ..MapOptions::default() };
    let sync = MapOptions { durability: Durability::Sync, ..hash.clone() };
    let adr = MapOptions { domain: Domain::Adr, values: ValueDesign::Log, ..hash.clone() };
    let ordered = MapOptions { kind: Kind::Ordered, ..hash.clone() };
    [
        ("hash", 1, hash.clone()),
        ("hash, sync", 1, sync.clone()),
        ("hash, ADR", 1, adr),
        ("ordered, with ranges", 1, ordered.clone()),
        ("two maps, hash", 2, hash),
        ("two maps, hash, sync", 2, sync),
        ("two maps, ordered, with ranges", 2, ordered),
    ]
}

/// The counted figures.
#[derive(Clone, Debug, Default)]
struct Counted {
    histories: u64,
    committed: u64,
    refused: u64,
    /// Histories with an anomaly, of each level.
    wrong: [u64; 2],
    /// Histories of snapshot isolation in which there is a write skew.
    skewed: u64,
    /// What was found first.
    anomaly: Option<Anomaly>,
}

impl Counted {
    /// One history of so many maps that are opened for it.
    fn take(&mut self, maps: usize, options: &MapOptions, level: Level, lie: Lie, seed: u64) -> Result<()> {
        let dir = tempfile::tempdir().map_err(Error::system("make a directory"))?;
        let moments = Arc::<Moments>::default();
        let options = MapOptions { moments: Arc::clone(&moments), ..options.clone() };
        let load = Load { ranges: options.kind == Kind::Ordered, ..LOAD };
        let together = Together::in_directory(dir.path(), &options)?;
        let open = |number: usize| {
            let name = number.to_string();
            let database = Some(together.map(&name));
            Map::open(&dir.path().join(&name), MapOptions { database, ..options.clone() })
        };
        let maps = (0..maps).map(open).collect::<terrace_store::Result<Vec<Map>>>()?;
        let asked = Asked { moments, maps, certifies: level == Level::Serializable, lie };
        let history = drive(&asked, load, seed).map_err(Error::Workload)?;
        let committed = history.iter().filter(|one| one.outcome == Ended::Committed).count() as u64;
        self.histories += 1;
        self.committed += committed;
        self.refused += history.len() as u64 - committed;
        match check(&history, level) {
            Ok(()) => {
                let is_skewed = level == Level::Snapshot && check(&history, Level::Serializable).is_err();
                self.skewed += u64::from(is_skewed);
            }
            Err(anomaly) => {
                self.wrong[usize::from(level == Level::Serializable)] += 1;
                self.anomaly.get_or_insert(anomaly);
            }
        }
        Ok(())
    }
}

/// How many of so many histories were found wrong.
fn caught(lie: Lie, options: &MapOptions, histories: u64) -> Result<u64> {
    let mut counted = Counted::default();
    for seed in 0..histories {
        counted.take(1, options, Level::Snapshot, lie, seed)?;
    }
    Ok(counted.wrong[0])
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let seeds = run.size(100, 3);
    let mut counted = Counted::default();
    for (name, maps, options) in ways() {
        (run.tell)(name);
        for seed in 0..seeds {
            counted.take(maps, &options, Level::Snapshot, Lie::None, seed)?;
            counted.take(maps, &options, Level::Serializable, Lie::None, seed)?;
        }
    }
    let [(_, _, hash), .., (_, _, ordered)] = ways();
    let mut lies = Vec::new();
    for lie in [Lie::ReadsNow, Lie::LastCommitterWins] {
        for (kind, options) in [("hash", &hash), ("ordered", &ordered)] {
            (run.tell)(&format!("{lie:?}, {kind}"));
            lies.push((format!("{lie:?}, {kind}"), caught(lie, options, seeds)?));
        }
    }
    let mut outcome = judge(&counted, &lies, faults_found(seeds)?);
    outcome.size("keys", LOAD.keys);
    outcome.size("threads", LOAD.clients);
    outcome.size("transactions of a history", LOAD.clients * LOAD.transactions as u64);
    outcome.size("histories of a kind of map and level", seeds);
    Ok(outcome)
}

/// Faults of a simulated store that were found in one history at the least.
fn faults_found(seeds: u64) -> Result<u64> {
    let mut found = 0;
    for fault in FAULTS {
        let load = Load { ranges: true, transactions: 100, ..LOAD };
        let mut is_found = false;
        for seed in 0..seeds.max(10) {
            let history = history(&Simulated::new(fault, false), load, seed);
            let history = history.map_err(Error::Workload)?;
            is_found |= check(&history, Level::Snapshot).is_err();
        }
        found += u64::from(is_found);
    }
    Ok(found)
}

fn judge(counted: &Counted, lies: &[(String, u64)], faults: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let [snapshot, serializable] = counted.wrong.map(|wrong| wrong as f64);
    let certified = "histories with certified reads that are not serializable";
    outcome.checks.extend([
        Check::at_most("histories that break snapshot isolation", "0", snapshot, 0.0).order(),
        Check::at_most(certified, "none told", serializable, 0.0).order(),
        Check::at_least("histories with a write skew under snapshot isolation", "possible", counted.skewed as f64, 1.0).order(),
        Check::at_least("transactions committed", "none told", counted.committed as f64, 1_000.0).order(),
        Check::at_least("transactions refused or given up", "none told", counted.refused as f64, 100.0).order(),
        Check::at_least("faults of a simulated store that were found", "none told", faults as f64, FAULTS.len() as f64).order(),
    ]);
    for (lie, caught) in lies {
        let what = format!("control: histories found wrong, {lie}");
        outcome.checks.push(Check::at_least(what, "none told", *caught as f64, 1.0).order());
    }
    outcome.note = format!(
        "{} histories of {} transactions that were committed and {} that were refused or given up; what these read is \
         checked too. Every history ends with a transaction that reads all keys.{}",
        counted.histories,
        counted.committed,
        counted.refused,
        counted.anomaly.as_ref().map(|anomaly| format!(" The first anomaly: {anomaly}.")).unwrap_or_default()
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_of_map_tells_what_no_order_explains() {
        let mut counted = Counted::default();
        for (_, maps, options) in ways() {
            counted.take(maps, &options, Level::Snapshot, Lie::None, 7).expect("a history");
            counted.take(maps, &options, Level::Serializable, Lie::None, 8).expect("a history");
        }
        assert_eq!(counted.wrong, [0, 0], "{}", counted.anomaly.expect("an anomaly"));
        assert!(counted.committed > 1_000 && counted.refused > 100, "{counted:?}");
    }

    #[test]
    fn a_liar_is_caught() {
        let [(_, _, hash), ..] = ways();
        for lie in [Lie::ReadsNow, Lie::LastCommitterWins] {
            let is_caught = (0..20).any(|_| caught(lie, &hash, 1).expect("a history") == 1);
            assert!(is_caught, "{lie:?}");
        }
    }
}
