//! Completion records: the 32 bytes that a DSA writes when a descriptor has ended, the status last.

use std::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Not written yet.
pub(crate) const NONE: u8 = 0x00;
pub(crate) const SUCCESS: u8 = 0x01;
/// A page is missing, and the descriptor says not to wait for it: a part is done.
pub(crate) const PAGE_FAULT: u8 = 0x03;
/// Some descriptors of a batch did not end well.
pub(crate) const BATCH_FAILED: u8 = 0x05;
/// The list of a batch lies on a page that is missing.
pub(crate) const BATCH_PAGE_FAULT: u8 = 0x06;
pub(crate) const BAD_OPCODE: u8 = 0x10;
pub(crate) const BAD_SIZE: u8 = 0x13;
pub(crate) const BAD_COUNT: u8 = 0x14;
pub(crate) const HARDWARE: u8 = 0x20;
/// Set beside the status of a fault: a write met it.
pub(crate) const BY_WRITE: u8 = 0x80;

/// What a status stands for.
pub(crate) fn meaning(status: u8) -> &'static str {
    match status & !BY_WRITE {
        NONE => "not ended",
        SUCCESS => "success",
        0x02 => "success, with a false predicate",
        PAGE_FAULT => "page fault, not waited for",
        0x04 => "page fault that the system could not resolve",
        BATCH_FAILED => "a descriptor of the batch failed",
        BATCH_PAGE_FAULT => "page fault in the list of a batch",
        BAD_OPCODE => "no such operation",
        0x11 => "invalid flags",
        0x12 => "a reserved field is not zero",
        BAD_SIZE => "too many bytes",
        BAD_COUNT => "invalid number of descriptors",
        0x16 => "buffers overlap",
        0x18 => "list of descriptors not aligned",
        0x1a => "address of the completion record cannot be translated",
        0x1b => "address of the completion record not aligned",
        0x1c => "address not aligned",
        0x1d..=0x1f => "refused by the configuration of the queue",
        HARDWARE | 0x21 => "hardware error",
        0x22 => "address translation failed",
        _ => "an error",
    }
}

/// What a device wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completion {
    pub status: u8,
    /// Of a comparison: 1 if it found a difference. Of a move that ended early: 1 if it went from the end to the start.
    pub result: u8,
    /// Bytes done, or descriptors of a batch.
    pub done: u32,
    pub fault: u64,
    pub crc: u32,
}

/// The record, which the device writes and the driver reads.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct CompletionRecord {
    status: AtomicU8,
    result: AtomicU8,
    fault_info: AtomicU8,
    reserved: AtomicU8,
    done: AtomicU32,
    fault: AtomicU64,
    crc: AtomicU64,
    specific: [AtomicU16; 4],
}

const _: () = assert!(size_of::<CompletionRecord>() == 32);

impl CompletionRecord {
    /// Before it is given to a device.
    pub fn clear(&self) {
        self.status.store(NONE, Relaxed);
    }

    /// What the device wrote, if it has.
    #[inline]
    pub fn read(&self) -> Option<Completion> {
        let status = self.status.load(Acquire);
        (status != NONE).then(|| Completion {
            status,
            result: self.result.load(Relaxed),
            done: self.done.load(Relaxed),
            fault: self.fault.load(Relaxed),
            crc: self.crc.load(Relaxed) as u32,
        })
    }

    /// As the device does.
    pub fn write(&self, completion: Completion) {
        self.result.store(completion.result, Relaxed);
        self.done.store(completion.done, Relaxed);
        self.fault.store(completion.fault, Relaxed);
        self.crc.store(completion.crc.into(), Relaxed);
        self.status.store(completion.status, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of `linux/idxd.h`; hardware errors had another one, and this driver's texts were those of neighbours.
    #[test]
    fn codes_mean_what_the_kernel_says() {
        let codes = [
            (NONE, 0x00, "not ended"),
            (SUCCESS, 0x01, "success"),
            (PAGE_FAULT, 0x03, "page fault"),
            (BATCH_FAILED, 0x05, "of the batch failed"),
            (BATCH_PAGE_FAULT, 0x06, "list of a batch"),
            (BAD_OPCODE, 0x10, "no such operation"),
            (BAD_SIZE, 0x13, "too many bytes"),
            (BAD_COUNT, 0x14, "number of descriptors"),
            (HARDWARE, 0x20, "hardware error"),
            (0x16, 0x16, "overlap"),
            (0x18, 0x18, "list of descriptors not aligned"),
            (0x1a, 0x1a, "completion record cannot be translated"),
            (0x1b, 0x1b, "completion record not aligned"),
            (0x1c, 0x1c, "address not aligned"),
            (0x1d, 0x1d, "configuration of the queue"),
            (0x21, 0x21, "hardware error"),
            (0x22, 0x22, "translation failed"),
        ];
        for (of, code, text) in codes {
            assert_eq!(of, code);
            assert!(meaning(code).contains(text), "{code:#x}: {}", meaning(code));
            assert_eq!(meaning(code | BY_WRITE), meaning(code));
        }
    }
}
