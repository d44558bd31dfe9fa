//! What concurrent threads were told by a map can always be explained by some order of their
//! operations, each at one instant between its call and its return, while the index grows, the
//! collector moves what they read, and the durability changes under them.
//!
//! Every history is recorded as it happens and handed to the linearizability checker. The checker
//! itself is put to the test at the end: a map that tells stale values, and one that loses
//! updates, must be found out.
//!
//! `TERRACE_LONG=1` records twenty times as many.

use crate::adversary::{Random, cases, options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace_store::laboratory::{Laboratory, LeafForm, TreeForm};
use terrace_store::{
    Change, Domain, Durability, Kind, Map, MapOptions, Persist, Session, ValueDesign,
};
use terrace_workload::history::{
    Call, Client, Operation, Recorder, RegisterState, Response, joined,
};
use terrace_workload::linearizability::{DEFAULT_BUDGET, Verdict, check};

/// How a history is made.
#[derive(Clone, Copy)]
struct Load {
    threads: u64,
    keys: u64,
    operations: u64,
    /// Bytes of a value: large ones turn logs over, so that the collector runs.
    value_bytes: usize,
}

/// What the threads talk to: the map, or a liar in front of it.
trait Register: Sync {
    fn ask(&self, session: &mut Session, key: &[u8], call: Call, bytes: usize) -> Response;
}

struct Honest;

fn encoded(number: i64, bytes: usize) -> Vec<u8> {
    let mut value = vec![number as u8; bytes.max(8)];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

fn number_in(value: &[u8]) -> i64 {
    let number = i64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
    assert!(value[8..].iter().all(|byte| *byte == number as u8), "a value is read whole");
    number
}

impl Register for Honest {
    fn ask(&self, session: &mut Session, key: &[u8], call: Call, bytes: usize) -> Response {
        let told = match call {
            Call::Get => {
                Response::Value(session.get(key, |value| number_in(value.bytes)).expect("get"))
            }
            Call::Put(number) => {
                session.put(key, &encoded(number, bytes), None).expect("put");
                Response::Done
            }
            Call::Delete => Response::Flag(session.delete(key).expect("delete")),
            Call::CompareAndSet { expected, new } => {
                let value_of = |state: RegisterState| state.map(|number| encoded(number, bytes));
                let (expected, new) = (value_of(expected), value_of(new));
                let map = session.map();
                Response::Flag(
                    map.compare_and_set(key, expected.as_deref(), new.as_deref()).expect("cas"),
                )
            }
            Call::Increment(by) => {
                Response::Value(Some(exchange(session, key, bytes, |old| old.unwrap_or(0) + by).1))
            }
            Call::Swap(number) => Response::Value(exchange(session, key, bytes, |_| number).0),
        };
        session.commit().expect("commit");
        told
    }
}

/// Replaces the number under `key` by what `next` makes of it, in one update; what was there and
/// what is there now. The value written is made before, so the update is tried until it fits.
fn exchange(
    session: &mut Session,
    key: &[u8],
    bytes: usize,
    next: impl Fn(RegisterState) -> i64,
) -> (RegisterState, i64) {
    let mut guess = None;
    loop {
        let number = next(guess);
        let value = encoded(number, bytes);
        let mut before = None;
        let mut written = false;
        session
            .update(key, |now| {
                before = now.map(|value| number_in(value.bytes));
                written = next(before) == number;
                if written {
                    Change::Put { value: &value, expires_at_ms: None }
                } else {
                    Change::Keep
                }
            })
            .expect("update");
        if written {
            return (before, number);
        }
        guess = before;
    }
}

fn drawn(random: &mut Random, last: RegisterState, unique: i64) -> Call {
    match random.below(12) {
        0..4 => Call::Get,
        4..6 => Call::Put(unique),
        6 => Call::Delete,
        7..9 => {
            let expected = if random.one_in(4) { None } else { last };
            Call::CompareAndSet { expected, new: (!random.one_in(4)).then_some(unique) }
        }
        9..11 => Call::Increment(1 + random.below(3) as i64),
        _ => Call::Swap(unique),
    }
}

fn client(
    map: &Map,
    via: &dyn Register,
    log: &mut Client<'_>,
    load: Load,
    seed: u64,
    thread: u64,
    first_key: u64,
) {
    let mut random = Random(seed ^ (thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut session = map.session();
    let mut last = None;
    for n in 0..load.operations {
        let key = first_key + random.below(load.keys);
        // Increments are small and told apart from puts, which are multiples of a million.
        let unique = 1_000_000 * (1 + (thread * load.operations + n) as i64);
        let call = drawn(&mut random, last, unique);
        let pending = log.call(key, call);
        let told = via.ask(&mut session, &key.to_be_bytes(), call, load.value_bytes);
        log.returned(pending, told);
        if let Response::Value(state) = told {
            last = state;
        }
    }
}

/// One history over keys nobody used before, so that they start absent.
fn history(map: &Map, via: &dyn Register, load: Load, seed: u64, first_key: u64) -> Vec<Operation> {
    let recorder = Recorder::new();
    let logs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| {
                let mut log = recorder.client();
                scope.spawn(move || {
                    client(map, via, &mut log, load, seed, thread, first_key);
                    log.into_operations()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    joined(logs)
}

fn verified(history: &[Operation], what: &str) {
    match check(history, DEFAULT_BUDGET) {
        Verdict::Linearizable => {}
        Verdict::Violation(violation) => panic!("{what}: {violation}"),
        Verdict::Undecided { key } => {
            panic!("{what}: key {key} is too entangled to be decided; use more keys")
        }
    }
}

/// Runs `histories` of about 200 operations on one map while `meanwhile` goes on beside them.
fn all_explained(
    options: MapOptions,
    histories: u64,
    value_bytes: usize,
    meanwhile: impl Fn(&Map, u64) + Sync,
) -> Map {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options).expect("open");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..)
                .take_while(|_| !done.load(Ordering::Relaxed))
                .for_each(|round| meanwhile(&map, round));
        });
        let finished = OnDrop(&done);
        for seed in 0..histories {
            let threads = 2 + seed % 7;
            let keys = 1 + seed / 7 % 6;
            let load = Load { threads, keys, operations: 200 / threads, value_bytes };
            let history = history(&map, &Honest, load, seed, seed << 8);
            verified(&history, &format!("history {seed} of {threads} threads on {keys} keys"));
            for key in 0..keys {
                map.delete(&((seed << 8) + key).to_be_bytes()).expect("delete");
            }
        }
        drop(finished);
    });
    map
}

/// Lets the threads beside a test end also when it fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn while_the_index_grows() {
    let grown = AtomicU64::new(0);
    let options = MapOptions { writers: 3, ..options(Durability::None) };
    let map = all_explained(options, cases(900), 8, |map, round| {
        // Keys that no history uses; the table splits a bucket with about every fifth.
        for n in 0..200 {
            map.put(&[b"grow".as_slice(), &(round * 200 + n).to_be_bytes()].concat(), b"")
                .expect("put");
        }
        grown.fetch_add(200, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(300));
    });
    assert!(
        map.len() >= grown.into_inner() && map.stats().index_bytes > 1 << 20,
        "{:?}",
        map.stats()
    );
}

#[test]
fn while_the_collector_moves_what_they_read() {
    let small =
        MapOptions { memory_budget_bytes: 48 << 20, writers: 2, ..options(Durability::None) };
    let map = all_explained(small, cases(700), 20_000, |map, round| {
        // Live keys among the dead, to be moved again and again.
        for n in 0..10 {
            map.put(
                &[b"kept".as_slice(), &(round * 10 + n).wrapping_rem(300).to_be_bytes()].concat(),
                &[1; 10_000],
            )
            .expect("put");
        }
        std::thread::sleep(Duration::from_millis(1));
    });
    let stats = map.stats();
    assert!(stats.collections > 20 && stats.moved_bytes > 0, "the collector had work: {stats:?}");
}

#[test]
fn while_the_durability_changes() {
    let changes = AtomicU64::new(0);
    all_explained(options(Durability::Sync), cases(450), 100, |map, round| {
        let next = match round % 3 {
            0 => Durability::Interval(Duration::from_millis(1)),
            1 => Durability::None,
            _ => Durability::Sync,
        };
        map.set_durability(next).expect("switch");
        changes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    });
    assert!(changes.into_inner() >= 6, "the durability was changed each way while they ran");
}

#[test]
fn under_sync() {
    all_explained(options(Durability::Sync), cases(150), 100, |_, _| {
        std::thread::sleep(Duration::from_millis(5))
    });
}

/// With a persistent index, what is observed is durable first, and a collector may move leaves of logs.
#[test]
fn on_persistent_trees() {
    for tree in [LeafForm::FastFair.into(), TreeForm::Logs] {
        for values in [ValueDesign::Log, ValueDesign::Slab] {
            let kept = MapOptions {
                kind: Kind::Ordered,
                laboratory: Laboratory {
                    tree: Some(tree),
                    node_bytes: Some(128),
                    ..Laboratory::default()
                },
                persist: Persist::Index,
                domain: Domain::Adr,
                values,
                ..options(Durability::Sync)
            };
            all_explained(kept, cases(120), 100, |map, round| {
                for n in 0..100 {
                    let key = [b"more".as_slice(), &(n % 30 + round % 7).to_be_bytes()].concat();
                    match n % 3 {
                        0 => drop(map.delete(&key).expect("delete")),
                        _ => map.put(&key, b"value").expect("put"),
                    }
                }
                std::thread::sleep(Duration::from_micros(300));
            });
        }
    }
}

// ---------------------------------------------------------------- the alarm is tested

/// Answers one read in ten from what a thread was told some time ago.
struct Stale(std::sync::Mutex<std::collections::HashMap<Vec<u8>, Response>>, AtomicU64);

impl Register for Stale {
    fn ask(&self, session: &mut Session, key: &[u8], call: Call, bytes: usize) -> Response {
        let told = Honest.ask(session, key, call, bytes);
        if call != Call::Get {
            return told;
        }
        let turn = self.1.fetch_add(1, Ordering::Relaxed);
        let mut remembered = self.0.lock().expect("lock");
        if turn % 10 == 9 {
            return remembered.get(key).copied().unwrap_or(told);
        }
        if turn % 10 < 5 {
            remembered.insert(key.to_vec(), told);
        }
        told
    }
}

/// Increments by a read and a write, as if nobody else were there.
struct Careless;

impl Register for Careless {
    fn ask(&self, session: &mut Session, key: &[u8], call: Call, bytes: usize) -> Response {
        let Call::Increment(by) = call else { return Honest.ask(session, key, call, bytes) };
        let old = session.get(key, |value| number_in(value.bytes)).expect("get").unwrap_or(0);
        std::thread::yield_now();
        session.put(key, &encoded(old + by, bytes), None).expect("put");
        Response::Value(Some(old + by))
    }
}

#[test]
fn a_map_that_lies_is_found_out() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    let stale = Stale(std::sync::Mutex::default(), AtomicU64::new(0));
    let liars: [(&str, &dyn Register); 2] = [("stale reads", &stale), ("lost updates", &Careless)];
    for (n, (name, liar)) in liars.into_iter().enumerate() {
        let load = Load { threads: 4, keys: 2, operations: 100, value_bytes: 8 };
        let caught = (0..40u64)
            .filter(|seed| {
                let history = history(&map, liar, load, *seed, (n as u64) << 40 | seed << 8);
                matches!(check(&history, DEFAULT_BUDGET), Verdict::Violation(_))
            })
            .count();
        assert!(caught >= 20, "{name}: {caught} of 40 histories rejected");
    }
}
