//! Link-free (Zuriel et al., OOPSLA 2019; Gugnani, section 6.2): nodes survive, links do not.
//!
//! # What is durable when
//! A slot is made invalid before it is rewritten, and valid when it is linked; all in one line, whose
//! stores persist in order (so one word says it; the published node has two bits). So a node is durably in
//! the set when its line is written back after that, and durably out of it when its line is written back
//! with the mark in its link. Both are done by the operation before it tells, or by whoever tells of the
//! node before (`kept` and `gone` say that it was done, and are set only after it was: the artifact of
//! Gugnani sets them before, and a reader that believes them may tell of what a crash takes back). A
//! marked node is written back before it is unlinked, so that a key that is not found is durably gone.
//!
//! Recovery looks at every slot: what is valid and not marked is linked anew.

use super::error::Result;
use super::node::*;
use super::protocol::{Entry, Protocol};
use super::scan;
use super::step::Step;
use terrace_memory::Memory;

/// Sorted lists whose nodes survive and whose links do not.
#[derive(Debug)]
pub enum LinkFree {}

impl Protocol for LinkFree {
    const NAME: &'static str = "link-free";
    const NUMBER: u64 = 3;

    fn prepare<M: Memory>(nodes: &Nodes<M>, _: u64, node: u64, entry: Entry, place: &Place) {
        if nodes.steps.has(Step::InvalidFirst) {
            nodes.set(node, VALID, 0);
        }
        if !nodes.steps.has(Step::ValidLast) {
            nodes.set(node, VALID, 1);
        }
        let link = Link::to(place.right, State::Present);
        let words = [(LINK, link.0), (KEY, entry.key), (VALUE, entry.value), (KEPT, 0), (GONE, 0)];
        words.into_iter().for_each(|(word, value)| nodes.set(node, word, value));
    }

    fn inserted<M: Memory>(nodes: &Nodes<M>, _left: u64, node: u64) {
        keep(nodes, node, Step::InsertWriteBack);
    }

    fn found<M: Memory>(nodes: &Nodes<M>, node: u64) {
        keep(nodes, node, Step::FoundWriteBack);
    }

    fn intend_to_remove<M: Memory>(_: &Nodes<M>, _: u64, _: u64) {}

    fn removed<M: Memory>(nodes: &Nodes<M>, node: u64) {
        flush_once(nodes, node, GONE, Step::DeleteWriteBack);
    }

    fn before_unlink<M: Memory>(nodes: &Nodes<M>, node: u64) {
        flush_once(nodes, node, GONE, Step::GoneWriteBack);
    }

    fn unlinked<M: Memory>(_: &Nodes<M>, _: u64) {}

    fn done<M: Memory>(_: &Nodes<M>, _: u64) {}

    fn sees<M: Memory>(nodes: &Nodes<M>, node: u64) -> bool {
        let is_there = !nodes.link(node).is_gone();
        if is_there {
            keep(nodes, node, Step::FoundWriteBack);
        } else {
            flush_once(nodes, node, GONE, Step::GoneWriteBack);
        }
        is_there
    }

    fn recover<M: Memory>(nodes: &Nodes<M>) -> Result<()> {
        let is_live = |slot| nodes.get(slot, VALID) == 1 && !nodes.link(slot).is_gone();
        scan::reopen(nodes, is_live, |slot| {
            nodes.set(slot, KEPT, 1);
            nodes.set(slot, GONE, 0);
        })
    }
}

/// Makes a linked node valid, and durable unless it is.
fn keep<M: Memory>(nodes: &Nodes<M>, node: u64, step: Step) {
    if nodes.get(node, VALID) == 0 {
        // By several at once, perhaps: all store the same.
        nodes.set(node, VALID, 1);
    }
    flush_once(nodes, node, KEPT, step);
}

/// Writes a node back, unless `said` says that it was since what matters changed.
fn flush_once<M: Memory>(nodes: &Nodes<M>, node: u64, said: u64, step: Step) {
    if nodes.get(node, said) != 0 {
        return;
    }
    let is_said_after = nodes.steps.has(Step::FlagAfterFlush);
    if !is_said_after {
        nodes.set(node, said, 1);
    }
    nodes.write_back(node, step);
    nodes.fence(Step::LinkFreeFences);
    if is_said_after {
        nodes.set(node, said, 1);
    }
}
