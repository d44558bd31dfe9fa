//! What a table consists of.

use super::key::Key;
use super::link::{Node, Target};
use super::table::LookupTable;
use super::version::VERSION_BYTES;
use crossbeam_epoch::pin;
use std::sync::atomic::Ordering;

/// What a table consists of, and what became of its index. Exact while nobody writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys that are there.
    pub keys: usize,
    /// Elements of keys that are gone, which a snapshot needs or needed.
    pub gone: usize,
    /// Versions outside elements: of keys that have changed.
    pub versions: usize,
    /// Levels of the index, all of them.
    pub levels: usize,
    /// Buckets in them.
    pub buckets: usize,
    /// Buckets that were split since the table was made.
    pub splits: u64,
    /// How often all levels became one.
    pub resizes: u64,
    /// Bytes of elements, versions and levels, without what the allocator adds.
    pub bytes: usize,
}

impl<K: Key> LookupTable<K> {
    /// Counts what the table consists of. It visits every element, and frees nothing meanwhile.
    pub fn stats(&self) -> Stats {
        let guard = pin();
        let (levels, buckets, bytes) = self.root(&guard).size();
        let mut stats = Stats {
            levels,
            buckets,
            bytes,
            splits: self.splits.load(Ordering::Relaxed),
            resizes: self.resizes.load(Ordering::Relaxed),
            ..Stats::default()
        };
        let mut word = self.head.word();
        while let Some(target) = word.target(&guard) {
            if let Target::Element(node) = target {
                match node.now(&self.time, &guard) {
                    Some(_) => stats.keys += 1,
                    None => stats.gone += 1,
                }
                let versions = node.versions(&guard);
                stats.versions += versions;
                let elsewhere = node.link.key.bytes_elsewhere();
                stats.bytes += size_of::<Node<K>>() + elsewhere + versions * VERSION_BYTES;
            }
            word = target.link().word();
        }
        stats
    }
}
