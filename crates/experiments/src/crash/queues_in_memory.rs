//! The store's queue where it lies in byte-addressable memory, in the forms that survive: two producers and two
//! consumers push and pop through the queue, elements of one slot and of two, and what they were told and what the
//! next opening finds must have an order.
//!
//! The ring is tried step by step in `rings`. Here it is what the store makes of it: the form that was asked for is the
//! one that pushes, pops and recovers, a new form reopens what another left in the middle of a push, and a close
//! that a crash cuts off loses nothing. The controls leave out the ring's steps under the store's opening.

use super::exhaustive::Explored;
use super::rings::{LENGTHS, Note, OF_RECOVERY, check_said, element, judge, left, number, say};
use super::{Control, Settings};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_lockfree::ring::Step;
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_memory::{Part, lab};
use terrace_store::queue::{Form, Steps};
use terrace_store::{Durability, Error, Queue, QueueOptions};
use terrace_workload::linearizability::durable::{Moment, QueueCall};

type Crashed = Queue<Part<Crashable>>;
type Shared = Arc<Mutex<Option<Crashed>>>;

/// A page and six slots of two lines, and turns; memory behind them is not touched.
const RING_BYTES: u64 = 5 << 10;
const TURN_BYTES: u64 = 2 << 10;
/// Where recoveries say how many elements they found.
const SAID: u64 = RING_BYTES + TURN_BYTES;
const PRODUCERS: usize = 2;
/// Elements that each of two consumers takes.
const TAKEN: usize = 2;

/// In which form each opening is, from the one that the threads use on, and what they leave out.
#[derive(Clone, Copy)]
struct Plan {
    forms: &'static [Form],
    steps: Steps,
}

const TX: Plan = Plan { forms: &[Form::Tx], steps: Steps::ALL };
const TX_FREE: Plan = Plan { forms: &[Form::TxFree], steps: Steps::ALL };
/// What a transaction left half done is found by the form that has none, and the other way round.
const TURNS: Plan = Plan { forms: &[Form::TxFree, Form::Tx], steps: Steps::ALL };

impl Plan {
    fn of(test: &str) -> Plan {
        match test {
            "queue-tx" => TX,
            "queue-tx-free" => TX_FREE,
            _ => TURNS,
        }
    }

    /// Whether the lack of a step can be noticed: one of its form is in use.
    fn has(self, step: Step) -> bool {
        let of_form = |form: &Form| step.form() == form.name();
        step.form() == "both" || self.forms.iter().any(of_form)
    }

    fn open(self, memory: &Crashable, is_new: bool) -> Result<Crashed, String> {
        let part = |start, bytes| Part::new(memory.clone(), start, bytes);
        let options = QueueOptions {
            form: self.forms[memory.crashes() % self.forms.len()],
            durability: Durability::Sync,
            capacity_bytes: Some(6 * 128),
            slot_bytes: Some(128),
            largest_bytes: 200,
            ..QueueOptions::default()
        };
        let places = (part(0, RING_BYTES), part(RING_BYTES, TURN_BYTES));
        // Made with every step: only later operations leave one out.
        let steps = if is_new { Steps::ALL } else { self.steps };
        Queue::over(places, is_new, &options, steps).map_err(|e| e.to_string())
    }
}

fn push(queue: &Crashed, memory: &Crashable, log: &Log<Note>, number: u64, bytes: usize) {
    log.note(Moment::Called(QueueCall::Enqueue(number)));
    loop {
        match queue.push(&element(number, bytes)) {
            Ok(()) => break log.note(Moment::Returned(None)),
            Err(Error::QueueFull { .. }) => lab::pause(memory),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Takes elements until it has as many as it wants.
fn take(queue: &Crashed, memory: &Crashable, log: &Log<Note>) {
    let mut taken = 0;
    while taken < TAKEN {
        log.note(Moment::Called(QueueCall::Dequeue));
        let found = queue.pop().expect("pop");
        let found = found.map(|bytes| number(&bytes).expect("a whole element"));
        log.note(Moment::Returned(found));
        taken += usize::from(found.is_some());
        if found.is_none() {
            lab::pause(memory);
        }
    }
}

/// Opens the queue, says durably how many elements it found the first time, pushes one if there is room, and ends in
/// order: the close too may be cut off.
fn recover(plan: Plan, memory: &Crashable) {
    let queue = plan.open(memory, false).expect("a crash is no damage");
    say(memory, SAID, queue.len());
    // Without room there is nothing to push; holes take room too.
    let _full = queue.push(&element(OF_RECOVERY + memory.crashes() as u64, LENGTHS[2]));
    queue.close().expect("nothing to write");
}

fn explorer_of(plan: Plan, settings: &Settings) -> Explorer<Note> {
    let shared = Shared::default();
    let made = Arc::clone(&shared);
    let mut explorer = Explorer::new(settings.domain, SAID + 256)
        .setup(move |memory| {
            plan.open(memory, true).expect("a queue").abandon();
            let queue = plan.open(memory, false).expect("the queue");
            let earlier = made.lock().unwrap_or_else(PoisonError::into_inner).replace(queue);
            // Of a memory that is no more.
            earlier.into_iter().for_each(Queue::abandon);
        })
        .recover(move |memory| recover(plan, memory))
        .check(move |memory, notes: &[Noted<Note>]| {
            let queue = plan.open(memory, false)?;
            let left = left(std::iter::from_fn(|| queue.pop().expect("pop")))?;
            queue.abandon();
            check_said(memory.load(SAID), &left)?;
            judge(notes, &left)
        })
        .crashes(2);
    let handed = |shared: &Shared| {
        let queue = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        queue.expect("made by setup")
    };
    for producer in 0..PRODUCERS {
        let shared = Arc::clone(&shared);
        explorer = explorer.thread(move |memory, log| {
            let queue = handed(&shared);
            for (turn, bytes) in LENGTHS.iter().enumerate() {
                push(&queue, memory, log, (10 * producer + turn) as u64, *bytes);
            }
        });
    }
    for _ in 0..2 {
        let shared = Arc::clone(&shared);
        explorer = explorer.thread(move |memory, log| take(&handed(&shared), memory, log));
    }
    explorer
}

pub(super) fn explorer(test: &str, settings: &Settings) -> Explorer<Note> {
    explorer_of(Plan::of(test), settings)
}

/// Every step of the ring that a form of the test relies on, left out under the store's opening.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let plan = Plan::of(test);
    let run = |step: &Step| {
        let without = Plan { steps: Steps::ALL.without(&[*step]), ..plan };
        let explore = |s: &Settings| explorer_of(without, s).left_out(s);
        let control = Control::of(&format!("{step:?}"), step.meaning(), test, settings, explore);
        tell(&control);
        control
    };
    Step::ALL.iter().filter(|step| plan.has(**step)).map(run).collect()
}
