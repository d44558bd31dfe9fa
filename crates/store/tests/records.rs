//! Records of several keys and ranges, read together: the same as one read after the other, whatever others write.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use terrace_store::{Direction, Error, Kind, Map, MapOptions, Moments, Range, Records};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn opened(kind: Kind) -> (tempfile::TempDir, Arc<Moments>, Map) {
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions { kind, ..MapOptions::default() };
    let moments = Arc::clone(&options.moments);
    let map = Map::open(dir.path(), options).expect("open");
    (dir, moments, map)
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

/// Numbers without end.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    }
}

/// What `model` says of the same question, one read after the other.
fn expected(model: &Model, keys: &[&[u8]], ranges: &[Range<'_>]) -> Vec<(usize, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for (asked, key) in keys.iter().enumerate() {
        all.extend(model.get(*key).map(|value| (asked, key.to_vec(), value.clone())));
    }
    for (number, range) in ranges.iter().enumerate() {
        let asked = keys.len() + number;
        let found = model.range::<[u8], _>((range.from, range.to));
        let mut found: Vec<_> = found.map(|(k, v)| (asked, k.clone(), v.clone())).collect();
        if range.direction == Direction::Down {
            found.reverse();
        }
        all.extend(found);
    }
    all
}

fn told(records: &Records) -> Vec<(usize, Vec<u8>, Vec<u8>)> {
    assert_eq!(records.iter().count(), records.len());
    records.iter().map(|(asked, key, value)| (asked, key.to_vec(), value.to_vec())).collect()
}

#[test]
fn records_are_what_reads_one_after_the_other_find() {
    const KEYS: u64 = 4_000;
    let (_dir, moments, map) = opened(Kind::Ordered);
    let (mut draw, mut model) = (numbers(7), Model::new());
    for _ in 0..6_000 {
        let (key, value) = (key(draw(KEYS)), vec![draw(256) as u8; draw(40) as usize]);
        map.put(&key, &value).expect("put");
        model.insert(key, value);
    }
    for round in 0..20 {
        let (mut transaction, mut mine) = (moments.begin(), model.clone());
        for _ in 0..draw(300) {
            let key = key(draw(KEYS));
            if draw(3) == 0 {
                assert_eq!(
                    transaction.delete(&map, &key).expect("delete"),
                    mine.remove(&key).is_some()
                );
            } else {
                transaction.put(&map, &key, b"mine").expect("put");
                mine.insert(key, b"mine".to_vec());
            }
        }
        // Others write on; of that nothing is in it.
        let mut next = model.clone();
        for _ in 0..200 {
            let key = key(draw(KEYS));
            match draw(2) {
                0 => drop((map.delete(&key).expect("delete"), next.remove(&key))),
                _ => drop((
                    map.put(&key, b"later").expect("put"),
                    next.insert(key, b"later".to_vec()),
                )),
            }
        }
        let points: Vec<_> = (0..draw(50)).map(|_| key(draw(KEYS + 100))).collect();
        let points: Vec<&[u8]> = points.iter().map(Vec::as_slice).collect();
        let ends: Vec<_> = (0..8).map(|_| key(draw(KEYS))).collect();
        let in_order = |pair: &[Vec<u8>]| {
            let [one, other] = pair else { unreachable!("eight ends") };
            (one.min(other).clone(), one.max(other).clone())
        };
        let bounds: Vec<_> = ends.chunks(2).map(in_order).collect();
        let mut ranges: Vec<Range<'_>> =
            bounds.iter().map(|(from, to)| Range::from(&from[..]..&to[..])).collect();
        ranges[0] = ranges[0].reversed();
        ranges.push(if round % 2 == 0 { Range::ALL } else { Range::ALL.reversed() });
        ranges.push(Range { from: Bound::Excluded(&ends[0]), to: Bound::Unbounded, ..Range::ALL });
        let records = transaction.snapshot(&map, &points, &ranges).expect("records");
        assert_eq!(told(&records), expected(&mine, &points, &ranges), "round {round}");
        let before = map.at(transaction.moment()).expect("a snapshot");
        let records = before.records(&points, &ranges).expect("records");
        assert_eq!(told(&records), expected(&model, &points, &ranges), "round {round}");
        model = next;
    }
}

#[test]
fn what_was_read_with_others_is_certified_as_if_read_alone() {
    for (asks_for, is_read) in [(b"b", true), (b"x", false)] {
        let (_dir, moments, map) = opened(Kind::Ordered);
        map.multi_put(&[(b"a", b"1"), (b"b", b"2"), (b"x", b"3")]).expect("put");
        let mut transaction = moments.begin();
        transaction.certify_reads();
        let ranges = [("aa".."c").into()];
        transaction.snapshot(&map, &[b"a"], &ranges).expect("records");
        transaction.put(&map, b"z", b"26").expect("put");
        map.put(asks_for, b"other").expect("put");
        let conflict = matches!(transaction.commit(), Err(Error::Conflict { .. }));
        assert_eq!(conflict, is_read, "{asks_for:?}");
    }
    // A key that was not there, and one that comes into a range.
    for comes in [b"missing", b"present"] {
        let (_dir, moments, map) = opened(Kind::Ordered);
        let mut transaction = moments.begin();
        transaction.certify_reads();
        let ranges = [("p".."q").into()];
        transaction.snapshot(&map, &[b"missing"], &ranges).expect("records");
        transaction.put(&map, b"z", b"26").expect("put");
        map.put(comes, b"other").expect("put");
        assert!(matches!(transaction.commit(), Err(Error::Conflict { .. })), "{comes:?}");
    }
}

#[test]
fn keys_of_a_hash_map_are_records_and_ranges_are_refused() {
    let (_dir, moments, map) = opened(Kind::Hash);
    map.put(b"a", b"1").expect("put");
    let mut transaction = moments.begin();
    let records = transaction.snapshot(&map, &[b"b", b"a", b"a"], &[]).expect("records");
    let twice = [(1, b"a".to_vec(), b"1".to_vec()), (2, b"a".to_vec(), b"1".to_vec())];
    assert_eq!(told(&records), twice);
    let refused = transaction.snapshot(&map, &[], &[Range::ALL]);
    assert!(matches!(refused, Err(Error::Unordered)), "{refused:?}");
}
