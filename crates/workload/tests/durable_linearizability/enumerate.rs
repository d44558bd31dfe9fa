//! Whether some order explains a history, by trying all of them: the definition, word for word, with
//! none of the search's reductions, and of all parts together.

use std::collections::BTreeMap;
use terrace_workload::linearizability::durable::{History, Operation, Specification};

type Parts<S> = BTreeMap<u64, <S as Specification>::State>;

/// Whether some order explains the history.
pub fn has_an_order<S: Specification>(
    specification: &S,
    history: &History<S::Call, S::Response>,
) -> bool {
    let mut eras: Vec<Vec<&Operation<S::Call, S::Response>>> = Vec::new();
    for era in 0..=history.crashes().len() {
        let from = if era == 0 { 0 } else { history.crashes()[era - 1] };
        let to = history.crashes().get(era).copied().unwrap_or(u64::MAX);
        let within = |o: &&Operation<_, _>| (from..to).contains(&o.called_at);
        eras.push(history.operations().iter().filter(within).collect());
    }
    let starts = vec![Parts::<S>::new()];
    let ends = eras.iter().enumerate().fold(starts, |starts, (era, operations)| {
        let mut ends = Vec::new();
        for start in starts {
            let unasked = specification.unasked();
            orders(specification, operations, &start, unasked.as_ref(), &mut ends);
        }
        if era + 1 < eras.len() {
            let crash = |parts: Parts<S>| -> Parts<S> {
                parts.into_iter().map(|(part, state)| (part, specification.crash(&state))).collect()
            };
            ends = ends.into_iter().map(crash).collect();
        }
        let mut distinct: Vec<Parts<S>> = Vec::new();
        ends.into_iter().for_each(|end| {
            if !distinct.contains(&end) {
                distinct.push(end);
            }
        });
        distinct
    });
    !ends.is_empty()
}

/// Adds every state in which an order of `left` may end to `ends`.
fn orders<S: Specification>(
    specification: &S,
    left: &[&Operation<S::Call, S::Response>],
    parts: &Parts<S>,
    unasked: Option<&S::Call>,
    ends: &mut Vec<Parts<S>>,
) {
    let apply = |call: &S::Call| {
        let part = specification.part(call);
        let mut parts = parts.clone();
        let state = parts.entry(part).or_insert_with(|| specification.start());
        let (next, response) = specification.apply(state, call);
        *state = next;
        (parts, response)
    };
    if left.iter().all(|operation| operation.response.is_none()) {
        ends.push(parts.clone());
    }
    if let Some(call) = unasked {
        orders(specification, left, &apply(call).0, None, ends);
    }
    let first_return = left
        .iter()
        .filter(|o| o.response.is_some())
        .filter_map(|o| o.ended_at)
        .min()
        .unwrap_or(u64::MAX);
    for (i, operation) in left.iter().enumerate() {
        if operation.called_at > first_return {
            continue;
        }
        let (next, response) = apply(&operation.call);
        if operation.response.as_ref().is_none_or(|wanted| *wanted == response) {
            let others: Vec<_> = [&left[..i], &left[i + 1..]].concat();
            orders(specification, &others, &next, unasked, ends);
        }
    }
}
