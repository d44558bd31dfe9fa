//! What the logs' protocol needs, left out step by step.

use super::super::exhaustive::Explored;
use super::super::{Control, Settings};
use super::{COLLECTING, ONE_LOG, PILING, WRITING, explorer, loads, threads};
use terrace_index::deltas::{Step, Steps};

/// The test that is to notice the lack of each step.
fn test_of(step: Step) -> &'static str {
    match step {
        Step::RecordWriteBack
        | Step::RecordChecksum
        | Step::HeadWriteBack
        | Step::SplitWhole
        | Step::GrownWriteBack
        | Step::GrownFence => "tree-log",
        Step::RecordStamp | Step::CopyFirst | Step::FreeWriteBack | Step::DeadMark => {
            "tree-log-collect"
        }
        Step::HeadFence => "tree-log-uses",
        Step::FreeFence => "tree-log-pile",
        Step::RecordFence => "tree-log-threads",
        Step::LoadMark => "tree-log-load",
    }
}

/// Every step of a test left out in turn.
pub(in super::super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let steps = Step::ALL.iter().filter(|step| test_of(**step) == test);
    let run = |step: &Step| {
        let steps = Steps::ALL.without(&[*step]);
        let explore = |s: &Settings| match test {
            "tree-log" => explorer(steps, WRITING, s).left_out(s),
            "tree-log-uses" => explorer(steps, ONE_LOG, s).left_out(s),
            "tree-log-collect" => explorer(steps, COLLECTING, s).left_out(s),
            "tree-log-pile" => explorer(steps, PILING, s).left_out(s),
            "tree-log-load" => loads(steps, s).left_out(s),
            _ => threads(steps, s).left_out(s),
        };
        let control = Control::of(&format!("{step:?}"), step.meaning(), test, settings, explore);
        tell(&control);
        control
    };
    steps.map(run).collect()
}
