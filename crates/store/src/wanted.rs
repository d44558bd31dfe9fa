//! What an update asks for, and what becomes of it.

use crate::engine::{Change, Engine, Held, Value, is_live};
use crate::error::Result;
use crate::moments::Commit;
use crate::versions::{Older, Was};
use std::cell::Cell;
use std::sync::Arc;
use terrace_durable::item::{Item, NewItem};
use terrace_durable::sections::Changes;
use terrace_durable::values::Ticket;
use terrace_durable::{NoItem, Values, Writing};
use terrace_memory::Memory;

/// How much room an update asks for before it knows what it writes.
#[derive(Clone, Copy)]
pub(crate) enum Hint<'b> {
    /// Room for a value of so many bytes.
    Bytes(usize),
    /// The same, for a change that does not ask what there was.
    Blind(usize),
    /// None: the batch it is part of has room.
    InBatch {
        /// Whether the keys it writes are reserved for it.
        is_reserved: bool,
        /// The moment of all its writes, where somebody may want to know.
        commit: Option<&'b Arc<Commit>>,
    },
}

/// What an update may do beside changing its key.
#[derive(Clone, Copy)]
pub(crate) struct Allowed<'b> {
    /// Take another entry of the index also when its tier is spent.
    pub add: bool,
    /// Write keys that are reserved: they are for its batch.
    pub reserved: bool,
    /// Write a key without having read its older item from the disk.
    pub blind: bool,
    /// The batch that it is part of, if that has a moment.
    pub commit: Option<&'b Arc<Commit>>,
}

impl<'b> Allowed<'b> {
    /// What a hint says; `spills`: whether the map has values that are on the disk alone.
    pub fn by(hint: Hint<'b>, spills: bool) -> Allowed<'b> {
        let none = Allowed { add: false, reserved: false, blind: false, commit: None };
        match hint {
            Hint::Bytes(_) => none,
            Hint::Blind(_) => Allowed { blind: spills, ..none },
            Hint::InBatch { is_reserved, commit } => {
                Allowed { reserved: is_reserved, commit, ..none }
            }
        }
    }
}

/// What is to become of a key.
pub(crate) enum Wanted<'a> {
    Written(NewItem<'a>),
    Removed,
    Kept,
    /// It stays, for this reason.
    Nothing(Result<Outcome>),
}

impl Wanted<'_> {
    /// What becomes of an update that leaves its key as it is; `seen` is what it saw and others made.
    #[inline(always)]
    pub fn outcome(self, seen: impl FnOnce() -> Option<Ticket>) -> Result<Outcome> {
        match self {
            Wanted::Nothing(why) => why,
            _ => Ok(Outcome::Done([None, seen()])),
        }
    }
}

/// What became of an update.
pub(crate) enum Outcome {
    Done([Option<Ticket>; 2]),
    /// So many bytes are needed.
    TooSmall(usize),
    /// The index needs another entry, and its tier is spent.
    OneMore,
    /// A batch has reserved the key.
    Reserved,
    /// Its item is on the disk alone.
    Away,
    /// The index does not know yet what was written for it.
    Blind,
}

/// Why an update does not look at its key's item.
pub(crate) enum NoOld {
    NotFound(NoItem),
    /// The index does not know it yet, and the update asks what there is.
    InTable,
    /// It is written blind: the item may be this one, or is in the table of blind writes.
    Blind(Option<u64>),
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// What becomes of an update that does not look at its key's item.
    #[cold]
    pub(crate) fn update_without<'c>(
        &self,
        old: NoOld,
        held: &mut Held<'_, M>,
        writer: usize,
        key: (u64, &[u8]),
        f: &mut impl FnMut(Option<Value<'_>>) -> Change<'c>,
        changes: &mut Changes,
    ) -> Result<Outcome> {
        match old {
            NoOld::Blind(other) => self.write_blind(held, writer, key, other, f, changes),
            NoOld::InTable => Ok(Outcome::Blind),
            NoOld::NotFound(NoItem::Away(_)) => Ok(Outcome::Away),
            NoOld::NotFound(damaged) => Err(self.damaged(damaged)),
        }
    }

    /// Tells whoever watches the key what is wanted, and keeps what it is for snapshots, as `noted`. Returns why
    /// nothing is done, if so: a batch has reserved the key, or there is no room, and a write that is refused is none.
    #[inline(always)]
    pub(crate) fn withheld(
        &self,
        held: &Held<'_, M>,
        key: (u64, &[u8]),
        allowed: Allowed<'_>,
        old: Option<(u64, Item<'_>)>,
        wanted: &Wanted<'_>,
        noted: &Cell<u64>,
    ) -> Option<Outcome> {
        if !self.watches.has_watchers() {
            return None;
        }
        match wanted {
            Wanted::Written(new) => self.withheld_from(held, key, allowed, old, Some(*new), noted),
            Wanted::Removed => self.withheld_from(held, key, allowed, old, None, noted),
            Wanted::Kept | Wanted::Nothing(_) => None,
        }
    }

    /// The same of an item to be written; of none, the key is to be removed. By value and out of line: an update that
    /// nobody watches has its item in registers.
    #[cold]
    #[inline(never)]
    fn withheld_from(
        &self,
        held: &Held<'_, M>,
        (hash, key): (u64, &[u8]),
        allowed: Allowed<'_>,
        old: Option<(u64, Item<'_>)>,
        new: Option<NewItem<'_>>,
        noted: &Cell<u64>,
    ) -> Option<Outcome> {
        // What removes an expired key is not seen.
        let is_written = new.is_some_and(|new| !new.tombstone);
        if !is_written && !old.is_some_and(|(_, item)| is_live(&item)) {
            return None;
        }
        let overwrites = |new: &NewItem<'_>| {
            old.is_some_and(|(location, item)| held.may_overwrite(location, &item, new))
        };
        if let Some(new) = new.filter(|new| !overwrites(new))
            && let Some(why) = self.no_room(held, allowed, old.is_none(), new.item_bytes())
        {
            return Some(why);
        }
        let may_write = self.watches.may_write(hash, key, allowed.reserved);
        if may_write && self.watches.are_versions_kept() {
            let was = old.map_or(Was::Absent, |(location, item)| match is_live(&item) {
                true => self.older(location, &item),
                false => self.deleted(location, &item),
            });
            let memory = self.values.medium().memory();
            noted.set(self.versions.note(memory, (hash, key), was, allowed.commit));
        }
        (!may_write).then_some(Outcome::Reserved)
    }

    /// A copy of an item for snapshots.
    fn older(&self, location: u64, item: &Item<'_>) -> Was {
        let Item { value, version, expires_at_ms, .. } = *item;
        if !self.versions.has_room(self.values.medium().memory(), value.len() as u64) {
            return Was::Forgotten;
        }
        let ticket = self.values.undurable(location);
        Was::There(Arc::new(Older { bytes: Some(value.into()), version, expires_at_ms, ticket }))
    }

    /// That a key was not there, if that is still to be committed before it is told.
    fn deleted(&self, location: u64, item: &Item<'_>) -> Was {
        match item.tombstone.then(|| self.values.undurable(location)).flatten() {
            None => Was::Absent,
            ticket => {
                let (version, expires_at_ms) = (item.version, None);
                Was::There(Arc::new(Older { bytes: None, version, expires_at_ms, ticket }))
            }
        }
    }

    /// A live key, whose lock the caller holds, is evicted: tells whoever watches it. The number of the note for
    /// [`Engine::is_written`]; 0: there is none.
    pub(crate) fn evicting(&self, hash: u64, location: u64, item: &Item<'_>) -> u64 {
        if !self.watches.has_watchers() {
            return 0;
        }
        self.watches.evicted(hash, item.key);
        if !self.watches.are_versions_kept() {
            return 0;
        }
        let was = self.older(location, item);
        self.versions.note(self.values.medium().memory(), (hash, item.key), was, None)
    }

    /// The index says what was noted, if it was.
    #[inline(always)]
    pub(crate) fn is_written(&self, key: (u64, &[u8]), noted: u64) {
        if noted > 0 {
            self.versions.written(self.values.medium().memory(), key, noted);
        }
    }

    /// Why an item of so many bytes cannot be written, which takes another entry of the index if it `adds`.
    #[inline(always)]
    pub(crate) fn no_room(
        &self,
        held: &Held<'_, M>,
        allowed: Allowed<'_>,
        adds: bool,
        bytes: usize,
    ) -> Option<Outcome> {
        if adds && !allowed.add && self.is_index_spent() {
            return Some(Outcome::OneMore);
        }
        (!held.fits(bytes)).then_some(Outcome::TooSmall(bytes))
    }
}
