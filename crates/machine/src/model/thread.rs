//! A logical thread: its clock, and what its core has under way for it.
//!
//! An out-of-order core overlaps what does not depend on one another. From a trace of accesses it
//! cannot be told what depends, so the interface decides, and structures get what they write:
//!
//! * A load (`load`, `load_line`, `compare_exchange`) blocks: its result may be the next address.
//! * The lines of one `read`, `bytes` or `copy_changing` overlap, up to the line fill buffers; so do
//!   prefetches, which nobody waits for until the line is used.
//! * Stores, write-backs and streams go on in the background until a buffer is full or a fence waits.

use super::counters::ThreadCounts;
use super::time::Ps;

/// Most line fill buffers and stores of a preset.
const BUFFERS_MAX: usize = 64;
/// Lines under way that are remembered.
const UNDER_WAY: usize = 64;
/// Sequential readers that a core's prefetcher tells apart.
const STREAMS: usize = 16;
/// Lines that a core's prefetcher can have under way: the second cache's queue, which is apart from
/// the line fill buffers.
const AHEAD: usize = 32;

/// Entries of a hardware queue, each taken until a time. They are taken in turn.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    until: [Ps; BUFFERS_MAX],
    count: usize,
    next: usize,
}

impl Entries {
    fn new(count: usize) -> Self {
        Entries { until: [0; BUFFERS_MAX], count, next: 0 }
    }

    /// When the next entry is free, not before `at`.
    pub fn free(&self, at: Ps) -> Ps {
        at.max(self.until[self.next])
    }

    /// Takes the next entry until `until`.
    pub fn take(&mut self, until: Ps) {
        self.until[self.next] = until;
        self.next = if self.next + 1 == self.count { 0 } else { self.next + 1 };
    }
}

/// A line that is not yet there.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    line: u64,
    until: Ps,
    stored: bool,
}

/// Misses of consecutive lines.
#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u64,
    run: u64,
    /// The lines before this were asked for.
    until: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub clock: Ps,
    pub core: usize,
    pub socket: usize,
    pub fill: Entries,
    pub stores: Entries,
    pub ahead: Entries,
    /// When the last store so far is in the cache.
    pub drained: Ps,
    /// When the last write-back or stream so far is accepted.
    pub accepted: Ps,
    /// Lines written and kept private (`Stores::Lazy`), the oldest first.
    pub private: Vec<u64>,
    /// The line that a write-combining buffer has open.
    pub streaming: Option<u64>,
    pub counts: ThreadCounts,
    /// Lines that are not yet there, or not to be asked for again, and when they are.
    under_way: [UnderWay; UNDER_WAY],
    under_way_next: usize,
    under_way_until: Ps,
    streams: [Stream; STREAMS],
    streams_next: usize,
}

impl Thread {
    pub fn new(core: usize, socket: usize, fill_buffers: usize, store_buffer: usize) -> Self {
        Thread {
            clock: 0,
            core,
            socket,
            fill: Entries::new(fill_buffers),
            stores: Entries::new(store_buffer),
            ahead: Entries::new(AHEAD),
            drained: 0,
            accepted: 0,
            private: Vec::with_capacity(store_buffer + 1),
            streaming: None,
            counts: ThreadCounts::default(),
            under_way: [UnderWay { line: u64::MAX, until: 0, stored: false }; UNDER_WAY],
            under_way_next: 0,
            under_way_until: 0,
            streams: [Stream { last: u64::MAX / 2, run: 0, until: 0 }; STREAMS],
            streams_next: 0,
        }
    }

    /// Notes that `line` is under way until `until`; `stored` if it is because of a store to it.
    pub fn send(&mut self, line: u64, until: Ps, stored: bool) {
        self.under_way[self.under_way_next] = UnderWay { line, until, stored };
        self.under_way_next = (self.under_way_next + 1) % UNDER_WAY;
        self.under_way_until = self.under_way_until.max(until);
    }

    /// When `line` is there: at once, unless it is under way at `at`.
    #[inline]
    pub fn arrival(&self, line: u64, at: Ps) -> Ps {
        self.latest(line, at, |_| true)
    }

    /// When a load has the word it wants of `line`: from the store buffer, if a store to the line is
    /// why it is under way. (It is taken to be a store to that word.)
    #[inline]
    pub fn load_arrival(&self, line: u64, at: Ps) -> Ps {
        self.latest(line, at, |way| !way.stored)
    }

    #[inline]
    fn latest(&self, line: u64, at: Ps, counts: impl Fn(&UnderWay) -> bool) -> Ps {
        if self.under_way_until <= at {
            return at;
        }
        let ways = self.under_way.iter().filter(|way| way.line == line && counts(way));
        ways.map(|way| way.until).max().map_or(at, |last| last.max(at))
    }

    /// The processor's prefetcher sees a miss of the nearest cache: which lines it fetches now. A
    /// sequence is followed the further ahead the longer it is, `most` lines at the most.
    pub fn lines_ahead(&mut self, line: u64, most: u64) -> std::ops::Range<u64> {
        let known = self.streams.iter_mut().find(|stream| line.wrapping_sub(stream.last) <= 1);
        let Some(stream) = known else {
            self.streams[self.streams_next] = Stream { last: line, run: 0, until: line + 1 };
            self.streams_next = (self.streams_next + 1) % STREAMS;
            return 0..0;
        };
        if stream.last == line {
            return 0..0;
        }
        stream.last = line;
        stream.run += 1;
        let from = stream.until.max(line + 1);
        stream.until = from.max(line + 1 + most.min(2 * stream.run));
        from..stream.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_in_turn() {
        let mut entries = Entries::new(2);
        assert_eq!(entries.free(5), 5);
        entries.take(100);
        entries.take(50);
        assert_eq!(entries.free(5), 100);
        entries.take(120);
        assert_eq!(entries.free(5), 50);
    }

    #[test]
    fn a_pending_line_arrives_at_its_time() {
        let mut thread = Thread::new(0, 0, 10, 56);
        thread.send(7, 100, false);
        thread.send(9, 100, true);
        assert_eq!(thread.arrival(7, 10), 100);
        assert_eq!(thread.arrival(8, 10), 10);
        assert_eq!(thread.arrival(7, 200), 200);
        assert_eq!(thread.arrival(9, 10), 100);
        assert_eq!(thread.load_arrival(9, 10), 10, "the store buffer has it");
    }

    #[test]
    fn sequences_are_followed_further_and_further() {
        let mut thread = Thread::new(0, 0, 10, 56);
        let misses = [10, 70, 11, 71, 12, 13, 30];
        let ahead: Vec<_> = misses.iter().map(|line| thread.lines_ahead(*line, 4)).collect();
        assert_eq!(ahead, [0..0, 0..0, 12..14, 72..74, 14..17, 17..18, 0..0]);
    }
}
