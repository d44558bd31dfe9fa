//! A channel whose medium works in lines larger than the processor's, behind a buffer: a DIMM of
//! persistent memory.
//!
//! The rules (Gugnani, findings; Ni, chapter 2):
//!
//! * A read that finds its line of the medium in the buffer is quick. Any other reads that line
//!   from the medium and leaves it in the buffer.
//! * A write goes to the buffer. If its line is not there it is read first, because the medium
//!   writes whole lines (it is also the unit of the error-correcting code). The published write
//!   bandwidth is that of streams, each line of which is read so: the write alone is what is left of
//!   it. Lines that the processor has just read, to store to them, are spared that.
//! * A line all of whose pieces were written goes to the medium at once and leaves the buffer, though
//!   there is room (the paper's I7). A line written in part goes when it is the longest unused one
//!   and its place is needed: that is write amplification.
//! * After some consecutive lines were read, the next is fetched ahead.

use super::super::calendar::Calendar;
use super::super::counters::NodeCounts;
use super::super::preset::{Ablation, MediaSpec, NodeSpec};
use super::super::time::{Ps, from_ns, of_bytes};
use super::buffer::{Buffer, NOTHING};
use super::{Served, room};

/// Sequential readers that the prefetcher tells apart.
const STREAMS: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Media {
    server: Calendar,
    buffer: Buffer,
    /// The last lines read in sequence and how many there were, the latest first.
    streams: [(u64, u32); STREAMS],
    prefetch_after: u32,
    /// Processor's lines in one of the medium's.
    lines: u64,
    line_bytes: u64,
    full: u8,
    combining: bool,
    read: Ps,
    write: Ps,
    hit_latency: Ps,
    media_latency: Ps,
    queue: Ps,
    queue_lines: u64,
}

impl Media {
    pub fn new(spec: &NodeSpec, media: &MediaSpec, line_bytes: u64, without: Ablation) -> Self {
        let work = |gb_s: f64| of_bytes(media.line_bytes, gb_s / spec.channels as f64);
        let read = work(spec.read_gb_s);
        let write = work(spec.write_gb_s).saturating_sub(read);
        let lines = media.line_bytes / line_bytes;
        Media {
            server: Calendar::new(1, read.max(write), !without.queueing),
            buffer: Buffer::new(media.buffer_lines),
            streams: [(NOTHING, 0); STREAMS],
            prefetch_after: if without.prefetching { 0 } else { media.prefetch_after },
            lines,
            line_bytes: media.line_bytes,
            full: ((1u16 << lines) - 1) as u8,
            combining: !without.combining,
            read,
            write,
            hit_latency: from_ns(spec.read_ns),
            media_latency: from_ns(spec.random_read_ns),
            queue: spec.write_queue * ((read + write) / lines),
            queue_lines: spec.write_queue,
        }
    }

    pub fn read(&mut self, line: u64, at: Ps, counts: &mut NodeCounts) -> Ps {
        let block = line / self.lines;
        if !self.combining {
            return self.fetch(at, counts) + self.hit_latency;
        }
        let done = match self.buffer.find(block) {
            Some(place) => {
                counts.read_hit_bytes += self.line_bytes / self.lines;
                self.buffer.ready[place].max(at) + self.hit_latency
            }
            None => {
                let ready = self.fetch(at, counts);
                self.place(block, 0, ready, at, counts);
                ready + self.hit_latency
            }
        };
        if self.prefetch_after > 0 && self.is_sequential(block) {
            self.fetch_ahead(block + 1, at, counts);
        }
        done
    }

    pub fn write(&mut self, line: u64, at: Ps, counts: &mut NodeCounts) -> Served {
        let (block, piece) = (line / self.lines, 1 << (line % self.lines));
        let queue = self.queue;
        if !self.combining {
            self.complete(at, counts);
            return Served { begin: self.put(at, counts), queue };
        }
        let mut begin = None;
        let place = match self.buffer.find(block) {
            Some(place) => {
                counts.write_hit_bytes += self.line_bytes / self.lines;
                self.buffer.dirty[place] |= piece;
                place
            }
            None => {
                self.complete(at, counts);
                let (place, made_room) = self.place(block, piece, at, at, counts);
                begin = made_room;
                place
            }
        };
        if self.buffer.dirty[place] == self.full {
            self.buffer.remove(place);
            begin = Some(self.put(at, counts));
        }
        let begin = begin.unwrap_or_else(|| at + self.server.wait(at));
        Served { begin, queue }
    }

    /// Lines that the write queue has room for.
    pub fn room(&mut self, at: Ps) -> usize {
        room(self.queue_lines, self.queue, self.server.wait(at))
    }

    /// Writes out every line that was written in part.
    pub fn settle(&mut self, counts: &mut NodeCounts) {
        let parts = self.buffer.dirty.iter().filter(|pieces| **pieces != 0).count();
        counts.media_written_bytes += self.line_bytes * parts as u64;
        self.buffer.clear();
    }

    /// Reads a line from the medium; returns when the buffer has it.
    fn fetch(&mut self, at: Ps, counts: &mut NodeCounts) -> Ps {
        counts.media_read_bytes += self.line_bytes;
        self.server.reserve(at, self.read) + self.media_latency - self.hit_latency
    }

    /// Reads a line from the medium because it will be written in part.
    fn complete(&mut self, at: Ps, counts: &mut NodeCounts) {
        counts.media_completed_bytes += self.line_bytes;
        self.fetch(at, counts);
    }

    /// Writes a line to the medium; returns when that begins.
    fn put(&mut self, at: Ps, counts: &mut NodeCounts) -> Ps {
        counts.media_written_bytes += self.line_bytes;
        self.server.reserve(at, self.write)
    }

    /// Gives a line a place in the buffer; returns that, and when the write begins that made room.
    fn place(
        &mut self,
        block: u64,
        dirty: u8,
        ready: Ps,
        at: Ps,
        counts: &mut NodeCounts,
    ) -> (usize, Option<Ps>) {
        let (place, dropped) = self.buffer.insert(block, dirty, ready);
        (place, (dropped != 0).then(|| self.put(at, counts)))
    }

    fn fetch_ahead(&mut self, block: u64, at: Ps, counts: &mut NodeCounts) {
        if self.buffer.find(block).is_none() {
            counts.media_ahead_bytes += self.line_bytes;
            let ready = self.fetch(at, counts);
            self.place(block, 0, ready, at, counts);
        }
    }

    /// Whether `block` is the first look at a line that continues a sequence of enough lines.
    fn is_sequential(&mut self, block: u64) -> bool {
        let known = self.streams.iter().position(|(last, _)| block.wrapping_sub(*last) <= 1);
        let (place, run) = match known {
            Some(place) if self.streams[place].0 == block => return false,
            Some(place) => (place, self.streams[place].1 + 1),
            None => (STREAMS - 1, 0),
        };
        self.streams[..=place].rotate_right(1);
        self.streams[0] = (block, run);
        run >= self.prefetch_after
    }
}
