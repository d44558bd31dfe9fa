//! A red-black tree with parent links, after Cormen and others.

use super::Structure;
use std::collections::BTreeMap;
use terrace_durable::plain;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

plain! {
    pub(super) struct Node {
        key: u64,
        value: u64,
        left: Offset<Node>,
        right: Offset<Node>,
        parent: Offset<Node>,
        red: u64,
    }
}

plain! {
    /// A tree that lies where its owner says.
    pub(super) struct Tree {
        top: Offset<Node>,
    }
}

const ROOT: Root<Tree> = Root::new(0);
const NULL: Offset<Node> = Offset::NULL;

/// A tree from words to words, under root 0 of its pool.
#[derive(Debug)]
pub struct RedBlackTree;

type At = Offset<Node>;

/// The tree in an open section.
struct Open<'t, 's, M: Memory> {
    tx: &'t mut Tx<'s, M>,
    tree: Offset<Tree>,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Left,
    Right,
}

impl Side {
    fn other(self) -> Side {
        if self == Side::Left { Side::Right } else { Side::Left }
    }
}

impl<M: Memory> Open<'_, '_, M> {
    fn top(&self) -> Result<At> {
        self.tx.get(Tree::top(self.tree))
    }

    fn child(&self, at: At, side: Side) -> Result<At> {
        self.tx.get(if side == Side::Left { Node::left(at) } else { Node::right(at) })
    }

    fn set_child(&mut self, at: At, side: Side, child: At) -> Result<()> {
        self.tx.set(if side == Side::Left { Node::left(at) } else { Node::right(at) }, child)
    }

    fn parent(&self, at: At) -> Result<At> {
        self.tx.get(Node::parent(at))
    }

    fn is_red(&self, at: At) -> Result<bool> {
        Ok(!at.is_null() && self.tx.get(Node::red(at))? == 1)
    }

    fn paint(&mut self, at: At, red: bool) -> Result<()> {
        if self.is_red(at)? != red {
            self.tx.set(Node::red(at), u64::from(red))?;
        }
        Ok(())
    }

    fn side_of(&self, at: At, parent: At) -> Result<Side> {
        Ok(if self.child(parent, Side::Left)? == at { Side::Left } else { Side::Right })
    }

    /// Puts `new` where `old` was under `parent`.
    fn replace(&mut self, old: At, new: At, parent: At) -> Result<()> {
        if parent.is_null() {
            self.tx.set(Tree::top(self.tree), new)?;
        } else {
            let side = self.side_of(old, parent)?;
            self.set_child(parent, side, new)?;
        }
        if !new.is_null() {
            self.tx.set(Node::parent(new), parent)?;
        }
        Ok(())
    }

    /// Turns the tree at `at` so that it goes down on `side`.
    fn rotate(&mut self, at: At, side: Side) -> Result<()> {
        let up = self.child(at, side.other())?;
        let inner = self.child(up, side)?;
        let parent = self.parent(at)?;
        self.replace(at, up, parent)?;
        self.set_child(at, side.other(), inner)?;
        if !inner.is_null() {
            self.tx.set(Node::parent(inner), at)?;
        }
        self.set_child(up, side, at)?;
        self.tx.set(Node::parent(at), up)
    }

    fn find(&self, key: u64) -> Result<(At, At)> {
        let (mut parent, mut at) = (NULL, self.top()?);
        while !at.is_null() {
            let here = self.tx.get(Node::key(at))?;
            if here == key {
                break;
            }
            parent = at;
            at = self.child(at, if key < here { Side::Left } else { Side::Right })?;
        }
        Ok((at, parent))
    }

    fn insert(&mut self, key: u64, value: u64, parent: At) -> Result<()> {
        let red = u64::from(!parent.is_null());
        let node = Node { key, value, left: NULL, right: NULL, parent, red };
        let mut at = self.tx.create(&node)?;
        if parent.is_null() {
            return self.tx.set(Tree::top(self.tree), at);
        }
        let is_left = key < self.tx.get(Node::key(parent))?;
        self.set_child(parent, if is_left { Side::Left } else { Side::Right }, at)?;
        loop {
            let mut parent = self.parent(at)?;
            if !self.is_red(parent)? {
                break;
            }
            let grand = self.parent(parent)?;
            let side = self.side_of(parent, grand)?;
            let uncle = self.child(grand, side.other())?;
            if self.is_red(uncle)? {
                self.paint(parent, false)?;
                self.paint(uncle, false)?;
                self.paint(grand, true)?;
                at = grand;
                continue;
            }
            if self.side_of(at, parent)? != side {
                self.rotate(parent, side)?;
                parent = at;
            }
            self.paint(parent, false)?;
            self.paint(grand, true)?;
            self.rotate(grand, side.other())?;
            break;
        }
        let top = self.top()?;
        self.paint(top, false)
    }

    fn delete(&mut self, at: At) -> Result<()> {
        let node = self.tx.get(at)?;
        let (child, parent, was_red) = if node.left.is_null() || node.right.is_null() {
            let child = if node.left.is_null() { node.right } else { node.left };
            self.replace(at, child, node.parent)?;
            (child, node.parent, node.red == 1)
        } else {
            self.delete_inner(at, &node)?
        };
        if !was_red {
            self.mend(child, parent)?;
        }
        self.tx.destroy(at)
    }

    /// Replaces a node of two children by its successor.
    fn delete_inner(&mut self, at: At, node: &Node) -> Result<(At, At, bool)> {
        let mut next = node.right;
        while !self.child(next, Side::Left)?.is_null() {
            next = self.child(next, Side::Left)?;
        }
        let was_red = self.is_red(next)?;
        let child = self.child(next, Side::Right)?;
        let mut parent = self.parent(next)?;
        if parent == at {
            parent = next;
        } else {
            self.replace(next, child, parent)?;
            self.set_child(next, Side::Right, node.right)?;
            self.tx.set(Node::parent(node.right), next)?;
        }
        self.replace(at, next, node.parent)?;
        self.set_child(next, Side::Left, node.left)?;
        self.tx.set(Node::parent(node.left), next)?;
        self.paint(next, node.red == 1)?;
        Ok((child, parent, was_red))
    }

    /// `at`, under `parent`, lacks a black node above it.
    fn mend(&mut self, mut at: At, mut parent: At) -> Result<()> {
        while !parent.is_null() && !self.is_red(at)? {
            let side = self.side_of(at, parent)?;
            let mut sibling = self.child(parent, side.other())?;
            if self.is_red(sibling)? {
                self.paint(sibling, false)?;
                self.paint(parent, true)?;
                self.rotate(parent, side)?;
                sibling = self.child(parent, side.other())?;
            }
            let (near, far) = (self.child(sibling, side)?, self.child(sibling, side.other())?);
            if !self.is_red(near)? && !self.is_red(far)? {
                self.paint(sibling, true)?;
                at = parent;
                parent = self.parent(at)?;
                continue;
            }
            if !self.is_red(far)? {
                self.paint(near, false)?;
                self.paint(sibling, true)?;
                self.rotate(sibling, side.other())?;
                sibling = self.child(parent, side.other())?;
            }
            let parent_red = self.is_red(parent)?;
            self.paint(sibling, parent_red)?;
            self.paint(parent, false)?;
            let far = self.child(sibling, side.other())?;
            self.paint(far, false)?;
            self.rotate(parent, side)?;
            at = self.top()?;
            break;
        }
        if !at.is_null() {
            self.paint(at, false)?;
        }
        Ok(())
    }
}

/// Trees that another structure owns.
impl Tree {
    /// An empty one.
    pub(super) fn make<M: Memory>(tx: &mut Tx<'_, M>) -> Result<Offset<Tree>> {
        tx.create(&Tree { top: NULL })
    }

    /// The value of `key`.
    pub(super) fn find<M: Memory>(
        tx: &mut Tx<'_, M>,
        tree: Offset<Tree>,
        key: u64,
    ) -> Result<Option<u64>> {
        let (at, _) = Open { tx, tree }.find(key)?;
        if at.is_null() { Ok(None) } else { Ok(Some(tx.get(Node::value(at))?)) }
    }

    /// Adds `key`, which is not there.
    pub(super) fn add<M: Memory>(
        tx: &mut Tx<'_, M>,
        tree: Offset<Tree>,
        key: u64,
        value: u64,
    ) -> Result<()> {
        let mut open = Open { tx, tree };
        let (_, parent) = open.find(key)?;
        open.insert(key, value, parent)
    }

    /// Removes `key`, if it is there.
    pub(super) fn remove<M: Memory>(
        tx: &mut Tx<'_, M>,
        tree: Offset<Tree>,
        key: u64,
    ) -> Result<()> {
        let mut open = Open { tx, tree };
        let (at, _) = open.find(key)?;
        if at.is_null() { Ok(()) } else { open.delete(at) }
    }

    /// Visits every key with its value and where they lie; panics where the tree is none.
    pub(super) fn each<M: Memory>(
        tx: &Tx<'_, M>,
        tree: Offset<Tree>,
        mut f: impl FnMut(u64, u64, u64),
    ) -> Result<()> {
        let top = tx.get(Tree::top(tree))?;
        walk(tx, top, NULL, (0, u64::MAX), &mut |at, node| f(node.key, node.value, at.at()))?;
        Ok(())
    }
}

impl Structure for RedBlackTree {
    const NAME: &'static str = "red-black tree";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        let tree = Tree::make(tx)?;
        tx.set_root(ROOT, tree)
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        let tree = tx.root(ROOT)?;
        let mut open = Open { tx, tree };
        let (at, parent) = open.find(key)?;
        if at.is_null() { open.insert(key, value, parent) } else { open.delete(at) }
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        let tree = tx.root(ROOT)?;
        if !tree.is_null() {
            Tree::each(tx, tree, |key, value, _| {
                found.insert(key, value);
            })?;
        }
        Ok(found)
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        let mut objects = Vec::new();
        let tree = tx.root(ROOT)?;
        if !tree.is_null() {
            objects.push(tree.at());
            Tree::each(tx, tree, |_, _, at| objects.push(at))?;
        }
        Ok(objects)
    }
}

/// Visits every node; returns the black height.
fn walk<M: Memory>(
    tx: &Tx<'_, M>,
    at: At,
    parent: At,
    (from, to): (u64, u64),
    f: &mut impl FnMut(At, &Node),
) -> Result<u32> {
    if at.is_null() {
        return Ok(0);
    }
    let node = tx.get(at)?;
    assert_eq!(node.parent, parent, "the parent of {at:?}");
    assert!((from..=to).contains(&node.key), "key {} between {from} and {to}", node.key);
    f(at, &node);
    for child in [node.left, node.right].into_iter().filter(|child| !child.is_null()) {
        assert!(node.red == 0 || tx.get(Node::red(child))? == 0, "no red child of a red node");
    }
    let low = match node.left.is_null() {
        true => 0,
        false => walk(tx, node.left, at, (from, node.key - 1), f)?,
    };
    let high = match node.right.is_null() {
        true => 0,
        false => walk(tx, node.right, at, (node.key + 1, to), f)?,
    };
    assert_eq!(low, high, "equal black heights under {at:?}");
    Ok(low + u32::from(node.red == 0))
}
