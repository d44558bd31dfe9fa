//! All inner nodes at once: built over the leaves that there are, forgotten, or begun anew under readers.

use super::image::{FILL, Image, NODE};
use super::{Child, Inner, Ties};
use crate::keys::{Keys, Separator};
use std::io;
use std::sync::atomic::Ordering::Release;
use terrace_memory::Memory;

impl<D: Memory> Inner<D> {
    /// From here on `leaf` is the only one. Readers that are on their way find out.
    pub(in super::super) fn begin_anew(&self, leaf: u32, keys: &impl Keys) {
        let (used, free) = {
            let books = self.books.lock();
            (books.next, books.free.clone())
        };
        self.begin(leaf);
        let mut was_used = vec![true; (used / NODE) as usize];
        was_used[0] = false;
        free.iter().for_each(|node| was_used[(node / NODE) as usize] = false);
        let before = (0..).zip(was_used).filter(|(_, was_used)| *was_used);
        let before: Vec<u64> = before.map(|(number, _): (u64, bool)| number * NODE).collect();
        for at in &before {
            self.latch(*at, keys).is_changed = true;
        }
        *self.ties.write() = Ties::default();
        self.books.lock().free.extend(before);
    }

    /// Builds all nodes anew for these leaves, in order, each with what stands before it. Nobody else uses
    /// them.
    ///
    /// # Errors
    /// As [`Inner::prepare`].
    pub(in super::super) fn build(
        &self,
        leaves: impl Iterator<Item = (Option<Separator>, u32)>,
    ) -> io::Result<()> {
        let mut lowest = leaves.map(|(separator, child)| {
            let head = separator.as_ref().map_or(0, |separator| separator.head);
            Child {
                head,
                child,
                tie: self.new_tie(separator.and_then(|separator| separator.tie).as_ref()),
            }
        });
        let mut children = self.build_level(&mut lowest, 0)?;
        for level in 1.. {
            if children.len() == 1 {
                self.root.store(u64::from(children[0].child) * NODE, Release);
                break;
            }
            children = self.build_level(&mut children.into_iter(), level)?;
        }
        Ok(())
    }

    /// The nodes over these children, as children of the level above.
    fn build_level(
        &self,
        children: &mut dyn Iterator<Item = Child>,
        level: u64,
    ) -> io::Result<Vec<Child>> {
        let mut nodes = Vec::new();
        let mut children = children.peekable();
        while children.peek().is_some() {
            let _prepared = self.prepare()?;
            let at = self.take_node();
            let mut image = Image::empty(level);
            children.by_ref().take(FILL).for_each(|child| image.push(child));
            self.put(at, &image);
            let first = image.child(0);
            let tie = self.new_tie(self.tie(first.tie).as_ref());
            nodes.push(Child { child: (at / NODE) as u32, tie, ..first });
        }
        Ok(nodes)
    }

    /// Forgets all nodes. Nobody else uses them.
    pub(in super::super) fn forget(&self) {
        let mut books = self.books.lock();
        books.free = (NODE..books.next).step_by(NODE as usize).collect();
        *self.ties.write() = Ties::default();
    }
}
