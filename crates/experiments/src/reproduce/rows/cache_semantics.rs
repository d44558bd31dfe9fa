//! `cache-semantics`: what the offloading cache promises (Fuerst, sections 4.1, 4.2 and 5.2).
//!
//! One submission per datum however many threads ask at once, entries that outlive their removal while they are read,
//! the source where an engine fails, weak accesses that submit nothing and wait for nothing, one flush when memory is
//! spent, and, beyond the paper, no copy of another version. The control is a cache that inserts an entry only after it
//! has submitted: it submits one datum twice.

use super::{Check, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use terrace_movement::{
    Access, Arena, Buffer, Cache, CacheOptions, Emulated, EmulatedOptions, Engine, Node, Policy, Reader, Request,
    Source,
};

pub(super) const ROW: Row = Row {
    id: "cache-semantics",
    source: "Fuerst, sections 4.1, 4.2 and 5.2",
    runs_on: "native; emulated engine for failures",
    must_show: "one submission per datum under races; an entry survives flush while held; fallback to the source on \
                failure; weak access never submits; a spent budget flushes once",
    run,
};

const THREADS: usize = 8;
const BYTES: usize = 20_000;
const FAR: Node = Node(0);
const NEAR: Node = Node(1);

/// Copies everything to one node.
struct Plan {
    arena: Arena,
    engine: Engine,
    /// Calls for memory, and those that got none.
    asked: AtomicU64,
    refused: AtomicU64,
    /// Threads that choose an engine wait until so many do, for a while.
    meet: u64,
    meeting: AtomicU64,
}

struct Shared(Arc<Plan>);

impl Policy for Shared {
    fn place(&self, _: &Request) -> Node {
        NEAR
    }

    fn route(&self, _: &Request, _: Node) -> Vec<Engine> {
        let start = Instant::now();
        self.0.meeting.fetch_add(1, SeqCst);
        while self.0.meeting.load(SeqCst) < self.0.meet && start.elapsed() < Duration::from_millis(200) {
            std::thread::yield_now();
        }
        vec![self.0.engine.clone()]
    }

    fn allocate(&self, _: Node, bytes: usize) -> Option<Buffer> {
        self.0.asked.fetch_add(1, SeqCst);
        let buffer = self.0.arena.buffer(bytes);
        self.0.refused.fetch_add(buffer.is_none().into(), SeqCst);
        buffer
    }
}

fn opened(bytes: u64, engine: Engine, meet: u64) -> Result<(Cache, Arc<Plan>)> {
    let arena = Arena::new(bytes, None).map_err(other)?;
    let [asked, refused, meeting] = [0; 3].map(AtomicU64::new);
    let plan = Arc::new(Plan { arena, engine, asked, refused, meet, meeting });
    let cache = Cache::new(CacheOptions { nodes: 2, entries: 100_000 }, Shared(Arc::clone(&plan)));
    Ok((cache.map_err(other)?, plan))
}

fn other(error: terrace_movement::Error) -> Error {
    Error::system("try the cache")(io::Error::other(error))
}

fn threads() -> Result<Engine> {
    Engine::pool(2, 1 << 16).map_err(other)
}

fn datum(number: usize) -> Source {
    Source::from(vec![number as u8; BYTES])
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    data: u64,
    /// Copies that were submitted of these data, by threads that asked for each at the same time.
    submitted: u64,
    /// Copies of one datum, submitted by a cache that inserts late.
    submitted_late: u64,
    /// Reads of wrong bytes.
    wrong: u64,
    /// Waits for a copy whose creator never waits, and those that ended.
    waits: u64,
    waits_ended: u64,
    /// Entries that were read while they were flushed, and those that were gone then.
    held: u64,
    held_gone: u64,
    /// Entries that nobody read, and those that a flush left.
    idle: u64,
    idle_left: u64,
    /// Bytes that were not freed in the end.
    leaked: u64,
    failures: u64,
    /// Of these, accesses whose bytes were not the source's.
    failures_elsewhere: u64,
    weak_submitted: u64,
    weak_wait_us: f64,
    flushes: u64,
    evicted: u64,
    asked_after_refusal: u64,
    stale_served: u64,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let data = run.size(5_000, 500);
    let mut counted = Counted { data: data as u64, ..Counted::default() };
    for (name, part) in PARTS {
        (run.tell)(name);
        part(data, &mut counted)?;
    }
    Ok(judge(&counted))
}

type RunPart = fn(usize, &mut Counted) -> Result<()>;

const PARTS: [(&str, RunPart); 6] = [
    ("races", races),
    ("insertion after submission", late),
    ("flush, invalidate, clear", removals),
    ("failures", failures),
    ("weak accesses", weak),
    ("a spent budget, versions", budget_and_versions),
];

fn is_wrong(access: &Access<'_>, number: usize) -> bool {
    access.bytes().len() != BYTES || access.bytes().iter().any(|byte| *byte != number as u8)
}

fn races(data: usize, counted: &mut Counted) -> Result<()> {
    let (cache, plan) = opened(data as u64 * 32_768, threads()?, 0)?;
    let sources: Vec<Source> = (0..data).map(datum).collect();
    let (barrier, wrong, ended) = (Barrier::new(THREADS), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, sources, barrier, wrong, ended) = (&cache, &sources, &barrier, &wrong, &ended);
            scope.spawn(move || {
                let reader = cache.reader(FAR);
                for (number, source) in sources.iter().enumerate() {
                    barrier.wait();
                    let Ok(access) = reader.access(source) else { continue };
                    // One thread never waits, and it may be the one that submitted.
                    if thread > 0 {
                        access.wait();
                        ended.fetch_add(access.is_copy().into(), SeqCst);
                    }
                    wrong.fetch_add(is_wrong(&access, number).into(), SeqCst);
                }
            });
        }
    });
    counted.submitted = cache.stats().submissions;
    counted.wrong += wrong.into_inner();
    (counted.waits, counted.waits_ended) = (((THREADS - 1) * data) as u64, ended.into_inner());
    cache.clear();
    counted.leaked += plan.arena.used_bytes();
    Ok(())
}

fn late(_: usize, counted: &mut Counted) -> Result<()> {
    let (cache, _plan) = opened(1 << 20, threads()?, 2)?;
    cache.insert_late();
    let source = datum(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| drop(cache.reader(FAR).access(&source).map(|access| access.wait().share())));
        }
    });
    counted.submitted_late = cache.stats().submissions;
    Ok(())
}

fn removals(data: usize, counted: &mut Counted) -> Result<()> {
    let data = data.min(200);
    let (cache, plan) = opened(data as u64 * 3 * 32_768, threads()?, 0)?;
    let sources: Vec<Source> = (0..2 * data).map(datum).collect();
    let reader = cache.reader(FAR);
    let access = |number: usize| reader.access(&sources[number]).map_err(other);
    for number in 0..2 * data {
        access(number)?.wait();
    }
    // Those in front are held, the others not.
    let held: Vec<Access<'_>> = (0..data).map(access).collect::<Result<_>>()?;
    cache.flush(Some(NEAR)).map_err(other)?;
    let is_there = |number: usize| Ok(reader.access_weak(&sources[number]).map_err(other)?.is_some());
    let left = |reader: std::ops::Range<usize>| -> Result<u64> {
        reader.map(is_there).try_fold(0, |sum, is_there: Result<bool>| Ok(sum + u64::from(is_there?)))
    };
    (counted.held, counted.idle) = (data as u64, data as u64);
    counted.held_gone = data as u64 - left(0..data)?;
    counted.idle_left = left(data..2 * data)?;
    for source in sources.iter().take(data / 2) {
        cache.invalidate(source);
    }
    cache.clear();
    // Copies of others in the memory that is free now.
    for number in data..2 * data {
        access(number)?.wait();
    }
    let is_bad = |(number, access): &(usize, &Access<'_>)| !access.is_copy() || is_wrong(access, *number);
    counted.wrong += held.iter().enumerate().filter(is_bad).count() as u64;
    drop(held);
    cache.clear();
    counted.leaked += plan.arena.used_bytes();
    Ok(())
}

fn failures(data: usize, counted: &mut Counted) -> Result<()> {
    let options = EmulatedOptions { errors_ppm: 1_000_000, ..EmulatedOptions::default() };
    let emulated = Emulated::new(options).map_err(other)?;
    let (cache, plan) = opened(1 << 20, emulated.engine().clone(), 0)?;
    let reader = cache.reader(FAR);
    for number in 0..data {
        let source = datum(number);
        let access = reader.access(&source).map_err(other)?;
        access.wait();
        let is_at_source = std::ptr::eq(access.bytes().as_ptr(), source.bytes().as_ptr());
        counted.failures += u64::from(access.failure().is_some());
        counted.failures_elsewhere += u64::from(!is_at_source || is_wrong(&access, number));
    }
    counted.leaked += plan.arena.used_bytes();
    Ok(())
}

fn weak(data: usize, counted: &mut Counted) -> Result<()> {
    let options = EmulatedOptions { bytes_per_second: 1 << 20, ..EmulatedOptions::default() };
    let emulated = Emulated::new(options).map_err(other)?;
    let (cache, _plan) = opened(64 << 20, emulated.engine().clone(), 0)?;
    let reader = cache.reader(FAR);
    for number in 0..data {
        drop(reader.access_weak(&datum(number)).map_err(other)?);
    }
    counted.weak_submitted = cache.stats().submissions;
    let source = datum(7);
    let access = reader.access(&source).map_err(other)?;
    // At this pace the copy takes twenty milliseconds.
    let mut looks: Vec<f64> = (0..99)
        .map(|_| {
            let start = Instant::now();
            let has_ended = access.poll();
            let took = start.elapsed().as_secs_f64() * 1e6;
            counted.wrong += u64::from(has_ended != access.is_copy() || is_wrong(&access, 7));
            took
        })
        .collect();
    looks.sort_by(f64::total_cmp);
    counted.weak_wait_us = looks[looks.len() / 2];
    Ok(())
}

fn budget_and_versions(_: usize, counted: &mut Counted) -> Result<()> {
    let room = (BYTES as u64).next_multiple_of(64) * 4;
    let (cache, plan) = opened(room, threads()?, 0)?;
    let reader = cache.reader(FAR);
    for number in 0..5 {
        reader.access(&datum(number)).map_err(other)?.wait();
    }
    let stats = cache.stats();
    (counted.flushes, counted.evicted) = (stats.flushes, stats.evicted);
    counted.asked_after_refusal = plan.asked.load(SeqCst) - 5;
    cache.clear();
    counted.stale_served = versions(&reader)?;
    Ok(())
}

/// Accesses to one datum in changing versions; how many were served by a copy of another one.
fn versions(reader: &Reader) -> Result<u64> {
    let mut wrong = 0;
    for number in [1usize, 2, 1, 3, 3, 2, 4, 1] {
        let source = datum(number).named(1, number as u64);
        let access = reader.access(&source).map_err(other)?;
        wrong += u64::from(is_wrong(access.wait(), number));
    }
    Ok(wrong)
}

fn judge(counted: &Counted) -> Outcome {
    let mut outcome = Outcome::default();
    let submissions = counted.submitted as f64 / counted.data as f64;
    let none = |what: &str, count: u64| Check::at_most(what, "0", count as f64, 0.0).order();
    let left = counted.waits - counted.waits_ended;
    outcome.checks.extend([
        Check::within("submissions of a datum that eight threads ask for at once", "1", submissions, 1.0, 1.0).order(),
        Check::at_least(
            "submissions of one datum by two threads, inserted late",
            "two",
            counted.submitted_late as f64,
            2.0,
        ).order(),
        none("waits that did not end with the copy, though the creator may never wait", left),
        none("reads of wrong bytes", counted.wrong),
        none("entries gone that were read while they were flushed", counted.held_gone),
        none("entries that nobody read, left by a flush", counted.idle_left),
        none("bytes not freed in the end", counted.leaked),
        Check::at_least("failed copies", "none told", counted.failures as f64, 100.0).order(),
        none("failed copies that the source did not serve", counted.failures_elsewhere),
        none("submissions by weak accesses", counted.weak_submitted),
        Check::at_most("weak wait for a pending copy, us (median)", "at once", counted.weak_wait_us, 100.0),
        Check::within("flushes for a spent budget", "1", counted.flushes as f64, 1.0, 1.0).order(),
        Check::within("second requests for memory", "1", counted.asked_after_refusal as f64, 1.0, 1.0).order(),
        none("copies of another version served (beyond the paper)", counted.stale_served),
    ]);
    outcome.size("data", counted.data);
    outcome.size("bytes of a datum", BYTES);
    outcome.size("threads", THREADS);
    outcome.note = format!(
        "Threads of a pool copy; the engine that fails, and the slow one of the weak wait, are emulated. Bytes are \
         compared after flush, invalidate and clear, while freed memory is used for other copies: {} entries were \
         held, {} not. A spent budget evicted {}.",
        counted.held, counted.idle, counted.evicted
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_keeps_its_promises() {
        let mut counted = Counted { data: 150, ..Counted::default() };
        PARTS.iter().for_each(|(name, part)| part(150, &mut counted).expect(name));
        let missed: Vec<Check> = judge(&counted).checks.into_iter().filter(|check| !check.pass).collect();
        assert!(missed.is_empty(), "{missed:?}");
    }

    #[test]
    fn a_second_submission_and_a_blind_control_are_misses() {
        let sound = Counted {
            data: 10,
            submitted: 10,
            submitted_late: 2,
            failures: 100,
            flushes: 1,
            asked_after_refusal: 1,
            ..Counted::default()
        };
        let passes = |counted: &Counted| judge(counted).checks.iter().all(|check| check.pass);
        assert!(passes(&sound));
        assert!(!passes(&Counted { submitted: 11, ..sound }));
        assert!(!passes(&Counted { submitted_late: 1, ..sound }));
        assert!(!passes(&Counted { stale_served: 1, ..sound }));
    }
}
