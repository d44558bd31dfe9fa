//! Findings as people read them in a terminal.

use super::{Advice, Cause, Findings, Reading};
use std::fmt::Write;

/// What was found of a memory, what it is due to, and what follows.
pub fn table(found: &Findings, causes: &[Cause], advice: &[Advice]) -> String {
    let mut text = format!("{} of {}\n\n", found.node, found.machine);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{:<6}{:>8}  {:>8}  classes           because of",
        "test", "here", "on DRAM"
    );
    for cause in causes {
        let because: Vec<String> =
            cause.components.iter().map(|component| component.to_string()).collect();
        let _ = writeln!(
            text,
            "{:<6}{:>8}  {:>8}  {:<16}  {}{}",
            cause.test,
            shown(&cause.effect),
            shown(&cause.on_dram),
            cause.classes_text(),
            because.join(", "),
            cause.unexplained.as_deref().unwrap_or_default()
        );
    }
    let dirty = &found.dirty_cache;
    let _ = writeln!(
        text,
        "{:<6}{:>8.2}  {:>8}  a load that misses: {:.0} ns into clean caches, {:.0} into dirty ones",
        "I8",
        dirty.effect(),
        "",
        dirty.clean_ns / 4.0,
        dirty.dirty_ns / 4.0
    );
    let _ = writeln!(text, "\nRecommendations for this memory (impact as measured)");
    for advice in advice {
        let _ = writeln!(
            text,
            "{:<4}{:<10}{}\n{:14}{}",
            format!("{:?}", advice.recommendation),
            advice.impact.to_string(),
            advice.recommendation,
            "",
            advice.reason()
        );
    }
    text
}

fn shown(reading: &Reading<f64>) -> String {
    reading.measured().map_or("-".into(), |value| format!("{value:.2}"))
}
