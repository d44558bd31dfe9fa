//! `ssp-software`: shadow sub-paging as a library, against undo and redo (Ni, chapter 3, table 3.2).
//!
//! What each engine writes to the medium on the nine workloads, counted, and how fast it is here; see
//! [`crate::sections`]. The paper's rivals log lines. Redo that logs the words that change is a harder
//! one, and is held against shadow too.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::sections::{self, Measured, Settings};

pub(super) const ROW: Row = Row {
    id: "ssp-software",
    source: "Ni, chapter 3, table 3.2",
    runs_on: "native (file in the page cache) + counted",
    must_show: "shadow sub-paging writes fewer bytes than undo and than redo by lines on all nine workloads",
    run,
};

const SHADOW: &str = "shadow";
/// Rivals that are to write more. Redo by words is beside them and not judged: it logs what was stored and no more.
const RIVALS: [&str; 3] = ["undo", "undo by lines", "redo by lines"];
const BY_WORDS: &str = "redo";

fn run(run: &Run<'_>) -> Result<Outcome> {
    let small = Settings { sections: 6_000, rounds: 3, counted_sections: 2_000, ..Settings::default() };
    let settings = run.size(Settings::default(), small);
    let measured = sections::measure(&settings, |name| (run.tell)(name))
        .map_err(Error::system("measure sections on files in the temporary directory"))?;
    Ok(judge(&settings, &measured))
}

fn judge(settings: &Settings, measured: &Measured) -> Outcome {
    let mut outcome = Outcome::default();
    let all = measured.measurements.len();
    for rival in RIVALS {
        let fewer = measured.fewer_than(rival).0.len();
        let what = format!("workloads of {all} on which shadow writes fewer bytes than {rival}");
        outcome.checks.push(Check::at_least(what, "all", fewer as f64, all as f64).order());
    }
    outcome.size("sections", format!("{} rounds of {}", settings.rounds, settings.sections));
    outcome.size("keys", settings.keys);
    outcome.size("pool", format!("{} MiB", settings.pool_bytes >> 20));
    let names = || measured.measurements.iter().map(|workload| workload.workload);
    let ratios = |rival: &str| -> Vec<f64> {
        measured.measurements.iter().map(|w| w.bytes_ratio(rival).unwrap_or(f64::NAN)).collect()
    };
    let speeds = |rival: &str| -> Vec<f64> {
        measured.measurements.iter().map(|w| w.speed_ratio(rival).unwrap_or(f64::NAN)).collect()
    };
    let mut bytes =
        Figure::new("Bytes written by shadow, over its rival's", "workload", "ratio", FigureKind::Bars)
            .over(names());
    let mut speed =
        Figure::new("Sections a second of shadow, over its rival's", "workload", "ratio", FigureKind::Bars)
            .over(names());
    for rival in ["undo by lines", "redo by lines", BY_WORDS] {
        bytes = bytes.with(rival, ratios(rival));
        speed = speed.with(rival, speeds(rival));
    }
    outcome.note = note(measured);
    outcome.figures.extend([bytes, speed]);
    outcome
}

fn note(measured: &Measured) -> String {
    let compared: Vec<String> = measured
        .measurements
        .iter()
        .filter_map(|workload| {
            let ours = workload.row(SHADOW)?.sections_per_second;
            Some(format!("{} {:.2}", workload.workload, ours / workload.libpmemobj?))
        })
        .collect();
    let beside = match compared.is_empty() {
        true => measured.libpmemobj_missing.clone().unwrap_or_default(),
        false => format!("Speed over libpmemobj's on a file like ours: {}.", compared.join(", ")),
    };
    let (fewer, all) = (measured.fewer_than(BY_WORDS).0.len(), measured.measurements.len());
    format!(
        "Fewer bytes than redo by words on {fewer} of {all} workloads, which is not judged. \
         Pools in files declared persistent memory: bytes are counted, speeds are those of the page cache. \
         The table of active pages covers the working set here, at the price of an eighth of the pool; \
         `cargo run --release -p terrace-experiments --example sections` prints smaller ones too. {beside}"
    )
}
