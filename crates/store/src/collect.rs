//! The collector: moves what lives out of logs that are in good part dead, and frees them (Wu, section 2.3).
//!
//! One round: claim the sealed logs that are best collected ([`Logs::due`]); append what is still current to the
//! collector's own log and redirect the index under the key's lock, so that a concurrent update always wins; make
//! everything durable, because what supersedes the dead items may not be yet; mark the logs free, durably; only then
//! forget tombstones that no older version needs any more, and hand the logs out again once no reader is left in them.
//!
//! # Tombstones
//! A tombstone carries the sequence number the next log had when it was written: older versions of
//! its key can only lie in logs below that number. It is dropped when no such log is left. If
//! tombstones pile up because an old log is too alive to be collected, the oldest logs are
//! collected whatever lives in them, which costs in proportion to the deletes that caused it.

use crate::engine::{BATCH, Engine, Stored, is_live};
use crate::error::Result;
use crate::index::KeyIndex;
use crate::index_room::DELETED_SHARE;
use crate::pressure::{Reading, Wait};
use crate::spill::Made;
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_durable::item::{Item, NewItem};
use terrace_durable::lock;
use terrace_durable::logs::{self, COLLECTOR, Logs, SegmentView, State};
use terrace_durable::sections::Changes;
use terrace_durable::superblock::Rule;
use terrace_durable::values::{Room, SEGMENT_BYTES};
use terrace_index::{Change as Entry, Line, hash_key};
use terrace_memory::Memory;

/// Logs collected in one round at least; of a large map a sixteenth, since a round costs two syncs.
const VICTIMS: usize = 4;

/// Segments that a map gives up for its own writers alone.
const KEPT_SEGMENTS: usize = 4;

/// Logs that a map that evicts keeps free for its writers, and one for each 64 it has.
const AHEAD: u64 = 2;

/// Leaves out what the collector has no room to copy the rest of; but for one log, since there is more to gain, unless
/// room is to come.
fn truncate_to_room(victims: &mut Vec<SegmentView>, room: u64, is_to_come: bool) {
    let mut copied = 0;
    let mut fits = |victim: &SegmentView| {
        copied += victim.live_bytes();
        copied <= room
    };
    let most = victims.iter().take_while(|victim| fits(victim)).count();
    victims.truncate(most.max(usize::from(!is_to_come)));
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    pub freed_segments: usize,
}

/// What a round does with the logs it has claimed.
pub(crate) struct Moving<'a, M: Memory, I: Memory> {
    pub engine: &'a Engine<M, I>,
    pub logs: &'a Logs<M>,
    /// Keeps what the logs held readable after they are free.
    pub guard: &'a Guard,
    /// Tombstones of the victim at hand with a stamp up to this can go with it: no other log, not
    /// even another victim, holds anything older. (Victims are freed one by one: a crash may come
    /// between two of them.)
    oldest_elsewhere: u64,
    /// Under eviction: live items are deleted instead of moved.
    evict: bool,
    /// Hashes and locations of what goes with its log.
    pub dropped: Vec<(u64, u64)>,
    moved_bytes: u64,
    evicted: u64,
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// One round, if anything is due: of logs, or under pressure of slabs.
    pub fn collect(&self) -> Result<Round> {
        let _one = lock(self.values.medium().memory(), &self.collecting);
        if self.values.stopped().is_some() {
            // The index is about to be closed, or was.
            return Ok(Round::default());
        }
        match &self.values {
            Stored::Logs(logs) => self.collect_logs(logs),
            Stored::Slabs(slabs) => Ok(self.make_room_in(slabs)),
        }
    }

    /// At the end of a map without anything else to do: processes that end before the collector has its turn would
    /// each leave a log with little in it. What it cannot move stays where it is; what stops the map is told by that.
    pub fn tidy(&self) {
        let Stored::Logs(logs) = &self.values else { return };
        let _one = lock(self.values.medium().memory(), &self.collecting);
        // Nobody waits for room any more.
        let _pressed = (self.pressure.take(), self.deletes_pressure.take());
        let _index_pressed = self.index_room.as_ref().map(|room| room.pressure.take());
        let _moved = self.collect_logs(logs);
    }

    /// Under the collector's lock. Under pressure, what is not due is taken too, and at last, if the map evicts, the
    /// oldest logs: as many as are missing, ahead of need, and as the budget was exceeded by.
    fn collect_logs(&self, logs: &Logs<M>) -> Result<Round> {
        let pressed = self.pressure.take();
        let deletes_pressed = self.deletes_pressure.take();
        let needs_disk = self.pressure.take_needs_disk() | self.deletes_pressure.take_needs_disk();
        let index_pressed = self.index_room.as_ref().is_some_and(|room| room.pressure.take());
        // What cannot be released now is tried again.
        let _kept = logs.release_excess();
        if needs_disk || logs.is_disk_full() {
            let _kept = logs.release_gone();
        }
        let made = self.spill(logs)?;
        let room_comes = made != Made::Nothing;
        // Nothing is evicted while there is room to move to.
        let mut missing = if made == Made::Now { 0 } else { self.missing_logs(logs) };
        if (pressed || index_pressed || missing > 0) && self.shrink_index() && made != Made::Now {
            missing = self.missing_logs(logs);
        }
        let is_due = logs.has_backlog()
            || logs.has_short()
            || logs.has_expired()
            || self.tombstones_pile_up();
        if !pressed && !deletes_pressed && !index_pressed && !is_due && missing == 0 {
            return Ok(Round::default());
        }
        let this_round = self.rounds.fetch_add(1, Ordering::AcqRel) + 1;
        // Freed logs that wait for readers to leave are room to come, but for writers only if they do leave.
        let is_to_come = logs.waiting_segments() > 0 || made == Made::Soon && !needs_disk;
        let stays = self.readers.look(is_to_come) == Reading::On;
        // A log that leaves makes more room than one that is collected; most are not even in memory. On a full disk
        // what is collected is the only room.
        let spills = (room_comes || self.spills()) && !logs.is_disk_full();
        let (victims, evict) = self.victims(
            logs,
            (!spills && (pressed || deletes_pressed || missing > 0)).then_some(missing),
            deletes_pressed && !spills,
            index_pressed && self.are_deleted_in_the_way(),
        );
        let round = self.collect_segments(logs, &victims, evict);
        let freed = is_to_come || round.as_ref().is_ok_and(|round| round.freed_segments > 0);
        logs.recount_backlog();
        // Logs that left may have made room since somebody found none.
        match freed && !stays || !needs_disk && (made == Made::Now || logs.has_room()) {
            true => self.pressure.relieve(),
            // That the file is large is no reason to refuse anybody.
            false if pressed && !needs_disk && logs.let_grow() => self.pressure.relieve(),
            false if pressed && needs_disk => self.pressure.give_up_disk(this_round),
            false if pressed => self.pressure.give_up(this_round),
            false => {}
        }
        let in_vain = || self.deletes_pressure.is_in_vain(logs.total_segments(), is_to_come);
        if deletes_pressed && made != Made::Now && (!freed || in_vain()) {
            self.deletes_pressure.give_up(this_round);
        }
        let _kept = logs.release_excess();
        let relieved = match index_pressed {
            true => self.relieve_index(logs, this_round, freed && !stays),
            false => Ok(()),
        };
        relieved.and(round)
    }

    /// How many logs a map that evicts should free: so that writers find some without waiting, and the budget holds.
    fn missing_logs(&self, logs: &Logs<M>) -> usize {
        if !self.evicts() || !self.evicts_for_others(logs.segments_in_memory()) {
            return 0;
        }
        // Logs that were freed in far memory make room there for what is near.
        logs.missing_segments(self.evicts_ahead(logs)).saturating_sub(logs.waiting_far())
    }

    /// Logs that a map that evicts keeps free for its writers.
    pub(crate) fn evicts_ahead(&self, logs: &Logs<M>) -> u64 {
        AHEAD + logs.segments_in_memory() as u64 / 64
    }

    /// Whether a map of so many segments evicts although none of its own writers waits: it has most of what its
    /// budget is used for, or more is used than there may be. A small map beside a large one keeps what it has.
    pub(crate) fn evicts_for_others(&self, segments: usize) -> bool {
        let held = segments as u64 * u64::from(SEGMENT_BYTES) + self.index.bytes();
        held * 2 >= self.budget.used() || self.budget.excess() > 0 && segments > KEPT_SEGMENTS
    }

    /// Gives free logs back to the system, but for `keep` in a hundred of those in use. An error
    /// leaves them free, for the next time.
    pub fn release_unused(&self, keep: usize) {
        if let Stored::Logs(logs) = &self.values {
            let used = logs.total_segments().saturating_sub(logs.free_segments());
            let _kept_free = logs.release_free(used * keep / 100);
        }
    }

    fn tombstones_pile_up(&self) -> bool {
        let entries = self.index.len();
        let tombstones = entries.saturating_sub(self.len());
        // Where the index has no room left for them, before they are many.
        let are_many = tombstones > 100_000 || self.is_index_crowded(entries);
        are_many && tombstones > self.len() / DELETED_SHARE
    }

    /// The logs to collect, and whether what lives in them is to go. `missing`: under pressure, how many logs are to
    /// be freed. `deletes_wait`: what there is to free may be in small parts of all logs, or be tombstones, which can
    /// go once everything older was moved; so all are taken in their order.
    fn victims(
        &self,
        logs: &Logs<M>,
        missing: Option<usize>,
        deletes_wait: bool,
        are_deleted_in_the_way: bool,
    ) -> (Vec<SegmentView>, bool) {
        if self.tombstones_pile_up() {
            logs.seal_open();
        }
        let mut sealed = logs.survey();
        sealed.retain(|v| v.state == State::Sealed);
        let mut due = logs.due(&sealed, logs.room_for_copies());
        due.truncate((logs.total_segments() / 16).max(VICTIMS));
        if (due.is_empty() || are_deleted_in_the_way) && self.tombstones_pile_up() {
            sealed.sort_by_key(|v| v.sequence);
            let oldest = sealed.iter().filter(|old| due.iter().all(|v| v.number != old.number));
            let oldest: Vec<_> = oldest.copied().take(VICTIMS).collect();
            due.extend(oldest);
        }
        if due.is_empty() {
            // While deleted keys pile up what is sealed is short each time, and was taken above.
            due = logs::short(&sealed);
            due.truncate(VICTIMS);
        }
        if due.is_empty() {
            due = sealed.iter().filter(|v| v.has_expired).copied().take(VICTIMS).collect();
        }
        if due.is_empty() && missing.is_some() {
            // Two logs that are an eighth dead and more still make room; below, only eviction, which is cheaper than
            // to move most of a log.
            let share = if self.evicts() { 4 } else { 8 };
            sealed.sort_by_key(|v| std::cmp::Reverse(v.dead_bytes));
            due = sealed
                .iter()
                .copied()
                .take(VICTIMS)
                .filter(|v| v.dead_bytes * share >= v.used_bytes)
                .collect();
        }
        if due.is_empty() && deletes_wait && !self.evicts() {
            sealed.sort_by_key(|v| v.sequence);
            due = sealed;
            due.truncate((logs.total_segments() / 16).max(VICTIMS));
        }
        let (was_due, room) = (!due.is_empty(), logs.room_for_copies());
        truncate_to_room(&mut due, room, logs.waiting_segments() > 0);
        if self.plan.may_spill {
            // Those that are away are brought back: as many as there is memory for, of which short ones take little.
            let (mut bytes, most) = (0, self.budget.headroom() / 2);
            due.retain(|victim| {
                let is_first = bytes == 0;
                bytes += if victim.residence.is_resident { 0 } else { victim.used_bytes };
                is_first || bytes <= most
            });
        }
        if was_due && due.is_empty() {
            // Freed logs come back first; to evict keys that live would be a waste.
            return (due, false);
        }
        match missing {
            // What was freed may wait for readers to leave; to evict more would not bring it sooner.
            Some(missing) if due.is_empty() && self.evicts() => {
                let waits = missing == 0 && logs.waiting_segments() > 0;
                (if waits { Vec::new() } else { self.oldest_logs(logs, missing) }, true)
            }
            _ => (due, false),
        }
    }

    /// Entries of `dropped` tombstones, if there are any, are about to name logs that are free, or have
    /// ceased to: with sections a crash between the two must be seen.
    fn forgetting(&self, logs: &Logs<M>, is_under_way: bool, dropped: &[(u64, u64)]) {
        let mut changes = Changes::new();
        if !dropped.is_empty() {
            logs.record_forgetting(is_under_way, &mut changes);
        }
        self.commit(&mut changes, || ());
    }

    pub(crate) fn collect_segments(
        &self,
        logs: &Logs<M>,
        victims: &[SegmentView],
        evict: bool,
    ) -> Result<Round> {
        let _round = logs.begin_round();
        let claimed: Vec<u32> =
            victims.iter().map(|v| v.number).filter(|s| logs.claim(*s)).collect();
        if claimed.is_empty() {
            return Ok(Round::default());
        }
        // What the index does not name is garbage, but for blind writes: [`Moving::items`] copies those that stay.
        if !self.take_in_again() && evict {
            claimed.iter().for_each(|segment| logs.unclaim(*segment));
            return Ok(Round::default());
        }
        if logs.rule() == Rule::All {
            // An item of a batch is copied as one of its own: the batch must be safe before.
            logs.flush_all()
                .inspect_err(|_| claimed.iter().for_each(|segment| logs.unclaim(*segment)))?;
        }
        logs.freeze(&claimed);
        let guard = crossbeam_epoch::pin();
        let mut moving = Moving {
            engine: self,
            logs,
            guard: &guard,
            oldest_elsewhere: 0,
            evict,
            dropped: Vec::new(),
            moved_bytes: 0,
            evicted: 0,
        };
        let (claimed, moved) = match evict {
            true => moving.evict(claimed),
            false => moving.segments(claimed),
        };
        let freed = moved.and_then(|()| {
            logs.flush_all()?;
            self.forgetting(logs, true, &moving.dropped);
            Ok(logs.free(&claimed)?)
        });
        let freed =
            freed.inspect_err(|_| claimed.iter().for_each(|segment| logs.unclaim(*segment)))?;
        self.forget_freed(logs, &moving.dropped, &guard).inspect_err(|error| {
            // An entry names a log that is free: nothing may be written there before an opening has seen that.
            logs.stop(format!("a deleted key stays in its index: {error}; open it anew"));
        })?;
        self.forgetting(logs, false, &moving.dropped);
        self.counters.collected.fetch_add(claimed.len() as u64, Ordering::Relaxed);
        self.counters.moved_bytes.fetch_add(moving.moved_bytes, Ordering::Relaxed);
        self.counters.evicted.fetch_add(moving.evicted, Ordering::Relaxed);
        freed.reuse_after_readers(&guard);
        Ok(Round { freed_segments: claimed.len() })
    }
}

impl<M: Memory, I: Memory> Moving<'_, M, I> {
    /// Moves what lives out of each; returns those that may be freed. One with a damaged item, or that the disk does
    /// not give back, is none of them: it stays claimed, so that nobody tries again until the map is opened anew, and
    /// what was moved out of it is dead there.
    fn segments(&mut self, claimed: Vec<u32>) -> (Vec<u32>, Result<()>) {
        let mut whole = Vec::with_capacity(claimed.len());
        for (at, segment) in claimed.iter().enumerate() {
            if self.logs.bring_back(*segment).is_err() {
                continue;
            }
            let dropped = self.dropped.len();
            match self.segment(*segment) {
                Ok(()) => whole.push(*segment),
                // Its tombstones stay with it.
                Err(error) if error.is_damage() || error.is_unreadable() => {
                    self.dropped.truncate(dropped);
                }
                Err(error) => {
                    whole.extend(&claimed[at..]);
                    return (whole, Err(error));
                }
            }
        }
        (whole, Ok(()))
    }

    fn segment(&mut self, segment: u32) -> Result<()> {
        self.oldest_elsewhere = self.logs.oldest_sequence(segment);
        let mut batch: Vec<(u64, Item<'_>, usize, u64)> = Vec::with_capacity(BATCH);
        let mut result = Ok(());
        let (engine, logs) = (self.engine, self.logs);
        let all = logs.each_item(segment, self.guard, |location, item, bytes| {
            let hash = hash_key(engine.seed, item.key);
            engine.index.line(hash).iter().for_each(Line::prefetch);
            batch.push((location, item, bytes, hash));
            if batch.len() == BATCH && result.is_ok() {
                result = self.items(&mut batch);
            }
        });
        result.and_then(|()| self.items(&mut batch))?;
        all.map_err(|damaged| engine.damaged(damaged))
    }

    fn items(&mut self, batch: &mut Vec<(u64, Item<'_>, usize, u64)>) -> Result<()> {
        batch.drain(..).try_for_each(|(location, item, bytes, hash)| {
            if !self.is_named(hash, &item, location)? {
                return Ok(());
            }
            if item.tombstone && item.stamp() <= self.oldest_elsewhere {
                self.dropped.push((hash, location));
                return Ok(());
            }
            self.move_item(location, &item, bytes, hash)
        })
    }

    /// Whether the index names the item. If it does not, but the table of blind writes does, that is copied.
    fn is_named(&self, hash: u64, item: &Item<'_>, location: u64) -> Result<bool> {
        let engine = self.engine;
        let holds = || {
            let located = engine.located(self.guard);
            engine.index.holds(hash, item.key, location, &located)
        };
        if holds() {
            return Ok(true);
        }
        if engine.blind.are_some() {
            engine.copy_blind_at(self.logs, (hash, item.key), location)?;
        }
        // It may have been taken in since.
        Ok(holds())
    }

    pub fn move_item(
        &mut self,
        location: u64,
        item: &Item<'_>,
        bytes: usize,
        hash: u64,
    ) -> Result<()> {
        let engine = self.engine;
        let mut held = self.logs.appender(COLLECTOR, bytes + 16, Room::Anyway)?;
        engine.look(location, item);
        // Expired items end here as well: a tombstone keeps what they shadow from coming back.
        let ends = !item.tombstone && (self.evict || !is_live(item));
        let stamp = self.logs.next_sequence().to_le_bytes();
        let located = engine.located(self.guard);
        let (mut is_overwritten, mut noted) = (false, 0);
        let moved = engine.index.update_at(hash, item.key, location, &located, |_, changes| {
            if engine.blind.are_some() && engine.written_blind(hash, item.key).is_some() {
                is_overwritten = true;
                return Entry::Keep;
            }
            let new = NewItem {
                key: item.key,
                value: if ends { &stamp } else { item.value },
                version: item.version + u64::from(ends),
                expires_at_ms: item.expires_at_ms.filter(|_| !ends),
                tombstone: item.tombstone || ends,
            };
            engine.written[0].note_version(new.version);
            if ends {
                engine.written[0].keys.fetch_sub(1, Ordering::Relaxed);
                engine.record_keys(0, -1, changes);
                let is_evicted = is_live(item);
                self.evicted += u64::from(is_evicted);
                engine.counters.expired.fetch_add(u64::from(!is_evicted), Ordering::Relaxed);
                if self.evict {
                    noted = engine.evicting(hash, location, item);
                }
            } else {
                self.moved_bytes += bytes as u64;
            }
            let moved = held.append(&new, changes);
            // Should the round fail, the victim knows what it has lost already.
            held.retire(location, bytes, changes);
            Entry::Set(moved)
        });
        engine.is_written((hash, item.key), noted);
        moved.map_err(|source| engine.index_refused(source))?;
        drop(held);
        match is_overwritten {
            // It is in memory, so the table is asked for this key no more.
            true => engine.take_in_key(hash, item.key, Wait::ForRoom),
            false => Ok(()),
        }
    }
}
