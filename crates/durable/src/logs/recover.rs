//! Recovery of logs: a parallel scan of every segment (paper 000, A8 procedure 2).
//!
//! Order of things: read and verify every segment, telling the caller each item that counts; then
//! close the logs that were open at the crash at the last item that counted, and free segments
//! that do not count, durably; then a new cut. Only then may new items be written: nothing that
//! was cut off can come back at a later recovery, and a crash during recovery finds what this one
//! found.

use super::segment::{FoundHeader, SegmentHeader};
use super::{Logs, RECOVERED, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, State};
use crate::error::{Error, Result};
use crate::item::{self, Item, Record};
use crate::medium::BLOCK_BYTES;
use crate::superblock::{Cut, Rule};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::Memory;

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Segments that hold items.
    pub segments: u64,
    /// Items that count, older versions and tombstones included.
    pub items: u64,
    /// Bytes of segments read and verified.
    pub bytes: u64,
    /// Unfinished ends of logs that were open; never acknowledged.
    pub torn: Vec<TornTail>,
    /// What should have been intact and was not.
    pub damage: Vec<Damage>,
    /// Wall time.
    pub elapsed: Duration,
}

/// The end of an open log that did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Offset in the file at which the log ends now.
    pub offset: u64,
    /// Bytes of intact items of an unfinished batch that were dropped with it.
    pub dropped_bytes: u64,
}

/// A part of the file that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes lost from there on.
    pub bytes: u64,
    /// What it was.
    pub what: String,
}

/// What to do with a segment once all have been read.
#[derive(Clone, Copy, Debug)]
enum Mend {
    /// Its header is zero.
    AlreadyFree,
    /// Does not count (opened after the cut, empty, or of an earlier generation).
    Free,
    /// Sealed and intact.
    Keep,
    /// Was open: close it at this offset.
    SealAt(u32, SegmentHeader),
}

struct Scan<'a> {
    logs: &'a Logs,
    cut: Cut,
    visit: &'a (dyn Fn(u64, &Item<'_>, usize) + Sync),
    found: Mutex<Recovered>,
}

impl Logs {
    /// Reads everything back with `threads` threads; `visit` is told location, item and bytes of
    /// every item that counts, in no particular order, from several threads at once. With
    /// `salvage`, damage is reported in the result, the rest recovered, and the logs stay
    /// read-only and the file untouched.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first damage, unless `salvage`; those of the medium.
    pub fn recover(
        &self,
        threads: usize,
        salvage: bool,
        visit: &(dyn Fn(u64, &Item<'_>, usize) + Sync),
    ) -> Result<Recovered> {
        let start = Instant::now();
        let cut = self.cut.lock().clone();
        let (count, mut truncation) = self.segments_in_file(&cut)?;
        let scan = Scan { logs: self, cut, visit, found: Mutex::default() };
        let mends = scan.run(count, threads)?;
        let mut found = scan.found.into_inner().expect("no scanner panicked");
        found.damage.append(&mut truncation);
        found.damage.sort_by_key(|d| d.offset);
        found.torn.sort_by_key(|t| t.offset);
        if let (Some(first), false) = (found.damage.first(), salvage) {
            let more = found.damage.len() - 1;
            let what = format!(
                "{} ({} bytes lost, {more} more damaged places, {} items intact); open with salvage to read the rest",
                first.what, first.bytes, found.items
            );
            return Err(Error::Damaged { path: self.medium.path().into(), offset: first.offset, what });
        }
        self.settle(count, &mends, salvage)?;
        found.elapsed = start.elapsed();
        Ok(found)
    }

    fn segments_in_file(&self, cut: &Cut) -> Result<(u32, Vec<Damage>)> {
        let file_bytes = self.medium.file_bytes()?;
        let present = file_bytes.div_ceil(u64::from(SEGMENT_BYTES)).max(1);
        if present as usize > self.segments.len() {
            let what = format!("the file holds {present} segments, room was made for {}", self.segments.len());
            return Err(Error::Damaged { path: self.medium.path().into(), offset: 0, what });
        }
        let promised = u64::from(cut.segments) * u64::from(SEGMENT_BYTES);
        let mut damage = Vec::new();
        if cut.segments > 1 && file_bytes < promised {
            let what = format!("the file ends at {file_bytes}, it held {promised} bytes");
            damage.push(Damage { offset: file_bytes, bytes: promised - file_bytes, what });
        }
        Ok((present as u32, damage))
    }

    fn settle(&self, count: u32, mends: &[Mend], salvage: bool) -> Result<()> {
        let mut free = Vec::new();
        let mut released = Vec::new();
        let mut newest = 0;
        for (segment, mend) in (1..count).zip(mends) {
            let state = &self.segments[segment as usize];
            state.origin.store(RECOVERED, Ordering::Relaxed);
            newest = newest.max(state.sequence.load(Ordering::Relaxed));
            match *mend {
                Mend::Keep => state.set_state(State::Sealed),
                Mend::AlreadyFree => released.push(segment),
                Mend::Free => {
                    self.write_header(segment, &[0; SEGMENT_HEADER_BYTES as usize]);
                    free.push(segment);
                }
                Mend::SealAt(end, header) => {
                    self.write_header(segment, &SegmentHeader { sealed_bytes: end, ..header }.encode());
                    state.end.store(end, Ordering::Relaxed);
                    state.set_state(State::Sealed);
                }
            }
            if !salvage && matches!(mend, Mend::Free | Mend::SealAt(..)) {
                self.medium.write_out(Self::start_of(segment), u64::from(SEGMENT_HEADER_BYTES), false)?;
            }
        }
        let in_memory = u64::from(count - 1) - released.len() as u64;
        self.budget.take_anyway(in_memory * u64::from(SEGMENT_BYTES));
        {
            let mut pool = self.pool.lock();
            pool.free = free;
            pool.released = released;
            pool.fresh = count;
        }
        self.next_sequence.fetch_max(newest + 1, Ordering::AcqRel);
        self.recount_backlog();
        if salvage {
            self.stop("opened with salvage: read-only".into());
            return Ok(());
        }
        if count > 1 && self.medium.file_bytes()? < Self::start_of(count) {
            // The crash came while the file grew: the last segment gets its full length, before
            // the next cut promises it.
            self.medium.grow(Self::start_of(count - 1), u64::from(SEGMENT_BYTES))?;
        }
        self.medium.sync()?;
        self.flush_all()
    }
}

impl Scan<'_> {
    fn run(&self, count: u32, threads: usize) -> Result<Vec<Mend>> {
        let next = AtomicU32::new(1);
        let mends: Vec<Mutex<Mend>> = (1..count).map(|_| Mutex::new(Mend::AlreadyFree)).collect();
        let worker = || -> Result<()> {
            loop {
                let segment = next.fetch_add(1, Ordering::Relaxed);
                if segment >= count {
                    return Ok(());
                }
                *mends[segment as usize - 1].lock().expect("no scanner panicked") = self.segment(segment)?;
            }
        };
        std::thread::scope(|scope| {
            let handles: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(worker)).collect();
            let mine = worker();
            handles.into_iter().map(|h| h.join().expect("no scanner panicked")).fold(mine, Result::and)
        })?;
        Ok(mends.into_iter().map(|m| m.into_inner().expect("no scanner panicked")).collect())
    }

    fn segment(&self, segment: u32) -> Result<Mend> {
        let logs = self.logs;
        let start = Logs::start_of(segment);
        logs.medium.commit(start, u64::from(SEGMENT_BYTES))?;
        // A free segment stays unread: it takes no memory.
        // SAFETY: before recovery is over nobody but the one scanner of a segment uses its memory.
        unsafe { logs.medium.read_in(start, BLOCK_BYTES)? };
        // SAFETY: as above; not written while borrowed.
        let head = unsafe { logs.medium.memory().bytes(start, BLOCK_BYTES) };
        if SegmentHeader::decode(head) == FoundHeader::Free {
            return Ok(Mend::AlreadyFree);
        }
        // SAFETY: as above.
        unsafe { logs.medium.read_in(start, u64::from(SEGMENT_BYTES))? };
        // The file may end inside the segment: what is missing reads as zero.
        // SAFETY: as above; not written while borrowed.
        let bytes = unsafe { logs.medium.memory().bytes(start, u64::from(SEGMENT_BYTES)) };
        let header = match SegmentHeader::decode(bytes) {
            FoundHeader::Free => return Ok(Mend::AlreadyFree),
            FoundHeader::Damaged => {
                self.damaged(start, u64::from(SEGMENT_BYTES), "a segment header does not match its checksum");
                return Ok(Mend::Keep);
            }
            FoundHeader::Intact(header) => header,
        };
        logs.segments[segment as usize].sequence.store(header.sequence, Ordering::Relaxed);
        let Some(limit) = self.limit(segment, &header) else { return Ok(Mend::Free) };
        let end = self.items(start, &bytes[..limit.bytes as usize], &header, limit.exact);
        if header.sealed_bytes > 0 && limit.exact && limit.bytes == header.sealed_bytes {
            logs.segments[segment as usize].end.store(header.sealed_bytes, Ordering::Relaxed);
            return Ok(Mend::Keep);
        }
        Ok(if end > SEGMENT_HEADER_BYTES { Mend::SealAt(end, header) } else { Mend::Free })
    }

    /// How far a segment counts, and whether everything up to there must be intact. `None`: it
    /// does not count at all.
    fn limit(&self, segment: u32, header: &SegmentHeader) -> Option<Limit> {
        if header.generation != self.cut.generation {
            return None;
        }
        if self.cut.rule == Rule::Bounded {
            let open = self.cut.open.iter().find(|o| o.segment == segment && o.sequence == header.sequence);
            if let Some(open) = open {
                return Some(Limit { bytes: open.tail, exact: true });
            }
            if header.sequence >= self.cut.next_sequence {
                return None;
            }
        }
        Some(match header.sealed_bytes {
            0 => Limit { bytes: SEGMENT_BYTES, exact: false },
            sealed => Limit { bytes: sealed.clamp(SEGMENT_HEADER_BYTES, SEGMENT_BYTES), exact: true },
        })
    }

    /// Tells the items of one segment; returns where what counts ends.
    fn items(&self, start: u64, bytes: &[u8], header: &SegmentHeader, exact: bool) -> u32 {
        let mut at = SEGMENT_HEADER_BYTES as usize;
        let mut counted = at;
        let mut batch: Vec<(usize, usize)> = Vec::new();
        let mut items = 0;
        let mut tell = |at: usize, length: usize| {
            if let Some(item) = Item::read(&bytes[at..at + length]) {
                items += 1;
                (self.visit)(start + at as u64, &item, length);
            }
        };
        loop {
            match item::verify(&bytes[at..], header.salt) {
                Record::Item(item, length) => {
                    if item.in_batch {
                        batch.push((at, length));
                    } else {
                        tell(at, length);
                        counted = at + length;
                    }
                    at += length;
                }
                Record::BatchEnd(length) => {
                    batch.drain(..).for_each(|(at, length)| tell(at, length));
                    at += length;
                    counted = at;
                }
                Record::Invalid if exact && at < bytes.len() => {
                    let intact = (at + 1..bytes.len())
                        .find(|next| item::verify(&bytes[*next..], header.salt) != Record::Invalid);
                    let next = intact.unwrap_or(bytes.len());
                    self.damaged(start + at as u64, (next - at) as u64, "items do not match their checksums");
                    at = next;
                    counted = next;
                }
                Record::Invalid => break,
            }
        }
        if exact {
            // A sealed log holds no unfinished batch: its end was lost with the damage.
            batch.drain(..).for_each(|(at, length)| tell(at, length));
            counted = bytes.len();
        }
        let dropped_bytes: usize = batch.iter().map(|(_, length)| length).sum();
        let mut found = self.found.lock().expect("no scanner panicked");
        found.segments += 1;
        found.items += items;
        found.bytes += u64::from(SEGMENT_BYTES);
        if !exact {
            found.torn.push(TornTail { offset: start + counted as u64, dropped_bytes: dropped_bytes as u64 });
        }
        counted as u32
    }

    fn damaged(&self, offset: u64, bytes: u64, what: &str) {
        let damage = Damage { offset, bytes, what: what.into() };
        self.found.lock().expect("no scanner panicked").damage.push(damage);
    }
}

struct Limit {
    bytes: u32,
    exact: bool,
}
