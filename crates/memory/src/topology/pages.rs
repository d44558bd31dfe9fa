//! Page sizes: pools of reserved huge pages, and the transparent kind's switches.

use std::path::Path;

use serde::Serialize;

use super::source::{Source, TopologyError, malformed, number};

/// A pool of reserved huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HugePagePool {
    /// One page, bytes.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total_pages: Option<u64>,
    /// Pages of it not yet taken.
    pub free_pages: Option<u64>,
    /// Free pages already promised to a mapping; told for the whole machine only.
    pub reserved_pages: Option<u64>,
    /// Pages the kernel may add on demand; told for the whole machine only.
    pub overcommit_pages: Option<u64>,
}

impl HugePagePool {
    /// Bytes that could be mapped now without asking the kernel for more pages.
    pub fn available_bytes(&self) -> u64 {
        let free = self.free_pages.unwrap_or(0);
        free.saturating_sub(self.reserved_pages.unwrap_or(0)).saturating_mul(self.page_bytes)
    }
}

/// When the kernel uses huge pages by itself: the chosen word of each switch, `None` where not
/// told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransparentHugePages {
    /// For anonymous memory: `always`, `madvise` or `never`.
    pub enabled: Option<String>,
    /// Whether an allocation may wait for compaction: `always`, `defer`, `defer+madvise`,
    /// `madvise`, `never`.
    pub defrag: Option<String>,
    /// For shared memory and tmpfs: `always`, `within_size`, `advise`, `never`, `deny` or `force`.
    pub shared_memory: Option<String>,
    /// One such page, bytes.
    pub page_bytes: Option<u64>,
}

/// The pools of the whole machine, smallest page first.
pub(super) fn read_pools(source: &Source, sys: &Path) -> Result<Vec<HugePagePool>, TopologyError> {
    let folder = sys.join("kernel/mm/hugepages");
    let names = source.names(&folder);
    pools(source, &folder, &names)
}

/// The pools of one node; nothing is noted where the node tells none.
pub(super) fn node_pools(
    source: &Source,
    folder: &Path,
) -> Result<Vec<HugePagePool>, TopologyError> {
    let names = source.optional_names(folder);
    pools(source, folder, &names)
}

fn pools(
    source: &Source,
    folder: &Path,
    names: &[String],
) -> Result<Vec<HugePagePool>, TopologyError> {
    let mut pools = Vec::new();
    for name in names {
        let Some(kib) = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB"))
        else {
            continue;
        };
        let pool = folder.join(name);
        let page_bytes = number(&pool, kib)?
            .checked_mul(1024)
            .ok_or_else(|| malformed(&pool, kib, "a page size in kB"))?;
        pools.push(HugePagePool {
            page_bytes,
            total_pages: source.number(&pool.join("nr_hugepages"))?,
            free_pages: source.number(&pool.join("free_hugepages"))?,
            reserved_pages: source.optional_number(&pool.join("resv_hugepages"))?,
            overcommit_pages: source.optional_number(&pool.join("nr_overcommit_hugepages"))?,
        });
    }
    pools.sort_by_key(|pool| pool.page_bytes);
    Ok(pools)
}

/// The switches of transparent huge pages.
pub(super) fn read_transparent(
    source: &Source,
    sys: &Path,
) -> Result<TransparentHugePages, TopologyError> {
    let folder = sys.join("kernel/mm/transparent_hugepage");
    let switch = |name: &str| -> Result<Option<String>, TopologyError> {
        let path = folder.join(name);
        source.text(&path)?.map(|text| chosen(&path, &text)).transpose()
    };
    Ok(TransparentHugePages {
        enabled: switch("enabled")?,
        defrag: switch("defrag")?,
        shared_memory: switch("shmem_enabled")?,
        page_bytes: source.number(&folder.join("hpage_pmd_size"))?,
    })
}

/// The word in brackets of a switch such as `always [madvise] never`.
fn chosen(path: &Path, text: &str) -> Result<String, TopologyError> {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .map(str::to_owned)
        .ok_or_else(|| malformed(path, text, "one word in brackets"))
}
