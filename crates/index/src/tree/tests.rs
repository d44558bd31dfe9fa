use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use terrace_memory::Region;

/// Items whose location is a number in a list of keys that only grows.
#[derive(Default)]
struct Listed(Mutex<Vec<Vec<u8>>>);

impl Listed {
    fn add(&self, key: &[u8]) -> u64 {
        let mut keys = self.0.lock().expect("the list");
        keys.push(key.to_vec());
        keys.len() as u64
    }

    fn named(&self, value: [u64; 2]) -> Vec<u8> {
        self.0.lock().expect("the list")[value[0] as usize - 1].clone()
    }
}

impl Keys for Listed {
    fn compare(&self, value: [u64; 2], key: &[u8]) -> std::cmp::Ordering {
        self.named(value).as_slice().cmp(key)
    }
    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        into.extend(self.named(value));
    }
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 40))
}

fn tree(form: Form, node_bytes: u64) -> Tree {
    let options = TreeOptions::of(form, node_bytes);
    Tree::new(&options, 1 << 20, &budget()).expect("memory")
}

fn sixteen(n: u64) -> [u8; 16] {
    u128::from(n).to_be_bytes()
}

fn put(tree: &Tree, n: u64, value: u64) -> Option<u64> {
    let before = tree.update(&sixteen(n), &Sixteen, |_| Change::Set([value, n])).expect("memory");
    before.map(|value| value[0])
}

fn get(tree: &Tree, n: u64) -> Option<u64> {
    tree.get(&sixteen(n), &Sixteen).map(|value| {
        assert_eq!(value[1], n, "an entry is whole");
        value[0]
    })
}

fn remove(tree: &Tree, n: u64) -> Option<u64> {
    let before = tree.update(&sixteen(n), &Sixteen, |_| Change::Remove).expect("memory");
    before.map(|value| value[0])
}

/// Everything, page by page.
fn all(tree: &Tree, direction: Direction, page: usize, keys: &impl Keys) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut from: Option<Vec<u8>> = None;
    loop {
        let bound = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let last = tree.range(bound, direction, page, keys, |entries| {
            found.extend_from_slice(entries);
        });
        let Some(last) = last else { return found };
        let mut key = Vec::new();
        keys.key(last.value, &mut key);
        from = Some(key);
    }
}

/// Every invariant of a tree that nobody uses at the time.
fn check<K: Keys>(tree: &Tree, keys: &K) {
    let (at, height) = root_of(tree.root.load(Ordering::Relaxed));
    let mut leaves = Vec::new();
    gather(tree, height, at, &mut leaves);
    let mut linked = leaves.first().copied();
    let mut last: Option<Entry> = None;
    let mut count = 0;
    for at in &leaves {
        assert_eq!(linked, Some(*at), "leaves are a list in the order of the nodes above");
        let leaf = tree.leaves.leaf(*at);
        for (entry, _) in leaf.sorted(keys) {
            assert!(
                last.is_none_or(|last| crate::keys::compare(last, entry, keys).is_lt()),
                "in order"
            );
            last = Some(entry);
            count += 1;
        }
        linked = (leaf.right() != 0).then(|| leaf.right());
    }
    assert_eq!((linked, count), (None, tree.len()));
    assert_eq!(tree.stats().leaves, leaves.len() as u64, "no leaf is lost");
}

fn gather(tree: &Tree, level: u64, at: u64, leaves: &mut Vec<u64>) {
    if level == 0 {
        leaves.push(at);
        return;
    }
    let inner = tree.inner(at);
    (0..=inner.count()).for_each(|number| gather(tree, level - 1, inner.child(number), leaves));
}

#[test]
fn finds_what_was_inserted_and_nothing_else_while_growing() {
    for form in Form::ALL {
        for node_bytes in [128, 512, 2048] {
            let tree = tree(form, node_bytes);
            for n in 1..=20_000u64 {
                let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                assert_eq!(put(&tree, n, n + 1), None);
            }
            for n in 1..=20_000u64 {
                let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                assert_eq!(get(&tree, n), Some(n + 1), "{form} {node_bytes}");
            }
            assert_eq!(get(&tree, 5), None);
            check(&tree, &Sixteen);
        }
    }
}

#[test]
fn keys_that_come_in_order_fill_their_leaves() {
    let tree = tree(Form::Sorted, 512);
    (1..=100_000).for_each(|n| assert_eq!(put(&tree, n, n), None));
    let stats = tree.stats();
    assert!(stats.entries * 10 > stats.leaves * 15 * 9, "{stats:?}");
    check(&tree, &Sixteen);
}

#[test]
fn an_emptied_tree_has_given_its_nodes_back() {
    for form in Form::ALL {
        let tree = tree(form, 256);
        for round in 0..3 {
            (1..=10_006).for_each(|n| assert_eq!(put(&tree, n * 7919 % 10_007, n), None));
            (1..=10_006).for_each(|n| assert!(remove(&tree, n * 31 % 10_007).is_some(), "{round}"));
            let stats = tree.stats();
            assert!(stats.leaves <= 4 && stats.inner <= 6, "{form}: {stats:?}");
            check(&tree, &Sixteen);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>),
    Remove(Vec<u8>),
    Up(Bound<Vec<u8>>, usize),
    Down(Bound<Vec<u8>>, usize),
    Batch(Vec<Vec<u8>>),
}

/// Keys of 0 to 100 bytes, many with the same long beginning, many with zeros.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let long = (0usize..4, prop::collection::vec(0u8..3, 0..4)).prop_map(|(n, tail)| {
        let mut key = [&b"the same beginning, "[..], &[0; 15], &[7; 14], &[0; 96]][n].to_vec();
        key.extend(tail);
        key
    });
    prop_oneof![
        3 => long,
        2 => prop::collection::vec(0u8..4, 0..6),
        1 => prop::collection::vec(any::<u8>(), 0..100),
    ]
}

fn bounds() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        keys().prop_map(Bound::Included),
        keys().prop_map(Bound::Excluded),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => keys().prop_map(Step::Set),
        3 => keys().prop_map(Step::Remove),
        1 => (bounds(), 1usize..30).prop_map(|(bound, count)| Step::Up(bound, count)),
        1 => (bounds(), 1usize..30).prop_map(|(bound, count)| Step::Down(bound, count)),
        1 => prop::collection::vec(keys(), 0..40).prop_map(Step::Batch),
    ];
    prop::collection::vec(step, 0..400)
}

fn agree(form: Form, steps: &[Step]) {
    let tree = tree(form, 128);
    let names = Listed::default();
    let mut model: BTreeMap<Vec<u8>, [u64; 2]> = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Set(key) => {
                let value = [names.add(key), number as u64 / 3];
                let before = tree.update(key, &names, |_| Change::Set(value)).expect("memory");
                assert_eq!(before, model.insert(key.clone(), value));
            }
            Step::Remove(key) => {
                let before = tree.update(key, &names, |_| Change::Remove).expect("memory");
                assert_eq!(before, model.remove(key));
            }
            Step::Up(from, count) | Step::Down(from, count) => {
                let up = matches!(step, Step::Up(..));
                let expected: Vec<_> = match up {
                    true => {
                        model.range((from.clone(), Bound::Unbounded)).map(|(_, v)| *v).collect()
                    }
                    false => {
                        let range = model.range((Bound::Unbounded, from.clone()));
                        range.rev().map(|(_, v)| *v).collect()
                    }
                };
                let direction = if up { Direction::Up } else { Direction::Down };
                let mut found = Vec::new();
                let bound = from.as_ref().map(|key| key.as_slice());
                let last = tree.range(bound, direction, *count, &names, |entries| {
                    found.extend(entries.iter().map(|entry| entry.value));
                });
                assert_eq!(found, expected[..expected.len().min(*count)]);
                assert_eq!(last.map(|last| last.value), expected.get(count - 1).copied());
            }
            Step::Batch(wanted) => {
                let mut values = vec![None; wanted.len()];
                tree.multi_get(wanted, &names, &mut values);
                let expected: Vec<_> = wanted.iter().map(|key| model.get(key).copied()).collect();
                assert_eq!(values, expected);
            }
        }
    }
    check(&tree, &names);
    for (key, value) in &model {
        assert_eq!(tree.get(key, &names), Some(*value));
        assert!(tree.holds(key, *value, &names));
    }
    let values: Vec<_> = model.values().copied().collect();
    for page in [1, 7, 1000] {
        let found = all(&tree, Direction::Up, page, &names);
        assert_eq!(found.iter().map(|e| e.value).collect::<Vec<_>>(), values);
        let found = all(&tree, Direction::Down, page, &names);
        assert_eq!(found.iter().rev().map(|e| e.value).collect::<Vec<_>>(), values);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_sorted_tree_agrees_with_a_map(steps in steps()) {
        agree(Form::Sorted, &steps);
    }

    #[test]
    fn an_unsorted_tree_agrees_with_a_map(steps in steps()) {
        agree(Form::Unsorted, &steps);
    }

    #[test]
    fn a_tree_that_writes_ahead_agrees_with_a_map(steps in steps()) {
        agree(Form::WriteAhead, &steps);
    }

    #[test]
    fn a_fast_fair_tree_agrees_with_a_map(steps in steps()) {
        agree(Form::FastFair, &steps);
    }

    #[test]
    fn a_persistent_unsorted_tree_agrees_with_a_map(steps in steps()) {
        agree(Form::PersistentUnsorted, &steps);
    }

    #[test]
    fn a_tree_filled_in_order_holds_it_and_goes_on(keys in prop::collection::btree_set(keys(), 0..300)) {
        let tree = tree(Form::Sorted, 128);
        let names = Listed::default();
        let entries: Vec<_> = keys
            .iter()
            .map(|key| Entry { head: head_of(key), value: [names.add(key), 0] })
            .collect();
        tree.bulk_load(entries.clone(), &names).expect("memory");
        check(&tree, &names);
        prop_assert_eq!(all(&tree, Direction::Up, 10, &names), entries);
        for key in &keys {
            let before = tree.update(key, &names, |_| Change::Remove).expect("memory");
            prop_assert!(before.is_some());
        }
        check(&tree, &names);
        prop_assert!(tree.is_empty());
    }
}

#[test]
fn a_tree_is_not_filled_with_what_is_out_of_order() {
    let tree = tree(Form::Sorted, 512);
    let entry = |n: u64| Entry { head: n.into(), value: [1, n] };
    let error = tree.bulk_load([entry(2), entry(1)], &Sixteen).expect_err("out of order");
    assert!(error.to_string().contains("in the order of their keys"), "{error}");
    check(&tree, &Sixteen);
    tree.bulk_load([entry(1), entry(2)], &Sixteen).expect("in order");
    let error = tree.bulk_load([entry(3)], &Sixteen).expect_err("not empty");
    assert!(error.to_string().contains("empty before"), "{error}");
    assert_eq!(tree.len(), 2);
}

#[test]
fn clearing_removes_everything_and_gives_every_node_back() {
    let budget = budget();
    let tree = Tree::new(&TreeOptions::default(), 1 << 16, &budget).expect("memory");
    (1..=10_000).for_each(|n| assert_eq!(put(&tree, n, n), None));
    tree.clear();
    assert_eq!((tree.len(), tree.stats().leaves, tree.stats().inner), (0, 1, 0));
    assert_eq!(get(&tree, 7), None);
    assert_eq!(put(&tree, 7, 8), None);
    assert_eq!(get(&tree, 7), Some(8));
    assert_eq!(budget.used(), tree.stats().bytes);
    drop(tree);
    assert_eq!(budget.used(), 0);
}

#[test]
fn options_that_no_tree_can_have_are_refused() {
    let refused = |form, node_bytes| {
        let options = TreeOptions { node_bytes, ..TreeOptions::of(form, 512) };
        Tree::new(&options, 1, &budget()).err().map(|error| error.to_string())
    };
    let wrong = refused(Form::Sorted, 500).expect("no power of two");
    assert!(wrong.contains("node_bytes = 500") && wrong.contains("128 to 4096"), "{wrong}");
    assert!(refused(Form::Unsorted, 4096).is_some_and(|wrong| wrong.contains("128 to 2048")));
    assert_eq!(refused(Form::Sorted, 4096), None);
    let wrong = "b-tree".parse::<Form>().expect_err("no such form");
    assert!(wrong.contains("b-tree") && wrong.contains("btree, unsorted, btree-wal"), "{wrong}");
}

#[test]
fn a_redirect_happens_only_while_the_value_is_current() {
    let tree = tree(Form::Sorted, 512);
    put(&tree, 5, 50);
    let redirect =
        |from, to| tree.update_at(&sixteen(5), [from, 5], &Sixteen, |_| Change::Set([to, 5]));
    assert!(!redirect(51, 60));
    assert!(redirect(50, 60));
    assert_eq!(get(&tree, 5), Some(60));
    assert_eq!(tree.look(&sixteen(5), &Sixteen, |value| value[0]), Some(60));
    assert_eq!(tree.look(&sixteen(6), &Sixteen, |value| value[0]), None);
}

#[test]
fn a_copy_made_while_its_item_was_overwritten_is_not_believed() {
    let tree = tree(Form::Sorted, 512);
    put(&tree, 5, 50);
    let key = sixteen(5);
    let overwrite =
        || tree.update(&key, &Sixteen, |_| Change::Overwritten).map(drop).expect("memory");
    let watch = tree.watch(&key, &Sixteen);
    assert!(watch.saw_no_overwrite(), "nothing happened");
    let keep = |_| {
        assert!(!watch.saw_no_overwrite(), "a writer has the leaf");
        Change::Keep
    };
    tree.update(&key, &Sixteen, keep).expect("memory");
    assert!(watch.saw_no_overwrite(), "it changed nothing");
    overwrite();
    assert!(!watch.saw_no_overwrite(), "it was overwritten");
    // A key that moved to another leaf is overwritten there.
    let watch = tree.watch(&key, &Sixteen);
    (0..1_000).for_each(|n| _ = put(&tree, n, 1));
    overwrite();
    assert!(!watch.saw_no_overwrite());
}

#[test]
fn readers_never_miss_what_stays_while_others_insert_update_and_remove() {
    for form in [Form::Sorted, Form::Unsorted, Form::FastFair] {
        let tree = tree(form, 256);
        let stable = |n: u64| n * 50;
        (0..2_000).for_each(|n| _ = put(&tree, stable(n), 1));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (tree, stop) = (&tree, &stop);
                scope.spawn(move || {
                    for round in 0..4 {
                        for n in 0..40_000u64 {
                            let key = n.wrapping_mul(7919) % 100_000;
                            match (key % 50 == 0, (n + round) % 2) {
                                (true, _) => _ = put(tree, key, round + 2),
                                (_, 0) if key % 2 == thread => _ = put(tree, key, 9),
                                _ if key % 2 == thread => _ = remove(tree, key),
                                _ => {}
                            }
                        }
                    }
                    stop.store(true, Ordering::Relaxed);
                });
            }
            scope.spawn(|| {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n = (n + 1) % 2_000;
                    assert!(get(&tree, stable(n)).is_some(), "{form}: key {}", stable(n));
                    let keys: Vec<_> = (0..8).map(|i| sixteen(stable((n + i) % 2_000))).collect();
                    let mut values = [None; 8];
                    tree.multi_get(&keys, &Sixteen, &mut values);
                    assert!(values.iter().all(Option::is_some), "{form}");
                }
            });
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for direction in [Direction::Up, Direction::Down] {
                        ranges_are_whole(&tree, direction, 2_000, 50);
                    }
                }
            });
        });
        check(&tree, &Sixteen);
    }
}

/// Visits everything: in order, each once, and all that stays.
fn ranges_are_whole(tree: &Tree, direction: Direction, stable: u64, every: u64) {
    let mut last = None;
    let mut met = 0;
    let mut from: Option<[u8; 16]> = None;
    loop {
        let bound = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        let end = tree.range(bound, direction, 100, &Sixteen, |entries| {
            for entry in entries {
                let key = entry.head as u64;
                assert_eq!(entry.value[1], key, "an entry is whole");
                let is_behind = last.is_none_or(|last| match direction {
                    Direction::Up => key > last,
                    Direction::Down => key < last,
                });
                assert!(is_behind, "{key} after {last:?}");
                last = Some(key);
                met += u64::from(key.is_multiple_of(every));
            }
        });
        match end {
            Some(entry) => from = Some(entry.head.to_be_bytes()),
            None => break,
        }
    }
    assert_eq!(met, stable);
}

#[test]
fn writers_of_one_key_never_lose_an_increment() {
    for form in Form::ALL {
        let tree = tree(form, 128);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let tree = &tree;
                scope.spawn(move || {
                    for n in 0..20_000u64 {
                        let count = |old: Option<[u64; 2]>| {
                            Change::Set([1 + old.map_or(0, |old| old[0]), 1_000])
                        };
                        tree.update(&sixteen(1_000), &Sixteen, count).expect("memory");
                        // Neighbours come and go, so that the leaf is split and merged.
                        put(tree, 999 - (n % 30) * 3 - thread, 1);
                        remove(tree, 999 - ((n + 15) % 30) * 3 - thread);
                    }
                });
            }
        });
        assert_eq!(get(&tree, 1_000), Some(60_000), "{form}");
        check(&tree, &Sixteen);
    }
}

/// A region of its own, of which only so many bytes are to be had.
fn reserved(region: &Arc<Region>, most: u64) -> Reserved<Native> {
    let memory = region.native();
    let region = Arc::clone(region);
    let commit = Box::new(move |at, bytes| match at + bytes <= most {
        true => region.commit(at, bytes),
        false => Err(io::ErrorKind::OutOfMemory.into()),
    });
    Reserved { memory, commit, start: 0 }
}

fn region(bytes: u64) -> Arc<Region> {
    let region = Region::reserve(bytes, Backing::Anonymous).expect("memory");
    Arc::new(region.declared(terrace_memory::Domain::Adr))
}

#[test]
fn a_log_that_no_tree_writes_is_refused_with_its_offset() {
    let options = TreeOptions::of(Form::WriteAhead, 256);
    let (leaves, inner) = (region(8 << 20), region(8 << 20));
    let regions = || (reserved(&leaves, u64::MAX), reserved(&inner, u64::MAX));
    let (on_leaves, on_inner) = regions();
    let tree = Tree::over(&options, on_leaves, on_inner, &budget()).expect("memory");
    (1..41).for_each(|n| assert_eq!(put(&tree, n, n), None));
    drop(tree);
    let memory = leaves.native();
    let recovered = || {
        let (leaves, inner) = regions();
        Tree::recover(&options, leaves, inner, &Sixteen, 2, &budget()).map(|tree| tree.len())
    };
    assert_eq!(recovered().expect("as it was"), 40);
    // Behind the first line the line of the first log says where its next record begins.
    for at in [8, LINE + 8, 1 << 20, (1 << 24) - LINE] {
        // SAFETY: a word of the memory, which only this test uses.
        let before = unsafe { memory.load(LINE) };
        // SAFETY: as above.
        unsafe { memory.store(LINE, 1 << 24 | at) };
        let refused = recovered().expect_err("a refusal");
        // SAFETY: as above.
        unsafe { memory.store(LINE, before) };
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let told = refused.to_string();
        assert!(told.contains("at offset 64: a record that begins"), "{told}");
    }
    assert_eq!(recovered().expect("as it was"), 40);
}

/// Inner nodes own copies of the keys that tie; what failed half done once kept them for ever.
#[test]
fn inner_nodes_that_could_not_be_built_give_back_what_they_own() {
    let (leaves, inner) = (region(8 << 20), region(8 << 20));
    let on_inner = reserved(&inner, FIRST_COMMIT_BYTES);
    let options = TreeOptions::of(Form::Unsorted, 256);
    let tree =
        Tree::over(&options, reserved(&leaves, u64::MAX), on_inner, &budget()).expect("memory");
    let tie: Arc<[u8]> = b"a key that ties with its neighbour"[..].into();
    let child = |n: u64| {
        let separator = crate::keys::Separator { head: n.into(), tie: Some(Arc::clone(&tie)) };
        ((n > 0).then_some(separator), 256 * (n + 1))
    };
    let children: Vec<_> = (0..200_000).map(child).collect();
    tree.build_inner(children, 2).expect_err("no room for so many");
    for _ in 0..10_000 {
        if Arc::strong_count(&tie) == 1 {
            return;
        }
        crossbeam_epoch::pin().flush();
        std::thread::yield_now();
    }
    panic!("{} copies are kept", Arc::strong_count(&tie) - 1);
}

/// A tree once kept the memory that it had at its largest: a map that evicted had room for little beside it.
#[test]
fn memory_of_removed_entries_is_given_back_and_taken_again() {
    const ALL: u64 = 200_000;
    let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for form in [Form::Rows, Form::Sorted, Form::Unsorted] {
        let budget = budget();
        let tree = Tree::new(&TreeOptions::of(form, 512), 1 << 20, &budget).expect("memory");
        for round in 1..4 {
            for n in 0..ALL {
                put(&tree, spread(n), round);
            }
            tree.shrink(&Sixteen);
            let full = tree.stats().bytes;
            for n in (0..ALL).filter(|n| !n.is_multiple_of(10)) {
                remove(&tree, spread(n));
            }
            let given = tree.shrink(&Sixteen);
            let left = tree.stats().bytes;
            assert_eq!(given, full - left, "{form}");
            assert!(left < full / 3, "{form}: {left} of {full} B left for a tenth");
            assert_eq!(budget.used(), left, "{form}");
            check(&tree, &Sixteen);
            for n in 0..ALL {
                let value = n.is_multiple_of(10).then_some(round);
                assert_eq!(get(&tree, spread(n)), value, "{form}, {n}");
            }
            for direction in [Direction::Up, Direction::Down] {
                assert_eq!(
                    all(&tree, direction, 1 << 20, &Sixteen).len() as u64,
                    ALL / 10,
                    "{form}"
                );
            }
        }
    }
}
