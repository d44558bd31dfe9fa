//! `Native`: this machine's own memory. Every method compiles to the plain instruction.

use crate::claim::{Claim, Claims};
use crate::domain::Domain;
use crate::instructions;
use crate::lab::Laboratory;
use crate::memory::Memory;
use crate::part::Divide;
use crate::prestore::{self, Op};
use crate::region::Mapping;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A base address and a length; offsets become `base + offset`. What is mapped there stays mapped while this value,
/// a clone or a part of it lives.
#[derive(Clone, Debug)]
pub struct Native {
    base: NonNull<u8>,
    bytes: u64,
    backed: Arc<Backed>,
}

/// What no access needs.
#[derive(Debug)]
struct Backed {
    domain: Domain,
    claims: Arc<Claims>,
    /// Held, so that it is not unmapped.
    _mapping: Option<Arc<Mapping>>,
}

// SAFETY: `Native` is an address; the contracts of `Memory` govern concurrent access.
unsafe impl Send for Native {}
// SAFETY: as above.
unsafe impl Sync for Native {}

impl Native {
    /// # Safety
    /// `base` must point to a mapping of `bytes` bytes that outlives this value, every clone and every part of it.
    pub unsafe fn new(base: NonNull<u8>, bytes: u64, domain: Domain) -> Self {
        Native {
            base,
            bytes,
            backed: Arc::new(Backed { domain, claims: Arc::default(), _mapping: None }),
        }
    }

    /// All of a mapping, which it holds.
    pub(crate) fn of(mapping: &Arc<Mapping>, domain: Domain) -> Native {
        let (base, bytes) = mapping.range();
        let claims = Arc::clone(mapping.claims());
        let backed = Backed { domain, claims, _mapping: Some(Arc::clone(mapping)) };
        Native { base, bytes, backed: Arc::new(backed) }
    }

    #[inline(always)]
    fn at(&self, at: u64, bytes: u64) -> *mut u8 {
        debug_assert!(at + bytes <= self.bytes, "offset {at} + {bytes} within {}", self.bytes);
        // SAFETY: the caller of `Memory` keeps offsets inside the mapping (checked above in
        // debug builds).
        unsafe { self.base.as_ptr().add(at as usize) }
    }

    #[inline(always)]
    fn word(&self, at: u64) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8), "words are 8-byte aligned");
        // SAFETY: in bounds and aligned by the contract of `Memory`; words are only ever accessed
        // atomically or while owned.
        unsafe { &*self.at(at, 8).cast() }
    }

    /// Writes `source` to `at` by [`instructions::copy_string`].
    ///
    /// # Safety
    /// As for [`Memory::write`].
    #[inline]
    pub unsafe fn copy_string(&self, at: u64, source: &[u8]) {
        let target = self.at(at, source.len() as u64);
        // SAFETY: in bounds and owned by contract.
        unsafe { instructions::copy_string(target, source.as_ptr(), source.len()) };
    }
}

impl Divide for Native {
    fn part(&self, start: u64, len: u64) -> Native {
        let end = start.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.bytes), "{start} + {len} is in the memory");
        assert!(start.is_multiple_of(64), "a part begins at a cache line");
        // SAFETY: inside the mapping (asserted), which this value and its parts hold.
        let base = unsafe { self.base.add(start as usize) };
        Native { base, bytes: len, backed: Arc::clone(&self.backed) }
    }
}

// SAFETY: the length is fixed, and words are the machine's own.
unsafe impl Memory for Native {
    #[inline(always)]
    fn len(&self) -> u64 {
        self.bytes
    }

    fn claim(&self, at: u64, bytes: u64) -> Claim {
        let end = at.checked_add(bytes).filter(|end| *end <= self.bytes);
        let end = end.expect("what is claimed lies in the memory");
        let base = self.base.as_ptr() as u64;
        self.backed.claims.claim(base + at..base + end)
    }

    #[inline(always)]
    fn domain(&self) -> Domain {
        self.backed.domain
    }

    #[inline(always)]
    unsafe fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[cfg(not(target_feature = "avx2"))]
    #[inline(always)]
    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        // SAFETY: the caller's promise is passed on.
        unsafe { crate::memory::by_words::load_line(self, at) }
    }

    #[cfg(target_feature = "avx2")]
    #[inline(always)]
    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        use std::arch::{asm, x86_64::__m256i};
        debug_assert!(at.is_multiple_of(64), "lines are 64-byte aligned");
        let (low, high): (__m256i, __m256i);
        // SAFETY: in bounds and aligned by contract. Each 8-byte word of an aligned vector load is
        // read in one piece, and loads are not reordered with later loads on x86, so every word is
        // loaded with acquire order; the block may read memory, so the compiler keeps it in place.
        unsafe {
            asm!(
                "vmovdqa {low}, [{line}]",
                "vmovdqa {high}, [{line} + 32]",
                line = in(reg) self.at(at, 64),
                low = lateout(ymm_reg) low,
                high = lateout(ymm_reg) high,
                options(nostack, readonly, preserves_flags),
            );
            std::mem::transmute([low, high])
        }
    }

    #[inline(always)]
    unsafe fn store(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    #[inline(always)]
    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    #[inline(always)]
    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.word(at).fetch_add(value, Ordering::AcqRel)
    }

    #[inline(always)]
    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        // SAFETY: in bounds by contract; `target` is the caller's own.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.at(at, target.len() as u64),
                target.as_mut_ptr(),
                target.len(),
            );
        }
    }

    #[inline(always)]
    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        // SAFETY: in bounds by contract.
        unsafe { instructions::copy_changing(self.at(at, bytes as u64), target, bytes) };
    }

    #[inline(always)]
    unsafe fn write(&self, at: u64, source: &[u8]) {
        // SAFETY: in bounds and owned by contract.
        unsafe {
            std::ptr::copy_nonoverlapping(
                source.as_ptr(),
                self.at(at, source.len() as u64),
                source.len(),
            );
        }
    }

    #[inline(always)]
    unsafe fn write_changing(&self, at: u64, source: &[u8]) {
        let target = self.at(at, source.len() as u64);
        // SAFETY: in bounds, and no other thread writes there, by contract.
        unsafe { instructions::store_changing(source.as_ptr(), target, source.len()) };
    }

    #[inline(always)]
    unsafe fn stream(&self, at: u64, source: &[u8]) {
        // SAFETY: in bounds and owned by contract.
        unsafe { instructions::stream(self.at(at, source.len() as u64), source) };
    }

    #[inline(always)]
    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: in bounds and not written during the borrow, by contract.
        unsafe { std::slice::from_raw_parts(self.at(at, bytes), bytes as usize) }
    }

    #[inline(always)]
    unsafe fn write_back(&self, at: u64, bytes: u64) {
        // SAFETY: in bounds by contract.
        unsafe { instructions::write_back(self.at(at, bytes), bytes as usize) };
    }

    #[inline(always)]
    fn fence(&self) {
        instructions::fence();
    }

    #[inline(always)]
    fn prefetch(&self, at: u64) {
        instructions::prefetch(self.base.as_ptr().wrapping_add(at as usize));
    }

    #[inline(always)]
    fn prefetch_of_many(&self, at: u64) {
        instructions::prefetch_of_many(self.base.as_ptr().wrapping_add(at as usize));
    }

    #[inline(always)]
    fn prefetch_to_write(&self, at: u64) {
        instructions::prefetch_to_write(self.base.as_ptr().wrapping_add(at as usize));
    }

    #[inline(always)]
    unsafe fn clean(&self, at: u64, bytes: u64) {
        // SAFETY: in bounds by contract.
        unsafe { prestore::hint(Op::Clean, self.at(at, bytes), bytes as usize) };
    }

    #[inline(always)]
    unsafe fn demote(&self, at: u64, bytes: u64) {
        // SAFETY: in bounds by contract.
        unsafe { prestore::hint(Op::Demote, self.at(at, bytes), bytes as usize) };
    }

    #[inline(always)]
    fn lab(&self) -> Option<&dyn Laboratory> {
        None
    }
}
