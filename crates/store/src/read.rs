//! Reading: one key, many in stages, a scan.

use crate::engine::{BATCH, Engine, Value, is_live, value_of};
use crate::index::{Index, Position};
use crate::located::location;
use crate::ordered::Ordered;
use crate::range::PAGE;
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_durable::Values;
use terrace_durable::item::Item;
use terrace_durable::logs::{ItemCopy, Ticket};
use terrace_index::keys::Keys;
use terrace_index::{HashIndex, Line, hash_key};
use terrace_memory::Memory;

/// How often a reader copies an item that keeps changing before it takes the key's lock.
const OPTIMISTIC_COPIES: usize = 64;

/// The stages of a batched lookup before the verification (paper 000, C9).
struct Batch<'a, I: Memory> {
    hashes: [u64; BATCH],
    candidates: [Option<u64>; BATCH],
    stages: Stages<'a, I>,
}

/// How the index is asked for many keys.
#[expect(clippy::large_enum_variant, reason = "one on the stack, of the kind that the map is")]
enum Stages<'a, I: Memory> {
    Table(&'a HashIndex<I>, [Line<'a, I>; BATCH]),
    Ordered(&'a Ordered<I>),
}

impl<'a, I: Memory> Batch<'a, I> {
    fn new(index: &'a Index<I>) -> Batch<'a, I> {
        let stages = match index {
            Index::Hash(table) => Stages::Table(table, [table.line(0); BATCH]),
            Index::Ordered(tree) => Stages::Ordered(tree),
        };
        Batch { hashes: [0; BATCH], candidates: [None; BATCH], stages }
    }

    /// Finds a candidate for each of `keys`, and brings its item near, `ahead` lines of each.
    #[inline(always)]
    fn find_candidates<M: Memory>(
        &mut self,
        engine: &Engine<M, I>,
        keys: &[&[u8]],
        ahead: u64,
        items: &impl Keys,
    ) {
        let Batch { hashes, candidates, stages } = self;
        match stages {
            Stages::Table(table, lines) => {
                for (hash, key) in hashes.iter_mut().zip(keys) {
                    *hash = hash_key(engine.seed, key);
                }
                let near = |location| engine.values.prefetch(location, ahead);
                look_up(table, &hashes[..keys.len()], lines, candidates, near);
            }
            Stages::Ordered(tree) => {
                let (mut values, together) = ([None; BATCH], engine.lookups_together);
                for (keys, values) in keys.chunks(together).zip(values.chunks_mut(together)) {
                    tree.multi_get(keys, items, &mut values[..keys.len()]);
                }
                for (candidate, value) in candidates.iter_mut().zip(&values[..keys.len()]) {
                    *candidate = value.map(location);
                    candidate.iter().for_each(|location| engine.values.prefetch(*location, ahead));
                }
            }
        }
    }
}

/// Prefetches the buckets; then finds a candidate in each, or prefetches its overflow line; then looks
/// there. `near` hears of candidates.
#[inline(always)]
fn look_up<'a, I: Memory>(
    table: &'a HashIndex<I>,
    hashes: &[u64],
    lines: &mut [Line<'a, I>; BATCH],
    candidates: &mut [Option<u64>; BATCH],
    near: impl Fn(u64),
) {
    for (i, hash) in hashes.iter().enumerate() {
        lines[i] = table.line(*hash);
        lines[i].prefetch();
    }
    let mut elsewhere = [0u8; BATCH];
    let mut count = 0;
    for (i, hash) in hashes.iter().enumerate() {
        candidates[i] = lines[i].candidate(*hash);
        if let Some(location) = candidates[i] {
            near(location);
        } else if let Some(next) = lines[i].next() {
            next.prefetch();
            lines[i] = next;
            elsewhere[count] = i as u8;
            count += 1;
        }
    }
    for i in elsewhere[..count].iter().map(|i| usize::from(*i)) {
        candidates[i] = lines[i].candidate(hashes[i]);
        candidates[i].into_iter().for_each(&near);
    }
}

/// An item as it was found without the key's lock.
#[derive(Clone, Copy)]
struct Found<'a> {
    location: u64,
    /// Lengths and key; the rest only if `is_settled`.
    item: Item<'a>,
    /// Whether nobody overwrites it any more, asked before it was looked at.
    is_settled: bool,
}

impl<M: Memory, I: Memory> Engine<M, I> {
    #[inline]
    pub fn get<R>(
        &self,
        key: &[u8],
        f: impl FnOnce(Value<'_>) -> R,
    ) -> (Option<R>, Option<Ticket>) {
        let guard = crossbeam_epoch::pin();
        let hash = hash_key(self.seed, key);
        let found = self.lookup(hash, key, &guard);
        self.at_rest(found, hash, key, &guard, |found| {
            let Some((location, item)) = found else { return (None, None) };
            let undurable = self.sync.load(Ordering::Relaxed);
            let undurable = if undurable { self.values.undurable(location) } else { None };
            let live = is_live(&item).then(|| {
                self.look(location, &item);
                f(value_of(&item, location))
            });
            (live, undurable)
        })
    }

    /// Looks `keys` up in stages, so that the memory accesses of a batch overlap: hash and
    /// prefetch the buckets; read the buckets and prefetch the items; verify and tell.
    pub fn multi_get(
        &self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<Value<'_>>),
        mut saw: impl FnMut(Ticket),
    ) {
        let guard = crossbeam_epoch::pin();
        let ahead = self.lines_ahead();
        let sync = self.sync.load(Ordering::Relaxed);
        let mut batch = Batch::new(&self.index);
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
            batch.find_candidates(self, keys, ahead, &self.located(&guard));
            for (i, key) in keys.iter().enumerate() {
                let verified = batch.candidates[i]
                    .and_then(|location| {
                        let is_settled = !self.values.may_change(location);
                        let item = self.values.item_if_key(location, key, &guard)?;
                        Some(Found { location, item, is_settled })
                    })
                    .or_else(|| self.lookup(batch.hashes[i], key, &guard));
                self.at_rest(verified, batch.hashes[i], key, &guard, |found| {
                    let live = found.filter(|(_, item)| is_live(item));
                    live.iter().for_each(|(at, item)| self.look(*at, item));
                    each(chunk * BATCH + i, live.map(|(at, item)| value_of(&item, at)));
                    if sync && let Some((at, _)) = found {
                        self.values.undurable(at).into_iter().for_each(&mut saw);
                    }
                });
            }
        }
    }

    /// An item as long as the last one written, starting anywhere in a line, touches at most so
    /// many lines.
    #[inline(always)]
    pub(crate) fn lines_ahead(&self) -> u64 {
        (u64::from(self.item_bytes_hint.load(Ordering::Relaxed)) + 62) / 64 + 1
    }

    #[inline]
    fn lookup<'g>(&'g self, hash: u64, key: &[u8], guard: &'g Guard) -> Option<Found<'g>> {
        let location = self.index.get(hash, key, &self.located(guard))?;
        Some(self.found(location, guard))
    }

    #[inline(always)]
    fn found<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<'g> {
        let is_settled = !self.values.may_change(location);
        Found { location, item: self.values.item(location, guard), is_settled }
    }

    /// Runs `f` on the item just found for `key`, or on what it has become: where it lies if nobody
    /// overwrites it there, else on a copy made while nobody did.
    #[inline(always)]
    fn at_rest<'a, R>(
        &'a self,
        found: Option<Found<'a>>,
        hash: u64,
        key: &[u8],
        guard: &'a Guard,
        f: impl FnOnce(Option<(u64, Item<'_>)>) -> R,
    ) -> R {
        // One call of `f`, so that it is inlined: what was found lies in memory otherwise, and is read
        // back before it has been written.
        let mut copy = ItemCopy::new();
        f(match found {
            Some(Found { location, is_settled: false, .. }) => {
                self.copied_at(location, hash, key, guard, &mut copy)
            }
            settled => settled.map(|found| (found.location, found.item)),
        })
    }

    /// A copy of the item at `location`, or of what the key has become.
    #[inline(never)]
    fn copied_at<'a>(
        &'a self,
        location: u64,
        hash: u64,
        key: &[u8],
        guard: &'a Guard,
        copy: &'a mut ItemCopy,
    ) -> Option<(u64, Item<'a>)> {
        let watch = self.index.watch(hash, key, &self.located(guard));
        if self.values.copy_item(location, copy) && watch.saw_no_overwrite() {
            return Some((location, copy.item()));
        }
        self.copied(hash, key, guard, copy)
    }

    #[cold]
    fn copied<'a>(
        &'a self,
        hash: u64,
        key: &[u8],
        guard: &'a Guard,
        copy: &'a mut ItemCopy,
    ) -> Option<(u64, Item<'a>)> {
        for _ in 0..OPTIMISTIC_COPIES {
            let watch = self.index.watch(hash, key, &self.located(guard));
            let Found { location, .. } = self.lookup(hash, key, guard)?;
            if !self.values.copy_item(location, copy) {
                return Some((location, self.values.item(location, guard)));
            }
            if watch.saw_no_overwrite() {
                return Some((location, copy.item()));
            }
            self.values.medium().memory().pause();
        }
        // The key is overwritten all the time: as a writer that changes nothing.
        self.index.look(hash, key, &self.located(guard), |location| {
            let copied = self.values.copy_item(location, copy);
            (location, if copied { copy.item() } else { self.values.item(location, guard) })
        })
    }

    /// Brings buckets and items of `keys` near, for writes that follow.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        let guard = crossbeam_epoch::pin();
        let located = self.located(&guard);
        let mut batch = Batch::new(&self.index);
        keys.chunks(BATCH).for_each(|keys| batch.find_candidates(self, keys, 1, &located));
    }

    /// Visits live items from a position on, `count` entries at least if there are, and says where to go
    /// on; see [`Index::scan`].
    pub fn scan(
        &self,
        from: &Position,
        count: usize,
        mut each: impl FnMut(&[u8], Value<'_>),
        mut saw: impl FnMut(Ticket),
    ) -> Position {
        let ahead = self.lines_ahead();
        let (mut reached, mut left) = (from.clone(), count.max(1));
        let mut page = Vec::with_capacity(PAGE);
        loop {
            let guard = crossbeam_epoch::pin();
            page.clear();
            reached =
                self.index.scan(&reached, left.min(PAGE), &self.located(&guard), |location| {
                    self.values.prefetch(location, ahead);
                    page.push(location);
                });
            page.iter().for_each(|at| self.visit(*at, &guard, &mut each, &mut saw));
            left = left.saturating_sub(page.len());
            if left == 0 || reached == Position::End {
                return reached;
            }
        }
    }

    /// A place that `random` chooses: a bucket, or some key.
    pub fn position_near(&self, random: u64) -> Position {
        let Index::Ordered(tree) = &self.index else {
            return Position::Bucket(random % (2 * self.len().max(1)));
        };
        let guard = crossbeam_epoch::pin();
        let located = self.located(&guard);
        tree.some(random, &located).map_or(Position::Start, |entry| {
            let mut key = Vec::new();
            located.key(entry.value, &mut key);
            Position::At(key.into())
        })
    }

    /// Tells `each` of the item at `location` that an entry named a moment ago, or of what its key has
    /// become, if that is there.
    #[inline(always)]
    pub fn visit(
        &self,
        location: u64,
        guard: &Guard,
        each: &mut impl FnMut(&[u8], Value<'_>),
        saw: &mut impl FnMut(Ticket),
    ) {
        let found = self.found(location, guard);
        let mut tell = |location: u64, item: &Item<'_>| {
            if is_live(item) {
                self.look(location, item);
                each(item.key, value_of(item, location));
            }
        };
        if found.is_settled {
            tell(location, &found.item);
        } else {
            let (key, hash) = (found.item.key, hash_key(self.seed, found.item.key));
            self.at_rest(Some(found), hash, key, guard, |found| {
                found.iter().for_each(|(location, item)| tell(*location, item));
            });
        }
        // Absence is told as well: a deletion that may be lost counts.
        self.values.undurable(location).into_iter().for_each(saw);
    }
}
