//! Recovery: which of the procedures runs (paper 000, A8), and what it found.
//!
//! | kept | values in logs | values in slabs |
//! |---|---|---|
//! | values | read every log, the newer version of a key wins (2) | read every slot (1) |
//! | index | verify what its entries name, count the rest as dead (4) | the same, free the rest (3) |
//!
//! A kept index that does not fit the values (a crash while it was made or cleared, a batch that was
//! never finished, damage) is made anew from them: they alone say what the map holds.

use crate::engine::{Engine, Stored};
use crate::error::{Error, Result};
use crate::kept::{IndexPlace, grounds, index_error};
use crate::open::Opening;
use parking_lot::Mutex;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terrace_durable::item::Item;
use terrace_durable::logs::{Damage, Recovered, TornTail};
use terrace_durable::{Error as Below, Reach, Values};
use terrace_index::{HashIndex, hash_key};
use terrace_memory::{Divide, Memory};

/// Which recovery ran; the numbers are those of paper 000, A8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Procedure {
    /// 1: every slot was read.
    ReadSlots,
    /// 2: every log was read.
    #[default]
    ReadLogs,
    /// 3: the index was walked, and slots it does not name were freed.
    WalkToSlots,
    /// 4: the index was walked, and what it does not name of each log was counted.
    WalkToLogs,
}

impl Procedure {
    /// Its number in paper 000, A8.
    pub fn number(self) -> u8 {
        match self {
            Procedure::ReadSlots => 1,
            Procedure::ReadLogs => 2,
            Procedure::WalkToSlots => 3,
            Procedure::WalkToLogs => 4,
        }
    }
}

impl fmt::Display for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Procedure::ReadSlots => "every slot was read (procedure 1)",
            Procedure::ReadLogs => "every log was read (procedure 2)",
            Procedure::WalkToSlots => "the kept index was walked, other slots freed (procedure 3)",
            Procedure::WalkToLogs => "the kept index was walked, other bytes counted (procedure 4)",
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
    /// Items read, older versions and tombstones included.
    pub items: u64,
    /// Logs, or superblocks, that held items.
    pub segments: u64,
    /// Bytes read and verified; of a walk, those of the items named.
    pub bytes: u64,
    /// Which recovery ran.
    pub procedure: Procedure,
    /// Why a kept index was not used, though one was asked for.
    pub unfit: Option<String>,
    /// Parts of the wall time, in order.
    pub steps: Vec<(&'static str, Duration)>,
    /// Wall time.
    pub elapsed: Duration,
    /// Unfinished ends of logs and unfinished slots; never acknowledged under `sync`.
    pub torn: Vec<TornTail>,
    /// Damage found (only with `salvage`; otherwise it is an error).
    pub damage: Vec<Damage>,
}

/// Items asked for ahead by a walk, and lines of each.
const AHEAD: usize = 16;
const AHEAD_LINES: u64 = 3;

type Opened<M, I> = (Engine<M, I>, RecoveryReport);

impl Opening<'_> {
    /// Finds everything by reading the values; the index is in DRAM.
    pub fn read_values<M: Memory>(
        &self,
        values: Stored<M>,
    ) -> Result<Opened<M, terrace_memory::Native>> {
        let index = self.new_index(&values)?;
        let seed = self.seed(&values);
        let engine = self.engine(values, index, seed, 0);
        let found = self.read_into(&engine)?;
        let report = report(&engine, found, false);
        Ok((engine, report))
    }

    /// Takes up the kept index, or makes it from the values if none goes with them.
    ///
    /// # What is durable when
    /// The values name the index that goes with them by its mark. It is made under no mark, and named
    /// when it is whole; a crash before that finds values without an index.
    pub fn take_up_index<M: Memory, I: Divide>(
        &self,
        values: Stored<M>,
        place: &impl IndexPlace<I>,
    ) -> Result<Opened<M, I>> {
        let begin = Instant::now();
        let is_new = values.medium().is_new();
        let (values, unfit) = match self.walk(values, place)? {
            Walked::Whole(opened) => return Ok(*opened),
            Walked::Unfit(values, why) => (*values, why),
        };
        values.set_index_mark(0)?;
        // Follows from the lifetime: where that is given, a run can be repeated.
        let seed = hash_key(u64::from(values.medium().lifetime()), b"seed");
        let file = place.make(self.tables() as u32, seed, new_mark(&values))?;
        let index = HashIndex::kept(grounds(&file), self.budget).map_err(index_error(place))?;
        let engine = self.engine(values, index, file.seed, file.marks[0]);
        let made = begin.elapsed();
        let found = self.read_into(&engine)?;
        let read = begin.elapsed();
        file.publish()?;
        engine.values.set_index_mark(file.marks[0])?;
        let mut report = report(&engine, found, false);
        report.unfit = (!is_new).then_some(unfit);
        report.steps.insert(0, ("make an empty index", made));
        report.steps.push(("name the index", begin.elapsed() - read));
        report.elapsed = begin.elapsed();
        Ok((engine, report))
    }

    fn walk<M: Memory, I: Divide>(
        &self,
        values: Stored<M>,
        place: &impl IndexPlace<I>,
    ) -> Result<Walked<M, I>> {
        let begin = Instant::now();
        let mark = values.index_mark();
        if mark == 0 {
            return Ok(Walked::Unfit(Box::new(values), "no index goes with the values".into()));
        }
        let mut file = match place.existing() {
            Ok(Some(file)) if file.marks.contains(&mark) => file,
            Ok(Some(_)) => {
                return Ok(Walked::Unfit(
                    Box::new(values),
                    "the index goes with other values".into(),
                ));
            }
            Ok(None) => return Ok(Walked::Unfit(Box::new(values), "the index is missing".into())),
            Err(error @ (Below::Damaged { .. } | Below::Mismatch { .. })) => {
                return Ok(Walked::Unfit(Box::new(values), error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let index = match HashIndex::repair(grounds(&file), self.budget) {
            Ok(index) => index,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Ok(Walked::Unfit(Box::new(values), error.to_string()));
            }
            Err(error) => return Err(index_error(place)(error)),
        };
        let next_mark = new_mark(&values);
        let engine = self.engine(values, index, file.seed, next_mark);
        let taken_up = begin.elapsed();
        match self.reach(&engine) {
            Ok(found) => {
                file.add_mark(next_mark);
                engine.values.set_index_mark(next_mark)?;
                file.forget_mark();
                let mut report = report(&engine, found, true);
                report.steps.insert(0, ("take up the index", taken_up));
                report.elapsed = begin.elapsed();
                Ok(Walked::Whole(Box::new((engine, report))))
            }
            Err(Error::Medium(Below::Unfit(why))) => {
                Ok(Walked::Unfit(Box::new(engine.values), why))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads all values into the empty index.
    fn read_into<M: Memory, I: Memory>(&self, engine: &Engine<M, I>) -> Result<Recovered> {
        let failed = Mutex::new(None);
        let visit = |location: u64, item: &Item<'_>, bytes: usize| {
            if let Err(error) = engine.recovered(location, item, bytes) {
                failed.lock().get_or_insert(error);
            }
        };
        let found = engine.values.recover(self.threads, self.options.salvage, &visit)?;
        failed.into_inner().map_or(Ok(found), Err)
    }

    /// Verifies what the index names, and takes in what is newer than it.
    fn reach<M: Memory, I: Memory>(&self, engine: &Engine<M, I>) -> Result<Recovered> {
        let failed = Mutex::new(None);
        let entries = |f: &mut dyn FnMut(u64)| {
            let mut cursor = 0;
            let mut page = Vec::new();
            loop {
                page.clear();
                cursor = engine.index.scan(cursor, 1000, |location| page.push(location));
                // Items lie anywhere: each is asked for while others are looked at.
                let ahead = page.iter().skip(AHEAD).map(Some).chain(std::iter::repeat(None));
                for (location, next) in page.iter().zip(ahead) {
                    if let Some(next) = next {
                        engine.values.prefetch(*next, AHEAD_LINES);
                    }
                    f(*location);
                }
                if cursor == 0 {
                    return;
                }
            }
        };
        let offered = |location: u64, item: &Item<'_>, bytes: usize| {
            if let Err(error) = engine.recovered(location, item, bytes) {
                failed.lock().get_or_insert(error);
            }
        };
        let reached = |at: u64, item: &Item<'_>, bytes: usize| engine.reached(at, item, bytes);
        let gone = |location: u64, item: &Item<'_>, _: usize| engine.gone(location, item);
        let reach = Reach { entries: &entries, reached: &reached, offered: &offered, gone: &gone };
        let found = engine.values.recover_reached(self.threads, reach)?;
        failed.into_inner().map_or(Ok(found), Err)
    }
}

/// Not zero, and another at each opening.
fn new_mark<M: Memory>(values: &Stored<M>) -> u64 {
    hash_key(u64::from(values.medium().lifetime()), b"mark") | 1
}

enum Walked<M: Memory, I: Memory> {
    Whole(Box<Opened<M, I>>),
    Unfit(Box<Stored<M>>, String),
}

fn report<M: Memory, I: Memory>(
    engine: &Engine<M, I>,
    found: Recovered,
    walked: bool,
) -> RecoveryReport {
    let Recovered { segments, items, bytes, torn, damage, steps, elapsed } = found;
    let procedure = match (engine.values.logs().is_some(), walked) {
        (true, false) => Procedure::ReadLogs,
        (true, true) => Procedure::WalkToLogs,
        (false, false) => Procedure::ReadSlots,
        (false, true) => Procedure::WalkToSlots,
    };
    RecoveryReport {
        path: engine.values.medium().path().to_path_buf(),
        keys: engine.len(),
        items,
        segments,
        bytes,
        procedure,
        unfit: None,
        steps,
        elapsed,
        torn,
        damage,
    }
}
