//! Every engine and structure, crashed after every event, in recovery too.

use crate::scenario::{Plan, explore};
use crate::structures::{BTree, HashTable, RedBlackTree, Structure, Swaps};
use terrace_durable::sections::EngineKind;
use terrace_memory::Domain;

fn survives<S: Structure>(plan: Plan) {
    let found = explore::<S>(&plan);
    println!(
        "{} {} {:?}: {} crash states, {} in recovery",
        plan.engine,
        S::NAME,
        plan.domain,
        found.images,
        found.recovery_images
    );
    assert!(found.wrong.is_none(), "{plan:?}: {:?}", found.wrong);
    assert!(found.images > 30, "{found:?}");
}

fn survives_everywhere(plan: Plan) {
    survives::<RedBlackTree>(plan);
    survives::<BTree>(Plan { keys: 40, sections: 8, together: 4, ..plan });
    survives::<HashTable<8>>(plan);
    survives::<Swaps<700>>(Plan { keys: 700, log_bytes: 16 << 10, ..plan });
}

#[test]
fn undo_survives_a_crash_after_every_event() {
    survives_everywhere(Plan::new(EngineKind::Undo));
}

#[test]
fn redo_survives_a_crash_after_every_event() {
    survives_everywhere(Plan::new(EngineKind::Redo));
}

#[test]
fn shadow_survives_a_crash_after_every_event() {
    survives_everywhere(Plan::new(EngineKind::Shadow));
}

#[test]
fn shadow_survives_when_every_section_merges_and_falls_back() {
    survives_everywhere(Plan { pages: [1, 1], ..Plan::new(EngineKind::Shadow) });
}

#[test]
fn persistent_caches_need_no_write_backs() {
    for engine in EngineKind::ALL {
        survives_everywhere(Plan { domain: Domain::Eadr, ..Plan::new(engine) });
    }
}
