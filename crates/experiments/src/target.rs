//! A map as the YCSB harness sees it.

use std::ops::Bound;
use terrace_memory::{Memory, Native};
use terrace_store::{Durability, Kind, Map, Range, Session};
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// An embedded map under the workloads of [`terrace_workload::ycsb`].
pub struct MapTarget<M: Memory = Native> {
    map: Map<M>,
    collects: bool,
}

impl<M: Memory> MapTarget<M> {
    /// A map with threads of its own, or one that may grow.
    pub fn new(map: Map<M>) -> MapTarget<M> {
        MapTarget { map, collects: false }
    }

    /// A map without background threads: each writer calls the collector before its next operation.
    pub fn that_collects(map: Map<M>) -> MapTarget<M> {
        MapTarget { map, collects: true }
    }

    /// The map.
    pub fn map(&self) -> &Map<M> {
        &self.map
    }

    /// Under `sync` a read waits until what it saw is durable, as an honest server's must.
    pub fn reads_wait(&self) -> bool {
        self.map.durability() == Durability::Sync
    }
}

/// A worker's session on a [`MapTarget`].
pub struct MapHandle<M: Memory = Native> {
    session: Session<M>,
    reads_wait: bool,
    collects: bool,
}

impl<M: Memory> Target for MapTarget<M> {
    type Handle<'a> = MapHandle<M>;

    fn is_ordered(&self) -> bool {
        self.map.kind() == Kind::Ordered
    }

    fn handle(&self) -> Result<MapHandle<M>, Failure> {
        let (reads_wait, collects) = (self.reads_wait(), self.collects);
        Ok(MapHandle { session: self.map.session(), reads_wait, collects })
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(self.map.sync()?)
    }
}

impl<M: Memory> MapHandle<M> {
    fn told(&mut self) -> Result<(), Failure> {
        if self.reads_wait {
            self.session.commit()?;
        }
        Ok(())
    }

    fn wrote(&mut self) -> Result<(), Failure> {
        self.session.commit()?;
        if self.collects {
            self.session.map().collect()?;
        }
        Ok(())
    }
}

impl<M: Memory> Handle for MapHandle<M> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        value.clear();
        let found = self.session.get(key, |v| value.extend_from_slice(v.bytes))?;
        self.told()?;
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.session.put(key, value, None)?;
        self.wrote()
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.session.delete(key)?;
        self.wrote()
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        self.session.multi_get(keys, |i, v| each(i, v.map(|v| v.bytes)))?;
        self.told()
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let mut seen = 0;
        self.session.range(
            Range { from: Bound::Included(start), ..Range::ALL },
            limit,
            |key, value| {
                seen += 1;
                each(key, value.bytes);
            },
        )?;
        self.told()?;
        Ok(seen)
    }

    fn put_batch(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
        for (key, value) in pairs {
            self.session.put(key, value, None)?;
        }
        self.wrote()
    }
}
