//! In which order a key was written: read from the longest list of it, since each list is a beginning of that.

use super::{Anomaly, Operation, Outcome, Transaction};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An element of a key.
type Element = (u64, u64);

/// Who appended an element.
#[derive(Clone, Copy)]
struct Author {
    transaction: usize,
    /// How many the transaction had appended to the key before, and whether this was its last.
    place: usize,
    is_last: bool,
}

/// How a key was written.
#[derive(Default)]
pub(super) struct Order {
    /// Who wrote it, one after the other.
    pub writers: Vec<usize>,
    /// Who wrote it for certain, and nobody read that: they come after all.
    pub unread: Vec<usize>,
}

/// What a transaction found of a key that others had written.
pub(super) struct Found {
    pub reader: usize,
    pub key: u64,
    /// How many of the key's writers it saw.
    pub writers: usize,
}

/// What follows from a history without looking for cycles.
pub(super) struct Known {
    pub orders: BTreeMap<u64, Order>,
    pub found: Vec<Found>,
}

impl Known {
    /// # Errors
    /// What is wrong without a cycle.
    pub fn of(history: &[Transaction]) -> Result<Known, Anomaly> {
        let (authors, keys) = authors(history);
        let mut read = Vec::new();
        for (reader, transaction) in history.iter().enumerate() {
            for (key, list) in lists_of_others(reader, transaction, &keys)? {
                read.push((reader, key, list));
            }
        }
        let mut longest: BTreeMap<u64, (usize, &[u64])> = BTreeMap::new();
        for (reader, key, list) in &read {
            let longest = longest.entry(*key).or_insert((*reader, list));
            if longest.1.len() < list.len() {
                *longest = (*reader, list);
            }
        }
        let mut orders = BTreeMap::new();
        for (key, (reader, list)) in &longest {
            check_list(history, &authors, (*reader, *key), list)?;
            orders.insert(*key, Order::of(*key, list, &authors));
        }
        let found = read.iter().map(|(reader, key, list)| {
            let (other, longest) = longest[key];
            if !longest.starts_with(list) {
                return Err(Anomaly::Diverged { reader: *reader, other, key: *key });
            }
            let writers = match list.last() {
                None => 0,
                Some(last) => {
                    let author = authors[&(*key, *last)];
                    if !author.is_last {
                        let (reader, writer) = (*reader, author.transaction);
                        return Err(Anomaly::Part { reader, writer, key: *key });
                    }
                    let writers = &orders[key].writers;
                    1 + writers.iter().position(|of| *of == author.transaction).unwrap_or(0)
                }
            };
            Ok(Found { reader: *reader, key: *key, writers })
        });
        let found = found.collect::<Result<_, _>>()?;
        add_unread(history, &authors, &longest, &mut orders);
        Ok(Known { orders, found })
    }
}

impl Order {
    fn of(key: u64, list: &[u64], authors: &HashMap<Element, Author>) -> Order {
        let mut writers: Vec<usize> =
            list.iter().map(|element| authors[&(key, *element)].transaction).collect();
        writers.dedup();
        Order { writers, unread: Vec::new() }
    }
}

/// Who appended what; and all keys that are named.
fn authors(history: &[Transaction]) -> (HashMap<Element, Author>, Vec<u64>) {
    let mut authors: HashMap<Element, Author> = HashMap::new();
    let mut keys = HashSet::new();
    for (number, transaction) in history.iter().enumerate() {
        let mut last: HashMap<u64, (usize, u64)> = HashMap::new();
        for operation in &transaction.operations {
            match operation {
                Operation::Append { key, element } => {
                    keys.insert(*key);
                    let place = last.get(key).map_or(0, |(place, _)| place + 1);
                    if let Some((_, before)) = last.insert(*key, (place, *element)) {
                        authors.entry((*key, before)).and_modify(|author| author.is_last = false);
                    }
                    let author = Author { transaction: number, place, is_last: true };
                    authors.insert((*key, *element), author);
                }
                Operation::Read { key, .. } => drop(keys.insert(*key)),
                Operation::Range { lists, .. } => keys.extend(lists.keys()),
            }
        }
    }
    let mut keys: Vec<u64> = keys.into_iter().collect();
    keys.sort_unstable();
    (authors, keys)
}

/// What a transaction read, without what it had appended itself; each key once.
fn lists_of_others<'a>(
    reader: usize,
    transaction: &'a Transaction,
    keys: &[u64],
) -> Result<BTreeMap<u64, &'a [u64]>, Anomaly> {
    let mut own: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut of_others: BTreeMap<u64, &[u64]> = BTreeMap::new();
    let mut take = |key: u64, list: &'a [u64], own: &HashMap<u64, Vec<u64>>| {
        let own = own.get(&key).map_or(&[][..], Vec::as_slice);
        let others = list.strip_suffix(own).filter(|others| {
            // What it had appended must not be missing, nor what was there before be another.
            of_others.get(&key).is_none_or(|before| before == others)
        });
        let others = others.ok_or(Anomaly::Changed { reader, key })?;
        of_others.insert(key, others);
        Ok(())
    };
    for operation in &transaction.operations {
        match operation {
            Operation::Append { key, element } => own.entry(*key).or_default().push(*element),
            Operation::Read { key, list } => take(*key, list, &own)?,
            Operation::Range { first, last, lists } => {
                for key in keys.iter().filter(|key| (first..=last).contains(key)) {
                    take(*key, lists.get(key).map_or(&[], Vec::as_slice), &own)?;
                }
            }
        }
    }
    Ok(of_others)
}

/// Each element was appended once, by one that was not aborted, and a transaction's stand together.
fn check_list(
    history: &[Transaction],
    authors: &HashMap<Element, Author>,
    (reader, key): (usize, u64),
    list: &[u64],
) -> Result<(), Anomaly> {
    let mut seen = HashSet::new();
    let mut before: Option<Author> = None;
    for element in list {
        if !seen.insert(element) {
            return Err(Anomaly::Twice { reader, key, element: *element });
        }
        let author = authors.get(&(key, *element)).copied();
        let author = author.ok_or(Anomaly::Invented { reader, key, element: *element })?;
        if history[author.transaction].outcome == Outcome::Aborted {
            return Err(Anomaly::Aborted { reader, writer: author.transaction, key });
        }
        // The next of the same transaction, or the first of another after the last of this.
        let follows = match before {
            Some(before) if !before.is_last => {
                (author.transaction, author.place) == (before.transaction, before.place + 1)
            }
            _ => author.place == 0,
        };
        if !follows {
            let writer = before.filter(|before| !before.is_last).unwrap_or(author).transaction;
            return Err(Anomaly::Part { reader, writer, key });
        }
        before = Some(author);
    }
    Ok(())
}

/// Committed writes that are in no list come after all that are.
fn add_unread(
    history: &[Transaction],
    authors: &HashMap<Element, Author>,
    longest: &BTreeMap<u64, (usize, &[u64])>,
    orders: &mut BTreeMap<u64, Order>,
) {
    let read: HashSet<Element> = longest
        .iter()
        .flat_map(|(key, (_, list))| list.iter().map(|element| (*key, *element)))
        .collect();
    for (element, author) in authors.iter().filter(|(element, _)| !read.contains(element)) {
        let is_there = history[author.transaction].outcome == Outcome::Committed;
        let order = orders.entry(element.0).or_default();
        // A part of it may be in a list: it is among the writers then.
        if is_there && author.is_last && !order.writers.contains(&author.transaction) {
            order.unread.push(author.transaction);
        }
    }
}
