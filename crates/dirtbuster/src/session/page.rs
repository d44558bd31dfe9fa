//! A report as one HTML page, with the lines of source that write and what to put behind them.

use super::Report;
use super::flame::escaped;
use crate::analysis::{Advice, Findings, FunctionReport, PlaceReport, bytes, distance};
use std::fmt::Write;

/// Lines of source around the one that writes.
const AROUND: usize = 4;

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
pre { background: #f4f4f2; padding: .6rem; overflow-x: auto }
td, th { padding: .2rem .8rem .2rem 0; text-align: left }
mark { background: #ffe08a }
.advice { font-weight: bold; color: #0b62a4 }
.nothing { color: #5b6770 }
.warning { color: #a33 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1a1a1a }
  pre { background: #262626 }
  mark { background: #665200; color: #fff }
  .advice { color: #6cb6ff }
  .warning { color: #ff9e57 }
}
";

impl Report {
    /// A page with all of the report: verdicts, measured distances, lines of source where their files are here, and a
    /// flame graph.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Thresholds, analyze};
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("lackey.txt");
    /// let lines: String = (0..1000).map(|i| format!("I  1000,3\n S {:x},8\n", 0x50000 + 8 * i)).collect();
    /// std::fs::write(&path, lines).unwrap();
    /// let page = analyze(&path, &[], &Thresholds::default()).unwrap().html();
    /// assert!(page.contains("code at 0x1000") && page.contains("stream"));
    /// ```
    pub fn html(&self) -> String {
        let title = escaped(&format!("DirtBuster: {}", self.command.join(" ")));
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
             <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        );
        let text = self.to_string();
        let head: String = text
            .lines()
            .take_while(|line| !line.is_empty())
            .map(|line| format!("{line}\n"))
            .collect();
        // Writing to a string does not fail.
        let _ = writeln!(page, "<pre>{}</pre>", escaped(&head));
        if let Some(findings) = &self.findings {
            findings_page(&mut page, findings);
        }
        if let Some(flame) = self.flame_graph() {
            let _ = writeln!(page, "<h2>Stores and fences by call path</h2>\n{flame}");
        }
        if !self.caveats.is_empty() {
            let items: String = self
                .caveats
                .iter()
                .map(|caveat| format!("<li>{}</li>\n", escaped(caveat)))
                .collect();
            let _ = writeln!(page, "<h2>What was not seen</h2>\n<ul>{items}</ul>");
        }
        page.push_str("</body></html>\n");
        page
    }
}

fn findings_page(page: &mut String, findings: &Findings) {
    for function in &findings.functions {
        function_page(page, function);
    }
    for prefetch in &findings.prefetches {
        let _ = writeln!(
            page,
            "<h2>{}: <span class=\"advice\">prefetch</span> {} ahead</h2>\n<p>{}: {:.0} % of {} reads go to lines not touched \
             lately. {}</p>",
            escaped(&prefetch.function),
            prefetch.ahead,
            escaped(&prefetch.location),
            prefetch.irregular_share * 100.0,
            prefetch.reads,
            escaped(&prefetch.warning)
        );
        source(page, &prefetch.location);
    }
}

fn class_of(advice: Advice) -> &'static str {
    if advice == Advice::Nothing { "nothing" } else { "advice" }
}

fn function_page(page: &mut String, function: &FunctionReport) {
    let _ = writeln!(
        page,
        "<h2>{}: <span class=\"{}\">{}</span></h2>\n<p>{} of {}; {:.0} % of the program's writes</p>",
        escaped(&function.function),
        class_of(function.verdict.advice),
        function.verdict.advice,
        bytes(function.measured.bytes),
        escaped(&function.image),
        function.measured.share * 100.0
    );
    for place in &function.places {
        place_page(page, place);
    }
    for path in function.callers.iter().filter(|path| !path.callers.is_empty()) {
        let _ = writeln!(
            page,
            "<p>called from {}: about {} writes</p>",
            escaped(&path.callers.join(" < ")),
            path.writes
        );
    }
}

fn place_page(page: &mut String, place: &PlaceReport) {
    let verdict = &place.verdict;
    let _ = writeln!(
        page,
        "<p><span class=\"{}\">{}</span>, {:.0} % of its writes: {}</p>",
        class_of(verdict.advice),
        verdict.advice,
        place.measured.share * 100.0,
        escaped(&verdict.reason)
    );
    if let Some(warning) = &verdict.warning {
        let _ = writeln!(page, "<p class=\"warning\">Warning: {}</p>", escaped(warning));
    }
    if let Some(patch) = verdict.advice.patch() {
        let _ = writeln!(page, "<p>{}</p>", escaped(patch));
    }
    page.push_str("<table><tr><th>size</th><th>share</th><th>re-read</th><th>re-write</th><th>runs of</th></tr>\n");
    for class in &place.classes {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{:.0} %</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            bytes(class.bytes),
            class.share * 100.0,
            distance(class.reread_distance),
            distance(class.rewrite_distance),
            bytes(class.run_bytes)
        );
    }
    page.push_str("</table>\n");
    if let Some(line) = place.lines.first() {
        source(page, &line.location);
    }
}

/// Lines of source around `file:line`; only the place where the file is not here.
fn source(page: &mut String, location: &str) {
    let _ = writeln!(page, "<p>{}</p>", escaped(location));
    let Some((file, line)) = location.rsplit_once(':') else { return };
    let Ok(line) = line.parse::<usize>() else { return };
    let Ok(text) = std::fs::read_to_string(file) else { return };
    let first = line.saturating_sub(AROUND).max(1);
    let shown = text.lines().enumerate().skip(first - 1).take(2 * AROUND + 1);
    page.push_str("<pre>");
    for (at, code) in shown {
        let code = escaped(code);
        let _ = match at + 1 == line {
            true => writeln!(page, "{:>5}  <mark>{code}</mark>", at + 1),
            false => writeln!(page, "{:>5}  {code}", at + 1),
        };
    }
    page.push_str("</pre>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_writes_is_marked_among_its_neighbours() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.c");
        let text: String = (1..=20).map(|i| format!("line {i} <\n")).collect();
        std::fs::write(&path, text).expect("written");
        let mut page = String::new();
        source(&mut page, &format!("{}:10", path.display()));
        assert!(page.contains("   10  <mark>line 10 &lt;</mark>"), "{page}");
        assert!(
            page.contains("    6  line 6")
                && page.contains("   14  line 14")
                && !page.contains("line 15")
        );
        let mut gone = String::new();
        source(&mut gone, "/nowhere/a.c:10");
        source(&mut gone, "a.out+0x10");
        assert!(!gone.contains("<pre>"));
    }
}
