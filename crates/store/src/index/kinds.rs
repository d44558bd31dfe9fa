//! The kinds of index, one a line of `kinds!`, and [`Index`], which is any of them.

use super::{
    Found, InLogs, InTree, KeyIndex, Position, Site, Unordered, Watches, changed_at_rest, found_in,
    illegible,
};
use crate::engine::BATCH;
use crate::form::TreeForm;
use crate::open::Opening;
use std::fmt;
use std::io;
use std::ops::Bound;
use std::time::Duration;
use terrace_durable::sections::Changes;
use terrace_durable::{BucketLock, IndexFile};
use terrace_index::keys::{Direction, Entry, Keys};
use terrace_index::{Change, HashIndex, Items, Line};
use terrace_memory::{Divide, Memory, Native};

/// Writes the enum, and the two macros that dispatch on it; `$d` is `$`, for their parameters.
macro_rules! kinds {
    ($d:tt $($name:ident($kind:ty),)+) => {
        /// An index of any kind.
        pub(crate) enum Index<I: Memory> {
            $($name($kind)),+
        }

        /// What [`KeyIndex::watch`] gives.
        pub(crate) enum Watch<'a, I: Memory + 'a> {
            $($name(<$kind as KeyIndex>::Watch<'a>)),+
        }

        impl<I: Memory> Index<I> {
            #[inline(always)]
            fn watched(&self, hash: u64, key: &[u8], items: &impl Keys) -> Watch<'_, I> {
                match self {
                    $(Index::$name(kind) => Watch::$name(KeyIndex::watch(kind, hash, key, items))),+
                }
            }
        }

        /// What follows from the kind of an index, or of a watch.
        macro_rules! each {
            ($d of:ident, $d this:expr, $d kind:ident => $d what:expr) => {
                match $d this {
                    $($d of::$name($d kind) => $d what),+
                }
            };
        }

        /// What the kind that makes indexes of this form returns.
        macro_rules! made_as {
            ($d form:expr, $d make:ident($d($d with:expr),*)) => {{
                let form = $d form;
                $(if <$kind as KeyIndex>::makes(form) {
                    return <$kind as KeyIndex>::$d make($d($d with),*).map(Index::$name);
                })+
                unreachable!("an index of a form that no kind makes")
            }};
        }

        fn check<I: Memory>(form: Option<TreeForm>, node_bytes: u64) -> io::Result<()> {
            $(if <$kind as KeyIndex>::makes(form) {
                return <$kind as KeyIndex>::check(form, node_bytes);
            })+
            Ok(())
        }

        fn found<I: Divide>(file: &IndexFile<I>) -> io::Result<Option<Found>> {
            $(if let Some(found) = <$kind as KeyIndex>::found(file)? {
                return Ok(Some(found));
            })+
            Ok(None)
        }
    };
}

kinds! { $
    Hash(HashIndex<I>),
    Tree(InTree<I>),
    Logs(InLogs<I>),
}

impl<I: Memory> Watches for Watch<'_, I> {
    #[inline(always)]
    fn saw_no_overwrite(&self) -> bool {
        each!(Watch, self, watch => watch.saw_no_overwrite())
    }
}

/// For whoever reads statistics.
impl<I: Memory> fmt::Display for Index<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f)
    }
}

impl<I: Memory> KeyIndex for Index<I> {
    type Memory = I;
    type InDram = Index<Native>;
    type Watch<'a>
        = Watch<'a, I>
    where
        Self: 'a;

    fn makes(_form: Option<TreeForm>) -> bool {
        true
    }

    fn check(form: Option<TreeForm>, node_bytes: u64) -> io::Result<()> {
        check::<I>(form, node_bytes)
    }

    fn in_dram(opening: &Opening<'_>, capacity: u64) -> io::Result<Index<Native>> {
        made_as!(opening.plan.form_in_dram(), in_dram(opening, capacity))
    }

    fn create(site: &Site<'_, I>) -> io::Result<Index<I>>
    where
        I: Divide,
    {
        made_as!(site.opening.plan.persistent_form(), create(site))
    }

    fn found(file: &IndexFile<I>) -> io::Result<Option<Found>>
    where
        I: Divide,
    {
        found(file)
    }

    fn reopen(
        site: &Site<'_, I>,
        claimed: &(impl Keys + Sync),
        is_intact: impl FnOnce(&[(u64, u64)]) -> io::Result<bool>,
    ) -> io::Result<Index<I>>
    where
        I: Divide,
    {
        if site.file.tables == 0 && found(site.file)?.is_none() {
            // What it is cannot be read any more; whether it changed at rest can still be told.
            let start = site.file.areas_at();
            let is_intact = is_intact(&[(start, 0)])?;
            return Err(if is_intact { illegible(start) } else { changed_at_rest() });
        }
        made_as!(form_in(site.file)?, reopen(site, claimed, is_intact))
    }

    fn repair(site: &Site<'_, I>, claimed: &(impl Keys + Sync)) -> io::Result<Index<I>>
    where
        I: Divide,
    {
        made_as!(form_in(site.file)?, repair(site, claimed))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(Index, self, kind => KeyIndex::describe(kind, f))
    }

    #[inline(always)]
    fn is_ordered(&self) -> bool {
        each!(Index, self, kind => KeyIndex::is_ordered(kind))
    }

    fn use_sections(&mut self) {
        each!(Index, self, kind => KeyIndex::use_sections(kind));
    }

    fn note_allocation(&self) {
        each!(Index, self, kind => KeyIndex::note_allocation(kind));
    }

    fn looked_at(&self) -> [u64; 2] {
        each!(Index, self, kind => KeyIndex::looked_at(kind))
    }

    fn have_one_tag(&self, one: u64, other: u64) -> bool {
        each!(Index, self, kind => KeyIndex::have_one_tag(kind, one, other))
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> Option<Line<'_, I>> {
        each!(Index, self, kind => KeyIndex::line(kind, hash))
    }

    #[inline(always)]
    fn get(&self, hash: u64, key: &[u8], items: &(impl Items + Keys)) -> Option<u64> {
        each!(Index, self, kind => KeyIndex::get(kind, hash, key, items))
    }

    #[inline(always)]
    fn candidates(
        &self,
        hashes: &[u64],
        keys: &[&[u8]],
        together: usize,
        items: &impl Keys,
        near: impl Fn(u64),
        found: &mut [Option<u64>; BATCH],
    ) {
        each!(Index, self, kind => KeyIndex::candidates(kind, hashes, keys, together, items, near, found));
    }

    #[inline(always)]
    fn watch(&self, hash: u64, key: &[u8], items: &impl Keys) -> Watch<'_, I> {
        self.watched(hash, key, items)
    }

    #[inline(always)]
    fn update_then<T>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        each!(Index, self, kind => KeyIndex::update_then(kind, hash, key, items, f, then))
    }

    fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(u64) -> R,
    ) -> Option<R> {
        each!(Index, self, kind => KeyIndex::look(kind, hash, key, items, f))
    }

    fn update_at(
        &self,
        hash: u64,
        key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> io::Result<bool> {
        each!(Index, self, kind => KeyIndex::update_at(kind, hash, key, at, items, f))
    }

    #[inline(always)]
    fn holds(&self, hash: u64, key: &[u8], at: u64, items: &(impl Items + Keys)) -> bool {
        each!(Index, self, kind => KeyIndex::holds(kind, hash, key, at, items))
    }

    fn scan(
        &self,
        from: &Position,
        count: usize,
        items: &(impl Items + Keys),
        visit: impl FnMut(u64),
    ) -> Position {
        each!(Index, self, kind => KeyIndex::scan(kind, from, count, items, visit))
    }

    #[inline(always)]
    fn range(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        items: &impl Keys,
        visit: impl FnMut(u64),
    ) -> Result<Option<u64>, Unordered> {
        each!(Index, self, kind => KeyIndex::range(kind, from, direction, count, items, visit))
    }

    fn walk(&self, items: &impl Keys, visit: impl FnMut(&Entry, u64)) -> Result<(), Unordered> {
        each!(Index, self, kind => KeyIndex::walk(kind, items, visit))
    }

    fn position_near(&self, random: u64, items: &impl Keys) -> Position {
        each!(Index, self, kind => KeyIndex::position_near(kind, random, items))
    }

    fn clear(&self, items: &impl Keys) -> io::Result<()> {
        each!(Index, self, kind => KeyIndex::clear(kind, items))
    }

    fn went_by(&self, time: Duration) {
        each!(Index, self, kind => KeyIndex::went_by(kind, time));
    }

    fn tidy(&self, items: &impl Keys) -> io::Result<bool> {
        each!(Index, self, kind => KeyIndex::tidy(kind, items))
    }

    fn shrink(&self, items: &impl Keys) -> u64 {
        each!(Index, self, kind => KeyIndex::shrink(kind, items))
    }

    fn free_bytes(&self) -> u64 {
        each!(Index, self, kind => KeyIndex::free_bytes(kind))
    }

    fn len(&self) -> u64 {
        each!(Index, self, kind => KeyIndex::len(kind))
    }

    fn bytes(&self) -> u64 {
        each!(Index, self, kind => KeyIndex::bytes(kind))
    }

    fn used(&self, start: u64) -> Vec<(u64, u64)> {
        each!(Index, self, kind => KeyIndex::used(kind, start))
    }
}

/// The form of the index in a file; [`None`] of tables.
fn form_in<I: Divide>(file: &IndexFile<I>) -> io::Result<Option<TreeForm>> {
    match file.tables {
        0 => found_in::<Index<I>>(file).map(|found| Some(found.form)),
        _ => Ok(None),
    }
}
