//! The checker of durable linearizability, checked: histories known to be good and bad, small ones
//! against the trying of every order, long ones made by objects that are right.
#![allow(clippy::unwrap_used)]

mod enumerate;
mod known;
mod simulate;

use simulate::{Shape, simulated};
use terrace_workload::history::Call;
use terrace_workload::linearizability::durable::{
    Buffered, BufferedCall, History, KeyValue, Queue, QueueCall, Set, SetCall, Specification,
    Verdict, check,
};
use terrace_workload::random::Rng;

const BUDGET: u64 = 2_000_000;

fn map_call(rng: &mut Rng, keys: u64, values: u64) -> (u64, Call) {
    let value = 1 + rng.below(values) as i64;
    let call = match rng.below(8) {
        0..3 => Call::Get,
        3..5 => Call::Put(value),
        5 => Call::Delete,
        6 => Call::Swap(value),
        _ => Call::CompareAndSet { expected: Some(value), new: None },
    };
    (rng.below(keys), call)
}

fn set_call(rng: &mut Rng) -> SetCall {
    let number = rng.below(2);
    match rng.below(3) {
        0 => SetCall::Add(number),
        1 => SetCall::Remove(number),
        _ => SetCall::Contains(number),
    }
}

fn queue_call(rng: &mut Rng) -> QueueCall {
    if rng.below(2) == 0 { QueueCall::Enqueue(rng.below(3)) } else { QueueCall::Dequeue }
}

fn buffered_call<C>(rng: &mut Rng, call: impl FnOnce(&mut Rng) -> C) -> BufferedCall<C> {
    if rng.one_in(4) { BufferedCall::Sync } else { BufferedCall::Do(call(rng)) }
}

/// Small simulated histories, half of them with an answer taken from another operation: the verdict
/// is what trying every order says.
fn agrees<S: Specification>(specification: &S, call: impl Fn(&mut Rng) -> S::Call) {
    let mut rng = Rng::new(8);
    let mut verdicts = [0; 2];
    for seed in 0..12_000 {
        let shape = Shape { threads: 3, operations: 7, crash_one_in: 9, unasked_one_in: 6 };
        let made = simulated(specification, shape, seed, &call);
        let history =
            if rng.one_in(2) { simulate::with_an_answer_moved(made, &mut rng) } else { made };
        let expected = enumerate::has_an_order(specification, &history);
        let verdict = check(specification, &history, BUDGET);
        assert_eq!(verdict.is_linearizable(), expected, "seed {seed}: {verdict:?} of {history:#?}");
        verdicts[usize::from(expected)] += 1;
    }
    assert!(verdicts.iter().all(|n| *n > 500), "{verdicts:?}");
}

#[test]
fn the_search_agrees_with_trying_every_order_of_a_map() {
    agrees(&KeyValue, |rng| map_call(rng, 2, 2));
}

#[test]
fn the_search_agrees_with_trying_every_order_of_a_set() {
    agrees(&Set, set_call);
}

#[test]
fn the_search_agrees_with_trying_every_order_of_a_queue() {
    agrees(&Queue, queue_call);
}

#[test]
fn the_search_agrees_with_trying_every_order_of_a_buffered_map() {
    agrees(&Buffered(KeyValue), |rng| buffered_call(rng, |rng| map_call(rng, 2, 2)));
}

#[test]
fn the_search_agrees_with_trying_every_order_of_a_buffered_queue() {
    agrees(&Buffered(Queue), |rng| buffered_call(rng, queue_call));
}

/// What trying every order of a witness finds, too.
#[test]
fn witnesses_are_histories_without_an_order_and_small() {
    let mut rng = Rng::new(9);
    let mut sizes = [0; 8];
    for seed in 0..3_000 {
        let shape = Shape { threads: 3, operations: 40, crash_one_in: 20, unasked_one_in: 0 };
        let made = simulated(&KeyValue, shape, seed, |rng| map_call(rng, 2, 3));
        let history = simulate::with_an_answer_moved(made, &mut rng);
        let Verdict::Violation(witness) = check(&KeyValue, &history, BUDGET) else { continue };
        assert!(witness.to_string().contains("no order explains"), "{witness}");
        assert!(witness.operations.iter().all(|operation| operation.response.is_some()));
        assert!(witness.operations.iter().all(|operation| operation.call.0 == witness.part));
        sizes[witness.operations.len().min(7)] += 1;
    }
    let (all, small): (u32, u32) = (sizes.iter().sum(), sizes[..4].iter().sum());
    assert!(all > 1_000 && small * 10 > all * 8, "{sizes:?}");
    assert_eq!(sizes[0], 0, "a witness has operations");
}

/// 10,000 operations of each of four keys, with crashes.
#[test]
fn long_histories_are_decided() {
    let shape = Shape { threads: 4, operations: 40_000, crash_one_in: 2_000, unasked_one_in: 0 };
    for seed in 0..2 {
        let history = simulated(&KeyValue, shape, seed, |rng| map_call(rng, 4, 1_000_000));
        assert!(history.crashes().len() > 5);
        let verdict = check(&KeyValue, &history, BUDGET);
        assert!(verdict.is_linearizable(), "seed {seed}: {verdict:?}");
        let (worse, stale) = simulate::with_a_stale_read(&history, &mut Rng::new(seed));
        let Verdict::Violation(witness) = check(&KeyValue, &worse, BUDGET) else {
            panic!("seed {seed}: a stale read was accepted")
        };
        // The beginning ends where the read is told the value.
        let last = witness.operations.iter().max_by_key(|operation| operation.ended_at).unwrap();
        assert_eq!(last.called_at, stale, "{witness}");
    }
}

#[test]
fn a_small_budget_gives_no_verdict() {
    let shape = Shape { threads: 4, operations: 100, crash_one_in: 50, unasked_one_in: 0 };
    let history = simulated(&Queue, shape, 1, queue_call);
    assert_eq!(check(&Queue, &history, 20), Verdict::Undecided { part: 0 });
    let nothing: History<QueueCall, Option<u64>> = History::new();
    assert!(check(&Queue, &nothing, 0).is_linearizable());
}
