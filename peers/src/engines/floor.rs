//! The memory's floor as an engine: a table that knows beforehand where every record is. It shows
//! what a lookup costs through the harness when the store's own part is as small as it can be.
//!
//! For workloads that only read, C and G; others would find it locked.

use crate::engine::{Engine, OpenOptions};
use crate::floor::{RECORD_BYTES, Table};
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// Length of all values, then the table. Values longer than a record are refused.
pub struct Floor(RwLock<(usize, Table)>);

impl Engine for Floor {
    const DURABLE: bool = false;

    fn open(_directory: &Path, options: &OpenOptions) -> Result<Self, Failure> {
        Ok(Self(RwLock::new((0, Table::new(options.records, true)))))
    }

    fn close(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Target for Floor {
    type Handle<'a> = FloorHandle<'a>;

    fn is_ordered(&self) -> bool {
        false
    }

    fn handle(&self) -> Result<FloorHandle<'_>, Failure> {
        Ok(FloorHandle { floor: self, reading: None, places: Vec::new() })
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// One thread's way in. From its first lookup to its end nobody writes, so lookups take no lock.
pub struct FloorHandle<'a> {
    floor: &'a Floor,
    reading: Option<RwLockReadGuard<'a, (usize, Table)>>,
    places: Vec<usize>,
}

/// The number of the record a key is of: undoes [`terrace_workload::random::mix`].
#[inline]
fn record_of(key: &[u8]) -> usize {
    let Some(head) = key.first_chunk::<8>() else { return usize::MAX };
    let x = u64::from_be_bytes(*head);
    let x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    (x ^ (x >> 30) ^ (x >> 60)).wrapping_sub(0x9e37_79b9_7f4a_7c15) as usize
}

impl FloorHandle<'_> {
    #[inline]
    fn read(&mut self) -> (&(usize, Table), &mut Vec<usize>) {
        let floor = self.floor;
        let reading = self
            .reading
            .get_or_insert_with(|| floor.0.read().unwrap_or_else(PoisonError::into_inner));
        (reading, &mut self.places)
    }
}

impl Handle for FloorHandle<'_> {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let ((value_bytes, table), _) = self.read();
        let record = table.record(table.place(record_of(key)));
        super::copy(&record[..*value_bytes], value);
        Ok(true)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.reading = None;
        let mut floor = self.floor.0.write().unwrap_or_else(PoisonError::into_inner);
        let (value_bytes, table) = &mut *floor;
        if value.len() > RECORD_BYTES {
            return Err(format!("the floor has records of {RECORD_BYTES} bytes").into());
        }
        *value_bytes = value.len();
        let place = table.place(record_of(key));
        table.record_mut(place)[..value.len()].copy_from_slice(value);
        Ok(())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<(), Failure> {
        Err("the floor is never deleted from".into())
    }

    #[inline]
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        let ((value_bytes, table), places) = self.read();
        places.clear();
        for key in keys {
            let record = record_of(key);
            table.prefetch_entry(record);
            places.push(record);
        }
        for place in &mut *places {
            *place = table.place(*place);
            table.prefetch_record(*place);
        }
        for (i, place) in places.iter().enumerate() {
            each(i, Some(&table.record(*place)[..*value_bytes]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_workload::ycsb::InsertOrder;
    use terrace_workload::ycsb::keys::write_key;

    #[test]
    fn keys_tell_their_records() {
        for record in (0..100_000).chain([u64::MAX]) {
            let mut key = [0; 16];
            write_key(InsertOrder::Hashed, record, &mut key);
            assert_eq!(record_of(&key) as u64, record);
        }
    }
}
