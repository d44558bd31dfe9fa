//! Crashes during recovery: an undo log whose rollback is right only if nothing interrupts it.
#![allow(clippy::unwrap_used)]

use terrace_machine::{Crashable, Explorer};
use terrace_memory::{Domain, Laboratory, Memory};

/// Two accounts whose sum stays 100, in two lines.
const ACCOUNTS: [u64; 2] = [64, 128];
/// The undo log: whether it holds, and both balances as they were.
const LOG: u64 = 0;

fn transfer(m: &Crashable, amount: u64) {
    let before = ACCOUNTS.map(|account| m.load(account));
    m.store(LOG + 8, before[0]);
    m.store(LOG + 16, before[1]);
    m.persist(LOG, 24);
    m.store(LOG, 1);
    m.persist(LOG, 8);
    m.store(ACCOUNTS[0], before[0] - amount);
    m.write_back(ACCOUNTS[0], 8);
    m.store(ACCOUNTS[1], before[1] + amount);
    m.persist(ACCOUNTS[1], 8);
    m.store(LOG, 0);
    m.persist(LOG, 8);
}

/// Rolls back. `careful`: the log is given up only when the balances are durable.
fn roll_back(m: &Crashable, careful: bool) {
    if m.load(LOG) == 0 {
        return;
    }
    for (at, account) in ACCOUNTS.iter().enumerate() {
        m.store(*account, m.load(LOG + 8 + 8 * at as u64));
        m.write_back(*account, 8);
    }
    if careful {
        m.fence();
    }
    m.store(LOG, 0);
    m.persist(LOG, 8);
}

fn bank(crashes: usize, careful: bool) -> Explorer {
    Explorer::<()>::new(Domain::Adr, 4096)
        .crashes(crashes)
        .setup(|m| m.store(ACCOUNTS[0], 100))
        .thread(|m, _| {
            transfer(m, 30);
            transfer(m, 5);
        })
        .recover(move |m| roll_back(m, careful))
        .check(|m, _| {
            let sum: u64 = ACCOUNTS.iter().map(|account| m.load(*account)).sum();
            if sum == 100 { Ok(()) } else { Err(format!("the sum is {sum}")) }
        })
}

#[test]
fn a_careless_rollback_fails_only_at_the_second_crash() {
    let once = bank(1, false).exhaustive(100_000).assert_sound();
    assert!(once.exhausted);
    let explorer = bank(2, false);
    let failure = explorer.exhaustive(100_000).expect_failure();
    assert_eq!(failure.trace.matches("CRASH").count(), 2, "{failure}");
    assert!(failure.trace.contains("recovery  store 0x0 <- 0"), "{failure}");
    assert_eq!(explorer.replay(&failure.replay).unwrap().unwrap().trace, failure.trace);
    assert!(bank(1, false).replay(&failure.replay).is_err(), "it needs two crashes");
    bank(2, false).sampled(200_000, 1).expect_failure();
}

#[test]
fn a_careful_rollback_survives_three_crashes() {
    let mut before = 0;
    for crashes in 1..=3 {
        let report = bank(crashes, true).exhaustive(1_000_000).assert_sound();
        assert!(report.exhausted && report.states > before, "{report}");
        before = report.states;
    }
    bank(3, true).sampled(20_000, 2).assert_sound();
}

/// What was never written is known to be zero, at every level, and nothing else is.
#[test]
fn memory_that_nothing_was_stored_to_is_known_to_be_zero() {
    const PAGE: u64 = 4096;
    let report = Explorer::<()>::new(Domain::Adr, 4 * PAGE)
        .thread(|m, _| {
            m.store(2 * PAGE + 64, 0);
            assert_eq!(m.zeros(8, 4 * PAGE - 8), 4 * PAGE - 8, "zeros change nothing");
            m.store(2 * PAGE + 64, 7);
            m.persist(2 * PAGE + 64, 8);
        })
        .recover(|m| m.store(PAGE, 1))
        .check(|m, _| {
            let found = [m.zeros(0, 4 * PAGE), m.zeros(PAGE, PAGE), m.zeros(3 * PAGE, 100)];
            if found != [PAGE, 0, 100] {
                return Err(format!("known to be zero: {found:?}"));
            }
            let stored = m.load(2 * PAGE + 64);
            let known = m.zeros(2 * PAGE, PAGE) > 0;
            if stored != 0 && known { Err("a stored word passed for zero".into()) } else { Ok(()) }
        })
        .crashes(2)
        .exhaustive(1000)
        .assert_sound();
    assert!(report.exhausted && report.states > 2, "{report}");
}
