//! The saved index of a hash map on a disk: when it is written, and how a map is opened by it.
//!
//! An opening by it reads the index, and the logs written since. Values stay on the disk until somebody asks for them,
//! or until the collector has brought them back into memory, as far as there is room ([`Engine::warm_up`]). A map of a
//! few dozen megabytes is read whole instead: that is as fast, and verifies everything.

use crate::engine::{Engine, Stored};
use crate::error::{Error, Result};
use crate::index::Index;
use crate::open::{LEAST_ITEM_BYTES, Opening};
use crate::plan::Place;
use crate::recover::{Opened, RecoveryProcedure, RecoveryReport, Visit, report};
use crate::recovered::PutAside;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use terrace_durable::lock;
use terrace_durable::logs::{Logs, PARAMETERS, SavedIndex, SavedStats, SegmentView, State};
use terrace_durable::values::{Recovered, SEGMENT_BYTES};
use terrace_index::{HashIndex, Layout, Loaded};
use terrace_memory::{Memory, Native};

/// A map of fewer logs has no saved index.
const LEAST_LOGS: u64 = 16;
/// While a map is open its index is saved when there are four times as many logs that an opening would read as segments
/// of the saved index: so it adds a quarter to what else is written, at the most. At its end, when they have a
/// sixteenth of its bytes.
const SINCE: u64 = 4;
const SINCE_AT_END: u64 = 16;
/// Items are expected to be no longer.
const ITEM_BYTES_MOST: u64 = 1 << 20;
/// Logs that are brought back while the collector waits.
const WARMED_TOGETHER: usize = 8;

/// What a map knows of its index beside the entries.
struct Parameters {
    layout: Layout,
    seed: u64,
    item_bytes: u64,
    has_expiries: bool,
    /// No item has a higher one; 0: that is not known.
    newest_version: u64,
}

impl Parameters {
    fn encode(&self) -> [u64; PARAMETERS] {
        let Layout { tables, location_bits, tag_from } = self.layout;
        let layout = [tables as u64, location_bits.into(), tag_from.into()];
        let [tables, location_bits, tag_from] = layout;
        let has_expiries = u64::from(self.has_expiries);
        let newest = self.newest_version;
        [tables, location_bits, tag_from, self.seed, self.item_bytes, has_expiries, newest, 0]
    }

    /// None if no index has these.
    fn decode(words: &[u64; PARAMETERS], parts: usize) -> Option<Parameters> {
        let [tables, location_bits, tag_from, seed, item_bytes, has_expiries, newest, _] = *words;
        let layout = Layout {
            tables: usize::try_from(tables).ok()?,
            location_bits: u32::try_from(location_bits).ok().filter(|bits| *bits <= 48)?,
            tag_from: u32::try_from(tag_from).ok()?,
        };
        let is_one = layout.tables == parts && tables.is_power_of_two() && tables <= 256;
        let item_bytes = item_bytes.clamp(LEAST_ITEM_BYTES, ITEM_BYTES_MOST);
        let has_expiries = has_expiries != 0;
        let newest_version = newest;
        is_one.then_some(Parameters { layout, seed, item_bytes, has_expiries, newest_version })
    }
}

/// A saved index that cannot be used, and why.
type Unusable<M> = (Stored<M>, Option<String>);

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Whether an index is worth saving by now, or at the end of the map.
    pub fn is_saving_due(&self, at_end: bool) -> bool {
        let Some(logs) = self.values.logs().filter(|_| self.plan.may_spill) else { return false };
        if logs.total_segments() as u64 <= LEAST_LOGS {
            return false;
        }
        let SavedStats { segments, logs_since, unknown_bytes } = logs.saved_stats();
        let segments = segments as u64;
        match at_end {
            true => unknown_bytes > segments * u64::from(SEGMENT_BYTES) / SINCE_AT_END,
            false => logs_since >= (segments * SINCE).max(LEAST_LOGS),
        }
    }

    /// Saves the index while others write; whether it was.
    ///
    /// # Errors
    /// Those of the medium. The map goes on, but for a sync or a checkpoint that failed.
    pub fn save_index(&self) -> Result<bool> {
        let (Some(logs), Index::Hash(index)) = (self.values.logs(), &self.index) else {
            return Ok(false);
        };
        let _one = lock(self.values.medium().memory(), &self.saving);
        let mut saving = logs.begin_saving();
        // None of an item in logs that are closed is above it.
        let newest_version = self.newest_version_or_0();
        // Of the logs that are closed the index is to know everything.
        if !self.take_in_again() && !self.copy_blind(logs, |segment| saving.knows(segment))? {
            return Ok(false);
        }
        let guard = RefCell::new(crossbeam_epoch::pin());
        let layout = index.layout();
        for table in 0..layout.tables {
            let is_deleted = |location| logs.is_deleted(location, &guard.borrow());
            let put = |words: &[u64]| {
                guard.borrow_mut().repin();
                saving.put(words).map_err(io::Error::other)
            };
            index.save(table, is_deleted, put).map_err(|source| self.not_saved(source))?;
            saving.end_part()?;
        }
        let has_expiries = self.counters.expiries.load(Ordering::Relaxed);
        let item_bytes = usual_bytes(logs, index.len());
        let seed = self.seed;
        let parameters = Parameters { layout, seed, item_bytes, has_expiries, newest_version };
        Ok(saving.publish(parameters.encode(), has_expiries)?)
    }

    /// Closes all logs and saves the index, so that the next opening reads no log. Without it that takes longer.
    pub fn save_at_end(&self) {
        if let Some(logs) = self.values.logs() {
            logs.seal_open();
            let _read_at_the_next_opening = logs.flush_all().is_ok() && self.save_index().is_ok();
        }
    }

    fn not_saved(&self, source: io::Error) -> Error {
        match source.downcast::<terrace_durable::Error>() {
            Ok(below) => below.into(),
            Err(source) => {
                let path = self.values.medium().path().to_path_buf();
                Error::Io { path, doing: "save the index of", source }
            }
        }
    }

    /// Brings the next logs back that an opening left on the disk, the newest first; `false` if there are none, or no
    /// more room than logs are given when a map is read whole. A log that cannot be read, or is damaged, stays where it
    /// is, and whoever asks for its items is told.
    pub fn warm_up(&self) -> bool {
        let below = self.warmed_below.load(Ordering::Relaxed);
        let Some(logs) = self.values.logs().filter(|_| below > 0) else { return false };
        let _one = lock(self.values.medium().memory(), &self.collecting);
        let mut views = logs.survey();
        views.retain(|view| {
            let is_away = view.state == State::Sealed && !view.residence.is_resident;
            is_away && view.sequence < below
        });
        views.sort_by_key(|view| std::cmp::Reverse(view.sequence));
        for view in views.iter().take(WARMED_TOGETHER) {
            if self.budget.used() + u64::from(SEGMENT_BYTES) > self.budget.limit() / 2 {
                self.warmed_below.store(0, Ordering::Relaxed);
                return false;
            }
            self.warmed_below.store(view.sequence, Ordering::Relaxed);
            if logs.claim(view.number) {
                let _stays = logs.bring_back(view.number);
                logs.unclaim(view.number);
            }
        }
        if views.len() <= WARMED_TOGETHER {
            self.warmed_below.store(0, Ordering::Relaxed);
            logs.forget_copies();
        }
        views.len() > WARMED_TOGETHER
    }
}

fn usual_bytes<M: Memory>(logs: &Logs<M>, items: u64) -> u64 {
    let live = |view: &SegmentView| view.used_bytes.saturating_sub(view.dead_bytes);
    let bytes: u64 = logs.survey().iter().map(live).sum();
    (bytes / items.max(1)).clamp(LEAST_ITEM_BYTES, ITEM_BYTES_MOST)
}

impl Opening<'_> {
    /// Opens by the saved index, if there is one that can be used; else gives the values back, with the reason.
    ///
    /// # Errors
    /// Those of the disk, and damage.
    pub fn by_saved_index<M: Memory, I: Memory>(
        &self,
        values: Stored<M>,
        make: impl FnOnce(&Stored<M>, Layout) -> io::Result<Index<I>>,
    ) -> Result<std::result::Result<Opened<M, I>, Unusable<M>>> {
        let is_of_such = self.plan.may_spill
            && matches!(self.plan.place, Place::Mirrored { .. })
            && !self.plan.access.reads_all();
        let Some(logs) = values.logs().filter(|_| is_of_such) else {
            return Ok(Err((values, None)));
        };
        let start = Instant::now();
        let saved = match logs.find_saved()? {
            Ok(Some(saved)) => saved,
            Ok(None) => return Ok(Err((values, None))),
            Err(why) => return Ok(Err((values, Some(why)))),
        };
        let Some(parameters) = Parameters::decode(saved.parameters(), saved.parts()) else {
            return Ok(Err((values, Some("no index has its parameters".into()))));
        };
        let made = make(&values, parameters.layout);
        let loaded = made.and_then(|index| self.load(&values, &saved, &parameters, index));
        let (index, live, mut deleted) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return Ok(Err((values, Some(error.to_string())))),
        };
        let loading = start.elapsed();
        let engine = self.engine(values, index, parameters.seed);
        let found = self.read_since(&engine, &saved, &parameters, live, &mut deleted)?;
        let report = report(&engine, found, RecoveryProcedure::SavedIndex);
        let mut steps = vec![("load the saved index", loading)];
        steps.extend(report.steps);
        let elapsed = report.elapsed + loading;
        Ok(Ok((engine, RecoveryReport { steps, elapsed, ..report })))
    }

    /// Reads what the saved index does not know.
    fn read_since<M: Memory, I: Memory>(
        &self,
        engine: &Engine<M, I>,
        saved: &SavedIndex,
        parameters: &Parameters,
        live: u64,
        deleted: &mut [u64],
    ) -> Result<Recovered> {
        let logs = engine.values.logs().expect("a saved index is of logs");
        engine.counters.expiries.store(parameters.has_expiries, Ordering::Relaxed);
        engine.written[0].keys.store(live as i64, Ordering::Relaxed);
        engine.written[0].note_version(parameters.newest_version);
        engine.blind.knows_versions.store(parameters.newest_version > 0, Ordering::Relaxed);
        engine.item_bytes_hint.store(parameters.item_bytes.min(256) as u32, Ordering::Relaxed);
        engine.warmed_below.store(u64::MAX, Ordering::Relaxed);
        logs.found_deleted(deleted);
        let item_bytes = parameters.item_bytes as usize;
        let aside = PutAside::behind(saved, parameters.newest_version);
        let read = |visit: Visit<'_>| logs.recover_since(saved, item_bytes, self.threads, visit);
        self.read_by(engine, aside, read)
    }

    /// An index in DRAM that can load one that was saved.
    pub fn index_to_load<M: Memory>(
        &self,
        values: &Stored<M>,
        layout: Layout,
    ) -> io::Result<Index<Native>> {
        let capacity = values.medium().capacity_bytes() / LEAST_ITEM_BYTES;
        let end = (capacity * LEAST_ITEM_BYTES).max(1 << layout.location_bits);
        let (node, budget) = (self.index_node(), self.index_budget());
        HashIndex::on_node(layout.tables, capacity, end, node, budget).map(Index::Hash)
    }

    /// Loads the entries that name what is known; how many of them are live, and the locations of the others.
    fn load<M: Memory, I: Memory>(
        &self,
        values: &Stored<M>,
        saved: &SavedIndex,
        parameters: &Parameters,
        index: Index<I>,
    ) -> io::Result<(Index<I>, u64, Vec<u64>)> {
        let layout = parameters.layout;
        let Index::Hash(table) = &index else { return Err(io::ErrorKind::Unsupported.into()) };
        let logs = values.logs().expect("a saved index is of logs");
        let (next, live) = (AtomicUsize::new(0), AtomicU64::new(0));
        let deleted: Mutex<Vec<u64>> = Mutex::default();
        let load_one = |number| {
            let mut part = logs.read_part(saved, number);
            let mut found: Vec<u64> = Vec::new();
            let words = |words: &mut [u64]| match part.next(words) {
                Ok(true) => Ok(()),
                Ok(false) => Err(io::Error::other("it does not match its checksum")),
                Err(error) => Err(io::Error::other(error)),
            };
            let keep = |location, is_deleted: bool| {
                let is_known = saved.knows(location);
                found.extend((is_known && is_deleted).then_some(location));
                is_known
            };
            let Loaded { entries, deleted: gone } = table.load(number, layout, words, keep)?;
            if !part.is_over() {
                return Err(io::Error::other("it is longer than its tables"));
            }
            live.fetch_add(entries - gone, Ordering::Relaxed);
            deleted.lock().append(&mut found);
            Ok(())
        };
        let worker = || -> io::Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= layout.tables {
                    return Ok(());
                }
                load_one(number)?;
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads).map(|_| scope.spawn(worker)).collect();
            let own = worker();
            others
                .into_iter()
                .fold(own, |before, thread| before.and(thread.join().expect("no loader panicked")))
        })?;
        Ok((index, live.into_inner(), deleted.into_inner()))
    }
}
