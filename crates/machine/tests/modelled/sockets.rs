//! Another socket: its distance, its link, and what its directory notes in memory.

use super::{Shorthand, preset, scattered};
use terrace_machine::load::{Load, Op};
use terrace_machine::model::Machine;
use terrace_memory::{Domain, Memory};

#[test]
fn another_socket_is_further_and_its_link_is_shared() {
    let preset = preset("four-socket");
    let latency = |node: &str| {
        let machine = Machine::new(&preset, 1, 7);
        let memory = machine.memory(node, 64 << 20, Domain::None).unwrap();
        let start = machine.now_ps();
        scattered(1000, (64 << 20) / 4096).for_each(|place| memory.look(place * 4096));
        (machine.now_ps() - start) as f64 / 1e6
    };
    let (near, far) = (latency("dram0"), latency("dram1"));
    assert!((55.0..65.0).contains(&(far - near)), "{near} and {far} ns");
    let bandwidth = |node: &str| {
        let machine = Machine::new(&preset, 24, 7);
        let memory = machine.memory(node, 96 << 20, Domain::None).unwrap();
        let mut steps: Vec<_> = (0..24u64)
            .map(|thread| {
                let memory = &memory;
                let mut pieces = 0..256u64;
                move || {
                    let next = pieces.next();
                    // SAFETY: inside; nobody writes.
                    next.map(|piece| unsafe { memory.bytes((thread << 22) + piece * 4096, 4096) })
                        .is_some()
                }
            })
            .collect();
        (24.0 * 256.0 * 4096.0) / 1e9 / machine.run_steps(&mut steps).as_secs_f64()
    };
    let (near, far) = (bandwidth("dram0"), bandwidth("dram1"));
    assert!(near > 80.0, "{near} GB/s");
    assert!((15.0..17.5).contains(&far), "{far} GB/s: one link of 16.9");
}

#[test]
fn a_read_of_another_socket_is_noted_in_memory_until_the_line_is_written() {
    // Notes written while 1000 lines are looked at, and while they are again, from memory too.
    let noted = |node: &str, notes: bool, write: bool| {
        let mut preset = preset("optane-001");
        preset.link.as_mut().unwrap().notes_in_memory = notes;
        let machine = Machine::new(&preset, 1, 7);
        let memory = machine.memory(node, 1 << 20, Domain::Adr).unwrap();
        // The processor's own prefetcher sees no sequence in every fourth line.
        let look = || {
            let before = machine.node_counts(node).unwrap().noted_bytes;
            (0..1000u64).for_each(|block| memory.look(block * 256));
            (machine.node_counts(node).unwrap().noted_bytes - before) / 64
        };
        let first = look();
        if write {
            (0..1000u64).for_each(|block| memory.wrote(block * 256, 64));
        }
        machine.clear_caches();
        (first, look())
    };
    // The last ones wait in the queues of six channels, of 72 lines each.
    let most = 1000 - 6 * 72;
    let (first, again) = noted("pmem1", true, false);
    assert!((most..most + 50).contains(&first) && again < 50, "{first}, and {again}: notes stand");
    let (first, again) = noted("pmem1", true, true);
    assert!((most..most + 50).contains(&first), "{first}");
    assert!((most..most + 50).contains(&again), "{again}: a line that was written is news again");
    assert_eq!(noted("pmem0", true, true), (0, 0));
    assert_eq!(noted("pmem1", false, true), (0, 0));
}

#[test]
fn notes_in_memory_cost_many_remote_writers_of_persistent_memory_half() {
    let remote_by_local = |notes: bool, threads| {
        let mut preset = preset("optane-001");
        preset.link.as_mut().unwrap().notes_in_memory = notes;
        let rate = |node: &str| {
            let load = Load {
                node,
                op: Op::StoreFlush,
                random: false,
                bytes: 4096,
                threads,
                overhead_ns: 0.0,
            };
            load.run(&preset).unwrap().gb_s()
        };
        rate("pmem1") / rate("pmem0")
    };
    let (with, without) = (remote_by_local(true, 8), remote_by_local(false, 8));
    println!("remote by local, 8 threads: {with:.2} with notes, {without:.2} without");
    assert!(with < 0.6 && without > 0.9, "{with} and {without}");
    // One writer's notes wait until its own writes come.
    let (with, without) = (remote_by_local(true, 1), remote_by_local(false, 1));
    println!("remote by local, 1 thread: {with:.2} with notes, {without:.2} without");
    assert!(with > 0.9 * without, "{with} and {without}");
}
