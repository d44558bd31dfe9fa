//! Sections of a pool on a disk that run at once, under locks of their callers.
//!
//! Each seat has a buffer of its own; the image changes at commits alone, one at a time, each with its record. What is
//! shared by all is the allocator, of which there are two views:
//! * *the image's*, which says what is allocated by sections that committed. A commit makes its allocations and frees
//!   there, as part of its record.
//! * *the reserved one*, in memory alone: that, and what open sections have allocated. An allocation chooses its place
//!   there. A free changes it when its section has committed, so nobody is given what an abort would need back.
//!
//! So whatever is allocated in the image's view is allocated in the reserved one, and a place that was chosen there is
//! free, or in a page without objects, when it is taken in the image's. An abort frees its allocations in the reserved
//! view, and a crash leaves none.

use super::EngineKind;
use super::buffer::Buffer;
use super::engine::{Engine, Grain, Maintenance, Walked};
use super::error::{Error, Result};
use super::heap::{Heap, Words, WordsMut};
use super::logged::{Image, Log};
use super::media::{LINE, Media};
use super::record::HEAD;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use terrace_memory::Memory;

const LINE_WORDS: usize = LINE as usize / 8;

/// The allocation metadata of the reserved view: all of its lines.
struct Lines(HashMap<u64, [u64; LINE_WORDS]>);

impl Words for Lines {
    fn load(&self, at: u64) -> u64 {
        self.0.get(&(at / LINE)).map_or(0, |line| line[(at % LINE / 8) as usize])
    }
}

impl WordsMut for Lines {
    fn store(&mut self, at: u64, value: u64) -> Result<()> {
        self.0.entry(at / LINE).or_default()[(at % LINE / 8) as usize] = value;
        Ok(())
    }
}

/// The image's metadata as a commit changes it.
struct Changed<'c, M> {
    media: &'c Media<M>,
    buffer: Buffer,
}

impl<M: Memory> Words for Changed<'_, M> {
    fn load(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.buffer.read(self.media, at, &mut word);
        u64::from_le_bytes(word)
    }
}

impl<M: Memory> WordsMut for Changed<'_, M> {
    fn store(&mut self, at: u64, value: u64) -> Result<()> {
        self.buffer.write(self.media, at, &value.to_le_bytes());
        Ok(())
    }
}

/// What seats share.
pub(super) struct Shared<J: Memory> {
    log: Log<J>,
    reserved: Lines,
    reserving: Heap,
}

impl<J: Memory> Shared<J> {
    pub(super) fn new<M: Memory>(log: Log<J>, heap: Heap, media: &Media<M>) -> Arc<Mutex<Self>> {
        let image = Image(media);
        let line = |line: u64| {
            (line, std::array::from_fn(|word| image.load(line * LINE + 8 * word as u64)))
        };
        let reserved = Lines(heap.metadata_lines(&image).into_iter().map(line).collect());
        Arc::new(Mutex::new(Shared { log, reserved, reserving: heap }))
    }
}

/// One seat.
pub(super) struct AtOnce<J: Memory> {
    shared: Arc<Mutex<Shared<J>>>,
    heap: Heap,
    buffer: Buffer,
    /// Place, and bytes asked for.
    allocated: Vec<(u64, u64)>,
    freed: BTreeSet<u64>,
}

impl<J: Memory> AtOnce<J> {
    pub(super) fn new(shared: Arc<Mutex<Shared<J>>>, heap: Heap) -> AtOnce<J> {
        let buffer = Buffer::new(0, Grain::Word);
        AtOnce { shared, heap, buffer, allocated: Vec::new(), freed: BTreeSet::new() }
    }

    fn clear(&mut self) {
        self.buffer.clear();
        self.allocated.clear();
        self.freed.clear();
    }
}

impl<M: Memory, J: Memory> Engine<M> for AtOnce<J> {
    fn read(&self, media: &Media<M>, at: u64, target: &mut [u8]) {
        self.buffer.read(media, at, target);
    }

    fn write(&mut self, media: &Media<M>, at: u64, source: &[u8]) -> Result<()> {
        self.buffer.write(media, at, source);
        Ok(())
    }

    fn allocate(&mut self, _media: &Media<M>, bytes: u64) -> Option<Result<u64>> {
        let mut shared = self.shared.lock();
        let Shared { reserved, reserving, .. } = &mut *shared;
        let place = reserving.allocate(reserved, bytes);
        self.allocated.extend(place.as_ref().ok().map(|at| (*at, bytes)));
        Some(place)
    }

    fn free(&mut self, media: &Media<M>, at: u64) -> Option<Result<()>> {
        let is_allocated = Engine::<M>::room_of(self, media, at)?.is_some();
        let is_freed = is_allocated && self.freed.insert(at);
        Some(if is_freed { Ok(()) } else { Err(Error::NotAllocated { at }) })
    }

    fn room_of(&self, _media: &Media<M>, at: u64) -> Option<Option<u64>> {
        let shared = self.shared.lock();
        Some(shared.reserving.room_of(&shared.reserved, at))
    }

    fn walk(&self, media: &Media<M>) -> Option<Result<Walked, String>> {
        let _no_commit = self.shared.lock();
        Some(self.heap.check(&Image(media)))
    }

    fn commit(&mut self, media: &Media<M>) -> Result<()> {
        if self.buffer.is_empty() && self.allocated.is_empty() && self.freed.is_empty() {
            return Ok(());
        }
        let data = self.buffer.encode();
        let mut shared = self.shared.lock();
        let mut changed = Changed { media, buffer: Buffer::new(0, Grain::Word) };
        for (at, bytes) in &self.allocated {
            self.heap.take(&mut changed, *at, *bytes)?;
        }
        let mut heap = self.heap;
        // What another section freed before, or has not committed, is refused here.
        self.freed.iter().try_for_each(|at| heap.free(&mut changed, *at))?;
        let metadata = changed.buffer.encode();
        let needs_bytes = data.len() + metadata.len() - 2 * HEAD as u64;
        let has_bytes = shared.log.longest();
        if needs_bytes > has_bytes {
            return Err(Error::SectionTooLarge {
                engine: EngineKind::Redo,
                needs_bytes,
                has_bytes,
            });
        }
        shared.log.append(media, &[data.runs(), metadata.runs()])?;
        let Shared { reserved, reserving, .. } = &mut *shared;
        for at in &self.freed {
            // It is allocated in the image's view, and so in this one.
            let freed = reserving.free(reserved, *at);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
        drop(shared);
        self.clear();
        Ok(())
    }

    fn abort(&mut self, _media: &Media<M>) {
        let mut shared = self.shared.lock();
        let Shared { reserved, reserving, .. } = &mut *shared;
        for (at, _) in &self.allocated {
            let freed = reserving.free(reserved, *at);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
        drop(shared);
        self.clear();
    }

    fn maintain(&mut self, media: &Media<M>) -> Maintenance {
        self.shared.lock().log.maintain(media)
    }

    fn close(&mut self) -> Result<()> {
        self.shared.lock().log.close()
    }

    fn log_use(&self) -> Option<[u64; 2]> {
        Some(self.shared.lock().log.usage())
    }

    fn progress(&self) -> u64 {
        0
    }
}
