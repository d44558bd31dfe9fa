use super::*;
use crate::backend::Method;
use crate::native::Native;
use crate::remote::{Atomicity, Network, Remote, Schedule};
use crate::trial::{explored, in_turns, programs, small_for_trees, stressed};
use std::collections::BTreeMap;
use terrace_workload::random::Rng;

fn options(elements: usize, regime: Regime) -> Options {
    Options { elements, regime, method: Method::CopyPointer }
}

/// Regimes and methods that go together.
fn accesses() -> impl Iterator<Item = (Regime, Method)> {
    let all = [Regime::Full, Regime::ElementWise].into_iter();
    let all = all.flat_map(|regime| Method::ALL.map(|method| (regime, method)));
    all.filter(|(regime, method)| Access::new(*regime, *method).is_ok())
}

fn native(elements: usize, (regime, method): (Regime, Method)) -> BlinkTree<Native> {
    BlinkTree::new(Arc::new(Native::new(1 << 18)), Options { elements, regime, method })
        .expect("a tree")
}

#[test]
fn a_tree_holds_what_a_map_of_the_library_holds() {
    for (access, elements) in accesses().flat_map(|of| [2, 3, 4, 8, 31].map(|n| (of, n))) {
        let tree = native(elements, access);
        let (mut session, mut expected) = (tree.session().expect("a place"), BTreeMap::new());
        let mut random = Rng::new(elements as u64);
        for _ in 0..20_000 {
            let (key, value) = (random.below(500), random.bits());
            match random.below(4) {
                0 | 1 => assert_eq!(session.put(key, value), Ok(expected.insert(key, value))),
                2 => assert_eq!(session.remove(key), expected.remove(&key)),
                _ => assert_eq!(session.get(key), expected.get(&key).copied()),
            }
        }
        (0..500).for_each(|key| assert_eq!(session.get(key), expected.get(&key).copied()));
    }
}

#[test]
fn keys_in_order_fill_their_nodes_and_the_ends_of_all_keys_are_found() {
    for elements in [2, 3, 14] {
        let tree = native(elements, (Regime::Full, Method::CopyPointer));
        let mut session = tree.session().expect("a place");
        let keys = (0..2_000).chain([MOST_KEY - 1, MOST_KEY]);
        for key in keys.clone() {
            assert_eq!(session.put(key, !key), Ok(None));
        }
        assert!(keys.clone().all(|key| session.get(key) == Some(!key)));
        assert_eq!(session.get(2_000), None);
        let over = Error::KeyOverLimit { key: u64::MAX, most: MOST_KEY };
        assert_eq!((session.put(u64::MAX, 0), session.get(u64::MAX)), (Err(over), None));
    }
}

#[test]
fn histories_of_threads_have_an_explanation() {
    for (number, access) in accesses().enumerate() {
        for elements in [2, 5] {
            let tree = native(elements, access);
            let verdict = stressed(&tree, programs(4, 4_000, 64, 3, number as u64), 64);
            assert!(verdict.is_linearizable(), "{access:?}, {elements}: {verdict:?}");
        }
    }
}

#[test]
fn threads_that_insert_their_own_keys_lose_none() {
    for access in accesses() {
        let tree = native(4, access);
        let of = |thread: u64| (0..3_000).map(move |i| i * 4 + thread);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tree = &tree;
                scope.spawn(move || {
                    let mut session = tree.session().expect("a place");
                    for key in of(thread) {
                        assert_eq!(session.put(key, !key), Ok(None));
                        assert_eq!(session.get(key), Some(!key));
                    }
                });
            }
        });
        let mut session = tree.session().expect("a place");
        assert!((0..12_000).all(|key| session.get(key) == Some(!key)), "{access:?}");
    }
}

fn remote(atomicity: Atomicity) -> Arc<Remote> {
    Arc::new(Remote::new(1 << 12, atomicity, Network::default(), 5))
}

const KINDS: [(Regime, Atomicity); 3] = [
    (Regime::Full, Atomicity::Line),
    (Regime::ElementWise, Atomicity::Line),
    (Regime::ElementWise, Atomicity::Word),
];

#[test]
fn small_programs_have_an_explanation_under_every_schedule() {
    let preemptions = if std::env::var_os("TERRACE_LONG").is_some() { 2 } else { 1 };
    for (regime, atomicity) in KINDS {
        for small in small_for_trees() {
            let new = || {
                let memory = remote(atomicity);
                let tree = BlinkTree::new(Arc::clone(&memory), options(2, regime)).expect("a tree");
                (memory, tree)
            };
            let ran = explored(new, &small, preemptions);
            assert!(
                ran.as_ref().is_ok_and(|ran| *ran > 10),
                "{regime}, {atomicity:?}, {small:?}: {ran:?}"
            );
        }
    }
}

#[test]
fn clients_in_random_turns_have_an_explanation() {
    for (regime, atomicity) in KINDS {
        for seed in 0..15 {
            let memory = remote(atomicity);
            let tree = BlinkTree::new(Arc::clone(&memory), options(2, regime)).expect("a tree");
            let programs = programs(3, 40, 16, 3, seed);
            let verdict = in_turns(&memory, &tree, &[], programs, 16, Schedule::Random(seed));
            assert!(verdict.is_linearizable(), "{regime}, {atomicity:?}, seed {seed}: {verdict:?}");
        }
    }
}

#[test]
fn a_lock_or_a_version_check_that_is_left_out_is_noticed() {
    for (step, regime, atomicity) in [
        (Step::Lock, Regime::Full, Atomicity::Line),
        (Step::VersionCheck, Regime::Full, Atomicity::Line),
        (Step::VersionCheck, Regime::ElementWise, Atomicity::Word),
    ] {
        let is_noticed = |seed| {
            let memory = remote(atomicity);
            let tree =
                BlinkTree::without(step, Arc::clone(&memory), options(2, regime)).expect("a tree");
            let programs = programs(3, 20, 12, 3, seed);
            !in_turns(&memory, &tree, &[], programs, 12, Schedule::Random(seed)).is_linearizable()
        };
        assert!((0..40).any(is_noticed), "{step:?}, {regime}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let new = |elements, regime, atomicity| {
        BlinkTree::new(remote(atomicity), options(elements, regime)).err()
    };
    let few = |elements, most| Some(Error::Elements { elements, least: 2, most });
    assert_eq!(new(1, Regime::ElementWise, Atomicity::Line), few(1, 254));
    assert_eq!(new(3, Regime::Full, Atomicity::Line), few(3, 2));
    assert_eq!(new(2, Regime::Full, Atomicity::Line), None);
    assert!(matches!(new(2, Regime::Full, Atomicity::Word), Some(Error::NotAtomic { .. })));
}

#[test]
fn a_full_memory_refuses_and_the_tree_goes_on() {
    let tree =
        BlinkTree::new(Arc::new(Native::new(1 << 10)), options(4, Regime::Full)).expect("a tree");
    let mut session = tree.session().expect("a place");
    let full = (0..).find(|key| session.put(*key, !key).is_err()).expect("it ends");
    assert!(full > 100, "{full} keys");
    assert!((0..full).all(|key| session.get(key) == Some(!key)));
    assert_eq!((session.get(full), session.remove(0)), (None, Some(!0)));
}
