//! Batches: writes gathered in private, and applied together.
//!
//! What runs inside [`Session::atomic`] writes to a buffer of the session's own, and reads through
//! it. Nothing is visible to anyone, no lock is held and no room is taken until it returns: however
//! long it takes it holds up nobody, and forgetting the buffer undoes it. Then the writes go to the
//! writer's log in one go, between a begin and an end that recovery knows.

use crate::engine::{Change, Engine, Held, Hint, Value};
use crate::error::{Error, Result};
use crate::moments::{Commit, Moments};
use crate::pressure::{By, Wait};
use crate::session::{Session, saw};
use crate::watch::{Reads, Use};
use std::collections::BTreeMap;
use terrace_durable::commits::Writes;
use terrace_durable::item::{NewItem, now_ms};
use terrace_durable::sections::Changes;
use terrace_durable::values::{Room, Ticket};
use terrace_durable::{Does, Values, Writing};
use terrace_index::hash_key;
use terrace_memory::{Memory, Spin};

/// How often a batch that others came before is run again at once by whoever does not wait.
const TRIED_AT_ONCE: u32 = 8;

/// Writes whose keys are brought near together.
pub(crate) const PREFETCHED: usize = 32;

/// What a batch leaves of a key; no value: it is deleted.
pub(crate) struct Pending(Option<(Box<[u8]>, Option<u64>)>);

impl Pending {
    /// The value, if there is one and it has not expired.
    pub fn value(&self) -> Option<Value<'_>> {
        let (bytes, expires_at_ms) = self.0.as_ref()?;
        let is_live = expires_at_ms.is_none_or(|at| at > now_ms());
        is_live.then_some(Value { bytes, version: 0, location: 0, expires_at_ms: *expires_at_ms })
    }

    pub fn change(&self) -> Change<'_> {
        match &self.0 {
            Some((value, expires_at_ms)) => Change::Put { value, expires_at_ms: *expires_at_ms },
            None => Change::Delete,
        }
    }
}

/// The bytes that a write of a batch takes of a log at the most.
fn log_bytes(key: &[u8], change: &Change<'_>) -> usize {
    let (value, expires_at_ms) = match *change {
        Change::Put { value, expires_at_ms } => (value, expires_at_ms),
        Change::Delete | Change::Keep => (&[0; 8][..], None),
    };
    let version = u64::MAX;
    NewItem { key, value, version, expires_at_ms, tombstone: false }.item_bytes()
}

/// The writes that a session gathers, and what they stand on.
#[derive(Default)]
pub(crate) struct Batch {
    writes: BTreeMap<Box<[u8]>, Pending>,
    /// What they take of a log.
    bytes: usize,
    pub reads: Reads,
    /// For each batch that runs inside, the innermost last: what the keys that it wrote were before it. Each is part
    /// of a state that was not too large, however often they are written.
    inside: Vec<BTreeMap<Box<[u8]>, Option<Pending>>>,
    /// The writes were more than a log takes, and are forgotten: so many bytes.
    is_beyond: Option<usize>,
}

impl Batch {
    /// What the batch left of `key`, if it wrote it.
    pub fn find(&self, key: &[u8]) -> Option<&Pending> {
        self.writes.get(key)
    }

    /// The keys it wrote, in order.
    pub fn writes(&self) -> &BTreeMap<Box<[u8]>, Pending> {
        &self.writes
    }

    /// What the commit journal is to say of it.
    pub fn to_be_noted(&self) -> Does {
        let mut writes = Writes::default();
        for (key, Pending(value)) in &self.writes {
            writes.push(
                key,
                value.as_ref().map(|(value, expires_at_ms)| (&value[..], *expires_at_ms)),
            );
        }
        writes.does()
    }

    /// `most`: bytes that a log takes.
    ///
    /// # Errors
    /// [`Error::BatchSize`] if it was to write more at any time.
    pub fn check_size(&self, most: usize) -> Result<()> {
        self.is_beyond.map_or(Ok(()), |bytes| Err(Error::BatchSize(bytes, most)))
    }

    /// Notes a write. `most`: bytes that a log takes.
    pub fn write(&mut self, key: &[u8], change: Change<'_>, most: usize) -> Result<()> {
        self.check_size(most)?;
        let pending = match change {
            Change::Put { value, expires_at_ms } => Pending(Some((value.into(), expires_at_ms))),
            Change::Delete => Pending(None),
            Change::Keep => return Ok(()),
        };
        self.bytes += log_bytes(key, &change);
        let before = self.writes.insert(key.into(), pending);
        if let Some(before) = &before {
            self.bytes -= log_bytes(key, &before.change());
        }
        if let Some(inner) = self.inside.last_mut()
            && !inner.contains_key(key)
        {
            inner.insert(key.into(), before);
        }
        if self.bytes > most {
            self.is_beyond = Some(self.bytes);
            self.writes.clear();
            self.inside.iter_mut().for_each(BTreeMap::clear);
            return Err(Error::BatchSize(self.bytes, most));
        }
        Ok(())
    }

    /// Ends the innermost batch: what it wrote becomes a part of the one around it, or is taken back.
    fn end_inside(&mut self, is_kept: bool) {
        let Some(inner) = self.inside.pop() else { return };
        for (key, before) in inner {
            if is_kept {
                if let Some(outer) = self.inside.last_mut() {
                    outer.entry(key).or_insert(before);
                }
                continue;
            }
            if let Some(now) = self.writes.remove(&key) {
                self.bytes -= log_bytes(&key, &now.change());
            }
            if let Some(before) = before {
                self.bytes += log_bytes(&key, &before.change());
                self.writes.insert(key, before);
            }
        }
    }
}

/// A session in a batch that has begun; what was not taken out of it is forgotten, as after a panic.
struct Begun<'s, M: Memory, I: Memory>(&'s mut Session<M, I>);

impl<M: Memory, I: Memory> Drop for Begun<'_, M, I> {
    fn drop(&mut self) {
        if let Some(mut batch) = self.0.batch.take() {
            self.0.map.inner.engine.forget_reads(&mut batch.reads);
        }
    }
}

/// A batch inside another; what was not kept is taken back.
struct Inner<'s, M: Memory, I: Memory> {
    session: &'s mut Session<M, I>,
    is_kept: bool,
}

impl<M: Memory, I: Memory> Drop for Inner<'_, M, I> {
    fn drop(&mut self) {
        if let Some(batch) = &mut self.session.batch {
            batch.end_inside(self.is_kept);
        }
    }
}

impl<M: Memory, I: Memory> Session<M, I> {
    /// Runs `f`; what it writes through this session happens as one if it returns `Ok`, and not at
    /// all if it returns an error or panics. Inside another batch it becomes a part of that one, and
    /// an error takes back what it wrote itself.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.atomic(|session| {
    ///     session.put(b"ada", b"90", None)?;
    ///     session.put(b"grace", b"110", None)
    /// })?;
    /// session.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Atomicity
    /// * After a crash all of the batch is there or nothing (values in logs; in slabs each key for
    ///   itself).
    /// * `f` sees what it wrote before; nobody else sees any of it until `f` has returned. Then the
    ///   writes become visible one after the other, in a moment: another session may read some of them
    ///   and not yet the others. Its commit waits for all.
    /// * Keys that `f` read one by one (not those of a range or scan) are as they were when the batch is
    ///   applied. If one was written meanwhile, or the map cleared, `f` runs again: it must have no other
    ///   effect that cannot be repeated. Eviction of a key is such a write; expiry is not.
    /// * However long `f` takes, it holds up no other session and no checkpoint.
    ///
    /// # Errors
    /// Those of `f`. [`Error::Busy`] where the session does not wait and another writes what this one read or would
    /// write. [`Error::BatchSize`] if the writes do not fit one log together. Those of a write,
    /// see [`Error`]: nothing was written then, but in slabs, where the keys before the one that found no
    /// room are.
    pub fn atomic<R, E: From<Error>>(
        &mut self,
        mut f: impl FnMut(&mut Session<M, I>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if self.batch.is_some() {
            return self.atomic_inside(f);
        }
        let map = self.map.clone();
        let engine = &map.inner.engine;
        let spin = Spin::on(engine.values.medium().memory());
        for tried in 0.. {
            self.batch = Some(Box::default());
            let begun = Begun(self);
            let result = f(begun.0);
            let batch = begun.0.batch.as_deref().expect("begun above, and ended below");
            let applied = match &result {
                Ok(_) => begun.0.apply(batch).map_err(E::from)?,
                // What it found wrong may have been half of somebody else's writes.
                Err(_) => engine.holds(&batch.reads).then(Vec::new),
            };
            drop(begun);
            if let Some(tickets) = applied {
                tickets.into_iter().for_each(|ticket| saw(&mut self.seen, ticket));
                return result;
            }
            match self.by().wait {
                Wait::Never { since } if tried == TRIED_AT_ONCE => {
                    return Err(engine.busy(since).into());
                }
                // Mostly who wrote is done.
                Wait::Never { .. } => {}
                Wait::ForRoom => spin.wait(),
            }
        }
        unreachable!("numbers do not end")
    }

    fn atomic_inside<R, E: From<Error>>(
        &mut self,
        mut f: impl FnMut(&mut Session<M, I>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let batch = self.batch.as_deref_mut().expect("asked by the caller");
        batch.inside.push(BTreeMap::new());
        let mut inner = Inner { session: self, is_kept: false };
        let result = f(inner.session);
        inner.is_kept = result.is_ok();
        result
    }

    /// Applies the batch; what to commit for it, or nothing if it has to run again.
    fn apply(&self, batch: &Batch) -> Result<Option<Vec<Ticket>>> {
        let engine = &self.map.inner.engine;
        batch.check_size(engine.values.max_item_bytes())?;
        if batch.writes.is_empty() {
            return Ok(engine.holds(&batch.reads).then(Vec::new));
        }
        let writes = batch.writes.iter().map(|(key, pending)| (&key[..], pending.change()));
        engine.apply(self.by(), writes, Some(&batch.reads), || ())
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Applies a batch of changes, if what was read for it still holds; what to commit for it. `before_end` runs
    /// when all is written, and the batch not ended yet. In slabs, where each write finds its own room, one behind the
    /// first waits for it.
    ///
    /// # Errors
    /// As [`Session::atomic`].
    pub fn apply<'k>(
        &self,
        by: By,
        writes: impl Iterator<Item = (&'k [u8], Change<'k>)> + Clone,
        reads: Option<&Reads>,
        before_end: impl FnOnce(),
    ) -> Result<Option<Vec<Ticket>>> {
        let bytes = self.prepare_batch(by, writes.clone())?;
        let room = room_for(writes.clone());
        let reads = reads.filter(|reads| !reads.is_empty());
        let spin = Spin::on(self.values.medium().memory());
        let (held, reservation) = loop {
            let held = self.room(by, bytes, room)?;
            let keys = writes.clone().map(|(key, _)| key);
            if let Some(reads) = reads {
                match self.reserve(reads, keys) {
                    Some(reservation) => break (held, Some(reservation)),
                    None => return Ok(None),
                }
            }
            if !self.watches.are_versions_kept() {
                break (held, None);
            }
            let mut keys: Vec<_> = keys.map(|key| (key, Use::Written)).collect();
            keys.sort_unstable_by_key(|(key, _)| *key);
            keys.dedup();
            if let Ok(reservation) = self.reserve_keys(&keys, None) {
                break (held, Some(reservation));
            }
            // Whoever holds ranges waits for this writer.
            drop(held);
            match by.wait {
                Wait::Never { since } => return Err(self.busy(since)),
                Wait::ForRoom => spin.wait(),
            }
        };
        // All its writes are of one moment. The keys are reserved until that is decided.
        let commit = self.watches.are_versions_kept().then(Commit::of_batch);
        let decides = commit.as_ref().map(|commit| Decides(commit, self.versions.moments()));
        let hint = Hint::InBatch { is_reserved: reservation.is_some(), commit: commit.as_ref() };
        let mut open = OpenBatch::begin(self, held);
        let mut tickets = self.write_batch(by, writes.clone(), hint, room)?;
        before_end();
        saw(&mut tickets, open.end());
        if decides.is_some() {
            drop(decides);
            let memory = self.values.medium().memory();
            writes.for_each(|(key, _)| {
                self.versions.thin(memory, (hash_key(self.seed, key), key));
            });
        }
        Ok(Some(tickets))
    }

    /// Sees to all that a batch may need beside room for its bytes, which are returned.
    ///
    /// # Errors
    /// As [`Session::atomic`].
    pub(crate) fn prepare_batch<'k>(
        &self,
        by: By,
        writes: impl Iterator<Item = (&'k [u8], Change<'k>)> + Clone,
    ) -> Result<usize> {
        let bytes = writes.clone().map(|(key, change)| log_bytes(key, &change)).sum();
        let most = self.values.max_item_bytes();
        if bytes > most {
            return Err(Error::BatchSize(bytes, most));
        }
        if self.is_index_spent() {
            for (key, change) in writes.clone() {
                let is_put = matches!(change, Change::Put { .. });
                if is_put && self.get(key, by.wait, |_| ())?.0.is_none() {
                    self.room_in_index_for_batch(by.wait)?;
                    break;
                }
            }
        }
        if self.values.verifies_on_read() || self.has_away() {
            // A damaged item refuses the batch before anything of it is written: half of one would stop the map. What
            // is on the disk alone is read now.
            let keys: Vec<&[u8]> = writes.map(|(key, _)| key).collect();
            self.multi_get(&keys, by.wait, |_, _| (), |_| ())?;
            if self.blind.are_some() {
                let mut hashed = keys.iter().map(|key| (hash_key(self.seed, key), key));
                hashed.try_for_each(|(hash, key)| self.take_in_key(hash, key, by.wait))?;
            }
        }
        Ok(bytes)
    }

    /// Writes what a batch leaves of its keys, between its begin and its end; what to commit for it.
    ///
    /// # Errors
    /// Memory for the index was refused; in slabs also room.
    pub(crate) fn write_batch<'k>(
        &self,
        by: By,
        writes: impl Iterator<Item = (&'k [u8], Change<'k>)> + Clone,
        hint: Hint<'_>,
        room: Room,
    ) -> Result<Vec<Ticket>> {
        let mut tickets = Vec::new();
        let mut keys: [&[u8]; PREFETCHED] = [&[]; PREFETCHED];
        let mut ahead = writes.clone();
        for (number, (key, change)) in writes.enumerate() {
            if number % PREFETCHED == 0 {
                let mut count = 0;
                for (place, (key, _)) in keys.iter_mut().zip(ahead.by_ref().take(PREFETCHED)) {
                    *place = key;
                    count += 1;
                }
                self.prefetch(&keys[..count]);
            }
            let by = if number == 0 { by } else { By { wait: Wait::ForRoom, ..by } };
            let told = self.update(by, key, hint, room, |_| change)?;
            told.into_iter().flatten().for_each(|ticket| saw(&mut tickets, ticket));
        }
        Ok(tickets)
    }
}

/// Which room a batch takes: what only deletes has that which is kept for it.
pub(crate) fn room_for<'k>(mut writes: impl Iterator<Item = (&'k [u8], Change<'k>)>) -> Room {
    let deletes = |(_, change): (&[u8], Change<'_>)| matches!(change, Change::Delete);
    if writes.all(deletes) { Room::Urgent } else { Room::Ordinary }
}

/// Decides the moment of a batch when it is over.
pub(crate) struct Decides<'a>(pub &'a Commit, pub &'a Moments);

impl Drop for Decides<'_> {
    fn drop(&mut self) {
        self.0.decide(self.1);
    }
}

/// A batch that is being written.
pub(crate) struct OpenBatch<'a, M: Memory, I: Memory> {
    engine: &'a Engine<M, I>,
    held: Held<'a, M>,
    is_open: bool,
}

impl<'a, M: Memory, I: Memory> OpenBatch<'a, M, I> {
    pub fn begin(engine: &'a Engine<M, I>, mut held: Held<'a, M>) -> OpenBatch<'a, M, I> {
        let mut changes = Changes::new();
        held.begin_batch(&mut changes);
        engine.commit(&mut changes, || ());
        OpenBatch { engine, held, is_open: true }
    }

    /// Ends the batch; what to commit for it.
    pub fn end(&mut self) -> Ticket {
        let mut changes = Changes::new();
        self.held.end_batch(&mut changes);
        self.engine.commit(&mut changes, || ());
        self.held.batch_ended();
        self.is_open = false;
        self.held.ticket()
    }
}

impl<M: Memory, I: Memory> Drop for OpenBatch<'_, M, I> {
    fn drop(&mut self) {
        // Half of a batch is in the index. Without its end none of it is there at the next opening; until
        // then nothing may be built on it. Room was there: only memory of the index can have been refused.
        if self.is_open && self.engine.values.logs().is_some() {
            self.engine.values.stop("a batch could not be written whole; open the map anew".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Map;
    use crate::options::MapOptions;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A thread that serves others spun for as long as a batch that it ran into was being written.
    #[test]
    fn who_does_not_wait_is_told_that_a_batch_has_the_key() {
        let dir = tempfile::tempdir().expect("directory");
        let map = Map::open(dir.path(), MapOptions::default()).expect("open");
        let engine = &map.inner.engine;
        let mut reads = Reads::default();
        engine.watch_read(&mut reads, b"read");
        let put = Change::Put { value: b"new", expires_at_ms: None };
        let by = By { writer: 1, wait: Wait::ForRoom };
        let (answer, answers) = channel();
        let applied = engine.apply(by, [(&b"key"[..], put)].into_iter(), Some(&reads), || {
            let map = map.clone();
            std::thread::spawn(move || {
                let mut session = map.session();
                session.writer = 2;
                let mut told = Vec::new();
                for wait in [Wait::Never { since: None }, Wait::Never { since: Some(7) }] {
                    session.set_wait(wait);
                    told.push(session.put(b"key", b"other", None));
                    told.push(session.put(b"read", b"other", None));
                    told.push(session.atomic(|session| {
                        session.get(b"read", |_| ())?;
                        session.put(b"third", b"other", None)
                    }));
                }
                answer.send(told).expect("somebody waits for it");
            });
            let told = answers.recv_timeout(Duration::from_secs(10)).expect("nobody spins");
            for told in told {
                assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
            }
        });
        assert!(applied.expect("room").is_some());
        engine.forget_reads(&mut reads);
        let mut session = map.session();
        session.set_wait(Wait::Never { since: None });
        session.put(b"key", b"other", None).expect("the batch is over");
    }

    /// A batch that deleted many large values copied all of them for a snapshot, whatever the budget: what is not
    /// decided cannot be forgotten.
    #[test]
    fn a_batch_that_replaces_much_goes_on_without_copies() {
        const VALUE: usize = 1 << 20;
        let dir = tempfile::tempdir().expect("directory");
        // No write waits for a checkpoint, here inside a batch.
        let durability = crate::options::Durability::None;
        let options =
            MapOptions { memory_budget_bytes: 128 << 20, durability, ..MapOptions::default() };
        let map = Map::open(dir.path(), options).expect("open");
        let keys: Vec<[u8; 4]> = (0..60u32).map(u32::to_be_bytes).collect();
        keys.iter().for_each(|key| map.put(key, &vec![key[3]; VALUE]).expect("put"));
        let before = map.snapshot();
        let engine = &map.inner.engine;
        let by = By { writer: 1, wait: Wait::ForRoom };
        let deletes = keys.iter().map(|key| (&key[..], Change::Delete));
        let applied = engine.apply(by, deletes, None, || {
            let kept = engine.versions.bytes();
            assert!(kept < (32 << 20) + 60 * 256, "{kept} bytes");
            assert!(kept > 30 << 20, "there was room for some: {kept} bytes");
            assert!(matches!(before.get(&keys[0]), Err(Error::SnapshotEnded { .. })));
            // One that is opened now needs what every key was: of the first there are copies.
            let now = map.snapshot();
            let first = now.get(&keys[0]).expect("there is a copy");
            assert_eq!(first, Some(vec![0; VALUE]));
            assert!(matches!(now.get(&keys[59]), Err(Error::SnapshotEnded { .. })));
            assert!(matches!(now.get(&keys[0]), Err(Error::SnapshotEnded { .. })), "of all keys");
            let all: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let told = map.snapshot().multi_get(&all, |_, _| panic!("nobody is told"));
            assert!(matches!(told, Err(Error::SnapshotEnded { .. })));
            assert!(matches!(map.snapshot().for_each(|_, _| ()), Err(Error::SnapshotEnded { .. })));
        });
        assert!(applied.expect("room").is_some());
        assert_eq!(map.snapshot().get(&keys[59]).expect("it has not ended"), None);
        assert!(map.is_empty());
    }

    /// A batch inside kept every value that it wrote over until its end, beside what is bounded: a counter in a loop
    /// took memory without end.
    #[test]
    fn a_batch_inside_keeps_what_each_key_was_and_no_more() {
        let mut batch = Batch::default();
        let write = |batch: &mut Batch, value: &[u8]| {
            let change = Change::Put { value, expires_at_ms: None };
            batch.write(b"key", change, 1 << 20).expect("it fits");
        };
        write(&mut batch, b"outer");
        batch.inside.push(BTreeMap::new());
        for number in 0..1000u32 {
            write(&mut batch, &number.to_le_bytes());
            batch.inside.push(BTreeMap::new());
            write(&mut batch, &[7; 100]);
            batch.end_inside(number % 2 == 0);
        }
        assert_eq!(batch.inside.iter().map(BTreeMap::len).sum::<usize>(), 1);
        let value = |batch: &Batch| {
            batch.find(b"key").and_then(Pending::value).map(|value| value.bytes.to_vec())
        };
        assert_eq!(value(&batch).as_deref(), Some(&999u32.to_le_bytes()[..]));
        batch.end_inside(false);
        assert_eq!(value(&batch).as_deref(), Some(&b"outer"[..]));
        assert_eq!(batch.bytes, {
            let mut other = Batch::default();
            write(&mut other, b"outer");
            other.bytes
        });
    }
}
