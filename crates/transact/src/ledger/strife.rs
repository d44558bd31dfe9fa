//! Strife (Prasaad et al., 2020), which Miller compares with: a few orders are sampled, the accounts around them
//! become clusters, clusters that many orders span are fused, and every order is given to its cluster; what still
//! spans two is left over. Clusters are executed side by side, what was left over afterwards.
//!
//! Strife promises some serial order. For block order an order is left over, too, if one that is left over before it
//! has an account in common with it.

use super::bank::{Plan, Task};
use super::clusters::{Locals, Sets};
use super::orders::{Alone, Orders};
use super::sum::Sum;
use super::worker_pool::Meeting;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_memory::Memory;

/// Orders that are sampled, and the share of two clusters' orders that must span both to fuse them: the figures of
/// the Strife paper.
const SAMPLES: usize = 100;
const FUSE: f64 = 0.2;

/// A block on its way.
#[derive(Default)]
pub(super) struct Strife {
    split: OnceLock<Split>,
    next: AtomicUsize,
}

struct Split {
    clusters: Vec<Vec<u32>>,
    left_over: Vec<u32>,
}

impl Split {
    fn of<O: Orders>(orders: &O) -> Split {
        let locals = Locals::of(orders);
        let (mut sets, mut special) = (Sets::new(locals.len()), vec![false; locals.len()]);
        spot(orders.len(), &locals, &mut sets, &mut special);
        fuse(orders.len(), &locals, &mut sets, &mut special);
        allocate(orders.len(), &locals, sets, special)
    }
}

/// The distinct special clusters of an order; at most three are of interest.
fn specials(order: usize, locals: &Locals, sets: &mut Sets, special: &[bool]) -> Vec<u32> {
    let mut found = Vec::new();
    for account in locals.of_order(order) {
        let set = sets.find(*account);
        if special[set as usize] && !found.contains(&set) {
            found.push(set);
        }
    }
    found
}

/// Unites the accounts of an order; the set is special if one of them was, or if it is to be.
fn unite(
    order: usize,
    locals: &Locals,
    sets: &mut Sets,
    special: &mut [bool],
    becomes: bool,
) -> u32 {
    let accounts = locals.of_order(order);
    let is_special = becomes || accounts.iter().any(|a| special[sets.find(*a) as usize]);
    let mut set = accounts[0];
    for account in accounts {
        set = sets.unite(set, *account);
    }
    let set = sets.find(set);
    special[set as usize] = is_special;
    set
}

fn spot(orders: usize, locals: &Locals, sets: &mut Sets, special: &mut [bool]) {
    // Every so-many-th: a block is in no order that would matter, and runs stay alike.
    for order in (0..orders).step_by((orders / SAMPLES).max(1)) {
        if specials(order, locals, sets, special).is_empty() {
            unite(order, locals, sets, special, true);
        }
    }
}

fn fuse(orders: usize, locals: &Locals, sets: &mut Sets, special: &mut [bool]) {
    let (mut within, mut across) = (HashMap::<u32, f64>::new(), HashMap::<(u32, u32), f64>::new());
    for order in 0..orders {
        match specials(order, locals, sets, special)[..] {
            [] => {}
            [one] => *within.entry(one).or_default() += 1.0,
            [one, two, ..] => *across.entry((one.min(two), one.max(two))).or_default() += 1.0,
        }
    }
    let mut pairs: Vec<_> = across.into_iter().collect();
    pairs.sort_by_key(|(pair, _)| *pair);
    for ((one, two), both) in pairs {
        let inside = |set| within.get(&set).copied().unwrap_or(0.0);
        if both >= FUSE * (inside(one) + inside(two) + both) {
            let set = sets.unite(one, two);
            special[set as usize] = true;
        }
    }
}

fn allocate(orders: usize, locals: &Locals, mut sets: Sets, mut special: Vec<bool>) -> Split {
    let (mut waits, mut given, mut left_over) = (vec![false; locals.len()], Vec::new(), Vec::new());
    for order in 0..orders {
        let accounts = locals.of_order(order);
        let follows = accounts.iter().any(|account| waits[*account as usize]);
        if follows || specials(order, locals, &mut sets, &special).len() > 1 {
            accounts.iter().for_each(|account| waits[*account as usize] = true);
            left_over.push(order as u32);
        } else {
            unite(order, locals, &mut sets, &mut special, false);
            given.push(order as u32);
        }
    }
    let mut numbers = HashMap::new();
    let mut clusters: Vec<Vec<u32>> = Vec::new();
    for order in given {
        let set = sets.find(locals.of_order(order as usize)[0]);
        let cluster = *numbers.entry(set).or_insert_with(|| {
            clusters.push(Vec::new());
            clusters.len() - 1
        });
        clusters[cluster].push(order);
    }
    Split { clusters, left_over }
}

impl<O: Orders, M: Memory> Plan<O, M> for Strife {
    fn work(&self, task: &Task<O, M>, worker: usize, meeting: &Meeting, sum: &mut Sum) {
        if worker == 0 {
            let _first = self.split.set(Split::of(&task.orders));
        }
        meeting.meet();
        let split = self.split.get().expect("by worker 0");
        let mut alone = Alone { accounts: &task.accounts, sum };
        let mut run = |members: &[u32]| {
            for order in members {
                let status = task.orders.run(*order as usize, &mut alone);
                task.tell(*order as usize, status);
            }
        };
        while let Some(cluster) = split.clusters.get(self.next.fetch_add(1, Relaxed)) {
            run(cluster);
        }
        meeting.meet();
        if worker == 0 {
            run(&split.left_over);
        }
    }
}
