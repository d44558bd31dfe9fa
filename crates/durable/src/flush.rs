//! Whether an item's lines are written back as soon as it is written (paper 000, A5, figure 2.7).
//!
//! Where stores survive only once they are written back (ADR) there is no choice. Where the caches
//! survive too (eADR) an item is durable without it, and the question is one of speed: written back at
//! once, its lines leave the caches when the writer has the time, and together; kept, they leave one by
//! one when other lines need their place, and whoever caused that waits, even if it only read DRAM.
//!
//! # What a kept line costs, and when it pays
//! The medium works in lines of its own, of 256 bytes. An item that is written back touches `m` of
//! these, and costs their writes. One that is kept, and whose `l` lines of the processor leave alone,
//! costs `l` writes; none if its place is written again before. With the part `p` of items whose
//! place ends soon after it was written, keeping pays if `(1 - p) l < m`.
//!
//! [`Flush::Auto`] measures `p` in slabs: the writers remember some of the places written last, and each
//! counts how many of the items it ends are among them. In logs a place is written again only when its
//! log was collected, whatever becomes of its item: there every line leaves, and `Auto` writes back at once.
//!
//! That holds for a medium of such lines. Where the memory was measured ([`Keeping`]), `g` takes the place of
//! `l / m`: how much faster items of that size reach it when they are written back at once.
//!
//! Or a value never enters the caches ([`Flush::Skip`]): what is neither read nor written again soon only
//! displaces there what is (paper 000, B8), and its lines need not be fetched to be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::prestore::{Op, Site};
use terrace_memory::profile::Keeping;
use terrace_memory::{Domain, Memory};

/// When the lines of an item are written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// As they must under ADR; under eADR at once, but for items in slabs that are expected to end before
    /// their lines would leave the caches.
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

/// A line of the medium: of Optane, and the smallest of CXL flash (paper 000, table 3.1).
const MEDIUM_LINE_BYTES: u64 = 256;
const LINE_BYTES: u64 = 64;
/// One place in so many is looked at, always the same ones.
const SAMPLED: u64 = 8;
/// Places remembered: those of the last few thousand items, a megabyte if they are of 256 bytes.
const PLACES: usize = 512;
/// Items looked at, of those ended, between two judgements.
const WINDOW: u64 = 128;

/// Values of at least so many bytes are written past the caches.
const SKIPPED_BYTES: usize = 256;

/// The places that all writers wrote last, by their hash; 0: none.
#[derive(Debug)]
pub(crate) struct Recent(Box<[AtomicU64]>);

/// Under eADR nothing rests on a write-back: it is a pre-store.
static ITEM: Site = Site::new("item of a log or slab, before it is published");
/// Values that are written past the caches.
static SKIPPED: Site = Site::new("value of a log or slab, past the caches");

/// A writer's policy.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    flush: Flush,
    /// Nothing where there is nothing to measure.
    recent: Option<Arc<Recent>>,
    ended: u64,
    ended_soon: u64,
    /// Of a window of items ended, how many were written a short while before.
    soon: u64,
    /// What was measured of the memory, if it was.
    keeping: Option<Arc<Keeping>>,
    /// The gain of writing items back of the size that was asked last: they are mostly of one.
    last: (u64, f64),
}

impl Flusher {
    /// Of so many writers whose places are written again soon after their items ended.
    pub fn of_slabs(flush: Flush, domain: Domain, writers: usize) -> impl Iterator<Item = Flusher> {
        let measures = flush == Flush::Auto && domain == Domain::Eadr;
        let recent = measures.then(|| Arc::new(Recent((0..PLACES).map(|_| 0.into()).collect())));
        (0..writers).map(move |_| Flusher { flush, recent: recent.clone(), ..Flusher::default() })
    }

    /// Of a writer whose places are not.
    pub fn of_log(flush: Flush) -> Flusher {
        Flusher { flush, ..Flusher::default() }
    }

    /// Goes by what was measured of the memory.
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
        if let Some((recent, place)) = self.sampled(at) {
            recent.0[place].store(at, Ordering::Relaxed);
        }
    }

    fn writes_back(&mut self, bytes: u64) -> bool {
        match self.flush {
            Flush::Eager | Flush::Skip => true,
            Flush::Keep => false,
            Flush::Auto => self.is_faster_at_once(bytes),
        }
    }

    fn is_faster_at_once(&mut self, bytes: u64) -> bool {
        let leave = WINDOW - self.soon;
        if let Some(keeping) = &self.keeping {
            if self.last.0 != bytes {
                self.last = (bytes, keeping.gain(bytes));
            }
            return leave as f64 * self.last.1 >= WINDOW as f64;
        }
        // An item may begin anywhere: the lines that it touches on the average, of the medium's size
        // each, so that there are no fractions.
        let more = bytes.saturating_sub(1);
        let medium_lines = MEDIUM_LINE_BYTES + more;
        let lines = MEDIUM_LINE_BYTES + more * (MEDIUM_LINE_BYTES / LINE_BYTES);
        leave * lines >= WINDOW * medium_lines
    }

    /// The item at `at` has ended.
    #[inline(always)]
    pub fn ended(&mut self, at: u64) {
        let Some((recent, place)) = self.sampled(at) else { return };
        let is_recent = recent.0[place].load(Ordering::Relaxed) == at;
        self.ended += 1;
        self.ended_soon += u64::from(is_recent);
        if self.ended == WINDOW {
            self.soon = self.ended_soon;
            (self.ended, self.ended_soon) = (0, 0);
        }
    }

    /// Where a place is remembered, if it is one of those looked at.
    #[inline(always)]
    fn sampled(&self, at: u64) -> Option<(&Recent, usize)> {
        let recent = self.recent.as_ref()?;
        let hash = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32).is_multiple_of(SAMPLED).then(|| (&**recent, hash as usize >> 55))
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
