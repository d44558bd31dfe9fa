//! The processor's figures: given by Ni, table 3.1 and sections 3.2 and 3.3, or assumed and so marked.
//!
//! No figure was fitted to a result. What the paper leaves open and a result could depend on is a field here, so that
//! an experiment can vary it.

/// Picoseconds of virtual time.
pub(super) type Ps = u64;

/// Lines of a page: 4 KiB of 64 bytes.
pub(super) const PAGE_LINES: u32 = 64;
/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Lines that it holds.
    pub lines: u64,
    /// Lines of a set.
    pub ways: usize,
    /// Cycles of a hit.
    pub cycles: u64,
}

/// A memory behind the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Consecutive lines that lie in one bank.
    pub run_lines: u32,
    /// Nanoseconds of a link between bus and memory, in each direction: 0 on the bus, more behind CXL.
    pub link_ns: u64,
}

/// When a write to persistent memory is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// When the cells have it, as in the paper's simulator.
    InCells,
    /// When the controller's queue of so many lines has it, as under ADR.
    InQueue(usize),
}

/// When inactive pages are consolidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consolidation {
    /// At once, in the background.
    Eager,
    /// When fewer than so many slots are free.
    Lazy(usize),
}

/// How the time of extended TLB misses and flips enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Cores.
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
    /// The step that is left out.
    pub left_out: Option<Fault>,
}

impl Parameters {
    /// The preset `ssp-sim`: Ni, table 3.1, with so many cores.
    ///
    /// | figure | value | source |
    /// |---|---|---|
    /// | core | 3.7 GHz | table 3.1 |
    /// | L1D, L2, L3 | 32 KiB 8-way 4 cycles, 256 KiB 8-way 6 cycles, 12 MiB 16-way 27 cycles | table 3.1 |
    /// | DTLB | 64 entries | table 3.1; fully associative, LRU: assumed |
    /// | write-set buffer | 64 entries | section 3.2.4 |
    /// | DRAM | 64 banks, rows of 1 KiB, 50 ns | table 3.1 |
    /// | PMEM | 32 banks, rows of 2 KiB, read 50 ns, write 200 ns | table 3.1 |
    /// | open row | 15 ns a read; a write always takes its 200 ns | assumed: the column access of DDR3-1333 |
    /// | bus | 6 ns a line | assumed: DDR3-1333, one channel |
    /// | lines over banks | those of a row are consecutive | assumed: what DRAMSim2 recommends for open rows (scheme 6) |
    /// | durable | in the cells | assumed: "until the log entry reaches persistent memory" (section 3.3.1) |
    /// | page walk | 27 cycles | assumed: page tables in the last-level cache |
    /// | instructions | 6 cycles an access, 200 a section | assumed: 12 and 400 instructions, two a cycle |
    /// | loads | one after the other | assumed: links are followed |
    /// | SSP cache | 27 cycles in its slice, 185 in DRAM, slice of 1024 entries | section 3.3.1 |
    /// | flip | 27 cycles, waited for at the section's end | assumed: a message through the last-level cache |
    /// | spare slots | 64 | assumed; the paper's O has no figure |
    /// | journal | 1024 lines, one after the other | assumed |
    /// | consolidation | at once, up to 16 queued pages together, on a thread of its own | "eager": section 3.1.4; the rest assumed |
    /// | redo buffer | 16 lines | assumed; the paper's is tuned |
    /// | redo's next section | waits for the last one's lines | assumed, after DHTM |
    ///
    /// ```
    /// let machine = terrace_machine::ssp::Parameters::ssp_sim(1);
    /// assert_eq!(machine.slots(), 64 + 64 + 64);
    /// ```
    pub fn ssp_sim(cores: usize) -> Parameters {
        let memory = |banks, row_bytes, write_ns| MemoryTiming {
            banks,
            row_bytes,
            read_ns: 50,
            row_hit_ns: 15,
            write_ns,
            run_lines: row_bytes / 64,
            link_ns: 0,
        };
        let kib = |kib: u64| kib * 1024 / 64;
        Parameters {
            cores,
            cycle_ps: 270,
            l1: CacheSize { lines: kib(32), ways: 8, cycles: 4 },
            l2: CacheSize { lines: kib(256), ways: 8, cycles: 6 },
            l3: CacheSize { lines: kib(12 * 1024), ways: 16, cycles: 27 },
            tlb_entries: 64,
            write_set_entries: 64,
            dram: memory(64, 1024, 50),
            pmem: memory(32, 2048, 200),
            burst_ps: 6_000,
            durable: Durable::InCells,
            walk_cycles: 27,
            access_cycles: 6,
            section_cycles: 200,
            store_cycles: 1,
            ssp_cache_cycles: 27,
            ssp_slice_entries: 1024,
            ssp_dram_cycles: 185,
            flip_cycles: 27,
            spare_slots: 64,
            journal_lines: 1024,
            journal_stride: 1,
            sub_page_lines: 1,
            consolidation: Consolidation::Eager,
            consolidated_together: 16,
            charged: Charged::ByEvent,
            redo_buffer_lines: 16,
            redo_waits: true,
            log_lines: 1024,
            left_out: None,
        }
    }

    /// Slots of the SSP cache. The paper has cores x TLB entries and spare ones; the write-set buffer keeps pages that
    /// have left the TLB, so its entries count too.
    ///
    /// ```
    /// let machine = terrace_machine::ssp::Parameters::ssp_sim(4);
    /// assert_eq!(machine.slots(), 4 * (64 + 64) + 64);
    /// ```
    pub fn slots(&self) -> usize {
        self.cores * (self.tlb_entries + self.write_set_entries) + self.spare_slots.max(1)
    }

    pub(super) fn has(&self, step: Fault) -> bool {
        self.left_out != Some(step)
    }

    pub(super) fn cycles(&self, cycles: u64) -> Ps {
        cycles * self.cycle_ps
    }

    /// Lines of the journal that a section of the most pages takes.
    pub(super) fn batch_lines_max(&self) -> u32 {
        (self.write_set_entries as u32 + 1).div_ceil(4)
    }

    /// Lines of the journal that the most pages take that are consolidated together.
    pub(super) fn consolidation_lines_max(&self) -> u32 {
        (self.consolidated_together as u32 + 1).div_ceil(4)
    }
}
