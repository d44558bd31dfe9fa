//! The redo log of a map under `interval`: memory that outlives the process, replayed at the next opening.
//!
//! *A killed process*: whatever was stored, to the disk or to the redo log, is there, in the order of its stores. So
//! the memory that crashes is one whose caches persist, and the redo log, a file as in the product, is handed from one
//! process to the next as it was at the crash. Everything acknowledged must be there.
//!
//! A crash may come before each store to a chunk, to the number of chunks and to what is said of checkpoints. The
//! memory does not hear of other changes of the redo log, and no crash comes between them and the event before: making
//! it, its length and blocks, marking it as about to be replayed, and its removal.
//!
//! *A power cut*: sectors persist as they do for a disk. The kernel has booted again, so the redo log is worth nothing:
//! it is gone, or there as it was, or one of the new boot lies there that belongs to an older checkpoint, as restored
//! from elsewhere. What `interval` promises must be there, and nothing of a stale log.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::super::histories::history;
use super::disk::{OnDisk, OnImage};
use super::mirrored::{
    Asked, Note, Pairs, Script, ThreadStep, Wrong, drawn, judge, put, scripted, warm,
};
use super::threads::{number, value};
use super::{Contents, MapSetup};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_durable::{Elsewhere, REDO_LOG};
use terrace_machine::{Crashable, Explorer, Noted};
use terrace_memory::Domain;
use terrace_store::Durability;
use terrace_workload::history::{Call, Response};
use terrace_workload::linearizability::durable::{BufferedCall, Moment, Verdict, check};

/// Keys that threads share, as in the other scenarios of mirrored maps.
const KEYS: u64 = 3;
/// The most crashes of a scenario.
const CRASHES: usize = 2;
const BUDGET: u64 = 1_000_000;
/// What setup leaves of a writer's first chunk: a few records of the script.
const ROOM_BYTES: usize = 200;
const CHUNK_BYTES: usize = 256 << 10;
const CONTROL_BYTES: usize = 4096;
/// A value that nobody wrote since the redo log was left.
const STALE: i64 = 1000;

/// Folders of redo logs, one for each process, and one left behind by an older one.
#[derive(Debug)]
pub(super) struct Folders {
    all: tempfile::TempDir,
    /// Whether a crash is a power cut.
    loses_power: bool,
    /// A redo log is taken for that of whatever checkpoint is found.
    accepts_any: bool,
    /// For the process after each power cut, one of its boot.
    stale: Mutex<Vec<Vec<u8>>>,
}

impl Folders {
    pub fn new(loses_power: bool, accepts_any: bool) -> Folders {
        let all = tempfile::tempdir().expect("a temporary directory");
        for process in 0..=CRASHES + 1 {
            std::fs::create_dir(all.path().join(process.to_string())).expect("a folder");
        }
        Folders { all, loses_power, accepts_any, stale: Mutex::default() }
    }

    fn redo_log(&self, process: usize) -> PathBuf {
        self.all.path().join(process.to_string()).join(REDO_LOG)
    }

    /// Where the value file of a process would be; there is none, so that all have the same name.
    pub fn values(&self, memory: &Crashable) -> PathBuf {
        self.all.path().join(memory.crashes().to_string()).join("values")
    }

    /// The thread that opens a map is in the boot that the process runs in.
    pub fn enter(&self, memory: &Crashable) {
        let (memory, loses_power) = (memory.clone(), self.loses_power);
        let boots = move || if loses_power { memory.crashes() as u8 } else { 0 };
        Elsewhere::enter(boots, self.accepts_any);
    }

    /// There is no redo log before the first process.
    pub fn clear(&self) {
        let _absent = std::fs::remove_file(self.redo_log(0));
    }

    /// The process before died: the next one finds its redo log, or after a power cut what may be left of it.
    pub fn hand_over(&self, memory: &Crashable) {
        let process = memory.crashes();
        let next = self.redo_log(process);
        let _absent = std::fs::remove_file(&next);
        let Ok(left) = std::fs::read(self.redo_log(process - 1)) else { return };
        let found = if self.loses_power { self.left_of(left, process) } else { Some(left) };
        let Some(found) = found else { return };
        std::fs::write(next, found).expect("room");
    }

    /// What a power cut leaves of a redo log for `process`. Which of three follows from its records: a state says the
    /// same each time, in whatever boot of this machine, which the page before them names.
    fn left_of(&self, log: Vec<u8>, process: usize) -> Option<Vec<u8>> {
        match terrace_durable::checksum::Crc::new(0).update(&log[CONTROL_BYTES..]).finish() % 3 {
            0 => None,
            1 => Some(log),
            _ => {
                let stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
                stale.get(process - 1).cloned()
            }
        }
    }
}

fn place(folders: Folders, wrong: Wrong, settings: &Settings) -> OnDisk {
    let durability = Durability::Interval(Duration::from_millis(10));
    let mut place = wrong.place(durability, 2, settings);
    // The least that gives chunks of the least length.
    place.budget_bytes = 64 << 20;
    place.folders = Some(Arc::new(folders));
    place
}

fn folders(place: &OnDisk) -> &Folders {
    place.folders.as_ref().expect("of this scenario")
}

/// An empty map, one of whose writers has filled its chunk but for a little; after a power cut a log may lie there that
/// is older.
fn filled(place: &OnDisk, memory: &Crashable) -> OnImage {
    let folders = folders(place);
    if folders.loses_power {
        leave_stale(place, memory);
    }
    let map = warm(place, memory);
    let mut session = map.session();
    let name = (KEYS + 2).to_be_bytes();
    // Overwritten where it lies: the redo log alone becomes long.
    (0..200).for_each(|_| session.put(&name, &[1; 1000], None).expect("put"));
    let log = std::fs::read(folders.redo_log(0)).expect("a redo log");
    let chunks = log[CONTROL_BYTES..].chunks(CHUNK_BYTES);
    let used = chunks.filter_map(|chunk| chunk.iter().rposition(|byte| *byte != 0)).max();
    let rest = CHUNK_BYTES - used.expect("a record") - ROOM_BYTES;
    session.put(&name, &vec![1; rest], None).expect("put");
    map.sync().expect("a sync");
    map
}

/// Keeps the redo logs that a process of the boot after each power cut would have left.
fn leave_stale(place: &OnDisk, memory: &Crashable) {
    let folders = folders(place);
    let leave = |boot: u8| {
        let map = place.open(memory, 20 + usize::from(boot));
        Elsewhere::enter(move || boot, false);
        map.set_durability(Durability::None).expect("no redo log");
        map.set_durability(place.durability()).expect("one of another boot");
        // The writer of a session follows from the map, that of a call on the map from the thread: each setup is to
        // leave the same.
        let mut session = map.session();
        for key in 0..KEYS {
            session.put(&key.to_be_bytes(), &value(STALE), None).expect("put");
        }
        session.commit().expect("a commit");
        // Dropped it has died: to the boot before that one its log means nothing.
        drop((session, map));
        std::fs::read(folders.redo_log(0)).expect("a redo log")
    };
    let left = (1..=CRASHES as u8).map(leave).collect();
    *folders.stale.lock().unwrap_or_else(PoisonError::into_inner) = left;
}

/// Everything acknowledged is there: each operation takes effect before it returns.
pub(super) fn nothing_is_lost(notes: &[Noted<Note>], found: &Contents) -> Result<(), String> {
    let of_maps = |noted: &Noted<Note>| {
        let event = match &noted.event {
            Moment::Called(BufferedCall::Do(asked)) => Moment::Called(asked.clone()),
            Moment::Returned(Some(told)) => Moment::Returned(*told),
            _ => return None,
        };
        Some(Noted { thread: noted.thread, event })
    };
    let notes: Vec<Noted<Moment<Asked, Response>>> = notes.iter().filter_map(of_maps).collect();
    let reader = usize::MAX;
    let mut history = history(&notes);
    history.crash();
    for key in 0..KEYS {
        let value = found.get(&key).map(|value| number(value)).transpose()?;
        history.call(reader, Asked::One(key, Call::Get));
        history.returned(reader, Response::Value(value));
    }
    match check(&Pairs::default(), &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { .. } => Err(format!("not decided in {BUDGET} steps")),
    }
}

/// The second thread has the writer whose chunk is nearly full: a third record goes to another one, and its checkpoint
/// gives the first back.
fn scripts(seed: u64) -> Vec<Script> {
    let fills = vec![put(0, 102), put(1, 104), put(2, 106), ThreadStep::Sync, put(1, 108)];
    vec![drawn(seed, 0, false, 4), fills]
}

/// Two writers, and their checkpoints; the process is killed.
pub(in super::super) fn killed(wrong: Wrong, settings: &Settings) -> Explorer<Note> {
    let place = place(Folders::new(false, false), wrong, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| nothing_is_lost(notes, found);
    scripted(place, Domain::Eadr, filled, scripts(settings.seed), judged).crashes(CRASHES)
}

/// The same; the machine loses power.
pub(in super::super) fn power_cut(accepts_any: bool, settings: &Settings) -> Explorer<Note> {
    let place = place(Folders::new(true, accepts_any), Wrong::NOTHING, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| judge(&Pairs::default(), notes, found);
    scripted(place, Domain::Adr, filled, scripts(settings.seed), judged).crashes(CRASHES)
}

fn batch(keys: &[u64], number: i64) -> ThreadStep {
    ThreadStep::Ask(Asked::Batch(keys.iter().map(|key| (*key, number)).collect()))
}

/// Batches of one thread with a checkpoint between them; the process is killed. Every state.
pub(in super::super) fn batches(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let place = place(Folders::new(false, false), wrong, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| nothing_is_lost(notes, found);
    Exhaustive(scripted(place, Domain::Eadr, filled, vec![batched()], judged))
}

/// The same; the machine loses power.
pub(in super::super) fn batches_power_cut(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let place = place(Folders::new(true, false), wrong, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| judge(&Pairs::default(), notes, found);
    Exhaustive(scripted(place, Domain::Adr, filled, vec![batched()], judged))
}

fn batched() -> Script {
    vec![
        batch(&[0, 1], 2),
        put(1, 4),
        ThreadStep::Sync,
        batch(&[0, 1, 2], 6),
        put(0, 8),
        batch(&[0, 2], 10),
        ThreadStep::Sync,
        batch(&[1, 2], 12),
    ]
}
