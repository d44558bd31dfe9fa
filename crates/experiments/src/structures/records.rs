//! A store of records over sections, as document databases have one: numbered records of many bytes in
//! lists, a list for each bucket of their numbers.
//!
//! ```text
//! root 6:  | buckets | records | offset of the first link |
//! links:   one word for each bucket: the newest record of its list, or 0
//! record:  | number | next | length | bytes .. |
//! ```

use terrace_durable::plain;
use terrace_durable::sections::{Offset, Plain, Result, Root, Tx};
use terrace_memory::Memory;

plain! {
    struct Store {
        buckets: u64,
        records: u64,
        first: Offset<Offset<Record>>,
    }
}

plain! {
    struct Record {
        number: u64,
        next: Offset<Record>,
        length: u64,
    }
}

const ROOT: Root<Store> = Root::new(6);

/// Numbered records, under root 6 of its pool. All methods but [`Records::create`] need it to have been
/// made.
///
/// # Errors
/// Every method passes on those of the section's reads, writes and allocations; without a store that is
/// [`Error::OutOfHeap`](terrace_durable::sections::Error::OutOfHeap).
#[derive(Debug)]
pub struct Records;

fn bucket(store: &Store, number: u64) -> Offset<Offset<Record>> {
    store.first.field(8 * (number % store.buckets) as usize)
}

impl Records {
    /// Makes an empty store of so many buckets, eight bytes each, all in the section's log.
    pub fn create<M: Memory>(tx: &mut Tx<'_, M>, buckets: u64) -> Result<()> {
        let first = Offset::new(tx.allocate(8 * buckets)?);
        tx.write(first.at(), &vec![0; 8 * buckets as usize])?;
        let store = tx.create(&Store { buckets, records: 0, first })?;
        tx.set_root(ROOT, store)
    }

    /// Appends a record; returns its number.
    pub fn append<M: Memory>(tx: &mut Tx<'_, M>, bytes: &[u8]) -> Result<u64> {
        let at = tx.root(ROOT)?;
        let store = tx.get(at)?;
        let number = store.records;
        let link = bucket(&store, number);
        let record = Record { number, next: tx.get(link)?, length: bytes.len() as u64 };
        let mut whole = vec![0; Record::BYTES + bytes.len()];
        record.put(&mut whole);
        whole[Record::BYTES..].copy_from_slice(bytes);
        let record = Offset::new(tx.allocate(whole.len() as u64)?);
        tx.write(record.at(), &whole)?;
        tx.set(link, record)?;
        tx.set(Store::records(at), number + 1)?;
        Ok(number)
    }

    /// Reads the record of a number into `bytes`; whether there is one.
    pub fn read<M: Memory>(tx: &Tx<'_, M>, number: u64, bytes: &mut Vec<u8>) -> Result<bool> {
        let store = tx.get(tx.root(ROOT)?)?;
        let mut at = tx.get(bucket(&store, number))?;
        while !at.is_null() {
            let record = tx.get(at)?;
            if record.number == number {
                bytes.resize(record.length as usize, 0);
                tx.read(at.at() + Record::BYTES as u64, bytes)?;
                return Ok(true);
            }
            at = record.next;
        }
        Ok(false)
    }
}
