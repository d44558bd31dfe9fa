//! Opening a map: the directory's lock, the value file, recovery, the map's threads.

use crate::background::Background;
use crate::engine::{Counters, Engine, Stored};
use crate::error::{Error, Result};
use crate::map::{Inner, Map};
use crate::options::{Durability, MapOptions, ValueDesign};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;
use terrace_durable::logs::{Damage, Logs, MAX_WRITERS, Recovered, TornTail};
use terrace_durable::slabs::Slabs;
use terrace_durable::superblock::Rule;
use terrace_durable::{Medium, MediumSpec};
use terrace_index::HashIndex;
use terrace_memory::{Budget, Memory};

/// What recovery found and what it took.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// The value file.
    pub path: PathBuf,
    /// Keys afterwards.
    pub keys: u64,
    /// Items read, older versions and tombstones included.
    pub items: u64,
    /// Logs, or superblocks, that held items.
    pub segments: u64,
    /// Bytes read and verified.
    pub bytes: u64,
    /// Wall time.
    pub elapsed: Duration,
    /// Unfinished ends of logs and unfinished slots; never acknowledged under `sync`.
    pub torn: Vec<TornTail>,
    /// Damage found (only with `salvage`; otherwise it is an error).
    pub damage: Vec<Damage>,
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Address space for a map's values: what the budget could ever be raised to. It costs nothing
/// until it is used.
fn reserved_bytes(options: &MapOptions) -> u64 {
    let physical = rustix::param::page_size() as u64 * physical_pages();
    options.memory_budget_bytes.max(physical).max(1 << 30).next_multiple_of(1 << 30) * 2
}

fn physical_pages() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit) / rustix::param::page_size() as u64
}

pub(crate) fn open(dir: &Path, options: MapOptions, budget: &Arc<Budget>) -> Result<Map> {
    let (lock, path, design) = claim(dir, &options)?;
    let capacity_bytes = reserved_bytes(&options);
    let spec =
        MediumSpec { path: path.clone(), domain: options.domain, dax: options.dax, capacity_bytes };
    let writers = if options.writers == 0 { processors() } else { options.writers };
    let engine = engine(Medium::open(&spec)?, writers, design, options, budget, true)?;
    let recovery = recover(&engine, processors())?;
    let map = start(engine, recovery, Some(lock))?;
    if !map.options().salvage {
        *map.inner.background.lock() = Some(Background::start(&map.inner.engine));
    }
    Ok(map)
}

pub(crate) fn over<M: Memory>(medium: Medium<M>, options: MapOptions) -> Result<Map<M>> {
    let design = match options.values {
        ValueDesign::Slab => Design::Slabs,
        ValueDesign::Log | ValueDesign::Auto => Design::Logs,
    };
    let budget = Arc::new(Budget::new(options.memory_budget_bytes));
    let engine = engine(medium, options.writers.max(1), design, options, &budget, false)?;
    // One thread, this one: the memory may be particular about who comes.
    let recovery = recover(&engine, 1)?;
    start(engine, recovery, None)
}

fn engine<M: Memory>(
    medium: Medium<M>,
    writers: usize,
    design: Design,
    options: MapOptions,
    budget: &Arc<Budget>,
    has_threads: bool,
) -> Result<Engine<M>> {
    let writers = writers.clamp(1, MAX_WRITERS - 1);
    let (path, capacity_bytes) = (medium.path().to_path_buf(), medium.capacity_bytes());
    let seed = RandomState::new().hash_one(0);
    let values = match design {
        Design::Logs => Stored::Logs(Logs::open(medium, writers, options.salvage, budget)?),
        Design::Slabs => Stored::Slabs(
            Slabs::open(medium, writers, options.salvage, budget)?
                .deferring_frees(options.deferred_frees),
        ),
    };
    let index = new_index(capacity_bytes, budget).map_err(|source| Error::Io {
        path,
        doing: "reserve memory for the index",
        source,
    })?;
    Ok(Engine {
        keys: (0..=values.writers()).map(|_| CachePadded::default()).collect(),
        values,
        index,
        seed,
        budget: Arc::clone(budget),
        when_full: AtomicU8::new(options.when_full as u8),
        item_bytes_hint: AtomicU32::new(128),
        pressure: AtomicBool::new(false),
        rounds: AtomicU64::new(0),
        hopeless_round: AtomicU64::new(0),
        has_threads,
        collecting: Mutex::new(()),
        counters: Counters::default(),
        sync: AtomicBool::new(options.durability == Durability::Sync),
        durability: Mutex::new(options.durability),
        options,
    })
}

fn new_index(capacity_bytes: u64, budget: &Arc<Budget>) -> std::io::Result<HashIndex> {
    // An item takes 16 bytes at the least.
    HashIndex::new(processors().next_power_of_two().min(64), capacity_bytes / 16, budget)
}

fn recover<M: Memory>(engine: &Engine<M>, threads: usize) -> Result<RecoveryReport> {
    let visit = |location: u64, item: &terrace_durable::item::Item<'_>, bytes: usize| {
        engine.recovered(location, item, bytes);
    };
    let found = engine.values.recover(threads, engine.options.salvage, &visit)?;
    let Recovered { segments, items, bytes, torn, damage, elapsed } = found;
    let path = engine.values.medium().path().to_path_buf();
    Ok(RecoveryReport { path, keys: engine.len(), items, segments, bytes, elapsed, torn, damage })
}

fn start<M: Memory>(
    engine: Engine<M>,
    recovery: RecoveryReport,
    lock: Option<File>,
) -> Result<Map<M>> {
    let durability = engine.options.durability;
    let rule = if durability == Durability::Sync { Rule::All } else { Rule::Bounded };
    if !engine.options.salvage && engine.values.rule() != rule {
        engine.values.set_rule(rule)?;
    }
    let inner = Inner {
        background: Mutex::new(None),
        engine: Arc::new(engine),
        recovery,
        next_writer: AtomicUsize::new(0),
        lock,
    };
    Ok(Map { inner: Arc::new(inner) })
}

/// Locks the directory for this process and settles which value file it has.
fn claim(dir: &Path, options: &MapOptions) -> Result<(File, PathBuf, Design)> {
    let io = |doing| move |source| Error::Io { path: dir.to_path_buf(), doing, source };
    std::fs::create_dir_all(dir).map_err(io("make directory"))?;
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("lock"))
        .map_err(io("open lock in"))?;
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Locked(dir.to_path_buf())),
        Err(errno) => return Err(io("lock")(errno.into())),
    }
    let (logs, slabs) = (dir.join("values.log"), dir.join("values.slab"));
    let design = design(options.values, &logs, &slabs)?;
    if design == Design::Slabs && !options.domain.is_byte_addressable() {
        let why = format!(
            "slabs need a byte-addressable medium, because a slot is freed and written in place line by line; {} is on: {}. \
             Use values = \"log\", or declare the domain if the directory is on persistent memory",
            dir.display(),
            options.domain
        );
        return Err(Error::Option { field: "values", why });
    }
    Ok((lock, if design == Design::Logs { logs } else { slabs }, design))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    Logs,
    Slabs,
}

/// The design asked for, which the directory's value file must not contradict.
fn design(asked: ValueDesign, logs: &Path, slabs: &Path) -> Result<Design> {
    let (has_logs, has_slabs) = (logs.exists(), slabs.exists());
    let refused = |why| Err(Error::Option { field: "values", why });
    match asked {
        _ if has_logs && has_slabs => refused(format!(
            "there are both {} and {}, and a map has one value file; move away the one that is not this map's",
            logs.display(),
            slabs.display()
        )),
        ValueDesign::Log if has_slabs => refused(format!(
            "\"log\" would be {}, but the map is in {}; use \"slab\" or \"auto\", or export it and import it anew",
            logs.display(),
            slabs.display()
        )),
        ValueDesign::Slab if has_logs => refused(format!(
            "\"slab\" would be {}, but the map is in {}; use \"log\" or \"auto\", or export it and import it anew",
            slabs.display(),
            logs.display()
        )),
        ValueDesign::Slab => Ok(Design::Slabs),
        ValueDesign::Auto if has_slabs => Ok(Design::Slabs),
        ValueDesign::Log | ValueDesign::Auto => Ok(Design::Logs),
    }
}
