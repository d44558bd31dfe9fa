//! What a pre-store costs on this machine, by the line, and whether `clean` keeps what it cleans:
//! `cargo run --release -p terrace-memory --example prestore_cost [-- --json]`.
//!
//! Question: how much longer does a thread take to write lines one after the other, because it also
//! pre-stores them? Pieces of 1 KiB are written and pre-stored, over a buffer that the nearest cache
//! holds, one that the second holds, and one larger than most; all kinds in turn, medians of processor
//! time. In the small buffers the same lines are soon written again, which is where a clean is wrong.
//! *skip* writes a piece past the caches instead. Not measured: what the memory behind gains, and
//! other threads.

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::hint::black_box;
use terrace_memory::instructions::{LINE_BYTES, fence, write_back_method};
use terrace_memory::prestore::{self, Site, retention};
use terrace_memory::{Backing, ByteSize, Region};

const ROUNDS: usize = 9;
const PIECE: usize = 1024;
/// Bytes written in a round.
const BYTES: usize = 256 << 20;
const BUFFERS: [usize; 3] = [16 << 10, 1 << 20, 256 << 20];

static SITE: Site = Site::new("prestore_cost");

/// How a piece is written.
type Write = fn(&mut [u8], &[u8]);

const SWITCHED_OFF: &str = "clean, switched off";

const WRITES: [(&str, Write); 6] = [
    ("plain", |piece, source| piece.copy_from_slice(source)),
    (SWITCHED_OFF, |piece, source| {
        piece.copy_from_slice(source);
        prestore::clean(piece);
    }),
    ("clean", |piece, source| {
        piece.copy_from_slice(source);
        prestore::clean(piece);
    }),
    ("clean at a site", |piece, source| {
        piece.copy_from_slice(source);
        SITE.clean(piece);
    }),
    ("demote", |piece, source| {
        piece.copy_from_slice(source);
        prestore::demote(piece);
    }),
    ("skip", prestore::copy),
];

fn main() -> std::io::Result<()> {
    let found = retention();
    let costs: Vec<_> = BUFFERS.iter().map(|bytes| costs(*bytes)).collect::<Result<_, _>>()?;
    if std::env::args().any(|argument| argument == "--json") {
        let of = |ns: &[f64; WRITES.len()]| -> serde_json::Map<_, _> {
            WRITES.iter().zip(ns).map(|((name, _), ns)| ((*name).into(), json!(ns))).collect()
        };
        let buffers: Vec<_> = BUFFERS
            .iter()
            .zip(&costs)
            .map(|(bytes, ns)| json!({"buffer_bytes": bytes, "ns_per_line": of(ns)}))
            .collect();
        let sites = prestore::sites();
        println!("{}", json!({"retention": found, "costs": buffers, "sites": sites}));
        return Ok(());
    }
    println!("{found} ({:?})", write_back_method());
    print!("{:26}", "ns a line, buffer of");
    BUFFERS.iter().for_each(|bytes| print!("{:>18}", ByteSize(*bytes as u64).to_string()));
    println!();
    for (write, (name, _)) in WRITES.iter().enumerate() {
        print!("{name:26}");
        costs.iter().for_each(|ns| print!("{:>9.2} ({:+6.2})", ns[write], ns[write] - ns[0]));
        println!();
    }
    Ok(())
}

/// Nanoseconds a line of each kind of write.
fn costs(buffer: usize) -> std::io::Result<[f64; WRITES.len()]> {
    let mut region = Region::reserve(buffer as u64, Backing::HugePages)?;
    region.populate(0, buffer as u64)?;
    let buffer = region.bytes_mut(0, buffer as u64)?;
    let mut rounds = [const { Vec::new() }; WRITES.len()];
    for _ in 0..ROUNDS {
        for (rounds, (name, write)) in rounds.iter_mut().zip(WRITES) {
            prestore::set_enabled(name != SWITCHED_OFF);
            rounds.push(round(buffer, write));
        }
    }
    Ok(rounds.map(|mut rounds: Vec<f64>| {
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    }))
}

fn round(buffer: &mut [u8], write: Write) -> f64 {
    let source = [7; PIECE];
    let start = processor_ns();
    for _ in 0..BYTES / buffer.len() {
        for piece in buffer.chunks_exact_mut(PIECE) {
            write(black_box(piece), black_box(&source));
        }
    }
    fence();
    (processor_ns() - start) as f64 / (BYTES as u64 / LINE_BYTES) as f64
}

/// Processor time of this thread: other programs run too.
fn processor_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
