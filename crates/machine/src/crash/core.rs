//! What happens at each event: whose turn it is, whether a crash belongs before it, what it changes.
//!
//! Everything here is used by one thread at a time, the one with the baton, or by the thread that
//! drives the run while no other exists. The lock is therefore never waited for; reads of decided
//! words do without it.

use super::baton::Baton;
use super::choices::Choices;
use super::event::{Beside, Event};
use super::halt::Halt;
use super::layers::{Image, Layers, StoreKind, layers};
use super::memory::{Crashable, words_of};
use super::plan::{Crashes, FailingCase, Points, Tally};
use crate::random::mix;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_memory::Domain;

/// Longest that a recovery may wait; nobody will come.
const PAUSES_MAX: u32 = 1000;

/// The code under test, without its types.
pub(crate) trait Scenario: Send + Sync {
    fn setup(&self, memory: &Crashable);
    fn threads(&self) -> usize;
    fn thread(&self, thread: usize, memory: &Crashable);
    fn recover(&self, memory: &Crashable);
    /// A run is over.
    fn end(&self, memory: &Crashable);
    fn check(&self, memory: &Crashable) -> Result<(), String>;
    /// Forgets the notes of the run before.
    fn forget_notes(&self);
    /// A hash of the notes so far.
    fn notes_hash(&self) -> u64;
}

/// Limits beyond which a run counts as endless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Events of a run, or of a recovery with its check.
    pub steps_max: u64,
    /// Time without an event.
    pub silence_max: Duration,
}

/// A memory, its scenario and its explorations.
pub(crate) struct Core {
    pub domain: Domain,
    pub bytes: u64,
    pub(super) scenario: Arc<dyn Scenario>,
    pub(super) baton: Baton,
    pub(super) images: Vec<Image>,
    pub(super) level: AtomicUsize,
    pub(super) setting_up: AtomicBool,
    /// Events of the execution at each level.
    pub(super) steps: Vec<AtomicU64>,
    /// The number of events at which the next one needs a closer look.
    pub(super) alarms: Vec<AtomicU64>,
    pub(super) steps_max: u64,
    pub(super) silence_max: Duration,
    state: Mutex<ExplorerState>,
}

/// What the lock holds.
#[derive(Debug)]
pub(super) struct ExplorerState {
    pub layers: Layers,
    /// By level; level 0 makes none.
    pub choices: Vec<Choices>,
    pub plan: Vec<Crashes>,
    /// Whether there may be images, or notes, that no crash of this level has met.
    pub dirty: Vec<bool>,
    /// Whether the level's execution can no longer crash: it checks.
    pub checking: Vec<bool>,
    /// Events before the crash of each level, while it is explored.
    pub crash_after: Vec<u64>,
    /// Lines of a plain write that persistent caches may still hold in part.
    pub in_transit: Vec<Option<(u64, u64)>>,
    /// A hash of what was stored beside the memory and outlives a crash of the scenario's threads, in its order.
    pub outliving: u64,
    pub pauses: u32,
    pub stopped: bool,
    pub tally: Tally,
    pub found: Option<FailingCase>,
    pub trace: Option<Vec<String>>,
    pub seed: u64,
}

impl ExplorerState {
    /// Whether an execution of `level` may crash from here on.
    pub fn may_crash(&self, level: usize) -> bool {
        level < self.plan.len() && !self.checking[level]
    }

    /// Appends a line to the trace, if somebody wants it.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = self.trace.as_mut().filter(|_| !self.stopped) {
            trace.push(line());
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Core {
    pub fn new(
        domain: Domain,
        bytes: u64,
        depth: usize,
        limits: Limits,
        scenario: Arc<dyn Scenario>,
    ) -> Core {
        let threads = scenario.threads();
        let lines = bytes.div_ceil(64) as usize;
        let (images, layers) = layers(domain, lines, depth, threads);
        let state = ExplorerState {
            layers,
            choices: (0..=depth).map(|_| Choices::new()).collect(),
            plan: Vec::new(),
            dirty: vec![false; depth + 1],
            checking: vec![false; depth + 1],
            crash_after: vec![0; depth + 1],
            in_transit: vec![None; depth + 1],
            outliving: 0,
            pauses: 0,
            stopped: false,
            tally: Tally::default(),
            found: None,
            trace: None,
            seed: 0,
        };
        Core {
            domain,
            bytes,
            scenario,
            baton: Baton::new(threads),
            images,
            level: AtomicUsize::new(0),
            setting_up: AtomicBool::new(false),
            steps: (0..=depth).map(|_| AtomicU64::new(0)).collect(),
            alarms: (0..=depth).map(|_| AtomicU64::new(0)).collect(),
            steps_max: limits.steps_max,
            silence_max: limits.silence_max,
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ExplorerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn level(&self) -> usize {
        self.level.load(Relaxed)
    }

    pub fn words(&self, level: usize) -> &[AtomicU64] {
        &self.images[level].words
    }

    /// The thread that acts in an execution of `level`; recoveries have one.
    fn acting(&self, level: usize) -> usize {
        if level == 0 { self.baton.running() } else { 0 }
    }

    /// Begins an event: afterwards it happens. Returns the level it happens at.
    #[inline]
    pub fn enter(&self, handle: &Crashable, event: &Event<'_>) -> usize {
        let level = self.level.load(Relaxed);
        if level == 0 {
            self.enter_scenario(handle, event);
        } else {
            let steps = self.steps[level].load(Relaxed);
            if steps >= self.alarms[level].load(Relaxed) {
                self.alarmed(handle, level, steps, event);
            }
            self.steps[level].store(steps + 1, Relaxed);
        }
        level
    }

    fn enter_scenario(&self, handle: &Crashable, event: &Event<'_>) {
        if self.setting_up.load(Relaxed) {
            return;
        }
        if let Err(halt) = self.baton.point(matches!(event, Event::Pause)) {
            // A destructor that touches memory while its thread leaves must not leave again.
            if std::thread::panicking() {
                return;
            }
            halt.leave();
        }
        let steps = self.steps[0].load(Relaxed);
        self.crash_if_planned(handle, 0, steps);
        let mut state = self.lock();
        if state.in_transit[0].is_some() {
            state = self.before(handle, state, 0, steps);
        }
        self.steps[0].store(steps + 1, Relaxed);
        if steps >= self.steps_max && !std::thread::panicking() {
            drop(state);
            let max = self.steps_max;
            Halt::new(format!("livelock: no end after {max} events of all threads")).leave();
        }
        let thread = self.baton.running();
        state.tally.mix(thread as u64);
        event.mix(|number| state.tally.mix(number));
        if self.scenario.threads() > 1 || !event.only_reads() {
            state.say(|| format!("thread {thread}  {event}"));
        }
    }

    /// The slow part of entering an event of a recovery.
    #[cold]
    fn alarmed(&self, handle: &Crashable, level: usize, steps: u64, event: &Event<'_>) {
        self.crash_if_planned(handle, level, steps);
        if steps >= self.steps_max {
            let max = self.steps_max;
            Halt::new(format!("recovery or check does not end: {max} events")).leave();
        }
        let mut state = self.lock();
        if !event.only_reads() && !state.checking[level] {
            let which = if level == 1 { String::new() } else { format!(" {level}") };
            state.say(|| format!("recovery{which}  {event}"));
        }
        if state.trace.is_none() {
            self.alarms[level].store(self.steps_max, Relaxed);
        }
    }

    /// Crashes here if the plan names this very event.
    pub(super) fn crash_if_planned(&self, handle: &Crashable, level: usize, steps: u64) {
        let state = self.lock();
        let planned = state.may_crash(level)
            && !state.stopped
            && state.plan[level].points == Points::After(steps);
        drop(state);
        if planned {
            self.crash(handle, level, steps);
        }
    }

    /// Before an event that makes images impossible, or adds to the notes: crashes if there are
    /// images that no crash of this level has met; then ends what is in transit.
    pub(super) fn before<'a>(
        &'a self,
        handle: &Crashable,
        mut state: MutexGuard<'a, ExplorerState>,
        level: usize,
        after: u64,
    ) -> MutexGuard<'a, ExplorerState> {
        let dirty = std::mem::replace(&mut state.dirty[level], false);
        let every = state.plan[level].points == Points::Every;
        if dirty && every && !state.stopped && self.is_new(&state, level) {
            drop(state);
            self.crash(handle, level, after);
            state = self.lock();
        }
        if let Some((first, last)) = state.in_transit[level].take() {
            state.layers.settle_lines(&self.images, level, first, last);
        }
        state
    }

    fn is_new(&self, state: &ExplorerState, level: usize) -> bool {
        if level == 0 { self.baton.is_new() } else { state.choices[level].is_new() }
    }

    /// The value of a word as an execution of `level` finds it.
    #[inline]
    pub fn value(&self, level: usize, word: u64) -> u64 {
        if self.images[level].is_uncertain(word) {
            self.resolve(&mut self.lock(), level, word);
        }
        self.images[level].get(word)
    }

    /// How many bytes from `at` on, of `bytes`, nothing was ever stored to. No event: such words are
    /// certain, and nobody changes them without one.
    pub fn zeros(&self, at: u64, bytes: u64) -> u64 {
        self.lock().layers.untouched(at, bytes)
    }

    fn resolve(&self, state: &mut ExplorerState, level: usize, word: u64) {
        state.layers.resolve(&self.images, level, word, &mut state.choices[level]);
    }

    /// Stores a word: the rest of an event that was entered.
    pub fn store_word(&self, handle: &Crashable, level: usize, word: u64, value: u64) {
        let mut state = self.lock();
        if self.setting_up.load(Relaxed) {
            return state.layers.preset(&self.images, word, value);
        }
        let logged = state.may_crash(level);
        if logged && self.domain == Domain::Eadr {
            let after = self.steps[level].load(Relaxed) - 1;
            state = self.before(handle, state, level, after);
        }
        self.put(&mut state, level, word, value, StoreKind::Plain, logged);
        if logged && self.domain == Domain::Eadr {
            state.layers.settle_lines(&self.images, level, word / 8, word / 8);
        }
        drop(state);
        if level == 0 {
            self.baton.changed();
        }
    }

    fn put(
        &self,
        state: &mut ExplorerState,
        level: usize,
        word: u64,
        value: u64,
        kind: StoreKind,
        logged: bool,
    ) {
        if logged && self.images[level].is_uncertain(word) {
            self.resolve(state, level, word);
        }
        let event = self.steps[level].load(Relaxed);
        let thread = self.acting(level);
        let how = (event, kind, thread);
        if state.layers.store(&self.images, level, (word, value), how, logged) {
            state.dirty[level] = true;
        }
    }

    /// A plain or streamed write of at least one byte.
    pub fn write(&self, handle: &Crashable, at: u64, source: &[u8], kind: StoreKind) {
        let streamed = kind == StoreKind::Streamed;
        let level = self.enter(handle, &Event::Write { at, source, streamed });
        let range = at..at + source.len() as u64;
        let mut state = self.lock();
        let setting_up = self.setting_up.load(Relaxed);
        let logged = !setting_up && state.may_crash(level);
        let cached = logged && self.domain == Domain::Eadr && !streamed;
        // Only a plain write can be in transit, and only until the next event.
        if cached || state.in_transit[level].is_some() {
            let after = self.steps[level].load(Relaxed) - 1;
            state = self.before(handle, state, level, after);
        }
        for (word, value, mask) in pieces(&range, source) {
            let mut whole = value;
            if mask != u64::MAX {
                if self.images[level].is_uncertain(word) {
                    self.resolve(&mut state, level, word);
                }
                whole |= self.images[level].get(word) & !mask;
            }
            if setting_up {
                state.layers.preset(&self.images, word, whole);
            } else {
                self.put(&mut state, level, word, whole, kind, logged);
            }
        }
        if cached {
            state.in_transit[level] = Some((range.start / 64, (range.end - 1) / 64));
        }
        drop(state);
        if level == 0 && !setting_up {
            self.baton.changed();
        }
    }

    pub fn write_back(&self, handle: &Crashable, range: Range<u64>) {
        let bytes = range.end - range.start;
        let level = self.enter(handle, &Event::WriteBack { at: range.start, bytes });
        let mut state = self.lock();
        if !self.setting_up.load(Relaxed) && state.may_crash(level) {
            let thread = self.acting(level);
            for line in range.start / 64..=(range.end - 1) / 64 {
                state.layers.write_back(level, thread, line);
            }
        }
    }

    pub fn fence(&self, handle: &Crashable) {
        let level = self.enter(handle, &Event::Fence);
        let mut state = self.lock();
        let thread = self.acting(level);
        if !self.setting_up.load(Relaxed)
            && state.may_crash(level)
            && state.layers.is_pending(level, thread)
        {
            let after = self.steps[level].load(Relaxed) - 1;
            state = self.before(handle, state, level, after);
            state.layers.fence(&self.images, level, thread);
        }
    }

    pub fn synced(&self, handle: &Crashable) {
        let level = self.enter(handle, &Event::Sync);
        let mut state = self.lock();
        if !self.setting_up.load(Relaxed) && state.may_crash(level) {
            let after = self.steps[level].load(Relaxed) - 1;
            state = self.before(handle, state, level, after);
            state.layers.sync(&self.images, level);
        }
    }

    /// A scheduling point before something that is done beside the memory; nothing where one thread runs. `changes`:
    /// who waits looks again.
    pub fn step(&self, handle: &Crashable, beside: Beside, changes: bool) {
        if self.level() > 0 || self.scenario.threads() < 2 || self.setting_up.load(Relaxed) {
            return;
        }
        self.enter(handle, &Event::Beside(beside));
        if changes {
            self.baton.changed();
        }
    }

    /// A store to something beside the memory that a crash leaves as it is then, whole: an event, and a crash point
    /// before it, since the images of the memory that go with what was there do not go with what is there afterwards.
    pub fn outlives(&self, handle: &Crashable, at: u64, bytes: &[u8]) {
        let event = Event::Outlives { at, bytes };
        let level = self.enter(handle, &event);
        if self.setting_up.load(Relaxed) {
            return;
        }
        let mut state = self.lock();
        if state.may_crash(level) {
            let after = self.steps[level].load(Relaxed) - 1;
            state = self.before(handle, state, level, after);
            state.dirty[level] = true;
            if level == 0 {
                event.mix(|number| state.outliving = mix(state.outliving ^ number));
            }
        }
        drop(state);
        if level == 0 {
            self.baton.changed();
        }
    }

    pub fn pause(&self, handle: &Crashable) {
        let level = self.enter(handle, &Event::Pause);
        if level > 0 {
            let mut state = self.lock();
            state.pauses += 1;
            if state.pauses > PAUSES_MAX {
                drop(state);
                Halt::new("recovery waits (pause) for a thread that the crash ended".into())
                    .leave();
            }
        }
    }

    /// A note of the running thread, which `append` adds to the notes.
    pub fn note(&self, handle: &Crashable, text: impl FnOnce() -> String, append: impl FnOnce()) {
        let tracing = self.lock().trace.is_some();
        let level = self.enter(handle, &Event::Note { text: tracing.then(text) });
        if level == 0 && !self.setting_up.load(Relaxed) {
            let mut state = self.lock();
            if state.may_crash(0) {
                let after = self.steps[0].load(Relaxed) - 1;
                state = self.before(handle, state, 0, after);
                state.dirty[0] = true;
            }
        }
        append();
    }
}

/// The words of a write: each with its bytes in place and a mask of them.
fn pieces(range: &Range<u64>, source: &[u8]) -> impl Iterator<Item = (u64, u64, u64)> {
    let range = range.clone();
    words_of(&range).map(move |at| {
        let (from, to) = (at.max(range.start), (at + 8).min(range.end));
        let (mut bytes, mut mask) = ([0; 8], [0; 8]);
        let slots = (from - at) as usize..(to - at) as usize;
        let given = (from - range.start) as usize..(to - range.start) as usize;
        bytes[slots.clone()].copy_from_slice(&source[given]);
        mask[slots].fill(0xff);
        (at / 8, u64::from_le_bytes(bytes), u64::from_le_bytes(mask))
    })
}
