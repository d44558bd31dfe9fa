use super::*;
use crate::backend::Method;
use crate::native::Native;
use crate::remote::{Atomicity, Network, Remote, Schedule};
use crate::trial::{accesses, explored, in_turns, programs, small_for_trees, stressed};
use std::collections::BTreeMap;
use terrace_workload::random::Rng;

fn options(elements: usize, regime: Regime) -> Options {
    Options { elements, regime, method: Method::CopyPointer }
}

fn native(elements: usize, (regime, method): (Regime, Method)) -> BlinkTree<Native> {
    BlinkTree::new(Arc::new(Native::new(1 << 18)), Options { elements, regime, method })
        .expect("a tree")
}

/// Nodes of a tree that nobody changes, level by level: each stands for the keys above its left neighbour's, is known
/// to its parent, and has nothing else.
fn nodes<B: Backend>(session: &mut BlinkSession<'_, B>) -> usize {
    let mut known = vec![(session.tree.root, NO_BOUND)];
    let mut all = 0;
    loop {
        let (mut low, mut below, mut level) = (None, Vec::new(), 0);
        for (i, (at, bound)) in known.iter().enumerate() {
            let about = session.read_whole(*at);
            let near = session.here.near();
            assert!(!about.is_locked() && near[HIGH] == *bound);
            assert_eq!(near[RIGHT], known.get(i + 1).map_or(NULL, |next| next.0));
            let keys = &near[KEYS..KEYS + about.keys()];
            let ends = keys.first().zip(keys.last());
            assert!(keys.is_sorted_by(|a, b| a < b));
            assert!(ends.is_none_or(|(first, last)| low < Some(*first) && last <= bound));
            low = Some(*bound);
            level = about.level();
            let layout = Layout::of(session.tree.elements, level);
            let bounds = keys.iter().chain([bound]).enumerate();
            below.extend(bounds.map(|(i, bound)| (near[layout.value(i)], *bound)));
        }
        all += known.len();
        if level == 0 {
            return all;
        }
        known = below;
    }
}

#[test]
fn a_tree_holds_what_a_map_of_the_library_holds() {
    for (access, elements) in accesses().flat_map(|of| [2, 3, 4, 8, 31].map(|n| (of, n))) {
        let tree = native(elements, access);
        let (mut session, mut expected) = (tree.session().expect("a place"), BTreeMap::new());
        let mut random = Rng::new(elements as u64);
        for _ in 0..20_000 {
            let (key, value) = (random.below(500), random.bits());
            // The tree grows and shrinks.
            let puts = if random.below(5_000) < 2_500 { 5 } else { 1 };
            match random.below(8) {
                kind if kind < puts => {
                    assert_eq!(session.put(key, value), Ok(expected.insert(key, value)));
                }
                7 => assert_eq!(session.get(key), expected.get(&key).copied()),
                _ => assert_eq!(session.remove(key), expected.remove(&key)),
            }
            if random.below(100) == 0 {
                let keys = key..=key + random.below(200);
                let of = expected.range(keys.clone()).map(|(key, value)| (*key, *value));
                assert_eq!(session.range(keys), Ok(of.collect()));
            }
        }
        (0..500).for_each(|key| assert_eq!(session.get(key), expected.get(&key).copied()));
        nodes(&mut session);
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

/// A node of two pairs was split into one and two, so that one half was full again, and a key for it split every node
/// above, the root too: each key raised the tree by a level.
#[test]
fn keys_that_come_in_order_below_others_raise_the_tree_by_few_levels() {
    let many = 3_000;
    let orders: [fn(u64) -> u64; 3] =
        [|i| i, |i| 3_000 - i, |i| if i % 2 == 0 { i } else { 6_000 - i }];
    for (elements, order) in [2, 3, 6].into_iter().flat_map(|n| orders.map(|order| (n, order))) {
        let tree = native(elements, (Regime::Full, Method::CopyPointer));
        let mut session = tree.session().expect("a place");
        let keys = (1..9).map(|i| i << 40).chain((0..many).map(|i| (1 << 20) + order(i)));
        for key in keys.clone() {
            assert_eq!(session.put(key, !key), Ok(None));
            assert!(session.levels <= 13, "{} levels, nodes of {elements}", session.levels);
        }
        assert!(keys.clone().all(|key| session.get(key) == Some(!key)));
    }
}

/// Empty leaves stayed, so that a queue by time filled the memory.
#[test]
fn keys_that_move_on_leave_no_nodes_behind() {
    for (access, elements) in accesses().flat_map(|of| [2, 3, 6].map(|n| (of, n))) {
        let (regime, method) = access;
        for is_upwards in [true, false] {
            // Room for some 500 nodes.
            let memory = Arc::new(Native::new(500 * (node::words(elements) + 2)));
            let tree =
                BlinkTree::new(memory, Options { elements, regime, method }).expect("a tree");
            let mut session = tree.session().expect("a place");
            let key = |i: u64| if is_upwards { i } else { MOST_KEY - i };
            for i in 0..20_000 {
                assert_eq!(
                    session.put(key(i), i),
                    Ok(None),
                    "{access:?}, {elements}, {is_upwards}"
                );
                if let Some(old) = i.checked_sub(50) {
                    assert_eq!(session.remove(key(old)), Some(old));
                }
            }
            assert_eq!(session.range(0..=u64::MAX).expect("in order").len(), 50);
            assert!(nodes(&mut session) < 150, "{access:?}, {elements}, {is_upwards}");
        }
    }
}

#[test]
fn a_range_has_what_is_there_all_the_while_once_and_in_order() {
    for access in accesses() {
        let tree = native(2, access);
        let mut session = tree.session().expect("a place");
        (0..400).step_by(8).for_each(|key| _ = session.put(key, !key).expect("room"));
        std::thread::scope(|scope| {
            let threads = [1, 2].map(|seed| {
                let tree = &tree;
                scope.spawn(move || {
                    let (mut session, mut random) =
                        (tree.session().expect("a place"), Rng::new(seed));
                    for _ in 0..30_000 {
                        let key = random.below(400);
                        match key % 8 {
                            0 => assert_eq!(session.get(key), Some(!key)),
                            _ if random.below(5) < 2 => _ = session.put(key, !key).expect("room"),
                            _ => _ = session.remove(key),
                        }
                    }
                })
            });
            while !threads.iter().all(|thread| thread.is_finished()) {
                let pairs = session.range(100..=300).expect("in order");
                assert!(pairs.is_sorted() && pairs.iter().all(|(key, value)| *value == !key));
                let kept = pairs.iter().filter(|(key, _)| key % 8 == 0).map(|(key, _)| *key);
                assert!(kept.eq((104..=300).step_by(8)), "{access:?}: {pairs:?}");
            }
        });
    }
    let tree = native(2, (Regime::Full, Method::CopyPointer));
    let mut session = tree.session().expect("a place");
    assert_eq!(session.range(7..=7), Ok(Vec::new()));
    let turned_round = RangeInclusive::new(8, 7);
    assert_eq!(session.range(turned_round), Err(Error::Reversed { from: 8, to: 7 }));
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
    Arc::new(Remote::new(1 << 12, atomicity, Network::default(), 5).expect("a server"))
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
        (Step::Mark, Regime::Full, Atomicity::Line),
        (Step::Mark, Regime::ElementWise, Atomicity::Word),
    ] {
        let is_noticed = |seed| {
            let memory = remote(atomicity);
            let tree =
                BlinkTree::without(step, Arc::clone(&memory), options(2, regime)).expect("a tree");
            let programs = programs(3, 20, 12, 3, seed);
            !in_turns(&memory, &tree, &[], programs, 12, Schedule::Random(seed)).is_linearizable()
        };
        assert!((0..400).any(is_noticed), "{step:?}, {regime}");
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
