//! What indexes in the order of keys share: locations become the two words of an entry's value, and back.

use crate::located::value;
use terrace_index::{Change, keys};

/// The operations of [`KeyIndex`](super::KeyIndex) of a type whose field `entries` is a tree, or delta chains in logs.
macro_rules! operations_in_order {
    () => {
        fn is_ordered(&self) -> bool {
            true
        }

        #[inline(always)]
        fn get(&self, _hash: u64, key: &[u8], items: &(impl Items + Keys)) -> Option<u64> {
            self.entries.get(key, items).map(location)
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
                self.entries.multi_get(keys, items, &mut values[..keys.len()]);
            }
            for (found, value) in found.iter_mut().zip(&values[..keys.len()]) {
                *found = value.map(location);
                found.iter().for_each(|location| near(*location));
            }
        }

        #[inline(always)]
        fn watch(&self, _hash: u64, key: &[u8], items: &impl Keys) -> Self::Watch<'_> {
            self.entries.watch(key, items)
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
            // Operations on an index in the order of keys are no sections.
            let f = |value: Option<[u64; 2]>, lock: &BucketLock| {
                let (change, rest) = f(value.map(location), lock, &mut Changes::new());
                (of_value(change, key), rest)
            };
            let then = |rest| then(rest, &mut Changes::new());
            Ok(self.entries.update_then(key, items, f, then)?.map(location))
        }

        fn look<R>(
            &self,
            _hash: u64,
            key: &[u8],
            items: &(impl Items + Keys),
            f: impl FnOnce(u64) -> R,
        ) -> Option<R> {
            self.entries.look(key, items, |value| f(location(value)))
        }

        #[inline(always)]
        fn holds(&self, _hash: u64, key: &[u8], at: u64, items: &(impl Items + Keys)) -> bool {
            self.entries.holds(key, value(at, key), items)
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
            match self.entries.range(from, Direction::Up, count.max(1), items, visit) {
                Some(last) => Position::Key(whole_key(last, items)),
                None => Position::End,
            }
        }

        #[inline(always)]
        fn range(
            &self,
            from: Bound<&[u8]>,
            direction: Direction,
            count: usize,
            items: &impl Keys,
            mut visit: impl FnMut(u64),
        ) -> Result<Option<u64>, Unordered> {
            let visit = |entries: &[Entry]| entries.iter().for_each(|e| visit(location(e.value)));
            let last = self.entries.range(from, direction, count, items, visit);
            Ok(last.map(|last| location(last.value)))
        }

        fn walk(&self, items: &impl Keys, visit: impl FnMut(&Entry, u64)) -> Result<(), Unordered> {
            self.entries.walk(items, visit);
            Ok(())
        }

        fn position_near(&self, random: u64, items: &impl Keys) -> Position {
            let some = self.entries.some(random, items);
            some.map_or(Position::Start, |entry| Position::At(whole_key(entry, items)))
        }

        fn len(&self) -> u64 {
            self.entries.len()
        }
    };
}

pub(super) use operations_in_order;

#[inline(always)]
pub(super) fn of_value(change: Change, key: &[u8]) -> keys::Change {
    match change {
        Change::Keep => keys::Change::Keep,
        Change::Set(at) => keys::Change::Set(value(at, key)),
        Change::Overwritten => keys::Change::Overwritten,
        Change::Remove => keys::Change::Remove,
    }
}

pub(super) fn whole_key(entry: keys::Entry, items: &impl keys::Keys) -> Box<[u8]> {
    let mut key = Vec::new();
    items.key(entry.value, &mut key);
    key.into()
}
