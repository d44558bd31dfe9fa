//! Making a failing case small: first the fewest preemptions, then, crash by crash, the earliest
//! one and the fewest units that differ from "all newest" or "all oldest".
//!
//! Each step runs the scenario again with a narrower question and keeps the answer only if it
//! fails too. Budgets are counts, not times, so that the result is the same on every machine.

use super::choices::Search;
use super::core::Core;
use super::explore::{Answer, Task};
use super::explorer::everything;
use super::plan::{Case, Crashes, Found, Points, Tally};
use super::schedule::{Bounded, Policy};
use std::sync::Arc;

/// Most runs of the scenario for one question.
const RUNS_MAX: usize = 400;
/// Most events of all these runs: a long scenario gets fewer.
const EVENTS_MAX: usize = 10_000_000;
/// Most states of one run.
const STATES_MAX: u64 = 50_000;
/// Largest number of differing units that is searched for.
const UNITS_MAX: usize = 3;

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

/// The smallest case found.
pub(super) fn shrunk(core: &Arc<Core>, found: Found) -> Found {
    let depth = found.case.crashes.len();
    let mut best = fewest_preemptions(core, found, depth);
    if let Some(earlier) = asked(core, &best.case.schedule, everything(depth)) {
        best = earlier;
    }
    for level in 0..best.case.crashes.len() {
        best = earliest(core, best, level);
        best = fewest_units(core, best, level);
    }
    best
}

fn runs_max(found: &Found) -> usize {
    (EVENTS_MAX / found.case.schedule.len().max(1)).clamp(1, RUNS_MAX)
}

fn forced(case: &Case, levels: usize) -> Vec<Crashes> {
    let crashes = case.crashes[..levels].iter();
    let force = |crash: &super::plan::Crash| Crashes {
        points: Points::After(crash.after),
        search: Search::Forced(crash.choices.clone()),
    };
    crashes.map(force).collect()
}

/// Runs a plan on a schedule.
fn asked(core: &Arc<Core>, schedule: &[u8], plan: Vec<Crashes>) -> Option<Found> {
    let policy = Policy::script(schedule.to_vec());
    let tally = Tally::new(STATES_MAX);
    core.run(Task { plan, policy, tally, seed: 0, traced: false }).found
}

fn fewest_preemptions(core: &Arc<Core>, mut best: Found, depth: usize) -> Found {
    let switches = best.case.schedule.windows(2).filter(|pair| pair[0] != pair[1]).count();
    for bound in 0..switches as u32 {
        let mut bounded = Bounded::new(bound);
        let mut tally = Tally::new(STATES_MAX);
        for _ in 0..runs_max(&best) {
            let policy = Policy::Bounded(bounded);
            let plan = everything(depth);
            let answer = core.run(Task { plan, policy, tally, seed: 0, traced: false });
            if let Some(found) = answer.found {
                return found;
            }
            tally = answer.tally;
            let Policy::Bounded(next) = answer.policy else {
                break;
            };
            bounded = next;
            if tally.states >= STATES_MAX || !bounded.advance() {
                break;
            }
        }
        if bound >= 2 {
            break;
        }
    }
    // Too many schedules to search: leave out single stretches of this one instead.
    let mut runs: Vec<Vec<u8>> =
        best.case.schedule.chunk_by(|a, b| a == b).map(<[u8]>::to_vec).collect();
    let mut at = runs.len();
    for _ in 0..runs_max(&best) {
        at = match at.checked_sub(1) {
            Some(before) if runs.len() > 2 => before,
            _ => break,
        };
        let mut fewer = runs.clone();
        fewer.remove(at);
        if let Some(found) = asked(core, &fewer.concat(), everything(depth)) {
            runs = found.case.schedule.chunk_by(|a, b| a == b).map(<[u8]>::to_vec).collect();
            at = at.min(runs.len());
            best = found;
        }
    }
    best
}

/// The plan that forces the crashes below `level` and asks `crashes` there and everything above.
fn plan_at(case: &Case, level: usize, crashes: Crashes) -> Vec<Crashes> {
    let mut plan = forced(case, level);
    plan.push(crashes);
    plan.extend(everything(case.crashes.len() - level - 1));
    plan
}

/// The images of a point include those of the events before it, back to the point before: while an
/// earlier event fails too, it is the better one.
fn earliest(core: &Arc<Core>, mut best: Found, level: usize) -> Found {
    if level > 0 {
        let every = Crashes { points: Points::Every, search: Search::All };
        let plan = plan_at(&best.case, level, every);
        best = asked(core, &best.case.schedule, plan).unwrap_or(best);
    }
    for _ in 0..runs_max(&best) {
        let Some(earlier) = best.case.crashes[level].after.checked_sub(1) else {
            break;
        };
        let crashes = Crashes { points: Points::After(earlier), search: Search::All };
        match asked(core, &best.case.schedule, plan_at(&best.case, level, crashes)) {
            Some(found) if found.case.crashes.len() == best.case.crashes.len() => best = found,
            _ => break,
        }
    }
    best
}

fn fewest_units(core: &Arc<Core>, best: Found, level: usize) -> Found {
    let points = Points::After(best.case.crashes[level].after);
    for most in 0..=UNITS_MAX {
        for oldest in [false, true] {
            let crashes = Crashes { points, search: Search::Few { oldest, most } };
            let plan = plan_at(&best.case, level, crashes);
            if let Some(found) = asked(core, &best.case.schedule, plan) {
                return found;
            }
        }
    }
    best
}
