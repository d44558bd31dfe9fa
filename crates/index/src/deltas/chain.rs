//! A leaf's chain: deltas, newest first, and a base behind them.

use super::record::{Header, ITEMS_MOST, Kind, LINE, NOTHING, UNIT, Words};
use super::segments::Segments;
use crate::keys::{Entry, Keys, Probe, compare};
use std::cmp::Ordering;
use terrace_memory::Memory;

/// An entry that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) ordinal: u8,
    pub(super) value: [u64; 2],
}

/// The chain was changed while it was read, and what was read is nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed;

/// Ordinals of entries that later deltas have killed.
#[derive(Clone, Copy, Default)]
struct Killed(u128);

impl Killed {
    #[inline(always)]
    fn add(&mut self, ordinal: u8) {
        if ordinal != NOTHING {
            self.0 |= 1 << (ordinal as usize % ITEMS_MOST);
        }
    }

    #[inline(always)]
    fn has(self, ordinal: u8) -> bool {
        self.0 >> (ordinal as usize % ITEMS_MOST) & 1 != 0
    }
}

/// Reads chains, which other threads may be changing: offsets are followed only as far as there is memory,
/// and `holds` says whether what was read was a chain.
pub(super) struct Chain<'a, P: Memory, H> {
    pub(super) segments: &'a Segments<P>,
    /// Where it begins; 0: it is empty.
    pub(super) head: u64,
    pub(super) holds: H,
}

impl<P: Memory, H: Fn() -> bool> Chain<'_, P, H> {
    /// Whether a part of so many entries at `at` lies in what may be read.
    #[inline(always)]
    fn covers(&self, at: u64, count: u8) -> bool {
        at.is_multiple_of(UNIT) && at + UNIT * (1 + u64::from(count)) <= self.segments.committed()
    }

    /// Visits the parts, newest first, with the words behind their headers, until `visit` says something.
    #[inline(always)]
    fn walk<R>(
        &self,
        mut visit: impl FnMut(&Header, &mut Words<'_, P>) -> Result<Option<R>, Changed>,
    ) -> Result<Option<R>, Changed> {
        let mut at = self.head;
        for _ in 0..=ITEMS_MOST {
            if at == 0 {
                return Ok(None);
            }
            if !self.covers(at, 0) {
                return Err(Changed);
            }
            let mut words = Words::new(&self.segments.memory, at);
            let header = Header::of(std::array::from_fn(|_| words.next()));
            if !self.covers(at, header.count) || header.kind == Kind::Unknown {
                return Err(Changed);
            }
            if let Some(found) = visit(&header, &mut words)? {
                return Ok(Some(found));
            }
            at = match header.kind {
                Kind::Base | Kind::Dead => 0,
                _ => header.next,
            };
        }
        Err(Changed)
    }

    /// The entry of a key.
    #[inline]
    pub(super) fn find(&self, probe: &Probe<'_, impl Keys>) -> Result<Option<Found>, Changed> {
        self.find_where(probe.head, |entry| probe.entry(entry) == Ordering::Equal)
    }

    /// The entry that is exactly this.
    pub(super) fn find_exactly(&self, wanted: Entry) -> Result<Option<Found>, Changed> {
        self.find_where(wanted.head, |entry| entry == wanted)
    }

    /// The first entry of this head that `is_it` says yes to, which is asked of entries that are known to be
    /// in the chain.
    #[inline(always)]
    fn find_where(
        &self,
        head: u128,
        is_it: impl Fn(Entry) -> bool,
    ) -> Result<Option<Found>, Changed> {
        let is_it = |entry: Entry| match (self.holds)() {
            true => Ok(is_it(entry)),
            false => Err(Changed),
        };
        let mut killed = Killed::default();
        self.walk(|header, words| match header.kind {
            Kind::Put => {
                let entry = entry_of(words);
                if entry.head == head && !killed.has(header.ordinal) && is_it(entry)? {
                    return Ok(Some(Found { ordinal: header.ordinal, value: entry.value }));
                }
                killed.add(header.kills);
                Ok(None)
            }
            Kind::Remove => {
                killed.add(header.kills);
                Ok(None)
            }
            _ => self.find_in_base(header.count, words, killed, head, &is_it),
        })
    }

    #[inline]
    fn find_in_base(
        &self,
        count: u8,
        words: &mut Words<'_, P>,
        killed: Killed,
        wanted: u128,
        is_it: &impl Fn(Entry) -> Result<bool, Changed>,
    ) -> Result<Option<Found>, Changed> {
        let values = words.position() + 16 * u64::from(count);
        for ordinal in 0..count {
            words.turn();
            let head = u128::from(words.next()) << 64 | u128::from(words.next());
            if head > wanted {
                break;
            }
            if head < wanted || killed.has(ordinal) {
                continue;
            }
            let at = values + 16 * u64::from(ordinal);
            let mut at_value = Words::new(&self.segments.memory, at);
            let value = [at_value.next(), at_value.next()];
            if is_it(Entry { head, value })? {
                return Ok(Some(Found { ordinal, value }));
            }
        }
        Ok(None)
    }

    /// All entries that count, in order.
    pub(super) fn gather(&self, keys: &impl Keys) -> Result<Vec<Entry>, Changed> {
        let mut entries = Vec::with_capacity(32);
        self.gather_with(|_, entry| entries.push(entry))?;
        if !(self.holds)() {
            return Err(Changed);
        }
        entries.sort_by(|a, b| compare(*a, *b, keys));
        Ok(entries)
    }

    /// Visits all entries that count, in no order.
    fn gather_with(&self, mut visit: impl FnMut(u8, Entry)) -> Result<(), Changed> {
        let mut killed = Killed::default();
        self.walk(|header, words| {
            match header.kind {
                Kind::Put => {
                    if !killed.has(header.ordinal) {
                        visit(header.ordinal, entry_of(words));
                    }
                    killed.add(header.kills);
                }
                Kind::Remove => killed.add(header.kills),
                _ => {
                    let heads = words.position();
                    let values = heads + 16 * u64::from(header.count);
                    for ordinal in (0..header.count).filter(|ordinal| !killed.has(*ordinal)) {
                        let pair = |at: u64| {
                            let mut words =
                                Words::new(&self.segments.memory, at + 16 * u64::from(ordinal));
                            [words.next(), words.next()]
                        };
                        let [high, low] = pair(heads);
                        let head = u128::from(high) << 64 | u128::from(low);
                        visit(ordinal, Entry { head, value: pair(values) });
                    }
                }
            }
            Ok(None::<()>)
        })
        .map(drop)
    }

    /// Asks for the parts of which the addresses are known.
    #[inline(always)]
    pub(super) fn prefetch(&self, recent: &[u64; 8], ask: impl Fn(&P, u64)) {
        let memory = &self.segments.memory;
        ask(memory, self.head);
        for at in recent.iter().take_while(|at| **at != 0) {
            ask(memory, *at);
        }
        // A base is longer than a line.
        ask(memory, self.head + LINE);
    }
}

/// The one entry of a part, behind its header.
#[inline(always)]
fn entry_of<M: Memory>(words: &mut Words<'_, M>) -> Entry {
    words.turn();
    let head = u128::from(words.next()) << 64 | u128::from(words.next());
    Entry { head, value: [words.next(), words.next()] }
}
