//! What keeps an item where it is while it is looked at, and what may be seen of it.

use crate::item::Item;
use crate::logs::MOST_OVERWRITTEN_BYTES;
use crossbeam_epoch::Guard;
use std::mem::MaybeUninit;

/// What keeps an item where it is while it is looked at.
///
/// # Safety
/// While it is borrowed, nothing else is written to the place of an item that was current, or was learnt, since.
pub unsafe trait Keeps {}

// SAFETY: an epoch guard from before the location was learnt: places are not used again while it is held.
unsafe impl Keeps for Guard {}

/// The lock of a key's bucket in a hash index, or of its leaf in an ordered one, while it is held: the key's current
/// item stays, and nobody else overwrites it.
///
/// Only an index makes one, and lends it to whoever it runs under the lock:
///
/// ```compile_fail
/// let forged = terrace_durable::BucketLock;
/// ```
///
/// ```compile_fail,E0133
/// let forged = terrace_durable::BucketLock::held();
/// ```
#[derive(Debug)]
pub struct BucketLock(());

impl BucketLock {
    /// # Safety
    /// For as long as this value lives the caller holds the lock under which alone the items looked at by it are
    /// superseded, retired and overwritten.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn held() -> BucketLock {
        BucketLock(())
    }
}

// SAFETY: the lock of the key's bucket: an item that is current stays so while it is held.
unsafe impl Keeps for BucketLock {}

/// An item looked at without its key's lock.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'g> {
    /// Nobody overwrites it any more.
    AtRest(Item<'g>),
    /// Its key: version and value may be overwritten meanwhile, so they are copied ([`Values::copy_item`]) and never
    /// lent. It has no expiry, is no tombstone and not in a batch: such are never overwritten.
    ///
    /// [`Values::copy_item`]: crate::Values::copy_item
    Changing(&'g [u8]),
}

impl<'g> Seen<'g> {
    /// Its key, which never changes.
    #[inline(always)]
    pub fn key(&self) -> &'g [u8] {
        match self {
            Seen::AtRest(item) => item.key,
            Seen::Changing(key) => key,
        }
    }

    /// All of it, if nobody overwrites it any more.
    #[inline(always)]
    pub fn at_rest(self) -> Option<Item<'g>> {
        match self {
            Seen::AtRest(item) => Some(item),
            Seen::Changing(_) => None,
        }
    }
}

/// What a reader copies an item to.
#[derive(Debug)]
pub struct ItemCopy {
    bytes: [MaybeUninit<u8>; MOST_OVERWRITTEN_BYTES],
    length: usize,
}

impl ItemCopy {
    /// Nothing yet; not zeroed, which would cost more than the copy.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "there is no such thing as an empty item")]
    pub fn new() -> ItemCopy {
        ItemCopy { bytes: [MaybeUninit::uninit(); MOST_OVERWRITTEN_BYTES], length: 0 }
    }

    /// Where to copy the bytes of an item to: [`MOST_OVERWRITTEN_BYTES`] of them fit.
    #[inline(always)]
    pub(crate) fn target(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().cast()
    }

    /// The item has so many bytes.
    ///
    /// # Safety
    /// So many were copied to the target.
    #[inline(always)]
    pub(crate) unsafe fn holds(&mut self, bytes: usize) {
        debug_assert!(bytes <= MOST_OVERWRITTEN_BYTES);
        self.length = bytes;
    }

    /// The item that was copied last.
    ///
    /// # Panics
    /// If none was, or if it was copied while it changed.
    #[inline(always)]
    pub fn item(&self) -> Item<'_> {
        // SAFETY: `length` bytes were written, or none.
        let bytes = unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.length) };
        Item::read(bytes).expect("an item was copied while nobody wrote it")
    }
}
