//! The index layer: levels of buckets, each with its own lookup function.
//!
//! A bucket *is* its boundary marker, which lies in the level's array and is a link of the data layer. What
//! lies below a bucket that was split is in an array beside it, which exists only where a bucket was split.
//!
//! An index word has no versions, unlike the paper's: whichever level an operation finds leads it to a marker
//! before its key, however old.

use super::function::Function;
use super::key::Key;
use super::link::Link;
use super::options::Options;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where a thread is about to put a level.
const CLAIMED: usize = 1;

/// An array of buckets.
#[derive(Debug)]
pub(super) struct Level<K: Key> {
    function: Function,
    shared: K::Shared,
    markers: Box<[Link<K>]>,
    /// As many pointers as there are markers, each null, claimed or a level; null until one is split.
    below: AtomicPtr<AtomicPtr<Level<K>>>,
}

/// The keys of a bucket: from its marker's key up to, but not including, the next one's.
#[derive(Clone, Debug)]
pub(super) struct Domain<K> {
    pub first: K,
    pub end: Option<K>,
}

/// Where a new level predicts keys though there are none: the level is so many times as large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beyond {
    Nothing,
    Below(u64),
    Above(u64),
}

/// The fewest and the most buckets of a level for keys that are not there yet.
const PREDICTED_MIN: u64 = 64;
const PREDICTED_MAX: u64 = 1 << 16;
/// A level has at most so many buckets for each that has a key.
const SPARSE: u64 = 8;
/// Below so many levels buckets are not split. Only byte strings that are worst for interpolation come this far.
pub(super) const DEPTH_MAX: usize = 64;

impl<K: Key> Level<K> {
    /// Buckets that interpolate over ranks, of which the first begins where the domain does.
    fn new(function: Function, shared: K::Shared, domain: &Domain<K>) -> Level<K> {
        let markers = (0..function.buckets()).map(|bucket| {
            let lower = || K::at(&shared, function.lower(bucket));
            Link::new(if bucket == 0 { domain.first.clone() } else { lower() })
        });
        let markers = markers.collect();
        Level { function, shared, markers, below: AtomicPtr::default() }
    }

    /// Buckets that interpolate from one key up to another. None if the two have the same rank.
    fn between(from: &K, end: &K, domain: &Domain<K>, buckets: u64) -> Option<Level<K>> {
        let shared = K::shared(from, end);
        let (first, last) = (from.rank(&shared), end.rank(&shared));
        (first < last).then(|| Level::new(Function::new(first, last, buckets), shared, domain))
    }

    /// The level that a table begins with.
    pub fn root(options: &Options<K>) -> Level<K> {
        let domain = Domain { first: K::least(), end: None };
        let all = (K::least(), K::far());
        let (min, max) = options.predicted.as_ref().unwrap_or(&all);
        let level = Level::between(min, max, &domain, options.buckets as u64);
        // Two keys may differ and have one rank; then all others are as good.
        let level =
            level.or_else(|| Level::between(&all.0, &all.1, &domain, options.buckets as u64));
        level.expect("the smallest and the largest key have different ranks")
    }

    /// A level over these keys of a domain, in order, with levels below where many keys are in one bucket. None if
    /// keys cannot be told apart by rank, or there is nothing to tell.
    ///
    /// Where keys are dense enough, buckets of equal width fill the whole domain, so that none can ever hold more than
    /// `keys_per_bucket` keys. Where they are not, they lie between the first and the last key that there are.
    ///
    /// `depth` is how many levels are above.
    pub fn over(
        keys: &[K],
        domain: &Domain<K>,
        options: &Options<K>,
        beyond: Beyond,
        depth: usize,
    ) -> Option<Level<K>> {
        let (mut keys, per_bucket) = (keys, options.keys_per_bucket);
        if depth >= DEPTH_MAX {
            return None;
        }
        loop {
            let count = keys.len() as u64;
            if count < 2 {
                return None;
            }
            let dense = domain.end.as_ref().filter(|_| beyond == Beyond::Nothing).and_then(|end| {
                let shared = K::shared(&domain.first, end);
                let width = end.rank(&shared).checked_sub(domain.first.rank(&shared))?;
                let buckets = width / per_bucket;
                ((2..=count).contains(&buckets)).then_some((end, buckets))
            });
            let level = if let Some((end, buckets)) = dense {
                Level::between(&domain.first, end, domain, buckets)
            } else {
                Level::spread(keys, domain, per_bucket, beyond)
            };
            if let Some(level) = level {
                level.build_below(keys, domain, options, depth);
                return Some(level);
            }
            // The first key and the last differ in zeros at the end only: without the first, more is shared.
            keys = &keys[1..];
        }
    }

    /// A level between the first and the last of some keys, and perhaps their distance beyond one of them.
    ///
    /// It stays within the domain. A marker before that of the first bucket would lie behind it in the list.
    fn spread(keys: &[K], domain: &Domain<K>, per_bucket: u64, beyond: Beyond) -> Option<Level<K>> {
        let [first, .., last] = keys else { return None };
        let count = keys.len() as u64;
        let shared = K::shared(first, last);
        let (low, high) = (first.rank(&shared), last.rank(&shared));
        let span = high.checked_sub(low).filter(|span| *span > 0)?;
        let mut buckets = (span / per_bucket).clamp(2, count);
        let least = domain.first.rank(&shared);
        let most = domain.end.as_ref().map_or(u64::MAX, |end| end.rank(&shared));
        let (low, end) = match beyond {
            Beyond::Nothing => (low, high.saturating_add(1)),
            Beyond::Below(times) => {
                let below = high.saturating_sub(span.saturating_mul(times));
                (below.max(least), high.saturating_add(1))
            }
            Beyond::Above(times) => (low, low.saturating_add(span.saturating_mul(times)).min(most)),
        };
        if beyond == Beyond::Nothing {
            let function = Function::new(low, end, buckets);
            buckets = buckets.min(SPARSE * function.used(keys.iter().map(|key| key.rank(&shared))));
        } else {
            buckets *= ((end - low) / span).max(1);
        }
        Some(Level::new(Function::new(low, end, buckets), shared, domain))
    }

    /// Levels below the buckets that many of these keys are in.
    fn build_below(&self, keys: &[K], domain: &Domain<K>, options: &Options<K>, depth: usize) {
        let mut rest = keys;
        while let Some(key) = rest.first() {
            let bucket = self.index(key);
            let count = rest.iter().take_while(|key| self.index(key) == bucket).count();
            let (inside, others) = rest.split_at(count);
            rest = others;
            if count <= options.split_nodes {
                continue;
            }
            let end = self.markers.get(bucket + 1).map(|next| next.key.clone());
            let inner = Domain {
                first: self.markers[bucket].key.clone(),
                end: end.or_else(|| domain.end.clone()),
            };
            let below = Level::over(inside, &inner, options, Beyond::Nothing, depth + 1);
            if let Some(level) = below {
                self.claim(bucket);
                self.publish(bucket, Box::new(level));
            }
        }
    }

    #[inline(always)]
    pub fn index(&self, key: &K) -> usize {
        self.function.index(key.rank(&self.shared))
    }

    /// On which side of the range that the level predicts a key lies.
    pub fn side(&self, key: &K) -> std::cmp::Ordering {
        self.function.side(key.rank(&self.shared))
    }

    /// What a level below the first or the last bucket is to predict, if these keys of it lie outside of what this
    /// level predicts: half as many buckets as this level has, if `most` allows, which is more than are needed until
    /// the next resize. So keys that only ascend, or only descend, somewhere, get levels of growing size.
    pub fn beyond(&self, keys: &[K], most: u64) -> Beyond {
        let [first, .., last] = keys else { return Beyond::Nothing };
        let wanted = (self.markers.len() as u64 / 2).clamp(PREDICTED_MIN, PREDICTED_MAX);
        let buckets = wanted.min(most);
        match buckets / keys.len() as u64 {
            0 | 1 => Beyond::Nothing,
            times if self.side(last).is_gt() => Beyond::Above(times),
            times if self.side(first).is_lt() => Beyond::Below(times),
            _ => Beyond::Nothing,
        }
    }

    pub fn markers(&self) -> &[Link<K>] {
        &self.markers
    }

    #[inline(always)]
    pub fn marker(&self, bucket: usize) -> &Link<K> {
        &self.markers[bucket]
    }

    fn slot(&self, bucket: usize) -> Option<&AtomicPtr<Level<K>>> {
        let below = self.below.load(Ordering::Acquire);
        assert!(bucket < self.markers.len());
        // SAFETY: the array has a pointer for each marker, and lives as long as the level.
        (!below.is_null()).then(|| unsafe { &*below.add(bucket) })
    }

    /// The level below a bucket, if it was split.
    pub fn below(&self, bucket: usize) -> Option<&Level<K>> {
        let level = self.slot(bucket)?.load(Ordering::Acquire);
        // SAFETY: a pointer that is neither null nor the mark of a claim is a level that this level owns.
        (level.addr() > CLAIMED).then(|| unsafe { &*level })
    }

    /// The level below a bucket whose flag says that there is one.
    #[inline(always)]
    pub fn split(&self, bucket: usize) -> &Level<K> {
        self.below(bucket).expect("the flag is set when the level is there")
    }

    fn layout(&self) -> Layout {
        Layout::array::<AtomicPtr<Level<K>>>(self.markers.len())
            .expect("no more than there are markers")
    }

    /// Claims a bucket for a level below it. Returns whether nobody else has.
    pub fn claim(&self, bucket: usize) -> bool {
        if self.below.load(Ordering::Acquire).is_null() {
            let layout = self.layout();
            // SAFETY: a level has markers, so the layout has a size. Zeros are null pointers.
            let array: *mut AtomicPtr<Level<K>> = unsafe { alloc_zeroed(layout) }.cast();
            if array.is_null() {
                handle_alloc_error(layout);
            }
            let others = self.below.compare_exchange(
                ptr::null_mut(),
                array,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if others.is_err() {
                // SAFETY: it was allocated above with this layout, and nobody knows it.
                unsafe { dealloc(array.cast(), layout) };
            }
        }
        let claimed = ptr::without_provenance_mut(CLAIMED);
        let slot = self.slot(bucket).expect("it was made above");
        slot.compare_exchange(ptr::null_mut(), claimed, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives a claim back.
    pub fn release(&self, bucket: usize) {
        if let Some(slot) = self.slot(bucket) {
            slot.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// Puts a level below a bucket that this thread claimed. Its markers are in the list, or this level is not
    /// published itself.
    pub fn publish(&self, bucket: usize, level: Box<Level<K>>) {
        let slot = self.slot(bucket).expect("the bucket is claimed");
        slot.store(Box::into_raw(level), Ordering::Release);
        self.markers[bucket].flag();
    }

    /// Every marker of the level and those below, in the order of their keys.
    pub fn each_marker<'l>(&'l self, visit: &mut impl FnMut(&'l Link<K>)) {
        for (bucket, marker) in self.markers.iter().enumerate() {
            visit(marker);
            if let Some(level) = self.below(bucket) {
                level.each_marker(visit);
            }
        }
    }

    /// Levels from here down, buckets in them, and bytes.
    pub fn size(&self) -> (usize, usize, usize) {
        let has_array = !self.below.load(Ordering::Acquire).is_null();
        let own = size_of::<Self>()
            + size_of_val(&*self.markers)
            + if has_array { self.layout().size() } else { 0 };
        let elsewhere: usize = self.markers.iter().map(|marker| marker.key.bytes_elsewhere()).sum();
        let mut size = (1, self.markers.len(), own + elsewhere);
        for level in (0..self.markers.len()).filter_map(|bucket| self.below(bucket)) {
            let (levels, buckets, bytes) = level.size();
            size = (size.0 + levels, size.1 + buckets, size.2 + bytes);
        }
        size
    }

    /// Which of its buckets a marker is, if it is one.
    #[inline(always)]
    pub fn number(&self, marker: &Link<K>) -> Option<usize> {
        let distance = ptr::from_ref(marker).addr().checked_sub(self.markers.as_ptr().addr())?;
        Some(distance / size_of::<Link<K>>()).filter(|number| *number < self.markers.len())
    }
}

impl<K: Key> Drop for Level<K> {
    fn drop(&mut self) {
        let array = *self.below.get_mut();
        if array.is_null() {
            return;
        }
        for bucket in 0..self.markers.len() {
            // SAFETY: the array has a pointer for each marker, and nobody else has this level any more.
            let level = unsafe { (*array.add(bucket)).load(Ordering::Relaxed) };
            if level.addr() > CLAIMED {
                // SAFETY: `publish` took it from a box, and this level alone owned it.
                drop(unsafe { Box::from_raw(level) });
            }
        }
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(array.cast(), self.layout()) };
    }
}
