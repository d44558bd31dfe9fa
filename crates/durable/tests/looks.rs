//! What may be seen of an item without its key's lock: while others may overwrite it, its key alone. Readers used to
//! borrow all of it, bytes that another thread was storing to among them. And locations that name nothing are refused,
//! where looking at them ended the process.

use std::path::Path;
use std::sync::Arc;
use terrace_durable::item::NewItem;
use terrace_durable::logs::{Logs, MOST_OVERWRITTEN_BYTES};
use terrace_durable::sections::Changes;
use terrace_durable::superblock::Rule;
use terrace_durable::values::{ItemCopy, Room};
use terrace_durable::{Access, Medium, MediumSpec, NoItem, Seen, Values};
use terrace_memory::{Budget, Domain};

const SEGMENT: u64 = 4 << 20;
const CAPACITY: u64 = 1 << 30;

fn logs(dir: &Path) -> Logs {
    let path = dir.join("values.log");
    let (domain, access) = (Domain::PageCache, Access::Write);
    let spec = MediumSpec { path, domain, dax: false, capacity_bytes: CAPACITY, access };
    let medium = Medium::open(&spec).expect("open");
    let logs = Logs::open(medium, 1, &Arc::new(Budget::new(1 << 30))).expect("head");
    logs.recover(1, &|_, _, _| {}).expect("a new file");
    logs.set_rule(Rule::Bounded).expect("rule");
    logs
}

fn put(logs: &Logs, new: &NewItem<'_>) -> u64 {
    let mut appender = logs.appender(1, new.item_bytes(), Room::Ordinary).expect("room");
    appender.append(new, &mut Changes::new())
}

fn new<'a>(key: &'a [u8], value: &'a [u8]) -> NewItem<'a> {
    NewItem { key, value, version: 1, expires_at_ms: None, tombstone: false }
}

#[test]
fn an_overwritable_item_lends_its_key_and_an_immutable_one_lends_all() {
    let dir = tempfile::tempdir().expect("directory");
    let logs = logs(dir.path());
    let large = [7; MOST_OVERWRITTEN_BYTES];
    let [hot, gone, long, timed] = [
        new(b"hot", b"value"),
        NewItem { tombstone: true, ..new(b"gone", &[0; 8]) },
        new(b"long", &large),
        NewItem { expires_at_ms: Some(u64::MAX), ..new(b"timed", b"value") },
    ]
    .map(|item| put(&logs, &item));
    let guard = crossbeam_epoch::pin();
    let mut copy = ItemCopy::new();
    assert!(logs.copy_item(hot, &mut copy), "it may be overwritten now");
    assert_eq!(copy.item().value, b"value");
    for seen in [logs.seen(hot, &guard), logs.seen_again(hot, &guard)] {
        assert!(matches!(seen, Ok(Seen::Changing(b"hot"))), "{seen:?}");
    }
    let found = logs.seen_if_key(hot, b"hot", &guard);
    assert!(matches!(found, Ok(Some(Seen::Changing(_)))), "{found:?}");
    assert!(matches!(logs.seen_if_key(hot, b"hat", &guard), Ok(None)));
    for at in [gone, long, timed] {
        let seen = logs.seen(at, &guard);
        assert!(matches!(seen, Ok(Seen::AtRest(_))), "it is never overwritten: {seen:?}");
    }
    logs.freeze(&[(hot / SEGMENT) as u32]);
    let at_rest = logs.seen(hot, &guard).expect("an item").at_rest().expect("frozen");
    assert_eq!((at_rest.key, at_rest.value), (&b"hot"[..], &b"value"[..]));
    assert!(!logs.copy_item(hot, &mut copy), "nobody needs a copy");
}

#[test]
fn locations_that_name_nothing_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let logs = logs(dir.path());
    put(&logs, &new(b"key", b"value"));
    let guard = crossbeam_epoch::pin();
    // Address space that no log has taken, the end of it, and what lies behind.
    for at in [CAPACITY / 2, CAPACITY - 1, CAPACITY, 7 * CAPACITY, u64::MAX >> 16] {
        assert_eq!(logs.seen(at, &guard).err(), Some(NoItem::Invalid(at)));
        assert_eq!(logs.seen_if_key(at, b"key", &guard).err(), Some(NoItem::Invalid(at)));
        assert!(!Values::copy_item(&logs, at, &mut ItemCopy::new()));
    }
}

/// The numbers of logs come from a survey, and what they stand for may have changed since.
#[test]
fn a_log_is_visited_and_freed_only_while_it_is_claimed_and_frozen() {
    let dir = tempfile::tempdir().expect("directory");
    let logs = logs(dir.path());
    let log = (put(&logs, &new(b"key", b"value")) / SEGMENT) as u32;
    let guard = crossbeam_epoch::pin();
    let is_refused =
        |what: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(what)).is_err();
    let visit = || assert!(logs.each_item(log, &guard, |_, _, _| ()).is_ok());
    let free = || drop(logs.free(&[log]));
    assert!(is_refused(&visit) && is_refused(&free), "it is open");
    logs.seal_open();
    assert!(logs.claim(log) && !logs.claim(log));
    assert!(is_refused(&visit) && is_refused(&free), "items in it may be overwritten");
    logs.freeze(&[log]);
    let mut found = Vec::new();
    logs.each_item(log, &guard, |_, item, _| found.push(item)).expect("whole");
    logs.free(&[log]).expect("free").reuse_after_readers(&guard);
    assert!(is_refused(&visit) && is_refused(&free), "it is free");
    assert!(!logs.each_key(log, &guard, |_| ()));
    // Nobody uses the log again before this reader has gone.
    assert_eq!((found[0].key, found[0].value), (&b"key"[..], &b"value"[..]));
}
