//! The figures of a profile: each a setting and what was measured there.

use super::estimate::Estimate;
use super::measured::Point;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bytes are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Flavour {
    /// Read.
    Read,
    /// Stored; caches decide when it reaches the memory.
    Store,
    /// Stored, written back and fenced.
    StoreFlush,
    /// Streamed past the caches, and fenced.
    Stream,
}

/// How long something took, nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quantiles {
    /// The mean.
    pub mean_ns: Estimate,
    /// Half took longer.
    pub p50_ns: Estimate,
    /// One in a hundred took longer.
    pub p99_ns: Estimate,
}

/// A dependent load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Bytes that the loads were spread over.
    pub bytes: u64,
    /// Of a load; percentiles are of single loads where one takes twice as long as a look at the clock or longer, else
    /// of means of 32.
    pub load: Quantiles,
}

/// Bandwidth at a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// What is done.
    pub flavour: Flavour,
    /// Whether pieces are taken at random, or one after the other.
    pub is_random: bool,
    /// Bytes of a piece.
    pub piece_bytes: u64,
    /// Threads, each over its own part.
    pub threads: usize,
    /// 10^9 bytes a second, all threads together.
    pub gb_s: Estimate,
}

/// A dependent load while others move bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    /// Of 100 pieces moved, those written.
    pub writes_percent: u64,
    /// Pause of each mover after a piece of 1 KiB, nanoseconds.
    pub pause_ns: u64,
    /// Movers.
    pub threads: usize,
    /// What they moved, 10^9 bytes a second.
    pub gb_s: Estimate,
    /// Of a load; percentiles are of single loads where one takes twice as long as a look at the clock or longer, else
    /// of means of 32.
    pub load: Quantiles,
}

/// A piece written at a random place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreCost {
    /// How.
    pub flavour: Flavour,
    /// Bytes of a piece.
    pub piece_bytes: u64,
    /// Of a piece; percentiles are of single pieces where one is waited for and takes twice as long as a look at the
    /// clock or longer, else of means of 16.
    pub piece: Quantiles,
}

/// Loads that miss, while the cache has lines to write back and while it has none (Gugnani, test I8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirtyCache {
    /// Bytes that were made dirty.
    pub dirty_bytes: u64,
    /// A load into a clean cache, nanoseconds.
    pub clean_ns: Estimate,
    /// Into a dirty one.
    pub dirty_ns: Estimate,
}

/// Pieces of a file, through the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileCost {
    /// What is done to a piece.
    pub op: FileOp,
    /// Whether reads went past the page cache; where the file system cannot, they are of memory.
    pub is_direct: bool,
    /// Bytes of a piece, at a random place.
    pub piece_bytes: u64,
    /// Threads, each over its own part of one file.
    pub threads: usize,
    /// 10^9 bytes a second, all threads together.
    pub gb_s: Estimate,
    /// Of a piece.
    pub piece: Quantiles,
}

/// What is done to a piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileOp {
    /// Read.
    Read,
    /// Written, and made durable (`fdatasync`).
    WriteSync,
}

/// Processors of one node on the memory of another, or on their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    /// The node of the processors.
    pub from: String,
    /// The memory.
    pub to: String,
    /// The most threads that moved bytes.
    pub threads: usize,
    /// A dependent load beyond the caches, nanoseconds.
    pub load_ns: Estimate,
    /// Read in order, 10^9 bytes a second.
    pub read_gb_s: Estimate,
    /// Streamed and fenced in order, 10^9 bytes a second.
    pub stream_gb_s: Estimate,
}

/// What a page costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The first touch of a page that is not there, nanoseconds.
    pub fault_ns: Estimate,
    /// A dependent load of a random line with such pages, nanoseconds: what translation adds shows here.
    pub random_load_ns: Estimate,
}

/// Bytes moved from one memory to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// What moves them: `store` (through the caches), `stream` (past them), `library` (as the C library chooses) or
    /// `string` (the processor's `rep movsb`).
    pub engine: String,
    /// The memory they are in.
    pub from: String,
    /// The memory they come to.
    pub to: String,
    /// Bytes of a piece.
    pub piece_bytes: u64,
    /// Threads.
    pub threads: usize,
    /// 10^9 bytes a second, counted once.
    pub gb_s: Estimate,
}

impl Quantiles {
    fn refine(&mut self, later: Quantiles) {
        self.mean_ns.refine(later.mean_ns);
        self.p50_ns.refine(later.p50_ns);
        self.p99_ns.refine(later.p99_ns);
    }
}

macro_rules! points {
    ($($type:ident: $($setting:ident)* => $($figure:ident)*;)*) => {$(
        impl Point for $type {
            fn is_of_setting(&self, other: &Self) -> bool {
                $(self.$setting == other.$setting)&&*
            }
            fn refine(&mut self, later: Self) {
                $(self.$figure.refine(later.$figure);)*
            }
        }
    )*};
}

points! {
    Latency: bytes => load;
    Bandwidth: flavour is_random piece_bytes threads => gb_s;
    Loaded: writes_percent pause_ns threads => gb_s load;
    StoreCost: flavour piece_bytes => piece;
    DirtyCache: dirty_bytes => clean_ns dirty_ns;
    FileCost: op is_direct piece_bytes threads => gb_s piece;
    Remote: from to threads => load_ns read_gb_s stream_gb_s;
    Pages: page_bytes => fault_ns random_load_ns;
    Copy: engine from to piece_bytes threads => gb_s;
}
