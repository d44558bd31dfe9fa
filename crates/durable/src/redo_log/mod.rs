//! The redo log: what a map wrote since its last checkpoint, where the death of the process does not reach.
//!
//! On a mirrored medium values live in memory that is the process's alone, and the file holds them as of the last
//! checkpoint. Under `interval` each write is therefore put a second time, before anybody can see it, into a file that
//! is mapped shared: its pages are the kernel's, so they outlive the process however it ends, without a system call.
//! They are never synced. After a lost machine the file is worth nothing, and is not looked at: it names the *boot* of
//! the kernel that had its pages, and values are recovered up to the last checkpoint, as if there were none.
//!
//! # What is there
//! A control page, then chunks. Each writer fills a chunk of its own with records: the item as its log has it, with a
//! stamp. Stamps of one key grow, whoever writes it, since they are drawn under the key's lock; so of each key the
//! record with the largest stamp says what became of it. A checkpoint leaves a *note* in every writer's chunk while all
//! writers are locked out: what is before the note is in the checkpoint. Chunks that are full before it are free once
//! the checkpoint is durable.
//!
//! # What order rests on
//! The stores of one thread outlive it in the order in which it made them, and what another thread did after it had
//! seen one of them outlives it only together with that. So a record is whole if its first word, stored last, is; and
//! nothing is there without what it was made from.
//!
//! # When a redo log belongs to the values
//! Before a checkpoint record is written to the value file its number and checksum go to the control page. A log that
//! does not name the record found, because the values were restored from elsewhere or another program wrote them, is
//! left alone. A recovery that replays it takes checkpoints itself, and says first from which one on it replays.

mod chunks;
#[cfg(any(test, feature = "faults"))]
mod elsewhere;
mod named;
mod pen;
mod read;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "faults"))]
pub use elsewhere::Elsewhere;
pub(crate) use pen::Pen;
pub use read::{Left, Newest, Redo};

use crate::checksum::Crc;
use crate::error::{Result, io_error};
#[cfg(any(test, feature = "faults"))]
use crate::logs::Faults;
use crate::superblock::Checkpoint;
use chunks::Chunks;
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_memory::{Budget, Domain, Memory, Native, Region, lab};

/// Its name beside the values.
pub const NAME: &str = "redo";
const MAGIC: u64 = u64::from_le_bytes(*b"TERRACEr");
const VERSION: u64 = 1;

// The control page.
const VERSION_AT: u64 = 8;
const BOOT_AT: u64 = 16;
pub(crate) const BOOT_BYTES: usize = 36;
const CHUNK_BYTES_AT: u64 = 56;
/// Checksum of what is before it, which is written once.
const CHECK_AT: u64 = 64;
const REPLAY_AT: u64 = 72;
const MADE_AT: u64 = 80;
const CHECKPOINTS_AT: u64 = 88;
const CONTROL_BYTES: u64 = 4096;

/// The head of a chunk, one word ([`Head`]), and what is free behind it.
const CHUNK_HEAD_BYTES: u64 = 64;
/// What stands before an item: check, stamp, salt and length.
const RECORD_HEAD_BYTES: u64 = 24;
/// Blocks are allocated, and pages brought in, so many bytes at a time.
const STEP_BYTES: u64 = 256 << 10;
/// Counters that keys draw their stamps from.
const STAMPS: usize = 1024;

const MOST_BYTES: u64 = 256 << 20;
const MOST_CHUNK_BYTES: u64 = 4 << 20;

/// Tells this run of the kernel from others; none where the kernel does not say.
pub(crate) fn boot() -> Option<[u8; BOOT_BYTES]> {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = text.get(..BOOT_BYTES)?.try_into().ok();
    #[cfg(any(test, feature = "faults"))]
    let boot = boot.map(Elsewhere::boot);
    boot
}

/// A word that nothing but the record of these fields has before it.
#[inline(always)]
fn check_of(life: u64, at: u64, stamp: u64, salt_and_length: u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut check = (life ^ at.rotate_left(40)).wrapping_mul(FACTOR);
    check = (check.rotate_left(29) ^ stamp).wrapping_mul(FACTOR);
    check = (check.rotate_left(29) ^ salt_and_length).wrapping_mul(FACTOR);
    (check ^ check >> 32) | 1
}

/// What the head of a chunk says in one word, so that no process dies in the middle of it.
#[derive(Clone, Copy)]
struct Head {
    /// Number of the use: grows with each, whatever the chunk.
    life: u64,
    writer: u64,
    /// Whether its records count.
    is_used: bool,
}

impl Head {
    fn word(self) -> u64 {
        self.life << 8 | self.writer << 1 | u64::from(self.is_used)
    }

    fn of(word: u64) -> Head {
        Head { life: word >> 8, writer: word >> 1 & 0x7f, is_used: word & 1 == 1 }
    }
}

/// `value` of 48 bits at `at`, with 16 bits that tell damage.
fn sealed(at: u64, value: u64) -> u64 {
    debug_assert!(value < 1 << 48, "48 bits");
    value | check_of(value, at, 0, 0) >> 48 << 48
}

/// The second word of what is said of checkpoint `number`, whose record has the checksum `check`.
fn expected(number: u64, check: u32) -> u64 {
    u64::from(check) | check_of(number, CHECKPOINTS_AT, check.into(), 0) >> 32 << 32
}

fn control_check(bytes: &[u8]) -> u64 {
    1 << 32 | u64::from(Crc::new(VERSION as u32).update(bytes).finish())
}

/// Records that found no room.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    left_out: AtomicU64,
    /// So many of them are in a checkpoint by now.
    made_good: AtomicU64,
}

impl Owed {
    /// Whether something was written that no checkpoint has and no redo log either.
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        self.left_out.load(Ordering::Acquire) != self.made_good.load(Ordering::Acquire)
    }

    /// There is no redo log though there should be one: `is_any` from here on; or there is to be none.
    pub fn is_always(&self, always: bool) {
        self.made_good.store(0, Ordering::Release);
        self.left_out.store(if always { u64::MAX } else { 0 }, Ordering::Release);
    }

    /// There is a redo log again: `is_any` until the next checkpoint, which has what was written without one.
    pub fn is_once(&self) {
        self.made_good.store(0, Ordering::Release);
        self.left_out.store(1, Ordering::Release);
    }
}

/// The redo log of one map.
#[derive(Debug)]
pub struct RedoLog {
    path: PathBuf,
    /// What checkpoint records call it.
    name: u64,
    is_retired: AtomicBool,
    file: File,
    region: Region,
    memory: Native,
    chunk_bytes: u64,
    chunks: Mutex<Chunks>,
    stamps: Box<[AtomicU64]>,
    owed: Arc<Owed>,
    budget: Arc<Budget>,
    #[cfg(any(test, feature = "faults"))]
    faults: Arc<Faults>,
}

impl RedoLog {
    /// Makes an empty one beside the value file `values`, which belongs to no checkpoint yet.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn make(
        path: &Path,
        values: &Path,
        budget: &Arc<Budget>,
        owed: &Arc<Owed>,
    ) -> Result<RedoLog> {
        let most = (budget.limit() / 16).clamp(3 << 20, MOST_BYTES);
        let chunk_bytes = (most / 32).next_power_of_two().clamp(256 << 10, MOST_CHUNK_BYTES);
        let unnamed = path.with_extension("new");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unnamed)
            .map_err(io_error(&unnamed, "make"))?;
        let map = || -> std::io::Result<Region> {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, CONTROL_BYTES)?;
            // SAFETY: the file was made here, under the directory's lock; nobody shortens it, and only this log
            // writes to it.
            unsafe { Region::map_file(&file, CONTROL_BYTES + most, false, Domain::PageCache) }
        };
        let region = map().map_err(io_error(&unnamed, "map"))?;
        let mut log = RedoLog::on(file, region, (path, values), chunk_bytes, budget);
        log.owed = Arc::clone(owed);
        log.store(VERSION_AT, VERSION);
        // A kernel that does not say which it is will not be known again.
        for (number, word) in boot().unwrap_or([0; BOOT_BYTES]).chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            log.store(BOOT_AT + 8 * number as u64, u64::from_le_bytes(bytes));
        }
        log.store(CHUNK_BYTES_AT, chunk_bytes);
        log.store(0, MAGIC);
        log.store(CHECK_AT, log.control_check());
        [REPLAY_AT, MADE_AT].iter().for_each(|at| log.store_sealed(*at, 0));
        for number in [0, 1] {
            log.store(CHECKPOINTS_AT + 16 * number, number);
            log.store(CHECKPOINTS_AT + 16 * number + 8, expected(number, 0));
        }
        std::fs::rename(&unnamed, path).map_err(io_error(path, "name"))?;
        Ok(log)
    }

    fn on(
        file: File,
        region: Region,
        (path, values): (&Path, &Path),
        chunk_bytes: u64,
        budget: &Arc<Budget>,
    ) -> RedoLog {
        let most = (region.len() - CONTROL_BYTES) / chunk_bytes;
        RedoLog {
            path: path.into(),
            name: named::name(values),
            is_retired: AtomicBool::new(false),
            file,
            memory: region.native(),
            region,
            chunk_bytes,
            chunks: Mutex::new(Chunks::new(most as u32)),
            stamps: (0..STAMPS).map(|_| AtomicU64::new(0)).collect(),
            owed: Arc::default(),
            budget: Arc::clone(budget),
            #[cfg(any(test, feature = "faults"))]
            faults: Arc::default(),
        }
    }

    fn load(&self, at: u64) -> u64 {
        // SAFETY: in the control page, or in a chunk that was made; both are mapped.
        unsafe { self.memory.load(at) }
    }

    fn store(&self, at: u64, value: u64) {
        // SAFETY: as for `load`; the control page is written under the lock of the checkpoint, a chunk's words by its
        // owner.
        unsafe { self.memory.store(at, value) };
    }

    /// Stores a word that outlives the process, once the laboratory has heard of it.
    #[inline(always)]
    fn store_outliving(&self, lab: &impl Memory, at: u64, value: u64) {
        lab::outlives(lab, at, &value.to_le_bytes());
        self.store(at, value);
    }

    /// The next stamp of `key`, whose lock is held.
    #[inline(always)]
    fn stamp(&self, key: &[u8]) -> u64 {
        let last = match key.last_chunk::<8>() {
            Some(last) => u64::from_le_bytes(*last),
            None => key.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        let slot = last.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - STAMPS.ilog2());
        1 + self.stamps[slot as usize].fetch_add(1, Ordering::Relaxed)
    }

    /// The checkpoint record `checkpoint` is about to be written, or is there: the log belongs to it.
    pub(crate) fn expect(&self, lab: &impl Memory, checkpoint: &Checkpoint) {
        let at = CHECKPOINTS_AT + 16 * (checkpoint.number % 2);
        self.store_outliving(lab, at, checkpoint.number);
        self.store_outliving(lab, at + 8, expected(checkpoint.number, checkpoint.check()));
    }

    /// Whether it belongs to `checkpoint`; none if its word for that is damaged: it changes only once a later
    /// checkpoint is durable.
    fn expects(&self, checkpoint: &Checkpoint) -> Option<bool> {
        let at = CHECKPOINTS_AT + 16 * (checkpoint.number % 2);
        let (number, word) = (self.load(at), self.load(at + 8));
        let is_intact = word == expected(number, word as u32);
        is_intact.then(|| (number, word as u32) == (checkpoint.number, checkpoint.check()))
    }

    /// What a checkpoint record says of the redo log that goes with it.
    pub(crate) fn name(&self) -> u64 {
        if self.is_retired.load(Ordering::Relaxed) { 0 } else { self.name }
    }

    /// The same, which makes these mistakes.
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn with_faults(mut self, faults: &Arc<Faults>) -> RedoLog {
        self.faults = Arc::clone(faults);
        self
    }

    /// Whether checkpoint records no longer name it: it is about to go.
    pub(crate) fn retire(&self, is_retired: bool) {
        self.is_retired.store(is_retired, Ordering::Relaxed);
    }

    fn control_check(&self) -> u64 {
        // SAFETY: in the control page, which is mapped, and whose words here are written once.
        let bytes = unsafe { self.memory.bytes(0, CHECK_AT) };
        control_check(bytes)
    }

    fn store_sealed(&self, at: u64, value: u64) {
        self.store(at, sealed(at, value));
    }

    /// The value of a sealed word; none if it is damaged.
    fn load_sealed(&self, at: u64) -> Option<u64> {
        let word = self.load(at);
        let value = word & ((1 << 48) - 1);
        (sealed(at, value) == word).then_some(value)
    }

    /// What [`RedoLog::covered`] is to be told, taken while all writers are locked out.
    pub(crate) fn left_out(&self) -> u64 {
        self.owed.left_out.load(Ordering::Acquire)
    }

    /// A checkpoint is durable that was taken when so many records had been left out; `chunks` were full then.
    pub(crate) fn covered(&self, lab: &impl Memory, left_out: u64, chunks: Vec<u32>) {
        self.owed.made_good.fetch_max(left_out, Ordering::AcqRel);
        self.free(lab, chunks);
    }

    /// Removes the file, for what it holds is durable elsewhere.
    pub(crate) fn remove(&self) {
        // No later process takes one that stays for a redo log.
        self.store(0, 0);
        let _stays = std::fs::remove_file(&self.path);
    }
}

impl Drop for RedoLog {
    fn drop(&mut self) {
        self.budget.give(self.chunks.get_mut().counted_bytes());
    }
}
