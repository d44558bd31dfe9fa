//! One workload on every contender, in turns: speed on this machine's memory, then exact counts.

use super::loads::{Load, Operation, operations};
use super::pmdk::Program;
use super::{CONTENDERS, Contender, Measurement, Row, Settings, Workload};
use std::io;
use std::time::Instant;
use terrace_durable::sections::{Options, Pool, Written};
use terrace_machine::Counted;
use terrace_memory::{Domain, Memory, Native, Region};

/// Sections between two rounds of background work, which is done by the same thread.
const MAINTENANCE: usize = 64;

/// A contender's pool in a file of its own, which is gone with it.
struct Trial {
    options: Options,
    pool: Pool<Native>,
    /// What the pool lies in. Dropped after it.
    region: Region,
    sections_per_second: Vec<f64>,
    /// What the timed rounds wrote.
    written: Written,
}

/// The middle one; 0 of none.
pub(super) fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_unstable_by(f64::total_cmp);
    speeds.get(speeds.len() / 2).copied().unwrap_or(0.0)
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

fn trial<L: Load>(settings: &Settings, contender: &Contender) -> io::Result<Trial> {
    let region = Region::unnamed_file(&settings.dir, settings.pool_bytes, Domain::Adr)?;
    let options = (contender.options)(settings);
    let pool = Pool::create(region.native(), &options).map_err(other)?;
    L::prepare(&pool, settings).map_err(other)?;
    pool.maintain().map_err(other)?;
    let (sections_per_second, written) = (Vec::new(), Written::default());
    Ok(Trial { options, pool, region, sections_per_second, written })
}

fn perform<L: Load, M: Memory>(pool: &Pool<M>, operations: &[Operation]) -> io::Result<()> {
    for part in operations.chunks(MAINTENANCE) {
        for operation in part {
            pool.section(|tx| L::perform(tx, *operation)).map_err(other)?;
        }
        pool.maintain().map_err(other)?;
    }
    Ok(())
}

fn time<L: Load>(trial: &mut Trial, operations: &[Operation]) -> io::Result<()> {
    let start = Instant::now();
    perform::<L, _>(&trial.pool, operations)?;
    trial.sections_per_second.push(operations.len() as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

/// Counts what sections cost, and looks whether everything is there.
fn count<L: Load>(
    trial: Trial,
    contender: &Contender,
    operations: &[Operation],
) -> io::Result<Row> {
    let Trial { options, pool, region, sections_per_second, written } = trial;
    let pool = Pool::open(Counted::new(pool.close()), &options).map_err(other)?;
    let before = pool.written();
    let (done, counts) = pool.memory().measured(|| perform::<L, _>(&pool, operations));
    done?;
    let bytes = pool.written().since(&before).bytes();
    if bytes != 64 * counts.write_backs {
        return Err(other(format!("the engine says it wrote {bytes} bytes back, not {counts}")));
    }
    let objects = pool.section(|tx| L::objects(tx)).map_err(other)?;
    pool.check_reachable(objects).map_err(other)?;
    drop((pool, region));
    Ok(Row {
        contender: contender.name,
        sections_per_second: median(sections_per_second),
        sections: 0,
        written,
        counted_sections: operations.len() as u64,
        counts,
    })
}

/// Runs one workload on every contender, and on libpmemobj if that knows it.
pub(super) fn run<L: Load>(
    settings: &Settings,
    workload: &Workload,
    libpmemobj: Option<&Program>,
) -> io::Result<Measurement> {
    let rounds = settings.rounds.max(1);
    let drawn = |seed, count| operations(workload.draw, settings.keys, settings.seed + seed, count);
    let warm_up = drawn(0, settings.sections);
    let timed = drawn(1, settings.sections * rounds);
    let counted = drawn(2, settings.counted_sections);
    let trials = CONTENDERS.iter().map(|contender| trial::<L>(settings, contender));
    let mut trials = trials.collect::<io::Result<Vec<Trial>>>()?;
    let start = |program: &Program| program.start(settings, workload.name, workload.draw);
    let mut peer = libpmemobj.map(start).transpose()?.flatten();
    for trial in &mut trials {
        perform::<L, _>(&trial.pool, &warm_up)?;
        trial.written = trial.pool.written();
    }
    for round in timed.chunks(settings.sections.max(1) as usize) {
        trials.iter_mut().try_for_each(|trial| time::<L>(trial, round))?;
        peer.iter_mut().try_for_each(|peer| peer.round())?;
    }
    for trial in &mut trials {
        trial.written = trial.pool.written().since(&trial.written);
    }
    let rows = trials.into_iter().zip(CONTENDERS).map(|(trial, contender)| {
        let row = count::<L>(trial, contender, &counted)?;
        Ok(Row { sections: timed.len() as u64, ..row })
    });
    Ok(Measurement {
        workload: workload.name,
        paper_lines: workload.paper_lines,
        rows: rows.collect::<io::Result<_>>()?,
        libpmemobj: peer.map(|peer| peer.finish()).transpose()?,
    })
}
