//! `ssp-speed`: sections a second of shadow sub-paging against hardware undo and redo logging (Ni, figure 3.5, table
//! 3.3), on the modelled processor `ssp-sim`.
//!
//! The nine workloads run once each, through the section interface; what they load and store is played on every
//! design. Then what the paper leaves open is varied, one thing at a time: a miss has to follow from one of these.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::sections::{Designs, RecordedWorkload, Settings, compare, record};
use std::io;
use terrace_machine::ssp::{Charged, Design, Parameters};

pub(super) const ROW: Row = Row {
    id: "ssp-speed",
    source: "Ni, figure 3.5 and table 3.3",
    runs_on: "simulated processor (ssp-sim)",
    must_show: "SSP > REDO > UNDO on the average: about 1.3 and 1.9 times at one thread, 1.4 and 2.4 at four",
    run,
};

/// Keys of smaller structures than those of the settings.
const FEWER_KEYS: [u64; 3] = [1_000, 4_000, 16_000];

pub(super) fn settings(run: &Run<'_>) -> Settings {
    Settings { sections: run.size(20_000, 4_000), pool_bytes: 64 << 20, ..Settings::default() }
}

pub(super) fn recorded(
    run: &Run<'_>,
    settings: &Settings,
    cores: usize,
) -> Result<Vec<RecordedWorkload>> {
    let tell = |name: &str| (run.tell)(&format!("{name} for {cores} cores"));
    record(settings, cores, tell).map_err(Error::system("record sections"))
}

pub(super) fn played(
    workloads: &[RecordedWorkload],
    parameters: &Parameters,
    sections: u64,
) -> Result<Designs> {
    let designs = compare(workloads, parameters, sections as usize).map_err(io::Error::other);
    designs.map_err(Error::system::<io::Error>("play sections on the modelled processor"))
}

/// Mean speeds over redo and over undo.
fn means(designs: &Designs) -> [f64; 2] {
    [Design::Redo, Design::Undo].map(|rival| Designs::micro(&designs.speed_over(rival)))
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let settings = settings(run);
    let (one, four) = (recorded(run, &settings, 1)?, recorded(run, &settings, 4)?);
    (run.tell)("every design, at one thread and at four");
    let sections = settings.sections;
    let alone = played(&one, &Parameters::ssp_sim(1), sections)?;
    let together = played(&four, &Parameters::ssp_sim(4), sections)?;
    let mut varied = vec![("as it is".to_string(), means(&alone), means(&together))];
    for (name, vary) in VARIATIONS {
        (run.tell)(name);
        let of = |workloads: &[RecordedWorkload], cores| {
            let mut parameters = Parameters::ssp_sim(cores);
            vary(&mut parameters);
            Ok::<_, Error>(means(&played(workloads, &parameters, sections / 2)?))
        };
        varied.push((name.to_string(), of(&one, 1)?, of(&four, 4)?));
    }
    for keys in FEWER_KEYS {
        let fewer = Settings { keys, sections: sections / 2, ..settings.clone() };
        let of = |cores| {
            let workloads = recorded(run, &fewer, cores)?;
            played(&workloads, &Parameters::ssp_sim(cores), sections / 2)
        };
        let (alone, together) = (of(1)?, of(4)?);
        let name = format!("{keys} keys ({})", write_sets(&alone)[0]);
        varied.push((name, means(&alone), means(&together)));
    }
    Ok(judge(&settings, &alone, &together, &varied))
}

type Variation = (&'static str, fn(&mut Parameters));

/// What the paper does not say, said otherwise.
const VARIATIONS: [Variation; 9] = [
    ("journal over banks", |p| p.journal_stride = 33),
    ("all lines over banks", |p| p.pmem.run_lines = 1),
    ("open rows take writes in 15 ns", |p| p.pmem.write_hit_ns = Some(p.pmem.row_hit_ns)),
    ("TLB of 1024", |p| p.tlb_entries = 1024),
    ("redo does not wait", |p| p.redo_waits = false),
    ("redo buffer of 4", |p| p.redo_buffer_lines = 4),
    ("redo buffer of 64", |p| p.redo_buffer_lines = 64),
    ("5 times the instructions", |p| (p.access_cycles, p.section_cycles) = (30, 1000)),
    ("latencies from counts", |p| p.charged = Charged::ByCounts),
];

type Varied = (String, [f64; 2], [f64; 2]);

fn judge(
    settings: &Settings,
    alone: &Designs,
    together: &Designs,
    varied: &[Varied],
) -> Outcome {
    let mut outcome = Outcome::default();
    let ([redo_1, undo_1], [redo_4, undo_4]) = (means(alone), means(together));
    outcome.checks.extend([
        Check::about("micro-benchmarks, SSP over REDO, one thread", 1.3, redo_1),
        Check::about("micro-benchmarks, SSP over UNDO, one thread", 1.9, undo_1),
        Check::about("micro-benchmarks, SSP over REDO, four threads", 1.4, redo_4),
        Check::about("micro-benchmarks, SSP over UNDO, four threads", 2.4, undo_4),
        Check::at_least("order: SSP over REDO, one thread", "ahead", redo_1, 1.0).order(),
        Check::at_least("order: REDO over UNDO, one thread", "ahead", undo_1 / redo_1, 1.0).order(),
        Check::at_least("order: SSP over REDO, four threads", "ahead", redo_4, 1.0).order(),
        Check::at_least("order: REDO over UNDO, four threads", "ahead", undo_4 / redo_4, 1.0).order(),
    ]);
    let what = "order: gain over REDO at four threads, over that at one";
    outcome.checks.push(Check::at_least(what, "1.08", redo_4 / redo_1, 1.0).order());
    for (name, over_redo, over_undo) in [("Memcached", 1.35, 1.75), ("Vacation", 1.13, 1.27)] {
        for (rival, paper) in [(Design::Redo, over_redo), (Design::Undo, over_undo)] {
            let speed = together.of(name, &together.speed_over(rival));
            let what = format!("{name}, SSP over {}, four clients", rival.name().to_uppercase());
            outcome.checks.extend(Check::about(what, paper, speed).and_order());
        }
    }
    outcome.size("sections of a core", settings.sections);
    outcome.size("keys, over all cores", settings.keys);
    outcome.size("vacation's tuples", settings.tuples);
    outcome.note = note(alone, together, varied);
    for (threads, designs) in [("one thread", alone), ("four threads", together)] {
        let title = format!("Sections a second of SSP, over its rival's, {threads}");
        let mut figure = Figure::new(&title, "workload", "ratio", FigureKind::Bars).over(&designs.names);
        for rival in [Design::Undo, Design::Redo, Design::None] {
            figure = figure.with(rival.name(), designs.speed_over(rival));
        }
        outcome.figures.push(figure);
    }
    let names = varied.iter().map(|(name, ..)| name.clone());
    let mut figure =
        Figure::new("Mean gain over REDO, one thing varied", "variation", "ratio", FigureKind::Bars)
            .over(names);
    figure = figure.with("one thread", varied.iter().map(|(_, alone, _)| alone[0]));
    figure = figure.with("four threads", varied.iter().map(|(_, _, together)| together[0]));
    outcome.figures.push(figure);
    outcome
}

/// Of each workload, the lines and pages that a section changes on the average.
fn write_sets(designs: &Designs) -> Vec<String> {
    let each = designs.names.iter().zip(&designs.runs).map(|(name, runs)| {
        let events = runs[0].events;
        let each = |count: u64| count as f64 / events.sections as f64;
        let (lines, pages) = (each(events.lines_changed), each(events.pages_changed));
        format!("{name} {lines:.1}/{pages:.1}")
    });
    each.collect()
}

fn note(alone: &Designs, together: &Designs, varied: &[Varied]) -> String {
    let varied: Vec<String> = varied
        .iter()
        .map(|(name, one, four)| {
            format!("{name} {:.2}/{:.2} and {:.2}/{:.2}", one[0], one[1], four[0], four[1])
        })
        .collect();
    let millions = |designs: &Designs| designs.accesses_per_second() / 1e6;
    format!(
        "Virtual time; table 3.1's figures, the rest assumed (`terrace preset ssp-sim`), none fitted. Each thread \
         has a structure of its own. Means are geometric. Gain over REDO/UNDO at one thread and at four, with one \
         thing varied: {}. What a log costs decides, and that is where its lines lie and how long an open row takes \
         to write, which the paper does not tell. Consecutive lines share a bank here: REDO's log lines wait for each \
         other, and at four threads the journal's, which all go to one place, for those of other threads. Nor does it \
         tell how large its structures are: with fewer keys fewer pages leave the TLB and are consolidated. Lines and \
         pages that a section changes (table 3.2 has 12/3, 10/6, 3/3, 2/2, 5/2, 6/4, 3/3, 3/2, 4/3): {}; the pages of \
         a red-black tree's section point to fewer keys than these. One processor of this computer modelled {:.1} \
         million loads and stores a second at one thread, and {:.1} at four.",
        varied.join("; "),
        write_sets(alone).join(", "),
        millions(alone),
        millions(together)
    )
}
