//! What the hot paths of this room cost on this machine, beside the best copy that can be written for it by hand.
//!
//! `cargo run --release -p terrace-movement --example speed`
#![allow(clippy::unwrap_used)] // A failed unwrap ends the measurement.

use std::arch::x86_64::{
    _MM_HINT_NTA, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128, _mm256_loadu_si256,
    _mm256_stream_si256, _mm512_loadu_si512, _mm512_stream_si512,
};
use std::time::{Duration, Instant};
use terrace_movement::{
    Arena, Buffer, Cache, CacheOptions, Emulated, EmulatedOptions, Engine, Node, Policy, Request,
    Source, Task,
};

const SPAN: usize = 256 << 20;
const ROUNDS: usize = 7;

fn main() {
    copies();
    submissions();
    hits();
    offloaded();
}

/// A copy written by hand: whole multiples of 16 KiB, aligned to 64 bytes.
type ByHand = (&'static str, unsafe fn(*mut u8, *const u8, usize), bool);

fn by_hand() -> Vec<ByHand> {
    let (avx2, avx512) = (is_x86_feature_detected!("avx2"), is_x86_feature_detected!("avx512f"));
    let all: [ByHand; 6] = [
        ("memcpy", memcpy, true),
        ("rep movsb", terrace_memory::instructions::copy_string, true),
        ("16 B streamed", sse2, true),
        ("32 B streamed", avx2_streamed, avx2),
        ("64 B streamed", avx512_streamed, avx512),
        ("64 B streamed, prefetched", avx512_prefetched, avx512),
    ];
    all.into_iter().filter(|(.., has)| *has).collect()
}

/// # Safety
/// Ranges that do not overlap.
unsafe fn memcpy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe { to.copy_from_nonoverlapping(from, bytes) };
}

/// # Safety
/// Ranges that do not overlap, in multiples of 16 KiB, aligned to 64 bytes.
unsafe fn sse2(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe {
        for at in (0..bytes).step_by(16) {
            _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(from.add(at).cast()));
        }
        _mm_sfence();
    }
}

/// # Safety
/// As [`sse2`], on a processor with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn avx2_streamed(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe {
        for at in (0..bytes).step_by(32) {
            _mm256_stream_si256(to.add(at).cast(), _mm256_loadu_si256(from.add(at).cast()));
        }
        _mm_sfence();
    }
}

/// # Safety
/// As [`sse2`], on a processor with AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn avx512_streamed(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe {
        for at in (0..bytes).step_by(64) {
            _mm512_stream_si512(to.add(at).cast(), _mm512_loadu_si512(from.add(at).cast()));
        }
        _mm_sfence();
    }
}

/// # Safety
/// As [`avx512_streamed`].
#[target_feature(enable = "avx512f")]
unsafe fn avx512_prefetched(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: by contract; a prefetch of any address is harmless.
    unsafe {
        for at in (0..bytes).step_by(64) {
            _mm_prefetch::<_MM_HINT_NTA>(from.add(at).wrapping_add(2048).cast());
            _mm512_stream_si512(to.add(at).cast(), _mm512_loadu_si512(from.add(at).cast()));
        }
        _mm_sfence();
    }
}

/// Best of some rounds, each through memory that the caches no longer have; all ways in turn in every round.
fn copies() {
    let arena = Arena::new(2 * SPAN as u64 + 64, None).unwrap();
    let from = {
        let mut buffer = arena.buffer(SPAN).unwrap();
        buffer.bytes_mut().fill(1);
        Source::from(buffer)
    };
    let mut to = arena.buffer(SPAN).unwrap();
    let by_hand = by_hand();
    let engine = Engine::streaming();
    println!("copies, GiB in a second of processor time (best of {ROUNDS} rounds)");
    for size in [1 << 20, 4 << 20, 16 << 20, SPAN] {
        let mut best = vec![f64::MAX; by_hand.len() + 1];
        for _ in 0..ROUNDS {
            for (at, (_, copy, _)) in by_hand.iter().enumerate() {
                let start = processor_time();
                for place in (0..SPAN).step_by(size) {
                    let target = to.bytes_mut()[place..place + size].as_mut_ptr();
                    // SAFETY: both have so many bytes from there on, aligned as arenas are.
                    unsafe { copy(target, from.bytes()[place..].as_ptr(), size) };
                }
                best[at] = best[at].min((processor_time() - start).as_secs_f64());
            }
            let start = processor_time();
            for place in (0..SPAN).step_by(size) {
                let task = Task::copy(&from.slice(place, size).unwrap(), to, place).unwrap();
                to = engine.submit(task).unwrap().wait().target.unwrap();
            }
            best[by_hand.len()] = best[by_hand.len()].min((processor_time() - start).as_secs_f64());
        }
        let rate = |seconds: f64| SPAN as f64 / seconds / f64::from(1 << 30);
        let fastest = best[..by_hand.len()].iter().copied().fold(f64::MAX, f64::min);
        print!("{:>4} MiB:", size >> 20);
        by_hand
            .iter()
            .zip(&best)
            .for_each(|((name, ..), seconds)| print!("  {name} {:.1}", rate(*seconds)));
        let own = best[by_hand.len()];
        println!("  engine {:.1}: {:.0} % of the best by hand", rate(own), 100.0 * fastest / own);
    }
}

/// Processor time of `submit`, of 32 tasks in a row: the worker is awake while they come.
fn submissions() {
    let emulated = Emulated::new(EmulatedOptions::default()).unwrap();
    for (name, engine) in
        [("a thread", Engine::pool(1, 64).unwrap()), ("emulated DSA", emulated.engine().clone())]
    {
        let source = Source::from(vec![1; 4096]);
        let mut times = Vec::new();
        for _ in 0..2_000 {
            let task = |_| Task::copy(&source, Buffer::new(vec![0; 4096]), 0).unwrap();
            let tasks: Vec<Task> = (0..32).map(task).collect();
            let mut handles = Vec::with_capacity(32);
            let start = processor_time();
            for task in tasks {
                handles.push(engine.submit(task).unwrap());
            }
            times.push((processor_time() - start).as_nanos() / 32);
            handles.into_iter().for_each(|handle| drop(handle.wait()));
        }
        times.sort_unstable();
        println!(
            "submission to {name}: median {} ns, p99 {} ns of processor time",
            times[1_000], times[1_980]
        );
    }
}

struct Near(Arena, Engine);

impl Policy for Near {
    fn place(&self, _: &Request) -> Node {
        Node(1)
    }

    fn route(&self, _: &Request, _: Node) -> Vec<Engine> {
        vec![self.1.clone()]
    }

    fn allocate(&self, _: Node, bytes: usize) -> Option<Buffer> {
        self.0.buffer(bytes)
    }
}

/// An access that hits, the first byte of the copy, and the end of the access: processor time of each thread.
fn hits() {
    let near = Near(Arena::new(16 << 20, None).unwrap(), Engine::cached());
    let cache = Cache::new(CacheOptions { nodes: 2, entries: 1000 }, near).unwrap();
    let data: Vec<Source> = (0..64).map(|n| Source::from(vec![n; 4096])).collect();
    for threads in [1, 2] {
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let each: Vec<f64> = std::thread::scope(|scope| {
                let run = || {
                    let reader = cache.reader(Node(0));
                    let (count, start) = (2_000_000, processor_time());
                    let mut sum = 0u64;
                    for n in 0..count {
                        let access = reader.access(&data[n % data.len()]).unwrap();
                        sum += u64::from(access.bytes()[0]);
                    }
                    std::hint::black_box(sum);
                    (processor_time() - start).as_secs_f64() * 1e9 / count as f64
                };
                let all: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
                all.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            best = best.min(each.iter().sum::<f64>() / each.len() as f64);
        }
        println!(
            "cache hit, {threads} thread(s): {best:.1} ns of processor time each (best of {ROUNDS} rounds)"
        );
    }
}

/// Processor time of the thread that submits and waits, while another one or the emulated device copies.
fn offloaded() {
    let arena = Arena::new(2 * SPAN as u64 + 64, None).unwrap();
    let source = Source::from(arena.buffer(SPAN).unwrap());
    let mut target = arena.buffer(SPAN).unwrap();
    let emulated = Emulated::new(EmulatedOptions::default()).unwrap();
    for engine in [Engine::streaming(), Engine::pool(1, 4).unwrap(), emulated.engine().clone()] {
        let (wall, own) = (Instant::now(), processor_time());
        let finished = engine.submit(Task::copy(&source, target, 0).unwrap()).unwrap().wait();
        let (wall, own) = (wall.elapsed(), processor_time() - own);
        let share = 100.0 * own.as_secs_f64() / wall.as_secs_f64();
        println!(
            "256 MiB by {}: {wall:.1?}, of which the submitter worked {own:.1?} ({share:.2} %)",
            engine.name()
        );
        target = finished.target.unwrap();
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
