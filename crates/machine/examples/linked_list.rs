//! A persistent singly-linked list, right and wrong, under the crash explorer.
//!
//! ```sh
//! cargo run --release -p terrace-machine --example linked_list
//! ```
//!
//! A push writes a node, then publishes it in the head. The classical mistake publishes the node
//! before it is durable: after a crash the head may point to memory that was never written. The
//! example explores the right version to the end, finds the mistakes, and prints how many crash
//! states a second that took.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_machine::{Crashable, Explorer, Noted, Report};
use terrace_memory::{Domain, Memory};

/// How a push makes its node durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Push {
    /// Node, write-back, fence, head, write-back, fence.
    Right,
    /// The node is written back only after the head has been stored.
    PublishedFirst,
    /// The node is written back, but no fence orders it before the head.
    FenceForgotten,
}

/// What a thread notes for the check.
#[derive(Clone, Copy, Debug)]
enum Note {
    Pushing(u64),
    Pushed(u64),
}

const HEAD: u64 = 0;
const NODES: u64 = 64;
const BYTES: u64 = 64 * 1024;

/// A list of values against any memory: the head at 0, each node a value and the next node's
/// offset, alone in its line.
struct List<'a, M>(&'a M);

impl<M: Memory> List<'_, M> {
    fn push(&self, node: u64, value: u64, how: Push) {
        let memory = self.0;
        // SAFETY: nodes and head are words inside the memory; the node is the caller's alone until
        // it is published.
        unsafe {
            let mut head = memory.load(HEAD);
            loop {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                bytes[8..].copy_from_slice(&head.to_le_bytes());
                memory.write(node, &bytes);
                match how {
                    Push::Right => memory.persist(node, 16),
                    Push::FenceForgotten => memory.write_back(node, 16),
                    Push::PublishedFirst => {}
                }
                match memory.compare_exchange(HEAD, head, node) {
                    Ok(_) => break,
                    Err(now) => head = now,
                }
            }
            memory.write_back(HEAD, 8);
            if how == Push::PublishedFirst {
                memory.write_back(node, 16);
            }
            memory.fence();
        }
    }

    /// Pushes `values` at once: nodes in any order, one fence for all, then the head.
    fn push_all(&self, first: u64, values: std::ops::Range<u64>) {
        let memory = self.0;
        // SAFETY: as above; one thread.
        unsafe {
            let mut head = memory.load(HEAD);
            let mut node = first;
            for value in values {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                bytes[8..].copy_from_slice(&head.to_le_bytes());
                memory.write(node, &bytes);
                memory.write_back(node, 16);
                (head, node) = (node, node + 64);
            }
            memory.fence();
            memory.store(HEAD, head);
            memory.persist(HEAD, 8);
        }
    }

    /// Zeroes the nodes up to `end` that a crash kept from the list; reads every one of them.
    fn collect(&self, end: u64) {
        let memory = self.0;
        // SAFETY: as above; one thread.
        unsafe {
            let mut reached = Vec::new();
            let mut node = memory.load(HEAD);
            while node != 0 && reached.len() < 1000 {
                reached.push(node);
                node = memory.load(node + 8);
            }
            for node in (NODES..end).step_by(64).filter(|node| !reached.contains(node)) {
                if memory.load(node) != 0 || memory.load(node + 8) != 0 {
                    memory.write(node, &[0; 16]);
                    memory.write_back(node, 16);
                }
            }
            memory.fence();
        }
    }

    /// The values, newest first.
    fn values(&self) -> Vec<u64> {
        let mut values = Vec::new();
        // SAFETY: as above; a wrong offset is a panic of the crashing memory.
        unsafe {
            let mut node = self.0.load(HEAD);
            while node != 0 && values.len() < 1000 {
                values.push(self.0.load(node));
                node = self.0.load(node + 8);
            }
        }
        values
    }
}

/// Every value whose push returned is there; no value that nobody pushed is.
fn check(memory: &Crashable, notes: &[Noted<Note>]) -> Result<(), String> {
    let values = List(memory).values();
    for noted in notes {
        if let Note::Pushed(value) = noted.event
            && !values.contains(&value)
        {
            return Err(format!("{value} was pushed, and the list is {values:?}"));
        }
    }
    let begun = |value: &u64| {
        notes.iter().any(|noted| matches!(noted.event, Note::Pushing(v) if v == *value))
    };
    match values.iter().find(|value| !begun(value)) {
        Some(stranger) => Err(format!("{stranger} in the list {values:?} was never pushed")),
        None => Ok(()),
    }
}

fn explorer(threads: u64, pushes: u64, how: Push) -> Explorer<Note> {
    // Where the next node goes is volatile, and rebuilt by setup.
    let next = Arc::new(AtomicU64::new(NODES));
    let first = next.clone();
    let mut explorer = Explorer::new(Domain::Adr, BYTES)
        .setup(move |_| first.store(NODES, Ordering::Relaxed))
        .check(check);
    for thread in 0..threads {
        let next = next.clone();
        explorer = explorer.thread(move |memory, log| {
            for push in 0..pushes {
                let value = 100 * (thread + 1) + push;
                let node = next.fetch_add(64, Ordering::Relaxed);
                log.note(Note::Pushing(value));
                List(memory).push(node, value, how);
                log.note(Note::Pushed(value));
            }
        });
    }
    explorer
}

/// A batch of pushes; recovery reads all of its nodes, each of which may be there in four ways.
fn batch(pushes: u64) -> Explorer<Note> {
    Explorer::new(Domain::Adr, BYTES)
        .thread(move |memory, log| {
            (1..=pushes).for_each(|value| log.note(Note::Pushing(value)));
            List(memory).push_all(NODES, 1..pushes + 1);
            (1..=pushes).for_each(|value| log.note(Note::Pushed(value)));
        })
        .recover(move |memory| List(memory).collect(NODES + 64 * pushes))
        .check(check)
}

fn show(name: &str, report: &Report) {
    println!("{name}\n  {report}");
    if let Some(failure) = &report.failure {
        println!("{}", failure.to_string().lines().map(|l| format!("  {l}\n")).collect::<String>());
    }
}

fn main() {
    let states: u64 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number"));
    println!("The right push:");
    show("one thread, 8 pushes", &explorer(1, 8, Push::Right).exhaustive(states).assert_sound());
    let two = explorer(2, 2, Push::Right).preemptions(3).exhaustive(states).assert_sound();
    show("two threads, 2 pushes each, at most 3 preemptions", &two);
    let all = batch(12).exhaustive(states).assert_sound();
    show("12 pushes at once, recovery collects lost nodes", &all);
    let sampled = explorer(1, 16, Push::Right).sampled(states, 1).assert_sound();
    show("one thread, 16 pushes, states drawn", &sampled);

    println!("\nThe mistakes:");
    for how in [Push::PublishedFirst, Push::FenceForgotten] {
        let report = explorer(1, 2, how).exhaustive(states);
        show(&format!("{how:?}, one thread"), &report);
        let failure = report.expect_failure();
        let again = explorer(1, 2, how).replay(&failure.replay).expect("a case").expect("fails");
        assert_eq!(again.trace, failure.trace);
    }
    show("FenceForgotten, two threads", &explorer(2, 2, Push::FenceForgotten).sampled(states, 1));
    println!(
        "Crash states a second on one core: {:.0} exhaustively, {:.0} drawn",
        all.states_per_second(),
        sampled.states_per_second()
    );
}
