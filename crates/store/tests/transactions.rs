//! Transactions: what they read is of one moment, what they write is there as one or not at all, and who came second
//! is told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::Domain;
use terrace_store::{
    Direction, Durability, Error, Kind, Map, MapOptions, Moments, Range, Transaction, ValueDesign,
};

struct Opened {
    _dirs: Vec<tempfile::TempDir>,
    moments: Arc<Moments>,
    maps: Vec<Map>,
}

/// So many maps of one clock.
fn opened(count: usize, options: &MapOptions) -> Opened {
    let moments = Arc::<Moments>::default();
    let options = MapOptions { moments: Arc::clone(&moments), ..options.clone() };
    let dirs: Vec<_> = (0..count).map(|_| tempfile::tempdir().expect("directory")).collect();
    let open = |dir: &tempfile::TempDir| Map::open(dir.path(), options.clone()).expect("open");
    let maps = dirs.iter().map(open).collect();
    Opened { _dirs: dirs, moments, maps }
}

fn ordered() -> MapOptions {
    MapOptions { kind: Kind::Ordered, writers: 2, ..MapOptions::default() }
}

fn ways() -> [MapOptions; 4] {
    let hash = MapOptions { writers: 2, ..MapOptions::default() };
    let sync = MapOptions { durability: Durability::Sync, ..hash.clone() };
    let adr = MapOptions { domain: Domain::Adr, values: ValueDesign::Log, ..hash.clone() };
    [hash, sync, adr, ordered()]
}

fn is_conflict(told: terrace_store::Result<()>, on: &str) {
    match told {
        Err(Error::Conflict { key }) => assert_eq!(key, on),
        other => panic!("{other:?} and no conflict on {on}"),
    }
}

fn keys_of(transaction: &mut Transaction, map: &Map, range: Range<'_>, page: usize) -> Vec<String> {
    let (mut keys, mut rest) = (Vec::new(), Some(None::<Vec<u8>>));
    while let Some(last) = rest {
        let range = last.as_ref().map_or(range, |last| range.behind(last));
        let each = |key: &[u8], _: terrace_store::Value<'_>| {
            keys.push(String::from_utf8_lossy(key).into_owned());
        };
        rest = transaction.range(map, range, page, each).expect("a range").map(Some);
    }
    keys
}

#[test]
fn writes_are_there_as_one_after_the_commit_and_not_before() {
    for options in ways() {
        let Opened { moments, maps, _dirs } = opened(1, &options);
        let map = &maps[0];
        map.put(b"gone", b"1").expect("put");
        let mut transaction = moments.begin();
        transaction.put(map, b"a", b"1").expect("put");
        transaction.put(map, b"a", b"2").expect("put");
        transaction.put(map, b"b", b"3").expect("put");
        assert!(transaction.delete(map, b"gone").expect("delete"));
        assert!(!transaction.delete(map, b"gone").expect("it is gone"));
        assert!(!transaction.delete(map, b"never").expect("it never was"));
        assert_eq!(transaction.get(map, b"a").expect("get").as_deref(), Some(&b"2"[..]));
        assert_eq!(transaction.get(map, b"gone").expect("get"), None);
        let before = map.snapshot();
        assert!(map.get(b"a").expect("get").is_none() && map.len() == 1);
        transaction.commit().expect("nobody else writes");
        assert_eq!(map.get(b"a").expect("get").as_deref(), Some(&b"2"[..]));
        assert!(map.get(b"gone").expect("get").is_none() && map.len() == 2);
        assert!(before.get(b"a").expect("get").is_none());
        assert!(before.get(b"gone").expect("get").is_some());
        drop(before);
        // Dropped, aborted, or lost in a panic.
        let mut dropped = moments.begin();
        dropped.put(map, b"c", b"1").expect("put");
        drop(dropped);
        let mut aborted: Transaction = moments.begin();
        aborted.put(map, b"c", b"1").expect("put");
        aborted.abort();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            moments.transaction(|transaction| -> Result<(), Error> {
                transaction.put(map, b"c", b"1")?;
                panic!("in the middle")
            })
        }));
        assert!(panicked.is_err() && map.get(b"c").expect("get").is_none());
    }
}

#[test]
fn who_comes_second_is_refused_whatever_the_first_was() {
    for options in ways() {
        let Opened { moments, maps, _dirs } = opened(1, &options);
        let map = &maps[0];
        type Write = fn(&Map, &Arc<Moments>);
        let firsts: [Write; 5] = [
            |map, _| map.put(b"key", b"first").expect("put"),
            |map, _| assert!(map.delete(b"key").expect("delete")),
            |map, _| map.multi_put(&[(b"key", b"first"), (b"other", b"1")]).expect("put"),
            |map, _| {
                let mut session = map.session();
                session
                    .atomic(|session| {
                        session.get(b"key", |_| ()).and(session.put(b"key", b"1", None))
                    })
                    .expect("a batch");
            },
            |map, moments| {
                moments
                    .transaction(|transaction| transaction.put(map, b"key", b"first"))
                    .expect("a transaction");
            },
        ];
        for first in firsts {
            map.put(b"key", b"old").expect("put");
            let mut second = moments.begin();
            second.put(map, b"key", b"second").expect("put");
            second.put(map, b"beside", b"second").expect("put");
            first(map, &moments);
            let left = map.get(b"key").expect("get");
            is_conflict(second.commit(), "key");
            assert_eq!(map.get(b"key").expect("get"), left);
            assert!(map.get(b"beside").expect("get").is_none(), "half of it");
            // What was written before it began is none of its business.
            let mut third = moments.begin();
            third.put(map, b"key", b"third").expect("put");
            third.commit().expect("nobody came first");
        }
    }
}

#[test]
fn a_range_has_what_the_transaction_wrote_and_nothing_that_others_did() {
    let Opened { moments, maps, _dirs } = opened(1, &ordered());
    let map = &maps[0];
    map.multi_put(&[(b"b", b""), (b"d", b""), (b"f", b""), (b"h", b"")]).expect("put");
    let mut transaction = moments.begin();
    map.multi_put(&[(b"a", b""), (b"e", b"")]).expect("put");
    map.delete(b"d").expect("delete");
    for key in ["c", "g", "i"] {
        transaction.put(map, key.as_bytes(), b"").expect("put");
    }
    transaction.delete(map, b"f").expect("delete");
    let all = ["b", "c", "d", "g", "h", "i"];
    for page in 1..8 {
        assert_eq!(keys_of(&mut transaction, map, Range::ALL, page), all, "{page} at a time");
        let mut down = keys_of(&mut transaction, map, Range::ALL.reversed(), page);
        down.reverse();
        assert_eq!(down, all, "{page} at a time");
    }
    let to = std::ops::Bound::Excluded(&b"g"[..]);
    let from = std::ops::Bound::Excluded(&b"b"[..]);
    let some = Range { from, to, direction: Direction::Up };
    assert_eq!(keys_of(&mut transaction, map, some, 1), ["c", "d"]);
    transaction.commit().expect("others wrote other keys");
    let mut after = moments.begin();
    assert_eq!(keys_of(&mut after, map, Range::ALL, 3), ["a", "b", "c", "e", "g", "h", "i"]);
}

/// Two doctors are on call, each goes if the other stays.
fn both_go(
    certifies: bool,
    ranges: bool,
) -> (terrace_store::Result<()>, terrace_store::Result<()>) {
    let Opened { moments, maps, _dirs } = opened(1, &ordered());
    let map = &maps[0];
    map.multi_put(&[(b"on/ada", b""), (b"on/grace", b"")]).expect("put");
    let go = |who: &[u8], other: &[u8]| {
        let mut transaction = moments.begin();
        if certifies {
            transaction.certify_reads();
        }
        let mut end = Vec::new();
        if ranges {
            let on_call = Range::of_prefix(b"on/", &mut end);
            assert_eq!(keys_of(&mut transaction, map, on_call, 10).len(), 2);
        } else {
            assert!(transaction.get(map, other).expect("get").is_some());
        }
        assert!(transaction.delete(map, who).expect("delete"));
        transaction
    };
    let (ada, grace) = (go(b"on/ada", b"on/grace"), go(b"on/grace", b"on/ada"));
    (ada.commit(), grace.commit())
}

#[test]
fn certified_reads_are_as_they_were_and_others_may_not_be() {
    for ranges in [false, true] {
        let (first, second) = both_go(false, ranges);
        assert!(first.is_ok() && second.is_ok(), "snapshot isolation has write skew");
        let (first, second) = both_go(true, ranges);
        first.expect("it comes first");
        is_conflict(second, "on/ada");
    }
}

#[test]
fn a_key_that_was_not_there_is_certified_too() {
    let Opened { moments, maps, _dirs } = opened(2, &ordered());
    let (map, other) = (&maps[0], &maps[1]);
    let certified = |read: &dyn Fn(&mut Transaction)| {
        let mut transaction = moments.begin();
        transaction.certify_reads();
        read(&mut transaction);
        transaction.put(other, b"result", b"").expect("put");
        transaction
    };
    let point = certified(&|transaction| {
        assert!(transaction.get(map, b"m").expect("get").is_none());
    });
    let range = certified(&|transaction| {
        assert!(keys_of(transaction, map, Range::ALL, 10).is_empty());
    });
    let beside = certified(&|transaction| {
        let to = std::ops::Bound::Excluded(&b"m"[..]);
        assert!(keys_of(transaction, map, Range { to, ..Range::ALL }, 10).is_empty());
    });
    let mut compared = moments.begin();
    assert!(compared.compare(map, b"m", None).expect("compare"));
    assert!(!compared.compare(map, b"l", Some(b"1")).expect("compare"));
    compared.put(other, b"compared", b"").expect("put");
    map.put(b"m", b"").expect("put");
    is_conflict(point.commit(), "m");
    is_conflict(range.commit(), "m");
    is_conflict(compared.commit(), "m");
    beside.commit().expect("it is beside the range");
}

#[test]
fn what_cannot_be_one_is_refused_before_anything_is_written() {
    let slabs =
        MapOptions { domain: Domain::Adr, values: ValueDesign::Slab, ..MapOptions::default() };
    let Opened { moments, maps, _dirs } = opened(1, &slabs);
    let one = |keys: &[&[u8]]| {
        moments.transaction(|transaction| {
            keys.iter().try_for_each(|key| transaction.put(&maps[0], key, b"1"))
        })
    };
    assert!(matches!(one(&[b"a", b"b"]), Err(Error::NotTogether { .. })));
    assert!(maps[0].is_empty());
    one(&[b"a"]).expect("one key is one write");
    let elsewhere = opened(1, &MapOptions::default());
    let mut transaction = moments.begin();
    assert!(matches!(transaction.get(&elsewhere.maps[0], b"a"), Err(Error::NotOfDatabase)));
    let large = vec![0; 3 << 20];
    let Opened { moments, maps, _dirs } = opened(1, &MapOptions::default());
    let mut transaction = moments.begin();
    transaction.put(&maps[0], b"a", &large).expect("it fits");
    assert!(matches!(transaction.put(&maps[0], b"b", &large), Err(Error::BatchSize(..))));
    assert!(matches!(transaction.commit(), Err(Error::BatchSize(..))));
    assert!(maps[0].is_empty());
}

fn number(bytes: Option<Vec<u8>>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// Money is moved between accounts; whoever looks finds all of it.
#[test]
fn sums_hold_in_every_snapshot_and_no_update_is_lost() {
    const ACCOUNTS: u64 = 12;
    const EACH: u64 = 1000;
    for options in [ways()[0].clone(), ways()[2].clone(), ordered()] {
        let Opened { moments, maps, _dirs } = opened(1, &options);
        let map = &maps[0];
        for account in 0..ACCOUNTS {
            map.put(&account.to_be_bytes(), &EACH.to_le_bytes()).expect("put");
        }
        let moved = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (moments, moved) = (&moments, &moved);
                scope.spawn(move || {
                    for round in 0..600u64 {
                        let from = (round * 7 + thread) % ACCOUNTS;
                        let to = (round * 5 + 3 * thread + 1) % ACCOUNTS;
                        let done = moments.transaction(|transaction| {
                            let have = number(transaction.get(map, &from.to_be_bytes())?);
                            let amount = (round % 5).min(have);
                            transaction.put(
                                map,
                                &from.to_be_bytes(),
                                &(have - amount).to_le_bytes(),
                            )?;
                            let other = number(transaction.get(map, &to.to_be_bytes())?);
                            transaction.put(
                                map,
                                &to.to_be_bytes(),
                                &(other + amount).to_le_bytes(),
                            )?;
                            let count = number(transaction.get(map, b"count")?);
                            transaction.put(map, b"count", &(count + 1).to_le_bytes())
                        });
                        done.expect("a transfer");
                        moved.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                while moved.load(Ordering::Relaxed) < 3 * 600 {
                    let now = map.snapshot();
                    let sum: u64 = (0..ACCOUNTS)
                        .map(|a| number(now.get(&a.to_be_bytes()).expect("get")))
                        .sum();
                    assert_eq!(sum, ACCOUNTS * EACH);
                }
            });
        });
        assert_eq!(number(map.get(b"count").expect("get")), 3 * 600, "an update was lost");
        let until = Instant::now() + Duration::from_secs(20);
        while map.stats().snapshot_bytes > 0 {
            assert!(Instant::now() < until, "older versions that nobody needs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Each counts what there is and adds one with that number, under a name of its own: no number comes twice.
#[test]
fn no_phantom_comes_into_a_certified_range() {
    const THREADS: u64 = 3;
    const EACH: u64 = 100;
    let Opened { moments, maps, _dirs } = opened(1, &ordered());
    let map = &maps[0];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let moments = &moments;
            scope.spawn(move || {
                for round in 0..EACH {
                    let name = format!("{:04}/{thread}", (round * 37 + thread * 11) % 1000);
                    let done = moments.transaction(|transaction| {
                        transaction.certify_reads();
                        let mut count = 0u64;
                        let counted = |key: &[u8]| u64::from(key != b"zzz");
                        let each = |key: &[u8], _: terrace_store::Value<'_>| count += counted(key);
                        transaction.range(map, Range::ALL, usize::MAX, each)?;
                        transaction.put(map, name.as_bytes(), &count.to_le_bytes())
                    });
                    done.expect("an insertion");
                }
            });
        }
        // Who writes without a transaction is held off while one is committed, and no longer.
        let other = &maps[0];
        scope.spawn(move || {
            for round in 0..200u64 {
                other.put(b"zzz", &round.to_le_bytes()).expect("put");
                other.delete(b"zzz").expect("delete");
            }
        });
    });
    let mut numbers = BTreeSet::new();
    let all = map.snapshot();
    all.for_each(|_, value| {
        assert!(numbers.insert(number(Some(value.bytes.to_vec()))), "a number came twice");
    })
    .expect("all");
    assert_eq!(numbers.len() as u64, THREADS * EACH);
}

/// A batch with one key twice waited for itself while a snapshot was open.
#[test]
fn a_batch_may_name_a_key_twice_while_a_snapshot_is_open() {
    let Opened { maps, _dirs, .. } = opened(1, &MapOptions::default());
    let before = maps[0].snapshot();
    maps[0].multi_put(&[(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]).expect("put");
    assert_eq!(maps[0].get(b"a").expect("get").as_deref(), Some(&b"2"[..]));
    assert!(before.get(b"a").expect("get").is_none());
}

#[test]
fn one_that_took_too_long_says_so_and_wrote_nothing() {
    let options = MapOptions { memory_budget_bytes: 32 << 20, writers: 1, ..MapOptions::default() };
    let Opened { moments, maps, _dirs } = opened(1, &options);
    let (map, value) = (&maps[0], vec![7; 64 << 10]);
    let churn = || (0..400u32).for_each(|n| map.put(&(n % 20).to_le_bytes(), &value).expect("put"));
    churn();
    let mut tried = 0;
    let told = moments.transaction(|transaction| {
        tried += 1;
        for round in 0..20u32 {
            let _snapshot = map.snapshot();
            churn();
            transaction.get(map, &round.to_le_bytes())?;
        }
        transaction.put(map, b"result", b"1")
    });
    assert!(matches!(told, Err(Error::SnapshotEnded { .. })), "{told:?}");
    assert!((2..10).contains(&tried), "tried {tried} times");
    assert!(map.get(b"result").expect("get").is_none());
}

/// A range that its reader left is certified as far as it was read.
#[test]
fn a_range_that_was_left_is_certified_up_to_there() {
    for (other, is_refused) in [(&b"a5"[..], true), (b"b", true), (b"b5", false), (b"z", false)] {
        let dir = tempfile::tempdir().expect("a directory");
        let options = MapOptions { kind: Kind::Ordered, ..MapOptions::default() };
        let moments = std::sync::Arc::clone(&options.moments);
        let map = Map::open(dir.path(), options).expect("a map");
        map.multi_put(&[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]).expect("put");
        let mut transaction = moments.begin();
        transaction.certify_reads();
        transaction.put(&map, b"aa", b"own").expect("put");
        let mut told = Vec::new();
        let until_b = |key: &[u8], _: terrace_store::Value<'_>| {
            told.push(key.to_vec());
            key != b"b"
        };
        transaction.range_while(&map, terrace_store::Range::ALL, until_b).expect("read");
        assert_eq!(told, [&b"a"[..], b"aa", b"b"]);
        map.put(other, b"other").expect("put");
        assert_eq!(transaction.commit().is_err(), is_refused, "{other:?}");
    }
}
