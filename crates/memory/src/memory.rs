//! The one idea: a structure is written once, against a memory; there are several memories.

use crate::claim::Claim;
use crate::domain::Domain;
use crate::lab::Laboratory;

/// A range of memory addressed by offset.
///
/// Offsets, not pointers: a structure can be reopened at another address, copied, or run on a
/// memory that is not this machine's. `load`, `store`, `compare_exchange` and `fetch_add` act on 8-byte words
/// and are atomic with acquire and release order; `read`, `write` and `bytes` are plain.
///
/// Every method is required, but for three: a memory that stands on another one is a
/// [`Wrapper`](crate::Wrapper), which passes all of them on. What only the laboratory asks of a memory is
/// [`Laboratory`]'s.
///
/// # Safety
/// Whoever implements the trait promises that `len` never changes and that a word reads as what was stored to it
/// last: structures find their way by what they read.
///
/// Every unsafe method asks the same of its caller: the range lies inside `0..len()` and is
/// committed; words are 8-byte aligned; a range passed to a *writing* plain method (`write`,
/// `stream`) is not read or written by another thread at the same time, and a range passed to a
/// *reading* one (`read`, `bytes`) is not written for as long as the read or borrow lasts.
#[allow(clippy::missing_safety_doc, reason = "one contract for the whole trait, stated above")]
pub unsafe trait Memory: Send + Sync + 'static {
    /// Length in bytes.
    fn len(&self) -> u64;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Claims a range for one structure, until the claim is dropped. Whoever is about to use a memory that safe code
    /// gave it claims it first: clones and parts are names of the same bytes.
    ///
    /// Not so of a memory that watches nothing, as of the crash explorer's: there threads take turns, and a structure
    /// that a crash cut off may never be dropped. Those who try structures on it keep to one at a time.
    ///
    /// # Panics
    /// If another structure has part of the range.
    fn claim(&self, _at: u64, _bytes: u64) -> Claim {
        Claim::unwatched()
    }
    /// When a store survives a power cut.
    fn domain(&self) -> Domain;
    /// The word at `at`, with acquire order.
    unsafe fn load(&self, at: u64) -> u64;
    /// The eight words of the line at `at` (64-byte aligned), each as by [`Memory::load`].
    unsafe fn load_line(&self, at: u64) -> [u64; 8];
    /// Stores a word at `at`, with release order.
    unsafe fn store(&self, at: u64, value: u64);
    /// Exchanges the word at `at` if it is `current`; returns what it was, as `Ok` when exchanged.
    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64>;
    /// Adds to the word at `at`, wrapping, as one atomic operation; returns what it was.
    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64;
    /// Copies out.
    unsafe fn read(&self, at: u64, target: &mut [u8]);
    /// Copies out bytes that another thread may be writing: what comes out may be of several
    /// writes, and the caller finds out by a later load. An exception to the contract above;
    /// `target` has room for `bytes`.
    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize);
    /// Copies in.
    unsafe fn write(&self, at: u64, source: &[u8]);
    /// Copies in where other threads may be copying out ([`Memory::copy_changing`]), though nobody else writes: the
    /// other side of that exception. The aligned half of a word is written in one piece, also as a crash sees it.
    unsafe fn write_changing(&self, at: u64, source: &[u8]);
    /// Copies in, past the caches.
    unsafe fn stream(&self, at: u64, source: &[u8]);
    /// Borrows a range that nobody writes meanwhile.
    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8];
    /// Starts the write-back of every line touching the range.
    unsafe fn write_back(&self, at: u64, bytes: u64);
    /// Orders earlier write-backs and streams before everything later.
    fn fence(&self);
    /// Asks for the line at `at` to be brought near; any offset is allowed.
    fn prefetch(&self, at: u64);
    /// The same for a line of many that are prefetched as a batch: near, though not nearest. The
    /// first-level cache has places for a dozen or two of misses, and some processors forget what is asked beyond
    /// them (docs/performance.md, "Many lines at once").
    fn prefetch_of_many(&self, at: u64);
    /// The same, to be written soon: the line comes without a copy left elsewhere.
    fn prefetch_to_write(&self, at: u64);
    /// Hints that the lines of the range should be written to memory soon, and stay cached: a
    /// [pre-store](crate::prestore). Makes nothing durable. Nothing where there are no caches.
    unsafe fn clean(&self, at: u64, bytes: u64);
    /// Hints that the range should move down the hierarchy, to where others see it: a
    /// [pre-store](crate::prestore).
    unsafe fn demote(&self, at: u64, bytes: u64);
    /// What it does for the laboratory; none on a memory that only serves.
    fn lab(&self) -> Option<&dyn Laboratory>;

    /// Makes `[at, at + bytes)` durable, as far as instructions can: write-back and fence under
    /// ADR, a fence under eADR. Nothing under the other domains, whose owner must sync.
    unsafe fn persist(&self, at: u64, bytes: u64) {
        match self.domain() {
            Domain::Adr => {
                // SAFETY: the caller's promise is passed on.
                unsafe { self.write_back(at, bytes) };
                self.fence();
            }
            Domain::Eadr => self.fence(),
            Domain::PageCache | Domain::None => {}
        }
    }
}

/// What [`Memory`] asks for in terms of single words, for memories that know nothing better.
pub mod by_words {
    use super::Memory;

    /// [`Memory::load_line`] by loads.
    ///
    /// # Safety
    /// The conditions of [`Memory::load_line`].
    #[inline(always)]
    pub unsafe fn load_line(memory: &impl Memory, at: u64) -> [u64; 8] {
        // SAFETY: the caller's promise is passed on.
        std::array::from_fn(|word| unsafe { memory.load(at + 8 * word as u64) })
    }

    /// [`Memory::fetch_add`] by a compare-exchange.
    ///
    /// # Safety
    /// The conditions of [`Memory::fetch_add`].
    #[inline(always)]
    pub unsafe fn fetch_add(memory: &impl Memory, at: u64, value: u64) -> u64 {
        // SAFETY: the caller's promise is passed on.
        let mut was = unsafe { memory.load(at) };
        loop {
            // SAFETY: as above.
            match unsafe { memory.compare_exchange(at, was, was.wrapping_add(value)) } {
                Ok(was) => return was,
                Err(other) => was = other,
            }
        }
    }
}
