//! The tier that a map's values lie in.

use super::{Config, ConfigError};
use terrace_memory::tier::{PathProbe, found_specs};
use terrace_memory::{Tier, TierKind, TierSpec, Topology};

impl Config {
    /// The tier that the map `name` is to lie in, checked against the machine: one declared, or one that
    /// the machine has by itself. `None` if nothing is said of it.
    ///
    /// # Errors
    /// There is no such tier, it does not fit the machine, or it is of files: values lie in memory while a
    /// map is open, and in the map's directory anyway. A tier without `bytes` gives half of what its node has.
    pub fn tier_of(
        &self,
        name: &str,
        topology: &Topology,
        paths: &dyn PathProbe,
    ) -> Result<Option<Tier>, ConfigError> {
        let Some(wanted) = self.maps.get(name).and_then(|map| map.tier.as_ref()) else {
            return Ok(None);
        };
        let refused = |what: String| ConfigError::plain(format!("`maps.{name}.tier`: {what}"));
        let found = found_specs(topology);
        let known: Vec<&TierSpec> = self.tiers.iter().chain(&found).collect();
        let in_memory =
            || known.iter().filter(|tier| !tier.kind.has_path()).map(|tier| tier.name.as_str());
        let Some(spec) = known.iter().find(|tier| tier.name == *wanted) else {
            let names: Vec<&str> = in_memory().collect();
            return Err(refused(format!("no tier `{wanted}`; there are {}", names.join(", "))));
        };
        if spec.kind.has_path() {
            let names: Vec<&str> = in_memory().collect();
            return Err(refused(format!(
                "`{wanted}` is a tier of files ({}); those of memory are {}",
                spec.kind.word(),
                names.join(", ")
            )));
        }
        let pages = topology.transparent_huge_pages.enabled.as_deref();
        if spec.kind == TierKind::Huge && !matches!(pages, Some("always" | "madvise")) {
            return Err(refused(format!(
                "`{wanted}` is of huge pages, which this kernel does not make by itself \
                 (echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)"
            )));
        }
        let mut tier = spec.resolve(topology, paths).map_err(|e| refused(e.to_string()))?;
        if spec.bytes.is_none() {
            // As for `memory_budget`: others take memory of the node too, and a kernel that has none left of
            // it ends the process instead of refusing.
            tier.bytes = tier.bytes.map(|bytes| bytes / 2);
        }
        Ok(Some(tier))
    }
}
