//! One workload on every contender, in turns: speed on this machine's memory, then exact counts.

use super::loads::{Draw, Load, Operation, operations};
use super::{Contender, Row, Settings};
use std::io;
use std::time::Instant;
use terrace_durable::sections::{Options, Pool};
use terrace_machine::Counted;
use terrace_memory::{Domain, Memory, Native, Region};

/// Sections between two rounds of background work, which is done by the same thread.
const MAINTENANCE: usize = 64;

/// A contender's pool in a file of its own, which is gone with it.
struct Lane {
    options: Options,
    pool: Pool<Native>,
    /// What the pool lies in. Dropped after it.
    region: Region,
    sections_per_second: Vec<f64>,
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

fn lane<L: Load>(settings: &Settings, contender: &Contender) -> io::Result<Lane> {
    let file = tempfile::tempfile_in(&settings.dir)?;
    file.set_len(settings.pool_bytes)?;
    let region = Region::map_file(&file, settings.pool_bytes, false, Domain::Adr)?;
    let options = (contender.options)();
    let pool = Pool::create(region.native(), &options).map_err(other)?;
    L::prepare(&pool, settings).map_err(other)?;
    pool.maintain().map_err(other)?;
    Ok(Lane { options, pool, region, sections_per_second: Vec::new() })
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

fn time<L: Load>(lane: &mut Lane, operations: &[Operation]) -> io::Result<()> {
    let start = Instant::now();
    perform::<L, _>(&lane.pool, operations)?;
    lane.sections_per_second.push(operations.len() as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

/// Counts what the sections cost, then looks whether everything is there.
fn count<L: Load>(lane: Lane, name: &'static str, operations: &[Operation]) -> io::Result<Row> {
    let Lane { options, pool, region, mut sections_per_second } = lane;
    let pool = Pool::open(Counted::new(pool.close()), &options).map_err(other)?;
    let before = pool.written();
    let (done, counts) = pool.memory().measured(|| perform::<L, _>(&pool, operations));
    done?;
    let written = pool.written().since(&before);
    let objects = pool.section(|tx| L::objects(tx)).map_err(other)?;
    pool.check_reachable(objects).map_err(other)?;
    drop((pool, region));
    sections_per_second.sort_unstable_by(f64::total_cmp);
    Ok(Row {
        contender: name,
        sections: operations.len() as u64,
        sections_per_second: sections_per_second[sections_per_second.len() / 2],
        written,
        counts,
    })
}

/// The rows of one workload, in the order of the contenders.
pub(super) fn run<L: Load>(
    settings: &Settings,
    draw: Draw,
    contenders: &[Contender],
) -> io::Result<Vec<Row>> {
    let rounds = settings.rounds.max(1);
    let drawn = |seed, count| operations(draw, settings.keys, settings.seed + seed, count);
    let warm_up = drawn(0, settings.sections);
    let timed = drawn(1, settings.sections * rounds);
    let counted = drawn(2, settings.counted_sections);
    let lanes = contenders.iter().map(|contender| lane::<L>(settings, contender));
    let mut lanes = lanes.collect::<io::Result<Vec<Lane>>>()?;
    for lane in &mut lanes {
        perform::<L, _>(&lane.pool, &warm_up)?;
    }
    for round in timed.chunks(settings.sections.max(1) as usize) {
        lanes.iter_mut().try_for_each(|lane| time::<L>(lane, round))?;
    }
    let rows = lanes.into_iter().zip(contenders);
    rows.map(|(lane, contender)| count::<L>(lane, contender.name, &counted)).collect()
}
