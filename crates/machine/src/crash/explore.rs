//! Crashing: every recovery from one crash point, and one run of a scenario.
//!
//! # Which crash points
//!
//! A store adds images to those a crash may leave and takes none away, except under persistent
//! caches; a fence, a sync and, under persistent caches, the next store take images away; a note
//! changes what the check may demand. So the images at any event are among those just before the
//! next event that takes images away or notes something, and only there (and at the end) is there
//! anything to explore. Crash points whose sets of images and notes are equal, as different
//! schedules often make them, are explored once.
//!
//! # Which images
//!
//! Recovery and check run on the image with its uncertain words undecided; a word is decided when
//! it is read. Executions that read the same values are the same execution, so each stands for all
//! images that agree on what it read.
//!
//! Inside a recovery its own events are crash points in the same way, for the levels of the plan.
//! An execution that repeats an earlier one up to its last choice skips the crash points before it.

use super::choices::Search;
use super::core::{Core, ExplorerState};
use super::event::Value;
use super::halt::{Ended, caught};
use super::memory::Crashable;
use super::plan::{
    Case, Crash, Crashes, FailingCase, Points, STATE_WORK, THREAD_EVENT_WORK, Tally,
};
use super::schedule::Policy;
use crate::random::mix;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What one run is asked.
#[derive(Debug)]
pub(crate) struct Task {
    pub plan: Vec<Crashes>,
    pub policy: Policy,
    pub tally: Tally,
    pub seed: u64,
    pub traced: bool,
}

/// What it answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub policy: Policy,
    pub tally: Tally,
    pub found: Option<FailingCase>,
    pub trace: Vec<String>,
    pub events: u64,
    /// A thread is stuck outside of the memory: nothing can be run any more.
    pub stuck: bool,
}

impl Core {
    /// Runs the scenario once.
    pub fn run(self: &Arc<Self>, task: Task) -> Answer {
        let handle = Crashable { core: self.clone() };
        self.prepare(&handle, task);
        let ended = match self.scenario.threads() {
            0 => Ok(()),
            1 => {
                self.thread(&handle, 0);
                Ok(())
            }
            threads => self.threads(&handle, threads),
        };
        if let Err(message) = &ended {
            self.fail(0, message.clone());
        }
        self.end_of_execution(&handle, 0);
        if ended.is_ok() {
            _ = self.apart(|| self.scenario.end(&handle));
        }
        let mut state = self.lock();
        state.tally.events += self.steps[0].load(Relaxed);
        state.tally.work += THREAD_EVENT_WORK * self.steps[0].load(Relaxed);
        Answer {
            policy: self.baton.end(),
            tally: std::mem::take(&mut state.tally),
            found: state.found.take(),
            trace: state.trace.take().unwrap_or_default(),
            events: self.steps[0].load(Relaxed),
            stuck: ended.is_err(),
        }
    }

    fn prepare(&self, handle: &Crashable, task: Task) {
        let mut state = self.lock();
        state.layers.reset(&self.images);
        state.layers.decisions = None;
        state.plan = task.plan;
        state.tally = task.tally;
        state.seed = task.seed;
        state.trace = task.traced.then(Vec::new);
        state.found = None;
        state.stopped = false;
        state.checking.fill(false);
        state.in_transit.fill(None);
        state.outliving = 0;
        // Before the first store there is one image; it is among those of the first crash point.
        state.dirty.fill(false);
        state.dirty[0] = true;
        drop(state);
        self.level.store(0, Relaxed);
        self.steps.iter().for_each(|steps| steps.store(0, Relaxed));
        self.scenario.forget_notes();
        self.baton.begin(task.policy);
        let result = self.apart(|| self.scenario.setup(handle));
        // No crash has happened yet: a setup that fails is a broken scenario, not a finding, and a step left
        // out is not noticed by it.
        if let Err(Ended::Failed(message)) = result {
            panic!("the scenario's setup {message}");
        }
    }

    /// Runs a part of the scenario that is not explored.
    fn apart(&self, f: impl FnOnce()) -> Result<(), Ended> {
        self.level.store(0, Relaxed);
        self.setting_up.store(true, Relaxed);
        let result = caught(f);
        self.setting_up.store(false, Relaxed);
        result
    }

    fn threads(self: &Arc<Self>, handle: &Crashable, threads: usize) -> Result<(), String> {
        for thread in 0..threads {
            let handle = handle.clone();
            std::thread::spawn(move || {
                let core = handle.core.clone();
                if core.baton.enter(thread).is_ok() {
                    core.thread(&handle, thread);
                }
                core.baton.finish(thread);
            });
        }
        let pulse = || self.steps.iter().map(|steps| steps.load(Relaxed)).sum();
        self.baton.wait_for_all(self.silence_max, pulse)
    }

    fn thread(&self, handle: &Crashable, thread: usize) {
        match caught(|| self.scenario.thread(thread, handle)) {
            Ok(()) | Err(Ended::Stopped) => {}
            Err(Ended::Failed(message)) => {
                self.fail(0, format!("thread {thread} {message}"));
                self.baton.halt();
            }
        }
    }

    /// The last crash point of an execution.
    fn end_of_execution(&self, handle: &Crashable, level: usize) {
        let after = self.steps[level].load(Relaxed);
        self.crash_if_planned(handle, level, after);
        let state = self.lock();
        if state.may_crash(level) && !state.stopped {
            drop(self.before(handle, state, level, after));
        }
    }

    /// Records a failure of an execution at `level`, the first one only.
    fn fail(&self, level: usize, message: String) {
        let mut state = self.lock();
        if !state.stopped {
            let schedule = self.baton.record();
            let crashes = (1..=level)
                .map(|l| Crash {
                    after: state.crash_after[l - 1],
                    choices: state.choices[l].options(),
                })
                .collect();
            state.found = Some(FailingCase { case: Case { schedule, crashes }, message });
            state.stopped = true;
        }
    }

    /// The power fails in an execution of `level`, after `after` of its events: explores the
    /// executions of the level above that the plan asks for.
    pub(super) fn crash(&self, handle: &Crashable, level: usize, after: u64) {
        let above = level + 1;
        let mut state = self.lock();
        state.crash_after[level] = after;
        let mut crashes = state.plan[level].clone();
        if level == 0 {
            if state.tally.exhausted.contains(&after) {
                return;
            }
            if self.has_few_images(&state, &crashes.search) {
                crashes.search = Search::All;
                state.tally.exhausted.insert(after);
            }
            // One thread comes by a point once, and samples may fall on it again.
            let once =
                self.scenario.threads() < 2 || matches!(crashes.search, Search::Random { .. });
            if crashes.points == Points::Every && !once && self.was_seen(&mut state) {
                return;
            }
            state.tally.points_left += u64::from(!state.tally.exhausted.contains(&after));
        }
        let seed = mix(state.seed ^ mix(state.tally.states ^ mix(after ^ (level as u64) << 48)));
        if !state.choices[above].start(crashes.search, seed) {
            return;
        }
        if level == 0 {
            state.tally.points += 1;
            state.tally.images += state.layers.images_possible();
        }
        let outer = state.layers.decisions.take();
        let crash_line = state.trace.as_ref().map(Vec::len);
        if crash_line.is_some() {
            state.layers.decisions = Some(Vec::new());
        }
        drop(state);
        while self.execution(handle, above) {}
        let mut state = self.lock();
        let own = std::mem::replace(&mut state.layers.decisions, outer);
        if let (Some(at), Some(decisions)) = (crash_line, own) {
            let lines = losses(&state, above, &decisions);
            if let Some(trace) = &mut state.trace {
                trace.splice(at..at, lines);
            }
            state.stopped = true;
        }
        self.level.store(level, Relaxed);
    }

    /// Whether as many images are to be drawn as there are at a point that one thread comes by once, in which recovery
    /// does not crash: then each is looked at, and there is nothing left to draw.
    fn has_few_images(&self, state: &ExplorerState, search: &Search) -> bool {
        let is_whole = self.scenario.threads() < 2 && state.plan.len() == 1;
        matches!(search, Search::Random { samples } if is_whole && state.layers.images_possible() <= *samples)
    }

    /// Whether an equal crash point was explored before.
    fn was_seen(&self, state: &mut ExplorerState) -> bool {
        let mut hash = self.scenario.notes_hash() ^ state.outliving;
        state.layers.fingerprint(&self.images, |number| {
            hash = (hash.rotate_left(7) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        });
        let fresh = state.tally.seen.insert(mix(hash));
        state.tally.merged += u64::from(!fresh);
        !fresh
    }

    /// One recovery and its check at `level`. False when the search ends with it.
    fn execution(&self, handle: &Crashable, level: usize) -> bool {
        let mut state = self.lock();
        state.layers.begin(level);
        state.choices[level].begin();
        state.dirty[level] = false;
        state.checking[level] = false;
        state.in_transit[level] = None;
        state.pauses = 0;
        let alarm = match state.plan.get(level).map(|crashes| crashes.points) {
            _ if state.trace.is_some() => 0,
            Some(Points::After(after)) => after.min(self.steps_max),
            _ => self.steps_max,
        };
        drop(state);
        self.alarms[level].store(alarm, Relaxed);
        self.steps[level].store(0, Relaxed);
        self.level.store(level, Relaxed);
        let result = caught(|| {
            self.scenario.recover(handle);
            self.end_of_execution(handle, level);
            self.lock().checking[level] = true;
            self.scenario.check(handle)
        });
        match result {
            Ok(Ok(())) | Err(Ended::Stopped) => {}
            Ok(Err(message)) => self.fail(level, message),
            Err(Ended::Failed(message)) => self.fail(level, format!("recovery or check {message}")),
        }
        let mut state = self.lock();
        state.layers.end(&self.images, level);
        state.tally.states += 1;
        let steps = self.steps[level].load(Relaxed);
        state.tally.work += STATE_WORK + steps;
        state.tally.mix(steps);
        if state.tally.is_full() {
            state.stopped = true;
        }
        !state.stopped && state.choices[level].advance()
    }
}

/// What a crash lost, as far as anyone read it, in words.
fn losses(
    state: &ExplorerState,
    level: usize,
    decisions: &[super::layers::Decision],
) -> Vec<String> {
    let unit_bytes = state.layers.unit_bytes();
    let name = if unit_bytes == 64 { "line" } else { "page" };
    let mut lines = vec!["CRASH".to_string()];
    let mut units: Vec<_> = decisions.iter().filter(|d| d.option > 0).collect();
    units.sort_by_key(|decision| (decision.from, decision.unit, decision.word));
    for of_unit in units.chunk_by(|a, b| (a.from, a.unit) == (b.from, b.unit)) {
        let (left, all) = state.layers.lost(level, *of_unit[0]);
        let at = of_unit[0].unit as u64 * unit_bytes;
        // A piece persisted of the first group that did not persist whole: that group is torn.
        let unit = (of_unit[0].from, of_unit[0].unit);
        let torn = decisions.iter().any(|d| (d.from, d.unit) == unit && d.group > left.hi);
        let how = match (all.hi - left.hi - u32::from(torn), torn) {
            (0, true) => "is torn".to_string(),
            (0, false) => "lost a stream".to_string(),
            (1, false) => "lost its last store".to_string(),
            (lost, false) => format!("lost its last {lost} stores"),
            (lost, true) => format!("is torn, and lost {lost} later stores"),
        };
        let words: Vec<_> = of_unit
            .iter()
            .map(|d| format!("{:#x} is {}, not {}", d.word * 8, Value(d.value), Value(d.newest)))
            .collect();
        lines.push(format!("  {name} {at:#x} {how}: {}", words.join("; ")));
    }
    if lines.len() == 1 {
        lines.push("  nothing that recovery reads was lost".into());
    }
    lines
}
