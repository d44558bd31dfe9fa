//! Negative controls: with any one ordering point left out, some crash breaks the promise.
//!
//! A crash test that passes says little unless it fails for a protocol that is wrong. Each row is a
//! step, the scenario that catches its absence, and the number of crash states it took.

use crate::scenario::{Plan, explore};
use crate::structures::{BTree, HashTable, RedBlackTree, Structure};
use terrace_durable::sections::{EngineKind, Step};
use terrace_memory::Domain;

type Scenario = (&'static str, fn(&Plan) -> crate::scenario::Found, Plan);

/// Scenarios in the order in which they are tried.
fn scenarios(engine: EngineKind) -> Vec<Scenario> {
    let plan = Plan { recovery_every: 7, per_event: 6, ..Plan::new(engine) };
    let pages = Plan { keys: 5, log_bytes: 16 << 10, sections: 16, memory_bytes: 96 << 10, ..plan };
    let mut all: Vec<Scenario> = vec![
        (RedBlackTree::NAME, explore::<RedBlackTree>, plan),
        (HashTable::<8>::NAME, explore::<HashTable<8>>, plan),
        (BTree::NAME, explore::<BTree>, Plan { keys: 40, together: 4, ..plan }),
        (Rewrites::<40>::NAME, explore::<Rewrites<40>>, pages),
    ];
    if engine == EngineKind::Shadow {
        let beyond = [1, 1];
        let rewrites = Plan { together: 4, sections: 10, pages: beyond, ..pages };
        all.push(("rewritten pages, fall-back", explore::<Rewrites<2>>, rewrites));
        let merges = Plan { pages: beyond, journal_bytes: 256, ..pages };
        all.push(("rewritten pages, merges", explore::<Rewrites<40>>, merges));
        all.push((
            "red-black tree, merges",
            explore::<RedBlackTree>,
            Plan { pages: beyond, ..plan },
        ));
    }
    all
}

/// The scenario that is tried first for a step: where its lack is likely to show.
fn likely(step: Step) -> usize {
    use Step as S;
    match step {
        S::UndoLogWriteBack | S::UndoLogFence | S::UndoChecksum => 4,
        S::RollBackWriteBack | S::RollBackFence | S::ShadowVoidMark => 4,
        S::ShadowMergeWriteBack | S::ShadowMergeFence => 3,
        S::ShadowMergeMarkWriteBack | S::ShadowMergeMarkFence => 3,
        S::ShadowTableWriteBack | S::ShadowTableFence | S::ShadowSlotsFence => 5,
        _ => 0,
    }
}

/// Pages written as a whole: more than half of their lines change sides, so that consolidation moves
/// pages to new homes.
struct Rewrites<const LINES: u64>;

use std::collections::BTreeMap;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

const ROOT: Root<[u64; 5]> = Root::new(9);
/// More than a page has room for twice: every object has its own page.
const BYTES: u64 = 64 * 40;

impl<const LINES: u64> Structure for Rewrites<LINES> {
    const NAME: &'static str = "rewritten pages";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        let mut all = [0; 5];
        for at in &mut all {
            *at = tx.allocate(BYTES)?;
            tx.write(*at, &[0; BYTES as usize][..64 * LINES as usize])?;
        }
        let root = tx.create(&all)?;
        tx.set_root(ROOT, root)
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        let at = tx.get(tx.root(ROOT)?.item((key % 5) as usize))?;
        let bytes: Vec<u8> = (0..8 * LINES).flat_map(|_| value.to_le_bytes()).collect();
        // One word twice: its second old value is one that nobody may see again.
        tx.store(at + 24, !value)?;
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
                let words = tx.get(Offset::<[u64; BYTES as usize / 8]>::new(at))?;
                let mut written = words[..8 * LINES as usize].iter();
                assert!(written.all(|word| *word == words[0]), "page {i} is torn");
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
    for seed in (0..3).map(|turn| crate::scenario::seed() + turn) {
        let mut all = scenarios(engine);
        let likely = likely(step) % all.len();
        all.rotate_left(likely);
        for (name, explore, plan) in all {
            let found = explore(&Plan { without: Some(step), seed, ..plan });
            if let Some((images, what)) = found.wrong {
                let what: String = what.lines().next().unwrap_or("").chars().take(70).collect();
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
            Some(how) => println!("{engine} {step:?}: {how}"),
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
        for (at, (name, explore, plan)) in scenarios(engine).into_iter().enumerate() {
            // Of persistent caches every word is an event: the long ones would take minutes.
            let domains = if at < 3 { &[Domain::Adr, Domain::Eadr][..] } else { &[Domain::Adr] };
            for domain in domains {
                let found = explore(&Plan { domain: *domain, per_event: 1, ..plan });
                assert!(found.wrong.is_none(), "{engine} {name}: {:?}", found.wrong);
            }
        }
    }
}
