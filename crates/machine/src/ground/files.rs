//! A tier of files as a memory to measure: a file without a name in its folder, mapped as the store maps it.

use std::io;
use std::path::PathBuf;
use terrace_memory::tier::Access;
use terrace_memory::{ByteSize, Domain, Region, Tier, TierKind, dax};

/// A tier that is files in a folder.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) name: String,
    folder: PathBuf,
    access: Access,
    /// Whether its mappings are direct, with `MAP_SYNC`.
    is_dax: bool,
    /// The most that it may hold.
    pub(super) bytes: Option<u64>,
    /// What its medium is, in words.
    pub(super) words: String,
}

impl Files {
    /// `None` for a tier that is not files.
    pub(super) fn of(tier: &Tier) -> Option<Files> {
        Some(Files {
            name: tier.name.clone(),
            folder: tier.path.clone()?,
            access: tier.medium.access,
            is_dax: tier.kind == TierKind::Dax && tier.medium.domain.is_byte_addressable(),
            bytes: tier.bytes,
            words: tier.medium.reason.clone(),
        })
    }

    /// A mapping of `bytes`, all of them there, declared to be of a domain: every flavour of store is measured,
    /// whichever of them the tier needs.
    pub(super) fn region(&self, bytes: u64, domain: Domain) -> io::Result<Region> {
        if self.access == Access::Block {
            let what = format!(
                "{}: loads and stores reach the page cache, which is DRAM; the part `files` is of the medium",
                self.words
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let file = self.file(bytes)?;
        let region = Region::map_file(&file, bytes, self.is_dax, domain)?;
        region.populate(0, bytes)?;
        Ok(region)
    }

    /// A file of `bytes` without a name.
    pub(super) fn file(&self, bytes: u64) -> io::Result<std::fs::File> {
        if let Some(most) = self.bytes.filter(|most| *most < bytes) {
            let (most, needed) = (ByteSize(most), ByteSize(bytes));
            let what = format!(
                "tier {} is of {most}, and {needed} are needed: more than the caches",
                self.name
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
        }
        dax::whole_scratch_file(&self.folder, bytes).map_err(|error| {
            let why = format!("{} of {}: {error}", ByteSize(bytes), self.folder.display());
            io::Error::new(error.kind(), why)
        })
    }
}
