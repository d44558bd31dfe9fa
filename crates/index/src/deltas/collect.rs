//! The collector: gives up the first segment of a log once nothing in it counts any more.
//!
//! Each leaf with a part of its chain there is written as one base at the end of its log: that also merges its
//! deltas, which is why collecting makes reads faster (004 F5.15b).
//!
//! The last record of a log looks, if it is damaged, as if a crash had torn it, and what it says would be lost
//! without a word. So a log that rests gets a mark behind its last record ([`Deltas::tidy`]).

use super::Deltas;
use super::record::{Header, Kind, LINE, Part, Record, parse};
use super::step::Step;
use super::table::{Leaf, State};
use super::write;
use crate::keys::Keys;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use terrace_memory::{Memory, Spin};

/// Of what counts, so much garbage is let be by [`Deltas::tidy`]: writers let twice as much be.
const TIDY_GARBAGE: f64 = 0.5;

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// Collects one segment of the log with the most garbage, if that is more than `threshold` bytes
    /// (004: 50 MB to 1000 MB in all logs). Whether it did. Any thread may call it, several at once.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no segment left to copy to, [`io::ErrorKind::InvalidData`] for
    /// a record that is damaged; nothing is lost by either.
    pub fn collect(&self, threshold: u64, keys: &impl Keys) -> io::Result<bool> {
        let garbage = |log: &u32| self.logs.log(*log).garbage();
        let mut logs: Vec<u32> =
            (0..self.logs.all.len() as u32).filter(|log| garbage(log) > threshold).collect();
        logs.sort_by_key(|log| std::cmp::Reverse(garbage(log)));
        for log in logs {
            // Another thread that collects the log is no reason to wait.
            let Some(_collecting) = self.logs.log(log).collecting.try_lock() else { continue };
            if self.collect_first(log, keys)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Collects until writers find a segment again, and fails as they did if that is in vain. The caller has
    /// nothing latched.
    pub(super) fn collect_or(&self, full: io::Error, keys: &impl Keys) -> io::Result<()> {
        if full.kind() != io::ErrorKind::StorageFull {
            return Err(full);
        }
        let (segments, spin) = (&self.logs.segments, Spin::on(&self.table.memory));
        let mut collected = 0;
        while !segments.has_room() {
            // Once around, nothing is garbage any more that was.
            if collected <= segments.in_use() && self.collect(segments.bytes / 4, keys)? {
                collected += 1;
                continue;
            }
            let grown = segments.provide();
            if matches!(grown, Ok(true)) {
                continue;
            }
            let is_collected = self.logs.all.iter().any(|log| log.collecting.is_locked());
            // Another thread was at it, and may be done by now.
            if !is_collected && !segments.has_room() {
                return grown.and(Err(full));
            }
            // Or is at it still.
            keys.pause();
            spin.wait();
        }
        Ok(())
    }

    /// Collects one segment if half as much is garbage as counts, and more: for whoever has the time, so that
    /// writers need not. Whether it did. If not, logs with nothing new since this was asked before get a mark
    /// behind their last record, so that damage of that is noticed too.
    ///
    /// # Errors
    /// As [`Deltas::collect`].
    pub fn tidy(&self, keys: &impl Keys) -> io::Result<bool> {
        if self.logs.has_garbage(TIDY_GARBAGE)
            && self.collect(self.logs.segments.bytes / 4, keys)?
        {
            return Ok(true);
        }
        (0..self.logs()).try_for_each(|log| self.mark(log, keys)).map(|()| false)
    }

    /// Collects the first segment of a log, unless it is the one that is being written.
    fn collect_first(&self, log: u32, keys: &impl Keys) -> io::Result<bool> {
        let (segment, stamp, behind) = {
            let held = self.logs.log(log).held.lock();
            match (held.segments.front(), held.segments.get(1)) {
                (Some((segment, stamp)), Some((behind, _))) => (*segment, *stamp, *behind),
                _ => return Ok(false),
            }
        };
        let segments = &self.logs.segments;
        if !segments.steps.has(Step::CopyFirst) {
            segments.end(segment);
        }
        let at = segments.at(segment);
        let end = segments.head(behind)?.map_or(0, |head| head.before_end);
        // SAFETY: the log has gone on behind this segment, and this thread alone may free it.
        let bytes = unsafe { segments.memory.bytes(at, segments.bytes) };
        let verify = segments.steps.has(Step::RecordChecksum);
        let mut offset = LINE;
        let mut unused = Vec::new();
        while offset != end {
            let found = parse(&bytes[offset as usize..], at + offset, Some(stamp), verify);
            let Some((parts, length)) = found else {
                let what = format!(
                    "log {log} is damaged at {:#x}: a record of segment {segment} does not match its checksum, \
                     and is not the last",
                    at + offset
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            };
            for part in parts.into_iter().flatten() {
                self.keep(&part, &mut unused, keys)?;
            }
            offset += length;
        }
        self.logs.free_first(log);
        // Under no latch of the log: what is appended meanwhile is added to, not stored over.
        self.logs.log(log).used.fetch_sub(end - LINE, Relaxed);
        for leaf in unused {
            self.forget(leaf, keys);
        }
        Ok(true)
    }

    /// Sees to it that nothing is lost with a part. `unused` gets the number of a leaf that is in no log any
    /// more when the segment is free.
    fn keep(&self, part: &Part<'_>, unused: &mut Vec<u32>, keys: &impl Keys) -> io::Result<()> {
        let header = part.header;
        if header.kind == Kind::Mark {
            return Ok(());
        }
        let mut latch = self.table.latch(header.leaf, keys);
        let leaf = self.table.leaf(header.leaf);
        if header.version < leaf.base || leaf.state == State::Free {
            return Ok(());
        }
        if leaf.state == State::Live {
            let entries = self.entries(&latch, keys);
            return self.consolidate(&mut latch, leaf, &entries, true, keys);
        }
        let is_elsewhere = leaf.other.is_some_and(|(log, stamp)| self.logs.has(log, stamp));
        if header.kind == Kind::Dead && !is_elsewhere {
            unused.push(header.leaf);
            return Ok(());
        }
        if !self.logs.segments.steps.has(Step::DeadMark) {
            return Ok(());
        }
        let next = Header { version: leaf.version + 1, ..write::header(header.leaf, Kind::Dead) };
        let mut record = Record::of(next, &[]);
        let log = self.logs.of(header.leaf);
        let place = self.logs.append(log, &mut record, true, &self.table, keys)?;
        latch.change();
        self.supersede(header.leaf, &leaf);
        let version = next.version;
        let bytes = record.bytes() as u32;
        let now = Leaf { head: place.at, version, base: version, items: 0, bytes, ..leaf };
        self.table.set(header.leaf, &now);
        Ok(())
    }

    /// Puts a mark behind the last record of a log, unless there is one, or the log has gone on since it was
    /// asked for this before.
    fn mark(&self, log: u32, keys: &impl Keys) -> io::Result<()> {
        let own = self.logs.log(log);
        let tail = self.logs.tail(log, &self.table);
        if own.seen.swap(tail, Relaxed) != tail || own.marked.load(Relaxed) == tail || tail == 0 {
            return Ok(());
        }
        let mut record = Record::of(write::header(0, Kind::Mark), &[]);
        let place = self.logs.append(log, &mut record, true, &self.table, keys)?;
        own.live.fetch_sub(LINE as i64, Relaxed);
        own.marked.store(place.at + LINE, Relaxed);
        Ok(())
    }

    /// Gives a leaf's number back.
    fn forget(&self, number: u32, keys: &impl Keys) {
        let before = self.table.forget(number, keys);
        self.supersede(number, &before);
        self.table.give(number);
    }
}
