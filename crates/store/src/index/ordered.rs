//! The index of an ordered map, whatever its form: a tree, or delta chains in logs.
//!
//! A form is a type that does what [`Form`] says; [`Ordered`] is one of them. Another needs a type, a variant and an
//! arm of `each!`.
//!
//! # What is durable when
//! Of every form a change is durable before its leaf is let go, and readers wait for that. Where a tree needs memory
//! only for a node more, logs need a line for every change: so any change may be refused for want of it, before it is
//! begun.

use super::deltas::InLogs;
use super::tree::InTree;
use std::fmt;
use std::io;
use std::ops::Bound;
use std::time::Duration;
use terrace_durable::BucketLock;
use terrace_index::keys::{Change, Direction, Entry, Keys};
use terrace_memory::Memory;

/// Whether a watched key was overwritten.
pub(crate) trait Watches {
    /// See [`HashIndex::watch`](terrace_index::HashIndex::watch).
    fn saw_no_overwrite(&self) -> bool;
}

/// What a form of an ordered index does. Values are two words, see [`value`](crate::located::value).
pub(crate) trait Form: fmt::Display {
    type Watch<'a>: Watches
    where
        Self: 'a;

    /// See [`KeyIndex::looked_at`](super::KeyIndex::looked_at).
    fn looked_at(&self) -> [u64; 2];

    fn get(&self, key: &[u8], keys: &impl Keys) -> Option<[u64; 2]>;

    /// The values of many keys, each as by [`Form::get`].
    fn multi_get(&self, wanted: &[&[u8]], keys: &impl Keys, values: &mut [Option<[u64; 2]>]);

    fn watch(&self, key: &[u8], keys: &impl Keys) -> Self::Watch<'_>;

    /// See [`Tree::update_then`](terrace_index::tree::Tree::update_then).
    fn update_then<T>(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce(Option<[u64; 2]>, &BucketLock) -> (Change, T),
        then: impl FnOnce(T),
    ) -> io::Result<Option<[u64; 2]>>;

    /// See [`Tree::update_at`](terrace_index::tree::Tree::update_at).
    ///
    /// # Errors
    /// Those of memory; `f` has not run then.
    fn update_at(
        &self,
        key: &[u8],
        value: [u64; 2],
        keys: &impl Keys,
        f: impl FnOnce(&BucketLock) -> Change,
    ) -> io::Result<bool>;

    fn look<R>(&self, key: &[u8], keys: &impl Keys, f: impl FnOnce([u64; 2]) -> R) -> Option<R>;

    /// Whether `value` is the key's. Takes no latch.
    fn holds(&self, key: &[u8], value: [u64; 2], keys: &impl Keys) -> bool;

    /// See [`Tree::range`](terrace_index::tree::Tree::range).
    fn range(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        keys: &impl Keys,
        visit: impl FnMut(&[Entry]),
    ) -> Option<Entry>;

    /// See [`Tree::some`](terrace_index::tree::Tree::some).
    fn some(&self, random: u64, keys: &impl Keys) -> Option<Entry>;

    /// See [`Tree::walk`](terrace_index::tree::Tree::walk).
    fn walk(&self, keys: &impl Keys, visit: impl FnMut(&Entry, u64));

    /// Removes every entry. The caller holds writers off.
    ///
    /// # Errors
    /// Those of memory; nothing is removed then.
    fn clear(&self, keys: &impl Keys) -> io::Result<()>;

    /// So much time went by since this was called before: whether changes are written back together follows from it.
    fn went_by(&self, _time: Duration) {}

    /// Gives up some garbage, if there is much; whether there may be more to do.
    ///
    /// # Errors
    /// Those of memory, and damage that is in the way.
    fn tidy(&self, _keys: &impl Keys) -> io::Result<bool> {
        Ok(false)
    }

    /// Gives memory back that nothing is in; how many bytes. One that cannot keeps the size that it had at its largest.
    fn shrink(&self, _keys: &impl Keys) -> u64 {
        0
    }

    /// Bytes that nothing is in, as far as they may be given back.
    fn free_bytes(&self) -> u64 {
        0
    }

    fn len(&self) -> u64;

    /// Bytes of memory it takes.
    fn bytes(&self) -> u64;

    /// Bytes in use where it is persistent.
    fn kept_bytes(&self) -> u64;
}

/// An ordered index of any form.
#[expect(clippy::large_enum_variant, reason = "boxed by the index: there is one of a map")]
pub(crate) enum Ordered<I: Memory> {
    Tree(InTree<I>),
    Logs(InLogs<I>),
}

macro_rules! each {
    ($ordered:expr, $form:ident => $what:expr) => {
        match $ordered {
            Ordered::Tree($form) => $what,
            Ordered::Logs($form) => $what,
        }
    };
}

/// What [`Form::watch`] gives.
pub(crate) enum Watch<'a, I: Memory + 'a> {
    Tree(<InTree<I> as Form>::Watch<'a>),
    Logs(<InLogs<I> as Form>::Watch<'a>),
}

impl<I: Memory> Watches for Watch<'_, I> {
    #[inline(always)]
    fn saw_no_overwrite(&self) -> bool {
        match self {
            Watch::Tree(watch) => watch.saw_no_overwrite(),
            Watch::Logs(watch) => watch.saw_no_overwrite(),
        }
    }
}

/// For whoever reads statistics.
impl<I: Memory> fmt::Display for Ordered<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, form => form.fmt(f))
    }
}

impl<I: Memory> Form for Ordered<I> {
    type Watch<'a>
        = Watch<'a, I>
    where
        Self: 'a;

    fn looked_at(&self) -> [u64; 2] {
        each!(self, form => form.looked_at())
    }

    #[inline(always)]
    fn get(&self, key: &[u8], keys: &impl Keys) -> Option<[u64; 2]> {
        each!(self, form => form.get(key, keys))
    }

    #[inline(always)]
    fn multi_get(&self, wanted: &[&[u8]], keys: &impl Keys, values: &mut [Option<[u64; 2]>]) {
        each!(self, form => form.multi_get(wanted, keys, values));
    }

    #[inline(always)]
    fn watch(&self, key: &[u8], keys: &impl Keys) -> Watch<'_, I> {
        match self {
            Ordered::Tree(form) => Watch::Tree(form.watch(key, keys)),
            Ordered::Logs(form) => Watch::Logs(form.watch(key, keys)),
        }
    }

    #[inline(always)]
    fn update_then<T>(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce(Option<[u64; 2]>, &BucketLock) -> (Change, T),
        then: impl FnOnce(T),
    ) -> io::Result<Option<[u64; 2]>> {
        each!(self, form => form.update_then(key, keys, f, then))
    }

    fn update_at(
        &self,
        key: &[u8],
        value: [u64; 2],
        keys: &impl Keys,
        f: impl FnOnce(&BucketLock) -> Change,
    ) -> io::Result<bool> {
        each!(self, form => form.update_at(key, value, keys, f))
    }

    fn look<R>(&self, key: &[u8], keys: &impl Keys, f: impl FnOnce([u64; 2]) -> R) -> Option<R> {
        each!(self, form => form.look(key, keys, f))
    }

    #[inline(always)]
    fn holds(&self, key: &[u8], value: [u64; 2], keys: &impl Keys) -> bool {
        each!(self, form => form.holds(key, value, keys))
    }

    #[inline(always)]
    fn range(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        keys: &impl Keys,
        visit: impl FnMut(&[Entry]),
    ) -> Option<Entry> {
        each!(self, form => form.range(from, direction, count, keys, visit))
    }

    fn some(&self, random: u64, keys: &impl Keys) -> Option<Entry> {
        each!(self, form => form.some(random, keys))
    }

    fn walk(&self, keys: &impl Keys, visit: impl FnMut(&Entry, u64)) {
        each!(self, form => form.walk(keys, visit));
    }

    fn clear(&self, keys: &impl Keys) -> io::Result<()> {
        each!(self, form => form.clear(keys))
    }

    fn went_by(&self, time: Duration) {
        each!(self, form => form.went_by(time));
    }

    fn tidy(&self, keys: &impl Keys) -> io::Result<bool> {
        each!(self, form => form.tidy(keys))
    }

    fn shrink(&self, keys: &impl Keys) -> u64 {
        each!(self, form => form.shrink(keys))
    }

    fn free_bytes(&self) -> u64 {
        each!(self, form => form.free_bytes())
    }

    fn len(&self) -> u64 {
        each!(self, form => form.len())
    }

    fn bytes(&self) -> u64 {
        each!(self, form => form.bytes())
    }

    fn kept_bytes(&self) -> u64 {
        each!(self, form => form.kept_bytes())
    }
}
