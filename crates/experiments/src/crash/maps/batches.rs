//! One thread writes batches while another reads: whatever was told of a batch says that it is there
//! after a crash, with all that it wrote.

use super::super::Settings;
use super::{Contents, Design, Leaves, MapSetup, Opening, SEGMENT_BYTES, contents, recover};
use crate::structures::Random;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_durable::logs::Fault;
use terrace_machine::{Crashable, Explorer, Log, Noted, Without};
use terrace_store::{Change, Error, Session};

/// Head, a log of each writer and what recovery writes to.
const MEMORY_BYTES: u64 = 6 * SEGMENT_BYTES;
/// Keys that every batch writes; the next one counts recoveries.
const KEYS: u64 = 3;
const BATCHES: u64 = 6;
const READS: usize = 10;

/// Notes of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Note {
    /// So many batches are there.
    Wrote(u64),
    /// A key was as this batch leaves it, or a later one.
    Saw(u64),
}

type Sessions = Arc<Mutex<Vec<Option<Session<Without<Crashable>>>>>>;

/// What batch `number` leaves of `key`, from 1 on: in turn each key is deleted, every fourth time
/// none is.
fn left(number: u64, key: u64) -> Option<Vec<u8>> {
    let is_there = number > 0 && number % (KEYS + 1) != key;
    is_there.then(|| vec![number as u8; if number.is_multiple_of(2) { 20 } else { 100 }])
}

/// Contents after `number` batches.
fn state(number: u64) -> Contents {
    (0..KEYS).filter_map(|key| Some((key, left(number, key)?))).collect()
}

fn share(opening: Opening, memory: &Crashable, sessions: &Sessions) {
    opening.make(memory);
    let map = opening.open(memory, 1);
    let all = (0..opening.writers).map(|_| Some(map.session())).collect();
    *sessions.lock().unwrap_or_else(PoisonError::into_inner) = all;
}

fn taken(sessions: &Sessions, thread: usize) -> Session<Without<Crashable>> {
    let mut all = sessions.lock().unwrap_or_else(PoisonError::into_inner);
    all[thread].take().expect("a session made by setup")
}

fn write(session: &mut Session<Without<Crashable>>, log: &Log<Note>) {
    for number in 1..=BATCHES {
        let batch = |session: &mut Session<_>| {
            for key in 0..KEYS {
                match left(number, key) {
                    Some(value) => session.put(&key.to_be_bytes(), &value, None)?,
                    None => drop(session.delete(&key.to_be_bytes())?),
                }
            }
            Ok::<_, Error>(())
        };
        session.atomic(batch).expect("there is room");
        session.commit().expect("commit");
        log.note(Note::Wrote(number));
    }
}

/// Looks at a key in one of the ways there are; a scan alone waits for a locked bucket outside of the
/// memory.
fn look(
    session: &mut Session<Without<Crashable>>,
    key: u64,
    random: &mut Random,
) -> Option<Vec<u8>> {
    let name = key.to_be_bytes();
    let mut found = None;
    match random.below(3) {
        0 => found = session.get(&name, |value| value.bytes.to_vec()).expect("get"),
        1 => {
            let tell = |_, value: Option<terrace_store::Value<'_>>| {
                found = value.map(|value| value.bytes.to_vec());
            };
            session.multi_get(&[&name], tell).expect("multi_get");
        }
        _ => {
            let keep = |value: Option<terrace_store::Value<'_>>| {
                found = value.map(|value| value.bytes.to_vec());
                Change::Keep
            };
            session.update(&name, keep).expect("update");
        }
    }
    found
}

fn read(session: &mut Session<Without<Crashable>>, log: &Log<Note>, random: &mut Random) {
    // An acknowledged read of one key proves the whole batch.
    let mut least = 0;
    for _ in 0..READS {
        let key = random.below(KEYS);
        let found = look(session, key, random);
        session.commit().expect("commit");
        let as_found = |number: &u64| left(*number, key) == found;
        least = (least..=BATCHES).find(as_found).expect("what a batch not before leaves");
        log.note(Note::Saw(least));
    }
}

pub(in super::super) fn explorer(
    without: Leaves,
    fault: Option<Fault>,
    settings: &Settings,
) -> Explorer<Note> {
    let opening = Opening { without, fault, writers: 2, ..Opening::new(Design::Logs, settings) };
    let seed = settings.seed;
    let sessions = Sessions::default();
    let [shared, to_write, to_read] = [(); 3].map(|()| Arc::clone(&sessions));
    Explorer::new(settings.domain, MEMORY_BYTES)
        .setup(move |memory| share(opening, memory, &shared))
        .thread(move |_, log| write(&mut taken(&to_write, 0), log))
        .thread(move |_, log| read(&mut taken(&to_read, 1), log, &mut Random(seed ^ 1 << 32)))
        .recover(move |memory| recover(&opening, memory, 1 + memory.crashes(), KEYS))
        .check(move |memory, notes: &[Noted<Note>]| {
            let (mut wrote, mut saw) = (0, 0);
            for note in notes {
                match note.event {
                    Note::Wrote(number) => wrote = number,
                    Note::Saw(number) => saw = number,
                }
            }
            let mut found = contents(&opening.open(memory, 2 + memory.crashes()))?;
            found.remove(&KEYS);
            // The batch under way may be there, or not.
            let told = wrote.max(saw);
            if (told..=wrote + 1).any(|number| found == state(number)) {
                return Ok(());
            }
            Err(format!("{wrote} batches written, {saw} seen: found {found:?}"))
        })
        .crashes(2)
}
