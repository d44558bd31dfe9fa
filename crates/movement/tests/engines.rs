//! Every engine does what the processor would have done, and says when it did not.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use terrace_movement::{
    Balancer, Buffer, Emulated, EmulatedOptions, Engine, Error, Fleet, Node, Source, Station, Task,
};

fn engines() -> Vec<Engine> {
    let base = EmulatedOptions { block_on_fault: false, ..EmulatedOptions::default() };
    let emulated = [
        EmulatedOptions::default(),
        EmulatedOptions { faults_ppm: 700_000, ..base },
        EmulatedOptions {
            faults_ppm: 300_000,
            transfer_bytes: 64 << 10,
            batch: 2,
            queue: 1,
            dedicated: true,
            ..base
        },
        EmulatedOptions {
            faults_ppm: 100_000,
            transfer_bytes: 64 << 10,
            batch: 0,
            queue: 4,
            ..base
        },
    ];
    let mut all =
        vec![Engine::cached(), Engine::streaming(), Engine::pool(3, 64).expect("threads")];
    all.extend(emulated.map(|options| Emulated::new(options).expect("a thread").engine().clone()));
    all
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len).map(|_| next() as u8).collect()
}

fn run(engine: &Engine, task: Task) -> terrace_movement::Finished {
    engine.submit(task).expect("taken").wait()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]
    #[test]
    fn every_engine_copies_fills_moves_compares_and_sums_like_the_processor(
        len in 1usize..900_000, at in 0usize..200, seed in 0u64..1000, pattern: u64,
    ) {
        let source = Source::from(bytes(len + 7, seed)).slice(7, len).unwrap();
        for engine in engines() {
            let target = Buffer::new(vec![0xee; len + at + 3]);
            let finished = run(&engine, Task::copy(&source, target, at).unwrap());
            let report = finished.result.unwrap();
            prop_assert_eq!(report.bytes, len as u64);
            prop_assert!(report.shares.iter().all(|share| &*share.engine == engine.name()));
            let target = finished.target.unwrap();
            prop_assert_eq!(&target.bytes()[at..at + len], source.bytes());
            prop_assert!(target.bytes()[..at].iter().chain(&target.bytes()[at + len..]).all(|b| *b == 0xee));

            let mut expected = target.bytes().to_vec();
            expected.copy_within(at..at + len, 1);
            let finished = run(&engine, Task::shift(target, at, 1, len).unwrap());
            let target = finished.target.unwrap();
            prop_assert_eq!(target.bytes(), &expected[..]);

            let finished = run(&engine, Task::fill(target, at, len, pattern).unwrap());
            let target = finished.target.unwrap();
            let filled = target.bytes()[at..at + len].iter().enumerate();
            for (n, byte) in filled {
                prop_assert_eq!(*byte, pattern.to_le_bytes()[n % 8]);
            }

            let mut other = source.bytes().to_vec();
            let place = seed as usize % len;
            other[place] ^= 1;
            let other = Source::from(other);
            let difference = |right: &Source| {
                run(&engine, Task::compare(&source, right).unwrap()).result.unwrap().difference
            };
            prop_assert_eq!(difference(&other), Some(place as u64));
            prop_assert_eq!(difference(&source), None);
            let crc = run(&engine, Task::crc(&source).unwrap()).result.unwrap().crc.unwrap();
            prop_assert_eq!(crc, crc_fast::crc32_iscsi(source.bytes()));
            let task = Task::copy_and_check(&source, target, at).unwrap();
            prop_assert_eq!(run(&engine, task).result.unwrap().crc, Some(crc));
        }
    }
}

#[test]
fn bad_ranges_are_refused_before_an_engine_sees_them() {
    let source = Source::from(vec![1; 100]);
    let buffer = || Buffer::new(vec![0; 100]);
    assert!(matches!(Task::copy(&source, buffer(), 1), Err(Error::OutOfRange { len: 100, .. })));
    assert!(matches!(Task::copy(&source, buffer(), usize::MAX), Err(Error::OutOfRange { .. })));
    assert!(matches!(source.slice(usize::MAX, 2), Err(Error::OutOfRange { .. })));
    assert!(matches!(Task::copy(&source.slice(3, 0).unwrap(), buffer(), 1), Err(Error::Empty(_))));
    assert!(matches!(Task::shift(buffer(), 0, 60, 50), Err(Error::OutOfRange { .. })));
    assert!(matches!(Task::fill(buffer(), 100, 1, 0), Err(Error::OutOfRange { .. })));
    let short = source.slice(0, 99).unwrap();
    assert!(matches!(Task::compare(&source, &short), Err(Error::Lengths { left: 100, right: 99 })));
    let piece = |at| (source.slice(0, 20).unwrap(), at);
    assert!(matches!(
        Task::gather(&[piece(50), piece(10), piece(29)], buffer()),
        Err(Error::Overlap { at: 29 })
    ));
    assert!(matches!(Task::gather(&[], buffer()), Err(Error::Empty(_))));
    assert!(matches!(Engine::pool(0, 5), Err(Error::Option { option: "threads", .. })));
    assert!(matches!(Engine::pool(1, 0), Err(Error::Option { option: "queue", .. })));
}

/// Counts when it is freed.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsMut<[u8]> for Counted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
    }
}

#[test]
fn memory_outlives_a_handle_that_is_dropped_or_forgotten() {
    let freed = Arc::new(AtomicUsize::new(0));
    let pool = Engine::pool(1, 1024).expect("a thread");
    let count = 200;
    for n in 0..count {
        let target = Buffer::new(Counted(vec![0; 100_000], Arc::clone(&freed)));
        let handle =
            pool.submit(Task::copy(&Source::from(vec![1; 100_000]), target, 0).unwrap()).unwrap();
        if n % 2 == 0 {
            drop(handle);
        } else {
            std::mem::forget(handle);
        }
    }
    drop(pool);
    assert_eq!(freed.load(SeqCst), count / 2, "forgotten handles leak, and dropped ones do not");
}

/// Panics when it is freed.
struct Bomb(Vec<u8>);

impl AsMut<[u8]> for Bomb {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn memory_that_panics_when_it_is_freed_leaves_the_pool_working() {
    let pool = Engine::pool(1, 8).expect("a thread");
    let copy = |bytes: usize, target| Task::copy(&Source::from(vec![1; bytes]), target, 0).unwrap();
    // Behind a long task, so that the thread is the last to have the memory.
    let long = pool.submit(copy(64 << 20, Buffer::new(vec![0; 64 << 20]))).unwrap();
    drop(pool.submit(copy(100, Buffer::new(Bomb(vec![0; 100])))).unwrap());
    assert!(long.wait().result.is_ok());
    let task = Task::copy(&Source::from(vec![1; 100]), Buffer::new(vec![0; 100]), 0).unwrap();
    let finished = pool
        .submit(task)
        .unwrap()
        .wait_for(Duration::from_secs(20))
        .expect("a thread that works on");
    assert_eq!(finished.target.unwrap().bytes(), [1; 100]);
}

#[test]
fn a_full_queue_gives_the_task_back_and_copies_nothing() {
    let pool = Engine::pool(1, 2).expect("a thread");
    let large = Source::from(vec![1; 64 << 20]);
    let mut running = Vec::new();
    let refused = loop {
        let task = Task::copy(&large, Buffer::new(vec![0; 64 << 20]), 0).unwrap();
        match pool.submit(task) {
            Ok(handle) => running.push(handle),
            Err(refused) => break refused,
        }
        assert!(running.len() < 10, "a thread copies 64 MiB in no time");
    };
    assert!(matches!(refused.error, Error::Full { queued: 2, .. }), "{}", refused.error);
    assert!(running.into_iter().all(|handle| handle.wait().result.is_ok()));
    let finished = Engine::cached().submit(refused.task).expect("the same task").wait();
    assert_eq!(finished.target.unwrap().bytes(), large.bytes());
}

#[test]
fn a_wait_with_a_limit_gives_the_handle_back() {
    let pool = Engine::pool(1, 2).expect("a thread");
    let task =
        Task::copy(&Source::from(vec![1; 256 << 20]), Buffer::new(vec![0; 256 << 20]), 0).unwrap();
    let handle = pool.submit(task).unwrap();
    let handle = handle.wait_for(Duration::from_micros(1)).expect_err("256 MiB take longer");
    assert_eq!(handle.wait().result.unwrap().bytes, 256 << 20);
}

/// The end of the longest wait lies beyond what a clock can say; it panicked.
#[test]
fn a_wait_may_be_as_long_as_it_likes() {
    let pool = Engine::pool(1, 2).expect("a thread");
    let task = Task::copy(&Source::from(vec![1; 9]), Buffer::new(vec![0; 9]), 0).unwrap();
    let finished = pool.submit(task).unwrap().wait_for(Duration::MAX).expect("it ends");
    assert_eq!(finished.target.unwrap().bytes(), [1; 9]);
}

/// A large task was divided among all threads, and such a queue never had room for so many parts: whoever submitted
/// again until it was taken did so forever.
#[test]
fn a_pool_with_fewer_places_than_threads_takes_a_large_task() {
    let pool = Engine::pool(8, 2).expect("threads");
    let large = Source::from(vec![7; 16 << 20]);
    let task = Task::copy(&large, Buffer::new(vec![0; 16 << 20]), 0).unwrap();
    let finished = pool.submit(task).expect("an empty queue").wait();
    assert_eq!(finished.target.unwrap().bytes(), large.bytes());
    assert_eq!(finished.result.unwrap().shares.len(), 2);
}

fn fleet(sockets: &[u16]) -> Fleet {
    let stations = sockets.iter().enumerate().map(|(node, socket)| Station {
        engine: Engine::pool(1, 8).expect("a thread"),
        node: Node(node as u16),
        socket: *socket,
    });
    let homes: Vec<_> = (0..sockets.len() as u16).map(|n| (Node(n + 8), Node(n))).collect();
    Fleet::new(stations.collect(), &homes).expect("engines")
}

#[test]
fn balancers_choose_by_place_and_tell_of_degenerate_cases() {
    let machine = fleet(&[0, 0, 0, 0, 1, 1, 1, 1]);
    let count = |balancer, to| {
        let choice = machine.choose(balancer, Node(0), Node(to)).expect("nodes exist");
        (choice.engines.len(), choice.remark.is_some())
    };
    assert_eq!(count(Balancer::Single, 15), (1, false));
    assert_eq!(count(Balancer::PushPull, 15), (2, false));
    assert_eq!(count(Balancer::PushPull, 8), (2, true), "node 8 is served by the engine of node 0");
    assert_eq!(count(Balancer::Four, 11), (4, false));
    assert_eq!(count(Balancer::Four, 12), (4, false));
    assert_eq!(count(Balancer::BruteForce, 11), (8, false));
    assert!(matches!(
        machine.choose(Balancer::Single, Node(0), Node(99)),
        Err(Error::NoNode { node: 99, .. })
    ));

    let one = fleet(&[0]);
    let alone = one.choose(Balancer::PushPull, Node(0), Node(8)).expect("nodes exist");
    assert_eq!((alone.engines.len(), alone.remark.is_some()), (1, true));
    assert_eq!(one.choose(Balancer::Four, Node(0), Node(8)).expect("nodes exist").engines.len(), 1);
    assert!(matches!(Fleet::new(Vec::new(), &[]), Err(Error::NoEngine(_))));
}

#[test]
fn round_robin_gives_every_engine_as_many_whole_tasks() {
    let stations = (0..3).map(|node| Station {
        engine: Engine::pool(node + 1, 64).expect("threads"),
        node: Node(node as u16),
        socket: 0,
    });
    let fleet = Fleet::new(stations.collect(), &[]).expect("engines");
    let mut ran = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..30 {
        let task = Task::copy(&Source::from(vec![1; 4096]), Buffer::new(vec![0; 4096]), 0).unwrap();
        let report = fleet
            .submit(Balancer::RoundRobin, task, Node(0), Node(1))
            .unwrap()
            .wait()
            .result
            .unwrap();
        assert_eq!(report.shares.len(), 1);
        *ran.entry(report.shares[0].engine.to_string()).or_default() += 1;
    }
    assert_eq!(ran.into_values().collect::<Vec<_>>(), [10, 10, 10]);
}
