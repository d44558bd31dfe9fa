//! Recovery: which of the procedures runs (Wu, chapter 2), and what it found.
//!
//! | kept | values in logs | values in slabs |
//! |---|---|---|
//! | values | read every log, the newer version of a key wins (2) | read every slot (1) |
//! | index | verify what its entries name, count the rest as dead (4) | the same, free the rest (3) |
//! | full | replay the last section (5) | the same (5) |
//!
//! After an orderly end an index that was kept is reopened as it was closed.

use crate::engine::{Engine, Stored};
use crate::error::{Error, Result};
use crate::index::{Claimed, InOrder, Index, KeyIndex, Position};
use crate::kept::{IndexInDirectory, IndexPlace};
use crate::located::location;
use crate::open::Opening;
use crate::recovered::PutAside;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use terrace_durable::item::Item;
use terrace_durable::values::{Damage, Recovered, TornTail};
use terrace_durable::{Error as Below, IndexFile, Reach, Values};
use terrace_index::hash_key;
use terrace_index::keys::Entry;
use terrace_memory::{Memory, Native};

/// The recovery that ran; the numbers are those of Wu, chapter 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryProcedure {
    /// 1: full slab scan.
    ReadSlots,
    /// 2: full log scan.
    #[default]
    ReadLogs,
    /// 3: index walk; slots that the index does not name were freed.
    WalkToSlots,
    /// 4: index walk; bytes of each log that the index does not name count as dead.
    WalkToLogs,
    /// 5: replay of the last section; nothing else needed repair.
    Replay,
    /// The saved index was loaded, and the logs read that were written since.
    SavedIndex,
    /// None was needed: index and allocation metadata were reopened as closed.
    AsClosed,
}

impl RecoveryProcedure {
    /// Its number in Wu, chapter 2; 0 if it is none of those.
    pub fn number(self) -> u8 {
        match self {
            RecoveryProcedure::ReadSlots => 1,
            RecoveryProcedure::ReadLogs => 2,
            RecoveryProcedure::WalkToSlots => 3,
            RecoveryProcedure::WalkToLogs => 4,
            RecoveryProcedure::Replay => 5,
            RecoveryProcedure::SavedIndex | RecoveryProcedure::AsClosed => 0,
        }
    }
}

impl fmt::Display for RecoveryProcedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecoveryProcedure::ReadSlots => "full slab scan",
            RecoveryProcedure::ReadLogs => "full log scan",
            RecoveryProcedure::WalkToSlots => "index walk: unnamed slots were freed",
            RecoveryProcedure::WalkToLogs => "index walk: unnamed bytes counted as dead",
            RecoveryProcedure::Replay => "replay of the last section",
            RecoveryProcedure::SavedIndex => "saved index, and a scan of the logs since",
            RecoveryProcedure::AsClosed => "index and allocation metadata reopened as closed",
        })
    }
}

/// What recovery found and what it took.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// The value file.
    pub path: PathBuf,
    /// Keys afterwards.
    pub keys: u64,
    /// Items read, older versions and tombstones included; none where nothing had to be found.
    pub items: u64,
    /// Logs, or superblocks, that held items.
    pub segments: u64,
    /// Keys that a process that died had written since its last checkpoint: their writes were taken from its redo log.
    pub replayed: u64,
    /// Bytes read and verified; of a walk, those of the items named.
    pub bytes: u64,
    /// Which recovery ran.
    pub procedure: RecoveryProcedure,
    /// Why a persistent index was not used, though one was asked for.
    pub unfit: Option<String>,
    /// The index that is kept with the values: the one in use; of a map that is only read, the one that lies beside
    /// them.
    pub kept: Option<String>,
    /// Parts of the wall time, in order.
    pub steps: Vec<(&'static str, Duration)>,
    /// Wall time.
    pub elapsed: Duration,
    /// Unfinished ends of logs and unfinished slots; never acknowledged under `sync`.
    pub torn: Vec<TornTail>,
    /// Damage found (only with [`Access::Salvage`](crate::Access); otherwise it is an error).
    pub damage: Vec<Damage>,
}

/// Entries that a walk takes at a time.
const PAGE: usize = 1000;
/// Items prefetched by a walk, and lines of each.
const AHEAD: usize = 16;
const AHEAD_LINES: u64 = 3;

/// Told location, item and bytes of each item that counts.
pub(crate) type Visit<'a> = &'a (dyn Fn(u64, &Item<'_>, usize) + Sync);

pub(crate) type Opened<M, I> = (Engine<M, I>, RecoveryReport);

impl Opening<'_> {
    /// Finds everything by reading the values; the index is in DRAM.
    pub fn read_values<M: Memory>(&self, values: Stored<M>) -> Result<Opened<M, Native>> {
        // What the last section of another opening changed among the values; if they are only read, in a copy.
        self.replay::<M, Native>(&values, None)?;
        let index = self.new_index(&values)?;
        self.read_values_to(values, index)
    }

    /// The same, and whatever index was kept goes.
    pub fn read_values_alone(
        &self,
        values: Stored<Native>,
        index: &IndexInDirectory,
    ) -> Result<Opened<Native, Native>> {
        let opened = self.read_values(values)?;
        opened.0.values.set_index_mark(0)?;
        index.remove()?;
        Ok(opened)
    }

    /// The same of values that are only read: an index that is kept stays as it is, and is named.
    pub fn read_values_beside(
        &self,
        values: Stored<Native>,
        index: &IndexInDirectory,
    ) -> Result<Opened<Native, Native>> {
        let mark = values.index_mark();
        let found = if mark == 0 { Ok(None) } else { index.existing() };
        let (file, unfit) = match found {
            Ok(Some(file)) if file.marks.contains(&mark) => (Some(file), None),
            Ok(_) if mark == 0 => (None, None),
            Ok(_) => (None, Some("it is missing, or it belongs to other values".into())),
            // What counts of the values may be said there in a way that is not known here.
            Err(error @ Below::Newer { .. }) => return Err(error.into()),
            Err(error) => (None, Some(error.to_string())),
        };
        let state = file.as_ref().map(IndexFile::state);
        if values.logs().is_some() && state.is_some_and(|state| state.is_exact && !state.is_closed)
        {
            return Err(self.is_half_done(&values));
        }
        let (engine, report) = self.read_values(values)?;
        let kept = file.and_then(|file| match file.tables {
            0 => Index::found(&file).ok().flatten().map(|found| found.to_string()),
            _ => Some("hash".into()),
        });
        Ok((engine, RecoveryReport { kept, unfit, ..report }))
    }

    /// Of logs whose every write is a section the allocation metadata alone says what counts: a scan would show what
    /// the next opening takes back.
    fn is_half_done(&self, values: &Stored<Native>) -> Error {
        let path = values.medium().path().display();
        let why = format!(
            "{path}: its process did not close it, and with persist = \"full\" only the index says which items count; open it once \
             for writing, with its settings (`terrace open DIR`), or read it with salvage"
        );
        Error::Option { field: "access", why }
    }

    /// Finds everything by reading the values into an empty index.
    pub fn read_values_to<M: Memory, I: Memory>(
        &self,
        values: Stored<M>,
        index: Index<I>,
    ) -> Result<Opened<M, I>> {
        let seed = self.seed(&values);
        let engine = self.engine(values, index, seed);
        let found = self.read_into(&engine)?;
        let report = report(&engine, found, read_by(&engine));
        Ok((engine, report))
    }

    /// Reads all values into the empty index.
    pub fn read_into<M: Memory, I: Memory>(&self, engine: &Engine<M, I>) -> Result<Recovered> {
        let read = |visit: Visit<'_>| engine.values.recover(self.threads, visit);
        self.read_by(engine, PutAside::default(), read)
    }

    /// Takes all that `read` visits into the index.
    pub fn read_by<M: Memory, I: Memory>(
        &self,
        engine: &Engine<M, I>,
        aside: PutAside<'_>,
        read: impl FnOnce(Visit<'_>) -> terrace_durable::Result<Recovered>,
    ) -> Result<Recovered> {
        let failed = Mutex::new(None);
        let visit = |location: u64, item: &Item<'_>, bytes: usize| {
            if let Err(error) = engine.recovered(location, item, bytes, &aside) {
                failed.lock().get_or_insert(error);
            }
        };
        let found = read(&visit)?;
        engine.recovered_all(&aside)?;
        failed.into_inner().map_or(Ok(found), Err)
    }

    /// Verifies what the index names, and takes in what is newer than it. Leaves of a tree begin at
    /// `start` of the index.
    pub fn reach<M: Memory, I: Memory>(
        &self,
        engine: &Engine<M, I>,
        start: u64,
    ) -> Result<Recovered> {
        let (failed, aside) = (Mutex::new(None), PutAside::default());
        let fail = |error| _ = failed.lock().get_or_insert(error);
        let order = RefCell::new(InOrder::default());
        let ask_for = |at: u64| engine.values.prefetch(at, AHEAD_LINES);
        let guard = crossbeam_epoch::pin();
        let in_no_order = |f: &mut dyn FnMut(u64)| {
            let (mut reached, mut page) = (Position::Start, Vec::new());
            while reached != Position::End {
                page.clear();
                let items = engine.located(&guard);
                reached = engine.index.scan(&reached, PAGE, &items, |at| page.push(at));
                looking_ahead(&page, |at| ask_for(*at), |at| f(*at));
            }
        };
        let entries = |f: &mut dyn FnMut(u64)| match engine.index.is_ordered() {
            false => in_no_order(f),
            true => {
                let mut page = Vec::new();
                let mut look = |page: &mut Vec<(Entry, u64)>| {
                    let each = |(entry, leaf): &(Entry, u64)| {
                        let at = order.borrow_mut().come_to(*entry, *leaf);
                        f(at);
                    };
                    looking_ahead(page, |(entry, _)| ask_for(location(entry.value)), each);
                    page.clear();
                };
                let walked = engine.index.walk(&Claimed::of(&engine.values), |entry, leaf| {
                    page.push((*entry, leaf));
                    if page.len() == PAGE {
                        look(&mut page);
                    }
                });
                walked.expect("an ordered index has an order");
                look(&mut page);
            }
        };
        let offered = |location: u64, item: &Item<'_>, bytes: usize| {
            engine.recovered(location, item, bytes, &aside).unwrap_or_else(fail);
        };
        let reached = |at: u64, item: &Item<'_>, bytes: usize| {
            engine.reached(item, bytes);
            match engine.index.is_ordered() {
                false => {
                    let hash = hash_key(engine.seed, item.key);
                    engine.index.holds(hash, item.key, at, &engine.located(&guard))
                }
                true => order.borrow_mut().is_of(at, item.key),
            }
        };
        let gone = |location: u64, item: &Item<'_>, _: usize| {
            let forgotten = engine.forget(hash_key(engine.seed, item.key), location, item.key);
            forgotten.map_err(fail).unwrap_or(true)
        };
        let reach = Reach { entries: &entries, reached: &reached, offered: &offered, gone: &gone };
        let found = engine.values.recover_reached(self.threads, reach).map_err(|error| {
            match (error, order.borrow().damaged) {
                (Below::Unfit(_), Some(leaf)) => Below::Unfit(format!(
                    "at offset {}: an entry of the leaf is not its key's, or not in order",
                    start + leaf
                )),
                (error, _) => error,
            }
        })?;
        engine.recovered_all(&aside).and(failed.into_inner().map_or(Ok(found), Err))
    }
}

/// Items lie anywhere: each is asked for while others are looked at.
fn looking_ahead<T>(page: &[T], ask_for: impl Fn(&T), mut each: impl FnMut(&T)) {
    for (number, this) in page.iter().enumerate() {
        page.get(number + AHEAD).into_iter().for_each(&ask_for);
        each(this);
    }
}

/// The procedure that reads all values.
pub(crate) fn read_by<M: Memory, I: Memory>(engine: &Engine<M, I>) -> RecoveryProcedure {
    engine.values.logs().map_or(RecoveryProcedure::ReadSlots, |_| RecoveryProcedure::ReadLogs)
}

/// The procedure that walks the index.
pub(crate) fn walked_by<M: Memory, I: Memory>(engine: &Engine<M, I>) -> RecoveryProcedure {
    engine.values.logs().map_or(RecoveryProcedure::WalkToSlots, |_| RecoveryProcedure::WalkToLogs)
}

pub(crate) fn report<M: Memory, I: Memory>(
    engine: &Engine<M, I>,
    found: Recovered,
    procedure: RecoveryProcedure,
) -> RecoveryReport {
    let Recovered { segments, items, bytes, torn, damage, steps, elapsed } = found;
    RecoveryReport {
        path: engine.values.medium().path().to_path_buf(),
        keys: engine.len(),
        items,
        segments,
        replayed: 0,
        bytes,
        procedure,
        unfit: None,
        kept: None,
        steps,
        elapsed,
        torn,
        damage,
    }
}
