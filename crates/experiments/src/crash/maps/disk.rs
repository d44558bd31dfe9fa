//! A disk that loses power: sectors of 512 bytes, each of which persists whole, in any order, until a
//! sync has returned.
//!
//! Of the explorer's memory every sector has one line with one word in it: the number of what the
//! sector holds, since only words are stored whole. What holds under ADR for lines that nobody writes back
//! then holds for sectors: any subset of those written since the last sync is there, each as one of
//! its writes left it. The image that the map works on is ordinary memory, and gone with the crash.

use super::super::Settings;
use super::{Place, SEGMENT_BYTES};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_durable::logs::Fault;
use terrace_durable::medium::Disk;
use terrace_durable::{Medium, Result};
use terrace_machine::Crashable;
use terrace_memory::{Memory, Native};
use terrace_store::{Durability, Map, MapOptions};

const SECTOR_BYTES: u64 = 512;
const LINE_BYTES: u64 = 64;
/// Head, and as many logs as the collector's scenario has.
const DISK_BYTES: u64 = 9 * SEGMENT_BYTES;
/// The explorer's memory for that.
pub(super) const MEMORY_BYTES: u64 = DISK_BYTES / SECTOR_BYTES * LINE_BYTES;

/// Everything that any sector ever held, numbered from 1 in the order of its first writing. Number 0
/// is zeros.
#[derive(Debug, Default)]
struct Sectors {
    contents: Vec<Arc<[u8]>>,
    numbers: HashMap<Arc<[u8]>, u64>,
}

impl Sectors {
    fn number(&mut self, content: &[u8]) -> u64 {
        if let Some(number) = self.numbers.get(content) {
            return *number;
        }
        let content: Arc<[u8]> = content.into();
        self.contents.push(Arc::clone(&content));
        let number = self.contents.len() as u64;
        self.numbers.insert(content, number);
        number
    }
}

/// One opening of a disk.
#[derive(Debug)]
struct Sectored {
    memory: Crashable,
    sectors: Arc<Mutex<Sectors>>,
    /// Whether a sync, or a durable write, does anything.
    syncs: bool,
}

impl Disk for Sectored {
    fn capacity_bytes(&self) -> u64 {
        DISK_BYTES
    }

    fn write(&self, at: u64, blocks: &[u8], durable: bool) -> Result<()> {
        let lines = (at / SECTOR_BYTES..).map(|sector| sector * LINE_BYTES);
        for (line, content) in lines.clone().zip(blocks.chunks(SECTOR_BYTES as usize)) {
            let mut sectors = self.sectors.lock().unwrap_or_else(PoisonError::into_inner);
            let number = sectors.number(content);
            drop(sectors);
            self.memory.store(line, number);
        }
        if durable && self.syncs {
            let bytes = blocks.len() as u64 / SECTOR_BYTES * LINE_BYTES;
            self.memory.persist(at / SECTOR_BYTES * LINE_BYTES, bytes);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        if self.syncs {
            self.memory.sync();
        }
        Ok(())
    }

    fn read(&self, at: u64, blocks: &mut [u8]) -> Result<()> {
        let (mut sector, end) = (0, blocks.len() as u64 / SECTOR_BYTES);
        while sector < end {
            let line = (at / SECTOR_BYTES + sector) * LINE_BYTES;
            let zeros = Memory::zeros(&self.memory, line, (end - sector) * LINE_BYTES) / LINE_BYTES;
            if zeros > 0 {
                sector += zeros;
                continue;
            }
            let number = self.memory.load(line) as usize;
            if let Some(before) = number.checked_sub(1) {
                let sectors = self.sectors.lock().unwrap_or_else(PoisonError::into_inner);
                let from = (sector * SECTOR_BYTES) as usize;
                blocks[from..from + SECTOR_BYTES as usize]
                    .copy_from_slice(&sectors.contents[before]);
            }
            sector += 1;
        }
        Ok(())
    }
}

/// A map with values in logs, mirrored to such a disk.
#[derive(Clone)]
pub(super) struct OnDisk {
    durability: Durability,
    /// Whether a sync, or a durable write, does anything.
    syncs: bool,
    /// A mistake that the logs make.
    pub fault: Option<Fault>,
    sectors: Arc<Mutex<Sectors>>,
}

impl OnDisk {
    pub fn new(durability: Durability, syncs: bool, fault: Option<Fault>) -> OnDisk {
        OnDisk { durability, syncs, fault, sectors: Arc::default() }
    }

    fn map(&self, memory: &Crashable, is_new: bool, lifetime: u32) -> Map<Native> {
        let sectors = Arc::clone(&self.sectors);
        let disk = Sectored { memory: memory.clone(), sectors, syncs: self.syncs || is_new };
        let medium = Medium::mirrored(Box::new(disk), is_new, lifetime).expect("address space");
        let options = MapOptions {
            durability: self.durability,
            memory_budget_bytes: 1 << 30,
            writers: 1,
            ..MapOptions::default()
        };
        Map::on(medium, options).expect("a crash is no damage")
    }
}

impl Place for OnDisk {
    type Memory = Native;
    type Index = Native;

    fn make(&self, memory: &Crashable) {
        drop(self.map(memory, true, 0));
    }

    fn open(&self, memory: &Crashable, lifetime: usize) -> Map<Native> {
        super::faulty(self.map(memory, false, lifetime as u32), self.fault)
    }
}

/// A scripted map on a disk, under durability `sync`.
pub(in super::super) fn explorer(
    syncs: bool,
    settings: &Settings,
) -> terrace_machine::Explorer<usize> {
    let place = OnDisk::new(Durability::Sync, syncs, None);
    // Sectors persist as lines do under ADR, whatever domain was asked for.
    let settings = Settings { domain: terrace_memory::Domain::Adr, ..*settings };
    super::script::explorer_on(place, super::Design::Logs, MEMORY_BYTES, &settings)
}
