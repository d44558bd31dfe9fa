//! Which orders of a block have to do with each other.
//!
//! A cluster is a set of orders that share accounts, directly or by way of others: a connected component. The orders
//! of a cluster are executed in block order; clusters have no account in common, so they may be executed in any.
//! Miller (algorithm 13) compares all pairs of orders, which suits a device; here each account remembers who had
//! it last, which costs a processor a few nanoseconds an account. Both find the same ([`Clusters::by_pairs`]).

use super::orders::Orders;
use crate::ledger::accounts::Slot;

/// The accounts of a block, numbered from 0 in the order in which they are met.
pub(super) struct Locals {
    /// Where the accounts of each order begin; one more than there are orders.
    starts: Vec<u32>,
    /// Accounts of the orders, by number.
    of_orders: Vec<u32>,
    /// Lines plus 1 and numbers, found by line; a power of two.
    table: Vec<(u32, u32)>,
    slots: Vec<Slot>,
}

impl Locals {
    pub fn of<O: Orders>(orders: &O) -> Locals {
        let (mut starts, mut met) = (Vec::with_capacity(orders.len() + 1), Vec::new());
        for order in 0..orders.len() {
            starts.push(met.len() as u32);
            orders.each_account(order, |slot| met.push(slot.line()));
        }
        starts.push(met.len() as u32);
        let table = vec![(0, 0); (2 * met.len()).next_power_of_two().max(16)];
        let mut locals = Locals { starts, of_orders: met, table, slots: Vec::new() };
        for at in 0..locals.of_orders.len() {
            locals.of_orders[at] = locals.number_anew(locals.of_orders[at]);
        }
        locals
    }

    fn place(&self, line: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut at = (u64::from(line).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while !matches!(self.table[at].0, 0) && self.table[at].0 != line.wrapping_add(1) {
            at = (at + 1) & mask;
        }
        at
    }

    fn number_anew(&mut self, line: u32) -> u32 {
        let at = self.place(line);
        if self.table[at].0 == 0 {
            self.table[at] = (line + 1, self.slots.len() as u32);
            self.slots.push(Slot::of_line(line));
        }
        self.table[at].1
    }

    /// How many accounts.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The number of an account of the block.
    pub fn number(&self, slot: Slot) -> u32 {
        self.table[self.place(slot.line())].1
    }

    /// The account of a number.
    pub fn slot(&self, number: u32) -> Slot {
        self.slots[number as usize]
    }

    /// Those of an order, one perhaps several times.
    pub fn of_order(&self, order: usize) -> &[u32] {
        &self.of_orders[self.starts[order] as usize..self.starts[order + 1] as usize]
    }
}

/// Sets that are united; the name of each is its smallest member.
pub(super) struct Sets(Vec<u32>);

impl Sets {
    /// Each alone.
    pub fn new(members: usize) -> Sets {
        Sets((0..members as u32).collect())
    }

    /// The name of a member's set. Halves the path to it.
    pub fn find(&mut self, mut member: u32) -> u32 {
        while self.0[member as usize] != member {
            let above = self.0[self.0[member as usize] as usize];
            self.0[member as usize] = above;
            member = above;
        }
        member
    }

    /// Makes one set of two; its name.
    pub fn unite(&mut self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.find(a), self.find(b));
        let (low, high) = (a.min(b), a.max(b));
        self.0[high as usize] = low;
        low
    }
}

/// The orders of a block by cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// The first order of each order's cluster.
    first: Vec<u32>,
    /// Orders, those of a cluster side by side and in block order.
    members: Vec<u32>,
    /// Where each cluster begins in them, in the order of their first orders; one more than there are.
    starts: Vec<u32>,
}

impl Clusters {
    /// By the accounts, one after another.
    pub(super) fn of<O: Orders>(orders: &O) -> Clusters {
        let locals = Locals::of(orders);
        let mut sets = Sets::new(orders.len());
        let mut last_with: Vec<u32> = vec![u32::MAX; locals.len()];
        for order in 0..orders.len() {
            for account in locals.of_order(order) {
                let last = std::mem::replace(&mut last_with[*account as usize], order as u32);
                if last != u32::MAX {
                    sets.unite(last, order as u32);
                }
            }
        }
        Clusters::gather(sets)
    }

    /// By all pairs of orders, as published: their number squared in comparisons.
    pub(super) fn by_pairs<O: Orders>(orders: &O) -> Clusters {
        let mut accounts: Vec<Vec<u32>> = vec![Vec::new(); orders.len()];
        for (order, accounts) in accounts.iter_mut().enumerate() {
            orders.each_account(order, |slot| accounts.push(slot.line()));
        }
        let mut sets = Sets::new(orders.len());
        for late in 0..orders.len() {
            for early in 0..late {
                if accounts[late].iter().any(|account| accounts[early].contains(account)) {
                    sets.unite(early as u32, late as u32);
                }
            }
        }
        Clusters::gather(sets)
    }

    fn gather(mut sets: Sets) -> Clusters {
        let first: Vec<u32> = (0..sets.0.len() as u32).map(|order| sets.find(order)).collect();
        let mut sizes = vec![0u32; first.len()];
        first.iter().for_each(|first| sizes[*first as usize] += 1);
        // Where the next member of each cluster goes, by its first order.
        let (mut next, mut starts, mut end) = (vec![0u32; first.len()], Vec::new(), 0);
        for (order, size) in sizes.iter().enumerate().filter(|(_, size)| **size > 0) {
            next[order] = end;
            starts.push(end);
            end += size;
        }
        starts.push(end);
        let mut members = vec![0u32; first.len()];
        for (order, first) in first.iter().enumerate() {
            members[next[*first as usize] as usize] = order as u32;
            next[*first as usize] += 1;
        }
        Clusters { first, members, starts }
    }

    /// How many clusters there are.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are none, of a block without orders.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The orders of a cluster, in block order; the first of them is its name.
    pub fn members(&self, cluster: usize) -> &[u32] {
        &self.members[self.starts[cluster] as usize..self.starts[cluster + 1] as usize]
    }

    /// The first order of an order's cluster.
    pub fn first_of(&self, order: usize) -> u32 {
        self.first[order]
    }

    /// Orders of the largest cluster: no execution by clusters is faster than these, one after another.
    pub fn longest(&self) -> usize {
        (0..self.len()).map(|cluster| self.members(cluster).len()).max().unwrap_or(0)
    }
}
