//! Steps of a protocol, each left out in turn.

use super::{Control, Settings, index, index_looks, index_sections, maps};
use terrace_machine::{Crashable, Report, Without};

/// What a memory does not do where a step is left out.
pub(super) type Leaves = fn(Crashable) -> Without<Crashable>;

/// A step that a test is to notice the lack of.
pub(super) struct LeftOut {
    /// The test it belongs to.
    pub test: &'static str,
    pub name: &'static str,
    pub meaning: &'static str,
    /// Looks for a crash that shows the lack.
    pub run: fn(&Settings) -> Report,
}

/// The steps of the test of this name.
pub(super) fn steps(test: &str) -> impl Iterator<Item = &'static LeftOut> {
    let all = [maps::STEPS, index::STEPS, index_sections::STEPS, index_looks::STEPS];
    all.into_iter().flatten().filter(move |step| step.test == test)
}

/// Every step of the test of this name, left out in turn.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let run = |step: &LeftOut| {
        let control = Control::of(step.name, step.meaning, step.test, settings, step.run);
        tell(&control);
        control
    };
    steps(test).map(run).collect()
}
