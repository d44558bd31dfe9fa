//! A pool on a disk under crashes: sections appended to a journal, whose sectors, or pages, persist in any order
//! until a sync.
//!
//! Each section pushes a link with a blob of several sectors to a list, frees the oldest beyond a few, and counts
//! itself. Sections sync now and then, and fill the log often enough for checkpoints. What recovery finds must be the
//! list after a number of sections, of which all that were synced, byte by byte, with no object leaked. Every recovery
//! commits and syncs a section of its own, so that what an earlier life left behind the end would be found out.

use super::exhaustive::Explored;
use super::maps::{MEMORY_BYTES, OnDisk, in_lines};
use super::{Control, Settings};
use std::collections::VecDeque;
use terrace_durable::journal::{Step, Steps};
use terrace_durable::plain;
use terrace_durable::sections::{EngineKind, Error, Offset, Options, Pool, Root};
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_memory::Native;
use terrace_store::Durability;
use terrace_workload::random::Rng;

/// Sections of the script.
const SECTIONS: u64 = 14;
/// Links that a list keeps.
const KEPT: usize = 3;
const HEAP_BYTES: u64 = 6 << 12;
const LOG_BYTES: u64 = 4096;
/// Words of a blob: more than a sector.
const BLOB_WORDS: usize = 100;

/// What the thread has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// So many sections.
    Done(u64),
    /// So many are durable.
    Synced(u64),
}

plain! {
    struct Blob {
        words: [u64; BLOB_WORDS],
    }
}
plain! {
    struct Link {
        value: u64,
        blob: Offset<Blob>,
        next: Offset<Link>,
    }
}
plain! {
    struct Head {
        done: u64,
        lives: u64,
        first: Offset<Link>,
    }
}
const HEAD: Root<Head> = Root::new(0);

type List = Pool<Native>;

/// A section in life `life`, the script's being 0.
fn push(pool: &List, life: u64) -> Result<(), Error> {
    pool.section(|tx| {
        let mut head_at = tx.root(HEAD)?;
        if head_at.is_null() {
            head_at = tx.create(&Head { done: 0, lives: 0, first: Offset::NULL })?;
            tx.set_root(HEAD, head_at)?;
        }
        let mut head = tx.get(head_at)?;
        match life {
            0 => head.done += 1,
            _ => head.lives |= 1 << life,
        }
        let value = if life == 0 { head.done } else { 1000 + life };
        let blob = tx.create(&Blob { words: [value; BLOB_WORDS] })?;
        head.first = tx.create(&Link { value, blob, next: head.first })?;
        tx.set(head_at, head)?;
        let mut last = head.first;
        for _ in 1..KEPT {
            let next = tx.get(Link::next(last))?;
            if next.is_null() {
                return Ok(());
            }
            last = next;
        }
        let beyond = tx.get(Link::next(last))?;
        if !beyond.is_null() {
            tx.set(Link::next(last), Offset::NULL)?;
            tx.destroy(tx.get(Link::blob(beyond))?)?;
            tx.destroy(beyond)?;
        }
        Ok(())
    })
}

/// Sections that were done, lives, and the values of the list, the first one first.
type Found = (u64, u64, Vec<u64>);

fn found(pool: &List) -> Result<Found, String> {
    let mut reachable = Vec::new();
    let found = pool.section(|tx| {
        let head_at = tx.root(HEAD)?;
        if head_at.is_null() {
            return Ok((0, 0, Vec::new()));
        }
        reachable.push(head_at.at());
        let head = tx.get(head_at)?;
        let (mut values, mut at) = (Vec::new(), head.first);
        while !at.is_null() && values.len() <= KEPT {
            let link = tx.get(at)?;
            let blob = tx.get(link.blob)?;
            let whole = blob.words.iter().all(|word| *word == link.value);
            values.push(if whole { link.value } else { u64::MAX });
            reachable.extend([at.at(), link.blob.at()]);
            at = link.next;
        }
        Ok::<_, Error>((head.done, head.lives, values))
    });
    let found = found.map_err(|e| e.to_string())?;
    pool.check_reachable(reachable)?;
    Ok(found)
}

/// The list after so many sections of the script, and those of lives.
fn expected(done: u64, lives: u64) -> Vec<u64> {
    let mut list = VecDeque::new();
    let of_lives = (1..64).filter(|life| lives >> life & 1 == 1).map(|life| 1000 + life);
    for value in (1..=done).chain(of_lives) {
        list.push_front(value);
        list.truncate(KEPT);
    }
    list.into()
}

fn options(steps: Steps) -> Options {
    Options::new(EngineKind::Redo).log_bytes(LOG_BYTES).waits(false).journal_steps(steps)
}

fn run(pool: &List, seed: u64, log: &Log<Note>) {
    let mut random = Rng::new(seed);
    for done in 1..=SECTIONS {
        push(pool, 0).expect("room");
        log.note(Note::Done(done));
        if random.below(2) == 0 {
            pool.sync().expect("a sync");
            log.note(Note::Synced(done));
        }
    }
}

/// What recovery may leave: all that was synced, at most one section that was not told, and the last life's.
fn judge(notes: &[Noted<Note>], life: u64, pool: &List) -> Result<(), String> {
    let (done, synced) = notes.iter().fold((0, 0), |(done, synced), note| match note.event {
        Note::Done(done) => (done, synced),
        Note::Synced(synced) => (done, synced),
    });
    let (there, lives, values) = found(pool)?;
    if !(synced..=done + 1).contains(&there) {
        return Err(format!("{done} sections, {synced} of them synced: {there} are there"));
    }
    if lives >> life & 1 == 0 {
        return Err(format!("what life {life} synced is gone: {lives:b}"));
    }
    let expected = expected(there, lives);
    match values == expected {
        true => Ok(()),
        false => Err(format!("after {there} and {lives:b}: {values:?}, expected {expected:?}")),
    }
}

fn explorer(steps: Steps, settings: &Settings) -> Explorer<Note> {
    let disk = OnDisk::new(Durability::Sync, true, settings);
    // What units hold is known to all openings of a disk.
    let made = disk.clone();
    let open = move |memory: &Crashable| {
        let mut medium = disk.medium(memory, false, 1 + memory.crashes() as u32);
        medium.read_all().expect("a disk");
        Pool::open_on_disk(medium, &options(steps))
    };
    let (ran, recovered, looked) = (open.clone(), open.clone(), open);
    let seed = settings.seed;
    Explorer::new(in_lines(settings).domain, MEMORY_BYTES)
        .setup(move |memory| {
            let shape = options(Steps::ALL).disk_shape(HEAP_BYTES).expect("a shape");
            let medium = made.medium(memory, true, 1);
            drop(Pool::create_on_disk(medium, shape, &options(Steps::ALL)).expect("a pool"));
        })
        .thread(move |memory, log| run(&ran(memory).expect("the pool"), seed, log))
        .recover(move |memory| {
            let pool = recovered(memory).expect("a crash is no damage");
            push(&pool, memory.crashes() as u64).expect("room");
            pool.sync().expect("a sync");
        })
        .check(move |memory, notes: &[Noted<Note>]| {
            let pool = looked(memory).map_err(|e| e.to_string())?;
            judge(notes, memory.crashes() as u64, &pool)
        })
        .crashes(2)
}

pub(super) fn disk(settings: &Settings) -> Explorer<Note> {
    explorer(Steps::ALL, settings)
}

/// Every step of the journal left out: the sync of a record, its checksum, the order of state, mark and log among
/// them.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let run = |step: &Step| {
        let steps = Steps::ALL.without(&[*step]);
        let explore = |settings: &Settings| explorer(steps, settings).left_out(settings);
        let control = Control::of(&format!("{step:?}"), step.meaning(), test, settings, explore);
        tell(&control);
        control
    };
    Step::ALL.iter().map(run).collect()
}
