//! Maps on emulated persistent memory: DRAM declared to be in the ADR domain.
//!
//! Every write-back and fence of the real path is executed. All of the memory is brought in before
//! anything is measured, in huge pages where the system grants them, so that no design pays for page
//! faults that another does not. Such a map has no threads: the collector runs when it is called, on
//! the thread that calls it, and its time is counted there.

use super::error::{Error, Result};
use crate::structures::Random;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_machine::Without;
use terrace_memory::{Backing, Domain, Memory, Native, Region};
use terrace_store::{Durability, Map, MapOptions, Persist, ValueDesign};

/// What notes say of it.
pub(super) const LABEL: &str = "emulated persistent memory: DRAM declared ADR, brought in before \
                                the measurement";
/// The two designs, and their names in figures.
pub(super) const DESIGNS: [(ValueDesign, &str); 2] =
    [(ValueDesign::Slab, "slabs"), (ValueDesign::Log, "logs")];

/// Of an index's memory: two areas, each for all of its entries at the worst.
const INDEX_BYTES_PER_KEY: u64 = 48;
/// Bytes of values for each byte of allocation metadata.
const VALUES_PER_METADATA: u64 = 256;
/// Bytes of a log and of a superblock.
const SEGMENT_BYTES: u64 = 4 << 20;
/// Key, header, and what a slot may leave unused.
const BESIDE_VALUE_BYTES: u64 = 48;
/// Operations between two looks whether the collector's queue is full.
const COLLECT_EVERY: u64 = 64;

/// So many bytes, rounded up to segments, all of them brought in.
pub(super) fn memory(bytes: u64) -> Result<Region> {
    let bytes = bytes.next_multiple_of(SEGMENT_BYTES);
    let region = Region::reserve(bytes, Backing::HugePages)
        .map_err(Error::system("reserve memory for the emulated medium"))?
        .declared(Domain::Adr);
    region
        .populate(0, bytes)
        .map_err(Error::system("bring in memory for the emulated medium (fewer keys need less)"))?;
    Ok(region)
}

/// Memory for the index of so many keys, and the allocation metadata of so many bytes of values.
pub(super) fn index_memory(keys: u64, values_bytes: u64) -> Result<Region> {
    memory(keys * INDEX_BYTES_PER_KEY + values_bytes / VALUES_PER_METADATA + (64 << 10))
}

/// Whether the write-backs of [`WithoutWriteBacks`] are left out.
static LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// An emulated medium whose write-backs can be left out.
pub(super) type WithoutWriteBacks = Emulated<Without<Native>>;

/// A map, and the memory it lies in.
pub(super) struct Emulated<M: Memory = Native> {
    // Dropped in this order.
    pub map: Map<M>,
    _values: Region,
    _index: Option<Region>,
    value_bytes: usize,
    keys: u64,
    random: Random,
}

impl Emulated {
    /// An empty map for values of `value_bytes`, in memory that holds `items` of them; and with its
    /// index in such memory if the options say that it is kept.
    pub fn new(items: u64, value_bytes: usize, options: MapOptions) -> Result<Emulated> {
        Emulated::through(|memory| memory, items, value_bytes, options)
    }

    /// Options of a map of this design whose every write is durable when it is acknowledged.
    pub fn options(values: ValueDesign) -> MapOptions {
        MapOptions {
            durability: Durability::Sync,
            domain: Domain::Adr,
            values,
            memory_budget_bytes: 1 << 40,
            writers: 1,
            ..MapOptions::default()
        }
    }
}

impl WithoutWriteBacks {
    /// As [`Emulated::new`].
    pub fn able(items: u64, value_bytes: usize, options: MapOptions) -> Result<Self> {
        let memory = |memory| Without::nothing(memory).write_backs(|_, _| LEFT_OUT.load(Relaxed));
        Emulated::through(memory, items, value_bytes, options)
    }

    /// Updates with values of 8 bytes and no write-backs: all that is not the writing of a value.
    pub fn update_but_hardly_write(&mut self, count: u64) -> Result<()> {
        LEFT_OUT.store(true, Relaxed);
        let updated = self.update_to(count, 8);
        LEFT_OUT.store(false, Relaxed);
        updated
    }
}

impl<M: Memory> Emulated<M> {
    /// A map on what `memory` makes of the emulated one's.
    fn through(
        memory_of: impl FnOnce(Native) -> M,
        items: u64,
        value_bytes: usize,
        options: MapOptions,
    ) -> Result<Emulated<M>> {
        let bytes = items * (value_bytes as u64 + BESIDE_VALUE_BYTES) * 9 / 8;
        // The head, and what open logs, size classes and the collector keep for themselves.
        let bytes = bytes.next_multiple_of(SEGMENT_BYTES) + 24 * SEGMENT_BYTES;
        let values = memory(bytes)?;
        let index = match options.persist {
            Persist::Index | Persist::Full => Some(index_memory(items, bytes)?),
            Persist::Auto | Persist::Values => None,
        };
        let of_values = memory_of(values.native());
        let map = match &index {
            Some(index) => Map::over_with_index(of_values, index.native(), true, 1, options)?,
            None => Map::over(of_values, true, 1, options)?,
        };
        Ok(Emulated {
            map,
            _values: values,
            _index: index,
            value_bytes,
            keys: 0,
            random: Random(1),
        })
    }

    /// Writes `keys` keys.
    pub fn fill(&mut self, keys: u64) -> Result<()> {
        self.keys = keys;
        let value = vec![1; self.value_bytes];
        (0..keys).try_for_each(|key| Ok(self.map.put(&key.to_be_bytes(), &value)?))
    }

    fn some_key(&mut self) -> [u8; 8] {
        self.random.below(self.keys).to_be_bytes()
    }

    /// Updates `count` keys, each chosen alike.
    pub fn update(&mut self, count: u64) -> Result<()> {
        self.update_to(count, self.value_bytes)
    }

    fn update_to(&mut self, count: u64, value_bytes: usize) -> Result<()> {
        let value = vec![2; value_bytes];
        (0..count).try_for_each(|_| {
            let key = self.some_key();
            Ok(self.map.put(&key, &value)?)
        })
    }

    /// [`Emulated::update`], waiting for the collector whenever its queue is full.
    pub fn update_and_collect(&mut self, count: u64) -> Result<()> {
        for _ in 0..count / COLLECT_EVERY {
            self.update(COLLECT_EVERY)?;
            self.map.collect()?;
        }
        self.update(count % COLLECT_EVERY)
    }

    /// Deletes every key once, in no order, waiting for the collector whenever its queue is full.
    pub fn delete_all_and_collect(&mut self) -> Result<()> {
        for number in 0..self.keys {
            // A large prime: every key comes once.
            let key = number.wrapping_mul(2_654_435_761) % self.keys;
            self.map.delete(&key.to_be_bytes())?;
            if number % COLLECT_EVERY == 0 {
                self.map.collect()?;
            }
        }
        Ok(())
    }

    /// Finds `count` keys, each chosen alike, for an update that then changes nothing.
    pub fn find_for_update(&mut self, count: u64) -> Result<()> {
        let mut session = self.map.session();
        (0..count).try_for_each(|_| {
            let key = self.some_key();
            Ok(session.update(&key, |_| terrace_store::Change::Keep)?)
        })
    }
}
