//! Question: does going through `trait Memory` cost anything on this machine's own memory?
//!
//! Every row runs one loop twice, through `Native` (generic over `Memory`, as structures are) and
//! through raw pointers, in turns, and prints the ratio of the medians with the spread of the
//! single rounds. The words of `Memory` are atomic, so the raw loops of the first kind of row use
//! atomics too; the rows marked *plain* compare with raw plain accesses, which the compiler may
//! vectorise: what they show is the price of atomic words, and why bulk data goes through `bytes`,
//! `read` and `write`. Not measured: threads, remote nodes, and anything that is a medium's cost.
//!
//! `cargo bench -p terrace-memory --bench native_cost`; without `--bench` (as `cargo test` calls
//! it) inputs are tiny.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use terrace_memory::{Backing, ByteSize, Memory, Native, Region};

/// Rounds of each side; odd, so that the median is one of them.
const ROUNDS: usize = 11;
/// Ratios within this of 1 count as the same: the noise of a busy machine.
const BAND: f64 = 0.05;

/// How much work a run does.
struct Size {
    bytes: u64,
    words: u64,
    steps: u64,
    passes: u64,
}

/// One comparison.
struct Row {
    name: &'static str,
    native: fn(&Native, &Size) -> u64,
    raw: fn(*mut u64, &Size) -> u64,
    /// Operations of one round.
    operations: fn(&Size) -> u64,
    /// Whether both sides ask the processor for the same thing, so that the ratio should be 1.
    alike: bool,
}

const ROWS: &[Row] = &[
    Row {
        name: "pointer chase",
        native: chase,
        raw: chase_raw,
        operations: |size| size.steps,
        alike: true,
    },
    Row { name: "sum of words", native: sum, raw: sum_raw, operations: all_words, alike: true },
    Row {
        name: "sum of words, plain",
        native: sum,
        raw: sum_plain,
        operations: all_words,
        alike: false,
    },
    Row {
        name: "sum of borrowed bytes",
        native: sum_bytes,
        raw: sum_slice,
        operations: all_words,
        alike: true,
    },
    Row { name: "store loop", native: fill, raw: fill_raw, operations: all_words, alike: true },
    Row {
        name: "store loop, plain",
        native: fill,
        raw: fill_plain,
        operations: all_words,
        alike: false,
    },
    Row {
        name: "64-byte writes",
        native: write_lines,
        raw: write_lines_raw,
        operations: all_lines,
        alike: true,
    },
];

fn all_words(size: &Size) -> u64 {
    size.words * size.passes
}

fn all_lines(size: &Size) -> u64 {
    size.words / 8 * size.passes
}

fn main() -> std::io::Result<()> {
    let full = std::env::args().any(|argument| argument == "--bench");
    if cfg!(debug_assertions) {
        println!("built with assertions: the ratios below mean nothing");
    }
    let model = terrace_memory::Topology::read().ok().and_then(|topology| topology.processor.model);
    println!("{}, {ROUNDS} rounds a side", model.as_deref().unwrap_or("processor not told"));
    let sizes: &[u64] = if full { &[16 << 10, 1 << 20, 256 << 20] } else { &[16 << 10] };
    let mut hash = 0u64;
    for bytes in sizes {
        hash = hash.rotate_left(1) ^ run(*bytes, full)?;
    }
    println!("results {hash:016x}");
    Ok(())
}

fn run(bytes: u64, full: bool) -> std::io::Result<u64> {
    let words = bytes / 8;
    let touched = if full { 64 << 20 } else { 16 << 10 };
    let passes = (touched / bytes).max(1);
    let steps = if full { 4 << 20 } else { 4 << 10 };
    let size = Size { bytes, words, steps, passes };
    let region = Region::reserve(bytes.next_multiple_of(2 << 20), Backing::HugePages)?;
    region.commit(0, bytes)?;
    let memory = region.native();
    // SAFETY: offset 0 of a region; only the address is taken.
    let base = unsafe { memory.bytes(0, 8) }.as_ptr().cast_mut().cast::<u64>();
    println!("\n{} of memory", ByteSize(bytes));
    println!("{:<24}{:>12}{:>12}{:>8}  spread", "", "Native ns", "raw ns", "ratio");
    let mut hash = 0;
    for row in ROWS {
        // Rows before this one have overwritten the cycle that the chase follows.
        lay_cycle(&memory, words);
        hash ^= compare(row, &memory, base, &size);
    }
    Ok(hash)
}

fn compare(row: &Row, memory: &Native, base: *mut u64, size: &Size) -> u64 {
    let mut native = Vec::with_capacity(ROUNDS);
    let mut raw = Vec::with_capacity(ROUNDS);
    let mut hash = 0;
    // The first round warms up and is dropped.
    for round in 0..=ROUNDS {
        let (native_ns, result) = timed(|| (row.native)(black_box(memory), size));
        let (raw_ns, raw_result) = timed(|| (row.raw)(black_box(base), size));
        assert_eq!(result, raw_result, "{}: both sides compute the same", row.name);
        hash = result;
        if round > 0 {
            native.push(native_ns);
            raw.push(raw_ns);
        }
    }
    let mut ratios: Vec<f64> = native.iter().zip(&raw).map(|(native, raw)| native / raw).collect();
    let ratio = median(&mut native) / median(&mut raw);
    ratios.sort_by(f64::total_cmp);
    let operations = (row.operations)(size) as f64;
    let verdict = match (ratio - 1.0).abs() <= BAND {
        _ if !row.alike || cfg!(debug_assertions) => "",
        true => "same",
        false => "differs",
    };
    println!(
        "{:<24}{:>12.3}{:>12.3}{ratio:>8.3}  {:.2}..{:.2} {verdict}",
        row.name,
        median(&mut native) / operations,
        median(&mut raw) / operations,
        ratios[0],
        ratios[ratios.len() - 1],
    );
    hash
}

fn timed(work: impl FnOnce() -> u64) -> (f64, u64) {
    let start = Instant::now();
    let result = black_box(work());
    (start.elapsed().as_nanos() as f64, result)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Makes every word hold the offset of another, all in one cycle (Sattolo's shuffle, always the
/// same one).
fn lay_cycle(memory: &Native, words: u64) {
    let mut order: Vec<u64> = (0..words).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..words as usize).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let other = ((u128::from(state) * last as u128) >> 64) as usize;
        order.swap(last, other);
    }
    for (word, next) in order.iter().enumerate() {
        // SAFETY: one thread, and every word lies inside the committed region.
        unsafe { memory.store(word as u64 * 8, next * 8) };
    }
}

fn chase<M: Memory>(memory: &M, size: &Size) -> u64 {
    let mut at = 0;
    for _ in 0..size.steps {
        // SAFETY: `lay_cycle` stored offsets of words inside the region.
        at = unsafe { memory.load(at) };
    }
    at
}

fn chase_raw(base: *mut u64, size: &Size) -> u64 {
    let mut at = 0;
    for _ in 0..size.steps {
        // SAFETY: as in `chase`.
        at = unsafe { base.byte_add(at as usize).read() };
    }
    at
}

fn sum<M: Memory>(memory: &M, size: &Size) -> u64 {
    let mut sum = 0u64;
    for _ in 0..size.passes {
        for word in 0..size.words {
            // SAFETY: below `words`, inside the region.
            sum = sum.wrapping_add(unsafe { memory.load(word * 8) });
        }
    }
    sum
}

fn sum_raw(base: *mut u64, size: &Size) -> u64 {
    let mut sum = 0u64;
    for _ in 0..size.passes {
        for word in 0..size.words {
            // SAFETY: below `words`, inside the region, accessed by this thread only.
            let atomic = unsafe { AtomicU64::from_ptr(base.byte_add((word * 8) as usize)) };
            sum = sum.wrapping_add(atomic.load(Ordering::Acquire));
        }
    }
    sum
}

fn sum_plain(base: *mut u64, size: &Size) -> u64 {
    let mut sum = 0u64;
    for _ in 0..size.passes {
        let base = black_box(base);
        for word in 0..size.words {
            // SAFETY: below `words`, inside the region.
            sum = sum.wrapping_add(unsafe { base.add(word as usize).read() });
        }
    }
    sum
}

fn sum_bytes<M: Memory>(memory: &M, size: &Size) -> u64 {
    let mut sum = 0u64;
    for _ in 0..size.passes {
        // SAFETY: the whole region, which nobody writes meanwhile.
        sum = sum.wrapping_add(sum_of(unsafe { memory.bytes(0, size.bytes) }));
    }
    sum
}

fn sum_slice(base: *mut u64, size: &Size) -> u64 {
    let mut sum = 0u64;
    for _ in 0..size.passes {
        // SAFETY: as in `sum_bytes`.
        let bytes = unsafe { std::slice::from_raw_parts(base.cast(), size.bytes as usize) };
        sum = sum.wrapping_add(sum_of(bytes));
    }
    sum
}

#[inline(always)]
fn sum_of(bytes: &[u8]) -> u64 {
    let (words, _) = black_box(bytes).as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(0, u64::wrapping_add)
}

fn fill<M: Memory>(memory: &M, size: &Size) -> u64 {
    for pass in 0..size.passes {
        for word in 0..size.words {
            // SAFETY: below `words`, inside the region.
            unsafe { memory.store(word * 8, word ^ pass) };
        }
    }
    size.passes
}

fn fill_raw(base: *mut u64, size: &Size) -> u64 {
    for pass in 0..size.passes {
        for word in 0..size.words {
            // SAFETY: below `words`, inside the region, accessed by this thread only.
            let atomic = unsafe { AtomicU64::from_ptr(base.byte_add((word * 8) as usize)) };
            atomic.store(word ^ pass, Ordering::Release);
        }
    }
    size.passes
}

fn fill_plain(base: *mut u64, size: &Size) -> u64 {
    for pass in 0..size.passes {
        let base = black_box(base);
        for word in 0..size.words {
            // SAFETY: below `words`, inside the region.
            unsafe { base.add(word as usize).write(word ^ pass) };
        }
    }
    size.passes
}

fn write_lines<M: Memory>(memory: &M, size: &Size) -> u64 {
    let line = black_box([7u8; 64]);
    for _ in 0..size.passes {
        for at in (0..size.bytes).step_by(64) {
            // SAFETY: whole lines inside the region, one thread.
            unsafe { memory.write(at, &line) };
        }
    }
    size.passes
}

fn write_lines_raw(base: *mut u64, size: &Size) -> u64 {
    let line = black_box([7u8; 64]);
    for _ in 0..size.passes {
        for at in (0..size.bytes as usize).step_by(64) {
            // SAFETY: whole lines inside the region, which is not `line`.
            unsafe { line.as_ptr().copy_to_nonoverlapping(base.byte_add(at).cast(), 64) };
        }
    }
    size.passes
}
