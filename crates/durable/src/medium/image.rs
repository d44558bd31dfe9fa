//! The memory that a medium is used from.

use super::MediumSpec;
use std::fs::File;
use std::io;
use std::sync::Arc;
use terrace_memory::binding::{BindError, Moved};
use terrace_memory::{Backing, Region};

/// The memory that a medium is used from.
#[derive(Debug)]
pub(super) enum Image {
    /// From elsewhere, all of it there from the start.
    Given,
    /// In DRAM, with the bytes of the disk at the same offsets.
    Mirror(Region),
    /// The file itself. The mapping follows its end.
    Mapped(Region, Arc<File>),
    /// The file as it is: stores stay in this process.
    Copied(Region),
}

impl Image {
    /// Of `file`, as `spec` asks for it.
    pub fn of(file: &Arc<File>, spec: &MediumSpec) -> io::Result<Image> {
        let (bytes, domain) = (spec.capacity_bytes, spec.domain);
        if !domain.is_byte_addressable() {
            return Region::reserve(bytes, Backing::HugePages).map(Image::Mirror);
        }
        if !spec.access.writes() {
            // SAFETY: the lock of the directory keeps writers out. Who changes a file of a database all the same breaks
            // what docs/limits.md asks.
            return unsafe { Region::map_copy(file, bytes, domain) }.map(Image::Copied);
        }
        // SAFETY: the same; the file is used by this medium alone.
        let region = unsafe { Region::map_file(file, bytes, spec.dax, domain) }?;
        Ok(Image::Mapped(region, Arc::clone(file)))
    }

    pub fn region(&self) -> Option<&Region> {
        match self {
            Image::Given => None,
            Image::Mirror(region) | Image::Mapped(region, _) | Image::Copied(region) => {
                Some(region)
            }
        }
    }

    pub fn is_mirror(&self) -> bool {
        matches!(self, Image::Mirror(_))
    }

    /// Memory for a part of the disk that exists.
    pub fn commit(&self, at: u64, bytes: u64) -> io::Result<()> {
        match self {
            Image::Given | Image::Copied(_) => Ok(()),
            Image::Mirror(region) => region.commit(at, bytes),
            // SAFETY: the file that was mapped, as it was.
            Image::Mapped(region, file) => unsafe { region.follow(file) },
        }
    }

    /// Moves memory of the mirror to a node. What was given from elsewhere stays where it is, as if it had moved.
    pub fn move_to_node(&self, at: u64, bytes: u64, node: u32) -> Result<Moved, BindError> {
        match self {
            Image::Mirror(region) => region.move_to_node(at, bytes, node),
            _ => Ok(Moved::All),
        }
    }

    /// # Safety
    /// As for [`Region::release`].
    pub unsafe fn release(&self, at: u64, bytes: u64) -> io::Result<()> {
        match self {
            // SAFETY: by contract.
            Image::Mirror(region) => unsafe { region.release(at, bytes) },
            _ => Ok(()),
        }
    }
}
