//! The checker's own test: good histories are accepted, planted violations rejected.
//!
//! A checker that always says yes passes every store, and one that says no too easily is soon
//! ignored. Violations are planted so that no order can explain them, whatever else overlaps:
//! values are unique, and what is contradicted had returned before what contradicts it was called.
#![allow(clippy::unwrap_used)]

use terrace_workload::history::{Call, Operation, Response};
use terrace_workload::linearizability::simulate::{Shape, VALUE_STEP, linearizable};
use terrace_workload::linearizability::{DEFAULT_BUDGET, Verdict, check};
use terrace_workload::random::Rng;

/// At least so many of each kind of violation.
const PLANTED: usize = 1_000;

fn shape(rng: &mut Rng) -> Shape {
    Shape {
        clients: 1 + rng.below(8) as u32,
        keys: 1 + rng.below(6),
        operations: 20 + rng.below(280) as usize,
        lost_one_in: [0, 10, 40, 200][rng.below(4) as usize],
    }
}

fn rejects(history: &[Operation]) -> bool {
    match check(history, DEFAULT_BUDGET) {
        Verdict::Violation(violation) => {
            let text = violation.to_string();
            assert!(text.contains("no order explains"));
            true
        }
        other => {
            println!("{other:?}");
            false
        }
    }
}

/// Plants with `plant` in simulated histories, one of its places each, until enough were planted.
fn check_planted(seed: u64, plant: impl Fn(&mut Vec<Operation>, &mut Rng) -> bool) {
    let mut rng = Rng::new(seed);
    let (mut planted, mut tried) = (0, 0u64);
    while planted < PLANTED {
        tried += 1;
        assert!(tried < 200_000, "too few places to plant in: {planted} of {tried}");
        let case = seed << 32 | tried;
        let mut history = linearizable(shape(&mut rng), case);
        if plant(&mut history, &mut rng) {
            assert!(rejects(&history), "seed {case}: planted violation accepted");
            planted += 1;
        }
    }
    println!("{planted} planted in {tried} histories");
}

/// A random element satisfying `wanted`.
fn pick(
    history: &[Operation],
    rng: &mut Rng,
    wanted: impl Fn(&Operation) -> bool,
) -> Option<usize> {
    let found: Vec<usize> = (0..history.len()).filter(|i| wanted(&history[*i])).collect();
    (!found.is_empty()).then(|| found[rng.below(found.len() as u64) as usize])
}

fn returned_before(first: &Operation, second: &Operation) -> bool {
    first.returned.is_some_and(|(at, _)| at < second.called_at)
}

#[test]
fn good_histories_are_accepted() {
    let mut rng = Rng::new(1);
    for seed in 0..5_000 {
        let history = linearizable(shape(&mut rng), seed);
        let verdict = check(&history, DEFAULT_BUDGET);
        assert!(verdict.is_linearizable(), "seed {seed}: {verdict:?}");
    }
}

#[test]
fn long_entangled_histories_are_decided() {
    for seed in 0..40 {
        let shape = Shape { clients: 8, keys: 4, operations: 10_000, lost_one_in: 500 };
        let verdict = check(&linearizable(shape, seed), DEFAULT_BUDGET);
        assert!(verdict.is_linearizable(), "seed {seed}: {verdict:?}");
    }
}

/// A read returns a value that had been overwritten before the read was called.
#[test]
fn stale_reads_are_rejected() {
    check_planted(2, |history, rng| {
        let read = |o: &Operation| o.call == Call::Get && o.returned.is_some();
        let Some(get) = pick(history, rng, read) else {
            return false;
        };
        let get_at = history[get];
        let write = |o: &Operation| o.key == get_at.key && matches!(o.call, Call::Put(_));
        let Some(newer) = pick(history, rng, |o| write(o) && returned_before(o, &get_at)) else {
            return false;
        };
        let newer = history[newer];
        let Some(older) = pick(history, rng, |o| write(o) && returned_before(o, &newer)) else {
            return false;
        };
        let Call::Put(stale) = history[older].call else { unreachable!() };
        history[get].returned = Some((get_at.returned.unwrap().0, Response::Value(Some(stale))));
        true
    });
}

/// Two increments, one after the other, are told the same sum: one was lost.
#[test]
fn lost_updates_are_rejected() {
    check_planted(3, |history, rng| {
        // Only sums that grew from a unique value: after a delete, small sums may repeat.
        let sum = |o: &Operation| match (o.call, o.returned) {
            (Call::Increment(_), Some((_, Response::Value(Some(sum))))) => Some(sum),
            _ => None,
        };
        let unique = |o: &Operation| sum(o).is_some_and(|sum| sum >= VALUE_STEP);
        let Some(first) = pick(history, rng, unique) else {
            return false;
        };
        let first = history[first];
        let after = |o: &Operation| o.key == first.key && unique(o) && returned_before(&first, o);
        let Some(second) = pick(history, rng, after) else {
            return false;
        };
        let at = history[second].returned.unwrap().0;
        history[second].returned = Some((at, Response::Value(sum(&first))));
        true
    });
}

/// A write was acknowledged, nothing else was called on the key, and a later read finds what was
/// there before.
#[test]
fn forgotten_writes_are_rejected() {
    check_planted(4, |history, rng| {
        let put = |o: &Operation| matches!(o.call, Call::Put(_)) && o.returned.is_some();
        let Some(put) = pick(history, rng, put) else {
            return false;
        };
        let put = history[put];
        let read_after =
            |o: &Operation| o.key == put.key && o.call == Call::Get && returned_before(&put, o);
        let Some(get) = pick(history, rng, read_after) else {
            return false;
        };
        // Nobody removed the key, so absence is a lie if the put happened at all.
        let removes = |o: &Operation| {
            o.key == put.key
                && matches!(o.call, Call::Delete | Call::CompareAndSet { new: None, .. })
        };
        if history.iter().any(removes) {
            return false;
        }
        let at = history[get].returned.map_or(u64::MAX, |(at, _)| at);
        history[get].returned = Some((at, Response::Value(None)));
        true
    });
}

/// A read returns what nobody wrote.
#[test]
fn phantom_values_are_rejected() {
    check_planted(5, |history, rng| {
        let read = |o: &Operation| o.call == Call::Get && o.returned.is_some();
        let Some(get) = pick(history, rng, read) else {
            return false;
        };
        let at = history[get].returned.unwrap().0;
        history[get].returned = Some((at, Response::Value(Some(-77))));
        true
    });
}

/// An open write was seen, so it cannot be left out: a recorder that drops operations without a
/// return leaves a value that nobody wrote.
#[test]
fn dropped_open_operations_are_rejected() {
    check_planted(6, |history, rng| {
        let seen = |open: &Operation| {
            let Call::Put(value) = open.call else {
                return false;
            };
            open.returned.is_none()
                && history.iter().any(|o| {
                    o.key == open.key
                        && o.call == Call::Get
                        && matches!(o.returned, Some((_, Response::Value(Some(v)))) if v == value)
                })
        };
        let Some(open) = pick(history, rng, seen) else {
            return false;
        };
        history.remove(open);
        true
    });
}

/// An open write may happen once, at any time; it cannot be seen, overwritten and seen again.
#[test]
fn open_operations_that_happen_twice_are_rejected() {
    check_planted(7, |history, rng| {
        let open = |o: &Operation| matches!(o.call, Call::Put(_)) && o.returned.is_none();
        let Some(open) = pick(history, rng, open) else {
            return false;
        };
        let open = history[open];
        let Call::Put(value) = open.call else { unreachable!() };
        let tells = |o: &Operation| {
            o.key == open.key
                && o.call == Call::Get
                && matches!(o.returned, Some((_, Response::Value(Some(v)))) if v == value)
        };
        let Some(seen) = pick(history, rng, tells) else {
            return false;
        };
        let seen = history[seen];
        let over = |o: &Operation| {
            o.key == open.key && matches!(o.call, Call::Put(_)) && returned_before(&seen, o)
        };
        let Some(over) = pick(history, rng, over) else {
            return false;
        };
        let over = history[over];
        let late =
            |o: &Operation| o.key == open.key && o.call == Call::Get && returned_before(&over, o);
        let Some(again) = pick(history, rng, late) else {
            return false;
        };
        let at = history[again].returned.map_or(u64::MAX, |(at, _)| at);
        history[again].returned = Some((at, Response::Value(Some(value))));
        true
    });
}

#[test]
fn a_small_budget_gives_no_verdict() {
    let shape = Shape { clients: 8, keys: 1, operations: 1_000, lost_one_in: 0 };
    assert_eq!(check(&linearizable(shape, 1), 100), Verdict::Undecided { key: 0 });
}

#[test]
fn open_writes_explain_and_are_never_required() {
    let operation =
        |client, call, called_at, returned| Operation { client, key: 0, call, called_at, returned };
    let get = |at, value| operation(2, Call::Get, at, Some((at + 1, Response::Value(value))));
    let open = operation(1, Call::Put(5), 0, None);
    assert!(check(&[open, get(1, None), get(3, Some(5))], 1000).is_linearizable());
    assert!(check(&[open, get(1, None), get(3, None)], 1000).is_linearizable());
    assert!(rejects(&[open, get(1, Some(5)), get(3, None)]));
    assert!(rejects(&[operation(1, Call::Put(5), 0, Some((1, Response::Flag(true))))]));
}

/// Whether some order explains the operations, by trying all.
fn explained_by_trying(operations: &[Operation], state: Option<i64>) -> bool {
    let returns = operations.iter().filter_map(|o| Some(o.returned?.0));
    let Some(first_return) = returns.min() else {
        return true;
    };
    (0..operations.len()).filter(|i| operations[*i].called_at < first_return).any(|i| {
        let (next, tells) = operations[i].call.apply(state);
        let mut others = operations.to_vec();
        let taken = others.remove(i);
        taken.returned.is_none_or(|(_, response)| response == tells)
            && explained_by_trying(&others, next)
    })
}

/// Small histories of few values, half of them with an answer changed: what the search says is
/// what trying every order says.
#[test]
fn the_search_agrees_with_trying_every_order() {
    let mut rng = Rng::new(8);
    let mut verdicts = [0; 2];
    for _ in 0..60_000 {
        let mut history = small_history(&mut rng);
        if rng.one_in(2) {
            let i = rng.below(history.len() as u64) as usize;
            if let Some((at, Response::Value(_))) = history[i].returned {
                let value = Some(rng.below(5) as i64).filter(|value| *value > 0);
                history[i].returned = Some((at, Response::Value(value)));
            } else if let Some((at, Response::Flag(flag))) = history[i].returned {
                history[i].returned = Some((at, Response::Flag(!flag)));
            }
        }
        let expected = explained_by_trying(&history, None);
        let verdict = check(&history, DEFAULT_BUDGET);
        assert_eq!(verdict.is_linearizable(), expected, "{verdict:?} of {history:#?}");
        verdicts[usize::from(expected)] += 1;
    }
    assert!(verdicts.iter().all(|n| *n > 5_000), "{verdicts:?}");
}

/// Up to 8 overlapping operations on one key, with values 1 to 3 and a third of them open.
fn small_history(rng: &mut Rng) -> Vec<Operation> {
    let shape = Shape { clients: 4, keys: 1, operations: 8, lost_one_in: 3 };
    let mut history = linearizable(shape, rng.bits());
    let mut small = |value: i64| {
        if value < VALUE_STEP { value } else { 1 + rng.below(3) as i64 }
    };
    for operation in &mut history {
        operation.call = match operation.call {
            Call::Put(value) => Call::Put(small(value)),
            Call::Swap(value) => Call::Swap(small(value)),
            Call::CompareAndSet { expected, new } => {
                Call::CompareAndSet { expected: expected.map(&mut small), new: new.map(&mut small) }
            }
            call => call,
        };
    }
    // What is told follows from one order: that of the returns, open ones at their calls.
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|i| history[*i].returned.map_or(history[*i].called_at, |(at, _)| at));
    let mut state = None;
    for i in order {
        let (next, response) = history[i].call.apply(state);
        state = next;
        history[i].returned = history[i].returned.map(|(at, _)| (at, response));
    }
    history
}
