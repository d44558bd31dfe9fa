//! A copy, and the chains in which readers find it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// How often a copy is known to have been asked for, at the most.
const ASKED_MOST: u8 = 4;
/// Whoever had it fetched asks once, and that says nothing.
const ASKED_LEAST: u8 = 1;
/// What the allocator, the epochs and its chain take beside, about.
const BESIDE_BYTES: usize = 32;

/// What a copy of so many bytes takes.
pub(super) fn taken(bytes: usize) -> u64 {
    (size_of::<CopiedItem>() + bytes.next_multiple_of(8) + BESIDE_BYTES) as u64
}

/// A copy of an item. Its bytes follow in memory, and do not change.
#[repr(C)]
pub(super) struct CopiedItem {
    pub location: u64,
    sequence: u64,
    /// The next of its chain.
    next: Link,
    /// The next of its queue. Only the holder of the queues looks at it.
    pub after: AtomicPtr<CopiedItem>,
    length: u32,
    asked: AtomicU8,
    /// Whether it was asked for after it was fetched, as far as the queues have seen.
    pub was_used: AtomicBool,
}

/// Where a chain goes on, or begins.
#[derive(Default)]
pub(super) struct Link(AtomicPtr<CopiedItem>);

impl CopiedItem {
    fn layout(bytes: usize) -> Layout {
        let layout =
            Layout::from_size_align(size_of::<CopiedItem>() + bytes, align_of::<CopiedItem>());
        layout.expect("an item is shorter than a log")
    }

    pub fn new(location: u64, sequence: u64, bytes: &[u8]) -> NonNull<CopiedItem> {
        let layout = CopiedItem::layout(bytes.len());
        // SAFETY: it has a size.
        let at = unsafe { alloc(layout) }.cast::<CopiedItem>();
        let Some(copy) = NonNull::new(at) else { handle_alloc_error(layout) };
        // SAFETY: room for the copy, and for the bytes behind it.
        unsafe {
            copy.write(CopiedItem {
                location,
                sequence,
                next: Link::default(),
                after: AtomicPtr::default(),
                length: bytes.len() as u32,
                asked: AtomicU8::new(0),
                was_used: AtomicBool::new(false),
            });
            let into = copy.add(1).cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len());
        }
        copy
    }

    /// # Safety
    /// It is one that [`CopiedItem::new`] has made, and nobody uses it any more.
    pub unsafe fn drop(copy: NonNull<CopiedItem>) {
        // SAFETY: the caller's.
        let layout = CopiedItem::layout(unsafe { copy.as_ref() }.length as usize);
        // SAFETY: made with this layout; what it holds needs no drop.
        unsafe { dealloc(copy.as_ptr().cast(), layout) };
    }

    /// # Safety
    /// It is not dropped while the bytes are borrowed.
    pub unsafe fn bytes<'a>(copy: NonNull<CopiedItem>) -> &'a [u8] {
        // SAFETY: `new` has written as many behind it; the caller's.
        unsafe {
            let length = copy.as_ref().length as usize;
            std::slice::from_raw_parts(copy.add(1).cast::<u8>().as_ptr(), length)
        }
    }

    /// What it takes.
    pub fn taken(&self) -> u64 {
        taken(self.length as usize)
    }

    /// An estimate: where two come at a time one is not counted.
    #[inline(always)]
    pub fn was_asked_for(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked < ASKED_MOST {
            self.asked.store(asked + 1, Ordering::Relaxed);
        }
    }

    /// Whether it was asked for again since `forget` or `count_less`.
    pub fn was_asked_again(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > ASKED_LEAST
    }

    /// It counts as asked for once less.
    pub fn count_less(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.asked.store(asked.saturating_sub(1).max(ASKED_LEAST), Ordering::Relaxed);
    }

    /// It counts as not asked for again.
    pub fn forget_asked(&self) {
        self.asked.store(ASKED_LEAST, Ordering::Relaxed);
    }
}

impl Link {
    /// The copy of an item, in the chain that begins here.
    ///
    /// # Safety
    /// No copy that was in the chain at the beginning, or came later, is dropped while the result is in use.
    #[inline(always)]
    pub unsafe fn find(&self, location: u64, sequence: u64) -> Option<NonNull<CopiedItem>> {
        let mut at = self.0.load(Ordering::Acquire);
        // SAFETY: the caller's.
        while let Some(copy) = unsafe { at.as_ref() } {
            if copy.location == location && copy.sequence == sequence {
                return NonNull::new(at);
            }
            at = copy.next.0.load(Ordering::Acquire);
        }
        None
    }

    /// Readers find it from here on.
    ///
    /// # Safety
    /// Nobody else changes the chain, and the copy is in none.
    pub unsafe fn push(&self, copy: NonNull<CopiedItem>) {
        // SAFETY: the caller's.
        unsafe { copy.as_ref() }.next.0.store(self.0.load(Ordering::Relaxed), Ordering::Relaxed);
        self.0.store(copy.as_ptr(), Ordering::Release);
    }

    /// Nobody who looks from here on finds it; whoever is at it finds what comes behind.
    ///
    /// # Safety
    /// Nobody else changes the chain, and no copy in it is dropped meanwhile.
    pub unsafe fn take_out(&self, copy: NonNull<CopiedItem>) {
        let mut link = self;
        loop {
            let at = link.0.load(Ordering::Relaxed);
            // SAFETY: the caller's.
            let Some(found) = (unsafe { at.as_ref() }) else { return };
            if at == copy.as_ptr() {
                return link.0.store(found.next.0.load(Ordering::Relaxed), Ordering::Release);
            }
            link = &found.next;
        }
    }
}

/// Copies in the order in which they came. They are not its own.
pub(super) struct Queue {
    first: *mut CopiedItem,
    last: *mut CopiedItem,
    pub bytes: u64,
    pub copies: usize,
}

// SAFETY: what it leads to has atomic fields, and bytes that do not change.
unsafe impl Send for Queue {}

impl Default for Queue {
    fn default() -> Queue {
        Queue { first: null_mut(), last: null_mut(), bytes: 0, copies: 0 }
    }
}

impl Queue {
    /// # Safety
    /// The copy is in no queue, and is not dropped while it is in this one.
    pub unsafe fn push(&mut self, copy: NonNull<CopiedItem>) {
        // SAFETY: the caller's.
        let new = unsafe { copy.as_ref() };
        new.after.store(null_mut(), Ordering::Relaxed);
        // SAFETY: those in the queue are not dropped.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.after.store(copy.as_ptr(), Ordering::Relaxed),
            None => self.first = copy.as_ptr(),
        }
        self.last = copy.as_ptr();
        self.bytes += new.taken();
        self.copies += 1;
    }

    pub fn pop(&mut self) -> Option<NonNull<CopiedItem>> {
        let copy = NonNull::new(self.first)?;
        // SAFETY: those in the queue are not dropped.
        let found = unsafe { copy.as_ref() };
        self.first = found.after.load(Ordering::Relaxed);
        if self.first.is_null() {
            self.last = null_mut();
        }
        self.bytes -= found.taken();
        self.copies -= 1;
        Some(copy)
    }
}
