//! Watched keys: who reads a key and acts on it later learns whether it was written meanwhile.
//!
//! A version alone cannot tell: a deleted key's next life counts from 1 again and may get the same
//! place, and absence has no version. So writers count writes of the keys that somebody watches.
//! While nobody watches any, that costs a writer one load of a word that nobody changes. The protocol is in
//! `watch/registry.rs`.

mod registry;

pub(crate) use registry::{HeldRanges, Reads, Registry, Reservation, Span, Taken, Use};

use crate::engine::{Engine, Value};
use crate::index::KeyIndex;
use crate::located::OfWriter;
use crate::map::Map;
use crate::pressure::Wait;
use registry::{RESERVED, State};
use std::sync::atomic::Ordering;
use terrace_index::hash_key;
use terrace_memory::{Memory, Native};

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Locks and unlocks the bucket of a key just joined: from here on no write of it is missed.
    fn settle_watch(&self, hash: u64, key: &[u8]) {
        let guard = OfWriter::of(self);
        self.index.look(hash, key, &self.located(guard.get()), |_| ());
    }

    /// Notes that a batch is about to read `key`.
    pub fn watch_read(&self, reads: &mut Reads, key: &[u8]) {
        if !reads.has(key) {
            let hash = hash_key(self.seed, key);
            self.watches.read(reads, hash, key, || self.settle_watch(hash, key));
        }
    }

    /// As [`Registry::reserve_keys`]; on return whoever wrote one of them before, or is about to, is done.
    pub fn reserve_keys<'a>(
        &'a self,
        keys: &[(&'a [u8], Use)],
        own: Option<&HeldRanges<'_>>,
    ) -> std::result::Result<Reservation<'a>, Taken<'a>> {
        let hashed: Vec<_> =
            keys.iter().map(|(key, used)| (hash_key(self.seed, key), *key, *used)).collect();
        let reservation = self.watches.reserve_keys(hashed.iter().copied(), own)?;
        hashed.iter().for_each(|(hash, key, _)| self.settle_watch(*hash, key));
        Ok(reservation)
    }

    /// Forgets what a batch read.
    pub fn forget_reads(&self, reads: &mut Reads) {
        self.watches.forget(reads);
    }

    /// Whether none of the keys was written since it was read, or is about to be.
    pub fn holds(&self, reads: &Reads) -> bool {
        self.watches.holds(reads)
    }

    /// As [`Registry::reserve`].
    pub fn reserve<'a>(
        &'a self,
        reads: &'a Reads,
        written: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Reservation<'a>> {
        self.watches.reserve(reads, written.map(|key| (hash_key(self.seed, key), key)))
    }
}

/// Watches a key from [`Map::watch`] until it is dropped.
///
/// # Guarantees
/// [`Watch::is_unchanged`] says yes only if the key was not written, deleted or made again since, nor
/// has it expired or been evicted. A value written again, the same bytes included, is a change, and
/// so is a key that was absent, was written and deleted again. A value that the map only moved is none.
pub struct Watch<M: Memory = Native, I: Memory = Native> {
    map: Map<M, I>,
    key: Box<[u8]>,
    hash: u64,
    state: State,
    seen: u64,
    was_there: bool,
}

impl<M: Memory, I: Memory> Watch<M, I> {
    pub(crate) fn new(map: &Map<M, I>, key: &[u8]) -> Watch<M, I> {
        let engine = &map.inner.engine;
        let hash = hash_key(engine.seed, key);
        let state = engine.watches.join(hash, key);
        let seen = state.load(Ordering::Acquire) & !RESERVED;
        engine.settle_watch(hash, key);
        let mut watch =
            Watch { map: map.clone(), key: key.into(), hash, state, seen, was_there: false };
        watch.was_there = watch.is_there();
        watch
    }

    /// The key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.watch(b"ada").key(), b"ada");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the key is as it was when the watch began.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// let watch = map.watch(b"ada");
    /// assert!(watch.is_unchanged());
    /// map.put(b"ada", b"lovelace")?;
    /// assert!(!watch.is_unchanged());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_unchanged(&self) -> bool {
        // Of writes that are over by now none is missed, whichever is asked first.
        let is_there = !self.was_there || self.is_there();
        is_there && self.state.load(Ordering::Acquire) & !RESERVED == self.seen
    }

    /// Nobody is told the value: what may be lost of it does not matter.
    fn is_there(&self) -> bool {
        // A key whose value is damaged is there.
        self.map
            .inner
            .engine
            .get(&self.key, Wait::ForRoom, |_: Value<'_>| ())
            .map_or(true, |found| found.0.is_some())
    }
}

impl<M: Memory, I: Memory> Drop for Watch<M, I> {
    fn drop(&mut self) {
        self.map.inner.engine.watches.leave(self.hash, &self.key);
    }
}
