//! Terrace's lookup table beside other ordered maps in memory: point reads, updates, ranges and bytes a key.
//!
//! ```text
//! cargo run --release -p terrace-peers-ordered -- --markdown          # minutes
//! cargo run --release -p terrace-peers-ordered -- --quick             # a line of JSON each, under a minute
//! cargo run --release -p terrace-peers-ordered -- --keys 1000000 --maps lit,btreemap --wide
//! ```
//!
//! Every map, round and width of keys has a process of its own, so that none finds the heap as another left it.
//! Rounds go around the maps; figures are medians over rounds. Speed is operations a second of processor time of the
//! thread, summed over threads: what other programs take of the machine is not in it, waiting without the processor is
//! not either. Bytes a key are what the process became larger by in loading, keys in random order.
//!
//! All maps have the allocator of the system, keys of 8 or 16 bytes and values of 8.

mod maps;
mod table;

use maps::{Leaves, Locked, Map, Skiplist, Wide};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use terrace_lockfree::lookup::{Bytes, LookupTable};
use terrace_workload::random::{Rng, mix};
use terrace_workload::ycsb::Distribution;

/// The maps, ours first.
const MAPS: [&str; 6] = ["lit", "terrace-tree", "btreemap", "skiplist", "treeindex", "congee"];
/// Operations drawn for a thread; it goes around them.
const DRAWN: usize = 1 << 17;
/// Keys of the ranges.
const RANGES: [usize; 3] = [10, 100, 10_000];

/// Workloads that change which keys are there, as the paper of the table has them: the percentage of reads; the rest
/// are insertions and removals, half and half.
const CHANGING: [(&str, Distribution, u64); 3] = [
    ("50 insert, 50 remove", Distribution::Uniform, 0),
    ("80 get, 10 insert, 10 remove", Distribution::Uniform, 80),
    ("80 get, 10 insert, 10 remove, zipf 0.8", Distribution::Zipfian { theta: 0.8 }, 80),
];

/// An operation of such a workload.
enum Call {
    Get,
    Put,
    Remove,
}

/// What was measured of a map.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Figure {
    map: String,
    key_bytes: usize,
    keys: usize,
    what: String,
    threads: usize,
    /// Operations a second of processor time; of bytes a key, these.
    value: f64,
}

#[derive(Clone, Debug)]
struct Settings {
    maps: Vec<String>,
    keys: Vec<usize>,
    wide: bool,
    threads: usize,
    rounds: usize,
    time: Duration,
    markdown: bool,
    /// A process for this map and width of keys alone.
    one: Option<(String, usize)>,
}

fn settings() -> Result<Settings, String> {
    let mut settings = Settings {
        maps: MAPS.map(String::from).to_vec(),
        keys: vec![10_000, 100_000, 1_000_000],
        wide: true,
        threads: 2,
        rounds: 3,
        time: Duration::from_millis(300),
        markdown: false,
        one: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: String| text.parse::<usize>().map_err(|_| format!("\"{text}\" is no number"));
        match argument.as_str() {
            "--maps" => settings.maps = value()?.split(',').map(String::from).collect(),
            "--keys" => {
                settings.keys =
                    value()?.split(',').map(|keys| number(keys.into())).collect::<Result<_, _>>()?;
            }
            "--threads" => settings.threads = number(value()?)?.clamp(1, 64),
            "--rounds" => settings.rounds = number(value()?)?.max(1),
            "--ms" => settings.time = Duration::from_millis(number(value()?)? as u64),
            "--narrow" => settings.wide = false,
            "--markdown" => settings.markdown = true,
            "--quick" => {
                (settings.wide, settings.rounds) = (false, 1);
                settings.time = Duration::from_millis(60);
            }
            "--one" => settings.one = Some((value()?, number(value()?)?)),
            _ => return Err(format!("\"{argument}\" is no option; the head of src/main.rs has them")),
        }
    }
    if let Some(name) = settings.maps.iter().find(|name| !MAPS.contains(&name.as_str())) {
        return Err(format!("\"{name}\" is no map; there are {}", MAPS.join(", ")));
    }
    if settings.keys.iter().any(|keys| !(1000..=1 << 28).contains(keys)) {
        return Err("--keys takes numbers from 1000 to 2^28".into());
    }
    Ok(settings)
}

fn main() {
    let outcome = settings().and_then(|settings| match settings.one.clone() {
        Some((map, key_bytes)) => one(&map, key_bytes, &settings),
        None => all(&settings),
    });
    if let Err(error) = outcome {
        eprintln!("terrace-peers-ordered: {error}");
        std::process::exit(2);
    }
}

/// Runs every configuration in a process of its own, and prints the medians.
fn all(settings: &Settings) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut found: Vec<Figure> = Vec::new();
    let widths: &[usize] = if settings.wide { &[8, 16] } else { &[8] };
    for round in 0..settings.rounds {
        for key_bytes in widths {
            for keys in &settings.keys {
                for map in settings.maps.iter().filter(|map| *map != "congee" || *key_bytes == 8) {
                    eprintln!("round {} {map}, {keys} keys of {key_bytes} bytes", round + 1);
                    let output = std::process::Command::new(&me)
                        .args(["--one", map, &key_bytes.to_string(), "--keys", &keys.to_string()])
                        .args(["--threads", &settings.threads.to_string()])
                        .args(["--ms", &settings.time.as_millis().to_string()])
                        .output()
                        .map_err(|error| error.to_string())?;
                    if !output.status.success() {
                        let told = String::from_utf8_lossy(&output.stderr).into_owned();
                        return Err(format!("{map}, {keys} keys of {key_bytes} bytes: {told}"));
                    }
                    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
                    found.extend(lines.lines().filter_map(|line| serde_json::from_str(line).ok()));
                }
            }
        }
    }
    let medians = table::medians(&found);
    if settings.markdown {
        print!("{}", table::markdown(&medians, &settings.maps));
    } else {
        medians.iter().for_each(|figure| println!("{}", line(figure)));
    }
    Ok(())
}

fn line(figure: &Figure) -> String {
    serde_json::to_string(figure).expect("invariant: numbers and names")
}

fn one(map: &str, key_bytes: usize, settings: &Settings) -> Result<(), String> {
    let narrow = |number: u64| mix(number);
    let wide = |number: u64| {
        let mut key: Wide = [0; 16];
        key[..8].copy_from_slice(&mix(number).to_be_bytes());
        key[8..].copy_from_slice(&number.to_be_bytes());
        key
    };
    for keys in &settings.keys {
        let job = Job { map, key_bytes, keys: *keys, threads: settings.threads, time: settings.time };
        match (map, key_bytes) {
            ("lit", 8) => job.measure::<u64, LookupTable<u64>>(narrow),
            ("lit", 16) => job.measure::<Wide, LookupTable<Bytes>>(wide),
            ("terrace-tree", 8) => job.measure::<u64, Leaves>(narrow),
            ("terrace-tree", 16) => job.measure::<Wide, Leaves>(wide),
            ("btreemap", 8) => job.measure::<u64, Locked<u64>>(narrow),
            ("btreemap", 16) => job.measure::<Wide, Locked<Wide>>(wide),
            ("skiplist", 8) => job.measure::<u64, Skiplist<u64>>(narrow),
            ("skiplist", 16) => job.measure::<Wide, Skiplist<Wide>>(wide),
            ("treeindex", 8) => job.measure::<u64, scc::TreeIndex<u64, u64>>(narrow),
            ("treeindex", 16) => job.measure::<Wide, scc::TreeIndex<Wide, u64>>(wide),
            ("congee", 8) => job.measure::<u64, congee::Congee<usize, usize>>(narrow),
            _ => return Err(format!("no map \"{map}\" has keys of {key_bytes} bytes")),
        }
    }
    Ok(())
}

/// One map with one number of keys.
struct Job<'a> {
    map: &'a str,
    key_bytes: usize,
    keys: usize,
    threads: usize,
    time: Duration,
}

impl Job<'_> {
    fn tell(&self, what: &str, threads: usize, value: f64) {
        let (map, key_bytes, keys) = (self.map.into(), self.key_bytes, self.keys);
        println!("{}", line(&Figure { map, key_bytes, keys, what: what.into(), threads, value }));
    }

    fn measure<K: Ord + Copy + Sync + Send, M: Map<K>>(&self, key: impl Fn(u64) -> K) {
        let numbered: Vec<K> = (0..self.keys as u64).map(key).collect();
        let mut sorted = numbered.clone();
        sorted.sort_unstable();
        let before = resident_bytes();
        let map = M::new();
        let start = processor_time();
        for (key, value) in numbered.iter().zip(1..) {
            map.put(key, value);
        }
        let loaded = (processor_time() - start).as_secs_f64();
        let bytes = resident_bytes().saturating_sub(before);
        self.tell("load", 1, self.keys as f64 / loaded);
        self.tell("bytes", 1, bytes as f64 / self.keys as f64);
        for threads in 1..=self.threads {
            for (skew, distribution) in [("uniform", Distribution::Uniform), ("zipf", Distribution::ZIPFIAN)] {
                let draw = |seed| drawn(&numbered, distribution, seed);
                let reads = self.rate(threads, draw, |key| {
                    assert!(black_box(map.get(key)).is_some(), "a key that was put is there");
                });
                self.tell(&format!("read {skew}"), threads, reads);
                let updates = self.rate(threads, draw, |key| map.put(key, 7));
                self.tell(&format!("update {skew}"), threads, updates);
            }
            for count in RANGES.into_iter().filter(|count| *count < self.keys / 2) {
                let draw = |seed| {
                    let mut random = Rng::new(seed);
                    let first = || random.below((sorted.len() - count) as u64) as usize;
                    let firsts = std::iter::repeat_with(first).take(DRAWN / 16);
                    firsts.map(|first| (sorted[first], sorted[first + count - 1])).collect()
                };
                let ranges = self.rate(threads, draw, |(first, last)| {
                    let (found, sum) = map.sum(first, last, count);
                    assert_eq!(found, count, "a range has all of its keys");
                    black_box(sum);
                });
                self.tell(&format!("range {count}"), threads, ranges);
            }
        }
        // Half of the keys are there from the first of these on.
        for threads in 1..=self.threads {
            for (what, distribution, reads) in CHANGING {
                let draw = |seed| {
                    let mut random = Rng::new(seed ^ 77);
                    let keys = drawn(&numbered, distribution, seed);
                    let call = |key| match random.below(100) {
                        percent if percent < reads => (key, Call::Get),
                        percent if percent % 2 == 0 => (key, Call::Put),
                        _ => (key, Call::Remove),
                    };
                    keys.into_iter().map(call).collect()
                };
                let changes = self.rate(threads, draw, |(key, call)| match call {
                    Call::Get => {
                        black_box(map.get(key));
                    }
                    Call::Put => map.put(key, 9),
                    Call::Remove => map.remove(key),
                });
                self.tell(what, threads, changes);
            }
        }
    }

    /// Operations a second of processor time, of all threads, each of which goes around what was drawn for it.
    fn rate<T: Send>(&self, threads: usize, draw: impl Fn(u64) -> Vec<T>, run: impl Fn(&T) + Sync) -> f64 {
        let barrier = Barrier::new(threads);
        let (run, barrier, time) = (&run, &barrier, self.time);
        // Asking for the time costs as much as a few operations.
        let at_once = DRAWN / 512;
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..threads as u64)
                .map(|thread| {
                    let drawn = draw(1 + thread);
                    scope.spawn(move || {
                        barrier.wait();
                        let (start, wall) = (processor_time(), Instant::now());
                        let mut count = 0;
                        // Wall time bounds a thread that is kept from the processor.
                        while processor_time() - start < time && wall.elapsed() < 8 * time {
                            for _ in 0..at_once {
                                run(&drawn[count % drawn.len()]);
                                count += 1;
                            }
                        }
                        count as f64 / (processor_time() - start).as_secs_f64()
                    })
                })
                .collect();
            started.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum()
        })
    }
}

fn drawn<K: Copy>(keys: &[K], distribution: Distribution, seed: u64) -> Vec<K> {
    let ranks = distribution.ranks(keys.len() as u64, DRAWN, seed);
    // Popular keys lie anywhere among the others.
    ranks.into_iter().map(|rank| keys[(mix(u64::from(rank)) % keys.len() as u64) as usize]).collect()
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes of memory that this process has; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
