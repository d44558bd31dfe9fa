//! Medians over repetitions, and the ratios between them: the results as they are written down.

use crate::engine::Durability;
use crate::engines::Name;
use crate::floor::FloorReport;
use crate::job::{Subject, YcsbReport};
use crate::recovery::RecoveryReport;
use crate::space::SpaceReport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terrace_workload::system::{Machine, NOISY_CORES};
use terrace_workload::ycsb::{PhaseReport, Settings};

/// Everything a run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Throughput and latency: one row for each workload, threads, durability and engine.
    pub rows: Vec<Row>,
    /// Where it was measured.
    pub machine: Machine,
    /// How: sizes and lengths.
    pub settings: Settings,
    /// Repetitions, of which each row is the median.
    pub repetitions: u32,
    /// Memory that each engine was held to, where the data was larger.
    pub held_to_bytes: Option<u64>,
    /// Terrace against the best of its rivals.
    pub ratios: Vec<Ratio>,
    /// Memory after the load.
    pub memory: Vec<MemoryRow>,
    /// Space on disk under sustained updates.
    pub space: Vec<SpaceRow>,
    /// Opening after a kill.
    pub recovery: Vec<RecoveryRow>,
    /// Configurations that failed, or read what had not been written.
    pub faults: Vec<String>,
}

/// What a row is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// `load`, a workload's letter, or `lookup` without harness.
    pub workload: String,
    /// Threads.
    pub threads: usize,
    /// When writes return.
    pub durability: Durability,
    /// An engine (`floor` is the memory's floor through the harness), or, of lookups without the
    /// harness, `memory` and `memory_small_pages`.
    pub engine: String,
    /// Choice of records.
    pub distribution: String,
}

/// Throughput and latency of one engine: medians over the repetitions on a quiet machine, or over
/// all where none was quiet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Of what.
    #[serde(flatten)]
    pub place: Place,
    /// The engine's version.
    pub version: String,
    /// Operations a second, all threads.
    pub ops_per_s: f64,
    /// Median latency; absent for the floor.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p99_9_us: Option<f64>,
    /// Repetitions the medians are of.
    pub repetitions: usize,
    /// Fastest repetition over slowest.
    pub spread: f64,
    /// Whether other programs disturbed all repetitions.
    pub noisy: bool,
}

/// Terrace's throughput over another's, in the same run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// Which of ours.
    pub ours: String,
    /// Workload.
    pub workload: String,
    /// Threads.
    pub threads: usize,
    /// When writes return.
    pub durability: Durability,
    /// `best_durable`, `best_in_memory`; of reads `floor`, of batched ones `memory` as well; of
    /// durable updates `one_writer`.
    pub against: String,
    /// Who that is.
    pub engine: String,
    /// The ratio.
    pub ratio: f64,
}

/// Memory one engine takes after the load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryRow {
    /// Which.
    pub engine: String,
    /// Threads that loaded it.
    pub threads: usize,
    /// Growth of the resident set.
    pub resident_bytes: f64,
    /// The same for each record, less its key and value.
    pub overhead_bytes_per_key: f64,
    /// The largest resident set of the whole run, the harness's own included.
    pub most_bytes: f64,
}

/// Space one engine takes under sustained updates, over the live keys and values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpaceRow {
    /// Which.
    pub engine: String,
    /// After the load.
    pub after_load_ratio: f64,
    /// Median during the second half of the updates.
    pub sustained_ratio: f64,
    /// Most during the updates.
    pub peak_ratio: f64,
    /// After the close.
    pub after_close_ratio: f64,
    /// Bytes sent to storage over bytes of keys and values written.
    pub write_amplification: f64,
    /// Updates a second meanwhile.
    pub updates_per_s: f64,
}

/// One engine's opening, killed after a flush, and closed with nothing in the page cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryRow {
    /// Which.
    pub engine: String,
    /// Records it held.
    pub records: u64,
    /// Seconds from the start of opening to the first answer, after a kill.
    pub killed_s: f64,
    /// Records a second in that.
    pub killed_records_per_s: f64,
    /// The same after a close, with cold files.
    pub cold_s: f64,
    /// Memory resident after the first answer.
    pub resident_bytes: f64,
}

/// What repetitions reported, one after another.
#[derive(Debug, Default)]
pub struct Collected {
    runs: BTreeMap<Place, Vec<Sample>>,
    /// By engine and threads: resident bytes, overhead, most resident bytes.
    memory: BTreeMap<(Name, usize), Vec<[f64; 3]>>,
    space: BTreeMap<Name, Vec<SpaceReport>>,
    recovery: BTreeMap<Name, Vec<(RecoveryReport, RecoveryReport)>>,
    /// What went wrong.
    pub faults: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    ops_per_s: f64,
    latency_us: Option<[f64; 3]>,
    noisy: bool,
}

impl Collected {
    /// Notes what the floor is.
    pub fn floor(&mut self, report: FloorReport) {
        let engine = if report.huge_pages { "memory" } else { "memory_small_pages" };
        let place = Place {
            workload: "lookup".to_string(),
            threads: report.threads,
            durability: Durability::None,
            engine: engine.to_string(),
            distribution: report.distribution,
        };
        let sample = Sample { ops_per_s: report.ops_per_s, latency_us: None, noisy: false };
        self.runs.entry(place).or_default().push(sample);
    }

    /// Notes a run of workloads.
    pub fn ycsb(&mut self, subject: &Subject, report: &YcsbReport) {
        let place = |workload: String, distribution: &str| Place {
            workload,
            threads: subject.settings.threads,
            durability: subject.durability,
            engine: subject.engine.to_string(),
            distribution: distribution.to_string(),
        };
        let load = &report.load;
        let is_store = !matches!(subject.engine, Name::Floor | Name::Null);
        if let Some(latency) = load.latency.filter(|_| is_store) {
            let sample = Sample {
                ops_per_s: load.ops_per_s,
                latency_us: Some([latency.p50_us, latency.p99_us, latency.p99_9_us]),
                noisy: load.processors.foreign_cores >= NOISY_CORES,
            };
            let at = place("load".to_string(), "each record once");
            self.runs.entry(at).or_default().push(sample);
            let grown =
                load.memory_after.resident_bytes as f64 - load.memory_before.resident_bytes as f64;
            let phases = report.phases.iter().map(|phase| phase.memory.peak_bytes);
            let most = phases.fold(load.memory_after.peak_bytes, u64::max);
            let at = (subject.engine, subject.settings.threads);
            self.memory.entry(at).or_default().push([
                grown,
                load.overhead_bytes_per_record(),
                most as f64,
            ]);
        }
        for phase in &report.phases {
            let at = place(phase.workload.to_string(), &phase.distribution);
            if !phase.is_sound() && subject.engine != Name::Null {
                let PhaseReport { misses, bad, .. } = phase;
                self.faults.push(format!("{at:?}: {misses} reads missed, {bad} were wrong"));
            }
            let latency = phase.overall_latency();
            let sample = Sample {
                ops_per_s: phase.ops_per_s,
                latency_us: Some([latency.p50_us, latency.p99_us, latency.p99_9_us]),
                noisy: phase.is_noisy(),
            };
            self.runs.entry(at).or_default().push(sample);
        }
    }

    /// Notes the space an engine took.
    pub fn space(&mut self, subject: &Subject, report: SpaceReport) {
        self.space.entry(subject.engine).or_default().push(report);
    }

    /// Notes two openings.
    pub fn recovery(&mut self, subject: &Subject, warm: &RecoveryReport, cold: &RecoveryReport) {
        for report in [warm, cold] {
            if report.missing + report.bad > 0 {
                self.faults.push(format!(
                    "{} recovery: {} of {} flushed records missing, {} wrong",
                    subject.engine, report.missing, report.records, report.bad
                ));
            }
        }
        self.recovery.entry(subject.engine).or_default().push((warm.clone(), cold.clone()));
    }

    /// Medians and ratios of everything noted.
    pub fn results(self, machine: Machine, settings: &Settings, repetitions: u32) -> Results {
        let rows: Vec<Row> = self.runs.into_iter().map(|(place, runs)| row(place, &runs)).collect();
        let ratios = ratios(&rows);
        let memory = self.memory.into_iter().map(|((engine, threads), runs)| MemoryRow {
            engine: engine.to_string(),
            threads,
            resident_bytes: median(runs.iter().map(|run| run[0])),
            overhead_bytes_per_key: median(runs.iter().map(|run| run[1])),
            most_bytes: median(runs.iter().map(|run| run[2])),
        });
        Results {
            rows,
            machine,
            settings: settings.clone(),
            repetitions,
            held_to_bytes: None,
            ratios,
            memory: memory.collect(),
            space: self.space.iter().map(|(engine, runs)| space_row(*engine, runs)).collect(),
            recovery: self
                .recovery
                .iter()
                .map(|(engine, runs)| recovery_row(*engine, runs))
                .collect(),
            faults: self.faults,
        }
    }
}

/// The middle of some numbers; of two middle ones, their mean. 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

fn row(place: Place, runs: &[Sample]) -> Row {
    let quiet: Vec<Sample> = runs.iter().copied().filter(|run| !run.noisy).collect();
    let noisy = quiet.is_empty();
    let used = if noisy { runs } else { &quiet };
    let rates = || used.iter().map(|run| run.ops_per_s);
    let latency = |i: usize| {
        let all: Vec<f64> = used.iter().filter_map(|run| Some(run.latency_us?[i])).collect();
        (!all.is_empty()).then(|| median(all.into_iter()))
    };
    let version = <Name as clap::ValueEnum>::from_str(&place.engine, true);
    Row {
        version: version.map_or_else(|_| String::new(), |name| name.version().to_string()),
        ops_per_s: median(rates()),
        p50_us: latency(0),
        p99_us: latency(1),
        p99_9_us: latency(2),
        repetitions: used.len(),
        spread: rates().fold(0.0, f64::max) / rates().fold(f64::MAX, f64::min).max(1e-9),
        noisy,
        place,
    }
}

fn space_row(engine: Name, runs: &[SpaceReport]) -> SpaceRow {
    let over_live = |bytes: fn(&SpaceReport) -> u64| {
        median(runs.iter().map(|run| bytes(run) as f64 / run.live_bytes.max(1) as f64))
    };
    let amplification =
        |run: &SpaceReport| run.storage_written_bytes as f64 / run.user_bytes_written.max(1) as f64;
    SpaceRow {
        engine: engine.to_string(),
        after_load_ratio: over_live(|run| run.after_load_bytes),
        sustained_ratio: over_live(|run| run.sustained_bytes),
        peak_ratio: over_live(|run| run.peak_bytes),
        after_close_ratio: over_live(|run| run.after_close_bytes),
        write_amplification: median(runs.iter().map(amplification)),
        updates_per_s: median(runs.iter().map(|run| run.updates_per_s)),
    }
}

fn recovery_row(engine: Name, runs: &[(RecoveryReport, RecoveryReport)]) -> RecoveryRow {
    let killed_s = median(runs.iter().map(|(killed, _)| killed.first_get_s));
    let records = runs.first().map_or(0, |(killed, _)| killed.records);
    RecoveryRow {
        engine: engine.to_string(),
        records,
        killed_s,
        killed_records_per_s: records as f64 / killed_s.max(1e-9),
        cold_s: median(runs.iter().map(|(_, cold)| cold.first_get_s)),
        resident_bytes: median(runs.iter().map(|(killed, _)| killed.resident_bytes as f64)),
    }
}

/// Terrace against the best durable and the best in-memory engine of each row (of durable writes,
/// the best whose writes survive a power cut), batched reads
/// against the floor of the same distribution, and durable updates against one writer's.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let name = |row: &Row| <Name as clap::ValueEnum>::from_str(&row.place.engine, true).ok();
    let ours = rows.iter().filter(|row| name(row).is_some_and(Name::is_ours));
    let mut ratios = Vec::new();
    for our in ours {
        let same = |row: &&Row| {
            Place { engine: our.place.engine.clone(), ..row.place.clone() } == our.place
        };
        let rivals = |durable: bool| {
            let sync = our.place.durability == Durability::Sync;
            let kind = |row: &&Row| {
                name(row).is_some_and(|name| {
                    !matches!(name, Name::Floor | Name::Null)
                        && !name.is_ours()
                        && name.is_durable() == durable
                        && (!sync || name.survives_power_loss())
                })
            };
            rows.iter().filter(same).filter(kind).max_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s))
        };
        let floor = rows.iter().filter(same).find(|row| name(row) == Some(Name::Floor));
        let memory = rows.iter().find(|row| {
            our.place.workload == "G"
                && row.place.engine == "memory"
                && row.place.threads == our.place.threads
                && row.place.distribution == our.place.distribution
        });
        let one_writer = rows.iter().find(|row| {
            our.place.workload == "U"
                && our.place.durability == Durability::Sync
                && our.place.threads > 1
                && row.place == Place { threads: 1, ..our.place.clone() }
        });
        let others = [
            ("best_durable", rivals(true)),
            ("best_in_memory", rivals(false)),
            ("floor", floor),
            ("memory", memory),
            ("one_writer", one_writer),
        ];
        ratios.extend(others.into_iter().filter_map(|(against, other)| {
            let other = other?;
            Some(Ratio {
                ours: our.place.engine.clone(),
                workload: our.place.workload.clone(),
                threads: our.place.threads,
                durability: our.place.durability,
                against: against.to_string(),
                engine: other.place.engine.clone(),
                ratio: our.ops_per_s / other.ops_per_s.max(1e-9),
            })
        }));
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ops_per_s: f64, noisy: bool) -> Sample {
        Sample { ops_per_s, latency_us: Some([1.0, 2.0, 3.0]), noisy }
    }

    fn place(engine: &str, workload: &str, threads: usize, durability: Durability) -> Place {
        Place {
            workload: workload.to_string(),
            threads,
            durability,
            engine: engine.to_string(),
            distribution: "zipfian(0.99)".to_string(),
        }
    }

    #[test]
    fn medians_are_of_quiet_repetitions_where_there_are_any() {
        let at = || place("redb", "A", 1, Durability::None);
        let runs = [sample(10.0, true), sample(20.0, false), sample(30.0, false)];
        let quiet = row(at(), &runs);
        assert_eq!((quiet.ops_per_s, quiet.repetitions, quiet.noisy), (25.0, 2, false));
        assert_eq!((quiet.spread, quiet.p99_us), (1.5, Some(2.0)));
        let noisy = row(at(), &runs[..1]);
        assert_eq!((noisy.ops_per_s, noisy.noisy), (10.0, true));
    }

    #[test]
    fn ratios_are_against_the_best_of_the_same_configuration() {
        let (none, sync) = (Durability::None, Durability::Sync);
        let rows: Vec<Row> = [
            ("terrace", "A", 1, none, 100.0),
            ("redb", "A", 1, none, 10.0),
            ("fjall", "A", 1, none, 20.0),
            ("fjall", "A", 2, none, 90.0),
            ("scc", "A", 1, none, 50.0),
            ("null", "A", 1, none, 5000.0),
            ("terrace", "G", 1, none, 60.0),
            ("floor", "G", 1, none, 80.0),
            ("terrace", "U", 1, sync, 5.0),
            ("terrace", "U", 64, sync, 60.0),
            ("sled", "U", 64, sync, 70.0),
            ("redb", "U", 64, sync, 30.0),
        ]
        .into_iter()
        .map(|(engine, workload, threads, durability, rate)| {
            row(place(engine, workload, threads, durability), &[sample(rate, false)])
        })
        .collect();
        let found: Vec<(String, String, f64)> =
            ratios(&rows).into_iter().map(|r| (r.against, r.engine, r.ratio)).collect();
        let expected = [
            ("best_durable", "fjall", 5.0),
            ("best_in_memory", "scc", 2.0),
            ("floor", "floor", 0.75),
            ("best_durable", "redb", 2.0),
            ("one_writer", "terrace", 12.0),
        ];
        let expected = expected.map(|(a, e, r)| (a.to_string(), e.to_string(), r));
        assert_eq!(found, expected);
    }
}
