//! redb: a transaction for each operation. Without durability a commit lives in the process only,
//! until the next durable one; there is no level between, and no group commit.

use crate::engine::{Durability, Engine, OpenOptions};
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};
use std::path::Path;
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

type Pairs<'a> = redb::Table<'a, &'static [u8], &'static [u8]>;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("peers");

/// A database of one table.
pub struct Redb {
    db: Database,
    durability: Durability,
}

impl Redb {
    fn write<R>(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut Pairs<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(match durability {
            Durability::None => redb::Durability::None,
            Durability::Sync => redb::Durability::Immediate,
        })?;
        let result = {
            let mut table = transaction.open_table(TABLE)?;
            change(&mut table)?
        };
        transaction.commit()?;
        Ok(result)
    }

    fn table(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>, Failure> {
        Ok(self.db.begin_read()?.open_table(TABLE)?)
    }
}

impl Engine for Redb {
    const DURABLE: bool = true;

    fn open(directory: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        let db = Database::builder()
            .set_cache_size(options.cache_bytes as usize)
            .create(directory.join("peers.redb"))?;
        let redb = Self { db, durability: options.durability };
        redb.write(Durability::Sync, |_| Ok(()))?;
        Ok(redb)
    }

    fn close(self) -> Result<(), Failure> {
        self.flush()
    }
}

impl Target for Redb {
    type Handle<'a> = &'a Redb;

    fn is_ordered(&self) -> bool {
        true
    }

    fn handle(&self) -> Result<&Redb, Failure> {
        Ok(self)
    }

    fn flush(&self) -> Result<(), Failure> {
        self.write(Durability::Sync, |_| Ok(()))
    }
}

impl Handle for &Redb {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let found = self.table()?.get(key)?;
        Ok(found.map(|found| super::copy(found.value(), value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.write(self.durability, |table| Ok(table.insert(key, value).map(|_| ())?))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.write(self.durability, |table| Ok(table.remove(key).map(|_| ())?))
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        let table = self.table()?;
        for (i, key) in keys.iter().enumerate() {
            match table.get(*key)? {
                Some(value) => each(i, Some(value.value())),
                None => each(i, None),
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let mut seen = 0;
        for pair in self.table()?.range(start..)?.take(limit) {
            let (key, value) = pair?;
            each(key.value(), value.value());
            seen += 1;
        }
        Ok(seen)
    }

    fn put_batch(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
        self.write(self.durability, |table| {
            for (key, value) in pairs {
                table.insert(key.as_slice(), value.as_slice())?;
            }
            Ok(())
        })
    }
}
