//! What is in the order of keys as a map's index: words of a value become locations, and back.

use super::ordered::{self, Form, Ordered};
use super::{KeyIndex, Position};
use crate::engine::BATCH;
use crate::located::{location, value};
use std::io;
use std::ops::Bound;
use std::time::Duration;
use terrace_durable::BucketLock;
use terrace_durable::sections::Changes;
use terrace_index::keys::{self, Direction, Entry, Keys};
use terrace_index::{Change, Items};
use terrace_memory::Memory;

impl<I: Memory> KeyIndex for Ordered<I> {
    type Watch<'a>
        = ordered::Watch<'a, I>
    where
        Self: 'a;

    fn looked_at(&self) -> [u64; 2] {
        Form::looked_at(self)
    }

    #[inline(always)]
    fn get(&self, _hash: u64, key: &[u8], items: &(impl Items + Keys)) -> Option<u64> {
        Form::get(self, key, items).map(location)
    }

    #[inline(always)]
    fn candidates(
        &self,
        _hashes: &[u64],
        keys: &[&[u8]],
        together: usize,
        items: &impl Keys,
        near: impl Fn(u64),
        found: &mut [Option<u64>; BATCH],
    ) {
        let mut values = [None; BATCH];
        for (keys, values) in keys.chunks(together).zip(values.chunks_mut(together)) {
            self.multi_get(keys, items, &mut values[..keys.len()]);
        }
        for (found, value) in found.iter_mut().zip(&values[..keys.len()]) {
            *found = value.map(location);
            found.iter().for_each(|location| near(*location));
        }
    }

    #[inline(always)]
    fn watch(&self, _hash: u64, key: &[u8], items: &impl Keys) -> ordered::Watch<'_, I> {
        Form::watch(self, key, items)
    }

    #[inline(always)]
    fn update_then<T>(
        &self,
        _hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        // There are no sections of an ordered index.
        let f = |value: Option<[u64; 2]>, lock: &BucketLock| {
            let (change, rest) = f(value.map(location), lock, &mut Changes::new());
            (changed(change, key), rest)
        };
        let before = Form::update_then(self, key, items, f, |rest| then(rest, &mut Changes::new()));
        Ok(before?.map(location))
    }

    fn look<R>(
        &self,
        _hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(u64) -> R,
    ) -> Option<R> {
        Form::look(self, key, items, |value| f(location(value)))
    }

    fn update_at(
        &self,
        _hash: u64,
        key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> io::Result<bool> {
        let f = |lock: &BucketLock| changed(f(lock, &mut Changes::new()), key);
        Form::update_at(self, key, value(at, key), items, f)
    }

    #[inline(always)]
    fn holds(&self, _hash: u64, key: &[u8], at: u64, items: &(impl Items + Keys)) -> bool {
        Form::holds(self, key, value(at, key), items)
    }

    fn scan(
        &self,
        from: &Position,
        count: usize,
        items: &(impl Items + Keys),
        mut visit: impl FnMut(u64),
    ) -> Position {
        let from = match from {
            Position::End => return Position::End,
            Position::At(key) => Bound::Included(&key[..]),
            Position::Key(key) => Bound::Excluded(&key[..]),
            Position::Start | Position::Bucket(_) => Bound::Unbounded,
        };
        let visit = |entries: &[Entry]| entries.iter().for_each(|e| visit(location(e.value)));
        let Some(last) = self.range(from, Direction::Up, count.max(1), items, visit) else {
            return Position::End;
        };
        let mut key = Vec::new();
        items.key(last.value, &mut key);
        Position::Key(key.into())
    }

    fn position_near(&self, random: u64, items: &impl Keys) -> Position {
        self.some(random, items).map_or(Position::Start, |entry| {
            let mut key = Vec::new();
            items.key(entry.value, &mut key);
            Position::At(key.into())
        })
    }

    fn clear(&self, items: &impl Keys) -> io::Result<()> {
        Form::clear(self, items)
    }

    fn went_by(&self, time: Duration) {
        Form::went_by(self, time);
    }

    fn tidy(&self, items: &impl Keys) -> io::Result<bool> {
        Form::tidy(self, items)
    }

    fn shrink(&self, items: &impl Keys) -> u64 {
        Form::shrink(self, items)
    }

    fn free_bytes(&self) -> u64 {
        Form::free_bytes(self)
    }

    fn len(&self) -> u64 {
        Form::len(self)
    }

    fn bytes(&self) -> u64 {
        Form::bytes(self)
    }

    fn used(&self, start: u64) -> Vec<(u64, u64)> {
        vec![(start, self.kept_bytes())]
    }
}

#[inline(always)]
fn changed(change: Change, key: &[u8]) -> keys::Change {
    match change {
        Change::Keep => keys::Change::Keep,
        Change::Set(at) => keys::Change::Set(value(at, key)),
        Change::Overwritten => keys::Change::Overwritten,
        Change::Remove => keys::Change::Remove,
    }
}
