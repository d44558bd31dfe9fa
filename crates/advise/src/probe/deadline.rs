//! When a run with a limit stops: between two measurements, so that each is a whole one. What it has not come to is
//! named.

use super::plan::ProbePlan;
use std::io;
use std::time::{Duration, Instant};
use terrace_memory::profile::Measured;

/// What `terrace probe --quick` has for a limit: no measurement begins after it, and the one under way may take some
/// seconds more.
pub const QUICK: Duration = Duration::from_secs(45);

const NO_TIME: &str = "--quick had no time left (select with --part or --node, or omit --quick)";

/// The end of a run that has one; says whether it is over.
pub(super) struct Deadline(Option<Box<dyn Fn() -> bool>>);

impl Deadline {
    pub fn of(plan: &ProbePlan) -> Deadline {
        // Of a model too: its time is virtual, that of whoever waits for it is not.
        let Some(limit) = plan.limit else { return Deadline(None) };
        let end = Instant::now() + limit;
        Deadline::when(move || Instant::now() >= end)
    }

    /// Over as soon as `is_over` says so.
    pub fn when(is_over: impl Fn() -> bool + 'static) -> Deadline {
        Deadline(Some(Box::new(is_over)))
    }

    #[cfg(test)]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|is_over| is_over())
    }

    /// A part that is begun if there is time. A refusal becomes its content.
    pub fn part<P>(&self, measure: impl FnOnce() -> io::Result<Measured<P>>) -> Measured<P> {
        if self.is_over() {
            return Measured::not(NO_TIME);
        }
        measure().unwrap_or_else(|refused| Measured::not(refused.to_string()))
    }

    /// Measures one setting after the other. Those that there is no time for are left out, and those that the machine
    /// refuses.
    pub fn each<S, P>(
        &self,
        settings: impl IntoIterator<Item = S>,
        name: impl Fn(&S) -> String,
        mut measure: impl FnMut(S) -> io::Result<P>,
    ) -> Measured<P> {
        let mut points = Vec::new();
        let mut missing = Vec::new();
        for setting in settings {
            let name = name(&setting);
            match if self.is_over() { Err(io::Error::other(NO_TIME)) } else { measure(setting) } {
                Ok(point) => points.push(point),
                Err(why) => missing.push((name, why.to_string())),
            }
        }
        let left_out = (!missing.is_empty()).then(|| left_out(&missing, points.len()));
        Measured::of(points, left_out)
    }
}

/// In words, by the reason: how many settings, and the first of them. Where none was measured the reasons say all.
fn left_out(missing: &[(String, String)], measured: usize) -> String {
    let of = missing.len() + measured;
    let mut reasons: Vec<&str> = Vec::new();
    for (_, why) in missing {
        if !reasons.contains(&why.as_str()) {
            reasons.push(why);
        }
    }
    let told = |why: &&str| {
        let mut those = missing.iter().filter(|(_, known)| known == why).map(|(name, _)| name);
        let (first, others) = (those.next().map_or("", |name| name), those.count());
        match measured {
            0 => why.to_string(),
            _ => format!("{} of {of} settings, first {first}: {why}", others + 1),
        }
    };
    reasons.iter().map(told).collect::<Vec<_>>().join("; ")
}
