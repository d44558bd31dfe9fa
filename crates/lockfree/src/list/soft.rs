//! SOFT (Zuriel et al., OOPSLA 2019; Gugnani, section 6.2): what is walked need not survive.
//!
//! A node is two lines with one slot number: in the memory of links its link, key and value, which are
//! gone with the power, and in the other its persistent self: key, value, `valid`, `deleted`.
//!
//! # What is durable when
//! A node is linked *coming*; its self is written and written back; only then its link says *present*, and
//! readers are told of it. A removal makes the link *leaving*, writes back that the self is deleted, and
//! only then the link says *gone*: until then readers are told that it is there. Whoever must know helps.
//! So everything that is told is durable, nobody who reads writes back anything, and an update writes back
//! one line.
//!
//! `valid` and `deleted` take the values 1 and 2 in turn, `valid` last of the line, and a self lives while
//! they differ: a helper that comes late writes what is there already, and cannot bring back what was
//! deleted meanwhile. (The published self has a second `valid`, written first; where stores to one line
//! persist in order it decides nothing.)
//!
//! Recovery looks at every self: what lives is linked anew.

use super::error::Result;
use super::node::*;
use super::protocol::{Entry, Protocol, fill};
use super::scan;
use super::step::Step;
use terrace_memory::Memory;

/// Sorted lists of volatile nodes with persistent selves.
#[derive(Debug)]
pub enum Soft {}

impl Protocol for Soft {
    const NAME: &'static str = "soft";
    const NUMBER: u64 = 4;
    const LINKS_APART: bool = true;
    const BORN: State = State::Coming;
    const LEAVING: State = State::Leaving;

    fn prepare<M: Memory>(nodes: &Nodes<M>, _: u64, node: u64, entry: Entry, place: &Place) {
        // Kept with the link: a helper must not find another after a removal.
        let valid = if nodes.get(node, DELETED) == 1 { 2 } else { 1 };
        nodes.set_near(node, VALID, valid);
        fill(nodes, node, entry, Link::to(place.right, State::Coming));
    }

    fn inserted<M: Memory>(nodes: &Nodes<M>, _left: u64, node: u64) {
        let valid = nodes.near(node, VALID);
        if !nodes.steps.has(Step::FinishLast) {
            nodes.set(node, VALID, valid);
        }
        nodes.set(node, KEY, nodes.key(node));
        nodes.set(node, VALUE, nodes.value(node));
        nodes.set(node, VALID, valid);
        nodes.write_back(node, Step::CreateWriteBack);
        nodes.fence(Step::SoftFences);
        turn(nodes, node, State::Coming, State::Present);
    }

    fn found<M: Memory>(nodes: &Nodes<M>, node: u64) {
        if nodes.link(node).state() == State::Coming {
            Self::inserted(nodes, END, node);
        }
    }

    fn intend_to_remove<M: Memory>(_: &Nodes<M>, _: u64, _: u64) {}

    fn removed<M: Memory>(nodes: &Nodes<M>, node: u64) {
        nodes.set(node, DELETED, nodes.near(node, VALID));
        nodes.write_back(node, Step::DestroyWriteBack);
        nodes.fence(Step::SoftFences);
        turn(nodes, node, State::Leaving, State::Gone);
    }

    fn before_unlink<M: Memory>(_: &Nodes<M>, _: u64) {}

    fn unlinked<M: Memory>(_: &Nodes<M>, _: u64) {}

    fn done<M: Memory>(_: &Nodes<M>, _: u64) {}

    fn sees<M: Memory>(nodes: &Nodes<M>, node: u64) -> bool {
        matches!(nodes.link(node).state(), State::Present | State::Leaving)
    }

    fn recover<M: Memory>(nodes: &Nodes<M>) -> Result<()> {
        let is_live = |slot| {
            let valid = nodes.get(slot, VALID);
            valid != 0 && valid != nodes.get(slot, DELETED)
        };
        scan::reopen(nodes, is_live, |slot| {
            let words = [VALID, KEY, VALUE].into_iter();
            words.for_each(|word| nodes.set_near(slot, word, nodes.get(slot, word)));
        })
    }
}

/// Turns the state of a node, unless another does; its link may change to another node meanwhile.
fn turn<M: Memory>(nodes: &Nodes<M>, node: u64, from: State, to: State) {
    loop {
        let link = nodes.link(node);
        if link.state() != from || nodes.swap(node, link, link.with_state(to)) {
            return;
        }
    }
}
