//! Presets: a machine's published figures, one documented file each.
//!
//! A preset has what data sheets and papers say of a machine; each figure stands in its file beside its
//! source, or is DERIVED from others as its line says. Where nobody has published one it is marked ASSUMED
//! with the reason, and two, the random share of replacement, are CALIBRATED to one published curve and to
//! nothing else; a test refuses a figure without any of these. A paper's load generator is
//! taken from four of its figures of DRAM, which stand in `[generator]`. What the figures leave
//! open follows from the model, and [`calibrate`](super::calibrate) prints how far that is from
//! what was measured on the real machine.

mod check;
mod engines;
mod host;
mod opened;
mod profiled;
#[cfg(test)]
mod sources;
mod text;

pub use engines::EngineSpec;
pub use host::Measured;
pub use opened::Opened;
pub use profiled::Profiled;
use serde::Deserialize;
use std::fmt;
pub use text::{Wrong, from_toml};

/// The presets that come with this crate, by name.
const BUILT_IN: &[(&str, &str)] = &[
    ("optane-000", include_str!("../../../presets/optane-000.toml")),
    ("optane-001", include_str!("../../../presets/optane-001.toml")),
    ("optane-004", include_str!("../../../presets/optane-004.toml")),
    ("enzian-fast", include_str!("../../../presets/enzian-fast.toml")),
    ("enzian-slow", include_str!("../../../presets/enzian-slow.toml")),
    ("xeon-max", include_str!("../../../presets/xeon-max.toml")),
    ("m2-ultra", include_str!("../../../presets/m2-ultra.toml")),
    ("two-socket", include_str!("../../../presets/two-socket.toml")),
    ("four-socket", include_str!("../../../presets/four-socket.toml")),
    ("cxl", include_str!("../../../presets/cxl.toml")),
];

/// A machine to model. Times are in nanoseconds, bandwidths in 10^9 bytes a second.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name, as in [`Preset::named`].
    pub name: String,
    /// What it stands for, one line.
    pub about: String,
    /// Cores and their private parts.
    pub processor: Processor,
    /// Caches, from the core outwards: private ones, then the one that a socket shares, last.
    pub cache: Vec<CacheLevel>,
    /// Memories.
    pub node: Vec<NodeSpec>,
    /// What joins the sockets; none where there is one socket.
    pub link: Option<LinkSpec>,
    /// What the paper's load generator reached on this machine's DRAM; none where no figure contains its work.
    pub generator: Option<GeneratorSpec>,
    /// Its copy engines; none where there are none, or nobody has their figures.
    pub engines: Option<EngineSpec>,
    /// Parts left out, to see what they do. Not of the file.
    #[serde(skip)]
    pub without: Ablation,
}

/// Parts of the model that are switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ablation {
    /// Device buffers hold one line: neither reads nor writes are combined.
    pub combining: bool,
    /// Neither processors nor devices fetch ahead.
    pub prefetching: bool,
    /// Nobody waits for anything shared: every bandwidth is unlimited.
    pub queueing: bool,
}

/// A processor and its cores.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Sockets, each with the shared cache and its own memories.
    pub sockets: usize,
    /// Cores of a socket.
    pub cores_per_socket: usize,
    /// Logical threads of a core; they share its caches.
    pub threads_per_core: usize,
    /// Clock, MHz.
    pub clock_mhz: u32,
    /// Bytes of a cache line.
    pub line_bytes: u64,
    /// Lines that a core can wait for at a time.
    pub line_fill_buffers: usize,
    /// Stores that a core can have made and not yet put into its cache.
    pub store_buffer: usize,
    /// Bytes that a core stores in a cycle.
    pub store_bytes: u64,
    /// When stores leave the store buffer.
    pub stores: Stores,
    /// Whether a write-back keeps the line.
    pub write_back: WriteBack,
    /// Lines that a socket can be writing back at a time, all memories together.
    pub write_back_queue: u64,
    /// Cycles of a fence that has nothing to wait for.
    pub fence_cycles: u64,
    /// Cycles of a compare-exchange in the nearest cache.
    pub exchange_cycles: u64,
    /// Lines that the prefetcher runs ahead of a sequential reader; 0 is none.
    pub prefetch_lines: u64,
    /// A line from another core's cache of the same socket.
    pub core_to_core_ns: f64,
}

/// When a store leaves the store buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stores {
    /// At once and in order, its line asked for as soon as it is made: x86.
    Eager,
    /// When a fence, a demote or a full buffer makes it: weakly ordered cores keep what they wrote
    /// private for as long as they may (Wu, 3.4.2).
    Lazy,
}

/// What a write-back does to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteBack {
    /// It stays, clean.
    Keeps,
    /// It is gone: a flush, and `clwb` on the first processors that have it.
    Invalidates,
}

/// A level of caches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheLevel {
    /// Capacity: of a core's for private levels, of a socket's for the shared one.
    pub bytes: u64,
    /// Ways of a set.
    pub ways: usize,
    /// Load to use.
    pub latency_ns: f64,
    /// Which line of a full set is given up.
    pub replacement: Policy,
    /// Of 100 lines given up, how many are any: with `replacement = "mixed"` only.
    #[serde(default)]
    pub random_percent: u8,
    /// The same while several cores fill it. Their lines interleave in ways that disturb the order
    /// which one core's keep (Wu, 3.4.1).
    #[serde(default)]
    pub random_percent_shared: u8,
}

/// Which line of a full set is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The longest unused.
    Lru,
    /// Nearly so, by a tree of bits.
    TreePlru,
    /// Any.
    Random,
    /// Tree-PLRU, and any in `random_percent` or `random_percent_shared` of 100 cases.
    Mixed,
}

/// A memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Its name, unique in the preset.
    pub name: String,
    /// The socket it belongs to.
    pub socket: usize,
    /// Channels or DIMMs, each with its own queue.
    pub channels: usize,
    /// Consecutive bytes of one channel.
    pub interleave_bytes: u64,
    /// Reads of consecutive lines, all channels.
    pub read_gb_s: f64,
    /// Writes of consecutive lines, all channels.
    pub write_gb_s: f64,
    /// Reads of single lines all over, all channels: rows of DRAM must be opened for them. Not where
    /// there is `media`, whose line size decides it.
    pub random_read_gb_s: Option<f64>,
    /// Writes of single lines all over, as above.
    pub random_write_gb_s: Option<f64>,
    /// Whether reads and writes have wires of their own, as the two ways of a serial link: else they share them. Not
    /// where there is `media`.
    #[serde(default)]
    pub both_ways: bool,
    /// An idle load of a consecutive line.
    pub read_ns: f64,
    /// An idle load of any other line.
    pub random_read_ns: f64,
    /// From a write-back to its acceptance: what a fence waits for.
    pub write_back_ns: f64,
    /// From a streaming store to its acceptance.
    pub stream_ns: f64,
    /// Lines that a channel accepts before they are written.
    pub write_queue: u64,
    /// Asking the directory for the right to write a line, where the memory itself keeps it.
    #[serde(default)]
    pub directory_ns: f64,
    /// What is inside, where it works in larger lines than the processor's.
    pub media: Option<MediaSpec>,
}

/// A medium behind a buffer, in lines of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediaSpec {
    /// Bytes it reads and writes at a time.
    pub line_bytes: u64,
    /// Its lines that a DIMM's buffer holds, for reads and for combining writes.
    pub buffer_lines: usize,
    /// Consecutive lines of the medium that must have been read for the next to be fetched ahead; 0
    /// is never.
    pub prefetch_after: u32,
}

/// Figures of a load generator on DRAM, sequential, from which its own work for a piece is found: instructions cost
/// nothing in the model (see [`Generator`](super::calibrate::Generator)).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratorSpec {
    /// P-stores of one thread, pieces of 64 bytes, 2^20 bytes a second.
    pub write_64_mib_s: f64,
    /// The same, pieces of 4096 bytes.
    pub write_4096_mib_s: f64,
    /// Reads of sixteen threads, pieces of 64 bytes.
    pub read_64_mib_s: f64,
    /// Loading an item of 64 bytes that a cache holds, eight threads.
    pub item_ns: f64,
}

/// Links between any two sockets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Added to an access.
    pub latency_ns: f64,
    /// Each direction, each pair of sockets.
    pub gb_s: f64,
    /// Whether the memory itself notes which of its lines another socket may hold: the first such read of
    /// a line is then a write to the memory too, until the line is written and the note with it.
    pub notes_in_memory: bool,
}

/// Why a preset, or a request to its machine, was refused: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetError(pub(super) String);

impl PresetError {
    pub(crate) fn without_engines(name: &str) -> PresetError {
        PresetError(format!("{name}: it has no [engines]; xeon-max has"))
    }
}

impl fmt::Display for PresetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PresetError {}

impl Preset {
    /// Names of the presets that come with this crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The preset of a name.
    ///
    /// # Errors
    /// There is none; the error names those there are.
    pub fn named(name: &str) -> Result<Preset, PresetError> {
        let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = Preset::names().collect();
            let known = known.join(", ");
            return Err(PresetError(format!("no preset '{name}'; there are {known}")));
        };
        Preset::parse(text)
    }

    /// The text of a built-in preset, with the source of every figure.
    pub fn text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a preset.
    ///
    /// # Errors
    /// One line: where, which field, and what it may be.
    pub fn parse(text: &str) -> Result<Preset, PresetError> {
        let preset: Preset = from_toml(text)
            .map_err(|Wrong { line, what }| PresetError(format!("line {line}: {what}")))?;
        check::check(&preset)?;
        Ok(preset)
    }

    /// The same machine with parts left out.
    #[must_use]
    pub fn without(mut self, without: Ablation) -> Preset {
        self.without = without;
        self
    }

    /// The same machine with every cache a `divisor`-th of its size (at least one set): a small
    /// data set then meets it as a large one meets the whole machine. Smaller caches have fewer sets,
    /// and tags for fewer lines: a node has the less addresses.
    #[must_use]
    pub fn with_caches_divided(mut self, divisor: u64) -> Preset {
        for cache in &mut self.cache {
            let set = self.processor.line_bytes * cache.ways as u64;
            cache.bytes = (cache.bytes / divisor / set * set).max(set);
        }
        self
    }

    /// Logical threads that the machine has.
    pub fn threads(&self) -> usize {
        let processor = &self.processor;
        processor.sockets * processor.cores_per_socket * processor.threads_per_core
    }

    /// The memory of a name.
    ///
    /// # Errors
    /// There is none; the error names those there are.
    pub fn node_named(&self, name: &str) -> Result<usize, PresetError> {
        self.node.iter().position(|node| node.name == name).ok_or_else(|| {
            let known: Vec<_> = self.node.iter().map(|node| node.name.as_str()).collect();
            let known = known.join(", ");
            PresetError(format!("{}: no memory '{name}'; there are {known}", self.name))
        })
    }
}
