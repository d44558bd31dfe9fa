//! One thread: any sequence of operations answers as a sorted map does, whatever splits and resizes happen.

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Insert(u64, u64),
    Put(u64, u64),
    Replace(u64, u64),
    Remove(u64),
    Get(u64),
    Range(u64, u64),
    Open,
    Close,
}

fn operation(keys: u64) -> impl Strategy<Value = Operation> {
    use Operation::*;
    let key = move || prop_oneof![4 => 0..keys, 1 => (0..keys).prop_map(|key| key << 40), 1 => any::<u64>()];
    prop_oneof![
        4 => (key(), any::<u64>()).prop_map(|(key, value)| Insert(key, value)),
        2 => (key(), any::<u64>()).prop_map(|(key, value)| Put(key, value)),
        1 => (key(), any::<u64>()).prop_map(|(key, value)| Replace(key, value)),
        3 => key().prop_map(Remove),
        2 => key().prop_map(Get),
        2 => (key(), key()).prop_map(|(a, b)| Range(a.min(b), a.max(b))),
        1 => Just(Open),
        1 => Just(Close),
    ]
}

fn within(map: &BTreeMap<u64, u64>, first: u64, last: u64) -> Vec<(u64, u64)> {
    map.range(first..=last).map(|(key, value)| (*key, *value)).collect()
}

fn agrees(options: Options<u64>, operations: &[Operation]) {
    let table = LookupTable::new(options).unwrap();
    let mut map = BTreeMap::new();
    let mut snapshots = Vec::new();
    for operation in operations {
        match *operation {
            Operation::Insert(key, value) => {
                let is_new = !map.contains_key(&key);
                assert_eq!(table.insert(key, value), is_new);
                map.entry(key).or_insert(value);
            }
            Operation::Put(key, value) => assert_eq!(table.put(key, value), map.insert(key, value)),
            Operation::Replace(key, value) => {
                let before = map.get(&key).copied();
                assert_eq!(table.replace(&key, value), before);
                if before.is_some() {
                    map.insert(key, value);
                }
            }
            Operation::Remove(key) => assert_eq!(table.remove(&key), map.remove(&key)),
            Operation::Get(key) => assert_eq!(table.get(&key), map.get(&key).copied()),
            Operation::Range(first, last) => {
                assert_eq!(table.range(first..=last).unwrap(), within(&map, first, last));
                for (snapshot, then) in &snapshots {
                    let snapshot: &Snapshot<'_, u64> = snapshot;
                    let found: Vec<_> = snapshot.range(first..=last).unwrap().collect();
                    assert_eq!(found, within(then, first, last));
                    assert_eq!(snapshot.get(&first), then.get(&first).copied());
                }
            }
            Operation::Open if snapshots.len() < 4 => {
                snapshots.push((table.snapshot().unwrap(), map.clone()))
            }
            Operation::Open => {}
            Operation::Close => drop(snapshots.pop()),
        }
    }
    for (snapshot, then) in &snapshots {
        let found: Vec<_> = snapshot.range(0..=u64::MAX).unwrap().collect();
        assert_eq!(found, within(then, 0, u64::MAX));
    }
    drop(snapshots);
    assert_eq!(table.range(0..=u64::MAX).unwrap(), within(&map, 0, u64::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_table_answers_as_a_sorted_map(operations in prop::collection::vec(operation(60), 1..400)) {
        agrees(Options::default(), &operations);
        agrees(Options::default().with_buckets(1).with_split_after(2).with_resize_after(2), &operations);
        agrees(Options::paper(0, 60).with_buckets(3), &operations);
    }
}

fn tail() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(b'a'), any::<u8>()], 0..6)
}

proptest! {
    #[test]
    fn byte_strings_answer_as_a_sorted_map(
        keys in prop::collection::vec((tail(), 0..3usize), 1..200),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..50),
    ) {
        let prefixes: [&[u8]; 3] = [b"", b"https://example.org/", b"https://example.org/a/path/of/some/length/"];
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|(tail, prefix)| [prefixes[prefix], &tail].concat()).collect();
        let options = Options::default().with_buckets(2).with_split_after(2).with_resize_after(2);
        let table = LookupTable::new(options).unwrap();
        let mut map = BTreeMap::new();
        for (number, key) in (0..).zip(&keys) {
            prop_assert_eq!(table.put(Bytes::new(key).unwrap(), number), map.insert(key.clone(), number));
        }
        for index in removed {
            let key = index.get(&keys);
            prop_assert_eq!(table.remove(&Bytes::new(key).unwrap()), map.remove(key));
        }
        for key in &keys {
            prop_assert_eq!(table.get(&Bytes::new(key).unwrap()), map.get(key).copied());
        }
        let all = table.range(Bytes::new("").unwrap()..=Bytes::new([255; 16]).unwrap()).unwrap();
        let all: Vec<(Vec<u8>, u64)> = all.into_iter().map(|(key, value)| (key.to_vec(), value)).collect();
        prop_assert_eq!(all, map.into_iter().collect::<Vec<_>>());
    }
}

/// Miller, figure 6.3: the list's states at the times of five changes. Unlinking changes nothing that a range sees, so
/// the fifth is no moment of its own here.
#[test]
fn ranges_at_the_moments_of_the_paper() {
    let table = LookupTable::new(Options::predicted(0u64, 7)).unwrap();
    let at = || table.snapshot().unwrap();
    let mut moments = vec![at()];
    table.insert(1, 1);
    moments.push(at());
    table.insert(0, 0);
    moments.push(at());
    table.remove(&1);
    moments.push(at());
    let keys = |moment: &Snapshot<'_, u64>| {
        moment.range(0..=9).unwrap().map(|(key, _)| key).collect::<Vec<_>>()
    };
    let found: Vec<Vec<u64>> = moments.iter().map(keys).collect();
    assert_eq!(found, [vec![], vec![1], vec![0, 1], vec![0]]);
}

#[test]
fn bad_input_is_refused() {
    let new = |options: Options<u64>| LookupTable::new(options).unwrap_err();
    assert_eq!(new(Options::predicted(5, 5)), Error::Predicted);
    assert_eq!(new(Options::predicted(6, 5)), Error::Predicted);
    assert!(matches!(new(Options::default().with_buckets(0)), Error::Option { value: 0, .. }));
    assert!(matches!(new(Options::default().with_split_after(1)), Error::Option { value: 1, .. }));
    assert!(matches!(new(Options::default().with_resize_after(0)), Error::Option { value: 0, .. }));
    assert!(matches!(
        new(Options::default().with_keys_per_bucket(0)),
        Error::Option { value: 0, .. }
    ));
    let table = LookupTable::new(Options::default()).unwrap();
    #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    let reversed = table.range(5u64..=4);
    assert_eq!(reversed.unwrap_err(), Error::Reversed);
    for pairs in [[(1u64, 1u64), (1, 2)], [(2, 1), (1, 2)]] {
        assert_eq!(
            LookupTable::load(Options::default(), pairs).unwrap_err(),
            Error::NotAscending { at: 1 }
        );
    }
}

#[test]
fn the_smallest_and_the_largest_keys_are_keys() {
    let table = LookupTable::new(Options::default()).unwrap();
    for key in [0, 1, u64::MAX, u64::MAX - 1] {
        assert!(table.insert(key, key ^ 1));
    }
    assert_eq!(
        table.range(0..=u64::MAX).unwrap(),
        [(0, 1), (1, 0), (u64::MAX - 1, u64::MAX), (u64::MAX, u64::MAX - 1)]
    );
    let table = LookupTable::new(Options::default()).unwrap();
    for key in [i64::MIN, -1, 0, i64::MAX] {
        assert!(table.insert(key, 0));
    }
    let keys: Vec<i64> =
        table.range(i64::MIN..=i64::MAX).unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [i64::MIN, -1, 0, i64::MAX]);
}

#[test]
fn keys_that_ascend_descend_or_cluster_are_found_in_few_steps() {
    let clustered = |n: u64| ((n % 10) << 60) | (n / 10);
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let orders: [(&str, &dyn Fn(u64) -> u64); 4] = [
        ("up", &|n| n),
        ("down", &|n| 1 << 40 | (200_000 - n)),
        ("clusters", &clustered),
        ("scattered", &scattered),
    ];
    for (name, key) in orders {
        let table = LookupTable::new(Options::default()).unwrap();
        (0..100_000).for_each(|n| assert!(table.insert(key(n), n)));
        let mut sum = Visited::default();
        for n in 0..100_000 {
            let (value, visited) = table.get_visited(&key(n));
            assert_eq!(value, Some(n), "{name}");
            sum.levels += visited.levels;
            sum.nodes += visited.nodes;
        }
        let (levels, nodes) = (sum.levels as f64 / 100_000.0, sum.nodes as f64 / 100_000.0);
        println!("{name}: {levels} levels, {nodes} nodes");
        assert!(levels < 4.0 && nodes < 6.0, "{name}: {levels} levels, {nodes} nodes");
    }
}

/// Every link of the list, marker or element, in the order of the walk.
fn links(table: &LookupTable<u64>) -> Vec<u64> {
    let guard = crossbeam_epoch::pin();
    let (mut keys, mut word) = (Vec::new(), table.head.word());
    while let Some(target) = word.target(&guard) {
        keys.push(target.link().key);
        word = target.link().word();
    }
    keys
}

/// A level that predicts keys below those that there are stays within its bucket: a marker that lay behind one
/// with a larger key would lead a range that pauses there back to keys that it has told already.
#[test]
fn a_level_that_predicts_descending_keys_stays_within_its_bucket() {
    let options = Options::predicted(0u64, 64_000).with_resize_after(100);
    let table = LookupTable::new(options).unwrap();
    (6000..7000).for_each(|key| assert!(table.insert(key, 0)));
    (7500..7507).for_each(|key| assert!(table.insert(key, 0)));
    for key in (0..60).map(|n| 7490 - 8 * n) {
        assert!(table.insert(key, 0));
    }
    let links = links(&table);
    assert!(links.is_sorted(), "{:?}", links.windows(2).find(|pair| pair[0] > pair[1]));
    for first in 6000..7000 {
        let pairs = table.range(first..=7600).unwrap();
        assert!(pairs.is_sorted_by(|a, b| a.0 < b.0), "keys told twice from {first} on");
    }
}

/// Keys of one bit each, in byte strings of up to 1 KiB: no interpolation tells more than the first few apart.
#[test]
fn keys_that_defy_interpolation_cost_bounded_memory_and_depth() {
    const KEYS: usize = 4096;
    let key = |bit: usize| {
        let mut bytes = vec![0; bit / 8 + 1];
        bytes[bit / 8] = 0x80 >> (bit % 8);
        Bytes::new(bytes).unwrap()
    };
    for options in [Options::default(), Options::default().with_split_after(2)] {
        let table = LookupTable::new(options).unwrap();
        (0..KEYS).for_each(|bit| assert!(table.insert(key(bit), bit as u64)));
        (0..KEYS).for_each(|bit| assert_eq!(table.get(&key(bit)), Some(bit as u64)));
        let stats = table.stats();
        println!("{stats:?}");
        // A quarter of a KiB is the mean length of a key; a marker has one too.
        assert!(stats.buckets <= 20 * KEYS, "{stats:?}");
    }
}
