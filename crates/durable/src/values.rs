//! One trait, two designs: values in logs or in slabs.

use crate::error::Result;
use crate::item::{Item, NewItem};
use crossbeam_epoch::Guard;
use crate::logs::{Appender, Logs, Room, Ticket};

/// Where a map's items live.
///
/// A location stays readable for as long as an epoch guard from before it was learnt is held. The
/// two designs differ in how an item ends: logs count it as dead and need a tombstone to say that
/// a key is absent; slabs clear its checksum, durably, and the slot is free.
pub trait Values: Send + Sync {
    /// Room for items, held by one writer.
    type Room<'a>: Writing
    where
        Self: 'a;

    /// Room for `bytes` of items for writer `writer` (from 1).
    ///
    /// # Errors
    /// [`Error::NoRoom`](crate::Error::NoRoom) and those of the medium; nothing was changed then.
    fn room(&self, writer: usize, bytes: usize, room: Room) -> Result<Self::Room<'_>>;

    /// The item at `location`, learnt under `guard` or under a lock that keeps it current.
    fn item<'g>(&'g self, location: u64, guard: &'g Guard) -> Item<'g>;

    /// The same, if its key is `key`.
    fn item_if_key<'g>(&'g self, location: u64, key: &[u8], guard: &'g Guard) -> Option<Item<'g>>;

    /// Asks for `bytes` from `location` on to be brought near.
    fn prefetch(&self, location: u64, bytes: u64);

    /// Nothing points to the item of `bytes` at `location` any more. Called under the key's lock,
    /// after what supersedes the item was written. In slabs the slot is durably free on return,
    /// and is used again once no reader under a guard can hold its location.
    fn retire(&self, location: u64, bytes: usize);

    /// `Some(stamp)` if deleting a key takes a tombstone with this stamp; `None` if retiring its
    /// item is enough.
    fn tombstone_stamp(&self) -> Option<u64>;

    /// The ticket to commit before the item at `location` may be relied on, if it can still be
    /// lost.
    fn undurable(&self, location: u64) -> Option<Ticket>;

    /// Returns once everything up to `ticket` is durable.
    ///
    /// # Errors
    /// Those of the medium; no more is taken then.
    fn commit(&self, ticket: Ticket) -> Result<()>;

    /// Makes everything written before durable.
    ///
    /// # Errors
    /// As [`Values::commit`].
    fn flush_all(&self) -> Result<()>;

    /// Longest item in bytes.
    fn max_item_bytes(&self) -> usize;
}

/// Room held by one writer.
pub trait Writing {
    /// Whether an item of `bytes` fits.
    fn fits(&self, bytes: usize) -> bool;
    /// Writes an item and returns its location.
    fn write(&mut self, new: &NewItem<'_>) -> u64;
    /// What to commit for everything written so far.
    fn ticket(&self) -> Ticket;
    /// Items from here to [`Writing::end_batch`] survive a crash together or not at all, where
    /// the design can promise it (logs).
    fn begin_batch(&mut self);
    /// Ends the batch.
    fn end_batch(&mut self);
}

impl Values for Logs {
    type Room<'a> = Appender<'a>;

    #[inline(always)]
    fn room(&self, writer: usize, bytes: usize, room: Room) -> Result<Appender<'_>> {
        self.appender(writer, bytes, room)
    }

    #[inline(always)]
    fn item<'g>(&'g self, location: u64, guard: &'g Guard) -> Item<'g> {
        Logs::item(self, location, guard)
    }

    #[inline(always)]
    fn item_if_key<'g>(&'g self, location: u64, key: &[u8], guard: &'g Guard) -> Option<Item<'g>> {
        Logs::item_if_key(self, location, key, guard)
    }

    #[inline(always)]
    fn prefetch(&self, location: u64, bytes: u64) {
        Logs::prefetch(self, location, bytes);
    }

    #[inline(always)]
    fn retire(&self, location: u64, bytes: usize) {
        Logs::retire(self, location, bytes);
    }

    fn tombstone_stamp(&self) -> Option<u64> {
        Some(self.next_sequence())
    }

    #[inline(always)]
    fn undurable(&self, location: u64) -> Option<Ticket> {
        Logs::undurable(self, location)
    }

    fn commit(&self, ticket: Ticket) -> Result<()> {
        Logs::commit(self, ticket)
    }

    fn flush_all(&self) -> Result<()> {
        Logs::flush_all(self)
    }

    fn max_item_bytes(&self) -> usize {
        Logs::max_item_bytes()
    }
}

impl Writing for Appender<'_> {
    #[inline(always)]
    fn fits(&self, bytes: usize) -> bool {
        Appender::fits(self, bytes)
    }

    #[inline(always)]
    fn write(&mut self, new: &NewItem<'_>) -> u64 {
        self.append(new)
    }

    #[inline(always)]
    fn ticket(&self) -> Ticket {
        Appender::ticket(self)
    }

    fn begin_batch(&mut self) {
        Appender::begin_batch(self);
    }

    fn end_batch(&mut self) {
        Appender::end_batch(self);
    }
}
