//! Crash tests: every persistent structure under the crash explorer, and every ordering point left
//! out in turn, to see that the explorer objects.
//!
//! A test is a scenario with a name: setup, operations that note what they acknowledge, recovery, and a
//! check that finds the acknowledged operations, with or without the one under way, and nothing else.
//! States are drawn, from a seed; whatever fails is shrunk, and replays from a short text.

mod applications;
mod creation;
mod exhaustive;
mod histories;
mod index;
mod index_looks;
mod index_sections;
mod ledgers;
mod left_out;
mod lists;
mod maps;
mod pools;
mod queues;
mod queues_in_memory;
mod rewrites;
mod rings;
mod rings_converted;
mod rings_published;
mod sections;
mod tree_log;
mod trees;
mod words;

pub use exhaustive::WHOLE_FROM;
use exhaustive::{Exhaustive, Explored};
use index_looks::Look;
use maps::Wrong;
use serde::Serialize;
use terrace_durable::journal::Steps as JournalSteps;
use terrace_durable::sections::{EngineKind, Step};
use terrace_index::deltas::Steps;
use terrace_index::tree::Form;
use terrace_machine::{Report, Without};
use terrace_memory::Domain;
use terrace_store::laboratory::TreeForm;
use terrace_store::words::Form as Words;

/// How a test is to run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Crash states to look at.
    pub states: u64,
    /// What the choices follow from.
    pub seed: u64,
    /// When a store survives. Tests on a disk have its sectors instead, or under
    /// [`Domain::PageCache`] its pages.
    pub domain: Domain,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { states: 20_000, seed: 1, domain: Domain::Adr }
    }
}

/// A structure, or engine, and the operations on it.
#[derive(Clone, Copy)]
pub struct CrashTest {
    /// What it is called.
    pub name: &'static str,
    /// The crashed structure, in one line.
    pub about: &'static str,
    run: fn(&Settings) -> Report,
    replay: fn(&Settings, &str) -> Result<Option<terrace_machine::Failure>, String>,
    controls: Controls,
}

/// Leaves out the steps of the test of this name; the function hears of each as it is done.
type Controls = fn(&str, &Settings, &mut dyn FnMut(&Control)) -> Vec<Control>;

impl std::fmt::Debug for CrashTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CrashTest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CrashTest {
    /// Looks at `settings.states` states; a test of every state at all of them, from
    /// [`WHOLE_FROM`] on.
    ///
    /// # Panics
    /// If the test does not [exist](CrashTest::exists_in) in the domain.
    pub fn run(&self, settings: &Settings) -> Report {
        assert!(self.exists_in(settings.domain), "{} needs a byte-addressable memory", self.name);
        (self.run)(settings)
    }

    /// Whether the structure exists in this domain: a page cache keeps files, and only tests on a disk
    /// write and sync one.
    pub fn exists_in(&self, domain: Domain) -> bool {
        domain != Domain::PageCache || ON_DISK.contains(&self.name)
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

    /// The steps of a map, or of the persistent hash index, that [`CrashTest::controls`] leaves out of this test.
    pub fn left_out(&self) -> Vec<&'static str> {
        left_out::steps(self.name).map(|step| step.name).collect()
    }

    /// Every step that this test is to notice the lack of, left out in turn; `tell` hears of each as it is done. At
    /// most `states` states are looked at with each of 20 seeds in each scenario. The steps of an engine of sections
    /// belong to its first test.
    pub fn controls(&self, states: u64, seed: u64, tell: &mut dyn FnMut(&Control)) -> Vec<Control> {
        let settings = Settings { states, seed, ..Settings::default() };
        (self.controls)(self.name, &settings, tell)
    }
}

fn no_controls(_: &str, _: &Settings, _: &mut dyn FnMut(&Control)) -> Vec<Control> {
    Vec::new()
}

fn engine_controls(
    engine: EngineKind,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let name = engine.to_string();
    let steps = Step::ALL.iter().filter(|step| step.engine().split(", ").any(|of| of == name));
    let run = |step: &Step| {
        let control = sections::control(*step, engine, settings);
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
            run: |settings| $explorer(settings).tested(settings),
            replay: |settings, state| $explorer(settings).replayed(state),
            controls: $controls,
        }),*]
    };
}

/// Every test.
pub const ALL: &[CrashTest] = tests! {
    "map-logs", "a map with values in logs: puts, deletes, batches",
        |s| maps::script(Without::nothing, maps::Design::Logs, s), left_out::controls;
    "map-slabs", "a map with values in slabs: puts, deletes",
        |s| maps::script(Without::nothing, maps::Design::Slabs, s), left_out::controls;
    "map-slabs-deferred", "a map with values in slabs, superseded slots freed later: puts, deletes",
        |s| maps::script(Without::nothing, maps::Design::DeferredSlabs, s), left_out::controls;
    "map-logs-threads", "two threads on the same keys of a map with values in logs",
        |s| maps::threads(Without::nothing, maps::Design::Logs, s), left_out::controls;
    "map-slabs-threads", "two threads on the same keys of a map with values in slabs",
        |s| maps::threads(Without::nothing, maps::Design::Slabs, s), left_out::controls;
    "map-logs-batches", "a thread reads what another writes in batches: what was acknowledged is there, and whole",
        |s| maps::batches(Without::nothing, None, s), left_out::controls;
    "map-collector", "the collector of logs: items and tombstones move, logs are freed",
        |s| maps::collector(Without::nothing, None, s), left_out::controls;
    "map-disk", "a map mirrored to a disk whose sectors persist in any order until a sync, every state",
        |s| Exhaustive(maps::disk(true, s)), left_out::controls;
    "map-disk-marks", "the same, several puts to a commit: marks and notes say no more than was committed",
        |s| maps::disk_marked(None, s), left_out::controls;
    "map-collector-disk", "the collector of logs on such a disk, every state",
        |s| Exhaustive(maps::collector_on_disk(None, s)), left_out::controls;
    "map-logs-index", "a map with values in logs and a persistent index: puts, deletes, batches",
        |s| maps::kept(maps::Design::Logs, s), no_controls;
    "map-slabs-index", "a map with values in slabs and a persistent index: puts, deletes",
        |s| maps::kept(maps::Design::Slabs, s), no_controls;
    "map-logs-index-threads", "two threads on a map with values in logs and a persistent index",
        |s| maps::kept_threads(maps::Design::Logs, s), no_controls;
    "map-slabs-index-threads", "two threads on a map with values in slabs and a persistent index",
        |s| maps::kept_threads(maps::Design::Slabs, s), no_controls;
    "map-logs-ordered", "an ordered map with values in logs and a persistent tree (FAST/FAIR): puts, deletes, batches",
        |s| maps::ordered(Without::nothing, Form::FastFair.into(), maps::Design::Logs, s), left_out::controls;
    "map-slabs-ordered", "an ordered map with values in slabs and a persistent tree (FAST/FAIR): puts, deletes",
        |s| maps::ordered(Without::nothing, Form::FastFair.into(), maps::Design::Slabs, s), no_controls;
    "map-logs-ordered-threads", "two threads on an ordered map with values in logs and a persistent tree",
        |s| maps::ordered_threads(Form::FastFair.into(), maps::Design::Logs, s), no_controls;
    "map-slabs-ordered-threads", "two threads on an ordered map with values in slabs and a persistent tree",
        |s| maps::ordered_threads(Form::FastFair.into(), maps::Design::Slabs, s), no_controls;
    "map-logs-ls", "an ordered map with values in logs and a persistent tree of delta chains (btree-LS): puts, deletes, batches",
        |s| maps::ordered(Without::nothing, TreeForm::Logs, maps::Design::Logs, s), left_out::controls;
    "map-slabs-ls", "an ordered map with values in slabs and a persistent tree of delta chains: puts, deletes",
        |s| maps::ordered(Without::nothing, TreeForm::Logs, maps::Design::Slabs, s), left_out::controls;
    "map-logs-ls-threads", "two threads on an ordered map with values in logs and a persistent tree of delta chains",
        |s| maps::ordered_threads(TreeForm::Logs, maps::Design::Logs, s), no_controls;
    "map-slabs-ls-threads", "two threads on an ordered map with values in slabs and a persistent tree of delta chains",
        |s| maps::ordered_threads(TreeForm::Logs, maps::Design::Slabs, s), no_controls;
    "map-collector-ls", "the collector of logs under a persistent tree of delta chains",
        maps::collector_in_logs, no_controls;
    "map-logs-full", "a map with values in logs, every operation a section: puts, deletes, batches",
        |s| maps::full(Without::nothing, maps::Design::Logs, s), left_out::controls;
    "map-slabs-full", "a map with values in slabs, every operation a section: puts, deletes",
        |s| maps::full(Without::nothing, maps::Design::Slabs, s), left_out::controls;
    "map-logs-full-threads", "two threads on a map with values in logs, by sections",
        |s| maps::full_threads(Without::nothing, maps::Design::Logs, s), left_out::controls;
    "map-slabs-full-threads", "two threads on a map with values in slabs, by sections",
        |s| maps::full_threads(Without::nothing, maps::Design::Slabs, s), left_out::controls;
    "map-collector-full", "the collector of logs, every operation a section",
        maps::full_collector, no_controls;
    "map-logs-levels", "sections, words and sections again, of a map with values in logs",
        |s| maps::levels(maps::Design::Logs, s), no_controls;
    "map-slabs-levels", "sections, words and sections again, of a map with values in slabs",
        |s| maps::levels(maps::Design::Slabs, s), no_controls;
    "map-logs-salvage", "a map with values in logs, every operation a section, read with salvage after a crash",
        |s| maps::salvage(maps::Design::Logs, s), no_controls;
    "map-slabs-salvage", "a map with values in slabs, every operation a section, read with salvage after a crash",
        |s| maps::salvage(maps::Design::Slabs, s), no_controls;
    "kept-index", "the hash index in persistent memory: entries, overflow lines, splits",
        index::explorer, left_out::controls;
    "kept-index-sections", "the same, every operation a section: nothing is left for repair",
        index_sections::explorer, left_out::controls;
    "tree-log", "delta chains in logs: entries, replacements, deletes, splits",
        |s| tree_log::explorer(Steps::ALL, tree_log::WRITING, s), tree_log::controls;
    "tree-log-uses", "the same in one log: a segment that was being taken is taken again",
        |s| tree_log::explorer(Steps::ALL, tree_log::ONE_LOG, s), tree_log::controls;
    "tree-log-collect", "the same while segments are collected and used again, leaves vanish",
        |s| tree_log::explorer(Steps::ALL, tree_log::COLLECTING, s), tree_log::controls;
    "tree-log-pile", "the same, several segments collected in a row",
        |s| tree_log::explorer(Steps::ALL, tree_log::PILING, s), tree_log::controls;
    "tree-log-load", "delta chains in logs, loaded and cleared as a whole",
        |s| tree_log::loads(Steps::ALL, s), tree_log::controls;
    "tree-log-threads", "two threads on the same keys of delta chains in logs",
        |s| tree_log::threads(Steps::ALL, s), tree_log::controls;
    "tree-wal", "a B+-tree that writes changes to a log first: inserts, removals, splits, merges",
        |s| trees::explorer(Form::WriteAhead, s), trees::controls;
    "tree-fast-fair", "a B+-tree by ordered stores, without a log (FAST/FAIR)",
        |s| trees::explorer(Form::FastFair, s), trees::controls;
    "tree-unsorted", "a B+-tree with unsorted leaves and a bitmap of what is valid",
        |s| trees::explorer(Form::PersistentUnsorted, s), trees::controls;
    "tree-selective", "FAST/FAIR with its leaves alone in persistent memory",
        trees::selective, no_controls;
    "tree-wal-threads", "two threads in the same leaves and logs of a tree that writes ahead",
        |s| trees::threads(Form::WriteAhead, s), no_controls;
    "tree-fast-fair-threads", "two threads in the same leaves of a FAST/FAIR tree",
        |s| trees::threads(Form::FastFair, s), no_controls;
    "tree-unsorted-threads", "two threads in the same unsorted leaves, and logs",
        |s| trees::threads(Form::PersistentUnsorted, s), no_controls;
    "undo-red-black-tree", "sections by undo: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Undo, s),
        |_, s, tell| engine_controls(EngineKind::Undo, s, tell);
    "undo-b-tree", "sections by undo: toggles of a B-tree, four to a section",
        |s| sections::b_tree(EngineKind::Undo, s), no_controls;
    "undo-hash-table", "sections by undo: toggles of a hash table",
        |s| sections::hash_table(EngineKind::Undo, s), no_controls;
    "undo-swaps", "sections by undo: swaps in an array",
        |s| sections::swaps(EngineKind::Undo, s), no_controls;
    "redo-red-black-tree", "sections by redo: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Redo, s),
        |_, s, tell| engine_controls(EngineKind::Redo, s, tell);
    "redo-b-tree", "sections by redo: toggles of a B-tree, four to a section",
        |s| sections::b_tree(EngineKind::Redo, s), no_controls;
    "redo-hash-table", "sections by redo: toggles of a hash table",
        |s| sections::hash_table(EngineKind::Redo, s), no_controls;
    "redo-swaps", "sections by redo: swaps in an array",
        |s| sections::swaps(EngineKind::Redo, s), no_controls;
    "shadow-red-black-tree", "sections by shadow sub-paging: toggles of a red-black tree",
        |s| sections::tree(EngineKind::Shadow, s),
        |_, s, tell| engine_controls(EngineKind::Shadow, s, tell);
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
    "undo-cache", "sections by undo: sets in a full cache of items",
        |s| sections::cache(EngineKind::Undo, s), no_controls;
    "undo-agency", "sections by undo: a travel agency's bookings, cancellations, changes",
        |s| sections::agency(EngineKind::Undo, s), no_controls;
    "redo-cache", "sections by redo: sets in a full cache of items",
        |s| sections::cache(EngineKind::Redo, s), no_controls;
    "redo-agency", "sections by redo: a travel agency's bookings, cancellations, changes",
        |s| sections::agency(EngineKind::Redo, s), no_controls;
    "shadow-cache", "sections by shadow sub-paging: sets in a full cache of items",
        |s| sections::cache(EngineKind::Shadow, s), no_controls;
    "shadow-agency", "sections by shadow sub-paging: a travel agency's bookings, cancellations, changes",
        |s| sections::agency(EngineKind::Shadow, s), no_controls;
    "kept-index-look", "a persistent index, every schedule of up to two preemptions of a writer and a reader",
        |s| index_looks::explorer(Look::Get, s), left_out::controls;
    "kept-index-look-ahead", "the same, the reader looks as batches do",
        |s| index_looks::explorer(Look::Candidate, s), no_controls;
    "kept-index-look-behind", "the same, the entry is in an overflow line",
        |s| index_looks::explorer(Look::Overflow, s), left_out::controls;
    "kept-index-look-moving", "the same, the entry moves out of an overflow line that is used again",
        |s| index_looks::explorer(Look::Moving, s), no_controls;
    "map-logs-index-look", "a map in logs with a persistent index, every schedule of up to two preemptions of a writer and a reader",
        |s| maps::kept_look(maps::Design::Logs, s), no_controls;
    "map-slabs-index-look", "the same in slabs",
        |s| maps::kept_look(maps::Design::Slabs, s), no_controls;
    "map-slabs-superblock", "two threads need the first superblock of a size at once",
        |s| maps::superblock(Without::nothing, s), left_out::controls;
    "map-checkpointer", "a map whose checkpointer writes logs out and then checkpoints, every state of one crash",
        |s| maps::checkpointer(true, s), left_out::controls;
    "map-mirrored-threads", "two writers and a reader of a mirrored map: overwriting, checkpoints, each other",
        |s| maps::mirrored(Wrong::NOTHING, s), left_out::controls;
    "map-mirrored-sync", "two threads on the same keys of a mirrored map, a commit queue each",
        |s| maps::mirrored_in_sync(Wrong::NOTHING, s), left_out::controls;
    "map-mirrored-queue", "two threads in one commit queue of a mirrored map",
        |s| maps::mirrored_queue(Wrong::NOTHING, s), left_out::controls;
    "map-mirrored-checkpoint", "a checkpoint of two commit queues against a writer that overwrites, every schedule of up to two preemptions",
        |s| maps::mirrored_checkpoint(Wrong::NOTHING, s), left_out::controls;
    "map-mirrored-look", "a reader against a writer that overwrites, every schedule of up to two preemptions",
        |s| maps::mirrored_look(Wrong::NOTHING, s), left_out::controls;
    "map-mirrored-collector", "the collector of a mirrored map against a writer of batches, between checkpoints",
        |s| maps::mirrored_collector(Wrong::NOTHING, s), left_out::controls;
    "map-mirrored-tick", "a sealed log is written out while a writer overwrites in it, every schedule of up to two preemptions",
        |s| maps::mirrored_tick(Wrong::NOTHING, s), left_out::controls;
    "map-mirrored-growth", "the index of a mirrored map grows under a reader, every schedule of one preemption",
        |s| maps::mirrored_growth(Wrong::NOTHING, s), left_out::controls;
    "map-redo-killed", "the redo log of two writers whose process is killed: nothing acknowledged is lost",
        |s| maps::redo_killed(Wrong::NOTHING, s), left_out::controls;
    "map-redo-power-cut", "the same after a power cut: the redo log is gone, of another boot, or stale",
        |s| maps::redo_power_cut(false, s), left_out::controls;
    "map-redo-batches", "batches with checkpoints between them, the process is killed: every state",
        |s| maps::redo_batches(Wrong::NOTHING, s), left_out::controls;
    "map-redo-batches-power", "the same after a power cut",
        |s| maps::redo_batches_power_cut(Wrong::NOTHING, s), no_controls;
    "map-spill", "logs of a mirrored map leave memory, are read back, collected, and used again, every state of one crash",
        |s| maps::spill(Wrong::NOTHING, s), left_out::controls;
    "map-spill-sync", "the same under sync: nothing acknowledged is lost",
        |s| maps::spill_in_sync(Domain::Adr, Wrong::NOTHING, s), no_controls;
    "map-spill-killed", "the same where the process is killed",
        |s| maps::spill_in_sync(Domain::Eadr, Wrong::NOTHING, s), no_controls;
    "map-spill-look", "logs leave memory under a reader who then writes, every schedule of one preemption",
        |s| maps::spill_look(Wrong::NOTHING, s), left_out::controls;
    "map-spill-recovery", "recovery that sends logs away is cut off, and runs again, every state of two crashes",
        |s| maps::spill_recovery(Wrong::NOTHING, s), left_out::controls;
    "map-saved", "the index of a mirrored map is saved, and opened by, between writes and collections, every state of one crash",
        |s| maps::saved(Wrong::NOTHING, s), left_out::controls;
    "map-saved-sync", "the same under sync: nothing acknowledged is lost",
        |s| maps::saved_in_sync(Domain::Adr, Wrong::NOTHING, s), no_controls;
    "map-saved-killed", "the same where the process is killed",
        |s| maps::saved_in_sync(Domain::Eadr, Wrong::NOTHING, s), no_controls;
    "map-saved-threads", "the index is saved under a writer, every schedule of one preemption",
        |s| maps::saved_threads(Wrong::NOTHING, s), left_out::controls;
    "map-blind", "keys are written whose items are on the disk alone, and their log is collected, every state of one crash",
        |s| maps::blind(Wrong::NOTHING, s), left_out::controls;
    "map-blind-saved", "the same, and the index is saved, every state of one crash",
        |s| maps::blind_by_index(Wrong::NOTHING, s), left_out::controls;
    "map-blind-threads", "two write a key whose item is on the disk alone, every schedule of one preemption",
        |s| maps::blind_threads(Wrong::NOTHING, s), no_controls;
    "map-several-sync", "transactions that write to two maps under sync: both have them, or none",
        |s| maps::several_in_sync(Wrong::NOTHING, JournalSteps::ALL, s), left_out::controls;
    "map-several", "the same under a promise that takes checkpoints: the maps take them together",
        |s| maps::several_bounded(Wrong::NOTHING, s), left_out::controls;
    "map-several-killed", "the same under interval, the process is killed: nothing acknowledged is lost",
        |s| maps::several_killed(Wrong::NOTHING, s), left_out::controls;
    "map-several-threads", "a transaction over two maps under checkpoints of another thread, every schedule of one preemption",
        |s| maps::several_threads(Wrong::NOTHING, s), left_out::controls;
    "map-collector-whole", "the collector of logs, every state",
        |s| Exhaustive(maps::collector(Without::nothing, None, s)), no_controls;
    "list-tlog", "two threads on a list whose links survive, a line of log for each",
        |s| lists::named("list-tlog", s), lists::controls;
    "list-log-free", "the same without logs, where caches survive (always eADR)",
        |s| lists::named("list-log-free", s), lists::controls;
    "list-link-free", "two threads on a list whose nodes survive and whose links do not",
        |s| lists::named("list-link-free", s), lists::controls;
    "list-soft", "two threads on a list of volatile nodes with persistent selves",
        |s| lists::named("list-soft", s), lists::controls;
    "list-tlog-again", "TLog, every state: a key is removed, and inserted by another",
        |s| lists::named("list-tlog-again", s), lists::controls;
    "list-tlog-back", "TLog, every state: a key is inserted, and removed by another",
        |s| lists::named("list-tlog-back", s), lists::controls;
    "list-tlog-behind", "TLog, every state: a key is inserted behind another's",
        |s| lists::named("list-tlog-behind", s), lists::controls;
    "list-tlog-helped", "TLog, every state: an insertion past three that stand still",
        |s| lists::named("list-tlog-helped", s), lists::controls;
    "list-tlog-look", "TLog, every state: a reader looks for what another inserts",
        |s| lists::named("list-tlog-look", s), lists::controls;
    "list-link-free-look", "Link-free, the same",
        |s| lists::named("list-link-free-look", s), lists::controls;
    "list-soft-look", "SOFT, the same",
        |s| lists::named("list-soft-look", s), lists::controls;
    "list-tlog-reuse", "TLog, every state: a slot is used again",
        |s| lists::named("list-tlog-reuse", s), lists::controls;
    "list-link-free-reuse", "Link-free, the same",
        |s| lists::named("list-link-free-reuse", s), lists::controls;
    "list-soft-reuse", "SOFT, the same",
        |s| lists::named("list-soft-reuse", s), lists::controls;
    "queue-disk", "a queue mirrored to a disk whose sectors persist in any order until a sync",
        queues::disk, queues::controls;
    "queue-checkpoints", "a queue there without a promise: as it was at an instant since the last checkpoint",
        queues::checkpoints, queues::controls;
    "queue-switches", "a queue there that goes over to the other durability and back",
        queues::switches, queues::controls;
    "queue-tx", "a queue in persistent memory, each push and pop a transaction: two producers, two consumers",
        |s| queues_in_memory::explorer("queue-tx", s), queues_in_memory::controls;
    "queue-tx-free", "the same by the order of its stores",
        |s| queues_in_memory::explorer("queue-tx-free", s), queues_in_memory::controls;
    "queue-forms", "the same, opened in one form and in the other in turn",
        |s| queues_in_memory::explorer("queue-forms", s), queues_in_memory::controls;
    "ledger-memory", "a ledger's journal in persistent memory: accounts opened, blocks, states rewritten",
        ledgers::memory, ledgers::controls;
    "ledger-disk", "the same mirrored to a disk whose sectors persist in any order until a sync",
        ledgers::disk, ledgers::controls;
    "pool-disk", "sections of a pool on such a disk: objects made and freed, syncs, checkpoints",
        pools::disk, pools::controls;
    "words-tlog", "two threads on a word table, a line of log for each, as the store opens it",
        |s| words::explorer(Words::TLog, s), words::controls;
    "words-log-free", "the same without logs, where caches survive (always eADR)",
        |s| words::explorer(Words::LogFree, s), words::controls;
    "words-link-free", "the same whose nodes survive and whose links do not",
        |s| words::explorer(Words::LinkFree, s), words::controls;
    "words-soft", "the same of volatile nodes with persistent selves",
        |s| words::explorer(Words::Soft, s), words::controls;
    "ring-tx", "a ring whose pushes and pops are transactions: two producers, two consumers",
        rings::tx, rings::controls;
    "ring-tx-free", "a ring made durable by the order of its stores: two producers, two consumers",
        rings::tx_free, rings::controls;
    "ring-version-1", "a ring of the first version is made one of the second by recovery",
        rings_converted::explorer, rings_converted::controls;
};

/// Tests on a disk: its sectors persist, or its pages under [`Domain::PageCache`].
const ON_DISK: &[&str] = &[
    "map-disk",
    "map-disk-marks",
    "map-collector-disk",
    "map-checkpointer",
    "map-mirrored-threads",
    "map-mirrored-sync",
    "map-mirrored-queue",
    "map-mirrored-checkpoint",
    "map-mirrored-look",
    "map-mirrored-collector",
    "map-mirrored-tick",
    "map-mirrored-growth",
    "map-redo-power-cut",
    "map-redo-batches-power",
    "map-spill",
    "map-spill-sync",
    "map-spill-look",
    "map-spill-recovery",
    "map-saved",
    "map-saved-sync",
    "map-saved-threads",
    "map-blind",
    "map-blind-saved",
    "map-blind-threads",
    "queue-disk",
    "queue-checkpoints",
    "queue-switches",
    "ledger-disk",
    "pool-disk",
    "map-several-sync",
    "map-several",
    "map-several-threads",
];

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

impl Control {
    /// One seed after the other, until a step that no crash misses counts as not missed. One crash in thousands shows
    /// the lack of some, so that one seed's states are too few to tell.
    fn seeds(settings: &Settings) -> impl Iterator<Item = Settings> + use<> {
        let settings = *settings;
        (0..20).map(move |turn| Settings { seed: settings.seed.wrapping_add(turn), ..settings })
    }

    /// A step left out of a test, explored with one seed after the other until a crash shows the lack of it.
    fn of(
        step: &str,
        meaning: &'static str,
        test: &str,
        settings: &Settings,
        explore: impl Fn(&Settings) -> Report,
    ) -> Control {
        let mut states = 0;
        let mut caught = None;
        for settings in Control::seeds(settings) {
            let report = explore(&settings);
            states += report.states;
            // A scenario that fails without a crash is no control.
            caught = report
                .failure
                .filter(|_| report.states > 0)
                .map(|failure| (settings.seed, failure));
            // Where something was drawn, another seed may draw another scenario.
            let is_all = report.exhausted && report.seed.is_none();
            if caught.is_some() || is_all || report.states == 0 {
                break;
            }
        }
        let message = caught.as_ref().and_then(|(_, failure)| failure.message.lines().next());
        Control {
            step: step.into(),
            meaning,
            engine: test.into(),
            message: message.unwrap_or_default().into(),
            caught_by: caught.map(|(seed, _)| format!("{test}, seed {seed}")),
            states,
        }
    }
}
