//! Blocks of a log are given back only when nothing in them is needed any more, whatever a power cut leaves of the
//! rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_durable::item::NewItem;
use terrace_durable::logs::{Logs, State};
use terrace_durable::medium::Event;
use terrace_durable::sections::Changes;
use terrace_durable::superblock::Rule;
use terrace_durable::values::Room;
use terrace_durable::{Access, Error, Medium, MediumSpec};
use terrace_memory::{Budget, Domain};

const VALUE_BYTES: usize = 1 << 20;
const KEYS: u64 = 6;

fn open(dir: &Path) -> (Logs, BTreeMap<u64, u64>) {
    let (path, domain, access) = (dir.join("values.log"), Domain::PageCache, Access::Write);
    let spec = MediumSpec { path, domain, dax: false, capacity_bytes: 1 << 30, access };
    let medium = Medium::open(&spec).expect("open");
    let logs = Logs::open(medium, 1, &Arc::new(Budget::new(1 << 30))).expect("head");
    let newest = Mutex::new(BTreeMap::new());
    let visit = |_, item: &terrace_durable::item::Item<'_>, _| {
        let key = u64::from_be_bytes(item.key.try_into().expect("eight bytes"));
        let mut newest = newest.lock().expect("no panic");
        let version = newest.entry(key).or_insert(0);
        *version = item.version.max(*version);
    };
    logs.recover(1, &visit).expect("no damage");
    (logs, newest.into_inner().expect("no panic"))
}

fn put(logs: &Logs, key: u64, version: u64) {
    try_put(logs, key, &vec![version as u8; VALUE_BYTES], version, None).expect("room");
}

/// The same where there may be no room, with the place of the value that it replaces; its own.
fn try_put(
    logs: &Logs,
    key: u64,
    value: &[u8],
    version: u64,
    before: Option<u64>,
) -> Result<u64, Error> {
    let key = &key.to_be_bytes()[..];
    let new = NewItem { key, value, version, expires_at_ms: None, tombstone: false };
    let mut appender = logs.appender(1, new.item_bytes(), Room::Ordinary)?;
    let mut changes = Changes::new();
    let place = appender.append(&new, &mut changes);
    before.into_iter().for_each(|place| appender.retire(place, new.item_bytes(), &mut changes));
    Ok(place)
}

/// A file that is as large as it may be grows no further while there is something to collect: whoever would make it
/// larger waits. If the collector finds nothing that it could free, nobody is refused with memory to spare.
#[test]
fn a_file_that_is_as_large_as_it_may_be_grows_only_if_it_is_let() {
    let dir = tempfile::tempdir().expect("directory");
    let (logs, _) = open(dir.path());
    // Seven in a log, of which three are soon dead: less than half of it.
    let value = vec![7; VALUE_BYTES / 2];
    let (mut places, mut next) = ([None; 3], 0);
    let mut until_refused = || {
        while next < 7 * 100 {
            logs.recount_backlog();
            let at = next % 7;
            let hot = places.get(at as usize).copied();
            let key = if hot.is_some() { at } else { 1000 + next };
            match try_put(&logs, key, &value, 1 + next, hot.flatten()) {
                Ok(place) if hot.is_some() => places[at as usize] = Some(place),
                Ok(_) => {}
                Err(refused) => {
                    assert!(matches!(refused, Error::NoRoom { .. }), "{refused}");
                    return logs.total_segments();
                }
            }
            next += 1;
        }
        panic!("never refused");
    };
    let most = until_refused();
    assert_eq!(until_refused(), most, "still refused");
    assert!(!logs.has_room() && logs.has_backlog());
    assert!(logs.let_grow() && logs.has_room(), "there is memory");
    let (value, key) = (&value, 5000);
    try_put(&logs, key, value, 5000, None).expect("it may grow");
    assert!(logs.total_segments() > most);
    assert!(until_refused() >= most, "until it is counted again");
}

/// Keys that a power cut loses, at whatever moment, while logs are freed and given back whose items were all written
/// again; with `is_flushed`, durably before.
fn lost(is_flushed: bool) -> usize {
    let dir = tempfile::tempdir().expect("directory");
    let (logs, _) = open(dir.path());
    logs.set_rule(Rule::All).expect("rule");
    for version in 1..4 {
        (0..KEYS).for_each(|key| put(&logs, key, version));
    }
    logs.seal_open();
    logs.flush_all().expect("durable");
    let base = std::fs::read(dir.path().join("values.log")).expect("the file");
    logs.medium().start_trace();
    (0..KEYS).for_each(|key| put(&logs, key, 4));
    if is_flushed {
        logs.flush_all().expect("durable");
    }
    let is_old = |segment: &u32| (u64::from(*segment) * (4 << 20)) < base.len() as u64;
    let sealed = logs.survey().into_iter().filter(|view| view.state == State::Sealed);
    let dead: Vec<u32> = sealed.map(|view| view.number).filter(is_old).collect();
    assert!(dead.iter().all(|segment| logs.claim(*segment)) && dead.len() > 3);
    logs.freeze(&dead);
    logs.free(&dead).expect("freed").reuse_after_readers(&crossbeam_epoch::pin());
    while logs.waiting_segments() > 0 {
        crossbeam_epoch::pin().flush();
    }
    logs.release_free(0).expect("given back");
    let events = logs.medium().trace();
    assert!(events.iter().any(|event| matches!(event, Event::Release { .. })));
    let lost_after = |cut: usize| {
        let after = tempfile::tempdir().expect("directory");
        let image = Event::least_left(&base, &events[..cut]);
        std::fs::write(after.path().join("values.log"), image).expect("image");
        let (_, newest) = open(after.path());
        (0..KEYS).filter(|key| newest.get(key).is_none_or(|version| *version < 3)).count()
    };
    (0..=events.len()).map(lost_after).max().unwrap_or(0)
}

#[test]
fn blocks_are_given_back_when_a_power_cut_no_longer_needs_them() {
    assert_eq!(lost(true), 0);
    assert!(lost(false) > 0, "the alarm itself is tested");
}
