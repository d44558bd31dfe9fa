//! A crash during recovery is its own case: recovery writes (it closes open logs and frees what
//! does not count), and may be cut off after any of those writes, with any sectors of them on the
//! medium. What the next recovery finds must be the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_durable::item::NewItem;
use terrace_durable::logs::Logs;
use terrace_durable::medium::Event;
use terrace_durable::sections::Changes;
use terrace_durable::superblock::Rule;
use terrace_durable::values::Room;
use terrace_durable::{Access, Medium, MediumSpec};
use terrace_memory::{Budget, Domain};

fn medium(dir: &Path) -> Medium {
    let path = dir.join("values.log");
    Medium::open(&MediumSpec {
        path,
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 1 << 30,
        access: Access::Write,
    })
    .expect("open")
}

/// Opens and recovers; newest version of each key, and the events recovery caused.
fn recover(dir: &Path) -> (Logs, BTreeMap<Vec<u8>, u64>, Vec<Event>) {
    let medium = medium(dir);
    medium.start_trace();
    let logs = Logs::open(medium, 2, &Arc::new(Budget::new(1 << 30))).expect("head");
    let newest = Mutex::new(BTreeMap::new());
    logs.recover(2, &|_, item, _| {
        let mut newest = newest.lock().expect("lock");
        let version = newest.entry(item.key.to_vec()).or_insert(0);
        *version = (*version).max(item.version);
    })
    .expect("recover");
    let events = logs.medium().trace();
    (logs, newest.into_inner().expect("lock"), events)
}

fn append(logs: &Logs, writer: usize, key: u64, version: u64, bytes: usize) {
    let (key, value) = (key.to_be_bytes(), vec![version as u8; bytes]);
    let new = NewItem { key: &key, value: &value, version, expires_at_ms: None, tombstone: false };
    logs.appender(writer, new.item_bytes(), Room::Ordinary)
        .expect("room")
        .append(&new, &mut Changes::new());
}

/// Each of the file's sectors written by the first `cut` events (and, torn, the next one), chosen
/// by `pick`; what was synced is there.
fn apply(image: &mut Vec<u8>, events: &[Event], cut: usize, pick: &mut impl FnMut() -> bool) {
    let synced = Event::synced(&events[..cut]);
    for (i, event) in events.iter().enumerate().take(cut + 1) {
        match event {
            Event::Grow(to) if i < synced || pick() => {
                image.resize(image.len().max(*to as usize), 0)
            }
            Event::Write { at, bytes, durable } => {
                image.resize(image.len().max(*at as usize + bytes.len()), 0);
                for (n, sector) in bytes.chunks(512).enumerate() {
                    if i < synced || (*durable && i < cut) || pick() {
                        let from = *at as usize + n * 512;
                        image[from..from + sector.len()].copy_from_slice(sector);
                    }
                }
            }
            Event::Release { at, bytes } if i < synced || pick() => {
                Event::release(image, *at, *bytes);
            }
            Event::Grow(_) | Event::Release { .. } | Event::Sync { .. } => {}
        }
    }
}

fn crash_everywhere(rule: Rule) {
    let dir = tempfile::tempdir().expect("directory");
    let (logs, ..) = recover(dir.path());
    logs.set_rule(rule).expect("rule");
    for round in 1..400u64 {
        append(&logs, 1 + (round % 2) as usize, round % 50, round, 20_000);
        if round == 150 {
            // One writer has begun its next log and written nothing to it: recovery frees that log.
            logs.seal_open();
            drop(logs.appender(1, 100, Room::Ordinary).expect("room"));
            logs.flush_all().expect("cut");
        }
    }
    let at_cut = logs.medium().trace_length();
    let events = logs.medium().trace();
    drop(logs);
    let mut state = 77u64;
    let mut pick = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 63 == 0
    };
    // Without a commit nothing after the checkpoint was handed over: the first crash keeps exactly the
    // checkpoint (Bounded) or whatever of the unsynced sectors verifies (All).
    let mut first = Vec::new();
    apply(&mut first, &events, at_cut, &mut pick);
    let scratch = tempfile::tempdir().expect("directory");
    std::fs::write(scratch.path().join("values.log"), &first).expect("image");
    let (logs, expected, recovery) = recover(scratch.path());
    drop(logs);
    assert!(
        !expected.is_empty() && recovery.len() >= 3,
        "{} keys, {} events",
        expected.len(),
        recovery.len()
    );
    for cut in 0..recovery.len() {
        for _ in 0..4 {
            let mut image = first.clone();
            apply(&mut image, &recovery, cut, &mut pick);
            let again = tempfile::tempdir().expect("directory");
            std::fs::write(again.path().join("values.log"), &image).expect("image");
            let (_, found, _) = recover(again.path());
            assert!(
                found == expected,
                "{rule:?}: recovery cut off after {cut} of {} events",
                recovery.len()
            );
        }
    }
}

#[test]
fn a_crash_in_recovery_changes_nothing_under_the_rule_all() {
    crash_everywhere(Rule::All);
}

#[test]
fn a_crash_in_recovery_changes_nothing_under_the_rule_bounded() {
    crash_everywhere(Rule::Bounded);
}
