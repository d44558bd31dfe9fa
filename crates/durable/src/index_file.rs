//! Where an index lies that is kept beside its values: a memory of its own, with a head, the allocation metadata of
//! the values, and tables, or the leaves of a tree.
//!
//! ```text
//! 0   8  magic "TERRACEi"        60  4  checksum of the 60 bytes before
//! 8   4  format                  64  8  mark: the values name the index that goes with them by it
//! 12  4  tables; 0: leaves       72  8  the next mark
//! 16  8  seed of the hashes      80  8  what may be relied on beside the entries (State)
//! 24  8  bytes of an area        88  8  sum of all that is in use, if the state says so
//! 32  8  bytes of the metadata   4096 .. allocation metadata; two areas for each table: buckets, overflow lines;
//!                                        or one for leaves
//! 40  8  bytes of a page of them   96  8  segments of the values when that was taken
//! ```
//! Areas are as long as the medium can ever be and filled from their start: the file has holes. A head
//! that does not match its checksum is no index: the values do not name it yet.
//!
//! At each opening the index gets another mark, so that an index of before, put back in its place, is
//! known for what it is: the next mark is written, then the values name it, then it is the mark. A
//! crash leaves values that name one of the two.

use crate::allocation::Allocation;
use crate::checksum::Crc;
use crate::error::{Error, Result};
use crate::medium::{BLOCK_BYTES, Medium};
use crate::superblock::{get_u32, get_u64, put_u32, put_u64};
use crate::version;
use std::sync::Arc;
use terrace_memory::{Claim, Divide, Memory, Native};

const MAGIC: &[u8; 8] = b"TERRACEi";
const FORMAT: u32 = 3;
/// What that of before says of itself is read; the index is rebuilt.
const FORMAT_BEFORE: u32 = 2;
const HEAD_BYTES: usize = 64;
const MARK_AT: u64 = 64;
const NEXT_MARK_AT: u64 = 72;
const STATE_AT: u64 = 80;
const SUM_AT: u64 = 88;
const SEGMENTS_AT: u64 = 96;

/// The pages of allocation metadata: one for each segment of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Segments there can ever be.
    pub count: u64,
    /// Bytes of a page.
    pub bytes: u64,
}

impl Pages {
    fn allocation_bytes(self) -> u64 {
        Allocation::<Native>::bytes_for(self.count, self.bytes).next_multiple_of(BLOCK_BYTES)
    }
}

/// What an index is, and what of it may be relied on beside its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Whether each operation on it is to be a section.
    pub is_full: bool,
    /// Whether allocation metadata and free lines are exact: each operation was a section, or it was closed.
    pub is_exact: bool,
    /// Whether it was closed at an orderly end: then it has its sum.
    pub is_closed: bool,
}

/// The place of a persistent index.
#[derive(Debug)]
pub struct IndexFile<I: Memory = Native> {
    medium: Arc<Medium<I>>,
    /// Of what lies before the areas, which tables and trees claim.
    _claim: Claim,
    format: u32,
    /// Number of its tables; none if it is for the leaves of a tree.
    pub tables: u32,
    /// Seed of its hashes.
    pub seed: u64,
    /// The values name it by one of these.
    pub marks: [u64; 2],
    /// All allocation metadata, and a page of it.
    allocation_bytes: [u64; 2],
    area_bytes: u64,
}

/// A part of the file for one table's buckets or overflow lines, or for leaves.
#[derive(Debug)]
pub struct Area<I: Memory = Native> {
    medium: Arc<Medium<I>>,
    start: u64,
    bytes: u64,
}

impl<I: Divide> Area<I> {
    /// Where it begins in the file.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Its memory; usable where [`Area::grow`] made it so.
    pub fn memory(&self) -> I {
        self.medium.memory().part(self.start, self.bytes)
    }

    /// As [`Medium::grow`].
    ///
    /// # Errors
    /// The errors of [`Medium::grow`].
    pub fn grow(&self, at: u64, bytes: u64) -> Result<()> {
        self.medium.grow(self.start + at, bytes)
    }
}

impl<I: Memory> IndexFile<I> {
    /// Makes the head, durably, and what follows zero, with room for so many bytes of allocation metadata.
    ///
    /// # Errors
    /// Those of the medium.
    ///
    /// # Panics
    /// If the medium is not byte-addressable: an index is stored word by word.
    pub fn make(
        medium: Medium<I>,
        tables: u32,
        seed: u64,
        mark: u64,
        pages: Pages,
    ) -> Result<IndexFile<I>> {
        assert!(medium.is_byte_addressable(), "a persistent index is on a byte-addressable medium");
        let allocation_bytes = pages.allocation_bytes();
        let left = medium.capacity_bytes().saturating_sub(BLOCK_BYTES + allocation_bytes);
        let share = left / areas_of(tables);
        let area_bytes = share / BLOCK_BYTES * BLOCK_BYTES;
        medium.grow(0, BLOCK_BYTES)?;
        if !medium.is_new() {
            let zeros = vec![0; (medium.capacity_bytes() - BLOCK_BYTES) as usize];
            let _alone = medium.claim();
            // SAFETY: a medium that is no new file is there as a whole; nobody else has it (claimed).
            unsafe { medium.memory().write(BLOCK_BYTES, &zeros) };
            medium.write_out(BLOCK_BYTES, zeros.len() as u64, true)?;
        }
        let claim = medium.memory().claim(0, BLOCK_BYTES + allocation_bytes);
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MAGIC);
        put_u32(&mut head, 8, FORMAT);
        put_u32(&mut head, 12, tables);
        put_u64(&mut head, 16, seed);
        put_u64(&mut head, 24, area_bytes);
        put_u64(&mut head, 32, allocation_bytes);
        put_u64(&mut head, 40, pages.bytes);
        let checksum = Crc::new(FORMAT).update(&head[..60]).finish();
        put_u32(&mut head, 60, checksum);
        // SAFETY: grown just now, and nobody else has it (claimed).
        unsafe {
            medium.memory().write(0, &head);
            medium.memory().persist(0, HEAD_BYTES as u64);
        }
        let medium = Arc::new(medium);
        let allocation_bytes = [allocation_bytes, pages.bytes];
        let file = IndexFile {
            medium,
            _claim: claim,
            format: FORMAT,
            tables,
            seed,
            marks: [mark; 2],
            allocation_bytes,
            area_bytes,
        };
        for (at, word) in [(MARK_AT, mark), (NEXT_MARK_AT, mark), (STATE_AT, 0), (SUM_AT, 0)] {
            file.store(at, word);
        }
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

    /// Whether its entries are as this version reads them.
    pub fn is_present_format(&self) -> bool {
        self.format == FORMAT
    }

    /// What may be relied on beside the entries.
    pub fn state(&self) -> State {
        let word = self.load(STATE_AT);
        if self.is_present_format() && word >> 32 != !word & 0xffff_ffff {
            // Nothing may be relied on, then.
            return State::default();
        }
        let is = |bit: u64| word & bit == bit;
        State { is_full: is(1), is_exact: is(2), is_closed: is(4) }
    }

    /// Says so, durably on return. What is relied on is durable before.
    pub fn set_state(&self, state: State) {
        let State { is_full, is_exact, is_closed } = state;
        let word = u64::from(is_full) | u64::from(is_exact) << 1 | u64::from(is_closed) << 2;
        self.store(STATE_AT, word | (!word & 0xffff_ffff) << 32);
    }

    /// Closes an index that nobody changes any more: what is in use of it (`used`: beginnings and
    /// lengths, the allocation metadata aside), and that of the segments before `end`, are durable, with their sum,
    /// on return.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn close(&self, used: &[(u64, u64)], end: u32) -> Result<()> {
        let used = [used, &[self.allocation().used(end)]].concat();
        for (at, bytes) in &used {
            self.medium.write_out(*at, *bytes, true)?;
        }
        self.store(SEGMENTS_AT, end.into());
        self.store(SUM_AT, self.sum(&used));
        self.set_state(State { is_exact: true, is_closed: true, ..self.state() });
        Ok(())
    }

    /// Whether what was in use of a closed index is as it was.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn is_as_closed(&self, used: &[(u64, u64)]) -> Result<bool> {
        let (allocation, end) = (self.allocation(), self.load(SEGMENTS_AT));
        if !(1..=self.allocation_bytes[0] / self.allocation_bytes[1]).contains(&end) {
            return Ok(false);
        }
        allocation.grow(end as u32)?;
        let used = [used, &[allocation.used(end as u32)]].concat();
        Ok(self.load(SUM_AT) == self.sum(&used))
    }

    fn sum(&self, used: &[(u64, u64)]) -> u64 {
        // Pieces, so that a large one need not lie in memory at once.
        const PIECE: u64 = 1 << 20;
        let mut sum = Crc::new(FORMAT);
        for (at, bytes) in used {
            let mut done = 0;
            while done < *bytes {
                let piece = PIECE.min(bytes - done);
                // SAFETY: in use, so it was grown; nobody changes it, by contract.
                sum = sum.update(unsafe { self.medium.memory().bytes(at + done, piece) });
                done += piece;
            }
        }
        u64::from(sum.finish()) | used.iter().map(|(_, bytes)| bytes).sum::<u64>() << 32
    }

    fn load(&self, at: u64) -> u64 {
        // SAFETY: an aligned word of the first block, as in `store`.
        unsafe { self.medium.memory().load(at) }
    }

    /// The allocation metadata.
    pub fn allocation(&self) -> Allocation<I> {
        Allocation::new(Arc::clone(&self.medium), BLOCK_BYTES, self.allocation_bytes[1])
    }

    /// Whether there is room for the allocation metadata of such values.
    pub fn has_pages(&self, pages: Pages) -> bool {
        self.allocation_bytes[1] == pages.bytes
            && self.allocation_bytes[0] >= pages.allocation_bytes()
    }

    /// Length of the file in bytes.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn file_bytes(&self) -> Result<u64> {
        self.medium.file_bytes()
    }

    /// Where the first area begins.
    pub fn areas_at(&self) -> u64 {
        BLOCK_BYTES + self.allocation_bytes[0]
    }

    /// All of its memory.
    pub fn memory(&self) -> &I {
        self.medium.memory()
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
        let (format, tables) = (get_u32(head, 8), get_u32(head, 12));
        // Before any checksum: whatever else of another version may be elsewhere.
        if &head[..8] == MAGIC && ![FORMAT_BEFORE, FORMAT].contains(&format) {
            version::check(medium.path(), "index of format", (format, FORMAT), || {
                [FORMAT_BEFORE, FORMAT].into_iter().any(|format| {
                    let mut as_ours = head[..60].to_vec();
                    put_u32(&mut as_ours, 8, format);
                    Crc::new(format).update(&as_ours).finish() == get_u32(head, 60)
                })
            })?;
            let (found, wanted) = (format.to_string(), FORMAT.to_string());
            return Err(Error::Mismatch { path: path(), field: "index format", found, wanted });
        }
        if &head[..8] != MAGIC || Crc::new(format).update(&head[..60]).finish() != get_u32(head, 60)
        {
            return Err(damaged("the head of the index does not match its checksum"));
        }
        let (seed, area_bytes) = (get_u64(head, 16), get_u64(head, 24));
        let allocation_bytes = [32, 40].map(|at| get_u64(head, at));
        let marks = [MARK_AT, NEXT_MARK_AT].map(|at| get_u64(head, at as usize));
        let areas_bytes = areas_of(tables) * area_bytes;
        if BLOCK_BYTES + allocation_bytes[0] + areas_bytes > medium.capacity_bytes() {
            let what = "the index was made for more memory than this machine has";
            return Err(damaged(what));
        }
        let _claim = medium.memory().claim(0, BLOCK_BYTES + allocation_bytes[0]);
        let medium = Arc::new(medium);
        Ok(IndexFile { medium, _claim, format, tables, seed, marks, allocation_bytes, area_bytes })
    }

    /// Gives a new file its name, as [`Medium::publish`].
    ///
    /// # Errors
    /// The errors of [`Medium::publish`].
    pub fn publish(&self) -> Result<()> {
        if self.medium.is_new() { self.medium.publish() } else { Ok(()) }
    }
}

impl<I: Divide> IndexFile<I> {
    /// The areas of each table: buckets, overflow lines.
    pub fn areas(&self) -> Vec<[Area<I>; 2]> {
        let tables = 0..u64::from(self.tables);
        tables.map(|table| [0, 1].map(|of| self.area(2 * table + of))).collect()
    }

    /// The area of leaves, if it has no tables.
    pub fn leaves(&self) -> Option<Area<I>> {
        (self.tables == 0).then(|| self.area(0))
    }

    fn area(&self, number: u64) -> Area<I> {
        Area {
            medium: Arc::clone(&self.medium),
            start: self.areas_at() + number * self.area_bytes,
            bytes: self.area_bytes,
        }
    }
}

/// Areas of so many tables, or of the leaves if there are none.
fn areas_of(tables: u32) -> u64 {
    (2 * u64::from(tables)).max(1)
}
