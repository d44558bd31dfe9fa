//! What a store to a directory takes to survive a power cut.

use super::Database;
use std::path::Path;
use terrace_memory::dax::{self, FilesystemInfo};
use terrace_memory::tier::{SystemPaths, TierError};
use terrace_memory::{Domain, Tier, TierKind, TierSpec, Topology};

impl Database {
    /// What a store to the directory takes to survive a power cut, as a sentence: the domain found
    /// or declared, and why.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// println!("{}", db.durability_of_medium()); // page cache: ext4 on /dev/vda, made durable by fdatasync
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durability_of_medium(&self) -> String {
        durability_of(&self.dir, self.options.domain)
    }
}

/// What a store to `dir` takes to survive a power cut where `declared` is found or declared, as a sentence.
///
/// ```
/// use terrace::{Domain, durability_of};
/// let told = durability_of("/".as_ref(), Domain::Adr);
/// assert!(told.starts_with(&Domain::Adr.to_string()), "{told}");
/// ```
pub fn durability_of(dir: &Path, declared: Domain) -> String {
    let found = dax::filesystem_of(dir);
    let is_volatile = found.as_ref().is_ok_and(FilesystemInfo::is_volatile);
    let place = found.map_or_else(|_| "an unknown file system".to_string(), |fs| fs.phrase());
    if !declared.is_byte_addressable() {
        return match is_volatile {
            true => format!("none: {place}, lost with the power"),
            false => format!("page cache: {place}, made durable by fdatasync"),
        };
    }
    match direct(dir, declared) {
        Some(Ok(_)) => format!("{declared}: {place}, mapped with MAP_SYNC"),
        Some(Err(TierError::DomainTooStrong { found, .. })) => {
            format!("{declared}: declared, but found {found}; not safe from a power cut")
        }
        _ => format!("{declared}: declared for {place}, emulated; not safe from a power cut"),
    }
}

/// The directory as a tier with direct access that keeps what is declared, or why it is none.
fn direct(dir: &Path, declared: Domain) -> Option<Result<Tier, TierError>> {
    let topology = Topology::read().ok()?;
    let spec = TierSpec {
        path: Some(dir.to_path_buf()),
        domain: Some(declared),
        ..TierSpec::new("directory", TierKind::Dax)
    };
    Some(spec.resolve(&topology, &SystemPaths))
}
