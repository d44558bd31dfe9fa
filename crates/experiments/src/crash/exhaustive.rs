//! Tests that are explored to the end, or drawn from.

use super::Settings;
use std::fmt::Debug;
use terrace_machine::{Explorer, Failure, Report};

/// Most states of a test that is explored to the end: one with more is not what it says.
const STATES_MAX: u64 = 1_000_000;

/// States asked for from which on every state is met.
pub const WHOLE_FROM: u64 = 5_000;

/// How a test explores its scenario.
pub(super) trait Explored {
    fn explored(&self, settings: &Settings) -> Report;

    /// The same where nothing is left out: a test that says that it meets every state, and does not, has failed.
    fn tested(&self, settings: &Settings) -> Report {
        self.explored(settings)
    }

    /// The same where a step is left out: that it fails is all there is to know.
    fn left_out(self, settings: &Settings) -> Report
    where
        Self: Sized;

    fn replayed(&self, state: &str) -> Result<Option<Failure>, String>;
}

/// States are drawn, as many as were asked for.
impl<E: Clone + Debug + Send + Sync + 'static> Explored for Explorer<E> {
    fn explored(&self, settings: &Settings) -> Report {
        self.sampled(settings.states, settings.seed)
    }

    fn left_out(self, settings: &Settings) -> Report {
        self.as_met().sampled(settings.states, settings.seed)
    }

    fn replayed(&self, state: &str) -> Result<Option<Failure>, String> {
        self.replay(state)
    }
}

/// A scenario so small that every schedule within the bound on preemptions is met, and every crash state of each; if
/// so few states were asked for that a quick look suffices, some are drawn.
pub(super) struct Exhaustive<E>(pub Explorer<E>);

impl<E: Clone + Debug + Send + Sync + 'static> Explored for Exhaustive<E> {
    fn explored(&self, settings: &Settings) -> Report {
        match settings.states {
            ..WHOLE_FROM => self.0.sampled(settings.states, settings.seed),
            _ => self.0.exhaustive(STATES_MAX),
        }
    }

    fn tested(&self, settings: &Settings) -> Report {
        let report = self.explored(settings);
        if settings.states < WHOLE_FROM { report } else { to_the_end(report) }
    }

    fn left_out(self, settings: &Settings) -> Report {
        self.0.as_met().exhaustive(settings.states)
    }

    fn replayed(&self, state: &str) -> Result<Option<Failure>, String> {
        self.0.replay(state)
    }
}

/// The report, with a failure that says how far it got if that is not to the end.
fn to_the_end(mut report: Report) -> Report {
    if !report.exhausted && report.failure.is_none() {
        let message = format!(
            "not explored to the end: {} states at {} crash points of {} schedules, and there are more; \
             make the scenario smaller",
            report.states, report.crash_points, report.schedules
        );
        let (replay, trace) = (String::new(), String::new());
        report.failure = Some(Failure { message, replay, trace, seed: None });
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_memory::Domain;

    #[test]
    fn a_test_of_every_state_that_meets_only_some_has_failed() {
        let two_words = || {
            Explorer::<()>::new(Domain::Adr, 4096)
                .thread(|memory, _| {
                    memory.store(0, 1);
                    memory.store(64, 1);
                })
                .check(|memory, _| {
                    let _read = (memory.load(0), memory.load(64));
                    Ok(())
                })
        };
        assert!(to_the_end(two_words().exhaustive(100)).assert_sound().exhausted);
        let failure = to_the_end(two_words().exhaustive(2)).expect_failure();
        assert!(failure.message.starts_with("not explored to the end: 2 states at"), "{failure}");
    }
}
