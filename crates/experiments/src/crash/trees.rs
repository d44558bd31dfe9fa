//! The B+-trees whose leaves are kept: inserts, changed values, removals, splits and merges.
//!
//! After any crash every acknowledged change is there, and of the one under way all or nothing; ranges are
//! in order, each key once; every key that a range meets is found; and the tree takes further writes, that
//! stand after the next crash.

use super::exhaustive::Explored;
use super::index::{Contents, Media, budget};
use super::{Control, Settings};
use crate::structures::Random;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_index::Reserved;
use terrace_index::tree::{Change, Direction, Form, Sixteen, Tree, TreeOptions};
use terrace_machine::{Crashable, Explorer, Noted, Without};
use terrace_memory::{Backing, Memory, Native, Part, Region};

const PART_BYTES: u64 = 64 << 10;
/// Seven slots in four lines: shifts cross lines, and few entries fill a leaf.
const NODE_BYTES: u64 = 256;
const KEYS: u64 = 60;
const KEYS_BEFORE: u64 = 20;
const OPERATIONS: u64 = 80;
/// What a recovery writes.
const MARK: u64 = 1_000;

/// Where inner nodes lie: the trees of the tests differ in it, and in their form.
trait InnerNodes: Memory + Sized {
    fn reserve(memory: &Without<Crashable>) -> Reserved<Self>;
}

fn part(memory: &Without<Crashable>, number: u64) -> Reserved<Media> {
    Reserved {
        memory: Part::new(memory.clone(), number * PART_BYTES, PART_BYTES),
        start: number * PART_BYTES,
        commit: Box::new(|_, _| Ok(())),
    }
}

/// Beside the leaves.
impl InnerNodes for Media {
    fn reserve(memory: &Without<Crashable>) -> Reserved<Media> {
        part(memory, 1)
    }
}

/// In DRAM: gone after a crash.
impl InnerNodes for Native {
    fn reserve(_: &Without<Crashable>) -> Reserved<Native> {
        let region = Region::reserve(PART_BYTES, Backing::Anonymous).expect("address space");
        let memory = region.native();
        Reserved { memory, commit: Box::new(move |at, n| region.commit(at, n)), start: 0 }
    }
}

fn options(form: Form) -> TreeOptions {
    TreeOptions::of(form, NODE_BYTES)
}

fn recovered<N: InnerNodes>(
    form: Form,
    memory: Without<Crashable>,
) -> std::io::Result<Tree<Media, N>> {
    let inner = N::reserve(&memory);
    Tree::recover(&options(form), part(&memory, 0), inner, &Sixteen, 1, &budget())
}

fn key(number: u64) -> [u8; 16] {
    u128::from(number).to_be_bytes()
}

/// Of every other pair of keys both words of the value change, of the rest one.
fn value(key: u64, number: u64) -> [u64; 2] {
    [number + 1, if key / 2 % 2 == 1 { number } else { key }]
}

fn change<N: InnerNodes>(tree: &Tree<Media, N>, of: u64, to: Option<u64>) {
    let change = |_| to.map_or(Change::Remove, |number| Change::Set(value(of, number)));
    tree.update(&key(of), &Sixteen, change).expect("room");
}

/// One key and its number, or that it is removed: at times mostly inserts, at times mostly removals.
fn script(seed: u64) -> Vec<(u64, Option<u64>)> {
    let mut random = Random(seed);
    let operation = |number: u64| {
        let removals = if (number / 20).is_multiple_of(2) { 1 } else { 9 };
        (random.below(KEYS), (random.below(10) >= removals).then_some(number))
    };
    (1..=OPERATIONS).map(operation).collect()
}

/// Contents before a script and after each of its operations.
fn states(before: Contents, operations: &[(u64, Option<u64>)]) -> Vec<Contents> {
    let mut states = vec![before];
    for (key, number) in operations {
        let mut next = states.last().expect("a state").clone();
        match number {
            Some(number) => _ = next.insert(*key, *number),
            None => _ = next.remove(key),
        }
        states.push(next);
    }
    states
}

fn contents<N: InnerNodes>(tree: &Tree<Media, N>) -> Result<Contents, String> {
    let mut met = Vec::new();
    tree.range(Bound::Unbounded, Direction::Up, usize::MAX, &Sixteen, |entries| {
        met.extend(entries.iter().map(|entry| (entry.head as u64, entry.value)));
    });
    if let Some(pair) = met.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(format!("key {} is followed by key {}", pair[0].0, pair[1].0));
    }
    let mut down = Vec::new();
    tree.range(Bound::Unbounded, Direction::Down, usize::MAX, &Sixteen, |entries| {
        down.extend(entries.iter().map(|entry| (entry.head as u64, entry.value)));
    });
    down.reverse();
    if down != met {
        return Err(format!("{} entries from below, {} from above", met.len(), down.len()));
    }
    for (of, found) in &met {
        if tree.get(&key(*of), &Sixteen) != Some(*found) {
            return Err(format!("key {of} is there but not found"));
        }
        if found[0] == 0 || *found != value(*of, found[0] - 1) {
            return Err(format!("key {of} has half a value: {found:?}"));
        }
    }
    if tree.len() != met.len() as u64 {
        return Err(format!("{} entries are counted, {} are there", tree.len(), met.len()));
    }
    Ok(met.into_iter().map(|(key, value)| (key, value[0] - 1)).collect())
}

pub(super) fn explorer(form: Form, settings: &Settings) -> Explorer<usize> {
    explorer_on::<Media>(form, Without::nothing, settings)
}

/// FAST/FAIR with selective persistence.
pub(super) fn selective(settings: &Settings) -> Explorer<usize> {
    explorer_on::<Native>(Form::FastFair, Without::nothing, settings)
}

fn explorer_on<N: InnerNodes>(
    form: Form,
    without: fn(Crashable) -> Without<Crashable>,
    settings: &Settings,
) -> Explorer<usize> {
    let operations = script(settings.seed);
    let states = states((0..KEYS_BEFORE).map(|n| (3 * n, 0)).collect(), &operations);
    let reopened = move |memory: &Crashable| recovered::<N>(form, without(memory.clone()));
    Explorer::new(settings.domain, 2 * PART_BYTES)
        .setup(move |memory| {
            let memory = Without::nothing(memory.clone());
            let inner = N::reserve(&memory);
            let tree = Tree::over(&options(form), part(&memory, 0), inner, &budget());
            let tree = tree.expect("a tree");
            (0..KEYS_BEFORE).for_each(|n| change(&tree, 3 * n, Some(0)));
        })
        .thread(move |memory, log| {
            let tree = reopened(memory).expect("the tree");
            for (done, (key, number)) in operations.iter().enumerate() {
                change(&tree, *key, *number);
                log.note(done + 1);
            }
        })
        .recover(move |memory| {
            // Something is written after each recovery: what it did must stand all the same.
            let tree = reopened(memory).expect("a crash is no damage");
            change(&tree, MARK + memory.crashes() as u64, Some(0));
        })
        .check(move |memory, notes: &[Noted<usize>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let mut found = contents(&reopened(memory).map_err(|e| e.to_string())?)?;
            // What the last recovery wrote is there, and perhaps what one before it did.
            let written = found.split_off(&MARK);
            if written.keys().next_back() != Some(&(MARK + memory.crashes() as u64)) {
                return Err(format!("a recovery wrote, found {written:?}"));
            }
            let allowed = &states[done..states.len().min(done + 2)];
            if allowed.contains(&found) {
                return Ok(());
            }
            Err(format!("after {done} operations: found {found:?}, allowed {allowed:?}"))
        })
        .crashes(2)
}

/// Operations of each of two threads.
const OPERATIONS_OF_THREAD: u64 = 16;

type Shared = Arc<Mutex<Option<Arc<Tree<Media, Media>>>>>;

/// Two threads on neighbouring keys, each with its own: in the same leaves, logs, splits and merges.
pub(super) fn threads(form: Form, settings: &Settings) -> Explorer<usize> {
    let shared = Shared::default();
    let made = Arc::clone(&shared);
    let scripts: [Vec<_>; 2] = std::array::from_fn(|thread| {
        let mut random = Random(settings.seed + thread as u64);
        let key = |n: u64| 2 * n + thread as u64;
        let operation =
            |number| (key(random.below(KEYS / 4)), (random.below(3) > 0).then_some(number));
        (1..=OPERATIONS_OF_THREAD).map(operation).collect()
    });
    let of_thread = |contents: &Contents, thread: usize| -> Contents {
        contents
            .iter()
            .filter(|(key, _)| *key % 2 == thread as u64)
            .map(|(k, n)| (*k, *n))
            .collect()
    };
    let before: Contents = (0..KEYS_BEFORE).map(|key| (key, 0)).collect();
    let allowed: [Vec<Contents>; 2] =
        std::array::from_fn(|thread| states(of_thread(&before, thread), &scripts[thread]));
    let mut explorer = Explorer::new(settings.domain, 2 * PART_BYTES).setup(move |memory| {
        let memory = Without::nothing(memory.clone());
        let inner = Media::reserve(&memory);
        let tree = Tree::over(&options(form), part(&memory, 0), inner, &budget()).expect("a tree");
        (0..KEYS_BEFORE).for_each(|key| change(&tree, key, Some(0)));
        *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tree));
    });
    for script in scripts {
        let shared = Arc::clone(&shared);
        explorer = explorer.thread(move |_, log| {
            let tree = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let tree = tree.expect("made by setup");
            for (done, (key, number)) in script.iter().enumerate() {
                change(&tree, *key, *number);
                log.note(done + 1);
            }
        });
    }
    explorer.check(move |memory, notes: &[Noted<usize>]| {
        let tree = recovered::<Media>(form, Without::nothing(memory.clone()));
        let found = contents(&tree.map_err(|e| e.to_string())?)?;
        for (thread, allowed) in allowed.iter().enumerate() {
            let noted = notes.iter().filter(|note| note.thread == thread);
            let done = noted.map(|note| note.event).max().unwrap_or(0);
            let allowed = &allowed[done..allowed.len().min(done + 2)];
            let found = of_thread(&found, thread);
            if !allowed.contains(&found) {
                return Err(format!(
                    "after {done} operations of thread {thread}: found {found:?}, allowed {allowed:?}"
                ));
            }
        }
        Ok(())
    })
}

struct OmittedStep {
    name: &'static str,
    meaning: &'static str,
    test: &'static str,
    form: Form,
    without: fn(Crashable) -> Without<Crashable>,
}

/// A step by the place and length of its write-backs.
macro_rules! steps {
    ($($test:literal, $form:ident, $name:literal, $meaning:literal, $which:expr;)*) => {
        &[$(OmittedStep {
            name: $name,
            meaning: $meaning,
            test: $test,
            form: Form::$form,
            without: |memory| Without::nothing(memory).write_backs($which),
        }),*]
    };
}

const WORD: u64 = 8;
const ENTRY: u64 = 32;
const LINE: u64 = 64;
const LOGS: u64 = 8;
/// Of a log: its own line and four records.
const LOG_BYTES: u64 = LINE + 4 * (NODE_BYTES + 128);
const LOGS_END: u64 = LINE + LOGS * LOG_BYTES;

const fn is_log_line(at: u64) -> bool {
    at >= LINE && at < LOGS_END && (at - LINE).is_multiple_of(LOG_BYTES)
}

const fn is_record(at: u64) -> bool {
    at >= LINE && at < LOGS_END && (at - LINE) % LOG_BYTES >= LINE
}

/// Bytes of leaves, where there are logs.
const fn is_logged(at: u64, bytes: u64) -> bool {
    at >= LOGS_END && at < PART_BYTES && bytes < NODE_BYTES
}

const STEPS: &[OmittedStep] = steps! {
    "tree-wal", WriteAhead, "LogWriteBack",
        "a record is written back before its words are stored",
        |at, _| is_record(at);
    "tree-wal", WriteAhead, "ApplyWriteBack",
        "words are written back before their record is done",
        is_logged;
    "tree-wal", WriteAhead, "DoneWriteBack",
        "that a record is done is written back before the leaf is let go",
        |at, _| is_log_line(at);
    "tree-wal", WriteAhead, "LeafWriteBack",
        "a new leaf is written back before it is linked",
        |at, n| at > 0 && n == NODE_BYTES;
    "tree-fast-fair", FastFair, "ShiftWriteBack",
        "a line that a shift is done with is written back before the next is changed",
        |at, n| n == LINE && at % LINE == 0;
    "tree-fast-fair", FastFair, "EntryWriteBack",
        "the last line of a shift is written back before the leaf is let go",
        |_, n| n == ENTRY;
    "tree-fast-fair", FastFair, "LeafWriteBack",
        "a new leaf is written back before it is linked",
        |_, n| n == NODE_BYTES;
    "tree-fast-fair", FastFair, "LinkWriteBack",
        "a link is written back before what is behind it is void, or used again",
        |at, n| at >= NODE_BYTES && n == WORD && at % NODE_BYTES == 16;
    "tree-fast-fair", FastFair, "MovedWriteBack",
        "what a split or a merge leaves in the left leaf is written back",
        |at, n| n > ENTRY && n < NODE_BYTES && at % ENTRY == 0 && (n != LINE || at % LINE != 0);
    "tree-unsorted", PersistentUnsorted, "EntryWriteBack",
        "an entry is written back before its bit is set",
        |_, n| n == ENTRY;
    "tree-unsorted", PersistentUnsorted, "BitmapWriteBack",
        "a bitmap is written back before the leaf is let go",
        |at, n| at >= LOGS_END && n == WORD && at % NODE_BYTES == 8;
    "tree-unsorted", PersistentUnsorted, "LeafWriteBack",
        "a new leaf is written back before it is linked",
        |at, n| at > 0 && n == NODE_BYTES;
    "tree-unsorted", PersistentUnsorted, "MovedWriteBack",
        "entries that a merge takes over are written back before their bits are set",
        |_, n| n == NODE_BYTES - ENTRY;
    "tree-unsorted", PersistentUnsorted, "LogWriteBack",
        "a record is written back before its words are stored",
        |at, _| is_record(at);
    "tree-unsorted", PersistentUnsorted, "ApplyWriteBack",
        "words are written back before their record is done",
        |at, n| at >= LOGS_END && n == 2 * WORD;
    "tree-unsorted", PersistentUnsorted, "DoneWriteBack",
        "that a record is done is written back before the leaf is let go",
        |at, _| is_log_line(at);
};

const FENCES: &[(&str, Form)] = &[
    ("tree-wal", Form::WriteAhead),
    ("tree-fast-fair", Form::FastFair),
    ("tree-unsorted", Form::PersistentUnsorted),
];

/// Every step left out in turn.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let fences = FENCES.iter().map(|(test, form)| OmittedStep {
        name: "Fences",
        meaning: "write-backs are done before anything is acknowledged",
        test,
        form: *form,
        without: |memory| Without::nothing(memory).fences(),
    });
    let run = |step: &OmittedStep| {
        let explore = |s: &Settings| explorer_on::<Media>(step.form, step.without, s).left_out(s);
        let control = Control::of(step.name, step.meaning, test, settings, explore);
        tell(&control);
        control
    };
    let fences: Vec<_> = fences.collect();
    STEPS.iter().chain(&fences).filter(|step| step.test == test).map(run).collect()
}
