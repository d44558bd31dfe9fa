//! Where an index lies that is kept beside its values: a memory of its own, head and tables.
//!
//! ```text
//! 0   8  magic "TERRACEi"        60  4  checksum of the 60 bytes before
//! 8   4  format                  64  8  mark: the values name the index that goes with them by it
//! 12  4  tables                  72  8  the next mark
//! 16  8  seed of the hashes      4096 .. two areas for each table: buckets, overflow lines
//! 24  8  bytes of an area
//! ```
//! Areas are as long as the medium can ever be and filled from their start: the file has holes. A head
//! that does not match its checksum is no index: the values do not name it yet.
//!
//! At each opening the index gets another mark, so that an index of before, put back in its place, is
//! known for what it is: the next mark is written, then the values name it, then it is the mark. A
//! crash leaves values that name one of the two.

use crate::checksum::Crc;
use crate::error::{Error, Result};
use crate::medium::{BLOCK_BYTES, Medium};
use crate::superblock::{get_u32, get_u64, put_u32, put_u64};
use std::sync::Arc;
use terrace_memory::{Divide, Native};

const MAGIC: &[u8; 8] = b"TERRACEi";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 64;
const MARK_AT: u64 = 64;
const NEXT_MARK_AT: u64 = 72;

/// The place of a kept index.
#[derive(Debug)]
pub struct IndexFile<I: Divide = Native> {
    medium: Arc<Medium<I>>,
    /// Number of its tables.
    pub tables: u32,
    /// Seed of its hashes.
    pub seed: u64,
    /// The values name it by one of these.
    pub marks: [u64; 2],
    area_bytes: u64,
}

/// A part of the file for one table's buckets or overflow lines.
#[derive(Debug)]
pub struct Area<I: Divide = Native> {
    medium: Arc<Medium<I>>,
    start: u64,
    bytes: u64,
}

impl<I: Divide> Area<I> {
    /// Its memory; usable where [`Area::grow`] made it so.
    pub fn memory(&self) -> I {
        self.medium.memory().part(self.start, self.bytes)
    }

    /// As [`Medium::grow`].
    ///
    /// # Errors
    /// As there.
    pub fn grow(&self, at: u64, bytes: u64) -> Result<()> {
        self.medium.grow(self.start + at, bytes)
    }
}

impl<I: Divide> IndexFile<I> {
    /// Makes the head, durably, and what follows zero.
    ///
    /// # Errors
    /// Those of the medium.
    ///
    /// # Panics
    /// If the medium is not byte-addressable: an index is kept word by word.
    pub fn make(medium: Medium<I>, tables: u32, seed: u64, mark: u64) -> Result<IndexFile<I>> {
        assert!(medium.is_byte_addressable(), "an index is kept on a byte-addressable medium");
        let share = (medium.capacity_bytes() - BLOCK_BYTES) / (2 * u64::from(tables));
        let area_bytes = share / BLOCK_BYTES * BLOCK_BYTES;
        medium.grow(0, BLOCK_BYTES)?;
        if !medium.is_new() {
            let zeros = vec![0; (medium.capacity_bytes() - BLOCK_BYTES) as usize];
            // SAFETY: a medium that is no new file is there as a whole; nobody else has it yet.
            unsafe { medium.memory().write(BLOCK_BYTES, &zeros) };
            medium.write_out(BLOCK_BYTES, zeros.len() as u64, true)?;
        }
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MAGIC);
        put_u32(&mut head, 8, FORMAT);
        put_u32(&mut head, 12, tables);
        put_u64(&mut head, 16, seed);
        put_u64(&mut head, 24, area_bytes);
        let checksum = Crc::new(FORMAT).update(&head[..60]).finish();
        put_u32(&mut head, 60, checksum);
        // SAFETY: grown just now, and nobody else has the medium yet.
        unsafe {
            medium.memory().write(0, &head);
            medium.memory().persist(0, HEAD_BYTES as u64);
        }
        let file =
            IndexFile { medium: Arc::new(medium), tables, seed, marks: [mark; 2], area_bytes };
        file.store(MARK_AT, mark);
        file.store(NEXT_MARK_AT, mark);
        Ok(file)
    }

    /// Adds a mark that the values are about to name, durably.
    pub fn add_mark(&mut self, mark: u64) {
        self.marks[1] = mark;
        self.store(NEXT_MARK_AT, mark);
    }

    /// The values name the mark that was added: the one before counts no more.
    pub fn forget_mark(&mut self) {
        self.marks[0] = self.marks[1];
        self.store(MARK_AT, self.marks[0]);
    }

    fn store(&self, at: u64, mark: u64) {
        // SAFETY: an aligned word of the first block, which `make` grew or `open` found; nobody else
        // uses it.
        unsafe {
            self.medium.memory().store(at, mark);
            self.medium.memory().persist(at, 8);
        }
    }

    /// Reads the head of one that was made.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Mismatch`].
    pub fn open(medium: Medium<I>) -> Result<IndexFile<I>> {
        let path = || medium.path().to_path_buf();
        let damaged = |what: &str| Error::Damaged { path: path(), offset: 0, what: what.into() };
        if medium.file_bytes()? < BLOCK_BYTES {
            return Err(damaged("the file of the index ends inside its head"));
        }
        // SAFETY: the file holds the block, and nobody writes to it meanwhile.
        let head = unsafe { medium.memory().bytes(0, 128) };
        if &head[..8] != MAGIC || Crc::new(FORMAT).update(&head[..60]).finish() != get_u32(head, 60)
        {
            return Err(damaged("the head of the index does not match its checksum"));
        }
        let (format, tables) = (get_u32(head, 8), get_u32(head, 12));
        let (seed, area_bytes) = (get_u64(head, 16), get_u64(head, 24));
        let marks = [MARK_AT, NEXT_MARK_AT].map(|at| get_u64(head, at as usize));
        if format != FORMAT {
            let (found, wanted) = (format.to_string(), FORMAT.to_string());
            return Err(Error::Mismatch { path: path(), field: "index format", found, wanted });
        }
        if BLOCK_BYTES + 2 * u64::from(tables) * area_bytes > medium.capacity_bytes() {
            let what = "the index was made for more memory than this machine has";
            return Err(damaged(what));
        }
        Ok(IndexFile { medium: Arc::new(medium), tables, seed, marks, area_bytes })
    }

    /// Gives a new file its name, as [`Medium::publish`].
    ///
    /// # Errors
    /// As there.
    pub fn publish(&self) -> Result<()> {
        if self.medium.is_new() { self.medium.publish() } else { Ok(()) }
    }

    /// The areas of each table: buckets, overflow lines.
    pub fn areas(&self) -> Vec<[Area<I>; 2]> {
        let area = |number: u64| Area {
            medium: Arc::clone(&self.medium),
            start: BLOCK_BYTES + number * self.area_bytes,
            bytes: self.area_bytes,
        };
        (0..u64::from(self.tables)).map(|table| [area(2 * table), area(2 * table + 1)]).collect()
    }
}
