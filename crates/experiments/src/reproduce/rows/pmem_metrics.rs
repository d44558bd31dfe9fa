//! `pmem-metrics`: the paper's ratios from the paper's raw counts (Gugnani, metrics and figure 7).

use super::{Check, Outcome, Result, Row, Run};
use terrace_machine::model::NodeCounts;

pub(super) const ROW: Row = Row {
    id: "pmem-metrics",
    source: "Gugnani, metrics, figure 7",
    runs_on: "counted",
    must_show: "EWR 0.913, RWR 0.793, read hits 0.783, write hits 0.726 from I7's raw counts",
    run,
};

/// Figures are published to three digits.
const ROUNDED: f64 = 0.001;

/// I7's counters as published: operations of the controller on lines of 64 bytes, and of the medium on
/// lines of 256.
const CONTROLLER_READS: u64 = 10_069_187;
const CONTROLLER_WRITES: u64 = 10_067_626;
const MEDIA_READS: u64 = 2_186_052;
const MEDIA_WRITES: u64 = 2_756_575;

fn run(_run: &Run<'_>) -> Result<Outcome> {
    let counts = NodeCounts {
        read_bytes: 64 * CONTROLLER_READS,
        written_bytes: 64 * CONTROLLER_WRITES,
        media_read_bytes: 256 * MEDIA_READS,
        media_written_bytes: 256 * MEDIA_WRITES,
        ..NodeCounts::default()
    };
    let figures = [
        ("EWR", 0.913, counts.ewr()),
        ("RWR", 0.793, counts.rwr()),
        ("read hits", 0.783, counts.read_hit_ratio(64, 256)),
        ("write hits", 0.726, counts.write_hit_ratio(64, 256)),
        // By bytes of the whole run: 705,683,200 written at the medium, 559,629,312 read.
        ("bytes written to the medium, millions", 705.683, counts.media_written_bytes as f64 / 1e6),
        ("bytes read from the medium, millions", 559.629, counts.media_read_bytes as f64 / 1e6),
    ];
    let mut outcome = Outcome::default();
    for (what, paper, found) in figures {
        let near = (ROUNDED * f64::max(paper, 1.0)).max(ROUNDED);
        let check = Check::within(what, &paper.to_string(), found, paper - near, paper + near).order();
        outcome.checks.push(check);
    }
    outcome.note = "The counters' reads include those made for writes. The paper's script divides operations \
                    of 64 and of 256 bytes by one another, which gives an EWR of 0.274; its sheet and its \
                    definition divide bytes, as here."
        .into();
    Ok(outcome)
}
