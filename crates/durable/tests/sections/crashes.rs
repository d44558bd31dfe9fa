//! Every engine and structure, crashed after every event, in recovery too.

use crate::images::each_image;
use crate::memory::Traced;
use crate::scenario::{Plan, explore};
use crate::structures::{BTree, HashTable, Random, RedBlackTree, Structure, Swaps};
use terrace_durable::sections::{EngineKind, Error, Pool};
use terrace_memory::Domain;

fn survives<S: Structure>(plan: Plan) {
    let found = explore::<S>(&plan);
    println!(
        "{} {} {:?}, TERRACE_SEED={}: {} crash states, {} in recovery",
        plan.engine,
        S::NAME,
        plan.domain,
        plan.seed,
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

/// A pool made over an old one: the old one whole, none, or the new one, never a mixture.
#[test]
fn a_crash_while_a_pool_is_made_leaves_the_old_one_or_none_or_the_new_one() {
    for engine in EngineKind::ALL {
        let plan = Plan { memory_bytes: 64 << 10, ..Plan::new(engine) };
        let memory = Traced::new(plan.memory_bytes, Domain::Adr);
        let pool = Pool::create(memory, &plan.options()).expect("the old one");
        pool.section(RedBlackTree::create).expect("a tree");
        (0..9).for_each(|key| pool.section(|tx| RedBlackTree::toggle(tx, key, key)).expect("ok"));
        let memory = pool.close();
        let before = memory.record();
        let pool = Pool::create(memory, &plan.options()).expect("the new one");
        let events = pool.memory().events();
        let mut seen = [0; 3];
        each_image(before, Domain::Adr, &events, 3, &mut Random(7), &mut |image, _| {
            match Pool::open(Traced::from(image, Domain::Adr), &plan.options()) {
                Ok(pool) => {
                    let keys = pool.section(|tx| RedBlackTree::contents(tx)).expect("contents");
                    assert!(keys.is_empty() || keys.len() == 9, "{engine}: {keys:?}");
                    pool.check().expect("books");
                    seen[usize::from(keys.is_empty())] += 1;
                }
                Err(Error::NoPool { found: 0, .. }) => seen[2] += 1,
                Err(other) => panic!("{engine}: {other}"),
            }
            true
        });
        assert!(seen.iter().all(|count| *count > 0), "{engine}: {seen:?}");
    }
}
