//! The query with threads of this machine over the product's offloading cache. It has one memory, so that no placement
//! is faster; what shows is that answers are equal with and without prefetching, and how often a copy served.

use super::super::{Result, Run};
use crate::reproduce::tiles::other;
use terrace_movement::{
    Arena, Balancer, Buffer, Cache, CacheOptions, Emulated, EmulatedOptions, Engine, Fleet, Misdeed, Node, Policy,
    Reader, Request, Source, Station,
};

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    pub wrong: usize,
    pub queries: usize,
    pub column_bytes: usize,
    pub hits: u64,
    pub chunks: u64,
    pub hit_rate: f64,
    pub control_wrong: usize,
}

const CHUNK_BYTES: usize = 256 << 10;
const GROUPS: usize = 2;
/// Of 100 rows, those that the filter lets pass.
const SELECTED: [u64; 4] = [0, 10, 50, 100];
const ROUNDS: usize = 3;
const WORD: usize = 8;

/// Everything to one node, each task by one engine in its turn.
struct Prefetched {
    memory: Arena,
    fleet: Fleet,
}

const FAST: Node = Node(8);

impl Policy for Prefetched {
    fn place(&self, _: &Request) -> Node {
        FAST
    }

    fn route(&self, request: &Request, to: Node) -> Vec<Engine> {
        let choice = self.fleet.choose(Balancer::RoundRobin, request.source, to);
        choice.map_or_else(|_| Vec::new(), |choice| choice.engines)
    }

    fn allocate(&self, _: Node, bytes: usize) -> Option<Buffer> {
        self.memory.buffer(bytes)
    }
}

/// Both columns as chunks, group by group.
struct Columns {
    a: Vec<Source>,
    b: Vec<Source>,
    per_group: usize,
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word))
}

fn column(bytes: usize, seed: u64, of: impl Fn(u64) -> u64) -> Result<Vec<Source>> {
    let mut random = crate::structures::Random(seed);
    let whole: Vec<u8> = (0..bytes / WORD).flat_map(|_| of(random.below(1 << 40)).to_le_bytes()).collect();
    let whole = Source::from(whole).on(Node(0));
    let chunks = (0..bytes).step_by(CHUNK_BYTES);
    chunks.map(|at| whole.slice(at, CHUNK_BYTES.min(bytes - at)).map_err(other)).collect()
}

impl Columns {
    fn new(bytes: usize) -> Result<Columns> {
        // a is between 0 and 99: the bound of the filter is the share that passes.
        let (a, b) = (column(bytes, 61, |value| value % 100)?, column(bytes, 62, |value| value)?);
        let per_group = a.len().div_ceil(GROUPS);
        Ok(Columns { a, b, per_group })
    }

    /// The answer by a plain loop.
    fn expected(&self, below: u64) -> u64 {
        let rows = |chunks: &(&Source, &Source)| {
            words(chunks.0.bytes()).zip(words(chunks.1.bytes())).filter(|(a, _)| *a < below).fold(0u64, |sum, (_, b)| {
                sum.wrapping_add(b)
            })
        };
        self.a.iter().zip(&self.b).fold(0, |sum, chunks| sum.wrapping_add(rows(&chunks)))
    }

    /// The query; its answer, and how many chunks of b were copies.
    fn run(&self, below: u64, cache: Option<&Cache>) -> Result<(u64, u64)> {
        let groups = self.a.chunks(self.per_group).zip(self.b.chunks(self.per_group));
        let found: Vec<Result<(u64, u64)>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                groups.map(|(a, b)| scope.spawn(move || group(a, b, below, cache))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        found.into_iter().try_fold((0u64, 0), |(sum, hits), found| {
            found.map(|(more, copies)| (sum.wrapping_add(more), hits + copies))
        })
    }
}

/// One group: SCAN_b runs free beside SCAN_a, and AGGREGATE follows SCAN_a.
fn group(a: &[Source], b: &[Source], below: u64, cache: Option<&Cache>) -> Result<(u64, u64)> {
    std::thread::scope(|scope| {
        let ahead = cache.map(|cache| {
            scope.spawn(move || {
                let reader = cache.reader(Node(0));
                b.iter().try_for_each(|chunk| reader.access(chunk).map(drop))
            })
        });
        let filtered: Vec<Vec<bool>> =
            a.iter().map(|chunk| words(chunk.bytes()).map(|value| value < below).collect()).collect();
        let reader = cache.map(|cache| cache.reader(Node(0)));
        let (mut sum, mut hits) = (0u64, 0);
        for (chunk, passes) in b.iter().zip(&filtered) {
            let (more, is_copy) = added(chunk, passes, reader.as_ref()).map_err(other)?;
            sum = sum.wrapping_add(more);
            hits += u64::from(is_copy);
        }
        if let Some(ahead) = ahead {
            ahead.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(other)?;
        }
        Ok((sum, hits))
    })
}

/// The sum of a chunk's chosen rows, from its copy if that is complete: a weak access and a weak wait.
fn added(chunk: &Source, passes: &[bool], reader: Option<&Reader>) -> terrace_movement::Result<(u64, bool)> {
    let sum = |bytes: &[u8]| {
        let chosen = words(bytes).zip(passes).filter(|(_, passes)| **passes);
        chosen.fold(0u64, |sum, (value, _)| sum.wrapping_add(value))
    };
    let Some(access) = reader.map(|reader| reader.access_weak(chunk)).transpose()?.flatten() else {
        return Ok((sum(chunk.bytes()), false));
    };
    access.poll();
    Ok((sum(access.bytes()), access.is_copy()))
}

fn cache(bytes: usize, engines: Vec<Engine>) -> Result<Cache> {
    let station = |(node, engine)| Station { engine, node: Node(node as u16), socket: 0 };
    let stations = engines.into_iter().enumerate().map(station).collect();
    let fleet = Fleet::new(stations, &[(FAST, Node(0))]).map_err(other)?;
    let memory = Arena::new(bytes as u64, None).map_err(other)?;
    let options = CacheOptions { nodes: FAST.0 + 1, entries: bytes / CHUNK_BYTES + 1 };
    Cache::new(options, Prefetched { memory, fleet }).map_err(other)
}

/// Engines that prefetch.
struct Prefetchers {
    name: &'static str,
    engines: Vec<Engine>,
    /// Open for as long as their engines are used.
    _devices: Vec<Emulated>,
}

fn prefetchers() -> Result<[Prefetchers; 2]> {
    let emulated: Vec<Emulated> = (0..2)
        .map(|_| Emulated::new(EmulatedOptions::default()).map_err(other))
        .collect::<Result<_>>()?;
    let of_emulated = emulated.iter().map(|device| device.engine().clone()).collect();
    let pool = Engine::pool(2, 4096).map_err(other)?;
    Ok([
        Prefetchers { name: "threads", engines: vec![pool], _devices: Vec::new() },
        Prefetchers { name: "emulated engines", engines: of_emulated, _devices: emulated },
    ])
}

pub(super) fn measure(run: &Run<'_>) -> Result<Answers> {
    let column_bytes = run.size(256 << 20, 64 << 20);
    let columns = Columns::new(column_bytes)?;
    let mut found = Answers { column_bytes, ..Answers::default() };
    for below in SELECTED {
        let expected = columns.expected(below);
        let mut note = |answer: u64| {
            found.queries += 1;
            found.wrong += usize::from(answer != expected);
        };
        note(columns.run(below, None)?.0);
        for Prefetchers { name, engines, _devices } in prefetchers()? {
            (run.tell)(&format!("native, {below} % of the rows, {name}"));
            for _ in 0..ROUNDS {
                // A new cache each time: all of b is prefetched while the query runs.
                let cache = cache(column_bytes, engines.clone())?;
                let (answer, hits) = columns.run(below, Some(&cache))?;
                note(answer);
                found.hits += hits;
                found.chunks += columns.b.len() as u64;
            }
        }
    }
    found.hit_rate = found.hits as f64 / found.chunks as f64;
    found.control_wrong = control(&columns)?;
    Ok(found)
}

/// Wrong answers where an engine copies half and says that it copied all. b is prefetched before, so that copies serve.
fn control(columns: &Columns) -> Result<usize> {
    let device = Emulated::new(EmulatedOptions::default()).map_err(other)?;
    device.misbehave(Misdeed::FalseSuccess, 10);
    let bytes = columns.b.iter().map(|chunk| chunk.bytes().len()).sum();
    let cache = cache(bytes, vec![device.engine().clone()])?;
    let reader = cache.reader(Node(0));
    for chunk in &columns.b {
        reader.access(chunk).map_err(other)?.wait();
    }
    let answer = columns.run(100, Some(&cache))?.0;
    Ok(usize::from(answer != columns.expected(100)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_a_plain_loop_and_an_early_success_is_noticed() {
        let columns = Columns::new(3 * CHUNK_BYTES + 4096).expect("columns");
        let values: Vec<u64> = columns.a.iter().flat_map(|chunk| words(chunk.bytes()).collect::<Vec<_>>()).collect();
        assert!(values.len() == (3 * CHUNK_BYTES + 4096) / WORD && values.iter().all(|value| *value < 100));
        assert_eq!(columns.expected(0), 0);
        for Prefetchers { engines, _devices, .. } in prefetchers().expect("engines") {
            let cache = cache(4 * CHUNK_BYTES, engines).expect("a cache");
            let (answer, _) = columns.run(50, Some(&cache)).expect("a run");
            assert_eq!((answer, columns.run(50, None).expect("a run").1), (columns.expected(50), 0));
        }
        // One chunk of ten is half a copy; these are too few.
        let columns = Columns::new(12 * CHUNK_BYTES).expect("columns");
        assert_eq!(control(&columns).expect("a control"), 1);
    }
}
