//! Recovery of lists whose links survive: every bucket is walked, its nodes are taken, and nodes that are
//! gone are dropped: each run of them from the node before it (the artifact of Gugnani unmarks such a
//! node and skips its successor, which brings one back and loses one).

use super::error::{Error, Result};
use super::node::*;
use terrace_memory::Memory;

/// Takes every node that a bucket leads to, and drops those that are gone, durably.
pub(super) fn reopen<M: Memory>(nodes: &Nodes<M>) -> Result<()> {
    let mut dropped = Vec::new();
    for bucket in 0..nodes.shape.buckets {
        reopen_bucket(nodes, bucket, &mut dropped)?;
    }
    // Only now: before, a link in another bucket could have led to one of them.
    dropped.into_iter().for_each(|node| nodes.slots.give(node));
    Ok(())
}

fn reopen_bucket<M: Memory>(nodes: &Nodes<M>, bucket: u64, dropped: &mut Vec<u64>) -> Result<()> {
    let mut left = nodes.shape.head(bucket);
    let mut least = None;
    loop {
        let left_link = nodes.link(left);
        let mut right = left_link.slot();
        while right != END {
            take(nodes, right)?;
            let link = nodes.link(right);
            if !link.is_gone() {
                break;
            }
            dropped.push(right);
            right = link.slot();
        }
        if right != left_link.slot() {
            nodes.set(left, LINK, left_link.with_slot(right).0);
            nodes.settle(left);
        }
        if right == END {
            return Ok(());
        }
        let key = nodes.key(right);
        if least.is_some_and(|least| key <= least) || nodes.shape.bucket(key) != bucket {
            return Err(Error::damaged(right, format!("key {key}, which does not belong there")));
        }
        least = Some(key);
        left = right;
    }
}

fn take<M: Memory>(nodes: &Nodes<M>, slot: u64) -> Result<()> {
    if !nodes.shape.is_node(slot) {
        return Err(Error::damaged(slot, "a link to it, and it is no node".into()));
    }
    if !nodes.slots.claim(slot) {
        return Err(Error::damaged(slot, "two links to it".into()));
    }
    Ok(())
}

/// Where a key is or belongs, when nobody else uses the list and no node is gone.
pub(super) fn place_of<M: Memory>(nodes: &Nodes<M>, key: u64) -> Place {
    let mut before = END;
    let mut left = nodes.head_of(key);
    loop {
        let left_link = nodes.link(left);
        let right = left_link.slot();
        if right == END || nodes.key(right) >= key {
            let right_link = if right == END { Link(0) } else { nodes.link(right) };
            return Place { before, left, left_link, right, right_link };
        }
        (before, left) = (left, right);
    }
}
