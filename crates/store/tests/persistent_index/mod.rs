//! A persistent index saves the reading of values, and is never what a map depends on: whatever happens
//! to it, the map holds what was written. With sections not even the walk is needed.

mod damage;
mod logs;
mod trees;
mod verify;

use crate::adversary::{Random, cases, contents, in_memory, value_of};
use rustix::fs::{Mode, OFlags, SeekFrom};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;
use terrace_memory::Domain;
use terrace_store::laboratory::{Laboratory, TreeForm};
use terrace_store::{
    Change, Durability, Error, Kind, Map, MapOptions, Persist, RecoveryProcedure, ValueDesign,
};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is kept of a map, and how.
#[derive(Clone, Copy, Debug)]
struct Kept {
    kind: Kind,
    tree: Option<TreeForm>,
    values: ValueDesign,
    persist: Persist,
}

impl Kept {
    fn hash(values: ValueDesign, persist: Persist) -> Kept {
        Kept { kind: Kind::Hash, tree: None, values, persist }
    }

    /// Of all forms, or those of one kind.
    fn ways(kind: Option<Kind>) -> Vec<Kept> {
        let hash = [Persist::Index, Persist::Full].map(|persist| (Kind::Hash, None, persist));
        let trees = TreeForm::ALL.into_iter().filter(|form| form.is_persistent());
        let trees = trees.map(|form| (Kind::Ordered, Some(form), Persist::Index));
        let ways =
            hash.into_iter().chain(trees).filter(|way| kind.is_none_or(|kind| way.0 == kind));
        ways.flat_map(|(kind, tree, persist)| {
            DESIGNS.map(|values| Kept { kind, tree, values, persist })
        })
        .collect()
    }

    /// The same with another promise; of a tree that is not kept its form goes too.
    fn at(self, persist: Persist) -> Kept {
        let tree = self.tree.filter(|_| persist != Persist::Values);
        Kept { persist, tree, ..self }
    }

    /// How it comes up after a kill.
    fn found(self) -> Way {
        if self.persist == Persist::Full { Way::Replayed } else { Way::Walked }
    }
}

fn options(kept: Kept) -> MapOptions {
    let Kept { kind, tree, values, persist } = kept;
    MapOptions {
        durability: Durability::Sync,
        kind,
        laboratory: Laboratory { tree, ..Laboratory::default() },
        values,
        persist,
        domain: Domain::Adr,
        memory_budget_bytes: 256 << 20,
        writers: 2,
        ..MapOptions::default()
    }
}

const DESIGNS: [ValueDesign; 2] = [ValueDesign::Log, ValueDesign::Slab];

/// How a map came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Walked,
    Replayed,
    AsClosed,
}

fn way(map: &Map) -> Way {
    match map.recovery().procedure {
        RecoveryProcedure::ReadLogs | RecoveryProcedure::ReadSlots => Way::Read,
        RecoveryProcedure::WalkToLogs | RecoveryProcedure::WalkToSlots => Way::Walked,
        RecoveryProcedure::Replay => Way::Replayed,
        RecoveryProcedure::SavedIndex | RecoveryProcedure::AsClosed => Way::AsClosed,
    }
}

/// What a killed process leaves: the files as they are, while the map goes on. They are copied one after
/// the other, so that the map's own threads must be at rest meanwhile.
fn killed(dir: &Path) -> TempDir {
    let values = || {
        let values = ["values.log", "values.slab"].map(|file| data_extents(&dir.join(file)));
        values.into_iter().find_map(Result::ok).expect("values")
    };
    loop {
        let (before, copy) = (values(), in_memory());
        std::thread::sleep(std::time::Duration::from_millis(15));
        if before != values() {
            continue;
        }
        let files = ["values.log", "values.slab", "index"].map(|file| dir.join(file));
        for file in files.iter().filter(|file| file.exists()) {
            let copied = std::process::Command::new("cp")
                .args(["--sparse=always".as_ref(), file.as_os_str(), copy.path().as_os_str()])
                .status();
            assert!(copied.expect("cp").success());
        }
        if before == values() {
            return copy;
        }
    }
}

/// The bytes of a file that are not holes, with where they begin: of hundreds of megabytes a few are written.
fn data_extents(path: &Path) -> rustix::io::Result<Vec<(u64, Vec<u8>)>> {
    use std::os::unix::fs::FileExt;
    let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).map(std::fs::File::from)?;
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Err(rustix::io::Errno::NXIO) => return Ok(all),
            start => start?,
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
        let mut bytes = vec![0; (at - start) as usize];
        file.read_exact_at(&mut bytes, start).expect("as long as the file is");
        all.push((start, bytes));
    }
}

/// Every other key is one of many that have their first 29 bytes in common.
fn name(key: u64) -> Vec<u8> {
    let common: &[u8] = if key % 2 == 1 { b"what many of the keys begin with" } else { b"" };
    [&common[..common.len().min(29)], &key.to_be_bytes()].concat()
}

/// Writes, overwrites and deletes, and does the same to the model.
fn work(map: &Map, model: &mut Contents, random: &mut Random, operations: u64) {
    for number in 0..operations {
        let key = random.below(3_000);
        let name = name(key);
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

fn reopened(dir: &Path, options: MapOptions, model: &Contents, expected: Way) -> Map {
    let map = Map::open(dir, options).expect("open");
    assert_eq!(way(&map), expected, "{:?}", map.recovery());
    assert_eq!(map.len(), model.len() as u64);
    assert!(contents(&map) == *model, "the map holds what was written");
    if let Some(census) = map.check_slots() {
        let census = census.expect("every slot has one owner");
        assert_eq!(census.live, model.len() as u64, "no slot leaks");
    }
    map
}

#[test]
fn after_an_orderly_end_the_index_is_as_it_was_and_after_a_kill_it_is_found() {
    for kept in Kept::ways(None) {
        let mut dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(3));
        drop(Map::open(dir.path(), options(kept)).expect("open"));
        for _ in 0..cases(4) {
            let options = || options(kept.at(Persist::Auto));
            let map = reopened(dir.path(), options(), &model, Way::AsClosed);
            work(&map, &mut model, &mut random, 12_000);
            drop(map);
            let map = reopened(dir.path(), options(), &model, Way::AsClosed);
            work(&map, &mut model, &mut random, 6_000);
            let after = killed(dir.path());
            drop(reopened(
                killed(dir.path()).path(),
                self::options(kept.at(Persist::Values)),
                &model,
                Way::Read,
            ));
            drop(map);
            dir = after;
            let map = reopened(dir.path(), options(), &model, kept.found());
            work(&map, &mut model, &mut random, 6_000);
        }
        assert!(model.len() > 1_000);
    }
}

/// Of logs, what the allocation metadata counts is what a walk counts.
#[test]
fn the_allocation_metadata_of_logs_says_what_a_walk_finds() {
    let dir = in_memory();
    let (mut model, mut random) = (Contents::new(), Random(11));
    let map =
        Map::open(dir.path(), options(Kept::hash(ValueDesign::Log, Persist::Full))).expect("open");
    // Little enough is dead that nothing is collected.
    for number in 0..30_000 {
        let key = if random.one_in(5) { random.below(number + 1) } else { number };
        let (name, value) = (key.to_be_bytes().to_vec(), value_of(key, number, 300));
        map.put(&name, &value).expect("put");
        model.insert(name, value);
    }
    let sizes = |persist, expected| {
        let copy = killed(dir.path());
        let options = options(Kept::hash(ValueDesign::Log, persist));
        let map = reopened(copy.path(), options, &model, expected);
        (map.stats().live_bytes, map.stats().dead_bytes)
    };
    let counted = sizes(Persist::Full, Way::Replayed);
    std::fs::rename(dir.path().join("index"), dir.path().join("aside")).expect("moved");
    let read = sizes(Persist::Full, Way::Read);
    assert!(counted.1 > 0);
    assert_eq!(counted, read);
}

#[test]
fn the_persist_level_may_change_from_opening_to_opening() {
    use Persist::{Auto, Full, Index, Values};
    for design in DESIGNS {
        let mut dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(4));
        let orderly = [
            (Values, Way::Read),
            (Index, Way::Read),
            (Auto, Way::AsClosed),
            (Full, Way::AsClosed),
            (Auto, Way::AsClosed),
            (Index, Way::AsClosed),
            (Values, Way::Read),
            (Auto, Way::Read),
            (Full, Way::Read),
            (Values, Way::Read),
        ];
        for (persist, expected) in orderly {
            let map = reopened(dir.path(), options(Kept::hash(design, persist)), &model, expected);
            work(&map, &mut model, &mut random, 3_000);
            drop(map);
            assert_eq!(
                dir.path().join("index").exists(),
                persist != Values && expected == Way::AsClosed || matches!(persist, Index | Full)
            );
        }
        let after_kills = [
            (Full, Way::Read),
            (Auto, Way::Replayed),
            (Index, Way::Replayed),
            (Auto, Way::Walked),
            (Full, Way::Walked),
            (Values, Way::Read),
            (Full, Way::Read),
            (Full, Way::Replayed),
        ];
        for (persist, expected) in after_kills {
            let map = reopened(dir.path(), options(Kept::hash(design, persist)), &model, expected);
            work(&map, &mut model, &mut random, 3_000);
            let after = killed(dir.path());
            drop(map);
            dir = after;
        }
    }
}

/// Whatever was done to the index's file, after a kill or at rest, the values are read and the index is
/// rebuilt.
fn survives(what: &str, ways: &[Kept], harm: impl Fn(&Path)) {
    for kept in ways {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(5));
        let map = Map::open(dir.path(), options(*kept)).expect("open");
        work(&map, &mut model, &mut random, 5_000);
        let after = killed(dir.path());
        drop(map);
        for dir in [dir, after] {
            let mut model = model.clone();
            harm(&dir.path().join("index"));
            let map = reopened(dir.path(), options(*kept), &model, Way::Read);
            assert!(map.recovery().unfit.is_some(), "{what} is told");
            work(&map, &mut model, &mut random, 1_000);
            drop(map);
            drop(reopened(dir.path(), options(*kept), &model, Way::AsClosed));
        }
    }
}

/// Where the buckets of the first table begin, or the reserved region of leaves.
fn areas_at(index: &Path) -> u64 {
    use std::os::unix::fs::FileExt;
    let (mut allocation_bytes, file) = ([0; 8], std::fs::File::open(index).expect("index"));
    file.read_exact_at(&mut allocation_bytes, 32).expect("a head");
    4096 + u64::from_le_bytes(allocation_bytes)
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("index");
    file.write_all_at(bytes, at).expect("written");
}

#[test]
fn a_cleared_map_stays_empty_and_its_index_counts_on() {
    for kept in Kept::ways(None) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(7));
        let options = || options(kept);
        let map = Map::open(dir.path(), options()).expect("open");
        work(&map, &mut model, &mut random, 3_000);
        map.clear().expect("clear");
        model.clear();
        drop(reopened(killed(dir.path()).path(), options(), &model, kept.found()));
        drop(map);
        let map = reopened(dir.path(), options(), &model, Way::AsClosed);
        work(&map, &mut model, &mut random, 3_000);
        map.clear().expect("clear");
        model.clear();
        work(&map, &mut model, &mut random, 3_000);
        drop(reopened(killed(dir.path()).path(), options(), &model, kept.found()));
        drop(map);
        drop(reopened(dir.path(), options(), &model, Way::AsClosed));
    }
}

/// A crash inside a batch leaves none of it, and one after it all of it.
#[test]
fn a_batch_under_sections_is_whole_or_not_there() {
    let dir = in_memory();
    let options = || options(Kept::hash(ValueDesign::Log, Persist::Full));
    let map = Map::open(dir.path(), options()).expect("open");
    map.put(b"a", b"before").expect("put");
    map.put(b"c", b"stays").expect("put");
    let mut before: Contents = contents(&map);
    let mut session = map.session();
    let put = |value| Change::Put { value, expires_at_ms: None };
    let mut inside = None;
    session
        .write_pausing(
            &[(b"a", put(b"in the batch")), (b"b", put(b"new")), (b"c", Change::Delete)],
            || inside = Some(killed(dir.path())),
        )
        .expect("a batch");
    let inside = inside.expect("it was written");
    drop(reopened(inside.path(), options(), &before, Way::Read));
    let after = contents(&map);
    drop(reopened(killed(dir.path()).path(), options(), &after, Way::Replayed));
    before.clear();
}

#[test]
fn readers_and_writers_at_once_and_a_collector_under_them() {
    for kept in Kept::ways(None) {
        let dir = in_memory();
        let map = Map::open(dir.path(), options(kept)).expect("open");
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
        let after = killed(dir.path());
        drop(reopened(after.path(), options(kept), &model, kept.found()));
        drop(map);
        drop(reopened(dir.path(), options(kept), &model, Way::AsClosed));
    }
}

#[test]
fn deferred_frees_and_sections_are_refused_together() {
    let dir = in_memory();
    let options = options(Kept::hash(ValueDesign::Slab, Persist::Full));
    let options = MapOptions {
        laboratory: Laboratory { deferred_frees: 64, ..options.laboratory },
        ..options
    };
    let Err(Error::Option { field: "deferred_frees", why }) = Map::open(dir.path(), options) else {
        panic!("refused");
    };
    assert!(why.contains("persist = \"index\""), "{why}");
}

/// Where the map that is there says that each operation is a section, nothing of it is changed before the refusal.
#[test]
fn deferred_frees_are_refused_where_the_map_had_sections() {
    let dir = in_memory();
    let kept = Kept::hash(ValueDesign::Slab, Persist::Full);
    let (mut model, mut random) = (Contents::new(), Random(41));
    work(&Map::open(dir.path(), options(kept)).expect("open"), &mut model, &mut random, 500);
    let auto = options(kept.at(Persist::Auto));
    let laboratory = Laboratory { deferred_frees: 64, ..auto.laboratory };
    let Err(Error::Option { field: "deferred_frees", why }) =
        Map::open(dir.path(), MapOptions { laboratory, ..auto.clone() })
    else {
        panic!("refused");
    };
    assert!(why.contains("persist = \"index\""), "{why}");
    drop(reopened(dir.path(), auto, &model, Way::AsClosed));
}

#[test]
fn on_a_block_device_a_persistent_index_is_refused_with_the_way_out() {
    for kept in Kept::ways(None) {
        let dir = in_memory();
        let options = MapOptions { domain: Domain::PageCache, ..options(kept) };
        if kept.values == ValueDesign::Slab {
            continue;
        }
        let Err(Error::Option { field: "persist", why }) = Map::open(dir.path(), options) else {
            panic!("refused");
        };
        assert!(why.contains("byte-addressable") && why.contains("persist = \"values\""), "{why}");
        assert!(!dir.path().join("values.log").exists());
    }
}

/// That items expire is noted anew after everything was removed.
#[test]
fn items_that_expire_after_a_clear_are_swept_after_the_next_opening() {
    for design in DESIGNS {
        let dir = in_memory();
        let options = || options(Kept::hash(design, Persist::Full));
        let at = |ms: u64| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            Some(now.expect("a clock").as_millis() as u64 + ms)
        };
        let map = Map::open(dir.path(), options()).expect("open");
        map.session().put(b"a", b"1", at(60_000)).expect("put");
        map.clear().expect("clear");
        map.session().put(b"b", b"2", at(5_000)).expect("put");
        drop(map);
        let map = reopened(dir.path(), options(), &contents_of(&[(b"b", b"2")]), Way::AsClosed);
        let begin = std::time::Instant::now();
        while !map.is_empty() {
            assert!(begin.elapsed().as_secs() < 60, "what has expired is swept");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn contents_of(pairs: &[(&[u8], &[u8])]) -> Contents {
    pairs.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// What is written on a disk, the index that came along knows nothing of: back in persistent memory it does not count.
#[test]
fn an_index_that_was_on_a_disk_meanwhile_does_not_count() {
    for kept in Kept::ways(None).into_iter().filter(|kept| kept.values == ValueDesign::Log) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(18));
        work(&Map::open(dir.path(), options(kept)).expect("open"), &mut model, &mut random, 3_000);
        let auto = options(Kept { tree: None, ..kept.at(Persist::Auto) });
        let durability = Durability::Sync;
        let on_disk = MapOptions { domain: Domain::PageCache, durability, ..auto.clone() };
        let map = Map::open(dir.path(), on_disk).expect("open");
        assert!(map.recovery().unfit.is_some() && map.persist() == Persist::Values);
        work(&map, &mut model, &mut random, 3_000);
        drop(map);
        drop(reopened(dir.path(), MapOptions { durability, ..auto }, &model, Way::Read));
        drop(reopened(dir.path(), options(kept), &model, Way::Read));
    }
}

/// A map that was moved from persistent memory to a disk is read.
#[test]
fn on_a_block_device_a_map_that_kept_its_index_is_read() {
    for kept in Kept::ways(None).into_iter().filter(|kept| kept.values == ValueDesign::Log) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(17));
        let map = Map::open(dir.path(), options(kept)).expect("open");
        work(&map, &mut model, &mut random, 3_000);
        drop(map);
        let on_disk = Kept { tree: None, ..kept.at(Persist::Auto) };
        let on_disk = MapOptions { domain: Domain::PageCache, ..options(on_disk) };
        drop(reopened(dir.path(), on_disk, &model, Way::Read));
        drop(reopened(dir.path(), options(kept), &model, Way::Read));
    }
}
