//! What a process that died left in its redo log.

use super::named::Expected;
use super::{
    BOOT_AT, BOOT_BYTES, CHECK_AT, CHUNK_BYTES_AT, CONTROL_BYTES, Head, MADE_AT, MAGIC, MOST_BYTES,
    MOST_CHUNK_BYTES, RECORD_HEAD_BYTES, REPLAY_AT, RedoLog, VERSION, VERSION_AT, boot, check_of,
    control_check,
};
use crate::access::Access;
use crate::control::without_zeros;
use crate::error::{Error, Result, io_error};
use crate::item::{self, Item, Record};
use crate::superblock::{Checkpoint, get_u64};
use crate::values::Damage;
use crate::version;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use terrace_memory::{Budget, Domain, Memory, Region};

/// What became of a key since the last checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Redo<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value and its expiry; none if it was deleted.
    pub value: Option<(&'a [u8], Option<u64>)>,
}

/// What was found of a redo log.
#[derive(Debug, Default)]
pub struct Newest<'a> {
    /// The newest record of each key.
    pub keys: Vec<Redo<'a>>,
    /// What of it was damaged, under [`Access::Salvage`]; otherwise that is an error.
    pub damage: Vec<Damage>,
}

/// The redo log of a process that died, which belongs to the values beside it.
#[derive(Debug)]
pub struct Left {
    pub(crate) log: Arc<RedoLog>,
    /// The checkpoint behind which its records count.
    from: u64,
    access: Access,
}

/// A chunk in use.
struct Used {
    head: Head,
    chunk: u32,
}

/// A record, with its stamp; or the number of a checkpoint that has what is before it.
enum Found<'a> {
    Record(u64, Record<'a>),
    Note(u64),
    /// Something that is damaged: no batch reaches over it.
    Damage,
}

type ByKey<'a> = HashMap<&'a [u8], (u64, Redo<'a>)>;

impl Left {
    /// Looks for one at `path`, beside the value file `values`, that belongs to `checkpoint`. With
    /// [`Access::Write`] it is marked as about to be replayed.
    ///
    /// # Errors
    /// [`Error::Newer`], [`Error::Io`]; [`Error::Damaged`] if it is missing or cannot be read though `checkpoint` says
    /// that there is one of this boot.
    pub(crate) fn find(
        path: &Path,
        values: &Path,
        checkpoint: &Checkpoint,
        access: Access,
        budget: &Arc<Budget>,
    ) -> Result<Option<Left>> {
        let expected = Expected::of(checkpoint, values);
        let file = match OpenOptions::new().read(true).write(access.writes()).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return match expected {
                    Expected::Present => Err(damaged(path, 0, "the redo log is missing")),
                    Expected::Intact | Expected::Nothing => Ok(None),
                };
            }
            Err(error) => return Err(io_error(path, "open")(error)),
        };
        let log = match RedoLog::reopened(file, (path, values), access.writes(), budget) {
            Ok(Some(log)) => log,
            Ok(None) if expected == Expected::Present => {
                return Err(damaged(path, BOOT_AT, "the redo log is of another boot"));
            }
            // The power cut that it did not survive may have left anything of it.
            Err(Error::Damaged { .. }) if expected == Expected::Nothing => return Ok(None),
            Ok(None) => return Ok(None),
            Err(error) => return Err(error),
        };
        let belongs = log.expects(checkpoint);
        #[cfg(any(test, feature = "faults"))]
        let belongs = if super::Elsewhere::accepts_any() { Some(true) } else { belongs };
        match belongs {
            Some(true) => {}
            Some(false) => return Ok(None),
            None => return Err(damaged(path, super::CHECKPOINTS_AT, CONTROL)),
        }
        let from = match log.load_sealed(REPLAY_AT) {
            Some(0) => checkpoint.number,
            Some(from) => from - 1,
            None => return Err(damaged(path, REPLAY_AT, CONTROL)),
        };
        if access.writes() {
            log.store_sealed(REPLAY_AT, from + 1);
        }
        Ok(Some(Left { log: Arc::new(log), from, access }))
    }

    /// What became of each key that was written since the checkpoint.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the process's death does not explain what is there. Under [`Access::Salvage`] what is intact
    /// is found; where a checkpoint's note is damaged that may be older than what the checkpoint has.
    pub fn newest(&self) -> Result<Newest<'_>> {
        let mut by_writer: BTreeMap<u64, Vec<Used>> = BTreeMap::new();
        let mut found = Newest::default();
        for used in self.used(&mut found.damage)? {
            by_writer.entry(used.head.writer).or_default().push(used);
        }
        let mut by_key = ByKey::new();
        for chunks in by_writer.values_mut() {
            chunks.sort_by_key(|used| used.head.life);
            self.of_writer(chunks, &mut by_key, &mut found.damage)?;
        }
        found.keys = by_key.into_values().map(|(_, redo)| redo).collect();
        Ok(found)
    }

    /// Takes in what one writer put down behind the last note that counts.
    fn of_writer<'a>(
        &'a self,
        chunks: &[Used],
        newest: &mut ByKey<'a>,
        damage: &mut Vec<Damage>,
    ) -> Result<()> {
        let mut found = Vec::new();
        for used in chunks {
            self.records(used, damage, &mut |record| match record {
                // What is before it is in the checkpoint.
                Found::Note(number) if number <= self.from => found.clear(),
                record => found.push(record),
            })?;
        }
        let mut batch = Vec::new();
        for record in found {
            match record {
                Found::Record(stamp, Record::Item(item, _)) if item.in_batch => {
                    batch.push((stamp, item));
                }
                Found::Record(stamp, Record::Item(item, _)) => take(newest, stamp, &item),
                Found::Record(_, Record::BatchEnd(_)) => {
                    batch.drain(..).for_each(|(stamp, item)| take(newest, stamp, &item));
                }
                Found::Record(_, Record::Control(..) | Record::Invalid) => {}
                // No batch is under way where a checkpoint is noted: one that has no end was left out in part.
                Found::Note(_) | Found::Damage => batch.clear(),
            }
        }
        Ok(())
    }

    /// There is damage at `offset`: an error, unless it is passed.
    fn meet(&self, damage: &mut Vec<Damage>, offset: u64, bytes: u64, what: &str) -> Result<()> {
        let error = damaged(&self.log.path, offset, what);
        if !self.access.passes_damage() {
            return Err(error);
        }
        damage.push(Damage { offset, bytes, what: error.to_string() });
        Ok(())
    }

    /// The chunks that hold records.
    fn used(&self, damage: &mut Vec<Damage>) -> Result<Vec<Used>> {
        let log = &self.log;
        let bytes = log.file.metadata().map_err(io_error(&log.path, "stat"))?.len();
        let there = (bytes - CONTROL_BYTES) / log.chunk_bytes;
        let made = log.load_sealed(MADE_AT);
        match made {
            None => self.meet(damage, MADE_AT, 8, CONTROL)?,
            Some(made) if made > there => {
                let lost = log.start_of(made as u32).saturating_sub(bytes);
                self.meet(damage, bytes, lost, "the redo log ends before its last chunk")?;
            }
            Some(_) => {}
        }
        let count = made.map_or(there, |made| made.min(there));
        let mut found = Vec::new();
        for chunk in 0..count as u32 {
            let start = log.start_of(chunk);
            match log.load_sealed(start).map(Head::of) {
                Some(head) if head.is_used => found.push(Used { head, chunk }),
                Some(_) => {}
                // The process was about to use the last one for the first time.
                None if u64::from(chunk) + 1 == count && log.is_blank(chunk) => {}
                None => self.meet(damage, start, log.chunk_bytes, HEAD)?,
            }
        }
        Ok(found)
    }

    /// Tells the records of a chunk, in order.
    fn records<'a>(
        &'a self,
        used: &Used,
        damage: &mut Vec<Damage>,
        each: &mut dyn FnMut(Found<'a>),
    ) -> Result<()> {
        let (log, life) = (&self.log, used.head.life);
        let mut at = log.records_of(used.chunk);
        let end = log.start_of(used.chunk) + log.chunk_bytes;
        loop {
            let Some((stamp, salt_and_length)) = log.head(life, at, end) else {
                // Nothing follows the last record, not even in part before its first word is there.
                let next = (at + 8..end).step_by(8).find(|at| log.head(life, *at, end).is_some());
                if next.is_none() && (at + 8 > end || log.load(at) == 0) {
                    return Ok(());
                }
                self.meet(damage, at, next.unwrap_or(end) - at, RECORD)?;
                each(Found::Damage);
                let Some(next) = next else { return Ok(()) };
                at = next;
                continue;
            };
            let length = salt_and_length >> 32;
            if length == 0 {
                each(Found::Note(stamp));
            } else {
                // SAFETY: within the chunk (`head`), which is mapped and at rest.
                let bytes = unsafe { log.memory.bytes(at + RECORD_HEAD_BYTES, length) };
                match item::verify(bytes, salt_and_length as u32) {
                    Record::Invalid => {
                        self.meet(damage, at, RECORD_HEAD_BYTES + length, RECORD)?;
                        each(Found::Damage);
                    }
                    record => each(Found::Record(stamp, record)),
                }
            }
            at += (RECORD_HEAD_BYTES + length).next_multiple_of(8);
        }
    }
}

const CONTROL: &str = "the control page of the redo log does not match its checksum";
const HEAD: &str = "the head of a chunk of the redo log does not match its check";
const RECORD: &str = "a record of the redo log does not match its checksum";

fn damaged(path: &Path, offset: u64, what: &str) -> Error {
    let what = format!(
        "{what}; it holds acknowledged writes that no checkpoint has: read what is intact with salvage (--salvage), \
         export it, and import that into a new directory"
    );
    Error::Damaged { path: path.into(), offset, what }
}

fn take<'a>(newest: &mut ByKey<'a>, stamp: u64, item: &Item<'a>) {
    let value = (!item.tombstone).then_some((item.value, item.expires_at_ms));
    let redo = Redo { key: item.key, value };
    let of_key = newest.entry(item.key).or_insert((stamp, redo));
    if of_key.0 < stamp {
        *of_key = (stamp, redo);
    }
}

impl RedoLog {
    /// The log in `file`; none if its pages were not this kernel's all the time.
    fn reopened(
        file: File,
        (path, values): (&Path, &Path),
        writes: bool,
        budget: &Arc<Budget>,
    ) -> Result<Option<RedoLog>> {
        let bytes = file.metadata().map_err(io_error(path, "stat"))?.len();
        if !(CONTROL_BYTES..=CONTROL_BYTES + MOST_BYTES).contains(&bytes) {
            return Err(damaged(path, bytes, "the redo log ends there"));
        }
        let region = match writes {
            // SAFETY: the directory's lock is held: whoever made the file is gone, and no other process writes to it.
            true => unsafe { Region::map_file(&file, bytes, false, Domain::PageCache) },
            // SAFETY: above; readers share the lock, and do not change it.
            false => unsafe { Region::map_copy(&file, bytes, Domain::PageCache) },
        };
        let region = region.map_err(io_error(path, "map"))?;
        let memory = region.native();
        // SAFETY: the control page is there and mapped, and not written while borrowed.
        let control = unsafe { memory.bytes(0, CONTROL_BYTES) };
        let word = |at: u64| get_u64(control, at as usize);
        if word(0) != MAGIC {
            return Err(damaged(path, 0, "no redo log: the magic number is missing"));
        }
        let found = u32::try_from(word(VERSION_AT)).unwrap_or(u32::MAX);
        version::check(path, "redo log of format", (found, VERSION as u32), || {
            let mut as_ours = control[..CHECK_AT as usize].to_vec();
            as_ours[VERSION_AT as usize..][..8].copy_from_slice(&VERSION.to_le_bytes());
            control_check(&as_ours) == word(CHECK_AT)
        })?;
        let chunk_bytes = word(CHUNK_BYTES_AT);
        let is_intact = control_check(&control[..CHECK_AT as usize]) == word(CHECK_AT)
            && u64::from(found) == VERSION
            && (64 << 10..=MOST_CHUNK_BYTES).contains(&chunk_bytes);
        if !is_intact {
            return Err(damaged(path, 0, CONTROL));
        }
        let of_boot = &control[BOOT_AT as usize..][..BOOT_BYTES];
        if boot().is_none_or(|boot| boot[..] != *of_boot) {
            return Ok(None);
        }
        Ok(Some(RedoLog::on(file, region, (path, values), chunk_bytes, budget)))
    }

    /// Whether nothing was ever stored into a chunk.
    fn is_blank(&self, chunk: u32) -> bool {
        // SAFETY: within the file, which is mapped and at rest.
        let bytes = unsafe { self.memory.bytes(self.start_of(chunk), self.chunk_bytes) };
        without_zeros(bytes).is_empty()
    }

    /// Stamp, salt and length of the record at `at`, if there is a whole one.
    fn head(&self, life: u64, at: u64, end: u64) -> Option<(u64, u64)> {
        if at + RECORD_HEAD_BYTES > end {
            return None;
        }
        let (stamp, salt_and_length) = (self.load(at + 8), self.load(at + 16));
        let is_whole = self.load(at) == check_of(life, at, stamp, salt_and_length)
            && at + RECORD_HEAD_BYTES + (salt_and_length >> 32) <= end;
        is_whole.then_some((stamp, salt_and_length))
    }
}
