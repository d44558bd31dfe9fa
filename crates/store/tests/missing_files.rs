//! A file that was deleted is missed: what went with it is refused with its name, and is not taken for something new.
//! A map whose value file was gone, its index beside it, came up empty without a word, and so did queues and tables.

use std::path::Path;
use std::sync::Arc;
use terrace_memory::{Budget, Domain};
use terrace_store::{
    Access, Error, Kind, Map, MapOptions, Persist, Queue, QueueOptions, ValueDesign, Words,
    WordsOptions,
};

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 30))
}

fn options(kind: Kind, values: ValueDesign, persist: Persist) -> MapOptions {
    MapOptions {
        kind,
        values,
        persist,
        domain: Domain::Adr,
        memory_budget_bytes: 256 << 20,
        writers: 2,
        ..MapOptions::default()
    }
}

fn is_missed(found: Result<(), Error>, path: &Path) {
    match found {
        Err(error @ Error::Missing { .. }) => {
            let told = error.to_string();
            assert!(told.contains(&*path.to_string_lossy()) && told.contains("backup"), "{told}");
        }
        other => panic!("{}: {other:?}", path.display()),
    }
    assert!(!path.exists(), "{}: nothing was made in its place", path.display());
}

#[test]
fn a_map_without_its_values_is_refused_whatever_is_left_of_it() {
    for (kind, persist) in [
        (Kind::Hash, Persist::Values),
        (Kind::Hash, Persist::Index),
        (Kind::Hash, Persist::Full),
        (Kind::Ordered, Persist::Index),
    ] {
        for (values, file) in [(ValueDesign::Log, "values.log"), (ValueDesign::Slab, "values.slab")]
        {
            let dir = tempfile::tempdir().expect("directory");
            let good = options(kind, values, persist);
            let map = Map::open(dir.path(), good.clone()).expect("open");
            map.put(b"key", b"value").expect("put");
            map.close().expect("close");
            drop(map);
            let path = dir.path().join(file);
            let kept = std::fs::read(&path).expect("values");
            std::fs::remove_file(&path).expect("removed");
            for access in [Access::Write, Access::Read, Access::Salvage] {
                let options = MapOptions { access, ..good.clone() };
                is_missed(Map::open(dir.path(), options).map(drop), &path);
            }
            // Made before the lock said what goes with it: the index tells.
            if persist != Persist::Values {
                std::fs::write(dir.path().join("lock"), b"").expect("lock");
                is_missed(Map::open(dir.path(), good.clone()).map(drop), &path);
            }
            // As from a backup.
            std::fs::write(&path, kept).expect("values");
            let map = Map::open(dir.path(), good).expect("open");
            assert_eq!(map.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
        }
    }
}

#[test]
fn a_queue_without_its_ring_and_a_table_without_its_file_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let good = QueueOptions { domain: Domain::Adr, ..QueueOptions::default() };
    drop(Queue::open(dir.path(), &good, &budget()).expect("open"));
    let path = dir.path().join("ring");
    std::fs::remove_file(&path).expect("removed");
    is_missed(Queue::open(dir.path(), &good, &budget()).map(drop), &path);

    let dir = tempfile::tempdir().expect("directory");
    let good = WordsOptions { domain: Domain::Adr, ..WordsOptions::default() };
    drop(Words::open(dir.path(), &good, &budget()).expect("open"));
    let path = dir.path().join("table");
    std::fs::remove_file(&path).expect("removed");
    is_missed(Words::open(dir.path(), &good, &budget()).map(drop), &path);
}

#[test]
fn a_crash_before_anything_was_made_leaves_a_directory_to_begin_in() {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("lock"), b"").expect("lock");
    std::fs::write(dir.path().join("values.log.new"), [0; 100]).expect("half a file");
    let good = options(Kind::Hash, ValueDesign::Log, Persist::Values);
    drop(Map::open(dir.path(), good).expect("open"));
}
