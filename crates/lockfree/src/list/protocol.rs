//! What the four lists differ in: what is made durable, when, and what recovery makes of it.

use super::error::Result;
use super::node::{Link, Nodes, Place, State};
use terrace_memory::Memory;

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: u64,
    /// The value.
    pub value: u64,
}

/// A persistence protocol of a sorted list: what is done around the compare-exchanges that
/// [`Session`](super::Session) makes, the same for all.
///
/// Operations meet each other half way: whoever is told something of a node that another has under way
/// makes it durable first, where the protocol does not make it certain otherwise.
///
/// Implemented by [`TLog`](super::TLog), [`LogFree`](super::LogFree), [`LinkFree`](super::LinkFree) and
/// [`Soft`](super::Soft); others cannot be written outside of this module.
pub trait Protocol: Send + Sync + Sized + 'static {
    /// What it is called.
    const NAME: &'static str;
    /// Its number in files.
    const NUMBER: u64;
    /// Whether each session has a line of log.
    const LOGS: bool = false;
    /// Whether links are in a memory of their own, which need not survive.
    const LINKS_APART: bool = false;
    /// Whether it is right only where a store is durable once it is visible.
    const NEEDS_PERSISTENT_CACHES: bool = false;
    /// The state in which a node is linked.
    const BORN: State = State::Present;
    /// The state that takes a present node out.
    const LEAVING: State = State::Gone;

    /// Writes a node that nobody can see yet, to be linked at `place`. Again after each time that failed.
    fn prepare<M: Memory>(nodes: &Nodes<M>, log: u64, node: u64, entry: Entry, place: &Place);
    /// The node is linked behind `left`: its insertion becomes durable.
    fn inserted<M: Memory>(nodes: &Nodes<M>, left: u64, node: u64);
    /// An insertion found its key in `node`, and is about to tell.
    fn found<M: Memory>(nodes: &Nodes<M>, node: u64);
    /// A node is about to be taken out.
    fn intend_to_remove<M: Memory>(nodes: &Nodes<M>, log: u64, node: u64);
    /// The node has the state [`Protocol::LEAVING`]: its removal becomes durable, and it `State::Gone`.
    /// By whoever took it out, or meets it.
    fn removed<M: Memory>(nodes: &Nodes<M>, node: u64);
    /// A node that another took out is about to be unlinked.
    fn before_unlink<M: Memory>(nodes: &Nodes<M>, node: u64);
    /// The link of `left` leads past nodes that are gone.
    fn unlinked<M: Memory>(nodes: &Nodes<M>, left: u64);
    /// An operation that may have left a record in its log is about to tell.
    fn done<M: Memory>(nodes: &Nodes<M>, log: u64);
    /// Whether a reader that found its key in `node` is told that it is there.
    fn sees<M: Memory>(nodes: &Nodes<M>, node: u64) -> bool;
    /// Reopens what a crash, or an orderly end, left. Nobody else uses the list.
    ///
    /// # Errors
    /// What no crash leaves.
    fn recover<M: Memory>(nodes: &Nodes<M>) -> Result<()>;
}

/// Writes the words of an entry and its link; the link last, which is what recovery looks at.
pub(super) fn fill<M: Memory>(nodes: &Nodes<M>, node: u64, entry: Entry, link: Link) {
    nodes.set_near(node, super::node::KEY, entry.key);
    nodes.set_near(node, super::node::VALUE, entry.value);
    nodes.set_near(node, super::node::LINK, link.0);
}
