//! What an update asks for, and what becomes of it.

use crate::engine::{Engine, Held, is_live};
use crate::error::Result;
use terrace_durable::Writing;
use terrace_durable::item::{Item, NewItem};
use terrace_durable::values::Ticket;
use terrace_memory::Memory;

/// How much room an update asks for before it knows what it writes.
#[derive(Clone, Copy)]
pub(crate) enum Hint {
    /// Room for a value of so many bytes.
    Bytes(usize),
    /// None: the batch it is part of has room.
    InBatch {
        /// Whether the keys it writes are reserved for it.
        is_reserved: bool,
    },
}

/// What an update may do beside changing its key.
#[derive(Clone, Copy)]
pub(crate) struct Allowed {
    /// Take another entry of the index also when its tier is spent.
    pub add: bool,
    /// Write keys that are reserved: they are for its batch.
    pub reserved: bool,
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
    /// Whether somebody who watches the key is to hear of it: not if it removes what had expired.
    pub fn is_seen(&self, old: Option<Item<'_>>) -> bool {
        match self {
            Wanted::Written(new) if !new.tombstone => true,
            Wanted::Written(_) | Wanted::Removed => old.is_some_and(|item| is_live(&item)),
            Wanted::Kept | Wanted::Nothing(_) => false,
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
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// What is wanted, if the key is not reserved for a batch; whoever watches it is told.
    #[inline(always)]
    pub(crate) fn unreserved<'k>(
        &self,
        held: &Held<'_, M>,
        (hash, key): (u64, &[u8]),
        allowed: Allowed,
        old: Option<(u64, Item<'_>)>,
        wanted: Wanted<'k>,
    ) -> Wanted<'k> {
        let is_told = self.watches.has_watchers() && wanted.is_seen(old.map(|(_, item)| item));
        if !is_told {
            return wanted;
        }
        // A write that is refused is none.
        if let Some(why) = self.refused(held, allowed, old, &wanted) {
            return Wanted::Nothing(Ok(why));
        }
        match self.watches.may_write(hash, key, allowed.reserved) {
            true => wanted,
            false => Wanted::Nothing(Ok(Outcome::Reserved)),
        }
    }

    #[cold]
    fn refused(
        &self,
        held: &Held<'_, M>,
        allowed: Allowed,
        old: Option<(u64, Item<'_>)>,
        wanted: &Wanted<'_>,
    ) -> Option<Outcome> {
        let Wanted::Written(new) = wanted else { return None };
        match old {
            Some((location, item)) if held.may_overwrite(location, &item, new) => None,
            _ => self.no_room(held, allowed, old.is_none(), new.item_bytes()),
        }
    }

    /// Why an item of so many bytes cannot be written, which takes another entry of the index if it `adds`.
    #[inline(always)]
    pub(crate) fn no_room(
        &self,
        held: &Held<'_, M>,
        allowed: Allowed,
        adds: bool,
        bytes: usize,
    ) -> Option<Outcome> {
        if adds && !allowed.add && self.is_index_spent() {
            return Some(Outcome::OneMore);
        }
        (!held.fits(bytes)).then_some(Outcome::TooSmall(bytes))
    }
}
