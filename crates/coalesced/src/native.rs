//! This machine's own memory.
//!
//! A fully atomic object stands behind a word of its own that makes it a sequence lock: a set makes that word odd,
//! writes, and makes it even again; a get repeats until it finds the same even word before and after. No processor's
//! manual promises that a vector instruction moves 64 bytes at once (16 bytes are promised by those with AVX), and
//! the paper's "one vector instruction no larger than a line" needs unsafe code besides; a sequence lock needs neither
//! and has no limit of size. Its price is a word of memory in the object's own line, two loads of it, and that a get
//! waits for a set that is under way: gets of this regime are not lock-free.
//!
//! Elements are atomics, which compilers do not join into vector loads. On x86 each is a plain load of a line that
//! came into the cache whole, so eight of them cost what the line's miss costs, and this room needs no unsafe code.

use crate::backend::{Backend, Context, LINE_WORDS, Method, Objects, Regime, take};
use crate::error::Result;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Most words of an object.
pub(crate) const MOST_WORDS: usize = 512;
/// Tries before a waiting thread gives up its processor.
const SPINS: u32 = 6;

/// Memory of this machine.
///
/// ```
/// use terrace_coalesced::{Backend, Context, Native, Regime};
///
/// let memory = Native::new(1024);
/// let at = memory.allocate(1, 8, Regime::ElementWise)?.first;
/// let mut context = memory.context();
/// context.store(at, 7);
/// assert_eq!(context.load(at), 7);
/// # Ok::<(), terrace_coalesced::Error>(())
/// ```
#[derive(Debug)]
pub struct Native {
    memory: Box<[AtomicU64]>,
    /// Words before the first line of the processor that lies in `memory`; that is where places begin.
    skew: usize,
    /// Number of the first word that has not been handed out.
    fresh: AtomicU64,
}

impl Native {
    /// So many words, all zero.
    pub fn new(words: usize) -> Native {
        let memory: Box<[AtomicU64]> =
            (0..words.saturating_add(LINE_WORDS)).map(|_| AtomicU64::new(0)).collect();
        let skew = memory.as_ptr().addr() / 8 % LINE_WORDS;
        let skew = (LINE_WORDS - skew) % LINE_WORDS;
        // The first line is nobody's, so that no object is at `NULL`.
        Native { memory, skew, fresh: AtomicU64::new(LINE_WORDS as u64) }
    }

    #[inline(always)]
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.memory[self.skew + at as usize]
    }

    #[inline(always)]
    fn object(&self, at: u64, words: usize) -> &[AtomicU64] {
        let from = self.skew + at as usize;
        &self.memory[from..from + words]
    }
}

impl Backend for Native {
    type Context<'a> = &'a Native;

    fn context(&self) -> &Native {
        self
    }

    fn allocate(&self, objects: usize, words: usize, regime: Regime) -> Result<Objects> {
        // The sequence word stands before a fully atomic object.
        let before = usize::from(regime == Regime::Full);
        let words = words.saturating_add(before);
        let Objects { first, stride } = take(&self.fresh, objects, words, self.words())?;
        Ok(Objects { first: first + before as u64, stride })
    }

    fn most_words(&self, _: Regime) -> Result<usize> {
        Ok(MOST_WORDS)
    }

    fn words(&self) -> u64 {
        (self.memory.len() - LINE_WORDS) as u64
    }
}

/// Copies elements out: whole lines by a loop of a fixed size, then the rest.
#[inline(always)]
fn copy_out(from: &[AtomicU64], to: &mut [u64], order: Ordering, method: Method) {
    let whole = if method == Method::Fragment { from.len() / LINE_WORDS * LINE_WORDS } else { 0 };
    for (from, to) in
        from[..whole].chunks_exact(LINE_WORDS).zip(to[..whole].chunks_exact_mut(LINE_WORDS))
    {
        for i in 0..LINE_WORDS {
            to[i] = from[i].load(order);
        }
    }
    for (from, to) in from[whole..].iter().zip(&mut to[whole..]) {
        *to = from.load(order);
    }
}

#[inline(always)]
fn copy_in(from: &[u64], to: &[AtomicU64], order: Ordering) {
    for (from, to) in from.iter().zip(to) {
        to.store(*from, order);
    }
}

impl Context for &Native {
    #[inline(always)]
    fn load(&mut self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&mut self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    #[inline(always)]
    fn compare_and_swap(
        &mut self,
        at: u64,
        current: u64,
        new: u64,
    ) -> std::result::Result<(), u64> {
        self.word(at)
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    #[inline(always)]
    fn get(&mut self, at: u64, copy: &mut [u64], regime: Regime, method: Method) {
        let object = self.object(at, copy.len());
        if regime == Regime::ElementWise {
            copy_out(object, copy, Ordering::Acquire, method);
            return;
        }
        let sequence = self.word(at - 1);
        let mut tries = 0;
        loop {
            let before = sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                copy_out(object, copy, Ordering::Acquire, method);
                // Orders the elements' loads before the second one of the sequence word.
                fence(Ordering::Acquire);
                if sequence.load(Ordering::Relaxed) == before {
                    return;
                }
            }
            self.pause(tries);
            tries += 1;
        }
    }

    #[inline(always)]
    fn set(&mut self, at: u64, copy: &[u64], regime: Regime, _: Method) {
        let object = self.object(at, copy.len());
        if regime == Regime::ElementWise {
            copy_in(copy, object, Ordering::Release);
            return;
        }
        let sequence = self.word(at - 1);
        let mut tries = 0;
        let before = loop {
            let before = sequence.load(Ordering::Relaxed);
            let taken = before.is_multiple_of(2)
                && sequence
                    .compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if taken {
                break before;
            }
            self.pause(tries);
            tries += 1;
        };
        // Whoever finds one of these elements finds the odd word, too.
        fence(Ordering::Release);
        copy_in(copy, object, Ordering::Release);
        sequence.store(before + 2, Ordering::Release);
    }

    #[inline]
    fn pause(&mut self, tries: u32) {
        if tries < SPINS {
            (0..1 << tries).for_each(|_| std::hint::spin_loop());
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// The allocator begins large blocks 16 bytes into a page: every node of a line lay in two.
    #[test]
    fn lines_are_the_processors() {
        for words in [8, 100, 4096, 1 << 18] {
            let memory = Native::new(words);
            assert_eq!(memory.words(), words as u64);
            let address = std::ptr::from_ref(memory.word(0)).addr();
            assert_eq!(address % (8 * LINE_WORDS), 0, "{words} words");
            assert_eq!(memory.word(words as u64 - 1).load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn objects_touch_as_few_lines_as_they_can() {
        let memory = Native::new(4096);
        for words in 1..40 {
            let objects = memory.allocate(3, words, Regime::ElementWise).expect("room");
            assert!(objects.stride >= words as u64, "objects do not overlap");
            for object in (0..3).map(|i| objects.at(i) as usize) {
                let lines = (object + words - 1) / LINE_WORDS - object / LINE_WORDS + 1;
                assert_eq!(lines, words.div_ceil(LINE_WORDS), "{words} words");
            }
        }
        assert_eq!(memory.allocate(1, 5000, Regime::Full), Err(Error::Full { words: 4096 }));
        assert_eq!(memory.allocate(usize::MAX, 9, Regime::Full), Err(Error::Full { words: 4096 }));
        for words in [usize::MAX, usize::MAX - 1, usize::MAX / 2 + 2] {
            for regime in [Regime::Full, Regime::ElementWise] {
                assert_eq!(memory.allocate(1, words, regime), Err(Error::Full { words: 4096 }));
            }
        }
    }
}
