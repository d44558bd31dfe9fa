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
    /// `held` bytes of the tier are other regions', which stay.
    pub(super) fn region(&self, bytes: u64, held: u64, domain: Domain) -> io::Result<Region> {
        if self.access == Access::Block {
            let what = format!(
                "{}: loads and stores reach the page cache, which is DRAM; the part `files` is of the medium",
                self.words
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let file = self.file(bytes, held)?;
        // SAFETY: a file without a name, which nobody else can open.
        let region = unsafe { Region::map_file(&file, bytes, self.is_dax, domain)? };
        region.populate(0, bytes)?;
        Ok(region)
    }

    /// A file of `bytes` without a name, beside `held` bytes of others. A file system keeps half of what it has free:
    /// it is others' too.
    pub(super) fn file(&self, bytes: u64, held: u64) -> io::Result<std::fs::File> {
        let full = |what: String| Err(io::Error::new(io::ErrorKind::StorageFull, what));
        let needed = ByteSize(bytes);
        if let Some(most) = self.bytes.filter(|most| *most < bytes + held) {
            let (name, most, held) = (&self.name, ByteSize(most), ByteSize(held));
            return full(format!(
                "tier {name} is of {most}, and {needed} are needed beside {held}"
            ));
        }
        let folder = self.folder.display();
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{needed} of {folder}: {error}"))
        };
        let free = dax::free_bytes(&self.folder).map_err(named)?;
        if bytes > free / 2 {
            let free = ByteSize(free);
            return full(format!(
                "{folder} has {free} free, and {needed} are more than half of it"
            ));
        }
        dax::whole_scratch_file(&self.folder, bytes).map_err(named)
    }
}
