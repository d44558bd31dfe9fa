//! Looking at items: under the key's lock, or without it under an epoch guard.

use super::overwrite::ALL;
use super::{Logs, MOST_OVERWRITTEN_BYTES, SEGMENT_HEADER_BYTES, State, segment_of, start_of};
use crate::item::{self, FLAGS_AT, Header, Item, MAX_HEADER_BYTES, Record};
use crate::values::{BucketLock, Found, NoItem, Seen};
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_memory::{Memory, lab};

impl<M: Memory> Logs<M> {
    /// The current item of a key whose lock is held, at `location`, which came from
    /// [`Appender::append`](super::Appender::append), recovery or an index that is kept; verified, if nobody has since
    /// the logs were opened.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn item<'g>(&'g self, location: u64, _lock: &'g BucketLock) -> Found<Item<'g>> {
        // SAFETY: only who has the lock overwrites it.
        Item::read(unsafe { self.verified(location)? }).ok_or(NoItem::Invalid(location))
    }

    /// The same without its checksum.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn item_again<'g>(&'g self, location: u64, _lock: &'g BucketLock) -> Found<Item<'g>> {
        // SAFETY: as above.
        Item::read(unsafe { self.bytes_of(location)? }).ok_or(NoItem::Invalid(location))
    }

    /// Whether the item at `location`, in a bucket whose lock is held, has this key.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn has_key(&self, location: u64, key: &[u8], _lock: &BucketLock) -> Found<bool> {
        // SAFETY: as above: all items of a bucket have its lock.
        Ok(Item::read_if_key(unsafe { self.verified(location)? }, key).is_some())
    }

    /// The item at `location`, learnt under `guard`; verified, if nobody has since the logs were opened.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn seen<'g>(&'g self, location: u64, _guard: &'g Guard) -> Found<Seen<'g>> {
        if self.may_change(location) {
            return self.seen_changing(location);
        }
        // SAFETY: at rest.
        let item = Item::read(unsafe { self.verified(location)? });
        item.map(Seen::AtRest).ok_or(NoItem::Invalid(location))
    }

    /// The same without its checksum.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn seen_again<'g>(&'g self, location: u64, _guard: &'g Guard) -> Found<Seen<'g>> {
        if self.may_change(location) {
            return self.seen_changing(location);
        }
        // SAFETY: at rest.
        let item = Item::read(unsafe { self.bytes_of(location)? });
        item.map(Seen::AtRest).ok_or(NoItem::Invalid(location))
    }

    /// The item at `location`, in a log that was claimed and frozen.
    ///
    /// # Errors
    /// [`NoItem`].
    pub fn frozen<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Item<'g>> {
        self.seen(location, guard)?.at_rest().ok_or(NoItem::Invalid(location))
    }

    /// As [`Logs::seen`], if its key is `key`.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn seen_if_key<'g>(
        &'g self,
        location: u64,
        key: &[u8],
        _guard: &'g Guard,
    ) -> Found<Option<Seen<'g>>> {
        if self.may_change(location) {
            let seen = self.seen_changing(location)?;
            return Ok((seen.key() == key).then_some(seen));
        }
        // SAFETY: at rest.
        let item = Item::read_if_key(unsafe { self.verified(location)? }, key);
        Ok(item.map(Seen::AtRest))
    }

    /// What may be lent of an item in a part of a log where items are overwritten.
    #[inline(always)]
    fn seen_changing(&self, location: u64) -> Found<Seen<'_>> {
        let room = self.resolve(location)?.end - location;
        if room >= 12 {
            let memory = self.medium.memory();
            let mut word = [0; 8];
            // SAFETY: within a segment that is committed, since items are overwritten there; and within the copy.
            unsafe { memory.copy_changing(location + FLAGS_AT, word.as_mut_ptr(), 8) };
            // Of a header the version is overwritten, and nothing else.
            if let Some((key_at, key_bytes, bytes)) = item::usual(u64::from_le_bytes(word))
                && bytes <= room
            {
                // SAFETY: within the segment; keys are not overwritten, and the place is not used again before every
                // guard under which the location could be learnt is gone.
                return Ok(Seen::Changing(unsafe { memory.bytes(location + key_at, key_bytes) }));
            }
        }
        self.seen_changing_rarely(location)
    }

    /// The same of any item.
    #[inline(never)]
    fn seen_changing_rarely(&self, location: u64) -> Found<Seen<'_>> {
        let room = self.resolve(location)?.end - location;
        let memory = self.medium.memory();
        let mut head = [0; MAX_HEADER_BYTES];
        let head_bytes = (room as usize).min(MAX_HEADER_BYTES);
        // SAFETY: within a segment that is committed, since items are overwritten there; and within the copy.
        unsafe { memory.copy_changing(location, head.as_mut_ptr(), head_bytes) };
        // Of a header the version is overwritten, and nothing else.
        let header = Header::decode(&head[..head_bytes]).ok_or(NoItem::Invalid(location))?;
        if header.item_bytes() as u64 > room {
            return Err(NoItem::Invalid(location));
        }
        if header.item_bytes() > MOST_OVERWRITTEN_BYTES || !header.is_overwritten() {
            // SAFETY: nobody overwrites an item such as this one.
            let item = Item::read(unsafe { self.bytes_of(location)? });
            return item.map(Seen::AtRest).ok_or(NoItem::Invalid(location));
        }
        let key_at = location + header.header_bytes as u64;
        // SAFETY: within the segment; keys are not overwritten, and the place is not used again before every guard
        // under which the location could be learnt is gone.
        Ok(Seen::Changing(unsafe { memory.bytes(key_at, header.key_bytes as u64) }))
    }

    /// Visits the items of a claimed segment in order: location, item, bytes. They can be looked at for as long as
    /// `guard` is held, whatever becomes of the claim.
    ///
    /// # Errors
    /// [`NoItem`] where no whole item follows: what is behind it is not visited.
    ///
    /// # Panics
    /// If the segment is not claimed, not [frozen](Logs::freeze), or not in memory ([`Logs::bring_back`]).
    pub fn each_item<'a>(
        &'a self,
        segment: u32,
        _guard: &'a Guard,
        mut visit: impl FnMut(u64, Item<'a>, usize),
    ) -> Found<()> {
        assert_eq!(self.segments[segment as usize].state(), State::Collecting, "it is claimed");
        assert_eq!(self.frozen[segment as usize].load(Ordering::Acquire), ALL, "it is frozen");
        let place = &self.segments[segment as usize].place;
        assert!(place.residence().is_resident, "it was brought back");
        let end = start_of(segment)
            + u64::from(self.segments[segment as usize].end.load(Ordering::Acquire));
        let mut at = start_of(segment) + u64::from(SEGMENT_HEADER_BYTES);
        while at < end {
            // SAFETY: a claimed segment that is frozen: nobody writes its items until it is freed, and used again when
            // no guard from before is held (`Freed`).
            let bytes = unsafe { item::borrow(self.medium.memory(), at, end) };
            let bytes = bytes.ok_or(NoItem::Invalid(at))?;
            let is_item = item::is_item(bytes);
            // What is copied gets a checksum anew: it would hide that it was damaged.
            if is_item && self.is_unverified(at) && !self.is_item(at, bytes) {
                return Err(NoItem::Invalid(at));
            }
            match Item::read(bytes) {
                Some(item) if is_item => visit(at, item, bytes.len()),
                _ => {}
            }
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Items that are there now are verified whenever they are read.
    pub fn verify_on_read(&self) {
        self.unverified_below.store(self.next_sequence(), Ordering::Relaxed);
    }

    pub(crate) fn verifies_on_read(&self) -> bool {
        self.unverified_below.load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    fn is_unverified(&self, location: u64) -> bool {
        let below = self.unverified_below.load(Ordering::Relaxed);
        // No log of a map whose index was made by reading them.
        below != 0 && self.segments[segment_of(location)].sequence.load(Ordering::Relaxed) < below
    }

    /// # Safety
    /// As for [`Logs::bytes_of`].
    #[inline(always)]
    unsafe fn verified(&self, location: u64) -> Found<&[u8]> {
        // SAFETY: by contract.
        let bytes = unsafe { self.bytes_of(location)? };
        if self.is_unverified(location) && !self.is_item(location, bytes) {
            return Err(NoItem::Invalid(location));
        }
        Ok(bytes)
    }

    #[inline(never)]
    fn is_item(&self, location: u64, bytes: &[u8]) -> bool {
        lab::looked_at(self.medium.memory(), location, bytes.len() as u64);
        let salt = self.segments[segment_of(location)].salt.load(Ordering::Relaxed);
        matches!(item::verify(bytes, salt), Record::Item(..))
    }

    /// The bytes of the item at `location`, and no others: its head says how many.
    ///
    /// # Safety
    /// While they are borrowed nobody overwrites the item, and its log is not used again: it is current and its key's
    /// lock is held, or it is at rest and a guard is held from before the location was learnt.
    #[inline(always)]
    unsafe fn bytes_of(&self, location: u64) -> Found<&[u8]> {
        let end = match self.resolve(location) {
            Ok(found) => found.end,
            // SAFETY: by contract; of a map whose logs leave, writers hold a guard as well.
            Err(NoItem::Away(_)) => return unsafe { self.fetched(location) },
            Err(other) => return Err(other),
        };
        // SAFETY: committed; and by contract, since a segment is freed only when none of its items is current, and
        // reused only after every guard under which its locations could be learnt is gone.
        let bytes = unsafe { item::borrow(self.medium.memory(), location, end) };
        bytes.ok_or(NoItem::Invalid(location))
    }
}
