//! Failure-atomic sections by undo, redo and shadow sub-paging, on the nine workloads of Ni, table 3.2
//! (experiment `ssp-software`): what each engine writes to the medium, and how fast it is here.
//!
//! ```no_run
//! use terrace_experiments::sections::{Settings, measure};
//!
//! let measured = measure(&Settings::default(), |name| eprintln!("{name}"))?;
//! print!("{measured}");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What is measured
//!
//! Bytes are lines written back times 64: what reaches the medium if nothing is merged on the way. They
//! are told apart by what they are for, the background work included, over all timed rounds: several
//! cycles of checkpoints, after as many sections as one round has. Further sections run on [`Counted`],
//! which must find as many write-backs as the engine says.
//!
//! Speeds are those of one thread on pools in files, all in one run and in turns; the files are
//! *declared* persistent memory, so their speeds are those of the page cache and no claim about
//! persistent memory. Where PMDK's libpmemobj is installed, its transactions take turns with ours on
//! five of the workloads, on a file of their own, and its contents must be those that ours would have.
//!
//! # What the rivals log
//!
//! The paper's undo and redo log lines, as its hardware does (Ni, section 3.3.1). Software may log the
//! words that change instead, which writes less: both are measured, and shadow is held against both.
//!
//! # What shadow's pages are
//!
//! Pages beyond the active ones are merged, which writes lines again. By default one page of eight can be
//! active; the paper's processor has 64 in its first-level TLB and 1024 in its second. All three are
//! measured. A working set that the active pages do not cover can cost shadow more than logging words
//! costs redo.
//!
//! # What the workloads are
//!
//! The paper gives write sets but no sizes; ours are in [`Settings`], and the lines that a section
//! writes are printed beside the paper's. The cache is after memcached with values of 64 bytes; the
//! travel agency after STAMP's Vacation, with 65 thousand tuples where the paper has 16 million. Not
//! measured: several threads, and reads alone.

mod loads;
mod modelled;
mod pmdk;
mod print;
mod recorded;
mod run;

pub use modelled::{Designs, HardwareRun, compare};
pub use recorded::{RecordedWorkload, record};

use loads::{BTreeToggles, Draw, HashToggles, RedBlackToggles, Requests, Swapped, Travel};
use pmdk::Program;
use recorded::{Pages, tape};
use run::run;
use std::io;
use std::path::PathBuf;
use terrace_durable::sections::{EngineKind, Grain, Options, Written};
use terrace_machine::Counts;
use terrace_machine::ssp::SectionTape;

#[cfg(doc)]
use terrace_machine::Counted;

/// How much is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Sections of a round, and of the warm-up.
    pub sections: u64,
    /// Rounds of timed sections; the median counts.
    pub rounds: u64,
    /// Sections whose costs are counted.
    pub counted_sections: u64,
    /// Keys of the trees, of the table and of the cache.
    pub keys: u64,
    /// Rows of the travel agency, in all four tables.
    pub tuples: u64,
    /// Length of a pool.
    pub pool_bytes: u64,
    /// Where the pools' files are.
    pub dir: PathBuf,
    /// What every draw follows from.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sections: 50_000,
            rounds: 5,
            counted_sections: 10_000,
            keys: 100_000,
            tuples: 65_536,
            pool_bytes: 256 << 20,
            dir: std::env::temp_dir(),
            seed: 1,
        }
    }
}

/// Elements of the array and buckets of the table.
const PLACES: u64 = 100_000;

/// An engine with its settings.
#[derive(Clone, Copy)]
struct Contender {
    name: &'static str,
    options: fn(&Settings) -> Options,
}

/// The log holds an array of as many words as there are keys, which is what making one takes: half as
/// much again where every line has an entry of its own.
fn pool(settings: &Settings, engine: EngineKind) -> Options {
    let log_bytes = 12 * settings.keys.max(PLACES) + (256 << 10);
    Options::new(engine).log_bytes(log_bytes.next_multiple_of(64))
}

const SHADOW: &str = "shadow";

const CONTENDERS: &[Contender] = &[
    Contender { name: "undo", options: |s| pool(s, EngineKind::Undo) },
    Contender { name: "undo by lines", options: |s| pool(s, EngineKind::Undo).grain(Grain::Line) },
    Contender { name: "redo", options: |s| pool(s, EngineKind::Redo) },
    Contender { name: "redo by lines", options: |s| pool(s, EngineKind::Redo).grain(Grain::Line) },
    Contender { name: SHADOW, options: |s| pool(s, EngineKind::Shadow) },
    Contender {
        name: "shadow, 1024 pages",
        options: |s| pool(s, EngineKind::Shadow).pages(1024, 32),
    },
    Contender { name: "shadow, 64 pages", options: |s| pool(s, EngineKind::Shadow).pages(64, 8) },
];

/// A workload of table 3.2.
struct Workload {
    name: &'static str,
    /// Lines that a section writes on the average, in the paper.
    paper_lines: u32,
    draw: Draw,
    run: fn(&Settings, &Workload, Option<&Program>) -> io::Result<Measurement>,
    record: fn(&Settings, Draw, u64, &mut Pages) -> io::Result<SectionTape>,
}

macro_rules! workloads {
    ($($name:literal, $lines:literal, $draw:ident, $load:ty;)*) => {
        &[$(Workload {
            name: $name,
            paper_lines: $lines,
            draw: Draw::$draw,
            run: run::<$load>,
            record: tape::<$load>,
        }),*]
    };
}

const WORKLOADS: &[Workload] = workloads! {
    "RBTree-Rand", 12, Uniform, RedBlackToggles;
    "BTree-Rand", 10, Uniform, BTreeToggles;
    "Hash-Rand", 3, Uniform, HashToggles;
    "SPS", 2, Uniform, Swapped;
    "RBTree-Zipf", 5, Zipf, RedBlackToggles;
    "BTree-Zipf", 6, Zipf, BTreeToggles;
    "Hash-Zipf", 3, Zipf, HashToggles;
    "Memcached", 3, Uniform, Requests;
    "Vacation", 4, Uniform, Travel;
};

/// What a contender did in a workload.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name: `undo`, `undo by lines`, `redo`, `redo by lines`, `shadow`, `shadow, 1024 pages`,
    /// `shadow, 64 pages`.
    pub contender: &'static str,
    /// Median of the rounds.
    pub sections_per_second: f64,
    /// Sections of all rounds.
    pub sections: u64,
    /// Bytes that they wrote back, by what for.
    pub written: Written,
    /// Sections that were counted.
    pub counted_sections: u64,
    /// Everything that they asked of the memory.
    pub counts: Counts,
}

impl Row {
    /// Bytes written to the medium for a section.
    pub fn bytes_each(&self) -> f64 {
        self.written.bytes() as f64 / self.sections as f64
    }
}

/// A workload's rows.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Its name in the paper.
    pub workload: &'static str,
    /// Lines that a section writes on the average, in the paper.
    pub paper_lines: u32,
    /// One for each contender.
    pub rows: Vec<Row>,
    /// Median sections a second of libpmemobj, if it is there and its program knows the workload.
    pub libpmemobj: Option<f64>,
}

impl Measurement {
    /// The row of a contender.
    pub fn row(&self, contender: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.contender == contender)
    }

    /// Lines that a section wrote on the average: each once, whatever was logged.
    pub fn lines_each(&self) -> f64 {
        self.row("redo")
            .map_or(0.0, |row| row.written.data_bytes as f64 / 64.0 / row.sections as f64)
    }

    /// Bytes that shadow wrote for each that `rival` wrote: below 1 if it wrote less.
    pub fn bytes_ratio(&self, rival: &str) -> Option<f64> {
        Some(self.row(SHADOW)?.bytes_each() / self.row(rival)?.bytes_each())
    }

    /// Sections that shadow did in the time in which `rival` did one.
    pub fn speed_ratio(&self, rival: &str) -> Option<f64> {
        Some(self.row(SHADOW)?.sections_per_second / self.row(rival)?.sections_per_second)
    }
}

/// The findings.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How much was run.
    pub settings: Settings,
    /// One for each workload, in the order of table 3.2.
    pub measurements: Vec<Measurement>,
    /// Why libpmemobj was not measured, if it was not.
    pub libpmemobj_missing: Option<String>,
}

impl Measured {
    /// The workloads on which shadow wrote fewer bytes than `rival`, and those on which it did not.
    pub fn fewer_than(&self, rival: &str) -> (Vec<&'static str>, Vec<&'static str>) {
        let names = self.measurements.iter().map(|m| (m.workload, m.bytes_ratio(rival)));
        let (fewer, not): (Vec<_>, Vec<_>) =
            names.partition(|(_, ratio)| ratio.is_some_and(|ratio| ratio < 1.0));
        let named = |all: Vec<(&'static str, _)>| all.into_iter().map(|(name, _)| name).collect();
        (named(fewer), named(not))
    }
}

/// Runs every workload on every contender, and on libpmemobj where that is installed; `begin` hears each
/// workload's name before it is run.
///
/// # Errors
/// The file system's; those of sections, as when a pool is too small for the settings; and what is
/// wrong with a structure or with the allocation metadata of a pool after its run. That libpmemobj is missing is none.
pub fn measure(settings: &Settings, mut begin: impl FnMut(&str)) -> io::Result<Measured> {
    let (program, libpmemobj_missing) = match Program::compile(settings)? {
        Ok(program) => (Some(program), None),
        Err(missing) => (None, Some(missing)),
    };
    let measurements = WORKLOADS.iter().map(|workload| {
        begin(workload.name);
        (workload.run)(settings, workload, program.as_ref())
    });
    let measurements = measurements.collect::<io::Result<Vec<Measurement>>>()?;
    Ok(Measured { settings: settings.clone(), measurements, libpmemobj_missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Measured {
        let settings = Settings {
            sections: 200,
            rounds: 1,
            counted_sections: 200,
            keys: 400,
            tuples: 400,
            pool_bytes: 8 << 20,
            ..Settings::default()
        };
        measure(&settings, |_| {}).expect("measured")
    }

    #[test]
    fn every_workload_runs_on_every_contender_and_keeps_its_invariants() {
        let measured = tiny();
        assert_eq!(measured.measurements.len(), 9);
        for measurement in &measured.measurements {
            for row in &measurement.rows {
                let name = (measurement.workload, row.contender);
                assert!(row.bytes_each() > 64.0 && row.sections == 200, "{name:?}");
                assert!(row.counts.fences >= row.counted_sections, "{name:?}");
                let is_shadow = row.contender.starts_with(SHADOW);
                assert!(is_shadow || row.written.consolidation_bytes == 0, "{name:?}");
            }
        }
        let beside = measured.measurements.iter().filter(|m| m.libpmemobj.is_some()).count();
        assert_eq!(beside, if measured.libpmemobj_missing.is_some() { 0 } else { 5 });
        assert!(measured.to_string().contains("Vacation"), "{measured}");
    }
}
