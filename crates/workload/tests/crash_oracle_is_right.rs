//! The kill -9 oracle's own test: what a sound store may leave is accepted, and each kind of fault
//! is found and named.
//!
//! The store here is a map in memory. Clients have writes in flight at the kill; each of them has
//! been done or not, by chance. A fault is then planted by hand in what "recovery" brings back.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use terrace_workload::Failure;
use terrace_workload::crash::{
    CrashRecord, Journal, Ledger, Promise, Recovered, Report, Script, SharedLedger, Ticket,
    Violation, Write, Writer, drive, name_of, value_of, verify,
};
use terrace_workload::random::Rng;

const ROUNDS: usize = 1_000;

type Pairs = BTreeMap<u64, Vec<u8>>;

struct Store {
    pairs: Pairs,
    walked: Vec<(u64, Vec<u8>)>,
}

impl Store {
    fn of(pairs: Pairs) -> Self {
        Self { walked: pairs.clone().into_iter().collect(), pairs }
    }
}

impl Recovered for Store {
    fn get(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let key = terrace_workload::crash::key_named(name).ok_or("not a name")?;
        Ok(self.pairs.get(&key).cloned())
    }

    fn walk(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool, Failure> {
        self.walked.iter().for_each(|(key, value)| each(&name_of(*key), value));
        Ok(true)
    }
}

/// Writes begun and not acknowledged, and whether they have been done.
type InFlight = (Ticket, Vec<(u64, Write)>, bool);

/// Clients at work on a store, one step at a time.
struct Simulation {
    rng: Rng,
    ledger: Ledger,
    pairs: Pairs,
    in_flight: Vec<InFlight>,
    /// What keys held before their last acknowledged change.
    before: BTreeMap<u64, Vec<u8>>,
    keys: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            ledger: Ledger::new(Promise::OnAcknowledge),
            pairs: Pairs::new(),
            in_flight: Vec::new(),
            before: BTreeMap::new(),
            keys: 12,
        }
    }

    fn begin(&mut self) {
        let count = if self.rng.one_in(4) { 3 } else { 1 };
        let keys: std::collections::BTreeSet<u64> =
            (0..count).map(|_| self.rng.below(self.keys)).collect();
        let delete = keys.len() == 1 && self.rng.one_in(3);
        let write = if delete { Write::Delete } else { Write::Put };
        let writes: Vec<_> = keys.into_iter().map(|key| (key, write)).collect();
        self.in_flight.push((self.ledger.begin(&writes), writes, false));
    }

    fn perform(&mut self, i: usize) {
        let (ticket, writes, done) = &mut self.in_flight[i];
        if std::mem::replace(done, true) {
            return;
        }
        for (key, write) in writes {
            let old = match write {
                Write::Put => self.pairs.insert(*key, value_of(*key, *ticket, 60)),
                Write::Delete => self.pairs.remove(key),
            };
            if let Some(old) = old {
                self.before.insert(*key, old);
            }
        }
    }

    /// A few steps, ending in a kill.
    fn run(&mut self) {
        for _ in 0..20 + self.rng.below(60) {
            let i = self.rng.below(self.in_flight.len().max(1) as u64) as usize;
            match self.rng.below(3) {
                0 if self.in_flight.len() < 6 => self.begin(),
                1 if !self.in_flight.is_empty() => self.perform(i),
                2 if !self.in_flight.is_empty() => {
                    self.perform(i);
                    self.ledger.acknowledge(self.in_flight.swap_remove(i).0);
                }
                _ => {}
            }
        }
    }

    /// Recovers and verifies; what was in flight is gone.
    fn recover(&mut self, store: &mut Store) -> Report {
        self.in_flight.clear();
        verify(&mut self.ledger, store).unwrap()
    }

    /// A key of which it is certain what it holds.
    fn certain_key(&mut self, wanted: impl Fn(&Self, u64) -> bool) -> Option<u64> {
        let certain = |key: &u64| self.ledger.allowed(*key).len() == 1 && wanted(self, *key);
        let keys: Vec<u64> = self.ledger.keys().filter(certain).collect();
        let i = self.rng.below(keys.len() as u64) as usize;
        keys.get(i).copied()
    }
}

#[test]
fn a_sound_store_is_accepted() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(seed);
        for round in 0..10 {
            simulation.run();
            let report = simulation.recover(&mut Store::of(simulation.pairs.clone()));
            assert!(report.is_sound() && report.walked, "seed {seed} round {round}: {report}");
            assert_eq!(report.present, simulation.pairs.len() as u64);
        }
    }
}

/// Plants until `ROUNDS` faults were planted; each must be reported as `expected` says.
fn check_planted(
    plant: impl Fn(&mut Simulation, &mut Store) -> Option<u64>,
    expected: impl Fn(&Violation, u64) -> bool,
) {
    let (mut planted, mut seed) = (0, 1_000);
    while planted < ROUNDS {
        seed += 1;
        assert!(seed < 200_000, "too few places to plant in: {planted}");
        let mut simulation = Simulation::new(seed);
        simulation.run();
        simulation.recover(&mut Store::of(simulation.pairs.clone()));
        simulation.run();
        let mut store = Store::of(simulation.pairs.clone());
        let Some(key) = plant(&mut simulation, &mut store) else {
            continue;
        };
        let report = simulation.recover(&mut store);
        let found = report.violations.iter().any(|violation| expected(violation, key));
        assert!(found, "seed {seed}, key {key}: {report}");
        assert!(report.to_string().contains("violations"));
        planted += 1;
    }
}

#[test]
fn lost_writes_are_found() {
    check_planted(
        |simulation, store| {
            let key = simulation.certain_key(|s, key| s.pairs.contains_key(&key))?;
            store.pairs.remove(&key);
            Some(key)
        },
        |violation, key| matches!(violation, Violation::Lost { key: k, .. } if *k == key),
    );
}

#[test]
fn older_values_are_found() {
    check_planted(
        |simulation, store| {
            let both =
                |s: &Simulation, key| s.pairs.contains_key(&key) && s.before.contains_key(&key);
            let key = simulation.certain_key(both)?;
            let older = simulation.before[&key].clone();
            store.pairs.insert(key, older);
            Some(key)
        },
        |violation, key| matches!(violation, Violation::Stale { key: k, .. } if *k == key),
    );
}

#[test]
fn deleted_keys_that_come_back_are_found() {
    check_planted(
        |simulation, store| {
            let gone =
                |s: &Simulation, key| !s.pairs.contains_key(&key) && s.before.contains_key(&key);
            let key = simulation.certain_key(gone)?;
            store.pairs.insert(key, simulation.before[&key].clone());
            Some(key)
        },
        |violation, key| matches!(violation, Violation::Returned { key: k, .. } if *k == key),
    );
}

#[test]
fn damaged_misplaced_and_invented_values_are_found() {
    check_planted(
        |simulation, store| {
            let key = simulation.certain_key(|s, key| s.pairs.contains_key(&key))?;
            let value = store.pairs.get_mut(&key)?;
            let at = simulation.rng.below(value.len() as u64) as usize;
            value[at] ^= 1 << simulation.rng.below(8);
            Some(key)
        },
        |violation, key| matches!(violation, Violation::Damaged { key: k, .. } if *k == key),
    );
    check_planted(
        |simulation, store| {
            let key = simulation.certain_key(|s, key| s.pairs.contains_key(&key))?;
            let other = store.pairs.iter().find(|(k, _)| **k != key)?.1.clone();
            store.pairs.insert(key, other);
            Some(key)
        },
        |violation, key| matches!(violation, Violation::Misplaced { key: k, .. } if *k == key),
    );
    check_planted(
        |simulation, store| {
            let key = simulation.certain_key(|_, _| true)?;
            store.pairs.insert(key, value_of(key, Ticket(1 << 40), 60));
            Some(key)
        },
        |violation, key| matches!(violation, Violation::Phantom { key: k, .. } if *k == key),
    );
}

#[test]
fn batches_done_by_halves_are_found() {
    check_planted(
        |simulation, store| {
            // A batch in flight whose keys nobody else was writing, one key of it left out.
            let batch = simulation.in_flight.iter().find(|(ticket, writes, done)| {
                let alone = |key: u64| {
                    simulation
                        .in_flight
                        .iter()
                        .all(|(t, w, _)| t == ticket || w.iter().all(|(k, _)| *k != key))
                };
                let last = |key: u64| store.pairs.get(&key) == Some(&value_of(key, *ticket, 60));
                *done && writes.len() > 1 && writes.iter().all(|(k, _)| alone(*k) && last(*k))
            })?;
            let key = batch.1[0].0;
            match simulation.before.get(&key) {
                Some(old) => store.pairs.insert(key, old.clone()),
                None => store.pairs.remove(&key),
            };
            *store = Store::of(store.pairs.clone());
            // Only where what was put back is what the key held when the batch was begun.
            let report = verify(&mut simulation.ledger.clone(), store).unwrap();
            let stale = |v: &Violation| !matches!(v, Violation::Torn { .. });
            (!report.violations.iter().any(stale) && !report.is_sound()).then_some(batch.0.0)
        },
        |violation, batch| matches!(violation, Violation::Torn { batch: b, .. } if b.0 == batch),
    );
}

#[test]
fn walks_that_go_wrong_are_found() {
    check_planted(
        |simulation, store| {
            let key = simulation.certain_key(|s, key| s.pairs.contains_key(&key))?;
            store.walked.push((key, simulation.pairs[&key].clone()));
            Some(key)
        },
        |violation, key| *violation == Violation::Twice { key },
    );
    check_planted(
        |simulation, store| {
            let key = simulation.certain_key(|s, key| s.pairs.contains_key(&key))?;
            store.walked.retain(|(k, _)| *k != key);
            Some(key)
        },
        |violation, key| *violation == Violation::Walked { key },
    );
    check_planted(
        |_, store| {
            store.walked.push((77, value_of(77, Ticket(1), 60)));
            Some(77)
        },
        |violation, key| *violation == Violation::Stranger { name: name_of(key).to_vec() },
    );
}

/// A store that several clients write to and that dies in the middle of a write.
#[derive(Clone)]
struct Dying {
    pairs: Arc<Mutex<Pairs>>,
    calls_left: Arc<AtomicU64>,
    rng: Rng,
}

impl Dying {
    fn change(&mut self, change: impl FnOnce(&mut Pairs)) -> Result<(), Failure> {
        let left =
            self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        let dies = left.is_err();
        if !dies || (self.calls_left.load(Ordering::SeqCst) == 0 && self.rng.one_in(2)) {
            change(&mut self.pairs.lock().unwrap());
        }
        if dies { Err("connection closed".into()) } else { Ok(()) }
    }
}

impl Writer for Dying {
    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failure> {
        let key = terrace_workload::crash::key_named(name).unwrap();
        self.change(|pairs| {
            pairs.insert(key, value.to_vec());
        })
    }

    fn delete(&mut self, name: &[u8]) -> Result<(), Failure> {
        let key = terrace_workload::crash::key_named(name).unwrap();
        self.change(|pairs| {
            pairs.remove(&key);
        })
    }

    fn put_all(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), Failure> {
        let named = |name| terrace_workload::crash::key_named(name).unwrap();
        self.change(|all| all.extend(pairs.iter().map(|(k, v)| (named(k), v.to_vec()))))
    }
}

fn drive_until_death(record: &impl CrashRecord, pairs: &Arc<Mutex<Pairs>>, round: u64) {
    let calls_left = Arc::new(AtomicU64::new(200 + round * 7));
    std::thread::scope(|scope| {
        for client in 0..4 {
            let mut writer = Dying {
                pairs: pairs.clone(),
                calls_left: calls_left.clone(),
                rng: Rng::new(round),
            };
            // All on the same keys: their writes overlap.
            let mut script = Script {
                keys: 40,
                batch_one_in: 10,
                max_value_bytes: 300,
                ..Script::new(round * 10 + client)
            };
            scope.spawn(move || {
                let driven = drive(record, &mut writer, &mut script, &AtomicBool::new(false));
                assert!(driven.failure.is_some());
            });
        }
    });
}

#[test]
fn driven_clients_and_a_dying_store_agree_in_memory_and_by_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (mut ledger, pairs) =
        (Ledger::new(Promise::OnAcknowledge), Arc::new(Mutex::new(Pairs::new())));
    for round in 0..30 {
        let shared = SharedLedger::new(ledger);
        drive_until_death(&shared, &pairs, round);
        ledger = shared.into_ledger();
        let mut store = Store::of(pairs.lock().unwrap().clone());
        let report = verify(&mut ledger, &mut store).unwrap();
        assert!(report.is_sound(), "round {round}: {report}");
        assert!(report.in_flight > 0);
    }
    Journal::replace(&path, &ledger).unwrap();
    for round in 0..10 {
        let journal = Journal::open(&path, Promise::OnAcknowledge).unwrap();
        drive_until_death(&journal, &pairs, round);
        drop(journal);
        let mut ledger = Journal::read(&path, Promise::OnAcknowledge).unwrap();
        let mut store = Store::of(pairs.lock().unwrap().clone());
        let report = verify(&mut ledger, &mut store).unwrap();
        assert!(report.is_sound() && report.keys >= 40, "round {round}: {report}");
        Journal::replace(&path, &ledger).unwrap();
    }
}
