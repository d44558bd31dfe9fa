//! What the operating system says of this process and of the machine's other work.
//!
//! A throughput figure means little without the memory it took, the bytes it wrote and what else
//! ran meanwhile. All of it is read from `/proc`; where that is absent the figures are 0.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The number after `name:` in a `/proc` table.
fn field(table: &str, name: &str) -> u64 {
    table
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Bytes this process has read and written since it started, from `/proc/self/io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Bytes asked of read calls, page cache included.
    pub read_call_bytes: u64,
    /// Bytes handed to write calls; stores to mapped files do not appear.
    pub write_call_bytes: u64,
    /// Bytes fetched from the storage layer.
    pub storage_read_bytes: u64,
    /// Bytes of page cache dirtied (a page rewritten before write-back counts once) plus direct
    /// writes: what the storage layer will be sent.
    pub storage_written_bytes: u64,
}

impl Io {
    /// The counters now.
    pub fn now() -> Self {
        let table = fs::read_to_string("/proc/self/io").unwrap_or_default();
        Self {
            read_call_bytes: field(&table, "rchar"),
            write_call_bytes: field(&table, "wchar"),
            storage_read_bytes: field(&table, "read_bytes"),
            storage_written_bytes: field(&table, "write_bytes"),
        }
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Io) -> Io {
        Io {
            read_call_bytes: self.read_call_bytes.saturating_sub(earlier.read_call_bytes),
            write_call_bytes: self.write_call_bytes.saturating_sub(earlier.write_call_bytes),
            storage_read_bytes: self.storage_read_bytes.saturating_sub(earlier.storage_read_bytes),
            storage_written_bytes: self
                .storage_written_bytes
                .saturating_sub(earlier.storage_written_bytes),
        }
    }
}

/// Memory a process occupies, from `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident set, mapped file pages included.
    pub resident_bytes: u64,
    /// The part of it backed by no file.
    pub anonymous_bytes: u64,
    /// The part of it that maps files.
    pub file_bytes: u64,
    /// The part of it in shared memory (tmpfs, `memfd`, shared anonymous mappings).
    pub shared_bytes: u64,
    /// The largest resident set since the start or the last [`reset_peak_memory`].
    pub peak_bytes: u64,
}

impl Memory {
    /// This process's memory now.
    pub fn now() -> Self {
        Self::of("self")
    }

    /// Another process's memory now; zeros where it is gone.
    pub fn of_process(id: u32) -> Self {
        Self::of(&id.to_string())
    }

    fn of(process: &str) -> Self {
        let table = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let bytes = |name| field(&table, name) * 1024;
        Self {
            resident_bytes: bytes("VmRSS"),
            anonymous_bytes: bytes("RssAnon"),
            file_bytes: bytes("RssFile"),
            shared_bytes: bytes("RssShmem"),
            peak_bytes: bytes("VmHWM"),
        }
    }
}

/// Forgets the peak, so that [`Memory::peak_bytes`] speaks of what follows.
pub fn reset_peak_memory() {
    // Refused on some kernels; then the peak stays that of the whole process, which is safe.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Space a directory's files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Sum of file lengths.
    pub length_bytes: u64,
    /// Sum of allocated blocks: less than the length for sparse files, more for small ones.
    pub allocated_bytes: u64,
}

/// Space the files under `directory` take, at any depth; unreadable entries count as nothing.
pub fn disk_use(directory: &Path) -> DiskUse {
    use std::os::unix::fs::MetadataExt;
    let mut sum = DiskUse::default();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let part = if metadata.is_dir() {
            disk_use(&entry.path())
        } else {
            DiskUse { length_bytes: metadata.len(), allocated_bytes: metadata.blocks() * 512 }
        };
        sum.length_bytes += part.length_bytes;
        sum.allocated_bytes += part.allocated_bytes;
    }
    sum
}

/// Processor time used so far, by everyone and by us: the start of an interval.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    at: Instant,
    busy_s: f64,
    steal_s: f64,
    kernel_threads_s: f64,
    own_s: f64,
}

/// How the processors were used over an interval, in cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorUse {
    /// This process and the children it has waited for.
    pub own_cores: f64,
    /// Other user processes: the noise of a measurement.
    pub foreign_cores: f64,
    /// Kernel threads, among them write-back done on our behalf.
    pub kernel_cores: f64,
    /// Time a hypervisor gave to someone else.
    pub steal_cores: f64,
}

/// Cores of other people's work above which a measurement is called noisy.
pub const NOISY_CORES: f64 = 0.08;

const PF_KTHREAD: u64 = 0x0020_0000;

/// User and system seconds (with waited-for children's) and the flags word of one process.
fn process_seconds(process: &str, ticks_per_s: f64) -> Option<(f64, f64, u64)> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold spaces; after its closing parenthesis: state is field 0, flags 6,
    // utime 11, stime 12, cutime 13, cstime 14.
    let fields: Vec<&str> = line[line.rfind(')')? + 2..].split(' ').collect();
    let seconds = |i: usize| Some(fields.get(i)?.parse::<f64>().ok()? / ticks_per_s);
    let flags = fields.get(6)?.parse().ok()?;
    Some((seconds(11)? + seconds(12)?, seconds(13)? + seconds(14)?, flags))
}

impl Processors {
    /// The start of an interval. Reads one small file a process: about a millisecond.
    pub fn now() -> Self {
        let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
        let table = fs::read_to_string("/proc/stat").unwrap_or_default();
        let total: Vec<f64> = table
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .filter_map(|ticks| ticks.parse::<f64>().ok())
            .map(|ticks| ticks / ticks_per_s)
            .collect();
        let column = |i: usize| total.get(i).copied().unwrap_or(0.0);
        let mut kernel_threads_s = 0.0;
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))
            else {
                continue;
            };
            if let Some((seconds, _, flags)) = process_seconds(name, ticks_per_s)
                && flags & PF_KTHREAD != 0
            {
                kernel_threads_s += seconds;
            }
        }
        let own = process_seconds("self", ticks_per_s).unwrap_or_default();
        Self {
            at: Instant::now(),
            busy_s: column(0) + column(1) + column(2),
            steal_s: column(7),
            kernel_threads_s,
            own_s: own.0 + own.1,
        }
    }

    /// Use of the processors from then until now.
    pub fn elapsed(&self) -> ProcessorUse {
        let end = Self::now();
        let wall_s = (end.at - self.at).as_secs_f64().max(1e-6);
        let own = (end.own_s - self.own_s) / wall_s;
        let kernel = (end.kernel_threads_s - self.kernel_threads_s) / wall_s;
        let busy = (end.busy_s - self.busy_s) / wall_s;
        ProcessorUse {
            own_cores: round(own),
            foreign_cores: round((busy - own - kernel).max(0.0)),
            kernel_cores: round(kernel),
            steal_cores: round((end.steal_s - self.steal_s) / wall_s),
        }
    }
}

/// Three decimals: the clock ticks behind these figures hold no more.
fn round(cores: f64) -> f64 {
    (cores * 1000.0).round() / 1000.0
}

/// Waits until other processes leave the processors alone for 300 ms; false if they had not by
/// `patience`. A zero patience returns at once.
pub fn wait_until_quiet(patience: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < patience {
        let interval = Processors::now();
        std::thread::sleep(Duration::from_millis(300));
        if interval.elapsed().foreign_cores < NOISY_CORES {
            return true;
        }
    }
    false
}

/// The machine a measurement was taken on, for the head of its report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's marketing name.
    pub processor: String,
    /// Logical processors this process may use.
    pub processors: usize,
    /// Installed memory.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processor = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map(|(_, name)| name.trim().to_string());
        Self {
            processor: processor.unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: field(&memory, "MemTotal") * 1024,
            kernel: format!("{} {}", std::env::consts::OS, release.trim()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let table = "VmHWM:\t  12 kB\nVmRSS:\t   7 kB\nRssAnon:\t 5 kB\n";
        assert_eq!(field(table, "VmRSS"), 7);
        assert_eq!(field(table, "Vm"), 0);
        assert_eq!(field(table, "Absent"), 0);
    }

    #[test]
    fn memory_grows_when_it_is_touched() {
        let before = Memory::now();
        let block = std::hint::black_box(vec![1u8; 128 << 20]);
        let after = Memory::now();
        // The tests beside this one give some back meanwhile.
        assert!(after.resident_bytes >= before.resident_bytes + (64 << 20), "{before:?} {after:?}");
        assert!(after.peak_bytes >= after.resident_bytes);
        drop(block);
    }

    #[test]
    fn written_bytes_are_counted_and_found_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let before = Io::now();
        fs::create_dir(directory.path().join("deeper")).unwrap();
        fs::write(directory.path().join("deeper/file"), vec![7u8; 1 << 20]).unwrap();
        assert!(Io::now().since(&before).write_call_bytes >= 1 << 20);
        assert_eq!(disk_use(directory.path()).length_bytes, 1 << 20);
    }

    #[test]
    fn our_own_work_is_distinguished_from_others() {
        let interval = Processors::now();
        let end = Instant::now() + Duration::from_millis(400);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        // Other tests of this process run beside this one: at least this thread's core is ours.
        assert!(interval.elapsed().own_cores > 0.2);
    }

    #[test]
    fn the_machine_has_a_processor_and_memory() {
        let machine = Machine::here();
        assert!(
            machine.processors >= 1 && machine.memory_bytes > 0 && !machine.processor.is_empty()
        );
    }
}
