//! `Wrapper`: a memory that stands on another one, and passes everything on.
//!
//! There is one implementation of [`Memory`] for all wrappers, here. A method that the trait gains is passed on by
//! every wrapper or nothing compiles; one cannot be forgotten.

use crate::claim::Claim;
use crate::domain::Domain;
use crate::lab::{self, Laboratory};
use crate::memory::Memory;

/// What is asked of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// [`Memory::load`].
    Load,
    /// [`Memory::load_line`].
    LoadLine,
    /// [`Memory::store`].
    Store,
    /// [`Memory::compare_exchange`].
    Exchange,
    /// [`Memory::fetch_add`].
    Add,
    /// [`Memory::read`].
    Read,
    /// [`Memory::copy_changing`].
    CopyChanging,
    /// [`Memory::write`].
    Write,
    /// [`Memory::write_changing`].
    WriteChanging,
    /// [`Memory::stream`].
    Stream,
    /// [`Memory::bytes`].
    Bytes,
    /// [`lab::looked_at`].
    LookedAt,
    /// [`Memory::write_back`].
    WriteBack,
    /// [`Memory::fence`]; of no range.
    Fence,
    /// [`Memory::prefetch`]; the range is one byte, as of the other two.
    Prefetch,
    /// [`Memory::prefetch_of_many`].
    PrefetchOfMany,
    /// [`Memory::prefetch_to_write`].
    PrefetchToWrite,
    /// [`Memory::clean`].
    Clean,
    /// [`Memory::demote`].
    Demote,
}

/// A memory that stands on another one.
///
/// # Safety
/// `inner` is the same memory each time, and `start..start + length` lies in it. `start` is a multiple of 64, and
/// neither changes.
pub unsafe trait Wrapper: Send + Sync + 'static {
    /// The other one.
    type Inner: Memory;

    /// The other one.
    fn inner(&self) -> &Self::Inner;

    /// Where it begins there.
    #[inline(always)]
    fn start(&self) -> u64 {
        0
    }

    /// Its length in bytes.
    #[inline(always)]
    fn length(&self) -> u64 {
        self.inner().len()
    }

    /// Is told what is asked before it is passed on, with the range in bytes; a compare-exchange after it has
    /// `succeeded`, or has not. A borrow without a look is not told of.
    #[inline(always)]
    fn asked(&self, _what: Request, _at: u64, _bytes: u64, _succeeded: bool) {}

    /// Whether a write-back or a fence is left out.
    #[inline(always)]
    fn leaves_out(&self, _what: Request, _at: u64, _bytes: u64) -> bool {
        false
    }
}

// SAFETY: by the contract of `Wrapper` the caller's range, moved by `start`, lies in the inner memory and is aligned
// as it was. The rest of the caller's promise is passed on, here and in every method.
unsafe impl<W: Wrapper> Memory for W {
    #[inline(always)]
    fn len(&self) -> u64 {
        self.length()
    }

    fn claim(&self, at: u64, bytes: u64) -> Claim {
        self.inner().claim(self.start() + at, bytes)
    }

    #[inline(always)]
    fn domain(&self) -> Domain {
        self.inner().domain()
    }

    #[inline(always)]
    unsafe fn load(&self, at: u64) -> u64 {
        self.asked(Request::Load, at, 8, true);
        // SAFETY: above.
        unsafe { self.inner().load(self.start() + at) }
    }

    #[inline(always)]
    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        self.asked(Request::LoadLine, at, 64, true);
        // SAFETY: above.
        unsafe { self.inner().load_line(self.start() + at) }
    }

    #[inline(always)]
    unsafe fn store(&self, at: u64, value: u64) {
        self.asked(Request::Store, at, 8, true);
        // SAFETY: above.
        unsafe { self.inner().store(self.start() + at, value) }
    }

    #[inline(always)]
    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: above.
        let found = unsafe { self.inner().compare_exchange(self.start() + at, current, new) };
        self.asked(Request::Exchange, at, 8, found.is_ok());
        found
    }

    #[inline(always)]
    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.asked(Request::Add, at, 8, true);
        // SAFETY: above.
        unsafe { self.inner().fetch_add(self.start() + at, value) }
    }

    #[inline(always)]
    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        self.asked(Request::Read, at, target.len() as u64, true);
        // SAFETY: above.
        unsafe { self.inner().read(self.start() + at, target) }
    }

    #[inline(always)]
    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        self.asked(Request::CopyChanging, at, bytes as u64, true);
        // SAFETY: above.
        unsafe { self.inner().copy_changing(self.start() + at, target, bytes) }
    }

    #[inline(always)]
    unsafe fn write(&self, at: u64, source: &[u8]) {
        self.asked(Request::Write, at, source.len() as u64, true);
        // SAFETY: above.
        unsafe { self.inner().write(self.start() + at, source) }
    }

    #[inline(always)]
    unsafe fn write_changing(&self, at: u64, source: &[u8]) {
        self.asked(Request::WriteChanging, at, source.len() as u64, true);
        // SAFETY: above.
        unsafe { self.inner().write_changing(self.start() + at, source) }
    }

    #[inline(always)]
    unsafe fn stream(&self, at: u64, source: &[u8]) {
        self.asked(Request::Stream, at, source.len() as u64, true);
        // SAFETY: above.
        unsafe { self.inner().stream(self.start() + at, source) }
    }

    #[inline(always)]
    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        self.asked(Request::Bytes, at, bytes, true);
        // SAFETY: above.
        unsafe { self.inner().bytes(self.start() + at, bytes) }
    }

    #[inline(always)]
    unsafe fn write_back(&self, at: u64, bytes: u64) {
        if !self.leaves_out(Request::WriteBack, at, bytes) {
            self.asked(Request::WriteBack, at, bytes, true);
            // SAFETY: above.
            unsafe { self.inner().write_back(self.start() + at, bytes) }
        }
    }

    #[inline(always)]
    fn fence(&self) {
        if !self.leaves_out(Request::Fence, 0, 0) {
            self.asked(Request::Fence, 0, 0, true);
            self.inner().fence();
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: u64) {
        self.asked(Request::Prefetch, at, 1, true);
        self.inner().prefetch(self.start().wrapping_add(at));
    }

    #[inline(always)]
    fn prefetch_of_many(&self, at: u64) {
        self.asked(Request::PrefetchOfMany, at, 1, true);
        self.inner().prefetch_of_many(self.start().wrapping_add(at));
    }

    #[inline(always)]
    fn prefetch_to_write(&self, at: u64) {
        self.asked(Request::PrefetchToWrite, at, 1, true);
        self.inner().prefetch_to_write(self.start().wrapping_add(at));
    }

    #[inline(always)]
    unsafe fn clean(&self, at: u64, bytes: u64) {
        self.asked(Request::Clean, at, bytes, true);
        // SAFETY: above.
        unsafe { self.inner().clean(self.start() + at, bytes) }
    }

    #[inline(always)]
    unsafe fn demote(&self, at: u64, bytes: u64) {
        self.asked(Request::Demote, at, bytes, true);
        // SAFETY: above.
        unsafe { self.inner().demote(self.start() + at, bytes) }
    }

    #[inline(always)]
    fn lab(&self) -> Option<&dyn Laboratory> {
        Some(self)
    }
}

impl<W: Wrapper> Laboratory for W {
    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: as for the methods of `Memory`.
        unsafe { lab::borrow(self.inner(), self.start() + at, bytes) }
    }

    fn looked_at(&self, at: u64, bytes: u64) {
        self.asked(Request::LookedAt, at, bytes, true);
        lab::looked_at(self.inner(), self.start() + at, bytes);
    }

    fn pause(&self) {
        lab::pause(self.inner());
    }

    fn step(&self) {
        lab::step(self.inner());
    }

    fn outlives(&self, at: u64, bytes: &[u8]) {
        lab::outlives(self.inner(), at, bytes);
    }

    fn zeros(&self, at: u64, bytes: u64) -> u64 {
        lab::zeros(self.inner(), self.start() + at, bytes)
    }
}
