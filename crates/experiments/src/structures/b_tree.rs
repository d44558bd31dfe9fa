//! A B+-tree: values in the leaves, full nodes split on the way down, empty ones freed.

use super::Structure;
use std::collections::BTreeMap;
use terrace_durable::plain;
use terrace_durable::sections::{Offset, Plain, Result, Root, Tx};
use terrace_memory::Memory;

/// Keys that a node has room for.
const KEYS: usize = 14;

plain! {
    struct Node {
        is_leaf: u64,
        count: u64,
        keys: [u64; KEYS],
        // Values of a leaf, or children, one more than keys.
        slots: [u64; KEYS + 1],
    }
}

plain! {
    struct Tree {
        top: Offset<Node>,
    }
}

const ROOT: Root<Tree> = Root::new(1);

/// A tree from words to words with at most `FULL` keys in a node, 3 to 14, under root 1 of its pool. What
/// a node has room for beyond that is padding.
#[derive(Debug)]
pub struct BTree<const FULL: usize = KEYS>;

fn child_of(node: &Node, key: u64) -> usize {
    node.keys[..node.count as usize].partition_point(|k| *k <= key)
}

/// Writes the items of an array that changed, in one piece.
fn set_items<M: Memory, const N: usize>(
    tx: &mut Tx<'_, M>,
    array: Offset<[u64; N]>,
    old: &[u64; N],
    new: &[u64; N],
) -> Result<()> {
    let Some(first) = (0..N).find(|i| old[*i] != new[*i]) else { return Ok(()) };
    let last = (first..N).rfind(|i| old[*i] != new[*i]).expect("at least the first");
    let bytes: Vec<u8> = new[first..=last].iter().flat_map(|item| item.to_le_bytes()).collect();
    tx.write(array.at() + 8 * first as u64, &bytes)
}

fn update<M: Memory>(tx: &mut Tx<'_, M>, at: Offset<Node>, old: &Node, new: &Node) -> Result<()> {
    if old.count != new.count {
        tx.set(Node::count(at), new.count)?;
    }
    set_items(tx, Node::keys(at), &old.keys, &new.keys)?;
    set_items(tx, Node::slots(at), &old.slots, &new.slots)
}

/// Splits the full child `index` of `parent`, which is not full.
fn split<M: Memory, const FULL: usize>(
    tx: &mut Tx<'_, M>,
    parent_at: Offset<Node>,
    index: usize,
) -> Result<()> {
    let parent = tx.get(parent_at)?;
    let child_at = Offset::<Node>::new(parent.slots[index]);
    let child = tx.get(child_at)?;
    let half = FULL / 2;
    let mut right = Node { keys: [0; KEYS], slots: [0; KEYS + 1], ..child };
    let mut left = child;
    let separator = child.keys[half];
    if child.is_leaf == 1 {
        right.count = (FULL - half) as u64;
        right.keys[..FULL - half].copy_from_slice(&child.keys[half..FULL]);
        right.slots[..FULL - half].copy_from_slice(&child.slots[half..FULL]);
    } else {
        right.count = (FULL - half - 1) as u64;
        right.keys[..FULL - half - 1].copy_from_slice(&child.keys[half + 1..FULL]);
        right.slots[..FULL - half].copy_from_slice(&child.slots[half + 1..=FULL]);
    }
    left.count = half as u64;
    let right_at = tx.create(&right)?;
    update(tx, child_at, &child, &left)?;
    let mut new = parent;
    let count = parent.count as usize;
    new.keys.copy_within(index..count, index + 1);
    new.slots.copy_within(index + 1..=count, index + 2);
    (new.keys[index], new.slots[index + 1]) = (separator, right_at.at());
    new.count += 1;
    update(tx, parent_at, &parent, &new)
}

fn insert<M: Memory, const FULL: usize>(
    tx: &mut Tx<'_, M>,
    tree_at: Offset<Tree>,
    key: u64,
    value: u64,
) -> Result<()> {
    let mut at = tx.get(Tree::top(tree_at))?;
    if tx.get(Node::count(at))? == FULL as u64 {
        let mut top = Node { is_leaf: 0, count: 0, keys: [0; KEYS], slots: [0; KEYS + 1] };
        top.slots[0] = at.at();
        at = tx.create(&top)?;
        tx.set(Tree::top(tree_at), at)?;
        split::<M, FULL>(tx, at, 0)?;
    }
    loop {
        let node = tx.get(at)?;
        let count = node.count as usize;
        if node.is_leaf == 1 {
            let index = node.keys[..count].partition_point(|k| *k < key);
            let mut new = node;
            new.keys.copy_within(index..count, index + 1);
            new.slots.copy_within(index..count, index + 1);
            (new.keys[index], new.slots[index]) = (key, value);
            new.count += 1;
            return update(tx, at, &node, &new);
        }
        let child = Offset::<Node>::new(node.slots[child_of(&node, key)]);
        if tx.get(Node::count(child))? == FULL as u64 {
            split::<M, FULL>(tx, at, child_of(&node, key))?;
            continue;
        }
        at = child;
    }
}

/// Removes `key`, which is there; whether the node is empty now.
fn remove<M: Memory>(tx: &mut Tx<'_, M>, at: Offset<Node>, key: u64) -> Result<bool> {
    let node = tx.get(at)?;
    let mut new = node;
    let count = node.count as usize;
    if node.is_leaf == 1 {
        let index = node.keys[..count].partition_point(|k| *k < key);
        new.keys.copy_within(index + 1..count, index);
        new.slots.copy_within(index + 1..count, index);
        new.count -= 1;
        update(tx, at, &node, &new)?;
        return Ok(new.count == 0);
    }
    let index = child_of(&node, key);
    let child = Offset::<Node>::new(node.slots[index]);
    if !remove(tx, child, key)? {
        return Ok(false);
    }
    tx.destroy(child)?;
    if count == 0 {
        return Ok(true);
    }
    new.keys.copy_within((index.max(1))..count, index.max(1) - 1);
    new.slots.copy_within(index + 1..=count, index);
    new.count -= 1;
    update(tx, at, &node, &new)?;
    Ok(false)
}

fn find<M: Memory>(tx: &Tx<'_, M>, mut at: Offset<Node>, key: u64) -> Result<Option<u64>> {
    loop {
        let node = tx.get(at)?;
        if node.is_leaf == 1 {
            let place = node.keys[..node.count as usize].binary_search(&key);
            return Ok(place.ok().map(|place| node.slots[place]));
        }
        at = Offset::new(node.slots[child_of(&node, key)]);
    }
}

fn delete<M: Memory>(tx: &mut Tx<'_, M>, tree_at: Offset<Tree>, key: u64) -> Result<()> {
    let top = tx.get(Tree::top(tree_at))?;
    let is_empty = remove(tx, top, key)?;
    let node = tx.get(top)?;
    if is_empty && node.is_leaf == 0 {
        // Its last child was freed: it is a leaf without keys from now on.
        tx.set(Node::is_leaf(top), 1)?;
        return tx.set(Node::count(top), 0);
    }
    if !is_empty && node.is_leaf == 0 && node.count == 0 {
        tx.set(Tree::top(tree_at), Offset::new(node.slots[0]))?;
        return tx.destroy(top);
    }
    Ok(())
}

impl<const FULL: usize> BTree<FULL> {
    /// The value of `key`.
    ///
    /// # Errors
    /// Those of the section's reads; without a tree that is
    /// [`Error::OutOfHeap`](terrace_durable::sections::Error::OutOfHeap).
    pub fn get<M: Memory>(tx: &Tx<'_, M>, key: u64) -> Result<Option<u64>> {
        let tree = tx.root(ROOT)?;
        find(tx, tx.get(Tree::top(tree))?, key)
    }

    /// Adds a `key` that is not there, which the caller knows: nothing looks for it first.
    ///
    /// # Errors
    /// As [`BTree::get`], and those of writes and allocations.
    pub fn add<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        let tree = tx.root(ROOT)?;
        insert::<M, FULL>(tx, tree, key, value)
    }
}

impl<const FULL: usize> Structure for BTree<FULL> {
    const NAME: &'static str = "B-tree";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        let leaf = Node { is_leaf: 1, count: 0, keys: [0; KEYS], slots: [0; KEYS + 1] };
        let top = tx.create(&leaf)?;
        let tree = tx.create(&Tree { top })?;
        tx.set_root(ROOT, tree)
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        let tree = tx.root(ROOT)?;
        let top = tx.get(Tree::top(tree))?;
        match find(tx, top, key)? {
            Some(_) => delete(tx, tree, key),
            None => insert::<M, FULL>(tx, tree, key, value),
        }
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        let tree = tx.root(ROOT)?;
        if !tree.is_null() {
            walk(tx, tx.get(Tree::top(tree))?, (0, u64::MAX), 0, &mut |_, node| {
                if node.is_leaf == 1 {
                    let count = node.count as usize;
                    found.extend(node.keys[..count].iter().copied().zip(node.slots));
                }
            })?;
        }
        Ok(found)
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        let mut objects = Vec::new();
        let tree = tx.root(ROOT)?;
        if !tree.is_null() {
            objects.push(tree.at());
            let top = tx.get(Tree::top(tree))?;
            walk(tx, top, (0, u64::MAX), 0, &mut |at, _| objects.push(at.at()))?;
        }
        Ok(objects)
    }
}

fn walk<M: Memory>(
    tx: &Tx<'_, M>,
    at: Offset<Node>,
    (from, to): (u64, u64),
    depth: u32,
    f: &mut impl FnMut(Offset<Node>, &Node),
) -> Result<()> {
    assert!(depth < 20, "no ring");
    let node = tx.get(at)?;
    let count = node.count as usize;
    assert!(count <= KEYS, "{count} keys at {at:?}");
    assert!(node.keys[..count].is_sorted_by(|a, b| a < b), "{:?}", node.keys);
    assert!(node.keys[..count].iter().all(|key| (from..=to).contains(key)), "keys in their range");
    f(at, &node);
    if node.is_leaf == 1 {
        return Ok(());
    }
    for (i, child) in node.slots[..=count].iter().enumerate() {
        let from = if i == 0 { from } else { node.keys[i - 1] };
        let to = if i == count { to } else { node.keys[i] - 1 };
        walk(tx, Offset::new(*child), (from, to), depth + 1, f)?;
    }
    Ok(())
}

const _: () = assert!(<Node as Plain>::BYTES == 248);
