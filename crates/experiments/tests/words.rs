//! A table of words, as the store opens it, survives; and what all of its forms rely on is missed.

use terrace_experiments::Domain;
use terrace_experiments::crash::{Settings, named};

const NAMES: [&str; 4] = ["words-tlog", "words-log-free", "words-link-free", "words-soft"];

#[test]
fn tables_of_words_recover_from_every_state_drawn() {
    for name in NAMES {
        for domain in [Domain::Adr, Domain::Eadr] {
            let settings = Settings { states: 5_000, seed: 3, domain };
            let report = named(name).expect("a test").run(&settings).assert_sound();
            println!("{name}, {domain}: {report}");
        }
    }
}

#[test]
fn what_all_forms_rely_on_is_missed() {
    for name in NAMES {
        let controls = named(name).expect("a test").controls(40_000, 1, &mut |control| {
            println!(
                "{}: {} ({} states) {}",
                control.engine, control.step, control.states, control.message
            );
        });
        assert_eq!(controls.len(), if name == "words-log-free" { 0 } else { 2 });
        let missed = controls.iter().filter(|control| control.caught_by.is_none());
        let missed: Vec<_> = missed.map(|control| &control.step).collect();
        assert!(missed.is_empty(), "{name}: not noticed without {missed:?}");
    }
}
