//! Slabs as a map uses them: against a model, under many threads, when full, and when damaged.

mod crashes;
mod mini;

use mini::{Mini, Order, Random, directory, open, path, recover};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_durable::{Access, Error};
use terrace_memory::Domain;

const BUDGET: u64 = 256 << 20;
const RIGHT: Order = Order::WriteThenClear;

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize),
    Delete(usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0..40usize, prop_oneof![16..300usize, 16..5_000usize, Just(70_000usize), Just(900_000usize)])
            .prop_map(|(key, bytes)| Step::Put(key, bytes)),
        10 => (0..40usize).prop_map(Step::Delete),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn agrees_with_a_tree_and_after_every_reopening(steps in steps(), eadr in any::<bool>()) {
        let domain = if eadr { Domain::Eadr } else { Domain::Adr };
        let dir = directory();
        let mut model = BTreeMap::new();
        let mut mini = Mini::open(dir.path(), 40, domain, BUDGET, RIGHT);
        for (number, step) in (1..).zip(steps.iter().chain([&Step::Reopen])) {
            match step {
                Step::Put(key, bytes) => {
                    mini.put(1 + key % 2, *key, number, *bytes, &mut || {}).expect("put");
                    model.insert(*key, number);
                }
                Step::Delete(key) => {
                    prop_assert_eq!(mini.delete(*key, &mut || {}), model.remove(key).is_some());
                }
                Step::Reopen => {
                    prop_assert_eq!(mini.census().live, model.len() as u64);
                    drop(mini);
                    mini = Mini::open(dir.path(), 40, domain, BUDGET, RIGHT);
                    prop_assert_eq!(&mini.contents(), &model);
                    prop_assert_eq!(mini.census().live, model.len() as u64);
                }
            }
        }
    }
}

#[test]
fn readers_see_whole_values_while_slots_change_hands() {
    const KEYS: u64 = 64;
    let dir = directory();
    let mini = Mini::open(dir.path(), KEYS as usize, Domain::Adr, BUDGET, RIGHT);
    let done = AtomicBool::new(false);
    let mut reads = 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3usize)
            .map(|writer| {
                let mini = &mini;
                scope.spawn(move || {
                    let mut random = Random(writer as u64);
                    for n in 0..30_000 {
                        // All writers write all keys, in slots of few sizes: reuse is soon.
                        let key = random.below(KEYS) as usize;
                        if random.below(4) == 0 {
                            mini.delete(key, &mut || {});
                        } else {
                            let bytes = 16 + 100 * random.below(3) as usize;
                            mini.put(writer, key, n * 4 + writer as u64, bytes, &mut || {})
                                .expect("put");
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut random = Random(99);
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) {
                reads += u64::from(mini.get(random.below(KEYS) as usize).is_some());
            }
            reads
        });
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        done.store(true, Ordering::Relaxed);
        reads = reader.join().expect("a reader");
    });
    assert!(reads > 0);
    let contents = mini.contents();
    let census = mini.census();
    assert_eq!(census.live, contents.len() as u64);
    // One for each size; what is freed while the reader, in a value, is not scheduled comes back later.
    let superblocks = mini.slabs.total_superblocks();
    assert!((3..=6).contains(&superblocks), "{superblocks}: {census:?}");
    drop(mini);
    assert_eq!(
        Mini::open(dir.path(), KEYS as usize, Domain::Adr, BUDGET, RIGHT).contents(),
        contents
    );
}

/// Writes keys of `bytes` from `from` on until there is no room; the first that was refused.
fn fill(mini: &Mini, from: usize, bytes: usize) -> usize {
    for key in from.. {
        match mini.put(1, key, key as u64, bytes, &mut || {}) {
            Ok(()) => {}
            Err(Error::NoRoom { .. }) => return key,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the budget ends")
}

#[test]
fn full_slabs_take_deletes_then_writes_of_that_size_then_of_any_size() {
    let dir = directory();
    let mini = Mini::open(dir.path(), 20_000, Domain::Adr, 13 << 20, RIGHT);
    let count = fill(&mini, 0, 1000);
    assert!(count > 3 * 4000, "{count} values of 1000 bytes in three superblocks");
    assert!(mini.put(1, 19_999, 1, 3000, &mut || {}).is_err());
    (0..500).for_each(|key| assert!(mini.delete(key, &mut || {})));
    mini.census();
    (0..400).for_each(|key| mini.put(2, key, 7, 1000, &mut || {}).expect("freed slots serve"));
    assert!(mini.put(1, 19_999, 1, 3000, &mut || {}).is_err(), "not yet another size");
    (0..count).filter(|key| mini.delete(*key, &mut || {})).for_each(drop);
    assert_eq!(mini.census().live, 0);
    mini.slabs.give_back_cached();
    let others = fill(&mini, 0, 3000);
    assert!(others > 3 * 1000, "{others} values of 3000 bytes where the others were");
    let contents = mini.contents();
    mini.census();
    drop(mini);
    let again = Mini::open(dir.path(), 20_000, Domain::Adr, 13 << 20, RIGHT);
    assert_eq!(again.contents(), contents);
    assert_eq!(again.slabs.total_superblocks(), 3);
}

#[test]
fn clearing_is_durable_and_the_superblocks_are_used_again() {
    let dir = directory();
    let mini = Mini::open(dir.path(), 5_000, Domain::Adr, BUDGET, RIGHT);
    for round in 0..3 {
        for key in 0..5_000 {
            mini.put(1, key, key as u64, 700 + 300 * round, &mut || {}).expect("put");
        }
        // Retired slots of the life before are still under way when the next life begins.
        (0..100).for_each(|key| assert!(mini.delete(key, &mut || {})));
        mini.slabs.clear(&crossbeam_epoch::pin(), || mini.forget()).expect("clear");
        assert!(mini.contents().is_empty());
        assert_eq!(mini.census().slots, 0);
    }
    let superblocks = mini.slabs.total_superblocks();
    assert!(superblocks <= 4, "{superblocks}");
    mini.put(1, 3, 77, 100, &mut || {}).expect("put");
    let image = std::fs::read(path(dir.path())).expect("image");
    assert_eq!(crashes::recovered(&image).expect("recover"), BTreeMap::from([(3, 77)]));
}

/// A closed file with 100 values, the location of number 50, and its directory.
fn closed() -> (tempfile::TempDir, u64) {
    let dir = directory();
    let mini = Mini::open(dir.path(), 100, Domain::Adr, BUDGET, RIGHT);
    (0..100).for_each(|key| mini.put(1, key, key as u64, 200, &mut || {}).expect("put"));
    drop(mini);
    let slabs = open(dir.path(), Domain::Adr, BUDGET, Access::Salvage).expect("open");
    let (contents, found) = recover(&slabs).expect("recover");
    assert_eq!((contents.len(), found.items, found.torn.len()), (100, 100, 0));
    (dir, contents[&50].0)
}

fn flip(dir: &std::path::Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path(dir)).expect("file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("write");
}

#[test]
fn damage_is_named_and_the_rest_is_read_with_salvage() {
    for (what, lost) in [("item", 1), ("header", 100), ("head", 0)] {
        let (dir, location) = closed();
        let at = match what {
            "item" => location + 30,
            "header" => (4 << 20) + 9,
            _ => 40,
        };
        flip(dir.path(), at);
        let before = std::fs::read(path(dir.path())).expect("file");
        let opened = open(dir.path(), Domain::Adr, BUDGET, Access::Write);
        let Err(Error::Damaged { offset, what, .. }) = opened.and_then(|s| recover(&s)) else {
            panic!("{what}: not noticed")
        };
        assert!(offset <= at && at < offset + 300, "{what} at {offset}");
        let slabs = open(dir.path(), Domain::Adr, BUDGET, Access::Salvage).expect("open");
        let (contents, found) = recover(&slabs).expect("salvage");
        assert_eq!((contents.len(), found.damage.len()), (100 - lost, 1));
        assert!(matches!(
            slabs.slots(1, 100, terrace_durable::values::Room::Ordinary),
            Err(Error::Stopped(_))
        ));
        drop(slabs);
        assert!(
            std::fs::read(path(dir.path())).expect("file") == before,
            "salvage leaves the file as it is"
        );
    }
}

#[test]
fn after_a_crash_a_slot_that_does_not_verify_is_torn_and_cleared() {
    let dir = directory();
    let mini = Mini::open(dir.path(), 100, Domain::Adr, BUDGET, RIGHT);
    (0..100).for_each(|key| mini.put(1, key, key as u64, 200, &mut || {}).expect("put"));
    let crashed = directory();
    std::fs::copy(path(dir.path()), path(crashed.path())).expect("copy");
    flip(crashed.path(), (4 << 20) + 64 + 30);
    let slabs = open(crashed.path(), Domain::Adr, BUDGET, Access::Write).expect("open");
    let (contents, found) = recover(&slabs).expect("a torn slot is no damage");
    assert_eq!((contents.len(), found.torn.len(), found.damage.len()), (99, 1, 0));
    assert_eq!(found.torn[0].offset, (4 << 20) + 64);
    assert_eq!(slabs.check().expect("the torn slot is free").live, 99);
    drop(slabs);
    let slabs = open(crashed.path(), Domain::Adr, BUDGET, Access::Write).expect("open");
    assert_eq!(recover(&slabs).expect("recover").1.torn.len(), 0);
}

#[test]
fn a_truncated_file_or_one_of_another_design_is_refused() {
    let (dir, _) = closed();
    let file = std::fs::OpenOptions::new().write(true).open(path(dir.path())).expect("file");
    file.set_len((4 << 20) + 5000).expect("cut");
    let slabs = open(dir.path(), Domain::Adr, BUDGET, Access::Write).expect("open");
    assert!(
        matches!(recover(&slabs), Err(Error::Damaged { offset, .. }) if offset == (4 << 20) + 5000)
    );
    drop(slabs);
    let slabs = open(dir.path(), Domain::Adr, BUDGET, Access::Salvage).expect("open");
    assert!(recover(&slabs).expect("salvage").0.is_empty());
    let (dir, _) = closed();
    let spec = terrace_durable::MediumSpec {
        path: path(dir.path()),
        domain: Domain::Adr,
        dax: false,
        capacity_bytes: 1 << 30,
        access: Access::Write,
    };
    let budget = std::sync::Arc::new(terrace_memory::Budget::new(BUDGET));
    let medium = terrace_durable::Medium::open(&spec).expect("open");
    assert!(matches!(
        terrace_durable::logs::Logs::open(medium, 2, &budget),
        Err(Error::Mismatch { .. })
    ));
}
