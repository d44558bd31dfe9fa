//! Every crash test passes, and says the same twice. That they object where a protocol is broken is
//! what `terrace crash-test --controls` shows, in an optimised build (`cargo xtask test`, step
//! `crashes`).

use terrace_experiments::Domain;
use terrace_experiments::crash::{ALL, Settings, named};

#[test]
fn every_structure_recovers_from_every_state_drawn() {
    for domain in [Domain::Adr, Domain::Eadr] {
        for test in ALL {
            let settings = Settings { states: 100, seed: 1, domain };
            let report = test.run(&settings).assert_sound();
            assert!(report.states >= 100, "{}: {report}", test.name);
        }
    }
}

#[test]
fn equal_seeds_draw_equal_states() {
    for test in ALL {
        let run = || test.run(&Settings { states: 40, seed: 5, domain: Domain::Adr }).hash;
        assert_eq!(run(), run(), "{}", test.name);
    }
}

#[test]
fn tests_are_known_by_their_names() {
    assert!(ALL.iter().all(|test| named(test.name).is_some_and(|found| found.name == test.name)));
    assert!(named("no-such-test").is_none());
}
