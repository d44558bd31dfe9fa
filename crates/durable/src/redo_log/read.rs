//! What a process that died left in its redo log.

use super::{
    BOOT_AT, BOOT_BYTES, CHUNK_BYTES_AT, CHUNK_HEAD_BYTES, CONTROL_BYTES, MAGIC, MOST_BYTES,
    MOST_CHUNK_BYTES, RECORD_HEAD_BYTES, REPLAY_AT, RedoLog, VERSION, VERSION_AT, boot, check_of,
};
use crate::error::{Error, Result, io_error};
use crate::item::{self, Item, Record};
use crate::superblock::Cut;
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

/// The redo log of a process that died, which belongs to the values beside it.
#[derive(Debug)]
pub struct Left {
    pub(crate) log: Arc<RedoLog>,
    /// The checkpoint behind which its records count.
    from: u64,
}

/// A chunk in use.
struct Used {
    writer: u64,
    life: u64,
    chunk: u32,
}

type Newest<'a> = HashMap<&'a [u8], (u64, Redo<'a>)>;

impl Left {
    /// Looks for one at `path` that belongs to the checkpoint `cut`. With `writes` it is marked as about to be
    /// replayed.
    ///
    /// # Errors
    /// [`Error::Newer`], [`Error::Io`].
    pub(crate) fn find(
        path: &Path,
        cut: &Cut,
        writes: bool,
        budget: &Arc<Budget>,
    ) -> Result<Option<Left>> {
        let file = match OpenOptions::new().read(true).write(writes).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(path, "open")(error)),
        };
        let Some(log) = RedoLog::reopened(file, path, writes, budget)? else { return Ok(None) };
        if !log.expects(cut) {
            return Ok(None);
        }
        let from = match log.load(REPLAY_AT) {
            0 => cut.number,
            from => from - 1,
        };
        if writes {
            log.store(REPLAY_AT, from + 1);
        }
        Ok(Some(Left { log: Arc::new(log), from }))
    }

    /// What became of each key that was written since the checkpoint.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the process's death does not explain what is there.
    pub fn newest(&self) -> Result<Vec<Redo<'_>>> {
        let mut by_writer: BTreeMap<u64, Vec<Used>> = BTreeMap::new();
        for used in self.log.used() {
            by_writer.entry(used.writer).or_default().push(used);
        }
        let mut newest = Newest::new();
        for chunks in by_writer.values_mut() {
            chunks.sort_by_key(|used| used.life);
            self.of_writer(chunks, &mut newest)?;
        }
        Ok(newest.into_values().map(|(_, redo)| redo).collect())
    }

    /// Takes in what one writer put down behind the last note that counts.
    fn of_writer<'a>(&'a self, chunks: &[Used], newest: &mut Newest<'a>) -> Result<()> {
        let mut found: Vec<(u64, Record<'a>)> = Vec::new();
        for used in chunks {
            self.log.records(used, &mut |stamp, record| match record {
                // What is before it is in the checkpoint.
                None if stamp <= self.from => found.clear(),
                None => {}
                Some(record) => found.push((stamp, record)),
            })?;
        }
        let mut batch = Vec::new();
        for (stamp, record) in found {
            match record {
                Record::Item(item, _) if item.in_batch => batch.push((stamp, item)),
                Record::Item(item, _) => take(newest, stamp, &item),
                Record::BatchEnd(_) => {
                    batch.drain(..).for_each(|(stamp, item)| take(newest, stamp, &item));
                }
                Record::Control(..) | Record::Invalid => {}
            }
        }
        Ok(())
    }
}

fn take<'a>(newest: &mut Newest<'a>, stamp: u64, item: &Item<'a>) {
    let value = (!item.tombstone).then_some((item.value, item.expires_at_ms));
    let redo = Redo { key: item.key, value };
    let of_key = newest.entry(item.key).or_insert((stamp, redo));
    if of_key.0 < stamp {
        *of_key = (stamp, redo);
    }
}

impl RedoLog {
    /// The log in `file`, if this kernel had its pages all the time.
    fn reopened(
        file: File,
        path: &Path,
        writes: bool,
        budget: &Arc<Budget>,
    ) -> Result<Option<RedoLog>> {
        let bytes = file.metadata().map_err(io_error(path, "stat"))?.len();
        if !(CONTROL_BYTES..=CONTROL_BYTES + MOST_BYTES).contains(&bytes) {
            return Ok(None);
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
        let word = |at: u64| {
            let at = at as usize;
            u64::from_le_bytes(control[at..at + 8].try_into().expect("eight bytes"))
        };
        let boot_at = BOOT_AT as usize;
        let is_ours = word(0) == MAGIC
            && boot().is_some_and(|boot| boot[..] == control[boot_at..boot_at + BOOT_BYTES]);
        if !is_ours {
            return Ok(None);
        }
        if word(VERSION_AT) != VERSION {
            let what = "redo log of format";
            return Err(Error::Newer {
                path: path.into(),
                what,
                found: word(VERSION_AT),
                known: VERSION,
            });
        }
        let chunk_bytes = word(CHUNK_BYTES_AT);
        if !(64 << 10..=MOST_CHUNK_BYTES).contains(&chunk_bytes) {
            return Ok(None);
        }
        Ok(Some(RedoLog::on(file, region, path, chunk_bytes, budget)))
    }

    /// The chunks that hold records.
    fn used(&self) -> Vec<Used> {
        let count = (self.region.len() - CONTROL_BYTES) / self.chunk_bytes;
        let used = |chunk: u32| {
            let start = self.start_of(chunk);
            let (life, writer) = (self.load(start), self.load(start + 8));
            let is_used = self.load(start + 16) == check_of(life, start, writer, 0);
            is_used.then_some(Used { writer, life, chunk })
        };
        (0..count as u32).filter_map(used).collect()
    }

    /// Tells the records of a chunk, in order: stamp and record, or number of a checkpoint and none.
    fn records<'a>(
        &'a self,
        used: &Used,
        each: &mut dyn FnMut(u64, Option<Record<'a>>),
    ) -> Result<()> {
        let start = self.start_of(used.chunk);
        let end = start + self.chunk_bytes;
        let mut at = start + CHUNK_HEAD_BYTES;
        while let Some((stamp, salt_and_length)) = self.head(used.life, at, end) {
            let length = salt_and_length >> 32;
            if length == 0 {
                each(stamp, None);
            } else {
                // SAFETY: within the chunk (`head`), which is mapped and at rest.
                let bytes = unsafe { self.memory.bytes(at + RECORD_HEAD_BYTES, length) };
                match item::verify(bytes, salt_and_length as u32) {
                    Record::Invalid => return Err(self.damaged(at)),
                    record => each(stamp, Some(record)),
                }
            }
            at += (RECORD_HEAD_BYTES + length).next_multiple_of(8);
        }
        // A record that the process was about to finish is the last.
        match (at + 8..end).step_by(8).any(|at| self.head(used.life, at, end).is_some()) {
            true => Err(self.damaged(at)),
            false => Ok(()),
        }
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

    fn damaged(&self, offset: u64) -> Error {
        let what = "a record of the redo log does not match its checksum; without this file the map opens as of its \
                    last checkpoint"
            .into();
        Error::Damaged { path: self.path.clone(), offset, what }
    }
}
