//! Pre-stores: dirty lines slow what runs beside them, and demoting early pays where a fence follows.

use super::{Shorthand, preset, scattered};
use std::cell::Cell;
use terrace_machine::beside::{Chase, Dirty};
use terrace_machine::model::Machine;
use terrace_memory::{Domain, Memory};

#[test]
fn dirty_persistent_lines_slow_a_chase_in_dram() {
    let chase_ns = |dirty: bool, clean: bool| {
        let machine = Machine::new(&preset("optane-000").with_caches_divided(16), 16, 7);
        let persistent = machine.memory("pmem0", 64 << 20, Domain::Eadr).unwrap();
        let dram = machine.memory("dram0", 64 << 20, Domain::None).unwrap();
        let (chased, waited) = (Cell::new(0u64), Cell::new(0u64));
        let mut steps: Vec<Box<dyn FnMut() -> bool + '_>> = Vec::new();
        for thread in 0..16u64 {
            let (machine, persistent, dram) = (&machine, &persistent, &dram);
            let (chased, waited) = (&chased, &waited);
            let blocks = (64 << 20) / 256;
            let mut places =
                scattered(1500, blocks).map(move |place| (place * 31 + thread * 999_983) % blocks);
            steps.push(Box::new(move || {
                let Some(place) = places.next() else {
                    return false;
                };
                if dirty {
                    persistent.wrote(place * 256, 256);
                    if clean {
                        persistent.write_out(place * 256, 256);
                    }
                }
                let start = machine.now_ps();
                (0..4).for_each(|step| dram.look((place * 8191 + step * 77_777) % (1 << 20) * 64));
                chased.set(chased.get() + 4);
                waited.set(waited.get() + machine.now_ps() - start);
                true
            }));
        }
        machine.run_steps(&mut steps);
        waited.get() as f64 / 1000.0 / chased.get() as f64
    };
    let (idle, dirty, cleaned) =
        (chase_ns(false, false), chase_ns(true, false), chase_ns(true, true));
    println!("a step of the chase: {idle:.0} ns alone, {dirty:.0} dirty, {cleaned:.0} cleaned");
    assert!(dirty > 1.5 * idle, "{dirty} and {idle}");
    assert!(cleaned < 0.75 * dirty, "{cleaned} and {dirty}");
}

#[test]
fn dirty_persistent_lines_slow_a_chase_through_dram_and_clean_ones_do_not() {
    let step_ns = |dirty, written, threads| {
        let chase = Chase { chased: "dram0", written, dirty, bytes: 1024, steps: 4, threads };
        chase.run(&preset("optane-004").with_caches_divided(8)).unwrap().step_ns
    };
    let (dram, kept) = (step_ns(Dirty::Kept, "dram0", 16), step_ns(Dirty::Kept, "pmem0", 16));
    assert!(kept > 1.5 * dram, "{kept} {dram}");
    let cleaned = step_ns(Dirty::Cleaned, "pmem0", 16);
    assert!(cleaned < (kept + dram) / 2.0, "{cleaned} {kept} {dram}");
}

#[test]
fn demoting_early_pays_where_a_fence_follows() {
    // Wu, Listing 3: nothing without reads between, nothing with very many, a hump between, and
    // further out on the slower device.
    let best = |name: &str| {
        let round = |reads: u64, demote: bool| {
            let machine = Machine::new(&preset(name), 1, 7);
            let fpga = machine.memory("fpga", 64 << 20, Domain::None).unwrap();
            let near = machine.memory("dram0", 8192, Domain::None).unwrap();
            for place in scattered(2000, (64 << 20) / 128) {
                fpga.wrote(place * 128, 128);
                if demote {
                    // SAFETY: inside.
                    unsafe { fpga.demote(place * 128, 128) };
                }
                (0..reads).for_each(|read| near.look(read * 128 % 8192));
                fpga.fence();
            }
            machine.elapsed().as_secs_f64()
        };
        let gains: Vec<(u64, f64)> = [0, 8, 16, 32, 64, 128, 256, 4096]
            .map(|reads| (reads, round(reads, false) / round(reads, true)))
            .into();
        assert!(gains[0].1 < 1.02 && gains[7].1 < 1.05, "{name}: {gains:?}");
        let best = gains.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!((1.4..2.0).contains(&best.1), "{name}: {best:?}");
        best.0
    };
    let (fast, slow) = (best("enzian-fast"), best("enzian-slow"));
    assert!(fast < slow, "{fast} and {slow} reads");
}
