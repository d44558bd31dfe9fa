//! Recovery of slabs: a parallel scan of every superblock and slot (Wu, section 2.4).
//!
//! Every slot whose checksum matches holds an item that counts, and the caller is told. Of two
//! versions of a key the caller retires the older, which is cleared in storage once the scan is
//! over, as are torn slots. Then every slot is either an item's or free: none leaks, none has two
//! owners. Clearing twice does no harm, so a crash during recovery changes nothing.
//!
//! A slot that is neither free nor intact is *torn* if the file was in use at the crash and a crash
//! explains it (`torn.rs`): a writer was about to fill it, and nobody was told. After an orderly end there can be
//! none, and each superblock holds what its summary says; anything else is damage, and said so.

use super::classes;
use super::free::{Free, start_of, superblock_of};
use super::header::{Found, HEADER_BYTES, Header};
use super::summary::Summary;
use super::{SEGMENT_BYTES, Slabs, Superblock};
use crate::error::{Error, Result};
use crate::item::{self, Item, Record};
use crate::superblock::{HEAD_BYTES, get_u64};
use crate::values::{Damage, Recovered, TornTail};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use terrace_memory::{Memory, lab};

/// A superblock in use.
pub(super) struct Scanned {
    pub number: u32,
    pub header: Header,
    pub free: Free,
    /// Slots that hold no item and are not cleared: number of the slot.
    pub torn: Vec<u32>,
    /// What it holds, the torn ones among it.
    pub summary: Summary,
}

#[derive(Default)]
pub(super) struct Scan {
    pub found: Recovered,
    pub in_use: Vec<Scanned>,
    /// Superblocks that are free.
    pub free: Vec<u32>,
}

impl<M: Memory> Slabs<M> {
    /// Reads everything back with `threads` threads; `visit` is told location, item and bytes of
    /// every item, in no particular order, from several threads at once, and retires the older of
    /// two versions. Of a medium that is not opened to be written, the slabs stay read-only and the file
    /// untouched; under [`Access::Salvage`](crate::Access) damage is reported in the result, and the
    /// rest recovered.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first damage, unless it is passed; those of the medium.
    pub fn recover(
        &self,
        threads: usize,
        visit: &(dyn Fn(u64, &Item<'_>, usize) + Sync),
    ) -> Result<Recovered> {
        let start = Instant::now();
        let (count, mut whole_file) = self.superblocks_in_file()?;
        self.check_known()?;
        if let Some(what) = &self.head_damage {
            whole_file.push(Damage { offset: 0, bytes: HEAD_BYTES, what: what.clone() });
            self.generation.store(self.newest_generation(count), Ordering::Release);
        }
        *self.superseded.lock() = Some(Vec::new());
        let scan = Mutex::new(Scan::default());
        let next = AtomicU32::new(1);
        let worker = || {
            while let Some(number) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < count)
            {
                self.scan(number, visit, &scan);
                crate::progress::scanned(SEGMENT_BYTES.into());
            }
        };
        std::thread::scope(|scope| {
            (1..threads.max(1)).for_each(|_| drop(scope.spawn(worker)));
            worker();
        });
        let superseded = self.superseded.lock().take().unwrap_or_default();
        let mut scan = scan.into_inner().expect("no scanner panicked");
        scan.found.damage.append(&mut whole_file);
        self.judge_torn(count, &mut scan)?;
        if let (Some(first), false) =
            (scan.found.damage.first(), self.medium.access().passes_damage())
        {
            let more = scan.found.damage.len() - 1;
            let what = format!(
                "{} ({} bytes lost, {more} more damaged places, {} items intact); open with salvage to read the rest",
                first.what, first.bytes, scan.found.items
            );
            return Err(Error::Damaged {
                path: self.medium.path().into(),
                offset: first.offset,
                what,
            });
        }
        let mut found = std::mem::take(&mut scan.found);
        found.end("read and verify the slots", start.elapsed());
        if self.medium.access().writes() && self.index_mark() != 0 {
            // What follows changes the values alone.
            self.set_index_mark(0)?;
        }
        self.settle(count, scan, &superseded)?;
        found.end("free what was superseded or torn", start.elapsed());
        Ok(found)
    }

    /// Superblocks to scan, segment 0 counted in; the file is made to hold the last one whole,
    /// since what it lacks of a mapping cannot be touched.
    pub(super) fn superblocks_in_file(&self) -> Result<(u32, Vec<Damage>)> {
        let segment = u64::from(SEGMENT_BYTES);
        let file_bytes = self.medium.file_bytes()?;
        let promised = u64::from(self.checkpoint.lock().segments) * segment;
        let mut damage = Vec::new();
        if promised > segment && file_bytes < promised {
            let what = format!("the file ends at {file_bytes}, it held {promised} bytes");
            damage.push(Damage { offset: file_bytes, bytes: promised - file_bytes, what });
        }
        let mut present = (file_bytes / segment).max(1);
        if damage.is_empty()
            && self.medium.access().writes()
            && file_bytes > segment
            && !file_bytes.is_multiple_of(segment)
        {
            // The crash came while the file grew.
            self.medium.grow(present * segment, segment)?;
            present += 1;
        }
        self.check_room(present)?;
        Ok((present as u32, damage))
    }

    /// The newest generation of any superblock: the map's, where the head does not tell it.
    fn newest_generation(&self, count: u32) -> u64 {
        let generations = (1..count).filter_map(|number| match self.header(number) {
            Found::Intact(header) => Some(header.generation),
            _ => None,
        });
        generations.max().unwrap_or(0)
    }

    /// Refuses a file with more superblocks than room was made for.
    fn check_room(&self, segments: u64) -> Result<u64> {
        let most = self.shared.superblocks.len();
        if segments <= most as u64 {
            return Ok(segments);
        }
        let what = format!("the file holds {segments} segments, room was made for {most}");
        Err(Error::Damaged { path: self.medium.path().into(), offset: 0, what })
    }

    /// Refuses a file with superblocks that a later version made.
    ///
    /// # Errors
    /// [`Error::Newer`]; [`Error::Damaged`] if the file is longer than there is room for.
    pub fn check_known(&self) -> Result<()> {
        let count = self.check_room(self.medium.file_bytes()? / u64::from(SEGMENT_BYTES))?;
        for number in 1..count as u32 {
            let (what, found, known) = match self.header(number) {
                Found::NewerFormat(found) => ("superblock of format", found.into(), 1),
                Found::NewerFlags(found) => ("superblock with flags", found.into(), 0),
                Found::Free | Found::Intact(_) | Found::Damaged => continue,
            };
            return Err(Error::Newer { path: self.medium.path().into(), what, found, known });
        }
        Ok(())
    }

    pub(super) fn header(&self, number: u32) -> Found {
        // SAFETY: the file holds the whole segment, and until recovery is over nobody writes to it.
        Header::decode(unsafe { self.medium.memory().bytes(start_of(number), HEADER_BYTES.into()) })
    }

    fn scan(
        &self,
        number: u32,
        visit: &(dyn Fn(u64, &Item<'_>, usize) + Sync),
        scan: &Mutex<Scan>,
    ) {
        let start = start_of(number);
        let header = match self.header(number) {
            Found::Intact(header)
                if header.generation == self.generation.load(Ordering::Acquire) =>
            {
                header
            }
            Found::Intact(_) | Found::Free => {
                scan.lock().expect("no scanner panicked").free.push(number);
                return;
            }
            // What is newer was refused before.
            Found::Damaged | Found::NewerFormat(_) | Found::NewerFlags(_) => {
                let what = "a superblock's header does not match its checksum".into();
                let damage = Damage { offset: start, bytes: u64::from(SEGMENT_BYTES), what };
                scan.lock().expect("no scanner panicked").found.damage.push(damage);
                return;
            }
        };
        let mut free = Free::none(header.class);
        let mut torn = Vec::new();
        let mut items = 0;
        let mut summary = Summary::default();
        let memory = self.medium.memory();
        let slot_bytes = u64::from(classes::slot_bytes(header.class));
        let mut next = 0;
        while next < free.slots {
            let slot = next;
            next += 1;
            let location = free.location(number, slot);
            // SAFETY: the file holds the whole segment, and until recovery is over nobody writes to
            // it. Of a free slot no more is read than that it is free.
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
            summary.add(location, get_u64(bytes, 0));
            match item::verify(bytes, header.salt) {
                Record::Item(item, length) if !item.tombstone && !item.in_batch => {
                    visit(location, &item, length);
                    items += 1;
                }
                _ => torn.push(slot),
            }
        }
        let mut scan = scan.lock().expect("no scanner panicked");
        scan.found.segments += u64::from(items > 0);
        scan.found.items += items;
        scan.found.bytes += u64::from(SEGMENT_BYTES);
        scan.in_use.push(Scanned { number, header, free, torn, summary });
    }

    /// Reports slots that are neither free nor intact: as torn, or as damage if no crash explains
    /// them.
    fn judge_torn(&self, count: u32, scan: &mut Scan) -> Result<()> {
        let explained = self.are_explained(&scan.in_use)?;
        for scanned in &mut scan.in_use {
            for slot in &scanned.torn {
                let offset = scanned.free.location(scanned.number, *slot);
                if explained {
                    scan.found.torn.push(TornTail { offset, dropped_bytes: 0 });
                } else {
                    let bytes = u64::from(classes::slot_bytes(scanned.header.class));
                    let what = "an item does not match its checksum".into();
                    scan.found.damage.push(Damage { offset, bytes, what });
                }
            }
            if !explained {
                scanned.torn.clear();
            }
        }
        if self.may_be_torn()?.is_none() {
            self.check_summaries(count, scan);
        }
        scan.found.damage.sort_by_key(|d| d.offset);
        scan.found.torn.sort_by_key(|t| t.offset);
        Ok(())
    }

    /// Whether a crash explains every slot that holds neither an item nor nothing.
    pub(super) fn are_explained(&self, in_use: &[Scanned]) -> Result<bool> {
        let torn: usize = in_use.iter().map(|scanned| scanned.torn.len()).sum();
        Ok(torn <= self.may_be_torn()?.unwrap_or(0))
    }

    /// After an orderly end: each superblock holds what it held, if that was written down.
    fn check_summaries(&self, count: u32, scan: &mut Scan) {
        let Some(held) = self.summaries(count) else { return };
        let mut holds = vec![Summary::default(); held.len()];
        scan.in_use.iter().for_each(|scanned| holds[scanned.number as usize] = scanned.summary);
        for (number, (held, holds)) in held.iter().zip(&holds).enumerate() {
            let offset = start_of(number as u32);
            let within = offset..offset + u64::from(SEGMENT_BYTES);
            let is_known = scan.found.damage.iter().any(|damage| within.contains(&damage.offset));
            if held != holds && !is_known {
                let what = format!(
                    "the superblock held {} items when it was closed, and {} are there, or others",
                    held.items, holds.items
                );
                let bytes = u64::from(SEGMENT_BYTES);
                scan.found.damage.push(Damage { offset, bytes, what });
            }
        }
        scan.found.damage.sort_by_key(|d| d.offset);
    }

    pub(super) fn settle(&self, count: u32, scan: Scan, superseded: &[u64]) -> Result<()> {
        // One without a header may be a hole, where what it held was given back to the system.
        let is_hole = |number: &u32| matches!(self.header(*number), Found::Free);
        let (released, free): (Vec<_>, Vec<_>) = scan.free.into_iter().partition(is_hole);
        let in_memory = u64::from(count - 1) - released.len() as u64;
        let rows = u64::from(count - 1) * size_of::<Superblock>() as u64;
        let bytes = rows + in_memory * u64::from(SEGMENT_BYTES);
        self.budget.take_anyway(bytes);
        self.taken.store(bytes, Ordering::Relaxed);
        {
            let mut pool = self.shared.pool.lock();
            pool.free = free;
            pool.released = released;
            pool.fresh = count;
            let superblocks = &self.shared.superblocks;
            let away = |number: &u32| {
                self.shared.residents.remove(*number, &superblocks[*number as usize].place);
            };
            pool.released.iter().for_each(away);
            self.shared.residents.recount(|first| self.shared.places(&pool, first));
        }
        let mut newest = 0;
        for Scanned { number, header, mut free, torn, .. } in scan.in_use {
            newest = newest.max(header.sequence);
            if self.medium.access().writes() {
                for slot in torn {
                    self.clear_checksum(free.location(number, slot));
                    free.put(slot);
                }
            }
            let superblock = &self.shared.superblocks[number as usize];
            superblock.salt.store(header.salt, Ordering::Relaxed);
            superblock.age.store(header.sequence, Ordering::Relaxed);
            self.account(self.shared.begin(number, free, || ()));
        }
        self.next_sequence.fetch_max(newest + 1, Ordering::AcqRel);
        if let Some(reason) = self.medium.access().refusal() {
            if !self.expects_more.load(Ordering::Relaxed) {
                self.stop(reason.into());
            }
            return Ok(());
        }
        for location in superseded {
            self.clear_checksum(*location);
            let life =
                self.shared.superblocks[superblock_of(*location)].life.load(Ordering::Acquire);
            self.shared.give_back(*location, life, || ());
        }
        let mut checkpoint = self.checkpoint.lock();
        let mut next = checkpoint.clone();
        next.number += 1;
        next.segments = count;
        next.next_sequence = self.next_sequence.load(Ordering::Acquire);
        next.store(&self.medium)?;
        *checkpoint = next;
        // Before the first write, so that a torn slot is never taken for damage.
        self.set_in_use(Some(self.may_tear()));
        self.marked.store(true, Ordering::Relaxed);
        Ok(())
    }
}
