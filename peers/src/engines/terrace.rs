//! Terrace: one map, a session for each thread, committed after every operation (a batched read
//! is one operation), as its contract asks of those who tell others what they saw.

use crate::engine::{Durability, Engine, OpenOptions};
use std::ops::Bound;
use std::path::Path;
use terrace::{Database, Kind, Map, MapOptions, Range, Session};
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// A database of one map: an ordered one, or by hash.
pub struct Terrace<const ORDERED: bool> {
    database: Database,
    map: Map,
}

impl<const ORDERED: bool> Engine for Terrace<ORDERED> {
    const DURABLE: bool = true;

    fn open(directory: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        let options = MapOptions {
            durability: match options.durability {
                Durability::None => terrace::Durability::None,
                Durability::Sync => terrace::Durability::Sync,
            },
            kind: if ORDERED { Kind::Ordered } else { Kind::Hash },
            memory_budget_bytes: options.cache_bytes,
            ..MapOptions::default()
        };
        let database = Database::open(directory, options)?;
        let map = database.map("peers")?;
        Ok(Self { database, map })
    }

    fn close(self) -> Result<(), Failure> {
        drop(self.map);
        Ok(self.database.close()?)
    }
}

impl<const ORDERED: bool> Target for Terrace<ORDERED> {
    type Handle<'a> = TerraceHandle;

    fn is_ordered(&self) -> bool {
        ORDERED
    }

    fn handle(&self) -> Result<TerraceHandle, Failure> {
        Ok(TerraceHandle(self.map.session()))
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(self.map.sync()?)
    }
}

/// One thread's session.
pub struct TerraceHandle(Session);

impl Handle for TerraceHandle {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let found = self.0.get(key, |found| super::copy(found.bytes, value))?;
        self.0.commit()?;
        Ok(found.is_some())
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.0.put(key, value, None)?;
        Ok(self.0.commit()?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.0.delete(key)?;
        Ok(self.0.commit()?)
    }

    #[inline]
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        self.0.multi_get(keys, |i, value| each(i, value.map(|value| value.bytes)))?;
        Ok(self.0.commit()?)
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let mut seen = 0;
        self.0.range(
            Range { from: Bound::Included(start), ..Range::ALL },
            limit,
            |key, value| {
                seen += 1;
                each(key, value.bytes);
            },
        )?;
        self.0.commit()?;
        Ok(seen)
    }

    fn put_batch(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
        pairs.iter().try_for_each(|(key, value)| self.0.put(key, value, None))?;
        Ok(self.0.commit()?)
    }
}
