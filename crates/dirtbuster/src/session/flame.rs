//! A flame graph: stores and fences by stack of calls, as one SVG file that needs nothing beside it.
//!
//! A frame is as wide as the stores below it; a function's fences are a frame of their own on top of it, as wide as
//! so many stores. Frames under a thousandth of the width are left out.

use super::Report;
use crate::analysis::Findings;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const LEAST: f64 = WIDTH / 1000.0;
/// A character of the text, about.
const CHARACTER: f64 = 7.0;
const FENCES: &str = "[fences]";

#[derive(Default)]
struct Frame {
    weight: u64,
    above: BTreeMap<String, Frame>,
}

impl Frame {
    fn add<'a>(&mut self, mut path: impl Iterator<Item = &'a str>, weight: u64) {
        self.weight += weight;
        if let Some(name) = path.next() {
            self.above.entry(name.to_string()).or_default().add(path, weight);
        }
    }

    fn depth(&self) -> usize {
        1 + self.above.values().map(Frame::depth).max().unwrap_or(0)
    }
}

impl Report {
    /// Stores and fences by stack of calls, as an SVG. None if nothing was traced.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Thresholds, analyze};
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("lackey.txt");
    /// let lines: String = (0..1000).map(|i| format!("I  1000,3\n S {:x},8\n", 0x50000 + 8 * i)).collect();
    /// std::fs::write(&path, lines).unwrap();
    /// let svg = analyze(&path, &[], &Thresholds::default()).unwrap().flame_graph().unwrap();
    /// assert!(svg.starts_with("<svg") && svg.contains("code at 0x1000"));
    /// ```
    pub fn flame_graph(&self) -> Option<String> {
        self.findings.as_ref().map(|findings| drawn(findings, &self.command.join(" ")))
    }
}

fn drawn(findings: &Findings, title: &str) -> String {
    let mut root = Frame::default();
    for stack in &findings.stacks {
        let path = || stack.functions.iter().map(String::as_str);
        if stack.writes > 0 {
            root.add(path(), stack.writes);
        }
        if stack.fences > 0 {
            root.add(path().chain([FENCES]), stack.fences);
        }
    }
    let height = ROW * (root.depth() + 1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" \
         font-size=\"11\">\n<title>Stores and fences by call path: {}</title>\n",
        escaped(title)
    );
    frame(&mut svg, "all", &root, root.weight.max(1), 0.0, height - ROW);
    svg.push_str("</svg>\n");
    svg
}

fn frame(svg: &mut String, name: &str, of: &Frame, total: u64, x: f64, y: f64) {
    let width = of.weight as f64 / total as f64 * WIDTH;
    if width < LEAST {
        return;
    }
    // The same function has the same colour everywhere.
    let hash =
        name.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let colour = match name {
        FENCES => "#6cb6ff".to_string(),
        _ => format!("hsl({}, 80%, {}%)", 15 + hash % 35, 60 + hash / 64 % 12),
    };
    let share = of.weight as f64 / total as f64 * 100.0;
    let letters = ((width - 4.0) / CHARACTER).max(0.0) as usize;
    let text: String =
        if letters < 3 { String::new() } else { name.chars().take(letters).collect() };
    let what = if name == FENCES { "fences" } else { "stores and fences" };
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<g><title>{}: about {} {what}, {share:.1} %</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{}\" fill=\"{colour}\" stroke=\"#fff\" stroke-width=\"0.5\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        escaped(name),
        of.weight,
        ROW - 1.0,
        x + 2.0,
        y + 12.0,
        escaped(&text)
    );
    let mut at = x;
    for (name, above) in &of.above {
        frame(svg, name, above, total, at, y - ROW);
        at += above.weight as f64 / total as f64 * WIDTH;
    }
}

/// Text as XML shows it.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Stack, Thresholds, Totals};

    #[test]
    fn frames_are_as_wide_as_their_stores_and_names_are_escaped() {
        let stack = |functions: &[&str], writes, fences| Stack {
            functions: functions.iter().map(ToString::to_string).collect(),
            writes,
            fences,
        };
        let findings = Findings {
            totals: Totals::default(),
            functions: Vec::new(),
            prefetches: Vec::new(),
            stacks: vec![
                stack(&["main", "Vec<T>::push"], 300, 0),
                stack(&["main", "lock"], 0, 100),
                stack(&["main", "rare"], 0, 0),
            ],
            thresholds: Thresholds::default(),
        };
        let svg = drawn(&findings, "a \"b\"");
        assert!(svg.contains("Vec&lt;T&gt;::push: about 300 stores and fences, 75.0 %"), "{svg}");
        assert!(
            svg.contains("width=\"900.0\"") && svg.contains("[fences]: about 100 fences, 25.0 %")
        );
        assert!(!svg.contains("rare"));
    }
}
