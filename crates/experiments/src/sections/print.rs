//! The tables: costs of every contender, and shadow against each.

use super::{CONTENDERS, Measured, Measurement, Row, SHADOW};
use std::fmt;
use terrace_memory::instructions;

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.settings;
        if cfg!(debug_assertions) {
            writeln!(f, "built without optimisation: the speeds mean nothing")?;
        }
        writeln!(
            f,
            "{} rounds of {} sections, {} counted; {} keys, {} tuples, pools of {} MiB in files; \
             seed {}; {:?}, declared ADR (model)\n",
            s.rounds,
            s.sections,
            s.counted_sections,
            s.keys,
            s.tuples,
            s.pool_bytes >> 20,
            s.seed,
            instructions::write_back_method(),
        )?;
        costs(f, &self.measurements)?;
        for (what, ratio) in [
            ("bytes written by shadow / by ..", Measurement::bytes_ratio as fn(&_, &str) -> _),
            ("sections a second of shadow / of ..", Measurement::speed_ratio),
        ] {
            ratios(f, &self.measurements, what, ratio)?;
        }
        beside_libpmemobj(f, self)?;
        writeln!(f)?;
        for rival in rivals() {
            let (fewer, not) = self.fewer_than(rival);
            let all = self.measurements.len();
            write!(f, "shadow writes fewer bytes than {rival} on {} of {all}", fewer.len())?;
            match not.is_empty() {
                true => writeln!(f)?,
                false => writeln!(f, "; not on {}", not.join(", "))?,
            }
        }
        Ok(())
    }
}

/// Those that shadow is held against.
fn rivals() -> impl Iterator<Item = &'static str> {
    CONTENDERS.iter().map(|contender| contender.name).filter(|name| !name.starts_with(SHADOW))
}

fn costs(f: &mut fmt::Formatter<'_>, measurements: &[Measurement]) -> fmt::Result {
    writeln!(f, "a section's:   sections/s | bytes written back: all = data + log +")?;
    writeln!(
        f,
        "               consolidation + checkpoint | write-backs | fences | and, of the run,"
    )?;
    writeln!(f, "               distinct lines\n")?;
    for measurement in measurements {
        writeln!(
            f,
            "{}: {:.1} lines a section; {} in the paper",
            measurement.workload,
            measurement.lines_each(),
            measurement.paper_lines
        )?;
        measurement.rows.iter().try_for_each(|row| cost(f, row))?;
    }
    Ok(())
}

fn cost(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let each = |count: u64| count as f64 / row.sections as f64;
    let counted = |count: u64| count as f64 / row.counted_sections as f64;
    let written = &row.written;
    writeln!(
        f,
        "  {:19}{:>9.0} |{:>8.1} ={:>7.1} +{:>7.1} +{:>6.1} +{:>6.1} |{:>6.2} |{:>6.2} |{:>7}",
        row.contender,
        row.sections_per_second,
        row.bytes_each(),
        each(written.data_bytes),
        each(written.log_bytes),
        each(written.consolidation_bytes),
        each(written.checkpoint_bytes),
        counted(row.counts.write_backs),
        counted(row.counts.fences),
        row.counts.lines_written_back,
    )
}

fn ratios(
    f: &mut fmt::Formatter<'_>,
    measurements: &[Measurement],
    what: &str,
    ratio: fn(&Measurement, &str) -> Option<f64>,
) -> fmt::Result {
    write!(f, "\n{what:36}")?;
    rivals().try_for_each(|rival| write!(f, "{rival:>15}"))?;
    for measurement in measurements {
        write!(f, "\n  {:34}", measurement.workload)?;
        for rival in rivals() {
            write!(f, "{:>15.3}", ratio(measurement, rival).unwrap_or(f64::NAN))?;
        }
    }
    writeln!(f)
}

fn beside_libpmemobj(f: &mut fmt::Formatter<'_>, measured: &Measured) -> fmt::Result {
    if let Some(missing) = &measured.libpmemobj_missing {
        return writeln!(f, "\nlibpmemobj not measured: {missing}");
    }
    write!(f, "\n{:36}{:>15}", "sections a second of .. / libpmemobj's", "libpmemobj")?;
    CONTENDERS.iter().try_for_each(|contender| write!(f, "{:>20}", contender.name))?;
    for measurement in &measured.measurements {
        let Some(speed) = measurement.libpmemobj else { continue };
        write!(f, "\n  {:34}{speed:>15.0}", measurement.workload)?;
        for row in &measurement.rows {
            write!(f, "{:>20.2}", row.sections_per_second / speed)?;
        }
    }
    writeln!(f)
}
