//! Threads: recorded histories have an order, and slots that are used again confuse nobody.

use super::*;
use std::sync::Barrier;
use terrace_workload::history::{Call, Recorder, Response, joined};
use terrace_workload::linearizability::{DEFAULT_BUDGET, check};

const THREADS: u64 = 4;

/// A source of numbers that any seed repeats.
struct Draws(u64);

impl Draws {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Inserts, however often no slot is free because a thread that may hold them does not run.
fn insert<P: Protocol>(session: &mut Session<Native, P>, key: u64, value: u64) -> bool {
    loop {
        match session.insert(key, value) {
            Ok(is_new) => return is_new,
            Err(Error::Full { .. }) => std::thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
    }
}

/// Keys so few that threads meet, and a slab so small that slots are used again at once.
fn has_an_order<P: Protocol>(size: Size, seed: u64) {
    let fixture = Fixture::of::<P>(size);
    let table = ListTable::<_, P>::create(fixture.media::<P>(), size).unwrap();
    let (recorder, barrier) = (Recorder::new(), Barrier::new(THREADS as usize));
    let logs: Vec<_> = std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let (table, recorder, barrier) = (&table, &recorder, &barrier);
            scope.spawn(move || {
                let (mut session, mut client) = (table.session().unwrap(), recorder.client());
                let mut draws = Draws(seed ^ thread << 40);
                barrier.wait();
                for number in 0..2_000 {
                    let key = draws.below(6);
                    // Every insertion has a value of its own, so a read tells which it is of.
                    let value = (thread * 1_000_000 + number) as i64;
                    let (call, told): (Call, Box<dyn FnOnce() -> Response>) = match draws.below(3) {
                        0 => (
                            Call::CompareAndSet { expected: None, new: Some(value) },
                            Box::new(|| Response::Flag(insert(&mut session, key, value as u64))),
                        ),
                        1 => (
                            Call::Delete,
                            Box::new(|| Response::Flag(session.remove(key).is_some())),
                        ),
                        _ => (
                            Call::Get,
                            Box::new(|| {
                                Response::Value(session.get(key).map(|value| value as i64))
                            }),
                        ),
                    };
                    let pending = client.call(key, call);
                    let told = told();
                    client.returned(pending, told);
                }
                client.into_operations()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let verdict = check(&joined(logs), DEFAULT_BUDGET);
    assert!(verdict.is_linearizable(), "{} seed {seed}: {verdict:?}", P::NAME);
    let live = contents(&table);
    drop(table);
    let table = ListTable::<_, P>::open(fixture.media::<P>()).unwrap();
    assert_eq!(contents(&table), live, "{}: what was there is there", P::NAME);
    assert_eq!(table.free_nodes(), size.capacity - live.len() as u64);
}

#[test]
fn concurrent_histories_are_linearizable() {
    for seed in 1..4 {
        each_list!(has_an_order, Size::list(1_000), seed);
        each_list!(has_an_order, Size { capacity: 1_000, buckets: 4 }, seed);
    }
}
