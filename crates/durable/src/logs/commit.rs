//! Making logs durable: group commit for each writer, checkpoints across all of them.
//!
//! One *commit queue* per writer. Whoever leads a commit queue hands everything the writer has appended to the
//! medium in one go; those who come meanwhile wait and find their items safe when the leader is
//! done, or lead the next round. A commit queue's leader works outside the writer's lock: appending goes
//! on while the medium is busy.

use super::appender::Writer;
use super::commit_queue::Lead;
use super::redo::Redone;
use super::turns::Held;
use super::{Logs, SEGMENT_HEADER_BYTES, overwrite, segment_of, start_of};
use crate::error::{Error, Result};
use crate::item;
use crate::superblock::{Checkpoint, OpenLog, Rule};
use crate::values::Ticket;
use crate::values::place::offset_of;
use std::sync::atomic::Ordering;
use terrace_memory::{Memory, Spin, lab};

/// What a leader hands to the medium.
#[derive(Default)]
pub(super) struct Handed {
    /// Ranges of the file: offset and length.
    pub(super) ranges: Vec<(u64, u64)>,
    /// Seals, for when the ranges are durable.
    seals: Vec<(u32, u64)>,
}

/// How a checkpoint was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it may not have been taken"]
pub(super) enum Taken {
    Alone,
    /// It was not: the map is tied to others ([`together`](super::together)).
    Tied,
}

/// What a checkpoint is to have, as it was at one instant.
pub(super) struct Collected {
    pub(super) next: Checkpoint,
    handed: Handed,
    positions: Vec<u64>,
    redone: Redone,
    /// Whether it says anything new.
    pub(super) changed: bool,
    /// What is written after the record, by mistake.
    late: Vec<(u64, u64)>,
}

impl Writer {
    /// Adds everything not handed to the medium yet; it counts as handed from now on.
    fn hand_over(&mut self, handed: &mut Handed) {
        handed.ranges.append(&mut self.pending);
        handed.seals.append(&mut self.seals);
        if self.segment != 0 && self.tail > self.handed {
            let at = start_of(self.segment) + u64::from(self.handed);
            handed.ranges.push((at, u64::from(self.tail - self.handed)));
            self.handed = self.tail;
        }
    }

    /// What [`Writer::hand_over`] will add is overwritten no more. Under all writers' locks.
    fn freeze<M: Memory>(&self, logs: &Logs<M>) {
        #[cfg(any(test, feature = "faults"))]
        if logs.faults.has(super::Fault::OverwriteFrozen) {
            return;
        }
        for (at, _) in &self.pending {
            logs.freeze_to(segment_of(*at), overwrite::ALL);
        }
        if self.segment != 0 {
            let overwrites = logs.overwrites();
            let frozen = if overwrites { self.tail } else { overwrite::ALL };
            logs.freeze_to(self.segment as usize, frozen);
        }
    }
}

impl<M: Memory> Logs<M> {
    /// Whether what `location` names may still be lost: the ticket to commit before it is told to
    /// anyone.
    ///
    /// The caller keeps the item from being reused, as for [`Logs::item`].
    #[inline(always)]
    pub fn undurable(&self, location: u64) -> Option<Ticket> {
        if self.medium.is_byte_addressable() {
            // An item is durable before anyone learns of it; of a batch that did not end before a
            // crash it is dropped all the same.
            if !self.is_in_batch(location) {
                return None;
            }
            #[cfg(any(test, feature = "faults"))]
            if self.faults.has(super::Fault::BatchesToldEarly) {
                return None;
            }
        }
        let origin = self.segments[segment_of(location)].origin.load(Ordering::Relaxed);
        let writer = origin as u8;
        if u64::from(writer) == super::RECOVERED {
            return None;
        }
        let offset = u64::from(offset_of(location));
        let position = (origin >> 8) + offset + 1;
        (self.durable(writer.into()) < position).then_some(Ticket { writer, position })
    }

    /// Asked of the item's own flags, which whoever found it has near.
    #[inline(always)]
    fn is_in_batch(&self, location: u64) -> bool {
        let at = location.saturating_add(item::FLAGS_AT);
        let mut flags = 0;
        if at < self.medium.usable_bytes() {
            // SAFETY: inside (checked), and one byte fits.
            unsafe { self.medium.memory().copy_changing(at, &raw mut flags, 1) };
        }
        item::is_in_batch(flags)
    }

    /// Returns once everything up to `ticket` is durable. Group commit: callers share syncs. On a
    /// byte-addressable medium only the end of a batch is waited for.
    ///
    /// # Errors
    /// [`Error::Stopped`] and those of the medium: the items may or may
    /// not survive, and the logs take no more. [`Error::InBatch`] where this
    /// thread would wait for itself.
    pub fn commit(&self, ticket: Ticket) -> Result<()> {
        if self.medium.is_byte_addressable() {
            return self.await_batch(ticket);
        }
        let id = usize::from(ticket.writer);
        loop {
            if self.durable(id) >= ticket.position {
                return Ok(());
            }
            self.check_writable()?;
            let Some(lead) = self.lead_or_wait(id) else { continue };
            // A checkpoint changes this only while it leads all commit queues.
            if self.overwrites() {
                // Bytes that other writers may overwrite are handed over by checkpoints alone.
                drop(lead);
                self.flush_all()?;
                continue;
            }
            if self.durable(id) < ticket.position {
                self.stop_on_error(self.write_queue(id, &lead))?;
            }
        }
    }

    /// Returns once everything that was appended before the call is durable, as by [`Logs::commit`] of each writer's.
    ///
    /// # Errors
    /// As [`Logs::commit`].
    pub fn commit_all(&self) -> Result<()> {
        for id in 0..self.writers.len() {
            let position = self.lock_writer(id).borrow().position();
            if self.durable(id) < position {
                self.commit(Ticket { writer: id as u8, position })?;
            }
        }
        Ok(())
    }

    /// What was written to a medium that is only read is as safe as it can be: whoever reads it waits for nothing. No
    /// more is written.
    pub fn all_is_read(&self, reason: &str) {
        self.stop(reason.into());
        self.commit_queues.iter().for_each(|queue| queue.batch_ended());
    }

    /// Waits through the memory and not for the writer's lock: whoever holds that may be scheduled.
    #[inline]
    fn await_batch(&self, ticket: Ticket) -> Result<()> {
        let id = usize::from(ticket.writer);
        let spin = Spin::on(self.medium.memory());
        while self.durable(id) < ticket.position {
            if self.writers[id].is_owned_by_current_thread() {
                return Err(Error::InBatch);
            }
            // A batch that could not be written whole has no end.
            self.check_writable()?;
            spin.wait();
        }
        Ok(())
    }

    fn write_queue(&self, id: usize, lead: &Lead<'_>) -> Result<()> {
        let mut handed = Handed::default();
        let position = {
            let lock = self.lock_writer(id);
            let mut writer = lock.borrow_mut();
            writer.hand_over(&mut handed);
            writer.position()
        };
        #[cfg(any(test, feature = "faults"))]
        if self.faults.has(super::Fault::ReachedEarly) {
            self.reached(lead, position);
        }
        let one_write = handed.ranges.len() == 1 && !lead.is_unsynced();
        for (at, bytes) in &handed.ranges {
            // SAFETY: items that were handed over are neither overwritten nor appended to any more.
            unsafe { self.medium.write_out_at_rest(*at, *bytes, one_write)? };
        }
        if !one_write {
            self.medium.sync()?;
        }
        // What another thread failed to write or sync meanwhile may be what counts as written here.
        self.check_unfailed()?;
        self.reached(lead, position);
        self.write_seals(&handed, lead)
    }

    /// Seals logs whose items are durable now. The seals themselves become durable with a later
    /// sync; until then recovery takes the logs for open ones, which loses nothing.
    fn write_seals(&self, handed: &Handed, lead: &Lead<'_>) -> Result<()> {
        for (segment, word) in &handed.seals {
            self.write_seal(*segment, *word);
            lead.leaves_unsynced();
            self.medium.write_out(start_of(*segment), u64::from(SEGMENT_HEADER_BYTES), false)?;
        }
        Ok(())
    }

    /// Makes everything appended before the call durable, all writers at one instant. Under
    /// [`Rule::Bounded`] this is the new checkpoint.
    ///
    /// # Errors
    /// As [`Logs::commit`].
    pub fn flush_all(&self) -> Result<()> {
        self.check_writable()?;
        #[cfg(any(test, feature = "faults"))]
        if self.forgets_to_flush() {
            return Ok(());
        }
        match self.stop_on_error(self.take_checkpoint(None))? {
            Taken::Alone => Ok(()),
            Taken::Tied => self.flush_together(),
        }
    }

    /// Which items count after a crash.
    pub fn rule(&self) -> Rule {
        lab::step(self.medium.memory());
        if self.is_bounded.load(Ordering::Acquire) { Rule::Bounded } else { Rule::All }
    }

    /// Changes which items count after a crash; everything appended before is durable on return.
    ///
    /// # Errors
    /// As [`Logs::commit`].
    pub fn set_rule(&self, rule: Rule) -> Result<()> {
        self.check_writable()?;
        // To All: items count as soon as they are committed, which callers may rely on only after
        // the checkpoint says so. To Bounded: the checkpoint holds everything before it.
        let _alone = self.alone();
        while self.stop_on_error(self.take_checkpoint(Some(rule)))? == Taken::Tied {
            self.flush_together()?;
        }
        Ok(())
    }

    /// Mark of the persistent index that goes with the values, 0 if none does.
    pub fn index_mark(&self) -> u64 {
        self.lock_checkpoint().index
    }

    /// Says, durably on return, which persistent index goes with the values; 0: none.
    ///
    /// # Errors
    /// As [`Medium::write_out`](crate::Medium::write_out).
    pub fn set_index_mark(&self, index: u64) -> Result<()> {
        let mut checkpoint = self.lock_checkpoint();
        if checkpoint.index != index {
            let next = Checkpoint { number: checkpoint.number + 1, index, ..checkpoint.clone() };
            self.stop_on_error(self.store_checkpoint(&next))?;
            *checkpoint = next;
        }
        Ok(())
    }

    /// A checkpoint under `rule`, or the rule in force. The rule is read and changed under the checkpoint's lock.
    fn take_checkpoint(&self, rule: Option<Rule>) -> Result<Taken> {
        self.take_checkpoint_under(&mut self.lock_checkpoint(), rule)
    }

    /// The same by who holds the checkpoint's lock.
    pub(super) fn take_checkpoint_under(
        &self,
        checkpoint: &mut Checkpoint,
        rule: Option<Rule>,
    ) -> Result<Taken> {
        let rule = rule.unwrap_or(checkpoint.rule);
        let leads = self.lead_all();
        let collected = {
            let locks = self.lock_writers();
            if self.is_tied() {
                return Ok(Taken::Tied);
            }
            self.collect(checkpoint, rule, &locks)
        };
        let collected = self.write_collected(collected, checkpoint, &leads)?;
        self.store_collected(collected, checkpoint, &leads)?;
        Ok(Taken::Alone)
    }

    /// What a checkpoint under `rule` is to have. Under all writers' locks.
    pub(super) fn collect(
        &self,
        checkpoint: &Checkpoint,
        rule: Rule,
        locks: &[Held<'_>],
    ) -> Collected {
        let mut next = checkpoint.clone();
        let mut handed = Handed::default();
        let mut positions = Vec::with_capacity(locks.len());
        let mut writers: Vec<_> = locks.iter().map(|w| w.borrow_mut()).collect();
        next.rule = rule;
        next.open.clear();
        lab::step(self.medium.memory());
        self.is_bounded.store(rule == Rule::Bounded, Ordering::Release);
        for writer in &mut writers {
            writer.freeze(self);
            writer.has_marks = self.has_marks();
            writer.hand_over(&mut handed);
            positions.push(writer.position());
            if writer.segment != 0 {
                let sequence =
                    self.segments[writer.segment as usize].sequence.load(Ordering::Relaxed);
                next.open.push(OpenLog { segment: writer.segment, tail: writer.tail, sequence });
            }
        }
        next.next_sequence = self.next_sequence();
        next.segments = self.lock_pool().fresh;
        let redone = self.note_checkpoint(&mut writers, checkpoint.number + 1);
        let changed = false;
        Collected { next, handed, positions, redone, changed, late: Vec::new() }
    }

    /// Makes what was collected durable, all but the checkpoint's record; then that belongs to the redo log.
    pub(super) fn write_collected(
        &self,
        mut collected: Collected,
        checkpoint: &Checkpoint,
        leads: &[Lead<'_>],
    ) -> Result<Collected> {
        #[cfg(any(test, feature = "faults"))]
        {
            collected.late = self.writes_late(&mut collected.handed);
        }
        let Collected { next, handed, changed, redone, .. } = &mut collected;
        for (at, bytes) in &handed.ranges {
            // SAFETY: items that were handed over are neither overwritten nor appended to any more.
            unsafe { self.medium.write_out_at_rest(*at, *bytes, false)? };
        }
        let unsynced = leads.iter().any(|lead| lead.is_unsynced());
        if !handed.ranges.is_empty() || unsynced || next.segments != checkpoint.segments {
            self.medium.sync()?;
        }
        // Only now may the checkpoint count the bytes, unless another thread failed to write or sync some of them.
        self.check_unfailed()?;
        next.redo = self.redo.lock().as_ref().map_or(0, |log| log.name());
        *changed = *next != *checkpoint || redone.has_noted;
        next.number += u64::from(*changed);
        self.belongs_to(next);
        Ok(collected)
    }

    /// Stores the checkpoint's record, and says that what it has is durable.
    pub(super) fn store_collected(
        &self,
        collected: Collected,
        checkpoint: &mut Checkpoint,
        leads: &[Lead<'_>],
    ) -> Result<()> {
        let Collected { next, handed, positions, redone, changed, late } = collected;
        #[cfg(any(test, feature = "faults"))]
        let redone = self.frees_redo_early(redone);
        if changed {
            next.store(&self.medium)?;
            *checkpoint = next;
        }
        late.iter().try_for_each(|(at, bytes)| self.medium.write_out(*at, *bytes, true))?;
        self.check_unfailed()?;
        self.checkpoint_is_durable(redone);
        for (lead, position) in leads.iter().zip(positions) {
            self.reached(lead, position);
        }
        self.write_seals(&handed, &leads[0])
    }

    /// Hands the oldest sealed logs to the medium without a sync, so that a later checkpoint has little to
    /// write; the newest `keep_bytes` stay, to be overwritten. Only under [`Rule::Bounded`].
    ///
    /// # Errors
    /// As [`Logs::commit`].
    pub fn write_sealed(&self, keep_bytes: u64) -> Result<()> {
        if self.medium.is_byte_addressable() || self.rule() == Rule::All {
            return Ok(());
        }
        self.check_writable()?;
        let leads = self.lead_all();
        for (lead, at, bytes) in self.take_sealed(&leads, keep_bytes) {
            lead.leaves_unsynced();
            // SAFETY: items that were handed over are neither overwritten nor appended to any more.
            let written = unsafe { self.medium.write_out_at_rest(at, bytes, false) };
            self.stop_on_error(written)?;
        }
        Ok(())
    }

    /// Freezes and takes the oldest sealed ranges beyond `keep_bytes`, with their commit queues.
    fn take_sealed<'l, 'a>(
        &self,
        leads: &'l [Lead<'a>],
        keep_bytes: u64,
    ) -> Vec<(&'l Lead<'a>, u64, u64)> {
        let locks = self.lock_writers();
        let unwritten = |lock: &Held<'_>| lock.borrow().pending.iter().map(|p| p.1).sum::<u64>();
        let mut surplus = locks.iter().map(unwritten).sum::<u64>().saturating_sub(keep_bytes);
        let mut taken = Vec::new();
        for (lead, lock) in leads.iter().zip(&locks) {
            let mut writer = lock.borrow_mut();
            while surplus > 0 && !writer.pending.is_empty() {
                let (at, bytes) = writer.pending.remove(0);
                self.freeze_sealed(segment_of(at));
                surplus = surplus.saturating_sub(bytes);
                taken.push((lead, at, bytes));
            }
        }
        taken
    }

    fn freeze_sealed(&self, segment: usize) {
        #[cfg(any(test, feature = "faults"))]
        if self.faults.has(super::Fault::OverwriteFrozen) {
            return;
        }
        self.freeze_to(segment, overwrite::ALL);
    }

    /// Items written since the logs were opened.
    pub fn writes(&self) -> u64 {
        (0..self.writers.len()).map(|id| self.lock_writer(id).borrow().writes).sum()
    }

    /// Closes every open log that holds anything, so that it may be collected.
    pub fn seal_open(&self) {
        for id in 0..self.writers.len() {
            let lock = self.lock_writer(id);
            let mut writer = lock.borrow_mut();
            if !writer.in_batch && writer.tail > SEGMENT_HEADER_BYTES {
                self.seal(&mut writer);
            }
        }
    }
}
