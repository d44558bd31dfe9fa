//! Negative controls: with any one ordering point left out, some crash breaks the promise.
//!
//! A crash test that passes says little unless it fails for a protocol that is wrong. Each row is a
//! step, the scenario that catches its absence, and the number of crash states it took.

use crate::scenario::{Plan, explore};
use crate::structures::{BTree, HashTable, RedBlackTree, Structure, Swaps};
use terrace_durable::sections::{EngineKind, Step};
use terrace_memory::Domain;

type Scenario = (&'static str, fn(&Plan) -> crate::scenario::Found, Plan);

/// Scenarios in the order in which they are tried.
fn scenarios(engine: EngineKind) -> Vec<Scenario> {
    let plan = Plan { recovery_every: 7, per_event: 6, ..Plan::new(engine) };
    let big = Plan { keys: 700, log_bytes: 16 << 10, sections: 40, ..plan };
    let mut all: Vec<Scenario> = vec![
        (RedBlackTree::NAME, explore::<RedBlackTree>, plan),
        (HashTable::<8>::NAME, explore::<HashTable<8>>, plan),
        (BTree::NAME, explore::<BTree>, Plan { keys: 40, together: 4, ..plan }),
        ("rewritten pages", explore::<Rewrites>, Plan { keys: 5, log_bytes: 16 << 10, sections: 30, ..plan }),
        (Swaps::<700>::NAME, explore::<Swaps<700>>, big),
    ];
    if engine == EngineKind::Shadow {
        let beyond = Plan { pages: [1, 1], ..plan };
        all.push(("red-black tree, fall-back", explore::<RedBlackTree>, beyond));
        all.push(("B-tree, fall-back", explore::<BTree>, Plan { keys: 40, together: 4, ..beyond }));
        let pages = Plan { keys: 5, log_bytes: 16 << 10, sections: 30, ..beyond };
        all.push(("rewritten pages, fall-back", explore::<Rewrites>, pages));
    }
    all
}

/// Pages written as a whole: more than half of their lines change sides, so that consolidation moves
/// pages to new homes.
struct Rewrites;

use std::collections::BTreeMap;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

const ROOT: Root<[u64; 5]> = Root::new(9);
const WORDS: u64 = 8 * 40;

impl Structure for Rewrites {
    const NAME: &'static str = "rewritten pages";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        let mut all = [0; 5];
        for at in &mut all {
            *at = tx.allocate(8 * WORDS)?;
            tx.write(*at, &[0; 8 * WORDS as usize])?;
        }
        let root = tx.create(&all)?;
        tx.set_root(ROOT, root)
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        let at = tx.get(tx.root(ROOT)?.item((key % 5) as usize))?;
        let bytes: Vec<u8> = (0..WORDS).flat_map(|_| value.to_le_bytes()).collect();
        tx.write(at, &bytes)
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        let root: Offset<[u64; 5]> = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(BTreeMap::new());
        }
        (0..5)
            .map(|i| {
                let at = tx.get(root.item(i))?;
                let words = tx.get(Offset::<[u64; WORDS as usize]>::new(at))?;
                assert!(words.iter().all(|word| *word == words[0]), "page {i} is torn");
                Ok((i as u64, words[0]))
            })
            .collect()
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        let root = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(Vec::new());
        }
        Ok(tx.get(root)?.into_iter().chain([root.at()]).collect())
    }

    fn model_created() -> BTreeMap<u64, u64> {
        (0..5).map(|i| (i, 0)).collect()
    }

    fn model_toggle(model: &mut BTreeMap<u64, u64>, key: u64, value: u64) {
        model.insert(key % 5, value);
    }
}

fn engines(step: Step) -> Vec<EngineKind> {
    EngineKind::ALL
        .into_iter()
        .filter(|engine| step.engine().split(", ").any(|name| name == engine.to_string()))
        .collect()
}

/// Looks for a crash that shows the lack of `step` in `engine`.
fn catch(step: Step, engine: EngineKind) -> Option<String> {
    let mut tried = 0;
    for seed in 1..4 {
        for (name, explore, plan) in scenarios(engine) {
            let found = explore(&Plan { without: Some(step), seed, ..plan });
            if let Some((images, what)) = found.wrong {
                let what: String = what.chars().take(60).collect();
                return Some(format!("{name}, seed {seed}, {} states: {what}", tried + images));
            }
            tried += found.images;
        }
    }
    None
}

fn every_step_of(engine: EngineKind) {
    let mut missed = Vec::new();
    for step in Step::ALL.iter().copied().filter(|step| engines(*step).contains(&engine)) {
        match catch(step, engine) {
            Some(how) => println!("{engine:7}{step:?}: {how}"),
            None => missed.push(step),
        }
    }
    assert!(missed.is_empty(), "{engine}: nothing noticed the lack of {missed:?}");
}

#[test]
fn every_step_of_undo_is_needed() {
    every_step_of(EngineKind::Undo);
}

#[test]
fn every_step_of_redo_is_needed() {
    every_step_of(EngineKind::Redo);
}

#[test]
fn every_step_of_shadow_is_needed() {
    every_step_of(EngineKind::Shadow);
}

#[test]
fn the_scenarios_find_nothing_when_nothing_is_left_out() {
    for engine in EngineKind::ALL {
        for (name, explore, plan) in scenarios(engine) {
            for domain in [Domain::Adr, Domain::Eadr] {
                let found = explore(&Plan { domain, per_event: 1, ..plan });
                assert!(found.wrong.is_none(), "{engine} {name}: {:?}", found.wrong);
            }
        }
    }
}
