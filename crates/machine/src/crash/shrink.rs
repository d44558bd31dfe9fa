//! Making a failing case small: the fewest units that differ from "all newest" or "all oldest", the
//! fewest stretches of threads, and, crash by crash, the earliest one.
//!
//! Each step runs the scenario again with a narrower question and keeps the answer only if it
//! fails too. All questions of one case share an amount of work, counted in events and states and
//! not in time, so that the result is the same on every machine and never long in coming: when the
//! work is spent, the smallest case found so far is the answer.
//!
//! Cheap questions come first. Most ask at one crash point only, and for few units: what failed
//! there before most likely fails there again. Searches of everything come after them, each with a
//! share of what is left, so that none of them starves the others.

use super::choices::Search;
use super::core::Core;
use super::explore::{Answer, Task};
use super::explorer::everything;
use super::plan::{Case, Crash, Crashes, FailingCase, Points, Tally};
use super::schedule::{Bounded, Policy};
use std::sync::Arc;

/// Most work for one case, in events; see [`Tally::work`].
const WORK_MAX: u64 = 100_000_000;
/// Share of the remaining work that one narrow question may take, and one wide one.
const NARROW_SHARE: u64 = 32;
const WIDE_SHARE: u64 = 4;
/// Largest number of differing units that is searched for.
const UNITS_MAX: usize = 3;
/// Most preemptions that are searched for.
const PREEMPTIONS_MAX: u32 = 2;

/// Replays a case, with its trace.
pub(super) fn replayed(core: &Arc<Core>, case: &Case) -> Answer {
    let task = Task {
        plan: forced(case, case.crashes.len()),
        policy: Policy::script(case.schedule.clone()),
        tally: Tally::new(u64::MAX),
        seed: 0,
        traced: true,
    };
    core.run(task)
}

/// The smallest case found, and whether the scenario can still be run.
pub(super) fn shrunk(core: &Arc<Core>, found: FailingCase) -> (FailingCase, bool) {
    let mut shrinking = Shrinking { core, work_left: WORK_MAX, best: found, is_stuck: false };
    let mut searches = Vec::new();
    // A smaller case may have fewer crashes: their number is asked again each time.
    while searches.len() < shrinking.depth() {
        let search = shrinking.fewest_units(searches.len());
        searches.push(search);
    }
    searches.truncate(shrinking.depth());
    shrinking.fewest_stretches(&searches);
    shrinking.fewest_preemptions();
    if let Some(earlier) = shrinking.asked_widely(everything(shrinking.depth())) {
        shrinking.best = earlier;
    }
    let mut level = 0;
    while level < shrinking.depth() {
        shrinking.earliest(level);
        if level < shrinking.depth() {
            shrinking.fewest_units(level);
        }
        level += 1;
    }
    (shrinking.best, !shrinking.is_stuck)
}

fn forced(case: &Case, levels: usize) -> Vec<Crashes> {
    let crashes = case.crashes[..levels].iter();
    let force = |crash: &Crash| Crashes {
        points: Points::After(crash.after),
        search: Search::Forced(crash.choices.clone()),
    };
    crashes.map(force).collect()
}

/// The plan that forces the crashes below `level` and asks `crashes` there and everything above.
fn plan_at(case: &Case, level: usize, crashes: Crashes) -> Vec<Crashes> {
    let mut plan = forced(case, level);
    plan.push(crashes);
    plan.extend(everything(case.crashes.len() - level - 1));
    plan
}

/// The schedule, as stretches of one thread each.
fn stretches(schedule: &[u8]) -> Vec<Vec<u8>> {
    schedule.chunk_by(|a, b| a == b).map(<[u8]>::to_vec).collect()
}

struct Shrinking<'a> {
    core: &'a Arc<Core>,
    work_left: u64,
    /// The smallest case so far.
    best: FailingCase,
    /// A schedule left a thread blocked outside of the memory: nothing can be run any more.
    is_stuck: bool,
}

impl Shrinking<'_> {
    /// Successive crashes of the best case.
    fn depth(&self) -> usize {
        self.best.case.crashes.len()
    }

    /// Runs a plan with at most so much work, which is taken from what is left.
    fn run(&mut self, plan: Vec<Crashes>, policy: Policy, tally: Tally) -> Answer {
        let mut answer = self.core.run(Task { plan, policy, tally, seed: 0, traced: false });
        self.work_left = self.work_left.saturating_sub(answer.tally.work);
        if answer.stuck {
            (self.is_stuck, self.work_left) = (true, 0);
            answer.found = None;
        }
        answer
    }

    fn asked(&mut self, schedule: &[u8], plan: Vec<Crashes>, share: u64) -> Option<FailingCase> {
        let work_max = self.work_left / share;
        if work_max == 0 {
            return None;
        }
        self.run(plan, Policy::script(schedule.to_vec()), Tally::within(work_max)).found
    }

    /// Asks on the schedule of the best case.
    fn asked_narrowly(&mut self, plan: Vec<Crashes>) -> Option<FailingCase> {
        self.asked(&self.best.case.schedule.clone(), plan, NARROW_SHARE)
    }

    fn asked_widely(&mut self, plan: Vec<Crashes>) -> Option<FailingCase> {
        self.asked(&self.best.case.schedule.clone(), plan, WIDE_SHARE)
    }

    /// Finds the fewest units at the crash of `level`, and tells the search that found them.
    fn fewest_units(&mut self, level: usize) -> Search {
        let points = Points::After(self.best.case.crashes[level].after);
        for most in 0..=UNITS_MAX {
            for oldest in [false, true] {
                let search = Search::Few { oldest, most };
                let crashes = Crashes { points, search: search.clone() };
                if let Some(found) = self.asked_narrowly(plan_at(&self.best.case, level, crashes)) {
                    self.best = found;
                    return search;
                }
            }
        }
        Search::All
    }

    /// Leaves out stretches of the schedule, many at once first, and joins those of one thread that
    /// another's separates. The crash stays where it was among what is left.
    fn fewest_stretches(&mut self, searches: &[Search]) {
        let mut length = stretches(&self.best.case.schedule).len() / 2;
        while length > 0 {
            let mut at = stretches(&self.best.case.schedule).len();
            while at > 0 && self.work_left > 0 {
                at = at.saturating_sub(length);
                let all = stretches(&self.best.case.schedule);
                let end = (at + length).min(all.len());
                let fewer = [&all[..at], &all[end..]].concat();
                let left_out = all[at..end].iter().map(|stretch| stretch.len() as u64).sum();
                if self.is_kept(&fewer, left_out, searches) || length > 1 || end + 1 > all.len() {
                    continue;
                }
                let mut joined = all.clone();
                joined.swap(at, end);
                self.is_kept(&joined, 0, searches);
            }
            length /= 2;
        }
    }

    /// Makes the best case one of these stretches, if that fails and is smaller.
    fn is_kept(&mut self, all: &[Vec<u8>], left_out: u64, searches: &[Search]) -> bool {
        let schedule = all.concat();
        let plan = searches.iter().enumerate().map(|(level, search)| {
            let before = self.best.case.crashes[level].after;
            let points = match level {
                0 => Points::After(before.saturating_sub(left_out)),
                _ => Points::Every,
            };
            Crashes { points, search: search.clone() }
        });
        let plan = plan.collect();
        let Some(found) = self.asked(&schedule, plan, NARROW_SHARE) else { return false };
        let size = |found: &FailingCase| {
            let schedule = &found.case.schedule;
            (stretches(schedule).len(), schedule.len())
        };
        let smaller = size(&found) < size(&self.best);
        if smaller && found.case.crashes.len() == self.depth() {
            self.best = found;
            return true;
        }
        false
    }

    /// Searches all schedules with fewer preemptions than the best case has switches.
    fn fewest_preemptions(&mut self) {
        let depth = self.depth();
        let switches = stretches(&self.best.case.schedule).len().saturating_sub(1) as u32;
        for bound in 0..switches.min(PREEMPTIONS_MAX + 1) {
            let mut bounded = Bounded::new(bound);
            let mut seen = Tally::default().seen;
            let mut work_left = self.work_left / WIDE_SHARE;
            while work_left > 0 {
                let mut tally = Tally::within(work_left);
                tally.seen = seen;
                let policy = Policy::Bounded(bounded);
                let plan = everything(depth);
                let answer = self.run(plan, policy, tally);
                work_left = work_left.saturating_sub(answer.tally.work).min(self.work_left);
                if let Some(found) = answer.found {
                    self.best = found;
                    return;
                }
                let Policy::Bounded(next) = answer.policy else {
                    unreachable!("a run gives back the policy it was given")
                };
                (bounded, seen) = (next, answer.tally.seen);
                if !bounded.advance() {
                    break;
                }
            }
        }
    }

    /// The images of a point include those of the events before it, back to the point before: while
    /// an earlier event fails too, it is the better one.
    fn earliest(&mut self, level: usize) {
        if level > 0 {
            let every = Crashes { points: Points::Every, search: Search::All };
            let plan = plan_at(&self.best.case, level, every);
            if let Some(found) = self.asked_widely(plan) {
                self.best = found;
            }
        }
        let before = |crash: &Crash| crash.after.checked_sub(1);
        while let Some(earlier) = self.best.case.crashes.get(level).and_then(before) {
            let crashes = Crashes { points: Points::After(earlier), search: Search::All };
            match self.asked_narrowly(plan_at(&self.best.case, level, crashes)) {
                Some(found) if found.case.crashes.len() == self.depth() => self.best = found,
                _ => return,
            }
        }
    }
}
