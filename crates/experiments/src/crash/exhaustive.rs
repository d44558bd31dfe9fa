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
    fn replayed(&self, state: &str) -> Result<Option<Failure>, String>;
}

/// States are drawn, as many as were asked for.
impl<E: Clone + Debug + Send + Sync + 'static> Explored for Explorer<E> {
    fn explored(&self, settings: &Settings) -> Report {
        self.sampled(settings.states, settings.seed)
    }

    fn replayed(&self, state: &str) -> Result<Option<Failure>, String> {
        self.replay(state)
    }
}

/// A scenario so small that every schedule and every state is met, unless so few were asked for that
/// a quick look suffices.
pub(super) struct Exhaustive<E>(pub Explorer<E>);

impl<E: Clone + Debug + Send + Sync + 'static> Explored for Exhaustive<E> {
    fn explored(&self, settings: &Settings) -> Report {
        match settings.states {
            ..WHOLE_FROM => self.0.sampled(settings.states, settings.seed),
            _ => self.0.exhaustive(STATES_MAX),
        }
    }

    fn replayed(&self, state: &str) -> Result<Option<Failure>, String> {
        self.0.replay(state)
    }
}
