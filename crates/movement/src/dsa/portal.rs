//! The portal of a real work queue: a page of the device that is mapped, and the two instructions that write to it.
//!
//! Never run: no machine with the device was at hand.

use super::descriptor::Descriptor;
use super::queue::{Portal, drain};
use rustix::mm::{MapFlags, ProtFlags};
use std::arch::asm;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const PORTAL_BYTES: usize = 4096;
/// How long a closing queue waits for its device.
const CLOSING: Duration = Duration::from_secs(10);

/// Instructions that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instructions {
    /// `movdir64b`: 64 bytes at once, for dedicated queues.
    pub movdir64b: bool,
    /// `enqcmd`: the same with an answer, for shared ones.
    pub enqcmd: bool,
}

impl Instructions {
    pub fn detect() -> Instructions {
        let has_leaf = std::arch::x86_64::__cpuid(0).eax >= 7;
        let bits = if has_leaf { std::arch::x86_64::__cpuid_count(7, 0).ecx } else { 0 };
        Instructions { movdir64b: bits & 1 << 28 != 0, enqcmd: bits & 1 << 29 != 0 }
    }
}

/// A mapped portal.
pub(crate) struct MappedPortal {
    page: NonNull<u8>,
    is_dedicated: bool,
    /// Writes to different lines of the page do not wait for one another.
    next: AtomicUsize,
    _file: File,
}

// SAFETY: a page of the device, which takes descriptors from any thread.
unsafe impl Send for MappedPortal {}
// SAFETY: as above.
unsafe impl Sync for MappedPortal {}

impl MappedPortal {
    /// Maps the portal of a queue's character device. The processor must have the instruction of its kind.
    pub fn map(file: File, is_dedicated: bool) -> io::Result<MappedPortal> {
        // SAFETY: a new mapping, chosen by the kernel, overlaps nothing.
        let page = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                PORTAL_BYTES,
                ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                &file,
                0,
            )?
        };
        let page =
            NonNull::new(page.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(MappedPortal { page, is_dedicated, next: AtomicUsize::new(0), _file: file })
    }
}

impl Portal for MappedPortal {
    unsafe fn submit(&self, descriptor: &Descriptor) -> bool {
        let line = self.next.fetch_add(1, Relaxed) % (PORTAL_BYTES / 64) * 64;
        // SAFETY: inside the page.
        let portal = unsafe { self.page.add(line) }.as_ptr();
        let is_refused: u8;
        // SAFETY: the page is mapped to the device, and the processor has the instruction (`DsaQueue::open`). The fence
        // orders the descriptor's memory before the device can hear of it. Both instructions read 64 bytes at the
        // descriptor and store them at the portal, whose address is aligned; `enqcmd` sets the zero flag for a retry.
        unsafe {
            if self.is_dedicated {
                asm!("sfence", "movdir64b {portal}, [{from}]", portal = in(reg) portal,
                    from = in(reg) descriptor, options(nostack));
                is_refused = 0;
            } else {
                asm!("sfence", "enqcmd {portal}, [{from}]", "setz {refused}", portal = in(reg) portal,
                    from = in(reg) descriptor, refused = out(reg_byte) is_refused, options(nostack));
            }
        }
        is_refused == 0
    }

    fn stop(&self) -> bool {
        drain(self, CLOSING)
    }
}

impl Drop for MappedPortal {
    fn drop(&mut self) {
        // SAFETY: this mapping alone, unmapped once.
        let _unmapped = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PORTAL_BYTES) };
    }
}
