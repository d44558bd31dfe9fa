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

use crate::error::{Error, Result, io_error};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use terrace_memory::{Backing, Domain, Memory, Native, Region};

/// Unit of transfer of a mirrored medium.
pub const BLOCK_BYTES: u64 = 4096;

/// How a medium is to be opened.
#[derive(Clone, Debug)]
pub struct MediumSpec {
    /// The file; made if absent.
    pub path: PathBuf,
    /// When a store to the file is safe: byte-addressable domains are mapped, the others mirrored.
    pub domain: Domain,
    /// Whether the file lies on a DAX mount (mapped with `MAP_SYNC`).
    pub dax: bool,
    /// Address space to reserve: the most the medium can ever hold.
    pub capacity_bytes: u64,
}

/// A file and the memory its contents are used from.
#[derive(Debug)]
pub struct Medium {
    file: File,
    path: PathBuf,
    /// The file is being made under another name until its head is whole.
    is_new: bool,
    native: Native,
    region: Region,
    mirrored: bool,
    written: AtomicU64,
    syncs: AtomicU64,
    /// Writes and syncs until one fails on purpose; negative: never. For the fault tests of this workspace.
    fault_after: AtomicI64,
    trace: OnceLock<Mutex<Vec<Event>>>,
}

/// What happened to the file, as [`Medium::start_trace`] records it.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes were written at an offset; with `durable`, they are safe once it is recorded.
    Write {
        /// Offset in the file.
        at: u64,
        /// What was written.
        bytes: Vec<u8>,
        /// Whether the write was synced by itself.
        durable: bool,
    },
    /// The file was made at least this long; safe after the next sync.
    Grow(u64),
    /// A sync has returned: the first `covers` events, those before it began, are safe.
    Sync {
        /// Their number.
        covers: usize,
    },
}

impl Event {
    /// How many of `events`, from the first on, their syncs made safe.
    pub fn synced(events: &[Event]) -> usize {
        let covered = |event: &Event| match event {
            Event::Sync { covers } => Some(*covers),
            _ => None,
        };
        events.iter().filter_map(covered).max().unwrap_or(0)
    }
}

impl Medium {
    /// Opens or makes the file and reserves its memory; nothing is read yet.
    ///
    /// # Errors
    /// [`Error::Io`] with the system's reason.
    pub fn open(spec: &MediumSpec) -> Result<Medium> {
        let path = spec.path.clone();
        let mirrored = !spec.domain.is_byte_addressable();
        let is_new = !path.try_exists().map_err(io_error(&path, "look for"))?;
        let file = if is_new {
            let unnamed = name_while_new(&path);
            open_file(&unnamed, mirrored, OFlags::CREATE | OFlags::TRUNC)
                .map_err(io_error(&unnamed, "make"))?
        } else {
            open_file(&path, mirrored, OFlags::empty()).map_err(io_error(&path, "open"))?
        };
        let region = if mirrored {
            Region::reserve(spec.capacity_bytes, Backing::HugePages)
        } else {
            Region::map_file(&file, spec.capacity_bytes, spec.dax, spec.domain)
        };
        let region = region.map_err(io_error(&path, "map"))?;
        let native = region.native();
        Ok(Medium {
            file,
            path,
            is_new,
            native,
            region,
            mirrored,
            written: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            fault_after: AtomicI64::new(-1),
            trace: OnceLock::new(),
        })
    }

    /// The memory the contents are used from.
    #[inline(always)]
    pub fn memory(&self) -> &Native {
        &self.native
    }

    /// Whether single lines become durable by instructions (mapped), not by writing (mirrored).
    pub fn is_byte_addressable(&self) -> bool {
        !self.mirrored
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was made by this opening.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Gives a new file its name, durably, with everything written so far.
    ///
    /// # Errors
    /// [`Error::Io`]; the file does not exist then.
    pub fn publish(&self) -> Result<()> {
        rustix::fs::fsync(&self.file).map_err(|e| io_error(&self.path, "sync")(e.into()))?;
        std::fs::rename(name_while_new(&self.path), &self.path)
            .map_err(io_error(&self.path, "name"))?;
        let parent =
            self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|d| d.sync_all()).map_err(io_error(parent, "sync directory"))
    }

    /// Most bytes the medium can hold.
    pub fn capacity_bytes(&self) -> u64 {
        self.region.len()
    }

    /// Length of the file in bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn file_bytes(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(io_error(&self.path, "stat"))?.len())
    }

    /// Bytes written to the file and syncs done since it was opened.
    pub fn traffic(&self) -> (u64, u64) {
        (self.written.load(Relaxed), self.syncs.load(Relaxed))
    }

    /// Lets the write after `writes` more fail, as a broken disk would.
    #[doc(hidden)]
    pub fn inject_write_fault(&self, writes: i64) {
        self.fault_after.store(writes, Relaxed);
    }

    /// From here on records every write and sync, so that the states a power cut could leave
    /// behind can be built. An event is recorded when it has happened.
    #[doc(hidden)]
    pub fn start_trace(&self) {
        self.trace.get_or_init(Mutex::default);
    }

    /// The events so far.
    #[doc(hidden)]
    pub fn trace(&self) -> Vec<Event> {
        self.trace.get().map(|trace| trace.lock().clone()).unwrap_or_default()
    }

    /// How many events there are so far.
    #[doc(hidden)]
    pub fn trace_length(&self) -> usize {
        self.trace.get().map_or(0, |trace| trace.lock().len())
    }

    fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(trace) = self.trace.get() {
            trace.lock().push(event());
        }
    }

    /// Makes `[at, at + bytes)` usable: memory committed, the file long enough and its blocks
    /// allocated, so that a later write cannot run out of space. What the file does not yet hold
    /// reads as zero.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]; nothing is changed then that matters.
    pub fn grow(&self, at: u64, bytes: u64) -> Result<()> {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, bytes)
            .map_err(|e| io_error(&self.path, "allocate")(e.into()))?;
        self.record(|| Event::Grow(at + bytes));
        self.commit(at, bytes)
    }

    /// Gives memory and disk blocks of `[at, at + bytes)` back; both read as zero until
    /// [`Medium::grow`] makes the range usable again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn release(&self, at: u64, bytes: u64) -> Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, hole, at, bytes) {
            // A file system without holes keeps the blocks; the memory can go all the same.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(io_error(&self.path, "punch hole")(errno.into())),
        }
        if self.mirrored {
            self.region.release(at, bytes).map_err(io_error(&self.path, "release memory"))?;
        }
        Ok(())
    }

    /// Commits memory for a part of the file that exists.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn commit(&self, at: u64, bytes: u64) -> Result<()> {
        if self.mirrored {
            self.region.commit(at, bytes).map_err(io_error(&self.path, "commit memory"))?;
        }
        Ok(())
    }

    /// Overwrites `[at, at + bytes)` of the file, not the memory, with zeros, unsynced: blocks
    /// that have been written once are cheaper to sync than blocks only allocated.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_zeros(&self, at: u64, bytes: u64) -> Result<()> {
        if !self.mirrored {
            return Ok(());
        }
        #[repr(align(4096))]
        struct Zeros([u8; 1 << 18]);
        static ZEROS: Zeros = Zeros([0; 1 << 18]);
        let mut done = 0;
        while done < bytes {
            let step = (bytes - done).min(1 << 18) as usize;
            self.pwrite(at + done, &ZEROS.0[..step], ReadWriteFlags::empty())?;
            done += step as u64;
        }
        Ok(())
    }

    /// Writes the blocks that hold `[at, at + bytes)` to the file. With `durable`, they are safe
    /// on return. Bytes around the range in the same blocks are written as they are: whoever
    /// changes them later writes them again.
    ///
    /// On a byte-addressable medium the range is written back and fenced instead.
    ///
    /// # Errors
    /// [`Error::Io`]: what is on the medium is unknown then.
    pub fn write_out(&self, at: u64, bytes: u64, durable: bool) -> Result<()> {
        if !self.mirrored {
            // SAFETY: callers write out what they committed before.
            unsafe { self.native.persist(at, bytes) };
            return Ok(());
        }
        let from = at / BLOCK_BYTES * BLOCK_BYTES;
        let to = (at + bytes).next_multiple_of(BLOCK_BYTES);
        // SAFETY: committed by the caller. Others may append behind `at + bytes` in the last
        // block meanwhile; the kernel copies or transfers whatever it finds, and those bytes are
        // written again before anyone relies on them.
        let image = unsafe { self.native.bytes(from, to - from) };
        let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        if durable {
            self.syncs.fetch_add(1, Relaxed);
        }
        self.pwrite(from, image, flags)
    }

    /// Everything written out before is safe on return.
    ///
    /// # Errors
    /// [`Error::Io`]: what is on the medium is unknown then.
    pub fn sync(&self) -> Result<()> {
        if !self.mirrored {
            return Ok(());
        }
        self.syncs.fetch_add(1, Relaxed);
        self.fail_if_told("sync")?;
        let covers = self.trace_length();
        rustix::fs::fdatasync(&self.file).map_err(|e| io_error(&self.path, "sync")(e.into()))?;
        self.record(|| Event::Sync { covers });
        Ok(())
    }

    /// Reads the blocks of `[at, at + bytes)` from the file into memory that was committed.
    ///
    /// # Safety
    /// Nobody else may use that memory meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`]; a file that ends early reads as zero there.
    pub unsafe fn read_in(&self, at: u64, bytes: u64) -> Result<()> {
        if !self.mirrored {
            return Ok(());
        }
        debug_assert!(at.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES));
        // SAFETY: committed and, by this function's contract, ours alone.
        let image = unsafe {
            let start = self.native.bytes(at, bytes).as_ptr().cast_mut();
            std::slice::from_raw_parts_mut(start, bytes as usize)
        };
        let mut done = 0;
        while done < image.len() {
            let mut target = [IoSliceMut::new(&mut image[done..])];
            match rustix::io::preadv(&self.file, &mut target, at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io_error(&self.path, "read")(e.into())),
            }
        }
        Ok(())
    }

    fn fail_if_told(&self, doing: &'static str) -> Result<()> {
        if self.fault_after.load(Relaxed) >= 0 && self.fault_after.fetch_sub(1, Relaxed) == 0 {
            self.fault_after.store(0, Relaxed);
            let source = io::Error::other("injected fault");
            return Err(Error::Io { path: self.path.clone(), doing, source });
        }
        Ok(())
    }

    fn pwrite(&self, at: u64, bytes: &[u8], flags: ReadWriteFlags) -> Result<()> {
        self.fail_if_told("write")?;
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwritev2(
                &self.file,
                &[IoSlice::new(&bytes[done..])],
                at + done as u64,
                flags,
            ) {
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io_error(&self.path, "write")(e.into())),
            }
        }
        self.written.fetch_add(bytes.len() as u64, Relaxed);
        self.record(|| Event::Write {
            at,
            bytes: bytes.to_vec(),
            durable: flags == ReadWriteFlags::DSYNC,
        });
        Ok(())
    }
}

fn name_while_new(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Opens for direct I/O if asked and possible.
fn open_file(path: &Path, direct: bool, making: OFlags) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | making;
    let mode = Mode::RUSR | Mode::WUSR;
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
            Ok(fd) => return Ok(fd.into()),
            Err(rustix::io::Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(rustix::fs::open(path, flags, mode)?.into())
}
