//! Settings of a table.

use super::error::{Error, Result};
use super::key::Key;

/// The most buckets that a table begins with: as many as 16 GiB of markers.
const BUCKETS_MAX: usize = 1 << 30;

/// Settings of a [`LookupTable`](super::LookupTable). They change its speed and size only, never what it answers.
///
/// ```
/// use terrace_lockfree::lookup::{LookupTable, Options};
///
/// let ids: LookupTable<u64> = LookupTable::new(Options::predicted(0, 1_000_000).with_buckets(10_000))?;
/// assert_eq!(ids.get(&7), None);
/// # Ok::<(), terrace_lockfree::lookup::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options<K> {
    pub(super) buckets: usize,
    pub(super) predicted: Option<(K, K)>,
    pub(super) split_nodes: usize,
    pub(super) resize_levels: usize,
    pub(super) keys_per_bucket: u64,
}

impl<K> Default for Options<K> {
    /// Nothing is predicted; the table finds out.
    fn default() -> Self {
        Options {
            buckets: 64,
            predicted: None,
            split_nodes: 6,
            resize_levels: 3,
            keys_per_bucket: 1,
        }
    }
}

impl<K> Options<K> {
    /// Most keys will lie from `min` up to `max`, about evenly.
    pub fn predicted(min: K, max: K) -> Options<K> {
        Options { predicted: Some((min, max)), ..Options::default() }
    }

    /// The settings of the paper: 10 000 buckets at first, a split after ten nodes into buckets of up to ten
    /// keys, and a resize after ten levels.
    pub fn paper(min: K, max: K) -> Options<K> {
        Options {
            buckets: 10_000,
            predicted: Some((min, max)),
            split_nodes: 10,
            resize_levels: 10,
            keys_per_bucket: 10,
        }
    }

    /// Buckets that the table begins with.
    pub fn with_buckets(self, buckets: usize) -> Options<K> {
        Options { buckets, ..self }
    }

    /// An insertion that walks over so many nodes splits the bucket.
    pub fn with_split_after(self, nodes: usize) -> Options<K> {
        Options { split_nodes: nodes, ..self }
    }

    /// An insertion that goes down so many levels makes them one.
    pub fn with_resize_after(self, levels: usize) -> Options<K> {
        Options { resize_levels: levels, ..self }
    }

    /// Possible keys in a bucket that a split or resize makes, where keys are dense; present ones where they are not.
    pub fn with_keys_per_bucket(self, keys: u64) -> Options<K> {
        Options { keys_per_bucket: keys, ..self }
    }
}

impl<K: Key> Options<K> {
    pub(super) fn check(&self) -> Result<()> {
        let wrong =
            |what, value: usize, valid| Err(Error::Option { what, value: value as u64, valid });
        if !(1..=BUCKETS_MAX).contains(&self.buckets) {
            return wrong("the number of buckets", self.buckets, "1 to 2^30");
        }
        if self.split_nodes < 2 {
            return wrong("the walk before a split", self.split_nodes, "2 nodes or more");
        }
        if self.resize_levels < 2 {
            return wrong("the depth before a resize", self.resize_levels, "2 levels or more");
        }
        if self.keys_per_bucket == 0 {
            return wrong("keys per bucket", 0, "1 or more");
        }
        if self.predicted.as_ref().is_some_and(|(min, max)| min >= max) {
            return Err(Error::Predicted);
        }
        Ok(())
    }
}
