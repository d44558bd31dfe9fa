//! The engine: a tree from keys to record numbers, and the records.

use crate::structures::{BTree, Records, Structure as _};
use std::io;
use std::ops::Range;
use terrace_durable::sections::{EngineKind, Options, Pool};
use terrace_machine::{Access, Recorded, Tape, What};
use terrace_memory::{Backing, Domain, Region};
use terrace_workload::random::{Rng, mix};
use terrace_workload::ycsb::Distribution;
use terrace_workload::ycsb::distribution::Choices;

/// Bytes of a record: YCSB's ten fields, of 400 bytes in the paper's runs.
pub(super) const RECORD_BYTES: usize = 4000;
/// A B+-tree of order 6: five keys and six children.
type Index = BTree<5>;

/// The parts of the engine, each wholly on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// From keys to numbers of records.
    Index,
    /// The records.
    Records,
}

impl Structure {
    /// Both, in the order of their numbers on tapes.
    pub const BOTH: [Structure; 2] = [Structure::Index, Structure::Records];

    /// Its name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Structure::Index => "index",
            Structure::Records => "record store",
        }
    }
}

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A record was found by its key and read.
    Read,
    /// A record was appended, and its key added.
    Insert,
}

/// An operation, as its memories were asked.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What it was.
    pub kind: Kind,
    /// What it asked, in its order.
    pub accesses: Vec<Access>,
}

/// A workload's operations, with what a player must know of the memories.
#[derive(Clone, Debug)]
pub struct Recording {
    /// In their order.
    pub operations: Vec<Operation>,
    /// Length of each structure's memory, bytes.
    pub memory_bytes: [u64; 2],
    /// Bytes that each structure took in the end.
    pub used_bytes: [u64; 2],
    /// Where each one's log lies.
    pub logs: [Range<u64>; 2],
}

impl Recording {
    /// Of the bytes that were stored to a structure, its log's among them, the part in pieces of at least
    /// so many.
    pub fn stored_in_pieces(&self, structure: Structure, bytes: u32) -> f64 {
        let all = self.operations.iter().flat_map(|operation| &operation.accesses);
        let stored = all.filter(|access| usize::from(access.place) == structure as usize);
        let stored = stored
            .filter(|access| matches!(access.what, What::Store | What::Write | What::Stream))
            .map(|access| access.bytes);
        let (large, sum) = stored.fold((0.0, 0.0), |(large, sum), piece| {
            let piece_bytes = f64::from(piece);
            (large + if piece >= bytes { piece_bytes } else { 0.0 }, sum + piece_bytes)
        });
        if sum > 0.0 { large / sum } else { 0.0 }
    }
}

/// The engine in memory of its own, filled.
#[derive(Debug)]
pub struct TwoPoolStore {
    // Dropped before the memory that they lie in.
    pools: [Pool<Recorded>; 2],
    _regions: [Region; 2],
    tape: Tape,
    records: u64,
    value: Vec<u8>,
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

/// Keys lie in no order, as YCSB's hashed ones.
fn key(record: u64) -> u64 {
    mix(record)
}

fn memory(bytes: u64) -> io::Result<Region> {
    let region = Region::reserve(bytes, Backing::Anonymous)?.declared(Domain::Adr);
    region.commit(0, bytes)?;
    Ok(region)
}

impl TwoPoolStore {
    /// An engine with `records` records and room for `more`.
    ///
    /// # Errors
    /// The system refuses the memory; a section's.
    pub fn filled(records: u64, more: u64) -> io::Result<TwoPoolStore> {
        let all = records + more;
        // Leaves are two thirds full on the average; a record has a page.
        let regions = [memory(all * 256 + (4 << 20))?, memory(all * 4200 + (8 << 20))?];
        let tape = Tape::new();
        // The largest sections are the making of the buckets and the writing of a record.
        let options = Options::new(EngineKind::Undo)
            .log_bytes((records * 16).next_multiple_of(64) + (64 << 10));
        let pool = |which: usize| {
            let memory = Recorded::new(regions[which].native(), which as u16, &tape);
            Pool::create(memory, &options).map_err(other)
        };
        let pools = [pool(0)?, pool(1)?];
        pools[0].section(Index::create).map_err(other)?;
        pools[1].section(|tx| Records::create(tx, records)).map_err(other)?;
        let mut engine = TwoPoolStore {
            pools,
            _regions: regions,
            tape,
            records: 0,
            value: vec![7; RECORD_BYTES],
        };
        (0..records).try_for_each(|_| engine.insert())?;
        Ok(engine)
    }

    /// Does `count` operations, of which `insert_percent` of a hundred insert and the others read Zipfian
    /// choices of the records that were there before; returns what they asked of their memories.
    ///
    /// # Errors
    /// A section's; a record that is not found.
    pub fn record(mut self, insert_percent: u64, count: usize, seed: u64) -> io::Result<Recording> {
        let choices = Distribution::ZIPFIAN.choices(self.records, count, seed);
        let Choices::Records(choices) = choices else {
            return Err(other("Zipfian choices are of records"));
        };
        let mut rng = Rng::new(seed);
        let tape = self.tape.clone();
        let operations = choices.into_iter().map(|record| {
            let kind = match rng.below(100) < insert_percent {
                true => Kind::Insert,
                false => Kind::Read,
            };
            let (done, accesses) = tape.record(|| match kind {
                Kind::Insert => self.insert(),
                Kind::Read => self.read(u64::from(record)),
            });
            done.map(|()| Operation { kind, accesses })
        });
        let operations = operations.collect::<io::Result<_>>()?;
        let used =
            |pool: &Pool<Recorded>| pool.check().map(|census| census.objects_bytes).map_err(other);
        Ok(Recording {
            operations,
            memory_bytes: self
                .pools
                .each_ref()
                .map(|pool| terrace_memory::Memory::len(pool.memory())),
            used_bytes: [used(&self.pools[0])?, used(&self.pools[1])?],
            logs: self.pools.each_ref().map(Pool::log),
        })
    }

    fn insert(&mut self) -> io::Result<()> {
        let [index, records] = &self.pools;
        let number = records.section(|tx| Records::append(tx, &self.value)).map_err(other)?;
        index.section(|tx| Index::add(tx, key(number), number)).map_err(other)?;
        self.records += 1;
        Ok(())
    }

    fn read(&mut self, record: u64) -> io::Result<()> {
        let [index, records] = &self.pools;
        let number = index.section(|tx| Index::get(tx, key(record))).map_err(other)?;
        let number = number.ok_or_else(|| other(format!("record {record} is not in the index")))?;
        let value = &mut self.value;
        match records.section(|tx| Records::read(tx, number, value)).map_err(other)? {
            true => Ok(()),
            false => Err(other(format!("record {number} is in the index and not in the store"))),
        }
    }
}
