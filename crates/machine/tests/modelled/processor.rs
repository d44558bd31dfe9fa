//! What a processor does: fences, fill buffers, stores a cycle, caches between cores, and what is free of charge.

use super::{Shorthand, optane, pmem, preset, scattered};
use terrace_machine::model::Machine;
use terrace_memory::{Laboratory, Memory};

#[test]
fn a_fence_waits_for_what_was_written_back() {
    let machine = optane(1);
    let memory = pmem(&machine, 1 << 20);
    memory.put(0, 1);
    memory.fence();
    let start = machine.now_ps();
    memory.put(0, 2);
    memory.write_out(0, 8);
    let issued = machine.now_ps();
    memory.fence();
    let fenced = machine.now_ps();
    assert!(issued - start < 10_000, "{} ps: it goes on behind", issued - start);
    assert!(fenced - issued >= 60_000, "{} ps: 62 ns to the controller", fenced - issued);
    let waited = machine.thread_counts(0).fence_wait_ps;
    memory.fence();
    assert_eq!(machine.thread_counts(0).fence_wait_ps, waited, "nothing was left to wait for");
}

#[test]
fn prefetched_lines_overlap_and_loads_do_not() {
    let machine = optane(1);
    let memory = pmem(&machine, 64 << 20);
    let places: Vec<u64> = scattered(12, (64 << 20) / 4096).map(|place| place * 4096).collect();
    let start = machine.now_ps();
    places.iter().for_each(|at| memory.look(*at));
    let one_by_one = machine.now_ps() - start;
    machine.clear_caches();
    let start = machine.now_ps();
    places.iter().for_each(|at| memory.prefetch(*at));
    places.iter().for_each(|at| memory.look(*at));
    let together = machine.now_ps() - start;
    assert!(one_by_one > 12 * 300_000, "{one_by_one}");
    assert!(together < one_by_one / 6, "{together} of {one_by_one}: twelve fill buffers");
}

#[test]
fn whether_a_write_back_keeps_the_line_shows_in_the_next_load() {
    let reread = |name: &str| {
        let machine = Machine::new(&preset(name), 1, 7);
        let memory = pmem(&machine, 4096);
        memory.put(0, 1);
        memory.write_out(0, 8);
        memory.fence();
        let start = machine.now_ps();
        memory.get(0);
        machine.now_ps() - start
    };
    assert!(reread("optane-000") < 10_000, "kept");
    assert!(reread("optane-001") > 160_000, "flushed");
}

#[test]
fn a_line_takes_as_many_cycles_as_it_takes_stores() {
    let machine = optane(1);
    let memory = pmem(&machine, 4096);
    memory.put(0, 1);
    memory.fence();
    let time = |bytes: usize| {
        let start = machine.now_ps();
        (0..1000).for_each(|_| memory.wrote(0, bytes));
        (machine.now_ps() - start) as f64 / 1000.0 / 1000.0
    };
    let (word, line) = (time(8), time(64));
    assert!((line / word - 2.0).abs() < 0.05, "{word} and {line} ns: 32 bytes a cycle");
}

#[test]
fn a_line_written_by_one_core_is_transferred_to_another() {
    let machine = optane(2);
    let memory = pmem(&machine, 4096);
    memory.put(0, 1);
    memory.fence();
    machine.barrier();
    machine.enter(1);
    let start = machine.now_ps();
    assert_eq!(memory.get(0), 1);
    let shared = machine.now_ps() - start;
    assert_eq!(machine.thread_counts(1).from_cores, 1);
    assert!((50_000..60_000).contains(&shared), "{shared} ps: 55 ns from core to core");
    // Writing it asks the first for it; its next load finds it gone.
    memory.put(0, 2);
    memory.fence();
    machine.barrier();
    machine.enter(0);
    let before = machine.thread_counts(0).from_cores;
    assert_eq!(memory.get(0), 2);
    assert_eq!(machine.thread_counts(0).from_cores, before + 1);
}

#[test]
fn a_borrow_costs_what_is_looked_at_and_what_is_free_of_charge_nothing() {
    let machine = optane(1);
    let memory = pmem(&machine, 1 << 20);
    // SAFETY: inside, and nobody writes it.
    let borrowed = unsafe { memory.borrow(4096, 640) };
    assert_eq!((borrowed.len(), machine.now_ps()), (640, 0));
    machine.free_of_charge(|| memory.wrote(4096, 640));
    assert_eq!((machine.now_ps(), borrowed.len()), (0, 640));
    memory.looked_at(4096, 640);
    assert!(machine.now_ps() > 0);
    assert_eq!(machine.thread_counts(0).accesses, 10);
}
