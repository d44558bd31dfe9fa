//! Negative controls: each thing that orders stores is taken away in turn, and the explorer objects.
//! Beside each stands the version that has it, explored to the end without an objection; an alarm
//! that always rings is worth as little as one that never does.
#![allow(clippy::unwrap_used)]

use terrace_machine::{Crashable, Explorer};
use terrace_memory::{Domain, Memory};

const FLAG: u64 = 0;
/// In the flag's line.
const NEAR: u64 = 8;
/// In another line of the flag's page.
const FAR: u64 = 256;
/// On another page.
const AWAY: u64 = 8192;

type Body = fn(&Crashable);

/// Whoever sees the flag sees 7 in each of `words`.
fn publishes(domain: Domain, words: &'static [u64], body: Body) -> Explorer {
    Explorer::<()>::new(domain, 16384).thread(move |m, _| body(m)).check(move |m, _| {
        if m.load(FLAG) == 0 {
            return Ok(());
        }
        match words.iter().find(|word| m.load(**word) != 7) {
            Some(word) => Err(format!("the flag is set and {word:#x} is {}", m.load(*word))),
            None => Ok(()),
        }
    })
}

fn holds(domain: Domain, words: &'static [u64], body: Body) {
    let report = publishes(domain, words, body).exhaustive(100_000).assert_sound();
    assert!(report.exhausted && report.states > 1, "{report}");
}

fn breaks(domain: Domain, words: &'static [u64], body: Body) -> String {
    let explorer = publishes(domain, words, body);
    let failure = explorer.exhaustive(100_000).expect_failure();
    let again = explorer.replay(&failure.replay).unwrap().expect("fails again");
    assert_eq!((&again.message, &again.trace), (&failure.message, &failure.trace));
    let drawn = explorer.sampled(1000, 1).expect_failure();
    assert_eq!(drawn.message, failure.message, "sampling finds it too");
    failure.trace
}

#[test]
fn a_write_back_and_a_fence_are_needed_under_adr() {
    holds(Domain::Adr, &[FAR], |m| {
        m.store(FAR, 7);
        m.persist(FAR, 8);
        m.store(FLAG, 1);
    });
    let trace = breaks(Domain::Adr, &[FAR], |m| {
        m.store(FAR, 7);
        m.fence();
        m.store(FLAG, 1);
    });
    assert!(trace.contains("line 0x100 lost its last store: 0x100 is 0, not 7"), "{trace}");
    breaks(Domain::Adr, &[FAR], |m| {
        m.store(FAR, 7);
        m.write_back(FAR, 8);
        m.store(FLAG, 1);
        m.fence();
    });
    // Written back too early: the store came after.
    breaks(Domain::Adr, &[FAR], |m| {
        m.write_back(FAR, 8);
        m.store(FAR, 7);
        m.fence();
        m.store(FLAG, 1);
    });
    // A compare-exchange is no fence.
    breaks(Domain::Adr, &[FAR], |m| {
        m.store(FAR, 7);
        m.write_back(FAR, 8);
        m.compare_exchange(FLAG, 0, 1).unwrap();
    });
}

#[test]
fn stores_of_one_line_keep_their_order() {
    holds(Domain::Adr, &[NEAR], |m| {
        m.store(NEAR, 7);
        m.store(FLAG, 1);
    });
    breaks(Domain::Adr, &[NEAR], |m| {
        m.store(FLAG, 1);
        m.store(NEAR, 7);
    });
}

#[test]
fn a_plain_write_is_torn() {
    let both = |m: &Crashable| {
        let mut bytes = [0; 16];
        (bytes[0], bytes[8]) = (1, 7);
        m.write(FLAG, &bytes);
        m.persist(FLAG, 16);
    };
    let trace = breaks(Domain::Adr, &[NEAR], both);
    assert!(trace.contains("line 0x0 is torn: 0x8 is 0, not 7"), "{trace}");
    // Persistent caches do not help: the write itself is cut.
    breaks(Domain::Eadr, &[NEAR], both);
}

#[test]
fn streams_need_a_fence_everywhere() {
    let unfenced = |m: &Crashable| {
        m.stream(FAR, &7u64.to_le_bytes());
        m.store(FLAG, 1);
    };
    let written_back = |m: &Crashable| {
        m.stream(FAR, &7u64.to_le_bytes());
        m.write_back(FAR, 8);
        m.store(FLAG, 1);
    };
    let fenced = |m: &Crashable| {
        m.stream(FAR, &7u64.to_le_bytes());
        m.fence();
        m.store(FLAG, 1);
    };
    for domain in [Domain::Adr, Domain::Eadr] {
        breaks(domain, &[FAR], unfenced);
        breaks(domain, &[FAR], written_back);
        holds(domain, &[FAR], fenced);
    }
    // Not even with the flag in the same line.
    breaks(Domain::Adr, &[NEAR], |m| {
        m.stream(NEAR, &7u64.to_le_bytes());
        m.store(FLAG, 1);
    });
}

#[test]
fn persistent_caches_need_no_write_back() {
    let plain = |m: &Crashable| {
        m.store(FAR, 7);
        m.store(FLAG, 1);
    };
    let swapped = |m: &Crashable| {
        m.store(FLAG, 1);
        m.store(FAR, 7);
    };
    holds(Domain::Eadr, &[FAR], plain);
    breaks(Domain::Eadr, &[FAR], swapped);
    breaks(Domain::Adr, &[FAR], plain);
}

#[test]
fn pages_persist_in_any_subset_until_a_sync() {
    let unsynced = |m: &Crashable| {
        m.store(AWAY, 7);
        m.persist(AWAY, 8);
        m.write_back(AWAY, 8);
        m.fence();
        m.store(FLAG, 1);
    };
    let trace = breaks(Domain::PageCache, &[AWAY], unsynced);
    assert!(trace.contains("page 0x2000 lost its last store"), "{trace}");
    holds(Domain::PageCache, &[AWAY], |m| {
        m.store(AWAY, 7);
        m.sync();
        m.store(FLAG, 1);
    });
    // One page is written as it was at some moment.
    holds(Domain::PageCache, &[FAR], |m| {
        m.store(FAR, 7);
        m.store(FLAG, 1);
    });
    // Any subset: the first and the third of three pages, too.
    breaks(Domain::PageCache, &[4096], |m| {
        m.store(AWAY, 7);
        m.store(4096, 7);
        m.store(FLAG, 1);
    });
}

#[test]
fn acknowledging_before_the_fence_is_reported() {
    let acknowledges = |domain, early: bool| {
        Explorer::new(domain, 4096)
            .thread(move |m, log| {
                m.store(FAR, 7);
                if early {
                    log.note("stored");
                }
                m.persist(FAR, 8);
                m.sync();
                log.note("stored");
            })
            .check(|m, notes| match m.load(FAR) {
                0 if !notes.is_empty() => Err("acknowledged and lost".into()),
                _ => Ok(()),
            })
    };
    for domain in [Domain::Adr, Domain::PageCache] {
        acknowledges(domain, false).exhaustive(1000).assert_sound();
        acknowledges(domain, true).exhaustive(1000).expect_failure();
    }
    acknowledges(Domain::Eadr, true).exhaustive(1000).assert_sound();
    acknowledges(Domain::None, false).exhaustive(1000).expect_failure();
}
