//! Copies, fills, comparisons and checksums by the processor, for the engines that are threads.
//!
//! Streaming stores send whole lines past the caches: the target is not read first, and the caches keep what they have.
//! Lines of the source are prefetched two kilobytes ahead, by a prefetch that evicts little. One store for a line is
//! some percent faster than four (`examples/speed.rs`), so a processor with AVX-512 gets that.

use crate::engine::Backend;
use crate::error::Error;
use crate::job::{Part, Ran};
use crate::task::{Step, Verb};
use crc_fast::{CrcAlgorithm, Digest};
use std::arch::x86_64::{
    _MM_HINT_NTA, _mm_loadu_si128, _mm_prefetch, _mm_set_epi64x, _mm_sfence, _mm_stream_si128,
    _mm512_loadu_si512, _mm512_stream_si512,
};
use std::sync::Arc;

const LINE: usize = 64;
/// How far the prefetches of a streaming copy run ahead.
const AHEAD_BYTES: usize = 2048;
/// From how many bytes on the pool streams: copies below stay in the caches, and soon have a reader.
pub(crate) const STREAM_FROM: usize = 256 << 10;

/// How the processor stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    Cached,
    Streaming,
}

/// An engine that works inside of `submit`.
pub(crate) struct Cpu {
    name: Arc<str>,
    stores: Stores,
}

impl Cpu {
    pub fn cached() -> Cpu {
        Cpu { name: "cpu-cached".into(), stores: Stores::Cached }
    }

    pub fn streaming() -> Cpu {
        Cpu { name: "cpu-streaming".into(), stores: Stores::Streaming }
    }
}

impl Backend for Cpu {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn start(&self, part: Part) -> Result<(), (Part, Error)> {
        execute(part, &self.name, |_| self.stores);
        Ok(())
    }
}

/// Executes a part whole, one step after another, and ends it.
pub(crate) fn execute(part: Part, engine: &Arc<str>, stores: impl Fn(&Step) -> Stores) {
    let mut ran = Ran::default();
    for step in part.steps().as_slice() {
        // SAFETY: the part holds its job, and so the memory of its steps; nobody else has the task's target, and nobody
        // changes its sources (`Task`).
        unsafe { step.run(stores(step), &mut ran) };
        ran.bytes += step.bytes as u64;
    }
    part.end(engine, ran);
}

impl Step {
    /// Executes it.
    ///
    /// # Safety
    /// Its ranges are valid, nobody writes to them meanwhile, and nobody else uses those that it writes.
    pub unsafe fn run(&self, stores: Stores, ran: &mut Ran) {
        let (source, target, bytes) =
            (self.source.as_ptr().cast_const(), self.target.as_ptr(), self.bytes);
        // SAFETY: by contract.
        unsafe {
            match (self.verb, stores) {
                (Verb::Copy, Stores::Cached) => target.copy_from_nonoverlapping(source, bytes),
                (Verb::Copy, Stores::Streaming) => stream_copy(target, source, bytes),
                (Verb::Move, _) => target.copy_from(source, bytes),
                (Verb::Fill, Stores::Cached) => fill(target, self.value, bytes),
                (Verb::Fill, Stores::Streaming) => stream_fill(target, self.value, bytes),
                (Verb::Compare, _) => ran.difference = difference(source, target, bytes),
                (Verb::Crc, _) => {
                    let bytes = std::slice::from_raw_parts(source, bytes);
                    ran.crc = Some(crc(self.value as u32, bytes));
                }
            }
        }
    }
}

/// CRC-32C of the bytes behind those of which `before` is the CRC-32C; 0 of none.
pub(crate) fn crc(before: u32, bytes: &[u8]) -> u32 {
    // The register is the inverse of the sum, as the sum is inverted at both ends.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// The first byte that differs.
///
/// # Safety
/// `bytes` bytes may be read at both, and nobody writes there.
unsafe fn difference(left: *const u8, right: *const u8, bytes: usize) -> Option<u64> {
    // SAFETY: by contract.
    let (left, right) = unsafe {
        (std::slice::from_raw_parts(left, bytes), std::slice::from_raw_parts(right, bytes))
    };
    // A block of equal bytes costs one call.
    const BLOCK: usize = 4096;
    let block = left.chunks(BLOCK).zip(right.chunks(BLOCK)).position(|(l, r)| l != r)?;
    let at = block * BLOCK;
    let inside = left[at..].iter().zip(&right[at..]).position(|(l, r)| l != r)?;
    Some((at + inside) as u64)
}

/// Copies; whole lines of the target are streamed. Complete for every thread that hears of it.
///
/// # Safety
/// `bytes` bytes may be read at `source` and written at `target`, and do not overlap.
pub(crate) unsafe fn stream_copy(target: *mut u8, source: *const u8, bytes: usize) {
    let head = target.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE * LINE;
    let tail = head + lines;
    // SAFETY: head, lines and tail together are the range; the lines begin at a multiple of 64.
    unsafe {
        target.copy_from_nonoverlapping(source, head);
        if is_x86_feature_detected!("avx512f") {
            stream_lines_wide(target.add(head), source.add(head), lines);
        } else {
            stream_lines(target.add(head), source.add(head), lines);
        }
        target.add(tail).copy_from_nonoverlapping(source.add(tail), bytes - tail);
        // Streaming stores are ordered by nothing else, and whoever is told of the end reads at once.
        _mm_sfence();
    }
}

/// Copies whole lines, each by four stores.
///
/// # Safety
/// As for [`stream_copy`]; `target` is at a multiple of 64, and so are the bytes.
unsafe fn stream_lines(target: *mut u8, source: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: inside both ranges, and aligned where it is stored; a prefetch of any address is harmless.
        unsafe {
            let (from, to) = (source.add(at), target.add(at));
            _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(AHEAD_BYTES).cast());
            for part in (0..LINE).step_by(16) {
                _mm_stream_si128(to.add(part).cast(), _mm_loadu_si128(from.add(part).cast()));
            }
        }
    }
}

/// Copies whole lines, each by one store.
///
/// # Safety
/// As for [`stream_lines`], on a processor with AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn stream_lines_wide(target: *mut u8, source: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: as in `stream_lines`.
        unsafe {
            let (from, to) = (source.add(at), target.add(at));
            _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(AHEAD_BYTES).cast());
            _mm512_stream_si512(to.cast(), _mm512_loadu_si512(from.cast()));
        }
    }
}

/// Fills with a pattern of eight bytes.
///
/// # Safety
/// `bytes` bytes may be written at `target`.
unsafe fn fill(target: *mut u8, pattern: u64, bytes: usize) {
    let pattern = pattern.to_le_bytes();
    // SAFETY: by contract; written before it is read as a slice, since a byte is never invalid once it is written.
    unsafe {
        for at in (0..bytes / 8 * 8).step_by(8) {
            target.add(at).cast::<[u8; 8]>().write_unaligned(pattern);
        }
        let tail = bytes / 8 * 8;
        target.add(tail).copy_from_nonoverlapping(pattern.as_ptr(), bytes - tail);
    }
}

/// As [`fill`], by streaming stores.
///
/// # Safety
/// As for [`fill`].
unsafe fn stream_fill(target: *mut u8, pattern: u64, bytes: usize) {
    let head = target.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE * LINE;
    let turned = |at: usize| pattern.rotate_right(8 * (at as u32 % 8));
    // SAFETY: as in `stream_copy`.
    unsafe {
        fill(target, pattern, head);
        let vector = _mm_set_epi64x(turned(head).cast_signed(), turned(head).cast_signed());
        for at in (head..head + lines).step_by(16) {
            _mm_stream_si128(target.add(at).cast(), vector);
        }
        fill(target.add(head + lines), turned(head + lines), bytes - head - lines);
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streaming_copies_copy_whole_lines_from_any_place() {
        #[repr(align(64))]
        struct Lines([u8; 8 * LINE]);
        let source: Vec<u8> = (0..10 * LINE).map(|n| ((n * n) >> 3) as u8).collect();
        let mut kernels: Vec<unsafe fn(*mut u8, *const u8, usize)> = vec![stream_lines];
        if is_x86_feature_detected!("avx512f") {
            kernels.push(stream_lines_wide);
        }
        for kernel in kernels {
            for (from, lines) in (0..LINE).flat_map(|from| [0, 1, 7].map(|lines| (from, lines))) {
                let mut target = Lines([0xee; 8 * LINE]);
                let bytes = lines * LINE;
                // SAFETY: so many lines are in both; the target is aligned, and the processor has what the kernel
                // needs.
                unsafe { kernel(target.0.as_mut_ptr(), source[from..].as_ptr(), bytes) };
                assert_eq!(target.0[..bytes], source[from..from + bytes]);
                assert!(target.0[bytes..].iter().all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn a_checksum_continues_another_one() {
        let bytes: Vec<u8> = (0..1000).map(|n| (n * 7) as u8).collect();
        for at in [0, 1, 500, 999, 1000] {
            assert_eq!(crc(crc(0, &bytes[..at]), &bytes[at..]), crc_fast::crc32_iscsi(&bytes));
        }
    }
}
