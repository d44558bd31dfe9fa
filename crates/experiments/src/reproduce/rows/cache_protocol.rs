//! `cache-protocol`: which ways of waiting for a copy can hang (Fuerst, sections 5.1.2 and 5.1.3).
//!
//! Every interleaving of a publisher and some waiters, of the three published protocols with each way of waking, and of
//! the one that the cache ships, whose decisions are the product's own function. Controls leave one step of the shipped
//! protocol out and must hang, or let two threads own one copy.

mod explore;
mod published;
mod shipped;

use super::{Check, Outcome, Result, Row, Run};
use explore::{Explored, explore};
use published::{Notify, Published, Version};
use shipped::{LeftOut, Shipped};

pub(super) const ROW: Row = Row {
    id: "cache-protocol",
    source: "Fuerst, sections 5.1.2 and 5.1.3",
    runs_on: "exhaustive checker",
    must_show: "v1 and v2 hang, v3 hangs if one waiter is woken and is free of hangs if all are; the shipped protocol \
                is free of hangs",
    run,
};

/// A published protocol, and whether it hangs: if its publisher never waits, and if it does.
type Published3 = (&'static str, Version, Notify, [bool; 2]);

const PUBLISHED: [Published3; 7] = [
    ("v1", Version::V1, Notify::All, [true, false]),
    ("v2, one woken", Version::V2, Notify::One, [true, true]),
    ("v2, all woken", Version::V2, Notify::All, [true, true]),
    ("v3, one woken", Version::V3, Notify::One, [true, true]),
    ("v3, all woken", Version::V3, Notify::All, [false, false]),
    ("v3, one woken, all again at the end", Version::V3, Notify::OneThenAll, [false, false]),
    ("v3, others sleep on the copy, all woken", Version::V3Sleeping, Notify::All, [false, false]),
];

/// Verdicts on everything.
#[derive(Default)]
struct Verdicts {
    /// Protocol, whether the publisher waits, what was found, whether it should hang.
    published: Vec<(&'static str, bool, Explored, bool)>,
    shipped: Vec<(bool, Explored)>,
    controls: Vec<(LeftOut, Explored)>,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let waiters = run.size(4, 3);
    let mut verdicts = Verdicts::default();
    for (name, version, notify, hangs) in PUBLISHED {
        (run.tell)(name);
        for (publisher_waits, hangs) in [false, true].into_iter().zip(hangs) {
            let found = explore(&Published { version, notify, publisher_waits, waiters });
            verdicts.published.push((name, publisher_waits, found, hangs));
        }
    }
    for publisher_waits in [false, true] {
        (run.tell)("shipped");
        let shipped = |left_out| explore(&Shipped { publisher_waits, waiters, left_out });
        verdicts.shipped.push((publisher_waits, shipped(LeftOut::Nothing)));
        let controls = LeftOut::CONTROLS.map(|left_out| (left_out, shipped(left_out)));
        verdicts.controls.extend(controls);
    }
    Ok(judge(&verdicts, waiters))
}

fn judge(verdicts: &Verdicts, waiters: usize) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, publisher_waits, found, hangs) in &verdicts.published {
        let publisher = if *publisher_waits { "publisher waits too" } else { "publisher never waits" };
        let what = format!("{name}; {publisher}: states that hang");
        let count = found.hanging as f64;
        outcome.checks.push(if *hangs {
            Check::at_least(what, "hangs", count, 1.0).order()
        } else {
            Check::at_most(what, "none", count, 0.0).order()
        });
    }
    let sum = |count: fn(&Explored) -> usize| {
        verdicts.shipped.iter().map(|(_, found)| count(found)).sum::<usize>() as f64
    };
    let is_caught = |found: &Explored| found.hanging + found.wrong > 0;
    let missed = LeftOut::CONTROLS
        .into_iter()
        .filter(|step| !verdicts.controls.iter().any(|(control, found)| control == step && is_caught(found)))
        .count();
    let none = |what: &str, count: f64| Check::at_most(what, "none told", count, 0.0).order();
    outcome.checks.extend([
        none("shipped protocol: states that hang", sum(|found| found.hanging)),
        none("shipped protocol: two owners, or ready too early", sum(|found| found.wrong)),
        Check::at_most("steps left out that nothing noticed", "0", missed as f64, 0.0).order(),
    ]);
    outcome.size("waiters", waiters);
    outcome.size("states of the shipped protocol", sum(|found| found.states));
    outcome.size("steps left out", LeftOut::CONTROLS.len());
    let shortest = |found: &Explored| format!("{} steps", found.trace.len());
    let traces: Vec<String> = verdicts
        .published
        .iter()
        .filter(|(.., found, _)| found.hanging > 0)
        .map(|(name, waits, found, _)| {
            format!("{name}{} after {}", if *waits { " (publisher waits)" } else { "" }, shortest(found))
        })
        .collect();
    outcome.note = format!(
        "Every interleaving of a publisher and {waiters} waiters, and for the shipped protocol an engine and a reader \
         that looks twice without waiting; its publisher may also find no engine. A state hangs if no schedule leads \
         from it to the end, so endless spinning is a hang too. Memory is sequentially consistent in the model. \
         Shortest ways to a hang: {}.",
        traces.join("; ")
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_verdicts_holds_for_two_waiters() {
        for (name, version, notify, hangs) in PUBLISHED {
            for (publisher_waits, hangs) in [false, true].into_iter().zip(hangs) {
                let found = explore(&Published { version, notify, publisher_waits, waiters: 2 });
                assert_eq!(found.hanging > 0, hangs, "{name}, {publisher_waits}: {found:?}");
                assert_eq!(found.wrong, 0, "{name}");
            }
        }
    }

    #[test]
    fn the_shipped_protocol_ends_and_without_a_step_it_does_not() {
        for waiters in 0..4 {
            for publisher_waits in [false, true] {
                let found = explore(&Shipped { publisher_waits, waiters, left_out: LeftOut::Nothing });
                assert_eq!((found.hanging, found.wrong), (0, 0), "{waiters}, {publisher_waits}: {found:?}");
            }
        }
        for left_out in LeftOut::CONTROLS {
            let found = explore(&Shipped { publisher_waits: false, waiters: 2, left_out });
            assert!(found.hanging + found.wrong > 0, "{left_out:?}");
        }
    }

    #[test]
    fn a_hang_of_the_shipped_protocol_and_an_unnoticed_step_are_misses() {
        let hang = Explored { states: 2_000, hanging: 1, ..Explored::default() };
        let well = Explored { hanging: 0, ..hang.clone() };
        let verdicts = |shipped: &Explored, control: &Explored| Verdicts {
            published: vec![("v1", false, hang.clone(), true)],
            shipped: vec![(false, shipped.clone())],
            controls: LeftOut::CONTROLS.map(|left_out| (left_out, control.clone())).to_vec(),
        };
        let passes = |shipped, control| judge(&verdicts(shipped, control), 2).checks.iter().all(|check| check.pass);
        assert!(passes(&well, &hang));
        assert!(!passes(&hang, &hang) && !passes(&well, &well));
    }
}
