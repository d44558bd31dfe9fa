//! What an ordered map promises beyond what every map does: ranges in the order of keys, both ways, page
//! by page, while others write.

use crate::adversary::{Random, cases, in_memory, options};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_store::{
    Direction, Domain, Durability, Error, Kind, Map, MapOptions, Range, ValueDesign,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn ordered(durability: Durability) -> MapOptions {
    MapOptions { kind: Kind::Ordered, ..options(durability) }
}

/// Keys of every kind: short and long ones, with zeros, many that share more than a head holds.
fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(400);
    match random.below(5) {
        0 => number.to_be_bytes()[6..].to_vec(),
        1 => format!("user{number:06}").into_bytes(),
        2 => format!("tenants/000017/orders/{number}").into_bytes(),
        3 => vec![0; number as usize % 40],
        _ => [&b"https://example.org/"[..], &[b'a'; 300][..number as usize % 300]].concat(),
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn bound(random: &mut Random) -> Bound<Vec<u8>> {
    match random.below(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(random)),
        _ => Bound::Included(key(random)),
    }
}

/// All of a range, in pages of `limit`.
fn paged(map: &Map, range: Range<'_>, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    loop {
        let rest = last.as_ref().map_or(range, |last| range.behind(last));
        let before = found.len();
        let next =
            map.range(rest, limit, |key, value| found.push((key.to_vec(), value.bytes.to_vec())));
        assert!(found.len() - before <= limit, "no more than asked for");
        match next.expect("range") {
            Some(key) => last = Some(key),
            None => return found,
        }
    }
}

/// The same of the model.
fn expected(model: &Model, range: Range<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |key: &[u8]| {
        let low = match range.from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        let high = match range.to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        low && high
    };
    let mut all: Vec<_> =
        model.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if range.direction == Direction::Down {
        all.reverse();
    }
    all
}

fn change(map: &Map, model: &mut Model, random: &mut Random) {
    let key = key(random);
    match random.below(3) {
        0 => assert_eq!(map.delete(&key).expect("delete"), model.remove(&key).is_some()),
        _ => {
            let value = vec![random.bits() as u8; random.below(600) as usize];
            map.put(&key, &value).expect("put");
            model.insert(key, value);
        }
    }
}

fn agrees(map: &Map, model: &Model, random: &mut Random) {
    for _ in 0..30 {
        let (from, to) = (bound(random), bound(random));
        let up = Range { from: as_slice(&from), to: as_slice(&to), direction: Direction::Up };
        for range in [up, up.reversed()] {
            let limit = 1 + random.below(200) as usize;
            assert_eq!(paged(map, range, limit), expected(model, range), "{range:?} by {limit}");
        }
    }
    let keys: Vec<Vec<u8>> = (0..150).map(|_| key(random)).collect();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    map.multi_get(&slices, |i, value| {
        assert_eq!(value.map(|v| v.bytes), model.get(&keys[i]).map(Vec::as_slice));
    })
    .expect("multi_get");
}

#[test]
fn ranges_agree_with_a_model_and_after_every_reopening_of_either_kind() {
    let places = [
        (ValueDesign::Log, Domain::PageCache),
        (ValueDesign::Log, Domain::Adr),
        (ValueDesign::Slab, Domain::Adr),
    ];
    for (seed, (values, domain)) in places.into_iter().enumerate() {
        let dir = in_memory();
        let mut random = Random(seed as u64 + 1);
        let mut model = Model::new();
        let options = MapOptions { values, domain, ..ordered(Durability::None) };
        for _ in 0..cases(3) {
            let map = Map::open(dir.path(), options.clone()).expect("open");
            for _ in 0..6 {
                agrees(&map, &model, &mut random);
                (0..700).for_each(|_| change(&map, &mut model, &mut random));
            }
            map.close().expect("close");
            drop(map);
            // The same values by hash.
            let hashed = MapOptions { kind: Kind::Hash, ..options.clone() };
            let map = Map::open(dir.path(), hashed).expect("open");
            assert!(matches!(map.range(Range::ALL, 1, |_, _| ()), Err(Error::Unordered)));
            (0..50).for_each(|_| change(&map, &mut model, &mut random));
            map.close().expect("close");
        }
    }
}

#[test]
fn prefixes_are_ranges() {
    let dir = in_memory();
    let map = Map::open(dir.path(), ordered(Durability::None)).expect("open");
    for key in ["a", "ab", "ab\u{7f}", "abc", "ac", "b"] {
        map.put(key.as_bytes(), b"").expect("put");
    }
    let mut end = Vec::new();
    let found = paged(&map, Range::of_prefix(b"ab", &mut end), 2);
    let keys: Vec<&[u8]> = found.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [&b"ab"[..], b"abc", b"ab\x7f"]);
}

/// Keys that stay are visited once each, in order, in either direction, while others come and go around
/// them, values are overwritten, and the collector moves items.
#[test]
fn a_range_under_change_visits_what_stays_exactly_once() {
    let dir = in_memory();
    let options = MapOptions { memory_budget_bytes: 64 << 20, ..ordered(Durability::None) };
    let map = Map::open(dir.path(), options).expect("open");
    let key = |n: u64| format!("steps/of/the/terrace/{n:05}").into_bytes();
    let stays = |n: u64| n.is_multiple_of(10);
    (0..20_000).filter(|n| stays(*n)).for_each(|n| map.put(&key(n), &[1; 1000]).expect("put"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (map, done) = (&map, &done);
            scope.spawn(move || {
                let mut random = Random(seed + 77);
                while !done.load(Ordering::Relaxed) {
                    let n = random.below(20_000);
                    match random.one_in(2) || stays(n) {
                        true => map.put(&key(n), &[random.bits() as u8; 1000]).expect("put"),
                        false => drop(map.delete(&key(n)).expect("delete")),
                    }
                }
            });
        }
        let begin = Instant::now();
        let waits = || map.stats().collections == 0 && begin.elapsed() < Duration::from_secs(20);
        for turn in (0..).take_while(|turn| *turn < cases(20) || waits()) {
            let range = if turn % 2 == 0 { Range::ALL } else { Range::ALL.reversed() };
            let found = paged(&map, range, 1 + turn as usize % 20 * 37);
            let mut keys: Vec<Vec<u8>> = found.into_iter().map(|(key, _)| key).collect();
            if turn % 2 == 1 {
                keys.reverse();
            }
            assert!(keys.is_sorted_by(|a, b| a < b), "in order, each once");
            let staying = keys.iter().filter(|k| k.ends_with(b"0")).count();
            assert_eq!(staying, 2_000, "turn {turn}");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(map.stats().collections > 0, "the collector had work: {:?}", map.stats());
}

#[test]
fn scans_go_on_at_their_cursors_and_unknown_ones_are_refused() {
    let dir = in_memory();
    let map = Map::open(dir.path(), ordered(Durability::None)).expect("open");
    (0..1000u32).for_each(|n| map.put(&n.to_be_bytes(), b"").expect("put"));
    let (mut cursor, mut seen) = (0, Vec::new());
    loop {
        let again = map.scan(cursor, 7, |_, _| ()).expect("scan");
        let next = map.scan(cursor, 7, |key, _| seen.push(key.to_vec())).expect("scan");
        assert_eq!(again == 0, next == 0, "a cursor may be asked for twice");
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
    assert!(seen.is_sorted());
    let refused = map.scan(1 << 40, 7, |_, _| ()).expect_err("unknown").to_string();
    assert!(refused.contains("begin again at 0") && !refused.contains('\n'), "{refused}");
}

#[test]
fn an_ordered_map_has_no_sections() {
    let dir = in_memory();
    let persist = terrace_store::Persist::Full;
    let options = MapOptions { persist, domain: Domain::Adr, ..ordered(Durability::Sync) };
    let refused = Map::open(dir.path(), options).err().expect("refused").to_string();
    assert!(refused.contains("persist = \"index\"") && !refused.contains('\n'), "{refused}");
}

fn keys_of(map: &Map, range: Range<'_>) -> Vec<Vec<u8>> {
    paged(map, range, 100).into_iter().map(|(key, _)| key).collect()
}

/// Keys that begin with 16 bytes of 0xff, more than a leaf of them, against their order.
#[test]
fn a_reversed_range_of_everything_sees_the_greatest_keys() {
    let dir = in_memory();
    let map = Map::open(dir.path(), ordered(Durability::None)).expect("map");
    for number in 0..300u32 {
        let key = [&[0xff; 16][..], &number.to_be_bytes()].concat();
        map.put(&key, b"v").expect("set");
    }
    let up = keys_of(&map, Range::ALL);
    let mut down = keys_of(&map, Range::ALL.reversed());
    down.reverse();
    assert_eq!(up.len(), 300);
    assert_eq!(down.len(), up.len(), "reversed, keys are missing");
}

/// A cursor of an earlier opening stands for its place, or is refused.
#[test]
fn a_cursor_of_an_earlier_opening_does_not_stand_for_another_place() {
    let dir = in_memory();
    let map = Map::open(dir.path(), ordered(Durability::Sync)).expect("map");
    (0..100u32).for_each(|n| map.put(&n.to_be_bytes(), b"v").expect("set"));
    let mut seen = std::collections::BTreeSet::new();
    let mut see = |key: &[u8]| _ = seen.insert(key.to_vec());
    let cursor = map.scan(0, 10, |key, _| see(key)).expect("scan");
    drop(map);
    let map = Map::open(dir.path(), ordered(Durability::Sync)).expect("map");
    // Somebody else's scan, further on.
    map.scan(0, 60, |_, _| ()).expect("scan");
    let mut cursor = cursor;
    while cursor != 0 {
        match map.scan(cursor, 10, |key, _| see(key)) {
            Ok(next) => cursor = next,
            Err(Error::Cursor(_)) => return,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(
        seen.len(),
        100,
        "a scan that ended at 0 has seen all keys that were there throughout"
    );
}

/// The first key is some key too.
#[test]
fn the_first_key_is_near_some_place() {
    let dir = in_memory();
    let map = Map::open(dir.path(), ordered(Durability::None)).expect("map");
    (0..20u32).for_each(|n| map.put(&n.to_be_bytes(), b"v").expect("set"));
    let mut session = map.session();
    let mut is_first_seen = false;
    for random in 0..10_000u64 {
        session
            .scan_near(random.wrapping_mul(0x9e37_79b9_7f4a_7c15), 5, |key, _| {
                is_first_seen |= key == 0u32.to_be_bytes();
            })
            .expect("scan");
    }
    assert!(is_first_seen);
}

/// Nothing was visited, so the range is not over.
#[test]
fn a_page_of_no_keys_does_not_say_that_the_range_is_over() {
    let dir = in_memory();
    let map = Map::open(dir.path(), ordered(Durability::None)).expect("map");
    map.put(b"a", b"v").expect("set");
    assert_ne!(
        map.scan(0, 0, |_, _| ()).expect("scan"),
        0,
        "there is a key, and it was not visited"
    );
}
