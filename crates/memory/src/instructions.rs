//! The instructions that move a store towards its medium, chosen once by CPUID.
//!
//! Three verbs cover persistence on x86: *write back* a cache line (it may stay cached), *fence*
//! (everything written back before is ordered before everything after), and *stream* (store past
//! the caches). They always happen: a store that should survive a power cut rests on them. What is
//! only a hint, and may be switched off, is in [`prestore`](crate::prestore). [`counters`] tells how
//! many of either were issued.

mod counters;

pub use counters::{Counters, counters};

pub(crate) use counters::{Counter, SITES_MAX, SiteCount, add, add_to_site, site_counts};

use std::arch::asm;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Bytes of a cache line on every processor Terrace runs on.
pub const LINE_BYTES: u64 = 64;

/// How a line is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WriteBack {
    /// `clwb`: written back, may stay cached.
    Clwb = 1,
    /// `clflushopt`: written back and evicted, unordered among lines.
    ClflushOpt = 2,
    /// `clflush`: written back and evicted, one after the other.
    Clflush = 3,
}

static METHOD: AtomicU8 = AtomicU8::new(0);

/// The write-back instruction of this processor.
pub fn write_back_method() -> WriteBack {
    match METHOD.load(Relaxed) {
        1 => WriteBack::Clwb,
        2 => WriteBack::ClflushOpt,
        3 => WriteBack::Clflush,
        _ => {
            let method = detect();
            METHOD.store(method as u8, Relaxed);
            method
        }
    }
}

fn detect() -> WriteBack {
    let features = crate::cpu::Features::detect();
    if features.clwb {
        WriteBack::Clwb
    } else if features.clflushopt {
        WriteBack::ClflushOpt
    } else {
        WriteBack::Clflush
    }
}

/// The lines that hold a byte of `[start, start + bytes)`.
#[inline]
pub(crate) fn lines(start: *const u8, bytes: usize) -> impl Iterator<Item = *const u8> {
    let first = start as usize & !(LINE_BYTES as usize - 1);
    let end = if bytes == 0 { first } else { start as usize + bytes };
    (first..end).step_by(LINE_BYTES as usize).map(|line| line as *const u8)
}

/// Writes back every line that holds a byte of `[start, start + bytes)`. Not ordered until
/// [`fence`].
///
/// # Safety
/// The range must be mapped.
pub unsafe fn write_back(start: *const u8, bytes: usize) {
    let mut count = 0;
    match write_back_method() {
        // SAFETY: passed on; the processor has the instruction.
        WriteBack::Clwb => count = unsafe { clwb(start, bytes) },
        WriteBack::ClflushOpt => {
            for line in lines(start, bytes) {
                // SAFETY: as above.
                unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) };
                count += 1;
            }
        }
        WriteBack::Clflush => {
            for line in lines(start, bytes) {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::_mm_clflush(line) };
                count += 1;
            }
        }
    }
    add(Counter::LinesWrittenBack, count);
}

/// Copies by the processor's own instruction for it (`rep movsb`): fast where it has ERMS, one byte at a time where
/// not.
///
/// # Safety
/// `bytes` bytes may be read at `source` and written at `target`, and do not overlap.
#[inline]
pub unsafe fn copy_string(target: *mut u8, source: *const u8, bytes: usize) {
    // SAFETY: the caller's ranges; the direction flag is clear by the calling convention.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rdi") target => _,
            inout("rsi") source => _,
            options(nostack, preserves_flags),
        );
    }
}

/// `clwb` of every line of the range; returns how many.
///
/// # Safety
/// The range must be mapped, and the processor have the instruction.
#[inline]
pub(crate) unsafe fn clwb(start: *const u8, bytes: usize) -> u64 {
    let mut count = 0;
    for line in lines(start, bytes) {
        // SAFETY: the caller says the line is mapped; the instruction changes no data.
        unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) };
        count += 1;
    }
    count
}

/// `cldemote` of every line of the range, a no-operation where the processor lacks it; returns how
/// many.
///
/// # Safety
/// The range must be mapped.
#[inline]
pub(crate) unsafe fn cldemote(start: *const u8, bytes: usize) -> u64 {
    let mut count = 0;
    for line in lines(start, bytes) {
        // SAFETY: cldemote [line], encoded by bytes because not every assembler knows it. It is
        // in the hint space: no fault, no change of data.
        unsafe {
            asm!(".byte 0x0f, 0x1c, 0x00", in("rax") line, options(nostack, preserves_flags))
        };
        count += 1;
    }
    count
}

/// Takes every line of `bytes` out of every cache, written back first where it was dirty: so that a
/// measurement begins without them. Switching write-backs off does not switch it off.
pub fn evict(bytes: &[u8]) {
    let unordered = crate::cpu::Features::detect().clflushopt;
    for line in lines(bytes.as_ptr(), bytes.len()) {
        if unordered {
            // SAFETY: a slice is mapped; the instruction changes no data.
            unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) };
        } else {
            // SAFETY: as above; every x86-64 processor has it.
            unsafe { std::arch::x86_64::_mm_clflush(line) };
        }
    }
    fence();
}

/// Orders every write-back and streaming store issued before it by this thread.
pub fn fence() {
    // SAFETY: sfence is available on every x86-64 processor and touches no memory of its own.
    unsafe { std::arch::x86_64::_mm_sfence() };
    add(Counter::Fences, 1);
}

/// Copies `source` to `target`: whole lines past the caches, and at the ends, where a line is not
/// whole, by plain stores that are written back. Not ordered until [`fence`].
///
/// # Safety
/// `target .. target + source.len()` must be writable and not overlap `source`.
pub unsafe fn stream(target: *mut u8, source: &[u8]) {
    // SAFETY: passed on; the ends are inside the range.
    unsafe {
        let past = copy_past(target, source.as_ptr(), source.len());
        for end in ends(&past, source.len()) {
            write_back(target.add(end.start), end.len());
        }
    }
}

/// What lies before and behind `middle` in `0..bytes`, as far as there is any.
pub(crate) fn ends(middle: &Range<usize>, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    [0..middle.start, middle.end..bytes].into_iter().filter(|end| !end.is_empty())
}

/// The whole lines of `[target, target + bytes)`, as offsets; an empty range at the end if there are
/// none.
fn whole_lines(target: *const u8, bytes: usize) -> Range<usize> {
    let line = LINE_BYTES as usize;
    let head = target.align_offset(line).min(bytes);
    head..head + (bytes - head) / line * line
}

/// Copies; whole lines go past the caches. Returns which offsets did; the rest was stored plainly.
///
/// # Safety
/// `bytes` bytes may be read at `source` and written at `target`, and do not overlap.
pub(crate) unsafe fn copy_past(target: *mut u8, source: *const u8, bytes: usize) -> Range<usize> {
    let past = whole_lines(target, bytes);
    // SAFETY: all offsets are within both ranges; streaming stores are 16-aligned, since whole
    // lines begin at a multiple of 64.
    unsafe {
        for end in ends(&past, bytes) {
            std::ptr::copy_nonoverlapping(source.add(end.start), target.add(end.start), end.len());
        }
        for at in past.clone().step_by(16) {
            let vector = std::arch::x86_64::_mm_loadu_si128(source.add(at).cast());
            std::arch::x86_64::_mm_stream_si128(target.add(at).cast(), vector);
        }
    }
    add(Counter::BytesStreamed, past.len() as u64);
    past
}

/// Fills; whole lines go past the caches. Returns which offsets did; the rest was stored plainly.
///
/// # Safety
/// `bytes` bytes may be written at `target`.
pub(crate) unsafe fn fill_past(target: *mut u8, byte: u8, bytes: usize) -> Range<usize> {
    let past = whole_lines(target, bytes);
    // SAFETY: as for `copy_past`.
    unsafe {
        for end in ends(&past, bytes) {
            target.add(end.start).write_bytes(byte, end.len());
        }
        let vector = std::arch::x86_64::_mm_set1_epi8(byte.cast_signed());
        for at in past.clone().step_by(16) {
            std::arch::x86_64::_mm_stream_si128(target.add(at).cast(), vector);
        }
    }
    add(Counter::BytesStreamed, past.len() as u64);
    past
}

/// Copies bytes that another thread may be storing to. Loads are done in order, as all loads are,
/// and before every load that follows.
///
/// # Safety
/// `source` must be valid for reads and `target` for writes of `bytes`, which do not overlap.
#[inline(always)]
pub unsafe fn copy_changing(source: *const u8, target: *mut u8, bytes: usize) {
    let mut done = 0;
    #[cfg(target_feature = "avx2")]
    if bytes >= 32 {
        while done < bytes {
            // The last 32 bytes may overlap what was copied.
            let at = done.min(bytes - 32);
            // SAFETY: 32 bytes within both ranges.
            unsafe { move_block(source.add(at), target.add(at)) };
            done = at + 32;
        }
    }
    while bytes - done >= 8 {
        // SAFETY: eight bytes within both ranges.
        unsafe { move_word(source.add(done), target.add(done)) };
        done += 8;
    }
    for at in done..bytes {
        // SAFETY: one byte within both ranges.
        unsafe { target.add(at).write(source.add(at).read_volatile()) };
    }
}

/// Copies bytes to where another thread may be copying them from ([`copy_changing`]). Stores are done in order, as all
/// stores are, after every one before and before every one that follows. Four bytes are one store.
///
/// # Safety
/// As for [`copy_changing`], and no other thread stores to `target`.
#[inline(always)]
pub unsafe fn store_changing(source: *const u8, target: *mut u8, bytes: usize) {
    let mut done = 0;
    #[cfg(target_feature = "avx2")]
    if bytes >= 32 {
        while done < bytes {
            // The last 32 bytes may be stored twice in part.
            let at = done.min(bytes - 32);
            // SAFETY: 32 bytes within both ranges.
            unsafe { store_block(source.add(at), target.add(at)) };
            done = at + 32;
        }
    }
    while bytes - done >= 8 {
        // SAFETY: eight bytes within both ranges; volatile, so that it stays where it is among stores.
        unsafe {
            let word = source.add(done).cast::<u64>().read_unaligned();
            asm!("mov [{}], {}", in(reg) target.add(done), in(reg) word, options(nostack, preserves_flags));
        }
        done += 8;
    }
    if bytes - done >= 4 {
        // SAFETY: four bytes within both ranges; as above.
        unsafe {
            let half = source.add(done).cast::<u32>().read_unaligned();
            asm!("mov [{}], {:e}", in(reg) target.add(done), in(reg) half, options(nostack, preserves_flags));
        }
        done += 4;
    }
    for at in done..bytes {
        // SAFETY: one byte within both ranges.
        unsafe { target.add(at).write_volatile(source.add(at).read()) };
    }
}

/// Stores 32 bytes that another thread may be loading.
///
/// # Safety
/// 32 bytes may be read at `source` and written at `target`.
#[cfg(target_feature = "avx2")]
#[inline(always)]
unsafe fn store_block(source: *const u8, target: *mut u8) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256};
    // SAFETY: by contract; the block may write memory, so it stays where it is among stores.
    unsafe {
        let block: __m256i = _mm256_loadu_si256(source.cast());
        asm!("vmovdqu [{}], {}", in(reg) target, in(ymm_reg) block, options(nostack, preserves_flags));
    }
}

/// As [`move_word`], of 32 bytes.
///
/// # Safety
/// 32 bytes may be read at `source` and written at `target`.
#[cfg(target_feature = "avx2")]
#[inline(always)]
unsafe fn move_block(source: *const u8, target: *mut u8) {
    use std::arch::x86_64::{__m256i, _mm256_storeu_si256};
    let block: __m256i;
    // SAFETY: by contract.
    unsafe {
        asm!("vmovdqu {}, [{}]", out(ymm_reg) block, in(reg) source, options(nostack, readonly, preserves_flags));
        _mm256_storeu_si256(target.cast(), block);
    }
}

/// Loads a word that another thread may be storing to, which the language has no name for.
///
/// # Safety
/// Eight bytes may be read at `source` and written at `target`.
#[inline(always)]
unsafe fn move_word(source: *const u8, target: *mut u8) {
    let word: u64;
    // SAFETY: by contract; volatile, so that it stays before later loads.
    unsafe {
        asm!("mov {}, [{}]", out(reg) word, in(reg) source, options(nostack, readonly, preserves_flags));
        target.cast::<u64>().write_unaligned(word);
    }
}

/// Asks for the line at `address` to be brought near. Any address is allowed.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch never faults and changes no data.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast())
    };
}

/// Asks for the line at `address` to be brought into the second-level cache, which can wait for more lines at a time
/// than the first. Any address is allowed.
#[inline(always)]
pub fn prefetch_of_many(address: *const u8) {
    // SAFETY: a prefetch never faults and changes no data.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast())
    };
}

/// Asks for the line at `address` to be brought near for writing. Any address is allowed.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    // SAFETY: a prefetch never faults and changes no data; 64-bit processors without the
    // instruction execute it as a no-operation.
    unsafe { asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags)) };
}
