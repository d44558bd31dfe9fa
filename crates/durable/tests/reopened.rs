//! What an opening must know again, or a map that is opened anew costs more than one that went on.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use terrace_durable::item::NewItem;
use terrace_durable::logs::{Logs, State};
use terrace_durable::sections::Changes;
use terrace_durable::slabs::Slabs;
use terrace_durable::superblock::Rule;
use terrace_durable::values::Room;
use terrace_durable::{Access, Medium, MediumSpec};
use terrace_memory::{Budget, Domain};

const SEGMENT: u64 = 4 << 20;
const VALUE_BYTES: usize = 512 << 10;

fn medium(dir: &Path, domain: Domain) -> Medium {
    let (path, access) = (dir.join("values"), Access::Write);
    let spec = MediumSpec { path, domain, dax: false, capacity_bytes: 1 << 30, access };
    Medium::open(&spec).expect("open")
}

fn logs(dir: &Path, domain: Domain) -> Logs {
    let medium = medium(dir, domain);
    let logs = Logs::open(medium, 2, &Arc::new(Budget::new(1 << 30))).expect("head");
    logs.recover(1, &|_, _, _| {}).expect("recover");
    logs.set_rule(Rule::All).expect("rule");
    logs
}

/// So many full logs of a writer, in each of which an item is dead.
fn fill(logs: &Logs, writer: usize, segments: usize) {
    let value = vec![7; VALUE_BYTES];
    for number in 0..segments * SEGMENT as usize / VALUE_BYTES {
        let key = (number as u64).to_be_bytes();
        let (key, value) = (&key[..], &value[..]);
        let new = NewItem { key, value, version: 1, expires_at_ms: None, tombstone: false };
        let mut appender = logs.appender(writer, new.item_bytes(), Room::Ordinary).expect("room");
        let location = appender.append(&new, &mut Changes::new());
        // A part of each log, so that nobody waits for a collector.
        if number % 8 == 0 {
            logs.supersede(location, new.item_bytes());
        }
    }
}

/// A restart made every log one that might hold older versions of what any other holds: evicting one read them all.
#[test]
fn a_reopened_log_still_knows_which_logs_were_begun_before_it_was_closed() {
    let dir = tempfile::tempdir().expect("directory");
    let before = logs(dir.path(), Domain::None);
    fill(&before, 1, 4);
    fill(&before, 2, 4);
    before.flush_all().expect("flush");
    drop(before);
    let again = logs(dir.path(), Domain::None);
    fill(&again, 1, 2);
    let mut views = again.survey();
    views.retain(|view| view.state == State::Sealed);
    views.sort_by_key(|view| view.sequence);
    assert!(views.len() > 8, "{} logs", views.len());
    let dead: Vec<(u32, u64)> = views.iter().map(|view| (view.number, view.dead_bytes)).collect();
    // Recovery counts nothing as dead here: say so of all, as a map does that finds newer items.
    for (number, dead) in dead {
        if dead == 0 {
            again.supersede(u64::from(number) * SEGMENT + 64, 100);
        }
    }
    let oldest = views[0].number;
    let holding = again.holding_older(&[oldest]).expect("all are closed");
    assert!(
        holding.len() <= 2,
        "of {} logs {holding:?} may hold older items than {oldest}",
        views.len()
    );
    let last_of_before = views[7].number;
    let holding = again.holding_older(&[last_of_before]).expect("all are closed");
    assert!(holding.len() <= 8, "logs of this life hold nothing older: {holding:?}");
}

/// One made logs ready under `sync`, the other gave them back, every second of an idle map.
#[test]
fn logs_that_were_made_ready_are_not_given_back() {
    let dir = tempfile::tempdir().expect("directory");
    let logs = logs(dir.path(), Domain::None);
    logs.prepare(2).expect("ready");
    logs.release_free(0).expect("release");
    let before = logs.medium().traffic();
    for _ in 0..3 {
        logs.prepare(2).expect("ready");
        logs.release_free(0).expect("release");
    }
    assert_eq!(logs.medium().traffic(), before, "an idle map writes nothing");
}

/// Their blocks were given back to the system; a header written there would have met a full disk as a bus error.
#[test]
fn superblocks_that_were_given_back_are_still_so_after_a_restart() {
    let dir = tempfile::tempdir().expect("directory");
    let open = |budget: &Arc<Budget>| {
        let slabs = Slabs::open(medium(dir.path(), Domain::Adr), 1, budget).expect("head");
        slabs.recover(1, &|_, _, _| {}).expect("recover");
        slabs
    };
    let budget = Arc::new(Budget::new(64 << 20));
    let slabs = open(&budget);
    let mut locations = Vec::new();
    for number in 0..24_u64 {
        let (key, value) = (number.to_be_bytes(), vec![1; 900 << 10]);
        let (key, value) = (&key[..], &value[..]);
        let new = NewItem { key, value, version: 1, expires_at_ms: None, tombstone: false };
        let mut slots = slabs.slots(1, 0, Room::Ordinary).expect("writable");
        if !slots.fits(new.item_bytes()) {
            drop(slots);
            slots = slabs.slots(1, new.item_bytes(), Room::Ordinary).expect("room");
            assert!(slots.fits(new.item_bytes()));
        }
        locations.push(slots.write(&new, &mut Changes::new()));
    }
    let most = slabs.total_superblocks();
    for location in &locations {
        slabs.retire(*location, &mut Changes::new());
        slabs.release(*location);
    }
    while slabs.waiting_slots() > 0 {
        crossbeam_epoch::pin().flush();
    }
    slabs.give_back_cached();
    budget.set_limit(8 << 20);
    let released = slabs.release_overdrawn().expect("a medium that can");
    assert!(released >= 2, "{released} of {most}");
    // What was there is not in memory any more, and is not read: zeros would pass for an item without key and value.
    let guard = crossbeam_epoch::pin();
    let away = locations.iter().filter(|location| slabs.item_again(**location, &guard).is_err());
    let away: BTreeSet<_> = away.map(|location| location / SEGMENT).collect();
    assert_eq!(away.len(), released);
    drop(guard);
    drop(slabs);
    let fresh = Arc::new(Budget::new(64 << 20));
    let again = open(&fresh);
    assert_eq!(again.total_superblocks(), most, "the file is as long");
    assert!(fresh.used() < (most - released + 1) as u64 * SEGMENT, "{} bytes", fresh.used());
}
