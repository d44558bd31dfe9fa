//! The driver of a DSA against the emulated one: batches, faults, errors, full queues, several submitters; and that an
//! engine that is not right is noticed.

use std::time::Duration;
use terrace_movement::{
    Buffer, Emulated, EmulatedOptions, Engine, Error, Failure, Handle, Soak, Source, Task,
};

fn emulated(options: EmulatedOptions) -> Emulated {
    Emulated::new(options).unwrap()
}

fn copy(bytes: usize, value: u8) -> Task {
    Task::copy(&Source::from(vec![value; bytes]), Buffer::new(vec![0; bytes]), 0).unwrap()
}

/// Submits, as often as the queue is full.
fn submit(emulated: &Emulated, mut task: Task) -> Handle {
    loop {
        match emulated.engine().submit(task) {
            Ok(handle) => return handle,
            Err(refused) => {
                assert!(matches!(refused.error, Error::Full { .. }), "{}", refused.error);
                task = refused.task;
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn pieces_go_as_batches_as_large_as_the_queue_allows() {
    let emulated = emulated(EmulatedOptions { batch: 100, ..EmulatedOptions::default() });
    let pieces: Vec<_> = (0..250).map(|n| (Source::from(vec![n as u8; 100]), n * 100)).collect();
    let task = Task::gather(&pieces, Buffer::new(vec![0; 25_000])).unwrap();
    let finished = submit(&emulated, task).wait();
    assert_eq!(finished.result.unwrap().bytes, 25_000);
    let target = finished.target.unwrap();
    assert!(
        target
            .bytes()
            .chunks(100)
            .enumerate()
            .all(|(n, piece)| piece.iter().all(|b| *b == n as u8))
    );
    let stats = emulated.stats();
    assert_eq!((stats.batches, stats.accepted, stats.executed), (3, 3, 250));
}

#[test]
fn a_fence_keeps_the_check_behind_the_copy_through_faults() {
    let options = EmulatedOptions {
        faults_ppm: 600_000,
        block_on_fault: false,
        ..EmulatedOptions::default()
    };
    let emulated = emulated(options);
    let source = Source::from((0..200_000u32).map(|n| (n * 7) as u8).collect::<Vec<_>>());
    for _ in 0..50 {
        let task = Task::copy_and_check(&source, Buffer::new(vec![0; 200_000]), 0).unwrap();
        let finished = submit(&emulated, task).wait();
        assert_eq!(finished.result.unwrap().crc, Some(crc_fast::crc32_iscsi(source.bytes())));
    }
    assert!(emulated.stats().faults > 20);
}

#[test]
fn an_error_of_the_device_is_reported_with_what_was_done() {
    let emulated =
        emulated(EmulatedOptions { errors_ppm: 1_000_000, ..EmulatedOptions::default() });
    let finished = submit(&emulated, copy(10_000, 1)).wait();
    let Err(Failure::Engine { engine, status: 0x20, done: 5_000, .. }) = finished.result else {
        panic!("{:?}", finished.result);
    };
    assert_eq!((&*engine, finished.target.unwrap().bytes().len()), ("dsa-emulated", 10_000));
}

#[test]
fn a_device_that_always_faults_at_once_is_given_up() {
    // One page: every fault is at its start, before a byte is done.
    let options = EmulatedOptions {
        faults_ppm: 1_000_000,
        block_on_fault: false,
        ..EmulatedOptions::default()
    };
    let emulated = emulated(options);
    let arena = terrace_movement::Arena::new(4096, None).unwrap();
    let task = Task::copy(&Source::from(vec![1; 4096]), arena.buffer(4096).unwrap(), 0).unwrap();
    let failure = submit(&emulated, task).wait().result.unwrap_err();
    assert!(matches!(failure, Failure::Faults { faults: 9, done: 0, .. }), "{failure}");
}

#[test]
fn a_full_queue_refuses_and_a_dedicated_one_is_never_overrun() {
    for dedicated in [false, true] {
        let options = EmulatedOptions {
            queue: 4,
            dedicated,
            bytes_per_second: 50 << 20,
            ..EmulatedOptions::default()
        };
        let emulated = emulated(options);
        let mut running = Vec::new();
        let refused = loop {
            match emulated.engine().submit(copy(1 << 20, 1)) {
                Ok(handle) => running.push(handle),
                Err(refused) => break refused,
            }
            assert!(running.len() < 10);
        };
        assert!(matches!(refused.error, Error::Full { .. }));
        assert_eq!(refused.task.bytes(), 1 << 20);
        assert!(running.into_iter().all(|handle| handle.wait().result.is_ok()));
        assert_eq!(emulated.stats().overruns, 0);
        assert_eq!(emulated.stats().retries > 0, !dedicated);
    }
}

#[test]
fn an_engine_that_is_dropped_ends_what_it_has() {
    let emulated =
        emulated(EmulatedOptions { bytes_per_second: 100 << 20, ..EmulatedOptions::default() });
    let handles: Vec<Handle> = (0..10).map(|_| submit(&emulated, copy(1 << 20, 3))).collect();
    // Handles of polled engines keep them.
    drop(emulated);
    for handle in handles {
        assert_eq!(handle.wait().target.unwrap().bytes(), vec![3; 1 << 20]);
    }
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

/// Whoever asked the device met the panic of a memory that was not his, and other tasks that had ended with it were
/// said to have failed.
#[test]
fn memory_that_panics_when_it_is_freed_harms_nobody_else() {
    let emulated = emulated(EmulatedOptions::default());
    let bomb = |value| {
        Task::copy(&Source::from(vec![value; 100]), Buffer::new(Bomb(vec![0; 100])), 0).unwrap()
    };
    drop(submit(&emulated, bomb(1)));
    drop(submit(&emulated, bomb(2)));
    let handles: Vec<Handle> = (0..5).map(|_| submit(&emulated, copy(1000, 3))).collect();
    for handle in handles {
        assert_eq!(handle.wait().result.map(|report| report.bytes), Ok(1000));
    }
}

/// An engine whose queue is full, and what keeps it so.
fn full() -> (Emulated, Handle, Handle) {
    let emulated = emulated(EmulatedOptions {
        queue: 1,
        bytes_per_second: 4 << 20,
        ..EmulatedOptions::default()
    });
    let running = submit(&emulated, copy(1 << 20, 1));
    let queued = submit(&emulated, copy(1 << 10, 1));
    (emulated, running, queued)
}

#[test]
fn a_part_that_its_engine_refuses_goes_to_the_next_and_the_report_says_so() {
    let (busy, ..) = full();
    let engines = [Engine::streaming(), busy.engine().clone()];
    let finished = Engine::submit_over(&engines, copy(1 << 20, 5)).unwrap().wait();
    let report = finished.result.unwrap();
    assert_eq!((report.bytes, report.shares.len()), (1 << 20, 2));
    assert!(report.shares.iter().all(|share| &*share.engine == "cpu-streaming"));
    assert!(finished.target.unwrap().bytes().iter().all(|byte| *byte == 5));
}

#[test]
fn a_part_that_every_engine_refuses_is_a_failure_that_says_so() {
    let ((one, ..), (other, ..)) = (full(), full());
    let engines = [one.engine().clone(), other.engine().clone()];
    let finished = Engine::submit_over(&engines, copy(1 << 20, 5)).unwrap().wait();
    let failure = finished.result.unwrap_err();
    assert!(
        matches!(&failure, Failure::Abandoned { why, .. } if why.contains("is full")),
        "{failure}"
    );
    let none = Engine::submit_over(&[], copy(10, 1)).unwrap_err();
    assert!(matches!(none.error, Error::NoEngine(_)) && none.task.bytes() == 10);
}

fn soak(threads: u64, tasks: u64) -> Soak {
    Soak { threads, tasks, patience: Duration::from_secs(3), seed: 11 }
}

#[test]
fn many_submitters_on_one_queue_lose_nothing_and_duplicate_nothing() {
    for dedicated in [false, true] {
        let options = EmulatedOptions {
            queue: 3,
            dedicated,
            faults_ppm: 100_000,
            block_on_fault: false,
            ..EmulatedOptions::default()
        };
        let emulated = emulated(options);
        let counts = soak(12, 300).run(emulated.engine()).unwrap();
        assert_eq!((counts.right, counts.refused > 0), (3600, true), "{counts:?}");
        let stats = emulated.stats();
        assert_eq!(
            (stats.executed - stats.faults, stats.overruns),
            (3600, 0),
            "each once, and again after a fault"
        );
    }
}

#[test]
fn errors_of_the_device_are_told_and_never_wrong_bytes() {
    let emulated = emulated(EmulatedOptions { errors_ppm: 200_000, ..EmulatedOptions::default() });
    let counts = soak(3, 300).run(emulated.engine()).unwrap();
    assert_eq!((counts.wrong, counts.lost, counts.right + counts.failed), (0, 0, 900));
    assert_eq!(counts.failed, emulated.stats().errors);
}

#[cfg(feature = "faults")]
#[test]
fn a_device_that_loses_duplicates_or_lies_is_noticed_by_the_soak() {
    use terrace_movement::Misdeed;
    for misdeed in [Misdeed::Lose, Misdeed::Twice, Misdeed::FalseSuccess] {
        let emulated = emulated(EmulatedOptions::default());
        emulated.misbehave(misdeed, 50);
        let counts = soak(2, 200).run(emulated.engine()).unwrap();
        let noticed = if misdeed == Misdeed::Lose { counts.lost } else { counts.wrong };
        assert!(noticed > 0, "{misdeed:?}: {counts:?}");
    }
}
