//! The one place of this module that touches memory: bounds, steps, and the read-only overlay.
//!
//! Engines say *what* they store, write back and fence, and under which [`Step`]; this says how,
//! given the memory's domain: under eADR a visible store is durable, so a write-back would only
//! cost (Wu, section 2.5), and fences alone order.

use super::engine::Written;
use super::error::{Error, Result};
use super::step::{Purpose, Step, Steps};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
pub(super) use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::{Claim, Domain, Memory};

/// Bytes of a page of the heap.
pub(super) const PAGE: u64 = 4096;

/// Changed lines of a pool that is open read-only.
type Overlay = Mutex<BTreeMap<u64, [u8; LINE as usize]>>;

/// A memory that belongs to one pool.
///
/// Invariant: methods that store are called under the pool's lock, or before the pool is shared, so
/// nobody reads or writes the same bytes meanwhile. Of a [shared](Media::shared) one, nobody writes meanwhile.
#[derive(Debug)]
pub(super) struct Media<M> {
    memory: M,
    _claim: Claim,
    steps: Steps,
    write_backs: bool,
    /// Lines written back for each [`Purpose`].
    written: [AtomicU64; 4],
    overlay: Option<Overlay>,
    /// Several sections may read while one is applied: bytes are copied so that a race is no more than a wrong value.
    is_shared: bool,
}

impl<M: Memory> Media<M> {
    /// # Errors
    /// [`Error::NotByteAddressable`].
    pub(super) fn new(memory: M, steps: Steps, read_only: bool) -> Result<Media<M>> {
        let domain = memory.domain();
        if !domain.is_byte_addressable() {
            return Err(Error::NotByteAddressable { found: domain.to_string() });
        }
        Ok(Media::of(memory, steps, domain == Domain::Adr, read_only))
    }

    /// A working image: what is stored there is durable elsewhere, or lost with the process.
    pub(super) fn working(memory: M) -> Media<M> {
        Media::of(memory, Steps::ALL, false, false)
    }

    /// From here on stores stay in a buffer.
    pub(super) fn frozen(self) -> Media<M> {
        Media { overlay: Some(Overlay::default()), ..self }
    }

    /// For sections that run at once: one thread at a time stores, and others may read meanwhile.
    pub(super) fn shared(self) -> Media<M> {
        Media { is_shared: true, ..self }
    }

    fn of(memory: M, steps: Steps, write_backs: bool, read_only: bool) -> Media<M> {
        let overlay = read_only.then(Overlay::default);
        let claim = memory.claim(0, memory.len());
        let written = Default::default();
        Media { memory, _claim: claim, steps, write_backs, written, overlay, is_shared: false }
    }

    pub(super) fn len(&self) -> u64 {
        self.memory.len()
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    pub(super) fn into_memory(self) -> M {
        self.memory
    }

    pub(super) fn domain(&self) -> Domain {
        self.memory.domain()
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.overlay.is_some()
    }

    #[inline(always)]
    pub(super) fn has(&self, step: Step) -> bool {
        self.steps.has(step)
    }

    #[inline(always)]
    fn check(&self, at: u64, bytes: u64) {
        let end = at.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.len()), "{at} + {bytes} is in the pool");
    }

    #[inline]
    pub(super) fn load(&self, at: u64) -> u64 {
        if self.overlay.is_some() {
            let mut word = [0; 8];
            self.read(at, &mut word);
            return u64::from_le_bytes(word);
        }
        self.check(at, 8);
        assert!(at.is_multiple_of(8), "words are aligned");
        // SAFETY: in bounds and aligned (asserted).
        unsafe { self.memory.load(at) }
    }

    #[inline]
    pub(super) fn store(&self, at: u64, value: u64) {
        if self.overlay.is_some() {
            return self.write(at, &value.to_le_bytes());
        }
        self.check(at, 8);
        assert!(at.is_multiple_of(8), "words are aligned");
        // SAFETY: in bounds and aligned (asserted).
        unsafe { self.memory.store(at, value) };
    }

    #[inline]
    pub(super) fn read(&self, at: u64, target: &mut [u8]) {
        self.check(at, target.len() as u64);
        match self.is_shared {
            // SAFETY: in bounds (asserted); others may write meanwhile, and `target` has the room.
            true => unsafe { self.memory.copy_changing(at, target.as_mut_ptr(), target.len()) },
            // SAFETY: in bounds (asserted); nobody writes meanwhile, by the invariant of `Media`.
            false => unsafe { self.memory.read(at, target) },
        }
        if let Some(overlay) = &self.overlay {
            overlay_read(&overlay.lock(), at, target);
        }
    }

    #[inline]
    pub(super) fn write(&self, at: u64, source: &[u8]) {
        self.check(at, source.len() as u64);
        if let Some(overlay) = &self.overlay {
            return self.overlay_write(&mut overlay.lock(), at, source);
        }
        match <[u8; 8]>::try_from(source) {
            Ok(word) if at.is_multiple_of(8) => self.store(at, u64::from_le_bytes(word)),
            // SAFETY: in bounds (asserted); nobody else writes, by the invariant of `Media`.
            _ if self.is_shared => unsafe { self.memory.write_changing(at, source) },
            // SAFETY: in bounds (asserted); nobody else is at it, by the invariant of `Media`.
            _ => unsafe { self.memory.write(at, source) },
        }
    }

    /// Starts the write-back of the range's lines, unless `step` is left out or the domain does
    /// without.
    #[inline]
    pub(super) fn write_back(&self, step: Step, at: u64, bytes: u64) {
        if self.write_backs && bytes > 0 && self.steps.has(step) && self.overlay.is_none() {
            self.check(at, bytes);
            let lines = (at + bytes).div_ceil(LINE) - at / LINE;
            let written = &self.written[step.purpose() as usize];
            // One writer at a time, by the invariant of `Media`.
            written.store(written.load(Relaxed) + lines, Relaxed);
            // SAFETY: in bounds (asserted).
            unsafe { self.memory.write_back(at, bytes) };
        }
    }

    /// What engines wrote back.
    pub(super) fn written(&self) -> Written {
        let bytes = |purpose: Purpose| LINE * self.written[purpose as usize].load(Relaxed);
        Written {
            data_bytes: bytes(Purpose::Data),
            log_bytes: bytes(Purpose::Log),
            consolidation_bytes: bytes(Purpose::Consolidation),
            checkpoint_bytes: bytes(Purpose::Checkpoint),
        }
    }

    /// Orders what was written back before what follows, unless `step` is left out.
    #[inline]
    pub(super) fn fence(&self, step: Step) {
        if self.steps.has(step) && self.overlay.is_none() {
            self.memory.fence();
        }
    }

    /// Stores, writes back and fences: for the head of the pool, whose steps nobody leaves out.
    pub(super) fn persist(&self, at: u64, source: &[u8]) {
        self.write(at, source);
        self.settle(at, source.len() as u64);
    }

    /// Makes what was stored to the range durable.
    pub(super) fn settle(&self, at: u64, bytes: u64) {
        if self.overlay.is_none() {
            self.check(at, bytes);
            if self.write_backs {
                // SAFETY: in bounds (asserted).
                unsafe { self.memory.write_back(at, bytes) };
            }
            self.memory.fence();
        }
    }

    /// Makes the range read as zero. Stores only to lines that do not, so that fresh memory is not
    /// touched; not durable before [`Media::settle`].
    pub(super) fn zero(&self, at: u64, bytes: u64) {
        let mut from = at;
        while from < at + bytes {
            let length = (LINE - from % LINE).min(at + bytes - from) as usize;
            let mut line = [0; LINE as usize];
            self.read(from, &mut line[..length]);
            if line[..length].iter().any(|byte| *byte != 0) {
                self.write(from, &[0; LINE as usize][..length]);
            }
            from += length as u64;
        }
    }

    fn overlay_write(
        &self,
        overlay: &mut BTreeMap<u64, [u8; LINE as usize]>,
        at: u64,
        source: &[u8],
    ) {
        for (line, within, part) in pieces(at, source.len()) {
            let bytes = overlay.entry(line).or_insert_with(|| {
                let mut bytes = [0; LINE as usize];
                let length = (self.len() - line * LINE).min(LINE) as usize;
                // SAFETY: in bounds, being shortened to the length; nobody writes a read-only pool.
                unsafe { self.memory.read(line * LINE, &mut bytes[..length]) };
                bytes
            });
            bytes[within..within + part.len()].copy_from_slice(&source[part]);
        }
    }
}

fn overlay_read(overlay: &BTreeMap<u64, [u8; LINE as usize]>, at: u64, target: &mut [u8]) {
    for (line, within, part) in pieces(at, target.len()) {
        if let Some(bytes) = overlay.get(&line) {
            let length = part.len();
            target[part].copy_from_slice(&bytes[within..within + length]);
        }
    }
}

/// Divides `[at, at + bytes)` at lines: number of the line, offset in it, and the part of the range.
pub(super) fn pieces(
    at: u64,
    bytes: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let here = at + done as u64;
        let within = (here % LINE) as usize;
        let length = (LINE as usize - within).min(bytes - done);
        let piece = (here / LINE, within, done..done + length);
        done += length;
        Some(piece)
    })
}
