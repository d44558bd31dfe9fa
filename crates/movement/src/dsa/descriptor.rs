//! Descriptors: the 64 bytes that tell a DSA what to do, laid out as in Intel's specification (and `linux/idxd.h`).

use super::completion::CompletionRecord;
use crate::task::{Step, Verb};

/// Flag: begins after all earlier descriptors of its batch have ended, and only if they ended well.
pub(crate) const FENCE: u32 = 0x1;
/// Flag: the device waits for the system where a page is missing.
pub(crate) const BLOCK_ON_FAULT: u32 = 0x2;
/// Flags: there is a completion record, and it is wanted whatever the end.
const RECORD: u32 = 0x4 | 0x8;
/// Flag: results go to the cache.
const CACHE: u32 = 0x100;

/// What a descriptor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Opcode {
    Batch = 0x01,
    Drain = 0x02,
    Move = 0x03,
    Fill = 0x04,
    Compare = 0x05,
    Crc = 0x10,
}

/// A descriptor.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Descriptor {
    /// PASID and privilege: filled in by the processor or by the queue.
    pasid: u32,
    /// 24 bits of flags, 8 of the opcode.
    flags_opcode: u32,
    completion: u64,
    /// The source, a pattern, or a list of descriptors.
    first: u64,
    /// The target, or a second source.
    second: u64,
    /// Bytes, or descriptors of a list.
    size: u32,
    interrupt: u16,
    reserved: u16,
    /// A checksum to continue, in the first.
    specific: [u64; 3],
}

const _: () = assert!(size_of::<Descriptor>() == 64);

impl Descriptor {
    fn new(opcode: Opcode, flags: u32, record: &CompletionRecord) -> Descriptor {
        Descriptor {
            flags_opcode: flags | RECORD | (opcode as u32) << 24,
            completion: std::ptr::from_ref(record) as u64,
            ..Descriptor::default()
        }
    }

    /// Of a step of at most 4 GiB.
    pub fn of(step: &Step, flags: u32, record: &CompletionRecord) -> Descriptor {
        let (source, target) = (step.source.as_ptr() as u64, step.target.as_ptr() as u64);
        let (opcode, first, second, flags) = match step.verb {
            Verb::Copy | Verb::Move => (Opcode::Move, source, target, flags | CACHE),
            Verb::Fill => (Opcode::Fill, step.value, target, flags | CACHE),
            Verb::Compare => (Opcode::Compare, source, target, flags),
            Verb::Crc => (Opcode::Crc, source, 0, flags),
        };
        let seed = if step.verb == Verb::Crc { step.value } else { 0 };
        let head = Descriptor::new(opcode, flags, record);
        Descriptor { first, second, size: step.bytes as u32, specific: [seed, 0, 0], ..head }
    }

    /// Of a list of at least two descriptors.
    pub fn batch(list: &[Descriptor], record: &CompletionRecord) -> Descriptor {
        let head = Descriptor::new(Opcode::Batch, 0, record);
        Descriptor { first: list.as_ptr() as u64, size: list.len() as u32, ..head }
    }

    /// Ends after everything that was submitted before it.
    pub fn drain(record: &CompletionRecord) -> Descriptor {
        Descriptor::new(Opcode::Drain, 0, record)
    }

    pub fn flags(&self) -> u32 {
        self.flags_opcode & 0xff_ffff
    }

    /// The number of the operation, which may be none of [`Opcode`].
    pub fn opcode(&self) -> u8 {
        (self.flags_opcode >> 24) as u8
    }

    pub fn completion(&self) -> u64 {
        self.completion
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn second(&self) -> u64 {
        self.second
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn seed(&self) -> u32 {
        self.specific[0] as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    #[test]
    fn fields_lie_where_the_specification_says() {
        let record = CompletionRecord::default();
        let mut bytes = [0u8; 8];
        let source = NonNull::from(&mut bytes[0]);
        let step =
            Step { verb: Verb::Crc, source, target: source, bytes: 0x1234, value: 0xdead_beef };
        let words = |descriptor: &Descriptor| -> [u64; 8] {
            // SAFETY: 64 bytes of plain integers without padding.
            unsafe { std::mem::transmute(*descriptor) }
        };
        let crc = words(&Descriptor::of(&step, BLOCK_ON_FAULT, &record));
        assert_eq!(
            crc[0],
            0x1000_000e << 32,
            "opcode in the highest byte, flags below, PASID empty"
        );
        assert_eq!(crc[1], &raw const record as u64);
        assert_eq!((crc[2], crc[4], crc[5]), (source.as_ptr() as u64, 0x1234, 0xdead_beef));
        let list = [Descriptor::drain(&record), Descriptor::of(&step, FENCE, &record)];
        let batch = words(&Descriptor::batch(&list, &record));
        assert_eq!((batch[0] >> 32, batch[2], batch[4]), (0x0100_000c, list.as_ptr() as u64, 2));
        assert_eq!(list.as_ptr() as u64 % 64, 0);
    }
}
