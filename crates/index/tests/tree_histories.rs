//! Recorded histories of threads on a small tree have an explanation: each operation as if it had
//! happened at one instant. Leaves are as small as they can be and keys come and go, so that operations
//! meet splits and merges.

use std::cmp::Ordering;
use std::sync::Arc;
use terrace_index::tree::{Change, Form, Keys, Tree, TreeOptions};
use terrace_memory::Budget;
use terrace_workload::history::{Call, Client, Recorder, Response};
use terrace_workload::linearizability::{DEFAULT_BUDGET, Verdict, check};

const KEYS: u64 = 40;
const OPERATIONS: u64 = 6_000;

/// The second word of a value is the key's number; half of the keys tie in their heads.
struct Numbered;

fn key(number: u64) -> Vec<u8> {
    let beginning: &[u8] =
        if number.is_multiple_of(2) { b"a long beginning of keys " } else { b"" };
    [beginning, &number.to_be_bytes()].concat()
}

impl Keys for Numbered {
    fn compare(&self, value: [u64; 2], other: &[u8]) -> Ordering {
        key(value[1]).as_slice().cmp(other)
    }
    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        into.extend(key(value[1]));
    }
}

/// One operation, drawn by `random`.
fn operate(tree: &Tree, client: &mut Client<'_>, random: u64) {
    let number = random % KEYS;
    let name = key(number);
    let told = |value: Option<[u64; 2]>| Response::Value(value.map(|value| value[0] as i64));
    let new = random >> 40 | 1;
    match random >> 32 & 7 {
        0..=2 => {
            let pending = client.call(number, Call::Get);
            client.returned(pending, told(tree.get(&name, &Numbered)));
        }
        3 => {
            let others: Vec<u64> = (0..5).map(|n| (number + n) % KEYS).collect();
            let pending: Vec<_> = others.iter().map(|n| client.call(*n, Call::Get)).collect();
            let names: Vec<_> = others.iter().map(|n| key(*n)).collect();
            let mut values = [None; 5];
            tree.multi_get(&names, &Numbered, &mut values);
            for (pending, value) in pending.into_iter().zip(values) {
                client.returned(pending, told(value));
            }
        }
        4..=5 => {
            let pending = client.call(number, Call::Swap(new as i64));
            let before = tree.update(&name, &Numbered, |_| Change::Set([new, number]));
            client.returned(pending, told(before.expect("memory")));
        }
        _ => {
            let pending = client.call(number, Call::Delete);
            let before = tree.update(&name, &Numbered, |_| Change::Remove).expect("memory");
            client.returned(pending, Response::Flag(before.is_some()));
        }
    }
}

#[test]
fn histories_of_threads_have_an_explanation() {
    for form in Form::ALL {
        for threads in [2u64, 4, 8] {
            let budget = Arc::new(Budget::new(1 << 40));
            let tree = Tree::new(&TreeOptions::of(form, 128), 1 << 16, &budget).expect("memory");
            let recorder = Recorder::new();
            let mut operations = Vec::new();
            std::thread::scope(|scope| {
                let run = |thread: u64| {
                    let (tree, mut client) = (&tree, recorder.client());
                    move || {
                        let mut state = thread + 1;
                        for _ in 0..OPERATIONS {
                            state = state
                                .wrapping_mul(6_364_136_223_846_793_005)
                                .wrapping_add(1_442_695_040_888_963_407);
                            operate(tree, &mut client, state >> 12);
                        }
                        client.into_operations()
                    }
                };
                let running: Vec<_> = (0..threads).map(|n| scope.spawn(run(n))).collect();
                for thread in running {
                    operations.extend(thread.join().expect("no panic"));
                }
            });
            match check(&operations, DEFAULT_BUDGET) {
                Verdict::Linearizable => {}
                found => panic!("{form}, {threads} threads: {found:?}"),
            }
        }
    }
}

/// Other keys than those of the history, enough of them for memory to be given back when they go.
const OTHERS: std::ops::Range<u64> = 1_000..81_000;

fn put_others(tree: &Tree) {
    for number in OTHERS {
        let put = tree.update(&key(number), &Numbered, |_| Change::Set([1, number]));
        put.expect("memory");
    }
}

/// The same while the tree grows, shrinks and gives memory back: leaves and inner nodes move under whoever uses them.
#[test]
fn histories_have_an_explanation_while_memory_is_given_back() {
    for form in [Form::Rows, Form::Sorted, Form::Unsorted, Form::FastFair] {
        let budget = Arc::new(Budget::new(1 << 40));
        let tree = Tree::new(&TreeOptions::of(form, 128), 1 << 18, &budget).expect("memory");
        put_others(&tree);
        let recorder = Recorder::new();
        let mut operations = Vec::new();
        let (mut bytes, running) = (0, std::sync::atomic::AtomicUsize::new(3));
        std::thread::scope(|scope| {
            let run = |thread: u64| {
                let (tree, mut client, running) = (&tree, recorder.client(), &running);
                move || {
                    let mut state = thread + 1;
                    for _ in 0..OPERATIONS {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        operate(tree, &mut client, state >> 12);
                        std::thread::yield_now();
                    }
                    running.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
                    client.into_operations()
                }
            };
            let threads: Vec<_> = (0..3).map(|n| scope.spawn(run(n))).collect();
            while running.load(std::sync::atomic::Ordering::Acquire) > 0 {
                for number in OTHERS.filter(|number| !number.is_multiple_of(16)) {
                    tree.update(&key(number), &Numbered, |_| Change::Remove).expect("memory");
                }
                bytes += tree.shrink(&Numbered);
                put_others(&tree);
            }
            for thread in threads {
                operations.extend(thread.join().expect("no panic"));
            }
        });
        assert!(form.is_persistent() || bytes >= 2 << 20, "{form}: {bytes} B given back");
        match check(&operations, DEFAULT_BUDGET) {
            Verdict::Linearizable => {}
            found => panic!("{form}: {found:?}"),
        }
        for number in OTHERS {
            assert_eq!(tree.get(&key(number), &Numbered), Some([1, number]), "{form}");
        }
    }
}
