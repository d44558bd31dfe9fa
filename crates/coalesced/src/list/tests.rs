use super::printed::PrintedList;
use super::*;
use crate::hash::HashSet;
use crate::native::Native;
use crate::remote::{Atomicity, Network, Remote};
use crate::trial::{accesses, explored, programs, small_for_lists, stressed};
use std::collections::BTreeSet;
use terrace_workload::random::Rng;

fn options(elements: usize, regime: Regime) -> Options {
    Options { elements, regime, method: Method::CopyPointer }
}

fn network_memory(words: usize, atomicity: Atomicity) -> Arc<Remote> {
    Arc::new(Remote::new(words, atomicity, Network::default(), 1).expect("a server"))
}

fn remote() -> Arc<Remote> {
    network_memory(1 << 12, Atomicity::Line)
}

#[test]
fn a_list_holds_what_a_tree_of_the_library_holds() {
    for ((regime, method), elements) in accesses().flat_map(|of| [1, 2, 3, 6, 14].map(|n| (of, n)))
    {
        let options = Options { elements, regime, method };
        let list = List::new(Arc::new(Native::new(1 << 14)), options).expect("a list");
        let (mut session, mut expected) = (list.session().expect("a place"), BTreeSet::new());
        let mut random = Rng::new(elements as u64);
        for _ in 0..20_000 {
            let key = random.below(100);
            match random.below(3) {
                0 => assert_eq!(session.insert(key), Ok(expected.insert(key)), "{options:?}"),
                1 => assert_eq!(session.remove(key), Ok(expected.remove(&key)), "{options:?}"),
                _ => assert_eq!(session.contains(key), expected.contains(&key), "{options:?}"),
            }
        }
        (0..100).for_each(|key| assert_eq!(session.contains(key), expected.contains(&key)));
    }
}

#[test]
fn histories_of_threads_have_an_explanation() {
    for (number, (regime, method)) in accesses().enumerate() {
        for (seed, elements) in [2, 6].into_iter().enumerate() {
            let options = Options { elements, regime, method };
            let of = |clients, keys| programs(clients, 4_000, keys, 3, (number * 2 + seed) as u64);
            let list = List::new(Arc::new(Native::new(1 << 18)), options).expect("a list");
            let verdict = stressed(&list, of(4, 24), 24);
            assert!(verdict.is_linearizable(), "{options:?}: {verdict:?}");
            let set = HashSet::new(Arc::new(Native::new(1 << 18)), 4, options).expect("a set");
            let verdict = stressed(&set, of(4, 48), 48);
            assert!(verdict.is_linearizable(), "{options:?}: {verdict:?}");
        }
    }
}

#[test]
fn histories_on_a_remote_memory_have_an_explanation() {
    for (regime, elements, atomicity) in
        [(Regime::Full, 6, Atomicity::Line), (Regime::ElementWise, 8, Atomicity::Word)]
    {
        let memory = network_memory(1 << 14, atomicity);
        let list = List::new(memory, options(elements, regime)).expect("a list");
        let verdict = stressed(&list, programs(4, 1_000, 32, 3, 9), 32);
        assert!(verdict.is_linearizable(), "{regime}: {verdict:?}");
    }
}

#[test]
fn small_programs_have_an_explanation_under_every_schedule() {
    let preemptions = if std::env::var_os("TERRACE_LONG").is_some() { 3 } else { 2 };
    for (regime, elements) in
        [(Regime::Full, 1), (Regime::Full, 2), (Regime::ElementWise, 1), (Regime::ElementWise, 2)]
    {
        for small in small_for_lists() {
            let new = || {
                let memory = remote();
                let list =
                    List::new(Arc::clone(&memory), options(elements, regime)).expect("a list");
                (memory, list)
            };
            let ran = explored(new, &small, preemptions);
            assert!(
                ran.as_ref().is_ok_and(|ran| *ran > 20),
                "{regime}, {elements}, {small:?}: {ran:?}"
            );
        }
    }
}

#[test]
fn the_printed_list_loses_an_update() {
    let found = small_for_lists().into_iter().filter(|small| {
        let new = || {
            let memory = remote();
            let list = PrintedList::new(Arc::clone(&memory), options(1, Regime::ElementWise))
                .expect("a list");
            (memory, list)
        };
        explored(new, small, 2).is_err()
    });
    assert!(found.count() > 0);
}

#[test]
fn a_lock_or_a_version_check_that_is_left_out_is_noticed() {
    for (step, regime) in [
        (Step::Lock, Regime::Full),
        (Step::VersionCheck, Regime::Full),
        (Step::Mark, Regime::Full),
        (Step::Lock, Regime::ElementWise),
    ] {
        let found = small_for_lists().into_iter().any(|small| {
            let new = || {
                let memory = remote();
                let list =
                    List::without(step, Arc::clone(&memory), options(2, regime)).expect("a list");
                (memory, list)
            };
            explored(new, &small, 2).is_err()
        });
        assert!(found, "{step:?}, {regime}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let new =
        |elements, regime, method| List::new(remote(), Options { elements, regime, method }).err();
    let most = crate::LINE_WORDS - KEYS;
    let refused = |elements| Some(Error::Elements { elements, least: 1, most });
    assert_eq!(new(0, Regime::Full, Method::Fragment), refused(0));
    assert_eq!(new(7, Regime::Full, Method::Fragment), refused(7));
    assert_eq!(new(6, Regime::Full, Method::Fragment), None);
    assert_eq!(new(6, Regime::Full, Method::Bypass), Some(Error::BypassIsNotAtomic));
    assert!(matches!(
        new(usize::MAX, Regime::ElementWise, Method::Bypass),
        Some(Error::Elements { .. })
    ));
    let words = network_memory(1 << 10, Atomicity::Word);
    assert!(matches!(
        List::new(words, options(6, Regime::Full)).err(),
        Some(Error::NotAtomic { .. })
    ));
    let list = List::new(remote(), options(6, Regime::Full)).expect("a list");
    let mut session = list.session().expect("a place");
    let over = Error::KeyOverLimit { key: u64::MAX, most: MOST_KEY };
    assert_eq!(session.insert(u64::MAX), Err(over));
    assert!(!session.contains(u64::MAX) && session.remove(u64::MAX) == Ok(false));
    assert_eq!(session.insert(MOST_KEY), Ok(true));
    let buckets = |buckets| HashSet::new(remote(), buckets, options(6, Regime::Full)).err();
    assert!(matches!(buckets(0), Some(Error::Buckets { .. })));
    assert!(matches!(buckets(4_000), Some(Error::Full { .. })));
}

#[test]
fn the_printed_list_refuses_what_the_others_refuse() {
    for elements in [0, 511, usize::MAX] {
        let printed = PrintedList::new(remote(), options(elements, Regime::ElementWise));
        assert_eq!(printed.err(), Some(Error::Elements { elements, least: 1, most: 510 }));
    }
}

#[test]
fn threads_notice_a_lock_that_is_left_out() {
    for regime in [Regime::Full, Regime::ElementWise] {
        let is_noticed = |seed| {
            let list =
                List::without(Step::Lock, Arc::new(Native::new(1 << 20)), options(4, regime));
            let verdict = stressed(&list.expect("a list"), programs(4, 4_000, 24, 3, seed), 24);
            !verdict.is_linearizable()
        };
        assert!((0..20).any(is_noticed), "{regime}");
    }
}

#[test]
fn a_full_memory_refuses_and_the_list_goes_on() {
    for regime in [Regime::Full, Regime::ElementWise] {
        let list = List::new(Arc::new(Native::new(512)), options(6, regime)).expect("a list");
        let mut session = list.session().expect("a place");
        let full = (0..).find(|key| session.insert(*key).is_err()).expect("it ends");
        assert!(full > 100, "{regime}: {full} keys");
        assert!((0..full).all(|key| session.contains(key)), "{regime}");
        assert!(!session.contains(full));
    }
}
