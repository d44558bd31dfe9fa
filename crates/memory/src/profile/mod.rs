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
mod eight;
mod error;
mod estimate;
mod figures;
mod file;
mod keeping;
mod machine;
mod measured;

pub use accesses::Accesses;
pub use costs::MemoryCosts;
pub use eight::{Effect, Impact, Recommendation};
pub use error::ProfileError;
pub use estimate::{Estimate, four_digits};
pub use figures::{
    Bandwidth, Copy, DirtyCache, FileCost, FileOp, Flavour, Latency, Loaded, Pages, Quantiles,
    Remote, StoreCost,
};
pub use keeping::Keeping;
pub use machine::ProfiledMachine;
pub use measured::{Measured, NOT_ASKED_FOR};

use crate::topology::node_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

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
    /// Every node's processors on every memory.
    #[serde(default)]
    pub remote: Measured<Remote>,
}

/// What one memory costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeProfile {
    /// Its name.
    pub name: String,
    /// What it is, in words: what it is made of, what it keeps, in which pages it was measured.
    #[serde(default)]
    pub medium: String,
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
    /// Pieces of a file through the kernel, of tiers that are files.
    #[serde(default)]
    pub files: Measured<FileCost>,
    /// The eight tests of Gugnani, where they were asked for.
    #[serde(default)]
    pub effects: Measured<Effect>,
    /// What follows from them for this memory: the recommendations R1 to R7 of the paper.
    #[serde(default)]
    pub recommendations: Measured<Recommendation>,
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
            remote: Measured::not_asked_for(),
        }
    }

    /// The memory of this name; that of a NUMA node by its number alone, too.
    pub fn node(&self, name: &str) -> Option<&NodeProfile> {
        let named = |name: &str| self.nodes.iter().find(|node| node.name == name);
        named(name).or_else(|| named(&node_name(name.parse().ok()?)))
    }

    /// That a part of a memory is needed whole, why it is not if a run could not, and how it is measured into the
    /// profile at `path`.
    pub fn not_measured(&self, node: &str, part: &str, path: &Path) -> String {
        let of = format!("{node}: {part}");
        let left_out = self.left_out().into_iter().find(|(left_out, _)| *left_out == of);
        let why = left_out.map(|(_, why)| format!(" ({why})"));
        let machine = &self.machine;
        let model = machine.is_modelled.then(|| format!("--model {} ", machine.name));
        format!(
            "{part} of {node} was not measured, or not all of it{}; \
             `terrace probe {}--node {node} --part {part} --out {}` does",
            why.unwrap_or_default(),
            model.unwrap_or_default(),
            path.display()
        )
    }

    /// What is missing of what was asked for: of which memory and part, and why.
    pub fn left_out(&self) -> Vec<(String, &str)> {
        let shared = [
            ("copies".into(), self.copies.left_out()),
            ("remote".into(), self.remote.left_out()),
            ("pages".into(), self.pages.left_out()),
        ];
        let all = self.nodes.iter().flat_map(NodeProfile::left_out).chain(shared);
        all.filter_map(|(part, why)| Some((part, why?))).collect()
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
        self.machine.processor = self.machine.processor.take().or(run.machine.processor);
        self.taken_at.extend(run.taken_at);
        for node in run.nodes {
            match self.nodes.iter_mut().find(|known| known.name == node.name) {
                Some(known) => known.refine(node),
                None => self.nodes.push(node),
            }
        }
        self.pages.refine(run.pages);
        self.copies.refine(run.copies);
        self.remote.refine(run.remote);
        Ok(())
    }
}

impl NodeProfile {
    /// A memory of which nothing is known yet.
    pub fn new(name: impl Into<String>) -> NodeProfile {
        NodeProfile {
            name: name.into(),
            medium: String::new(),
            latency: Measured::not_asked_for(),
            bandwidth: Measured::not_asked_for(),
            loaded: Measured::not_asked_for(),
            stores: Measured::not_asked_for(),
            dirty_cache: Measured::not_asked_for(),
            files: Measured::not_asked_for(),
            effects: Measured::not_asked_for(),
            recommendations: Measured::not_asked_for(),
        }
    }

    /// What is missing of each part, if anything is.
    fn left_out(&self) -> [(String, Option<&str>); 6] {
        let of = |part, why| (format!("{}: {part}", self.name), why);
        [
            of("latency", self.latency.left_out()),
            of("bandwidth", self.bandwidth.left_out()),
            of("loaded", self.loaded.left_out()),
            of("stores", self.stores.left_out()),
            of("dirty-cache", self.dirty_cache.left_out()),
            of("files", self.files.left_out()),
        ]
    }

    fn refine(&mut self, run: NodeProfile) {
        self.latency.refine(run.latency);
        self.bandwidth.refine(run.bandwidth);
        self.loaded.refine(run.loaded);
        self.stores.refine(run.stores);
        self.dirty_cache.refine(run.dirty_cache);
        self.files.refine(run.files);
        self.effects.refine(run.effects);
        self.recommendations.refine(run.recommendations);
        if !run.medium.is_empty() {
            self.medium = run.medium;
        }
    }

    /// The unit that the medium is written in, as far as it shows (Gugnani, test I3): the smallest piece that is
    /// streamed to random places about as fast as in order, and by how many threads, the most that were measured.
    /// Smaller ones are gathered by a device only where they are neighbours; threads too few to saturate the medium
    /// wait for their fences instead, and see a smaller unit. `None` where not all of that was measured, or no piece
    /// is large enough.
    pub fn granularity_bytes(&self) -> Option<(u64, usize)> {
        /// Of the bandwidth in order; what is short of it is more than the scatter of two measurements.
        const ABOUT: f64 = 0.8;
        let streamed = || self.bandwidth.whole().iter().filter(|p| p.flavour == Flavour::Stream);
        let threads = streamed().map(|point| point.threads).max()?;
        let of = |is_random: bool, bytes: u64| {
            let setting = (is_random, bytes, threads);
            let mut of = streamed();
            of.find(|p| (p.is_random, p.piece_bytes, p.threads) == setting).map(|p| p.gb_s.median())
        };
        let mut pieces: Vec<u64> = streamed().map(|point| point.piece_bytes).collect();
        pieces.sort_unstable();
        let is_enough = |bytes: &u64| {
            of(true, *bytes).zip(of(false, *bytes)).is_some_and(|(any, row)| any >= ABOUT * row)
        };
        pieces.into_iter().find(is_enough).map(|bytes| (bytes, threads))
    }

    /// The latency of the memory itself: over the most bytes that were measured. `None` if nothing was.
    pub fn idle_latency(&self) -> Option<&Latency> {
        self.latency.points().iter().max_by_key(|point| point.bytes)
    }

    /// The highest bandwidth of a flavour that any setting reached, 10^9 bytes a second; `None` where settings were
    /// left out, since one of them may have been the highest.
    pub fn peak_gb_s(&self, flavour: Flavour, is_random: bool) -> Option<f64> {
        let of = self.bandwidth.whole().iter();
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
