//! A word table through the store's opening: two threads insert, remove and look at the same few keys of two
//! buckets, and what they were told and what recovery found must be durably linearizable.
//!
//! The lists themselves are tried step by step in `lists`. Here it is what the store makes of them: the form that
//! was asked for is the one that is made and recovered, in the right memories. The controls leave out what all
//! forms rely on: write-backs, and fences.

use super::exhaustive::Explored;
use super::histories::history;
use super::{Control, Settings};
use crate::structures::Random;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_lockfree::list::Media;
use terrace_machine::{Crashable, Explorer, Log, Noted, Without};
use terrace_memory::{Domain, Part};
use terrace_store::words::Form;
use terrace_store::{Error, Words, WordsOptions};
use terrace_workload::linearizability::durable::{Moment, Set, SetCall, Verdict, check};

use SetCall::{Add, Contains, Remove};

/// Of each of the two memories.
const PART_BYTES: u64 = 8 << 10;
const KEYS: u64 = 4;
const CAPACITY: u64 = 6;
const OPERATIONS: usize = 6;
/// The thread that reads after recovery.
const READER: usize = 99;
/// Steps for the order of one key's operations.
const BUDGET: u64 = 1_000_000;

pub(super) type Note = Moment<SetCall, bool>;
type Memory = Part<Without<Crashable>>;
type Flawed = fn(Without<Crashable>) -> Without<Crashable>;

/// Log-free lists are for caches that survive.
fn domain(form: Form, settings: &Settings) -> Domain {
    if form == Form::LogFree { Domain::Eadr } else { settings.domain }
}

fn open(
    form: Form,
    memory: &Crashable,
    is_new: bool,
    flawed: Flawed,
) -> Result<Words<Memory>, String> {
    let memory = flawed(Without::nothing(memory.clone()));
    let part = |number: u64| Part::new(memory.clone(), number * PART_BYTES, PART_BYTES);
    let media = match form.has_links_apart() {
        true => Media::two(part(0), part(1)),
        false => Media::one(part(0)),
    };
    let options =
        WordsOptions { form: Some(form), capacity: Some(CAPACITY), ..WordsOptions::default() };
    Words::on(media, is_new, &options).map_err(|e| e.to_string())
}

/// Every value tells its key.
fn value(key: u64) -> u64 {
    key + 100
}

fn run(words: &Words<Memory>, seed: u64, log: &Log<Note>) {
    let mut session = words.session().expect("a session");
    let mut random = Random(seed);
    for _ in 0..OPERATIONS {
        let key = random.below(KEYS);
        let call = match random.below(8) {
            0 => Contains(key),
            1..4 => Remove(key),
            _ => Add(key),
        };
        log.note(Moment::Called(call));
        let told = match call {
            Add(key) => match session.insert(key, value(key)) {
                Ok(told) => told,
                // The operation stays open.
                Err(Error::WordsFull { .. }) => return,
                Err(e) => panic!("{e}"),
            },
            Remove(key) => session.remove(key).is_some(),
            Contains(key) => session.get(key).is_some(),
        };
        log.note(Moment::Returned(told));
    }
}

fn judge(notes: &[Noted<Note>], found: &Words<Memory>) -> Result<(), String> {
    let mut history = history(notes);
    history.crash();
    let mut session = found.session().map_err(|e| e.to_string())?;
    for key in 0..KEYS {
        let held = session.get(key);
        if held.is_some_and(|held| held != value(key)) {
            return Err(format!("key {key} has the value {held:?}"));
        }
        history.call(READER, Contains(key));
        history.returned(READER, held.is_some());
    }
    match check(&Set, &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { .. } => Err(format!("not decided in {BUDGET} steps")),
    }
}

fn explorer_of(form: Form, flawed: Flawed, settings: &Settings) -> Explorer<Note> {
    let shared = Arc::<Mutex<Option<Words<Memory>>>>::default();
    let mut explorer = Explorer::new(domain(form, settings), 2 * PART_BYTES);
    let made = Arc::clone(&shared);
    explorer = explorer.setup(move |memory| {
        // Made without a flaw: only later operations have one.
        drop(open(form, memory, true, |memory| memory).expect("a table"));
        let words = open(form, memory, false, flawed).expect("the table");
        *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
    });
    for thread in 0..2 {
        let shared = Arc::clone(&shared);
        let seed = settings.seed ^ (thread + 1) << 32;
        explorer = explorer.thread(move |_, log| {
            let words = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            run(&words.expect("made by setup"), seed, log);
        });
    }
    explorer
        .recover(move |memory| {
            drop(open(form, memory, false, flawed).expect("a crash is no damage"))
        })
        .check(move |memory, notes: &[Noted<Note>]| {
            judge(notes, &open(form, memory, false, flawed)?)
        })
        .crashes(2)
}

pub(super) fn explorer(form: Form, settings: &Settings) -> Explorer<Note> {
    explorer_of(form, |memory| memory, settings)
}

/// Without write-backs, and without fences; where caches survive there are no write-backs, and order is all that
/// fences are for, which the explorer's stores keep.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let form: Form = test.trim_start_matches("words-").parse().unwrap_or_default();
    if form == Form::LogFree {
        return Vec::new();
    }
    let without: [(&str, &'static str, Flawed); 2] = [
        ("WriteBacks", "what a call tells is written back first", |m| m.write_backs(|_, _| true)),
        ("Fences", "what was written back is waited for before a call tells", Without::fences),
    ];
    let run = |(step, meaning, flawed): (&str, &'static str, Flawed)| {
        let explore = |s: &Settings| explorer_of(form, flawed, s).left_out(s);
        let control = Control::of(step, meaning, test, settings, explore);
        tell(&control);
        control
    };
    without.into_iter().map(run).collect()
}
