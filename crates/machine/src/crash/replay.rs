//! The compact text of a failing case: `0*12,1*3@17:0.2.1@5:1`.
//!
//! The thread that ran at each point, run lengths after `*`; then for each crash, from the scenario's to the
//! deepest recovery's, the number of events before it and the choices of the recovery after it.

use super::plan::{Case, Crash};
use std::fmt;
use std::str::FromStr;

/// Most points that a text may ask for; a longer one is a mistake.
const POINTS_MAX: usize = 100_000_000;

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.schedule.chunk_by(|a, b| a == b) {
            match run.len() {
                1 => write!(f, "{separator}{}", run[0])?,
                length => write!(f, "{separator}{}*{length}", run[0])?,
            }
            separator = ",";
        }
        for crash in &self.crashes {
            write!(f, "@{}:", crash.after)?;
            let mut separator = "";
            for choice in &crash.choices {
                write!(f, "{separator}{choice}")?;
                separator = ".";
            }
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('@');
        let mut schedule = Vec::new();
        for run in parts.next().unwrap_or("").split(',').filter(|run| !run.is_empty()) {
            let (thread, length) = run.split_once('*').unwrap_or((run, "1"));
            let length: usize = number(length, text)?;
            if schedule.len() + length > POINTS_MAX {
                return Err(format!("{text:?}: a schedule of more than {POINTS_MAX} points"));
            }
            schedule.resize(schedule.len() + length, number(thread, text)?);
        }
        let mut crashes = Vec::new();
        for crash in parts {
            let (after, choices) = crash
                .split_once(':')
                .ok_or_else(|| format!("{text:?}: expected EVENTS:CHOICES, found {crash:?}"))?;
            let choices = choices.split('.').filter(|choice| !choice.is_empty());
            crashes.push(Crash {
                after: number(after, text)?,
                choices: choices.map(|choice| number(choice, text)).collect::<Result<_, _>>()?,
            });
        }
        Ok(Case { schedule, crashes })
    }
}

fn number<T: FromStr>(word: &str, text: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{text:?}: expected a number in range, found {word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_survives_its_text() {
        let cases = ["", "0", "0*12,1*3@17:0.2.1@5:1", "0@0:", "1@3:@4:2"];
        for text in cases {
            let case: Case = text.parse().unwrap();
            assert_eq!(case.to_string(), text);
        }
        for wrong in ["x", "0*", "0@", "0@1", "0@1:a", "300", "0*999999999999", "0@1:-1"] {
            assert!(wrong.parse::<Case>().is_err(), "{wrong}");
        }
    }
}
