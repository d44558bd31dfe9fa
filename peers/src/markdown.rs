//! Results as Markdown tables, for people and for the documentation.

use crate::engine::Durability;
use crate::engines::Name;
use crate::results::{Results, Row};
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::fmt::Write;

/// A writer to a string cannot fail.
const INFALLIBLE: &str = "invariant: writing to a string does not fail";

/// What the tables of durable writes must say of sled.
const NO_SYNC: &str = "sled's flush is `sync_file_range`, which flushes neither metadata nor the \
                       device's cache: its writes would not survive a power cut, and no ratio is \
                       taken against them.";

/// Columns in the order workloads are usually named.
const WORKLOADS: [&str; 9] = ["load", "A", "B", "C", "D", "E", "F", "G", "U"];

/// All tables of a run.
pub fn tables(results: &Results) -> String {
    let mut text = String::new();
    head(&mut text, results).expect(INFALLIBLE);
    throughput(&mut text, results).expect(INFALLIBLE);
    ratios(&mut text, results).expect(INFALLIBLE);
    group_commit(&mut text, results).expect(INFALLIBLE);
    floor(&mut text, results).expect(INFALLIBLE);
    memory(&mut text, results).expect(INFALLIBLE);
    space(&mut text, results).expect(INFALLIBLE);
    recovery(&mut text, results).expect(INFALLIBLE);
    for fault in &results.faults {
        writeln!(text, "\nFailed: {fault}").expect(INFALLIBLE);
    }
    text
}

fn head(text: &mut String, results: &Results) -> std::fmt::Result {
    let machine = &results.machine;
    let settings = &results.settings;
    writeln!(
        text,
        "{}, {} processors, {} GiB, {}. {} keys of {} B in {} order, values of {} B; medians \
         of {} repetitions of {} s; `*` where other programs disturbed every repetition.",
        machine.processor,
        machine.processors,
        machine.memory_bytes >> 30,
        machine.kernel,
        settings.records,
        settings.key_bytes,
        settings.insert_order,
        settings.value_bytes,
        results.repetitions,
        settings.duration.as_secs_f64(),
    )?;
    let Some(held_to) = results.held_to_bytes else { return Ok(()) };
    let data = settings.records as f64 * (settings.key_bytes + settings.value_bytes) as f64;
    writeln!(
        text,
        "Each engine was held to {} MiB of memory, write buffers included, and read its files past the page cache: the \
         data is {:.1} times that.",
        held_to >> 20,
        data / held_to as f64,
    )
}

fn counted(threads: usize) -> String {
    if threads == 1 { "1 thread".to_string() } else { format!("{threads} threads") }
}

/// A number of things a second, to three digits.
fn rate(per_s: f64) -> String {
    match per_s {
        x if x >= 9.995e6 => format!("{:.1} M", x / 1e6),
        x if x >= 1e6 => format!("{:.2} M", x / 1e6),
        x if x >= 1e5 => format!("{:.0} k", x / 1e3),
        x if x >= 1e3 => format!("{:.1} k", x / 1e3),
        x => format!("{x:.0}"),
    }
}

/// A latency, to two or three digits.
fn latency(us: Option<f64>) -> String {
    match us {
        None => "-".to_string(),
        Some(us) if us >= 1e4 => format!("{:.0} ms", us / 1e3),
        Some(us) if us >= 1e3 => format!("{:.1} ms", us / 1e3),
        Some(us) if us >= 10.0 => format!("{us:.0} us"),
        Some(us) => format!("{us:.2} us"),
    }
}

fn mib(bytes: f64) -> String {
    format!("{:.0}", bytes / (1 << 20) as f64)
}

/// A table's head; the first column is text, the others numbers.
fn columns(text: &mut String, names: &[&str]) -> std::fmt::Result {
    writeln!(text, "| {} |", names.join(" | "))?;
    writeln!(text, "|---|{}", "---:|".repeat(names.len() - 1))
}

/// Engines in the order of their rows' first appearance in the tables: ours, durable, in memory.
fn engines(results: &Results) -> Vec<String> {
    let present: BTreeSet<&str> =
        results.rows.iter().map(|row| row.place.engine.as_str()).collect();
    let mut names: Vec<String> = Name::value_variants().iter().map(ToString::to_string).collect();
    names.retain(|name| present.contains(name.as_str()));
    names
}

fn throughput(text: &mut String, results: &Results) -> std::fmt::Result {
    let places: BTreeSet<(Durability, usize)> = results
        .rows
        .iter()
        .filter(|row| row.place.workload != "lookup")
        .map(|row| (row.place.durability, row.place.threads))
        .collect();
    for (durability, threads) in places {
        let here = |row: &&Row| row.place.durability == durability && row.place.threads == threads;
        let rows: Vec<&Row> = results.rows.iter().filter(here).collect();
        let has = |name: &&str| rows.iter().any(|row| row.place.workload == **name);
        let workloads: Vec<&str> = WORKLOADS.iter().copied().filter(has).collect();
        // More writers than these are in the table of group commit.
        if workloads.is_empty() || workloads == ["U"] {
            continue;
        }
        writeln!(
            text,
            "\n### Operations a second, {}, durability {durability}\n",
            counted(threads)
        )?;
        row_table(text, results, &rows, &workloads, |row| {
            format!("{}{}", rate(row.ops_per_s), if row.noisy { "*" } else { "" })
        })?;
        if durability == Durability::Sync {
            writeln!(text, "\n{NO_SYNC}")?;
        }
        writeln!(text, "\nLatency, median / 99th percentile:\n")?;
        row_table(text, results, &rows, &workloads, |row| {
            format!("{} / {}", latency(row.p50_us), latency(row.p99_us))
        })?;
    }
    Ok(())
}

/// Engines down, workloads across.
fn row_table(
    text: &mut String,
    results: &Results,
    rows: &[&Row],
    workloads: &[&str],
    cell: impl Fn(&Row) -> String,
) -> std::fmt::Result {
    columns(text, &[&["engine", "version"], workloads].concat())?;
    for engine in engines(results) {
        let mine: Vec<&&Row> = rows.iter().filter(|row| row.place.engine == engine).collect();
        let Some(first) = mine.first() else { continue };
        write!(text, "| {engine} | {} |", first.version)?;
        for workload in workloads {
            let row = mine.iter().find(|row| row.place.workload == *workload);
            write!(text, " {} |", row.map_or_else(|| "-".to_string(), |row| cell(row)))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn ratios(text: &mut String, results: &Results) -> std::fmt::Result {
    if results.ratios.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n### Terrace over the best of its rivals in this run\n")?;
    columns(
        text,
        &[
            "ours",
            "workload",
            "threads",
            "durability",
            "best durable",
            "best in memory",
            "floor, in harness",
            "memory alone",
        ],
    )?;
    let places: BTreeSet<(&str, Durability, usize, &str)> = results
        .ratios
        .iter()
        .map(|ratio| (&*ratio.ours, ratio.durability, ratio.threads, &*ratio.workload))
        .collect();
    for (ours, durability, threads, workload) in places {
        write!(text, "| {ours} | {workload} | {threads} | {durability} |")?;
        for against in ["best_durable", "best_in_memory", "floor", "memory"] {
            let ratio = results.ratios.iter().find(|ratio| {
                (ratio.durability, ratio.threads) == (durability, threads)
                    && (&*ratio.ours, &*ratio.workload) == (ours, workload)
                    && ratio.against == against
            });
            match ratio {
                Some(ratio) if ["floor", "memory"].contains(&against) => {
                    write!(text, " {:.0} % |", ratio.ratio * 100.0)?
                }
                Some(ratio) => write!(text, " {:.2} x ({}) |", ratio.ratio, ratio.engine)?,
                None => write!(text, " - |")?,
            }
        }
        writeln!(text)?;
    }
    Ok(())
}

fn group_commit(text: &mut String, results: &Results) -> std::fmt::Result {
    let synced = |row: &&Row| row.place.durability == Durability::Sync && row.place.workload == "U";
    let rows: Vec<&Row> = results.rows.iter().filter(synced).collect();
    let writers: BTreeSet<usize> = rows.iter().map(|row| row.place.threads).collect();
    if writers.len() < 2 {
        return Ok(());
    }
    writeln!(text, "\n### Durable updates a second by number of writers, and over one writer's\n")?;
    let names: Vec<String> = writers
        .iter()
        .map(|writers| format!("{writers} {}", if *writers == 1 { "writer" } else { "writers" }))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    columns(text, &[&["engine"], names.as_slice()].concat())?;
    for engine in engines(results) {
        let at = |writers: usize| {
            rows.iter().find(|row| row.place.engine == engine && row.place.threads == writers)
        };
        if writers.iter().all(|writers| at(*writers).is_none()) {
            continue;
        }
        write!(text, "| {engine} |")?;
        for writers in &writers {
            match (at(*writers), at(1)) {
                (Some(row), Some(one)) => {
                    let over_one = row.ops_per_s / one.ops_per_s.max(1e-9);
                    write!(text, " {} ({over_one:.1} x) |", rate(row.ops_per_s))?;
                }
                (Some(row), None) => write!(text, " {} |", rate(row.ops_per_s))?,
                (None, _) => write!(text, " - |")?,
            }
        }
        writeln!(text)?;
    }
    writeln!(text, "\n{NO_SYNC}")
}

fn floor(text: &mut String, results: &Results) -> std::fmt::Result {
    let rows: Vec<&Row> =
        results.rows.iter().filter(|row| row.place.workload == "lookup").collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n### The memory's floor: an index line and a 128 B record, in batches of {}\n",
        results.settings.batch_keys
    )?;
    columns(text, &["pages", "records chosen", "threads", "lookups a second"])?;
    for row in rows {
        let pages = if row.place.engine == "memory" { "2 MiB" } else { "4 KiB" };
        let place = &row.place;
        writeln!(
            text,
            "| {pages} | {} | {} | {} |",
            place.distribution,
            place.threads,
            rate(row.ops_per_s)
        )?;
    }
    Ok(())
}

fn memory(text: &mut String, results: &Results) -> std::fmt::Result {
    if results.memory.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n### Memory after the load\n")?;
    columns(
        text,
        &[
            "engine",
            "threads",
            "resident, MiB",
            "beyond key and value, B a key",
            "most in the run, MiB",
        ],
    )?;
    for row in &results.memory {
        let (resident, overhead) = (mib(row.resident_bytes), row.overhead_bytes_per_key);
        let most = mib(row.most_bytes);
        writeln!(
            text,
            "| {} | {} | {resident} | {overhead:.1} | {most} |",
            row.engine, row.threads
        )?;
    }
    Ok(())
}

fn space(text: &mut String, results: &Results) -> std::fmt::Result {
    if results.space.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n### Space on disk over live data, all records updated five times\n")?;
    columns(
        text,
        &[
            "engine",
            "after load",
            "sustained",
            "peak",
            "after close",
            "written over user bytes",
            "updates a second",
        ],
    )?;
    for row in &results.space {
        writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            row.engine,
            row.after_load_ratio,
            row.sustained_ratio,
            row.peak_ratio,
            row.after_close_ratio,
            row.write_amplification,
            rate(row.updates_per_s),
        )?;
    }
    Ok(())
}

fn recovery(text: &mut String, results: &Results) -> std::fmt::Result {
    if results.recovery.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n### From opening to the first answer\n")?;
    columns(
        text,
        &[
            "engine",
            "records",
            "killed, s",
            "records a second",
            "closed and cold, s",
            "resident, MiB",
        ],
    )?;
    for row in &results.recovery {
        writeln!(
            text,
            "| {} | {} | {:.3} | {} | {:.3} | {} |",
            row.engine,
            row.records,
            row.killed_s,
            // An engine that only maps its file has nothing to recover.
            if row.killed_s < 0.001 { "-".to_string() } else { rate(row.killed_records_per_s) },
            row.cold_s,
            mib(row.resident_bytes),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let rates = [12.0, 1_234.0, 12_345.0, 123_456.0, 1_234_567.0, 12_345_678.0];
        let shown: Vec<String> = rates.into_iter().map(rate).collect();
        assert_eq!(shown, ["12", "1.2 k", "12.3 k", "123 k", "1.23 M", "12.3 M"]);
        assert_eq!(latency(Some(0.123)), "0.12 us");
        assert_eq!(latency(Some(12_345.0)), "12 ms");
    }
}
