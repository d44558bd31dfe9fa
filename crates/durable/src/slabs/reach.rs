//! Recovery of slabs from a persistent index: an index walk (Wu, section 2.4).
//!
//! What an entry names is verified and its slot marked. Then every slot that nobody marked is free if
//! its checksum is cleared. An intact item there is offered to the index: it is a version whose entry
//! was never made, or one that was about to be cleared, or its entry was lost with a damaged line. The
//! newer of a key stays; a deleted one cannot be among them, since its checksum is cleared first.
//!
//! A deletion clears the item and then removes the entry: an entry whose item is cleared is removed
//! here. An entry that names no intact item, or another key's, or a slot that another names too, means
//! that the index does not fit, and all slots are read instead.

use super::Slabs;
use super::classes;
use super::free::{Free, start_of, superblock_of};
use super::header::{Found, HEADER_BYTES, Header};
use super::recover::{Scan, Scanned};
use super::summary::Summary;
use crate::error::{Error, Result};
use crate::item::{self, Item, Record};
use crate::values::Reach;
use crate::values::Recovered;
use crate::values::place::end_of;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use terrace_memory::{Memory, lab};

/// Superblocks by number, with their headers.
pub(super) type InUse = Vec<(u32, Header)>;

/// A superblock in use, and which of its slots an entry names.
struct Marked {
    number: u32,
    header: Header,
    slots: Vec<bool>,
}

impl Marked {
    fn none((number, header): (u32, Header)) -> Marked {
        Marked { number, header, slots: vec![false; classes::slots(header.class) as usize] }
    }

    /// The slot at `location`, if one begins there.
    fn slot_at(&self, location: u64) -> Option<usize> {
        let offset = location.checked_sub(start_of(self.number) + u64::from(HEADER_BYTES))?;
        let slot_bytes = u64::from(classes::slot_bytes(self.header.class));
        let slot = (offset / slot_bytes) as usize;
        (offset.is_multiple_of(slot_bytes) && slot < self.slots.len()).then_some(slot)
    }
}

impl<M: Memory> Slabs<M> {
    /// Recovers what the entries of a persistent index name, instead of [`Slabs::recover`].
    ///
    /// # Errors
    /// [`Error::Unfit`] if the index does not fit these slabs; then nothing was changed, and `recover`
    /// may follow. Those of the medium.
    pub fn recover_reached(&self, threads: usize, reach: Reach<'_>) -> Result<Recovered> {
        let start = Instant::now();
        let (count, whole_file) = self.superblocks_in_file()?;
        if let Some(damage) = whole_file.first() {
            return Err(Error::Unfit(damage.what.clone()));
        }
        let (in_use, free) = self.headers(count)?;
        let mut in_use: Vec<_> = in_use.into_iter().map(Marked::none).collect();
        let (mut found, cleared) = self.mark(&mut in_use, count, &reach)?;
        for location in cleared {
            self.tell_gone(location, &reach)?;
        }
        found.segments = in_use.len() as u64;
        found.end("verify what the index names", start.elapsed());
        let swept = self.sweep(&in_use, threads);
        let (swept, left): (Vec<_>, Vec<_>) = swept.into_iter().unzip();
        if !self.are_explained(&swept)? {
            return Err(Error::Unfit("slots hold neither an item nor nothing".into()));
        }
        found.end("find every free slot", start.elapsed());
        *self.superseded.lock() = Some(Vec::new());
        let in_use = swept;
        for location in left.into_iter().flatten() {
            let salt = in_use.iter().find(|s| s.number as usize == superblock_of(location));
            self.offer(location, salt.map_or(0, |scanned| scanned.header.salt), &reach);
        }
        let superseded = self.superseded.lock().take().expect("set above");
        let scan = Scan { found: Recovered::default(), in_use, free };
        self.settle(count, scan, &superseded)?;
        found.end("take in what was left, free what is older", start.elapsed());
        Ok(found)
    }

    fn offer(&self, location: u64, salt: u32, reach: &Reach<'_>) {
        let end = end_of(location);
        // SAFETY: as in `tell_gone`.
        let bytes = unsafe { self.medium.memory().bytes(location, end - location) };
        if let Record::Item(item, bytes) = item::verify(bytes, salt) {
            (reach.offered)(location, &item, bytes);
        }
    }

    /// The superblocks in use, by number, and those that are free.
    pub(super) fn headers(&self, count: u32) -> Result<(InUse, Vec<u32>)> {
        self.check_known()?;
        let generation = self.generation.load(Ordering::Acquire);
        let (mut in_use, mut free) = (Vec::new(), Vec::new());
        for number in 1..count {
            match self.header(number) {
                Found::Intact(header) if header.generation == generation => {
                    in_use.push((number, header));
                }
                Found::Intact(_) | Found::Free => free.push(number),
                Found::Damaged | Found::NewerFormat(_) | Found::NewerFlags(_) => {
                    return Err(Error::Unfit(format!("superblock {number} has no intact header")));
                }
            }
        }
        Ok((in_use, free))
    }

    /// Of a deleted item everything but the checksum is still there: its slot is used again only once
    /// the entry is gone.
    fn tell_gone(&self, location: u64, reach: &Reach<'_>) -> Result<()> {
        let end = end_of(location);
        // SAFETY: in a superblock of the file; until recovery is over nobody writes to it.
        let bytes = unsafe { self.medium.memory().bytes(location, end - location) };
        let unfit = || Error::Unfit(format!("an entry's slot, at {location}, holds no item"));
        let item = Item::read(bytes).ok_or_else(unfit)?;
        // Of a slot that was zeroed nothing tells the key: another entry names it.
        if (reach.gone)(location, &item, 0) { Ok(()) } else { Err(unfit()) }
    }

    /// Marks the slots that entries name; also returns those whose items were deleted.
    fn mark(
        &self,
        in_use: &mut [Marked],
        count: u32,
        reach: &Reach<'_>,
    ) -> Result<(Recovered, Vec<u64>)> {
        let mut places = vec![None; count as usize];
        in_use.iter().enumerate().for_each(|(i, m)| places[m.number as usize] = Some(i));
        let mut found = Recovered::default();
        let (mut unfit, mut cleared) = (None, Vec::new());
        (reach.entries)(&mut |location| {
            let place = places.get(superblock_of(location)).copied().flatten();
            let Some((marked, slot)) = place.and_then(|i| {
                let slot = in_use[i].slot_at(location)?;
                Some((&mut in_use[i], slot))
            }) else {
                unfit = Some((location, "is no slot's"));
                return;
            };
            let bytes = u64::from(classes::slot_bytes(marked.header.class));
            // SAFETY: a slot of a superblock in the file; until recovery is over nobody writes to it.
            let bytes = unsafe { self.medium.memory().bytes(location, bytes) };
            match item::verify(bytes, marked.header.salt) {
                Record::Item(item, bytes) if !marked.slots[slot] => {
                    marked.slots[slot] = true;
                    found.items += 1;
                    found.bytes += bytes as u64;
                    if !(reach.reached)(location, &item, bytes) {
                        unfit = Some((location, "holds another key"));
                    }
                }
                Record::Item(..) => unfit = Some((location, "is another's too")),
                _ if bytes[..4] == [0; 4] => cleared.push(location),
                _ => unfit = Some((location, "holds no intact item")),
            }
        });
        match unfit {
            Some((at, what)) => Err(Error::Unfit(format!("an entry's slot, at {at}, {what}"))),
            None => Ok((found, cleared)),
        }
    }

    /// Finds the slots that are free, and those that hold an item all the same.
    fn sweep(&self, in_use: &[Marked], threads: usize) -> Vec<(Scanned, Vec<u64>)> {
        let next = AtomicUsize::new(0);
        let swept = Mutex::new(Vec::new());
        let worker = || {
            while let Some(marked) = in_use.get(next.fetch_add(1, Ordering::Relaxed)) {
                let scanned = self.sweep_one(marked);
                swept.lock().expect("no sweeper panicked").push(scanned);
            }
        };
        std::thread::scope(|scope| {
            (1..threads.max(1)).for_each(|_| drop(scope.spawn(worker)));
            worker();
        });
        swept.into_inner().expect("no sweeper panicked")
    }

    fn sweep_one(&self, marked: &Marked) -> (Scanned, Vec<u64>) {
        let (number, header) = (marked.number, marked.header);
        let mut free = Free::none(header.class);
        let (mut torn, mut left) = (Vec::new(), Vec::new());
        let memory = self.medium.memory();
        let slot_bytes = u64::from(classes::slot_bytes(header.class));
        let mut next = 0;
        while next < free.slots {
            let slot = next;
            next += 1;
            if marked.slots[slot as usize] {
                continue;
            }
            let location = free.location(number, slot);
            // SAFETY: a slot, in the file; nobody else is at it before recovery is over.
            let bytes = unsafe {
                if memory.load(location) as u32 == 0 {
                    // So are those behind it, as far as nothing was ever written there.
                    let zeros =
                        lab::zeros(memory, location, slot_bytes * u64::from(free.slots - slot));
                    next = slot + ((zeros / slot_bytes) as u32).max(1);
                    free.put_run(slot..next);
                    continue;
                }
                memory.bytes(location, slot_bytes)
            };
            match item::verify(bytes, header.salt) {
                Record::Item(..) => left.push(location),
                _ => torn.push(slot),
            }
        }
        (Scanned { number, header, free, torn, summary: Summary::default() }, left)
    }
}
