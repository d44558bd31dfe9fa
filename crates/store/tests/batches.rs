//! Batches: an error and a panic leave nothing of one, one inside another is a part of it, nobody
//! waits for what runs inside, and no update is lost.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::Domain;
use terrace_store::{
    Change, Direction, Durability, Error, Kind, Map, MapOptions, Range, Session, ValueDesign,
};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every design of values and kind of index: overwritten where they lie, appended, in slots, in order.
fn ways() -> [MapOptions; 4] {
    let options = MapOptions { writers: 2, ..MapOptions::default() };
    let slabs = MapOptions { domain: Domain::Adr, values: ValueDesign::Slab, ..options.clone() };
    let sync = MapOptions { durability: Durability::Sync, ..options.clone() };
    let ordered = MapOptions { kind: Kind::Ordered, ..options.clone() };
    [options, sync, slabs, ordered]
}

fn contents(map: &Map) -> Contents {
    let mut found = Contents::new();
    let mut cursor = 0;
    loop {
        let keep = |key: &[u8], value: terrace_store::Value<'_>| {
            found.insert(key.to_vec(), value.bytes.to_vec());
        };
        cursor = map.scan(cursor, 100, keep).expect("scan");
        if cursor == 0 {
            return found;
        }
    }
}

fn filled(options: MapOptions) -> (tempfile::TempDir, Map) {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options).expect("open");
    for key in [&b"put"[..], b"deleted", b"updated"] {
        map.put(key, b"old").expect("put");
    }
    (dir, map)
}

/// Writes in every way there is.
fn write(session: &mut Session) -> Result<(), Error> {
    session.put(b"put", b"new", None)?;
    session.put(b"added", b"new", None)?;
    session.delete(b"deleted")?;
    let put =
        |_: Option<terrace_store::Value<'_>>| Change::Put { value: b"new", expires_at_ms: None };
    session.update(b"updated", put)
}

/// What ran inside was written at once: a closure that failed, or panicked, left half of its batch
/// for others to see, and the end of the batch made it survive a crash as if it were whole.
#[test]
fn an_error_and_a_panic_leave_nothing() {
    for options in ways() {
        let (dir, map) = filled(options.clone());
        let before = contents(&map);
        let mut session = map.session();
        let failed: Result<(), Error> = session.atomic(|session| {
            write(session)?;
            Err(Error::Unordered)
        });
        assert!(matches!(failed, Err(Error::Unordered)), "{failed:?}");
        assert_eq!(contents(&map), before);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            session.atomic(|session| {
                write(session)?;
                if map.len() < 1000 {
                    panic!("inside a batch")
                }
                Ok::<_, Error>(())
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(contents(&map), before);
        // The session goes on.
        session.put(b"after", b"1", None).expect("put");
        session.commit().expect("commit");
        let after = contents(&map);
        assert_eq!(after.len(), before.len() + 1);
        drop((session, map));
        let map = Map::open(dir.path(), options).expect("open");
        assert_eq!(contents(&map), after);
    }
}

/// A batch inside another ended the outer one: what the outer wrote later was no part of it.
#[test]
fn a_batch_inside_another_is_a_part_of_it() {
    for options in ways() {
        let (_dir, map) = filled(options);
        let before = contents(&map);
        let mut session = map.session();
        let outer_failed: Result<(), Error> = session.atomic(|session| {
            session.put(b"outer", b"1", None)?;
            session.atomic(write)?;
            session.put(b"late", b"1", None)?;
            Err(Error::Unordered)
        });
        assert!(outer_failed.is_err());
        assert_eq!(contents(&map), before);
        let inner_failed: Result<(), Error> = session.atomic(|session| {
            session.put(b"put", b"outer", None)?;
            let failed: Result<(), Error> = session.atomic(|session| {
                write(session)?;
                session.atomic(|session| session.put(b"put", b"innermost", None))?;
                Err(Error::Unordered)
            });
            assert!(failed.is_err());
            assert_eq!(
                session.get(b"put", |value| value.bytes.to_vec())?.as_deref(),
                Some(&b"outer"[..])
            );
            session.put(b"late", b"1", None)
        });
        inner_failed.expect("the outer batch");
        let mut after = before;
        after.insert(b"put".to_vec(), b"outer".to_vec());
        after.insert(b"late".to_vec(), b"1".to_vec());
        assert_eq!(contents(&map), after);
    }
}

/// The two designs of values.
fn designs() -> [MapOptions; 2] {
    let [logs, _, slabs, _] = ways();
    [logs, slabs]
}

/// User code ran under its writer's lock. A checkpoint waited for it, with every other writer's commit
/// behind it: one long closure held up everybody.
#[test]
fn a_long_batch_delays_no_other_session() {
    let [logs, slabs] = designs();
    let soon = Durability::Interval(Duration::from_millis(50));
    let soon = MapOptions { durability: soon, ..logs.clone() };
    let sync = MapOptions { durability: Durability::Sync, ..logs };
    for options in [sync, soon, slabs] {
        let what = format!("{:?} {:?}", options.values, options.durability);
        let (_dir, map) = filled(options);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Takes checkpoints all the time.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    map.sync().expect("sync");
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let sleeper = scope.spawn(|| {
                map.session().atomic(|session| {
                    session.put(b"slow", b"1", None)?;
                    std::thread::sleep(Duration::from_secs(2));
                    session.put(b"slow too", b"1", None)
                })
            });
            std::thread::sleep(Duration::from_millis(100));
            // Both writers are tried, the sleeper's among them.
            let mut others = [map.session(), map.session()];
            let mut took: Vec<Duration> = Vec::new();
            while !sleeper.is_finished() {
                for other in &mut others {
                    let start = Instant::now();
                    other.put(b"quick", b"1", None).expect("put");
                    other.commit().expect("commit");
                    took.push(start.elapsed());
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            is_over.store(true, Ordering::Relaxed);
            sleeper.join().expect("no panic").expect("a batch");
            assert!(took.len() > 20, "{} commits in two seconds", took.len());
            // The medium of a loaded machine has its own moments: all but a few.
            took.sort();
            let slow = took[took.len() * 9 / 10];
            assert!(slow < Duration::from_millis(100), "{what}: a commit took {slow:?}");
            assert!(took[took.len() - 1] < Duration::from_secs(1), "{what}: {took:?}");
        });
        assert_eq!(map.get(b"slow too").expect("get").as_deref(), Some(&b"1"[..]));
    }
}

/// What a batch read is as it was when the batch is applied: counters that are read and written in
/// batches by several threads, two in each batch, lose nothing, and batches do not wait for each other
/// for ever.
#[test]
fn no_update_is_lost() {
    const EACH: u64 = 400;
    let add = |session: &mut Session, key: &[u8], how: u64| -> Result<(), Error> {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        if how == 0 {
            let before = session.get(key, |value| number(value.bytes))?.unwrap_or(0);
            return session.put(key, &(before + 1).to_le_bytes(), None);
        }
        // The sum lies elsewhere: a closure's value must outlive it.
        let sum = std::cell::Cell::new([0; 8]);
        let before = session.get(key, |value| number(value.bytes))?.unwrap_or(0);
        sum.set((before + 1).to_le_bytes());
        let sum = sum.get();
        session.update(key, |_| Change::Put { value: &sum, expires_at_ms: None })
    };
    for options in ways() {
        let (_dir, map) = filled(options);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let map = &map;
                scope.spawn(move || {
                    let mut session = map.session();
                    for round in 0..EACH {
                        let keys: [&[u8]; 2] =
                            if thread % 2 == 0 { [b"a", b"b"] } else { [b"b", b"a"] };
                        let added = session.atomic(|session| {
                            keys.iter().try_for_each(|key| add(session, key, round % 2))
                        });
                        added.expect("a batch");
                        // Written without a batch, too.
                        session.put(b"other", &round.to_le_bytes(), None).expect("put");
                    }
                });
            }
        });
        for key in [b"a", b"b"] {
            let sum = map.get(key).expect("get").expect("there");
            assert_eq!(sum, (4 * EACH).to_le_bytes());
        }
    }
}

/// Inside a batch everything is seen as it would be without: against a model.
#[test]
fn inside_a_batch_its_writes_are_seen_in_every_way() {
    let name = |n: u64| format!("key {:02}", n % 40).into_bytes();
    for options in ways() {
        let is_ordered = options.kind == Kind::Ordered;
        let (_dir, map) = filled(options);
        map.clear().expect("clear");
        let mut model = Contents::new();
        let mut state = 7u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 8
        };
        let mut session = map.session();
        for round in 0..60 {
            let mut inside = model.clone();
            let is_kept = round % 3 != 0;
            let result = session.atomic(|session| {
                inside.clone_from(&model);
                for _ in 0..30 {
                    let key = name(random());
                    match random() % 4 {
                        0 => {
                            let had = session.delete(&key)?;
                            assert_eq!(had, inside.remove(&key).is_some());
                        }
                        1 => {
                            let value = random().to_le_bytes();
                            session.put(&key, &value, None)?;
                            inside.insert(key.clone(), value.to_vec());
                        }
                        2 if is_ordered => {
                            check_range(session, &inside, &name(random()), random())?
                        }
                        _ => {}
                    }
                    let found = session.get(&key, |value| value.bytes.to_vec())?;
                    assert_eq!(found.as_ref(), inside.get(&key));
                }
                assert_eq!(session.len()?, inside.len() as u64);
                let (mut seen, mut cursor) = (Contents::new(), 0);
                loop {
                    cursor = session.scan(cursor, 10, |key, value| {
                        seen.insert(key.to_vec(), value.bytes.to_vec());
                    })?;
                    if cursor == 0 {
                        break;
                    }
                }
                assert_eq!(seen, inside);
                if is_kept { Ok(()) } else { Err(Error::Unordered) }
            });
            assert_eq!(result.is_ok(), is_kept);
            if is_kept {
                model = inside;
            }
            assert_eq!(contents(&map), model);
        }
    }
}

fn check_range(
    session: &mut Session,
    model: &Contents,
    from: &[u8],
    random: u64,
) -> Result<(), Error> {
    let direction = if random & 1 == 0 { Direction::Up } else { Direction::Down };
    let (from, to) = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
    let all = model.iter().filter(|(key, _)| from.ge(key)).map(|(key, _)| key.clone());
    let mut expected: Vec<Vec<u8>> = all.collect();
    if direction == Direction::Down {
        expected.reverse();
    }
    let (mut found, mut last) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let range = Range { from, to, direction };
        let rest = last.as_ref().map_or(range, |last| range.behind(last));
        last = session.range(rest, 3, |key, _| found.push(key.to_vec()))?;
        if last.is_none() {
            break;
        }
    }
    assert_eq!(found, expected, "{direction:?}");
    Ok(())
}

/// A bound from below.
trait From_ {
    fn ge(&self, key: &[u8]) -> bool;
}

impl From_ for std::ops::Bound<&[u8]> {
    fn ge(&self, key: &[u8]) -> bool {
        matches!(self, std::ops::Bound::Included(from) if key >= *from)
    }
}

/// Each small write was charged 144 bytes: 100,000 pairs of 8 bytes were refused.
#[test]
fn a_batch_may_be_as_large_as_a_log() {
    designs().into_iter().for_each(check_batch_sizes);
}

fn check_batch_sizes(options: MapOptions) {
    let design = options.values;
    let (_dir, map) = filled(options);
    let keys: Vec<[u8; 4]> = (0..100_000u32).map(u32::to_be_bytes).collect();
    let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &key[..])).collect();
    map.multi_put(&pairs).expect("0.8 MB of keys and values");
    let mut session = map.session();
    let counted = session.atomic(|session| {
        keys[..30_000].iter().try_for_each(|key| {
            session.update(key, |_| Change::Put { value: b"1234567890", expires_at_ms: None })
        })
    });
    counted.expect("0.4 MB of keys and values");
    assert_eq!(map.get(&keys[29_999]).expect("get").as_deref(), Some(&b"1234567890"[..]));
    // One that does not fit is refused whole, whatever its parts were told.
    let value = vec![0; 1 << 20];
    let mut refused_inside = 0;
    let refused = session.atomic(|session| {
        refused_inside = 0;
        for key in &keys[..8] {
            refused_inside += usize::from(session.put(key, &value, None).is_err());
        }
        Ok::<_, Error>(())
    });
    assert!(matches!(refused, Err(Error::BatchSize(..))), "{refused:?}");
    assert_eq!(refused_inside, 5, "{design:?}");
    assert_eq!(map.get(&keys[0]).expect("get").as_deref(), Some(&b"1234567890"[..]));
    assert_eq!(map.len(), 100_003);
}

/// The writes of a batch did not count as read before a clear that came between: it brought a key back with what the
/// cleared one held.
#[test]
fn a_batch_does_not_bring_back_what_was_cleared() {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    for options in ways() {
        let (_dir, map) = filled(options);
        map.put(b"n", &5u64.to_le_bytes()).expect("put");
        let (mut session, mut runs) = (map.session(), 0);
        let added = session.atomic(|session| {
            let n = session.get(b"n", |value| number(value.bytes))?.unwrap_or(0);
            runs += 1;
            if runs == 1 {
                map.clear()?;
            }
            session.put(b"n", &(n + 1).to_le_bytes(), None)
        });
        added.expect("a batch");
        assert_eq!(map.get(b"n").expect("get").as_deref(), Some(&1u64.to_le_bytes()[..]));
        // Nor does one that writes nothing tell of keys from before and from after.
        map.put(b"a", b"1").and_then(|()| map.put(b"b", b"1")).expect("put");
        runs = 0;
        let told = session.atomic(|session| {
            let a = session.get(b"a", |_| ())?.is_some();
            runs += 1;
            if runs == 1 {
                map.clear()?;
            }
            Ok::<_, Error>((a, session.get(b"b", |_| ())?.is_some()))
        });
        assert_eq!((told.expect("a batch"), runs), ((false, false), 2));
    }
}
