//! The medium of a tier: the unit it is written in, what it keeps, and why that is believed.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::{PathProbe, TierError, TierKind, TierSpec};
use crate::dax::{FilesystemInfo, MapSync};
use crate::domain::Domain;
use crate::topology::{DaxMount, NumaNode, Topology};

/// The unit a medium is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Loads and stores reach it; a cache line is the unit.
    ByteAddressable,
    /// Blocks are read and written through the kernel.
    Block,
}

/// What a tier's memory is, and what of it survives a power cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Medium {
    /// The unit it is written in.
    pub access: Access,
    /// When a store survives.
    pub domain: Domain,
    /// Whether the domain is declared rather than found: never to be relied on against a power cut.
    #[serde(rename = "stand_in")]
    pub is_emulated: bool,
    /// Why, as a sentence: what was found, and what makes a store durable.
    pub reason: String,
}

impl Medium {
    /// Whether slabs may live on it: single lines can be made durable in place.
    pub fn allows_slabs(&self) -> bool {
        self.access == Access::ByteAddressable && self.domain.is_byte_addressable()
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The domain in the words of the sentences.
pub(super) fn domain_word(domain: Domain) -> &'static str {
    match domain {
        Domain::Adr => "ADR",
        Domain::Eadr => "eADR",
        Domain::PageCache => "page cache",
        Domain::None => "none",
    }
}

/// A medium found, with the sentence `word: detail`.
fn found(access: Access, domain: Domain, detail: &str) -> Medium {
    Medium {
        access,
        domain,
        is_emulated: false,
        reason: format!("{}: {detail}", domain_word(domain)),
    }
}

/// The medium of ordinary memory: nothing survives, whatever the memory is made of, because it is
/// used without files.
pub(super) fn of_memory(kind: TierKind, node: Option<&NumaNode>) -> Medium {
    let pages = match kind {
        TierKind::Huge => "memory in huge pages",
        _ => "memory",
    };
    let place = match node {
        None => String::new(),
        Some(node) if node.is_cpu_less() => format!(" of node {} (no processors)", node.node),
        Some(node) => format!(" of node {}", node.node),
    };
    let detail = format!("{pages}{place}, lost with the power");
    found(Access::ByteAddressable, Domain::None, &detail)
}

/// The medium of files below `path`.
pub(super) fn of_path(
    spec: &TierSpec,
    path: &Path,
    topology: &Topology,
    paths: &dyn PathProbe,
) -> Result<Medium, TierError> {
    let failed = |source| TierError::Path { tier: spec.name.clone(), source };
    let info = paths.filesystem(path).map_err(failed)?;
    let wrong = |wanted| TierError::WrongFilesystem {
        tier: spec.name.clone(),
        path: path.to_owned(),
        found: info.phrase(),
        wanted,
    };
    match spec.kind {
        TierKind::Tmpfs if info.kind != "tmpfs" => Err(wrong("tmpfs")),
        TierKind::Tmpfs => Ok(volatile(&info, Access::ByteAddressable)),
        TierKind::Dax => {
            let mounts = &topology.persistent.mounts;
            let under = mounts
                .iter()
                .find(|dax| {
                    dax.mount.mount_point == info.mount_point && dax.mount.numbers == info.numbers
                })
                .ok_or_else(|| wrong("a mount with direct access (option dax)"))?;
            let map_sync = paths.map_sync(path).map_err(failed)?;
            Ok(direct(&info, under, &map_sync))
        }
        _ if info.is_volatile() => Ok(volatile(&info, Access::Block)),
        _ => {
            let detail = format!("{}, made durable by fdatasync", info.phrase());
            Ok(found(Access::Block, Domain::PageCache, &detail))
        }
    }
}

fn volatile(info: &FilesystemInfo, access: Access) -> Medium {
    let detail = format!("{}, lost with the power", info.phrase());
    found(access, Domain::None, &detail)
}

/// The medium of directly mapped files. Stores alone make nothing durable unless both the mapping's
/// metadata (`MAP_SYNC`) and the region's contents are promised; else the kernel must be asked, as
/// for any file.
fn direct(info: &FilesystemInfo, under: &DaxMount, map_sync: &MapSync) -> Medium {
    let regions = match under.regions.as_slice() {
        [] => "the memory under it".to_owned(),
        regions => regions.join(" and "),
    };
    let phrase = info.phrase();
    let domain = match (map_sync, under.domain) {
        (MapSync::Works, Some(domain)) => domain,
        _ => Domain::PageCache,
    };
    let detail = match (map_sync, domain) {
        (MapSync::Refused(why), _) => {
            format!("{phrase} refuses MAP_SYNC ({why}), made durable by fdatasync")
        }
        (MapSync::Works, Domain::Eadr) => format!(
            "{phrase} maps directly with MAP_SYNC and {regions} keeps the caches, \
             durable once visible"
        ),
        (MapSync::Works, Domain::Adr) => format!(
            "{phrase} maps directly with MAP_SYNC on {regions}, durable after write-back and fence"
        ),
        (MapSync::Works, _) => format!(
            "{phrase} maps directly, but the kernel reports no persistence domain for {regions}, \
             made durable by fdatasync"
        ),
    };
    found(Access::ByteAddressable, domain, &detail)
}

/// Whether using the protocol of `declared` keeps what `found` needs: each domain also admits the
/// weaker ones, whose protocols do more.
fn is_within(declared: Domain, found: Domain) -> bool {
    match declared {
        Domain::None => true,
        Domain::PageCache => found != Domain::None,
        Domain::Adr => matches!(found, Domain::Adr | Domain::Eadr),
        Domain::Eadr => found == Domain::Eadr,
    }
}

/// Weakens the medium found to the declared domain, or lets it stand in for a stronger one.
pub(super) fn apply_declaration(spec: &TierSpec, found: Medium) -> Result<Medium, TierError> {
    let Some(declared) = spec.domain else {
        return Ok(found);
    };
    if declared == found.domain {
        return Ok(found);
    }
    let word = domain_word(declared);
    if is_within(declared, found.domain) {
        let reason = format!("{word} by declaration, though more was found ({})", found.reason);
        return Ok(Medium { domain: declared, reason, ..found });
    }
    if !spec.declared {
        return Err(TierError::DomainTooStrong {
            tier: spec.name.clone(),
            declared,
            found: found.reason,
        });
    }
    let access =
        if declared.is_byte_addressable() { Access::ByteAddressable } else { found.access };
    Ok(Medium {
        access,
        domain: declared,
        is_emulated: true,
        reason: format!(
            "{word} by declaration, emulated: it survives a killed process but no power cut \
             (found {})",
            found.reason
        ),
    })
}
