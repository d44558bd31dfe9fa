//! Recovery of logs from a persistent index: an index walk (Wu, section 2.4).
//!
//! Closed logs are not read through: what an entry names is verified where it lies and counted, and
//! the rest of a log is dead. Logs that were open are read to find where they end, and what they hold
//! is offered to the index: it may be newer, because an item is durable before its entry is, and a
//! batch is to be there as a whole or not at all. An entry that names an item of a batch that was
//! never finished cannot be taken back from here: the index does not fit then, and all items are read
//! instead, as they are when any entry names no intact item.

use super::recover::{Limit, Mend, Scan};
use super::{Logs, SEGMENT_HEADER_BYTES, segment_of, start_of};
use crate::error::{Error, Result};
use crate::item::{self, Item, Record};
use crate::logs::COLLECTOR;
use crate::superblock::Rule;
use crate::values::Reach;
use crate::values::Recovered;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;
use terrace_memory::Memory;

/// How far a segment counts, and the salt of its items.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    pub end: u32,
    salt: u32,
    live: u64,
}

impl<M: Memory> Logs<M> {
    /// Recovers what the entries of a persistent index name, instead of [`Logs::recover`].
    ///
    /// # Errors
    /// [`Error::Unfit`] if the index does not fit these logs; then nothing was changed, and `recover`
    /// may follow. Those of the medium.
    pub fn recover_reached(&self, threads: usize, reach: Reach<'_>) -> Result<Recovered> {
        let start = Instant::now();
        let checkpoint = self.lock_checkpoint().clone();
        if checkpoint.rule != Rule::All {
            return Err(Error::Unfit("not every item counts after a crash".into()));
        }
        let (count, whole_file) = self.segments_in_file(&checkpoint)?;
        let tails = Mutex::new(Vec::new());
        let visit = |at: u64, _: &Item<'_>, bytes: usize| {
            tails.lock().expect("no scanner panicked").push((at, bytes));
        };
        let (found, control) = (Mutex::default(), Mutex::default());
        let scan = Scan {
            logs: self,
            checkpoint,
            visit: &visit,
            found,
            open_only: true,
            tails: None,
            control,
            saved: None,
        };
        let mends = scan.run(count, threads)?;
        let mut found = scan.found.into_inner().expect("no scanner panicked");
        if let Some(damage) = found.damage.first().or(whole_file.first()) {
            return Err(Error::Unfit(damage.what.clone()));
        }
        found.end("read the logs that were open", start.elapsed());
        let mut counted = self.counted(&mends);
        self.count_reached(&mut counted, &reach, &mut found)?;
        found.end("verify what the index names", start.elapsed());
        for (segment, counted) in counted.iter().enumerate().filter(|(_, c)| c.end > 0) {
            let used = u64::from(counted.end - SEGMENT_HEADER_BYTES);
            let dead = used.saturating_sub(counted.live) as u32;
            self.dead[COLLECTOR][segment].store(dead, Ordering::Relaxed);
        }
        // An offered item counts as live, and who loses is superseded.
        for (at, bytes) in tails.into_inner().expect("no scanner panicked") {
            let segment = segment_of(at);
            if let Record::Item(item, _) = self.record(at, counted[segment]) {
                self.dead[COLLECTOR][segment].fetch_sub(bytes as u32, Ordering::Relaxed);
                (reach.offered)(at, &item, bytes);
            }
        }
        found.end("take in what is newer than the index", start.elapsed());
        self.settle(count, &mends)?;
        found.end("close open logs, free the others", start.elapsed());
        Ok(found)
    }

    pub(super) fn counted(&self, mends: &[Mend]) -> Vec<Counted> {
        let mut counted = vec![Counted::default()];
        for (number, mend) in mends.iter().enumerate() {
            let state = &self.segments[number + 1];
            let salt = state.salt.load(Ordering::Relaxed);
            let end = match mend {
                Mend::Keep => state.end.load(Ordering::Relaxed),
                Mend::SealAt(end, _) => *end,
                Mend::AlreadyFree | Mend::Free | Mend::Saved => 0,
            };
            counted.push(Counted { end, salt, live: 0 });
        }
        counted
    }

    /// Verifies every item that an entry names, tells of it, and counts its bytes.
    fn count_reached(
        &self,
        counted: &mut [Counted],
        reach: &Reach<'_>,
        found: &mut Recovered,
    ) -> Result<()> {
        let mut unfit = None;
        found.items = 0;
        found.bytes = 0;
        (reach.entries)(&mut |at| {
            let segment = segment_of(at);
            let within = counted.get(segment).copied().filter(|c| {
                (u64::from(SEGMENT_HEADER_BYTES)..u64::from(c.end))
                    .contains(&(at - start_of(segment as u32)))
            });
            match within.map(|c| self.record(at, c)) {
                Some(Record::Item(item, bytes)) => {
                    counted[segment].live += bytes as u64;
                    found.items += 1;
                    found.bytes += bytes as u64;
                    if !(reach.reached)(at, &item, bytes) {
                        unfit = Some(at);
                    }
                }
                _ => unfit = Some(at),
            }
        });
        match unfit {
            Some(at) => Err(Error::Unfit(format!(
                "an entry names no intact item, or another key's, at {at}"
            ))),
            None => Ok(()),
        }
    }

    fn record(&self, at: u64, counted: Counted) -> Record<'_> {
        let end = start_of(segment_of(at) as u32) + u64::from(counted.end);
        // SAFETY: before recovery is over nobody writes to a segment that counts.
        let bytes = unsafe { self.item_bytes(at, end) };
        bytes.map_or(Record::Invalid, |bytes| item::verify(bytes, counted.salt))
    }
}

impl Limit {
    /// Whether the segment was closed: what it holds is known without reading it.
    pub(super) fn is_closed_at(&self, sealed_bytes: u32) -> bool {
        sealed_bytes > 0 && self.end == sealed_bytes
    }
}
