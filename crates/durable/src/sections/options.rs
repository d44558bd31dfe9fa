//! How a pool is made, and what it must be to be opened.

#[cfg(doc)]
use super::Pool;
use super::engine::{EngineKind, Grain};
use super::error::{Error, Result};
use super::header::Identity;
use super::media::{LINE, Media, PAGE};
use super::shadow;
#[cfg(any(test, feature = "faults"))]
use super::step::Step;
use super::step::Steps;
use crate::journal::Steps as JournalSteps;
use terrace_memory::Memory;

/// Longest log and journal: an entry's words fit their 24 bits.
pub(super) const LOG_BYTES_MAX: u64 = 64 << 20;
/// The log in memory where nothing is said.
const LOG_BYTES: u64 = 256 << 10;
/// Slots of shadow: as many as a journal record can name.
pub(super) const SLOTS_MAX: u32 = 4096;
/// Shadow's journal where nothing is said: a checkpoint, which rewrites the slots of all active pages,
/// then comes seldom enough to cost a few bytes a section, and recovery reads no more than that.
const JOURNAL_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;
/// The journal's share of a pool where nothing is said.
const PER_JOURNAL: u64 = 64;
/// Of so many pages one is spare, for consolidation in batches.
const PER_SPARE: u32 = 32;
/// Where nothing is said one page of so many is an extra one. The paper has 64 active pages, or some
/// thousand, for its processor's tables hold no more; here each costs a page of space and nothing else.
const PER_EXTRA: u64 = 8;

/// How a pool is made, and what it must be to be opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) engine: Option<EngineKind>,
    /// None: whatever it was made with.
    pub(super) layout: Option<u64>,
    pub(super) log_bytes: Option<u64>,
    journal_bytes: Option<u64>,
    /// Active and spare.
    pages: Option<[u32; 2]>,
    pub(super) grain: Grain,
    pub(super) waits: bool,
    pub(super) at_once: bool,
    pub(super) steps: Steps,
    pub(super) journal: JournalSteps,
}

impl Options {
    /// A pool of this engine.
    pub fn new(engine: EngineKind) -> Options {
        Options { engine: Some(engine), ..Options::any() }
    }

    /// A pool of any engine; when it is made, of [`EngineKind::Shadow`], which writes least.
    pub fn any() -> Options {
        Options {
            engine: None,
            layout: Some(0),
            log_bytes: None,
            journal_bytes: None,
            pages: None,
            grain: Grain::Word,
            waits: true,
            at_once: false,
            steps: Steps::ALL,
            journal: JournalSteps::ALL,
        }
    }

    /// The caller's number for what lies in the pool: another one refuses to open it. 0 if not set.
    #[must_use]
    pub fn layout(self, layout: u64) -> Options {
        Options { layout: Some(layout), ..self }
    }

    /// Opens a pool whatever lies in it: to look at it as a whole. A new one is of layout 0.
    #[must_use]
    pub fn any_layout(self) -> Options {
        Options { layout: None, ..self }
    }

    /// Length of the log of undo and redo, and of shadow's fall-back: bounds what a section may
    /// write. If not set, 256 KiB; on a disk a quarter of the pool, from 1 to 64 MiB. Fixed when the pool is made.
    #[must_use]
    pub fn log_bytes(self, log_bytes: u64) -> Options {
        Options { log_bytes: Some(log_bytes), ..self }
    }

    /// Length of shadow's journal: bounds recovery, and spaces checkpoints. If not set, one byte of 64
    /// of the pool, from 64 KiB to 4 MiB. Fixed when the pool is made.
    #[must_use]
    pub fn journal_bytes(self, journal_bytes: u64) -> Options {
        Options { journal_bytes: Some(journal_bytes), ..self }
    }

    /// Shadow: pages that stay active, the paper's TLB entries, and how many more there are so that
    /// consolidation can be done in batches. Their sum, at most 4096, is the number of extra pages,
    /// and of pages a section can write without the fall-back. If not set, an eighth of the pool, as
    /// far as that goes. Fixed when the pool is made, but for how the sum is divided.
    ///
    /// This decides what shadow writes: pages are merged when more than these are in use, and a
    /// working set that they do not cover costs up to half of its lines again.
    #[must_use]
    pub fn pages(self, active_pages: u32, spare_pages: u32) -> Options {
        Options { pages: Some([active_pages, spare_pages]), ..self }
    }

    /// The unit in which undo and redo log: words if not set. May change at each opening.
    #[must_use]
    pub fn grain(self, grain: Grain) -> Options {
        Options { grain, ..self }
    }

    /// On a disk: whether [`Pool::section`] returns only when all that it did and read is durable; so if not set.
    /// Otherwise [`Pool::sync`] makes it so. May change at each opening. In memory sections always are.
    #[must_use]
    pub fn waits(self, waits: bool) -> Options {
        Options { waits, ..self }
    }

    /// On a disk: whether sections of several threads run at once, their isolation being the caller's: who reads or
    /// writes what others change holds a lock of their own for it, from before the section until it has returned. What
    /// different locks protect lies in different words of 8 bytes. What a section frees is used again by later ones
    /// alone. Off if not set; may change at each opening. Refused in memory.
    #[must_use]
    pub fn at_once(self, at_once: bool) -> Options {
        Options { at_once, ..self }
    }

    /// Leaves a step out, to show that a crash test notices.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn without(self, step: Step) -> Options {
        Options { steps: self.steps.without(&[step]), ..self }
    }

    /// Leaves steps of a disk's journal out, likewise.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn journal_steps(self, journal: JournalSteps) -> Options {
        Options { journal, ..self }
    }

    /// # Errors
    /// [`Error::OneAtATime`].
    pub(super) fn must_be_one_at_a_time(&self) -> Result<()> {
        if self.at_once { Err(Error::OneAtATime) } else { Ok(()) }
    }

    fn log_of_memory(&self) -> u64 {
        self.log_bytes.unwrap_or(LOG_BYTES)
    }

    /// Active and spare pages of a new pool.
    fn pages_of(&self, pool_bytes: u64) -> [u32; 2] {
        self.pages.unwrap_or_else(|| {
            let left =
                pool_bytes.saturating_sub(self.log_of_memory() + self.journal_of(pool_bytes));
            let slots = (left / PAGE / PER_EXTRA).clamp(2, SLOTS_MAX.into()) as u32;
            let spare = slots.div_ceil(PER_SPARE);
            [slots - spare, spare]
        })
    }

    fn journal_of(&self, pool_bytes: u64) -> u64 {
        let share = pool_bytes / PER_JOURNAL / LINE * LINE;
        self.journal_bytes.unwrap_or(share.clamp(*JOURNAL_BYTES.start(), *JOURNAL_BYTES.end()))
    }

    /// Spare pages of a pool with so many slots.
    pub(super) fn spare_of(&self, slots: u32) -> u32 {
        let spare = self.pages.map_or(slots.div_ceil(PER_SPARE), |[_, spare]| spare);
        spare.min(slots - 1)
    }

    pub(super) fn identity<M: Memory>(&self, media: &Media<M>) -> Result<Identity> {
        let [active, spare] = self.pages_of(media.len());
        let slots = active.saturating_add(spare);
        let bad =
            |option, found: u64, wanted: String| Err(Error::BadOption { option, found, wanted });
        if active == 0 || spare == 0 || slots > SLOTS_MAX {
            let wanted = "at least one active and one spare, together at most 4096".into();
            return bad("the number of pages", slots.into(), wanted);
        }
        let lines = |bytes: u64, least: u64| {
            bytes.is_multiple_of(LINE) && (least..=LOG_BYTES_MAX).contains(&bytes)
        };
        let log_bytes = self.log_of_memory();
        if !lines(log_bytes, 4 * LINE) {
            let wanted = "a multiple of 64 from 256 to 64 MiB".into();
            return bad("log_bytes", log_bytes, wanted);
        }
        let least = 2 * LINE * (shadow::lines_of(slots as usize) + 1);
        let journal_bytes = self.journal_of(media.len());
        if !lines(journal_bytes, least) {
            let wanted = format!("a multiple of 64 from {least} to 64 MiB for {slots} pages");
            return bad("journal_bytes", journal_bytes, wanted);
        }
        Ok(Identity {
            engine: self.engine.unwrap_or(EngineKind::Shadow),
            domain: media.domain(),
            bytes: media.len(),
            layout: self.layout.unwrap_or(0),
            log_bytes,
            journal_bytes,
            slots,
        })
    }
}
