//! Which transaction comes before which, and whether they go round in a circle.

use super::versions::Known;
use super::{Anomaly, Because, Level, Outcome, Transaction};
use std::collections::VecDeque;

/// Something that comes before others: a transaction, or the end of one.
struct Node {
    to: Vec<(usize, Because)>,
}

/// All that must come before something else. First the transactions, then their ends in the order of time, so that
/// each need not name all that began after it.
pub(super) struct Graph {
    nodes: Vec<Node>,
    transactions: usize,
}

impl Graph {
    pub fn of(history: &[Transaction], known: &Known) -> Graph {
        let mut graph = Graph { nodes: Vec::new(), transactions: history.len() };
        graph.nodes.resize_with(history.len(), || Node { to: Vec::new() });
        graph.add_time(history);
        for (key, order) in &known.orders {
            for two in order.writers.windows(2) {
                graph.add(two[0], two[1], Because::OverwrittenBy(*key));
            }
            if let Some(last) = order.writers.last() {
                for unread in &order.unread {
                    graph.add(*last, *unread, Because::OverwrittenBy(*key));
                }
            }
        }
        for found in &known.found {
            let (reader, key, order) = (found.reader, found.key, &known.orders[&found.key]);
            if let Some(writer) = found.writers.checked_sub(1) {
                graph.add(order.writers[writer], reader, Because::ReadBy(key));
            }
            // An aborted one wrote nothing that could come before its own reads.
            match order.writers.get(found.writers) {
                Some(writer) => graph.add(reader, *writer, Because::ReadBefore(key)),
                None => {
                    for writer in &order.unread {
                        graph.add(reader, *writer, Because::ReadBefore(key));
                    }
                }
            }
        }
        graph
    }

    fn add(&mut self, from: usize, to: usize, because: Because) {
        if from != to {
            self.nodes[from].to.push((to, because));
        }
    }

    fn add_time(&mut self, history: &[Transaction]) {
        let is_known = |number: &usize| history[*number].outcome != Outcome::Unknown;
        let mut ends: Vec<usize> = (0..history.len()).filter(is_known).collect();
        ends.sort_unstable_by_key(|number| history[*number].ended);
        for (place, number) in ends.iter().enumerate() {
            let node = self.nodes.len();
            self.nodes.push(Node { to: Vec::new() });
            self.add(*number, node, Because::Time);
            if place > 0 {
                self.add(node - 1, node, Because::Time);
            }
        }
        for (number, transaction) in history.iter().enumerate() {
            let ended = ends.partition_point(|before| history[*before].ended < transaction.began);
            if ended > 0 {
                self.add(history.len() + ended - 1, number, Because::Time);
            }
        }
    }
}

/// Where a search stands: a node, and whether the step to it was a read before a write.
///
/// Snapshot isolation allows circles in which two such steps follow each other, and no others (Cerone and Gotsman,
/// 2016); a search that may not take two in a row finds exactly the others.
fn steps(graph: &Graph, level: Level, state: usize) -> impl Iterator<Item = (usize, Because)> {
    let (node, was_before) = (state / 2, state % 2 == 1);
    graph.nodes[node].to.iter().filter_map(move |(to, because)| {
        let is_before = matches!(because, Because::ReadBefore(_)) && level == Level::Snapshot;
        (!(was_before && is_before)).then_some((to * 2 + usize::from(is_before), *because))
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    No,
    OnPath,
    Done,
}

/// # Errors
/// The shortest circle through a transaction that is on one.
pub(super) fn acyclic(graph: &Graph, level: Level) -> Result<(), Anomaly> {
    let mut seen = vec![Seen::No; graph.nodes.len() * 2];
    for start in (0..seen.len()).step_by(2) {
        if seen[start] != Seen::No {
            continue;
        }
        seen[start] = Seen::OnPath;
        let mut path = vec![(start, steps(graph, level, start))];
        while let Some((state, rest)) = path.last_mut() {
            let state = *state;
            match rest.next() {
                None => {
                    seen[state] = Seen::Done;
                    path.pop();
                }
                Some((to, _)) if seen[to] == Seen::OnPath => {
                    return Err(Anomaly::Cycle(shortest(graph, level, to)));
                }
                Some((to, _)) if seen[to] == Seen::No => {
                    seen[to] = Seen::OnPath;
                    path.push((to, steps(graph, level, to)));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// The shortest way from a state back to it. There is one.
fn shortest(graph: &Graph, level: Level, start: usize) -> Vec<(usize, Because)> {
    let mut came: Vec<Option<(usize, Because)>> = vec![None; graph.nodes.len() * 2];
    let mut next = VecDeque::from([start]);
    while let Some(state) = next.pop_front() {
        if came[start].is_some() {
            break;
        }
        for (to, because) in steps(graph, level, state) {
            if came[to].is_none() {
                came[to] = Some((state, because));
                next.push_back(to);
            }
        }
    }
    let mut circle = Vec::new();
    let mut state = start;
    while let Some((from, because)) = came[state] {
        circle.push((from / 2, because));
        state = from;
        if state == start {
            break;
        }
    }
    circle.reverse();
    // Ends of transactions are no transactions.
    circle.retain(|(node, _)| *node < graph.transactions);
    circle
}
