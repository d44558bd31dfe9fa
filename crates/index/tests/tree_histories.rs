//! Recorded histories of threads on a small tree have an explanation: each operation as if it had
//! happened at one instant. Leaves are as small as they can be and keys come and go, so that operations
//! meet splits and merges.

use std::cmp::Ordering;
use std::sync::Arc;
use terrace_index::tree::{Change, Form, Keys, Tree, TreeOptions};
use terrace_memory::Budget;
use terrace_workload::history::{Call, Client, Recorder, Told};
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
    let told = |value: Option<[u64; 2]>| Told::Value(value.map(|value| value[0] as i64));
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
            client.returned(pending, Told::Flag(before.is_some()));
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
