//! The contract of sessions under `sync`: nothing a session wrote *or saw* is lost once its commit
//! has returned. The reader here commits what it saw; the writer never commits at all.
//!
//! Every state a power cut could leave behind from there on must hold what was seen, or later.

use crate::adversary::{
    Random, cases, image_after, opened, options, recording, value_of, write_of, writes,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_store::{Change, Durability, Map, MapOptions, Session};

/// At event number `at` the reader had committed having seen `key` as of `write`, or absent.
struct Seen {
    at: usize,
    key: u64,
    write: Option<u64>,
    how: &'static str,
    /// Steps of the writer before.
    after: usize,
}

/// What the writer did, one step after the other: wrote number `write`, or deleted.
struct Step {
    key: u64,
    write: Option<u64>,
}

fn number(key: u64, found: Option<Vec<u8>>) -> Option<u64> {
    found.map(|value| write_of(key, &value))
}

/// Looks at `key` in one of the ways there are.
fn look(session: &mut Session, key: u64, way: u64) -> (Option<u64>, &'static str) {
    let name = key.to_be_bytes();
    match way {
        0 => (number(key, session.get(&name, |value| value.bytes.to_vec()).expect("get")), "get"),
        1 => {
            let mut found = None;
            let show = |_: usize, value: Option<terrace_store::Value<'_>>| {
                found = value.map(|v| v.bytes.to_vec())
            };
            session.multi_get(&[&name], show).expect("multi_get");
            (number(key, found), "multi_get")
        }
        2 => {
            let mut found = None;
            let keep = |value: Option<terrace_store::Value<'_>>| {
                found = value.map(|v| v.bytes.to_vec());
                Change::Keep
            };
            session.update(&name, keep).expect("update");
            (number(key, found), "update that keeps")
        }
        3 => {
            let (mut found, mut cursor) = (None, 0);
            loop {
                let show = |shown: &[u8], value: terrace_store::Value<'_>| {
                    if shown == name {
                        found = Some(value.bytes.to_vec());
                    }
                };
                cursor = session.scan(cursor, 10, show).expect("scan");
                if cursor == 0 {
                    return (number(key, found), "scan");
                }
            }
        }
        // These commit by themselves.
        4 => (number(key, session.map().get(&name).expect("get")), "the map's get"),
        _ => {
            let map = session.map().clone();
            let swapped =
                map.compare_and_set(&name, Some(b"never"), Some(b"written")).expect("cas");
            assert!(!swapped);
            (
                number(key, session.get(&name, |value| value.bytes.to_vec()).expect("get")),
                "refused compare-and-set",
            )
        }
    }
}

fn seen_by_a_reader(map: &Map, steps: u64, keys: u64) -> (Vec<Step>, Vec<Seen>) {
    let mut random = Random(21);
    // Two writers: sessions take them in turns.
    let (mut writer, mut reader) = (map.session(), map.session());
    let (mut history, mut seen) = (Vec::new(), Vec::new());
    for write in 0..steps {
        let key = random.below(keys);
        let deleted = random.one_in(4);
        history.push(Step { key, write: (!deleted).then_some(write) });
        if deleted {
            writer.delete(&key.to_be_bytes()).expect("delete");
        } else {
            let bytes = 24 + random.below(30_000) as usize;
            writer.put(&key.to_be_bytes(), &value_of(key, write, bytes), None).expect("put");
        }
        if random.one_in(3) {
            let key = if random.one_in(3) { random.below(keys) } else { key };
            let (found, how) = look(&mut reader, key, random.below(6));
            reader.commit().expect("commit");
            seen.push(Seen {
                at: map.medium().trace_length(),
                key,
                write: found,
                how,
                after: history.len(),
            });
        }
    }
    (history, seen)
}

#[test]
fn though_its_writer_never_committed() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    let base = recording(&map, dir.path());
    let keys = 20;
    let (history, seen) = seen_by_a_reader(&map, 900, keys);
    let events = map.medium().trace();
    let file = crate::adversary::file_now(dir.path());
    drop(map);
    let mut random = Random(4);
    for state in 0..cases(36) {
        let cut = random.below(events.len() as u64 + 1) as usize;
        let image = image_after(&base, &events, cut, &mut random);
        check(&image, &history, &seen, cut, &format!("state {state}, cut {cut}"));
    }
    check(&file, &history, &seen, events.len(), "killed at the end");
}

/// What was last seen of a key is there, or what the writer did to it later.
fn check(image: &[u8], history: &[Step], seen: &[Seen], cut: usize, what: &str) {
    let (_dir, map) =
        opened(image, options(Durability::Sync)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = writes(&map);
    for s in seen.iter().filter(|s| s.at <= cut) {
        let now = found.get(&s.key).copied();
        let later =
            history[s.after..].iter().filter(|step| step.key == s.key).map(|step| step.write);
        let allowed: Vec<_> = std::iter::once(s.write).chain(later).collect();
        assert!(
            allowed.contains(&now),
            "{what}: {} showed key {} as {:?}, found {now:?}",
            s.how,
            s.key,
            s.write
        );
    }
}

/// The same without deletes, where nothing excuses a missing key; writers of several threads.
#[test]
fn though_many_read_what_others_write() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), MapOptions { writers: 3, ..options(Durability::Sync) })
        .expect("open");
    let base = recording(&map, dir.path());
    let keys = 8u64;
    let (writing, looks) = (AtomicUsize::new(2), AtomicUsize::new(0));
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        for w in 0..2u64 {
            let (map, writing, looks) = (&map, &writing, &looks);
            scope.spawn(move || {
                let mut session = map.session();
                let mut random = Random(w + 50);
                let mut n = 0;
                // On a slow device it takes longer.
                while n < 600 || looks.load(Ordering::Relaxed) <= 30 {
                    // Each writer has keys of its own: numbers of a key grow.
                    let key = random.below(keys / 2) * 2 + w;
                    let value = value_of(key, n, 24 + random.below(9_000) as usize);
                    session.put(&key.to_be_bytes(), &value, None).expect("put");
                    std::thread::sleep(std::time::Duration::from_micros(100));
                    n += 1;
                }
                writing.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let readers: Vec<_> = (0..2u64)
            .map(|r| {
                let (map, writing, looks) = (&map, &writing, &looks);
                scope.spawn(move || {
                    let mut session = map.session();
                    let mut random = Random(r + 90);
                    let mut seen = Vec::new();
                    while writing.load(Ordering::Relaxed) > 0 {
                        let key = random.below(keys);
                        let (write, how) = look(&mut session, key, random.below(6));
                        session.commit().expect("commit");
                        seen.push(Seen {
                            at: map.medium().trace_length(),
                            key,
                            write,
                            how,
                            after: 0,
                        });
                        looks.fetch_add(1, Ordering::Relaxed);
                    }
                    seen
                })
            })
            .collect();
        readers.into_iter().flat_map(|r| r.join().expect("reader")).collect()
    });
    let events = map.medium().trace();
    assert!(seen.len() > 30, "{} looks", seen.len());
    let mut random = Random(6);
    for state in 0..cases(36) {
        let cut = random.below(events.len() as u64 + 1) as usize;
        let image = image_after(&base, &events, cut, &mut random);
        let (_dir, map) = opened(&image, options(Durability::Sync))
            .unwrap_or_else(|e| panic!("state {state}: {e}"));
        let found = writes(&map);
        for s in seen.iter().filter(|s| s.at <= cut) {
            let now = found.get(&s.key).copied();
            assert!(
                now >= s.write,
                "state {state}, cut {cut}: {} showed key {} as {:?}, found {now:?}",
                s.how,
                s.key,
                s.write
            );
        }
    }
}
