//! How far the recoveries of this process have come, for whoever waits for one.

use std::sync::atomic::{AtomicU64, Ordering};

static SCANNED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes of value files that recoveries have been through since the process began, free logs and superblocks
/// included.
pub fn scanned_bytes() -> u64 {
    SCANNED_BYTES.load(Ordering::Relaxed)
}

pub(crate) fn scanned(bytes: u64) {
    SCANNED_BYTES.fetch_add(bytes, Ordering::Relaxed);
}
