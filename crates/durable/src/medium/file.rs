//! The file below a medium: its length and blocks, what is written to it and synced.

use super::{BLOCK_BYTES, Disk, MediumSpec, folders, reads};
use crate::disk_budget::DiskSpace;
use crate::error::{Result, io_error};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Holes of so many bytes are not read, nor do they take memory then. More than a log has, which is read whole.
const SKIPPED_MOST: u64 = 4 << 20;

/// A file as a disk.
#[derive(Debug)]
pub struct FileDisk {
    pub(super) file: Arc<File>,
    path: PathBuf,
    /// The file is being made under another name until its head is whole.
    pub(super) is_new: bool,
    capacity_bytes: u64,
    /// Whether more of it may be used than there is.
    is_mirrored: bool,
    writes: bool,
    /// Unlocked when this is dropped, since a process that is just being started shares the file.
    #[expect(dead_code, reason = "held")]
    lock: Option<Lock>,
    syncs: Syncs,
}

/// A file that is locked, until this is dropped.
#[derive(Debug)]
struct Lock(Arc<File>);

impl Drop for Lock {
    fn drop(&mut self) {
        let _closed_anyway = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// What syncs of one file, and writes that are durable by themselves, know of each other. The kernel reports what it
/// could not write back to the one that comes first, and to no other.
#[derive(Debug)]
struct Syncs {
    /// Syncs come one after another: whoever comes later learns of the report.
    turn: Mutex<()>,
    /// Whether writes that are durable by themselves go past the page cache: whoever wrote is told then, and none
    /// waits.
    is_direct: bool,
    has_failed: AtomicBool,
}

impl Syncs {
    fn new(is_direct: bool) -> Syncs {
        Syncs { turn: Mutex::default(), is_direct, has_failed: AtomicBool::new(false) }
    }

    /// A sync, which makes durable what others wrote too.
    fn sync(&self, path: &Path, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let _turn = self.turn.lock();
        self.run(path, call)
    }

    /// A write that is durable on return.
    fn write(&self, path: &Path, call: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.is_direct {
            true => self.run(path, call),
            false => self.sync(path, call),
        }
    }

    fn run(&self, path: &Path, call: impl FnOnce() -> Result<()>) -> Result<()> {
        call().inspect_err(|_| self.has_failed.store(true, Ordering::Release))?;
        if self.has_failed.load(Ordering::Acquire) {
            let lost = io::Error::other("an earlier sync failed, and what it lost is not known");
            return Err(io_error(path, "sync")(lost));
        }
        Ok(())
    }
}

impl FileDisk {
    /// Opens the file, or makes it where it is missing and to be written.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) with the system's reason.
    pub fn open(spec: &MediumSpec) -> Result<FileDisk> {
        let path = spec.path.clone();
        let is_mirrored = !spec.domain.is_byte_addressable();
        let writes = spec.access.writes();
        let is_new = writes && !path.try_exists().map_err(io_error(&path, "look for"))?;
        let file = if is_new {
            let unnamed = name_while_new(&path);
            open_file(&unnamed, is_mirrored, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
                .map_err(io_error(&unnamed, "make"))?
        } else {
            let how = if writes { OFlags::RDWR } else { OFlags::RDONLY };
            open_file(&path, is_mirrored, how).map_err(io_error(&path, "open"))?
        };
        if writes && !is_new {
            folders::sync_to(&path)?;
        }
        let (file, is_direct) = file;
        let (file, capacity_bytes) = (Arc::new(file), spec.capacity_bytes);
        let syncs = Syncs::new(is_direct);
        Ok(FileDisk { file, path, is_new, capacity_bytes, is_mirrored, writes, lock: None, syncs })
    }

    /// The same, whose writes go to the page cache, from where they outlive the process: for who writes little at a
    /// time and does not wait for the disk each time.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) with the system's reason.
    pub fn in_page_cache(self) -> Result<FileDisk> {
        let flags = rustix::fs::fcntl_getfl(&self.file);
        flags
            .and_then(|flags| rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT))
            .map_err(|errno| io_error(&self.path, "write through the page cache")(errno.into()))?;
        Ok(FileDisk { syncs: Syncs::new(false), ..self })
    }

    /// The same, which no other handle has to write to, in this process or another.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): one has.
    pub fn locked(self) -> Result<FileDisk> {
        if !self.writes {
            return Ok(self);
        }
        rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).map_err(
            |errno| {
                io_error(&self.path, "lock, which a map or another handle on the database has")(
                    errno.into(),
                )
            },
        )?;
        Ok(FileDisk { lock: Some(Lock(Arc::clone(&self.file))), ..self })
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

    fn write_by(&self, at: u64, bytes: &[u8], flags: ReadWriteFlags) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let source = [IoSlice::new(&bytes[done..])];
            match rustix::io::pwritev2(&self.file, &source, at + done as u64, flags) {
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(io_error(&self.path, "write")(e.into())),
            }
        }
        Ok(())
    }
}

impl Disk for FileDisk {
    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn bytes(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(io_error(&self.path, "stat"))?.len())
    }

    fn grow(&self, at: u64, bytes: u64) -> Result<()> {
        // What is only read stays as long as it is: asking for what is there changes nothing.
        // Of one that is mirrored there may be more in memory.
        if !self.writes && (self.is_mirrored || at + bytes <= self.bytes()?) {
            return Ok(());
        }
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, bytes)
            .map_err(|e| io_error(&self.path, "allocate")(e.into()))
    }

    fn space(&self) -> Option<DiskSpace> {
        let found = rustix::fs::fstatvfs(&self.file).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        DiskSpace::of(bytes(found.f_blocks), bytes(found.f_bavail))
    }

    /// What was allocated and never written may count as a hole: then this says no.
    fn has_blocks(&self, at: u64, bytes: u64) -> bool {
        match rustix::fs::seek(&self.file, SeekFrom::Hole(at)) {
            Ok(hole) => hole >= at + bytes,
            Err(_) => false,
        }
    }

    fn release(&self, at: u64, bytes: u64) -> Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, hole, at, bytes) {
            // A file system without holes keeps the blocks.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(io_error(&self.path, "punch hole")(errno.into())),
        }
    }

    fn publish(&self) -> Result<()> {
        self.syncs.sync(&self.path, || {
            rustix::fs::fsync(&self.file).map_err(|e| io_error(&self.path, "sync")(e.into()))
        })?;
        folders::publish(&name_while_new(&self.path), &self.path)
    }

    fn sync(&self) -> Result<()> {
        self.syncs.sync(&self.path, || match rustix::fs::fdatasync(&self.file) {
            // A file system that is only read may not know what to sync.
            Err(Errno::INVAL | Errno::ROFS) if !self.writes => Ok(()),
            Err(errno) => Err(io_error(&self.path, "sync")(errno.into())),
            Ok(()) => Ok(()),
        })
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
                Err(Errno::INTR) => {}
                Err(e) => return Err(io_error(&self.path, "read")(e.into())),
            }
        }
        Ok(())
    }

    fn read_many(&self, pieces: &[(u64, usize)], each: &mut dyn FnMut(usize, Result<&[u8]>)) {
        reads::read_many(&self.file, pieces, each, &|at, blocks| self.read(at, blocks));
    }

    fn write(&self, at: u64, bytes: &[u8], durable: bool) -> Result<()> {
        match durable {
            true => {
                self.syncs.write(&self.path, || self.write_by(at, bytes, ReadWriteFlags::DSYNC))
            }
            false => self.write_by(at, bytes, ReadWriteFlags::empty()),
        }
    }
}

fn name_while_new(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Opens for direct I/O if asked and possible; whether it is.
fn open_file(path: &Path, direct: bool, how: OFlags) -> io::Result<(File, bool)> {
    let flags = how | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
            Ok(fd) => return Ok((fd.into(), true)),
            Err(Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok((rustix::fs::open(path, flags, mode)?.into(), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    /// The kernel has told the first of two what it could not write back, and the second one nothing, although it was
    /// the second one's. The first one is slow to say so.
    #[test]
    fn a_sync_does_not_succeed_after_another_was_told_what_it_lost() {
        let syncs = Syncs::new(false);
        let has_begun = Barrier::new(2);
        let path = Path::new("values.log");
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                syncs.sync(path, || {
                    has_begun.wait();
                    std::thread::sleep(Duration::from_millis(50));
                    Err(io_error(path, "sync")(io::Error::other("lost")))
                })
            });
            has_begun.wait();
            let told = syncs.sync(path, || Ok(())).expect_err("another's report").to_string();
            assert!(told.contains("values.log: sync: an earlier sync failed"), "{told}");
            first.join().expect("no panic").expect_err("its own");
        });
        syncs.sync(path, || Ok(())).expect_err("whenever it comes");
        Syncs::new(false).sync(path, || Ok(())).expect("nothing failed");
    }

    #[test]
    fn writes_past_the_page_cache_do_not_wait_for_each_other() {
        let syncs = Syncs::new(true);
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            let run = || {
                syncs.write(Path::new("values.log"), || {
                    both.wait();
                    Ok(())
                })
            };
            let other = scope.spawn(run);
            run().expect("durable");
            other.join().expect("no panic").expect("durable");
        });
    }
}
