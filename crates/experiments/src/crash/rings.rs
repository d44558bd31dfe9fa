//! The bounded ring under crashes: two producers and two consumers in every schedule that is drawn, elements of
//! one slot and of two, wrapped around. What the threads were told and what recovery leaves must have an
//! order: nothing acknowledged is lost, nothing comes back after its pop returned, first in is first out.

use super::exhaustive::Explored;
use super::histories::history;
use super::rings_published as published;
use super::{Control, Settings};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_lockfree::ring::{Step, Steps};
use terrace_lockfree::{Form, Ring, RingOptions};
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_memory::{Domain, Part, lab};
use terrace_workload::linearizability::durable::{Moment, Queue, QueueCall, Verdict, check};

pub(super) type Note = Moment<QueueCall, Option<u64>>;
type Crashed = Ring<Part<Crashable>, Part<Crashable>>;
type Shared = Arc<Mutex<Option<Arc<Crashed>>>>;

/// Slots of two lines: 112 bytes of an element each.
const SLOTS: u64 = 6;
const SLOT_BYTES: u64 = 128;
/// Bytes of the elements of a producer: one, two and one slots.
pub(super) const LENGTHS: [usize; 3] = [40, 180, 100];
const PRODUCERS: usize = 2;
/// Elements that each of two consumers takes.
const TAKEN: usize = 2;
/// The thread that checks the state after recovery.
const READER: usize = 9;
/// Numbers from here on are pushed by recoveries.
pub(super) const OF_RECOVERY: u64 = 1000;
/// Steps for the order of a dozen operations.
const BUDGET: u64 = 2_000_000;

/// The scenario, and the step that it leaves out.
#[derive(Clone, Copy)]
struct Plan {
    form: Form,
    domain: Domain,
    steps: Steps,
}

fn options(form: Form) -> RingOptions {
    RingOptions { form, slots: SLOTS, slot_bytes: SLOT_BYTES, write_back: false }
}

/// The ring, its turns, and a line in which recoveries say how many elements they found.
fn places(memory: &Crashable) -> (Part<Crashable>, Part<Crashable>, u64) {
    let bytes = options(Form::TxFree).bytes().next_multiple_of(64);
    let turns = options(Form::TxFree).turn_bytes().next_multiple_of(64);
    let part = |start, bytes| Part::new(memory.clone(), start, bytes);
    (part(0, bytes), part(bytes, turns), bytes + turns)
}

impl Plan {
    fn new(form: Form, settings: &Settings) -> Plan {
        Plan { form, domain: settings.domain, steps: Steps::ALL }
    }

    fn open(self, memory: &Crashable) -> Result<(Crashed, u64), String> {
        let (slots, turns, _) = places(memory);
        let opened = Ring::open_with(slots, turns, self.form, false, self.steps);
        opened.map(|(ring, found)| (ring, found.elements)).map_err(|e| e.to_string())
    }
}

/// An element that is the same as others but for its number, so that mixtures of two may pass for one.
pub(super) fn element(number: u64, bytes: usize) -> Vec<u8> {
    let mut element = vec![7; bytes];
    element[..8].copy_from_slice(&number.to_le_bytes());
    element
}

pub(super) fn number(element: &[u8]) -> Result<u64, String> {
    let known = element.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let whole = known
        .filter(|number| LENGTHS.iter().any(|bytes| *element == self::element(*number, *bytes)));
    whole.ok_or_else(|| format!("{element:?} is no element that was pushed"))
}

fn push(ring: &Crashed, memory: &Crashable, log: &Log<Note>, number: u64, bytes: usize) {
    log.note(Moment::Called(QueueCall::Enqueue(number)));
    while ring.try_push(&element(number, bytes)).is_err() {
        lab::pause(memory);
    }
    log.note(Moment::Returned(None));
}

/// Takes elements until it has as many as it wants.
fn take(ring: &Crashed, memory: &Crashable, log: &Log<Note>) {
    let mut taken = 0;
    while taken < TAKEN {
        log.note(Moment::Called(QueueCall::Dequeue));
        let found = ring.try_pop().map(|bytes| number(&bytes).expect("a whole element"));
        log.note(Moment::Returned(found));
        taken += usize::from(found.is_some());
        if found.is_none() {
            lab::pause(memory);
        }
    }
}

/// Whether the operations noted before the crash and the remaining elements are linearizable.
pub(super) fn judge(notes: &[Noted<Note>], left: &[u64]) -> Result<(), String> {
    let mut history = history(notes);
    history.crash();
    for found in left.iter().map(|number| Some(*number)).chain([None]) {
        history.call(READER, QueueCall::Dequeue);
        history.returned(READER, found);
    }
    match check(&Queue, &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { .. } => Err(format!("not decided in {BUDGET} steps")),
    }
}

/// The remaining elements without those that recoveries pushed behind them.
pub(super) fn left(popped: impl Iterator<Item = Vec<u8>>) -> Result<Vec<u64>, String> {
    let all = popped.map(|bytes| number(&bytes)).collect::<Result<Vec<u64>, String>>()?;
    let own = all.iter().position(|number| *number >= OF_RECOVERY).unwrap_or(all.len());
    match all[own..].iter().all(|number| *number >= OF_RECOVERY) {
        true => Ok(all[..own].to_vec()),
        false => Err(format!("{all:?}: behind what a recovery pushed")),
    }
}

/// What recoveries found, who say it durably in a line of their own, is what is left.
pub(super) fn check_said(said: u64, left: &[u64]) -> Result<(), String> {
    match said.checked_sub(1) {
        Some(found) if found != left.len() as u64 => {
            Err(format!("a recovery found {found} elements, the next one {left:?}"))
        }
        _ => Ok(()),
    }
}

/// Says durably how many elements were found, the first time.
pub(super) fn say(memory: &Crashable, said: u64, elements: u64) {
    if memory.load(said) == 0 {
        memory.store(said, elements + 1);
        memory.persist(said, 8);
    }
}

/// Opens the ring, says durably how many elements it found the first time, and pushes one if there is room.
fn recover(plan: Plan, memory: &Crashable) {
    let (ring, elements) = plan.open(memory).expect("a crash is no damage");
    say(memory, places(memory).2, elements);
    // Without room there is nothing to push; holes take room too.
    let _full = ring.try_push(&element(OF_RECOVERY + memory.crashes() as u64, LENGTHS[2]));
}

fn explorer(plan: Plan) -> Explorer<Note> {
    let shared = Shared::default();
    let made = Arc::clone(&shared);
    let (.., said) = (0, options(plan.form).bytes() + options(plan.form).turn_bytes());
    let mut explorer = Explorer::new(plan.domain, said + 256)
        .setup(move |memory| {
            let (slots, turns, _) = places(memory);
            drop(Ring::create(slots, turns, options(plan.form)).expect("a ring"));
            let ring = plan.open(memory).expect("the ring").0;
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(ring));
        })
        .recover(move |memory| recover(plan, memory))
        .check(move |memory, notes: &[Noted<Note>]| {
            let ring = plan.open(memory)?.0;
            let left = left(std::iter::from_fn(|| ring.try_pop()))?;
            check_said(memory.load(places(memory).2), &left)?;
            judge(notes, &left)
        })
        .crashes(2);
    let handed = |shared: &Shared| {
        let ring = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ring.expect("made by setup")
    };
    for producer in 0..PRODUCERS {
        let shared = Arc::clone(&shared);
        explorer = explorer.thread(move |memory, log| {
            let ring = handed(&shared);
            for (turn, bytes) in LENGTHS.iter().enumerate() {
                push(&ring, memory, log, (10 * producer + turn) as u64, *bytes);
            }
        });
    }
    for _ in 0..2 {
        let shared = Arc::clone(&shared);
        explorer = explorer.thread(move |memory, log| take(&handed(&shared), memory, log));
    }
    explorer
}

pub(super) fn tx(settings: &Settings) -> Explorer<Note> {
    explorer(Plan::new(Form::Tx, settings))
}

pub(super) fn tx_free(settings: &Settings) -> Explorer<Note> {
    explorer(Plan::new(Form::TxFree, settings))
}

/// Every step of a form left out in turn; of the form without transactions, the published recovery too.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let form = if test == "ring-tx" { Form::Tx } else { Form::TxFree };
    let mut all = Vec::new();
    let mut add = |control: Control| {
        tell(&control);
        all.push(control);
    };
    let of_form = |step: &&Step| step.form() == "both" || test == format!("ring-{}", step.form());
    for step in Step::ALL.iter().filter(of_form) {
        let steps = Steps::ALL.without(&[*step]);
        let explore = |s: &Settings| explorer(Plan { steps, ..Plan::new(form, s) }).left_out(s);
        add(Control::of(&format!("{step:?}"), step.meaning(), test, settings, explore));
    }
    if form == Form::TxFree {
        let explore = |s: &Settings| published::explorer().left_out(s);
        let meaning = "recovery follows the slots, not each thread's last position (as published)";
        add(Control::of("PublishedRecovery", meaning, "ring-published", settings, explore));
    }
    all
}
