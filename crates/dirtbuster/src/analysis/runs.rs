//! Sequentiality contexts, in two levels: *runs* of adjacent writes, and the *regions* that they lie in.
//!
//! A run is an unbroken sequence of writes of one function in one thread, each adjacent to the last. So several arrays
//! that are written in turn, with temporaries between them, are one run each. A write continues a run if it
//! - begins less than a line behind the last write's end, or ends less than a line before its begin (a descending run),
//! - or goes to bytes of the run's current line that this run has not written (fields of a structure in any order),
//! - or is the overlapping tail of a vector copy.
//!
//! A run that closes is *sequential* if it is longer than a line and wrote at least half of the bytes that it passed;
//! random writes to a small table often meet a neighbour, but leave holes.
//!
//! A region is what runs of one function share: pages in contact. It stands for the object that the paper finds by
//! tracking `malloc`; tracers without registers do not show a call's arguments, so this is the paper's fall-back.

use super::thresholds::LINE_BYTES;

/// Open runs: more arrays written in turn than this are not sequential writing.
const OPEN_RUNS: usize = 1 << 14;
/// Within this many instructions a store over bytes just written is the tail of a vector copy.
const TAIL_INSTRUCTIONS: u64 = 64;
/// The smallest store that is a vector's.
const VECTOR_BYTES: u64 = 16;

/// An open run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    function: u32,
    thread: u32,
    pub(super) unit: u32,
    pub(super) region: u32,
    start: u64,
    end: u64,
    last_start: u64,
    last_end: u64,
    /// Bytes of the current line that it has written.
    mask: u64,
    written_bytes: u64,
    pub(super) writes: u64,
    /// Whether it began over a line that was written before, within the horizon.
    pub(super) rewrites: bool,
    count: u64,
}

impl Run {
    /// How many bytes it passed.
    pub(super) fn extent(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// The bytes that it passed.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Whether it is long and dense enough.
    pub(super) fn is_sequential(&self, run_bytes: u64) -> bool {
        self.extent() >= run_bytes && self.written_bytes.saturating_mul(2) >= self.extent()
    }

    fn line(&self) -> u64 {
        self.last_start / LINE_BYTES
    }

    fn continues(&self, write: &Write) -> bool {
        let end = write.end();
        let ahead = write.address >= self.last_end && write.address - self.last_end < LINE_BYTES;
        let behind = end <= self.last_start && self.last_start - end < LINE_BYTES;
        // Growing at either edge; a hole inside is for the mask.
        let grows = ahead && end > self.end || behind && write.address < self.start;
        let over_the_end = write.address < self.last_end
            && end > self.last_end
            && write.address > self.last_start
            && end >= self.end;
        let in_line = write.address / LINE_BYTES == self.line()
            && write.mask() & self.mask == 0
            && end - self.line() * LINE_BYTES <= LINE_BYTES;
        let tail = write.size >= VECTOR_BYTES
            && write.count.saturating_sub(self.count) <= TAIL_INSTRUCTIONS
            && write.address < self.end
            && write.address >= self.start
            && self.end - write.address <= 4 * LINE_BYTES;
        grows || over_the_end || in_line || tail
    }

    fn extend(&mut self, write: &Write) {
        let end = write.end();
        let same_line = write.address / LINE_BYTES == self.line();
        self.mask = if same_line { self.mask | write.mask() } else { write.mask() };
        // A tail's overlap was counted before.
        let fresh = end.saturating_sub(self.end.max(write.address))
            + self.start.saturating_sub(write.address).min(write.size);
        let inside = if fresh == 0 && same_line { write.size } else { fresh };
        self.written_bytes = self.written_bytes.saturating_add(inside);
        self.start = self.start.min(write.address);
        self.end = self.end.max(end);
        self.last_start = write.address;
        self.last_end = end;
        self.writes += 1;
        self.count = write.count;
    }
}

/// A write, as runs see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) count: u64,
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) function: u32,
    pub(super) thread: u32,
}

impl Write {
    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }

    /// Its bytes in its first line.
    pub(super) fn mask(&self) -> u64 {
        bytes_of(self.address, self.size)
    }
}

/// The bytes of an access in its first line, a bit each.
pub(super) fn bytes_of(address: u64, size: u64) -> u64 {
    let from = address % LINE_BYTES;
    let size = size.min(LINE_BYTES - from);
    let ones = if size == LINE_BYTES { u64::MAX } else { (1 << size) - 1 };
    ones << from
}

/// All open runs, each found by the line of its last write.
#[derive(Debug)]
pub(super) struct Runs {
    open: Vec<Option<Run>>,
}

/// What a write did to the runs.
pub(super) enum Placed {
    /// It continued this one. The second says whether it entered another line.
    Continued(usize, bool),
    /// It continued none.
    Alone,
}

impl Runs {
    pub(super) fn new() -> Runs {
        Runs { open: vec![None; OPEN_RUNS] }
    }

    fn slot(line: u64, write: &Write) -> usize {
        let key = line ^ u64::from(write.function) << 40 ^ u64::from(write.thread) << 54;
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize % OPEN_RUNS
    }

    /// Continues a run, if one fits. A run that is in the way of its new place comes out closed.
    pub(super) fn place(&mut self, write: &Write, closed: &mut Option<Run>) -> Placed {
        let line = write.address / LINE_BYTES;
        let (next, last) = (line.wrapping_add(1), line.wrapping_sub(1));
        for at in [line, last, next] {
            let slot = Runs::slot(at, write);
            let Some(run) = &mut self.open[slot] else { continue };
            let own = run.function == write.function && run.thread == write.thread;
            if !own || !run.continues(write) {
                continue;
            }
            let before = run.line();
            run.extend(write);
            if run.line() == before {
                return Placed::Continued(slot, false);
            }
            let run = self.open[slot].take();
            let moved = Runs::slot(line, write);
            *closed = std::mem::replace(&mut self.open[moved], run);
            return Placed::Continued(moved, true);
        }
        Placed::Alone
    }

    /// Opens a run with this write; the one whose place it takes comes out closed.
    pub(super) fn open(
        &mut self,
        write: &Write,
        unit: u32,
        region: u32,
        rewrites: bool,
    ) -> Option<Run> {
        let run = Run {
            function: write.function,
            thread: write.thread,
            unit,
            region,
            start: write.address,
            end: write.end(),
            last_start: write.address,
            last_end: write.end(),
            mask: write.mask(),
            written_bytes: write.size,
            writes: 1,
            rewrites,
            count: write.count,
        };
        self.open[Runs::slot(write.address / LINE_BYTES, write)].replace(run)
    }

    /// The unit and the region of an open run.
    pub(super) fn owner(&self, slot: usize) -> Option<(u32, u32)> {
        self.open[slot].as_ref().map(|run| (run.unit, run.region))
    }

    /// Closes all.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = Run> + '_ {
        self.open.iter_mut().filter_map(Option::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_first_line() {
        assert_eq!(bytes_of(0, 8), 0xff);
        assert_eq!(bytes_of(60, 8), 0xf << 60);
        assert_eq!(bytes_of(128, 64), u64::MAX);
        assert_eq!(bytes_of(1, 0), 0);
    }
}
