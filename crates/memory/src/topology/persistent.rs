//! Persistent memory: the regions the firmware describes, and what is built on them.
//!
//! A *region* is a range of persistent memory; the kernel says what keeps its contents when the
//! power goes (`persistence_domain`). On a region sit block devices (`pmem0`), which carry file
//! systems, and device-DAX instances (`dax0.0`), which are mapped whole or handed to the kernel as
//! ordinary memory. A mount reaches its region through its block device, also through a
//! device-mapper volume made of several; then only what all of them keep is kept.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::mounts::Mount;
use super::source::{Source, TopologyError, malformed, size};
use crate::domain::Domain;

/// One range of persistent memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PersistentRegion {
    /// The kernel's name, such as `region0`.
    pub name: String,
    /// Size, bytes; `None` where not told.
    pub size_bytes: Option<u64>,
    /// Nearest node with processors; `None` where not told.
    pub node: Option<u32>,
    /// What the kernel says survives a power cut; `None` where it does not say.
    pub domain: Option<Domain>,
}

/// A block device on persistent memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PersistentBlock {
    /// The kernel's name, such as `pmem0`.
    pub name: String,
    /// Size, bytes; `None` where not told.
    pub size_bytes: Option<u64>,
    /// Whether its file system may map files directly.
    pub dax: bool,
    /// The region it lies on; `None` where not told.
    pub region: Option<String>,
}

/// A device-DAX instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceDax {
    /// The kernel's name, such as `dax0.0`.
    pub name: String,
    /// Size, bytes; `None` where not told.
    pub size_bytes: Option<u64>,
    /// Node whose memory it is, or would be; `None` where not told.
    pub target_node: Option<u32>,
    /// The driver that has it: `device_dax`, or `kmem` when the kernel uses it as ordinary memory.
    pub driver: Option<String>,
    /// The region it lies on; `None` where not told.
    pub region: Option<String>,
}

/// A mount whose files may be mapped directly, with the persistent memory under it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DaxMount {
    /// The mount.
    pub mount: Mount,
    /// Regions under it; empty where they cannot be told.
    pub regions: Vec<String>,
    /// What all of those regions keep; `None` where one of them does not say.
    pub domain: Option<Domain>,
    /// Node of the first region that tells one.
    pub node: Option<u32>,
}

/// Everything persistent that is byte-addressable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PersistentMemory {
    /// Regions, by name.
    pub regions: Vec<PersistentRegion>,
    /// Block devices, by name.
    pub blocks: Vec<PersistentBlock>,
    /// Device-DAX instances, by name.
    pub devices: Vec<DeviceDax>,
    /// Mounts with direct access.
    pub mounts: Vec<DaxMount>,
}

/// Reads regions and devices, and finds what lies under each of `mounts` that allows direct access.
pub(super) fn read_persistent(
    source: &Source,
    sys: &Path,
    mounts: Vec<Mount>,
) -> Result<PersistentMemory, TopologyError> {
    let regions = read_regions(source, sys)?;
    let mounts = mounts
        .into_iter()
        .filter(|mount| mount.dax.is_possible())
        .map(|mount| under_mount(sys, &regions, mount))
        .collect();
    Ok(PersistentMemory {
        blocks: read_blocks(source, sys)?,
        devices: read_devices(source, sys)?,
        regions,
        mounts,
    })
}

fn read_regions(source: &Source, sys: &Path) -> Result<Vec<PersistentRegion>, TopologyError> {
    // Machines without persistent memory have no such bus; that is not worth a note.
    let root = sys.join("bus/nd/devices");
    let names = source.optional_names(&root);
    names
        .into_iter()
        .filter(|name| is_numbered(name, "region"))
        .map(|name| {
            let folder = root.join(&name);
            Ok(PersistentRegion {
                size_bytes: source.number(&folder.join("size"))?,
                node: source.optional_node(&folder.join("numa_node"))?,
                domain: read_domain(source, &folder.join("persistence_domain"))?,
                name,
            })
        })
        .collect()
}

/// The kernel's word for what survives. No word, and a word this code does not know, promise
/// nothing.
fn read_domain(source: &Source, path: &Path) -> Result<Option<Domain>, TopologyError> {
    let Some(word) = source.text(path)? else {
        return Ok(None);
    };
    match word.as_str() {
        "cpu_cache" => Ok(Some(Domain::Eadr)),
        "memory_controller" => Ok(Some(Domain::Adr)),
        "" | "unknown" => {
            source.note(path, "the kernel reports no persistence domain");
            Ok(None)
        }
        word if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => {
            source.note(path, format!("unfamiliar persistence domain {word}"));
            Ok(None)
        }
        other => Err(malformed(path, other, "cpu_cache or memory_controller")),
    }
}

fn read_blocks(source: &Source, sys: &Path) -> Result<Vec<PersistentBlock>, TopologyError> {
    /// The kernel counts block devices in sectors of this many bytes, whatever theirs are.
    const SECTOR_BYTES: u64 = 512;
    let root = sys.join("block");
    let mut blocks = Vec::new();
    for name in source.optional_names(&root) {
        if !is_numbered(&name, "pmem") {
            continue;
        }
        let folder = root.join(&name);
        let sectors = source.number(&folder.join("size"))?;
        blocks.push(PersistentBlock {
            size_bytes: sectors.map(|sectors| sectors.saturating_mul(SECTOR_BYTES)),
            dax: source.optional_number(&folder.join("queue/dax"))? == Some(1),
            region: region_in_path(&folder),
            name,
        });
    }
    Ok(blocks)
}

fn read_devices(source: &Source, sys: &Path) -> Result<Vec<DeviceDax>, TopologyError> {
    let root = sys.join("bus/dax/devices");
    let mut devices = Vec::new();
    for name in source.optional_names(&root) {
        if !is_numbered(&name, "dax") {
            continue;
        }
        let folder = root.join(&name);
        let size_path = folder.join("size");
        let size_bytes =
            source.text(&size_path)?.map(|text| size(&size_path, &text)).transpose()?;
        let driver = fs::read_link(folder.join("driver")).ok().and_then(|link| {
            let name = link.file_name()?.to_str()?;
            Some(name.to_owned())
        });
        devices.push(DeviceDax {
            size_bytes,
            target_node: source.optional_node(&folder.join("target_node"))?,
            driver,
            region: region_in_path(&folder),
            name,
        });
    }
    Ok(devices)
}

/// Whether `name` is `prefix` and a number, as devices themselves are (`region0`, `pmem0`,
/// `pmem0.1`, `dax0.0`) and their seeds and helpers are not.
fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| {
        rest.starts_with(|first: char| first.is_ascii_digit())
            && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    })
}

/// The region a device lies on: sysfs nests devices, so it is a part of the device's real path.
fn region_in_path(folder: &Path) -> Option<String> {
    let real = fs::canonicalize(folder).ok()?;
    real.iter()
        .filter_map(|part| part.to_str())
        .find(|part| is_numbered(part, "region"))
        .map(str::to_owned)
}

fn under_mount(sys: &Path, regions: &[PersistentRegion], mount: Mount) -> DaxMount {
    let mut names = Vec::new();
    let complete = collect_regions(&sys.join("dev/block").join(&mount.numbers), 0, &mut names);
    names.sort();
    names.dedup();
    let found: Vec<&PersistentRegion> = names
        .iter()
        .filter_map(|name| regions.iter().find(|region| region.name == *name))
        .collect();
    let domain = if complete && !names.is_empty() && found.len() == names.len() {
        weakest(found.iter().map(|region| region.domain))
    } else {
        None
    };
    DaxMount { node: found.iter().find_map(|region| region.node), regions: names, domain, mount }
}

/// Adds the regions under a block device; `false` if part of the device lies on something else.
fn collect_regions(device: &Path, depth: u32, names: &mut Vec<String>) -> bool {
    /// Device-mapper volumes can be stacked; more layers than this are not followed.
    const DEPTH_MAX: u32 = 8;
    if let Some(region) = region_in_path(device) {
        names.push(region);
        return true;
    }
    let Ok(parts) = fs::read_dir(device.join("slaves")) else {
        return false;
    };
    let parts: Vec<_> = parts.flatten().collect();
    !parts.is_empty()
        && depth < DEPTH_MAX
        && parts.iter().all(|part| collect_regions(&part.path(), depth + 1, names))
}

/// What all of several memories keep: nothing if one does not say.
fn weakest(domains: impl Iterator<Item = Option<Domain>>) -> Option<Domain> {
    domains
        .reduce(|all, one| match (all?, one?) {
            (Domain::Eadr, Domain::Eadr) => Some(Domain::Eadr),
            (Domain::Adr | Domain::Eadr, Domain::Adr | Domain::Eadr) => Some(Domain::Adr),
            _ => None,
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_regions_keep_what_the_weakest_keeps() {
        let all = |domains: &[Option<Domain>]| weakest(domains.iter().copied());
        assert_eq!(all(&[Some(Domain::Eadr)]), Some(Domain::Eadr));
        assert_eq!(all(&[Some(Domain::Eadr), Some(Domain::Adr)]), Some(Domain::Adr));
        assert_eq!(all(&[Some(Domain::Eadr), None]), None);
        assert_eq!(all(&[]), None);
    }

    #[test]
    fn helpers_of_the_bus_are_not_devices() {
        assert!(is_numbered("region0", "region"));
        assert!(is_numbered("dax1.0", "dax"));
        assert!(is_numbered("pmem12", "pmem"));
        for other in ["region", "region_seed", "dax_region", "pmem0s", "pmem0p1", "pfn0.0"] {
            assert!(!is_numbered(other, "region") && !is_numbered(other, "pmem"), "{other}");
        }
    }
}
