//! How the index follows its keys: splits and resizes.
//!
//! An insertion that walked far splits its bucket; one that went down many levels has the whole index rebuilt.
//! Both insert markers first and publish a level afterwards, by one store. Whatever another operation finds
//! meanwhile, an old level or a new one, leads it to a marker before its key.
//!
//! # Who may
//! In the paper any number of threads do the same split, and the first to publish wins. Here one thread claims
//! a bucket and others go on without: their insertion has happened, and the split is for those to come. So
//! markers lie in the level itself, no split is done in vain, and none leaves markers behind. Splits share a
//! lock that a resize takes alone; both only try it. So a thread that is stopped within a split keeps one
//! bucket from being split, and all from a resize, and nobody from reading or writing.
//!
//! # When to resize
//! The paper resizes whenever ten levels are reached. Skewed keys reach them again after every resize, each of
//! which visits every key. Here a resize also builds the levels below crowded buckets, since it has all keys at
//! hand, and happens only if splits made an eighth as many buckets as the last one, or a key lies outside the root's
//! range, and never before a quarter as many keys have changed as it visits. In the second case the new range
//! extends beyond by its length. So does that of a level below the first or the last bucket of another, so that
//! keys that only ascend, from wherever they begin, find few levels.
//!
//! # Markers that are no longer needed
//! All markers of the old root and the levels below are deleted and unlinked once the new root is published, then
//! freed like any element: after every operation has ended that may have begun at one of them.

use super::key::Key;
use super::level::{Beyond, DEPTH_MAX, Domain, Level};
use super::link::{Link, Target};
use super::list::Course;
use super::snapshot::Start;
use super::table::{LookupTable, Visited};
use crossbeam_epoch::{Guard, pin};
use std::sync::atomic::Ordering;

/// Splits may predict so many buckets, however small the index is.
const FEW_BUCKETS: u64 = 1024;
/// One of so many stamps has an insertion look at its whole bucket.
const WHOLE_BUCKET: u64 = 8;

impl<K: Key> LookupTable<K> {
    /// Splits or resizes after an insertion that went through so much.
    ///
    /// It saw what is before its key. Descending keys are inserted next to their marker, each, so some insertions look
    /// at the whole bucket; the paper's would never split it.
    pub(super) fn adapt(&self, key: &K, mut visited: Visited) {
        if self.time.clock.now().is_multiple_of(WHOLE_BUCKET) {
            visited.nodes = self.links_of_bucket(key);
        }
        if visited.levels >= self.options.resize_levels && self.is_outgrown(key) {
            self.resize(Some(key));
        } else if visited.nodes >= self.options.split_nodes {
            self.split(key);
        }
    }

    /// Links in the bucket of a key, up to as many as are split.
    fn links_of_bucket(&self, key: &K) -> usize {
        let guard = pin();
        let (_, _, mut word) = self.bucket(key, &mut (), &guard);
        let mut links = 0;
        while let Some(Target::Element(node)) = word.target(&guard) {
            links += 1;
            if links == self.options.split_nodes {
                break;
            }
            word = node.link.word();
        }
        links
    }

    pub(super) fn root<'g>(&self, _: &'g Guard) -> &'g Level<K> {
        // SAFETY: a root is freed only after it is replaced and every guard that was pinned by then is dropped.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// Whether a resize is worth its cost, which is that of visiting every key: there were a quarter as many changes
    /// since the last one, and it helps.
    fn is_outgrown(&self, key: &K) -> bool {
        let guard = pin();
        let root = self.root(&guard);
        let is_due = self.time.clock.now() >= self.next_resize.load(Ordering::Relaxed);
        is_due && (root.side(key).is_ne() || self.has_many_splits())
    }

    /// Splits made an eighth as many buckets as the last resize: with keys spread evenly, there are twice as many.
    fn has_many_splits(&self) -> bool {
        8 * self.split_buckets.load(Ordering::Relaxed) >= self.built_buckets.load(Ordering::Relaxed)
    }

    /// Makes a level of the bucket that a key is in, unless another thread does, or changes the whole index.
    pub(super) fn split(&self, key: &K) {
        let Some(_shared) = self.structure.try_read() else { return };
        let guard = pin();
        let mut above = Visited::default();
        let (level, bucket, _) = self.bucket(key, &mut above, &guard);
        if above.levels >= DEPTH_MAX || !level.claim(bucket) {
            return;
        }
        // A split may have ended between finding the bucket and claiming it; its claim would still be there.
        let marker = level.marker(bucket);
        let (keys, domain) = self.keys_of_bucket(marker, &guard);
        let most = self.built_buckets.load(Ordering::Relaxed).max(FEW_BUCKETS);
        let most = most.saturating_sub(self.split_buckets.load(Ordering::Relaxed));
        let beyond = level.beyond(&keys, most);
        let below = Level::over(&keys, &domain, &self.options, beyond, above.levels);
        let Some(below) = below else {
            level.release(bucket);
            return;
        };
        let below = Box::new(below);
        self.link_markers(marker, &below, Course(&[]));
        self.splits.fetch_add(1, Ordering::Relaxed);
        self.split_buckets.fetch_add(below.markers().len() as u64, Ordering::Relaxed);
        super::step::step();
        level.publish(bucket, below);
    }

    /// The keys in a bucket that is not split, gone or not, and where it ends.
    fn keys_of_bucket(&self, marker: &Link<K>, guard: &Guard) -> (Vec<K>, Domain<K>) {
        let (mut keys, mut word) = (Vec::new(), marker.word());
        let end = loop {
            match word.target(guard) {
                Some(Target::Marker(next)) if next.key > marker.key => {
                    break Some(next.key.clone());
                }
                Some(target) => {
                    if let Target::Element(node) = &target {
                        keys.push(node.link.key.clone());
                    }
                    word = target.link().word();
                }
                None => break None,
            }
        };
        // What was deleted while this walked over it may be there twice.
        keys.dedup();
        (keys, Domain { first: marker.key.clone(), end })
    }

    /// Makes one level of all, with levels below where keys are crowded, unless another thread is changing the index.
    /// For an insertion of `key` that found the index outgrown, or because it was asked for.
    pub(super) fn resize(&self, key: Option<&K>) {
        let Some(_alone) = self.structure.try_write() else { return };
        // Another thread may just have done it.
        if key.is_some_and(|key| !self.is_outgrown(key)) {
            return;
        }
        let side = key.map_or(std::cmp::Ordering::Equal, |key| self.root(&pin()).side(key));
        let beyond = match side {
            std::cmp::Ordering::Less => Beyond::Below(2),
            std::cmp::Ordering::Equal => Beyond::Nothing,
            std::cmp::Ordering::Greater => Beyond::Above(2),
        };
        let (keys, course) = self.all_keys();
        let domain = Domain { first: K::least(), end: None };
        let Some(root) = Level::over(&keys, &domain, &self.options, beyond, 0) else { return };
        self.next_resize.store(self.time.clock.now() + keys.len() as u64 / 4, Ordering::Relaxed);
        drop(keys);
        let root = Box::into_raw(Box::new(root));
        // SAFETY: it is the box above, which lives until it is replaced: by this function alone, under the lock.
        self.link_markers(&self.head, unsafe { &*root }, Course(&course));
        super::step::step();
        let old = self.root.swap(root, Ordering::AcqRel);
        super::step::step();
        // SAFETY: as above.
        let (_, buckets, _) = unsafe { &*root }.size();
        self.built_buckets.store(buckets as u64, Ordering::Relaxed);
        // SAFETY: the old root is freed below.
        unsafe { &*old }.each_marker(&mut |marker| marker.delete());
        self.sweep(Course(&course));
        self.retire_root(old);
        self.split_buckets.store(0, Ordering::Relaxed);
        self.resizes.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees a root that was replaced, and whose markers are out of the list.
    fn retire_root(&self, old: *mut Level<K>) {
        #[cfg(any(test, feature = "faults"))]
        if self.time.fault.is_some() {
            return;
        }
        // SAFETY: only threads that are pinned by now can read it. It came from a box, and only the thread that
        // replaced it frees it.
        unsafe { pin().defer_unchecked(move || drop(Box::from_raw(old))) };
    }

    /// The keys that are there, more or less, since others come and go meanwhile; and where their elements lie.
    fn all_keys(&self) -> (Vec<K>, Vec<usize>) {
        let (mut keys, mut course) = (Vec::new(), Vec::new());
        let mut from = Some(Start::At(K::least()));
        while let Some(begin) = from {
            from = self.walk_some(&begin, &mut |node, guard| {
                if node.now(&self.time, guard).is_some() {
                    keys.push(node.link.key.clone());
                    course.push(std::ptr::from_ref(node).addr());
                }
                true
            });
        }
        (keys, course)
    }
}
