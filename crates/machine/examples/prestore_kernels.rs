//! What pre-stores do to the programs of Wu on a modelled machine:
//! `cargo run --release -p terrace-machine --example prestore_kernels [PRESET [NODE [THREADS]]]`; without
//! arguments optane-000, pmem0 and 10. Prints nanoseconds an operation and, where the node's devices
//! count, bytes written to the medium for each that left the caches.

use std::io;
use terrace_machine::Preset;
use terrace_machine::kernels::{
    Cost, Inbox, Index, Loop, Prestore, Puts, Ranks, Scratch, Stencil, Tensor,
};

const PRESTORES: [Prestore; 4] =
    [Prestore::Nothing, Prestore::Clean, Prestore::Demote, Prestore::Skip];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |place: usize, default: &'static str| {
        arguments.get(place).map_or(default, |given| given.as_str())
    };
    let preset = Preset::named(argument(0, "optane-000"))?;
    let (node, threads) = (argument(1, "pmem0"), argument(2, "10").parse()?);
    print!("{:24}", "ns (amplification)");
    PRESTORES.iter().for_each(|prestore| print!("{:>22}", format!("{prestore:?}")));
    println!();
    for value_bytes in [128, 256, 1024] {
        let keys = (128 << 20) / value_bytes;
        for index in
            [Index::Hash, Index::Ordered { fences: false }, Index::Ordered { fences: true }]
        {
            let puts = |prestore| {
                Puts { node, index, keys, value_bytes, threads, prestore, operations: 40_000 }
                    .run(&preset)
            };
            print_row(&format!("{index:?} {value_bytes}"), puts)?;
        }
    }
    for kind in [Loop::Psinv, Loop::Resid] {
        let stencil = |prestore| Stencil { node, kind, side: 130, threads, prestore }.run(&preset);
        print_row(&format!("{kind:?}"), stencil)?;
    }
    let lines = 400_000;
    print_row("tensor", |prestore| Tensor { node, threads, prestore, lines }.run(&preset))?;
    print_row("scratch", |prestore| Scratch { node, threads: 1, prestore, lines }.run(&preset))?;
    print_row("ranks", |prestore| Ranks { node, threads, prestore, counts: lines }.run(&preset))?;
    for message_bytes in [64, 128, 512] {
        print_row(&format!("inbox {message_bytes}"), |prestore| {
            Inbox { node, message_bytes, slots: 1024, prestore, messages: 20_000 }.run(&preset)
        })?;
    }
    Ok(())
}

fn print_row(name: &str, run: impl Fn(Prestore) -> io::Result<Cost>) -> io::Result<()> {
    print!("{:24}", name.replace("Ordered { fences: ", "Ordered {"));
    for prestore in PRESTORES {
        let cost = run(prestore)?;
        print!("{:>13.1} ({:>6.2})", cost.ns(), cost.amplification());
    }
    println!();
    Ok(())
}
