//! What lies under a path: its file system, whether files there map straight onto the medium, and
//! whether reads and writes may bypass the page cache.
//!
//! A mount option promises nothing by itself. Whether a mapping is direct and its metadata durable
//! (`MAP_SYNC`), and whether `O_DIRECT` is accepted, depends on kernel, file system, device and
//! flags of the folder; so the questions are asked by doing it, on an unnamed file that vanishes by
//! itself.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::mm::{MapFlags, ProtFlags};
use serde::Serialize;

use crate::topology::{DaxOption, Mount, TopologyError};

/// Why a path's properties could not be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path, or a file in it, could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The list of mounts is damaged.
    #[error(transparent)]
    Mounts(#[from] TopologyError),
    /// No mount of the list holds the path, or there is no list.
    #[error("{}: the system does not tell which file system this is on", path.display())]
    NoMount {
        /// The path.
        path: PathBuf,
    },
}

/// The file system a path is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilesystemInfo {
    /// Its type, such as `ext4` or `tmpfs`.
    pub kind: String,
    /// What is mounted: a device node, or a word for file systems without one.
    pub device: String,
    /// Device numbers, `major:minor`, as [`Mount::numbers`].
    pub numbers: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// What the mount says about direct access; [`direct_access`] tells what is so.
    pub dax: DaxOption,
    /// Whether it is mounted read-only.
    pub read_only: bool,
}

impl FilesystemInfo {
    /// Whether its contents live in memory that the power takes with it: tmpfs, ramfs, the first root
    /// that a kernel unpacks (`rootfs`), or a memory block device.
    pub fn is_volatile(&self) -> bool {
        let memory_device = |prefix| {
            let number = self.device.strip_prefix(prefix);
            number.is_some_and(|number: &str| number.parse::<u32>().is_ok())
        };
        matches!(self.kind.as_str(), "tmpfs" | "ramfs" | "rootfs" | "devtmpfs" | "hugetlbfs")
            || memory_device("/dev/zram")
            || memory_device("/dev/ram")
    }

    /// The type and the device, as used in sentences: `ext4 on /dev/vda`.
    pub fn phrase(&self) -> String {
        if self.device.starts_with('/') {
            format!("{} on {}", self.kind, self.device)
        } else {
            format!("{} at {}", self.kind, self.mount_point.display())
        }
    }

    fn of_mount(mount: &Mount) -> Self {
        FilesystemInfo {
            kind: mount.kind.clone(),
            device: mount.device.clone(),
            numbers: mount.numbers.clone(),
            mount_point: mount.mount_point.clone(),
            dax: mount.dax,
            read_only: mount.read_only,
        }
    }
}

/// Whether a file in a folder can be mapped with `MAP_SYNC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "map_sync", content = "reason")]
pub enum MapSync {
    /// A mapping was made: written-back lines stay findable without a sync.
    Works,
    /// The kernel refused, with its words.
    Refused(String),
}

/// How directly files in a folder are mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DirectAccess {
    /// Whether a new file there is in direct-access mode (`STATX_ATTR_DAX`); `None` where the
    /// kernel does not tell.
    pub file_dax: Option<bool>,
    /// Whether `MAP_SYNC` works.
    #[serde(flatten)]
    pub map_sync: MapSync,
}

/// Whether and how reads and writes in a folder may bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DirectIo {
    /// An aligned 4 KiB write with `O_DIRECT` succeeded.
    pub accepted: bool,
    /// Alignment the memory of a transfer needs, bytes; `None` where the kernel does not tell
    /// (before Linux 6.1).
    pub memory_align_bytes: Option<u32>,
    /// Alignment its offset and length need, bytes; `None` where the kernel does not tell.
    pub offset_align_bytes: Option<u32>,
}

/// The file system of `path`, or of its nearest existing parent: a folder may be asked about before
/// it is made.
///
/// # Errors
/// [`PathError::Io`] when nothing of the path can be reached, [`PathError::NoMount`] and
/// [`PathError::Mounts`] when the list of mounts does not say.
pub fn filesystem_of(path: &Path) -> Result<FilesystemInfo, PathError> {
    let real = nearest_existing(path)?;
    let mounts = Mount::list(Path::new("/proc"))?;
    let id = mount_id(&real);
    mount_of(&mounts, &real, id)
        .map(FilesystemInfo::of_mount)
        .ok_or_else(|| PathError::NoMount { path: path.to_owned() })
}

/// Whether files in `folder` map directly and keep `MAP_SYNC`'s promise; tried on an unnamed file.
///
/// # Errors
/// [`PathError::Io`] when no file can be made there.
pub fn direct_access(folder: &Path) -> Result<DirectAccess, PathError> {
    const BYTES: usize = 4096;
    let fail = |source| PathError::Io { path: folder.to_owned(), source };
    let file = scratch_file(folder, OFlags::empty()).map_err(fail)?;
    file.set_len(BYTES as u64).map_err(fail)?;
    // A file system may decide on the mode only once the file has a block.
    file.write_all_at(&[0], 0).map_err(fail)?;
    let status = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
    let file_dax = status.ok().and_then(|status| {
        let told = status.stx_attributes_mask.contains(StatxAttributes::DAX);
        told.then(|| status.stx_attributes.contains(StatxAttributes::DAX))
    });
    Ok(DirectAccess { file_dax, map_sync: try_map_sync(&file, BYTES) })
}

/// Whether `O_DIRECT` is accepted for files in `folder`; tried with one aligned write to an unnamed
/// file.
///
/// # Errors
/// [`PathError::Io`] when no file can be made there in any way.
pub fn direct_io(folder: &Path) -> Result<DirectIo, PathError> {
    let plain = scratch_file(folder, OFlags::empty())
        .map_err(|source| PathError::Io { path: folder.to_owned(), source })?;
    let status = rustix::fs::statx(&plain, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let align = status.ok().filter(|status| {
        // A mask without the flag, or zeros, mean that the kernel does not tell.
        status.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && status.stx_dio_offset_align != 0
    });
    Ok(DirectIo {
        accepted: try_direct_write(folder).is_ok(),
        memory_align_bytes: align.map(|status| status.stx_dio_mem_align),
        offset_align_bytes: align.map(|status| status.stx_dio_offset_align),
    })
}

/// Whether `O_DIRECT` is accepted for files in `folder`; `false` also where no file can be made.
pub fn supports_direct_io(folder: &Path) -> bool {
    direct_io(folder).is_ok_and(|found| found.accepted)
}

fn try_map_sync(file: &File, bytes: usize) -> MapSync {
    // SAFETY: a fresh mapping at an address the kernel chooses, of a file nobody else has open; it
    // is not accessed.
    let mapped = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            file,
            0,
        )
    };
    match mapped {
        Ok(address) => {
            // SAFETY: exactly the mapping made above, which nothing refers to.
            let unmapped = unsafe { rustix::mm::munmap(address, bytes) };
            debug_assert!(unmapped.is_ok(), "a mapping that was made can be unmapped");
            MapSync::Works
        }
        Err(refusal) => MapSync::Refused(io::Error::from(refusal).to_string()),
    }
}

fn try_direct_write(folder: &Path) -> io::Result<()> {
    /// Aligned for every device in use.
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    static BLOCK: Block = Block([0; 4096]);
    let file = scratch_file(folder, OFlags::DIRECT)?;
    file.write_all_at(&BLOCK.0, 0)
}

/// A file of `bytes` in `folder` that has no name, so that nothing stays behind whatever happens; all of its
/// blocks are there, so that a mapping of it does not meet a full device.
///
/// # Errors
/// The kernel's: the folder cannot be written, or has not so much room.
pub fn whole_scratch_file(folder: &Path, bytes: u64) -> io::Result<File> {
    let file = scratch_file(folder, OFlags::empty())?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        // File systems that cannot set blocks aside have them once they are written.
        Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(&file, bytes)?,
        set_aside => set_aside?,
    }
    Ok(file)
}

/// Bytes that files in `folder` may still take of this process.
///
/// # Errors
/// The kernel's.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let status = rustix::fs::statvfs(folder)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// The same file opened again past the page cache, where its file system can.
///
/// # Errors
/// The kernel's; `EINVAL` of file systems without such access.
pub fn past_the_cache(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    static PIECE: [u8; 1 << 16] = [0; 1 << 16];
    (0..bytes).step_by(PIECE.len()).try_for_each(|at| {
        let left = (bytes - at).min(PIECE.len() as u64) as usize;
        file.write_all_at(&PIECE[..left], at)
    })
}

/// A file in `folder` that has no name, so that nothing stays behind whatever happens.
fn scratch_file(folder: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(folder, flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok(File::from(file)),
        // Network and older layered file systems have no unnamed files.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            named_scratch_file(folder, flags, mode)
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// A file unlinked as soon as it is made.
fn named_scratch_file(folder: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let path = folder.join(format!(".terrace-scratch-{}-{number}", std::process::id()));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    std::fs::remove_file(&path)?;
    Ok(File::from(file))
}

/// The real path of `path` or of its nearest parent that exists.
fn nearest_existing(path: &Path) -> Result<PathBuf, PathError> {
    let fail = |source| PathError::Io { path: path.to_owned(), source };
    let absolute = std::path::absolute(path).map_err(fail)?;
    for ancestor in absolute.ancestors() {
        match ancestor.canonicalize() {
            Ok(real) => return Ok(real),
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => {}
            Err(failure) => return Err(fail(failure)),
        }
    }
    Err(fail(io::ErrorKind::NotFound.into()))
}

/// The kernel's number of the mount `path` is on; `None` before Linux 5.8.
fn mount_id(path: &Path) -> Option<u64> {
    let status = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
    let told = |status: &rustix::fs::Statx| status.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    status.ok().filter(told).map(|status| status.stx_mnt_id)
}

/// The mount with number `id`; without one, the last of those whose mount point is the longest
/// prefix of `path`.
fn mount_of<'a>(mounts: &'a [Mount], path: &Path, id: Option<u64>) -> Option<&'a Mount> {
    let by_id = id.and_then(|id| mounts.iter().find(|mount| mount.id == id));
    by_id.or_else(|| {
        mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.mount_point))
            .max_by_key(|mount| mount.mount_point.as_os_str().len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, point: &str) -> Mount {
        Mount {
            id,
            kind: "ext4".to_owned(),
            device: format!("/dev/{id}"),
            numbers: format!("8:{id}"),
            mount_point: PathBuf::from(point),
            read_only: false,
            dax: DaxOption::Unstated,
        }
    }

    #[test]
    fn the_longest_and_latest_mount_holds_a_path() {
        let mounts = [mount(1, "/"), mount(2, "/data"), mount(3, "/data"), mount(4, "/data2")];
        let holder = |path: &str, id| mount_of(&mounts, Path::new(path), id).map(|mount| mount.id);
        assert_eq!(holder("/etc", None), Some(1));
        assert_eq!(holder("/data/x", None), Some(3));
        assert_eq!(holder("/data2/x", None), Some(4));
        assert_eq!(holder("/data/x", Some(2)), Some(2));
        assert_eq!(holder("/data/x", Some(99)), Some(3));
        assert_eq!(mount_of(&[], Path::new("/"), None), None);
    }

    #[test]
    fn memory_devices_are_volatile_and_disks_are_not() {
        let device = |device: &str| {
            let mut info = FilesystemInfo::of_mount(&mount(1, "/"));
            info.device = device.to_owned();
            info.is_volatile()
        };
        assert!(device("/dev/zram0") && device("/dev/ram1"));
        let mut first_root = FilesystemInfo::of_mount(&mount(1, "/"));
        first_root.kind = "rootfs".to_owned();
        assert!(first_root.is_volatile());
        assert!(!device("/dev/vda") && !device("/dev/ramdisk") && !device("/dev/pmem0"));
    }
}
