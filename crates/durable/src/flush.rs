//! Whether an item's lines are written back as soon as it is written (Wu, section 2.5, figure 2.7).
//!
//! Where stores survive only once they are written back (ADR) there is no choice. Where the caches
//! survive too (eADR) an item is durable without it, and the question is one of speed: written back at
//! once, its lines leave the caches when the writer has the time, and together; kept, they leave one by
//! one when other lines need their place, and whoever caused that waits, even if it only read DRAM.
//!
//! # What a kept line costs, and when it pays
//! The medium works in lines of its own, of 256 bytes. An item that is written back touches `m` of
//! these, and costs their writes. One that is kept, and whose `l` lines of the processor leave alone,
//! costs `l` writes; none if its place is written again before. So what will soon be superseded is better
//! kept, and all else is better written back, item by item.
//!
//! [`Flush::Auto`] foretells it in slabs: a map remembers the places written last, and an item that supersedes
//! one of them will be superseded as soon. In logs a place is written again only when its log was collected,
//! whatever becomes of its item: there every line leaves, and `Auto` writes back at once.
//!
//! That holds for a medium of such lines. Where the memory was measured ([`Keeping`]), items of sizes that reach it no
//! faster when they are written back at once are all kept.
//!
//! Or a value never enters the caches ([`Flush::Skip`]): what is neither read nor written again soon only
//! displaces there what is (Wu, section 3.7), and its lines need not be fetched to be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_memory::prestore::{Op, Site};
use terrace_memory::profile::Keeping;
use terrace_memory::{Domain, Memory};

/// When the lines of an item are written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// As they must under ADR; under eADR at once, but for items in slabs that are expected to end before their lines
    /// would leave the caches, and for sizes that a profile says reach the memory no faster so.
    #[default]
    Auto,
    /// At once.
    Eager,
    /// When the caches evict them. Needs eADR.
    Keep,
    /// Values of 256 bytes and more are written past the caches, all else is written back at once. On
    /// media that are not byte-addressable, as [`Flush::Auto`].
    Skip,
}

/// Bytes of the items whose places are remembered, about: less than a processor's caches hold.
const REMEMBERED_BYTES: u64 = 4 << 20;
/// Places remembered at most, of small items: a power of two.
const MOST_PLACES: u64 = 1 << 15;

/// Values of at least so many bytes are written past the caches.
const SKIPPED_BYTES: usize = 256;

/// The places that all writers wrote last: part of the hash of each, at a number that another part says. 0: none.
#[derive(Debug)]
pub(crate) struct Recent(Box<[AtomicU32]>);

impl Recent {
    fn new() -> Recent {
        Recent((0..MOST_PLACES).map(|_| 0.into()).collect())
    }

    /// Items of one size have as many slots as there are of them in what is remembered.
    fn slot(&self, at: u64, bytes: u64) -> (&AtomicU32, u32) {
        // Twice: places are multiples of a slot's bytes, and one multiplication spreads them unevenly.
        let hash = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let places = (REMEMBERED_BYTES / bytes.max(1)).clamp(2, MOST_PLACES).next_power_of_two();
        let slot = hash >> (64 - places.trailing_zeros());
        (&self.0[slot as usize], (hash >> 8) as u32 | 1)
    }

    fn note(&self, at: u64, bytes: u64) {
        let (slot, tag) = self.slot(at, bytes);
        slot.store(tag, Ordering::Relaxed);
    }

    /// Whether an item of `bytes` at `at` was among them. A wrong answer costs time alone.
    fn has(&self, at: u64, bytes: u64) -> bool {
        let (slot, tag) = self.slot(at, bytes);
        slot.load(Ordering::Relaxed) == tag
    }
}

/// Bytes of an item's checksum.
const CHECKSUM_BYTES: u64 = 4;

/// Under eADR nothing rests on a write-back: it is a pre-store.
static ITEM: Site = Site::new("item of a log or slab, before it is published");
/// Values that are written past the caches.
static SKIPPED: Site = Site::new("value of a log or slab, past the caches");

/// A writer's policy.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    flush: Flush,
    /// Nothing where it decides nothing.
    recent: Option<Arc<Recent>>,
    /// Whether the next item supersedes one that was written a short while before.
    ends_soon: bool,
    /// What was measured of the memory, if it was.
    keeping: Option<Arc<Keeping>>,
    /// The gain of writing items back of the size that was asked last: they are mostly of one.
    last: (u64, f64),
}

impl Flusher {
    /// Of so many writers whose places are written again soon after their items ended.
    pub fn of_slabs(flush: Flush, domain: Domain, writers: usize) -> impl Iterator<Item = Flusher> {
        let foretells = flush == Flush::Auto && domain == Domain::Eadr;
        let recent = foretells.then(|| Arc::new(Recent::new()));
        (0..writers).map(move |_| Flusher { flush, recent: recent.clone(), ..Flusher::default() })
    }

    /// Of a writer whose places are not.
    pub fn of_log(flush: Flush) -> Flusher {
        Flusher { flush, ..Flusher::default() }
    }

    /// Decides according to what was measured of the memory.
    pub fn by(&mut self, keeping: Option<Arc<Keeping>>) {
        self.keeping = keeping;
    }

    /// Writes the parts of an item to `location` on, the value last, and makes it durable on a
    /// byte-addressable memory. Returns where it ends.
    ///
    /// # Safety
    /// As for [`Memory::write`].
    #[inline(always)]
    pub unsafe fn write<M: Memory>(&mut self, memory: &M, location: u64, parts: &[&[u8]]) -> u64 {
        let (value, head) = parts.split_last().expect("an item has parts");
        let mut at = location;
        for part in head {
            // SAFETY: by contract.
            unsafe { memory.write(at, part) };
            at += part.len() as u64;
        }
        let end = at + value.len() as u64;
        let may_skip = self.flush == Flush::Skip && value.len() >= SKIPPED_BYTES;
        // SAFETY: by contract. Where pre-stores are switched off it is written as all else, and persisted so.
        let skipped = may_skip && unsafe { SKIPPED.write_in(memory, at, value) };
        if !may_skip {
            // SAFETY: by contract.
            unsafe { memory.write(at, value) };
        }
        let plain = if skipped { at } else { end };
        // SAFETY: by contract. What was streamed, a fence makes durable.
        unsafe { self.persist(memory, location, plain - location) };
        end
    }

    /// As [`Flusher::write`] into a slot, whose checksum stays clear until all else is stored: where stores survive in
    /// their order, and within a line anywhere, a crash leaves the slot free or the item whole.
    ///
    /// # Safety
    /// As for [`Memory::write`]; the slot is aligned to 8 bytes and has 8 at least.
    #[inline(always)]
    pub unsafe fn write_slot<M: Memory>(
        &mut self,
        memory: &M,
        location: u64,
        [header, key, value]: [&[u8]; 3],
    ) {
        let (mut first, mut at) = ([0; 8], 0);
        for byte in header.iter().chain(key).chain(value).take(first.len()) {
            first[at] = *byte;
            at += 1;
        }
        let end = location + (header.len() + key.len() + value.len()) as u64;
        let value_at = end - value.len() as u64;
        let may_skip = self.flush == Flush::Skip && value.len() >= SKIPPED_BYTES;
        // SAFETY: by contract. A value that skips the caches is longer than a line, and is fenced with the rest.
        unsafe {
            memory.write(location + CHECKSUM_BYTES, &header[CHECKSUM_BYTES as usize..]);
            memory.write(location + header.len() as u64, key);
            let skipped = may_skip && SKIPPED.write_in(memory, value_at, value);
            if !may_skip {
                memory.write(value_at, value);
            }
            memory.store(location, u64::from_le_bytes(first));
            let plain = if skipped { value_at } else { end };
            self.persist(memory, location, (plain - location).max(8));
        }
    }

    /// Whether what is stored last survives last.
    pub fn is_ordered(&self, domain: Domain) -> bool {
        domain == Domain::Eadr && self.flush != Flush::Skip
    }

    /// Makes an item of `bytes` at `at` durable on a byte-addressable memory.
    ///
    /// # Safety
    /// As for [`Memory::persist`].
    #[inline(always)]
    unsafe fn persist<M: Memory>(&mut self, memory: &M, at: u64, bytes: u64) {
        if memory.domain() == Domain::Eadr && self.writes_back(bytes) {
            // SAFETY: by contract.
            unsafe { ITEM.hint_in(Op::Clean, memory, at, bytes) };
        }
        // SAFETY: by contract.
        unsafe { memory.persist(at, bytes) };
        if let Some(recent) = &self.recent {
            recent.note(at, bytes);
        }
    }

    fn writes_back(&mut self, bytes: u64) -> bool {
        match self.flush {
            Flush::Eager | Flush::Skip => true,
            Flush::Keep => false,
            Flush::Auto => !std::mem::take(&mut self.ends_soon) && self.is_faster_at_once(bytes),
        }
    }

    /// Whether lines that nobody writes again reach the memory faster when they are written back at once: always, as
    /// far as it is assumed to write larger lines than the caches'.
    fn is_faster_at_once(&mut self, bytes: u64) -> bool {
        let Some(keeping) = &self.keeping else { return true };
        if self.last.0 != bytes {
            self.last = (bytes, keeping.gain(bytes));
        }
        self.last.1 >= 1.0
    }

    /// The item written next supersedes the one of `bytes` at `at`.
    #[inline(always)]
    pub fn supersedes(&mut self, at: u64, bytes: u64) {
        if let Some(recent) = &self.recent {
            self.ends_soon = recent.has(at, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_machine::{Crashable, Explorer, Noted};
    use terrace_memory::prestore;

    const ITEM_AT: u64 = 64;
    const HEAD: [u8; 24] = [1; 24];
    const VALUE: [u8; 300] = [2; 300];

    /// An item is written, and then published by a word; it must be whole wherever the word is.
    fn published(
        flush: Flush,
        domain: Domain,
        write: fn(&mut Flusher, &Crashable),
    ) -> Explorer<()> {
        Explorer::new(domain, 4096)
            .thread(move |memory, _| {
                write(&mut Flusher::of_log(flush), memory);
                memory.store(0, 1);
                memory.persist(0, 8);
            })
            .check(|memory, _: &[Noted<()>]| {
                let mut item = [0; HEAD.len() + VALUE.len()];
                memory.read(ITEM_AT, &mut item);
                let is_whole = item == *[&HEAD[..], &VALUE[..]].concat();
                match memory.load(0) == 0 || is_whole {
                    true => Ok(()),
                    false => Err("published and not whole".into()),
                }
            })
    }

    fn write(flusher: &mut Flusher, memory: &Crashable) {
        // SAFETY: inside the memory; nobody else is there.
        let end = unsafe { flusher.write(memory, ITEM_AT, &[&HEAD, &VALUE]) };
        assert_eq!(end, ITEM_AT + (HEAD.len() + VALUE.len()) as u64);
    }

    fn stream_and_go_on(_: &mut Flusher, memory: &Crashable) {
        // SAFETY: as above.
        unsafe { Memory::stream(memory, ITEM_AT, &[&HEAD[..], &VALUE[..]].concat()) };
    }

    #[test]
    fn an_item_is_durable_before_it_is_published_however_it_is_flushed() {
        for flush in [Flush::Eager, Flush::Skip, Flush::Auto] {
            published(flush, Domain::Adr, write).sampled(2_000, 1).assert_sound();
            published(flush, Domain::Eadr, write).sampled(2_000, 1).assert_sound();
        }
        published(Flush::Keep, Domain::Eadr, write).sampled(2_000, 1).assert_sound();
        // Switched off, pre-stores take nothing with them: a value is written and persisted like all else.
        struct On;
        impl Drop for On {
            fn drop(&mut self) {
                prestore::set_enabled(true);
            }
        }
        let on_again = On;
        prestore::set_enabled(false);
        for domain in [Domain::Adr, Domain::Eadr] {
            published(Flush::Skip, domain, write).sampled(2_000, 1).assert_sound();
        }
        drop(on_again);
        // The alarm: streamed, and published before a fence.
        published(Flush::Skip, Domain::Adr, stream_and_go_on).sampled(2_000, 1).expect_failure();
    }
}
