//! Regions: ranges of address space with a known backing and persistence domain.
//!
//! A region reserves its whole range up front and commits parts of it later, so a structure can
//! grow in place and its offsets stay valid; nothing is ever remapped under a reader.

use crate::domain::Domain;
use crate::native::Native;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::ptr::NonNull;

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

/// A mapped range. Unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: u64,
    backing: Backing,
    domain: Domain,
}

// SAFETY: a region is a range of addresses; access to its contents goes through `Memory`, whose
// contracts govern sharing.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes` of address space; nothing is accessible until [`Region::commit`].
    ///
    /// # Errors
    /// The kernel's, when there is no such range.
    pub fn reserve(bytes: u64, backing: Backing) -> io::Result<Region> {
        assert!(
            matches!(backing, Backing::Anonymous | Backing::HugePages),
            "files are mapped whole"
        );
        let align = 2 << 20;
        let bytes = bytes.next_multiple_of(rustix::param::page_size() as u64);
        let total = bytes + align;
        // SAFETY: a fresh private mapping chosen by the kernel overlaps nothing.
        let raw = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                total as usize,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        // Trim to a huge-page boundary so that every huge page of the range can be one.
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
        Ok(Region { base, bytes, backing, domain: Domain::None })
    }

    /// Makes `[at, at + bytes)` readable and writable; it reads as zero. Idempotent.
    ///
    /// # Errors
    /// The kernel's, when it refuses the memory.
    pub fn commit(&self, at: u64, bytes: u64) -> io::Result<()> {
        assert!(at + bytes <= self.bytes, "commit inside the region");
        // SAFETY: the range lies inside this region's own mapping.
        unsafe {
            let start = self.base.as_ptr().add(at as usize).cast();
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
    /// # Errors
    /// The kernel's.
    pub fn release(&self, at: u64, bytes: u64) -> io::Result<()> {
        assert!(at + bytes <= self.bytes, "release inside the region");
        // SAFETY: the range lies inside this region's own mapping; the caller of `Memory` no
        // longer relies on its contents.
        unsafe {
            let start = self.base.as_ptr().add(at as usize).cast();
            rustix::mm::madvise(start, bytes as usize, Advice::LinuxDontNeed)?;
        }
        Ok(())
    }

    /// The same region, declared to be of `domain`: a stand-in for memory that this machine lacks. What
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
        // SAFETY: the range lies inside this region's own mapping (`commit` asserts it); what it holds
        // is not changed.
        unsafe {
            let start = self.base.as_ptr().add(at as usize).cast();
            rustix::mm::madvise(start, bytes as usize, Advice::LinuxPopulateWrite)?;
        }
        Ok(())
    }

    /// The bytes of `[at, at + bytes)`, committed. Nobody may use a [`Native`] of this region meanwhile.
    ///
    /// # Errors
    /// As [`Region::commit`].
    pub fn bytes_mut(&mut self, at: u64, bytes: u64) -> io::Result<&mut [u8]> {
        self.commit(at, bytes)?;
        // SAFETY: inside this region's own mapping (`commit` asserts it), readable and writable since it
        // is committed, and borrowed from the region's only owner.
        Ok(unsafe {
            std::slice::from_raw_parts_mut(self.base.as_ptr().add(at as usize), bytes as usize)
        })
    }

    /// Maps `bytes` of `file` shared. With `dax`, the mapping is `MAP_SYNC`: once a line is
    /// written back, no file-system metadata is needed to find it again.
    ///
    /// # Errors
    /// The kernel's; `EOPNOTSUPP` when `dax` is asked of a file that is not on a DAX mount.
    pub fn map_file(file: &File, bytes: u64, dax: bool, domain: Domain) -> io::Result<Region> {
        const MAP_SYNC: u32 = 0x8_0000;
        let flags = if dax {
            MapFlags::SHARED_VALIDATE | MapFlags::from_bits_retain(MAP_SYNC)
        } else {
            MapFlags::SHARED
        };
        let base = map(file, bytes, flags)?;
        let backing = if dax { Backing::Dax } else { Backing::File };
        Ok(Region { base, bytes, backing, domain })
    }

    /// Maps `bytes` of `file` for looking: what is stored stays in this process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map_copy(file: &File, bytes: u64, domain: Domain) -> io::Result<Region> {
        // No room is set aside for pages that are stored to: they are few.
        let base = map(file, bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        Ok(Region { base, bytes, backing: Backing::File, domain })
    }

    /// Binds the region to NUMA node `node`, verified page by page; what is committed later
    /// follows.
    ///
    /// # Errors
    /// [`BindError`](crate::binding::BindError) names node and reason.
    pub fn bind(&self, node: u32) -> Result<crate::binding::Placement, crate::binding::BindError> {
        crate::binding::bind_to_node(self.base.as_ptr(), self.bytes as usize, node)
    }

    /// The same for a region of which nothing was touched yet, however large: no page is looked at.
    ///
    /// # Errors
    /// As [`Region::bind`].
    pub fn bind_untouched(&self, node: u32) -> Result<(), crate::binding::BindError> {
        crate::binding::bind_untouched(self.base.as_ptr(), self.bytes as usize, node)
    }

    /// Where its first `bytes` bytes are.
    ///
    /// # Errors
    /// [`BindError`](crate::binding::BindError) where the kernel does not tell.
    pub fn placement(
        &self,
        bytes: u64,
    ) -> Result<crate::binding::Placement, crate::binding::BindError> {
        crate::binding::placement(self.base.as_ptr(), bytes.min(self.bytes) as usize)
    }

    /// Bytes of it that are in huge pages; `None` where the system does not tell
    /// (`/proc/self/smaps`).
    pub fn huge_bytes(&self) -> Option<u64> {
        let start = self.base.as_ptr() as u64;
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        Some(huge_bytes_of(&smaps, start..start + self.bytes))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What stands behind it.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// When its contents are safe.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The memory of this region. The region must outlive it: keep both in one structure.
    pub fn native(&self) -> Native {
        // SAFETY: the mapping is `bytes` long and lives until the region is dropped; committed
        // parts are what `Memory`'s callers may touch.
        unsafe { Native::new(self.base, self.bytes, self.domain) }
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

fn map(file: &File, bytes: u64, flags: MapFlags) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping chosen by the kernel overlaps nothing.
    let raw = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, file, 0)?
    };
    // SAFETY: mmap never returns null on success.
    Ok(unsafe { NonNull::new_unchecked(raw.cast()) })
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is this region's own mapping, unmapped once.
        let unmapped =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes as usize) };
        debug_assert!(unmapped.is_ok(), "a mapping that was made can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
