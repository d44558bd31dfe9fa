//! Step 1: samples of a native run find the functions that store, and how much of the time goes to stores.
//!
//! The paper samples memory accesses with the processor's counters. Virtual machines have none, so the kernel's clock
//! serves: it interrupts the program so many times a second of its processor time, and the instruction that it
//! interrupts is decoded. What an instruction waits for is charged to it or to the one behind it, so single
//! instructions are not to be trusted, functions are.

use crate::analysis::Places;
use crate::binary::Symbols;
use crate::event::Image;
use crate::source::{TraceError, input_of};
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Samples a second of processor time. At 2 us each this costs under 1 %.
const FREQUENCY: u64 = 1999;
/// Fewer samples than this say nothing of a share.
const FEWEST: u64 = 100;
/// Bytes of each processor's buffer.
const BUFFER_BYTES: usize = 1 << 19;
/// Callers that a path names.
const PATH_CALLERS: usize = 6;
const PATHS: usize = 5;
const FUNCTIONS: usize = 25;

/// A function, as samples saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledFunction {
    /// Its name.
    pub function: String,
    /// Samples in it.
    pub samples: u64,
    /// Samples at instructions that store.
    pub stores: u64,
    /// Paths of calls into it, by samples that store; by frame pointers, so broken where code has none.
    pub callers: Vec<(Vec<String>, u64)>,
}

/// What samples found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Samples of the program itself.
    pub samples: u64,
    /// Samples of processes that it started, which are not looked at.
    pub of_children: u64,
    /// Samples that the kernel dropped.
    pub lost: u64,
    /// The share of samples at instructions that store.
    pub store_share: f64,
    /// Those with stores, the most first.
    pub functions: Vec<SampledFunction>,
    /// The sets of instructions that were sampled.
    pub instruction_sets: String,
    /// How long the program ran, in seconds.
    pub seconds: f64,
    /// How it ended: an exit code, or none for a signal.
    pub exit_code: Option<i32>,
}

impl Sampled {
    /// Whether there were enough samples to judge by.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::Sampled;
    /// let few = Sampled {
    ///     samples: 7, of_children: 0, lost: 0, store_share: 0.5, functions: vec![], instruction_sets: String::new(),
    ///     seconds: 0.01, exit_code: Some(0),
    /// };
    /// assert!(!few.is_enough());
    /// ```
    pub fn is_enough(&self) -> bool {
        self.samples >= FEWEST
    }
}

/// Why there are no samples. The trace's own counts serve then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The kernel refuses.
    #[error(
        "the kernel refuses samples: {source}; `sysctl kernel.perf_event_paranoid=2` allows them, in a container also the \
         capability CAP_PERFMON"
    )]
    Refused {
        /// Its reason.
        source: io::Error,
    },
    /// The program could not be run.
    #[error(transparent)]
    Run(#[from] TraceError),
}

#[derive(Default)]
struct Found {
    /// Instructions, with their samples.
    by_ip: HashMap<u64, u64>,
    by_path: HashMap<Vec<u64>, u64>,
    images: Vec<Image>,
    samples: u64,
    of_children: u64,
    lost: u64,
}

/// Runs a program natively, samples it and says where it stores. Its output is discarded, its errors are not.
///
/// # Errors
/// [`SampleError::Refused`] where the kernel allows no samples, [`SampleError::Run`] if the program does not start.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use terrace_dirtbuster::{Program, SampleError, sample};
/// let program = Program::find("true").unwrap();
/// match sample(&program.path, &[], None, Duration::from_secs(10)) {
///     Ok(sampled) => assert_eq!(sampled.exit_code, Some(0)),
///     Err(SampleError::Refused { source }) => println!("no samples here: {source}"),
///     Err(error) => panic!("{error}"),
/// }
/// ```
pub fn sample(
    program: &Path,
    arguments: &[String],
    input: Option<&Path>,
    limit: Duration,
) -> Result<Sampled, SampleError> {
    // A shell that stops itself, so that the clock is set before the program begins.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(program).args(arguments);
    command.stdin(input_of(input)?).stdout(Stdio::null());
    let mut child = command.spawn().map_err(TraceError::system("start the program"))?;
    let system = |source: io::Error| {
        SampleError::Run(TraceError::System { doing: "wait for the program", source })
    };
    let pid = Pid::from_child(&child);
    let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).map_err(|e| system(e.into()))?;
    if !stopped.is_some_and(|(_, status)| WaitStatus::stopped(status)) {
        return Err(system(io::Error::other("it ended before it began")));
    }
    let samplers = open_samplers(child.id());
    let mut samplers = match samplers {
        Ok(samplers) => samplers,
        Err(source) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(SampleError::Refused { source });
        }
    };
    kill_process(pid, Signal::CONT).map_err(|e| system(e.into()))?;
    let start = Instant::now();
    let mut found = Found::default();
    let status = loop {
        samplers.iter_mut().for_each(|sampler| found.drain(sampler, child.id()));
        if let Some(status) = child.try_wait().map_err(system)? {
            break status;
        }
        if start.elapsed() >= limit {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let seconds = start.elapsed().as_secs_f64();
    samplers.iter_mut().for_each(|sampler| found.drain(sampler, child.id()));
    let mut sampled = found.summary();
    (sampled.seconds, sampled.exit_code) = (seconds, status.code());
    Ok(sampled)
}

fn open_samplers(pid: u32) -> io::Result<Vec<Sampler>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let numbers = online_numbers(&online).unwrap_or_else(|| (0..processors).collect());
    let open = |processor: usize| {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder
            .observe_pid(pid as i32)
            .one_cpu(processor)
            .inherit(true)
            .enable_on_exec(true)
            .exclude_kernel(true)
            .exclude_hv(true)
            .sample(SampleFlag::IP | SampleFlag::TID | SampleFlag::CALLCHAIN)
            .exclude_callchain_kernel(true)
            .sample_frequency(FREQUENCY)
            .mmap(true);
        builder.build()?.sampled(BUFFER_BYTES)
    };
    numbers.into_iter().map(open).collect()
}

/// `0-3,8`: the processors of a list as the kernel prints it.
fn online_numbers(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last.min(first + 4096));
    }
    Some(all)
}

impl Found {
    fn drain(&mut self, sampler: &mut Sampler, pid: u32) {
        while let Some(record) = sampler.next_record() {
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    let (Some(ip), Some(of)) = (sample.ip(), sample.pid()) else { continue };
                    if of != pid {
                        self.of_children += 1;
                        continue;
                    }
                    self.samples += 1;
                    *self.by_ip.entry(ip).or_default() += 1;
                    // Marks of the kernel are no addresses.
                    let chain = sample.callchain().unwrap_or_default();
                    let chain = chain.iter().copied().filter(|ip| *ip < u64::MAX - 4096);
                    let path: Vec<u64> = chain.take(PATH_CALLERS + 1).collect();
                    *self.by_path.entry(path).or_default() += 1;
                }
                Ok(Record::Mmap(map)) if map.pid == pid => {
                    let path = PathBuf::from(String::from_utf8_lossy(&map.filename).as_ref());
                    if path.is_absolute() {
                        let end = map.addr.saturating_add(map.len);
                        self.images.push(Image { path, start: map.addr, end, offset: map.pgoff });
                    }
                }
                Ok(Record::Lost(lost)) => self.lost += lost.lost,
                _ => {}
            }
        }
    }

    fn summary(self) -> Sampled {
        let mut symbols = Symbols::default();
        self.images.iter().for_each(|image| symbols.image(image));
        let mut sets = crate::binary::InstructionSets::default();
        let mut storing = HashSet::new();
        let mut functions: HashMap<u32, (u64, u64)> = HashMap::new();
        for (ip, samples) in &self.by_ip {
            let instruction = symbols.instruction(*ip);
            if let Some(instruction) = &instruction {
                sets.add(instruction);
            }
            let stores = instruction.is_some_and(|instruction| instruction.writes);
            if stores {
                storing.insert(*ip);
            }
            let of = functions.entry(symbols.function(*ip)).or_default();
            of.0 += samples;
            of.1 += if stores { *samples } else { 0 };
        }
        let mut paths: HashMap<u32, HashMap<Vec<u32>, u64>> = HashMap::new();
        for (path, samples) in &self.by_path {
            let Some((ip, callers)) = path.split_first() else { continue };
            if storing.contains(ip) && !callers.is_empty() {
                let callers = callers.iter().map(|ip| symbols.function(*ip)).collect();
                *paths.entry(symbols.function(*ip)).or_default().entry(callers).or_default() +=
                    samples;
            }
        }
        let stores: u64 = functions.values().map(|(_, stores)| stores).sum();
        let mut ranked: Vec<(u32, (u64, u64))> =
            functions.into_iter().filter(|(_, of)| of.1 > 0).collect();
        ranked.sort_by_key(|(function, of)| (std::cmp::Reverse(of.1), *function));
        ranked.truncate(FUNCTIONS);
        let mut named = |function: u32| symbols.name(function).0;
        let functions = ranked
            .into_iter()
            .map(|(function, (samples, stores))| {
                let mut callers: Vec<(Vec<u32>, u64)> =
                    paths.remove(&function).unwrap_or_default().into_iter().collect();
                callers.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
                callers.truncate(PATHS);
                let callers = callers
                    .into_iter()
                    .map(|(path, samples)| (path.into_iter().map(&mut named).collect(), samples))
                    .collect();
                SampledFunction { function: named(function), samples, stores, callers }
            })
            .collect();
        Sampled {
            samples: self.samples,
            of_children: self.of_children,
            lost: self.lost,
            store_share: if self.samples == 0 { 0.0 } else { stores as f64 / self.samples as f64 },
            functions,
            instruction_sets: sets.to_string(),
            seconds: 0.0,
            exit_code: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(online_numbers("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(online_numbers(""), None);
    }
}
