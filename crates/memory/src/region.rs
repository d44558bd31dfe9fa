//! Regions: ranges of address space with a known backing and persistence domain.
//!
//! A region reserves its whole range up front and commits parts of it later, so a structure can
//! grow in place and its offsets stay valid; nothing is ever remapped under a reader.

use crate::claim::Claims;
use crate::domain::Domain;
use crate::native::Native;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What stands behind a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory in base pages.
    Anonymous,
    /// Anonymous memory in transparent huge pages where the kernel grants them.
    HugePages,
    /// A file through the page cache.
    File,
    /// A file on a DAX file system, mapped with `MAP_SYNC`.
    Dax,
}

/// A mapped range. Unmapped when it and every [`Native`] of it are dropped.
#[derive(Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
    backing: Backing,
    domain: Domain,
    /// Bytes from the start that a file stands behind; all of them where none does.
    of_file: Mutex<u64>,
}

/// A range of addresses that the kernel gave; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: u64,
    claims: Arc<Claims>,
}

// SAFETY: a mapping is a range of addresses; access to its contents goes through `Memory`, whose
// contracts govern sharing.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Where it begins, and its length.
    pub(crate) fn range(&self) -> (NonNull<u8>, u64) {
        (self.base, self.bytes)
    }

    /// What structures have of it.
    pub(crate) fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// Where `[at, at + bytes)` begins.
    ///
    /// # Panics
    /// If that is not inside.
    fn at(&self, at: u64, bytes: u64) -> *mut u8 {
        let end = at.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{at} + {bytes} is inside the region");
        // SAFETY: inside the mapping (asserted).
        unsafe { self.base.as_ptr().add(at as usize) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping alone, unmapped once; nobody has a `Native` of it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes as usize) };
        debug_assert!(unmapped.is_ok(), "a mapping that was made can be unmapped");
    }
}

impl Region {
    fn of(base: NonNull<u8>, bytes: u64, backing: Backing, domain: Domain) -> Region {
        let mapping = Arc::new(Mapping { base, bytes, claims: Arc::default() });
        Region { mapping, backing, domain, of_file: Mutex::new(bytes) }
    }

    /// Reserves `bytes` of address space; nothing is accessible until [`Region::commit`].
    ///
    /// # Errors
    /// The kernel's, when there is no such range.
    pub fn reserve(bytes: u64, backing: Backing) -> io::Result<Region> {
        assert!(
            matches!(backing, Backing::Anonymous | Backing::HugePages),
            "files are mapped whole"
        );
        Region::anonymous(bytes, ProtFlags::empty(), backing, Domain::None)
    }

    /// Anonymous memory from a huge-page boundary on, so that every huge page of the range can be one.
    fn anonymous(
        bytes: u64,
        protection: ProtFlags,
        backing: Backing,
        domain: Domain,
    ) -> io::Result<Region> {
        let align = 2 << 20;
        let bytes = bytes.next_multiple_of(page_bytes());
        let total = bytes + align;
        // SAFETY: a fresh private mapping chosen by the kernel overlaps nothing.
        let raw = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                total as usize,
                protection,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let lead = (raw as usize).next_multiple_of(align as usize) - raw as usize;
        let trail = align as usize - lead;
        // SAFETY: both pieces lie inside the mapping just made and are never used.
        unsafe {
            if lead > 0 {
                rustix::mm::munmap(raw, lead)?;
            }
            if trail > 0 {
                rustix::mm::munmap(raw.byte_add(lead + bytes as usize), trail)?;
            }
        }
        // SAFETY: mmap never returns null on success.
        let base = unsafe { NonNull::new_unchecked(raw.cast::<u8>().add(lead)) };
        Ok(Region::of(base, bytes, backing, domain))
    }

    /// Makes `[at, at + bytes)` readable and writable; it reads as zero. Idempotent.
    ///
    /// # Errors
    /// The kernel's, when it refuses the memory.
    pub fn commit(&self, at: u64, bytes: u64) -> io::Result<()> {
        let start = self.mapping.at(at, bytes).cast();
        // SAFETY: the range lies inside this region's own mapping.
        unsafe {
            rustix::mm::mprotect(
                start,
                bytes as usize,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )?;
            if self.backing == Backing::HugePages {
                // A hint: a kernel without huge pages refuses it and base pages serve.
                let _refused = rustix::mm::madvise(start, bytes as usize, Advice::LinuxHugepage);
            }
        }
        Ok(())
    }

    /// Gives the memory of `[at, at + bytes)` back to the system; it reads as zero afterwards.
    ///
    /// # Safety
    /// Nobody borrows the range or writes there meanwhile, and nobody relies on what is read there: a load of a word
    /// sees what was there or zero.
    ///
    /// # Errors
    /// The kernel's.
    pub unsafe fn release(&self, at: u64, bytes: u64) -> io::Result<()> {
        let start = self.mapping.at(at, bytes).cast();
        // SAFETY: the range lies inside this region's own mapping, and by contract nobody relies on its contents.
        unsafe { rustix::mm::madvise(start, bytes as usize, Advice::LinuxDontNeed)? };
        Ok(())
    }

    /// The same region, declared to be of `domain`: emulated memory, which this machine lacks. What
    /// is written for such memory runs on it; nothing survives.
    #[must_use]
    pub fn declared(mut self, domain: Domain) -> Region {
        self.domain = domain;
        self
    }

    /// Commits `[at, at + bytes)` and brings its pages in, so that no later access waits for the
    /// kernel.
    ///
    /// # Errors
    /// The kernel's, when there is not so much memory.
    pub fn populate(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.commit(at, bytes)?;
        let start = self.mapping.at(at, bytes).cast();
        // SAFETY: the range lies inside this region's own mapping; what it holds is not changed.
        unsafe { rustix::mm::madvise(start, bytes as usize, Advice::LinuxPopulateWrite)? };
        Ok(())
    }

    /// The bytes of `[at, at + bytes)`, committed.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] while there is a [`Native`] of this region; as [`Region::commit`].
    pub fn bytes_mut(&mut self, at: u64, bytes: u64) -> io::Result<&mut [u8]> {
        self.commit(at, bytes)?;
        let Some(mapping) = Arc::get_mut(&mut self.mapping) else {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the region is in use; drop what stands on it first",
            ));
        };
        let start = mapping.at(at, bytes);
        // SAFETY: inside the mapping, readable and writable since it is committed, and borrowed from its only
        // owner: nobody else can reach it (`get_mut`).
        Ok(unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) })
    }

    /// The bytes of `[at, at + bytes)`, while structures may stand on others of this region.
    ///
    /// # Safety
    /// The range is committed, and nobody else reads, writes or borrows it for as long as this borrow lasts.
    #[expect(
        clippy::mut_from_ref,
        reason = "that nobody else has the range is the caller's promise"
    )]
    pub unsafe fn exclusive(&self, at: u64, bytes: u64) -> &mut [u8] {
        // SAFETY: inside the mapping, committed, and the caller's alone, by contract.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.at(at, bytes), bytes as usize) }
    }

    /// Maps `bytes` of `file` shared. With `dax`, the mapping is `MAP_SYNC`: once a line is
    /// written back, no file-system metadata is needed to find it again.
    ///
    /// What lies behind the end of the file, up to `bytes`, reads as zero and cannot be written until the file is
    /// longer and [`Region::follow`] says so: a file that is shorter than its reader believes raises no signal. One
    /// that others shorten while it is mapped does; nothing in a process can prevent that.
    ///
    /// ```compile_fail,E0133
    /// # let file = std::fs::File::open("/dev/null").unwrap();
    /// terrace_memory::Region::map_file(&file, 4096, false, terrace_memory::Domain::None);
    /// ```
    ///
    /// # Safety
    /// Nobody shortens the file while it is mapped, or changes it but through mappings whose users agree with this
    /// one's. [`Region::unnamed_file`] is the safe way to a file that nobody else can find.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` when `dax` is asked of a file that is not on a DAX mount.
    pub unsafe fn map_file(
        file: &File,
        bytes: u64,
        dax: bool,
        domain: Domain,
    ) -> io::Result<Region> {
        let backing = if dax { Backing::Dax } else { Backing::File };
        let region = Region::anonymous(bytes, ProtFlags::READ, backing, domain)?;
        *region.of_file.lock().expect("no mapping panicked") = 0;
        // SAFETY: by contract.
        unsafe { region.follow(file)? };
        Ok(region)
    }

    /// Maps a new file of `bytes` zeros in `folder` that has no name: nobody else can change or shorten it, and it goes
    /// with the mapping.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unnamed_file(folder: &Path, bytes: u64, domain: Domain) -> io::Result<Region> {
        let file = tempfile_in(folder)?;
        file.set_len(bytes)?;
        // SAFETY: nobody else has the file, or can open it by a name.
        unsafe { Region::map_file(&file, bytes, false, domain) }
    }

    /// Maps what the file has grown by since it was mapped, as far as the region reaches. Idempotent.
    ///
    /// # Safety
    /// As for [`Region::map_file`]; it is the same file.
    ///
    /// # Errors
    /// The kernel's.
    pub unsafe fn follow(&self, file: &File) -> io::Result<()> {
        const MAP_SYNC: u32 = 0x8_0000;
        let flags = match self.backing {
            Backing::Dax => MapFlags::SHARED_VALIDATE | MapFlags::from_bits_retain(MAP_SYNC),
            _ => MapFlags::SHARED,
        };
        self.map_to_end_of(file, flags)
    }

    /// Maps `bytes` of `file` for looking: what is stored stays in this process. What lies behind the end of the
    /// file reads as zero.
    ///
    /// # Safety
    /// Nobody changes or shortens the file while it is mapped.
    ///
    /// # Errors
    /// The kernel's.
    pub unsafe fn map_copy(file: &File, bytes: u64, domain: Domain) -> io::Result<Region> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let region = Region::anonymous(bytes, both, Backing::File, domain)?;
        *region.of_file.lock().expect("no mapping panicked") = 0;
        // No room is set aside for pages that are stored to: they are few.
        region.map_to_end_of(file, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        Ok(region)
    }

    fn map_to_end_of(&self, file: &File, flags: MapFlags) -> io::Result<()> {
        let mut from = self.of_file.lock().expect("no mapping panicked");
        let to = file.metadata()?.len().next_multiple_of(page_bytes()).min(self.len());
        if to <= *from {
            return Ok(());
        }
        // SAFETY: inside this region's own mapping, in a part of it that was not mapped to the file yet: nobody has
        // stored anything there, and who reads there meanwhile reads zeros or the file.
        unsafe {
            rustix::mm::mmap(
                self.mapping.at(*from, to - *from).cast(),
                (to - *from) as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                flags | MapFlags::FIXED,
                file,
                *from,
            )?;
        }
        *from = to;
        Ok(())
    }

    /// Binds the region to NUMA node `node`, verified page by page; what is committed later
    /// follows.
    ///
    /// # Errors
    /// [`BindError`](crate::binding::BindError) names node and reason.
    pub fn bind(&self, node: u32) -> Result<crate::binding::Placement, crate::binding::BindError> {
        crate::binding::bind_to_node(self.mapping.base.as_ptr(), self.mapping.bytes as usize, node)
    }

    /// The same for a region of which nothing was touched yet, however large: no page is looked at.
    ///
    /// # Errors
    /// As [`Region::bind`].
    pub fn bind_untouched(&self, node: u32) -> Result<(), crate::binding::BindError> {
        crate::binding::bind_untouched(
            self.mapping.base.as_ptr(),
            self.mapping.bytes as usize,
            node,
        )
    }

    /// Moves what is present of `[at, at + bytes)` to NUMA node `node`, at the same addresses, also while others read
    /// and write there.
    ///
    /// # Errors
    /// As [`move_to_node`](crate::binding::move_to_node).
    ///
    /// # Panics
    /// If the range is not inside the region.
    pub fn move_to_node(
        &self,
        at: u64,
        bytes: u64,
        node: u32,
    ) -> Result<crate::binding::Moved, crate::binding::BindError> {
        crate::binding::move_to_node(self.mapping.at(at, bytes), bytes as usize, node)
    }

    /// Where its first `bytes` bytes are.
    ///
    /// # Errors
    /// [`BindError`](crate::binding::BindError) where the kernel does not tell.
    pub fn placement(
        &self,
        bytes: u64,
    ) -> Result<crate::binding::Placement, crate::binding::BindError> {
        crate::binding::placement(self.mapping.base.as_ptr(), bytes.min(self.len()) as usize)
    }

    /// Bytes of it that are in huge pages; `None` where the system does not tell
    /// (`/proc/self/smaps`).
    pub fn huge_bytes(&self) -> Option<u64> {
        let start = self.mapping.base.as_ptr() as u64;
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        Some(huge_bytes_of(&smaps, start..start + self.len()))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.mapping.bytes
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.mapping.bytes == 0
    }

    /// What stands behind it.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// When its contents are safe.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The memory of this region. It stays mapped for as long as that, or the region, lives.
    pub fn native(&self) -> Native {
        Native::of(&self.mapping, self.domain)
    }
}

/// Bytes in huge pages of the mappings that share a part with `range`, at most as many as that part has, of the text
/// of `/proc/self/smaps`: each mapping is a line `FROM-TO ...` in hexadecimal, followed by lines `Name: KIB kB`.
fn huge_bytes_of(smaps: &str, range: std::ops::Range<u64>) -> u64 {
    let (mut shared, mut huge) = (0, 0);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        if let Some((from, to)) = first.split_once('-') {
            let bounds = hex(from).zip(hex(to)).unwrap_or_default();
            shared = bounds.1.min(range.end).saturating_sub(bounds.0.max(range.start));
        } else if matches!(first, "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:") {
            let kib: u64 =
                line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
            huge += (kib << 10).min(shared);
        }
    }
    huge
}

/// A new file without a name, in a folder.
fn tempfile_in(folder: &Path) -> io::Result<File> {
    let (how, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    match rustix::fs::open(folder, how | OFlags::TMPFILE | OFlags::EXCL, mode) {
        Ok(file) => return Ok(file.into()),
        // A file system that knows no files without a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(errno) => return Err(errno.into()),
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".terrace-{}-{number}", std::process::id()));
    let file = rustix::fs::open(&path, how | OFlags::CREATE | OFlags::EXCL, mode)?;
    std::fs::remove_file(&path)?;
    Ok(file.into())
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that ended before what was mapped of it ended the process with SIGBUS as soon as its head was read.
    #[test]
    fn behind_the_end_of_a_file_a_mapping_reads_as_zero_until_the_file_grows() {
        let file = tempfile::tempfile().expect("file");
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 5000], 0).expect("bytes");
        // SAFETY: nobody else has the file.
        let mapped = || unsafe { Region::map_file(&file, 1 << 20, false, Domain::Adr) };
        // SAFETY: as above.
        let copied = unsafe { Region::map_copy(&file, 1 << 20, Domain::Adr) };
        for region in [copied.expect("copy"), mapped().expect("mapped")] {
            let memory = region.native();
            // SAFETY: inside the region, and nobody else uses it.
            let word = |at| unsafe { crate::Memory::load(&memory, at) };
            assert_eq!(word(4096), u64::from_ne_bytes([7; 8]));
            assert_eq!([word(5000), word(8192), word((1 << 20) - 8)], [0; 3]);
        }
        let region = mapped().expect("mapped");
        file.set_len(100_000).expect("longer");
        // SAFETY: as above.
        let follow = || unsafe { region.follow(&file) };
        follow().expect("followed");
        follow().expect("nothing to do");
        // SAFETY: as above; the file is that long now.
        unsafe { crate::Memory::store(&region.native(), 99_992, 5) };
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 99_992).expect("read");
        assert_eq!(u64::from_ne_bytes(bytes), 5);
    }

    #[test]
    fn huge_pages_are_counted_for_the_mappings_of_a_region_alone() {
        let smaps = "10000000-10400000 rw-p 00000000 00:00 0\nRss: 8 kB\nAnonHugePages:    2048 kB\n\
                     10400000-10800000 rw-s 00000000 00:00 0 /mnt/a-file\nFilePmdMapped:  4096 kB\n\
                     20000000-20800000 ---p 00000000 00:00 0\nAnonHugePages:  8192 kB\n";
        assert_eq!(huge_bytes_of(smaps, 0x1000_0000..0x1080_0000), 6 << 20);
        // A part of a mapping that the kernel has joined with another.
        assert_eq!(huge_bytes_of(smaps, 0x2040_0000..0x2060_0000), 2 << 20);
        assert_eq!(huge_bytes_of(smaps, 0x3000_0000..0x3040_0000), 0);
        let region = Region::reserve(4 << 20, Backing::HugePages).expect("addresses");
        region.populate(0, 4 << 20).expect("memory");
        assert!(region.huge_bytes().is_none_or(|bytes| bytes <= region.len()));
    }
}
