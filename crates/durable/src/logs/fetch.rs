//! Items of logs that are away: read from the disk, verified, and kept as copies for whoever looks again.
//!
//! One read takes the blocks in which an item of the usual length lies. What is known to be needed together is read
//! together ([`Logs::fetch_all`]): a flash disk answers many reads in hardly more time than one.

use super::item_cache::ItemCache;
use super::{Logs, segment_of};
use crate::error::{Error, Result};
use crate::item::{self, Header, MAX_HEADER_BYTES, Record};
use crate::medium::{BLOCK_BYTES, Blocks};
use crate::values::place::end_of;
use crate::values::{Found, NoItem};
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Copies that go are given back after so many were added, as far as nobody looks at them.
const FLUSHED_TOGETHER: usize = 16;
/// More is not read for an item before it is known to be longer.
const USUAL_MOST: usize = 8 << 10;

/// An item that is to be fetched: where it lies, and in which log, whatever lies there later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    location: u64,
    sequence: u64,
    salt: u32,
}

/// What the blocks of an item say.
enum Examined {
    /// A copy was kept.
    Kept,
    /// It needs so many bytes from the first of the blocks on.
    Longer(usize),
    /// No whole item lies there.
    Damaged,
}

/// Where to read an item from: the first of its blocks, and what lies in that before it.
fn blocks_of(location: u64) -> (u64, usize) {
    let from = location / BLOCK_BYTES * BLOCK_BYTES;
    (from, (location - from) as usize)
}

impl<M: Memory> Logs<M> {
    /// A copy of the item at `location`, in a log that is away, if it was fetched a moment ago.
    ///
    /// # Safety
    /// A guard from before the location was learnt is held while the copy is borrowed.
    #[cold]
    pub(super) unsafe fn fetched(&self, location: u64) -> Found<&[u8]> {
        let guard = crossbeam_epoch::pin();
        let cache = self.away.copies.get(&guard).ok_or(NoItem::Away(location))?;
        let sequence = self.log_of_copies(segment_of(location));
        let found = cache.get(location, sequence, &guard).ok_or(NoItem::Away(location))?;
        // SAFETY: the guard of the caller keeps it, as this one does until here.
        Ok(unsafe { std::slice::from_raw_parts(found.as_ptr(), found.len()) })
    }

    fn is_away(&self, location: u64) -> bool {
        matches!(self.resolve(location), Err(NoItem::Away(_)))
    }

    /// Bytes of copies that may be kept.
    pub fn copies_most(&self) -> u64 {
        self.away.copies.ask(ItemCache::most).unwrap_or(0)
    }

    /// What to fetch for the item at `location`, learnt under a guard that is held; nothing where its log is in memory.
    pub fn wanted(&self, location: u64) -> Option<Wanted> {
        let sequence = self.log_of_copies(segment_of(location));
        let salt = self.segments[segment_of(location)].salt.load(Ordering::Relaxed);
        self.is_away(location).then_some(Wanted { location, sequence, salt })
    }

    /// Reads the item at `location`, learnt under `guard`, from the disk: for whoever looks again at once. Nothing is
    /// read where its log is in memory by now.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it does not match its checksum; those of the disk. Both name the file and the offset.
    pub fn fetch(&self, location: u64, guard: &Guard) -> Result<()> {
        let Some(wanted) = self.wanted(location) else { return Ok(()) };
        self.away.fetched.fetch_add(1, Ordering::Relaxed);
        let (from, skipped) = blocks_of(location);
        let mut bytes = skipped + self.usual_bytes().min(USUAL_MOST);
        Blocks::with(|blocks| {
            loop {
                let into = blocks.of(self.length(location, bytes));
                self.medium.read_apart(from, into).map_err(|error| at_offset(error, location))?;
                self.count(into.len());
                match self.examine(wanted, into, guard) {
                    Examined::Kept => {
                        guard.flush();
                        return Ok(());
                    }
                    Examined::Longer(needed) => bytes = needed,
                    Examined::Damaged => return Err(self.damaged_on_disk(location)),
                }
            }
        })
    }

    /// Fetches many, all together. `failed` is told of those that cannot be read, with the errors of [`Logs::fetch`];
    /// not of those whose logs have been freed since.
    pub fn fetch_all(&self, mut wanted: Vec<Wanted>, mut failed: impl FnMut(Wanted, Error)) {
        self.away.fetched.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        let mut bytes = vec![self.usual_bytes().min(USUAL_MOST); wanted.len()];
        while !wanted.is_empty() {
            let piece = |(wanted, bytes): (&Wanted, &usize)| {
                let (from, skipped) = blocks_of(wanted.location);
                (from, self.length(wanted.location, skipped + bytes))
            };
            let pieces: Vec<(u64, usize)> = wanted.iter().zip(&bytes).map(piece).collect();
            let mut longer = (Vec::new(), Vec::new());
            let mut added = 0;
            self.medium.read_many(&pieces, &mut |number, found| {
                let wanted = wanted[number];
                // For each by itself: copies that are let go meanwhile need not stay.
                let guard = crossbeam_epoch::pin();
                let examined = found.map(|found| {
                    self.count(found.len());
                    self.examine(wanted, found, &guard)
                });
                let error = match examined {
                    Ok(Examined::Kept) => {
                        added += 1;
                        if added % FLUSHED_TOGETHER == 0 {
                            guard.flush();
                        }
                        return;
                    }
                    Ok(Examined::Longer(needed)) => {
                        longer.0.push(wanted);
                        longer.1.push(needed - blocks_of(wanted.location).1);
                        return;
                    }
                    Ok(Examined::Damaged) => self.damaged_on_disk(wanted.location),
                    Err(error) => at_offset(error, wanted.location),
                };
                if self.wanted(wanted.location) == Some(wanted) {
                    failed(wanted, error);
                }
            });
            (wanted, bytes) = longer;
        }
    }

    /// Bytes of an item that was fetched lately, or of the shortest one.
    pub fn usual_bytes(&self) -> usize {
        self.away.item_bytes.load(Ordering::Relaxed).max(MAX_HEADER_BYTES)
    }

    /// Whole blocks with so many bytes from the first block of `location` on, as far as its segment goes.
    fn length(&self, location: u64, bytes: usize) -> usize {
        let most = end_of(location) - blocks_of(location).0;
        (bytes as u64).next_multiple_of(BLOCK_BYTES).min(most) as usize
    }

    fn count(&self, bytes: usize) {
        self.away.fetched_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Keeps a copy of an item if it is whole within `bytes`, which begin with its first block. Where its log was freed
    /// nobody finds the copy.
    fn examine(&self, wanted: Wanted, bytes: &[u8], guard: &Guard) -> Examined {
        let Wanted { location, sequence, salt } = wanted;
        let (_, skipped) = blocks_of(location);
        let header = Header::decode(&bytes[skipped..])
            .filter(|header| location + header.item_bytes() as u64 <= end_of(location));
        let Some(header) = header else {
            // One that begins shortly before the end of its block.
            let needed = skipped + MAX_HEADER_BYTES;
            return match needed > bytes.len() && self.length(location, needed) > bytes.len() {
                true => Examined::Longer(needed),
                false => Examined::Damaged,
            };
        };
        let end = skipped + header.item_bytes();
        if end > bytes.len() {
            return Examined::Longer(end);
        }
        let item = &bytes[skipped..end];
        match (item::verify(item, salt), self.away.copies.get(guard)) {
            // All logs have come back meanwhile.
            (Record::Item(..), None) => Examined::Kept,
            (Record::Item(..), Some(cache)) => {
                self.away.item_bytes.store(item.len(), Ordering::Relaxed);
                cache.add(location, sequence, item, guard);
                Examined::Kept
            }
            _ => Examined::Damaged,
        }
    }

    pub(super) fn damaged_on_disk(&self, offset: u64) -> Error {
        let what = "an item that was durable does not match its checksum; other keys can be read: export them, and \
                    import them into a new map"
            .into();
        Error::Damaged { path: self.medium.path().into(), offset, what }
    }
}

/// The error of the disk, with where it was met.
pub(super) fn at_offset(error: Error, offset: u64) -> Error {
    match error {
        Error::Io { path, source, .. } => Error::Unreadable { path, offset, source },
        other => other,
    }
}
