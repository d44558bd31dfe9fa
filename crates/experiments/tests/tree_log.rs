//! The crash tests of the logs of deltas: sound as they are, and each ordering point is missed when it is
//! left out.

use terrace_experiments::Domain;
use terrace_experiments::crash::{Settings, named};

const TESTS: [&str; 6] = [
    "tree-log",
    "tree-log-uses",
    "tree-log-collect",
    "tree-log-pile",
    "tree-log-load",
    "tree-log-threads",
];

fn states() -> u64 {
    std::env::var("TERRACE_STATES").ok().and_then(|states| states.parse().ok()).unwrap_or(600)
}

#[test]
fn logs_of_deltas_recover_from_every_state_drawn() {
    for name in TESTS {
        for (domain, seed) in [(Domain::Adr, 1), (Domain::Adr, 2), (Domain::Eadr, 3)] {
            let settings = Settings { states: states(), seed, domain };
            let report = named(name).expect("a test").run(&settings).assert_sound();
            println!("{name}, {domain:?}: {report}");
        }
    }
}

#[test]
fn every_ordering_point_is_missed() {
    for name in TESTS {
        let controls = named(name).expect("a test").controls(20 * states(), 1, &mut |control| {
            println!(
                "{}: {:?} after {} states: {}",
                control.step, control.caught_by, control.states, control.message
            );
        });
        for control in controls {
            assert!(
                control.caught_by.is_some(),
                "{} is not missed in {} states",
                control.step,
                control.states
            );
        }
    }
}
