//! Histories of which everybody can see whether they are right.

use terrace_workload::history::{Call, Response};
use terrace_workload::linearizability::durable::{
    Buffered, BufferedCall, History, KeyValue, Queue, QueueCall, Register, Set, SetCall,
    Specification, Verdict, Witness, check,
};

const BUDGET: u64 = 10_000;

type Made<S> = History<<S as Specification>::Call, <S as Specification>::Response>;

fn is_right<S: Specification>(specification: &S, history: &Made<S>) {
    let verdict = check(specification, history, BUDGET);
    assert!(verdict.is_linearizable(), "{verdict:?}");
}

fn witness<S: Specification>(
    specification: &S,
    history: &Made<S>,
) -> Witness<S::Call, S::Response> {
    match check(specification, history, BUDGET) {
        Verdict::Violation(witness) => witness,
        verdict => panic!("{verdict:?} of {history:?}"),
    }
}

/// One thread asks and is told, and nothing else happens meanwhile.
fn ask<C, T>(history: &mut History<C, T>, call: C, response: T) {
    history.call(9, call);
    history.returned(9, response);
}

fn get(value: i64) -> Response {
    Response::Value(Some(value))
}

#[test]
fn a_write_that_returned_survives_a_crash() {
    let mut history = History::new();
    ask(&mut history, Call::Put(1), Response::Done);
    history.crash();
    let mut lost = history.clone();
    ask(&mut history, Call::Get, get(1));
    is_right(&Register, &history);
    ask(&mut lost, Call::Get, Response::Value(None));
    let witness = witness(&Register, &lost);
    assert_eq!((witness.operations.len(), witness.crashes.len()), (2, 1));
    assert!(witness.to_string().contains("crash"), "{witness}");
}

#[test]
fn a_write_pending_at_a_crash_happened_then_or_never() {
    let mut history = History::new();
    ask(&mut history, Call::Put(1), Response::Done);
    history.call(0, Call::Put(2));
    history.crash();
    for value in [1, 2] {
        let mut one = history.clone();
        ask(&mut one, Call::Get, get(value));
        ask(&mut one, Call::Get, get(value));
        is_right(&Register, &one);
    }
    // Not now and then, or first not and then after all.
    for (first, second) in [(1, 2), (2, 1)] {
        let mut both = history.clone();
        ask(&mut both, Call::Get, get(first));
        ask(&mut both, Call::Get, get(second));
        let witness = witness(&Register, &both);
        assert!(witness.operations.iter().all(|o| o.response.is_some()), "{witness}");
    }
    // Without the crash it may happen late.
    let mut open = History::new();
    ask(&mut open, Call::Put(1), Response::Done);
    open.call(0, Call::Put(2));
    ask(&mut open, Call::Get, get(1));
    ask(&mut open, Call::Get, get(2));
    is_right(&Register, &open);
}

#[test]
fn a_value_observed_before_a_crash_survives_it() {
    let mut history = History::new();
    history.call(0, Call::Put(2));
    ask(&mut history, Call::Get, get(2));
    history.crash();
    ask(&mut history, Call::Get, Response::Value(None));
    let witness = witness(&Register, &history);
    assert_eq!(witness.operations.len(), 2, "{witness}");
}

#[test]
fn a_deleted_key_does_not_come_back_at_a_later_crash() {
    let mut history = History::new();
    ask(&mut history, (1, Call::Put(5)), Response::Done);
    ask(&mut history, (2, Call::Put(6)), Response::Done);
    ask(&mut history, (1, Call::Delete), Response::Flag(true));
    history.crash();
    ask(&mut history, (1, Call::Get), Response::Value(None));
    ask(&mut history, (2, Call::Get), get(6));
    is_right(&KeyValue, &history);
    history.crash();
    ask(&mut history, (1, Call::Get), get(5));
    let witness = witness(&KeyValue, &history);
    // The first reading after a crash, or the deletion: either says that the last one is wrong.
    assert_eq!((witness.part, witness.operations.len()), (1, 2), "{witness}");
    assert!(witness.others >= 1, "{witness}");
}

#[test]
fn sets_and_queues_have_their_own_mistakes() {
    let mut twice = History::new();
    twice.call(0, SetCall::Add(3));
    twice.call(1, SetCall::Add(3));
    twice.returned(0, true);
    twice.returned(1, true);
    assert_eq!(witness(&Set, &twice).operations.len(), 2);

    let mut queue = History::new();
    ask(&mut queue, QueueCall::Enqueue(1), None);
    ask(&mut queue, QueueCall::Enqueue(2), None);
    queue.call(0, QueueCall::Dequeue);
    queue.crash();
    // The pending one took the first number, or did not; the second cannot be gone.
    for first in [1, 2] {
        let mut good = queue.clone();
        ask(&mut good, QueueCall::Dequeue, Some(first));
        is_right(&Queue, &good);
    }
    ask(&mut queue, QueueCall::Dequeue, None);
    witness(&Queue, &queue);
}

#[test]
fn a_buffered_object_loses_an_end_and_no_middle() {
    let put = |key, value| BufferedCall::Do((key, Call::Put(value)));
    let read = |key| BufferedCall::Do((key, Call::Get));
    let map = Buffered(KeyValue);
    let mut history = History::new();
    ask(&mut history, put(1, 10), Some(Response::Done));
    ask(&mut history, BufferedCall::Sync, None);
    ask(&mut history, put(1, 11), Some(Response::Done));
    ask(&mut history, put(2, 20), Some(Response::Done));
    history.crash();
    let after = |first: Option<i64>, second: Option<i64>| {
        let mut history = history.clone();
        ask(&mut history, read(1), Some(Response::Value(first)));
        ask(&mut history, read(2), Some(Response::Value(second)));
        history
    };
    for (first, second) in [(Some(10), None), (Some(11), None), (Some(11), Some(20))] {
        is_right(&map, &after(first, second));
    }
    // Synced and lost; the later one there and the earlier gone.
    for (first, second) in [(None, None), (Some(10), Some(20)), (None, Some(20))] {
        witness(&map, &after(first, second));
    }
    // What was lost stays lost.
    let mut history = after(Some(10), None);
    history.crash();
    ask(&mut history, read(1), Some(Response::Value(Some(11))));
    witness(&map, &history);
}

#[test]
#[should_panic(expected = "thread 1 calls while it waits")]
fn a_thread_waits_for_its_return() {
    let mut history: History<Call, Response> = History::new();
    history.call(1, Call::Get);
    history.call(1, Call::Get);
}
