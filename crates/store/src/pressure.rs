//! Writers who wait for room, of values or in an index, and the collector who makes it.

use crate::engine::{Change, Engine, Held, Hint, Value};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use terrace_durable::values::{Room, Ticket};
use terrace_durable::{Error as Below, Values};
use terrace_memory::Memory;

/// What a write does that finds no room while the collector may make some, or its key in use by a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It waits, for some milliseconds, until there is room or the collector could not make any.
    #[default]
    ForRoom,
    /// It returns [`Error::Busy`] instead, with nothing written, for a thread that serves others meanwhile: try again a
    /// little later.
    Never {
        /// What the write was told when it was tried before; it is refused once the collector has looked since.
        since: Option<u64>,
    },
}

/// Who writes, and whether it waits.
#[derive(Clone, Copy)]
pub(crate) struct By {
    pub writer: usize,
    pub wait: Wait,
}

/// Whether somebody waits for room, and the last round begun for it that made none.
#[derive(Default)]
pub(crate) struct Pressure {
    is_on: AtomicBool,
    hopeless_round: AtomicU64,
    /// Rounds since somebody who waited found room.
    rounds: AtomicUsize,
    /// The same of rounds that freed logs for which readers are waited for.
    rounds_for_readers: AtomicUsize,
    /// Whether the last round made none and nothing has made any since: nobody waits for another.
    is_full: AtomicBool,
    /// Whether that is so because the disk is full.
    is_of_disk: AtomicBool,
    /// Whether one who waits needs room on the disk, which no log makes that leaves memory.
    needs_disk: AtomicBool,
}

/// How long writers wait for readers to leave what was freed.
const READERS_MOST: Duration = Duration::from_secs(2);

/// Who has read for so long is waited for as long as one who stays.
const READERS_SLOW: Duration = Duration::from_millis(250);

/// Whether readers keep what was freed from being used again, as far as somebody needs it.
#[derive(Default)]
pub(crate) struct Readers {
    asked: Mutex<Option<Asked>>,
    hold: AtomicBool,
}

/// What is waited for: that all who read at this moment have left.
struct Asked {
    at: Instant,
    have_left: Arc<AtomicBool>,
    looked_at: Instant,
}

/// How far those are who read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// They come and go, or nothing waits for them.
    Shortly,
    /// One has been there for a while, and will leave.
    Slowly,
    /// One stays: nothing is to come.
    On,
}

impl Readers {
    /// To be asked in each round for somebody who needs room; `is_waited_for`: something was freed that they may still
    /// look at.
    pub fn look(&self, is_waited_for: bool) -> Reading {
        let mut asked = self.asked.lock();
        // Nobody is found to have left while nobody looks.
        asked.take_if(|asked| !is_waited_for || asked.is_over());
        if is_waited_for {
            asked.get_or_insert_with(Asked::now).looked_at = Instant::now();
        }
        let reading = match asked.as_ref().map_or(Duration::ZERO, |asked| asked.at.elapsed()) {
            since if since > READERS_MOST => Reading::On,
            since if since > READERS_SLOW => Reading::Slowly,
            _ => Reading::Shortly,
        };
        self.hold.store(reading == Reading::On, Ordering::Release);
        reading
    }

    /// Whether one stayed when it was last looked at.
    fn hold(&self) -> bool {
        self.hold.load(Ordering::Acquire)
    }
}

impl Asked {
    fn now() -> Asked {
        let have_left = Arc::new(AtomicBool::new(false));
        let leave = Arc::clone(&have_left);
        crossbeam_epoch::pin().defer(move || leave.store(true, Ordering::Release));
        Asked { at: Instant::now(), have_left, looked_at: Instant::now() }
    }

    fn is_over(&self) -> bool {
        crossbeam_epoch::pin().flush();
        self.have_left.load(Ordering::Acquire) || self.looked_at.elapsed() > READERS_SLOW
    }
}

/// Rounds that wait for readers to leave before no more is hoped for: at the collector's tick of 5 ms, two seconds.
const ROUNDS_FOR_READERS: usize = 400;

/// Rounds without room for anybody that are enough: a map of thousands of logs is not copied for one delete.
const ROUNDS_IN_VAIN: usize = 32;

impl Pressure {
    /// Whether somebody waits, which is forgotten with the answer.
    pub fn take(&self) -> bool {
        self.is_on.swap(false, Ordering::AcqRel)
    }

    /// Whether one of them needs room on the disk, which is forgotten with the answer.
    pub fn take_needs_disk(&self) -> bool {
        self.needs_disk.swap(false, Ordering::AcqRel)
    }

    /// Notes what whoever waits has met.
    fn meets(&self, refused: &Below) {
        match refused {
            Below::DiskFull { .. } => self.needs_disk.store(true, Ordering::Release),
            // That the disk was full is mended otherwise.
            _ if self.is_full() && self.is_of_disk.swap(false, Ordering::AcqRel) => self.relieve(),
            _ => {}
        }
    }

    /// Whoever waits since before this round is refused.
    pub fn give_up(&self, round: u64) {
        self.forget_rounds();
        self.hopeless_round.store(round, Ordering::Release);
        self.is_full.store(true, Ordering::Release);
    }

    /// The same where the disk is full: who finds the memory spent afterwards waits for a round again.
    pub fn give_up_disk(&self, round: u64) {
        self.is_of_disk.store(true, Ordering::Release);
        self.give_up(round);
    }

    /// Counts a round, of a map of so many segments; whether all of them were collected, or as many
    /// as are enough, and still nobody found room.
    /// While freed logs wait for readers to leave, room is to come: such rounds are counted apart.
    pub fn is_in_vain(&self, segments: usize, is_to_come: bool) -> bool {
        match is_to_come {
            true => self.rounds_for_readers.fetch_add(1, Ordering::Relaxed) > ROUNDS_FOR_READERS,
            false => self.rounds.fetch_add(1, Ordering::Relaxed) > segments.min(ROUNDS_IN_VAIN),
        }
    }

    /// Somebody who waited found room.
    fn found(&self) {
        self.forget_rounds();
        self.relieve();
    }

    fn forget_rounds(&self) {
        self.rounds.store(0, Ordering::Relaxed);
        self.rounds_for_readers.store(0, Ordering::Relaxed);
    }

    /// There may be room, or something to make it from: whoever needs some waits for a round again.
    #[inline(always)]
    pub fn relieve(&self) {
        if self.is_full.load(Ordering::Relaxed) {
            self.is_full.store(false, Ordering::Release);
        }
    }

    /// Whether it is known that no round would make room.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Whether writers wait for room.
    pub fn is_pressed(&self) -> bool {
        let of_index = self.index_room.as_ref().map(|room| &room.pressure);
        let mut all = [&self.pressure, &self.deletes_pressure].into_iter().chain(of_index);
        all.any(|pressure| pressure.is_on.load(Ordering::Acquire))
    }

    /// There may be room again, for values and in the index.
    #[inline(always)]
    pub fn relieve(&self) {
        self.pressure.relieve();
        self.index_room.iter().for_each(|room| room.pressure.relieve());
    }

    /// Room for an item; waits for the collector when that can help. A delete is never refused for want of memory, nor
    /// of what may be taken of the disk: if the collector has been through all logs and found none, it takes more.
    pub fn room(&self, by: By, bytes: usize, room: Room) -> Result<Held<'_, M>> {
        match self.await_room(by.wait, room, || self.ask_room(by.writer, bytes, room)) {
            Err(
                Error::OutOfMemory { .. }
                | Error::HeldByReaders { .. }
                | Error::DiskFull { limit: Some(_), .. },
            ) if room == Room::Urgent => {
                self.deletes_pressure.relieve();
                Ok(self.ask_room(by.writer, bytes, Room::Anyway)?)
            }
            other => other,
        }
    }

    /// Does what `f` says where there is no room for a value, which may be a deletion.
    ///
    /// # Errors
    /// `refused`, if it is none.
    #[cold]
    pub fn delete_at_least<'c>(
        &self,
        by: By,
        key: &[u8],
        refused: Error,
        f: &mut dyn FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<[Option<Ticket>; 2]> {
        if !refused.is_full() {
            return Err(refused);
        }
        let (writes, deletes) = (Cell::new(false), Cell::new(false));
        let mut at_most = |old: Option<Value<'_>>| {
            let is_there = old.is_some();
            let change = f(old);
            writes.set(matches!(change, Change::Put { .. }));
            deletes.set(matches!(change, Change::Delete) && is_there);
            if writes.get() { Change::Keep } else { change }
        };
        // What only looks takes no room.
        let (looked, seen) = self.get(key, by.wait, |value| _ = at_most(Some(value)))?;
        if looked.is_none() {
            at_most(None);
        }
        if writes.get() {
            return Err(refused);
        }
        if !deletes.get() {
            return Ok([None, seen]);
        }
        let done = self.update(by, key, Hint::Bytes(8), Room::Urgent, at_most)?;
        // It was written meanwhile.
        if writes.get() { Err(refused) } else { Ok(done) }
    }

    /// What those are told who do not wait.
    #[cold]
    pub fn busy(&self, since: Option<u64>) -> Error {
        Error::Busy { since: since.unwrap_or_else(|| self.rounds.load(Ordering::Acquire)) }
    }

    /// Asks until there is room, or nothing can make any.
    #[inline(always)]
    pub fn await_room<'a>(
        &'a self,
        wait: Wait,
        room: Room,
        ask: impl Fn() -> terrace_durable::Result<Held<'a, M>>,
    ) -> Result<Held<'a, M>> {
        match ask() {
            Err(refused @ (Below::NoRoom { .. } | Below::DiskFull { .. })) => {
                let pressure = match room {
                    Room::Urgent => &self.deletes_pressure,
                    Room::Ordinary | Room::Anyway => &self.pressure,
                };
                pressure.meets(&refused);
                // What is missing at last is what whoever asked is told.
                let last = Cell::new(refused);
                let held = self.after_collection(pressure, wait, || match ask() {
                    Err(refused @ (Below::NoRoom { .. } | Below::DiskFull { .. })) => {
                        if matches!(refused, Below::DiskFull { .. }) {
                            pressure.meets(&refused);
                        }
                        last.set(refused);
                        Ok(None)
                    }
                    other => Ok(Some(other?)),
                })?;
                held.ok_or_else(|| match last.into_inner() {
                    Below::NoRoom { used, limit } if self.readers.hold() => {
                        Error::HeldByReaders { used, budget: limit }
                    }
                    other => other.into(),
                })
            }
            other => Ok(other?),
        }
    }

    /// Room for an item, if there is some: also where there is in the writer's log, not while growth of the index has
    /// spent the budget.
    #[inline(always)]
    pub fn ask_room(
        &self,
        writer: usize,
        bytes: usize,
        room: Room,
    ) -> terrace_durable::Result<Held<'_, M>> {
        if room == Room::Ordinary && self.budget.is_spent() {
            let (used, limit) = (self.budget.used(), self.budget.limit());
            // One that takes no more writes is not collected any more either: there is nothing to wait for.
            let stopped = self.values.stopped().map(|reason| Below::Stopped(reason.into()));
            return Err(stopped.unwrap_or(Below::NoRoom { used, limit }));
        }
        self.values.room(writer, bytes, room)
    }

    /// Has the collector make room until there is what is asked for; none if it could not, at once where it is known
    /// that it cannot. No lock may be held, nor a writer, unless nothing is waited for.
    ///
    /// # Errors
    /// [`Error::Busy`] to those who do not wait. Those of asking, which must fail on a map that takes no more writes:
    /// it is not collected any more.
    #[cold]
    pub fn after_collection<T>(
        &self,
        pressure: &Pressure,
        wait: Wait,
        ask: impl Fn() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let asked_in = self.rounds.load(Ordering::Acquire);
        if self.has_threads && pressure.is_full() {
            // The collector looks once more all the same, when it is its time.
            pressure.is_on.store(true, Ordering::Release);
            return ask().inspect(|found| found.iter().for_each(|_| pressure.found()));
        }
        if let (Wait::Never { since }, true) = (wait, self.has_threads) {
            pressure.is_on.store(true, Ordering::Release);
            crossbeam_epoch::pin().flush();
            let since = since.unwrap_or(asked_in);
            return match pressure.hopeless_round.load(Ordering::Acquire) > since {
                // There may be room since a later round all the same.
                true => ask(),
                false => ask()?.map_or(Err(Error::Busy { since }), |found| Ok(Some(found))),
            }
            .inspect(|found| found.iter().for_each(|_| pressure.found()));
        }
        loop {
            pressure.is_on.store(true, Ordering::Release);
            // A round that frees nothing may wait for readers.
            if self.has_threads || self.collect()?.freed_segments == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            // Readers' epochs move on only when someone asks: freed logs wait for that.
            crossbeam_epoch::pin().flush();
            // Looked at before the try: a round that found nothing to free may have come after one that did.
            let is_hopeless = pressure.hopeless_round.load(Ordering::Acquire) > asked_in;
            let found = ask()?;
            found.iter().for_each(|_| pressure.found());
            if found.is_some() || is_hopeless {
                return Ok(found);
            }
        }
    }
}
