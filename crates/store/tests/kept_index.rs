//! A kept index saves the reading of values, and is never what a map depends on: whatever happens
//! to it, the map holds what was written.

mod adversary;

use adversary::{Random, cases, contents, in_memory, value_of};
use std::collections::BTreeMap;
use std::path::Path;
use terrace_memory::Domain;
use terrace_store::{Durability, Error, Map, MapOptions, Persist, Procedure, ValueDesign};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(values: ValueDesign, persist: Persist) -> MapOptions {
    MapOptions {
        durability: Durability::Sync,
        values,
        persist,
        domain: Domain::Adr,
        memory_budget_bytes: 256 << 20,
        writers: 2,
        ..MapOptions::default()
    }
}

const DESIGNS: [ValueDesign; 2] = [ValueDesign::Log, ValueDesign::Slab];

fn walked(map: &Map) -> bool {
    matches!(map.recovery().procedure, Procedure::WalkToLogs | Procedure::WalkToSlots)
}

/// Writes, overwrites and deletes, and does the same to the model.
fn work(map: &Map, model: &mut Contents, random: &mut Random, operations: u64) {
    for number in 0..operations {
        let key = random.below(3_000);
        let name = key.to_be_bytes().to_vec();
        if random.one_in(4) {
            map.delete(&name).expect("delete");
            model.remove(&name);
        } else {
            let value = value_of(key, number, 20 + random.below(400) as usize);
            map.put(&name, &value).expect("put");
            model.insert(name, value);
        }
    }
}

fn reopened(dir: &Path, options: MapOptions, model: &Contents, walks: bool) -> Map {
    let map = Map::open(dir, options).expect("open");
    assert_eq!(walked(&map), walks, "{:?}", map.recovery());
    assert_eq!(map.len(), model.len() as u64);
    assert!(contents(&map) == *model, "the map holds what was written");
    map
}

#[test]
fn the_index_is_walked_and_everything_is_there() {
    for design in DESIGNS {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(3));
        drop(Map::open(dir.path(), options(design, Persist::Index)).expect("open"));
        for _ in 0..cases(4) {
            let map = reopened(dir.path(), options(design, Persist::Auto), &model, true);
            work(&map, &mut model, &mut random, 12_000);
        }
        assert!(model.len() > 1_000);
    }
}

#[test]
fn what_is_kept_may_change_from_opening_to_opening() {
    use Persist::{Auto, Index, Values};
    for design in DESIGNS {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(4));
        let turns = [(Values, false), (Index, false), (Auto, true), (Values, false), (Auto, false)];
        for (persist, walks) in turns.into_iter().chain([(Index, false), (Index, true)]) {
            let map = reopened(dir.path(), options(design, persist), &model, walks);
            work(&map, &mut model, &mut random, 3_000);
            drop(map);
            assert_eq!(dir.path().join("index").exists(), persist == Index || walks);
        }
    }
}

/// Whatever was done to the index's file, the values are read and the index is made anew.
fn survives(what: &str, harm: impl Fn(&Path)) {
    for design in DESIGNS {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(5));
        let map = Map::open(dir.path(), options(design, Persist::Index)).expect("open");
        work(&map, &mut model, &mut random, 5_000);
        drop(map);
        harm(&dir.path().join("index"));
        let map = reopened(dir.path(), options(design, Persist::Index), &model, false);
        assert!(map.recovery().unfit.is_some(), "{what} is told");
        work(&map, &mut model, &mut random, 1_000);
        drop(map);
        drop(reopened(dir.path(), options(design, Persist::Index), &model, true));
    }
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("index");
    file.write_all_at(bytes, at).expect("written");
}

#[test]
fn a_missing_index_is_made_anew() {
    survives("a missing index", |path| std::fs::remove_file(path).expect("removed"));
}

#[test]
fn an_index_cut_short_is_made_anew() {
    survives("an index cut short", |path| {
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("index");
        file.set_len(100).expect("cut");
    });
}

#[test]
fn a_flipped_bit_in_the_head_is_noticed() {
    survives("a flipped bit", |path| write_at(path, 20, &[0xa5]));
}

#[test]
fn an_entry_that_names_nothing_is_noticed() {
    // The first slots of the first buckets, of which some were in use.
    survives("entries that name nothing", |path| {
        (0..8u64).for_each(|bucket| {
            write_at(path, 4096 + 64 * bucket + 8, &0x0001_0000_0fff_fff8u64.to_le_bytes());
        });
    });
}

#[test]
fn an_entry_under_a_wrong_tag_is_noticed() {
    // The highest byte of the first slots: part of the tag, if they are in use.
    survives("entries that nobody would find", |path| {
        (0..8u64).for_each(|bucket| write_at(path, 4096 + 64 * bucket + 8 + 7, &[0x5a]));
    });
}

/// In slabs a lost line is made good: what nobody names is looked at before it is freed.
#[test]
fn keys_of_a_lost_line_are_found_in_their_slots() {
    let dir = in_memory();
    let (mut model, mut random) = (Contents::new(), Random(8));
    let options = || options(ValueDesign::Slab, Persist::Index);
    let map = Map::open(dir.path(), options()).expect("open");
    work(&map, &mut model, &mut random, 5_000);
    drop(map);
    (0..8u64).for_each(|bucket| write_at(&dir.path().join("index"), 4096 + 64 * bucket, &[0; 64]));
    drop(reopened(dir.path(), options(), &model, true));
    drop(reopened(dir.path(), options(), &model, true));
}

/// An index of before, put back, would hide what was written since: its mark tells.
#[test]
fn an_index_of_before_does_not_pass_for_the_present_one() {
    for design in DESIGNS {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(6));
        let turn = |model: &mut Contents, random: &mut Random| {
            let map = Map::open(dir.path(), options(design, Persist::Index)).expect("open");
            work(&map, model, random, 3_000);
        };
        turn(&mut model, &mut random);
        let (index, before) = (dir.path().join("index"), dir.path().join("before"));
        let copied = std::process::Command::new("cp").args([&index, &before]).status();
        assert!(copied.expect("cp").success());
        turn(&mut model, &mut random);
        std::fs::rename(before, index).expect("put back");
        drop(reopened(dir.path(), options(design, Persist::Index), &model, false));
    }
}

#[test]
fn a_cleared_map_stays_empty_and_its_index_counts_on() {
    for design in DESIGNS {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(7));
        let map = Map::open(dir.path(), options(design, Persist::Index)).expect("open");
        work(&map, &mut model, &mut random, 3_000);
        map.clear().expect("clear");
        model.clear();
        drop(map);
        let map = reopened(dir.path(), options(design, Persist::Index), &model, true);
        work(&map, &mut model, &mut random, 3_000);
        drop(map);
        drop(reopened(dir.path(), options(design, Persist::Index), &model, true));
    }
}

#[test]
fn readers_and_writers_at_once_and_a_collector_under_them() {
    for design in DESIGNS {
        let dir = in_memory();
        let map = Map::open(dir.path(), options(design, Persist::Index)).expect("open");
        let models: Vec<Contents> = std::thread::scope(|scope| {
            let writer = |writer: u64| {
                let map = &map;
                scope.spawn(move || {
                    let (mut model, mut random) = (Contents::new(), Random(writer));
                    for number in 0..40_000 {
                        let key = 2 * random.below(2_000) + writer;
                        let value = value_of(key, number, 200 + number as usize % 9);
                        map.put(&key.to_be_bytes(), &value).expect("put");
                        assert!(map.get(&key.to_be_bytes()).expect("get").as_ref() == Some(&value));
                        model.insert(key.to_be_bytes().to_vec(), value);
                    }
                    model
                })
            };
            let writers = [writer(0), writer(1)];
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
        });
        let model: Contents = models.into_iter().flatten().collect();
        drop(map);
        drop(reopened(dir.path(), options(design, Persist::Index), &model, true));
    }
}

#[test]
fn on_a_block_device_a_kept_index_is_refused_with_the_way_out() {
    let dir = in_memory();
    let options =
        MapOptions { domain: Domain::PageCache, ..options(ValueDesign::Log, Persist::Index) };
    let Err(Error::Option { field: "persist", why }) = Map::open(dir.path(), options) else {
        panic!("refused");
    };
    assert!(why.contains("byte-addressable") && why.contains("persist = \"values\""), "{why}");
    assert!(!dir.path().join("values.log").exists());
}
