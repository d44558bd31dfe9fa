//! Readers of a persistent index, without a map, in every schedule of up to two preemptions: what one observed of an
//! entry survives, although it takes no lock and its writer may not have made it durable yet.
//!
//! A map would hide most of this: what an index has lost, its values make good.

use super::Settings;
use super::exhaustive::Exhaustive;
use super::exhaustive::Explored;
use super::index::{self, Media, Numbered, budget, location, reserved};
use super::left_out::{Leaves, LeftOut};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_index::{Change, HashIndex, hash_key};
use terrace_machine::{Explorer, Noted, Report, Without};

/// The key that is looked for, and what becomes of it: of each the number of a write, or none.
const KEY: u64 = 100;
const HISTORY: [Option<u64>; 4] = [Some(0), Some(1), None, Some(2)];
/// Entries of a bucket that has no overflow line yet.
const SLOTS: u64 = 7;

/// How a reader looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// At one key.
    Get,
    /// As batches of lookups do: at the line's candidate first.
    Candidate,
    /// At one key whose entry is in an overflow line.
    Overflow,
    /// At one key whose entry moves out of its overflow line, which others need then.
    Moving,
}

/// A place in [`HISTORY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The write was acknowledged.
    Done(usize),
    /// A reader was.
    Saw(usize),
}

type Shared = Arc<Mutex<Option<Arc<HashIndex<Media>>>>>;

/// All keys share a bucket.
fn hash(key: u64) -> u64 {
    hash_key(7, &key.to_be_bytes()) & !0xfff
}

fn set(index: &HashIndex<Media>, key: u64, number: Option<u64>) {
    let change = |_| number.map_or(Change::Remove, |number| Change::Set(location(key, number)));
    index.update(hash(key), &key.to_be_bytes(), &Numbered(hash), change).expect("room");
}

fn looked_up(index: &HashIndex<Media>, look: Look) -> Option<u64> {
    let line = index.line(hash(KEY));
    let candidate = if look == Look::Candidate { line.candidate(hash(KEY)) } else { None };
    let found = candidate
        .filter(|at| index::key_of(*at) == KEY)
        .or_else(|| index.get(hash(KEY), &KEY.to_be_bytes(), &Numbered(hash)));
    found.map(|at| at >> 16)
}

/// Every write has another number, so a value identifies its write.
fn instant(found: Option<u64>) -> Result<usize, String> {
    let known = HISTORY.iter().position(|then| *then == found);
    known.ok_or_else(|| format!("{found:?} was never there"))
}

pub(super) fn explorer(look: Look, settings: &Settings) -> Exhaustive<Note> {
    explorer_on(Without::nothing, look, settings)
}

fn explorer_on(without: Leaves, look: Look, settings: &Settings) -> Exhaustive<Note> {
    let shared = Shared::default();
    let handed = |shared: &Shared| {
        let index = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        index.expect("made by setup")
    };
    let (made, written, read) = (Arc::clone(&shared), Arc::clone(&shared), shared);
    let explorer = Explorer::new(settings.domain, 2 * index::PART_BYTES)
        .setup(move |memory| {
            let kept = HashIndex::persistent(reserved(Without::nothing(memory.clone())), &budget());
            let kept = kept.expect("an index");
            let is_behind = matches!(look, Look::Overflow | Look::Moving);
            let before = if is_behind { SLOTS } else { 1 };
            (0..before).for_each(|key| set(&kept, key, Some(0)));
            set(&kept, KEY, HISTORY[0]);
            let tried = HashIndex::repair(reserved(without(memory.clone())), &budget());
            let tried = Arc::new(tried.expect("the index"));
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(tried);
        })
        .thread(move |_, log| {
            let index = handed(&written);
            if look == Look::Moving {
                let others = [(0, None), (1, None), (2 * KEY, Some(0)), (3 * KEY, Some(0))];
                others.iter().for_each(|(key, number)| set(&index, *key, *number));
                return;
            }
            for (instant, number) in HISTORY.iter().enumerate().skip(1) {
                set(&index, KEY, *number);
                log.note(Note::Done(instant));
            }
        })
        .thread(move |_, log| {
            let index = handed(&read);
            let seen = instant(looked_up(&index, look)).expect("what was there");
            log.note(Note::Saw(seen));
        })
        .check(move |memory, notes: &[Noted<Note>]| {
            let index = HashIndex::repair(reserved(without(memory.clone())), &budget());
            let found = instant(looked_up(&index.map_err(|e| e.to_string())?, Look::Get))?;
            let told = notes.iter().map(|note| match note.event {
                Note::Done(instant) | Note::Saw(instant) => instant,
            });
            match told.max().filter(|told| *told > found) {
                Some(told) => Err(format!("state {told} was acknowledged, {found} is there")),
                None => Ok(()),
            }
        });
    Exhaustive(explorer)
}

/// The reader's own write-back left out: whole lines, where no bucket is split.
fn unsettled(look: Look, settings: &Settings) -> Report {
    let unsettled: Leaves = |m| Without::nothing(m).write_backs(|_, n| n == 64);
    explorer_on(unsettled, look, settings).left_out(settings)
}

const READER_SETTLES: LeftOut = LeftOut {
    test: "kept-index-look",
    name: "ReaderSettles",
    meaning: "an entry read in a locked bucket is durable before the read is acknowledged",
    run: |s| unsettled(Look::Get, s),
};

pub(super) const STEPS: &[LeftOut] = &[
    READER_SETTLES,
    LeftOut {
        test: "kept-index-look-behind",
        run: |s| unsettled(Look::Overflow, s),
        ..READER_SETTLES
    },
];
