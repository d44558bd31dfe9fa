//! The versions of an element, newest first.
//!
//! # Not a version of each pointer
//! The paper versions every pointer of the list (vCAS): a version of a link is another cache line that every
//! walk goes through, and an insertion and a removal together allocate four of them. Here an element's
//! *presence and value* have versions, and an element stays in the list as long as a snapshot may see it. So
//! links need none: a snapshot walks the list as it is now and passes over elements that began later. A removed
//! element costs later walks a step until no snapshot needs it, instead of costing each walk a line for ever.
//!
//! # The state of an element
//! One word. Most elements are inserted once, so their only version lies in the element itself:
//!
//! | state | before its stamp | from its stamp on |
//! |---|---|---|
//! | present | absent | the element's value |
//! | gone | the element's value | absent |
//! | chain | the version's predecessors | as the newest version says |
//! | dead | absent | absent; it takes no more versions and leaves the list |
//!
//! Present becomes gone in place, without allocation, if no snapshot is older than its insertion: none can
//! tell. Any other change installs a [`Version`], which holds its predecessor too, since a snapshot may be
//! opened between the installation and the stamp. What else a snapshot needs is copied to a chain of [`Old`]
//! ones. Versions are immutable but for their stamp, and whoever replaces one owns it and all behind it:
//! pruning needs no protocol of its own.

use super::clock::{Clock, UNSTAMPED};
use super::link::Node;
use super::step::step;
use crossbeam_epoch::Guard;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const PRESENT: usize = 0;
const GONE: usize = 1;
const CHAIN: usize = 2;
const DEAD: usize = 3;
const KIND: usize = 3;
const STAMP_SHIFT: u32 = 2;

/// The state of an element.
#[derive(Debug)]
pub(super) struct State(AtomicPtr<Version>);

/// A value, or none, since a time.
#[derive(Clone, Copy, Debug)]
struct Held {
    value: Option<u64>,
    since: u64,
}

/// The newest version of an element that had another before.
#[derive(Debug)]
struct Version {
    value: Option<u64>,
    since: AtomicU64,
    before: Held,
    older: *mut Old,
}

/// A version that only snapshots see.
#[derive(Debug)]
struct Old {
    held: Held,
    older: *mut Old,
}

/// What a state's word says.
#[derive(Clone, Copy)]
enum View<'g> {
    Present(u64),
    Gone(u64),
    Chain(&'g Version),
    Dead,
}

/// Whether a change happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Present,
    Absent,
    Always,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// It happened; what there was before.
    From(Option<u64>),
    /// It did not; what there is.
    Not(Option<u64>),
    /// The element leaves the list: look for another.
    Dead,
}

/// How versions are stamped and pruned.
#[derive(Debug)]
pub(super) struct Time {
    pub clock: Clock,
    #[cfg(any(test, feature = "faults"))]
    pub fault: Option<super::step::Fault>,
}

impl Time {
    /// Whether a snapshot needs what was so from `from` on and before `until`.
    fn is_needed(&self, from: u64, until: u64) -> bool {
        #[cfg(any(test, feature = "faults"))]
        if self.fault == Some(super::step::Fault::PruningIgnoresSnapshots) {
            return false;
        }
        self.clock.is_read(from, until)
    }

    fn readers_stamp(&self) -> bool {
        #[cfg(any(test, feature = "faults"))]
        if self.fault == Some(super::step::Fault::ReadersDoNotStamp) {
            return false;
        }
        true
    }
}

fn word(kind: usize, stamp: u64) -> *mut Version {
    ptr::without_provenance_mut((stamp as usize) << STAMP_SHIFT | kind)
}

fn view<'g>(word: *mut Version, _: &'g Guard) -> View<'g> {
    let stamp = (word.addr() >> STAMP_SHIFT) as u64;
    match word.addr() & KIND {
        PRESENT => View::Present(stamp),
        GONE => View::Gone(stamp),
        // SAFETY: a version is freed only after it is replaced and every guard that was pinned by then is dropped.
        CHAIN => View::Chain(unsafe { &*word.map_addr(|address| address & !KIND) }),
        _ => View::Dead,
    }
}

impl State {
    /// Of an element that is about to be inserted.
    pub fn unstamped() -> State {
        State(AtomicPtr::new(word(PRESENT, UNSTAMPED)))
    }

    /// Of an element that nobody else knows yet, and that is there from `stamp` on.
    pub fn stamped(stamp: u64) -> State {
        State(AtomicPtr::new(word(PRESENT, stamp)))
    }

    /// Stamps the newest version, whoever installed it, and says what it is now.
    fn stamp<'g>(&self, time: &Time, guard: &'g Guard) -> (*mut Version, View<'g>) {
        loop {
            let now = self.0.load(Ordering::Acquire);
            let seen = view(now, guard);
            match seen {
                View::Present(UNSTAMPED) | View::Gone(UNSTAMPED) => {
                    step();
                    let stamped = word(now.addr() & KIND, time.clock.stamp());
                    step();
                    let _ =
                        self.0.compare_exchange(now, stamped, Ordering::AcqRel, Ordering::Acquire);
                }
                View::Chain(version) if version.since.load(Ordering::Acquire) == UNSTAMPED => {
                    step();
                    let stamp = time.clock.stamp();
                    step();
                    let _ = version.since.compare_exchange(
                        UNSTAMPED,
                        stamp,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    );
                }
                _ => return (now, seen),
            }
        }
    }

    /// Like [`State::stamp`], by a reader.
    #[inline(always)]
    fn read<'g>(&self, time: &Time, guard: &'g Guard) -> View<'g> {
        let seen = view(self.0.load(Ordering::Acquire), guard);
        let is_stamped = match seen {
            View::Present(stamp) | View::Gone(stamp) => stamp != UNSTAMPED,
            View::Chain(version) => version.since.load(Ordering::Acquire) != UNSTAMPED,
            View::Dead => true,
        };
        if is_stamped || !time.readers_stamp() { seen } else { self.stamp(time, guard).1 }
    }
}

impl View<'_> {
    fn value(self, first: u64) -> Option<u64> {
        match self {
            View::Present(_) => Some(first),
            View::Chain(version) => version.value,
            View::Gone(_) | View::Dead => None,
        }
    }
}

impl Version {
    fn since(&self) -> u64 {
        self.since.load(Ordering::Acquire)
    }

    /// Versions before the newest, newest first.
    fn earlier(&self) -> impl Iterator<Item = Held> {
        let mut old = self.older;
        std::iter::once(self.before).chain(std::iter::from_fn(move || {
            // SAFETY: a chain is immutable, and freed with the version that it belongs to, which is borrowed.
            let found = unsafe { old.as_ref() }?;
            old = found.older;
            Some(found.held)
        }))
    }

    /// Frees a version and its chain.
    ///
    /// # Safety
    /// `version` came from a box, is in no element, and nobody reads it or will.
    unsafe fn free(version: *mut Version) {
        // SAFETY: the caller says so.
        let version = unsafe { Box::from_raw(version) };
        let mut old = version.older;
        while !old.is_null() {
            // SAFETY: each of a chain came from a box, and the chain belonged to this version alone.
            old = unsafe { Box::from_raw(old) }.older;
        }
    }
}

impl<K> Node<K> {
    /// A new element.
    pub fn new(key: K, value: u64, state: State) -> Node<K> {
        Node { link: super::link::Link::new(key), state, value }
    }

    /// Stamps an element that this thread inserted.
    pub fn stamp(&self, time: &Time, guard: &Guard) {
        self.state.stamp(time, guard);
    }

    /// The value now.
    #[inline(always)]
    pub fn now(&self, time: &Time, guard: &Guard) -> Option<u64> {
        self.state.read(time, guard).value(self.value)
    }

    /// The value at a moment that is announced.
    #[inline(always)]
    pub fn at(&self, moment: u64, time: &Time, guard: &Guard) -> Option<u64> {
        // Without a stamp it began later; only a reader that does not stamp sees one.
        let has_begun = |stamp| stamp != UNSTAMPED && stamp <= moment;
        match self.state.read(time, guard) {
            View::Present(stamp) => has_begun(stamp).then_some(self.value),
            View::Gone(stamp) => (!has_begun(stamp)).then_some(self.value),
            View::Chain(version) if has_begun(version.since()) => version.value,
            View::Chain(version) => {
                version.earlier().find(|held| held.since <= moment).and_then(|held| held.value)
            }
            View::Dead => None,
        }
    }

    /// Gives the element another value, or none, if it is as `when` says.
    pub fn change(&self, to: Option<u64>, when: When, time: &Time, guard: &Guard) -> Changed {
        loop {
            let (now, seen) = self.state.stamp(time, guard);
            if matches!(seen, View::Dead) {
                return Changed::Dead;
            }
            let is = seen.value(self.value);
            match (when, is) {
                (When::Present, None) | (When::Absent, Some(_)) => return Changed::Not(is),
                _ => {}
            }
            let new = match (seen, to) {
                (View::Present(since), None) if !time.is_needed(0, since) => word(GONE, UNSTAMPED),
                _ => {
                    let version = Box::into_raw(Box::new(self.successor(seen, to, time)));
                    version.map_addr(|address| address | CHAIN)
                }
            };
            step();
            if self.state.0.compare_exchange(now, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
            {
                step();
                self.state.stamp(time, guard);
                retire(now, guard);
                return Changed::From(is);
            }
            if new.addr() & KIND == CHAIN {
                // SAFETY: it was made above and not installed.
                unsafe { Version::free(new.map_addr(|address| address & !KIND)) };
            }
        }
    }

    /// The version to follow what was seen, with what snapshots need of it.
    fn successor(&self, seen: View<'_>, value: Option<u64>, time: &Time) -> Version {
        let (before, older) = match seen {
            View::Present(since) => (Held { value: Some(self.value), since }, ptr::null_mut()),
            View::Gone(since) => {
                let first = Held { value: Some(self.value), since: 0 };
                (Held { value: None, since }, needed(since, std::iter::once(first), time))
            }
            View::Chain(version) => {
                let since = version.since();
                (Held { value: version.value, since }, needed(since, version.earlier(), time))
            }
            View::Dead => (Held { value: None, since: 0 }, ptr::null_mut()),
        };
        Version { value, since: AtomicU64::new(UNSTAMPED), before, older }
    }

    /// Makes the element dead if it is gone and no snapshot sees it any more. Returns whether it is dead.
    pub fn kill(&self, time: &Time, guard: &Guard) -> bool {
        loop {
            let (now, seen) = self.state.stamp(time, guard);
            let may = match seen {
                View::Dead => return true,
                View::Present(_) => false,
                View::Gone(since) => !time.is_needed(0, since),
                View::Chain(version) => {
                    let mut until = version.since();
                    version.value.is_none()
                        && version.earlier().all(|held| {
                            let end = std::mem::replace(&mut until, held.since);
                            held.value.is_none() || !time.is_needed(held.since, end)
                        })
                }
            };
            if !may {
                return false;
            }
            step();
            let dead = word(DEAD, UNSTAMPED);
            if self.state.0.compare_exchange(now, dead, Ordering::AcqRel, Ordering::Acquire).is_ok()
            {
                retire(now, guard);
                return true;
            }
        }
    }

    /// Drops versions that no snapshot needs. Returns whether all that is left is what a new snapshot may need.
    pub fn prune(&self, time: &Time, guard: &Guard) -> bool {
        loop {
            let (now, seen) = self.state.stamp(time, guard);
            let is_gone = seen.value(self.value).is_none();
            let View::Chain(version) = seen else { return !is_gone };
            if version.older.is_null() {
                return !is_gone;
            }
            let older = needed(version.before.since, version.earlier().skip(1), time);
            let is_clean = older.is_null() && !is_gone;
            let pruned = Version { since: AtomicU64::new(version.since()), older, ..*version };
            let pruned = Box::into_raw(Box::new(pruned));
            let new = pruned.map_addr(|address| address | CHAIN);
            if self.state.0.compare_exchange(now, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
            {
                retire(now, guard);
                return is_clean;
            }
            // SAFETY: it was made above and not installed.
            unsafe { Version::free(pruned) };
        }
    }

    /// Versions outside the element.
    pub fn versions(&self, guard: &Guard) -> usize {
        match view(self.state.0.load(Ordering::Acquire), guard) {
            View::Chain(version) => version.earlier().count(),
            _ => 0,
        }
    }

    /// Frees the versions of an element that is about to be freed itself.
    pub fn free_versions(&mut self) {
        let word = *self.state.0.get_mut();
        if word.addr() & KIND == CHAIN {
            // SAFETY: the element is borrowed for itself alone, so nobody else reads its versions.
            unsafe { Version::free(word.map_addr(|address| address & !KIND)) };
            *self.state.0.get_mut() = ptr::without_provenance_mut(DEAD);
        }
    }
}

/// Bytes of a version outside an element, as [`Node::versions`] counts them: a little less for those behind the first.
pub(super) const VERSION_BYTES: usize = size_of::<Version>();

/// A chain of those versions that snapshots need, of which the newest was superseded at `until`.
fn needed(until: u64, versions: impl Iterator<Item = Held>, time: &Time) -> *mut Old {
    let mut end = until;
    let mut kept = Vec::new();
    for held in versions {
        if time.is_needed(held.since, end) {
            kept.push(held);
        }
        end = held.since;
    }
    kept.into_iter()
        .rev()
        .fold(ptr::null_mut(), |older, held| Box::into_raw(Box::new(Old { held, older })))
}

/// Frees what a state's word led to, once nobody reads it.
fn retire(word: *mut Version, guard: &Guard) {
    if word.addr() & KIND == CHAIN {
        let version = word.map_addr(|address| address & !KIND);
        // SAFETY: this thread replaced the word, so nobody who pins a guard from now on finds the version, and nobody
        // else retires it.
        unsafe { guard.defer_unchecked(move || Version::free(version)) };
    }
}
