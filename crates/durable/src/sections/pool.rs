//! A pool: a memory, its engine, and the door to sections.

use super::engine::{Engine, EngineKind, Maintenance, Recovery, Written};
use super::error::{Error, Result};
use super::header::{Geometry, Identity, State};
use super::heap::{Heap, HeapCensus, meta_pages};
use super::logged::Group;
use super::media::{Media, PAGE};
use super::options::Options;
use super::redo::{self, Redo};
use super::shadow::{self, Shadow};
use super::tx::{Inside, Leave, Space, Tx};
use super::undo::{self, Undo};
use parking_lot::ReentrantMutex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_memory::Memory;

/// What the lock protects.
pub(super) struct Guarded<M> {
    pub(super) engine: Box<dyn Engine<M>>,
    pub(super) heap: Heap,
    /// Sections open in each other.
    pub(super) depth: u32,
    /// Why the open section will be taken back.
    pub(super) doomed: Option<Error>,
    /// It was closed: no section is opened any more.
    pub(super) ended: bool,
}

/// Where a thread's sections run, one at a time, those within another included.
type Seat<M> = ReentrantMutex<RefCell<Guarded<M>>>;

/// Seats of a pool whose sections run at once.
pub(super) const SEATS: usize = 64;

/// Which of so many seats is this thread's.
fn seat_of_thread(seats: usize) -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| number % seats)
}

/// What makes sections durable beside the lock, and whether each waits for it.
type Behind = (Box<dyn Group>, bool);

/// What a pool is made of.
pub(super) struct Parts<M> {
    pub(super) media: Media<M>,
    /// One for each seat.
    pub(super) engines: Vec<Box<dyn Engine<M>>>,
    pub(super) heap: Heap,
    pub(super) kind: EngineKind,
    pub(super) layout: u64,
    pub(super) recovery: Recovery,
    pub(super) number: u64,
    pub(super) log: Range<u64>,
    pub(super) group: Option<Behind>,
}

/// A memory whose contents change by failure-atomic sections alone.
///
/// The pool owns its memory: as long as it is open, nobody else may touch the same bytes, through
/// another copy of a `Native` or otherwise, and all of `0..memory.len()` must be committed. This is
/// the contract of [`Memory`], which the pool keeps for its own accesses and its caller for all
/// others.
pub struct Pool<M> {
    pub(super) media: Media<M>,
    /// One, or several where sections run at once: a thread always has the same one, and more threads than seats share
    /// them.
    seats: Vec<Seat<M>>,
    engine: EngineKind,
    layout: u64,
    recovery: Recovery,
    number: u64,
    log: Range<u64>,
    group: Option<Behind>,
}

impl<M> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

impl<M: Memory> Pool<M> {
    /// Makes the memory an empty pool, whatever it held. Durable on return; a crash before leaves no
    /// pool.
    ///
    /// # Errors
    /// [`Error::NotByteAddressable`], [`Error::BadOption`], [`Error::MemoryTooSmall`]; then the memory
    /// is as it was.
    pub fn create(memory: M, options: &Options) -> Result<Pool<M>> {
        options.must_be_one_at_a_time()?;
        let media = Media::new(memory, options.steps, false)?;
        let identity = options.identity(&media)?;
        let geometry = Geometry::of(&identity)?;
        Identity::erase(&media);
        media.zero(1024, PAGE - 1024);
        match identity.engine {
            EngineKind::Undo => undo::create(&media, &geometry),
            EngineKind::Redo => redo::create(&media, &geometry),
            EngineKind::Shadow => shadow::create(&media, &geometry),
        }
        let metadata = meta_pages(geometry.pages) * PAGE;
        media.zero(geometry.data_at, metadata);
        for (at, word) in Heap::create(geometry.pages) {
            media.store(geometry.data_at + at, word);
        }
        media.settle(0, geometry.data_at + metadata);
        State { number: 1, clean: true, progress: 0 }.write(&media);
        identity.write(&media);
        Pool::start(media, &identity, &geometry, options)
    }

    /// Opens a pool and recovers it: what was committed is there, what was not is not.
    ///
    /// O(log + journal + page table) for memory read; see [`Pool::recovery`].
    ///
    /// # Errors
    /// [`Error::NoPool`]; [`Error::Mismatch`] with both values; [`Error::Damaged`] for what no crash
    /// explains, after which [`Pool::open_read_only`] shows what is left.
    pub fn open(memory: M, options: &Options) -> Result<Pool<M>> {
        Pool::open_as(memory, options, false)
    }

    /// Opens a pool without changing the memory, damage notwithstanding: recovery's writes stay in a
    /// buffer. Sections may read; [`Recovery::damage`] says what is wrong, and what it concerns may be
    /// old, new or missing.
    ///
    /// # Errors
    /// [`Error::NoPool`], [`Error::Mismatch`]; [`Error::Damaged`] if the head and its copy are.
    pub fn open_read_only(memory: M, options: &Options) -> Result<Pool<M>> {
        Pool::open_as(memory, options, true)
    }

    fn open_as(memory: M, options: &Options, read_only: bool) -> Result<Pool<M>> {
        options.must_be_one_at_a_time()?;
        let media = Media::new(memory, options.steps, read_only)?;
        let mut damage = Vec::new();
        let identity = Identity::read(&media, &mut damage)?;
        identity.check(options)?;
        let geometry = Geometry::of(&identity)?;
        let mut pool = Pool::start(media, &identity, &geometry, options)?;
        pool.recovery.damage.splice(0..0, damage);
        Ok(pool)
    }

    fn start(
        media: Media<M>,
        identity: &Identity,
        geometry: &Geometry,
        options: &Options,
    ) -> Result<Pool<M>> {
        let mut report = Recovery::new(identity.engine);
        let state = State::read(&media, &mut report)?;
        report.was_clean = state.clean;
        let spare = options.spare_of(identity.slots.max(1));
        let pages = [identity.slots - spare, spare];
        let (grain, report_to) = (options.grain, &mut report);
        let engine: Box<dyn Engine<M>> = match identity.engine {
            EngineKind::Undo => Box::new(Undo::open(&media, geometry, grain, report_to)?),
            EngineKind::Redo => Box::new(Redo::open(&media, geometry, grain, report_to)?),
            EngineKind::Shadow => {
                Box::new(Shadow::open(&media, geometry, grain, pages, report_to)?)
            }
        };
        // The log of redo may be torn by a crash, and then does not say how far it had come.
        let is_certain = state.clean || identity.engine != EngineKind::Redo;
        if is_certain && engine.progress() < state.progress {
            let (found, wanted) = (engine.progress(), state.progress);
            let what = format!("the log ends at number {found}; it had reached {wanted}");
            report.damaged(media.is_read_only(), geometry.log_at, what)?;
        }
        let number = state.number + 1;
        State { number, clean: false, progress: engine.progress() }.write(&media);
        Ok(Pool::of(Parts {
            media,
            engines: vec![engine],
            heap: Heap::new(geometry.pages),
            kind: identity.engine,
            layout: identity.layout,
            recovery: report,
            number,
            log: geometry.cell_at..geometry.log_at + geometry.log_bytes,
            group: None,
        }))
    }

    pub(super) fn of(parts: Parts<M>) -> Pool<M> {
        let Parts { media, engines, heap, kind, layout, recovery, number, log, group } = parts;
        let seat = |engine| {
            let guarded = Guarded { engine, heap, depth: 0, doomed: None, ended: false };
            ReentrantMutex::new(RefCell::new(guarded))
        };
        let seats = engines.into_iter().map(seat).collect();
        Pool { media, seats, engine: kind, layout, recovery, number, log, group }
    }

    fn seat(&self) -> &Seat<M> {
        match &self.seats[..] {
            [only] => only,
            seats => &seats[seat_of_thread(seats.len())],
        }
    }

    /// Runs `body` as a section: all of it is durable when this returns `Ok`, and none of it is there
    /// when it returns `Err`, or panics. Inside another section of the same thread it is part of that
    /// one, and durable with it. Other threads' sections wait.
    ///
    /// # Errors
    /// Those of `body`. [`Error::SectionTooLarge`] for more than the log holds;
    /// [`Error::InnerFailed`] if a section inside this one failed and `body` returned `Ok` anyway.
    pub fn section<R, E: From<Error>>(
        &self,
        body: impl FnOnce(&mut Tx<'_, M>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (result, committed) = {
            let state = self.seat().lock();
            let leave = Leave::enter(&self.media, &state)?;
            let result = body(&mut Tx::new(self, &state));
            // Whatever it returns is dropped here if it is not committed: under the lock.
            let result = result.and_then(move |done| Ok(leave.commit().map(|()| done)?));
            let is_outermost = state.borrow().depth == 0;
            let group = self.group.as_ref().filter(|(_, waits)| *waits && is_outermost);
            (result, group.map(|(group, _)| (group, group.committed())))
        };
        // An error may tell of what was read as well.
        let durable = committed.map_or(Ok(()), |(group, committed)| group.wait(committed));
        match durable {
            Ok(()) => result,
            Err(disk) => Err(disk.into()),
        }
    }

    /// Makes all sections that have returned durable. In memory, and where sections [wait](Options::waits), they are.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn sync(&self) -> Result<()> {
        self.group.as_ref().map_or(Ok(()), |(group, _)| group.wait(group.committed()))
    }

    /// Of a pool on a disk, bytes written to its file and syncs, since it was opened.
    pub fn traffic(&self) -> Option<(u64, u64)> {
        self.group.as_ref().map(|(group, _)| group.traffic())
    }

    /// Of a pool on a disk, bytes of its log that are used, and of the whole.
    pub fn log_use(&self) -> Option<[u64; 2]> {
        self.seat().lock().borrow().engine.log_use()
    }

    /// What opening found and did.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The engine.
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// The caller's number for what lies in it.
    pub fn layout(&self) -> u64 {
        self.layout
    }

    /// Bytes of the heap, with its allocation metadata.
    pub fn heap_bytes(&self) -> u64 {
        self.seat().lock().borrow().heap.end()
    }

    /// Whether sections can only read.
    pub fn is_read_only(&self) -> bool {
        self.media.is_read_only()
    }

    /// What the engine wrote back since the pool was opened, recovery included.
    pub fn written(&self) -> Written {
        self.media.written()
    }

    /// Where the commit mark and the log lie in the memory: what libraries with a log for each thread have
    /// as often as threads. The same for all engines; of shadow, the fall-back's.
    pub fn log(&self) -> Range<u64> {
        self.log.clone()
    }

    /// The memory below, for its counters. Touching the pool's bytes through it breaks the pool.
    pub fn memory(&self) -> &M {
        self.media.memory()
    }

    /// The engine's background work, on this thread; sections wait meanwhile. Shadow merges pages
    /// beyond the active ones that were not written for longest, and takes a checkpoint once the
    /// journal is half full; undo and redo have none. Never needed, but sections that find no free
    /// slot or journal do it themselves.
    ///
    /// # Errors
    /// [`Error::InsideSection`], [`Error::ReadOnly`].
    pub fn maintain(&self) -> Result<Maintenance> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let state = self.seat().lock();
        let mut state = state.borrow_mut();
        if state.depth > 0 {
            return Err(Error::InsideSection { what: "maintain" });
        }
        if state.ended {
            return Err(Error::Closed);
        }
        Ok(state.engine.maintain(&self.media))
    }

    /// Whether sections are refused until it is opened again: it was closed, or its disk failed.
    pub fn is_over(&self) -> bool {
        let has_failed = self.group.as_ref().is_some_and(|(group, _)| group.has_failed());
        // Whoever runs a section has it open.
        has_failed || self.seats[0].try_lock().is_some_and(|seat| seat.borrow().ended)
    }

    /// Of a pool on a disk, whether sections return once they are durable, and whether several run at once.
    pub fn on_disk_as(&self) -> Option<[bool; 2]> {
        self.group.as_ref().map(|(_, waits)| [*waits, self.seats.len() > 1])
    }

    /// Marks the pool closed; sections are refused from then on. Dropping a pool instead is safe: it is then opened as
    /// after a crash between sections.
    ///
    /// # Errors
    /// [`Error::InsideSection`]; [`Error::Disk`], after which it is closed all the same.
    pub fn end(&self) -> Result<()> {
        if self.seat().lock().borrow().depth > 0 {
            return Err(Error::InsideSection { what: "close" });
        }
        // Others' sections end first; none of this thread's is open, so nobody waits for it.
        let seats: Vec<_> = self.seats.iter().map(ReentrantMutex::lock).collect();
        let is_first = !seats[0].borrow().ended;
        seats.iter().for_each(|seat| seat.borrow_mut().ended = true);
        if !is_first || self.is_read_only() {
            return Ok(());
        }
        let mut state = seats[0].borrow_mut();
        state.engine.close()?;
        if self.group.is_none() {
            let progress = state.engine.progress();
            State { number: self.number + 1, clean: true, progress }.write(&self.media);
        }
        Ok(())
    }

    /// [`Pool::end`], and gives the memory back.
    pub fn close(self) -> M {
        // Nobody is inside; a file that fails is as after a crash, which is safe.
        let _as_after_a_crash = self.end();
        self.media.into_memory()
    }

    /// Walks the metadata of heap and engine: every byte has one owner. O(heap).
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<HeapCensus, String> {
        Ok(self.walk()?.0)
    }

    /// Offset and bytes of every allocated object. O(heap).
    ///
    /// # Errors
    /// As [`Pool::check`].
    pub fn objects(&self) -> Result<BTreeMap<u64, u64>, String> {
        Ok(self.walk()?.1)
    }

    /// [`Pool::check`], and that the allocated objects are exactly `reachable`: none leaked, none
    /// owned twice, none missing. O(heap).
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_reachable(
        &self,
        reachable: impl IntoIterator<Item = u64>,
    ) -> Result<HeapCensus, String> {
        let (census, mut objects) = self.walk()?;
        for at in reachable {
            if objects.remove(&at).is_none() {
                return Err(format!("{at} is reachable, but is no object, or reachable twice"));
            }
        }
        match objects.first_key_value() {
            None => Ok(census),
            Some((at, bytes)) => {
                Err(format!("{} objects leaked: {bytes} bytes at {at} ..", objects.len()))
            }
        }
    }

    fn walk(&self) -> Result<(HeapCensus, BTreeMap<u64, u64>), String> {
        let state = self.seat().lock();
        let mut state = state.borrow_mut();
        state.engine.check()?;
        if let Some(walked) = state.engine.walk(&self.media) {
            return walked;
        }
        let Inside { engine, heap, .. } = Inside::of(&mut state);
        heap.check(&Space { media: &self.media, engine })
    }
}
