//! Recovery of logs: a parallel scan of every segment (Wu, section 2.4).
//!
//! Order of things: read and verify every segment, telling the caller each item that counts; sync,
//! because a killed process may have left items in the system's hands that are not durable yet;
//! then close the logs that were open at the crash at the last item that counted, and free
//! segments that do not count, durably; then a new checkpoint. Only then may new items be written:
//! nothing that was cut off can come back at a later recovery, and a crash during recovery finds
//! what this one found.

use super::segment::{FoundHeader, SegmentHeader, seal_word};
use super::segment_of;
use super::{Logs, RECOVERED, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, SavedIndex, State, start_of};
use crate::control::{self, Control, KNOWN_KINDS};
use crate::error::{Error, Result};
use crate::item::{self, Header, Item, Record};
use crate::superblock::{Checkpoint, HEAD_BYTES, OpenLog, Rule};
use crate::values::{Damage, Recovered, TornTail};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use terrace_memory::{Memory, lab};

/// Bytes checksummed at most in search of the next intact item behind damage.
const RESYNC_BYTES: usize = 256 << 20;

/// What to do with a segment once all have been read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mend {
    /// Its header is zero.
    AlreadyFree,
    /// Does not count (opened after the checkpoint, empty, or of an earlier generation).
    Free,
    /// Sealed and intact.
    Keep,
    /// Was open: close it at this offset, with the seal of this salt.
    SealAt(u32, u32),
    /// A part of the saved index that is in use.
    Saved,
}

/// Where a log that was open ends.
pub(super) type Tails<'a> = &'a (dyn Fn(u32, &SegmentHeader) -> u32 + Sync);

pub(super) struct Scan<'a, M: Memory> {
    pub logs: &'a Logs<M>,
    pub checkpoint: Checkpoint,
    pub visit: &'a (dyn Fn(u64, &Item<'_>, usize) + Sync),
    pub found: Mutex<Recovered>,
    /// Whether only logs that were open are read through.
    pub open_only: bool,
    /// Where logs that were open end, if that is known without reading them.
    pub tails: Option<Tails<'a>>,
    /// Segments, and bytes of control records in them.
    pub control: Mutex<Vec<(u32, u32)>>,
    /// What knows logs that need not be read.
    pub saved: Option<&'a SavedIndex>,
}

impl<M: Memory> Logs<M> {
    /// Reads everything back with `threads` threads; `visit` is told location, item and bytes of
    /// every item that counts, in no particular order, from several threads at once. Of a medium that
    /// is not opened to be written, the logs stay read-only and the file untouched; under
    /// [`Access::Salvage`](crate::Access) damage is reported in the result, and the rest recovered.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first damage, unless it is passed; those of the medium.
    pub fn recover(
        &self,
        threads: usize,
        visit: &(dyn Fn(u64, &Item<'_>, usize) + Sync),
    ) -> Result<Recovered> {
        self.recover_behind(None, Instant::now(), threads, visit)
    }

    /// The same of what a saved index does not know: `items` of it are about so long. What it knows is away.
    ///
    /// # Errors
    /// As [`Logs::recover`].
    pub fn recover_since(
        &self,
        saved: &SavedIndex,
        item_bytes: usize,
        threads: usize,
        visit: &(dyn Fn(u64, &Item<'_>, usize) + Sync),
    ) -> Result<Recovered> {
        let start = Instant::now();
        self.expects_items_of(item_bytes, saved.known_logs());
        self.uses_saved(saved);
        self.takes_known(saved);
        self.reads_known(saved, item_bytes, threads);
        self.recover_behind(Some(saved), start, threads, visit)
    }

    fn recover_behind(
        &self,
        saved: Option<&SavedIndex>,
        start: Instant,
        threads: usize,
        visit: &(dyn Fn(u64, &Item<'_>, usize) + Sync),
    ) -> Result<Recovered> {
        let mut checkpoint = self.lock_checkpoint().clone();
        let (count, mut whole_file) = self.segments_in_file(&checkpoint)?;
        if let Some(what) = &self.head_damage {
            whole_file.push(Damage { offset: 0, bytes: HEAD_BYTES, what: what.clone() });
            checkpoint.generation = self.newest_generation(count)?;
        }
        let (found, control) = (Mutex::default(), Mutex::default());
        let scan = Scan {
            logs: self,
            checkpoint,
            visit,
            found,
            open_only: false,
            tails: None,
            control,
            saved,
        };
        let mends = scan.run(count, threads)?;
        for (segment, bytes) in scan.control.into_inner().expect("no scanner panicked") {
            self.supersede(start_of(segment), bytes as usize);
        }
        let mut found = scan.found.into_inner().expect("no scanner panicked");
        found.steps.push(("read and verify the logs", start.elapsed()));
        found.damage.append(&mut whole_file);
        found.damage.sort_by_key(|d| d.offset);
        found.torn.sort_by_key(|t| t.offset);
        if let (Some(first), false) = (found.damage.first(), self.medium.access().passes_damage()) {
            let more = found.damage.len() - 1;
            let what = format!(
                "{} ({} bytes lost, {more} more damaged places, {} items intact); open with salvage to read the rest",
                first.what, first.bytes, found.items
            );
            return Err(Error::Damaged {
                path: self.medium.path().into(),
                offset: first.offset,
                what,
            });
        }
        if self.medium.access().writes() && self.index_mark() != 0 {
            // What follows changes the values alone.
            self.set_index_mark(0)?;
        }
        if self.medium.access().writes() && saved.is_none() {
            // Its segments are about to be free.
            self.forget_saved()?;
        }
        self.settle(count, &mends)?;
        found.end("close open logs, free the others", start.elapsed());
        Ok(found)
    }

    pub(super) fn settle(&self, count: u32, mends: &[Mend]) -> Result<()> {
        // What a killed process left may not have been synced, and will be told.
        if !self.medium.access().passes_damage() {
            self.medium.sync()?;
        }
        let mut free = Vec::new();
        let mut released = Vec::new();
        let mut gone = Vec::new();
        let mut newest = 0;
        for (segment, mend) in (1..count).zip(mends) {
            let state = &self.segments[segment as usize];
            state.origin.store(RECOVERED, Ordering::Relaxed);
            newest = newest.max(state.sequence.load(Ordering::Relaxed));
            match *mend {
                Mend::Keep => state.set_state(State::Sealed),
                Mend::Saved => state.set_state(State::Saved),
                Mend::AlreadyFree => released.push(segment),
                Mend::Free if self.may_leave() => gone.push(segment),
                Mend::Free => free.push(segment),
                Mend::SealAt(end, _) => {
                    state.end.store(end, Ordering::Relaxed);
                    state.set_state(State::Sealed);
                }
            }
            if self.medium.access().writes() {
                self.mend(segment, mend)?;
            }
        }
        // A crash while the file grew, or a full disk, may have left a part of a last segment that holds nothing: it is
        // made whole when it is needed, so that a full disk is no reason not to open.
        let is_whole = count == 1 || self.medium.file_bytes()? >= start_of(count);
        let ends_free = !is_whole && released.last() == Some(&(count - 1));
        let count = if ends_free { count - 1 } else { count };
        released.retain(|segment| *segment < count);
        self.leave_free(&gone)?;
        self.forget_read();
        // Those that have left by now were counted apart.
        let elsewhere = released.len() + self.away_logs() + self.saved_segments() + self.far_logs();
        let in_memory = u64::from(count - 1) - elsewhere as u64;
        let rows = self.row_bytes(count - 1);
        self.budget.take_anyway(rows + in_memory * u64::from(SEGMENT_BYTES));
        {
            let mut pool = self.lock_pool();
            pool.free = free;
            pool.released = released;
            pool.gone = gone;
            pool.fresh = count;
            let away = |segment: &u32| {
                self.residents.remove(*segment, &self.segments[*segment as usize].place)
            };
            pool.released.iter().chain(&pool.gone).for_each(away);
            self.residents.recount(|first| self.places(&pool, first));
        }
        self.next_sequence.fetch_max(newest + 1, Ordering::AcqRel);
        let kept = (1..count).zip(mends);
        let kept = kept.filter(|(_, mend)| matches!(mend, Mend::Keep | Mend::SealAt(..)));
        self.recall_closings(kept.map(|(segment, _)| segment), newest + 1);
        self.recount_backlog();
        if let Some(reason) = self.medium.access().refusal() {
            // What a process that died left is shown as well.
            if self.left.lock().is_none() && !self.expects_more.load(Ordering::Relaxed) {
                self.stop(reason.into());
            }
            return Ok(());
        }
        if count > 1 && self.medium.file_bytes()? < start_of(count) {
            // The crash came while the file grew: the last segment gets its full length, before
            // the next checkpoint promises it.
            self.medium.grow(start_of(count - 1), u64::from(SEGMENT_BYTES))?;
        }
        self.medium.sync()?;
        self.flush_all()
    }

    fn mend(&self, segment: u32, mend: &Mend) -> Result<()> {
        match *mend {
            Mend::Keep | Mend::AlreadyFree | Mend::Saved => return Ok(()),
            Mend::Free => self.clear_header(segment),
            Mend::SealAt(end, salt) => self.write_seal(segment, seal_word(salt, end)),
        }
        self.medium.write_out(start_of(segment), u64::from(SEGMENT_HEADER_BYTES), false)
    }
}

impl<M: Memory> Scan<'_, M> {
    pub(super) fn run(&self, count: u32, threads: usize) -> Result<Vec<Mend>> {
        let next = AtomicU32::new(1);
        let mends: Vec<Mutex<Mend>> = (1..count).map(|_| Mutex::new(Mend::AlreadyFree)).collect();
        let worker = || -> Result<()> {
            loop {
                let segment = next.fetch_add(1, Ordering::Relaxed);
                if segment >= count {
                    return Ok(());
                }
                *mends[segment as usize - 1].lock().expect("no scanner panicked") =
                    self.segment(segment)?;
                crate::progress::scanned(SEGMENT_BYTES.into());
            }
        };
        std::thread::scope(|scope| {
            let handles: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(worker)).collect();
            let mine = worker();
            handles
                .into_iter()
                .map(|h| h.join().expect("no scanner panicked"))
                .fold(mine, Result::and)
        })?;
        Ok(mends.into_iter().map(|m| m.into_inner().expect("no scanner panicked")).collect())
    }

    fn segment(&self, segment: u32) -> Result<Mend> {
        let logs = self.logs;
        let start = start_of(segment);
        // A free segment stays unread: it takes no memory.
        // The checkpoint after a log was closed no longer names it; only then may it be freed. But a log that was begun
        // and has nothing is freed by recovery while the checkpoint still names it, and a crash may come before the
        // next checkpoint.
        let holds = |open: &OpenLog| open.segment == segment && open.tail > SEGMENT_HEADER_BYTES;
        let found = match self.saved {
            Some(saved) => saved.headers[segment as usize],
            None => logs.read_header(segment)?,
        };
        let header = match found {
            FoundHeader::Free if !self.checkpoint.open.iter().any(holds) => {
                return Ok(Mend::AlreadyFree);
            }
            FoundHeader::Intact(header) => header,
            FoundHeader::Free | FoundHeader::Damaged => {
                self.damaged(
                    start,
                    u64::from(SEGMENT_BYTES),
                    "a segment header does not match its checksum",
                );
                return Ok(Mend::Keep);
            }
            FoundHeader::NewerFormat(_) | FoundHeader::NewerFlags(_) => {
                return Err(logs.newer(found).expect("it is newer"));
            }
        };
        logs.medium.commit(start, u64::from(SEGMENT_BYTES))?;
        let state = &logs.segments[segment as usize];
        state.sequence.store(header.sequence, Ordering::Relaxed);
        state.salt.store(header.salt, Ordering::Relaxed);
        state.header_writer.store((header.writer as u8).wrapping_add(1), Ordering::Relaxed);
        if header.is_saved {
            let is_used = self.saved.is_some_and(|saved| saved.is_of(segment));
            return Ok(if is_used { Mend::Saved } else { Mend::Free });
        }
        if self.saved.is_some_and(|saved| saved.knows(start)) {
            self.found.lock().expect("no scanner panicked").segments += 1;
            return Ok(Mend::Keep);
        }
        let Some(limit) = self.limit(segment, &header) else { return Ok(Mend::Free) };
        if self.open_only && limit.is_closed_at(header.sealed_bytes) {
            state.end.store(header.sealed_bytes, Ordering::Relaxed);
            self.found.lock().expect("no scanner panicked").segments += 1;
            return Ok(Mend::Keep);
        }
        let end = match self.tails {
            Some(tails) => tails(segment, &header),
            None => {
                // SAFETY: before recovery is over nobody but the one scanner of a segment uses its
                // memory.
                unsafe { logs.medium.read_in(start, u64::from(SEGMENT_BYTES))? };
                self.items(segment, &header, &limit)?
            }
        };
        if limit.is_closed_at(header.sealed_bytes) {
            state.end.store(header.sealed_bytes, Ordering::Relaxed);
            logs.was_read_through(segment)?;
            return Ok(Mend::Keep);
        }
        Ok(if end > SEGMENT_HEADER_BYTES { Mend::SealAt(end, header.salt) } else { Mend::Free })
    }

    /// How far a segment counts, and how much of that must be intact. `None`: it does not count.
    fn limit(&self, segment: u32, header: &SegmentHeader) -> Option<Limit> {
        if header.generation != self.checkpoint.generation {
            return None;
        }
        let clamp = |bytes: u32| bytes.clamp(SEGMENT_HEADER_BYTES, SEGMENT_BYTES);
        let open = self
            .checkpoint
            .open
            .iter()
            .find(|o| o.segment == segment && o.sequence == header.sequence);
        if self.checkpoint.rule == Rule::Bounded {
            if let Some(open) = open {
                return Some(Limit { exact: clamp(open.tail), end: clamp(open.tail) });
            }
            if header.sequence >= self.checkpoint.next_sequence {
                return None;
            }
        }
        Some(match (header.sealed_bytes, open) {
            (0, None) => Limit { exact: SEGMENT_HEADER_BYTES, end: SEGMENT_BYTES },
            (0, Some(open)) => Limit { exact: clamp(open.tail), end: SEGMENT_BYTES },
            (sealed, _) => Limit { exact: clamp(sealed), end: clamp(sealed) },
        })
    }

    /// What stands at `at` of a segment, up to `end`. Where the file ends early it reads as zero.
    fn record(&self, at: u64, end: u64, salt: u32) -> Record<'_> {
        // SAFETY: before recovery is over nobody but the one scanner of a segment uses its memory.
        let bytes = unsafe { self.logs.item_bytes(at, end) };
        bytes.map_or(Record::Invalid, |bytes| item::verify(bytes, salt))
    }

    /// Tells the items of one segment, as far as it counts; returns where that ends.
    fn items(&self, segment: u32, header: &SegmentHeader, limit: &Limit) -> Result<u32> {
        let (start, end) = (start_of(segment), limit.end as usize);
        let mut exact = limit.exact as usize;
        let mut at = SEGMENT_HEADER_BYTES as usize;
        let mut counted = at;
        let mut batch: Vec<(usize, usize)> = Vec::new();
        let (mut items, mut control_bytes) = (0, 0);
        loop {
            match self.record(start + at as u64, start + end as u64, header.salt) {
                Record::Item(item, length) => {
                    if item.in_batch {
                        batch.push((at, length));
                    } else {
                        items += 1;
                        self.tell(start + at as u64, &item, length);
                        counted = at + length;
                    }
                    at += length;
                }
                Record::BatchEnd(length) => {
                    items += self.tell_batch(start, &mut batch, header.salt);
                    at += length;
                    counted = at;
                }
                Record::Control(Control::Unknown(kind), _) => {
                    return Err(self.newer("a record of kind", kind.into(), KNOWN_KINDS.into()));
                }
                Record::Control(_, length) => {
                    at += length;
                    control_bytes += length as u32;
                    counted = if batch.is_empty() { at } else { counted };
                }
                Record::Invalid => {
                    if at >= exact {
                        exact = self.vouched_for(start, at, header, limit);
                    }
                    if at >= exact {
                        break;
                    }
                    at = self.pass_damage(start, at, exact, header.salt);
                    counted = at;
                    // The batch was whole; its end was lost with the damage.
                    items += self.tell_batch(start, &mut batch, header.salt);
                }
            }
        }
        if limit.exact < limit.end {
            let dropped: usize = batch.iter().map(|(_, length)| length).sum();
            let behind = self.intact_behind(start, at, end, header.salt).len();
            let torn = TornTail {
                offset: start + counted as u64,
                dropped_bytes: (dropped + behind) as u64,
            };
            self.found.lock().expect("no scanner panicked").torn.push(torn);
        }
        self.control.lock().expect("no scanner panicked").push((segment, control_bytes));
        let mut found = self.found.lock().expect("no scanner panicked");
        found.segments += 1;
        found.items += items;
        found.bytes += u64::from(SEGMENT_BYTES);
        Ok(counted as u32)
    }

    /// The offset before which a segment was durable, going by what lies intact behind `at`, where nothing does; not
    /// beyond `at` if that may be where a crash tore it.
    fn vouched_for(&self, start: u64, at: usize, header: &SegmentHeader, limit: &Limit) -> usize {
        let end = limit.end as usize;
        if at >= end {
            return at;
        }
        // Under salvage whatever is intact is read.
        if header.is_in_order || self.logs.medium.access().passes_damage() {
            let behind = self.intact_behind(start, at, end, header.salt);
            return if behind.is_empty() { at } else { behind.start };
        }
        // SAFETY: as for `record`.
        let bytes = unsafe { self.logs.medium.memory().bytes(start, end as u64) };
        let filled = self.filled(start, bytes);
        control::vouched_for(bytes, at, filled, header.salt).map_or(at, |offset| offset as usize)
    }

    /// The first row of intact records behind `at`, before `end`.
    fn intact_behind(&self, start: u64, at: usize, end: usize, salt: u32) -> Range<usize> {
        if at >= end {
            return end..end;
        }
        // SAFETY: as for `record`.
        let bytes = unsafe { self.logs.medium.memory().bytes(start, end as u64) };
        let from = self.next_intact(start, bytes, at, salt);
        let mut to = from;
        while let Some(length) = item::verify(&bytes[to..], salt).length() {
            to += length;
        }
        from..to
    }

    /// Says that what stands at `at` is damaged; returns where something intact follows, or `exact`.
    fn pass_damage(&self, start: u64, at: usize, exact: usize, salt: u32) -> usize {
        // SAFETY: as for `record`.
        let bytes = unsafe { self.logs.medium.memory().bytes(start, exact as u64) };
        let next = self.next_intact(start, bytes, at, salt);
        let what = "items that were durable do not match their checksums";
        self.damaged(start + at as u64, (next - at) as u64, what);
        next
    }

    /// The next intact item behind damage at `at`, or the end. Usually the damaged item's own lengths
    /// lead there; else every offset is tried, as far as a bound on the bytes checksummed allows.
    fn next_intact(&self, start: u64, bytes: &[u8], at: usize, salt: u32) -> usize {
        let is_intact = |next: usize| item::verify(&bytes[next..], salt) != Record::Invalid;
        let by_its_lengths = Header::decode(&bytes[at..]).map(|header| at + header.item_bytes());
        if let Some(next) = by_its_lengths
            .filter(|next| *next == bytes.len() || (*next < bytes.len() && is_intact(*next)))
        {
            return next;
        }
        let mut work = RESYNC_BYTES;
        // A checksum is never zero.
        for next in at + 1..self.filled(start, bytes) {
            let Some(header) = Header::decode(&bytes[next..]) else { break };
            if next + header.item_bytes() <= bytes.len() {
                if is_intact(next) {
                    return next;
                }
                work = work.saturating_sub(header.item_bytes());
                if work == 0 {
                    break;
                }
            }
        }
        bytes.len()
    }

    /// Behind how many of a segment's bytes there is nothing but zeros.
    fn filled(&self, start: u64, bytes: &[u8]) -> usize {
        let known = lab::filled(self.logs.medium.memory(), start, bytes.len() as u64);
        control::without_zeros(&bytes[..known as usize]).len()
    }

    fn newer(&self, what: &'static str, found: u64, known: u64) -> Error {
        Error::Newer { path: self.logs.medium.path().into(), what, found, known }
    }

    fn tell(&self, at: u64, item: &Item<'_>, length: usize) {
        if item.tombstone {
            self.logs.segments[segment_of(at)].deleted.fetch_add(1, Ordering::Relaxed);
        }
        (self.visit)(at, item, length);
    }

    /// Tells the items of a batch, by offset and length; returns their number.
    fn tell_batch(&self, start: u64, batch: &mut Vec<(usize, usize)>, salt: u32) -> u64 {
        let told = batch.len() as u64;
        for (at, length) in batch.drain(..) {
            let at = start + at as u64;
            if let Record::Item(item, _) = self.record(at, at + length as u64, salt) {
                self.tell(at, &item, length);
            }
        }
        told
    }

    fn damaged(&self, offset: u64, bytes: u64, what: &str) {
        let damage = Damage { offset, bytes, what: what.into() };
        self.found.lock().expect("no scanner panicked").damage.push(damage);
    }
}

/// How far a segment counts, and how much of that must be intact.
pub(super) struct Limit {
    pub exact: u32,
    pub end: u32,
}
