//! The nine workloads as tapes for the modelled processor ([`terrace_machine::ssp`]).
//!
//! A workload runs once, through the section interface as on every software engine, on a memory that is recorded: the
//! same code and the same allocator. The engine is undo by words, which reads in place and writes in place: what it
//! asks of its log, and of the old words for it, is left out, and what remains are the program's loads and stores.
//!
//! Each core has a structure of its own, with its share of the keys: the paper does not tell what its threads share,
//! and so no lock is waited for. Pages are numbered as they are touched, those of one core after those of another. The
//! first section of each tape loads every line of its pages once: the caches are warm before anything counts.

use super::loads::{Draw, Load, Operation, operations};
use super::{Settings, WORKLOADS, pool};
use std::collections::BTreeMap;
use std::io;
use terrace_durable::sections::{EngineKind, Pool};
use terrace_machine::ssp::SectionTape;
use terrace_machine::{Access, Recorded, Tape, What};
use terrace_memory::{Domain, Region};

const PAGE: u64 = 4096;
const LINE: u64 = 64;

/// What the cores of a run do, one tape each.
#[derive(Clone, Debug)]
pub struct RecordedWorkload {
    /// Its name in the paper.
    pub name: &'static str,
    /// A tape for each core: a section that warms the caches, then `Settings::sections` of the workload's.
    pub tapes: Vec<SectionTape>,
    /// Pages that all of them reach.
    pub pages: u32,
}

/// Numbers of pages, in the order in which they are touched.
#[derive(Default)]
pub(super) struct Pages {
    numbers: BTreeMap<u64, u64>,
    next: u64,
}

impl Pages {
    fn place(&mut self, at: u64) -> u64 {
        let next = &mut self.next;
        let number = self.numbers.entry(at / PAGE).or_insert_with(|| {
            *next += 1;
            *next - 1
        });
        *number * PAGE + at % PAGE
    }
}

/// Records every workload of table 3.2 for so many cores, which share the settings' keys.
///
/// ```
/// use terrace_experiments::sections::{Settings, record};
///
/// let settings =
///     Settings { sections: 10, keys: 400, tuples: 400, pool_bytes: 8 << 20, ..Settings::default() };
/// let recorded = record(&settings, 1, |_| {})?;
/// assert_eq!(recorded.len(), 9);
/// assert!(recorded.iter().all(|workload| workload.tapes[0].sections() == 11));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The file system's, and those of sections, as when a pool is too small for the settings.
pub fn record(
    settings: &Settings,
    cores: usize,
    mut begin: impl FnMut(&str),
) -> io::Result<Vec<RecordedWorkload>> {
    let shared = Settings {
        keys: settings.keys / cores as u64,
        tuples: settings.tuples / cores as u64,
        ..settings.clone()
    };
    let workloads = WORKLOADS.iter().map(|workload| {
        begin(workload.name);
        let mut first_page = 0;
        let mut tapes = Vec::new();
        for core in 0..cores {
            let mut pages = Pages { next: first_page, ..Pages::default() };
            let seed = settings.seed + core as u64;
            tapes.push((workload.record)(&shared, workload.draw, seed, &mut pages)?);
            first_page = pages.next;
        }
        Ok(RecordedWorkload { name: workload.name, tapes, pages: first_page as u32 })
    });
    workloads.collect()
}

/// One core's workload on a tape; its pages take the next numbers.
pub(super) fn tape<L: Load>(
    settings: &Settings,
    draw: Draw,
    seed: u64,
    pages: &mut Pages,
) -> io::Result<SectionTape> {
    let region = Region::unnamed_file(&settings.dir, settings.pool_bytes, Domain::Adr)?;
    let options = pool(settings, EngineKind::Undo);
    let made = Pool::create(region.native(), &options).map_err(io::Error::other)?;
    L::prepare(&made, settings).map_err(io::Error::other)?;
    let reel = Tape::new();
    let memory = Recorded::new(made.close(), 0, &reel);
    let pool = Pool::open(memory, &options).map_err(io::Error::other)?;
    let data_at = pool.log().end.next_multiple_of(PAGE);
    let drawn: Vec<Operation> = operations(draw, settings.keys, seed, settings.sections);
    let first_page = pages.next;
    let mut sections = Vec::with_capacity(drawn.len());
    for operation in drawn {
        let (done, accesses) = reel.record(|| pool.section(|tx| L::perform(tx, operation)));
        done.map_err(io::Error::other)?;
        sections.push(of_program(&accesses, data_at, pages));
    }
    let mut tape = SectionTape::default();
    (first_page * PAGE..pages.next * PAGE).step_by(LINE as usize).for_each(|at| tape.load(at, 1));
    tape.end_section();
    for accesses in sections {
        for (is_store, at, words) in accesses {
            if is_store { tape.store(at, words) } else { tape.load(at, words) }
        }
        tape.end_section();
    }
    pages.numbers.clear();
    drop((pool, region));
    Ok(tape)
}

/// The program's loads and stores, of words: whether it is a store, where, and how many.
fn of_program(accesses: &[Access], data_at: u64, pages: &mut Pages) -> Vec<(bool, u64, u64)> {
    let is_log = |access: &Access| access.what == What::Write && access.at < data_at;
    let mut found = Vec::new();
    for (number, access) in accesses.iter().enumerate() {
        let is_store = match access.what {
            What::Read | What::Load => false,
            What::Write | What::Store => true,
            _ => continue,
        };
        // Undo reads old words right before it logs them.
        let is_undo = !is_store && accesses.get(number + 1).is_some_and(is_log);
        if access.at < data_at || is_undo {
            continue;
        }
        let (mut at, end) = (access.at / 8 * 8, access.at + u64::from(access.bytes));
        while at < end {
            // Neighbouring pages need not have neighbouring numbers.
            let to = end.min((at / PAGE + 1) * PAGE);
            found.push((is_store, pages.place(at - data_at), (to - at).div_ceil(8)));
            at = to;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_machine::ssp::{Design, Parameters, Processor};

    fn settings() -> Settings {
        Settings {
            sections: 300,
            keys: 800,
            tuples: 800,
            pool_bytes: 8 << 20,
            ..Settings::default()
        }
    }

    #[test]
    fn every_workload_plays_on_every_design_with_the_same_sections() {
        for workload in record(&settings(), 2, |_| {}).expect("recorded") {
            let tapes: Vec<&SectionTape> = workload.tapes.iter().collect();
            let changed = Design::ALL.map(|design| {
                let mut processor = Processor::new(&Parameters::ssp_sim(2), design, workload.pages);
                processor.play(&tapes, 0..301).expect("no section is too large");
                let events = processor.events();
                assert_eq!(events.sections, 602, "{} on {design:?}", workload.name);
                events.lines_changed
            });
            assert!(
                changed.iter().all(|lines| *lines == changed[0]),
                "{}: {changed:?}",
                workload.name
            );
            assert!(changed[0] > 600, "{}: {changed:?}", workload.name);
        }
    }
}
