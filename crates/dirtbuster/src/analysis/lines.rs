//! What is remembered of each line of memory that a monitored function wrote.
//!
//! The paper keeps a B-tree; here it is a table of pages with the last page beside it, because most accesses go to the
//! page of the one before. Re-use is looked for by the byte: a read of the neighbour in the line that is being written
//! is no re-read (MG's `psinv` reads `u[i+1]` right after it wrote `u[i]`, and the paper prints `inf` for it).

use super::thresholds::LINE_BYTES;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const PAGE_BYTES: u64 = 4096;
const LINES: usize = (PAGE_BYTES / LINE_BYTES) as usize;

/// What is known of one line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// When it was last written; 0 if never.
    pub(super) written: u64,
    /// The bytes that its last visit wrote.
    pub(super) mask: u64,
    pub(super) region: u32,
    pub(super) site: u32,
    pub(super) thread: u32,
    /// Whether that visit's bytes were read since.
    pub(super) was_read: bool,
    /// Whether another thread has read or written them, which counts once.
    pub(super) was_shared: bool,
}

/// A hash for addresses: they are not chosen by an adversary.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// A map by address.
pub(crate) type ByAddress<K, V> = HashMap<K, V, BuildHasherDefault<AddressHasher>>;

/// Lines by their number.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pages: ByAddress<u64, u32>,
    lines: Vec<[Line; LINES]>,
    last: Option<(u64, Option<u32>)>,
}

impl Lines {
    /// The line, if its page has one that was written.
    pub(super) fn seen(&mut self, line: u64) -> Option<&mut Line> {
        let page = line / LINES as u64;
        let at = match self.last {
            Some((last, at)) if last == page => at,
            _ => {
                let at = self.pages.get(&page).copied();
                self.last = Some((page, at));
                at
            }
        };
        let line_in_page = (line % LINES as u64) as usize;
        self.lines.get_mut(at? as usize).map(|page| &mut page[line_in_page])
    }

    /// The line, which is going to be written.
    pub(super) fn line(&mut self, line: u64) -> &mut Line {
        let page = line / LINES as u64;
        let at = match self.last {
            Some((last, Some(at))) if last == page => at,
            _ => {
                let next = self.lines.len() as u32;
                let at = *self.pages.entry(page).or_insert(next);
                if at == next {
                    self.lines.push([Line::default(); LINES]);
                }
                self.last = Some((page, Some(at)));
                at
            }
        };
        &mut self.lines[at as usize][(line % LINES as u64) as usize]
    }

    /// Bytes that this table takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.lines.len() * size_of::<[Line; LINES]>()) as u64
    }
}
