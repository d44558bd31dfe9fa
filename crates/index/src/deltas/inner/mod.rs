//! The inner nodes: which leaf a key is in. In DRAM, and made anew at each opening.
//!
//! A B+-tree of its own, with leaves' numbers behind its lowest nodes. A node is eight lines: its version, how
//! many children it has and its level, then the high words of its separators' heads, their low words, and
//! the children. The first child's separator is never compared: what is less belongs to it too.
//!
//! # Threads
//! A reader goes down without a lock: it looks at a node's version, chooses the child, looks at the child's
//! version, and goes on if the node's is still the same. A writer latches the lowest node and changes it in
//! place; only who must split or drop a node takes the latch of the whole structure, and keeps what it changes
//! latched until its parent knows. Nodes are used again as nodes, and their versions go on.
//!
//! Separators whose heads tie own a copy of their key, in a list beside the nodes that is read under a lock.

mod image;
mod whole;

pub use whole::Pass;
pub(super) use whole::spread;

use super::table::Latch as LeafLatch;
use crate::keys::{Keys, Probe, Separator, Side};
use crate::latch::Latch;
pub(super) use crate::latch::Seen;
use crate::{Commit, Ground};
use image::{CHILD, Child, HIGH, Image, LOW, META, NODE, ROOM, WORDS, count_of};
use parking_lot::{Mutex, RwLock};
use std::cmp::Ordering;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use terrace_memory::{Budget, Claim, Memory, Spin};

const COMMIT_BYTES: u64 = 2 << 20;
/// Nodes that are there for whoever splits a leaf: more than a path from the root has.
const AHEAD: u64 = 16;

/// One step down.
#[derive(Clone, Copy, Debug)]
pub(super) enum Down {
    Node(Seen),
    /// A leaf, and the node that leads to it.
    Leaf(u32, Seen),
}

/// The inner nodes.
pub(super) struct Inner<D: Memory> {
    memory: D,
    _claim: Claim,
    commit: Commit,
    budget: Arc<Budget>,
    root: AtomicU64,
    /// The latch of the structure.
    latch: AtomicU64,
    books: Mutex<Books>,
    ties: RwLock<Ties>,
}

struct Books {
    free: Vec<u64>,
    next: u64,
    committed: u64,
    /// Nodes that those who have [prepared](Inner::prepare) may still take.
    promised: u64,
}

/// Room for what a leaf more needs, as long as it is held.
pub(super) struct Prepared<'a>(&'a Mutex<Books>);

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        self.0.lock().promised -= AHEAD;
    }
}

/// Keys of separators that tie, by number from 1 on.
#[derive(Default)]
struct Ties {
    keys: Vec<Option<Arc<[u8]>>>,
    free: Vec<u32>,
}

impl<D: Memory> Drop for Inner<D> {
    fn drop(&mut self) {
        self.budget.give(self.books.get_mut().committed);
    }
}

/// The latch of the structure, held.
struct Structure<'a>(&'a AtomicU64);

impl Drop for Structure<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

impl<D: Memory> Inner<D> {
    /// Those of an index whose only leaf is `leaf`. The ground is zero.
    pub(super) fn new(ground: Ground<D>, leaf: u32, budget: &Arc<Budget>) -> io::Result<Inner<D>> {
        let inner = Inner {
            _claim: ground.claim(),
            memory: ground.memory,
            commit: ground.commit,
            budget: Arc::clone(budget),
            root: AtomicU64::new(0),
            latch: AtomicU64::new(0),
            books: Mutex::new(Books { free: Vec::new(), next: NODE, committed: 0, promised: 0 }),
            ties: RwLock::new(Ties::default()),
        };
        drop(inner.prepare()?);
        inner.begin(leaf);
        Ok(inner)
    }

    /// From here on `leaf` is the only one. Nobody else uses them.
    pub(super) fn begin(&self, leaf: u32) {
        let root = self.take_node();
        let mut image = Image::empty(0);
        image.push(Child { head: 0, child: leaf, tie: 0 });
        self.put(root, &image);
        self.root.store(root, Release);
    }

    /// Sees to it that a leaf more finds its place, as long as what is returned is held.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] if the ground is full, and those of the ground.
    pub(super) fn prepare(&self) -> io::Result<Prepared<'_>> {
        let mut books = self.books.lock();
        let promised = books.promised + AHEAD;
        let end = books.next + promised.saturating_sub(books.free.len() as u64) * NODE;
        if end > books.committed {
            let step = (end - books.committed).max(books.committed.min(COMMIT_BYTES));
            let step =
                step.next_multiple_of(4096).min(self.memory.len().saturating_sub(books.committed));
            if books.committed + step < end {
                let what = format!("the inner nodes are full: {} bytes", self.memory.len());
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
            }
            (self.commit)(books.committed, step)?;
            self.budget.take_anyway(step);
            books.committed += step;
        }
        books.promised = promised;
        Ok(Prepared(&self.books))
    }

    fn take_node(&self) -> u64 {
        let mut books = self.books.lock();
        if let Some(node) = books.free.pop() {
            return node;
        }
        let node = books.next;
        assert!(node + NODE <= books.committed, "prepare has seen to room");
        books.next += NODE;
        node
    }

    /// Nodes, and bytes.
    pub(super) fn sizes(&self) -> (u64, u64) {
        let books = self.books.lock();
        (books.next / NODE - 1 - books.free.len() as u64, books.committed)
    }

    #[inline(always)]
    fn load(&self, at: u64, word: usize) -> u64 {
        // SAFETY: nodes that others lead to are committed.
        unsafe { self.memory.load(at + 8 * word as u64) }
    }

    fn image(&self, at: u64) -> Image {
        let mut words = [0; WORDS];
        for (line, eight) in words.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // SAFETY: as above.
            *eight = unsafe { self.memory.load_line(at + 64 * line as u64) };
        }
        Image(words)
    }

    /// Puts a latched node's words back, or those of a new one; all but its version.
    fn put(&self, at: u64, image: &Image) {
        let before = self.image(at);
        for word in (META..WORDS).filter(|word| before.0[*word] != image.0[*word]) {
            // SAFETY: as above; readers take the words for what they are.
            unsafe { self.memory.store(at + 8 * word as u64, image.0[word]) };
        }
    }

    #[inline(always)]
    fn holds(&self, seen: Seen) -> bool {
        seen.holds(&self.memory)
    }

    /// Whether the node is as it was when it led to the leaf.
    #[inline(always)]
    pub(super) fn still_leads(&self, seen: Seen) -> bool {
        self.holds(seen)
    }

    /// Looks at a node as soon as no writer has it.
    #[inline(always)]
    fn look(&self, at: u64, keys: &impl Keys) -> Seen {
        Seen::look(&self.memory, at, keys)
    }

    fn latch_seen(&self, seen: Seen) -> Option<Latch<'_, D>> {
        seen.latch(&self.memory)
    }

    fn latch(&self, at: u64, keys: &impl Keys) -> Latch<'_, D> {
        Latch::wait(&self.memory, at, keys)
    }

    fn structure(&self, keys: &impl Keys) -> Structure<'_> {
        let spin = Spin::on(&self.memory);
        while self.latch.compare_exchange(0, 1, AcqRel, Acquire).is_err() {
            keys.pause();
            spin.wait();
        }
        Structure(&self.latch)
    }

    /// Which child to go to, and how many there are. What is read may be changing.
    #[inline]
    fn choose(&self, at: u64, probe: &Probe<'_, impl Keys>, side: Side) -> (usize, usize, u64) {
        // SAFETY: nodes that others lead to are committed, here and below.
        let first = unsafe { self.memory.load_line(at) };
        let count = count_of(first[META]);
        let mut high = [0; 24];
        high[..8].copy_from_slice(&first);
        for line in 1..(HIGH + count).div_ceil(8) {
            // SAFETY: as above.
            let words = unsafe { self.memory.load_line(at + 64 * line as u64) };
            high[8 * line..8 * line + 8].copy_from_slice(&words);
        }
        let wanted = (probe.head >> 64) as u64;
        let less =
            high[HIGH + 1..HIGH + count.max(1)].iter().map(|high| usize::from(*high < wanted));
        let mut place = less.sum();
        while place + 1 < count && high[HIGH + place + 1] == wanted {
            let order = self.load(at, LOW + place + 1).cmp(&(probe.head as u64)).then_with(|| {
                let tie = (self.load(at, CHILD + place + 1) >> 32) as u32;
                self.tie(tie).as_deref().cmp(&probe.key)
            });
            match (order, side) {
                (Ordering::Less, _) | (Ordering::Equal, Side::At) => place += 1,
                _ => break,
            }
        }
        (place, count, first[META] >> 16)
    }

    fn tie(&self, number: u32) -> Option<Arc<[u8]>> {
        match number {
            0 => None,
            number => self.ties.read().keys.get(number as usize - 1).cloned().flatten(),
        }
    }

    fn new_tie(&self, key: Option<&Arc<[u8]>>) -> u32 {
        let Some(key) = key else { return 0 };
        let mut ties = self.ties.write();
        let number = ties.free.pop().unwrap_or_else(|| {
            ties.keys.push(None);
            ties.keys.len() as u32
        });
        ties.keys[number as usize - 1] = Some(Arc::clone(key));
        number
    }

    fn drop_tie(&self, number: u32) {
        if number != 0 {
            let mut ties = self.ties.write();
            ties.keys[number as usize - 1] = None;
            ties.free.push(number);
        }
    }

    /// Where every search begins; none if that is just changing.
    #[inline(always)]
    pub(super) fn top(&self, keys: &impl Keys) -> Option<Seen> {
        let root = self.root.load(Acquire);
        let seen = self.look(root, keys);
        (self.root.load(Acquire) == root).then_some(seen)
    }

    /// One step down; none if something changed. `hear` is told the node, the child's place and how many
    /// there are.
    #[inline(always)]
    fn down(
        &self,
        seen: Seen,
        probe: &Probe<'_, impl Keys>,
        side: Side,
        hear: &mut impl FnMut(u64, usize, usize),
    ) -> Option<Down> {
        let (place, count, level) = self.choose(seen.at, probe, side);
        let child = self.load(seen.at, CHILD + place) as u32;
        hear(seen.at, place, count);
        if !self.holds(seen) {
            return None;
        }
        if level == 0 {
            return Some(Down::Leaf(child, seen));
        }
        let next = self.look(u64::from(child) * NODE, probe.keys);
        self.holds(seen).then_some(Down::Node(next))
    }

    /// One step down, as a batch of searches takes it: the child is asked for and not looked at yet.
    #[inline(always)]
    pub(super) fn step(&self, seen: Seen, probe: &Probe<'_, impl Keys>) -> Option<Down> {
        self.down(seen, probe, Side::At, &mut |at, place, _| {
            let child = u64::from(self.load(at, CHILD + place) as u32) * NODE;
            (0..3).for_each(|line| self.memory.prefetch_of_many(child + 64 * line));
        })
    }

    /// The leaf of a place, and the node that leads there.
    #[inline]
    pub(super) fn find(&self, probe: &Probe<'_, impl Keys>, side: Side) -> (u32, Seen) {
        self.find_hearing(probe, side, &mut |_, _, _| ())
    }

    #[inline(always)]
    fn find_hearing(
        &self,
        probe: &Probe<'_, impl Keys>,
        side: Side,
        hear: &mut impl FnMut(u64, usize, usize),
    ) -> (u32, Seen) {
        loop {
            let mut seen = self.top(probe.keys);
            while let Some(here) = seen {
                match self.down(here, probe, side, hear) {
                    Some(Down::Leaf(leaf, node)) => return (leaf, node),
                    Some(Down::Node(next)) => seen = Some(next),
                    None => seen = None,
                }
            }
        }
    }

    /// The leaf of a place, the node that leads there, and what stands at its two ends; none where there is
    /// nothing before or behind. An end may be nearer than it is by now.
    pub(super) fn find_between(
        &self,
        probe: &Probe<'_, impl Keys>,
        side: Side,
    ) -> (u32, Seen, [Option<Separator>; 2]) {
        loop {
            let mut ends = [None, None];
            let Some(mut seen) = self.top(probe.keys) else { continue };
            loop {
                let mut here = [None, None];
                let mut hear = |at, place: usize, count: usize| {
                    here[0] = (place > 0).then(|| self.separator(at, place));
                    here[1] = (place + 1 < count).then(|| self.separator(at, place + 1));
                };
                let Some(down) = self.down(seen, probe, side, &mut hear) else { break };
                for (end, here) in ends.iter_mut().zip(here) {
                    *end = here.or(end.take());
                }
                match down {
                    Down::Leaf(leaf, node) => return (leaf, node, ends),
                    Down::Node(next) => seen = next,
                }
            }
        }
    }

    fn separator(&self, at: u64, place: usize) -> Separator {
        let [high, low] = [HIGH, LOW].map(|row| u128::from(self.load(at, row + place)));
        let tie = self.tie((self.load(at, CHILD + place) >> 32) as u32);
        Separator { head: high << 64 | low, tie }
    }

    /// Adds a leaf that begins at `separator`. The caller has the leaf's left neighbour, of which it was a
    /// part, and has [prepared](Inner::prepare).
    pub(super) fn insert(&self, separator: &Separator, leaf: u32, keys: &impl Keys) {
        let child =
            Child { head: separator.head, child: leaf, tie: self.new_tie(separator.tie.as_ref()) };
        let probe = Probe::at(separator, keys);
        loop {
            let (_, node) = self.find(&probe, Side::At);
            let Some(latch) = self.latch_seen(node) else { continue };
            let mut image = self.image(node.at);
            if image.count() == ROOM {
                drop(latch);
                return self.insert_splitting(child, &probe);
            }
            let (place, ..) = self.choose(node.at, &probe, Side::At);
            image.insert(place + 1, child);
            latch.change();
            return self.put(node.at, &image);
        }
    }

    /// The nodes from the root down to the lowest that leads to a place. Under the latch of the structure.
    fn path(&self, probe: &Probe<'_, impl Keys>) -> Vec<u64> {
        let mut path = vec![self.root.load(Acquire)];
        loop {
            let at = path[path.len() - 1];
            let (place, _, level) = self.choose(at, probe, Side::At);
            if level == 0 {
                return path;
            }
            path.push(u64::from(self.load(at, CHILD + place) as u32) * NODE);
        }
    }

    #[cold]
    fn insert_splitting(&self, mut child: Child, probe: &Probe<'_, impl Keys>) {
        let _structure = self.structure(probe.keys);
        // Kept until all are done: whoever comes down meanwhile waits, and then sees that it came too early.
        let mut latches = Vec::new();
        for at in self.path(probe).into_iter().rev() {
            let latch = self.latch(at, probe.keys);
            latch.change();
            latches.push(latch);
            let mut image = self.image(at);
            let (place, ..) = self.choose(at, probe, Side::At);
            if image.count() < ROOM {
                image.insert(place + 1, child);
                return self.put(at, &image);
            }
            let right_at = self.take_node();
            let mut right = Image::empty(image.level());
            (ROOM / 2..ROOM).for_each(|place| right.push(image.child(place)));
            image.set_count(ROOM / 2);
            match place + 1 > ROOM / 2 {
                true => right.insert(place + 1 - ROOM / 2, child),
                false => image.insert(place + 1, child),
            }
            self.put(right_at, &right);
            self.put(at, &image);
            let first = right.child(0);
            let tie = self.new_tie(self.tie(first.tie).as_ref());
            child = Child { child: (right_at / NODE) as u32, tie, ..first };
            if at == self.root.load(Acquire) {
                let root = self.take_node();
                let mut above = Image::empty(image.level() + 1);
                above.push(Child { head: 0, child: (at / NODE) as u32, tie: 0 });
                above.push(child);
                self.put(root, &above);
                return self.root.store(root, Release);
            }
        }
    }

    /// Removes the leaf of a place, which the caller has latched; its neighbour takes over. Whether there is
    /// one: the last leaf stays.
    pub(super) fn remove(&self, probe: &Probe<'_, impl Keys>, held: &LeafLatch<'_, D>) -> bool {
        loop {
            let (leaf, node) = self.find(probe, Side::At);
            debug_assert_eq!(leaf, held.leaf, "the leaf is where it was as long as it is latched");
            let Some(latch) = self.latch_seen(node) else { continue };
            let mut image = self.image(node.at);
            if image.count() == 1 {
                drop(latch);
                return self.remove_node(probe);
            }
            let (place, ..) = self.choose(node.at, probe, Side::At);
            let tie = image.remove(place);
            latch.change();
            self.put(node.at, &image);
            drop(latch);
            self.drop_tie(tie);
            return true;
        }
    }

    /// Removes the lowest node of a place, which has one child, and nodes above that have no other.
    #[cold]
    fn remove_node(&self, probe: &Probe<'_, impl Keys>) -> bool {
        let _structure = self.structure(probe.keys);
        let path = self.path(probe);
        let has_more = |at: &u64| count_of(self.load(*at, META)) > 1;
        let Some(above) = path.iter().rposition(has_more) else { return false };
        let latch = self.latch(path[above], probe.keys);
        latch.change();
        let mut image = self.image(path[above]);
        let (place, ..) = self.choose(path[above], probe, Side::At);
        let tie = image.remove(place);
        self.put(path[above], &image);
        drop(latch);
        self.drop_tie(tie);
        for at in &path[above + 1..] {
            let latch = self.latch(*at, probe.keys);
            latch.change();
            self.drop_tie(self.image(*at).child(0).tie);
            drop(latch);
            self.books.lock().free.push(*at);
        }
        true
    }
}
