//! The medium of a value store: one file, and the memory its contents are used from.
//!
//! * **Mapped**: the file *is* the memory (persistent memory through DAX, or a tmpfs file declared
//!   byte-addressable). A store becomes durable by write-back and fence, line by line.
//! * **Mirrored**: the contents live in DRAM (huge pages) and the file on a block device holds the
//!   same bytes at the same offsets. A range becomes durable when it has been written and synced,
//!   in blocks of 4 KiB, straight from the image past the page cache where the file system allows.
//!
//! Either way an offset means the same in memory and in the file, so a location never has to be
//! translated, and recovery of a mirrored medium is reading it back.
//!
//! # What is assumed of a block device
//! A 512-byte sector is written whole or not at all; blocks written between two syncs may reach
//! the device in any order; after a sync that returned without error they are there. Rewriting a
//! block does not endanger the bytes in it that are rewritten unchanged.
//!
//! A medium is an image, the memory, and a [`Disk`]. A file is one disk; another may stand before it
//! ([`Medium::open_through`]) or in its place ([`Medium::mirrored`]), and a byte-addressable memory may have none
//! ([`Medium::over`]): what structures can be tried on, the one that crashes first of all.

mod blocks;
mod disk;
mod file;
mod folders;
mod image;
mod reads;
mod stable;
mod watched;

pub use disk::Disk;
pub use file::FileDisk;
pub use folders::make_folders;
#[doc(hidden)]
pub use folders::{FolderEvent, FolderTrace};
pub use watched::Event;

pub(crate) use blocks::Blocks;

use crate::access::Access;
use crate::disk_budget::DiskSpace;
use crate::error::{Result, io_error};
use image::Image;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::binding::{BindError, Moved, Placement};
use terrace_memory::{Backing, Claim, Domain, Memory, Native, Region};
use watched::{Watch, Watched};

/// Unit of transfer of a mirrored medium.
pub const BLOCK_BYTES: u64 = 4096;

/// How a medium is to be opened.
#[derive(Clone, Debug)]
pub struct MediumSpec {
    /// The file; made if absent and opened to be written.
    pub path: PathBuf,
    /// When a store to the file is safe: byte-addressable domains are mapped, the others mirrored.
    pub domain: Domain,
    /// Whether the file lies on a DAX mount (mapped with `MAP_SYNC`).
    pub dax: bool,
    /// Address space to reserve: the most the medium can ever hold.
    pub capacity_bytes: u64,
    /// What it is opened for. Unless that is writing, stores to memory that is the file's stay in this process, and a
    /// file must be there.
    pub access: Access,
}

/// The memory values are used from, and the disk below it.
#[derive(Debug)]
pub struct Medium<M: Memory = Native> {
    memory: M,
    capacity_bytes: u64,
    /// Up to here memory can be read: all of what is mapped, else as far as it was committed.
    usable_bytes: AtomicU64,
    image: Image,
    /// Where it is durable, if the memory alone is not.
    disk: Option<(Watched, Arc<Watch>)>,
    /// Whether it holds nothing yet.
    is_new: bool,
    access: Access,
    lifetime: u32,
}

impl Medium {
    /// Opens or makes the file and reserves its memory; nothing is read yet.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) with the system's reason.
    pub fn open(spec: &MediumSpec) -> Result<Medium> {
        Medium::open_through(spec, |file| Ok(Box::new(file)))
    }

    /// As [`Medium::open`], with what `through` puts before the file, or beside it: a replica, say.
    ///
    /// # Errors
    /// As there, and what `through` says.
    pub fn open_through(
        spec: &MediumSpec,
        through: impl FnOnce(FileDisk) -> Result<Box<dyn Disk>>,
    ) -> Result<Medium> {
        let file = FileDisk::open(spec)?;
        let image = Image::of(&file.file, spec).map_err(io_error(&spec.path, "map"))?;
        let region = image.region().expect("a file has an image");
        let (memory, capacity_bytes) = (region.native(), region.len());
        let is_new = file.is_new;
        Ok(Medium {
            memory,
            capacity_bytes,
            usable_bytes: AtomicU64::new(if image.is_mirror() { 0 } else { capacity_bytes }),
            image,
            is_new,
            access: spec.access,
            lifetime: RandomState::new().hash_one(0) as u32,
            disk: Some(Watched::new(through(file)?)),
        })
    }

    /// Takes the memory of a mirrored medium, none of which was touched yet, from a NUMA node.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) with the kernel's reason; also where the file is the memory, which
    /// lies where the file does.
    pub fn bind(&self, node: u32) -> Result<()> {
        let bound = match &self.image {
            Image::Mirror(region) => region.bind_untouched(node).map_err(std::io::Error::other),
            _ => Err(std::io::Error::other("the file is the memory, and lies where it lies")),
        };
        bound.map_err(io_error(self.path(), "bind the memory of"))
    }

    /// Where the first `bytes` bytes of its memory are.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where the kernel does not tell, and of a memory that it was
    /// [given](Medium::over): whose that is knows where it lies.
    pub fn placement(&self, bytes: u64) -> Result<Placement> {
        let found = match self.image.region() {
            Some(region) => region.placement(bytes).map_err(std::io::Error::other),
            None => Err(std::io::Error::other("it was given from elsewhere; ask its owner")),
        };
        found.map_err(io_error(self.path(), "ask for the nodes of the memory of"))
    }

    /// Mirrors `disk`, which is all there from the start; `is_new` if it holds nothing yet.
    /// `lifetime` differs from opening to opening of one disk.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) without address space for so many bytes.
    pub fn mirrored(disk: Box<dyn Disk>, is_new: bool, lifetime: u32) -> Result<Medium> {
        Medium::mirrored_as(disk, is_new, lifetime, |image| image)
    }
}

impl<M: Memory> Medium<M> {
    /// As [`Medium::mirrored`], with the image used through what `through` makes of it: a memory of the laboratory.
    ///
    /// # Errors
    /// The errors of [`Medium::mirrored`].
    ///
    /// # Panics
    /// If that has another length.
    pub fn mirrored_as(
        disk: Box<dyn Disk>,
        is_new: bool,
        lifetime: u32,
        through: impl FnOnce(Native) -> M,
    ) -> Result<Medium<M>> {
        let region = Region::reserve(disk.capacity_bytes(), Backing::Anonymous)
            .map_err(io_error(Path::new("(memory)"), "reserve"))?;
        let memory = through(region.native());
        assert!(memory.len() == region.len(), "all of the image");
        Ok(Medium {
            memory,
            capacity_bytes: region.len(),
            usable_bytes: AtomicU64::new(0),
            image: Image::Mirror(region),
            disk: Some(Watched::new(disk)),
            is_new,
            access: Access::Write,
            lifetime,
        })
    }
}

impl<M: Memory> Medium<M> {
    /// Makes the whole file usable, and of a mirrored one reads all of it into memory. Before anything else
    /// is done with the medium: what has been written to its memory is lost.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn read_all(&mut self) -> Result<()> {
        let _alone = self.claim();
        let bytes = self.file_bytes()?.next_multiple_of(BLOCK_BYTES).min(self.capacity_bytes);
        self.commit(0, bytes)?;
        // SAFETY: the medium is borrowed alone, and no structure stands on its memory (claimed).
        unsafe { self.read_in(0, bytes) }
    }

    /// A byte-addressable memory without a file, all of it there from the start; `is_new` if it
    /// holds nothing yet. `lifetime` differs from opening to opening of one memory.
    pub fn over(memory: M, is_new: bool, lifetime: u32) -> Medium<M> {
        let capacity_bytes = memory.len();
        Medium {
            capacity_bytes,
            usable_bytes: AtomicU64::new(capacity_bytes),
            memory,
            image: Image::Given,
            disk: None,
            is_new,
            access: Access::Write,
            lifetime,
        }
    }

    /// Claims all of its memory, for what is about to stand on it.
    pub(crate) fn claim(&self) -> Claim {
        self.memory.claim(0, self.memory.len())
    }

    /// The same medium, used as one that was opened for this; one that was opened to be read stays so.
    pub fn opened_for(self, access: Access) -> Medium<M> {
        let access = if self.access.writes() { access } else { self.access };
        Medium { access, ..self }
    }

    /// What it was opened for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Tells this opening of the medium from others: drawn at random where nobody gave it.
    pub fn lifetime(&self) -> u32 {
        self.lifetime
    }

    /// The memory the contents are used from.
    #[inline(always)]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Whether single lines become durable by instructions (mapped), not by writing (mirrored).
    #[inline(always)]
    pub fn is_byte_addressable(&self) -> bool {
        !self.image.is_mirror()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.disk().and_then(Disk::path).unwrap_or(Path::new("(memory)"))
    }

    /// Where a file `name` beside this one is, or would be; only of a file that is mirrored.
    pub(crate) fn companion(&self, name: &str) -> Option<PathBuf> {
        Some(self.mirror()?.path()?.with_file_name(name))
    }

    /// Whether the file was made by this opening.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Gives a new file its name, durably, with everything written so far and the folders above it.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); whether the file has its name is unknown then.
    pub fn publish(&self) -> Result<()> {
        self.disk().map_or(Ok(()), Disk::publish)
    }

    /// Most bytes the medium can hold.
    #[inline(always)]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Up to here memory can be read, whatever a location says.
    #[inline(always)]
    pub(crate) fn usable_bytes(&self) -> u64 {
        self.usable_bytes.load(Ordering::Relaxed)
    }

    /// Length of the file in bytes.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn file_bytes(&self) -> Result<u64> {
        self.disk().map_or(Ok(self.capacity_bytes), Disk::bytes)
    }

    /// Whether nothing was ever stored at `at` of a file: on some file systems a load there takes a block, and ends a
    /// process that finds none.
    pub fn is_hole(&self, at: u64) -> bool {
        let file = self.disk().and_then(Disk::path).and_then(|path| File::open(path).ok());
        // A file system that does not know its holes has none.
        file.is_some_and(|file| match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data > at,
            Err(errno) => errno == Errno::NXIO,
        })
    }

    /// Bytes written to the disk and syncs done since it was opened.
    pub fn traffic(&self) -> (u64, u64) {
        self.watch().map_or((0, 0), Watch::traffic)
    }

    /// Lets the write or sync after `writes` more fail, as a broken disk would.
    #[doc(hidden)]
    pub fn inject_write_fault(&self, writes: i64) {
        self.watch().into_iter().for_each(|watch| watch.inject_write_fault(writes));
    }

    /// Lets the read after `reads` more, beside those of recovery, fail, and each one after it; negative: none.
    #[doc(hidden)]
    pub fn inject_read_fault(&self, reads: i64) {
        self.watch().into_iter().for_each(|watch| watch.inject_read_fault(reads));
    }

    /// Lets each write and sync take so much longer, as a slow disk would.
    #[doc(hidden)]
    pub fn slow_down(&self, ms: u64) {
        self.watch().into_iter().for_each(|watch| watch.slow_down(ms));
    }

    /// The same of each read from the disk, or of many as one.
    #[doc(hidden)]
    pub fn slow_down_reads(&self, ms: u64) {
        self.watch().into_iter().for_each(|watch| watch.slow_down_reads(ms));
    }

    /// From here on records every write and sync, so that the states a power cut could leave
    /// behind can be built. An event is recorded when it has happened.
    #[doc(hidden)]
    pub fn start_trace(&self) {
        self.watch().into_iter().for_each(Watch::start_trace);
    }

    /// The events so far.
    #[doc(hidden)]
    pub fn trace(&self) -> Vec<Event> {
        self.watch().map(Watch::trace).unwrap_or_default()
    }

    /// How many events there are so far.
    #[doc(hidden)]
    pub fn trace_length(&self) -> usize {
        self.watch().map_or(0, Watch::trace_length)
    }

    /// Makes `[at, at + bytes)` usable: memory committed, the file long enough and its blocks
    /// allocated, so that a later write cannot run out of space. What the file does not yet hold
    /// reads as zero.
    ///
    /// # Errors
    /// [`Error::DiskFull`](crate::Error::DiskFull), [`Error::Io`](crate::Error::Io); nothing is
    /// changed then that matters.
    pub fn grow(&self, at: u64, bytes: u64) -> Result<()> {
        self.disk().map_or(Ok(()), |disk| disk.grow(at, bytes))?;
        self.commit(at, bytes)
    }

    /// How much room is left on the file system of the file; none where that is not known.
    pub(crate) fn disk_space(&self) -> Option<DiskSpace> {
        self.disk().and_then(Disk::space)
    }

    /// Whether it is known that growing `[at, at + bytes)` needs no new blocks.
    pub(crate) fn has_blocks(&self, at: u64, bytes: u64) -> bool {
        self.disk().is_some_and(|disk| disk.has_blocks(at, bytes))
    }

    /// Gives memory and disk blocks of `[at, at + bytes)` back; both read as zero until
    /// [`Medium::grow`] makes the range usable again.
    ///
    /// # Safety
    /// Nobody reads or writes the range meanwhile, or borrows it.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub unsafe fn release(&self, at: u64, bytes: u64) -> Result<()> {
        self.disk().map_or(Ok(()), |disk| disk.release(at, bytes))?;
        // SAFETY: by contract.
        unsafe { self.release_memory(at, bytes) }
    }

    /// Gives the memory of `[at, at + bytes)` back, which reads as zero then; the file keeps it.
    ///
    /// # Safety
    /// Nobody reads or writes the range meanwhile, or borrows it.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) unsafe fn release_memory(&self, at: u64, bytes: u64) -> Result<()> {
        // SAFETY: by contract.
        let released = unsafe { self.image.release(at, bytes) };
        released.map_err(io_error(self.path(), "release memory"))
    }

    /// Moves what is present of `[at, at + bytes)` to a NUMA node, while others may read and write it.
    ///
    /// # Errors
    /// The kernel's reason; some pages may have moved.
    pub(crate) fn move_to_node(
        &self,
        at: u64,
        bytes: u64,
        node: u32,
    ) -> std::result::Result<Moved, BindError> {
        self.image.move_to_node(at, bytes, node)
    }

    /// Commits memory for a part of the file that exists.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn commit(&self, at: u64, bytes: u64) -> Result<()> {
        self.image.commit(at, bytes).map_err(io_error(self.path(), "commit memory"))?;
        self.is_usable(at + bytes);
        Ok(())
    }

    fn is_usable(&self, end: u64) {
        self.usable_bytes.fetch_max(end.min(self.capacity_bytes), Ordering::Release);
    }

    fn disk(&self) -> Option<&dyn Disk> {
        self.disk.as_ref().map(|(disk, _)| disk as &dyn Disk)
    }

    fn watch(&self) -> Option<&Watch> {
        self.disk.as_ref().map(|(_, watch)| &**watch)
    }

    /// The disk, if it is mirrored in memory.
    fn mirror(&self) -> Option<&dyn Disk> {
        self.disk().filter(|_| self.image.is_mirror())
    }

    /// Overwrites `[at, at + bytes)` of the file, not the memory, with zeros, unsynced: blocks
    /// that have been written once are cheaper to sync than blocks only allocated.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn write_zeros(&self, at: u64, bytes: u64) -> Result<()> {
        self.mirror().map_or(Ok(()), |disk| disk.write_zeros(at, bytes))
    }

    /// Writes the blocks that hold `[at, at + bytes)` to the file. With `durable`, they are safe
    /// on return. Bytes around the range in the same blocks are written as they are: whoever
    /// changes them later writes them again. All of it goes out as a copy, since others may change it meanwhile: a file
    /// system that checksums a block may read it twice.
    ///
    /// On a byte-addressable medium the range is written back and fenced instead.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): what is on the medium is unknown then.
    ///
    /// # Panics
    /// If not all of the range was made usable.
    pub fn write_out(&self, at: u64, bytes: u64, durable: bool) -> Result<()> {
        self.write_blocks(at, bytes, durable, true)
    }

    /// The same of a range that nobody writes meanwhile: of it the first and the last block alone go out as copies, if
    /// they hold other bytes too.
    ///
    /// # Safety
    /// Nobody writes the range meanwhile.
    ///
    /// # Errors
    /// As [`Medium::write_out`].
    pub(crate) unsafe fn write_out_at_rest(
        &self,
        at: u64,
        bytes: u64,
        durable: bool,
    ) -> Result<()> {
        self.write_blocks(at, bytes, durable, false)
    }

    /// By copies, or, of a range at rest, as it is but for the blocks that it shares with others.
    fn write_blocks(&self, at: u64, bytes: u64, durable: bool, by_copies: bool) -> Result<()> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.usable_bytes());
        let end = end.expect("what is written out was made usable");
        let Some(disk) = self.mirror() else {
            // SAFETY: usable (checked).
            unsafe { self.memory.persist(at, bytes) };
            return Ok(());
        };
        let (from, to) = (at / BLOCK_BYTES * BLOCK_BYTES, end.next_multiple_of(BLOCK_BYTES));
        // Of a long range at rest, only the blocks that it shares with others are copied.
        let (first, last) = match by_copies || to - from <= stable::MOST_BYTES {
            true => (to, to),
            false => (at.next_multiple_of(BLOCK_BYTES), end / BLOCK_BYTES * BLOCK_BYTES),
        };
        let pieces = (from..first).step_by(stable::MOST_BYTES as usize);
        let pieces = pieces.map(|from| (from, first.min(from + stable::MOST_BYTES), true));
        let parts = pieces.chain([(first, last, false), (last, to, true)]);
        let parts: Vec<_> = parts.filter(|(from, to, _)| from < to).collect();
        let in_one = parts.len() == 1;
        for (from, to, is_copied) in parts {
            let write = |image: &[u8]| disk.write(from, image, durable && in_one);
            match is_copied {
                // SAFETY: usable (checked); a copy is taken of what others may change.
                true => unsafe { stable::copied(&self.memory, from, to, write)? },
                // SAFETY: usable (checked); blocks that are not shared are at rest, says who calls.
                false => write(unsafe { self.memory.bytes(from, to - from) })?,
            }
        }
        if durable && !in_one {
            disk.sync()?;
        }
        Ok(())
    }

    /// Everything written out before is safe on return.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): what is on the medium is unknown then.
    pub fn sync(&self) -> Result<()> {
        self.mirror().map_or(Ok(()), Disk::sync)
    }

    /// Reads the blocks of `[at, at + bytes)` from the file into memory that was committed.
    ///
    /// # Safety
    /// Nobody else may use that memory meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); a file that ends early reads as zero there.
    pub unsafe fn read_in(&self, at: u64, bytes: u64) -> Result<()> {
        let Some((disk, region)) = self.mirror().zip(self.image.region()) else { return Ok(()) };
        // SAFETY: committed and, by this function's contract, ours alone.
        disk.read(at, unsafe { region.exclusive(at, bytes) })
    }
}

impl<M: Memory> Medium<M> {
    /// Reads whole blocks from the file into memory of its own; what the file does not have reads as zero.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn read_apart(&self, at: u64, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        self.mirror().map_or(Ok(()), |disk| disk.read(at, into))
    }

    /// Writes whole blocks to the file that are not in its memory. What is in its memory there is not written.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): what is on the medium there is unknown then.
    pub(crate) fn write_apart(&self, at: u64, blocks: &[u8]) -> Result<()> {
        self.mirror().map_or(Ok(()), |disk| disk.write(at, blocks, false))
    }

    /// Reads many pieces of whole blocks, each an offset and how many bytes, together as far as the disk can. Tells
    /// `each` of every one, in the order in which they come.
    pub(crate) fn read_many(
        &self,
        pieces: &[(u64, usize)],
        each: &mut dyn FnMut(usize, Result<&[u8]>),
    ) {
        self.mirror().into_iter().for_each(|disk| disk.read_many(pieces, each));
    }
}

#[cfg(test)]
mod tests;
