//! A report as text.

use super::{Judged, Report};
use crate::analysis::{Findings, FunctionReport, PlaceReport, bytes, distance};
use std::fmt::{self, Display, Formatter};

/// Classes, lines and paths that are printed of each.
const SHOWN: usize = 4;

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn count(of: u64) -> String {
    match of as f64 {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        _ => of.to_string(),
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "program: {}", self.command.join(" "))?;
        if let Some(sampled) = &self.sampled {
            writeln!(
                f,
                "samples: {} in {:.2} s, {} of them at stores; instructions: {}",
                sampled.samples,
                sampled.seconds,
                percent(sampled.store_share),
                sampled.instruction_sets
            )?;
        }
        self.trace_line(f)?;
        if let Some(gate) = &self.gate {
            let of = match gate.judged {
                Judged::BySamples => "of its time goes to stores",
                Judged::ByCounts => "of its instructions store",
            };
            let is =
                if gate.is_write_intensive { "write-intensive" } else { "not write-intensive" };
            writeln!(f, "gate: {:.1} % {of}: {is}", gate.share * 100.0)?;
        }
        match (&self.findings, &self.sampled) {
            (Some(findings), _) => findings_text(f, findings)?,
            (None, Some(sampled)) => {
                writeln!(
                    f,
                    "not traced; --all traces it nevertheless. Functions by samples at stores:"
                )?;
                for function in sampled.functions.iter().take(SHOWN) {
                    writeln!(
                        f,
                        "  {}: {} of {} samples",
                        function.function, function.stores, function.samples
                    )?;
                }
            }
            (None, None) => {}
        }
        if !self.caveats.is_empty() {
            writeln!(f, "\nwhat was not seen:")?;
            self.caveats.iter().try_for_each(|caveat| writeln!(f, "  - {caveat}"))?;
        }
        Ok(())
    }
}

impl Report {
    fn trace_line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(findings) = &self.findings else { return Ok(()) };
        let totals = &findings.totals;
        write!(f, "trace: ")?;
        if let Some(traced) = &self.traced {
            write!(f, "{} ({}), {:.1} s", traced.tracer, traced.version, traced.seconds)?;
            let native =
                self.sampled.as_ref().map(|sampled| sampled.seconds).filter(|native| *native > 0.0);
            if let Some(native) = native {
                write!(f, ", {:.0} times the native run", traced.seconds / native)?;
            }
            write!(f, "; ")?;
        }
        writeln!(
            f,
            "{} instructions, {} reads, {} writes ({} through the stack pointer), {} fences, {} thread{}; instructions: {}",
            count(totals.instructions),
            count(totals.reads),
            count(totals.writes),
            count(totals.spills),
            count(totals.fences),
            totals.threads,
            if totals.threads == 1 { "" } else { "s" },
            self.instruction_sets
        )
    }

    /// Why a function got its verdict: what was measured, what it was compared with, and what would change it. None
    /// if the report does not have the function.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Thresholds, analyze};
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("lackey.txt");
    /// let lines: String = (0..1000).map(|i| format!("I  1000,3\n S {:x},8\n", 0x50000 + 8 * i)).collect();
    /// std::fs::write(&path, lines).unwrap();
    /// let report = analyze(&path, &[], &Thresholds::default()).unwrap();
    /// assert!(report.explain("code at 0x1000").unwrap().contains("sequential"));
    /// assert_eq!(report.explain("nobody"), None);
    /// ```
    pub fn explain(&self, function: &str) -> Option<String> {
        let findings = self.findings.as_ref()?;
        let of = findings.functions.iter().find(|of| of.function == function)?;
        let t = &findings.thresholds;
        let mut text = format!("{} ({}): {}\n\n", of.function, of.image, of.verdict.advice);
        for (at, place) in of.places.iter().enumerate() {
            let m = &place.measured;
            let fence =
                m.fence_distance.map_or("none".to_string(), |d| format!("{d} instructions"));
            let lines: Vec<&str> = place.lines.iter().map(|line| line.location.as_str()).collect();
            text.push_str(&format!(
                "place {}: {}\n\
                 \x20 writes: {}, {} of the function's, {}\n\
                 \x20 sequential: {} of them (threshold sequential={}; a run counts from run_bytes={})\n\
                 \x20 a fence within fence_soon={} instructions: {} (threshold fenced_share={}); nearest: {fence}\n\
                 \x20 re-read within horizon={}: {} of the lines (threshold reused_share={}), after {} instructions\n\
                 \x20 re-written: {} of the writes, after {} instructions (hot up to hot={})\n\
                 \x20 accessed by other threads: {} of the lines\n\
                 \x20 verdict: {}, because {}\n",
                at + 1,
                lines.join(", "),
                count(m.writes),
                percent(m.share),
                bytes(m.bytes),
                percent(m.sequential_share),
                t.sequential,
                t.run_bytes,
                t.fence_soon,
                percent(m.fenced_share),
                t.fenced_share,
                t.horizon,
                percent(m.reread_share),
                t.reused_share,
                distance(m.reread_distance),
                percent(m.rewritten_share),
                distance(m.rewrite_distance),
                t.hot,
                percent(m.shared_share),
                place.verdict.advice,
                place.verdict.reason,
            ));
            if let Some(warning) = &place.verdict.warning {
                text.push_str(&format!("  warning: {warning}\n"));
            }
            if let Some(patch) = place.verdict.advice.patch() {
                text.push_str(&format!("  patch: {patch}\n"));
            }
        }
        Some(text)
    }
}

fn findings_text(f: &mut Formatter<'_>, findings: &Findings) -> fmt::Result {
    findings.functions.iter().try_for_each(|function| function_text(f, function))?;
    for prefetch in &findings.prefetches {
        writeln!(
            f,
            "\n{}: prefetch {} ahead\n  {}: {} of {} reads go to lines not touched lately, at no regular stride\n  \
             check: {}",
            prefetch.function,
            prefetch.ahead,
            prefetch.location,
            percent(prefetch.irregular_share),
            count(prefetch.reads),
            prefetch.warning
        )?;
    }
    Ok(())
}

fn function_text(f: &mut Formatter<'_>, of: &FunctionReport) -> fmt::Result {
    writeln!(f, "\n{} ({}): {}", of.function, of.image, of.verdict.advice)?;
    writeln!(
        f,
        "  {} of the program's writes, {}",
        percent(of.measured.share),
        bytes(of.measured.bytes)
    )?;
    of.places.iter().take(SHOWN).try_for_each(|place| place_text(f, place))?;
    for path in of.callers.iter().take(SHOWN).filter(|path| !path.callers.is_empty()) {
        writeln!(
            f,
            "  called from {}: about {} writes",
            path.callers.join(" < "),
            count(path.writes)
        )?;
    }
    Ok(())
}

fn place_text(f: &mut Formatter<'_>, place: &PlaceReport) -> fmt::Result {
    let lines: Vec<&str> =
        place.lines.iter().take(SHOWN).map(|line| line.location.as_str()).collect();
    writeln!(f, "  {}", lines.join(", "))?;
    writeln!(
        f,
        "    {} of its writes; {} sequential; pre-store choice: {}",
        percent(place.measured.share),
        percent(place.measured.sequential_share),
        place.verdict.advice
    )?;
    for class in place.classes.iter().take(SHOWN) {
        writeln!(
            f,
            "    size: {} - {} - re-read {} - re-write {} ({} region{}, runs of {})",
            bytes(class.bytes),
            percent(class.share),
            distance(class.reread_distance),
            distance(class.rewrite_distance),
            class.regions,
            if class.regions == 1 { "" } else { "s" },
            bytes(class.run_bytes)
        )?;
    }
    writeln!(f, "    {}", place.verdict.reason)?;
    place.verdict.warning.iter().try_for_each(|warning| writeln!(f, "    warning: {warning}"))
}
