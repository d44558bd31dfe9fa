//! Persistence domains: what must happen before a store survives a power cut.

use std::fmt;

/// Where a store is safe. Ordered from weakest to strongest promise is deliberately *not* offered:
/// domains differ in what must be done, not in a single strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// Asynchronous DRAM refresh: a line is safe once written back and fenced.
    Adr,
    /// Persistent caches: a store is safe once globally visible; only order needs a fence.
    Eadr,
    /// The kernel's page cache: safe once `msync` or `fdatasync` has returned.
    PageCache,
    /// Never safe: the memory is gone with the power.
    None,
}

impl Domain {
    /// Whether single cache lines can be made durable by instructions.
    pub fn is_byte_addressable(self) -> bool {
        matches!(self, Domain::Adr | Domain::Eadr)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Domain::Adr => "ADR (durable after write-back and fence)",
            Domain::Eadr => "eADR (durable once visible)",
            Domain::PageCache => "page cache (durable after fdatasync)",
            Domain::None => "none (lost with the power)",
        })
    }
}
