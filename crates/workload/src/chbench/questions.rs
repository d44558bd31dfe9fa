//! What an analyst asks of the same rows: questions 1 and 3 of ch-benCHmark, the second by two plans, and whether the
//! rows agree with each other.

use super::rows::{self, Customer, District, Line, Order, Row};
use super::{DISTRICTS, Scale, Table, Transact, lost};
use crate::Failure;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Question 1, of the lines with one number: those that were delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many there are.
    pub lines: u64,
    /// Pieces.
    pub quantity: u64,
    /// Cents.
    pub amount: u64,
}

const ALL: (&[u8], &[u8]) = (&[], &[u8::MAX; 16]);

/// Question 1: delivered lines, by their number within the order.
///
/// # Errors
/// The database's.
pub fn groups_of_lines(transaction: &mut impl Transact) -> Result<BTreeMap<u8, Group>, Failure> {
    let (mut groups, mut is_lost) = ([Group::default(); 256], false);
    transaction.range(Table::Line, ALL, &mut |key, bytes| {
        let (Some(line), Some(number)) = (Line::decode(bytes), key.last()) else {
            is_lost = true;
            return false;
        };
        if line.delivered > 0 {
            let group = &mut groups[usize::from(*number)];
            group.lines += 1;
            group.quantity += u64::from(line.quantity);
            group.amount += u64::from(line.amount);
        }
        true
    })?;
    if is_lost {
        return Err(lost(Table::Line));
    }
    Ok((0..=u8::MAX).zip(groups).filter(|(_, group)| group.lines > 0).collect())
}

/// Orders that were entered since the beginning, as the districts count them.
///
/// # Errors
/// The database's.
pub fn orders_seen(transaction: &mut impl Transact, scale: Scale) -> Result<u64, Failure> {
    let mut seen = 0;
    transaction.range(Table::District, ALL, &mut |_, bytes| {
        let next = District::decode(bytes).map_or(0, |district| district.next_order);
        seen += u64::from(next.saturating_sub(scale.customers + 1));
        true
    })?;
    Ok(seen)
}

/// Question 3: what an order that is not delivered will bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revenue {
    /// Cents.
    pub amount: u64,
    /// When it was entered.
    pub entered: i64,
    /// Warehouse, district and number.
    pub order: (u32, u32, u32),
}

/// Customers whose state is among the first of the 676 that there are.
fn is_chosen(customer: &Customer, states: u32) -> bool {
    let [one, other] = customer.state.map(|letter| u32::from(letter - b'A'));
    one * 26 + other < states
}

/// The districts of all warehouses.
fn districts(scale: Scale) -> impl Iterator<Item = (u32, u32)> {
    (1..=scale.warehouses).flat_map(|home| (1..=DISTRICTS).map(move |district| (home, district)))
}

fn span_of((home, district): (u32, u32), from: u32) -> (Vec<u8>, Vec<u8>) {
    (rows::of_district(home, district, from), rows::district(home, district + 1))
}

fn sorted(mut revenues: Vec<Revenue>) -> Vec<Revenue> {
    revenues.sort_unstable_by(|one, other| other.cmp(one));
    revenues
}

/// Question 3 of the customers of the first so many states of 676, by a join that reads: new orders are walked, the
/// order of each is looked up, and, if its customer is chosen, its lines.
///
/// # Errors
/// The database's.
pub fn revenues_by_reads(
    transaction: &mut impl Transact,
    scale: Scale,
    states: u32,
) -> Result<Vec<Revenue>, Failure> {
    let mut revenues = Vec::new();
    for place in districts(scale) {
        let (from, to) = span_of(place, 0);
        let mut new = Vec::new();
        transaction.range(Table::NewOrder, (&from, &to), &mut |key, _| {
            new.push(key.to_vec());
            true
        })?;
        for key in new {
            let order: Order = super::row(transaction, Table::Order, &key)?;
            let customer = rows::of_district(place.0, place.1, order.customer);
            let customer: Customer = super::row(transaction, Table::Customer, &customer)?;
            if !is_chosen(&customer, states) {
                continue;
            }
            let (mut amount, end) = (0, [&key[..], &[u8::MAX]].concat());
            transaction.range(Table::Line, (&key, &end), &mut |_, bytes| {
                amount += Line::decode(bytes).map_or(0, |line| u64::from(line.amount));
                true
            })?;
            let order_of = rows::place(&key).ok_or_else(|| lost(Table::NewOrder))?;
            revenues.push(Revenue { amount, entered: order.entered, order: order_of });
        }
    }
    Ok(sorted(revenues))
}

/// The same by a join of snapshots: of each table all rows that can matter come at once, in the order of their keys,
/// and are merged; whether a customer is chosen is kept in an array.
///
/// # Errors
/// The database's.
pub fn revenues(
    transaction: &mut impl Transact,
    scale: Scale,
    states: u32,
) -> Result<Vec<Revenue>, Failure> {
    // Orders are delivered in their order: those that are not begin with the first new one of each district.
    let mut spans = Vec::new();
    for place in districts(scale) {
        let (from, to) = span_of(place, 0);
        let mut first = None;
        transaction.range(Table::NewOrder, (&from, &to), &mut |key, _| {
            first = rows::place(key);
            false
        })?;
        spans.extend(first.map(|(.., first)| span_of(place, first)));
    }
    let mut chosen = vec![false; (scale.warehouses * DISTRICTS * scale.customers) as usize];
    let number = |(home, district, customer): (u32, u32, u32)| {
        (((home - 1) * DISTRICTS + district - 1) * scale.customers + customer - 1) as usize
    };
    let all: Vec<_> = districts(scale).map(|place| span_of(place, 0)).collect();
    transaction.snapshot(Table::Customer, &all, &mut |_, key, bytes| {
        let is_chosen = Customer::decode(bytes).is_some_and(|of| is_chosen(&of, states));
        let slot = rows::place(key).and_then(|at| chosen.get_mut(number(at)));
        slot.into_iter().for_each(|slot| *slot = is_chosen);
    })?;
    let mut new = Vec::new();
    transaction.snapshot(Table::NewOrder, &spans, &mut |_, key, _| new.extend(rows::place(key)))?;
    let (mut found, mut new) = (Vec::with_capacity(new.len()), new.into_iter().peekable());
    transaction.snapshot(Table::Order, &spans, &mut |_, key, bytes| {
        let (Some(at), Some(order)) = (rows::place(key), Order::decode(bytes)) else { return };
        while new.next_if(|new| *new < at).is_some() {}
        let of = number((at.0, at.1, order.customer));
        if new.peek() == Some(&at) && chosen.get(of) == Some(&true) {
            found.push(Revenue { amount: 0, entered: order.entered, order: at });
        }
    })?;
    let mut next = 0;
    transaction.snapshot(Table::Line, &spans, &mut |_, key, bytes| {
        let Some(at) = rows::place(key) else { return };
        while found.get(next).is_some_and(|revenue| revenue.order < at) {
            next += 1;
        }
        let revenue = found.get_mut(next).filter(|revenue| revenue.order == at);
        if let (Some(revenue), Some(line)) = (revenue, Line::decode(bytes)) {
            revenue.amount += u64::from(line.amount);
        }
    })?;
    Ok(sorted(found))
}

/// Places where the rows do not agree with each other: orders that a district has not counted, lines that an order does
/// not have or lacks, and orders that are to be delivered and are, or the other way.
///
/// # Errors
/// The database's.
pub fn wrong(transaction: &mut impl Transact, scale: Scale) -> Result<u64, Failure> {
    let mut wrong = 0;
    for place in districts(scale) {
        let at: District =
            super::row(transaction, Table::District, &rows::district(place.0, place.1))?;
        let (from, to) = span_of(place, 0);
        let (mut orders, mut new) = (BTreeMap::new(), HashSet::new());
        transaction.range(Table::Order, (&from, &to), &mut |key, bytes| {
            orders.extend(rows::place(key).zip(Order::decode(bytes)));
            true
        })?;
        transaction.range(Table::NewOrder, (&from, &to), &mut |key, _| {
            new.extend(rows::place(key));
            true
        })?;
        let mut lines: HashMap<_, (u8, u8)> = HashMap::new();
        transaction.range(Table::Line, (&from, &to), &mut |key, bytes| {
            let is_delivered = Line::decode(bytes).is_some_and(|line| line.delivered > 0);
            let counted = rows::place(key).map(|at| lines.entry(at).or_default());
            counted.into_iter().for_each(|(all, delivered)| {
                *all += 1;
                *delivered += u8::from(is_delivered);
            });
            true
        })?;
        wrong += u64::from(orders.len() as u32 + 1 != at.next_order);
        wrong += u64::from(lines.len() != orders.len());
        for (key, order) in orders {
            let (all, delivered) = lines.get(&key).copied().unwrap_or_default();
            let is_new = order.carrier == 0;
            let expected = if is_new { 0 } else { all };
            wrong += u64::from(all != order.lines || delivered != expected);
            wrong += u64::from(new.remove(&key) != is_new);
        }
        wrong += new.len() as u64;
    }
    Ok(wrong)
}
