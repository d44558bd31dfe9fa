//! One file for each engine; `maps` holds those in memory.
//!
//! To add one: its file, a [`Name`], and a line in [`with_engine`]. `terrace-peers check` then
//! compares it with a model.

pub mod fjall;
pub mod floor;
pub mod lmdb;
pub mod maps;
pub mod ordered;
pub mod redb;
pub mod rocksdb;
pub mod sled;
pub mod terrace;

use crate::engine::Engine;
use serde::{Deserialize, Serialize};
use terrace_workload::ycsb::NullTarget;

include!(concat!(env!("OUT_DIR"), "/versions.rs"));

/// The engines there are.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// Ours, by hash.
    Terrace,
    /// Ours, ordered.
    TerraceOrdered,
    /// RocksDB with its write-ahead log.
    Rocksdb,
    /// LMDB through heed.
    Lmdb,
    /// redb.
    Redb,
    /// fjall.
    Fjall,
    /// sled 0.34.
    Sled,
    /// dashmap, in memory.
    Dashmap,
    /// papaya, in memory.
    Papaya,
    /// scc's `HashMap`, in memory.
    Scc,
    /// std's `BTreeMap` behind a lock, in memory.
    Btreemap,
    /// crossbeam's `SkipMap`, in memory.
    Skiplist,
    /// scc's `TreeIndex`, in memory.
    Treeindex,
    /// congee, an adaptive radix tree, in memory; keys of 8 bytes.
    Congee,
    /// A table that knows where everything is: the memory's floor. Only reads are measured.
    Floor,
    /// Does nothing: the harness's own ceiling. Only on request.
    Null,
}

impl Name {
    /// Those measured unless told otherwise.
    pub const DEFAULT: [Name; 9] = [
        Name::Terrace,
        Name::Rocksdb,
        Name::Lmdb,
        Name::Redb,
        Name::Fjall,
        Name::Sled,
        Name::Dashmap,
        Name::Papaya,
        Name::Scc,
    ];

    /// Whether it is Terrace.
    pub fn is_ours(self) -> bool {
        matches!(self, Name::Terrace | Name::TerraceOrdered)
    }

    /// Whether it keeps anything past the process.
    pub fn is_durable(self) -> bool {
        use Name::{Fjall, Lmdb, Redb, Rocksdb, Sled, Terrace, TerraceOrdered};
        matches!(self, Terrace | TerraceOrdered | Rocksdb | Lmdb | Redb | Fjall | Sled)
    }

    /// Whether it can have keys of this length.
    pub fn takes_keys_of(self, bytes: usize) -> bool {
        self != Name::Congee || bytes == 8
    }

    /// Whether it can be held to a bound of its memory, and reads its files past the system's page cache then.
    pub fn keeps_to_memory(self) -> bool {
        matches!(self, Name::Terrace | Name::Rocksdb)
    }

    /// Whether it scans in the order of keys.
    pub fn is_ordered(self) -> bool {
        !matches!(
            self,
            Name::Terrace | Name::Dashmap | Name::Papaya | Name::Scc | Name::Congee | Name::Floor
        )
    }

    /// Whether its durable writes survive a power cut: sled 0.34 on Linux syncs with
    /// `sync_file_range`, which flushes neither the file's metadata nor the device's cache.
    pub fn survives_power_loss(self) -> bool {
        self.is_durable() && self != Name::Sled
    }

    /// The version linked here, as the lock file has it.
    pub fn version(self) -> &'static str {
        let package = match self {
            Name::Terrace | Name::TerraceOrdered => "terrace",
            Name::Rocksdb => "librocksdb-sys",
            Name::Lmdb => "lmdb-master-sys",
            Name::Redb => "redb",
            Name::Fjall => "fjall",
            Name::Sled => "sled",
            Name::Dashmap => "dashmap",
            Name::Papaya => "papaya",
            Name::Scc | Name::Treeindex => "scc",
            Name::Skiplist => "crossbeam-skiplist",
            Name::Congee => "congee",
            Name::Btreemap => return "std",
            Name::Floor | Name::Null => "terrace-workload",
        };
        VERSIONS.iter().find(|(name, _)| *name == package).map_or("", |(_, version)| version)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = clap::ValueEnum::to_possible_value(self);
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Something to do with an engine, whichever it is.
pub trait Visit {
    /// What comes of it.
    type Output;

    /// Does it with engine type `E`.
    fn visit<E: Engine>(self) -> Self::Output;
}

/// Does it with the engine `name`, whose keys are `key_bytes` long: maps in memory hold keys of 8
/// and 16 bytes inline, others boxed.
pub fn with_engine<V: Visit>(name: Name, key_bytes: usize, visitor: V) -> V::Output {
    match (name, key_bytes) {
        (Name::Terrace, _) => visitor.visit::<terrace::Terrace<false>>(),
        (Name::TerraceOrdered, _) => visitor.visit::<terrace::Terrace<true>>(),
        (Name::Rocksdb, _) => visitor.visit::<rocksdb::Rocksdb>(),
        (Name::Lmdb, _) => visitor.visit::<lmdb::Lmdb>(),
        (Name::Redb, _) => visitor.visit::<redb::Redb>(),
        (Name::Fjall, _) => visitor.visit::<fjall::Fjall>(),
        (Name::Sled, _) => visitor.visit::<sled::Sled>(),
        (Name::Dashmap, 8) => visitor.visit::<maps::Dashmap<[u8; 8]>>(),
        (Name::Dashmap, 16) => visitor.visit::<maps::Dashmap<[u8; 16]>>(),
        (Name::Dashmap, _) => visitor.visit::<maps::Dashmap<Box<[u8]>>>(),
        (Name::Papaya, 8) => visitor.visit::<maps::Papaya<[u8; 8]>>(),
        (Name::Papaya, 16) => visitor.visit::<maps::Papaya<[u8; 16]>>(),
        (Name::Papaya, _) => visitor.visit::<maps::Papaya<Box<[u8]>>>(),
        (Name::Scc, 8) => visitor.visit::<maps::Scc<[u8; 8]>>(),
        (Name::Scc, 16) => visitor.visit::<maps::Scc<[u8; 16]>>(),
        (Name::Scc, _) => visitor.visit::<maps::Scc<Box<[u8]>>>(),
        (Name::Btreemap, 8) => visitor.visit::<ordered::Btreemap<[u8; 8]>>(),
        (Name::Btreemap, 16) => visitor.visit::<ordered::Btreemap<[u8; 16]>>(),
        (Name::Btreemap, _) => visitor.visit::<ordered::Btreemap<Box<[u8]>>>(),
        (Name::Skiplist, 8) => visitor.visit::<ordered::Skiplist<[u8; 8]>>(),
        (Name::Skiplist, 16) => visitor.visit::<ordered::Skiplist<[u8; 16]>>(),
        (Name::Skiplist, _) => visitor.visit::<ordered::Skiplist<Box<[u8]>>>(),
        (Name::Treeindex, 8) => visitor.visit::<ordered::Treeindex<[u8; 8]>>(),
        (Name::Treeindex, 16) => visitor.visit::<ordered::Treeindex<[u8; 16]>>(),
        (Name::Treeindex, _) => visitor.visit::<ordered::Treeindex<Box<[u8]>>>(),
        (Name::Congee, _) => visitor.visit::<ordered::Congee>(),
        (Name::Floor, _) => visitor.visit::<floor::Floor>(),
        (Name::Null, _) => visitor.visit::<NullTarget>(),
    }
}

/// Copies a value out, as [`terrace_workload::ycsb::Handle::get`] asks.
#[inline]
fn copy(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(value);
}
