//! Ordered maps in memory. A value is a `Box<[u8]>`, one allocation a put; keys of 8 and 16 bytes are
//! held inline, others boxed.

use super::maps::{Key, Value, volatile};
use crate::engine::{Engine, OpenOptions};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::path::Path;
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// std's tree behind a lock that readers share.
pub struct Btreemap<K: Key>(RwLock<BTreeMap<K, Value>>);
/// crossbeam's list.
/// It replaces a value by taking the entry out and putting another in, so that readers miss it in between:
/// values are changed in place instead.
pub struct Skiplist<K: Key>(crossbeam_skiplist::SkipMap<K, RwLock<Value>>);
/// scc's tree.
pub struct Treeindex<K: Key>(scc::TreeIndex<K, Value>);
/// congee, by the numbers that keys of 8 bytes are. Its scans copy keys and need values that are numbers:
/// left out.
pub struct Congee(congee::CongeeArc<usize, Value>);

volatile!([K: Key] Btreemap<K>, RwLock::default(), ordered: true);
volatile!([K: Key] Skiplist<K>, crossbeam_skiplist::SkipMap::new(), ordered: true);
volatile!([K: Key] Treeindex<K>, scc::TreeIndex::new(), ordered: true);
volatile!([] Congee, congee::CongeeArc::new(), ordered: false);

impl<K: Key> Handle for &Btreemap<K> {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(self.0.read().get(key).map(|found| super::copy(found, value)).is_some())
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.0.write().insert(K::of(key), value.into());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.0.write().remove(key);
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let map = self.0.read();
        let found = map.range::<K, _>(K::of(start)..).take(limit);
        Ok(found.map(|(key, value)| each(key.borrow(), value)).count())
    }
}

impl<K: Key> Handle for &Skiplist<K> {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(self.0.get(key).map(|found| super::copy(&found.value().read(), value)).is_some())
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let mut new = None;
        let entry = self.0.get_or_insert_with(K::of(key), || {
            new = Some(());
            RwLock::new(value.into())
        });
        if new.is_none() {
            *entry.value().write() = value.into();
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.0.remove(key);
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let found = self.0.range::<K, _>(K::of(start)..).take(limit);
        Ok(found.map(|entry| each(entry.key().borrow(), &entry.value().read())).count())
    }
}

impl<K: Key> Handle for &Treeindex<K> {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(self.0.peek_with(&K::of(key), |_, found| super::copy(found, value)).is_some())
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.0.upsert_sync(K::of(key), value.into());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.0.remove_sync(&K::of(key));
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let guard = scc::Guard::new();
        let found = self.0.range(K::of(start).., &guard).take(limit);
        Ok(found.map(|(key, value)| each(key.borrow(), value)).count())
    }
}

fn number(key: &[u8]) -> usize {
    let key = key.try_into().expect("invariant: the engine was chosen by the length of its keys");
    u64::from_be_bytes(key) as usize
}

impl Handle for &Congee {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let found = self.0.get(number(key), &self.0.pin());
        Ok(found.map(|found| super::copy(&found, value)).is_some())
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let value: Value = value.into();
        let put = self.0.insert(number(key), std::sync::Arc::new(value), &self.0.pin());
        put.map(|_| ()).map_err(|e| format!("congee: {e:?}").into())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.0.remove(number(key), &self.0.pin());
        Ok(())
    }
}
