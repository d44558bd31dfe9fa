//! The hash table as a map's index.

use super::{KeyIndex, Position, Site, Unordered, Watches};
use crate::engine::BATCH;
use crate::form::TreeForm;
use crate::kept::regions;
use crate::open::{LEAST_ITEM_BYTES, Opening};
use std::fmt;
use std::io;
use terrace_durable::BucketLock;
use terrace_durable::sections::Changes;
use terrace_index::keys::{Entry, Keys};
use terrace_index::{Change, HashIndex, Items, Line, Watch};
use terrace_memory::{Divide, Memory};

impl<I: Memory> Watches for Watch<'_, I> {
    #[inline(always)]
    fn saw_no_overwrite(&self) -> bool {
        Watch::saw_no_overwrite(self)
    }
}

impl<I: Memory> KeyIndex for HashIndex<I> {
    type Memory = I;
    type InDram = HashIndex;
    type Watch<'a>
        = Watch<'a, I>
    where
        Self: 'a;

    fn makes(form: Option<TreeForm>) -> bool {
        form.is_none()
    }

    fn in_dram(opening: &Opening<'_>, capacity: u64) -> io::Result<HashIndex> {
        let (tables, end) = (opening.tables(), capacity * LEAST_ITEM_BYTES);
        HashIndex::on_node(tables, capacity, end, opening.index_node(), opening.index_budget())
    }

    fn create(site: &Site<'_, I>) -> io::Result<HashIndex<I>>
    where
        I: Divide,
    {
        HashIndex::persistent(regions(site.file), site.opening.budget)
    }

    fn reopen(
        site: &Site<'_, I>,
        _claimed: &(impl Keys + Sync),
        is_intact: impl FnOnce(&[(u64, u64)]) -> io::Result<bool>,
    ) -> io::Result<HashIndex<I>>
    where
        I: Divide,
    {
        HashIndex::reopen(regions(site.file), site.opening.budget, is_intact)
    }

    fn repair(site: &Site<'_, I>, _claimed: &(impl Keys + Sync)) -> io::Result<HashIndex<I>>
    where
        I: Divide,
    {
        HashIndex::repair(regions(site.file), site.opening.budget)
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hash")
    }

    fn use_sections(&mut self) {
        HashIndex::use_sections(self);
    }

    fn note_allocation(&self) {
        self.note_allocation();
    }

    fn looked_at(&self) -> [u64; 2] {
        // But for chains, which are rare: a bucket is a line.
        [1, 64]
    }

    fn have_one_tag(&self, one: u64, other: u64) -> bool {
        HashIndex::have_one_tag(self, one, other)
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> Option<Line<'_, I>> {
        Some(HashIndex::line(self, hash))
    }

    #[inline(always)]
    fn get(&self, hash: u64, key: &[u8], items: &(impl Items + Keys)) -> Option<u64> {
        HashIndex::get(self, hash, key, items)
    }

    /// Prefetches the buckets; then finds a candidate in each, or prefetches its overflow line; then looks there.
    #[inline(always)]
    fn candidates(
        &self,
        hashes: &[u64],
        _keys: &[&[u8]],
        _together: usize,
        _items: &impl Keys,
        near: impl Fn(u64),
        found: &mut [Option<u64>; BATCH],
    ) {
        let mut lines = [self.line(0); BATCH];
        for (line, hash) in lines.iter_mut().zip(hashes) {
            *line = self.line(*hash);
            line.prefetch();
        }
        let mut elsewhere = [0u8; BATCH];
        let mut count = 0;
        for (i, hash) in hashes.iter().enumerate() {
            found[i] = lines[i].candidate(*hash);
            if let Some(location) = found[i] {
                near(location);
            } else if let Some(next) = lines[i].next() {
                next.prefetch();
                lines[i] = next;
                elsewhere[count] = i as u8;
                count += 1;
            }
        }
        for i in elsewhere[..count].iter().map(|i| usize::from(*i)) {
            found[i] = lines[i].candidate(hashes[i]);
            found[i].into_iter().for_each(&near);
        }
    }

    #[inline(always)]
    fn watch(&self, hash: u64, _key: &[u8], _items: &impl Keys) -> Watch<'_, I> {
        HashIndex::watch(self, hash)
    }

    #[inline(always)]
    fn update_then<T>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        HashIndex::update_then(self, hash, key, items, f, then)
    }

    fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(u64) -> R,
    ) -> Option<R> {
        HashIndex::look(self, hash, key, items, f)
    }

    fn update_at(
        &self,
        hash: u64,
        _key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> io::Result<bool> {
        Ok(HashIndex::update_at(self, hash, at, items, f))
    }

    #[inline(always)]
    fn holds(&self, hash: u64, _key: &[u8], at: u64, _items: &(impl Items + Keys)) -> bool {
        HashIndex::holds(self, hash, at)
    }

    fn scan(
        &self,
        from: &Position,
        count: usize,
        _items: &(impl Items + Keys),
        visit: impl FnMut(u64),
    ) -> Position {
        let cursor = match from {
            Position::End => return Position::End,
            Position::Bucket(cursor) => *cursor,
            _ => 0,
        };
        match HashIndex::scan(self, cursor, count.max(1), visit) {
            0 => Position::End,
            cursor => Position::Bucket(cursor),
        }
    }

    fn walk(&self, _items: &impl Keys, _visit: impl FnMut(&Entry, u64)) -> Result<(), Unordered> {
        Err(Unordered)
    }

    fn position_near(&self, random: u64, _items: &impl Keys) -> Position {
        Position::Bucket(random % (2 * HashIndex::len(self).max(1)))
    }

    fn clear(&self, _items: &impl Keys) -> io::Result<()> {
        HashIndex::clear(self);
        Ok(())
    }

    fn len(&self) -> u64 {
        HashIndex::len(self)
    }

    fn bytes(&self) -> u64 {
        self.stats().bytes
    }

    fn used(&self, _start: u64) -> Vec<(u64, u64)> {
        HashIndex::used(self)
    }
}
