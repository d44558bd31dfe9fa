//! The tiers that a map's values and index, or a ledger's accounts, lie in, and how tiers share what there is.
//!
//! A kernel that has no memory of a node left ends the process instead of refusing. So the tiers that are
//! in use never have more than their node, together: sizes that were written are checked, and tiers
//! without one get equal parts of half of what those leave, since others take memory of the node too.

use super::{Config, ConfigError, MapConfig};
use crate::database::MapTiers;
use std::collections::BTreeSet;
use terrace_memory::tier::{SystemPaths, found_specs};
use terrace_memory::{ByteSize, Tier, TierKind, TierSpec, Topology};

impl Config {
    /// The tiers that values and index of the map `name` are to lie in, checked against this machine: declared, or
    /// such as the machine has by itself. None where nothing is said of it.
    ///
    /// ```
    /// let config = terrace::Config::default();
    /// assert!(config.tiers_of("users")?.values.is_none(), "nothing is said of it");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such tier, it does not fit the machine, alone or with the others that are in use, or it is of
    /// files: values and index lie in memory while a map is open, and in the map's directory anyway; the profile, which
    /// may have the node of an index, cannot be read.
    pub fn tiers_of(&self, name: &str) -> Result<MapTiers, ConfigError> {
        let named = |map: &MapConfig| {
            [&map.tier, &map.index_tier, &map.far_tier].into_iter().any(Option::is_some)
        };
        if !self.maps.get(name).is_some_and(named) {
            return Ok(MapTiers::default());
        }
        let topology = Topology::read().map_err(|e| ConfigError::plain(e.to_string()))?;
        self.tiers_on(&topology, name)
    }

    /// The same on a machine of this topology.
    ///
    /// ```
    /// let config = terrace::Config::parse("[maps.users]\ntier = \"no-such-memory\"", "terrace.toml".as_ref())?;
    /// let topology = terrace::memory::Topology::read()?;
    /// let refused = config.tiers_on(&topology, "users").unwrap_err();
    /// assert!(refused.what.starts_with("`maps.users.tier`: no tier `no-such-memory`"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Config::tiers_of`].
    pub fn tiers_on(&self, topology: &Topology, name: &str) -> Result<MapTiers, ConfigError> {
        let Some(map) = self.maps.get(name) else { return Ok(MapTiers::default()) };
        let resolve = |key: &str, wanted: &Option<String>| {
            self.resolve_tier(topology, &format!("maps.{name}.{key}"), wanted.as_deref())
        };
        let values = resolve("tier", &map.tier)?;
        let index = resolve("index_tier", &map.index_tier)?;
        let node = index.as_ref().and_then(|tier| tier.node);
        let index_costs = node.map_or(Ok(None), |node| self.costs_of_node(node))?;
        let far = resolve("far_tier", &map.far_tier)?;
        if let Some(far) = &far {
            let refused = |why| ConfigError::plain(format!("`maps.{name}.far_tier`: {why}"));
            far_from(values.as_ref(), far).map_err(refused)?;
            self.is_far_alone(&far.name).map_err(refused)?;
        }
        Ok(MapTiers { values, index, index_costs, far })
    }

    /// Whether a tier that values are moved to is none that others need memory of from the start.
    fn is_far_alone(&self, name: &str) -> Result<(), String> {
        let near = self.maps.iter().flat_map(|(map, of)| {
            let tiers = [("tier", &of.tier), ("index_tier", &of.index_tier)];
            tiers.map(|(key, tier)| (format!("maps.{map}.{key}"), tier.as_deref()))
        });
        let ledgers = self.ledgers.iter();
        let ledgers = ledgers.map(|(of, l)| (format!("ledgers.{of}.tier"), l.tier.as_deref()));
        match near.chain(ledgers).find(|(_, tier)| *tier == Some(name)) {
            None => Ok(()),
            Some((key, _)) => Err(format!(
                "`{name}` is `{key}` as well, which would find it full of values that were moved there; declare \
                 two tiers of the node, with `bytes` each"
            )),
        }
    }

    /// The tier that the accounts of the ledger `name` are to lie in, as [`Config::tiers_of`] for a map.
    ///
    /// ```
    /// assert!(terrace::Config::default().tier_of_ledger("bank")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Config::tiers_of`].
    pub fn tier_of_ledger(&self, name: &str) -> Result<Option<Tier>, ConfigError> {
        let Some(wanted) = self.ledgers.get(name).and_then(|ledger| ledger.tier.as_deref()) else {
            return Ok(None);
        };
        let topology = Topology::read().map_err(|e| ConfigError::plain(e.to_string()))?;
        self.resolve_tier(&topology, &format!("ledgers.{name}.tier"), Some(wanted))
    }

    fn resolve_tier(
        &self,
        topology: &Topology,
        setting: &str,
        wanted: Option<&str>,
    ) -> Result<Option<Tier>, ConfigError> {
        let Some(wanted) = wanted else { return Ok(None) };
        let found = found_specs(topology);
        let known: Vec<&TierSpec> = self.tiers.iter().chain(&found).collect();
        let resolved = tier_in_memory(wanted, &known, topology).and_then(|spec| {
            let mut tier = spec.resolve(topology, &SystemPaths).map_err(|e| e.to_string())?;
            tier.bytes = self.share(spec, &known, topology)?;
            Ok(tier)
        });
        let refused = |what| ConfigError::plain(format!("`{setting}`: {what}"));
        resolved.map(Some).map_err(refused)
    }

    /// Bytes of a tier beside the others that are in use; `None` where the system does not tell how many
    /// there are.
    fn share(
        &self,
        spec: &TierSpec,
        known: &[&TierSpec],
        topology: &Topology,
    ) -> Result<Option<u64>, String> {
        let of_maps = self.maps.values();
        let of_maps = of_maps.flat_map(|map| [&map.tier, &map.index_tier, &map.far_tier]);
        let of_maps = of_maps.filter_map(|tier| tier.as_deref());
        let of_ledgers = self.ledgers.values().filter_map(|ledger| ledger.tier.as_deref());
        let names: BTreeSet<&str> = of_maps.chain(of_ledgers).collect();
        let used = names.iter().filter_map(|name| known.iter().find(|tier| tier.name == *name));
        let used: Vec<&TierSpec> = used.copied().filter(|tier| !tier.kind.has_path()).collect();
        let left = left_of(spec.node, &used, topology)?;
        left_of(None, &used, topology)?;
        let without_bytes =
            used.iter().filter(|tier| is_on(tier, spec.node) && tier.bytes.is_none());
        let parts = 2 * without_bytes.count() as u64;
        Ok(spec.bytes.map(|bytes| bytes.0).or(left.map(|left| left / parts.max(1))))
    }
}

/// Whether values are moved somewhere else when they move from `near` to `far`: each is of one node, and not of the
/// same.
pub(crate) fn far_from(near: Option<&Tier>, far: &Tier) -> Result<(), String> {
    let name = &far.name;
    let Some(far_node) = far.node else {
        return Err(format!("`{name}` is memory of no one node; name a tier of one"));
    };
    match near.map(|near| (&near.name, near.node)) {
        Some((near, Some(node))) if node == far_node => Err(format!(
            "`{name}` is on node {node}, and so is `{near}`; name a tier of another node"
        )),
        Some((_, Some(_))) => Ok(()),
        Some((near, None)) => Err(format!(
            "`{near}` may take memory of `{name}` as well; let `tier` be one of another node"
        )),
        None => Err(format!(
            "it needs `tier`: without one, values may take memory of `{name}` from the start. Name a tier of another node"
        )),
    }
}

/// The tier of this name, one that values may lie in.
fn tier_in_memory<'a>(
    wanted: &str,
    known: &[&'a TierSpec],
    topology: &Topology,
) -> Result<&'a TierSpec, String> {
    let in_memory = || {
        let tiers = known.iter().filter(|tier| !tier.kind.has_path());
        tiers.map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let Some(spec) = known.iter().find(|tier| tier.name == wanted) else {
        return Err(format!("no tier `{wanted}`; there are {}", in_memory()));
    };
    if spec.kind.has_path() {
        let kind = spec.kind.word();
        let others = in_memory();
        return Err(format!(
            "`{wanted}` is a tier of files ({kind}); those of memory are {others}"
        ));
    }
    let pages = topology.transparent_huge_pages.enabled.as_deref();
    if spec.kind == TierKind::Huge && !matches!(pages, Some("always" | "madvise")) {
        return Err(format!(
            "`{wanted}` is of huge pages, which this kernel does not make by itself \
             (echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)"
        ));
    }
    Ok(spec)
}

/// Whether a tier takes from `node`; every one takes from the whole machine.
fn is_on(tier: &TierSpec, node: Option<u32>) -> bool {
    node.is_none() || tier.node == node
}

/// What the sizes that were written leave of a node, or of the machine.
fn left_of(
    node: Option<u32>,
    used: &[&TierSpec],
    topology: &Topology,
) -> Result<Option<u64>, String> {
    let nodes = topology.nodes.iter().filter(|found| node.is_none_or(|node| found.node == node));
    let Some(room) = nodes.map(|found| found.total_bytes).sum::<Option<u64>>() else {
        return Ok(None);
    };
    let sized: Vec<(&str, u64)> = used
        .iter()
        .filter(|tier| is_on(tier, node))
        .filter_map(|tier| Some((tier.name.as_str(), tier.bytes?.0)))
        .collect();
    let taken = sized.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if taken > room {
        let place = node.map_or("the machine".to_string(), |node| format!("node {node}"));
        let names: Vec<&str> = sized.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "the tiers {} have {} together, of {place}, which has {}; give one of them fewer `bytes`",
            names.join(", "),
            ByteSize(taken),
            ByteSize(room)
        ));
    }
    Ok(Some(room - taken))
}
