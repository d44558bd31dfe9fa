//! Transactions that write to two maps, each on a disk of its own, and the commit journal on a third: a sync of one
//! makes nothing of the others durable.
//!
//! What is found of the two maps after a crash must be of two instants with the same transactions before them. Under
//! `sync`, and where the process alone dies under `interval`, both are the last one that was acknowledged, or the
//! operation under way is there as well. Under a promise that takes checkpoints they are not before the last
//! completed checkpoint of each map.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::disk::{OnDisk, OnImage, Part};
use super::redo::Folders;
use super::{SEGMENT_BYTES, Wrong};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_durable::journal::{Step as Ordering, Steps};
use terrace_durable::{CommitJournal, Medium};
use terrace_machine::{Crashable, Explorer, Log, Noted, Volatile};
use terrace_memory::Domain;
use terrace_memory::instructions::LINE_BYTES;
use terrace_store::{Durability, Error, MapOptions, Moments, Together, Transaction};

/// Of each map's disk: head, a log of the writer for each opening, and what those write to beside.
const MAP_BYTES: u64 = 6 * SEGMENT_BYTES;
const JOURNAL_BYTES: u64 = SEGMENT_BYTES;
const MEMORY_BYTES: u64 = (2 * MAP_BYTES + JOURNAL_BYTES) / 512 * LINE_BYTES;
const NAMES: [&str; 2] = ["a", "b"];
/// Each openings' number is of one kind: those of setup, of recoveries, of checks.
const OF_SETUP: usize = 0;
const OF_RECOVERY: usize = 10;
const OF_CHECK: usize = 20;

/// What the thread does next, to keys of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// One value to a key of both maps, in a transaction.
    Both(u8),
    /// A value to a key of one map.
    One(usize, &'static [u8], u8),
    /// A checkpoint of one map.
    Sync(usize),
    /// Everything of one map goes, durably.
    Clear(usize),
}

/// Key, then value of each that is there.
type Found = Vec<(Vec<u8>, u8)>;

/// What a map has after the first `steps` of a script.
fn state(steps: &[Step], map: usize) -> Found {
    let mut found = Found::new();
    for step in steps {
        let (key, value): (&[u8], u8) = match *step {
            Step::Both(value) => (b"x", value),
            Step::One(of, key, value) if of == map => (key, value),
            Step::Clear(of) => {
                found.retain(|_| of != map);
                continue;
            }
            Step::One(..) | Step::Sync(_) => continue,
        };
        found.retain(|(other, _)| other != key);
        found.push((key.to_vec(), value));
    }
    found.sort();
    found
}

/// Two maps and their journal.
#[derive(Clone)]
struct Several {
    maps: [OnDisk; 2],
    journal: OnDisk,
    steps: Steps,
}

struct Opened {
    maps: [OnImage; 2],
    moments: Arc<Moments>,
}

impl Several {
    fn new(
        durability: Durability,
        loses_power: bool,
        wrong: Wrong,
        settings: &Settings,
    ) -> Several {
        let part = |from, bytes| {
            let mut place = wrong.place(durability, 1, settings);
            place.budget_bytes = 64 << 20;
            place.part = Some(Part { from, bytes });
            place
        };
        let map = |number: u64| {
            let mut place = part(number * MAP_BYTES, MAP_BYTES);
            let has_redo = matches!(durability, Durability::Interval(_));
            place.folders = has_redo.then(|| Arc::new(Folders::new(loses_power, false)));
            place
        };
        let journal = part(2 * MAP_BYTES, JOURNAL_BYTES);
        Several { maps: [map(0), map(1)], journal, steps: Steps::ALL }
    }

    fn journal(&self, memory: &Crashable, is_new: bool, lifetime: usize) -> Medium<Volatile> {
        let scheduled = |image| Volatile::new(image, memory);
        self.journal.medium_as(memory, is_new, lifetime as u32, scheduled)
    }

    fn make(&self, memory: &Crashable) -> Opened {
        self.maps.iter().flat_map(|map| &map.folders).for_each(|folders| folders.clear());
        CommitJournal::make_small(self.journal(memory, true, OF_SETUP)).expect("a journal");
        drop(self.open_as(memory, true, OF_SETUP));
        let opened = self.open(memory, OF_SETUP + 1);
        // Each writer has a log, and snapshots are kept from here on.
        opened.put_both(0).expect("a transaction");
        opened.maps.iter().for_each(|map| map.sync().expect("a sync"));
        opened
    }

    fn open(&self, memory: &Crashable, lifetime: usize) -> Opened {
        self.open_as(memory, false, lifetime)
    }

    fn open_as(&self, memory: &Crashable, is_new: bool, lifetime: usize) -> Opened {
        // The journal is of the boot that the process runs in.
        self.maps[0].folders.iter().for_each(|folders| folders.enter(memory));
        let mut medium = self.journal(memory, false, lifetime);
        medium.read_all().expect("a disk that reads");
        let journal = CommitJournal::open_in(medium, self.steps).expect("a crash is no damage");
        let together = Together::by(Arc::new(journal));
        let moments = Arc::<Moments>::default();
        let open = |number: usize| {
            let place = &self.maps[number];
            let database = Some(together.map(NAMES[number]));
            let options =
                MapOptions { moments: Arc::clone(&moments), database, ..MapOptions::default() };
            let map = place.map_with(memory, is_new, lifetime as u32, options);
            super::faulty(map, place.fault)
        };
        Opened { maps: [open(0), open(1)], moments }
    }
}

impl Opened {
    fn put_both(&self, value: u8) -> Result<(), Error> {
        self.moments.transaction(|transaction: &mut Transaction<Volatile, Volatile>| {
            self.maps.iter().try_for_each(|map| transaction.put(map, b"x", &[value]))
        })
    }

    fn perform(&self, step: Step) {
        match step {
            Step::Both(value) => self.put_both(value),
            Step::One(map, key, value) => self.maps[map].put(key, &[value]),
            Step::Sync(map) => self.maps[map].sync(),
            Step::Clear(map) => self.maps[map].clear(),
        }
        .expect("a disk that works");
    }

    /// What the recovery before wrote, in a transaction.
    fn recovered(&self) -> [Option<Vec<u8>>; 2] {
        self.maps.each_ref().map(|map| map.get(b"recovered").expect("a map that reads"))
    }

    fn found(&self, map: usize) -> Found {
        let mut found = Found::new();
        let mut note = |key: &[u8], value: terrace_store::Value<'_>| {
            if key != b"recovered" {
                found.push((key.to_vec(), value.bytes[0]));
            }
        };
        let mut cursor = 0;
        loop {
            cursor = self.maps[map].scan(cursor, 100, &mut note).expect("a scan");
            if cursor == 0 {
                break;
            }
        }
        found.sort();
        found
    }
}

/// What is acknowledged of a script: so many steps are done.
pub(in super::super) type Done = usize;

/// Whether both maps are as of instants with the same transactions before them.
fn judge(
    script: &[Step],
    done: usize,
    each_counts: bool,
    found: &[Found; 2],
) -> Result<(), String> {
    let most = (done + 1).min(script.len());
    let least = |map: usize| {
        let is_durable = |step: &Step| [Step::Sync(map), Step::Clear(map)].contains(step);
        let synced = script[..done].iter().rposition(is_durable);
        if each_counts { done } else { synced.map_or(0, |at| at + 1) }
    };
    let transactions =
        |steps: usize| script[..steps].iter().filter(|step| matches!(step, Step::Both(_))).count();
    let fits = |first: usize, second: usize| {
        transactions(first) == transactions(second)
            && state(&script[..first], 0) == found[0]
            && state(&script[..second], 1) == found[1]
    };
    let found_one =
        (least(0)..=most).any(|first| (least(1)..=most).any(|second| fits(first, second)));
    if found_one { Ok(()) } else { Err(format!("{done} steps done: found {found:?}")) }
}

/// A thread with a script, and one that takes checkpoints of the maps meanwhile, so many.
fn scripted(
    place: Several,
    domain: Domain,
    script: Vec<Step>,
    each_counts: bool,
    checkpoints: usize,
) -> Explorer<Done> {
    let shared: Arc<Mutex<Option<Arc<Opened>>>> = Arc::default();
    let [made, ended, works, syncs] = [(); 4].map(|()| Arc::clone(&shared));
    let (to_make, to_recover) = (place.clone(), place.clone());
    let taken = |shared: &Mutex<Option<Arc<Opened>>>| {
        Arc::clone(shared.lock().unwrap_or_else(PoisonError::into_inner).as_ref().expect("setup"))
    };
    // Setup begins the script.
    let whole: Vec<Step> =
        [Step::Both(0), Step::Sync(0), Step::Sync(1)].into_iter().chain(script).collect();
    let (to_do, to_judge) = (whole.clone(), whole);
    let explorer = Explorer::new(domain, MEMORY_BYTES)
        .setup(move |memory| {
            let opened = to_make.make(memory);
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(opened));
        })
        .recover(move |memory| {
            to_recover.maps.iter().for_each(|map| map.hand_over(memory));
            let opened = to_recover.open(memory, OF_RECOVERY + memory.crashes());
            // What recovery did must stand, whatever is written after it.
            let count = [memory.crashes() as u8];
            let wrote =
                opened.moments.transaction(|transaction: &mut Transaction<Volatile, Volatile>| {
                    opened
                        .maps
                        .iter()
                        .try_for_each(|map| transaction.put(map, b"recovered", &count))
                });
            wrote.expect("a transaction");
        })
        .end(move |_| drop(ended.lock().unwrap_or_else(PoisonError::into_inner).take()))
        .check(move |memory, notes: &[Noted<Done>]| {
            let done = notes.iter().map(|note| note.event).max().unwrap_or(3);
            let opened = place.open(memory, OF_CHECK + memory.crashes());
            let [first, second] = opened.recovered();
            if first != second || each_counts && first.is_none() {
                return Err(format!("the recovery's transaction: {first:?} and {second:?}"));
            }
            judge(&to_judge, done, each_counts, &[opened.found(0), opened.found(1)])
        })
        .thread(move |_, log: &Log<Done>| {
            let opened = taken(&works);
            for (number, step) in to_do.iter().enumerate().skip(3) {
                opened.perform(*step);
                log.note(number + 1);
            }
        });
    match checkpoints {
        0 => explorer,
        _ => explorer.thread(move |_, _| {
            let opened = taken(&syncs);
            (0..checkpoints).for_each(|number| opened.maps[number % 2].sync().expect("a sync"));
        }),
    }
}

/// Transactions, and writes over what they wrote.
fn over() -> Vec<Step> {
    vec![
        Step::One(0, b"p", 1),
        Step::Both(2),
        Step::One(0, b"x", 3),
        Step::One(1, b"q", 4),
        Step::Both(5),
        Step::One(1, b"x", 6),
        Step::Both(7),
        Step::Clear(0),
    ]
}

/// The same with checkpoints of one map between them.
fn with_checkpoints() -> Vec<Step> {
    let mut steps = over();
    steps.insert(2, Step::Sync(0));
    steps.insert(6, Step::Sync(1));
    steps
}

/// Under `sync`.
pub(in super::super) fn in_sync(wrong: Wrong, steps: Steps, settings: &Settings) -> Explorer<Done> {
    let place = Several { steps, ..Several::new(Durability::Sync, true, wrong, settings) };
    scripted(place, Domain::Adr, over(), true, 0).crashes(2)
}

/// Under a promise that takes checkpoints.
pub(in super::super) fn bounded(wrong: Wrong, settings: &Settings) -> Explorer<Done> {
    let place = Several::new(wrong.promise(settings), true, wrong, settings);
    scripted(place, Domain::Adr, with_checkpoints(), false, 0).crashes(2)
}

/// The same, the process is killed.
pub(in super::super) fn killed(wrong: Wrong, settings: &Settings) -> Explorer<Done> {
    let durability = Durability::Interval(Duration::from_millis(10));
    let place = Several::new(durability, false, wrong, settings);
    scripted(place, Domain::Eadr, with_checkpoints(), true, 0).crashes(2)
}

/// Checkpoints by another thread, every schedule within the bound on preemptions.
pub(in super::super) fn threads(wrong: Wrong, settings: &Settings) -> Exhaustive<Done> {
    let place = Several::new(Durability::None, true, wrong, settings);
    let script = vec![Step::One(0, b"p", 1), Step::Both(2), Step::One(1, b"q", 3)];
    Exhaustive(scripted(place, Domain::Adr, script, false, 2))
}

/// All steps of the journal but that its records are synced.
pub(super) fn unsynced_records() -> Steps {
    Steps::ALL.without(&[Ordering::RecordSync])
}
