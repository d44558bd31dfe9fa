//! Opening a queue: the directory's lock, the file, recovery.

use super::allocated::{Allocated, take};
use super::bell::Bell;
use super::commit::Checkpointer;
use super::{
    DEFAULT_CAPACITY_BYTES, DEFAULT_LARGEST_BYTES, DEFAULT_SLOT_BYTES, Ends, Form, Inner, Queue,
    QueueDamage, QueueOptions, QueueRecovery, Steps,
};
use crate::durability::InForce;
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::options::Durability;
use crate::refused::check;
use parking_lot::{Mutex, RwLock};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};
use terrace_durable::medium::BLOCK_BYTES;
use terrace_durable::{Medium, MediumSpec};
use terrace_lockfree::ring::OpenError;
use terrace_lockfree::{Ring, RingOptions};
use terrace_memory::{Backing, Budget, Domain, Memory, Native, Region};

pub(super) fn open(dir: &Path, options: &QueueOptions, budget: &Arc<Budget>) -> Result<Queue> {
    let path = dir.join("ring");
    let writes = options.access.writes();
    // Before anything is made.
    check(options, Some(&path))?;
    let lock = DirectoryLock::take(dir, options.access)?;
    lock.check_there(dir)?;
    let there = match std::fs::metadata(&path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(source) => return Err(Error::Io { path, doing: "asking for its size", source }),
    };
    // To be read alone it is read into memory of its own, wherever it lies, and so is a volatile queue.
    let is_apart = !writes || options.form == Form::Volatile;
    let spec = MediumSpec {
        path,
        domain: if is_apart { Domain::PageCache } else { options.domain },
        dax: options.dax && !is_apart,
        capacity_bytes: there.max(wanted(options)?.bytes()).next_multiple_of(2 << 20),
        access: options.access,
    };
    let queue = on(Medium::open(&spec)?, options, budget, Some(lock))?;
    if !queue.inner.medium.is_byte_addressable() && !is_apart {
        let refused = |source| {
            let path = queue.inner.medium.path().to_path_buf();
            Error::Io { path, doing: "start a thread for", source }
        };
        *queue.inner.checkpointer.lock() =
            Some(Checkpointer::start(&queue.inner).map_err(refused)?);
    }
    Ok(queue)
}

pub(super) fn on(
    mut medium: Medium,
    options: &QueueOptions,
    budget: &Arc<Budget>,
    lock: Option<DirectoryLock>,
) -> Result<Queue> {
    let wanted = wanted(options)?;
    if options.access.writes() {
        let disk = Domain::PageCache;
        let domain = if medium.is_byte_addressable() { medium.memory().domain() } else { disk };
        check(&QueueOptions { domain, ..options.clone() }, Some(medium.path()))?;
        if options.form == Form::Volatile && medium.is_byte_addressable() {
            let why = "a volatile queue is in memory of its own, and this medium is what stays";
            return Err(Error::Option { field: "form", why: why.into() });
        }
    }
    let bytes = if medium.is_new() { wanted.bytes() } else { medium.file_bytes()? };
    // Of a file that is mirrored, what the elements take.
    let is_all_there = medium.is_byte_addressable();
    let file_bytes = if is_all_there { bytes } else { Ring::<Native>::HEAD_BYTES };
    let taken = file_bytes + wanted.turn_bytes();
    // One that is there is opened: what it holds can only be popped then.
    take(budget, taken, !medium.is_new())?;
    let allocated = Allocated::new(bytes, is_all_there, budget, taken);
    let ((ring, turns, recovery), damage) = match options.access.writes() {
        true => (make_or_recover(&mut medium, options, wanted)?, Vec::new()),
        false => read(&mut medium)?,
    };
    for (at, bytes) in ring.ranges(recovery.tail, recovery.head) {
        allocated.adopt(&medium, at, bytes)?;
    }
    if medium.access().writes() {
        lock.iter().for_each(|lock| lock.note_made("ring"));
    }
    Ok(handle(medium, (ring, Some(turns), recovery), damage, options, allocated, lock))
}

/// The queue in memories that were given: nothing is there but what they hold.
pub(super) fn over<M: Memory + Clone>(
    medium: Medium<M>,
    turns: M,
    options: &QueueOptions,
    steps: Steps,
) -> Result<Queue<M>> {
    let wanted = wanted(options)?;
    if options.form == Form::Volatile {
        let why = "a volatile queue has memory of its own, and none that is to survive".into();
        return Err(Error::Option { field: "form", why });
    }
    let domain = medium.memory().domain();
    check(&QueueOptions { domain, ..options.clone() }, Some(medium.path()))?;
    let made = if medium.is_new() { wanted } else { as_made(&medium, options)? };
    let (ring, recovery) = ring_in(&medium, turns, options, made, steps)?;
    let allocated = Allocated::new(0, true, &Arc::new(Budget::new(u64::MAX)), 0);
    Ok(handle(medium, (ring, None, recovery), Vec::new(), options, allocated, None))
}

fn handle<M: Memory + Clone>(
    medium: Medium<M>,
    (ring, _turns, recovery): Opened<M>,
    damage: Vec<QueueDamage>,
    options: &QueueOptions,
    allocated: Allocated,
    _lock: Option<DirectoryLock>,
) -> Queue<M> {
    let stopped = OnceLock::new();
    if let Some(reason) = medium.access().refusal() {
        let _first = stopped.set(format!("{reason}: nothing can be pushed"));
    }
    let inner = Inner {
        checkpointer: Mutex::new(None),
        committed: AtomicU64::new(recovery.head),
        elements: AtomicI64::new(recovery.elements as i64),
        // More than fits is what nobody asked for.
        largest_bytes: options.largest_bytes.min(ring.options().longest_element()),
        ring,
        form: options.form,
        _turns,
        medium,
        working: RwLock::new(()),
        ending: Mutex::new(()),
        flushing: Mutex::new(()),
        durability: InForce::new(options.durability),
        items: Bell::default(),
        room: Bell::default(),
        stopped,
        end_failed: OnceLock::new(),
        recovery,
        damage,
        allocated,
        _lock,
    };
    let inner = Arc::new(inner);
    Queue { _ends: Arc::new(Ends(Arc::clone(&inner))), inner }
}

/// A ring, the memory of its turns if it is the queue's, and what opening it found.
type Opened<M = Native> = (Ring<M, M>, Option<Region>, QueueRecovery);

/// The same in a file.
type Recovered = (Ring<Native>, Region, QueueRecovery);

fn make_or_recover(
    medium: &mut Medium,
    options: &QueueOptions,
    wanted: RingOptions,
) -> Result<Recovered> {
    let is_new = medium.is_new();
    match is_new {
        true => make_file(medium, wanted.bytes())?,
        false => medium.read_all()?,
    }
    let made = if is_new { wanted } else { as_made(medium, options)? };
    check_largest(options, &made)?;
    let turns = reserve(medium, made.turn_bytes())?;
    let (ring, recovery) = ring_in(medium, turns.native(), options, made, Steps::ALL)?;
    let is_written_out = !medium.is_byte_addressable() && options.form != Form::Volatile;
    if !is_new && is_written_out {
        settle(medium, &ring, &recovery, options.durability)?;
    }
    Ok((ring, turns, recovery))
}

/// What the head of the ring that is there says of it: no more of the file is there than that says.
fn shape<M: Memory + Clone>(medium: &Medium<M>) -> Result<RingOptions> {
    check_length(medium, Ring::<M>::HEAD_BYTES)?;
    Ring::<M>::shape(medium.memory()).map_err(|error| named(medium, &error))
}

/// A file of so many bytes: on a byte-addressable medium all of it, else its head, and what comes later is allocated
/// then.
fn make_file(medium: &Medium, bytes: u64) -> Result<()> {
    if medium.is_byte_addressable() {
        return Ok(medium.grow(0, bytes)?);
    }
    medium.commit(0, bytes)?;
    medium.grow(0, Ring::<Native>::HEAD_BYTES)?;
    let last = (bytes - 1) / BLOCK_BYTES * BLOCK_BYTES;
    Ok(medium.grow(last, bytes - last)?)
}

/// How the ring that is there was made, if that is what was asked for.
fn as_made<M: Memory + Clone>(medium: &Medium<M>, options: &QueueOptions) -> Result<RingOptions> {
    let found = shape(medium)?;
    let made = RingOptions { form: options.form, ..found };
    check_length(medium, made.bytes())?;
    check_as_made(medium, options, &made)?;
    Ok(made)
}

/// Makes the ring, or reopens the one that is there, in whatever form it was left.
///
/// # Durability
/// A new one is durable, and named, on return; a crash before leaves none. Of one that is there, recovery makes
/// durable what it declares void. In the volatile form the medium is a copy, and stays one: what is done to it
/// reaches no file.
fn ring_in<M: Memory + Clone>(
    medium: &Medium<M>,
    turns: M,
    options: &QueueOptions,
    made: RingOptions,
    steps: Steps,
) -> Result<(Ring<M, M>, QueueRecovery)> {
    let damaged = |error: OpenError| named(medium, &error);
    let memory = medium.memory().clone();
    if medium.is_new() {
        let ring = Ring::create(memory, turns, made).map_err(damaged)?;
        medium.write_out(0, Ring::<M, M>::HEAD_BYTES, true)?;
        // Only now does the file get its name: a file of that name always has a whole head.
        medium.publish()?;
        return Ok((ring, QueueRecovery::default()));
    }
    let (ring, recovery) =
        Ring::open_with(memory, turns, options.form, true, steps).map_err(damaged)?;
    if options.form == Form::Volatile && recovery.elements > 0 {
        let file = medium.path().display();
        let why = format!(
            "{file} holds {} elements, and a volatile queue keeps none: drain it as tx-free or tx first, or remove \
             its directory",
            recovery.elements
        );
        return Err(Error::Option { field: "form", why });
    }
    Ok((ring, recovery))
}

fn check_largest(options: &QueueOptions, made: &RingOptions) -> Result<()> {
    if options.largest_bytes <= made.longest_element()
        || options.largest_bytes == DEFAULT_LARGEST_BYTES
    {
        return Ok(());
    }
    let why = format!(
        "{} bytes do not fit: of {} slots of {} bytes an element takes at most {} bytes; make it smaller, or the \
         slots larger",
        options.largest_bytes,
        made.slots,
        made.slot_bytes,
        made.longest_element()
    );
    Err(Error::Option { field: "largest", why })
}

/// What is intact of the queue in a medium that is never written out; damage is an error unless that is asked for.
fn read(medium: &mut Medium) -> Result<(Recovered, Vec<QueueDamage>)> {
    medium.read_all()?;
    if !medium.access().passes_damage() {
        // As found it may not have been synced, and will be told.
        medium.sync()?;
    }
    let native = medium.memory().clone();
    let made = shape(medium)?;
    let there = medium.file_bytes()?;
    let mut damage = Vec::new();
    if there < made.bytes() {
        let what = format!("the file ends early: its ring takes {} bytes", made.bytes());
        damage.push(QueueDamage { at: there, what });
        if made.bytes() > medium.capacity_bytes() {
            check_length(medium, made.bytes())?;
        }
        medium.commit(0, made.bytes())?;
    }
    let turns = reserve(medium, made.turn_bytes())?;
    let salvaged = Ring::salvage(native, turns.native(), &mut damage);
    let (ring, recovery) = salvaged.map_err(|error| named(medium, &error))?;
    damage.sort_by_key(|damage| damage.at);
    if let (Some(first), false) = (damage.first(), medium.access().passes_damage()) {
        let what = format!("{}; open with salvage to read the rest", first.what);
        let (path, offset) = (medium.path().to_path_buf(), first.at);
        return Err(Error::Medium(terrace_durable::Error::Damaged { path, offset, what }));
    }
    Ok(((ring, turns, recovery), damage))
}

/// Makes durable on a disk what recovery has declared void, and then which rule is in force.
fn settle(
    medium: &Medium,
    ring: &Ring<Native>,
    found: &super::QueueRecovery,
    durability: Durability,
) -> Result<()> {
    if found.rolled_back > 0 || found.converted {
        // Slots of transactions that were taken back may be any, and those of the first version that lacked a
        // checksum: all are written out before the head, which has their logs, and the version.
        let (head, all) = (Ring::<Native>::HEAD_BYTES, ring.options().bytes());
        medium.write_out(head, all.saturating_sub(head), true)?;
    }
    if found.void > 0 {
        for (at, bytes) in ring.ranges(found.tail, found.head) {
            if bytes > 0 {
                medium.write_out(at, bytes, false)?;
            }
        }
        medium.sync()?;
    }
    ring.checkpoint(found.tail, (durability != Durability::Sync).then_some(found.head));
    medium.write_out(0, Ring::<Native>::HEAD_BYTES, true)?;
    Ok(())
}

/// The ring that the options ask for.
fn wanted(options: &QueueOptions) -> Result<RingOptions> {
    let refused = |field, why: String| Err(Error::Option { field, why });
    let slot_bytes = options.slot_bytes.unwrap_or(DEFAULT_SLOT_BYTES);
    if !(64..=65472).contains(&slot_bytes) || !slot_bytes.is_multiple_of(64) {
        return refused("slot", format!("{slot_bytes} is not a multiple of 64 from 64 to 65472"));
    }
    let capacity = options.capacity_bytes.unwrap_or(DEFAULT_CAPACITY_BYTES);
    let slots = capacity / slot_bytes;
    if !(2..=1 << 40).contains(&slots) {
        let why = format!("{capacity} bytes are not from 2 to 2^40 slots of {slot_bytes} bytes");
        return refused("capacity", why);
    }
    Ok(RingOptions { form: options.form, slots, slot_bytes, write_back: true })
}

fn check_length<M: Memory>(medium: &Medium<M>, needed: u64) -> Result<()> {
    let offset = medium.file_bytes()?;
    if offset >= needed {
        return Ok(());
    }
    let path = medium.path().to_path_buf();
    let what = format!("the file ends early: its ring takes {needed} bytes at least");
    Err(Error::Medium(terrace_durable::Error::Damaged { path, offset, what }))
}

/// What was asked for must be what the file was made with: a ring does not grow.
fn check_as_made<M: Memory>(
    medium: &Medium<M>,
    options: &QueueOptions,
    made: &RingOptions,
) -> Result<()> {
    let file = medium.path().display();
    let refused = |field, was: u64, asked: u64| {
        let why = format!(
            "{file} was made with {was} bytes, not {asked}; leave it out, or drain the queue and remove \
             its directory"
        );
        Err(Error::Option { field, why })
    };
    if let Some(asked) = options.slot_bytes.filter(|asked| *asked != made.slot_bytes) {
        return refused("slot", made.slot_bytes, asked);
    }
    match options.capacity_bytes {
        Some(asked) if asked / made.slot_bytes != made.slots => {
            refused("capacity", made.slots * made.slot_bytes, asked)
        }
        _ => Ok(()),
    }
}

/// A ring's error, with the file and the way out.
fn named<M: Memory>(medium: &Medium<M>, error: &OpenError) -> Error {
    let (offset, what) = match error {
        OpenError::Damaged { at, what } => (*at, what.clone()),
        OpenError::BadOption { field, why } => {
            return Error::Option { field, why: why.clone() };
        }
        OpenError::Newer { found } => {
            let (path, what) = (medium.path().to_path_buf(), "queue of format");
            let found = found.to_digit(10).unwrap_or(0).into();
            return Error::Medium(terrace_durable::Error::Newer { path, what, found, known: 2 });
        }
        other => (0, other.to_string()),
    };
    let path = medium.path().to_path_buf();
    Error::Medium(terrace_durable::Error::Damaged { path, offset, what })
}

fn reserve(medium: &Medium, bytes: u64) -> Result<Region> {
    let io = |source| Error::Io {
        path: medium.path().to_path_buf(),
        doing: "reserve memory for the turns of",
        source,
    };
    let region = Region::reserve(bytes, Backing::Anonymous).map_err(io)?;
    region.commit(0, region.len()).map_err(io)?;
    Ok(region)
}
