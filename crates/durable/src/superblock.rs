//! The first blocks of a value file: what it is, and how much of it counts.
//!
//! ```text
//! block 0      superblock: magic, format, segment size, design; written once
//! block 1, 2   checkpoint, in turns: number, rule, generation, next sequence, the open logs' tails,
//!              the mark of the index that goes with the values, features, where the saved index
//!              is, name of the redo log
//! segment 1 .. logs or superblocks of slots, each `segment_bytes` long
//! ```
//! A file of a later format is refused by its number, before anything else of it is believed
//! (`version.rs`); so is a checkpoint with a *feature* that is not known here. Format 2 differs from 1 in what
//! may stand in segments, which say their own format: a file of format 1 opens as it is, keeps its superblock, and
//! gets segments of format 2 as its logs are rewritten (`docs/decisions/0023-formats-two.md`).
//!
//! The *checkpoint* says which bytes of the logs count after a crash:
//! * [`Rule::All`]: every intact item (durability `sync`: an item is acknowledged once it is safe);
//! * [`Rule::Bounded`]: only what was there when the checkpoint was taken, all logs at one instant. Then
//!   what is recovered is exactly a prefix of the history, never one with holes.
//!
//! A checkpoint is written to its turn's block, synced, and then to the other block as well. A crash
//! between leaves one intact checkpoint, the newest that was acknowledged; a bad sector later leaves the
//! other copy.

use crate::checksum::Crc;
use crate::commits::Does;
use crate::error::{Error, Result};
use crate::medium::{BLOCK_BYTES, Medium};
use crate::version;
use terrace_memory::Memory;

const MAGIC: &[u8; 8] = b"TERRACEv";
const FORMAT: u32 = 2;
/// Seed of the checksums of blocks, whatever the format.
const CHECK_SEED: u32 = 1;
const CHECKPOINT_MAGIC: u32 = 0x0054_5543;
/// Bytes of the head of the file that these blocks take.
pub const HEAD_BYTES: u64 = 3 * BLOCK_BYTES;
/// Most logs that can be open at a checkpoint.
pub const MAX_OPEN: usize = 64;
/// Offset in a checkpoint's block of the mark of its index: behind the open logs.
const INDEX_AT: usize = 40 + 16 * MAX_OPEN;
/// Offset of the features: bits without which what the file holds cannot be read. None is known yet.
const FEATURES_AT: usize = INDEX_AT + 8;
/// Offset of where the saved index is: its first segment, its salt, bytes of its head. What follows is reserved and
/// zero: floor of commit timestamps, seed of the hashes in segment summaries (`docs/value-file.md`).
const SAVED_AT: usize = FEATURES_AT + 8;
/// Offset of the name of the redo log that goes with the values: behind what is reserved.
const REDO_AT: usize = FEATURES_AT + 40;

/// Which items count after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every intact item.
    All,
    /// What was there at the checkpoint.
    Bounded,
}

/// A log that was open at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLog {
    /// Its segment.
    pub segment: u32,
    /// Bytes of it that count.
    pub tail: u32,
    /// Its sequence number.
    pub sequence: u64,
}

/// Where the saved index of a map is ([`Logs::begin_saving`](crate::logs::Logs::begin_saving)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedAt {
    /// The segment of its head; 0: there is none.
    pub segment: u32,
    /// Salt of its checksums.
    pub salt: u32,
    /// Bytes of its head.
    pub bytes: u32,
}

/// How much of the file counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Grows with every checkpoint.
    pub number: u64,
    /// Which items count.
    pub rule: Rule,
    /// Segments of another generation are free: clearing a map raises it.
    pub generation: u64,
    /// Sequence number of the next log to be opened.
    pub next_sequence: u64,
    /// Segments ever used: the file is at least this long.
    pub segments: u32,
    /// The logs open at the checkpoint (`Rule::Bounded`).
    pub open: Vec<OpenLog>,
    /// Mark of the persistent index that goes with the values; 0: none does.
    pub index: u64,
    /// The saved index from which on the logs are read.
    pub saved: SavedAt,
    /// Names the redo log that goes with the values; 0: none does (`docs/value-file.md`).
    pub redo: u64,
}

/// The unchanging parameters of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Logs (1) or slabs (2).
    pub design: u32,
}

pub(crate) fn put_u32(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(block: &mut [u8], at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn get_u32(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn get_u64(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn seal_block(block: &mut [u8]) {
    let end = block.len() - 4;
    let crc = Crc::new(CHECK_SEED).update(&block[..end]).finish();
    put_u32(block, end, crc);
}

pub(crate) fn block_is_intact(block: &[u8]) -> bool {
    let end = block.len() - 4;
    Crc::new(CHECK_SEED).update(&block[..end]).finish() == get_u32(block, end)
}

impl Shape {
    fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        block[..8].copy_from_slice(MAGIC);
        put_u32(&mut block, 8, FORMAT);
        put_u32(&mut block, 12, self.segment_bytes);
        put_u32(&mut block, 16, self.design);
        seal_block(&mut block);
        block
    }

    fn design_name(design: u32) -> String {
        match design {
            1 => "logs".into(),
            2 => "slabs".into(),
            other => format!("design {other}"),
        }
    }

    fn check<M: Memory>(&self, block: &[u8], medium: &Medium<M>) -> Result<()> {
        let damaged = |what: &str| Error::Damaged {
            path: medium.path().into(),
            offset: 0,
            what: what.into(),
        };
        if &block[..8] != MAGIC {
            return Err(damaged("no Terrace value file: the magic number is missing"));
        }
        version::check_block(medium.path(), "value file of format", block, FORMAT)?;
        if !block_is_intact(block) {
            return Err(damaged("the superblock does not match its checksum"));
        }
        let mismatch = |field, found: String, wanted: String| {
            Err(Error::Mismatch { path: medium.path().into(), field, found, wanted })
        };
        let (format, segment_bytes, design) =
            (get_u32(block, 8), get_u32(block, 12), get_u32(block, 16));
        if !(1..=FORMAT).contains(&format) {
            return mismatch("format version", format.to_string(), FORMAT.to_string());
        }
        if design != self.design {
            return mismatch(
                "values in",
                Shape::design_name(design),
                Shape::design_name(self.design),
            );
        }
        if segment_bytes != self.segment_bytes {
            return mismatch(
                "segment size",
                segment_bytes.to_string(),
                self.segment_bytes.to_string(),
            );
        }
        Ok(())
    }
}

impl Checkpoint {
    fn encode(&self) -> Vec<u8> {
        assert!(self.open.len() <= MAX_OPEN, "at most {MAX_OPEN} logs are open");
        let mut block = vec![0; BLOCK_BYTES as usize];
        put_u32(&mut block, 0, CHECKPOINT_MAGIC);
        put_u32(&mut block, 4, u32::from(self.rule == Rule::Bounded));
        put_u64(&mut block, 8, self.number);
        put_u64(&mut block, 16, self.generation);
        put_u64(&mut block, 24, self.next_sequence);
        put_u32(&mut block, 32, self.segments);
        put_u32(&mut block, 36, self.open.len() as u32);
        for (i, open) in self.open.iter().enumerate() {
            put_u32(&mut block, 40 + 16 * i, open.segment);
            put_u32(&mut block, 44 + 16 * i, open.tail);
            put_u64(&mut block, 48 + 16 * i, open.sequence);
        }
        put_u64(&mut block, INDEX_AT, self.index);
        let SavedAt { segment, salt, bytes } = self.saved;
        for (number, word) in [segment, 0, salt, bytes].into_iter().enumerate() {
            put_u32(&mut block, SAVED_AT + 4 * number, word);
        }
        put_u64(&mut block, REDO_AT, self.redo);
        seal_block(&mut block);
        block
    }

    /// Tells it from other checkpoint records of its number.
    pub(crate) fn check(&self) -> u32 {
        let block = self.encode();
        get_u32(&block, block.len() - 4)
    }

    /// The checkpoint that `does` goes over to, if it does from this one. It may have been stored before, or be of
    /// another file that had the same name.
    fn followed_by(self, does: &Does) -> Checkpoint {
        let Does::Checkpoint { after, block } = does else { return self };
        let next = (block.len() == BLOCK_BYTES as usize && *after == self.check())
            .then(|| Checkpoint::decode(block))
            .flatten();
        next.filter(|next| next.number == self.number + 1).unwrap_or(self)
    }

    /// What [`commits`](crate::commits) is to note of going over from this one to `next`.
    pub(crate) fn to(&self, next: &Checkpoint) -> Does {
        Does::Checkpoint { after: self.check(), block: next.encode() }
    }

    fn decode(block: &[u8]) -> Option<Checkpoint> {
        let count = get_u32(block, 36) as usize;
        if get_u32(block, 0) != CHECKPOINT_MAGIC || !block_is_intact(block) || count > MAX_OPEN {
            return None;
        }
        let open = (0..count).map(|i| OpenLog {
            segment: get_u32(block, 40 + 16 * i),
            tail: get_u32(block, 44 + 16 * i),
            sequence: get_u64(block, 48 + 16 * i),
        });
        Some(Checkpoint {
            number: get_u64(block, 8),
            rule: if get_u32(block, 4) == 1 { Rule::Bounded } else { Rule::All },
            generation: get_u64(block, 16),
            next_sequence: get_u64(block, 24),
            segments: get_u32(block, 32),
            open: open.collect(),
            index: get_u64(block, INDEX_AT),
            saved: SavedAt {
                segment: get_u32(block, SAVED_AT),
                salt: get_u32(block, SAVED_AT + 8),
                bytes: get_u32(block, SAVED_AT + 12),
            },
            redo: get_u64(block, REDO_AT),
        })
    }

    /// Writes the checkpoint. Durable on return; a crash before leaves the checkpoint before it.
    ///
    /// # Errors
    /// Those of [`Medium::write_out`].
    pub fn store<M: Memory>(&self, medium: &Medium<M>) -> Result<()> {
        let block = self.encode();
        let turn = self.number % 2;
        for (at, durable) in [(1 + turn, true), (2 - turn, false)] {
            // SAFETY: the head was committed by `open_head`; callers store checkpoints one at a time.
            unsafe { medium.memory().write(at * BLOCK_BYTES, &block) };
            medium.write_out(at * BLOCK_BYTES, BLOCK_BYTES, durable)?;
        }
        Ok(())
    }

    /// Becomes the next checkpoint, stored, which goes with the persistent index `index`. After an error it is as
    /// before, and what is on the medium is unknown.
    ///
    /// # Errors
    /// As [`Checkpoint::store`].
    pub fn set_index<M: Memory>(&mut self, index: u64, medium: &Medium<M>) -> Result<()> {
        if self.index == index {
            return Ok(());
        }
        let next = Checkpoint { number: self.number + 1, index, ..self.clone() };
        next.store(medium)?;
        *self = next;
        Ok(())
    }

    /// What is assumed under salvage when no checkpoint can be read: everything intact counts, of the
    /// newest generation found.
    fn unknown() -> Checkpoint {
        Checkpoint {
            number: 0,
            rule: Rule::All,
            generation: 0,
            next_sequence: 1,
            segments: 1,
            open: Vec::new(),
            index: 0,
            saved: SavedAt::default(),
            redo: 0,
        }
    }
}

/// Opens the head of a value file, or makes it in a new one. Returns the newest checkpoint, and under
/// [`Access::Salvage`](crate::Access) what was wrong with the head, if anything. `left` may have checkpoints that are
/// in force, and were not stored.
///
/// # Errors
/// [`Error::Mismatch`] and [`Error::Damaged`] name what was found.
pub fn open_head<M: Memory>(
    medium: &Medium<M>,
    shape: Shape,
    left: &[Does],
) -> Result<(Checkpoint, Option<String>)> {
    if medium.is_new() {
        medium.grow(0, HEAD_BYTES)?;
        return Ok((make_head(medium, shape)?, None));
    }
    match read_head(medium, shape) {
        Err(Error::Damaged { what, .. }) if medium.access().passes_damage() => {
            Ok((Checkpoint::unknown(), Some(what)))
        }
        other => {
            let found = other?;
            let newest = left.iter().fold(found.clone(), Checkpoint::followed_by);
            if newest != found && medium.access().writes() {
                // The block of its turn may be torn: the next one would be written over the only one that is not.
                newest.store(medium)?;
            }
            Ok((newest, None))
        }
    }
}

fn read_head<M: Memory>(medium: &Medium<M>, shape: Shape) -> Result<Checkpoint> {
    let damaged =
        |offset, what: String| Error::Damaged { path: medium.path().into(), offset, what };
    let file_bytes = medium.file_bytes()?;
    medium.commit(0, HEAD_BYTES)?;
    // SAFETY: nobody else has the medium yet.
    unsafe { medium.read_in(0, HEAD_BYTES)? };
    if file_bytes < HEAD_BYTES {
        return Err(damaged(
            file_bytes,
            format!("the file ends at {file_bytes}, inside its head of {HEAD_BYTES} bytes"),
        ));
    }
    // SAFETY: committed above and not written while borrowed.
    let block = |number: u64| unsafe { medium.memory().bytes(number * BLOCK_BYTES, BLOCK_BYTES) };
    shape.check(block(0), medium)?;
    let newest = [1, 2].into_iter().filter_map(|n| Some((Checkpoint::decode(block(n))?, block(n))));
    let Some((newest, block)) = newest.max_by_key(|(checkpoint, _)| checkpoint.number) else {
        return Err(damaged(
            BLOCK_BYTES,
            "neither of the two checkpoint records matches its checksum".into(),
        ));
    };
    match get_u64(block, FEATURES_AT) {
        0 => Ok(newest),
        found => {
            let (path, what) = (medium.path().into(), "value file with features");
            Err(Error::Newer { path, what, found, known: 0 })
        }
    }
}

fn make_head<M: Memory>(medium: &Medium<M>, shape: Shape) -> Result<Checkpoint> {
    let checkpoint = Checkpoint {
        number: 1,
        rule: Rule::All,
        generation: 1,
        next_sequence: 1,
        segments: 1,
        open: Vec::new(),
        index: 0,
        saved: SavedAt::default(),
        redo: 0,
    };
    checkpoint.store(medium)?;
    // SAFETY: committed by the caller; nobody else has the medium yet.
    unsafe { medium.memory().write(0, &shape.encode()) };
    medium.write_out(0, BLOCK_BYTES, true)?;
    // Only now does the file get its name: a file of that name always has a whole head.
    medium.publish()?;
    Ok(checkpoint)
}
