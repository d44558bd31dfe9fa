//! The explorer: a scenario, and the ways to explore its crashes.

use super::choices::Search;
use super::core::{Core, Limits, Scenario};
use super::explore::Task;
use super::memory::Crashable;
use super::notes::{Log, Noted, Notes};
use super::plan::{Case, Crashes, Points, Tally};
use super::report::{Failure, Report};
use super::schedule::{Bounded, Policy, Schedule};
use super::shrink;
use crate::random::mix;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_memory::Domain;

type Action = Box<dyn Fn(&Crashable) + Send + Sync>;
type Thread<E> = Box<dyn Fn(&Crashable, &Log<E>) + Send + Sync>;
type Check<E> = Box<dyn Fn(&Crashable, &[Noted<E>]) -> Result<(), String> + Send + Sync>;

/// Most samples of a crash point in one schedule of several threads.
const SAMPLES_OF_POINT: f64 = 8.0;
/// Share of the states after which it is known how many a sample takes.
const TRIED: f64 = 0.05;
/// Schedules of several threads that the samples should suffice for.
const SCHEDULES: f64 = 64.0;
/// Share of a recovery's own crash points that a sample goes into.
const NESTED_SAMPLES: f64 = 0.25;
/// Most events of a trace before its crash.
const EVENTS_SHOWN: usize = 60;

struct Body<E> {
    setup: Action,
    threads: Vec<Thread<E>>,
    recover: Action,
    check: Check<E>,
    end: Action,
    notes: Arc<Notes<E>>,
}

impl<E: Clone + Debug + Send + Sync + 'static> Scenario for Body<E> {
    fn setup(&self, memory: &Crashable) {
        (self.setup)(memory);
    }

    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn thread(&self, thread: usize, memory: &Crashable) {
        let log = Log { memory: memory.clone(), notes: self.notes.clone(), thread };
        (self.threads[thread])(memory, &log);
    }

    fn recover(&self, memory: &Crashable) {
        (self.recover)(memory);
    }

    fn end(&self, memory: &Crashable) {
        (self.end)(memory);
    }

    fn check(&self, memory: &Crashable) -> Result<(), String> {
        self.notes.read(|notes| (self.check)(memory, notes))
    }

    fn forget_notes(&self) {
        self.notes.clear();
    }

    fn notes_hash(&self) -> u64 {
        self.notes.hash()
    }
}

/// A scenario and its options. `E` is what threads note for the check.
///
/// # Examples
/// A record and the flag that publishes it, in two lines, without a fence between them:
/// ```
/// use terrace_machine::Explorer;
/// use terrace_memory::Domain;
///
/// let explorer = Explorer::<()>::new(Domain::Adr, 4096)
///     .thread(|m, _| {
///         m.store(64, 7);
///         m.write_back(64, 8);
///         m.store(0, 1); // published before the fence
///         m.persist(0, 8);
///     })
///     .check(|m, _| match (m.load(0), m.load(64)) {
///         (1, 0) => Err("published, but lost".into()),
///         _ => Ok(()),
///     });
/// let failure = explorer.exhaustive(1000).expect_failure();
/// assert!(failure.trace.contains("line 0x40 lost its last store"), "{failure}");
/// assert_eq!(explorer.replay(&failure.replay).unwrap().unwrap().message, failure.message);
/// ```
///
/// # Rules of a scenario
/// * Everything is deterministic but for the schedule: no clocks, no randomness without a seed, no
///   iteration over randomly seeded maps.
/// * Setup runs before every schedule and is durable when it returns. State that threads share
///   beside the memory is rebuilt there.
/// * Recovery and check take everything from the memory, as after a power cut. A recovery runs many
///   times; it crashes only if [`Explorer::crashes`] is above 1. A check never does.
/// * Threads wait through the memory and call [`lab::pause`](terrace_memory::lab::pause) while
///   they do; they take no lock beside it that another thread may hold across an event.
pub struct Explorer<E = ()> {
    domain: Domain,
    bytes: u64,
    crashes: usize,
    preemptions: u32,
    schedule: Schedule,
    steps_max: u64,
    silence_max: Duration,
    /// Whether a failing case is made small.
    is_small: bool,
    body: Arc<Body<E>>,
}

impl<E> std::fmt::Debug for Explorer<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explorer")
            .field("domain", &self.domain)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl<E: Clone + Debug + Send + Sync + 'static> Explorer<E> {
    /// An explorer of a zeroed memory of `bytes` bytes (rounded up to pages) in `domain`.
    pub fn new(domain: Domain, bytes: u64) -> Self {
        Explorer {
            domain,
            bytes: bytes.max(1).next_multiple_of(4096),
            crashes: 1,
            preemptions: 2,
            schedule: Schedule::Random,
            steps_max: 1 << 20,
            silence_max: Duration::from_secs(30),
            is_small: true,
            body: Arc::new(Body {
                setup: Box::new(|_| {}),
                threads: Vec::new(),
                recover: Box::new(|_| {}),
                check: Box::new(|_, _| Ok(())),
                end: Box::new(|_| {}),
                notes: Arc::new(Notes::new()),
            }),
        }
    }

    fn body(&mut self) -> &mut Body<E> {
        Arc::get_mut(&mut self.body).expect("nothing has run while the explorer is being built")
    }

    /// What happens before the threads start; durable when it returns (but not under
    /// [`Domain::None`]). To explore crashes of a first formatting, do it in a thread.
    pub fn setup(mut self, setup: impl Fn(&Crashable) + Send + Sync + 'static) -> Self {
        self.body().setup = Box::new(setup);
        self
    }

    /// Adds a thread. Threads are numbered from 0 in the order of these calls.
    pub fn thread(mut self, thread: impl Fn(&Crashable, &Log<E>) + Send + Sync + 'static) -> Self {
        self.body().threads.push(Box::new(thread));
        self
    }

    /// What happens first after a crash. It may crash itself, see [`Explorer::crashes`].
    pub fn recover(mut self, recover: impl Fn(&Crashable) + Send + Sync + 'static) -> Self {
        self.body().recover = Box::new(recover);
        self
    }

    /// What happens when a run is over, whether it ended or crashed: drops what the setup shared among the threads.
    /// Its events are not explored, and what it writes is seen by nobody.
    pub fn end(mut self, end: impl Fn(&Crashable) + Send + Sync + 'static) -> Self {
        self.body().end = Box::new(end);
        self
    }

    /// Decides whether the recovered memory may be, given what was noted before the (first) crash.
    /// A panic counts as an error. It may write; what it writes is undone.
    pub fn check(
        mut self,
        check: impl Fn(&Crashable, &[Noted<E>]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.body().check = Box::new(check);
        self
    }

    /// Number of successive crashes, 1 (the default) to 3: with 2, recovery crashes too.
    ///
    /// # Panics
    /// If it is another number.
    pub fn crashes(mut self, crashes: usize) -> Self {
        assert!((1..=3).contains(&crashes), "1 to 3 successive crashes, not {crashes}");
        self.crashes = crashes;
        self
    }

    /// Most preemptions of a schedule in an exhaustive search; 2 by default. A switch away from a
    /// thread that has ended or pauses is none.
    pub fn preemptions(mut self, preemptions: u32) -> Self {
        self.preemptions = preemptions;
        self
    }

    /// How schedules are drawn when states are sampled.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Events after which a run, or a recovery with its check, is held never to end; a million by
    /// default.
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps_max = steps;
        self
    }

    /// Time without any event after which a thread is held to be blocked outside of the memory, on a
    /// lock that another thread of the scenario holds; 30 seconds by default. That is a failure, and
    /// its threads are left behind, blocked.
    pub fn silence(mut self, silence_max: Duration) -> Self {
        self.silence_max = silence_max;
        self
    }

    /// Leaves a failing case as it was met, for those who ask whether there is one and not what it is: making it small
    /// may need a minute.
    ///
    /// ```
    /// use terrace_machine::Explorer;
    /// use terrace_memory::Domain;
    ///
    /// let explorer = Explorer::<()>::new(Domain::Adr, 4096)
    ///     .thread(|memory, _| memory.store(0, 1))
    ///     .check(|memory, _| if memory.load(0) == 1 { Err("it is there".into()) } else { Ok(()) });
    /// let failure = explorer.as_met().exhaustive(1000).expect_failure();
    /// assert_eq!(failure.message, "it is there");
    /// ```
    pub fn as_met(mut self) -> Self {
        self.is_small = false;
        self
    }

    fn core(&self) -> Arc<Core> {
        let limits = Limits { steps_max: self.steps_max, silence_max: self.silence_max };
        let scenario = self.body.clone();
        Arc::new(Core::new(self.domain, self.bytes, self.crashes, limits, scenario))
    }

    /// Explores every schedule (within the bound on preemptions) and every crash state, up to
    /// `states_max` states.
    pub fn exhaustive(&self, states_max: u64) -> Report {
        let start = Instant::now();
        let core = self.core();
        let plan = everything(self.crashes);
        let mut tally = Tally::new(states_max);
        let mut bounded = Bounded::new(self.preemptions);
        let mut schedules = 0;
        loop {
            let policy = Policy::Bounded(bounded);
            let task = Task { plan: plan.clone(), policy, tally, seed: 0, traced: false };
            let answer = core.run(task);
            schedules += 1;
            tally = answer.tally;
            let capped = tally.states >= states_max;
            let Policy::Bounded(next) = answer.policy else {
                unreachable!("a run gives back the policy it was given")
            };
            bounded = next;
            let over = answer.found.is_some() || capped || !bounded.advance();
            if over {
                let exhausted = answer.found.is_none() && !capped;
                let mut report = report(&tally, schedules, exhausted, None, start);
                report.failure = self.failure(core, answer.found, answer.stuck, None);
                return report;
            }
        }
    }

    /// Draws about `states` crash states: schedules, crash points and what survives. Half of the
    /// states have every read newest, or every read oldest, but for one. Where one thread crashes once, a crash point
    /// with fewer images than were to be drawn has each looked at once; if all points are such, that is all
    /// ([`Report::exhausted`]).
    pub fn sampled(&self, states: u64, seed: u64) -> Report {
        let start = Instant::now();
        let core = self.core();
        let mut tally = Tally::new(states);
        let threads = self.body.threads.len();
        let (mut schedules, mut points, mut events) = (0, 0.0, 0);
        // States that a sample takes with those of its own crash points.
        let mut cost = (self.crashes == 1).then_some(1.0);
        loop {
            let run_seed = mix(seed ^ mix(schedules));
            // The first run counts crash points and explores none. A schedule of several threads
            // gets few samples a point: other schedules are worth more.
            let left = (states - tally.states) as f64 / f64::max(points, 1.0);
            let samples = match (schedules, threads) {
                (0, _) => 0.0,
                (_, 0 | 1) => match cost {
                    Some(cost) => (left / cost).max(0.01),
                    None => (left * TRIED).clamp(0.01, 1.0),
                },
                _ => (states as f64 / points / SCHEDULES).clamp(0.01, SAMPLES_OF_POINT),
            };
            let mut plan = everything(self.crashes);
            for (level, crashes) in plan.iter_mut().enumerate() {
                let samples = if level == 0 { samples } else { NESTED_SAMPLES };
                crashes.search = Search::Random { samples };
            }
            let policy = Policy::drawn(self.schedule, threads, events, run_seed);
            tally.points_left = 0;
            let before = tally.states;
            let answer = core.run(Task { plan, policy, tally, seed: run_seed, traced: false });
            schedules += 1;
            tally = answer.tally;
            points = tally.points_left as f64;
            let taken = (tally.states - before) as f64;
            if self.crashes > 1 && samples > 0.0 && taken > 0.0 {
                cost = Some((taken / (samples * points)).max(1.0));
            }
            events = answer.events;
            let over = answer.found.is_some() || tally.states >= states || points == 0.0;
            if over {
                let exhausted = answer.found.is_none() && points == 0.0 && tally.states < states;
                let mut report = report(&tally, schedules, exhausted, Some(seed), start);
                report.failure = self.failure(core, answer.found, answer.stuck, Some(seed));
                return report;
            }
        }
    }

    /// Runs one case again: `Ok(None)` if it does not fail (any more).
    ///
    /// # Errors
    /// If the text is not that of a case, with what was expected.
    pub fn replay(&self, replay: &str) -> Result<Option<Failure>, String> {
        let case: Case = replay.parse()?;
        if case.crashes.len() > self.crashes {
            return Err(format!(
                "{replay:?} has {} successive crashes, this explorer {}",
                case.crashes.len(),
                self.crashes
            ));
        }
        let answer = shrink::replayed(&self.core(), &case);
        Ok(answer.found.map(|found| Failure {
            message: found.message,
            replay: replay.into(),
            trace: shortened(answer.trace),
            seed: None,
        }))
    }

    fn failure(
        &self,
        core: Arc<Core>,
        found: Option<super::plan::FailingCase>,
        stuck: bool,
        seed: Option<u64>,
    ) -> Option<Failure> {
        let found = found?;
        let (small, runs) = match (stuck, self.is_small) {
            (true, _) => (found, false),
            (false, true) => shrink::shrunk(&core, found),
            (false, false) => (found, true),
        };
        if !runs {
            // Its threads hold on to the memory: it can neither be made smaller nor shown.
            let replay = small.case.to_string();
            return Some(Failure { message: small.message, replay, trace: String::new(), seed });
        }
        let answer = shrink::replayed(&core, &small.case);
        let again = answer.found.is_some_and(|again| again.message == small.message);
        let warning =
            "\nit does not fail again when replayed: something in it is not deterministic";
        Some(Failure {
            message: format!("{}{}", small.message, if again { "" } else { warning }),
            replay: small.case.to_string(),
            trace: shortened(answer.trace),
            seed,
        })
    }
}

/// The plan that crashes everywhere and searches everything.
pub(super) fn everything(crashes: usize) -> Vec<Crashes> {
    vec![Crashes { points: Points::Every, search: Search::All }; crashes]
}

fn report(
    tally: &Tally,
    schedules: u64,
    exhausted: bool,
    seed: Option<u64>,
    start: Instant,
) -> Report {
    Report {
        states: tally.states,
        events: tally.events,
        crash_points: tally.points,
        merged: tally.merged,
        images: tally.images,
        schedules,
        exhausted,
        seed,
        hash: tally.hash,
        failure: None,
        elapsed: start.elapsed(),
    }
}

/// The trace as text, without its beginning where that is long.
fn shortened(mut trace: Vec<String>) -> String {
    let crash = trace.iter().position(|line| line == "CRASH").unwrap_or(trace.len());
    if let Some(left_out) = crash.checked_sub(EVENTS_SHOWN).filter(|left_out| *left_out > 0) {
        trace.splice(..left_out, [format!("({left_out} earlier events)")]);
    }
    trace.join("\n")
}
