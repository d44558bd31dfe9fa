//! Every workload on a sound store, and on stores that lose or damage values.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, RwLock};
use std::time::Duration;
use terrace_workload::Failure;
use terrace_workload::ycsb::{
    Bench, Distribution, Handle, LoadBy, PhaseReport, Settings, Target, Workload,
};

/// What a store does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Forgets one put in fifty.
    Forgets,
    /// Answers one read in a hundred and one with another record's value.
    MixesUp,
    /// Flips a bit at the end of every value.
    Flips,
}

struct Toy {
    tree: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    fault: Fault,
}

struct ToyHandle<'a> {
    toy: &'a Toy,
    calls: u64,
}

impl Target for Toy {
    type Handle<'a> = ToyHandle<'a>;

    fn is_ordered(&self) -> bool {
        true
    }

    fn handle(&self) -> Result<ToyHandle<'_>, Failure> {
        Ok(ToyHandle { toy: self, calls: 0 })
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl ToyHandle<'_> {
    fn faulty(&mut self, fault: Fault) -> bool {
        self.calls += 1;
        self.toy.fault == fault && (fault == Fault::Flips || self.calls.is_multiple_of(101))
    }
}

impl Handle for ToyHandle<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let other = self.faulty(Fault::MixesUp);
        let tree = self.toy.tree.read().unwrap();
        let found = if other { tree.values().next() } else { tree.get(key) };
        value.clear();
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        if self.faulty(Fault::Forgets) {
            return Ok(());
        }
        let mut value = value.to_vec();
        if self.faulty(Fault::Flips) {
            *value.last_mut().unwrap() ^= 1;
        }
        self.toy.tree.write().unwrap().insert(key.to_vec(), value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.toy.tree.write().unwrap().remove(key);
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let tree = self.toy.tree.read().unwrap();
        Ok(tree.range(start.to_vec()..).take(limit).map(|(k, v)| each(k, v)).count())
    }
}

fn settings() -> Settings {
    Settings {
        records: 2_000,
        threads: 2,
        operations: 20_000,
        duration: Duration::from_secs(20),
        warm_up: Duration::from_millis(5),
        sample_every: 4,
        ..Settings::default()
    }
}

fn run(fault: Fault, workloads: &[Workload], settings: Settings) -> Vec<PhaseReport> {
    let toy = Toy { tree: RwLock::default(), fault };
    let mut bench = Bench::new(settings).unwrap();
    let load = bench.load(&toy, LoadBy::Puts, &|_| ()).unwrap();
    assert_eq!(load.records, bench.settings().records);
    workloads.iter().map(|workload| bench.run(&toy, *workload).unwrap()).collect()
}

#[test]
fn a_sound_store_passes_every_workload() {
    for distribution in [None, Some(Distribution::Uniform), Some(Distribution::Latest)] {
        let reports = run(Fault::None, &Workload::ALL, Settings { distribution, ..settings() });
        for report in reports {
            assert!(report.is_sound(), "{report:?}");
            assert!(report.operations >= 20_000 / 2 && report.ops_per_s > 0.0);
            let latency = report.overall_latency();
            assert!(latency.samples > 0 && latency.max_us >= latency.p99_99_us);
            let json = serde_json::to_string(&report).unwrap();
            assert_eq!(serde_json::from_str::<PhaseReport>(&json).unwrap().misses, 0);
        }
    }
}

#[test]
fn faults_are_counted() {
    let forgets = run(Fault::Forgets, &[Workload::C, Workload::G], settings());
    assert!(forgets.iter().all(|report| report.misses > 0), "{forgets:?}");
    for workload in [Workload::A, Workload::F, Workload::G] {
        let mixes_up = run(Fault::MixesUp, &[workload], settings());
        assert!(mixes_up[0].bad > 0, "{workload}");
    }
    assert!(run(Fault::Flips, &[Workload::C], settings())[0].bad > 0);
}

#[test]
fn batches_load_the_same_records() {
    let toy = Toy { tree: RwLock::default(), fault: Fault::None };
    let mut bench = Bench::new(settings()).unwrap();
    let load = bench.load(&toy, LoadBy::Batches, &|_| ()).unwrap();
    assert!(load.latency.is_none() && load.user_bytes_written == bench.live_bytes());
    assert!(bench.run(&toy, Workload::C).unwrap().is_sound());
    bench.run(&toy, Workload::D).unwrap();
    let expected = toy.tree.read().unwrap().iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    assert_eq!(bench.live_bytes(), expected as u64);
}

/// Notes which keys were asked for.
#[derive(Default)]
struct Asked(Mutex<HashSet<Vec<u8>>>);

impl Target for Asked {
    type Handle<'a> = &'a Asked;

    fn is_ordered(&self) -> bool {
        false
    }

    fn handle(&self) -> Result<&Asked, Failure> {
        Ok(self)
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Handle for &Asked {
    fn get(&mut self, key: &[u8], _value: &mut Vec<u8>) -> Result<bool, Failure> {
        self.0.lock().unwrap().insert(key.to_vec());
        Ok(false)
    }

    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<(), Failure> {
        Ok(())
    }
}

/// One thread that was bounded by time alone walked round 4096 choices: the length of its stream was
/// computed from the largest number there is, plus a few, which is hardly any. Whatever it measured fit
/// a cache, and a collector of logs had next to nothing to move.
#[test]
fn a_thread_bounded_by_time_alone_asks_for_as_many_records_as_it_can() {
    for threads in [1, 2] {
        let asked = Asked::default();
        let settings = Settings {
            records: 1_000_000,
            threads,
            distribution: Some(Distribution::Uniform),
            operations: u64::MAX,
            duration: Duration::from_millis(500),
            warm_up: Duration::ZERO,
            ..Settings::default()
        };
        let mut bench = Bench::new(settings).unwrap();
        let operations = bench.run(&asked, Workload::C).unwrap().operations;
        let distinct = asked.0.lock().unwrap().len() as u64;
        // Of so many draws from a million some are equal.
        let wanted = operations.min(10_000) / 10 * 9;
        assert!(distinct >= wanted, "{distinct} records, {operations} operations");
    }
}
