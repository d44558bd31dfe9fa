//! Making a failure small costs a bounded amount of work, and finds what is small all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_memory::Domain;

/// Lines that nobody ever writes back: any image of them may be left, 4,096 at a time.
const NOISE: u64 = 12;
const STEPS: u64 = 40;
/// The step in which the writer publishes before it makes durable.
const CARELESS: u64 = 25;
const PUBLISHED: u64 = 0;
const LINE: u64 = 64;

fn noise(m: &Crashable, thread: u64, step: u64) {
    let line = 1024 + LINE * (NOISE * thread + step % NOISE);
    m.store(line, step + 1);
    m.store(512 + LINE * thread, step);
    m.persist(512 + LINE * thread, 8);
}

fn writer(m: &Crashable, _: &Log<u64>) {
    for step in 1..=STEPS {
        noise(m, 0, step);
        m.store(PUBLISHED, step);
        if step != CARELESS {
            m.persist(PUBLISHED, 8);
        }
    }
}

/// Tells what it sees; makes it durable before, but for the careless step.
fn reader(m: &Crashable, log: &Log<u64>) {
    for step in 1..=STEPS {
        noise(m, 1, step);
        let seen = m.load(PUBLISHED);
        if seen != CARELESS {
            m.persist(PUBLISHED, 8);
        }
        log.note(seen);
    }
}

/// A failure of two threads on a map, a store forgotten in one bucket, took more than 280 s to be reported:
/// every question of the shrinking had a bound of its own, 400 times 50,000 states, and every one
/// was about all images of all crash points.
#[test]
fn a_failure_among_many_images_is_reported_soon_and_small() {
    let states = Arc::new(AtomicU64::new(0));
    let count = states.clone();
    let explorer =
        Explorer::new(Domain::Adr, 8192).thread(writer).thread(reader).check(move |m, notes| {
            count.fetch_add(1, Relaxed);
            // Everything is read, and so decided.
            (0..2 * NOISE).for_each(|line| assert!(m.load(1024 + LINE * line) <= STEPS + 1));
            let seen = notes.iter().map(|Noted { event, .. }| *event).max().unwrap_or(0);
            match m.load(PUBLISHED) {
                left if left < seen => Err(format!("{seen} was seen, {left} is left")),
                _ => Ok(()),
            }
        });
    let report = explorer.sampled(1_000_000, 3);
    let met = report.states;
    let failure = report.expect_failure();
    let shrinking = states.load(Relaxed) - met;
    assert!(shrinking < 60_000, "{shrinking} states to make a failure small");
    assert_eq!(failure.message, format!("{CARELESS} was seen, {} is left", CARELESS - 1));
    // The writer up to its mistake, and the reader's look: two stretches and no more.
    let (schedule, _) = failure.replay.split_once('@').expect("a crash");
    assert!(schedule.split(',').count() <= 3, "{failure}");
    assert!(failure.trace.contains("line 0x0 lost its last store"), "{failure}");
    let again = explorer.replay(&failure.replay).expect("a case").expect("fails again");
    assert_eq!(again.message, failure.message);
}
