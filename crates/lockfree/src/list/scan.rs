//! Recovery of lists whose links do not survive: every slot is looked at, and what lives is linked anew.

use super::error::{Error, Result};
use super::node::*;
use terrace_memory::Memory;

/// Takes the slots that live and links them in the order of their keys; `prepare` writes what else a
/// walked node needs. Nothing of this need be durable: what lives does so without it, and a crash in the
/// middle leaves the same to the next.
pub(super) fn reopen<M: Memory>(
    nodes: &Nodes<M>,
    is_live: impl Fn(u64) -> bool,
    prepare: impl Fn(u64),
) -> Result<()> {
    let slots = nodes.shape.first_node()..nodes.shape.end();
    let entry = |slot: u64| {
        let key = nodes.get(slot, KEY);
        (nodes.shape.bucket(key), key, slot)
    };
    let mut found: Vec<(u64, u64, u64)> = slots.filter(|slot| is_live(*slot)).map(entry).collect();
    found.sort_unstable();
    if let Some(twice) = found.windows(2).find(|pair| pair[0].1 == pair[1].1) {
        return Err(Error::damaged(twice[1].2, format!("key {} a second time", twice[1].1)));
    }
    let empty = Link::to(END, State::Present).0;
    (0..nodes.shape.buckets).for_each(|b| nodes.set_near(nodes.shape.head(b), LINK, empty));
    // From the last to the first: each is linked to by the one before it.
    for (bucket, _, slot) in found.into_iter().rev() {
        nodes.slots.claim(slot);
        prepare(slot);
        let head = nodes.shape.head(bucket);
        nodes.set_near(slot, LINK, Link::to(nodes.link(head).slot(), State::Present).0);
        nodes.set_near(head, LINK, Link::to(slot, State::Present).0);
    }
    Ok(())
}
