//! What the logs' protocol needs, left out step by step.

use super::super::{Control, Settings};
use super::{COLLECTING, WRITING, explorer, loads, threads};
use terrace_index::deltas::{Step, Steps};

/// The test that is to notice the lack of each step.
fn test_of(step: Step) -> &'static str {
    match step {
        Step::RecordWriteBack | Step::RecordChecksum | Step::HeadWriteBack | Step::SplitWhole => {
            "tree-log"
        }
        Step::RecordStamp
        | Step::CopyFirst
        | Step::FreeWriteBack
        | Step::FreeFence
        | Step::DeadMark => "tree-log-collect",
        Step::RecordFence => "tree-log-threads",
        Step::LoadMark => "tree-log-load",
    }
}

/// Every step of a test left out in turn.
pub(in super::super) fn controls(
    test: &str,
    states: u64,
    seed: u64,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let steps = Step::ALL.iter().filter(|step| test_of(**step) == test);
    let run = |step: &Step| {
        let settings = Settings { states, seed, ..Settings::default() };
        let steps = Steps::ALL.without(&[*step]);
        let report = match test {
            "tree-log" => explorer(steps, WRITING, &settings).sampled(states, seed),
            "tree-log-collect" => explorer(steps, COLLECTING, &settings).sampled(states, seed),
            "tree-log-load" => loads(steps, &settings).sampled(states, seed),
            _ => threads(steps, &settings).sampled(states, seed),
        };
        let control = Control::of(&format!("{step:?}"), step.meaning(), test, seed, report);
        tell(&control);
        control
    };
    steps.map(run).collect()
}
