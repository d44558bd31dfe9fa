//! The ring survives, and every step that it is said to need is missed: the published recovery among them.

use std::sync::{Barrier, Mutex};
use terrace_experiments::Domain;
use terrace_experiments::crash::{Settings, named};
use terrace_index::{Form, Ring, RingOptions};
use terrace_memory::{Backing, Region};
use terrace_workload::linearizability::durable::{
    History, Moment, Queue, QueueCall, Verdict, check,
};

const QUEUES_IN_MEMORY: [&str; 3] = ["queue-tx", "queue-tx-free", "queue-forms"];

#[test]
fn rings_recover_from_every_state_drawn() {
    for name in ["ring-tx", "ring-tx-free"] {
        for domain in [Domain::Adr, Domain::Eadr] {
            let settings = Settings { states: 8_000, seed: 3, domain };
            let report = named(name).expect("a test").run(&settings).assert_sound();
            println!("{name}, {domain}: {report}");
        }
    }
}

#[test]
fn queues_in_memory_recover_from_every_state_drawn() {
    for name in QUEUES_IN_MEMORY {
        for domain in [Domain::Adr, Domain::Eadr] {
            let settings = Settings { states: 8_000, seed: 3, domain };
            let report = named(name).expect("a test").run(&settings).assert_sound();
            println!("{name}, {domain}: {report}");
        }
    }
}

#[test]
fn queues_on_a_disk_recover_from_every_state_drawn() {
    for name in ["queue-disk", "queue-cuts", "queue-switches"] {
        for domain in [Domain::Adr, Domain::PageCache] {
            let settings = Settings { states: 8_000, seed: 3, domain };
            let report = named(name).expect("a test").run(&settings).assert_sound();
            println!("{name}, {domain}: {report}");
        }
    }
}

#[test]
fn every_step_left_out_is_noticed() {
    let others = ["ring-tx", "ring-tx-free", "queue-disk", "queue-cuts", "queue-switches"];
    for name in others.into_iter().chain(QUEUES_IN_MEMORY) {
        let controls = named(name).expect("a test").controls(40_000, 1, &mut |control| {
            println!(
                "{}: {} ({} states) {}",
                control.engine, control.step, control.states, control.message
            );
        });
        let missed = controls.iter().filter(|control| control.caught_by.is_none());
        let missed: Vec<_> = missed.map(|control| &control.step).collect();
        assert!(missed.is_empty(), "{name}: not noticed without {missed:?}");
    }
}

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
fn what_two_to_eight_threads_are_told_has_an_order() {
    let (mut overlaps, mut refused, mut undecided) = (0, 0, 0);
    for (threads, each, histories) in [(2, 20, 150), (4, 8, 150), (8, 4, 150)] {
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
    assert!(undecided < 20, "{undecided} histories of 450 were too entangled to be decided");
    assert!(overlaps > 50, "{overlaps} calls overlapped");
    assert!(refused > 300, "{refused} false histories were refused");
}
