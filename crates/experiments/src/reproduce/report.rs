//! The records as a document: Markdown for the repository, one HTML page with the drawings.

use super::causes;
use super::record::{Check, ExperimentRecord};
use super::results::Results;
use super::rows::ALL;
use super::{Row, Verdict};
use std::fmt::Write;
use terrace_advise::page::{self, escaped};

const HEAD: &str = "`terrace reproduce` tests the claims of five papers about systems that Terrace implements. \
Measurements decide each verdict. A missed check is printed with its reason. An emulated medium is DRAM declared as \
persistent memory: orderings on it are meaningful, absolute times are not. Figures are medians. Papers are cited by \
author: see docs/papers.md.";

/// Rows with their records, in the order of the registry.
fn recorded(results: &Results) -> impl Iterator<Item = (&'static Row, &ExperimentRecord)> {
    ALL.iter().filter_map(|row| Some((row, results.of(row.id)?)))
}

fn tally(results: &Results) -> String {
    let of = |verdict| {
        recorded(results).filter(|(_, record)| record.experiment.verdict == verdict).count()
    };
    let [pass, miss, skipped] = [Verdict::Pass, Verdict::Miss, Verdict::Skipped].map(of);
    let missing = ALL.len() - pass - miss - skipped;
    format!("{pass} pass, {miss} miss, {skipped} skipped, {missing} not run")
}

/// `1.5 to 3`, `at least 1.5`, `at most 3`.
fn bounds(check: &Check) -> String {
    match (check.low, check.high) {
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (Some(low), None) => format!("at least {low}"),
        (None, Some(high)) => format!("at most {high}"),
        (None, None) => "any".into(),
    }
}

fn measured(check: &Check) -> String {
    check.measured.map_or("none".into(), |value| value.to_string())
}

fn verdict_of(check: &Check) -> &'static str {
    if check.pass { "pass" } else { "**miss**" }
}

fn circumstances(record: &ExperimentRecord) -> String {
    let machine = &record.machine;
    let mut text = format!(
        "{}, {} processors, {:.0} GiB, {}; {} s; {}",
        machine.processor,
        machine.processors,
        machine.memory_bytes as f64 / (1u64 << 30) as f64,
        machine.kernel,
        record.experiment.seconds,
        if record.full { "the paper's sizes" } else { "small sizes" }
    );
    for (name, value) in &record.sizes {
        let _ = write!(text, "; {name} {value}");
    }
    for calibration in &record.calibrations {
        let _ = write!(text, "; model {}", calibration.summary);
    }
    text
}

/// The report as Markdown, wide tables and all, without drawings.
pub fn markdown(results: &Results) -> String {
    let (summary, causes) = causes::summary(results);
    let mut text = format!(
        "# Reproduction\n\n{summary}\n\n{}\n{HEAD}\n\nWritten by `terrace reproduce report` from \
         [the records](results/reproduction.json). `reproduction.html` has the same with charts.\n\n\
         {}.\n\n| row | source | runs on | verdict |\n|---|---|---|---|\n",
        causes.iter().map(|cause| format!("- {cause}\n")).collect::<String>(),
        tally(results)
    );
    for row in ALL {
        let verdict =
            results.of(row.id).map_or("not run".into(), |r| r.experiment.verdict.to_string());
        let _ = writeln!(
            text,
            "| [{0}](#{0}) | {1} | {2} | {verdict} |",
            row.id, row.source, row.runs_on
        );
    }
    for (row, record) in recorded(results) {
        let experiment = &record.experiment;
        let _ = write!(
            text,
            "\n## {}\n\nMust show: {}.\n\n| check | paper | measured | passes | verdict |\n|---|---|---|---|---|\n",
            row.id, row.must_show
        );
        for check in &experiment.checks {
            let cells = [&check.what, &check.paper, &measured(check), &bounds(check)]
                .map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(text, "| {} | {} |", cells.join(" | "), verdict_of(check));
        }
        let _ = write!(text, "\n{}\n\nRan on: {}.\n", experiment.note, circumstances(record));
    }
    models(&mut text, results);
    text
}

/// Each model beside its machine: the error of every figure that was published.
fn models(text: &mut String, results: &Results) {
    if results.models.is_empty() {
        return;
    }
    text.push_str(
        "\n## Models\n\nPublished figures of the modelled machines, and the figures of the models. A figure that a preset \
         contains itself is no success.\n",
    );
    for model in &results.models {
        let _ = write!(
            text,
            "\n### {}\n\n{}.\n\n| figure | published | modelled | error | verdict | source |\n|---|---|---|---|---|---|\n",
            model.preset, model.summary
        );
        for check in &model.checks {
            let [what, source] = [&check.what, &check.source].map(|cell| cell.replace('|', "\\|"));
            let (published, modelled) = (check.published, check.modelled);
            let error = format!("{:+.0} %", check.error * 100.0);
            let reason = if check.reason.is_empty() { "" } else { ": " };
            let verdict = format!("{}{reason}{}", check.verdict, check.reason).replace('|', "\\|");
            let _ = writeln!(
                text,
                "| {what} | {published} | {modelled} | {error} | {verdict} | {source} |"
            );
        }
    }
}

/// The report as one HTML page that needs nothing beside it.
pub fn html(results: &Results) -> String {
    let (summary, causes) = causes::summary(results);
    let mut page = page::head("Terrace: reproduction");
    let _ = write!(
        page,
        "<h1>Reproduction</h1>\n<p>{}</p>\n<ul>{}</ul>\n<p>{}</p>\n<p>{}.</p>\n<table><tr><th>row</th><th>source</th>\
         <th>runs on</th><th>verdict</th></tr>\n",
        escaped(&summary),
        causes.iter().map(|cause| format!("<li>{}</li>", escaped(cause))).collect::<String>(),
        escaped(HEAD),
        tally(results)
    );
    for row in ALL {
        let verdict =
            results.of(row.id).map_or("not run".into(), |r| r.experiment.verdict.to_string());
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td>{1}</td><td>{2}</td><td class=\"{verdict}\">{verdict}</td></tr>",
            row.id,
            escaped(row.source),
            escaped(row.runs_on)
        );
    }
    page.push_str("</table>\n");
    for (row, record) in recorded(results) {
        section(&mut page, row, record);
    }
    page.push_str(&page::end());
    page
}

fn section(page: &mut String, row: &Row, record: &ExperimentRecord) {
    let experiment = &record.experiment;
    let _ = write!(
        page,
        "<section id=\"{0}\"><h2>{0} <span class=\"{1}\">{1}</span></h2>\n<p>Must show: {2}.</p>\n\
         <table><tr><th>check</th><th>paper</th><th>measured</th><th>passes</th><th>verdict</th></tr>\n",
        row.id,
        experiment.verdict,
        escaped(row.must_show)
    );
    for check in &experiment.checks {
        let verdict = if check.pass { "pass" } else { "miss" };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{verdict}\">{verdict}</td></tr>",
            escaped(&check.what),
            escaped(&check.paper),
            measured(check),
            bounds(check)
        );
    }
    let _ = writeln!(page, "</table>\n<p>{}</p>", escaped(&experiment.note));
    record.figures.iter().for_each(|figure| page::draw(page, figure));
    let _ = writeln!(
        page,
        "<p class=\"where\">Ran on: {}.</p></section>",
        escaped(&circumstances(record))
    );
}

#[cfg(test)]
mod tests {
    use super::super::calibrated::{Calibrated, CalibrationCheck};
    use super::super::record::Experiment;
    use super::*;
    use terrace_advise::page::{Figure, FigureKind};
    use terrace_workload::system::Machine;

    fn results() -> Results {
        let row = ALL[0];
        let checks = vec![
            Check::at_least("ratio | of <two>", "75", 80.0, 10.0),
            Check::within("other", "1", 3.0, 0.5, 2.0),
        ];
        let experiment = Experiment {
            id: row.id.into(),
            runs_on: row.runs_on.into(),
            verdict: Verdict::of(&checks),
            seconds: 1.5,
            checks,
            note: "Why it <missed>.".into(),
        };
        let figure =
            Figure::new("A figure", "across", "up", FigureKind::Bars).over(["x"]).with("s", [1.0]);
        let record = ExperimentRecord {
            experiment,
            full: false,
            machine: Machine { processor: "A processor".into(), ..Machine::here() },
            sizes: vec![("keys".into(), "1000".into())],
            figures: vec![figure],
            calibrations: vec![Calibrated {
                preset: "cxl".into(),
                summary: "cxl: 1 of 1 agree".into(),
                seconds: 0.1,
                checks: vec![CalibrationCheck {
                    what: "a load, ns".into(),
                    source: "somewhere".into(),
                    published: 2.0,
                    modelled: 2.1,
                    error: 0.05,
                    verdict: "agrees".into(),
                    reason: "its prefetchers".into(),
                }],
            }],
        };
        let mut results = Results::default();
        results.take(record);
        results
    }

    #[test]
    fn markdown_has_every_row_check_and_circumstance() {
        let text = markdown(&results());
        for words in [
            "| ratio \\| of <two> | 75 | 80 | at least 10 | pass |",
            "| other | 1 | 3 | 0.5 to 2 | **miss** |",
            "Why it <missed>.",
            "A processor",
            "small sizes; keys 1000; model cxl: 1 of 1 agree",
            "0 pass, 1 miss, 0 skipped",
            "| a load, ns | 2 | 2.1 | +5 % | agrees: its prefetchers | somewhere |",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(ALL.iter().all(|row| text.contains(row.id)));
        assert!(text.ends_with(" |\n") && text.is_ascii());
    }

    #[test]
    fn the_page_is_whole_and_shows_the_drawings_in_light_and_dark() {
        let page = html(&results());
        for words in ["ratio | of &lt;two&gt;", "Why it &lt;missed&gt;.", "<canvas", "A figure"] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(page.contains("prefers-color-scheme:dark") && page.ends_with("</html>\n"));
        assert!(!page.contains("src="), "it needs nothing beside it");
        let page = page.split("<script>").next().expect("before the library");
        for element in ["table", "section", "figure", "canvas", "tr", "p"] {
            let ends = page.matches(&format!("</{element}>")).count();
            let open = |end| page.matches(&format!("<{element}{end}")).count();
            assert_eq!(open(">") + open(" "), ends, "{element}");
        }
    }

    #[test]
    fn rows_that_were_not_run_say_so() {
        let text = markdown(&Results::default());
        assert!(text.contains(&format!("{} not run", ALL.len())));
        assert!(!html(&Results::default()).contains("<section"));
    }
}
