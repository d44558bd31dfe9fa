//! Pre-stores on modelled machines: what they gain there, and that the gain goes with the part of the
//! machine that it is ascribed to.

use terrace_machine::kernels::{
    Inbox, Index, Listing2, Prestore, Puts, Scratch, listing_2, listing_3,
};
use terrace_machine::model::Ablation;
use terrace_machine::{Machine, Preset};
use terrace_memory::{Domain, Memory};

fn preset(name: &str) -> Preset {
    Preset::named(name).expect("a preset that is compiled in")
}

/// Written by the medium for each byte: elements of 256 bytes, two threads.
fn amplification(preset: &Preset, prestore: Prestore) -> f64 {
    let listing =
        Listing2 { node: "pmem0", threads: 2, element: 256, prestore, reads: true, bytes: 4 << 20 };
    listing_2(preset, listing).expect("the preset has two threads").amplification()
}

#[test]
fn clean_puts_evictions_in_order_and_a_device_that_combines_nothing_gains_nothing() {
    let optane = preset("optane-000");
    assert!(amplification(&optane, Prestore::Nothing) > 2.5);
    assert!(amplification(&optane, Prestore::Clean) < 1.05);
    let without = optane.without(Ablation { combining: true, ..Ablation::default() });
    assert!(amplification(&without, Prestore::Clean) > 3.9);
}

#[test]
fn demote_hides_the_fetch_behind_reads_where_stores_are_kept_private_alone() {
    let gain = |name: &str, nodes, reads| {
        let round = |prestore| {
            let preset = preset(name);
            let line = preset.processor.line_bytes;
            listing_3(&preset, nodes, line, reads, prestore, 2_000).expect("the preset's nodes")
        };
        round(Prestore::Demote).gain_over(&round(Prestore::Nothing))
    };
    let enzian = ("fpga", "dram0");
    assert!(gain("enzian-fast", enzian, 48) > 1.4);
    assert!((gain("enzian-fast", enzian, 0) - 1.0).abs() < 0.05);
    // Where ownership is asked for as soon as a store is there, nothing is left to hide.
    assert!(gain("optane-000", ("pmem0", "dram0"), 48) < 1.05);
}

#[test]
fn cleaning_lines_that_stay_in_the_cache_is_slower() {
    let optane = preset("optane-000");
    let ns = |prestore| {
        let scratch = Scratch { node: "pmem0", threads: 1, prestore, lines: 20_000 };
        scratch.run(&optane).expect("the preset has the node").ns()
    };
    assert!(ns(Prestore::Clean) > 2.0 * ns(Prestore::Nothing));
}

#[test]
fn every_message_is_received_and_takes_longer_when_it_is_longer() {
    let enzian = preset("enzian-fast");
    let ns = |message_bytes| {
        let inbox = Inbox {
            node: "fpga",
            message_bytes,
            slots: 16,
            prestore: Prestore::Nothing,
            messages: 500,
        };
        let cost = inbox.run(&enzian).expect("the preset has two threads");
        assert_eq!(cost.operations, 500);
        cost.ns()
    };
    assert!(ns(2048) > 1.2 * ns(64));
}

#[test]
fn hints_cost_the_store_no_write_back_that_it_needs() {
    // A clean is no persist: what was only cleaned may still be lost, so both are issued.
    let machine = Machine::new(&preset("optane-000"), 1, 1);
    let memory = machine.memory("pmem0", 4096, Domain::Adr).expect("the node exists");
    // SAFETY: inside the memory; nobody else is there.
    unsafe {
        memory.write(0, &[1; 64]);
        memory.clean(0, 64);
        memory.persist(0, 64);
    }
    let counts = machine.node_counts("pmem0").expect("the node exists");
    assert_eq!(counts.written_back_bytes, 64, "cleaned once, and found clean then");
    assert_eq!(machine.thread_counts(0).fences, 1);
}

#[test]
fn puts_are_refused_by_a_machine_without_the_threads() {
    let puts = Puts {
        node: "pmem0",
        index: Index::Hash,
        keys: 100,
        value_bytes: 64,
        threads: 21,
        prestore: Prestore::Nothing,
        operations: 100,
    };
    let refused = puts.run(&preset("optane-000")).expect_err("a socket has 20");
    assert!(refused.to_string().contains("21 threads"), "{refused}");
}
