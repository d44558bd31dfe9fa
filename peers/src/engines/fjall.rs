//! fjall. Durable writes insert, then persist: its journal's lock puts the syncs one after another.

use crate::engine::{Durability, Engine, OpenOptions};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// A database of one keyspace.
pub struct Fjall {
    db: Database,
    keyspace: Keyspace,
    sync: bool,
}

impl Fjall {
    fn written(&self) -> Result<(), Failure> {
        if self.sync {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Engine for Fjall {
    const DURABLE: bool = true;

    fn open(directory: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        let sync = options.durability == Durability::Sync;
        let db = Database::builder(directory)
            .cache_size(options.cache_bytes)
            .manual_journal_persist(sync)
            .journal_compression(CompressionType::None)
            .open()?;
        let keyspace = db.keyspace("peers", || {
            KeyspaceCreateOptions::default()
                .manual_journal_persist(sync)
                .data_block_compression_policy(CompressionPolicy::disabled())
        })?;
        Ok(Self { db, keyspace, sync })
    }

    fn close(self) -> Result<(), Failure> {
        self.flush()
    }
}

impl Target for Fjall {
    type Handle<'a> = &'a Fjall;

    fn is_ordered(&self) -> bool {
        true
    }

    fn handle(&self) -> Result<&Fjall, Failure> {
        Ok(self)
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

impl Handle for &Fjall {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let found = self.keyspace.get(key)?;
        Ok(found.map(|found| super::copy(&found, value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.keyspace.insert(key, value)?;
        self.written()
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.keyspace.remove(key)?;
        self.written()
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let mut seen = 0;
        for guard in self.keyspace.range(start..).take(limit) {
            let (key, value) = guard.into_inner()?;
            each(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn put_batch(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
        let mode = if self.sync { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut batch = self.db.batch().durability(Some(mode));
        for (key, value) in pairs {
            batch.insert(&self.keyspace, key.as_slice(), value.as_slice());
        }
        Ok(batch.commit()?)
    }
}
