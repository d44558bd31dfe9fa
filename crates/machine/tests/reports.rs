//! What a report promises: small cases, exact replays, caps that are admitted, equal runs.
#![allow(clippy::unwrap_used)]

use terrace_machine::{Crashable, Explorer, Schedule};
use terrace_memory::Domain;

/// Forty careful records, one careless one in their midst (number 20), each in its line.
fn records() -> Explorer {
    Explorer::<()>::new(Domain::Adr, 8192)
        .thread(|m, _| {
            for record in 1..=40u64 {
                m.write(64 * record, &[record as u8; 16]);
                if record == 20 {
                    m.write_back(64 * record, 16);
                } else {
                    m.persist(64 * record, 16);
                }
                m.store(0, record);
                m.persist(0, 8);
            }
        })
        .check(|m: &Crashable, _| {
            let count = m.load(0);
            for record in 1..=count {
                let mut bytes = [0; 16];
                m.read(64 * record, &mut bytes);
                if bytes != [record as u8; 16] {
                    return Err(format!("record {record} of {count} is {bytes:?}"));
                }
            }
            Ok(())
        })
}

#[test]
fn a_case_is_as_small_as_it_can_be() {
    // 19 records of 6 events, then write, write-back and the store that publishes; everything that
    // the check reads is newest but for one half of record 20.
    for report in [records().exhaustive(100_000), records().sampled(100_000, 9)] {
        let failure = report.expect_failure();
        assert!(failure.replay.ends_with("@117:0.0.1"), "{failure}");
        let lines: Vec<_> = failure.trace.lines().collect();
        let at = lines.iter().position(|line| *line == "CRASH").unwrap();
        assert_eq!(lines[at - 1], "thread 0  store 0x0 <- 20");
        assert!(lines[at + 1].starts_with("  line 0x500 "), "{failure}");
        assert_eq!((lines.len(), lines[0]), (at + 2, "(57 earlier events)"), "{failure}");
    }
}

#[test]
fn the_same_seed_is_the_same_exploration() {
    let sound = |seed| {
        let write = |m: &Crashable, log: &terrace_machine::Log<u64>| {
            let line = 64 * (1 + log.thread() as u64);
            for value in 1..5 {
                m.store(line, value);
                m.persist(line, 8);
                m.store(8 * log.thread() as u64, value);

                log.note(value);
            }
        };
        Explorer::new(Domain::Adr, 4096)
            .schedule(if seed % 2 == 0 { Schedule::Random } else { Schedule::Pct { changes: 3 } })
            .thread(write)
            .thread(write)
            .check(|m, _| {
                [0, 8, 64, 128].iter().for_each(|word| {
                    m.load(*word);
                });
                Ok(())
            })
            .sampled(3000, seed)
            .assert_sound()
    };
    for seed in 0..4 {
        let (first, again) = (sound(seed), sound(seed));
        assert_eq!((first.hash, first.states), (again.hash, again.states), "seed {seed}");
        assert_ne!(first.hash, sound(seed + 4).hash, "seed {seed}");
    }
    let (first, again) = (records().exhaustive(100), records().exhaustive(100));
    assert_eq!((first.hash, first.failure), (again.hash, again.failure));
}

#[test]
fn a_cap_is_admitted() {
    let capped = records().exhaustive(10);
    assert_eq!((capped.states, capped.exhausted), (10, false));
    assert!(capped.failure.is_none());
    assert!(capped.to_string().contains("not exhausted"));
}

/// 340 images were drawn 46,000 times.
#[test]
fn what_one_thread_may_leave_is_drawn_once() {
    let stores = |lines: u64| {
        Explorer::<()>::new(Domain::Adr, 4096)
            .thread(move |m, _| {
                m.store(0, 1);
                m.persist(0, 8);
                (1..=lines).for_each(|line| m.store(64 * line, 1));
            })
            .check(|m, _| {
                (0..=10).for_each(|line| {
                    m.load(64 * line);
                });
                Ok(())
            })
    };
    let (all, drawn) = (stores(5).exhaustive(1000), stores(5).sampled(1000, 1));
    assert_eq!((all.states, all.exhausted), (2 + 32, true));
    assert_eq!((drawn.states, drawn.images, drawn.exhausted), (34, 34.0, true));
    assert_eq!(drawn.crash_points, all.crash_points);
    // Of two points one has more than its share.
    let some = stores(10).sampled(1000, 1);
    assert_eq!((some.states, some.exhausted), (1000, false));
    let few = stores(5).sampled(8, 1);
    assert_eq!((few.states, few.exhausted), (8, false));
}

#[test]
fn replays_are_checked() {
    for wrong in ["", "0*3@", "0@1:x", "0@1:0@2:0"] {
        let result = records().replay(wrong);
        match wrong {
            // Nothing was asked, and nothing fails.
            "" => assert_eq!(result, Ok(None)),
            _ => assert!(result.is_err(), "{wrong:?}: {result:?}"),
        }
    }
    assert_eq!(records().replay("0*200@1:0").unwrap(), None);
}

#[test]
fn a_nondeterministic_check_is_reported() {
    let calls = std::sync::atomic::AtomicU64::new(0);
    let report = Explorer::<()>::new(Domain::Adr, 4096)
        .thread(|m, _| m.write(0, &[1; 128]))
        .check(move |m, _| {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            // Every second execution begins with another line.
            for line in [call % 2, 1 - call % 2] {
                m.load(64 * line);
            }
            Ok(())
        })
        .exhaustive(1000);
    let failure = report.expect_failure();
    assert!(failure.message.contains("not deterministic"), "{failure}");
}
