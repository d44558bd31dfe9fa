//! Where an index lies that is kept beside its values: a memory of its own, head and tables.
//!
//! ```text
//! 0      8  magic "TERRACEi"       24  8  mark: the values name the index that goes with them by it
//! 8      4  format                 32  8  bytes of an area
//! 12     4  tables                 4092 4  checksum of the bytes before
//! 16     8  seed of the hashes     4096 .. two areas for each table: buckets, overflow lines
//! ```
//! The head is written at every opening. Areas are as long as the medium can ever be and filled from their start:
//! the file has holes. A head without its checksum is no index: the values do not name it yet.

use crate::error::{Error, Result};
use crate::medium::{BLOCK_BYTES, Medium};
use crate::superblock::{block_is_intact, get_u32, get_u64, put_u32, put_u64, seal_block};
use std::sync::Arc;
use terrace_memory::{Divide, Native};

const MAGIC: &[u8; 8] = b"TERRACEi";
const FORMAT: u32 = 1;

/// The place of a kept index.
#[derive(Debug)]
pub struct IndexFile<I: Divide = Native> {
    medium: Arc<Medium<I>>,
    /// Number of its tables.
    pub tables: u32,
    /// Seed of its hashes.
    pub seed: u64,
    /// The values name it by this.
    pub mark: u64,
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
        let file = IndexFile { medium: Arc::new(medium), tables, seed, mark, area_bytes };
        file.write_head()?;
        Ok(file)
    }

    /// Gives it another mark, durably: an index of before, put back in its place, is known for what it
    /// is. A crash in between leaves values that name no index.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn set_mark(&mut self, mark: u64) -> Result<()> {
        self.mark = mark;
        self.write_head()
    }

    fn write_head(&self) -> Result<()> {
        let mut head = vec![0; BLOCK_BYTES as usize];
        head[..8].copy_from_slice(MAGIC);
        put_u32(&mut head, 8, FORMAT);
        put_u32(&mut head, 12, self.tables);
        put_u64(&mut head, 16, self.seed);
        put_u64(&mut head, 24, self.mark);
        put_u64(&mut head, 32, self.area_bytes);
        seal_block(&mut head);
        // SAFETY: grown by `make`; nobody reads the head once it was opened.
        unsafe { self.medium.memory().write(0, &head) };
        self.medium.write_out(0, BLOCK_BYTES, true)
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
        let head = unsafe { medium.memory().bytes(0, BLOCK_BYTES) };
        if &head[..8] != MAGIC || !block_is_intact(head) {
            return Err(damaged("the head of the index does not match its checksum"));
        }
        let (format, tables) = (get_u32(head, 8), get_u32(head, 12));
        let (seed, mark, area_bytes) = (get_u64(head, 16), get_u64(head, 24), get_u64(head, 32));
        if format != FORMAT {
            let (found, wanted) = (format.to_string(), FORMAT.to_string());
            return Err(Error::Mismatch { path: path(), field: "index format", found, wanted });
        }
        if BLOCK_BYTES + 2 * u64::from(tables) * area_bytes > medium.capacity_bytes() {
            let what = "the index was made for more memory than this machine has";
            return Err(damaged(what));
        }
        Ok(IndexFile { medium: Arc::new(medium), tables, seed, mark, area_bytes })
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
