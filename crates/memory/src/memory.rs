//! The one idea: a structure is written once, against a memory; there are several memories.

use crate::domain::Domain;

/// A range of memory addressed by offset.
///
/// Offsets, not pointers: a structure can be reopened at another address, copied, or run on a
/// memory that is not this machine's. `load`, `store`, `compare_exchange` and `fetch_add` act on 8-byte words
/// and are atomic with acquire and release order; `read`, `write` and `bytes` are plain.
///
/// # Safety
/// Every unsafe method asks the same of its caller: the range lies inside `0..len()` and is
/// committed; words are 8-byte aligned; a range passed to a *writing* plain method (`write`,
/// `stream`) is not read or written by another thread at the same time, and a range passed to a
/// *reading* one (`read`, `bytes`) is not written for as long as the read or borrow lasts.
#[allow(clippy::missing_safety_doc, reason = "one contract for the whole trait, stated above")]
pub trait Memory: Send + Sync + 'static {
    /// Length in bytes.
    fn len(&self) -> u64;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// When a store survives a power cut.
    fn domain(&self) -> Domain;
    /// The word at `at`, with acquire order.
    unsafe fn load(&self, at: u64) -> u64;
    /// The eight words of the line at `at` (64-byte aligned), each as by [`Memory::load`].
    #[inline(always)]
    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        // SAFETY: the caller's promise is passed on.
        std::array::from_fn(|word| unsafe { self.load(at + 8 * word as u64) })
    }
    /// Stores a word at `at`, with release order.
    unsafe fn store(&self, at: u64, value: u64);
    /// Exchanges the word at `at` if it is `current`; returns what it was, as `Ok` when exchanged.
    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64>;
    /// Adds to the word at `at`, wrapping, as one atomic operation; returns what it was.
    #[inline(always)]
    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64 {
        // SAFETY: the caller's promise is passed on.
        let mut was = unsafe { self.load(at) };
        loop {
            // SAFETY: as above.
            match unsafe { self.compare_exchange(at, was, was.wrapping_add(value)) } {
                Ok(was) => return was,
                Err(other) => was = other,
            }
        }
    }
    /// Copies out.
    unsafe fn read(&self, at: u64, target: &mut [u8]);
    /// Copies out bytes that another thread may be writing: what comes out may be of several
    /// writes, and the caller finds out by a later load. The one exception to the contract above;
    /// `target` has room for `bytes`.
    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize);
    /// Copies in.
    unsafe fn write(&self, at: u64, source: &[u8]);
    /// Copies in, past the caches.
    unsafe fn stream(&self, at: u64, source: &[u8]);
    /// Borrows a range that nobody writes meanwhile.
    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8];
    /// The same of a range that is perhaps not looked at: whoever looks says so by [`Memory::looked_at`].
    /// Here the two are one, since a borrow is no access; where accesses have a price in time, they are
    /// not.
    #[inline(always)]
    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.bytes(at, bytes) }
    }
    /// Says that a borrowed range is looked at now, all of it.
    #[inline(always)]
    fn looked_at(&self, _at: u64, _bytes: u64) {}
    /// Starts the write-back of every line touching the range.
    unsafe fn write_back(&self, at: u64, bytes: u64);
    /// Orders earlier write-backs and streams before everything later.
    fn fence(&self);
    /// Asks for the line at `at` to be brought near; any offset is allowed.
    fn prefetch(&self, at: u64);
    /// The same for a line of many that are asked for together, as by a batch or a range: near, though not nearest. The
    /// first-level cache has places for a dozen or two of misses, and some processors forget what is asked beyond
    /// them (docs/performance.md, "Many lines at once").
    #[inline(always)]
    fn prefetch_of_many(&self, at: u64) {
        self.prefetch(at);
    }
    /// The same, to be written soon: the line comes without a copy left elsewhere.
    fn prefetch_to_write(&self, at: u64) {
        self.prefetch(at);
    }
    /// Hints that the lines of the range should be written to memory soon, and stay cached: a
    /// [pre-store](crate::prestore). Makes nothing durable. Nothing where there are no caches.
    #[inline(always)]
    unsafe fn clean(&self, _at: u64, _bytes: u64) {}
    /// Hints that the range should move down the hierarchy, to where others see it: a
    /// [pre-store](crate::prestore).
    unsafe fn demote(&self, at: u64, bytes: u64);

    /// Says that the caller waits for another thread to change the memory: between two looks of a
    /// loop that spins. A hint to the processor here; where threads are scheduled, another's turn.
    #[inline(always)]
    fn pause(&self) {
        std::hint::spin_loop();
    }

    /// How many bytes from `at` on, of `bytes`, are known to read as zero without a look at them: none
    /// where nothing is known. Whoever searches a memory that is hardly used goes on behind them.
    #[inline(always)]
    fn zeros(&self, _at: u64, _bytes: u64) -> u64 {
        0
    }

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
