//! A disk that loses power: units, each of which persists whole, in any order, until a sync has returned.
//! Units are the sectors of a device, 512 bytes, or the pages of a page cache, 4 KiB.
//!
//! Of the explorer's memory every unit has one line with one word in it: the number of what the
//! unit holds, since only words are stored whole. What holds under ADR for lines that nobody writes back
//! then holds for units: any subset of those written since the last sync is there, each as one of
//! its writes left it. The image that the map works on is ordinary memory, and gone with the crash. Threads take turns
//! at it and at the index ([`Volatile`]).

use super::super::Settings;
use super::redo::Folders;
use super::{MapSetup, SEGMENT_BYTES};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_durable::logs::Fault;
use terrace_durable::medium::Disk;
use terrace_durable::{Medium, Result};
use terrace_machine::{Crashable, Explorer, Volatile};
use terrace_memory::instructions::LINE_BYTES;
use terrace_memory::{Backing, Domain, Memory, Native, Region, lab};
use terrace_store::{Durability, Map, MapOptions, RecoveryProcedure, WhenFull};

const SECTOR_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 4096;
/// Head, and as many logs as the collector's scenario has.
const DISK_BYTES: u64 = 9 * SEGMENT_BYTES;
/// The explorer's memory for that.
pub(in super::super) const MEMORY_BYTES: u64 = DISK_BYTES / SECTOR_BYTES * LINE_BYTES;

/// What the index of a few keys takes.
const INDEX_BYTES: u64 = 256 << 10;

/// A map whose image and index are in DRAM at which threads take turns.
pub(super) type OnImage = Map<Volatile, Volatile>;

/// Everything that any unit ever held, numbered from 1 in the order of its first writing. Number 0
/// is zeros.
#[derive(Debug, Default)]
struct Contained {
    contents: Vec<Arc<[u8]>>,
    numbers: HashMap<Arc<[u8]>, u64>,
}

impl Contained {
    fn number(&mut self, content: &[u8]) -> u64 {
        if content.iter().all(|byte| *byte == 0) {
            return 0;
        }
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
struct InUnits {
    memory: Crashable,
    unit_bytes: u64,
    contained: Arc<Mutex<Contained>>,
    /// Whether a sync, or a durable write, does anything.
    syncs: bool,
    /// Where its file would be, if a redo log may lie beside it.
    path: Option<PathBuf>,
    /// What it has of the memory, where other files lie in it too: a sync makes its own units durable.
    part: Option<Part>,
    /// Units of a part that were written since its last sync.
    unsynced: Mutex<BTreeSet<u64>>,
}

impl InUnits {
    fn line_of(&self, unit: u64) -> u64 {
        unit * LINE_BYTES + self.part.map_or(0, |part| part.from / SECTOR_BYTES * LINE_BYTES)
    }

    fn unsynced(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a disk that several files share, for one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub from: u64,
    pub bytes: u64,
}

impl Disk for InUnits {
    fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn capacity_bytes(&self) -> u64 {
        self.part.map_or(self.memory.len() / LINE_BYTES * SECTOR_BYTES, |part| part.bytes)
    }

    fn write(&self, at: u64, blocks: &[u8], durable: bool) -> Result<()> {
        let first = at / self.unit_bytes;
        for (unit, content) in (first..).zip(blocks.chunks(self.unit_bytes as usize)) {
            let mut contained = self.contained.lock().unwrap_or_else(PoisonError::into_inner);
            let number = contained.number(content);
            drop(contained);
            self.memory.store(self.line_of(unit), number);
            if self.part.is_some() {
                self.unsynced().insert(unit);
            }
        }
        if durable && self.syncs {
            let units = blocks.len() as u64 / self.unit_bytes;
            self.memory.persist(self.line_of(first), units * LINE_BYTES);
            self.unsynced().retain(|unit| !(first..first + units).contains(unit));
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        match self.part {
            _ if !self.syncs => {}
            None => self.memory.sync(),
            Some(_) => {
                let units = std::mem::take(&mut *self.unsynced());
                units.iter().for_each(|unit| self.memory.persist(self.line_of(*unit), LINE_BYTES));
            }
        }
        Ok(())
    }

    fn read(&self, at: u64, blocks: &mut [u8]) -> Result<()> {
        let (mut unit, end) = (0, blocks.len() as u64 / self.unit_bytes);
        while unit < end {
            let line = self.line_of(at / self.unit_bytes + unit);
            let zeros = lab::zeros(&self.memory, line, (end - unit) * LINE_BYTES) / LINE_BYTES;
            if zeros > 0 {
                unit += zeros;
                continue;
            }
            let number = self.memory.load(line) as usize;
            if let Some(before) = number.checked_sub(1) {
                let contained = self.contained.lock().unwrap_or_else(PoisonError::into_inner);
                let from = (unit * self.unit_bytes) as usize;
                blocks[from..from + self.unit_bytes as usize]
                    .copy_from_slice(&contained.contents[before]);
            }
            unit += 1;
        }
        Ok(())
    }
}

/// A map with values in logs, mirrored to such a disk.
#[derive(Clone)]
pub(in super::super) struct OnDisk {
    durability: Durability,
    /// What persists whole.
    unit_bytes: u64,
    /// Whether a sync, or a durable write, does anything.
    syncs: bool,
    /// A mistake that the logs make.
    pub fault: Option<Fault>,
    /// Of the map's own, each with a commit queue.
    pub writers: usize,
    /// What a store to the index stores instead, by offset and word.
    pub index_stores: Option<fn(u64, u64) -> u64>,
    /// Of the explorer's memory: a larger disk takes more.
    pub memory_bytes: u64,
    pub budget_bytes: u64,
    /// What happens when that is spent.
    pub when_full: WhenFull,
    /// Whether every opening of a map must be by its saved index.
    pub opens_by_index: bool,
    /// Where redo logs lie, if there are any.
    pub(super) folders: Option<Arc<Folders>>,
    /// What it has of the memory, if not all.
    pub(super) part: Option<Part>,
    contained: Arc<Mutex<Contained>>,
}

impl OnDisk {
    /// Of pages under [`Domain::PageCache`], else of sectors.
    pub fn new(durability: Durability, syncs: bool, settings: &Settings) -> OnDisk {
        let unit_bytes = match settings.domain {
            Domain::PageCache => PAGE_BYTES,
            Domain::Adr | Domain::Eadr | Domain::None => SECTOR_BYTES,
        };
        OnDisk {
            durability,
            unit_bytes,
            syncs,
            fault: None,
            writers: 1,
            index_stores: None,
            memory_bytes: MEMORY_BYTES,
            budget_bytes: 1 << 30,
            when_full: WhenFull::Refuse,
            opens_by_index: false,
            folders: None,
            part: None,
            contained: Arc::default(),
        }
    }

    /// A medium mirrored to the disk, as one opening has it.
    pub fn medium(&self, memory: &Crashable, is_new: bool, lifetime: u32) -> Medium {
        self.medium_as(memory, is_new, lifetime, |image| image)
    }

    pub(super) fn medium_as<M: Memory>(
        &self,
        memory: &Crashable,
        is_new: bool,
        lifetime: u32,
        through: impl FnOnce(Native) -> M,
    ) -> Medium<M> {
        let contained = Arc::clone(&self.contained);
        let path = self.folders.as_ref().map(|folders| folders.values(memory));
        let (memory, syncs) = (memory.clone(), self.syncs || is_new);
        let (unit_bytes, part, unsynced) = (self.unit_bytes, self.part, Mutex::default());
        let disk = InUnits { memory, unit_bytes, contained, syncs, path, part, unsynced };
        Medium::mirrored_as(Box::new(disk), is_new, lifetime, through).expect("address space")
    }

    /// The process before died.
    pub fn hand_over(&self, memory: &Crashable) {
        self.folders.iter().for_each(|folders| folders.hand_over(memory));
    }

    pub fn durability(&self) -> Durability {
        self.durability
    }

    fn map(&self, memory: &Crashable, is_new: bool, lifetime: u32) -> OnImage {
        self.map_with(memory, is_new, lifetime, MapOptions::default())
    }

    /// The same with what of `options` says how it goes with others.
    pub(super) fn map_with(
        &self,
        memory: &Crashable,
        is_new: bool,
        lifetime: u32,
        options: MapOptions,
    ) -> OnImage {
        self.folders.iter().for_each(|folders| folders.enter(memory));
        let scheduled = |image| Volatile::new(image, memory);
        let medium = self.medium_as(memory, is_new, lifetime, scheduled);
        let index = Region::reserve(INDEX_BYTES, Backing::Anonymous).expect("address space");
        index.commit(0, INDEX_BYTES).expect("memory");
        let options = MapOptions {
            durability: self.durability,
            memory_budget_bytes: self.budget_bytes,
            when_full: self.when_full,
            writers: self.writers,
            ..options
        };
        let mut index = scheduled(index.native());
        if let Some(stored) = self.index_stores {
            index = index.storing(stored);
        }
        let map = Map::on_with_dram(medium, &index, options);
        map.expect("a crash is no damage")
    }
}

impl MapSetup for OnDisk {
    type Memory = Volatile;
    type Index = Volatile;

    fn make(&self, memory: &Crashable) {
        self.folders.iter().for_each(|folders| folders.clear());
        drop(self.map(memory, true, 0));
    }

    fn open(&self, memory: &Crashable, lifetime: usize) -> OnImage {
        let map = super::faulty(self.map(memory, false, lifetime as u32), self.fault);
        let by_index = map.recovery().procedure == RecoveryProcedure::SavedIndex;
        assert!(by_index || !self.opens_by_index, "{:?}", map.recovery());
        map
    }
}

/// A scripted map on a disk, under durability `sync`.
pub(in super::super) fn explorer(syncs: bool, settings: &Settings) -> Explorer<usize> {
    let place = OnDisk::new(Durability::Sync, syncs, settings);
    super::script::explorer_on(place, super::Design::Logs, MEMORY_BYTES, &in_lines(settings))
}

/// Commits of several puts, and notes of how far they came: what a mark or a note says is so.
pub(in super::super) fn marked(fault: Option<Fault>, settings: &Settings) -> Explorer<usize> {
    let place = OnDisk { fault, ..OnDisk::new(Durability::Sync, true, settings) };
    super::script::shared_commits(place, MEMORY_BYTES, &in_lines(settings))
}

/// Units persist as lines do under ADR, whatever domain was asked for.
pub(in super::super) fn in_lines(settings: &Settings) -> Settings {
    Settings { domain: Domain::Adr, ..*settings }
}
