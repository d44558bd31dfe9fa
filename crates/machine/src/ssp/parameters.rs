//! The processor's figures: given by Ni, table 3.1 and sections 3.2 and 3.3, or assumed and so marked, in the preset's
//! file.
//!
//! No figure was fitted to a result. What the paper leaves open and a result could depend on is a field here, so that
//! an experiment can vary it.

use crate::model::preset::from_toml;
use serde::Deserialize;
use std::sync::OnceLock;

/// Picoseconds of virtual time.
pub(super) type Ps = u64;

/// Lines of a page: 4 KiB of 64 bytes.
pub(super) const PAGE_LINES: u32 = 64;
/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;

/// What the journal's records, and numbers of lines, have room for.
const MOST_SLOTS: usize = u16::MAX as usize - 1;
const MOST_PAGES: u64 = (1 << 24) - 1;
const MOST_LINES: u32 = 1 << 24;
/// A log's mark and an entry, in each of two areas.
const LEAST_LOG: u32 = 8;

/// The preset `ssp-sim`, as its file has it. It is no [`Preset`](crate::Preset): of a machine with sockets it has
/// nothing, and of the parts of this processor those have nothing.
///
/// ```
/// use terrace_machine::ssp::PresetFile;
///
/// let preset = PresetFile::ssp_sim();
/// assert_eq!(preset.name, "ssp-sim");
/// assert!(PresetFile::TEXT.contains(&preset.about));
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetFile {
    /// `ssp-sim`.
    pub name: String,
    /// What it stands for, one line.
    pub about: String,
    /// The figures; cores are not among them.
    pub processor: Parameters,
}

impl PresetFile {
    /// The file, with the source of every figure.
    pub const TEXT: &str = include_str!("../../presets/ssp-sim.toml");

    /// What the file says.
    ///
    /// ```
    /// let preset = terrace_machine::ssp::PresetFile::ssp_sim();
    /// assert_eq!((preset.processor.pmem.read_ns, preset.processor.pmem.write_ns), (50, 200));
    /// ```
    pub fn ssp_sim() -> &'static PresetFile {
        static READ: OnceLock<PresetFile> = OnceLock::new();
        READ.get_or_init(|| {
            from_toml(PresetFile::TEXT)
                .expect("invariant: a test reads the file that is compiled in")
        })
    }
}

/// How sections are made failure-atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// Not at all: a section's lines are written back at its end, and a crash may keep half of them.
    None,
    /// Hardware undo logging: the first store to a line waits until the old line is durable in a log.
    Undo,
    /// Hardware redo logging after DHTM: new lines go to a log through a buffer that coalesces them; writing them in
    /// place overlaps with what follows the commit.
    Redo,
    /// Shadow sub-paging.
    Ssp,
}

impl Design {
    /// All four.
    pub const ALL: [Design; 4] = [Design::None, Design::Undo, Design::Redo, Design::Ssp];

    /// `none`, `undo`, `redo`, `ssp`.
    pub fn name(self) -> &'static str {
        match self {
            Design::None => "none",
            Design::Undo => "undo",
            Design::Redo => "redo",
            Design::Ssp => "ssp",
        }
    }
}

/// A cache: its size, and the cycles from a load to its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSize {
    /// Lines that it holds.
    pub lines: u64,
    /// Lines of a set.
    pub ways: usize,
    /// Cycles of a hit.
    pub cycles: u64,
}

/// A memory behind the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryTiming {
    /// Banks that work side by side.
    pub banks: u32,
    /// Bytes of a row buffer.
    pub row_bytes: u32,
    /// Nanoseconds of a read that opens a row.
    pub read_ns: u64,
    /// Nanoseconds of a read from the open row.
    pub row_hit_ns: u64,
    /// Nanoseconds for which a write occupies its bank.
    pub write_ns: u64,
    /// The same for a write to the open row, if that is another figure.
    pub write_hit_ns: Option<u64>,
    /// Consecutive lines that lie in one bank.
    pub run_lines: u32,
    /// Nanoseconds of a link between bus and memory, in each direction: 0 on the bus, more behind CXL.
    pub link_ns: u64,
}

/// When a write to persistent memory is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durable {
    /// When the cells have it, as in the paper's simulator.
    InCells,
    /// When the controller's queue of so many lines has it, as under ADR.
    InQueue(usize),
}

/// When inactive pages are consolidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consolidation {
    /// At once, in the background.
    Eager,
    /// When fewer than so many slots are free.
    Lazy(usize),
}

/// How the time of extended TLB misses and flips enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Charged {
    /// Each event delays the core when it happens.
    ByEvent,
    /// The paper's way: events are counted, and their cycles are added to the run.
    ByCounts,
}

/// A step that can be left out, so that a crash test shows that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Metadata are journaled before the section's lines are durable.
    DataFence,
    /// Recovery takes journal records without a commit mark that vouches for all of them.
    CommitMark,
    /// A commit is acknowledged though an earlier batch of the journal is not durable.
    JournalOrder,
    /// Other cores' TLBs do not hear that a line flipped.
    FlipBroadcast,
    /// A section's store stays in the committed place.
    Retag,
    /// The journal says that a page was consolidated before the copied lines are durable.
    ConsolidationOrder,
    /// A slot is reused before the page table says where its last page is.
    PageTableOrder,
    /// A page is consolidated though a core has open updates to it.
    CoreCount,
    /// The journal's tail moves before the table of slots is durable.
    CheckpointOrder,
    /// A checkpoint takes the current bitmaps, with open sections' flips in them, for the committed ones.
    CheckpointCommitted,
    /// Recovery continues the journal under the same epoch, so that leftovers beyond its end count.
    Epoch,
    /// An aborted section's flips stay.
    AbortFlips,
    /// The fall-back writes in place before its log is durable.
    FallbackLog,
    /// Undo: a store does not wait for its log entry.
    UndoLog,
    /// Redo: recovery applies a log whose mark does not vouch for it.
    RedoMark,
    /// Redo: a log is overwritten before its lines are in place.
    RedoCompletion,
}

/// Everything that a modelled processor is made of.
///
/// ```
/// use terrace_machine::ssp::Parameters;
///
/// let mut slower = Parameters::ssp_sim(4);
/// slower.pmem.write_ns *= 2;
/// assert_eq!((slower.cores, slower.pmem.write_ns), (4, 400));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Cores. Not of the preset's file.
    #[serde(skip)]
    pub cores: usize,
    /// Picoseconds of a cycle.
    pub cycle_ps: u64,
    /// First level of a core.
    pub l1: CacheSize,
    /// Second level of a core.
    pub l2: CacheSize,
    /// The shared level.
    pub l3: CacheSize,
    /// Pages that a core's TLB holds.
    pub tlb_entries: usize,
    /// Pages that a section may change.
    pub write_set_entries: usize,
    /// DRAM, which holds the transient SSP cache.
    pub dram: MemoryTiming,
    /// Persistent memory.
    pub pmem: MemoryTiming,
    /// Picoseconds for which a line occupies the bus that both memories share.
    pub burst_ps: u64,
    /// When a write is durable.
    pub durable: Durable,
    /// Cycles of a page walk, in every design.
    pub walk_cycles: u64,
    /// Cycles of instructions between two accesses of a section.
    pub access_cycles: u64,
    /// Cycles of instructions outside of a section, for each.
    pub section_cycles: u64,
    /// Cycles from a store to the store buffer.
    pub store_cycles: u64,
    /// Cycles of a look at the SSP cache's slice of the last-level cache.
    pub ssp_cache_cycles: u64,
    /// Entries of the SSP cache that the slice holds; others come from DRAM.
    pub ssp_slice_entries: usize,
    /// Cycles of a look at an entry in DRAM, where latencies are added from counts.
    pub ssp_dram_cycles: u64,
    /// Cycles until every core has heard of a flip; the section's end waits for them.
    pub flip_cycles: u64,
    /// Slots of the SSP cache for pages in consolidation.
    pub spare_slots: usize,
    /// Lines of the metadata journal.
    pub journal_lines: u32,
    /// How far apart lines of the journal lie that are written one after the other: 1, or an odd number of lines beyond
    /// a bank's run, which lets banks take turns.
    pub journal_stride: u32,
    /// Whether the records of consolidated pages wait in the controller's buffer for those of the next section, or are
    /// written at once.
    pub records_wait: bool,
    /// Lines that are remapped as one: 1, or 4 for 256 bytes.
    pub sub_page_lines: u32,
    /// When inactive pages are consolidated.
    pub consolidation: Consolidation,
    /// Pages that are consolidated together, if so many are queued.
    pub consolidated_together: usize,
    /// How TLB misses and flips enter.
    pub charged: Charged,
    /// Lines that the redo log's buffer coalesces.
    pub redo_buffer_lines: usize,
    /// Whether redo's next section waits until the last one's lines are in place.
    pub redo_waits: bool,
    /// Lines of a core's log, for undo, redo and the fall-back.
    pub log_lines: u32,
    /// The step that is left out. Not of the preset's file.
    #[serde(skip)]
    pub left_out: Option<Fault>,
}

impl Parameters {
    /// The preset `ssp-sim`, with so many cores: Ni, table 3.1, and what is assumed where it is silent.
    /// [`PresetFile::TEXT`] has the source of each figure.
    ///
    /// ```
    /// let machine = terrace_machine::ssp::Parameters::ssp_sim(1);
    /// assert_eq!(machine.slots(), 64 + 64 + 64);
    /// ```
    pub fn ssp_sim(cores: usize) -> Parameters {
        Parameters { cores, ..PresetFile::ssp_sim().processor.clone() }
    }

    /// Slots of the SSP cache. The paper has cores x TLB entries and spare ones; the write-set buffer keeps pages that
    /// have left the TLB, so its entries count too.
    ///
    /// ```
    /// let machine = terrace_machine::ssp::Parameters::ssp_sim(4);
    /// assert_eq!(machine.slots(), 4 * (64 + 64) + 64);
    /// ```
    pub fn slots(&self) -> usize {
        let of_core = self.tlb_entries.saturating_add(self.write_set_entries);
        self.cores.saturating_mul(of_core).saturating_add(self.spare_slots.max(1))
    }

    /// Whether a processor can be made of them: what contradicts itself, or is more than the model has numbers for.
    pub(super) fn check(&self, pages: u32) -> Result<(), String> {
        let memory_is_whole = |name: &str, memory: MemoryTiming| match memory {
            MemoryTiming { banks: 0, .. } => Err(format!("{name} needs banks")),
            MemoryTiming { row_bytes: ..64, .. } => {
                Err(format!("{name}: rows of less than a line"))
            }
            MemoryTiming { run_lines: 0, .. } => Err(format!("{name} needs lines in one bank")),
            _ => Ok(()),
        };
        memory_is_whole("DRAM", self.dram)?;
        memory_is_whole("PMEM", self.pmem)?;
        let is_empty = |cache: &CacheSize| cache.ways == 0 || cache.lines < cache.ways as u64;
        let (unit, has, stride) = (self.sub_page_lines, self.journal_lines, self.journal_stride);
        let each = self.batch_lines_max().saturating_add(self.consolidation_lines_max());
        let needs = (self.cores as u32).saturating_add(2).saturating_mul(each);
        let is_reached = stride == 1 || (has.is_power_of_two() && !stride.is_multiple_of(2));
        let places = self.slots() as u64 + u64::from(pages);
        let wrong = [
            (!(1..=8).contains(&self.cores), "a processor has 1 to 8 cores".into()),
            (
                [self.l1, self.l2, self.l3].iter().any(is_empty),
                "a cache needs ways, and as many lines".into(),
            ),
            (
                unit == 0 || !PAGE_LINES.is_multiple_of(unit),
                format!("sub-pages of {unit} lines do not divide a page of {PAGE_LINES}"),
            ),
            (has < needs, format!("the journal needs {needs} lines")),
            (!is_reached, format!("a stride over {has} lines must reach all of them")),
            (self.slots() > MOST_SLOTS, format!("a processor has at most {MOST_SLOTS} slots")),
            (self.log_lines < LEAST_LOG, format!("a log has at least {LEAST_LOG} lines")),
            (self.log_lines > MOST_LINES, format!("a log has at most {MOST_LINES} lines")),
            (has > MOST_LINES, format!("the journal has at most {MOST_LINES} lines")),
            (
                places > MOST_PAGES,
                format!("a memory has at most {MOST_PAGES} pages, extra ones included"),
            ),
        ];
        wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, what)| Err(what))
    }

    pub(super) fn has(&self, step: Fault) -> bool {
        self.left_out != Some(step)
    }

    pub(super) fn cycles(&self, cycles: u64) -> Ps {
        cycles * self.cycle_ps
    }

    /// Lines of the journal that a section of the most pages takes.
    pub(super) fn batch_lines_max(&self) -> u32 {
        (self.write_set_entries as u32).saturating_add(1).div_ceil(4)
    }

    /// Lines of the journal that the most pages take that are consolidated together.
    pub(super) fn consolidation_lines_max(&self) -> u32 {
        (self.consolidated_together as u32).saturating_add(1).div_ceil(4)
    }
}
