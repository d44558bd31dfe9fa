//! Random histories against a model: sections that commit, fail and panic, background work, reopening.

use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_durable::sections::{EngineKind, Error, Grain, Options, Pool};
use terrace_experiments::structures::{BTree, HashTable, RedBlackTree, Structure, Swaps};
use terrace_memory::{Domain, Native, Region};

const BYTES: u64 = 256 << 10;

#[derive(Clone, Debug)]
enum ModelStep {
    Section(Vec<(u64, u64)>, End),
    Maintain,
    Close,
    Crash,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Commit,
    Fail,
    Panic,
}

fn step() -> impl Strategy<Value = ModelStep> {
    let end = prop_oneof![6 => Just(End::Commit), 1 => Just(End::Fail), 1 => Just(End::Panic)];
    let toggles = prop::collection::vec((0u64..60, 0u64..1000), 1..6);
    prop_oneof![
        20 => (toggles, end).prop_map(|(toggles, end)| ModelStep::Section(toggles, end)),
        2 => Just(ModelStep::Maintain),
        1 => Just(ModelStep::Close),
        1 => Just(ModelStep::Crash),
    ]
}

/// Swallows the planned panics.
fn section<S: Structure>(pool: &Pool<Native>, toggles: &[(u64, u64)], end: End) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.section(|tx| {
            toggles.iter().try_for_each(|(key, value)| S::toggle(tx, *key, *value))?;
            match end {
                End::Commit => Ok(()),
                End::Fail => Err(Error::NotAllocated { at: 1 }),
                End::Panic => std::panic::resume_unwind(Box::new(())),
            }
        })
    }));
    match (end, result) {
        (End::Commit, Ok(Ok(()))) | (End::Fail, Ok(Err(_))) | (End::Panic, Err(_)) => {}
        (end, other) => panic!("{end:?}: {other:?}"),
    }
}

fn follows_the_model<S: Structure>(engine: EngineKind, grain: Grain, steps: &[ModelStep]) {
    let options =
        Options::new(engine).pages(2, 2).log_bytes(32 << 10).journal_bytes(512).grain(grain);
    let folder = std::env::temp_dir();
    let region = Region::unnamed_file(&folder, BYTES, Domain::Adr).expect("memory");
    let mut pool = Pool::create(region.native(), &options).expect("a pool");
    pool.section(|tx| S::create(tx)).expect("created");
    let mut model = S::model_created();
    for step in steps {
        match step {
            ModelStep::Section(toggles, end) => {
                section::<S>(&pool, toggles, *end);
                if *end == End::Commit {
                    toggles.iter().for_each(|(k, v)| S::model_toggle(&mut model, *k, *v));
                }
            }
            ModelStep::Maintain => drop(pool.maintain().expect("maintained")),
            ModelStep::Close => {
                pool = Pool::open(pool.close(), &options).expect("open");
                assert!(pool.recovery().was_clean);
            }
            ModelStep::Crash => {
                drop(pool);
                pool = Pool::open(region.native(), &options).expect("open");
                assert!(!pool.recovery().was_clean);
            }
        }
        let (contents, objects) = pool
            .section(|tx| Ok::<_, Error>((S::contents(tx)?, S::objects(tx)?)))
            .expect("contents");
        assert_eq!(contents, model);
        pool.check_reachable(objects).expect("allocation metadata");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_structure_on_every_engine_follows_the_model(
        steps in prop::collection::vec(step(), 1..60),
        grain in prop_oneof![Just(Grain::Word), Just(Grain::Line)],
    ) {
        let _beside = crate::beside_others();
        for engine in EngineKind::ALL {
            follows_the_model::<RedBlackTree>(engine, grain, &steps);
            follows_the_model::<BTree>(engine, grain, &steps);
            follows_the_model::<HashTable<16>>(engine, grain, &steps);
            follows_the_model::<Swaps<600>>(engine, grain, &steps);
        }
    }
}
