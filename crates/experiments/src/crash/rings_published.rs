//! The ring as published (Gugnani, section 5.2.2), kept because it loses what was acknowledged.
//!
//! Krizhanovsky's queue: threads say in words of their own where they are at work, and the oldest of these
//! bounds what the others may touch. In persistent memory each thread also notes the position it pushed or
//! popped *last*, and recovery consolidates by these notes. If one thread stalls in a push while another
//! completes several behind it, only the last of those is known: the others are lost although they had
//! returned. Under eADR, for which it was made, stores persist in their order; that does not help.

use super::rings::{Note, judge};
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_memory::{Domain, lab};
use terrace_workload::linearizability::durable::{Moment, QueueCall};

const SLOTS: u64 = 8;
const THREADS: u64 = 3;
/// Elements of each of two producers, and those that the consumer takes.
const PUSHED: u64 = 3;
const TAKEN: usize = 2;

/// Words that all share, a line each.
const HEAD: u64 = 0;
const TAIL: u64 = 64;
const LAST_HEAD: u64 = 128;
const LAST_TAIL: u64 = 192;
const FIRST_SLOT: u64 = 256 + THREADS * 256;
const IDLE: u64 = u64::MAX;

/// The words of a thread, a line each.
#[derive(Clone, Copy)]
enum Own {
    Head,
    Tail,
    Pushed,
    Popped,
}

fn own(thread: u64, word: Own) -> u64 {
    256 + thread * 256 + word as u64 * 64
}

fn slot(position: u64) -> u64 {
    FIRST_SLOT + position % SLOTS * 64
}

fn fetch_add(memory: &Crashable, at: u64) -> u64 {
    loop {
        let word = memory.load(at);
        if memory.compare_exchange(at, word, word + 1).is_ok() {
            return word;
        }
    }
}

/// The least of a shared word and what threads say of themselves.
fn least(memory: &Crashable, shared: u64, word: Own) -> u64 {
    let of_threads = (0..THREADS).map(|thread| memory.load(own(thread, word)));
    of_threads.fold(memory.load(shared), u64::min)
}

fn push(memory: &Crashable, thread: u64, element: u64) {
    memory.store(own(thread, Own::Head), memory.load(HEAD));
    let position = fetch_add(memory, HEAD);
    memory.store(own(thread, Own::Head), position);
    while position >= memory.load(LAST_TAIL) + SLOTS {
        memory.store(LAST_TAIL, least(memory, TAIL, Own::Tail));
        lab::pause(memory);
    }
    memory.store(slot(position), element);
    memory.store(own(thread, Own::Pushed), position + 1);
    memory.store(own(thread, Own::Head), IDLE);
}

fn pop(memory: &Crashable, thread: u64) -> u64 {
    memory.store(own(thread, Own::Tail), memory.load(TAIL));
    let position = fetch_add(memory, TAIL);
    memory.store(own(thread, Own::Tail), position);
    while position >= memory.load(LAST_HEAD) {
        memory.store(LAST_HEAD, least(memory, HEAD, Own::Head));
        lab::pause(memory);
    }
    let element = memory.load(slot(position));
    memory.store(own(thread, Own::Popped), position + 1);
    memory.store(own(thread, Own::Tail), IDLE);
    element
}

/// Last positions that threads have completed, from `from` on, in order.
fn completed(memory: &Crashable, word: Own, from: u64) -> Vec<u64> {
    let positions = (0..THREADS).filter_map(|t| memory.load(own(t, word)).checked_sub(1));
    let mut positions: Vec<u64> = positions.filter(|position| *position >= from).collect();
    positions.sort_unstable();
    positions
}

/// Consolidates as published: pushes that are known move down, elements between known pops move up.
fn recover(memory: &Crashable) {
    let (head, tail) = (least(memory, HEAD, Own::Head), least(memory, TAIL, Own::Tail));
    let pushed = completed(memory, Own::Pushed, head);
    for (to, from) in (head..).zip(&pushed) {
        memory.store(slot(to), memory.load(slot(*from)));
    }
    let popped = completed(memory, Own::Popped, tail);
    let mut to = popped.last().map_or(tail, |last| last + 1);
    for from in (tail..to).rev().filter(|position| !popped.contains(position)) {
        to -= 1;
        memory.store(slot(to), memory.load(slot(from)));
    }
    let head = head + pushed.len() as u64;
    let tail = tail + popped.len() as u64;
    for (at, word) in [(HEAD, head), (LAST_HEAD, head), (TAIL, tail), (LAST_TAIL, tail)] {
        memory.store(at, word);
    }
    reset(memory);
}

fn reset(memory: &Crashable) {
    for thread in 0..THREADS {
        for (word, value) in
            [(Own::Head, IDLE), (Own::Tail, IDLE), (Own::Pushed, 0), (Own::Popped, 0)]
        {
            memory.store(own(thread, word), value);
        }
    }
}

fn produce(memory: &Crashable, log: &Log<Note>, thread: u64) {
    for turn in 0..PUSHED {
        let element = 10 * thread + turn;
        log.note(Moment::Called(QueueCall::Enqueue(element)));
        push(memory, thread, element);
        log.note(Moment::Returned(None));
    }
}

/// Two producers and a consumer, one crash, eADR.
pub(super) fn explorer() -> Explorer<Note> {
    Explorer::new(Domain::Eadr, FIRST_SLOT + SLOTS * 64)
        .setup(reset)
        .thread(|memory, log| produce(memory, log, 0))
        .thread(|memory, log| produce(memory, log, 1))
        .thread(|memory, log| {
            for _ in 0..TAKEN {
                log.note(Moment::Called(QueueCall::Dequeue));
                let found = pop(memory, 2);
                log.note(Moment::Returned(Some(found)));
            }
        })
        .recover(recover)
        .check(|memory, notes: &[Noted<Note>]| {
            let (tail, head) = (memory.load(TAIL), memory.load(HEAD));
            let left: Vec<u64> = (tail..head).map(|at| memory.load(slot(at))).collect();
            judge(notes, &left)
        })
}
