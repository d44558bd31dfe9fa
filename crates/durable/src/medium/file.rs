//! The file below a medium: its length and blocks, what is written to it and synced, and for the tests
//! of this workspace a record of that, or a failure.

use super::{BLOCK_BYTES, Disk, MediumSpec, folders};
use crate::error::{Error, Result, io_error};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use terrace_memory::{Backing, Region};

/// What happened to the file, as [`Medium::start_trace`](super::Medium::start_trace) records it.
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

    /// What a power cut after `events` leaves at the least of a file that was `base`: what was safe, and nothing else.
    pub fn least_left(base: &[u8], events: &[Event]) -> Vec<u8> {
        let (mut image, synced) = (base.to_vec(), Event::synced(events));
        for (number, event) in events.iter().enumerate() {
            match event {
                Event::Grow(to) if number < synced && image.len() < *to as usize => {
                    image.resize(*to as usize, 0);
                }
                Event::Write { at, bytes, durable } if number < synced || *durable => {
                    let (at, end) = (*at as usize, *at as usize + bytes.len());
                    image.resize(image.len().max(end), 0);
                    image[at..end].copy_from_slice(bytes);
                }
                _ => {}
            }
        }
        image
    }
}

/// Holes of so many bytes are not read, nor do they take memory then. More than a log has, which is read whole.
const SKIPPED_MOST: u64 = 4 << 20;

/// A file, and the region its contents are used from.
#[derive(Debug)]
pub(super) struct ValueFile {
    file: File,
    pub(super) path: PathBuf,
    /// The file is being made under another name until its head is whole.
    pub(super) is_new: bool,
    pub(super) region: Region,
    pub(super) mirrored: bool,
    writes: bool,
    written: AtomicU64,
    syncs: AtomicU64,
    /// Writes and syncs until one fails on purpose; negative: never.
    fault_after: AtomicI64,
    /// Milliseconds that each write and sync takes on purpose.
    slowed_ms: AtomicU64,
    trace: OnceLock<Mutex<Vec<Event>>>,
}

impl ValueFile {
    pub(super) fn open(spec: &MediumSpec) -> Result<ValueFile> {
        let path = spec.path.clone();
        let mirrored = !spec.domain.is_byte_addressable();
        let writes = spec.access.writes();
        let is_new = writes && !path.try_exists().map_err(io_error(&path, "look for"))?;
        let file = if is_new {
            let unnamed = name_while_new(&path);
            open_file(&unnamed, mirrored, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
                .map_err(io_error(&unnamed, "make"))?
        } else {
            let how = if writes { OFlags::RDWR } else { OFlags::RDONLY };
            open_file(&path, mirrored, how).map_err(io_error(&path, "open"))?
        };
        let region = if mirrored {
            Region::reserve(spec.capacity_bytes, Backing::HugePages)
        } else if !spec.access.writes() {
            // SAFETY: the lock of the directory keeps writers out. Who changes a file of a database all the same breaks
            // what docs/limits.md asks.
            unsafe { Region::map_copy(&file, spec.capacity_bytes, spec.domain) }
        } else {
            // SAFETY: the same; the file is used by this medium alone.
            unsafe { Region::map_file(&file, spec.capacity_bytes, spec.dax, spec.domain) }
        };
        Ok(ValueFile {
            region: region.map_err(io_error(&path, "map"))?,
            file,
            path,
            is_new,
            mirrored,
            writes,
            written: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            fault_after: AtomicI64::new(-1),
            slowed_ms: AtomicU64::new(0),
            trace: OnceLock::new(),
        })
    }

    pub(super) fn publish(&self) -> Result<()> {
        rustix::fs::fsync(&self.file).map_err(|e| io_error(&self.path, "sync")(e.into()))?;
        folders::publish(&name_while_new(&self.path), &self.path)
    }

    pub(super) fn bytes(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(io_error(&self.path, "stat"))?.len())
    }

    pub(super) fn traffic(&self) -> (u64, u64) {
        (self.written.load(Relaxed), self.syncs.load(Relaxed))
    }

    pub(super) fn inject_write_fault(&self, writes: i64) {
        self.fault_after.store(writes, Relaxed);
    }

    pub(super) fn slow_down(&self, ms: u64) {
        self.slowed_ms.store(ms, Relaxed);
    }

    pub(super) fn start_trace(&self) {
        self.trace.get_or_init(Mutex::default);
    }

    pub(super) fn trace(&self) -> Vec<Event> {
        self.trace.get().map(|trace| trace.lock().clone()).unwrap_or_default()
    }

    pub(super) fn trace_length(&self) -> usize {
        self.trace.get().map_or(0, |trace| trace.lock().len())
    }

    fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(trace) = self.trace.get() {
            trace.lock().push(event());
        }
    }

    pub(super) fn grow(&self, at: u64, bytes: u64) -> Result<()> {
        // What is only read stays as long as it is: asking for what is there changes nothing.
        // Of one that is mirrored there may be more in memory.
        if !self.writes && (self.mirrored || at + bytes <= self.bytes()?) {
            return self.commit(at, bytes);
        }
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, bytes)
            .map_err(|e| io_error(&self.path, "allocate")(e.into()))?;
        self.record(|| Event::Grow(at + bytes));
        self.commit(at, bytes)
    }

    /// # Safety
    /// As for [`Region::release`].
    pub(super) unsafe fn release(&self, at: u64, bytes: u64) -> Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, hole, at, bytes) {
            // A file system without holes keeps the blocks; the memory can go all the same.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(io_error(&self.path, "punch hole")(errno.into())),
        }
        if self.mirrored {
            // SAFETY: by contract.
            unsafe { self.region.release(at, bytes) }
                .map_err(io_error(&self.path, "release memory"))?;
        }
        Ok(())
    }

    pub(super) fn commit(&self, at: u64, bytes: u64) -> Result<()> {
        match self.mirrored {
            true => self.region.commit(at, bytes).map_err(io_error(&self.path, "commit memory")),
            // A copy of a file that is only read has all of its memory.
            false if !self.writes => Ok(()),
            // SAFETY: the file that was mapped, as it was.
            false => unsafe { self.region.follow(&self.file) }.map_err(io_error(&self.path, "map")),
        }
    }

    /// Reads what has blocks of a large part of the file, piece by piece; holes are zero, as the memory is.
    fn read_data(&self, at: u64, image: &mut [u8]) -> Result<()> {
        for (number, piece) in image.chunks_mut(SKIPPED_MOST as usize).enumerate() {
            let at = at + number as u64 * SKIPPED_MOST;
            // A file system that does not know its holes has none.
            let is_hole = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data >= at + piece.len() as u64,
                Err(errno) => errno == Errno::NXIO,
            };
            if !is_hole {
                self.read(at, piece)?;
            }
        }
        Ok(())
    }

    fn fail_if_told(&self, doing: &'static str) -> Result<()> {
        match self.slowed_ms.load(Relaxed) {
            0 => {}
            ms => std::thread::sleep(Duration::from_millis(ms)),
        }
        if self.fault_after.load(Relaxed) >= 0 && self.fault_after.fetch_sub(1, Relaxed) == 0 {
            self.fault_after.store(0, Relaxed);
            let source = io::Error::other("injected fault");
            return Err(Error::Io { path: self.path.clone(), doing, source });
        }
        Ok(())
    }
}

impl Disk for ValueFile {
    fn capacity_bytes(&self) -> u64 {
        self.region.len()
    }

    fn sync(&self) -> Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        self.fail_if_told("sync")?;
        let covers = self.trace_length();
        match rustix::fs::fdatasync(&self.file) {
            // A file system that is only read may not know what to sync.
            Err(Errno::INVAL | Errno::ROFS) if !self.writes => {}
            synced => synced.map_err(|e| io_error(&self.path, "sync")(e.into()))?,
        }
        self.record(|| Event::Sync { covers });
        Ok(())
    }

    /// Fills `image` from the file; what lies behind its end stays.
    fn read(&self, at: u64, image: &mut [u8]) -> Result<()> {
        debug_assert!(
            at.is_multiple_of(BLOCK_BYTES) && (image.len() as u64).is_multiple_of(BLOCK_BYTES)
        );
        let mut done = 0;
        if image.len() as u64 > SKIPPED_MOST {
            return self.read_data(at, image);
        }
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

    fn write(&self, at: u64, bytes: &[u8], durable: bool) -> Result<()> {
        if durable {
            self.syncs.fetch_add(1, Relaxed);
        }
        self.fail_if_told("write")?;
        let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        let mut done = 0;
        while done < bytes.len() {
            let source = [IoSlice::new(&bytes[done..])];
            match rustix::io::pwritev2(&self.file, &source, at + done as u64, flags) {
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(io_error(&self.path, "write")(e.into())),
            }
        }
        self.written.fetch_add(bytes.len() as u64, Relaxed);
        self.record(|| Event::Write { at, bytes: bytes.to_vec(), durable });
        Ok(())
    }
}

fn name_while_new(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Opens for direct I/O if asked and possible.
fn open_file(path: &Path, direct: bool, how: OFlags) -> io::Result<File> {
    let flags = how | OFlags::CLOEXEC;
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
