//! Crash tests: every persistent structure under the crash explorer, and every ordering point left
//! out in turn, to see that the explorer objects.
//!
//! A test is a scenario with a name: setup, operations that note what they acknowledge, recovery, and a
//! check that finds what was acknowledged, or that and the operation under way, and nothing else.
//! States are drawn, from a seed; whatever fails is shrunk, and replays from a short text.

mod creation;
mod histories;
mod index;
mod maps;
mod rewrites;
mod sections;

use serde::Serialize;
use terrace_durable::sections::{EngineKind, Step};
use terrace_machine::{Report, Without};
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
    controls: Controls,
}

/// Leaves out the steps of the test of this name, with at most so many states and this seed; the
/// function hears of each as it is done.
type Controls = fn(&str, u64, u64, &mut dyn FnMut(&Control)) -> Vec<Control>;

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

    /// Every step that this test is to notice the lack of, left out in turn; `tell` hears of each as
    /// it is done. At most `states` states are looked at in each scenario. The steps of an engine of
    /// sections belong to its first test.
    pub fn controls(&self, states: u64, seed: u64, tell: &mut dyn FnMut(&Control)) -> Vec<Control> {
        (self.controls)(self.name, states, seed, tell)
    }
}

fn no_controls(_: &str, _: u64, _: u64, _: &mut dyn FnMut(&Control)) -> Vec<Control> {
    Vec::new()
}

fn engine_controls(
    engine: EngineKind,
    states: u64,
    seed: u64,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let name = engine.to_string();
    let steps = Step::ALL.iter().filter(|step| step.engine().split(", ").any(|of| of == name));
    let run = |step: &Step| {
        let control = sections::control(*step, engine, states, seed);
        tell(&control);
        control
    };
    steps.map(run).collect()
}

macro_rules! tests {
    ($($name:literal, $about:literal, $explorer:expr, $controls:expr;)*) => {
        &[$(CrashTest {
            name: $name,
            about: $about,
            run: |settings| $explorer(settings).sampled(settings.states, settings.seed),
            replay: |settings, state| $explorer(settings).replay(state),
            controls: $controls,
        }),*]
    };
}

/// Every test.
pub const ALL: &[CrashTest] = tests! {
    "map-logs", "a map with values in logs: puts, deletes, batches",
        |s| maps::script(Without::nothing, maps::Design::Logs, s), maps::controls;
    "map-slabs", "a map with values in slabs: puts, deletes",
        |s| maps::script(Without::nothing, maps::Design::Slabs, s), maps::controls;
    "map-slabs-deferred", "a map with values in slabs, superseded slots freed later: puts, deletes",
        |s| maps::script(Without::nothing, maps::Design::DeferredSlabs, s), maps::controls;
    "map-logs-threads", "two threads on the same keys of a map with values in logs",
        |s| maps::threads(Without::nothing, maps::Design::Logs, s), maps::controls;
    "map-slabs-threads", "two threads on the same keys of a map with values in slabs",
        |s| maps::threads(Without::nothing, maps::Design::Slabs, s), maps::controls;
    "map-logs-batches", "a thread reads what another writes in batches: what was told is there, and whole",
        |s| maps::batches(Without::nothing, None, s), maps::controls;
    "map-collector", "the collector of logs: items and tombstones move, logs are freed",
        |s| maps::collector(Without::nothing, None, s), maps::controls;
    "map-disk", "a map mirrored to a disk whose sectors persist in any order until a sync",
        |s| maps::disk(true, s), maps::controls;
    "map-collector-disk", "the collector of logs on such a disk",
        |s| maps::collector_on_disk(None, s), maps::controls;
    "map-cuts", "a map there without a promise: a prefix, with all that was synced, comes back",
        |s| maps::cuts(true, None, s), maps::controls;
    "map-logs-index", "a map with values in logs and a kept index: puts, deletes, batches",
        |s| maps::kept(maps::Design::Logs, s), no_controls;
    "map-slabs-index", "a map with values in slabs and a kept index: puts, deletes",
        |s| maps::kept(maps::Design::Slabs, s), no_controls;
    "map-logs-index-threads", "two threads on a map with values in logs and a kept index",
        |s| maps::kept_threads(maps::Design::Logs, s), no_controls;
    "map-slabs-index-threads", "two threads on a map with values in slabs and a kept index",
        |s| maps::kept_threads(maps::Design::Slabs, s), no_controls;
    "kept-index", "the hash index in persistent memory: entries, overflow lines, splits",
        index::explorer, index::controls;
    "undo-red-black-tree", "sections by undo: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Undo, s),
        |_, states, seed, tell| engine_controls(EngineKind::Undo, states, seed, tell);
    "undo-b-tree", "sections by undo: toggles of a B-tree, four to a section",
        |s| sections::b_tree(EngineKind::Undo, s), no_controls;
    "undo-hash-table", "sections by undo: toggles of a hash table",
        |s| sections::hash_table(EngineKind::Undo, s), no_controls;
    "undo-swaps", "sections by undo: swaps in an array",
        |s| sections::swaps(EngineKind::Undo, s), no_controls;
    "redo-red-black-tree", "sections by redo: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Redo, s),
        |_, states, seed, tell| engine_controls(EngineKind::Redo, states, seed, tell);
    "redo-b-tree", "sections by redo: toggles of a B-tree, four to a section",
        |s| sections::b_tree(EngineKind::Redo, s), no_controls;
    "redo-hash-table", "sections by redo: toggles of a hash table",
        |s| sections::hash_table(EngineKind::Redo, s), no_controls;
    "redo-swaps", "sections by redo: swaps in an array",
        |s| sections::swaps(EngineKind::Redo, s), no_controls;
    "shadow-red-black-tree", "sections by shadow sub-paging: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Shadow, s),
        |_, states, seed, tell| engine_controls(EngineKind::Shadow, states, seed, tell);
    "shadow-b-tree", "sections by shadow sub-paging: toggles of a B-tree, four to a section",
        |s| sections::b_tree(EngineKind::Shadow, s), no_controls;
    "shadow-hash-table", "sections by shadow sub-paging: toggles of a hash table",
        |s| sections::hash_table(EngineKind::Shadow, s), no_controls;
    "shadow-swaps", "sections by shadow sub-paging: swaps in an array",
        |s| sections::swaps(EngineKind::Shadow, s), no_controls;
    "undo-rewrites", "sections by undo: pages rewritten whole",
        |s| sections::rewrites(EngineKind::Undo, s), no_controls;
    "redo-rewrites", "sections by redo: pages rewritten whole",
        |s| sections::rewrites(EngineKind::Redo, s), no_controls;
    "shadow-rewrites", "shadow sub-paging: pages rewritten whole, merged and checkpointed",
        |s| sections::rewrites(EngineKind::Shadow, s), no_controls;
    "shadow-merges", "shadow sub-paging: pages rewritten whole with one active page",
        sections::merges, no_controls;
    "shadow-fall-back", "one active page: every section on a tree falls back",
        sections::beyond_tree, no_controls;
    "shadow-fall-back-b-tree", "one active page: every section on a B-tree falls back",
        sections::beyond_b_tree, no_controls;
    "shadow-fall-back-hash", "one active page: every section on a hash table falls back",
        sections::beyond_hash_table, no_controls;
    "shadow-fall-back-swaps", "one active page: every section on an array falls back",
        sections::beyond_swaps, no_controls;
    "shadow-fall-back-pages", "one active page: four lines of two pages rewritten at a time",
        sections::beyond_rewrites, no_controls;
    "undo-creation", "a pool by undo made over an old one",
        |s| creation::explorer(EngineKind::Undo, s), no_controls;
    "redo-creation", "a pool by redo made over an old one",
        |s| creation::explorer(EngineKind::Redo, s), no_controls;
    "shadow-creation", "a pool by shadow sub-paging made over an old one",
        |s| creation::explorer(EngineKind::Shadow, s), no_controls;
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
