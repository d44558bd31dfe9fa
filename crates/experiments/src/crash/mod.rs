//! Crash tests: every persistent structure under the crash explorer, and every ordering point left
//! out in turn, to see that the explorer objects.
//!
//! A test is a scenario with a name: setup, operations that note what they acknowledge, recovery, and a
//! check that finds what was acknowledged, or that and the operation under way, and nothing else.
//! States are drawn, from a seed; whatever fails is shrunk, and replays from a short text.

mod maps;
mod rewrites;
mod sections;

use serde::Serialize;
use terrace_durable::sections::{EngineKind, Step};
use terrace_machine::Report;
use terrace_memory::Domain;

/// How a test is to run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Crash states to look at.
    pub states: u64,
    /// What the choices follow from.
    pub seed: u64,
    /// When a store survives.
    pub domain: Domain,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { states: 20_000, seed: 1, domain: Domain::Adr }
    }
}

/// A structure, or engine, and what is done to it.
#[derive(Clone, Copy)]
pub struct CrashTest {
    /// What it is called.
    pub name: &'static str,
    /// What is crashed, in one line.
    pub about: &'static str,
    run: fn(&Settings) -> Report,
    replay: fn(&Settings, &str) -> Result<Option<terrace_machine::Failure>, String>,
}

impl std::fmt::Debug for CrashTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CrashTest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CrashTest {
    /// Looks at `settings.states` states.
    pub fn run(&self, settings: &Settings) -> Report {
        (self.run)(settings)
    }

    /// Runs one state again, as a failure names it; the failure, if it still is one.
    ///
    /// # Errors
    /// What is wrong with `state`, if it names none.
    pub fn replay(
        &self,
        settings: &Settings,
        state: &str,
    ) -> Result<Option<terrace_machine::Failure>, String> {
        (self.replay)(settings, state)
    }
}

macro_rules! tests {
    ($($name:literal, $about:literal, $explorer:expr;)*) => {
        &[$(CrashTest {
            name: $name,
            about: $about,
            run: |settings| $explorer(settings).sampled(settings.states, settings.seed),
            replay: |settings, state| $explorer(settings).replay(state),
        }),*]
    };
}

/// Every test.
pub const ALL: &[CrashTest] = tests! {
    "map-logs", "a map with values in logs: puts, deletes, batches",
        |s| maps::explorer(maps::Design::Logs, s);
    "map-slabs", "a map with values in slabs: puts, deletes",
        |s| maps::explorer(maps::Design::Slabs, s);
    "map-slabs-deferred", "a map with values in slabs, superseded slots freed later: puts, deletes",
        |s| maps::explorer(maps::Design::DeferredSlabs, s);
    "undo-red-black-tree", "sections by undo: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Undo, s);
    "undo-b-tree", "sections by undo: toggles of a B-tree, four to a section",
        |s| sections::b_tree(EngineKind::Undo, s);
    "undo-hash-table", "sections by undo: toggles of a hash table",
        |s| sections::hash_table(EngineKind::Undo, s);
    "undo-swaps", "sections by undo: swaps in an array",
        |s| sections::swaps(EngineKind::Undo, s);
    "redo-red-black-tree", "sections by redo: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Redo, s);
    "redo-b-tree", "sections by redo: toggles of a B-tree, four to a section",
        |s| sections::b_tree(EngineKind::Redo, s);
    "redo-hash-table", "sections by redo: toggles of a hash table",
        |s| sections::hash_table(EngineKind::Redo, s);
    "redo-swaps", "sections by redo: swaps in an array",
        |s| sections::swaps(EngineKind::Redo, s);
    "shadow-red-black-tree", "sections by shadow sub-paging: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Shadow, s);
    "shadow-b-tree", "sections by shadow sub-paging: toggles of a B-tree, four to a section",
        |s| sections::b_tree(EngineKind::Shadow, s);
    "shadow-hash-table", "sections by shadow sub-paging: toggles of a hash table",
        |s| sections::hash_table(EngineKind::Shadow, s);
    "shadow-swaps", "sections by shadow sub-paging: swaps in an array",
        |s| sections::swaps(EngineKind::Shadow, s);
    "shadow-fall-back", "shadow sub-paging with one active page: every section falls back",
        |s| sections::fall_back(EngineKind::Shadow, s);
    "shadow-merges", "shadow sub-paging: pages rewritten whole, merged and checkpointed",
        |s| sections::merges(EngineKind::Shadow, s);
};

/// The test of this name.
pub fn named(name: &str) -> Option<&'static CrashTest> {
    ALL.iter().find(|test| test.name == name)
}

/// The tests of failure-atomic sections, of every engine.
pub fn sections() -> impl Iterator<Item = &'static CrashTest> {
    let engines = EngineKind::ALL.map(|engine| format!("{engine}-"));
    ALL.iter().filter(move |test| engines.iter().any(|engine| test.name.starts_with(engine)))
}

/// A negative control: a step of a protocol that was left out, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Control {
    /// The step.
    pub step: String,
    /// What it is for.
    pub meaning: &'static str,
    /// The engine it was left out of.
    pub engine: String,
    /// The scenario that caught it; none did if absent.
    pub caught_by: Option<String>,
    /// Crash states until it was caught, or in all.
    pub states: u64,
    /// What the check said, its first line.
    pub message: String,
}

/// Every step of every engine left out in turn; `tell` hears of each as it is done. At most `states`
/// states are looked at in each scenario.
pub fn controls(states: u64, seed: u64, mut tell: impl FnMut(&Control)) -> Vec<Control> {
    let mut all = map_controls(states, seed, &mut tell);
    all.extend(section_controls(states, seed, tell));
    all
}

/// The controls of maps alone; otherwise as [`controls`].
pub fn map_controls(states: u64, seed: u64, tell: impl FnMut(&Control)) -> Vec<Control> {
    maps::controls(states, seed).inspect(tell).collect()
}

/// The controls of failure-atomic sections alone; otherwise as [`controls`].
pub fn section_controls(states: u64, seed: u64, mut tell: impl FnMut(&Control)) -> Vec<Control> {
    let mut all = Vec::new();
    for &step in Step::ALL {
        let engines = EngineKind::ALL
            .into_iter()
            .filter(|engine| step.engine().split(", ").any(|name| name == engine.to_string()));
        for engine in engines {
            let control = sections::control(step, engine, states, seed);
            tell(&control);
            all.push(control);
        }
    }
    all
}
