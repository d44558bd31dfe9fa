//! `uma-litmus`: what threads may rely on when they share memory, by atomics and message passing
//! (Wu, listings 12 and 13), processor against processor.
//!
//! The probes of [`terrace_machine::litmus`], and each in its broken form, which must fail: otherwise it
//! would see nothing. From the outcomes follows how data may be shared.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::io;
use terrace_machine::test_bed::{TestBed, Here};
use terrace_machine::litmus::{LitmusForm, LitmusOutcome, PROBES, Probe, Sharing};
use terrace_memory::Topology;

pub(super) const ROW: Row = Row {
    id: "uma-litmus",
    source: "Wu, listings 12 and 13",
    runs_on: "native (processor to processor); gpu: not built",
    must_show: "atomics and message passing hold between processors, so that words may be shared; broken probes \
                fail and allow nothing",
    run,
};

fn name(probe: Probe) -> &'static str {
    match probe {
        Probe::Increments => "increments lost",
        Probe::Passing { backwards: false } => "messages out of order",
        Probe::Passing { backwards: true } => "messages out of order, other way",
        Probe::Buffering => "writes that neither saw",
    }
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let rounds = run.size(1_000_000_000, 30_000_000);
    let refused = Error::system("probe the sharing of memory");
    let test_bed = Topology::read().map_err(io::Error::other).and_then(Here::new).map_err(refused)?;
    let all = |form: LitmusForm, rounds: u64| -> Result<Vec<LitmusOutcome>> {
        let each = PROBES.into_iter().map(|probe| {
            (run.tell)(&format!("{form:?}: {}", name(probe)));
            probe.run(&test_bed, &test_bed.nodes()[0], form, rounds)
        });
        each.collect::<io::Result<_>>().map_err(Error::system("probe the sharing of memory"))
    };
    // Broken probes fail soon, if both threads run at once at all.
    let (sound, broken) =
        (all(LitmusForm::Sound, rounds)?, all(LitmusForm::Broken, rounds / 10)?);
    Ok(judge(&sound, &broken))
}

/// 0 for words, 1 under a lock, 2 apart.
fn number(sharing: Sharing) -> f64 {
    f64::from(sharing as u8)
}

fn judge(sound: &[LitmusOutcome], broken: &[LitmusOutcome]) -> Outcome {
    let mut outcome = Outcome::default();
    for found in sound {
        let what = format!("{} in {} rounds", name(found.probe), found.rounds);
        outcome.checks.push(Check::at_most(what, "none", found.forbidden as f64, 0.0).order());
    }
    for found in broken {
        let what = format!("broken probe: {} in {} rounds", name(found.probe), found.rounds);
        outcome.checks.push(Check::at_least(what, "some", found.forbidden as f64, 1.0).order());
    }
    let [allowed, control] = [sound, broken].map(Sharing::allowed_by);
    outcome.checks.push(Check::at_most(
        "sharing that follows (0 words, 1 under a lock, 2 apart)",
        "words, within a device",
        number(allowed),
        number(Sharing::Words),
    ).order());
    outcome.checks.push(Check::at_least(
        "sharing that follows from broken probes",
        "apart, M2 Ultra's processor with its GPU",
        number(control),
        number(Sharing::Apart),
    ).order());
    outcome.size("threads", 2);
    outcome.note = "Threads do not wait for one another between rounds. What failed once is refused; rounds without \
                    a failure are evidence, no proof. The broken form of store buffering is the same program \
                    without its barriers: the processor itself reorders it."
        .into();
    let rate = |found: &[LitmusOutcome]| -> Vec<f64> {
        found.iter().map(|f| 1e6 * f.forbidden as f64 / f.rounds.max(1) as f64).collect()
    };
    outcome.figures.push(
        Figure::new("Forbidden outcomes", "probe", "of a million rounds", FigureKind::Bars)
            .over(PROBES.map(name))
            .with("sound", rate(sound))
            .with("broken", rate(broken)),
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::Verdict;

    fn found(forbidden: [u64; 4]) -> Vec<LitmusOutcome> {
        let all = PROBES.into_iter().zip(forbidden);
        all.map(|(probe, forbidden)| LitmusOutcome { probe, rounds: 100, forbidden }).collect()
    }

    #[test]
    fn a_failure_of_a_sound_probe_and_a_blind_broken_one_are_misses() {
        let verdict = |sound, broken| Verdict::of("", &judge(&found(sound), &found(broken)).checks);
        assert_eq!(verdict([0; 4], [5; 4]), Verdict::Pass);
        assert_eq!(verdict([0, 1, 0, 0], [5; 4]), Verdict::Miss);
        assert_eq!(verdict([0; 4], [5, 5, 5, 0]), Verdict::Miss);
    }
}
