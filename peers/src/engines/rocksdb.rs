//! RocksDB as its tuning guide has it for small values: write-ahead log on, bloom filters,
//! pipelined writes, no compression (values are incompressible), one column family.

use crate::engine::{Durability, Engine, OpenOptions};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, Options, ReadOptions,
    WriteBatch, WriteOptions,
};
use std::path::Path;
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// A database and how it writes.
pub struct Rocksdb {
    db: DB,
    writes: WriteOptions,
}

impl Engine for Rocksdb {
    const DURABLE: bool = true;

    fn open(directory: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        let mut all = Options::default();
        all.create_if_missing(true);
        all.increase_parallelism(2);
        all.set_compression_type(DBCompressionType::None);
        all.set_write_buffer_size(64 << 20);
        all.set_max_write_buffer_number(4);
        all.set_enable_pipelined_write(true);
        let mut tables = BlockBasedOptions::default();
        let mut cache_bytes = options.cache_bytes as usize;
        if options.is_larger {
            all.set_use_direct_reads(true);
            all.set_use_direct_io_for_flush_and_compaction(true);
            // Write buffers, filters and indexes are within the memory too.
            let for_writes = cache_bytes / 4;
            cache_bytes -= for_writes;
            all.set_db_write_buffer_size(for_writes);
            all.set_write_buffer_size((for_writes / 4).min(64 << 20));
            tables.set_cache_index_and_filter_blocks(true);
            tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        }
        tables.set_block_cache(&Cache::new_lru_cache(cache_bytes));
        tables.set_bloom_filter(10.0, false);
        tables.set_format_version(6);
        all.set_block_based_table_factory(&tables);
        let mut writes = WriteOptions::default();
        writes.set_sync(options.durability == Durability::Sync);
        // Opened by name, so that batched lookups can be given a handle.
        let family = ColumnFamilyDescriptor::new("default", all.clone());
        Ok(Self { db: DB::open_cf_descriptors(&all, directory, [family])?, writes })
    }

    fn close(self) -> Result<(), Failure> {
        self.db.flush_wal(true)?;
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

impl Target for Rocksdb {
    type Handle<'a> = &'a Rocksdb;

    fn is_ordered(&self) -> bool {
        true
    }

    fn handle(&self) -> Result<&Rocksdb, Failure> {
        Ok(self)
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(self.db.flush_wal(true)?)
    }
}

impl Handle for &Rocksdb {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let found = self.db.get_pinned(key)?;
        Ok(found.map(|found| super::copy(&found, value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        Ok(self.db.put_opt(key, value, &self.writes)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        Ok(self.db.delete_opt(key, &self.writes)?)
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        let family = self.db.cf_handle("default").ok_or("no default column family")?;
        let found = self.db.batched_multi_get_cf(&family, keys.iter().copied(), false);
        for (i, value) in found.into_iter().enumerate() {
            each(i, value?.as_deref());
        }
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Failure> {
        let mut cursor = self.db.raw_iterator_opt(ReadOptions::default());
        cursor.seek(start);
        let mut seen = 0;
        while seen < limit {
            let Some((key, value)) = cursor.item() else { break };
            each(key, value);
            seen += 1;
            cursor.next();
        }
        cursor.status()?;
        Ok(seen)
    }

    fn put_batch(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
        let mut batch = WriteBatch::default();
        pairs.iter().for_each(|(key, value)| batch.put(key, value));
        Ok(self.db.write_opt(batch, &self.writes)?)
    }
}
