//! sled 0.34, the last stable release. Durable writes insert, then flush; without durability its
//! own background flush every 500 ms stays on, as by default.

use crate::engine::{Durability, Engine, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// How long an earlier handle in this process may hold the files after it was dropped.
const LETTING_GO: Duration = Duration::from_secs(2);

/// A database of one tree.
pub struct Sled {
    db: sled::Db,
    sync: bool,
}

impl Sled {
    fn written(&self) -> Result<(), Failure> {
        if self.sync {
            self.db.flush()?;
        }
        Ok(())
    }
}

impl Engine for Sled {
    const DURABLE: bool = true;

    fn open(directory: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        let config = sled::Config::new()
            .path(directory.join("sled"))
            .cache_capacity(options.cache_bytes)
            .mode(sled::Mode::HighThroughput);
        let start = Instant::now();
        let db = loop {
            match config.open() {
                Ok(db) => break db,
                // Its threads let go of the files a moment after the last handle is dropped.
                Err(_) if start.elapsed() < LETTING_GO => std::thread::sleep(LETTING_GO / 100),
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Self { db, sync: options.durability == Durability::Sync })
    }

    fn close(self) -> Result<(), Failure> {
        self.flush()
    }
}

impl Target for Sled {
    type Handle<'a> = &'a Sled;

    fn is_ordered(&self) -> bool {
        true
    }

    fn handle(&self) -> Result<&Sled, Failure> {
        Ok(self)
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(self.db.flush().map(|_| ())?)
    }
}

impl Handle for &Sled {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let found = self.db.get(key)?;
        Ok(found.map(|found| super::copy(&found, value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.db.insert(key, value)?;
        self.written()
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.db.remove(key)?;
        self.written()
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let mut seen = 0;
        for pair in self.db.range(start..).take(limit) {
            let (key, value) = pair?;
            each(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn put_batch(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
        let mut batch = sled::Batch::default();
        for (key, value) in pairs {
            batch.insert(key.as_slice(), value.as_slice());
        }
        self.db.apply_batch(batch)?;
        self.written()
    }
}
