//! Opening a map: the directory's lock, the value file, recovery, the map's threads.

use crate::background::Background;
use crate::blind::BlindWrites;
use crate::cursors::Cursors;
use crate::durability::InForce;
use crate::engine::{Counters, Engine, Stored};
use crate::error::{Error, Result};
use crate::fetches::Fetches;
use crate::index::{Index, KeyIndex};
use crate::index_room::IndexRoom;
use crate::kept::{IndexInDirectory, IndexInMemory};
use crate::lock::DirectoryLock;
use crate::map::{Inner, Map};
use crate::moments::Moments;
use crate::options::{Durability, Kind, MapOptions, Persist, WhenFull};
use crate::plan::{Design, Mapped, Place, Plan, processors};
use crate::pressure::{Pressure, Readers};
use crate::recover::{Opened, RecoveryReport};
use crate::scrub::Scrub;
use crate::together::InDatabase;
use crate::versions::Versions;
use crate::watch::Registry;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use terrace_durable::logs::Logs;
use terrace_durable::slabs::Slabs;
use terrace_durable::values::SEGMENT_BYTES;
use terrace_durable::{Access, Medium, MediumSpec};
use terrace_memory::{Budget, Divide, Domain, Memory, Native};

/// Most bytes of values of one map.
const SPILLED_MOST: u64 = 1 << 40;

/// Maps opened by this process.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// What an item takes at the least.
pub(crate) const LEAST_ITEM_BYTES: u64 = 16;

/// Address space for a map's values: what the budget could ever be raised to. It costs nothing
/// until it is used.
fn reserved_bytes(budget_bytes: u64) -> u64 {
    let physical = rustix::param::page_size() as u64 * physical_pages();
    // A persistent index has allocation metadata for so much: it stays the right size where a little memory comes or
    // goes.
    budget_bytes.max(physical).max(1 << 30).next_power_of_two() * 2
}

/// Address space for values that need not be in memory: as much as the disk has, within reason.
fn disk_bytes(dir: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(dir).map_err(|errno| Error::Io {
        path: dir.into(),
        doing: "ask for the size of the disk of",
        source: errno.into(),
    })?;
    Ok((disk.f_blocks * disk.f_frsize).next_power_of_two().min(SPILLED_MOST))
}

/// Whether values that are in a file already fit into a tier: recovery takes what they need, and a kernel
/// that has no more of a node ends the process.
fn check_fits(path: &Path, most: u64) -> Result<()> {
    let bytes = match std::fs::metadata(path) {
        // What is allocated: the file may have holes.
        Ok(found) => found.blocks() * 512,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(source) => {
            return Err(Error::Io { path: path.into(), doing: "asking for its size", source });
        }
    };
    if bytes <= most {
        return Ok(());
    }
    let why = format!(
        "{} has {bytes} bytes of values, and the tier {most}; give it more bytes, or another tier",
        path.display()
    );
    Err(Error::Option { field: "tier", why })
}

fn physical_pages() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit) / rustix::param::page_size() as u64
}

pub(crate) fn open(dir: &Path, options: MapOptions, budget: &Arc<Budget>) -> Result<Map> {
    let mut lock = Some(DirectoryLock::take(dir, options.access)?);
    let reading = MapOptions { access: Access::FullDisk, ..options.clone() };
    match open_locked(dir, options, budget, &mut lock) {
        // As much was written as a process writes that is killed at this point; what is there can be read.
        Err(full @ Error::DiskFull { .. }) if lock.is_some() => {
            open_locked(dir, reading, budget, &mut lock).map_err(|_| full)
        }
        opened => opened,
    }
}

/// Address space for the values of a map.
fn capacity_of(dir: &Path, path: &Path, plan: &Plan, options: &MapOptions) -> Result<u64> {
    let capacity_bytes = reserved_bytes(options.memory_budget_bytes);
    if plan.may_spill {
        return Ok(capacity_bytes.max(disk_bytes(dir)?));
    }
    if plan.domain.is_byte_addressable() {
        return Ok(capacity_bytes);
    }
    // What was written when values left memory may be more than it.
    let bytes = std::fs::metadata(path).map_or(0, |found| found.len());
    Ok(capacity_bytes.max(bytes.next_multiple_of(SEGMENT_BYTES.into())))
}

/// Opens the map of a directory that is locked; the map has the lock then.
fn open_locked(
    dir: &Path,
    options: MapOptions,
    budget: &Arc<Budget>,
    lock: &mut Option<DirectoryLock>,
) -> Result<Map> {
    let (plan, path) = Plan::in_directory(dir, &options)?;
    lock.iter().try_for_each(|lock| lock.check_there(dir))?;
    if !path.exists() {
        // The values are made first and an index goes before them: no crash leaves one alone.
        let left = ["index", "index.inner"].into_iter().find(|left| dir.join(left).exists());
        left.map_or(Ok(()), |left| Err(Error::Missing { path: path.clone(), left }))?;
    }
    let capacity_bytes = capacity_of(dir, &path, &plan, &options)?;
    let spec = MediumSpec {
        path: path.clone(),
        // No store to a copy reaches the file: it may be used as if all that it holds survived.
        domain: if matches!(plan.place, Place::Copied) { Domain::Eadr } else { plan.domain },
        dax: options.dax,
        capacity_bytes,
        access: plan.access,
    };
    let index = IndexInDirectory(MediumSpec {
        path: dir.join("index"),
        // An item with its share of a log is longer than 48 bytes on the whole. Its entry in a table takes
        // 14, in a leaf that is a third full 96. Address space alone.
        capacity_bytes: capacity_bytes * 2,
        domain: if plan.access.writes() { plan.domain } else { Domain::Eadr },
        ..spec.clone()
    });
    let start_as = StartAs::of(&options);
    let disk = Arc::clone(&options.disk_budget);
    let opening = Opening { plan, start_as, budget, has_threads: true, threads: processors() };
    let medium = Medium::open(&spec)?;
    if let Place::Mirrored { node: Some(node) } = opening.plan.place {
        check_fits(&path, budget.limit())?;
        medium.bind(node)?;
    }
    let values = opening.values(medium)?;
    if opening.plan.access.writes()
        && let (Some(name), Some(lock)) = (path.file_name(), &lock)
    {
        lock.note_made(&name.to_string_lossy());
    }
    let (mut engine, mut recovery) = opening.found(values, &index, dir)?;
    engine.replay(&mut recovery)?;
    engine.take_in_commits(&mut recovery)?;
    engine.follow_policy()?;
    engine.begin_promise()?;
    if let Some(logs) = engine.values.logs() {
        // What a kill left to be replayed is taken in any case.
        logs.bound_disk(&disk);
    }
    let map = start(engine, recovery, lock);
    if opening.plan.access.writes() {
        let started = Background::start(&map.inner.engine);
        let refused = |source| {
            let path = map.medium().path().to_path_buf();
            Error::Io { path, doing: "start a thread for", source }
        };
        *map.inner.background.lock() = Some(started.map_err(refused)?);
    }
    Ok(map)
}

pub(crate) fn over<M: Memory>(medium: Medium<M>, options: MapOptions) -> Result<Map<M>> {
    let budget = Arc::new(Budget::new(options.memory_budget_bytes));
    let options = MapOptions { persist: Persist::Values, ..options };
    let opening = Opening::on(&medium, &options, &budget)?;
    let make = |values: &Stored<M>, layout| opening.index_to_load(values, layout);
    let (mut engine, mut recovery) = match opening.by_saved_index(opening.values(medium)?, make)? {
        Ok(opened) => opened,
        Err((values, _)) => opening.read_values(values)?,
    };
    engine.take_in_commits(&mut recovery)?;
    engine.follow_policy()?;
    Ok(start(engine, recovery, &mut None))
}

pub(crate) fn over_with_dram<M: Memory, I: Divide>(
    medium: Medium<M>,
    dram: &I,
    options: MapOptions,
) -> Result<Map<M, I>> {
    let budget = Arc::new(Budget::new(options.memory_budget_bytes));
    let opening = Opening::on(&medium, &options, &budget)?;
    let values = opening.values(medium)?;
    // What the last section of another opening changed among the values.
    opening.replay::<M, I>(&values, None)?;
    let make =
        |_: &Stored<M>, _| crate::kept::index_on(dram, &budget).map_err(std::io::Error::other);
    let (mut engine, mut recovery) = match opening.by_saved_index(values, make)? {
        Ok(opened) => opened,
        Err((values, _)) => {
            opening.read_values_to(values, crate::kept::index_on(dram, &budget)?)?
        }
    };
    // A medium without a file beside it has no redo log.
    engine.replay(&mut recovery)?;
    engine.take_in_commits(&mut recovery)?;
    engine.follow_policy()?;
    engine.begin_promise()?;
    Ok(start(engine, recovery, &mut None))
}

pub(crate) fn over_with_index<M: Memory, I: Divide + Clone>(
    medium: Medium<M>,
    index: I,
    options: MapOptions,
) -> Result<Map<M, I>> {
    let budget = Arc::new(Budget::new(options.memory_budget_bytes));
    let place = IndexInMemory { memory: index, is_new: medium.is_new() };
    let opening = Opening::on(&medium, &options, &budget)?;
    let (mut engine, mut recovery) = opening.reopen_index(opening.values(medium)?, &place)?;
    engine.take_in_commits(&mut recovery)?;
    engine.follow_policy()?;
    Ok(start(engine, recovery, &mut None))
}

/// What may change while a map is open, as it is at first.
pub(crate) struct StartAs {
    durability: Durability,
    when_full: WhenFull,
    moments: Arc<Moments>,
    database: Option<InDatabase>,
}

impl StartAs {
    fn of(options: &MapOptions) -> StartAs {
        let (durability, when_full) = (options.durability, options.when_full);
        let database = options.database.clone();
        StartAs { durability, when_full, moments: Arc::clone(&options.moments), database }
    }
}

/// A map about to be opened.
pub(crate) struct Opening<'a> {
    pub plan: Plan,
    pub start_as: StartAs,
    pub budget: &'a Arc<Budget>,
    /// Whether the map will have threads of its own.
    pub has_threads: bool,
    /// Threads of recovery.
    pub threads: usize,
}

impl<'a> Opening<'a> {
    /// One thread, the caller's: the memory may be particular about who comes.
    pub fn on<M: Memory>(
        medium: &Medium<M>,
        options: &MapOptions,
        budget: &'a Arc<Budget>,
    ) -> Result<Opening<'a>> {
        let plan = Plan::on(medium, options)?;
        let start_as = StartAs::of(options);
        Ok(Opening { plan, start_as, budget, has_threads: false, threads: 1 })
    }

    fn values<M: Memory>(&self, medium: Medium<M>) -> Result<Stored<M>> {
        let writers = self.plan.writers;
        let medium = medium.opened_for(self.plan.access);
        let (flush, measured) = match &self.plan.place {
            Place::Mapped(Mapped { flush, keeping, .. }) => (*flush, keeping.as_ref()),
            Place::Mirrored { .. } | Place::Copied => Default::default(),
        };
        let database = self.start_as.database.as_ref();
        let left = database.map(|of| of.commits.left(&of.name)).unwrap_or_default();
        let values = match self.plan.design() {
            Design::Logs => Stored::Logs(
                Logs::open_with(medium, writers, self.budget, &left)?
                    .flushing(flush)
                    .by_measured(measured)
                    .leaving_memory(self.plan.may_spill)
                    .with_far(self.plan.far.clone()),
            ),
            Design::Slabs { deferred_frees } => Stored::Slabs(
                Slabs::open(medium, writers, self.budget)?
                    .deferring_frees(deferred_frees)
                    .flushing(flush)
                    .by_measured(measured),
            ),
        };
        if !left.is_empty() {
            values.expects_more();
        }
        Ok(values)
    }

    /// Finds what the map holds, in the way that the plan and what the values name ask for.
    fn found(
        &self,
        values: Stored<Native>,
        index: &IndexInDirectory,
        dir: &Path,
    ) -> Result<Opened<Native, Native>> {
        if self.plan.access.passes_damage() {
            return self.read_values(values);
        }
        let (values, unused) = match self
            .by_saved_index(values, |values, layout| self.index_to_load(values, layout))?
        {
            Ok(opened) => return Ok(opened),
            Err(unusable) => unusable,
        };
        let unused = unused.map(|why| format!("the saved index was not used: {why}"));
        let (engine, report) = self.found_without(values, index, dir)?;
        Ok((engine, RecoveryReport { unfit: unused.or(report.unfit), ..report }))
    }

    /// The same where no index is saved among the values.
    fn found_without(
        &self,
        values: Stored<Native>,
        index: &IndexInDirectory,
        dir: &Path,
    ) -> Result<Opened<Native, Native>> {
        if !self.plan.access.writes() {
            return self.read_values_beside(values, index);
        }
        let names_index = values.index_mark() != 0;
        let Place::Mapped(mapped) = &self.plan.place else {
            // Of a map that was moved to a disk, an index that stayed would lack what is written here.
            let (engine, report) = self.read_values_alone(values, index)?;
            let why = || {
                format!(
                    "{} is on: {}; a persistent index needs a byte-addressable medium, so it is rebuilt in DRAM",
                    dir.display(),
                    self.plan.domain
                )
            };
            return Ok((engine, RecoveryReport { unfit: names_index.then(why), ..report }));
        };
        match mapped.persist {
            Persist::Values => self.read_values_alone(values, index),
            Persist::Auto if !names_index => self.read_values(values),
            Persist::Auto | Persist::Index | Persist::Full => {
                self.plan.check_index_tier(dir)?;
                self.reopen_index(values, index)
            }
        }
    }

    pub fn engine<M: Memory, I: Memory>(
        &self,
        values: Stored<M>,
        index: Index<I>,
        seed: u64,
    ) -> Engine<M, I> {
        let StartAs { durability, when_full, ref moments, ref database } = self.start_as;
        let when_full = self.plan.when_full(when_full);
        Engine {
            written: (0..=values.writers()).map(|_| CachePadded::default()).collect(),
            values,
            index,
            index_room: self.index_room(),
            seed,
            kept: None,
            budget: Arc::clone(self.budget),
            when_full: AtomicU8::new(when_full as u8),
            writers_hold_guards: self.plan.may_spill || self.plan.kind == Kind::Ordered,
            fetches: Fetches::default(),
            blind: BlindWrites::default(),
            item_bytes_hint: AtomicU32::new(128),
            pressure: Pressure::default(),
            deletes_pressure: Pressure::default(),
            readers: Readers::default(),
            rounds: AtomicU64::new(0),
            has_threads: self.has_threads,
            collecting: Mutex::new(()),
            clearing: Mutex::new(()),
            saving: Mutex::new(()),
            warmed_below: AtomicU64::new(0),
            scrub: Scrub::new(),
            counters: Counters::default(),
            watches: Registry::default(),
            versions: Versions::new(moments, self.budget, self.plan.kind == Kind::Ordered),
            durability: InForce::new(durability),
            switching: Mutex::new(()),
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            database: database.clone(),
            tied: Mutex::default(),
            plan: self.plan.clone(),
        }
    }

    /// Tables of an index: enough that growth, one bucket at a time in each, is no bottleneck; in a small tier no
    /// more than it has mebibytes, since each takes some memory from the start.
    pub fn tables(&self) -> usize {
        let most = self.plan.in_dram.tier.as_ref().map_or(64, |tier| {
            let mebibytes = (tier.budget.limit() >> 20).clamp(1, 64);
            1 << mebibytes.ilog2()
        });
        if self.has_threads { processors().next_power_of_two().min(most) } else { 1 }
    }

    /// Seed of the hashes of an index in DRAM: drawn anew each time, so that strangers cannot aim keys
    /// at one bucket. Without threads of its own a map does the same whenever it is asked the same:
    /// whoever tries it on a memory repeats what he saw.
    pub fn seed<M: Memory>(&self, values: &Stored<M>) -> u64 {
        match self.has_threads {
            true => RandomState::new().hash_one(0),
            false => u64::from(values.medium().lifetime()),
        }
    }

    /// The node that an index which is not kept takes its memory from, and what it counts against.
    pub fn index_node(&self) -> Option<u32> {
        self.plan.in_dram.tier.as_ref().and_then(|tier| tier.node)
    }

    /// What bounds the index where that is not what bounds the values.
    fn index_room(&self) -> Option<IndexRoom> {
        let tier = self.plan.in_dram.tier.as_ref()?;
        let is_apart = !Arc::ptr_eq(&tier.budget, self.budget);
        is_apart.then(|| IndexRoom::new(tier.clone()))
    }

    pub fn index_budget(&self) -> &Arc<Budget> {
        self.plan.in_dram.tier.as_ref().map_or(self.budget, |tier| &tier.budget)
    }

    /// An index in DRAM.
    pub fn new_index<M: Memory>(&self, values: &Stored<M>) -> Result<Index<Native>> {
        let capacity = values.medium().capacity_bytes() / LEAST_ITEM_BYTES;
        let index = Index::<Native>::in_dram(self, capacity);
        index.map_err(|source| Error::Io {
            path: values.medium().path().to_path_buf(),
            doing: "reserve memory for the index of",
            source,
        })
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Begins the redo log that an interval promises, of a map that is opened to be written.
    fn begin_promise(&self) -> Result<()> {
        match self.durability.get() {
            Durability::Interval(_) if self.plan.access.writes() => self.begin_redo(),
            _ => Ok(()),
        }
    }

    /// From here on items count after a crash as the durability in force has it.
    fn follow_policy(&self) -> Result<()> {
        self.check_index_fits()?;
        let rule = self.policy_of(self.durability.get());
        if self.plan.access.writes() && self.values.rule() != rule {
            self.values.set_rule(rule)?;
        }
        Ok(())
    }
}

fn start<M: Memory, I: Memory>(
    engine: Engine<M, I>,
    recovery: RecoveryReport,
    lock: &mut Option<DirectoryLock>,
) -> Map<M, I> {
    let inner = Inner {
        background: Mutex::new(None),
        engine: Arc::new(engine),
        recovery,
        next_writer: AtomicUsize::new(0),
        cursors: Cursors::default(),
        lock: lock.take(),
    };
    if let (Some(logs), Some(_)) = (inner.engine.values.logs(), &inner.engine.database) {
        let engine = Arc::downgrade(&inner.engine);
        // Whoever takes a checkpoint has the map.
        logs.ties_by(move || {
            engine.upgrade().map_or(Ok(()), |engine| engine.checkpoint_together())
        });
    }
    // What is only read does not change.
    if inner.engine.plan.access.writes() {
        let engine: Weak<Engine<M, I>> = Arc::downgrade(&inner.engine);
        inner.engine.versions.moments().join(engine);
    }
    Map { inner: Arc::new(inner) }
}
