//! One trait, two designs: values in logs or in slabs.

mod either;
mod kept;
pub(crate) mod place;
mod recovered;
pub(crate) mod rows;
mod writing;

pub use either::{LogsOrSlabs, RoomInEither};
pub use kept::{BucketLock, ItemCopy, Keeps, Seen};
pub use place::{Home, Residence, SEGMENT_BYTES};
pub use recovered::{Damage, Recovered, TornTail};
pub use writing::{Room, Ticket};

use crate::error::Result;
use crate::item::{Item, NewItem};
use crate::logs::{Appender, Logs, MAX_ITEM_BYTES};
use crate::sections::{Address, Changes};
use crate::slabs::{self, Slabs, Slots};
use crossbeam_epoch::Guard;
use terrace_memory::Memory;

/// Why nothing can be read at a location that an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoItem {
    /// No whole item lies there: the medium was damaged, or the entry was.
    Invalid(u64),
    /// It is on the disk alone, and is to be [fetched](LogsOrSlabs::fetch) first.
    Away(u64),
    /// The disk did not give it back when it was fetched a moment ago.
    Unreadable(u64),
}

impl NoItem {
    /// The location.
    pub fn location(self) -> u64 {
        match self {
            NoItem::Invalid(location) | NoItem::Away(location) | NoItem::Unreadable(location) => {
                location
            }
        }
    }
}

/// What lies at a location.
pub type Found<T> = std::result::Result<T, NoItem>;

/// Calls its argument with the location of every entry of an index.
pub type Entries<'a> = &'a dyn Fn(&mut dyn FnMut(u64));

/// Is told of an item: location, item, bytes.
pub type Told<'a> = &'a dyn Fn(u64, &Item<'_>, usize);

/// Takes a word of the allocation metadata.
pub type PutWord<'a> = &'a mut dyn FnMut(Address, u64);

/// Reads words of the allocation metadata that follow each other.
pub type GetWords<'a> = &'a dyn Fn(Address, &mut [u64]);

/// A persistent index, as a recovery that starts from it sees it.
#[derive(Clone, Copy)]
pub struct Reach<'a> {
    /// Its entries.
    pub entries: Entries<'a>,
    /// Told every item that an entry names; whether the entry stands where its key is looked for.
    pub reached: &'a dyn Fn(u64, &Item<'_>, usize) -> bool,
    /// Told items that may be newer than the index's entries, as by the recovery of all items.
    pub offered: Told<'a>,
    /// Told items that were deleted, and whose entries are to follow them; whether there was such an entry.
    pub gone: &'a dyn Fn(u64, &Item<'_>, usize) -> bool,
}

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

    /// Room for `bytes` of items for writer `writer` (from 1). Slots are of many sizes: there,
    /// `bytes` counts only where [`Writing::fits`] has just refused an item of exactly so many.
    ///
    /// # Errors
    /// [`Error::NoRoom`](crate::Error::NoRoom) and those of the medium; nothing was changed then.
    fn room(&self, writer: usize, bytes: usize, room: Room) -> Result<Self::Room<'_>>;

    /// The current item of a key whose lock is held. Of values that nobody has verified since they were opened
    /// ([`Values::verify_on_read`]) its checksum is.
    ///
    /// # Errors
    /// [`NoItem`].
    fn item<'g>(&'g self, location: u64, lock: &'g BucketLock) -> Found<Item<'g>>;

    /// The same without the checksum: of an item that was read a moment ago.
    ///
    /// # Errors
    /// [`NoItem`].
    fn item_again<'g>(&'g self, location: u64, lock: &'g BucketLock) -> Found<Item<'g>>;

    /// Whether the item at `location`, in a bucket whose lock is held, has this key; verified as by [`Values::item`].
    ///
    /// # Errors
    /// [`NoItem`].
    fn has_key(&self, location: u64, key: &[u8], lock: &BucketLock) -> Found<bool>;

    /// The item at `location`, learnt under `guard`, without its key's lock; verified as by [`Values::item`].
    ///
    /// # Errors
    /// [`NoItem`]. In slabs also where somebody who holds the key's lock is about to remove the entry.
    fn seen<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>>;

    /// The same without the checksum: of an item that was read a moment ago.
    ///
    /// # Errors
    /// [`NoItem`].
    fn seen_again<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>>;

    /// As [`Values::seen`], if its key is `key`.
    ///
    /// # Errors
    /// The errors of [`Values::seen`].
    fn seen_if_key<'g>(
        &'g self,
        location: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> Found<Option<Seen<'g>>>;

    /// What was written before this call was not verified when it was opened: it is whenever it is read.
    fn verify_on_read(&self);

    /// As [`Logs::copy_item`].
    fn copy_item(&self, location: u64, copy: &mut ItemCopy) -> bool;

    /// Asks for the first line of the item at `location` to be brought near.
    fn prefetch_head(&self, location: u64);

    /// Asks for `lines` cache lines from `location` on to be brought near, for an item that is one of many.
    fn prefetch(&self, location: u64, lines: u64);

    /// The same for an item about to be superseded: all of it where it may be overwritten, else
    /// its head.
    #[inline(always)]
    fn prefetch_to_update(&self, location: u64, _lines: u64) {
        self.prefetch_head(location);
    }

    /// During recovery: a newer item of the key was found than the one of `bytes` at `location`.
    fn supersede(&self, location: u64, bytes: usize);

    /// After [`Writing::retire`]: no index entry names `location` any more, so its place may be
    /// used again once no reader under a guard can hold it.
    fn release(&self, location: u64);

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
    /// Whether an item of `bytes` fits. If not, room for exactly so many makes it fit. Callers may
    /// hold the key's lock: nothing is waited for.
    fn fits(&self, bytes: usize) -> bool;
    /// The item written next is to supersede the one of `bytes` at `location`: a design may foretell by it how soon
    /// that ends.
    #[inline(always)]
    fn supersedes(&mut self, _location: u64, _bytes: usize) {}
    /// Writes an item that fits and returns its location. With allocation metadata, it counts only once `changes` are
    /// committed.
    fn write(&mut self, new: &NewItem<'_>, changes: &mut Changes) -> u64;
    /// Writes `new` over `old`, the current item of its key at `location`, where the design and
    /// what was promised allow it; whether it did. Called under the key's lock.
    fn overwrite(&mut self, location: u64, old: &Item<'_>, new: &NewItem<'_>) -> bool;
    /// Whether [`Writing::overwrite`] would.
    fn may_overwrite(&self, location: u64, old: &Item<'_>, new: &NewItem<'_>) -> bool;
    /// The item of `bytes` at `location` ends. Called under the key's lock. In slabs the slot is
    /// durably free on return, and those of older versions are; with allocation metadata, once `changes` are
    /// committed.
    fn retire(&mut self, location: u64, bytes: usize, changes: &mut Changes);
    /// The item of `bytes` at `location` ends because what supersedes it was written. Called under the
    /// key's lock. Returns the location if it is to be [released](Values::release); none if the design
    /// sees to that later.
    #[inline(always)]
    fn supersede(&mut self, location: u64, bytes: usize, changes: &mut Changes) -> Option<u64> {
        self.retire(location, bytes, changes);
        Some(location)
    }
    /// What to commit for everything written so far.
    fn ticket(&self) -> Ticket;
    /// Items from here to [`Writing::end_batch`] survive a crash together or not at all, where
    /// the design can promise it (logs). `changes` are to be committed.
    fn begin_batch(&mut self, changes: &mut Changes);
    /// Ends the batch. `changes` are to be committed, and [`Writing::batch_ended`] to follow.
    fn end_batch(&mut self, changes: &mut Changes);
    /// What the batch wrote survives as a whole: others may be told of it.
    fn batch_ended(&mut self);
}

impl<M: Memory> Values for Logs<M> {
    type Room<'a> = Appender<'a, M>;

    #[inline(always)]
    fn room(&self, writer: usize, bytes: usize, room: Room) -> Result<Appender<'_, M>> {
        self.appender(writer, bytes, room)
    }

    #[inline(always)]
    fn item<'g>(&'g self, location: u64, lock: &'g BucketLock) -> Found<Item<'g>> {
        Logs::item(self, location, lock)
    }

    #[inline(always)]
    fn item_again<'g>(&'g self, location: u64, lock: &'g BucketLock) -> Found<Item<'g>> {
        Logs::item_again(self, location, lock)
    }

    #[inline(always)]
    fn has_key(&self, location: u64, key: &[u8], lock: &BucketLock) -> Found<bool> {
        Logs::has_key(self, location, key, lock)
    }

    #[inline(always)]
    fn seen<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>> {
        Logs::seen(self, location, guard)
    }

    #[inline(always)]
    fn seen_again<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>> {
        Logs::seen_again(self, location, guard)
    }

    #[inline(always)]
    fn seen_if_key<'g>(
        &'g self,
        location: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> Found<Option<Seen<'g>>> {
        Logs::seen_if_key(self, location, key, guard)
    }

    fn verify_on_read(&self) {
        Logs::verify_on_read(self);
    }

    fn copy_item(&self, location: u64, copy: &mut ItemCopy) -> bool {
        Logs::copy_item(self, location, copy)
    }

    #[inline(always)]
    fn prefetch_head(&self, location: u64) {
        self.medium().memory().prefetch(location);
    }

    #[inline(always)]
    fn prefetch(&self, location: u64, lines: u64) {
        Logs::prefetch(self, location, lines);
    }

    #[inline(always)]
    fn prefetch_to_update(&self, location: u64, lines: u64) {
        Logs::prefetch_to_update(self, location, lines);
    }

    fn supersede(&self, location: u64, bytes: usize) {
        Logs::supersede(self, location, bytes);
    }

    /// Nothing: whole segments are freed, by the collector.
    #[inline(always)]
    fn release(&self, _location: u64) {}

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
        MAX_ITEM_BYTES
    }
}

impl<M: Memory> Writing for Appender<'_, M> {
    #[inline(always)]
    fn fits(&self, bytes: usize) -> bool {
        Appender::fits(self, bytes)
    }

    #[inline(always)]
    fn write(&mut self, new: &NewItem<'_>, changes: &mut Changes) -> u64 {
        self.append(new, changes)
    }

    #[inline(always)]
    fn overwrite(&mut self, location: u64, old: &Item<'_>, new: &NewItem<'_>) -> bool {
        Appender::overwrite(self, location, old, new)
    }

    fn may_overwrite(&self, location: u64, old: &Item<'_>, new: &NewItem<'_>) -> bool {
        Appender::may_overwrite(self, location, old, new)
    }

    #[inline(always)]
    fn retire(&mut self, location: u64, bytes: usize, changes: &mut Changes) {
        Appender::retire(self, location, bytes, changes);
    }

    #[inline(always)]
    fn ticket(&self) -> Ticket {
        Appender::ticket(self)
    }

    fn begin_batch(&mut self, changes: &mut Changes) {
        Appender::begin_batch(self, changes);
    }

    fn end_batch(&mut self, changes: &mut Changes) {
        Appender::end_batch(self, changes);
    }

    fn batch_ended(&mut self) {
        Appender::batch_ended(self);
    }
}

impl<M: Memory> Values for Slabs<M> {
    type Room<'a> = Slots<'a, M>;

    #[inline(always)]
    fn room(&self, writer: usize, bytes: usize, room: Room) -> Result<Slots<'_, M>> {
        self.slots(writer, bytes, room)
    }

    #[inline(always)]
    fn item<'g>(&'g self, location: u64, lock: &'g BucketLock) -> Found<Item<'g>> {
        Slabs::item(self, location, lock)
    }

    #[inline(always)]
    fn item_again<'g>(&'g self, location: u64, lock: &'g BucketLock) -> Found<Item<'g>> {
        Slabs::item_again(self, location, lock)
    }

    #[inline(always)]
    fn has_key(&self, location: u64, key: &[u8], lock: &BucketLock) -> Found<bool> {
        Slabs::has_key(self, location, key, lock)
    }

    #[inline(always)]
    fn seen<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>> {
        Slabs::seen(self, location, guard)
    }

    #[inline(always)]
    fn seen_again<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>> {
        Slabs::seen_again(self, location, guard)
    }

    #[inline(always)]
    fn seen_if_key<'g>(
        &'g self,
        location: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> Found<Option<Seen<'g>>> {
        Slabs::seen_if_key(self, location, key, guard)
    }

    fn verify_on_read(&self) {
        Slabs::verify_on_read(self);
    }

    fn copy_item(&self, _location: u64, _copy: &mut ItemCopy) -> bool {
        false
    }

    #[inline(always)]
    fn prefetch_head(&self, location: u64) {
        self.medium().memory().prefetch(location);
    }

    #[inline(always)]
    fn prefetch(&self, location: u64, lines: u64) {
        Slabs::prefetch(self, location, lines);
    }

    fn supersede(&self, location: u64, _bytes: usize) {
        Slabs::supersede(self, location);
    }

    fn release(&self, location: u64) {
        Slabs::release(self, location);
    }

    fn tombstone_stamp(&self) -> Option<u64> {
        None
    }

    #[inline(always)]
    fn undurable(&self, _location: u64) -> Option<Ticket> {
        None
    }

    fn commit(&self, _ticket: Ticket) -> Result<()> {
        Ok(())
    }

    fn flush_all(&self) -> Result<()> {
        self.check_writable()
    }

    fn max_item_bytes(&self) -> usize {
        slabs::LARGEST_ITEM_BYTES
    }
}

impl<M: Memory> Writing for Slots<'_, M> {
    #[inline(always)]
    fn fits(&self, bytes: usize) -> bool {
        Slots::fits(self, bytes)
    }

    #[inline(always)]
    fn supersedes(&mut self, location: u64, bytes: usize) {
        Slots::supersedes(self, location, bytes);
    }

    #[inline(always)]
    fn write(&mut self, new: &NewItem<'_>, changes: &mut Changes) -> u64 {
        Slots::write(self, new, changes)
    }

    /// Never: a slot is durable as soon as it is written.
    #[inline(always)]
    fn overwrite(&mut self, _location: u64, _old: &Item<'_>, _new: &NewItem<'_>) -> bool {
        false
    }

    fn may_overwrite(&self, _location: u64, _old: &Item<'_>, _new: &NewItem<'_>) -> bool {
        false
    }

    #[inline(always)]
    fn retire(&mut self, location: u64, _bytes: usize, changes: &mut Changes) {
        Slots::retire(self, location, changes);
    }

    #[inline(always)]
    fn supersede(&mut self, location: u64, _bytes: usize, changes: &mut Changes) -> Option<u64> {
        Slots::supersede(self, location, changes)
    }

    #[inline(always)]
    fn ticket(&self) -> Ticket {
        Slots::ticket(self)
    }

    /// Nothing: in slabs every item is durable by itself.
    fn begin_batch(&mut self, _changes: &mut Changes) {}

    /// Nothing, as [`Writing::begin_batch`].
    fn end_batch(&mut self, _changes: &mut Changes) {}

    /// Nothing, as [`Writing::begin_batch`].
    fn batch_ended(&mut self) {}
}
