//! Recovery: logs are replayed in parallel, then the inner nodes are built (Ni, section 5.4.3).
//!
//! Passes, each by any number of threads, with nothing between them but that one has ended:
//!
//! 1. [`Replay::log`], for each log, from its first segment to the first record that is not whole. A part of
//!    a leaf whose log this is goes into the mapping table, which no other thread does for that leaf; a right
//!    half whose log is another is put aside.
//! 2. [`Replay::attach`], for each log: the halves put aside, of each leaf one at most.
//! 3. [`Replay::order`], for each share of the leaves: those with entries, by the least head of their chains.
//!
//! [`Replay::finish`] builds the inner nodes over all leaves, in further passes: what stands before each leaf, and then
//! level by level the nodes over runs of them. Nothing is written but where an era has ended, so a crash of a recovery
//! changes nothing.
//!
//! What stands between two leaves is taken from their entries, and need not be what stood there before. All
//! heads of a chain, those of dead entries too, lie between those of its neighbours' chains; only where both
//! have the same head are entries and keys looked at.

use super::logs::Logs;
use super::record::{Ends, Header, Kind, LINE, NOTHING, Part, parse};
use super::segments::{Head, Segments, Shape};
use super::step::Step;
use super::table::{Latch, Leaf, State, Table};
use super::{Deltas, Inner, Options, Regions};
use crate::keys::{Entry, Keys, Separator, compare};
use crate::nodes::Child;
use crate::shares::{Pass, spread};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use terrace_memory::{Budget, Memory};

/// A right half whose log is another than that of the record it is in.
struct Aside {
    header: Header,
    at: u64,
    ends: Ends,
    log: u32,
    stamp: u64,
}

/// A log that is being replayed.
#[derive(Default)]
struct Replayed {
    segments: Vec<(u32, Head)>,
    /// Where its records end.
    tail: u64,
    bytes: u64,
    aside: Vec<Aside>,
}

/// Of a leaf of which only deltas were found so far: in place of a log, beside the place of what they stand
/// behind.
const NO_LOG: u32 = u16::MAX as u32;

fn torn_apart(at: u64, leaf: u32) -> io::Error {
    let what = format!(
        "the chain of leaf {leaf} is damaged at {at:#x}: what its parts stand behind is not there"
    );
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn entangled(left: u32, right: u32) -> io::Error {
    let what = format!(
        "the delta logs are damaged: leaf {left} and leaf {right} have keys between one another's"
    );
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A leaf by the least and the greatest head of its chain.
type Ordered = (u128, u128, u32);

/// A leaf and what stands before it; nothing before the first.
type Separated = Child;

/// Fewer leaves than this are not worth a thread.
const LEAST_LEAVES: usize = 4096;

/// A recovery under way.
pub struct Replay<P: Memory, D: Memory = P> {
    deltas: Deltas<P, D>,
    logs: Box<[Mutex<Replayed>]>,
    /// One more than the greatest number of a leaf.
    leaves: AtomicU32,
    entries: AtomicU64,
    ordered: Mutex<Vec<Ordered>>,
}

impl<P: Memory, D: Memory> std::fmt::Debug for Replay<P, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// The index that lies in a memory, as a crash or anything else has left it, by so many threads. The
    /// regions in DRAM are zero.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the memory holds none, or damage that no crash explains, with its
    /// offset; and those of the regions.
    pub fn recover<K: Keys + Sync>(
        regions: Regions<P, D>,
        options: &Options,
        threads: usize,
        keys: &K,
        budget: &Arc<Budget>,
    ) -> io::Result<Deltas<P, D>> {
        let replay = Replay::open(regions, options, budget)?;
        if threads <= 1 {
            (0..replay.logs()).try_for_each(|log| replay.log(log))?;
            (0..replay.logs()).try_for_each(|log| replay.attach(log))?;
            replay.order(0, 1)?;
            return replay.finish(keys, 1, &spread);
        }
        let barrier = Barrier::new(threads);
        let [to_replay, to_attach, to_order] = [0, 0, 0].map(AtomicU32::new);
        let failed = Mutex::new(None);
        let each = |next: &AtomicU32, end: u32, does: &dyn Fn(u32) -> io::Result<()>| {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= end || failed.lock().is_some() {
                    return;
                }
                if let Err(error) = does(number) {
                    failed.lock().get_or_insert(error);
                }
            }
        };
        let work = || {
            each(&to_replay, replay.logs(), &|log| replay.log(log));
            barrier.wait();
            each(&to_attach, replay.logs(), &|log| replay.attach(log));
            barrier.wait();
            let shares = threads as u32;
            each(&to_order, shares, &|share| replay.order(share, shares));
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        failed.into_inner().map_or(Ok(()), Err)?;
        replay.finish(keys, threads, &spread)
    }
}

impl<P: Memory, D: Memory> Replay<P, D> {
    /// Reads the heads of all segments.
    ///
    /// # Errors
    /// As [`Deltas::recover`].
    pub fn open(
        regions: Regions<P, D>,
        options: &Options,
        budget: &Arc<Budget>,
    ) -> io::Result<Self> {
        let (segments, shape) = Segments::open(regions.logs, budget, options.steps)?;
        let Shape { logs, segment_bytes, node_bytes, .. } = shape;
        let options = &Options { logs, segment_bytes, node_bytes, ..*options };
        options.check()?;
        let mut heads = Vec::new();
        for segment in 0..segments.in_use() {
            heads.extend(segments.head(segment)?.map(|head| (segment, head)));
        }
        let last = heads.iter().map(|(_, head)| head.stamp).fold(shape.era, u64::max);
        segments.number_from(last + 1);
        // Of a load that was cut off nothing counts. That is said before any of its segments is free: with
        // their heads, their numbers would be forgotten.
        let era = if shape.is_loading { segments.begin_era() } else { shape.era };
        let mut logs: Vec<Replayed> = (0..shape.logs).map(|_| Replayed::default()).collect();
        for (segment, head) in heads {
            let Some(log) = logs.get_mut(head.log as usize) else {
                let what = format!(
                    "segment {segment} says that it is of log {}, of {}",
                    head.log, shape.logs
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            };
            match head.stamp < era {
                true => segments.end(segment),
                false => log.segments.push((segment, head)),
            }
        }
        logs.iter_mut().for_each(|log| log.segments.sort_by_key(|(_, head)| head.stamp));
        let used: Vec<u32> =
            logs.iter().flat_map(|log| &log.segments).map(|(segment, _)| *segment).collect();
        segments.resume(&used);
        let table = Table::new(regions.table, shape.logs, options.recent, budget)?;
        let inner = Inner::new(regions.inner, 0, budget)?;
        let logs_of = Logs::new(segments, shape.logs, options.bounds_garbage);
        Ok(Replay {
            deltas: Deltas { logs: logs_of, table, inner, items: options.items() },
            logs: logs.into_iter().map(Mutex::new).collect(),
            leaves: AtomicU32::new(0),
            entries: AtomicU64::new(0),
            ordered: Mutex::new(Vec::new()),
        })
    }

    /// Logs there are.
    pub fn logs(&self) -> u32 {
        self.logs.len() as u32
    }

    /// Replays a log: the first pass.
    ///
    /// # Errors
    /// As [`Deltas::recover`].
    pub fn log(&self, log: u32) -> io::Result<()> {
        let segments = &self.deltas.logs.segments;
        let mut replayed = self.logs[log as usize].lock();
        let Replayed { segments: held, tail, bytes, aside } = &mut *replayed;
        for (place, (segment, head)) in held.iter().enumerate() {
            let at = segments.at(*segment);
            let end = self.segment(log, at, head.stamp, aside)?;
            *bytes += end - LINE;
            *tail = at + end;
            let more = match held.get(place + 1) {
                Some((_, after)) => (after.before_end != end).then_some(after.before_end),
                None => self.record_behind(at, end, head.stamp),
            };
            if let Some(more) = more {
                let what = format!(
                    "log {log} is damaged at {:#x}: a record of segment {segment} does not match its checksum, \
                     and there are records up to byte {more} of it",
                    at + end
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(())
    }

    /// Replays a segment; returns where its records end, bytes from its beginning.
    fn segment(&self, log: u32, at: u64, stamp: u64, aside: &mut Vec<Aside>) -> io::Result<u64> {
        let segments = &self.deltas.logs.segments;
        // SAFETY: committed by the opening, and nobody writes it before the recovery is done.
        let bytes = unsafe { segments.memory.bytes(at, segments.bytes) };
        let verify = segments.steps.has(Step::RecordChecksum);
        let stamp_wanted = segments.steps.has(Step::RecordStamp).then_some(stamp);
        let mut offset = LINE;
        while let Some((parts, length)) =
            parse(&bytes[offset as usize..], at + offset, stamp_wanted, verify)
        {
            for part in parts.iter().flatten() {
                self.part(log, part, stamp, aside)?;
            }
            offset += length;
        }
        Ok(offset)
    }

    /// The end of a whole record behind the first that is not: a crash leaves none, since of two the later
    /// is written when the earlier is durable.
    fn record_behind(&self, at: u64, end: u64, stamp: u64) -> Option<u64> {
        let segments = &self.deltas.logs.segments;
        // SAFETY: as in `segment`.
        let bytes = unsafe { segments.memory.bytes(at, segments.bytes) };
        let mut behind = (end + LINE..segments.bytes).step_by(LINE as usize);
        behind.find_map(|offset| {
            let (_, length) = parse(&bytes[offset as usize..], at + offset, Some(stamp), true)?;
            Some(offset + length)
        })
    }

    /// What a part says of its leaf.
    #[inline]
    fn part(
        &self,
        log: u32,
        part: &Part<'_>,
        stamp: u64,
        aside: &mut Vec<Aside>,
    ) -> io::Result<()> {
        let header = part.header;
        if header.kind == Kind::Mark {
            return Ok(());
        }
        if self.deltas.logs.of(header.leaf) != log {
            aside.push(Aside { header, at: part.at, ends: part.ends(), log, stamp });
            return Ok(());
        }
        let (mut leaf, mut ends) = self.known(header.leaf)?;
        let (table, bytes) = (&self.deltas.table, header.bytes() as u32);
        let begins = matches!(header.kind, Kind::Base | Kind::Dead) || header.next == 0;
        let follows = header.version == leaf.version + 1
            && header.next == leaf.head
            && header.ordinal == leaf.items;
        match (begins, leaf.version) {
            (true, before) if header.version > before => leaf.other = None,
            // The first of its log: what it stands behind is in another, or lost.
            (false, 0) => leaf.other = Some((NO_LOG, header.next)),
            (false, _) if follows => {}
            _ => return Err(torn_apart(part.at, header.leaf)),
        }
        leaf.head = part.at;
        leaf.version = header.version;
        leaf.state = if header.kind == Kind::Dead { State::Gone } else { State::Live };
        if begins {
            (leaf.base, leaf.items, leaf.live) = (header.version, header.count, header.count);
            (leaf.bytes, leaf.other_bytes) = (bytes.next_multiple_of(LINE as u32), 0);
            ends = part.ends();
            table.remember_some(header.leaf, 0);
        } else {
            leaf.items = header.ordinal.wrapping_add(1);
            let killed = u8::from(header.kills != NOTHING);
            leaf.live = leaf.live.wrapping_add(header.count).wrapping_sub(killed);
            leaf.bytes += LINE as u32;
            ends = ends.and(part.ends());
            table.remember_some(header.leaf, header.next);
        }
        table.set(header.leaf, &leaf);
        table.set_ends(header.leaf, ends);
        Ok(())
    }

    /// What is known of a leaf so far.
    #[inline]
    fn known(&self, number: u32) -> io::Result<(Leaf, Ends)> {
        self.deltas.table.cover(number)?;
        self.leaves.fetch_max(number + 1, Relaxed);
        let leaf = self.deltas.table.leaf(number);
        let ends = if leaf.version == 0 { Ends::NONE } else { self.deltas.table.ends(number) };
        Ok((leaf, ends))
    }

    /// Attaches what was put aside of a log: the second pass.
    ///
    /// # Errors
    /// As [`Deltas::recover`].
    pub fn attach(&self, log: u32) -> io::Result<()> {
        for aside in std::mem::take(&mut self.logs[log as usize].lock().aside) {
            let Aside { header, at, ends, log, stamp } = aside;
            let (mut leaf, mut all) = self.known(header.leaf)?;
            let wanted = leaf.other.filter(|(log, _)| *log == NO_LOG).map(|(_, at)| at);
            leaf.other = Some((log, stamp));
            if header.version > leaf.base {
                // Deltas of its own log stand behind it, or there is nothing else.
                if leaf.version > 0 && (wanted != Some(at) || header.version >= leaf.version) {
                    return Err(torn_apart(at, header.leaf));
                }
                leaf.base = header.version;
                leaf.other_bytes = header.bytes() as u32;
                if leaf.version < header.version {
                    // It is all there is.
                    leaf = Leaf {
                        head: at,
                        version: header.version,
                        items: header.count,
                        live: header.count,
                        state: State::Live,
                        bytes: 0,
                        ..leaf
                    };
                    all = ends;
                    self.deltas.table.remember_some(header.leaf, 0);
                } else {
                    leaf.live = leaf.live.wrapping_add(header.count);
                    all = all.and(ends);
                }
            }
            self.deltas.table.set(header.leaf, &leaf);
            self.deltas.table.set_ends(header.leaf, all);
        }
        Ok(())
    }

    /// Puts the leaves of a share of them in order: the third pass.
    ///
    /// # Errors
    /// As [`Deltas::recover`].
    pub fn order(&self, share: u32, shares: u32) -> io::Result<()> {
        let leaves = u64::from(self.leaves.load(Relaxed));
        let [from, to] =
            [share, share + 1].map(|share| (leaves * u64::from(share) / u64::from(shares)) as u32);
        let (mut ordered, mut entries) = (Vec::new(), 0);
        for number in from..to {
            let leaf = self.deltas.table.leaf(number);
            if leaf.version > 0 && leaf.base == 0 {
                return Err(torn_apart(leaf.head, number));
            }
            let ends = self.deltas.table.ends(number);
            self.deltas.table.set_ends(number, Ends { least: 0, most: 0 });
            if leaf.state == State::Live && leaf.live == 0 {
                let gone = Leaf { state: State::Gone, bytes: 0, other_bytes: 0, ..leaf };
                self.deltas.table.set(number, &gone);
                continue;
            }
            self.count(number, &leaf);
            if leaf.state == State::Live {
                entries += u64::from(leaf.live);
                ordered.push((ends.least, ends.most, number));
            }
        }
        ordered.sort_unstable();
        self.entries.fetch_add(entries, Relaxed);
        self.ordered.lock().append(&mut ordered);
        Ok(())
    }

    /// A chain's bytes count.
    fn count(&self, number: u32, leaf: &Leaf) {
        let logs = &self.deltas.logs;
        logs.log(logs.of(number)).live.fetch_add(i64::from(leaf.bytes), Relaxed);
        if let Some((log, _)) = leaf.other {
            logs.log(log).live.fetch_add(i64::from(leaf.other_bytes), Relaxed);
        }
    }

    /// Builds the inner nodes, in passes of at most `threads` parts each, and hands the index over.
    ///
    /// # Errors
    /// As [`Deltas::recover`].
    pub fn finish<K: Keys + Sync>(
        self,
        keys: &K,
        threads: usize,
        pass: Pass<'_>,
    ) -> io::Result<Deltas<P, D>> {
        let Replay { deltas, logs, leaves, entries, ordered } = self;
        for (log, replayed) in logs.into_iter().enumerate() {
            let Replayed { segments, tail, bytes, .. } = replayed.into_inner();
            let held: VecDeque<_> =
                segments.iter().map(|(segment, head)| (*segment, head.stamp)).collect();
            deltas.logs.resume(log as u32, held, tail, &deltas.table);
            deltas.logs.log(log as u32).used.store(bytes, Relaxed);
        }
        deltas.logs.log(0).entries.store(entries.into_inner() as i64, Relaxed);
        let next = leaves.into_inner();
        let is_free = |leaf: &u32| deltas.table.leaf(*leaf).version == 0;
        deltas.table.resume(next, (0..next).rev().filter(is_free).collect());
        let mut ordered = ordered.into_inner();
        // Shares are in order already, which a stable sort makes use of.
        ordered.sort();
        if ordered.is_empty() {
            deltas.inner.restart(super::first_leaf(&deltas.table, keys)?, keys);
            return Ok(deltas);
        }
        let leaves = deltas.separated(&ordered, keys, threads, pass)?;
        if !keys.could_tell() {
            let what = "an entry of the delta logs names nothing that has a key";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        deltas.inner.build(leaves, threads, pass)?;
        Ok(deltas)
    }
}

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// Leaves with what stands before each, from leaves by their least heads.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if a leaf has keys between those of another: of a split that is lost the right
    /// half may be there all the same.
    fn separated<K: Keys + Sync>(
        &self,
        ordered: &[Ordered],
        keys: &K,
        threads: usize,
        pass: Pass<'_>,
    ) -> io::Result<Vec<Separated>> {
        let shares = threads.min(ordered.len() / LEAST_LEAVES).max(1);
        let follows = |place: usize| ordered[place - 1].1 >= ordered[place].0;
        // Leaves that may have entries of one head between them are of one share.
        let from = |share: usize| {
            let even = ordered.len() * share / shares;
            (even..ordered.len()).find(|place| *place == 0 || !follows(*place))
        };
        let end = |share: usize| from(share).unwrap_or(ordered.len());
        let found: Vec<_> = (0..shares).map(|_| Mutex::new(Ok(Vec::new()))).collect();
        let work = |share: u32| {
            let share = share as usize;
            let places = end(share)..end(share + 1);
            *found[share].lock() = self.separated_share(ordered, places, keys);
        };
        match shares {
            1 => work(0),
            shares => pass(shares as u32, &work),
        }
        let mut leaves = Vec::with_capacity(ordered.len());
        for share in found {
            leaves.append(&mut share.into_inner()?);
        }
        Ok(leaves)
    }

    /// The same of a share of them, which begins and ends between heads.
    fn separated_share<K: Keys>(
        &self,
        ordered: &[Ordered],
        places: Range<usize>,
        keys: &K,
    ) -> io::Result<Vec<Separated>> {
        let to_next = places.start..ordered.len().min(places.end + 1);
        if let Some([(.., left), (.., right)]) =
            ordered[to_next].array_windows().find(|[before, after]| before.1 > after.0)
        {
            return Err(entangled(*left, *right));
        }
        let mut leaves = Vec::with_capacity(places.len());
        for run in ordered[places.clone()].chunk_by(|before, after| before.1 >= after.0) {
            let is_first = places.start == 0 && leaves.is_empty();
            let separator = (!is_first).then_some(Separator { head: run[0].0, tie: None });
            match run {
                [(_, _, leaf)] => leaves.push((separator, u64::from(*leaf))),
                run => leaves.extend(self.separated_by_keys(separator, run, keys)?),
            }
        }
        Ok(leaves)
    }

    /// The same of leaves that may have entries of one head between them.
    fn separated_by_keys(
        &self,
        first: Option<Separator>,
        run: &[Ordered],
        keys: &impl Keys,
    ) -> io::Result<Vec<Separated>> {
        let ends = |leaf: u32| -> [Entry; 2] {
            let latch: Latch<'_, D> = self.table.latch(leaf, keys);
            let entries = self.entries(&latch, keys);
            [entries[0], entries[entries.len() - 1]]
        };
        let mut leaves: Vec<_> = run.iter().map(|(_, _, leaf)| (ends(*leaf), *leaf)).collect();
        leaves.sort_by(|(a, _), (b, _)| compare(a[0], b[0], keys));
        let mut separators = vec![first];
        for [(left, left_leaf), (right, right_leaf)] in leaves.array_windows() {
            // Of keys that cannot be told nothing is known.
            if keys.could_tell() && compare(left[1], right[0], keys) != Ordering::Less {
                return Err(entangled(*left_leaf, *right_leaf));
            }
            separators.push(Some(Separator::between(left[1], right[0], keys)));
        }
        Ok(separators.into_iter().zip(leaves.iter().map(|(_, leaf)| u64::from(*leaf))).collect())
    }
}
