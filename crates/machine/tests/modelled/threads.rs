//! Logical threads: the same seed gives the same run, whatever the threads are made of.

use super::{Shorthand, optane, pmem, preset, scattered};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_machine::model::Machine;
use terrace_memory::{Backing, Laboratory, Memory, Region};

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let machine = Machine::new(&preset("optane-004").with_caches_divided(64), 3, seed);
        let memory = pmem(&machine, 16 << 20);
        let mut steps: Vec<_> = (0..3u64)
            .map(|thread| {
                let memory = &memory;
                let mut places = scattered(3000 + thread, (16 << 20) / 256);
                move || places.next().map(|place| memory.wrote(place * 256, 256)).is_some()
            })
            .collect();
        let time = machine.run_steps(&mut steps);
        (time, machine.node_counts("pmem0").unwrap(), machine.thread_counts(1))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2), "the seed decides what is evicted");
}

/// A list of nodes of two words, value and next: written against any memory.
fn list_sum<M: Memory>(memory: &M, values: &[u64]) -> u64 {
    let mut head = 0;
    for (place, value) in scattered(values.len() as u64, 1 << 14).zip(values) {
        let at = 64 + place * 64;
        if memory.get(at) != 0 {
            continue;
        }
        memory.put(at, *value);
        memory.put(at + 8, head);
        // SAFETY: inside.
        unsafe { memory.persist(at, 16) };
        head = at;
    }
    let mut sum = 0;
    while head != 0 {
        sum += memory.get(head);
        head = memory.get(head + 8);
    }
    sum
}

#[test]
fn a_structure_runs_on_it_unchanged() {
    let values: Vec<u64> = (1..=1000).collect();
    let region = Region::reserve(2 << 20, Backing::Anonymous).unwrap();
    region.commit(0, 2 << 20).unwrap();
    let expected = list_sum(&region.native(), &values);
    let machine = optane(1);
    let memory = pmem(&machine, 2 << 20);
    assert_eq!(list_sum(&memory, &values), expected);
    let counts = machine.node_counts("pmem0").unwrap();
    assert!(counts.written_back_bytes >= 64 * 900, "{counts:?}");
    assert!(machine.elapsed().as_micros() > 100);
}

#[test]
fn threads_that_are_closures_exclude_one_another() {
    let run = || {
        let machine = optane(4);
        let memory = pmem(&machine, 4096);
        let threads = (0..4)
            .map(|_| -> Box<dyn FnOnce() + Send + '_> {
                Box::new(|| {
                    for _ in 0..200 {
                        // A lock in the memory, and a counter that is not exchanged but stored.
                        // SAFETY: inside and aligned.
                        while unsafe { memory.compare_exchange(0, 0, 1) }.is_err() {
                            memory.pause();
                        }
                        let count = memory.get(64);
                        memory.put(64, count + 1);
                        memory.put(0, 0);
                    }
                })
            })
            .collect();
        let time = machine.run_threads(threads);
        assert_eq!(memory.get(64), 800);
        let taken: u64 = (0..4).map(|thread| machine.thread_counts(thread).from_cores).sum();
        assert!(taken >= 8, "{taken}: the lock goes from core to core");
        time
    };
    assert_eq!(run(), run(), "not even the operating system's threads make a difference");
}

#[test]
fn a_thread_that_panics_ends_the_run() {
    let machine = optane(2);
    let memory = pmem(&machine, 4096);
    let ran = AtomicU64::new(0);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        machine.run_threads(vec![
            Box::new(|| panic!("on purpose")),
            Box::new(|| {
                memory.put(0, 1);
                ran.fetch_add(1, Relaxed);
            }),
        ])
    }));
    assert!(result.is_err());
    assert_eq!(ran.load(Relaxed), 1, "the other went on");
}
