//! Failure atomicity of the three designs after crashes anywhere, and the steps without which they have none.

use super::world::{Random, World, small};
use terrace_machine::ssp::{Consolidation, Design, Fault};

const LONG: &str = "TERRACE_LONG";

/// Crashes a small processor several times, recovering in between; says what went wrong.
fn crash_often(design: Design, left_out: Option<Fault>, seed: u64) -> Result<u64, String> {
    let mut random = Random(seed);
    let cores = 1 + random.below(3) as usize;
    let mut parameters = small(cores, &mut random);
    parameters.left_out = left_out;
    parameters.sub_page_lines = [1, 4, 16][random.below(3) as usize];
    if random.below(4) == 0 {
        parameters.consolidation = Consolidation::Lazy(2);
    }
    let mut world = World::new(&parameters, design, 6, seed);
    let mut fallbacks = 0;
    for _ in 0..6 {
        let most = [40, 250][random.below(2) as usize];
        for _ in 0..random.below(most) {
            world.step().map_err(|what| format!("seed {seed}: {what}"))?;
        }
        fallbacks += world.fallbacks();
        world.crash().map_err(|what| format!("seed {seed}: {what}"))?;
    }
    Ok(fallbacks)
}

fn seeds() -> u64 {
    // TERRACE_LONG=1 cargo test -p terrace-machine --test suite ssp::crashes
    if std::env::var_os(LONG).is_some() { 200_000 } else { 500 }
}

fn survives(design: Design) -> u64 {
    let run = |seed| crash_often(design, None, seed).unwrap_or_else(|what| panic!("{what}"));
    (0..seeds()).map(run).sum()
}

#[test]
fn shadow_sub_paging_recovers_every_acknowledged_section_and_no_half_of_one() {
    assert!(survives(Design::Ssp) > 0, "some section took the fall-back");
}

#[test]
fn undo_logging_recovers_every_acknowledged_section_and_no_half_of_one() {
    survives(Design::Undo);
}

#[test]
fn redo_logging_recovers_every_acknowledged_section_and_no_half_of_one() {
    survives(Design::Redo);
}

/// Whether some seed shows that the step was left out: a wrong word, or a broken invariant.
fn is_noticed(design: Design, left_out: Option<Fault>) -> bool {
    let found = (0..20_000).find(|seed| {
        std::panic::catch_unwind(|| crash_often(design, left_out, *seed))
            .map_or(true, |run| run.is_err())
    });
    println!("{design:?} without {left_out:?}: seed {found:?}");
    found.is_some()
}

#[test]
fn no_atomicity_is_noticed() {
    assert!(is_noticed(Design::None, None));
}

#[test]
fn every_step_that_is_left_out_is_noticed() {
    let steps = [
        (Design::Ssp, Fault::DataFence),
        (Design::Ssp, Fault::CommitMark),
        (Design::Ssp, Fault::JournalOrder),
        (Design::Ssp, Fault::FlipBroadcast),
        (Design::Ssp, Fault::Retag),
        (Design::Ssp, Fault::ConsolidationOrder),
        (Design::Ssp, Fault::PageTableOrder),
        (Design::Ssp, Fault::CoreCount),
        (Design::Ssp, Fault::CheckpointOrder),
        (Design::Ssp, Fault::CheckpointCommitted),
        (Design::Ssp, Fault::Epoch),
        (Design::Ssp, Fault::AbortFlips),
        (Design::Ssp, Fault::FallbackLog),
        (Design::Undo, Fault::UndoLog),
        (Design::Redo, Fault::RedoMark),
        (Design::Redo, Fault::RedoCompletion),
    ];
    let missed: Vec<_> =
        steps.into_iter().filter(|(design, step)| !is_noticed(*design, Some(*step))).collect();
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
