//! What threads are told by a ring at once has an order. That it survives, and that each step it needs is missed, is
//! what `terrace crash-test` shows.

use std::sync::{Barrier, Mutex};
use terrace_lockfree::{Form, Ring, RingOptions};
use terrace_memory::{Backing, Domain, Region};
use terrace_workload::linearizability::durable::{
    History, Moment, Queue, QueueCall, Verdict, check,
};

type Moments = Vec<(usize, Moment<QueueCall, Option<u64>>)>;

/// What `threads` threads asked of a ring at once, and were told, in one order that real time allows.
fn recorded(threads: usize, each: u64, form: Form, seed: u64) -> Moments {
    let options = RingOptions { form, slots: 64, slot_bytes: 64, write_back: false };
    let region = |bytes| {
        let region = Region::reserve(bytes, Backing::Anonymous).expect("memory");
        region.commit(0, region.len()).expect("memory");
        region.declared(Domain::Eadr)
    };
    let (slots, turns) = (region(options.bytes()), region(options.turn_bytes()));
    let ring = Ring::create(slots.native(), turns.native(), options).expect("a ring");
    let (moments, start) = (Mutex::new(Moments::new()), Barrier::new(threads));
    let note = |thread, moment| moments.lock().expect("no panic").push((thread, moment));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (ring, note, start) = (&ring, &note, &start);
            scope.spawn(move || {
                start.wait();
                for turn in 0..each {
                    let number = 100 * thread as u64 + turn;
                    let pushes = (seed >> ((number * 7 + turn) % 61)) & 1 == 0;
                    let call = if pushes { QueueCall::Enqueue(number) } else { QueueCall::Dequeue };
                    note(thread, Moment::Called(call));
                    // On few processors calls would hardly overlap by themselves.
                    std::thread::yield_now();
                    let told = match pushes {
                        true => ring.try_push(&number.to_le_bytes()).map(|_| None).expect("room"),
                        false => ring.try_pop().map(|bytes| {
                            u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
                        }),
                    };
                    note(thread, Moment::Returned(told));
                }
            });
        }
    });
    moments.into_inner().expect("no panic")
}

fn judged(moments: &Moments) -> Verdict<QueueCall, Option<u64>> {
    let mut history = History::new();
    moments.iter().for_each(|(thread, moment)| history.record(*thread, moment.clone()));
    check(&Queue, &history, 5_000_000)
}

#[test]
fn histories_of_two_to_eight_threads_are_linearizable() {
    let _beside = crate::beside_others();
    let (mut overlaps, mut refused, mut undecided) = (0, 0, 0);
    // `TERRACE_LONG=1` records five times as many.
    let histories = if std::env::var_os("TERRACE_LONG").is_some() { 150 } else { 30 };
    for (threads, each) in [(2, 20), (4, 8), (8, 4)] {
        for seed in 0..histories {
            let form = [Form::Volatile, Form::TxFree, Form::Tx][seed as usize % 3];
            let seed = (seed + 1_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut moments = recorded(threads, each, form, seed);
            let verdict = judged(&moments);
            if matches!(verdict, Verdict::Undecided { .. }) {
                undecided += 1;
                continue;
            }
            assert!(verdict.is_linearizable(), "{threads} threads, {form:?}: {verdict:?}");
            overlaps += moments
                .windows(2)
                .filter(|pair| pair.iter().all(|(_, m)| matches!(m, Moment::Called(_))))
                .count();
            // The alarm: the first element that was popped is said to be another.
            let popped = moments.iter_mut().find_map(|(_, moment)| match moment {
                Moment::Returned(Some(number)) => Some(number),
                _ => None,
            });
            if let Some(number) = popped {
                *number += 50;
                refused += usize::from(!judged(&moments).is_linearizable());
            }
        }
    }
    let all = 3 * histories as usize;
    println!("{all} histories, {undecided} undecided, {overlaps} overlaps, {refused} refused");
    assert!(
        undecided * 20 < all,
        "{undecided} histories of {all} were too entangled to be decided"
    );
    assert!(overlaps > all / 9, "{overlaps} calls overlapped");
    assert!(refused * 3 > all * 2, "{refused} false histories of {all} were refused");
}
