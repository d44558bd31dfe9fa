//! Processor caches, each counted once however many processors share it.

use std::path::Path;

use serde::Serialize;

use super::source::{Source, TopologyError, malformed, size};

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// One cache of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// Level, 1 the nearest to the processor.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Size, bytes; `None` where not told.
    pub size_bytes: Option<u64>,
    /// Line, bytes; `None` where not told.
    pub line_bytes: Option<u64>,
    /// Ways of associativity; `None` where not told, 0 for fully associative.
    pub ways: Option<u64>,
    /// Processors that share it, rising.
    pub cpus: Vec<u32>,
}

/// Every cache, by level, kind and first processor.
pub(super) fn read_caches(source: &Source, sys: &Path) -> Result<Vec<Cache>, TopologyError> {
    let mut caches: Vec<Cache> = Vec::new();
    for (cpu, folder) in source.numbered(&sys.join("devices/system/cpu"), "cpu") {
        let folder = folder.join("cache");
        // An offline processor has no such folder; that is not worth a note.
        for name in source.optional_names(&folder) {
            if !name.starts_with("index") {
                continue;
            }
            let index = folder.join(name);
            let Some((level, kind)) = read_identity(source, &index)? else {
                continue;
            };
            let same = |cache: &Cache| {
                cache.level == level && cache.kind == kind && cache.cpus.contains(&cpu)
            };
            if !caches.iter().any(same) {
                caches.push(read_cache(source, &index, cpu, level, kind)?);
            }
        }
    }
    caches.sort_by(|a, b| (a.level, a.kind, &a.cpus).cmp(&(b.level, b.kind, &b.cpus)));
    Ok(caches)
}

fn read_identity(source: &Source, index: &Path) -> Result<Option<(u32, CacheKind)>, TopologyError> {
    let level = index.join("level");
    let Some(level) = source.number(&level)? else {
        return Ok(None);
    };
    let path = index.join("type");
    let Some(kind) = source.text(&path)? else {
        return Ok(None);
    };
    let kind = match kind.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        other => return Err(malformed(&path, other, "Data, Instruction or Unified")),
    };
    let level = u32::try_from(level)
        .map_err(|_| malformed(&index.join("level"), &level.to_string(), "a cache level"))?;
    Ok(Some((level, kind)))
}

fn read_cache(
    source: &Source,
    index: &Path,
    cpu: u32,
    level: u32,
    kind: CacheKind,
) -> Result<Cache, TopologyError> {
    let size_path = index.join("size");
    let size_bytes = source.text(&size_path)?.map(|text| size(&size_path, &text)).transpose()?;
    Ok(Cache {
        level,
        kind,
        size_bytes,
        line_bytes: source.number(&index.join("coherency_line_size"))?,
        ways: source.number(&index.join("ways_of_associativity"))?,
        cpus: source.list(&index.join("shared_cpu_list"))?.unwrap_or_else(|| vec![cpu]),
    })
}
