//! A queue mirrored to a disk whose sectors, or pages, persist in any order until a sync.
//!
//! Under `sync` every acknowledged operation survives. Otherwise the queue is as it was at some instant since the last
//! completed checkpoint: buffered durable linearizability. A switch of durability is such a checkpoint too; operations
//! before it, under the weaker promise, come back as they were at one instant.

use super::exhaustive::Explored;
use super::histories::history;
use super::maps::{MEMORY_BYTES, OnDisk, in_lines};
use super::{Control, Settings};
use crate::structures::Random;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_store::{Durability, Queue, QueueOptions};
use terrace_workload::linearizability::durable::{
    Buffered, BufferedCall, Moment, Queue as Specification, QueueCall, Verdict, check,
};

pub(super) type Note = Moment<BufferedCall<QueueCall>, Option<Option<u64>>>;

const OPERATIONS: u64 = 14;
/// The thread that checks the state after recovery.
const READER: usize = 9;
/// Steps for their order.
const BUDGET: u64 = 2_000_000;
/// Never over within a scenario: checkpoints are taken when the script says so.
const NEVER: Durability = Durability::Interval(Duration::from_secs(3600));

fn options(durability: Durability) -> QueueOptions {
    QueueOptions {
        durability,
        capacity_bytes: Some(4 << 10),
        slot_bytes: Some(512),
        largest_bytes: 2000,
        ..QueueOptions::default()
    }
}

/// Of one slot, of two or of four.
fn element(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize([40, 700, 1900][number as usize % 3], 7);
    bytes
}

fn number(bytes: &[u8]) -> Result<u64, String> {
    let known = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let whole = known.filter(|number| bytes == element(*number));
    whole.ok_or_else(|| "what was popped is no element that was pushed".into())
}

fn open(disk: &OnDisk, durability: Durability, memory: &Crashable) -> Result<Queue, String> {
    let medium = disk.medium(memory, false, 1 + memory.crashes() as u32);
    Queue::on(medium, &options(durability)).map_err(|e| e.to_string())
}

/// How a scenario's queue is made durable.
#[derive(Clone, Copy)]
struct Rule {
    durability: Durability,
    /// How it goes over to the other durability, if it does within the script.
    switch: Option<fn(&Queue, Durability) -> terrace_store::Result<()>>,
    /// Whether a sync of the disk does anything.
    syncs: bool,
}

impl Rule {
    fn of(durability: Durability) -> Rule {
        Rule { durability, switch: None, syncs: true }
    }

    /// The durability of an opening: of a queue that switches each in turn.
    fn at(&self, opening: usize) -> Durability {
        match self.switch {
            Some(_) if opening % 2 == 1 => other(self.durability),
            _ => self.durability,
        }
    }
}

fn other(durability: Durability) -> Durability {
    match durability {
        Durability::Sync => NEVER,
        _ => Durability::Sync,
    }
}

fn run(queue: &Queue, rule: Rule, seed: u64, log: &Log<Note>) {
    let mut random = Random(seed);
    let mut durability = rule.durability;
    for turn in 0..OPERATIONS {
        if let Some(switch) = rule.switch
            && turn % 4 == 3
        {
            durability = other(durability);
            log.note(Moment::Called(BufferedCall::Sync));
            switch(queue, durability).expect("a switch");
            log.note(Moment::Returned(None));
        }
        // A script whose syncs were all early would not miss them.
        let syncs = random.below(5) == 0 || turn == OPERATIONS / 2;
        if durability != Durability::Sync && syncs {
            log.note(Moment::Called(BufferedCall::Sync));
            queue.sync().expect("sync");
            log.note(Moment::Returned(None));
        }
        let fits = queue.stats().used_slots + 4 <= queue.stats().slots;
        if fits && random.below(5) < 3 {
            log.note(Moment::Called(BufferedCall::Do(QueueCall::Enqueue(turn))));
            queue.push(&element(turn)).expect("room");
            log.note(Moment::Returned(Some(None)));
        } else {
            log.note(Moment::Called(BufferedCall::Do(QueueCall::Dequeue)));
            let found = queue.pop().expect("pop").map(|bytes| number(&bytes).expect("whole"));
            log.note(Moment::Returned(Some(found)));
        }
        if durability == Durability::Sync {
            // Every operation that has returned is synced.
            log.note(Moment::Called(BufferedCall::Sync));
            log.note(Moment::Returned(None));
        }
    }
}

fn judge(notes: &[Noted<Note>], left: &Queue) -> Result<(), String> {
    let mut history = history(notes);
    history.crash();
    loop {
        let found = left.pop().map_err(|e| e.to_string())?;
        let found = found.map(|bytes| number(&bytes)).transpose()?;
        history.call(READER, BufferedCall::Do(QueueCall::Dequeue));
        history.returned(READER, Some(found));
        if found.is_none() {
            break;
        }
    }
    match check(&Buffered(Specification), &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { .. } => Err(format!("not decided in {BUDGET} steps")),
    }
}

fn explorer(rule: Rule, settings: &Settings) -> Explorer<Note> {
    let durability = rule.durability;
    let disk = OnDisk::new(durability, rule.syncs, settings);
    let (made, recovered, looked) = (disk.clone(), disk.clone(), disk);
    let shared = Arc::<Mutex<Option<Queue>>>::default();
    let handed = Arc::clone(&shared);
    let seed = settings.seed;
    Explorer::new(in_lines(settings).domain, MEMORY_BYTES)
        .setup(move |memory| {
            drop(Queue::on(made.medium(memory, true, 0), &options(durability)).expect("a queue"));
            let queue = open(&made, durability, memory).expect("the queue");
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue);
        })
        .thread(move |_, log| {
            let mut queue = handed.lock().unwrap_or_else(PoisonError::into_inner);
            let queue = queue.take().expect("made by setup");
            run(&queue, rule, seed, log);
            // What an orderly end would write is not in the script.
            queue.abandon();
        })
        .recover(move |memory| {
            let durability = rule.at(memory.crashes());
            open(&recovered, durability, memory).expect("a crash is no damage").abandon();
        })
        .check(move |memory, notes: &[Noted<Note>]| {
            judge(notes, &open(&looked, rule.at(memory.crashes()), memory)?)
        })
        .crashes(2)
}

pub(super) fn disk(settings: &Settings) -> Explorer<Note> {
    explorer(Rule::of(Durability::Sync), settings)
}

pub(super) fn checkpoints(settings: &Settings) -> Explorer<Note> {
    explorer(Rule::of(NEVER), settings)
}

pub(super) fn switches(settings: &Settings) -> Explorer<Note> {
    explorer(switching(), settings)
}

fn switching() -> Rule {
    Rule { switch: Some(Queue::set_durability), ..Rule::of(NEVER) }
}

/// Syncs that do nothing; and a switch that leaves out the checkpoint under the policy that was in force.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let rule = match test {
        "queue-disk" => Rule::of(Durability::Sync),
        "queue-checkpoints" => Rule::of(NEVER),
        _ => switching(),
    };
    let sync = "what was written out is synced before it is acknowledged, or counted on";
    let checkpoint = "what was promised less is whole before every slot that is whole counts";
    let without = [
        ("Sync", sync, Rule { syncs: false, ..rule }),
        (
            "SwitchCheckpoint",
            checkpoint,
            Rule { switch: Some(Queue::switch_without_checkpoint), ..rule },
        ),
    ];
    let has_step = |step: &&(&str, &str, Rule)| step.0 == "Sync" || rule.switch.is_some();
    let run = |(step, meaning, rule): &(&str, &'static str, Rule)| {
        let explore = |s: &Settings| explorer(*rule, s).left_out(s);
        let control = Control::of(step, meaning, test, settings, explore);
        tell(&control);
        control
    };
    without.iter().filter(has_step).map(run).collect()
}
