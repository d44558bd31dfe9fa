//! Writers who wait for room, of values or in an index, and the collector who makes it.

use crate::engine::{Engine, Held};
use crate::error::Result;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace_durable::logs::Room;
use terrace_durable::{Error as Below, Values, Writing};
use terrace_memory::Memory;

/// Whether somebody waits for room, and the last round begun for it that made none.
#[derive(Default)]
pub(crate) struct Pressure {
    is_on: AtomicBool,
    hopeless_round: AtomicU64,
    /// Whether the last round made none and nothing has made any since: nobody waits for another.
    is_full: AtomicBool,
}

impl Pressure {
    /// Whether somebody waits, which is forgotten with the answer.
    pub fn take(&self) -> bool {
        self.is_on.swap(false, Ordering::AcqRel)
    }

    /// Whoever waits since before this round is refused.
    pub fn give_up(&self, round: u64) {
        self.hopeless_round.store(round, Ordering::Release);
        self.is_full.store(true, Ordering::Release);
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
        let mut all = std::iter::once(&self.pressure).chain(of_index);
        all.any(|pressure| pressure.is_on.load(Ordering::Acquire))
    }

    /// There may be room again, for values and in the index.
    #[inline(always)]
    pub fn relieve(&self) {
        self.pressure.relieve();
        self.index_room.iter().for_each(|room| room.pressure.relieve());
    }

    /// Room for an item; waits for the collector when that can help.
    pub fn room(&self, writer: usize, bytes: usize, room: Room) -> Result<Held<'_, M>> {
        self.await_room(|| self.ask_room(writer, bytes, room))
    }

    /// Asks until there is room, or nothing can make any.
    pub fn await_room<'a>(
        &'a self,
        ask: impl Fn() -> terrace_durable::Result<Held<'a, M>>,
    ) -> Result<Held<'a, M>> {
        match ask() {
            Err(refused @ (Below::NoRoom { .. } | Below::DiskFull { .. })) => {
                // What is missing at last is what whoever asked is told.
                let last = Cell::new(refused);
                let held = self.after_collection(&self.pressure, || match ask() {
                    Err(refused @ (Below::NoRoom { .. } | Below::DiskFull { .. })) => {
                        last.set(refused);
                        Ok(None)
                    }
                    other => Ok(Some(other?)),
                })?;
                held.ok_or_else(|| last.into_inner().into())
            }
            other => Ok(other?),
        }
    }

    /// Room for an item, if there is some: also where there is in the writer's log, not while growth of the index has
    /// spent the budget.
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

    /// Whether a write of an item of about so many bytes goes through, or is refused, without waiting for the
    /// collector. If not it is told that somebody waits.
    pub fn is_ready(&self, writer: usize, bytes: usize) -> bool {
        let ask = || -> terrace_durable::Result<bool> {
            let has_room = self.ask_room(writer, bytes, Room::Ordinary)?.fits(bytes);
            // Of slabs a slot of exactly so many bytes was asked for; the next try makes one.
            Ok(has_room || self.ask_room(writer, bytes, Room::Ordinary)?.fits(bytes))
        };
        match ask() {
            Err(Below::NoRoom { .. } | Below::DiskFull { .. }) if self.has_threads => {
                self.pressure.is_on.store(true, Ordering::Release);
                self.pressure.is_full()
            }
            // Others are told by the write itself.
            _ => true,
        }
    }

    /// Has the collector make room until there is what is asked for; none if it could not, at once where it is known
    /// that it cannot. No lock may be held, nor a writer.
    ///
    /// # Errors
    /// Those of asking, which must fail on a map that takes no more writes: it is not collected any more.
    #[cold]
    pub fn after_collection<T>(
        &self,
        pressure: &Pressure,
        ask: impl Fn() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let asked_in = self.rounds.load(Ordering::Acquire);
        if self.has_threads && pressure.is_full() {
            // The collector looks once more all the same, when it is its time.
            pressure.is_on.store(true, Ordering::Release);
            return ask().inspect(|found| found.iter().for_each(|_| pressure.relieve()));
        }
        loop {
            pressure.is_on.store(true, Ordering::Release);
            if self.has_threads {
                std::thread::sleep(Duration::from_micros(200));
            } else {
                self.collect()?;
            }
            // Readers' epochs move on only when someone asks: freed logs wait for that.
            crossbeam_epoch::pin().flush();
            // Looked at before the try: a round that found nothing to free may have come after one that did.
            let is_hopeless = pressure.hopeless_round.load(Ordering::Acquire) > asked_in;
            let found = ask()?;
            if found.is_some() || is_hopeless {
                return Ok(found);
            }
        }
    }
}
