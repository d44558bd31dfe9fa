//! Writers who wait for room, of values or in an index, and the collector who makes it.

use crate::engine::Engine;
use crate::error::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace_memory::Memory;

/// Whether somebody waits for room, and the last round begun for it that made none.
#[derive(Default)]
pub(crate) struct Pressure {
    is_on: AtomicBool,
    hopeless_round: AtomicU64,
}

impl Pressure {
    /// Whether somebody waits, which is forgotten with the answer.
    pub fn take(&self) -> bool {
        self.is_on.swap(false, Ordering::AcqRel)
    }

    /// Whoever waits since before this round is refused.
    pub fn give_up(&self, round: u64) {
        self.hopeless_round.store(round, Ordering::Release);
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Whether writers wait for room.
    pub fn is_pressed(&self) -> bool {
        let of_index = self.index_room.as_ref().map(|room| &room.pressure);
        let mut all = std::iter::once(&self.pressure).chain(of_index);
        all.any(|pressure| pressure.is_on.load(Ordering::Acquire))
    }

    /// Has the collector make room until there is what is asked for; none if it could not. No lock may be held, nor a
    /// writer.
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
