//! LMDB through heed: a transaction for each operation. It has one writer at a time and no group
//! commit; its map is read-only, writes go through `pwrite`.

use crate::engine::{Durability, Engine, OpenOptions};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use std::ops::Bound;
use std::path::Path;
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// Address space set aside for the file; it takes none of it up.
const MAP_BYTES: usize = 48 << 30;

/// An environment of one database.
pub struct Lmdb {
    env: Env,
    db: Database<'static, Bytes, Bytes>,
}

impl Engine for Lmdb {
    const DURABLE: bool = true;

    fn open(directory: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        let mut all = EnvOpenOptions::new();
        all.map_size(MAP_BYTES);
        all.max_readers(256);
        let mut flags = EnvFlags::empty();
        if options.durability == Durability::None {
            flags |= EnvFlags::NO_SYNC;
        }
        // SAFETY: the flags do not weaken memory safety, and the file is in a directory that
        // nobody else uses while it is mapped.
        let env = unsafe {
            all.flags(flags);
            all.open(directory)?
        };
        let transaction = env.write_txn()?;
        let db = env
            .create_databases_and_commit(transaction, |env, transaction| {
                env.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
            })?
            .unwrap_commit();
        Ok(Self { env, db })
    }

    fn close(self) -> Result<(), Failure> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl Target for Lmdb {
    type Handle<'a> = &'a Lmdb;

    fn is_ordered(&self) -> bool {
        true
    }

    fn handle(&self) -> Result<&Lmdb, Failure> {
        Ok(self)
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(self.env.force_sync()?)
    }
}

impl Handle for &Lmdb {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let transaction = self.env.read_txn()?;
        let found = self.db.get(&transaction, key)?;
        Ok(found.map(|found| super::copy(found, value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let mut transaction = self.env.write_txn()?;
        self.db.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        let mut transaction = self.env.write_txn()?;
        self.db.delete(&mut transaction, key)?;
        Ok(transaction.commit()?)
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        let transaction = self.env.read_txn()?;
        for (i, key) in keys.iter().enumerate() {
            each(i, self.db.get(&transaction, key)?);
        }
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let transaction = self.env.read_txn()?;
        let range = (Bound::Included(start), Bound::Unbounded);
        let mut seen = 0;
        for pair in self.db.range(&transaction, &range)?.take(limit) {
            let (key, value) = pair?;
            each(key, value);
            seen += 1;
        }
        Ok(seen)
    }

    fn put_batch(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in pairs {
            self.db.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }
}
