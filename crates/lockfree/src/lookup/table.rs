//! The table: what it is made of, and the operations on single keys.

use super::clock::Clock;
use super::error::{Error, Result};
use super::graveyard::Graveyard;
use super::key::Key;
use super::level::Level;
use super::link::{Link, Node};
use super::list::{Course, Place};
use super::options::Options;
use super::version::{Changed, State, Time, When};
use crossbeam_epoch::{Guard, pin};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// An ordered map from keys to values of 64 bits, which threads read and write at once.
///
/// Every operation is linearizable. Operations on single keys are lock-free; a look-up waits for nobody and repeats
/// nothing. A [`Snapshot`](super::Snapshot) reads ranges at one moment.
#[derive(Debug)]
pub struct LookupTable<K: Key> {
    /// A marker before all keys, in no level: the list begins here whatever happens to the index.
    pub(super) head: Link<K>,
    pub(super) root: AtomicPtr<Level<K>>,
    pub(super) time: Time,
    pub(super) graveyard: Graveyard<K>,
    pub(super) options: Options<K>,
    /// Splits share it; a resize has it alone. Only tried, never waited for.
    pub(super) structure: RwLock<()>,
    /// Buckets that the last resize made, or the table began with.
    pub(super) built_buckets: AtomicU64,
    /// Buckets that splits made since the last resize.
    pub(super) split_buckets: AtomicU64,
    /// The clock's time before which no resize pays.
    pub(super) next_resize: AtomicU64,
    pub(super) splits: AtomicU64,
    pub(super) resizes: AtomicU64,
}

/// What a look-up went through, as the paper counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// Levels of the index.
    pub levels: usize,
    /// Links behind the bucket's own marker, up to the one where the search ended.
    pub nodes: usize,
}

impl<K: Key> LookupTable<K> {
    /// An empty table.
    ///
    /// # Errors
    /// [`Error::Option`] and [`Error::Predicted`].
    pub fn new(options: Options<K>) -> Result<LookupTable<K>> {
        options.check()?;
        let root = Box::new(Level::root(&options));
        let table = LookupTable {
            head: Link::new(K::least()),
            root: AtomicPtr::new(std::ptr::null_mut()),
            time: Time {
                clock: Clock::new(),
                #[cfg(any(test, feature = "faults"))]
                fault: None,
            },
            graveyard: Graveyard::default(),
            options,
            structure: RwLock::new(()),
            built_buckets: AtomicU64::new(root.markers().len() as u64),
            split_buckets: AtomicU64::new(0),
            next_resize: AtomicU64::new(0),
            splits: AtomicU64::new(0),
            resizes: AtomicU64::new(0),
        };
        table.link_markers(&table.head, &root, Course(&[]));
        table.root.store(Box::into_raw(root), Ordering::Release);
        Ok(table)
    }

    /// A table that leaves out a step. It frees no elements, so that a wrong answer is all that can come of it.
    ///
    /// # Errors
    /// The errors of [`LookupTable::new`].
    #[cfg(any(test, feature = "faults"))]
    pub fn with_fault(options: Options<K>, fault: super::step::Fault) -> Result<LookupTable<K>> {
        let mut table = LookupTable::new(options)?;
        table.time.fault = Some(fault);
        Ok(table)
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &K) -> Option<u64> {
        let guard = pin();
        self.find(key, &mut (), &guard)?.now(&self.time, &guard)
    }

    /// The value of a key, and what the look-up went through.
    pub fn get_visited(&self, key: &K) -> (Option<u64>, Visited) {
        let (guard, mut visited) = (pin(), Visited::default());
        let found = self.find(key, &mut visited, &guard);
        (found.and_then(|node| node.now(&self.time, &guard)), visited)
    }

    /// Inserts a key, unless it is there. Returns whether it was not.
    pub fn insert(&self, key: K, value: u64) -> bool {
        matches!(self.set(key, value, When::Absent), Changed::From(_))
    }

    /// Sets a key's value, whether it is there or not. Returns the value before.
    pub fn put(&self, key: K, value: u64) -> Option<u64> {
        match self.set(key, value, When::Always) {
            Changed::From(before) | Changed::Not(before) => before,
            Changed::Dead => None,
        }
    }

    /// Sets a key's value if it is there. Returns the value before.
    pub fn replace(&self, key: &K, value: u64) -> Option<u64> {
        self.change(key, Some(value))
    }

    /// Removes a key. Returns its value, if it was there.
    pub fn remove(&self, key: &K) -> Option<u64> {
        self.change(key, None)
    }

    fn set(&self, key: K, value: u64, when: When) -> Changed {
        let guard = pin();
        let mut fresh = None;
        let (changed, visited) = loop {
            let place = self.locate(&key, &guard);
            if let Some(node) = place.found {
                match node.change(Some(value), when, &self.time, &guard) {
                    Changed::Dead => {
                        node.link.delete();
                        continue;
                    }
                    changed => {
                        self.settle(node, &guard);
                        break (changed, place.visited);
                    }
                }
            }
            let node = fresh
                .take()
                .unwrap_or_else(|| Box::new(Node::new(key.clone(), value, State::unstamped())));
            match self.insert_at(&place, node, &guard) {
                Ok(node) => {
                    super::step::step();
                    node.stamp(&self.time, &guard);
                    break (Changed::From(None), place.visited);
                }
                Err(node) => fresh = Some(node),
            }
        };
        drop(guard);
        self.adapt(&key, visited);
        self.tidy();
        changed
    }

    /// Puts an element into the list where it belongs, without a stamp, unless the place changed.
    pub(super) fn insert_at<'g>(
        &self,
        place: &Place<'g, K>,
        node: Box<Node<K>>,
        _: &'g Guard,
    ) -> std::result::Result<&'g Node<K>, Box<Node<K>>> {
        node.link.lead_like(place.word);
        let node = Box::into_raw(node);
        super::step::step();
        if place.previous.swap(place.word, place.word.leading_to_element(node)) {
            // SAFETY: it is in the list, so it is freed only after it is unlinked and the guard is dropped.
            Ok(unsafe { &*node })
        } else {
            // SAFETY: it came from a box above, and nobody else knows it.
            Err(unsafe { Box::from_raw(node) })
        }
    }

    fn change(&self, key: &K, to: Option<u64>) -> Option<u64> {
        let guard = pin();
        let node = self.find(key, &mut (), &guard)?;
        let Changed::From(before) = node.change(to, When::Present, &self.time, &guard) else {
            return None;
        };
        self.settle(node, &guard);
        drop(guard);
        self.tidy();
        before
    }

    /// Loads pairs in ascending order of their keys into a new table: faster than one by one, and next to each other
    /// in memory.
    ///
    /// # Errors
    /// [`Error::NotAscending`], [`Error::Option`], [`Error::Predicted`].
    pub fn load(
        options: Options<K>,
        pairs: impl IntoIterator<Item = (K, u64)>,
    ) -> Result<LookupTable<K>> {
        let table = LookupTable::new(options)?;
        let guard = pin();
        let mut place = table.last_place(&guard);
        let mut before: Option<K> = None;
        for (at, (key, value)) in pairs.into_iter().enumerate() {
            if before.as_ref().is_some_and(|before| *before >= key) {
                return Err(Error::NotAscending { at });
            }
            before = Some(key.clone());
            // Markers may lie between, and this thread is alone.
            place = table.walk(place.previous, &key, &guard).unwrap_or(place);
            let node = Box::new(Node::new(key, value, State::stamped(1)));
            if let Ok(node) = table.insert_at(&place, node, &guard) {
                place.previous = &node.link;
            }
        }
        drop(guard);
        table.resize(None);
        Ok(table)
    }
}

impl<K: Key> Drop for LookupTable<K> {
    fn drop(&mut self) {
        let mut word = self.head.word();
        loop {
            if let Some(node) = word.element() {
                // SAFETY: the table is borrowed for itself alone. What is linked was not retired, and came from a box.
                let mut node = unsafe { Box::from_raw(node) };
                word = node.link.word();
                node.free_versions();
                continue;
            }
            // SAFETY: no other guard is needed, since nobody else has the table.
            let guard = unsafe { crossbeam_epoch::unprotected() };
            match word.target(guard) {
                Some(marker) => word = marker.link().word(),
                None => break,
            }
        }
        // SAFETY: markers are read no more. The root came from a box, and it owns what is below.
        drop(unsafe { Box::from_raw(*self.root.get_mut()) });
    }
}
