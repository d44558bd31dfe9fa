//! Prints how fast machines are modelled, in time of one processor:
//! `cargo run --release -p terrace-machine --example model_speed`, or with `-- sequential` only the lines that
//! say so.

use std::time::Duration;
use terrace_machine::model::{Machine, Modelled, Preset};
use terrace_memory::{Domain, Memory};

const ACCESSES: u64 = 8_000_000;

fn main() {
    let preset = Preset::named("optane-004").expect("it comes with the crate");
    for threads in [1, 48] {
        let machine = Machine::new(&preset, threads, 7);
        let memory = machine.memory("pmem0", 1 << 30, Domain::Adr).expect("the node exists");
        let near = machine.memory("dram0", 16 << 10, Domain::None).expect("the node exists");
        // Its pages are there before anything is measured: that is the system's work and not the model's.
        machine.free_of_charge(|| {
            (0..memory.len()).step_by(4096).for_each(|at| store(&memory, at, at));
        });
        run(&machine, "loads, near", |number, _| load(&near, number * 64 % near.len()));
        run(&machine, "loads, sequential lines", |number, _| {
            load(&memory, number * 64 % memory.len())
        });
        run(&machine, "loads, all over 1 GiB", |_, random| load(&memory, random % (1 << 24) * 64));
        run(&machine, "stores, all over 1 GiB", |_, random| {
            store(&memory, random % (1 << 24) * 64, random);
        });
        run(&machine, "a mixture: 1 of 8 all over", |number, random| {
            if number % 8 == 0 {
                load(&memory, random % (1 << 24) * 64);
            } else {
                load(&near, random % 256 * 64);
            }
        });
    }
}

fn load(memory: &Modelled, at: u64) {
    // SAFETY: inside and aligned by the callers.
    unsafe { memory.load(at) };
}

fn store(memory: &Modelled, at: u64, value: u64) {
    // SAFETY: inside and aligned by the callers.
    unsafe { memory.store(at, value) };
}

fn run(machine: &Machine, what: &str, access: impl Fn(u64, u64)) {
    if std::env::args().nth(1).is_some_and(|wanted| !what.contains(&wanted)) {
        return;
    }
    let threads = machine.threads() as u64;
    let start = on_processor();
    let mut steps: Vec<_> = (0..threads)
        .map(|thread| {
            let (access, mut number, mut random) = (&access, 0, thread + 1);
            move || {
                // An operation of eight accesses.
                for _ in 0..8 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    access(number * threads + thread, random);
                    number += 1;
                }
                number < ACCESSES / threads
            }
        })
        .collect();
    machine.run_steps(&mut steps);
    let rate = ACCESSES as f64 / 1e6 / (on_processor() - start).as_secs_f64();
    println!("{threads:2} threads, {what}: {rate:.1} M accesses/s");
}

/// How long this thread has run: other load of the computer does not count.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.expect("Linux says how long a thread has run"))
}
