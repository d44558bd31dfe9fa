//! Opening a queue: the directory's lock, the file, recovery.

use super::commit::Keeper;
use super::wait::Bell;
use super::{
    DEFAULT_CAPACITY_BYTES, DEFAULT_LARGEST_BYTES, DEFAULT_SLOT_BYTES, Ends, Inner, Queue,
    QueueDamage, QueueOptions,
};
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::options::Durability;
use parking_lot::{Mutex, RwLock};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};
use terrace_durable::{Medium, MediumSpec};
use terrace_index::ring::OpenError;
use terrace_index::{Form, Ring, RingOptions};
use terrace_memory::{Backing, Budget, Domain, Native, Region};

pub(super) fn open(dir: &Path, options: &QueueOptions, budget: &Arc<Budget>) -> Result<Queue> {
    let path = dir.join("ring");
    if options.salvage && !path.is_file() {
        let source = std::io::ErrorKind::NotFound.into();
        return Err(Error::Io { path, doing: "open with salvage", source });
    }
    let lock = DirectoryLock::take(dir)?;
    let there = match std::fs::metadata(&path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(source) => return Err(Error::Io { path, doing: "asking for its size", source }),
    };
    let spec = MediumSpec {
        path,
        // A salvage reads the file into memory of its own, wherever it lies.
        domain: if options.salvage { Domain::PageCache } else { options.domain },
        dax: options.dax && !options.salvage,
        capacity_bytes: there.max(wanted(options)?.bytes()).next_multiple_of(2 << 20),
        is_copy: options.salvage,
    };
    let queue = on(Medium::open(&spec)?, options, budget, Some(lock))?;
    if !queue.inner.medium.is_byte_addressable() && !options.salvage {
        let refused = |source| {
            let path = queue.inner.medium.path().to_path_buf();
            Error::Io { path, doing: "start a thread for", source }
        };
        *queue.inner.keeper.lock() = Some(Keeper::start(&queue.inner).map_err(refused)?);
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
    let bytes = if medium.is_new() { wanted.bytes() } else { medium.file_bytes()? };
    let budget_bytes = bytes + wanted.turn_bytes();
    if budget.take(budget_bytes).is_err() {
        return Err(Error::OutOfMemory { used: budget.used(), budget: budget.limit() });
    }
    let opened = match options.salvage {
        false => make_or_recover(&mut medium, options, wanted).map(|opened| (opened, None)),
        true => salvage(&mut medium).map(|(opened, damage)| (opened, Some(damage))),
    };
    let ((ring, turns, recovery), salvaged) = opened.inspect_err(|_| budget.give(budget_bytes))?;
    let stopped = OnceLock::new();
    if salvaged.is_some() {
        let _first = stopped.set("opened with salvage: nothing can be pushed".into());
    }
    let inner = Inner {
        keeper: Mutex::new(None),
        committed: AtomicU64::new(recovery.head),
        elements: AtomicI64::new(recovery.elements as i64),
        // More than fits is what nobody asked for.
        largest_bytes: options.largest_bytes.min(ring.options().longest_element()),
        ring,
        _turns: turns,
        medium,
        working: RwLock::new(()),
        ending: Mutex::new(()),
        flushing: Mutex::new(()),
        durability: Mutex::new(options.durability),
        items: Bell::default(),
        room: Bell::default(),
        stopped,
        recovery,
        salvaged,
        budget: Arc::clone(budget),
        budget_bytes,
        _lock: lock,
    };
    let inner = Arc::new(inner);
    Ok(Queue { _ends: Arc::new(Ends(Arc::clone(&inner))), inner })
}

type Opened = (Ring<Native>, Region, super::QueueRecovery);

fn make_or_recover(
    medium: &mut Medium,
    options: &QueueOptions,
    wanted: RingOptions,
) -> Result<Opened> {
    let is_new = medium.is_new();
    match is_new {
        true => medium.grow(0, wanted.bytes())?,
        false => medium.read_all()?,
    }
    let native = *medium.memory();
    let damaged = |error: OpenError| named(medium, &error);
    let made = match is_new {
        true => wanted,
        false => Ring::<Native>::shape(&native).map_err(damaged)?,
    };
    if !is_new {
        check_length(medium, made.bytes())?;
        check_as_made(medium, options, &made)?;
    }
    if options.largest_bytes > made.longest_element()
        && options.largest_bytes != DEFAULT_LARGEST_BYTES
    {
        let why = format!(
            "{} bytes do not fit: of {} slots of {} bytes an element takes at most {} bytes; make it \
             smaller, or the slots larger",
            options.largest_bytes,
            made.slots,
            made.slot_bytes,
            made.longest_element()
        );
        return Err(Error::Option { field: "largest", why });
    }
    let turns = reserve(medium, made.turn_bytes())?;
    let head = Ring::<Native>::HEAD_BYTES;
    if is_new {
        let ring = Ring::create(native, turns.native(), made).map_err(damaged)?;
        medium.write_out(0, head, true)?;
        // Only now does the file get its name: a file of that name always has a whole head.
        medium.publish()?;
        return Ok((ring, turns, super::QueueRecovery::default()));
    }
    let (ring, recovery) =
        Ring::open(native, turns.native(), Form::TxFree, true).map_err(damaged)?;
    if !medium.is_byte_addressable() {
        settle(medium, &ring, &recovery, options.durability)?;
    }
    Ok((ring, turns, recovery))
}

/// What is intact of the queue in a medium that is never written out.
fn salvage(medium: &mut Medium) -> Result<(Opened, Vec<QueueDamage>)> {
    medium.read_all()?;
    let native = *medium.memory();
    let damaged = |error: OpenError| named(medium, &error);
    let made = Ring::<Native>::shape(&native).map_err(damaged)?;
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
    Ok(((ring, turns, recovery), damage))
}

/// Makes durable on a disk what recovery has declared void, and then which rule is in force.
fn settle(
    medium: &Medium,
    ring: &Ring<Native>,
    found: &super::QueueRecovery,
    durability: Durability,
) -> Result<()> {
    if found.void > 0 {
        for (at, bytes) in ring.ranges(found.tail, found.head) {
            if bytes > 0 {
                medium.write_out(at, bytes, false)?;
            }
        }
        medium.sync()?;
    }
    ring.cut(found.tail, (durability != Durability::Sync).then_some(found.head));
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
    Ok(RingOptions { form: Form::TxFree, slots, slot_bytes, write_back: true })
}

fn check_length(medium: &Medium, needed: u64) -> Result<()> {
    let offset = medium.file_bytes()?;
    if offset >= needed {
        return Ok(());
    }
    let path = medium.path().to_path_buf();
    let what = format!("the file ends early: its ring takes {needed} bytes");
    Err(Error::Medium(terrace_durable::Error::Damaged { path, offset, what }))
}

/// What was asked for must be what the file was made with: a ring does not grow.
fn check_as_made(medium: &Medium, options: &QueueOptions, made: &RingOptions) -> Result<()> {
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
fn named(medium: &Medium, error: &OpenError) -> Error {
    let (offset, what) = match error {
        OpenError::Damaged { at, what } => (*at, what.clone()),
        OpenError::BadOption { field, why } => {
            return Error::Option { field, why: why.clone() };
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
