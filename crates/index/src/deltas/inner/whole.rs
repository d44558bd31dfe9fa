//! All inner nodes at once: built over the leaves that there are, forgotten, or emptied under readers.

use super::image::{FILL, Image, NODE};
use super::{Child, Inner, Ties};
use crate::keys::{Keys, Separator};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::Ordering::Release;
use terrace_memory::Memory;

/// Fewer nodes than this are not worth a thread.
const LEAST: usize = 256;

/// Has a function do every number below a count, on any number of threads, and returns when all is done.
pub type Pass<'p> = &'p dyn Fn(u32, &(dyn Fn(u32) + Sync));

/// A thread for each number.
pub(in super::super) fn spread(count: u32, does: &(dyn Fn(u32) + Sync)) {
    std::thread::scope(|scope| {
        (1..count).for_each(|number| drop(scope.spawn(move || does(number))));
        does(0);
    });
}

impl<D: Memory> Inner<D> {
    /// From here on `leaf` is the only one. Readers that are on their way find out.
    pub(in super::super) fn restart(&self, leaf: u32, keys: &impl Keys) {
        let (used, free) = {
            let allocation = self.allocation.lock();
            (allocation.next, allocation.free.clone())
        };
        self.begin(leaf);
        let mut was_used = vec![true; (used / NODE) as usize];
        was_used[0] = false;
        free.iter().for_each(|node| was_used[(node / NODE) as usize] = false);
        let before = (0..).zip(was_used).filter(|(_, was_used)| *was_used);
        let before: Vec<u64> = before.map(|(number, _): (u64, bool)| number * NODE).collect();
        for at in &before {
            self.latch(*at, keys).change();
        }
        *self.ties.write() = Ties::default();
        self.allocation.lock().free.extend(before);
    }

    /// Builds all nodes again for these leaves, in order, each with what stands before it. Nobody else uses
    /// them. Each level is filled by so many threads, each the nodes over a run of its children: the nodes are the
    /// same, and in the same places, whatever their number.
    ///
    /// # Errors
    /// As [`Inner::prepare`].
    pub(in super::super) fn build(
        &self,
        leaves: &[(Option<Separator>, u32)],
        threads: usize,
        pass: Pass<'_>,
    ) -> io::Result<()> {
        let lowest = |place: usize| {
            let (separator, child) = &leaves[place];
            let head = separator.as_ref().map_or(0, |separator| separator.head);
            let tie = separator.as_ref().and_then(|separator| separator.tie.as_ref());
            Child { head, child: *child, tie: self.new_tie(tie) }
        };
        let mut children = self.build_level(leaves.len(), &lowest, 0, threads, pass)?;
        for level in 1.. {
            if children.len() == 1 {
                self.root.store(u64::from(children[0].child) * NODE, Release);
                break;
            }
            let below = children;
            children =
                self.build_level(below.len(), &|place| below[place], level, threads, pass)?;
        }
        Ok(())
    }

    /// The nodes over so many children, as children of the level above.
    fn build_level(
        &self,
        count: usize,
        child: &(dyn Fn(usize) -> Child + Sync),
        level: u64,
        threads: usize,
        pass: Pass<'_>,
    ) -> io::Result<Vec<Child>> {
        let nodes = self.take_nodes(count.div_ceil(FILL))?;
        let shares = threads.min(nodes.len() / LEAST).max(1);
        let built: Vec<Mutex<Vec<Child>>> = (0..shares).map(|_| Mutex::default()).collect();
        let fill = |number: usize| {
            let at = nodes[number];
            let mut image = Image::empty(level);
            let places = number * FILL..count.min((number + 1) * FILL);
            places.for_each(|place| image.push(child(place)));
            self.put(at, &image);
            let first = image.child(0);
            let tie = self.new_tie(self.tie(first.tie).as_ref());
            Child { child: (at / NODE) as u32, tie, ..first }
        };
        let from = |share: usize| nodes.len() * share / shares;
        let fill_share = |share: u32| {
            let share = share as usize;
            *built[share].lock() = (from(share)..from(share + 1)).map(fill).collect();
        };
        match shares {
            1 => fill_share(0),
            shares => pass(shares as u32, &fill_share),
        }
        Ok(built.into_iter().flat_map(Mutex::into_inner).collect())
    }

    /// So many nodes, or none.
    fn take_nodes(&self, count: usize) -> io::Result<Vec<u64>> {
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            match self.prepare() {
                Ok(_prepared) => nodes.push(self.take_node()),
                Err(error) => {
                    self.allocation.lock().free.append(&mut nodes);
                    return Err(error);
                }
            }
        }
        Ok(nodes)
    }

    /// Forgets all nodes. Nobody else uses them.
    pub(in super::super) fn forget(&self) {
        let mut allocation = self.allocation.lock();
        allocation.free = (NODE..allocation.next).step_by(NODE as usize).collect();
        *self.ties.write() = Ties::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Side;
    use super::*;
    use crate::keys::{Probe, Sixteen};
    use crate::{Commit, Reserved};
    use std::sync::Arc;
    use terrace_memory::{Backing, Budget, Native, Region};

    fn inner(bytes: u64) -> (Arc<Region>, io::Result<Inner<Native>>) {
        let region = Arc::new(Region::reserve(bytes, Backing::Anonymous).expect("memory"));
        let held = Arc::clone(&region);
        let commit: Commit = Box::new(move |at, bytes| held.commit(at, bytes));
        let reserved = Reserved { memory: region.native(), commit, start: 0 };
        (region, Inner::new(reserved, 0, &Arc::new(Budget::new(1 << 40))))
    }

    /// Some share a head, and then a key stands beside it.
    fn leaves(count: u32) -> Vec<(Option<Separator>, u32)> {
        let separator = |leaf: u32| {
            let tied = leaf % 40 < 3;
            let head = u128::from(if tied { leaf - leaf % 40 } else { leaf }) << 100 | 1 << 90;
            let tie = tied.then(|| Arc::from(leaf.to_be_bytes().as_slice()));
            Separator { head, tie }
        };
        (0..count).map(|leaf| ((leaf > 0).then(|| separator(leaf)), leaf * 3 + 7)).collect()
    }

    type Node = (u64, u64, Vec<(u128, Option<Arc<[u8]>>, u32)>);

    /// Every node from the root down, level by level, with its place; its children's are those of the next.
    fn nodes(inner: &Inner<Native>) -> Vec<Vec<Node>> {
        let mut levels: Vec<Vec<Node>> = Vec::new();
        let mut here = vec![inner.root.load(std::sync::atomic::Ordering::Acquire)];
        loop {
            let node = |at: &u64| {
                let image = inner.image(*at);
                let child = |place| {
                    let child = image.child(place);
                    (child.head, inner.tie(child.tie).filter(|_| place > 0), child.child)
                };
                (*at, image.level(), (0..image.count()).map(child).collect())
            };
            let level: Vec<Node> = here.iter().map(node).collect();
            let is_lowest = level[0].1 == 0;
            here = level.iter().flat_map(|node| &node.2).map(|c| u64::from(c.2) * NODE).collect();
            levels.push(level);
            if is_lowest {
                return levels;
            }
        }
    }

    /// Levels count down to the lowest; nodes are full but for the last of a level; what the lowest lead to is the
    /// leaves, in order, with what stands before each, and the first of a node has what stands before the node.
    fn check(levels: &[Vec<Node>], leaves: &[(Option<Separator>, u32)]) {
        let height = levels.len();
        for (depth, level) in levels.iter().enumerate() {
            let children = levels.get(depth + 1).map_or(leaves.len(), Vec::len);
            assert_eq!(level.len(), children.div_ceil(FILL));
            for (number, (at, found, children)) in level.iter().enumerate() {
                assert_eq!(*found, (height - 1 - depth) as u64, "the level at {at}");
                let is_last = number + 1 == level.len();
                assert!(children.len() == FILL || is_last && (1..FILL).contains(&children.len()));
            }
        }
        let lowest = levels[height - 1].iter().flat_map(|node| node.2.iter().enumerate());
        let mut count = 0;
        for ((place, (head, tie, leaf)), (separator, wanted)) in lowest.zip(leaves) {
            assert_eq!(leaf, wanted);
            assert_eq!(*head, separator.as_ref().map_or(0, |s| s.head));
            let stands = separator.as_ref().and_then(|s| s.tie.clone());
            assert!(place == 0 || *tie == stands, "what is tied at {wanted}");
            count += 1;
        }
        assert_eq!(count, leaves.len());
    }

    #[test]
    fn any_number_of_threads_builds_the_same_nodes() {
        const F: u32 = FILL as u32;
        const L: u32 = F * LEAST as u32;
        let boundaries = [1, F, F * F, F * F * F, 2 * L, 3 * L, 8 * L].map(|n| [n - 1, n, n + 1]);
        for count in boundaries.into_iter().flatten().chain([2, 20, 21, 70_001]) {
            let leaves = leaves(count.max(1));
            let built = |threads| {
                let (_region, inner) = inner(16 << 20);
                let inner = inner.expect("room");
                let parts = std::sync::atomic::AtomicU32::new(1);
                let pass: Pass<'_> = &|count, does| {
                    parts.fetch_max(count, std::sync::atomic::Ordering::Relaxed);
                    spread(count, does);
                };
                inner.build(&leaves, threads, pass).expect("room");
                let levels = nodes(&inner);
                check(&levels, &leaves);
                for (separator, leaf) in leaves.iter().step_by(97) {
                    let Some(separator) = separator else { continue };
                    let (found, _) = inner.find(&Probe::at(separator, &Sixteen), Side::At);
                    assert_eq!(found, *leaf, "{count} leaves, {threads} threads");
                }
                (levels, inner.sizes(), parts.into_inner())
            };
            let (alone, sizes, _) = built(1);
            for threads in [2, 3, 8] {
                let (levels, found, parts) = built(threads);
                assert!(levels == alone && found == sizes, "{count} leaves, {threads} threads");
                // It was built by as many as it is worth.
                let worth = (count.div_ceil(F) / LEAST as u32).clamp(1, threads as u32);
                assert_eq!(parts, worth, "{count} leaves, {threads} threads");
            }
        }
    }

    #[test]
    fn a_level_for_which_there_is_no_room_takes_none() {
        let (_region, inner) = inner(64 << 10);
        let inner = inner.expect("room for a few");
        let before = inner.sizes().0;
        let refused = inner.build(&leaves(100_000), 8, &spread).expect_err("no room");
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(inner.sizes().0, before);
        inner.build(&leaves(500), 8, &spread).expect("room for these");
        check(&nodes(&inner), &leaves(500));
    }
}
