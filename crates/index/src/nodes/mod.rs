//! What both ordered indexes are made of above their leaves: nodes in a memory, and inner nodes in them.

mod arena;
mod inner;

pub(crate) use arena::{Arena, Promised};
pub(crate) use inner::{Inner, Rows};

use crate::keys::Separator;
use crate::shares::{Pass, shares};
use std::io;
use terrace_memory::Memory;

/// In a root's word: bits of the node, below its height.
const HEIGHT_SHIFT: u32 = 56;

/// Of ten places of a new node so many are filled: the next inserts find room.
const FILLED_TENTHS: u64 = 9;

/// A node, or a leaf, and what stands before it, but before the first.
pub(crate) type Child = (Option<Separator>, u64);

/// The root's node, and the levels below it.
pub(crate) fn root_of(word: u64) -> (u64, u64) {
    (word & ((1 << HEIGHT_SHIFT) - 1), word >> HEIGHT_SHIFT)
}

/// The word of a root.
pub(crate) fn root_word(node: u64, height: u64) -> u64 {
    node | height << HEIGHT_SHIFT
}

/// Builds inner nodes above these children, `least` levels or as many as there must be, in passes of at most `threads`
/// parts each; returns the node at the top and how many levels there are. The nodes are the same, and in the same
/// places, whatever the number of threads.
///
/// # Errors
/// Those of the memory; nothing is taken then.
pub(crate) fn build<N: Memory>(
    (arena, rows): (&Arena<N>, &Rows),
    mut children: Vec<Child>,
    least: u64,
    threads: usize,
    pass: Pass<'_>,
) -> io::Result<(u64, u64)> {
    let most = rows.room * FILLED_TENTHS / 10 + 1;
    let inner = |node: u64| Inner::new(&arena.memory, node, rows);
    let mut taken = Vec::new();
    let mut height = 0;
    while children.len() > 1 || height < least {
        let nodes = children.len().div_ceil(most as usize);
        let below = taken.len();
        for _ in 0..nodes {
            let node = arena.take(|_| ()).inspect_err(|_| {
                taken.iter().for_each(|node| {
                    inner(*node).forget();
                    arena.give(*node);
                });
            })?;
            taken.push(node);
        }
        let level = &taken[below..];
        // As even as can be: no node is left with one child, unless there is no other.
        let part = |number| children.len() * number / nodes;
        let above = shares(nodes, threads, pass, |numbers| {
            let fill = |number: usize| {
                let group = &children[part(number)..part(number + 1)];
                inner(level[number]).fill(group);
                (group[0].0.clone(), level[number])
            };
            numbers.map(fill).collect::<Vec<Child>>()
        });
        children = above.into_iter().flatten().collect();
        height += 1;
    }
    Ok((children[0].1, height))
}
