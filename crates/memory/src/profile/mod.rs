//! The machine profile: what every memory of a machine was measured to cost, in one documented file.
//!
//! `terrace probe` writes it, and `terrace place` takes the costs of memories from it. Every figure keeps the
//! values of the runs it comes from, so another run on the same machine refines it instead of
//! replacing it; a run on another machine is refused. What could not be measured says why, and is
//! never a zero.
//!
//! The file is JSON by the schema that [`schema`] gives, which stands in `docs/profile.schema.json`.
//! Fields end with their unit: `ns`, `gb_s` (10^9 bytes a second), `bytes`.

mod accesses;
mod costs;
mod curve;
mod error;
mod estimate;
mod figures;
mod file;
mod keeping;

pub use accesses::Accesses;
pub use costs::MemoryCosts;
pub use error::ProfileError;
pub use estimate::{Estimate, four_digits};
pub use figures::{
    Bandwidth, Copy, DirtyCache, Flavour, Latency, Loaded, Measured, NOT_ASKED_FOR, Pages,
    Quantiles, StoreCost,
};
pub use keeping::Keeping;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the first field of every profile says.
pub const FORMAT: &str = "terrace-profile";
/// The version of the format written here; others are refused.
pub const VERSION: u32 = 1;

/// What a machine's memories cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// `terrace-profile`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// Of which machine.
    pub machine: ProfiledMachine,
    /// When its runs ended, oldest first: seconds since 1970.
    pub taken_at: Vec<u64>,
    /// Its memories.
    pub nodes: Vec<NodeProfile>,
    /// What a page costs that was not there.
    pub pages: Measured<Pages>,
    /// Moving bytes between memories.
    pub copies: Measured<Copy>,
}

/// The machine that a profile is of. Two profiles are of one machine if all of this is equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfiledMachine {
    /// Its name; of a modelled machine, its preset's.
    pub name: String,
    /// Whether it is modelled and the times are virtual.
    pub is_modelled: bool,
    /// Processors that could be used.
    pub threads: usize,
    /// The largest cache, bytes.
    pub cache_bytes: u64,
    /// The names of its memories.
    pub nodes: Vec<String>,
}

/// What one memory costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeProfile {
    /// Its name.
    pub name: String,
    /// Dependent loads by the bytes they are spread over. Those over fewer than twice the largest
    /// cache are of the caches.
    pub latency: Measured<Latency>,
    /// Bandwidth by what is done, in what order, in what pieces, by how many threads.
    pub bandwidth: Measured<Bandwidth>,
    /// Latency while others move bytes.
    pub loaded: Measured<Loaded>,
    /// Single pieces written, by flavour.
    pub stores: Measured<StoreCost>,
    /// What a cache full of written lines costs a reader.
    pub dirty_cache: Measured<DirtyCache>,
}

impl Profile {
    /// The profile of a machine of which nothing is known yet.
    pub fn new(machine: ProfiledMachine) -> Profile {
        Profile {
            format: FORMAT.into(),
            version: VERSION,
            machine,
            taken_at: Vec::new(),
            nodes: Vec::new(),
            pages: Measured::not_asked_for(),
            copies: Measured::not_asked_for(),
        }
    }

    /// The memory of this name.
    pub fn node(&self, name: &str) -> Option<&NodeProfile> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Whether runs on this machine can refine it.
    ///
    /// # Errors
    /// [`ProfileError::OtherMachine`] if not.
    pub fn must_be_of(&self, machine: &ProfiledMachine) -> Result<(), ProfileError> {
        self.machine.must_be(machine)
    }

    /// Takes the figures of another run in: those of the same setting become more certain, others are added.
    ///
    /// # Errors
    /// [`ProfileError::OtherMachine`]; then nothing was changed.
    pub fn refine(&mut self, run: Profile) -> Result<(), ProfileError> {
        self.must_be_of(&run.machine)?;
        self.taken_at.extend(run.taken_at);
        for node in run.nodes {
            match self.nodes.iter_mut().find(|known| known.name == node.name) {
                Some(known) => known.refine(node),
                None => self.nodes.push(node),
            }
        }
        self.pages.refine(run.pages);
        self.copies.refine(run.copies);
        Ok(())
    }
}

impl ProfiledMachine {
    fn must_be(&self, other: &ProfiledMachine) -> Result<(), ProfileError> {
        let fields = [
            ("name", self.name.clone(), other.name.clone()),
            ("is_modelled", self.is_modelled.to_string(), other.is_modelled.to_string()),
            ("threads", self.threads.to_string(), other.threads.to_string()),
            ("cache_bytes", self.cache_bytes.to_string(), other.cache_bytes.to_string()),
            ("nodes", self.nodes.join(", "), other.nodes.join(", ")),
        ];
        match fields.into_iter().find(|(_, profile, here)| profile != here) {
            None => Ok(()),
            Some((field, profile, here)) => {
                Err(ProfileError::OtherMachine { field, profile, here })
            }
        }
    }
}

impl NodeProfile {
    fn refine(&mut self, run: NodeProfile) {
        self.latency.refine(run.latency);
        self.bandwidth.refine(run.bandwidth);
        self.loaded.refine(run.loaded);
        self.stores.refine(run.stores);
        self.dirty_cache.refine(run.dirty_cache);
    }

    /// The latency of the memory itself: over the most bytes that were measured. `None` if nothing was.
    pub fn idle_latency(&self) -> Option<&Latency> {
        self.latency.points().iter().max_by_key(|point| point.bytes)
    }

    /// The highest bandwidth of a flavour that any setting reached, 10^9 bytes a second.
    pub fn peak_gb_s(&self, flavour: Flavour, is_random: bool) -> Option<f64> {
        let of = self.bandwidth.points().iter();
        let of = of.filter(|point| point.flavour == flavour && point.is_random == is_random);
        of.map(|point| point.gb_s.median()).reduce(f64::max)
    }
}

/// The JSON Schema of the file.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Profile).to_value()
}

#[cfg(test)]
mod tests;
