//! Lists whose links survive: TLog with a record for each session, Log-free with none (Gugnani, section 6.2).
//!
//! # What is durable when (TLog)
//! 1. The record (what, key, value, *the node*) and the new node, before the node is linked or marked.
//!    From then on the operation will be redone; so readers may be told of it at once, and write nothing.
//! 2. The link, or the mark, before the record is cleared; the mark before anyone unlinks the node.
//! 3. The link past a removed node, and the cleared record, before the operation ends, and so before any
//!    slot that they name is used again (`epochs`).
//! 4. The link *to* a node, before another is linked behind it: by induction, whatever is durably linked
//!    is durably reachable.
//!
//! # What the published form loses
//! It has neither 4 nor the node in the record: redo finds the node by its key. Then, with two threads:
//! * *(a)* T1 has removed X but not cleared its record, T2 inserts X and is told so: redo removes T2's X;
//! * *(b)* T1 has inserted X but not cleared its record, T2 removes X and is told so: redo inserts X again;
//! * *(c)* T1 has linked X, not durably, T2 inserts Y behind X and is told so: the durable link leads past
//!   both, and redo inserts X alone.
//!
//! And its helpers unlink nodes whose marks are not durable yet. [`NOT_PUBLISHED`](super::step) names what
//! is added here. It costs an insertion one write-back more, and no fence.
//!
//! # Log-free
//! Where caches survive, a store is durable once it is visible: the plain algorithm with fences.

use super::error::{Error, Result};
use super::node::*;
use super::protocol::{Entry, Protocol, fill};
use super::step::Step;
use super::walk;
use terrace_memory::Memory;

/// Words of a session's line of log. `WHAT` is written last.
const WHAT: u64 = 0;
const RECORD_KEY: u64 = 8;
const RECORD_VALUE: u64 = 16;
const RECORD_NODE: u64 = 24;

const NOTHING: u64 = 0;
const INSERT: u64 = 1;
const REMOVE: u64 = 2;

/// A list whose links survive, with a log or without.
#[derive(Debug)]
pub enum Linked<const LOG: bool> {}

/// Sorted lists with a line of log for each session, for any persistence domain.
pub type TLog = Linked<true>;
/// Sorted lists without a log, where caches survive.
pub type LogFree = Linked<false>;

impl<const LOG: bool> Protocol for Linked<LOG> {
    const NAME: &'static str = if LOG { "tlog" } else { "log-free" };
    const NUMBER: u64 = if LOG { 1 } else { 2 };
    const LOGS: bool = LOG;
    const NEEDS_PERSISTENT_CACHES: bool = !LOG;

    fn prepare<M: Memory>(nodes: &Nodes<M>, log: u64, node: u64, entry: Entry, place: &Place) {
        fill(nodes, node, entry, Link::to(place.right, Self::BORN));
        if LOG {
            record(nodes, log, INSERT, entry, node);
            nodes.write_back(log, Step::LogWriteBack);
            nodes.write_back(node, Step::NodeWriteBack);
            if place.before != END {
                nodes.write_back(place.before, Step::IncomingLink);
            }
        }
        nodes.fence(Step::TLogFences);
    }

    fn inserted<M: Memory>(nodes: &Nodes<M>, left: u64, _node: u64) {
        settle::<LOG, M>(nodes, left, Step::LinkWriteBack);
    }

    fn found<M: Memory>(_: &Nodes<M>, _: u64) {}

    fn intend_to_remove<M: Memory>(nodes: &Nodes<M>, log: u64, node: u64) {
        if LOG {
            let entry = Entry { key: nodes.key(node), value: 0 };
            record(nodes, log, REMOVE, entry, node);
            nodes.write_back(log, Step::LogWriteBack);
            nodes.fence(Step::TLogFences);
        }
    }

    fn removed<M: Memory>(nodes: &Nodes<M>, node: u64) {
        settle::<LOG, M>(nodes, node, Step::MarkWriteBack);
    }

    fn before_unlink<M: Memory>(nodes: &Nodes<M>, node: u64) {
        if LOG && nodes.steps.has(Step::HelpedMark) {
            settle::<LOG, M>(nodes, node, Step::HelpedMark);
        }
    }

    fn unlinked<M: Memory>(nodes: &Nodes<M>, left: u64) {
        if LOG {
            settle::<LOG, M>(nodes, left, Step::UnlinkWriteBack);
        }
    }

    fn done<M: Memory>(nodes: &Nodes<M>, log: u64) {
        if LOG {
            nodes.set(log, WHAT, NOTHING);
            settle::<LOG, M>(nodes, log, Step::ClearWriteBack);
        }
    }

    fn sees<M: Memory>(nodes: &Nodes<M>, node: u64) -> bool {
        !nodes.link(node).is_gone()
    }

    fn recover<M: Memory>(nodes: &Nodes<M>) -> Result<()> {
        walk::reopen(nodes)?;
        if LOG { redo(nodes) } else { Ok(()) }
    }
}

/// A line is durable (TLog), or in order (Log-free).
#[inline(always)]
fn settle<const LOG: bool, M: Memory>(nodes: &Nodes<M>, slot: u64, step: Step) {
    if LOG {
        nodes.write_back(slot, step);
    }
    nodes.fence(Step::TLogFences);
}

/// Says what is about to be done. One line, whose stores persist in this order.
fn record<M: Memory>(nodes: &Nodes<M>, log: u64, what: u64, entry: Entry, node: u64) {
    nodes.set(log, RECORD_KEY, entry.key);
    nodes.set(log, RECORD_VALUE, entry.value);
    nodes.set(log, RECORD_NODE, node);
    nodes.set(log, WHAT, what);
}

/// Does again what was under way, removals first: a node whose removal anyone may have seen is not
/// inserted again. Crashes inside of it are repeated: each part is durable before the records are
/// cleared, and does nothing where it was done.
fn redo<M: Memory>(nodes: &Nodes<M>) -> Result<()> {
    let logs = || 1..1 + nodes.shape.logs;
    for log in logs() {
        match nodes.get(log, WHAT) {
            NOTHING | INSERT | REMOVE => {}
            what => return Err(Error::damaged(log, format!("a record of kind {what}"))),
        }
    }
    let under_way = |what| logs().filter(move |log| nodes.get(*log, WHAT) == what);
    under_way(REMOVE).try_for_each(|log| redo_removal(nodes, log))?;
    under_way(INSERT).try_for_each(|log| redo_insertion(nodes, log))?;
    for log in logs().filter(|log| nodes.get(*log, WHAT) != NOTHING) {
        nodes.set(log, WHAT, NOTHING);
        nodes.settle(log);
    }
    Ok(())
}

/// The node that a record names.
fn named<M: Memory>(nodes: &Nodes<M>, log: u64) -> Result<u64> {
    let node = nodes.get(log, RECORD_NODE);
    if nodes.shape.is_node(node) {
        return Ok(node);
    }
    Err(Error::damaged(log, format!("a record of slot {node}, which is no node")))
}

fn redo_removal<M: Memory>(nodes: &Nodes<M>, log: u64) -> Result<()> {
    let place = walk::place_of(nodes, nodes.get(log, RECORD_KEY));
    let node = if nodes.steps.has(Step::LogNamesNode) {
        let node = named(nodes, log)?;
        // Marked even where it is not linked: its insertion may be under way too.
        nodes.set(node, LINK, nodes.link(node).with_state(State::Gone).0);
        nodes.settle(node);
        node
    } else {
        place.right
    };
    let has_key = place.right != END && nodes.key(place.right) == nodes.get(log, RECORD_KEY);
    if has_key && place.right == node {
        nodes.set(place.left, LINK, place.left_link.with_slot(nodes.link(node).slot()).0);
        nodes.settle(place.left);
        nodes.slots.give(node);
    }
    Ok(())
}

fn redo_insertion<M: Memory>(nodes: &Nodes<M>, log: u64) -> Result<()> {
    let [key, value] = [RECORD_KEY, RECORD_VALUE].map(|word| nodes.get(log, word));
    let place = walk::place_of(nodes, key);
    if place.right != END && nodes.key(place.right) == key {
        return Ok(());
    }
    let node = if nodes.steps.has(Step::LogNamesNode) {
        let node = named(nodes, log)?;
        // A node that is gone was inserted and removed, or the slot was not even rewritten.
        if nodes.link(node).is_gone() || !nodes.slots.claim(node) {
            return Ok(());
        }
        node
    } else {
        nodes.slots.take(&mut 0).ok_or(Error::Full { capacity: nodes.shape.capacity })?
    };
    // Written again: the record may have been durable before all of the node was.
    fill(nodes, node, Entry { key, value }, Link::to(place.right, State::Present));
    nodes.settle(node);
    nodes.set(place.left, LINK, place.left_link.with_slot(node).0);
    nodes.settle(place.left);
    Ok(())
}
