//! A device's memory: how much of it is in use, and its buffers.

use super::{DeviceError, Result};
use bytemuck::Pod;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much of a device's memory is in use.
pub(super) struct Account {
    used: AtomicU64,
    capacity: u64,
}

impl Account {
    pub fn new(capacity: u64) -> Arc<Account> {
        // No buffer can be larger.
        let capacity = capacity.min(isize::MAX as u64 - 8);
        Arc::new(Account { used: AtomicU64::new(0), capacity })
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Bytes of a device that are in use, until this is dropped.
pub(super) struct Taken {
    account: Arc<Account>,
    bytes: u64,
}

impl Taken {
    pub fn none_of(account: Arc<Account>) -> Taken {
        Taken { account, bytes: 0 }
    }

    /// Takes so many more, at once or not at all.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        let (wanted, capacity) = (bytes as u64, self.account.capacity);
        let grown = |used: u64| used.checked_add(wanted).filter(|sum| *sum <= capacity);
        match self.account.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => self.bytes += wanted,
            Err(used) => return Err(DeviceError::OutOfMemory { wanted, used, capacity }),
        }
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A buffer's bytes, aligned for every number.
#[derive(Default)]
pub(super) struct Bytes {
    words: Vec<u64>,
    len: usize,
}

impl Bytes {
    pub fn zeroed(len: usize) -> Bytes {
        Bytes { words: vec![0; len.div_ceil(size_of::<u64>())], len }
    }

    pub fn copied(from: &[u8]) -> Bytes {
        let mut bytes = Bytes::zeroed(from.len());
        bytes.slice_mut().copy_from_slice(from);
        bytes
    }

    pub fn slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    pub fn slice_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }
}

/// Elements that stay on a device: see [`Device::keep`](super::Device::keep). A clone is the same buffer.
#[derive(Clone)]
pub struct Resident {
    inner: Arc<(Bytes, Taken)>,
}

impl Resident {
    pub(super) fn new<T: Pod>(account: Arc<Account>, elements: &[T]) -> Result<Resident> {
        let mut taken = Taken::none_of(account);
        taken.grow(size_of_val(elements))?;
        let bytes = Bytes::copied(bytemuck::cast_slice(elements));
        Ok(Resident { inner: Arc::new((bytes, taken)) })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.inner.0.slice()
    }

    pub(super) fn is_of(&self, account: &Arc<Account>) -> bool {
        Arc::ptr_eq(&self.inner.1.account, account)
    }
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resident").field("bytes", &self.bytes().len()).finish()
    }
}
