//! A hash table as a row of words, to be saved and loaded again.
//!
//! ```text
//! number of buckets, then of each eight buckets
//!   eight numbers of a byte each: entries, and as many: entries of deleted keys, one word each
//!   the entries of the first bucket, those of deleted keys last; of the second; ...
//! ```
//! Entries are as the table has them: so an index is loaded without a look at its items, and without their hashes. A
//! table is saved while others write. Of a key that is written meanwhile the entry before or the one after is saved,
//! or none where it had none or has none; whoever loads it knows what was written since it began.

use super::line::*;
use super::overflow::Lines;
use super::shard::{Persistence, Shard};
use super::{HashIndex, LockedBucket};
use crate::FIRST_COMMIT_BYTES;
use std::io;
use std::sync::atomic::Ordering;
use terrace_durable::BucketLock;
use terrace_durable::sections::Changes;
use terrace_memory::Memory;

/// Buckets whose entries are counted in one word.
const TOGETHER: u64 = 8;
const MOST: usize = u8::MAX as usize;

/// What a saved index has to be loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tables, a power of two.
    pub tables: usize,
    /// Bits of an entry that are a location; the others are its tag.
    pub location_bits: u32,
    /// The first bit of the hash that is in the tag.
    pub tag_from: u32,
}

/// How many entries were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// All of them.
    pub entries: u64,
    /// Those of deleted keys.
    pub deleted: u64,
}

/// Entries of eight buckets.
#[derive(Default)]
struct Group {
    words: Vec<u64>,
    deleted: Vec<u64>,
    counts: [u64; 2],
}

impl Group {
    fn clear(&mut self) {
        self.words.clear();
        self.words.extend([0; 2]);
        self.counts = [0; 2];
    }

    fn add(&mut self, number: u64, entries: &[u64], is_deleted: impl Fn(u64) -> bool) -> bool {
        self.deleted.clear();
        let from = self.words.len();
        for entry in entries {
            let list = if is_deleted(*entry) { &mut self.deleted } else { &mut self.words };
            list.push(*entry);
        }
        let (live, deleted) = (self.words.len() - from, self.deleted.len());
        self.words.append(&mut self.deleted);
        for (count, found) in self.counts.iter_mut().zip([live, deleted]) {
            *count |= (found.min(MOST) as u64) << (8 * (number % TOGETHER));
        }
        live.max(deleted) <= MOST
    }
}

impl<I: Memory> HashIndex<I> {
    /// What an index has to be that [loads](HashIndex::load) this one, saved.
    pub fn layout(&self) -> Layout {
        let Tags { location_bits, from } = self.shards[0].tags;
        let (location_bits, tag_from) = (location_bits.into(), from.into());
        Layout { tables: self.shards.len(), location_bits, tag_from }
    }

    /// Passes one of the tables on to `put`, a few buckets at a time. `is_deleted` is asked of each location whether
    /// its item says that the key is deleted; right after that `put` is called, and before the next. The table does
    /// not grow meanwhile.
    ///
    /// # Errors
    /// Those of `put`; [`io::ErrorKind::Unsupported`] of a table with a crowded bucket, one that could not grow.
    pub fn save<E: From<io::Error>>(
        &self,
        table: usize,
        is_deleted: impl Fn(u64) -> bool,
        mut put: impl FnMut(&[u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let shard = &self.shards[table];
        let _no_growth = shard.growth.lock();
        let count = shard.count.load(Ordering::Acquire);
        put(&[count])?;
        let (mut group, mut entries) = (Group::default(), Vec::new());
        for first in (0..count).step_by(TOGETHER as usize) {
            group.clear();
            for bucket in first..(first + TOGETHER).min(count) {
                entries.clear();
                shard.lock(bucket).each(&Changes::new(), |_, _, entry| entries.push(entry));
                let is_deleted = |entry| is_deleted(shard.tags.location(entry));
                if !group.add(bucket, &entries, is_deleted) {
                    return Err(io::Error::from(io::ErrorKind::Unsupported).into());
                }
            }
            group.words[..2].copy_from_slice(&group.counts);
            put(&group.words)?;
        }
        Ok(())
    }

    /// Loads a table that was saved of an index of this `layout` into the one of the same number, which is empty, of an
    /// index that nobody uses yet. `next` gives the next words. Entries whose location `keep` does not want are left
    /// out; it is also told whether the key is deleted.
    ///
    /// # Errors
    /// Those of `next` and of memory; [`io::ErrorKind::InvalidData`] if no table of this index can have been saved so.
    pub fn load(
        &self,
        table: usize,
        layout: Layout,
        mut next: impl FnMut(&mut [u64]) -> io::Result<()>,
        mut keep: impl FnMut(u64, bool) -> bool,
    ) -> io::Result<Loaded> {
        let shard = &self.shards[table];
        let convert = shard.convert(layout, self.shards.len())?;
        let mut count = [0];
        next(&mut count)?;
        let [count] = count;
        shard.make_room_for(count)?;
        let mut loaded = Loaded::default();
        let mut entries = [0; 2 * MOST];
        for first in (0..count).step_by(TOGETHER as usize) {
            let mut counts = [0; 2];
            next(&mut counts)?;
            for bucket in first..(first + TOGETHER).min(count) {
                let [live, deleted] =
                    counts.map(|counts| (counts >> (8 * (bucket % TOGETHER))) as u8 as usize);
                let found = &mut entries[..live + deleted];
                next(found)?;
                let mut kept = 0;
                for at in 0..found.len() {
                    let (location, entry) = convert(found[at]);
                    if location != 0 && keep(location, at >= live) {
                        found[kept] = entry;
                        kept += 1;
                        loaded.deleted += u64::from(at >= live);
                    }
                }
                shard.fill_new(bucket, &found[..kept])?;
                loaded.entries += kept as u64;
            }
        }
        shard.entries.store(loaded.entries, Ordering::Relaxed);
        Ok(loaded)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<I: Memory> Shard<I> {
    /// What makes a location and an entry of this table of one that was saved.
    fn convert(
        &self,
        layout: Layout,
        tables: usize,
    ) -> io::Result<impl Fn(u64) -> (u64, u64) + use<I>> {
        let Tags { location_bits, from } = self.tags;
        // A longer tag would need more bits of the hash than were saved.
        let fits = (1..=u32::from(location_bits)).contains(&layout.location_bits);
        if !fits || layout.tag_from != u32::from(from) || layout.tables != tables {
            return Err(invalid("its tables are others"));
        }
        Ok(move |entry: u64| {
            let location = entry & ((1 << layout.location_bits) - 1);
            (location, entry >> layout.location_bits << location_bits | location)
        })
    }

    /// Makes an empty table that nobody uses one of `count` buckets.
    fn make_room_for(&self, count: u64) -> io::Result<()> {
        debug_assert!(self.persistence == Persistence::Nothing, "others say how many they have");
        if count < FIRST_BUCKETS || count > self.buckets.len() / LINE {
            return Err(invalid("so many buckets are in no table"));
        }
        let committed = self.bucket_bytes.load(Ordering::Relaxed);
        let bytes = (count * LINE).next_multiple_of(FIRST_COMMIT_BYTES).min(self.buckets.len());
        if let Some(more) = bytes.checked_sub(committed).filter(|more| *more > 0) {
            (self.commit_buckets)(committed, more)?;
            self.budget.take_anyway(more);
            self.bucket_bytes.store(bytes, Ordering::Relaxed);
        }
        self.count.store(count, Ordering::Release);
        Ok(())
    }

    /// Fills an empty bucket that nobody uses yet.
    fn fill_new(&self, bucket: u64, entries: &[u64]) -> io::Result<()> {
        let (own, more) = entries.split_at(entries.len().min(SLOTS as usize));
        for (slot, entry) in (1..).zip(own) {
            // SAFETY: a slot of a committed line of a table that nobody uses yet.
            unsafe { self.buckets.store(bucket * LINE + 8 * slot, *entry) };
        }
        if more.is_empty() {
            return Ok(());
        }
        // SAFETY: nobody uses the table yet.
        let lock = unsafe { BucketLock::held() };
        let bucket = LockedBucket { shard: self, at: bucket * LINE, is_hidden: true, lock };
        let (mut lines, mut changes) = (Lines::of(self), Changes::new());
        for entry in more {
            let room = bucket.room(&mut lines)?;
            bucket.insert(*entry, room, &mut lines, &mut changes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Items, hash_key};
    use std::sync::Arc;
    use terrace_memory::Budget;

    /// The item at a location is the location; every seventh one deletes its key.
    struct Numbers;

    impl Items for Numbers {
        fn has_key(&self, location: u64, key: &[u8]) -> bool {
            key == location.to_le_bytes()
        }
        fn hash(&self, location: u64) -> Option<u64> {
            Some(hash_of(location))
        }
        fn prefetch(&self, _location: u64) {}
    }

    fn hash_of(location: u64) -> u64 {
        hash_key(3, &location.to_le_bytes())
    }

    fn is_deleted(location: u64) -> bool {
        location.is_multiple_of(7)
    }

    fn index(end: u64) -> HashIndex {
        let budget = Arc::new(Budget::new(u64::MAX));
        HashIndex::on_node(2, 1 << 20, end, None, &budget).expect("an index")
    }

    fn filled(end: u64, keys: u64) -> HashIndex {
        let index = index(end);
        for location in 1..=keys {
            let key = location.to_le_bytes();
            let set = |_| Change::Set(location);
            index.update(hash_of(location), &key, &Numbers, set).expect("room");
        }
        index
    }

    fn saved(index: &HashIndex) -> Vec<Vec<u64>> {
        let table = |table| {
            let mut words = Vec::new();
            let put = |more: &[u64]| -> io::Result<()> {
                words.extend_from_slice(more);
                Ok(())
            };
            index.save(table, is_deleted, put).expect("saved");
            words
        };
        (0..index.layout().tables).map(table).collect()
    }

    fn load(
        into: &HashIndex,
        layout: Layout,
        saved: &[Vec<u64>],
        keep: impl Fn(u64) -> bool,
    ) -> io::Result<Loaded> {
        let mut sum = Loaded::default();
        for (table, words) in saved.iter().enumerate() {
            let mut words = words.iter();
            let next = |into: &mut [u64]| {
                for word in into {
                    *word = *words.next().ok_or(io::ErrorKind::UnexpectedEof)?;
                }
                Ok(())
            };
            let keep = |location, deleted| {
                assert_eq!(deleted, is_deleted(location), "of {location}");
                keep(location)
            };
            let loaded = into.load(table, layout, next, keep)?;
            sum.entries += loaded.entries;
            sum.deleted += loaded.deleted;
        }
        Ok(sum)
    }

    #[test]
    fn a_loaded_index_finds_what_the_saved_one_found_and_goes_on() {
        for keys in [0, 1, 100, 60_000] {
            let first = filled(1 << 40, keys);
            let second = index(1 << 40);
            let kept = |location: u64| !location.is_multiple_of(10);
            let loaded =
                load(&second, first.layout(), &saved(&first), kept).expect("its own layout");
            assert_eq!(loaded.entries, keys - keys / 10);
            assert_eq!(loaded.deleted, keys / 7 - keys / 70);
            assert_eq!(second.len(), loaded.entries);
            for location in 1..=keys {
                let found = second.get(hash_of(location), &location.to_le_bytes(), &Numbers);
                assert_eq!(found, kept(location).then_some(location));
            }
            for location in keys + 1..=2 * keys {
                let set = |_| Change::Set(location);
                second
                    .update(hash_of(location), &location.to_le_bytes(), &Numbers, set)
                    .expect("room");
            }
            let all = (1..=2 * keys).filter(|location| *location > keys || kept(*location));
            for location in all {
                let found = second.get(hash_of(location), &location.to_le_bytes(), &Numbers);
                assert_eq!(found, Some(location));
            }
        }
    }

    #[test]
    fn an_index_whose_locations_are_longer_loads_one_whose_tags_were_longer() {
        let first = filled(1 << 36, 5_000);
        let second = index(1 << 42);
        load(&second, first.layout(), &saved(&first), |_| true).expect("a shorter tag");
        for location in 1..=5_000 {
            let found = second.get(hash_of(location), &location.to_le_bytes(), &Numbers);
            assert_eq!(found, Some(location));
        }
        let third = index(1 << 36);
        let refused = load(&third, second.layout(), &saved(&second), |_| true);
        assert_eq!(refused.expect_err("no bits for it").kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn what_no_table_can_be_is_refused() {
        let first = filled(1 << 40, 100);
        let layout = first.layout();
        let saved = saved(&first);
        for count in [0, 1, 1 << 40, u64::MAX] {
            let mut odd = saved.clone();
            odd[0][0] = count;
            load(&index(1 << 40), layout, &odd, |_| true).expect_err("so many buckets");
        }
        for other in [
            Layout { tables: 4, ..layout },
            Layout { tag_from: 40, ..layout },
            Layout { location_bits: 0, ..layout },
        ] {
            load(&index(1 << 40), other, &saved, |_| true).expect_err("another layout");
        }
        load(&index(1 << 40), layout, &[saved[0][..9].to_vec()], |_| true).expect_err("cut short");
    }
}
