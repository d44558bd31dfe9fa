//! A watch tells exactly whether its key was written. (`version`, `location`) did not: a deleted key
//! counts from 1 again and may get the same slot, a cleared map begins again, and absence has no version.

use std::time::Duration;
use terrace_memory::Domain;
use terrace_store::{Change, Durability, Error, Kind, Map, MapOptions, ValueDesign, WhenFull};

fn ways() -> [MapOptions; 4] {
    let options = MapOptions { writers: 1, ..MapOptions::default() };
    let slabs = MapOptions { domain: Domain::Adr, values: ValueDesign::Slab, ..options.clone() };
    let sync = MapOptions { durability: Durability::Sync, ..options.clone() };
    let ordered = MapOptions { kind: Kind::Ordered, ..options.clone() };
    [options, sync, slabs, ordered]
}

fn in_ms(ms: u64) -> u64 {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    now.as_millis() as u64 + ms
}

type Does = fn(&Map);

const CHANGES: [(&str, Does); 10] = [
    ("written again, the same", |map| map.put(b"key", b"old").expect("put")),
    ("deleted", |map| assert!(map.delete(b"key").expect("delete"))),
    ("deleted and written", |map| {
        map.delete(b"key").expect("delete");
        map.put(b"key", b"old").expect("put");
    }),
    ("deleted, written, and what was left before given to it again", |map| {
        for _ in 0..200 {
            map.delete(b"key").expect("delete");
            map.put(b"key", b"old").expect("put");
        }
    }),
    ("absent, written and deleted again", |map| {
        map.put(b"absent", b"1").expect("put");
        map.delete(b"absent").expect("delete");
    }),
    ("cleared", |map| map.clear().expect("clear")),
    ("cleared and written as often as before", |map| {
        map.clear().expect("clear");
        map.put(b"key", b"old").expect("put");
    }),
    ("expired", |map| {
        let mut session = map.session();
        session.put(b"key", b"old", Some(in_ms(20))).expect("put");
        std::thread::sleep(Duration::from_millis(60));
    }),
    ("compared and set", |map| {
        assert!(map.compare_and_set(b"absent", None, Some(b"1")).expect("set"));
    }),
    ("written by a batch", |map| {
        map.session().atomic(|session| session.put(b"absent", b"1", None)).expect("a batch");
    }),
];

const NO_CHANGES: [(&str, Does); 6] = [
    ("others", |map| {
        for n in 0..500u32 {
            map.put(&n.to_be_bytes(), b"x").expect("put");
            map.delete(&n.to_be_bytes()).expect("delete");
        }
    }),
    ("read", |map| assert!(map.get(b"key").expect("get").is_some())),
    ("an update that keeps", |map| map.session().update(b"key", |_| Change::Keep).expect("keep")),
    ("a deletion of nothing", |map| assert!(!map.delete(b"absent").expect("delete"))),
    ("a batch that failed", |map| {
        let failed: Result<(), Error> = map.session().atomic(|session| {
            session.put(b"key", b"new", None)?;
            session.put(b"absent", b"new", None)?;
            Err(Error::Unordered)
        });
        assert!(failed.is_err());
    }),
    ("collected and synced", |map| {
        map.sync().expect("sync");
        map.collect().expect("collect");
    }),
];

#[test]
fn a_watch_tells_exactly() {
    for options in ways() {
        for (expected, (what, does)) in
            CHANGES.iter().map(|change| (false, change)).chain(NO_CHANGES.iter().map(|c| (true, c)))
        {
            let dir = tempfile::tempdir().expect("directory");
            let map = Map::open(dir.path(), options.clone()).expect("open");
            map.put(b"key", b"old").expect("put");
            let watches = [map.watch(b"key"), map.watch(b"absent")];
            does(&map);
            let unchanged = watches.iter().all(|watch| watch.is_unchanged());
            assert_eq!(unchanged, expected, "{what}: {:?} {:?}", options.values, options.kind);
            // Whoever begins to watch now sees no change.
            assert!(map.watch(b"key").is_unchanged() && map.watch(b"absent").is_unchanged());
        }
    }
}

/// Increments of one key by readers who write only if the key is as they read it: none is lost.
#[test]
fn increments_by_watches_are_not_lost() {
    const EACH: u64 = 300;
    for options in ways() {
        let dir = tempfile::tempdir().expect("directory");
        let map = Map::open(dir.path(), options).expect("open");
        // Who is sure that nobody wrote writes; the two are made one by this.
        let turn = std::sync::Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < EACH {
                        let watch = map.watch(b"n");
                        let n = map.get(b"n").expect("get");
                        let n =
                            n.map_or(0, |n| u64::from_le_bytes(n.try_into().expect("eight bytes")));
                        let _turn = turn.lock().expect("no panic");
                        if watch.is_unchanged() {
                            // Each life of the key is its first.
                            map.delete(b"n").expect("delete");
                            map.put(b"n", &(n + 1).to_le_bytes()).expect("put");
                            done += 1;
                        }
                    }
                });
            }
        });
        assert_eq!(map.get(b"n").expect("get").as_deref(), Some(&(3 * EACH).to_le_bytes()[..]));
    }
}

/// A write was counted before it was known that there is room for it: one that was refused made a transaction abort.
#[test]
fn a_write_that_is_refused_is_none() {
    for options in ways() {
        let when_full = WhenFull::Refuse;
        let options = MapOptions { memory_budget_bytes: 32 << 20, when_full, ..options };
        let dir = tempfile::tempdir().expect("directory");
        let map = Map::open(dir.path(), options.clone()).expect("open");
        map.put(b"key", b"old").expect("put");
        let value = vec![7; 1 << 20];
        let full = (0..64u32).find_map(|n| map.put(&n.to_be_bytes(), &value).err());
        assert!(matches!(full, Some(Error::OutOfMemory { .. })), "{full:?}");
        for key in [&b"key"[..], b"absent"] {
            // How much is to be written is known only when it was asked.
            let put = |_: Option<terrace_store::Value<'_>>| Change::Put {
                value: &value,
                expires_at_ms: None,
            };
            // The collector may still make room for some.
            let is_refused = (0..64).any(|_| {
                let watch = map.watch(key);
                let updated = map.session().update(key, put);
                let is_refused = updated.is_err();
                assert!(matches!(updated, Ok(_) | Err(Error::OutOfMemory { .. })), "{updated:?}");
                assert_eq!(
                    watch.is_unchanged(),
                    is_refused,
                    "{:?} {:?}",
                    options.values,
                    options.kind
                );
                is_refused
            });
            assert!(is_refused, "a full map refuses");
        }
    }
}

/// Writes others until `key` is evicted: from `first` on, so that none is written twice. What is overwritten has the
/// collector move what lives beside it, `key` perhaps, to a log of its own that is not evicted before it is full.
fn evict(map: &Map, key: &[u8], first: u32) {
    for n in first..first + 200 {
        map.put(&n.to_be_bytes(), &vec![7; 1 << 20]).expect("room is made");
        if map.get(key).expect("get").is_none() {
            return;
        }
    }
    panic!("{:?} keeps the oldest key", map.stats());
}

/// Redis: keys "modified by Redis itself, like expiration or eviction" abort EXEC. A batch that had read a key was
/// applied although the key was evicted meanwhile.
#[test]
fn eviction_of_a_key_is_a_change_to_watches_and_batches() {
    for options in ways() {
        let options = MapOptions {
            memory_budget_bytes: 48 << 20,
            when_full: WhenFull::Evict,
            writers: 2,
            ..options
        };
        let what = format!("{:?} {:?} {:?}", options.values, options.kind, options.durability);
        let dir = tempfile::tempdir().expect("directory");
        let map = Map::open(dir.path(), options).expect("open");
        map.put(b"key", b"old").expect("put");
        let watch = map.watch(b"key");
        evict(&map, b"key", 0);
        assert!(!watch.is_unchanged(), "{what}");
        map.put(b"key", b"old").expect("put");
        let mut seen = Vec::new();
        let batch = map.session().atomic(|session| {
            seen.push(session.get(b"key", |_| ())?.is_some());
            if seen.len() == 1 {
                evict(&map, b"key", 200);
            }
            session.put(b"other", b"new", None)
        });
        batch.expect("a batch");
        assert_eq!(seen, [true, false], "{what}: the batch runs again");
    }
}
