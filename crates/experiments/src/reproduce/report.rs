//! The records as a document: Markdown for the repository, one HTML page with the drawings.

use super::causes;
use super::record::{Check, CheckKind, ExperimentRecord};
use super::results::Results;
use super::rows::{ALL, BEYOND, NOT_BUILT};
use super::{Row, Verdict};
use std::fmt::Write;
use terrace_advise::page::{self, escaped};

const HEAD: &str = "`terrace reproduce` tests the claims of five papers about systems that Terrace implements. \
Measurements decide each verdict. Checks are of an order (who is ahead, what grows, where a knee is, what must be \
none) or of a size (how much). A row passes if all its checks do; its verdict is `order` if every order holds and some \
size is out of its band or a column is not built; it misses if an order does not hold, or if it has none and a size is \
out of its band. What does not pass is printed with its reason. Where a row names no band, it is from half to twice \
the effect that the paper measured. An emulated medium is DRAM declared as persistent memory: orderings on it are \
meaningful, absolute times are not. Figures are medians. Papers are cited by author: see docs/papers.md.";

/// Rows with their records, in the order of the registry.
fn recorded(results: &Results) -> impl Iterator<Item = (&'static Row, &ExperimentRecord)> {
    ALL.iter().filter_map(|row| Some((row, results.of(row.id)?)))
}

/// How many rows have which verdict, and how many effects have the papers' size.
fn tally(results: &Results) -> String {
    let experiments = || recorded(results).map(|(_, record)| &record.experiment);
    let of = |verdict| experiments().filter(|experiment| experiment.verdict == verdict).count();
    let counts = Verdict::ALL.map(|verdict| format!("{} {verdict}", of(verdict))).join(", ");
    let missing = ALL.len() - experiments().count();
    let [inside, sizes] = causes::in_band(experiments().flat_map(|experiment| &experiment.checks));
    format!(
        "{counts}, {missing} not run, {} not built; effects in band: {inside} of {sizes}",
        NOT_BUILT.len()
    )
}

/// What is said of a row without a paper.
fn beyond(row: &Row) -> &'static str {
    if BEYOND.contains(&row.id) { " (ours)" } else { "" }
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
    match (check.pass, check.kind) {
        (true, _) => "pass",
        (false, CheckKind::Order) => "**miss**",
        (false, CheckKind::Size) => "**out of band**",
    }
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
    if let Some(commit) = &record.commit {
        let _ = write!(text, "; commit {commit}");
    }
    if let Some(date) = &record.date {
        let _ = write!(text, "; {date}");
    }
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
            "| [{0}](#{0}){3} | {1} | {2} | {verdict} |",
            row.id,
            row.source,
            row.runs_on,
            beyond(row)
        );
    }
    for id in NOT_BUILT {
        let _ = writeln!(text, "| {id} | | | not built |");
    }
    for (row, record) in recorded(results) {
        let experiment = &record.experiment;
        let _ = write!(
            text,
            "\n## {}\n\nMust show: {}.\n\n| check | kind | paper | measured | passes | verdict |\n\
             |---|---|---|---|---|---|\n",
            row.id, row.must_show
        );
        for check in &experiment.checks {
            let kind = check.kind.to_string();
            let cells = [&check.what, &kind, &check.paper, &measured(check), &bounds(check)]
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
            "<tr><td><a href=\"#{0}\">{0}</a>{3}</td><td>{1}</td><td>{2}</td><td class=\"{verdict}\">{verdict}</td></tr>",
            row.id,
            escaped(row.source),
            escaped(row.runs_on),
            beyond(row)
        );
    }
    for id in NOT_BUILT {
        let _ = writeln!(page, "<tr><td>{id}</td><td></td><td></td><td>not built</td></tr>");
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
         <table><tr><th>check</th><th>kind</th><th>paper</th><th>measured</th><th>passes</th><th>verdict</th></tr>\n",
        row.id,
        experiment.verdict,
        escaped(row.must_show)
    );
    for check in &experiment.checks {
        let verdict = verdict_of(check).trim_matches('*');
        let class = match (check.pass, check.kind) {
            (true, _) => "pass",
            (false, CheckKind::Order) => "miss",
            (false, CheckKind::Size) => "order",
        };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{verdict}</td></tr>",
            escaped(&check.what),
            check.kind,
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
        let checks = vec![
            Check::at_least("ratio | of <two>", "75", 80.0, 10.0).order(),
            Check::within("other", "1", 3.0, 0.5, 2.0),
        ];
        let mut results = Results::default();
        results.take(record(&ALL[0], checks));
        results
    }

    fn record(row: &Row, checks: Vec<Check>) -> ExperimentRecord {
        let experiment = Experiment {
            id: row.id.into(),
            runs_on: row.runs_on.into(),
            verdict: Verdict::of(row.runs_on, &checks),
            seconds: 1.5,
            checks,
            note: "Why it <missed>.".into(),
        };
        let figure =
            Figure::new("A figure", "across", "up", FigureKind::Bars).over(["x"]).with("s", [1.0]);
        ExperimentRecord {
            experiment,
            full: false,
            machine: Machine { processor: "A processor".into(), ..Machine::here() },
            commit: Some("0123456789ab".into()),
            date: Some("2026-11-29".into()),
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
        }
    }

    #[test]
    fn markdown_has_every_row_check_and_circumstance() {
        let text = markdown(&results());
        for words in [
            "| ratio \\| of <two> | order | 75 | 80 | at least 10 | pass |",
            "| other | size | 1 | 3 | 0.5 to 2 | **out of band** |",
            "Why it <missed>.",
            "A processor",
            "small sizes; commit 0123456789ab; 2026-11-29; keys 1000; model cxl: 1 of 1 agree",
            "0 pass, 1 order, 0 miss, 0 skipped",
            "effects in band: 0 of 1.",
            "| a load, ns | 2 | 2.1 | +5 % | agrees: its prefetchers | somewhere |",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(super::super::ids().all(|id| text.contains(id)));
        assert!(BEYOND.iter().all(|id| text.contains(&format!("[{id}](#{id}) (ours)"))));
        assert!(NOT_BUILT.iter().all(|id| text.contains(&format!("| {id} | | | not built |"))));
        assert!(text.ends_with(" |\n") && text.is_ascii());
    }

    #[test]
    fn verdicts_are_counted_and_an_order_that_fails_is_told_from_a_size() {
        let check = |pass| Check::at_least("ratio", "2", if pass { 2.0 } else { 1.0 }, 1.5);
        let mut results = results();
        results.take(record(&ALL[1], vec![check(true).order(), check(true)]));
        results.take(record(&ALL[2], vec![check(false).order(), check(true)]));
        let text = markdown(&results);
        for words in
            ["1 pass, 1 order, 1 miss, 0 skipped", "effects in band: 2 of 3.", "| **miss** |"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        let page = html(&results);
        for words in ["<td class=\"miss\">miss</td>", "<td class=\"order\">out of band</td>"] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn the_page_is_whole_and_shows_the_drawings_in_light_and_dark() {
        let page = html(&results());
        for words in [
            "ratio | of &lt;two&gt;",
            "Why it &lt;missed&gt;.",
            "<canvas",
            "A figure",
            ">not built<",
        ] {
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
