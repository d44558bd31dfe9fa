//! The ring survives, and every step that it is said to need is missed: the published recovery among them.

use terrace_experiments::Domain;
use terrace_experiments::crash::{Settings, named};

#[test]
fn rings_recover_from_every_state_drawn() {
    for name in ["ring-tx", "ring-tx-free"] {
        for domain in [Domain::Adr, Domain::Eadr] {
            let settings = Settings { states: 8_000, seed: 3, domain };
            let report = named(name).expect("a test").run(&settings).assert_sound();
            println!("{name}, {domain}: {report}");
        }
    }
}

#[test]
fn every_step_left_out_is_noticed() {
    for name in ["ring-tx", "ring-tx-free"] {
        let controls = named(name).expect("a test").controls(40_000, 1, &mut |control| {
            println!(
                "{}: {} ({} states) {}",
                control.engine, control.step, control.states, control.message
            );
        });
        let missed = controls.iter().filter(|control| control.caught_by.is_none());
        let missed: Vec<_> = missed.map(|control| &control.step).collect();
        assert!(missed.is_empty(), "{name}: not noticed without {missed:?}");
    }
}
