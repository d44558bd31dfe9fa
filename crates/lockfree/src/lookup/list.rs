//! The data layer: one list of markers and elements in the order of their keys (Harris; Michael).
//!
//! A marker comes before the element of its key. A link leaves the list in two steps: its pointer is marked, so that
//! nothing is inserted behind it any more, and then the pointer before it is led past. Searches for a change do the
//! second step for every marked link that they come by; look-ups write nothing.

use super::key::Key;
use super::level::Level;
use super::link::{Link, Node, Target, Word};
use super::step::step;
use super::table::{LookupTable, Visited};
use crossbeam_epoch::Guard;
use std::cmp::Ordering as Order;
use std::sync::atomic::Ordering;

/// Where a key is, or belongs.
pub(super) struct Place<'g, K> {
    pub previous: &'g Link<K>,
    /// What `previous` led to, without a mark.
    pub word: Word<K>,
    pub found: Option<&'g Node<K>>,
    pub visited: Visited,
}

/// Counts what a look-up goes through, or does not.
pub(super) trait Count {
    fn level(&mut self);
    fn node(&mut self);
}

impl Count for () {
    #[inline(always)]
    fn level(&mut self) {}
    #[inline(always)]
    fn node(&mut self) {}
}

impl Count for Visited {
    fn level(&mut self) {
        self.levels += 1;
    }

    fn node(&mut self) {
        self.nodes += 1;
    }
}

/// Where the elements lie that a walk over all of them comes to, so that it need not wait for each: for none of its
/// steps is it of any importance whether they are still there.
pub(super) struct Course<'a>(pub &'a [usize]);

impl Course<'_> {
    /// Elements ahead.
    const AHEAD: usize = 12;

    fn pass<K>(&mut self, target: &Target<'_, K>) {
        if let Target::Element(_) = target {
            self.0 = self.0.get(1..).unwrap_or_default();
            if let Some(address) = self.0.get(Course::AHEAD) {
                terrace_memory::instructions::prefetch(std::ptr::without_provenance(*address));
            }
        }
    }
}

impl<K: Key> LookupTable<K> {
    /// The level and bucket that a key is in, and its marker's pointer.
    #[inline(always)]
    pub(super) fn bucket<'g>(
        &self,
        key: &K,
        count: &mut impl Count,
        _: &'g Guard,
    ) -> (&'g Level<K>, usize, Word<K>) {
        // SAFETY: a root is freed only after it is replaced and every guard that was pinned by then is dropped; with
        // it go the levels below.
        let mut level: &'g Level<K> = unsafe { &*self.root.load(Ordering::Acquire) };
        loop {
            count.level();
            let bucket = level.index(key);
            let word = level.marker(bucket).word();
            if !word.has_flag() {
                return (level, bucket, word);
            }
            level = level.split(bucket);
        }
    }

    /// The element of a key; it may be gone. A marker that a resize deleted meanwhile is as good a beginning:
    /// it was in the list when the look-up had begun, and so all that was there then is behind it.
    #[inline(always)]
    pub(super) fn find<'g>(
        &self,
        key: &K,
        count: &mut impl Count,
        guard: &'g Guard,
    ) -> Option<&'g Node<K>> {
        let (_, _, mut word) = self.bucket(key, count, guard);
        loop {
            step();
            let target = word.target(guard)?;
            count.node();
            match (target, target.link().key.cmp(key)) {
                (Target::Element(node), Order::Equal) => return Some(node),
                (_, Order::Greater) => return None,
                _ => word = target.link().word(),
            }
        }
    }

    /// Where a key is or belongs, with nothing deleted between it and the link before it.
    pub(super) fn locate<'g>(&'g self, key: &K, guard: &'g Guard) -> Place<'g, K> {
        loop {
            let mut visited = Visited::default();
            let (level, bucket, _) = self.bucket(key, &mut visited, guard);
            // A marker that is deleted belongs to a root that is replaced.
            if let Some(mut place) = self.walk(level.marker(bucket), key, guard) {
                place.visited.levels = visited.levels;
                return place;
            }
        }
    }

    /// Like [`LookupTable::locate`], from a link on; none if that is deleted, or was changed by another thread.
    pub(super) fn walk<'g>(
        &self,
        from: &'g Link<K>,
        key: &K,
        guard: &'g Guard,
    ) -> Option<Place<'g, K>> {
        self.walk_while(from, guard, |target| match target {
            Target::Marker(marker) => marker.key <= *key,
            Target::Element(node) => node.link.key < *key,
        })
        .map(|(mut place, end)| {
            if let Some(Target::Element(node)) = end {
                place.found = (node.link.key == *key).then_some(node);
            }
            place
        })
    }

    /// Walks from a link on as long as `goes_on` says, and unlinks what is deleted. Returns where that was and what
    /// is there; none if the walk has to begin again.
    fn walk_while<'g>(
        &self,
        from: &'g Link<K>,
        guard: &'g Guard,
        mut goes_on: impl FnMut(&Target<'g, K>) -> bool,
    ) -> Option<(Place<'g, K>, Option<Target<'g, K>>)> {
        let (mut previous, mut word, mut nodes) = (from, from.word(), 0);
        if word.is_deleted() {
            return None;
        }
        let end = loop {
            step();
            let Some(target) = word.target(guard) else { break None };
            let next = target.link().word();
            if next.is_deleted() {
                let past = word.leading_like(next);
                if !previous.swap(word, past) {
                    return None;
                }
                self.retire(word, guard);
                word = past;
                continue;
            }
            nodes += 1;
            if !goes_on(&target) {
                break Some(target);
            }
            (previous, word) = (target.link(), next);
        };
        let place = Place { previous, word, found: None, visited: Visited { levels: 0, nodes } };
        Some((place, end))
    }

    /// Frees what a word led to and does no more, if it is an element, when nobody reads it.
    fn retire(&self, word: Word<K>, guard: &Guard) {
        #[cfg(any(test, feature = "faults"))]
        if self.time.fault.is_some() {
            return;
        }
        let Some(node) = word.element() else { return };
        // SAFETY: this thread unlinked it, and a link is unlinked once: only one pointer without a mark leads
        // to it, and none from now on. It was dead before it was marked, so its versions are retired already.
        unsafe { guard.defer_unchecked(move || drop(Box::from_raw(node))) };
    }

    /// The end of the list, of a table that nobody else has.
    pub(super) fn last_place<'g>(&'g self, _: &'g Guard) -> Place<'g, K> {
        Place {
            previous: &self.head,
            word: self.head.word(),
            found: None,
            visited: Visited::default(),
        }
    }

    /// Puts the markers of a level, and of those below, into the list, each from the one before it on.
    pub(super) fn link_markers(&self, from: &Link<K>, level: &Level<K>, mut course: Course<'_>) {
        let mut previous = from;
        level.each_marker(&mut |marker| {
            let guard = crossbeam_epoch::pin();
            while !self.link_marker(previous, marker, &mut course, &guard) {}
            previous = marker;
        });
    }

    /// Puts a marker into the list behind `from`, which is a marker that stays. Returns whether it did.
    fn link_marker(
        &self,
        from: &Link<K>,
        marker: &Link<K>,
        course: &mut Course<'_>,
        guard: &Guard,
    ) -> bool {
        let found = self.walk_while(from, guard, |target| {
            let goes_on = target.link().key < marker.key;
            if goes_on {
                course.pass(target);
            }
            goes_on
        });
        let Some((place, _)) = found else { return false };
        marker.lead_like(place.word);
        step();
        #[cfg(any(test, feature = "faults"))]
        if self.time.fault == Some(super::step::Fault::SplitWithoutMarkers) {
            return true;
        }
        place.previous.swap(place.word, place.word.leading_to_marker(marker))
    }

    /// Unlinks everything that is deleted, from the beginning to the end, by a thread that has the index alone: no
    /// other deletes markers.
    pub(super) fn sweep(&self, mut course: Course<'_>) {
        /// Links between two guards.
        const AT_ONCE: usize = 1024;
        let mut from: *const Link<K> = &raw const self.head;
        loop {
            let guard = crossbeam_epoch::pin();
            let (mut walked, mut last) = (0, None);
            // SAFETY: it is the head or a marker that is not deleted, nor will be before this returns, so it is
            // not freed.
            let begin = unsafe { &*from };
            let end = self.walk_while(begin, &guard, |target| {
                walked += 1;
                course.pass(target);
                if let Target::Marker(marker) = target {
                    last = Some(*marker);
                }
                walked < AT_ONCE || last.is_none()
            });
            match (end, last) {
                (Some((_, None)), _) => return,
                (_, Some(marker)) => from = marker,
                (_, None) => {}
            }
        }
    }
}
