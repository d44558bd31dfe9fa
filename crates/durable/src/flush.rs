//! Whether an item's lines are written back as soon as it is written (paper 000, A5, figure 2.7).
//!
//! Where stores survive only once they are written back (ADR) there is no choice. Where the caches
//! survive too (eADR) an item is durable without it, and the question is one of speed: written back at
//! once, its lines leave the caches when the writer has the time; kept, they leave when other lines
//! need their place, and whoever caused that waits, even if it only read DRAM. Keeping pays for small
//! items that are soon written again.
//!
//! [`Flush::Auto`] measures that: each writer remembers the places it wrote last, and counts how many of
//! the items it ends are among them.
//!
//! Or a value never enters the caches ([`Flush::Skip`]): what is neither read nor written again soon only
//! displaces there what is (paper 000, B8), and its lines need not be fetched to be written.

use terrace_memory::prestore::{Op, Site};
use terrace_memory::{Domain, Memory};

/// When the lines of an item are written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// As they must under ADR; under eADR at once, but for small items of writers that overwrite what
    /// they wrote a short while ago.
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

/// Items of at most so many bytes may be kept. In the paper keeping never pays from 1 KB on.
const SMALL_BYTES: u64 = 256;
/// Values of at least so many bytes are written past the caches.
const SKIPPED_BYTES: usize = 256;
/// Places a writer remembers: with items of that size, a quarter of a megabyte.
const PLACES: usize = 1024;
/// Items ended between two judgements.
const WINDOW: u32 = 1024;

/// Under eADR nothing rests on a write-back: it is a pre-store.
static ITEM: Site = Site::new("item of a log or slab, before it is published");

/// A writer's policy.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    flush: Flush,
    /// Places written last, by their hash; empty where there is nothing to measure.
    recent: Box<[u64]>,
    ended: u32,
    ended_recent: u32,
    /// Whether a quarter and more of the items ended were written a short while ago.
    is_skewed: bool,
}

impl Flusher {
    pub fn new(flush: Flush, domain: Domain) -> Flusher {
        let measures = flush == Flush::Auto && domain == Domain::Eadr;
        let recent = vec![0; if measures { PLACES } else { 0 }].into();
        Flusher { flush, recent, ..Flusher::default() }
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
        let skips = self.flush == Flush::Skip && value.len() >= SKIPPED_BYTES;
        // SAFETY: by contract.
        unsafe { if skips { memory.stream(at, value) } else { memory.write(at, value) } };
        let plain = if skips { at } else { end };
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
        if memory.domain() == Domain::Eadr && self.cleans(bytes) {
            // SAFETY: by contract.
            unsafe { ITEM.hint_in(Op::Clean, memory, at, bytes) };
        }
        // SAFETY: by contract.
        unsafe { memory.persist(at, bytes) };
        if !self.recent.is_empty() {
            self.recent[place(at)] = at;
        }
    }

    fn cleans(&self, bytes: u64) -> bool {
        match self.flush {
            Flush::Eager | Flush::Skip => true,
            Flush::Keep => false,
            Flush::Auto => bytes > SMALL_BYTES || !self.is_skewed,
        }
    }

    /// The item at `at` has ended.
    #[inline(always)]
    pub fn ended(&mut self, at: u64) {
        if self.recent.is_empty() {
            return;
        }
        self.ended += 1;
        self.ended_recent += u32::from(self.recent[place(at)] == at);
        if self.ended == WINDOW {
            self.is_skewed = self.ended_recent * 4 >= WINDOW;
            (self.ended, self.ended_recent) = (0, 0);
        }
    }
}

/// Where a place is remembered.
#[inline(always)]
fn place(at: u64) -> usize {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_machine::{Crashable, Explorer, Noted};

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
                write(&mut Flusher::new(flush, domain), memory);
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
        // The alarm: streamed, and published before a fence.
        published(Flush::Skip, Domain::Adr, stream_and_go_on).sampled(2_000, 1).expect_failure();
    }
}
