//! Reading: one key, many in stages, a scan.

use crate::engine::{BATCH, Engine, Value, is_live, value_of};
use crate::error::{Error, Result};
use crate::index::{KeyIndex, Position, Watches};
use crate::located::OfWriter;
use crate::pressure::Wait;
use crate::range::PAGE;
use crate::spill::FETCHES;
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_durable::item::Item;
use terrace_durable::values::{ItemCopy, Ticket};
use terrace_durable::{NoItem, Seen, Values};
use terrace_index::keys::Keys;
use terrace_index::{Change as Entry, hash_key};
use terrace_memory::{Memory, lab};

/// How often a reader that met a damaged item looks again before it says so: who is about to remove the item's entry
/// has the key's lock, which each of these waits for.
pub(crate) const LOOKS: usize = 4;
/// How often a reader copies an item that keeps changing before it takes the key's lock.
const OPTIMISTIC_COPIES: usize = 64;
/// Items that one who looks many up has read from the disk together at the most: so many that the disk is busy all the
/// while, for it is idle between two such times.
const READ_TOGETHER: usize = 1024;

/// The stages of a batched lookup before the verification (Wu, section 4.3.4).
struct Batch {
    hashes: [u64; BATCH],
    candidates: [Option<u64>; BATCH],
}

impl Batch {
    fn new() -> Batch {
        Batch { hashes: [0; BATCH], candidates: [None; BATCH] }
    }

    /// Finds a candidate for each of `keys`, and brings its item near, `ahead` lines of each.
    #[inline(always)]
    fn find_candidates<M: Memory, I: Memory>(
        &mut self,
        engine: &Engine<M, I>,
        keys: &[&[u8]],
        ahead: u64,
        items: &impl Keys,
    ) {
        let Batch { hashes, candidates } = self;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = hash_key(engine.seed, key);
        }
        let near = |location| engine.values.prefetch(location, ahead);
        let (hashes, together) = (&hashes[..keys.len()], engine.plan.lookups_together);
        engine.index.candidates(hashes, keys, together, items, near, candidates);
    }
}

/// An item as it was found without the key's lock.
#[derive(Clone, Copy)]
struct Found<'a> {
    location: u64,
    seen: Seen<'a>,
}

/// What a lookup finds.
type Looked<T> = std::result::Result<T, NoItem>;

impl<M: Memory, I: Memory> Engine<M, I> {
    /// # Errors
    /// [`Error::Medium`](crate::Error::Medium): the key's item is damaged, or the disk did not give it back.
    /// [`Error::Fetching`] where `wait` says so.
    #[inline]
    pub fn get<R>(
        &self,
        key: &[u8],
        wait: Wait,
        f: impl FnOnce(Value<'_>) -> R,
    ) -> Result<(Option<R>, Option<Ticket>)> {
        self.get_with_ticket(key, self.durability.is_sync(), wait, f)
    }

    /// The same; with a ticket for what is not durable if `with_ticket` says so.
    ///
    /// # Errors
    /// As [`Engine::get`].
    #[inline]
    pub fn get_with_ticket<R>(
        &self,
        key: &[u8],
        with_ticket: bool,
        wait: Wait,
        f: impl FnOnce(Value<'_>) -> R,
    ) -> Result<(Option<R>, Option<Ticket>)> {
        let guard = crossbeam_epoch::pin();
        let hash = hash_key(self.seed, key);
        let found = self.near(&guard, wait, || self.lookup(hash, key, &guard))?;
        let got = self.at_rest(found, hash, key, &guard, |found| {
            let Some((location, item)) = found else { return (None, None) };
            let undurable = if with_ticket { self.values.undurable(location) } else { None };
            let live = is_live(&item).then(|| {
                self.look(location, &item);
                f(value_of(&item, location))
            });
            (live, undurable)
        });
        got.map_err(|damaged| self.damaged(damaged))
    }

    /// Looks `keys` up in stages, so that the memory accesses of a batch overlap: hash and
    /// prefetch the buckets; read the buckets and prefetch the items; verify and tell.
    ///
    /// # Errors
    /// As [`Engine::get`]: keys before the damaged one, or the first to be fetched, were told of, those behind it were
    /// not.
    pub fn multi_get(
        &self,
        keys: &[&[u8]],
        wait: Wait,
        each: impl FnMut(usize, Option<Value<'_>>),
        saw: impl FnMut(Ticket),
    ) -> Result<()> {
        let mut brought = 0;
        let wait_for = |wait| if self.fit_as_copies(keys.len()) { wait } else { Wait::ForRoom };
        self.multi_get_with(keys, each, saw, |number, met, guard| {
            let wait = wait_for(wait);
            if number < brought {
                return self.bring_near(met, guard, wait).map(|()| true);
            }
            // What the others need that is on the disk alone is read together with this one's.
            let most = match wait {
                Wait::ForRoom => self.near_at_once(READ_TOGETHER),
                Wait::Never { .. } => keys.len(),
            };
            let together = &keys[number..keys.len().min(number + most)];
            brought = number + together.len();
            self.bring_keys_near(together, guard, wait).map(|()| true)
        })
    }

    /// The same for a thread that does not wait for the disk: `away` is told of keys whose items are there alone, and
    /// being read, in the order of the keys.
    ///
    /// # Errors
    /// As there.
    pub fn multi_get_near(
        &self,
        keys: &[&[u8]],
        each: impl FnMut(usize, Option<Value<'_>>),
        saw: impl FnMut(Ticket),
        mut away: impl FnMut(usize),
    ) -> Result<()> {
        let mut wanted = Vec::new();
        let told = self.multi_get_with(keys, each, saw, |number, met, _| {
            let needed = self.values.wanted(met.location());
            if let Some(error) = needed.and_then(|needed| self.fetches.take_failure(needed)) {
                return Err(error.into());
            }
            // Those behind are asked for once these are there: more would drive them out again.
            if wanted.len() < self.near_at_once(keys.len()) {
                wanted.extend(needed);
            }
            away(number);
            Ok(false)
        });
        if !wanted.is_empty() {
            self.fetches.ask(wanted);
        }
        told
    }

    /// The same; `on_disk` says what becomes of the key with this number, whose item is on the disk alone: whether to
    /// look again, or to tell nobody of it.
    #[inline(always)]
    fn multi_get_with(
        &self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<Value<'_>>),
        mut saw: impl FnMut(Ticket),
        mut on_disk: impl FnMut(usize, NoItem, &Guard) -> Result<bool>,
    ) -> Result<()> {
        let ahead = self.lines_ahead();
        let sync = self.durability.is_sync();
        let mut batch = Batch::new();
        let at_once = self.near_at_once(BATCH);
        for (chunk, keys) in keys.chunks(at_once).enumerate() {
            // Anew each time: what was read from the disk for those before need not stay.
            let guard = crossbeam_epoch::pin();
            // Asked before the index is: what is taken in meanwhile was there before.
            let are_blind = self.blind.are_some();
            batch.find_candidates(self, keys, ahead, &self.located(&guard));
            'keys: for (i, key) in keys.iter().enumerate() {
                let (number, hash) = (chunk * at_once + i, batch.hashes[i]);
                let candidate = batch.candidates[i].filter(|_| !are_blind);
                let candidate = candidate.and_then(|location| {
                    let seen = self.values.seen_if_key(location, key, &guard).ok()??;
                    Some(Found { location, seen })
                });
                let mut verified = match candidate {
                    None => self.lookup(hash, key, &guard),
                    found => Ok(found),
                };
                for _ in 0..FETCHES {
                    let Err(met @ NoItem::Away(_)) = verified else { break };
                    if !on_disk(number, met, &guard)? {
                        continue 'keys;
                    }
                    verified = self.lookup(hash, key, &guard);
                }
                let told = verified.and_then(|verified| {
                    self.at_rest(verified, hash, key, &guard, |found| {
                        let live = found.filter(|(_, item)| is_live(item));
                        live.iter().for_each(|(at, item)| self.look(*at, item));
                        each(number, live.map(|(at, item)| value_of(&item, at)));
                        if sync && let Some((at, _)) = found {
                            self.values.undurable(at).into_iter().for_each(&mut saw);
                        }
                    })
                });
                told.map_err(|damaged| self.damaged(damaged))?;
            }
        }
        Ok(())
    }

    /// Reads what `keys` need of the disk, all together: for whoever looks them up at once.
    ///
    /// # Errors
    /// [`Error::Fetching`] where `wait` says so, if there is something to read.
    #[cold]
    pub fn bring_keys_near(&self, keys: &[&[u8]], guard: &Guard, wait: Wait) -> Result<()> {
        let mut wanted = Vec::new();
        let mut batch = Batch::new();
        for keys in keys.chunks(BATCH) {
            batch.find_candidates(self, keys, 1, &self.located(guard));
            for (candidate, key) in batch.candidates.iter().zip(keys) {
                // Another key's, or damaged: whoever looks the key up finds out.
                if let Some(location) = candidate
                    && let Err(NoItem::Away(_)) = self.values.seen_if_key(*location, key, guard)
                {
                    wanted.extend(self.values.wanted(*location));
                }
            }
        }
        self.bring_all_near(wanted, wait)
    }

    /// An item as long as the last one written, starting anywhere in a line, touches at most so
    /// many lines.
    #[inline(always)]
    pub(crate) fn lines_ahead(&self) -> u64 {
        (u64::from(self.item_bytes_hint.load(Ordering::Relaxed)) + 62) / 64 + 1
    }

    #[inline]
    fn lookup<'g>(&'g self, hash: u64, key: &[u8], guard: &'g Guard) -> Looked<Option<Found<'g>>> {
        if self.blind.are_some()
            && let Some(location) = self.written_blind(hash, key)
        {
            return self.found(location, guard).map(Some);
        }
        let located = self.located(guard);
        match (self.index.get(hash, key, &located), self.index.is_ordered()) {
            (None, _) if located.check().is_ok() => Ok(None),
            // Its key was compared, so it was read.
            (Some(location), false) => {
                let seen = match located.found.get() {
                    Some(seen) => seen,
                    None => self.values.seen_again(location, guard)?,
                };
                Ok(Some(Found { location, seen }))
            }
            (found, _) => {
                let found = found.map(|location| self.found(location, guard));
                match found {
                    Some(Ok(found))
                        if !self.values.verifies_on_read() || found.seen.key() == key =>
                    {
                        Ok(Some(found))
                    }
                    _ => self.look_again(hash, key, guard),
                }
            }
        }
    }

    /// A lookup that met a damaged item, or one that was being retired, again.
    #[cold]
    fn look_again<'g>(
        &'g self,
        hash: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> Looked<Option<Found<'g>>> {
        let mut damaged = NoItem::Invalid(0);
        for _ in 0..LOOKS {
            let located = self.located(guard);
            damaged = match self.index.get(hash, key, &located) {
                Some(location) => match self.found(location, guard) {
                    Ok(found) if found.seen.key() == key => return Ok(Some(found)),
                    Ok(found) => return Err(NoItem::Invalid(found.location)),
                    Err(damaged) => damaged,
                },
                None => match located.check() {
                    Ok(()) => return Ok(None),
                    Err(damaged) => damaged,
                },
            };
            let is_away = matches!(damaged, NoItem::Away(_));
            if is_away || self.is_damaged(hash, key, damaged.location()) {
                break;
            }
        }
        Err(damaged)
    }

    /// Whether no whole item lies at the location of an entry while nobody can change it.
    fn is_damaged(&self, hash: u64, key: &[u8], location: u64) -> bool {
        let mut is_damaged = false;
        let guard = OfWriter::of(self);
        let located = self.located(guard.get());
        let looked = self.index.update_at(hash, key, location, &located, |lock, _| {
            is_damaged = self.values.item(location, lock).is_err();
            Entry::Keep
        });
        is_damaged && looked.is_ok()
    }

    #[inline(always)]
    fn found<'g>(&'g self, location: u64, guard: &'g Guard) -> Looked<Found<'g>> {
        Ok(Found { location, seen: self.values.seen(location, guard)? })
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
    ) -> Looked<R> {
        // One call of `f`, so that it is inlined: what was found lies in memory otherwise, and is read
        // back before it has been written.
        let mut copy = ItemCopy::new();
        Ok(f(match found {
            Some(Found { location, seen: Seen::Changing(_) }) => {
                self.copied_at(location, hash, key, guard, &mut copy)?
            }
            Some(Found { location, seen: Seen::AtRest(item) }) => Some((location, item)),
            None => None,
        }))
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
    ) -> Looked<Option<(u64, Item<'a>)>> {
        let watch = self.index.watch(hash, key, &self.located(guard));
        if self.values.copy_item(location, copy) && watch.saw_no_overwrite() {
            return Ok(Some((location, copy.item())));
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
    ) -> Looked<Option<(u64, Item<'a>)>> {
        for _ in 0..OPTIMISTIC_COPIES {
            let watch = self.index.watch(hash, key, &self.located(guard));
            let found = self.here(guard, || self.lookup(hash, key, guard))?;
            let Some(Found { location, .. }) = found else { return Ok(None) };
            if !self.values.copy_item(location, copy) {
                return self.at_rest_now(location, guard).map(Some);
            }
            if watch.saw_no_overwrite() {
                return Ok(Some((location, copy.item())));
            }
            lab::pause(self.values.medium().memory());
        }
        // Nobody overwrites it there before the index knows it.
        while let Some(location) = self.written_blind(hash, key) {
            if !self.values.copy_item(location, copy) {
                return self.at_rest_now(location, guard).map(Some);
            }
            if self.written_blind(hash, key) == Some(location) {
                return Ok(Some((location, copy.item())));
            }
        }
        // The key is overwritten all the time: as a writer that changes nothing.
        let located = self.located(guard);
        let looked = self.index.look(hash, key, &located, |location| {
            match self.values.copy_item(location, copy) {
                true => Ok((location, copy.item())),
                false => self.at_rest_now(location, guard),
            }
        });
        match looked {
            Some(found) => found.map(Some),
            // It may be another's entry that could not be looked at.
            None => located.check().map(|()| None),
        }
    }

    /// The item at `location`, which could not be copied: nobody overwrites it any more, or never did.
    fn at_rest_now<'g>(&'g self, location: u64, guard: &'g Guard) -> Looked<(u64, Item<'g>)> {
        let item = self.here(guard, || self.values.seen(location, guard))?.at_rest();
        item.map(|item| (location, item)).ok_or(NoItem::Invalid(location))
    }

    /// Brings buckets and items of `keys` near, for writes that follow.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        let guard = crossbeam_epoch::pin();
        let located = self.located(&guard);
        let mut batch = Batch::new();
        keys.chunks(BATCH).for_each(|keys| batch.find_candidates(self, keys, 1, &located));
    }

    /// Visits live items from a position on, `count` entries at least if there are, and says where to go
    /// on; see [`Index::scan`].
    ///
    /// # Errors
    /// As [`Engine::get`]: of the page in which a damaged item was met, items that are whole were visited.
    pub fn scan(
        &self,
        from: &Position,
        count: usize,
        wait: Wait,
        mut each: impl FnMut(&[u8], Value<'_>),
        mut saw: impl FnMut(Ticket),
    ) -> Result<Position> {
        let ahead = self.lines_ahead();
        let (mut reached, mut left) = (from.clone(), count.max(1));
        let mut page = Vec::with_capacity(PAGE);
        loop {
            let from = reached;
            // It visits what the index names. Before anything is held: what is read for that makes room for the next.
            match self.have_all_in(wait) {
                Err(Error::Fetching) if left < count => return Ok(from),
                all_in => all_in?,
            }
            let guard = crossbeam_epoch::pin();
            page.clear();
            let located = self.located(&guard);
            let in_the_way = self.in_the_way();
            let most = left.min(self.near_at_once(PAGE));
            reached = self.index.scan(&from, most, &located, |location| {
                self.values.prefetch(location, ahead);
                page.push(location);
            });
            let mut met = located.check().map_err(|damaged| self.damaged(damaged));
            match self.bring_page_near(&page, &guard, wait) {
                // Not those before it once more.
                Err(Error::Fetching) if left < count => return Ok(from),
                brought => brought?,
            }
            for at in &page {
                let is_named = |location| {
                    let mut is_named = false;
                    let again = |found| is_named |= found == location;
                    self.index.scan(&from, page.len(), &self.located(&guard), again);
                    is_named
                };
                met = met.and(match in_the_way.contains(at) {
                    true => Err(self.damaged(NoItem::Unreadable(*at))),
                    false => self.visit_near(*at, &guard, wait, is_named, &mut each, &mut saw),
                });
            }
            met?;
            left = left.saturating_sub(page.len());
            if left == 0 || reached == Position::End {
                return Ok(reached);
            }
        }
    }

    /// Reads what the items at `page` need of the disk.
    #[inline(always)]
    pub fn bring_page_near(&self, page: &[u64], guard: &Guard, wait: Wait) -> Result<()> {
        if !self.has_away() {
            return Ok(());
        }
        let is_away =
            |at: &&u64| matches!(self.values.seen_again(**at, guard), Err(NoItem::Away(_)));
        let wanted = page.iter().filter(is_away).filter_map(|at| self.values.wanted(*at)).collect();
        self.bring_all_near(wanted, wait)
    }

    /// Visits the item at `location`, which an entry named a moment ago, or what its key has become; reads it from the
    /// disk if need be. `is_named`: whether an entry names a location still.
    ///
    /// # Errors
    /// As [`Engine::get`].
    #[inline(always)]
    pub fn visit_near(
        &self,
        location: u64,
        guard: &Guard,
        wait: Wait,
        is_named: impl Fn(u64) -> bool,
        each: &mut impl FnMut(&[u8], Value<'_>),
        saw: &mut impl FnMut(Ticket),
    ) -> Result<()> {
        let mut visited = self.visit(location, guard, each, saw);
        for _ in 0..FETCHES {
            match visited {
                Ok(()) => return Ok(()),
                Err(met @ NoItem::Away(_)) => {
                    self.bring_near(met, guard, wait)?;
                    visited = self.visit(location, guard, each, saw);
                }
                Err(_) => break,
            }
        }
        let visited = visited
            .or_else(|met| self.visit_again(met, is_named(met.location()), guard, each, saw));
        visited.map_err(|damaged| self.damaged(damaged))
    }

    /// A place that `random` chooses: a bucket, or some key.
    pub fn position_near(&self, random: u64) -> Position {
        let guard = crossbeam_epoch::pin();
        self.index.position_near(random, &self.located(&guard))
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
    ) -> Looked<()> {
        let found = self.found(location, guard)?;
        if self.values.verifies_on_read() {
            // A whole item of another key: blocks were exchanged, or the key has another by now.
            let (key, located) = (found.seen.key(), self.located(guard));
            if !self.index.holds(hash_key(self.seed, key), key, location, &located) {
                return Err(NoItem::Invalid(location));
            }
        }
        let mut tell = |location: u64, item: &Item<'_>| {
            if is_live(item) {
                self.look(location, item);
                each(item.key, value_of(item, location));
            }
        };
        match found.seen {
            Seen::AtRest(item) => tell(location, &item),
            Seen::Changing(key) => {
                self.at_rest(Some(found), hash_key(self.seed, key), key, guard, |found| {
                    found.iter().for_each(|(location, item)| tell(*location, item));
                })?;
            }
        }
        // Absence is told as well: a deletion that may be lost counts.
        self.values.undurable(location).into_iter().for_each(saw);
        Ok(())
    }

    /// Tells `each` what has become of the key whose item could not be visited, after its location was learnt again:
    /// one that is still named was damaged. Another was retired meanwhile, is whole but for its checksum, and not used
    /// again while the guard is held.
    #[cold]
    pub fn visit_again(
        &self,
        met: NoItem,
        is_named: bool,
        guard: &Guard,
        each: &mut impl FnMut(&[u8], Value<'_>),
        saw: &mut impl FnMut(Ticket),
    ) -> Looked<()> {
        if is_named {
            return Err(met);
        }
        let location = met.location();
        let key = self.here(guard, || self.values.seen_again(location, guard))?.key();
        match self.here(guard, || self.lookup(hash_key(self.seed, key), key, guard))? {
            Some(found) => self
                .here(guard, || self.found(found.location, guard))
                .and_then(|found| self.visit(found.location, guard, each, saw)),
            None => Ok(()),
        }
    }
}
