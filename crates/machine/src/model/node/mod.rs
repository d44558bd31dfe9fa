//! Memories: what answers when no cache has the line.
//!
//! A node is some channels (or DIMMs), over which consecutive pieces of its addresses are dealt. Each
//! channel is one server with a queue; reads and writes share it. A write is *accepted* when the
//! controller has it, which is what a fence waits for, and *served* later: acceptance is late
//! only when more waits than the write queue holds.
//!
//! There are two kinds of channel: DRAM with open rows, and a medium with lines larger than the
//! processor's behind a buffer that combines writes ([`media`]).

mod buffer;
mod dram;
mod media;
mod notes;

use super::counters::NodeCounts;
use super::preset::{Ablation, NodeSpec};
use super::time::{Ps, from_ns, of_bytes};
use dram::Dram;
pub(super) use dram::ROW_BYTES;
use media::Media;
use notes::Notes;

/// Why the processor reads a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Demand,
    Prefetch,
}

/// Why the processor writes a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Evict,
    Clean,
    Stream,
}

/// One memory.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub socket: usize,
    pub directory: Ps,
    pub counts: NodeCounts,
    line_bytes: u64,
    write_back: Ps,
    stream: Ps,
    /// A line alone, at the full rate of all channels.
    line: Ps,
    interleave_lines: u64,
    channels: Vec<Channel>,
    /// Which lines another socket may hold, where the memory keeps such notes.
    notes: Option<Notes>,
}

#[derive(Clone, Debug)]
enum Channel {
    Dram(Box<Dram>),
    Media(Box<Media>),
}

/// What a channel answers to a write: when it is served, and how much may wait before it.
#[derive(Clone, Copy, Debug)]
struct Served {
    begin: Ps,
    queue: Ps,
}

/// Of the lines of a channel's write queue, those that are free when its server is busy for so long.
fn room(lines: u64, queue: Ps, wait: Ps) -> usize {
    (lines - (lines * wait / queue.max(1)).min(lines)) as usize
}

impl Node {
    pub fn new(spec: &NodeSpec, line_bytes: u64, notes: bool, without: Ablation) -> Self {
        let channel = || match &spec.media {
            Some(media) => Channel::Media(Box::new(Media::new(spec, media, line_bytes, without))),
            None => Channel::Dram(Box::new(Dram::new(spec, line_bytes, without))),
        };
        Node {
            socket: spec.socket,
            directory: from_ns(spec.directory_ns),
            counts: NodeCounts::default(),
            line_bytes,
            write_back: from_ns(spec.write_back_ns),
            stream: from_ns(spec.stream_ns),
            line: of_bytes(
                spec.media.as_ref().map_or(line_bytes, |media| media.line_bytes),
                spec.random_write_gb_s.unwrap_or(spec.write_gb_s),
            ),
            interleave_lines: spec.interleave_bytes / line_bytes,
            channels: (0..spec.channels).map(|_| channel()).collect(),
            notes: notes.then(|| Notes::new(spec.channels)),
        }
    }

    /// Reads the line at `at` for a socket; returns when it is there.
    pub fn read(&mut self, line: u64, at: Ps, why: Read, socket: usize) -> Ps {
        self.counts.read_bytes += self.line_bytes;
        if why == Read::Prefetch {
            self.counts.prefetched_bytes += self.line_bytes;
        }
        let (channel, local) = self.place(line);
        let there = match &mut self.channels[channel] {
            Channel::Dram(dram) => dram.read(local, at),
            Channel::Media(media) => media.read(local, at, &mut self.counts),
        };
        if socket != self.socket {
            self.note(line, at);
        }
        there
    }

    /// Writes the line at `at`; returns when it is accepted.
    pub fn write(&mut self, line: u64, at: Ps, why: Write) -> Ps {
        self.counts.written_bytes += self.line_bytes;
        let (count, latency) = match why {
            Write::Evict => (&mut self.counts.evicted_bytes, self.write_back),
            Write::Clean => (&mut self.counts.written_back_bytes, self.write_back),
            Write::Stream => (&mut self.counts.streamed_bytes, self.stream),
        };
        *count += self.line_bytes;
        let channel = self.place(line).0;
        if let Some(notes) = &mut self.notes {
            notes.forget(channel, line);
        }
        let served = self.put(line, at);
        at + latency + (served.begin - at).saturating_sub(served.queue)
    }

    fn put(&mut self, line: u64, at: Ps) -> Served {
        let (channel, local) = self.place(line);
        match &mut self.channels[channel] {
            Channel::Dram(dram) => dram.write(local, at),
            Channel::Media(media) => media.write(local, at, &mut self.counts),
        }
    }

    /// Notes that another socket may hold the line, where such notes are kept. They wait in what room the
    /// channel's write queue has; nobody waits for them but whoever comes to the channel next.
    fn note(&mut self, line: u64, at: Ps) {
        let channel = self.place(line).0;
        let room = match &mut self.channels[channel] {
            Channel::Dram(dram) => dram.room(at),
            Channel::Media(media) => media.room(at),
        };
        let Some(notes) = &mut self.notes else {
            return;
        };
        notes.add(channel, line);
        while let Some(oldest) = self.notes.as_mut().and_then(|notes| notes.beyond(channel, room)) {
            self.counts.written_bytes += self.line_bytes;
            self.counts.noted_bytes += self.line_bytes;
            self.put(oldest, at);
        }
    }

    /// How long a single write of `lines`, each alone in its line of the medium, takes at most.
    pub fn time_of(&self, lines: u64) -> Ps {
        self.write_back + lines * self.line
    }

    /// Writes out what the devices' buffers hold, in no time.
    pub fn settle(&mut self) {
        for channel in &mut self.channels {
            if let Channel::Media(media) = channel {
                media.settle(&mut self.counts);
            }
        }
    }

    /// The channel of a line and its number there.
    #[inline]
    fn place(&self, line: u64) -> (usize, u64) {
        let (piece, rest) = (line / self.interleave_lines, line % self.interleave_lines);
        let channels = self.channels.len() as u64;
        ((piece % channels) as usize, piece / channels * self.interleave_lines + rest)
    }
}
