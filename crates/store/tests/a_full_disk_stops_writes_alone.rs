//! A disk that is full when a map is opened: whatever the opening would have written, reads go on, nothing is lost, and
//! once there is space everything is there again.

use crate::small_disk::SmallDisk;
use rustix::fs::FallocateFlags;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use terrace_memory::Domain;
use terrace_store::{Access, Durability, Error, Map, MapOptions, Persist, ValueDesign};

const KEYS: u64 = 150;
const INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

fn options() -> MapOptions {
    MapOptions { durability: INTERVAL, memory_budget_bytes: 64 << 20, ..MapOptions::default() }
}

fn value_of(key: u64) -> Vec<u8> {
    vec![key as u8; 10_000]
}

fn put(map: &Map, keys: std::ops::Range<u64>) {
    keys.for_each(|key| map.put(&key.to_be_bytes(), &value_of(key)).expect("put"));
}

/// What a process that dies now leaves: the pages of its files are the kernel's.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("read") {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copy");
    }
}

fn all_are_there(map: &Map) {
    for key in 0..KEYS {
        assert_eq!(map.get(&key.to_be_bytes()).expect("read"), Some(value_of(key)), "{key}");
    }
    assert_eq!(map.len(), KEYS);
}

/// The redo log of a killed process is written again at the opening. Where the disk had no room for that, the map was
/// not opened at all, and a server on it did not start.
#[test]
fn a_redo_log_that_finds_no_room_is_read_and_stays() {
    let (dir, disk_dir) =
        (tempfile::tempdir().expect("directory"), tempfile::tempdir().expect("directory"));
    let Some(disk) = SmallDisk::mount(disk_dir.path(), 28 << 20) else { return };
    let store = disk_dir.path().join("store");
    let map = Map::open(dir.path(), options()).expect("open");
    put(&map, 0..KEYS - 50);
    map.sync().expect("sync");
    put(&map, KEYS - 50..KEYS);
    copy(dir.path(), &store);
    drop(map);
    let ballast = disk.fill();
    for _ in 0..2 {
        let map = Map::open(&store, options()).expect("a full disk is no reason not to open");
        all_are_there(&map);
        assert_eq!(map.recovery().replayed, 50);
        assert_eq!(map.access(), Access::FullDisk);
        let refused = map.put(b"more", b"value").expect_err("read-only");
        assert!(matches!(refused, Error::ReadOnly(_)), "{refused:?}");
        let told = refused.to_string();
        assert!(told.contains("the disk was full") && told.contains("free space"), "{told}");
        assert!(map.delete(b"more").is_err() && map.clear().is_err() && map.sync().is_err());
        assert!(map.set_durability(Durability::Sync).is_err());
        let stats = map.stats();
        assert!(stats.memory_used_bytes < 16 << 20, "no more than once: {stats:?}");
        assert!(stats.redo_log.is_some_and(|path| path == store.join("redo")));
        assert!(stats.redo_log_bytes >= 500_000, "{}", stats.redo_log_bytes);
        assert!(matches!(Map::open(&store, options()), Err(Error::LockedHere(_))));
        map.close().expect("nothing is to be written");
    }
    ballast.remove();
    let map = Map::open(&store, options()).expect("open");
    assert_eq!(map.recovery().replayed, 50, "it was still there");
    all_are_there(&map);
    map.put(b"more", b"value").expect("writes go on");
    map.close().expect("close");
    assert!(!store.join("redo").exists());
}

fn punch(path: &Path, at: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("open");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, at, 4096).expect("a hole");
}

/// Whether a map takes writes and what it says of itself are one, however much or little room there was: a map whose
/// redo log found none said that it was opened to be written, and was not.
#[test]
fn a_map_says_whether_it_takes_writes() {
    let mut seen = [0; 2];
    for was in [Durability::None, INTERVAL, Durability::Sync] {
        for pages in 0..12 {
            let disk_dir = tempfile::tempdir().expect("directory");
            let Some(disk) = SmallDisk::mount(disk_dir.path(), 40 << 20) else { return };
            let store = disk_dir.path().join("store");
            let map = Map::open(&store, MapOptions { durability: was, ..options() }).expect("open");
            map.put(b"key", b"value").expect("put");
            map.close().expect("close");
            drop(map);
            // As if the second record of a checkpoint had never been written: the next finds no room there.
            punch(&store.join("values.log"), 2 * 4096);
            disk.fill().give_back(pages);
            let what = format!("{was:?}, {pages} pages");
            let map =
                Map::open(&store, options()).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(map.get(b"key").expect("get"), Some(b"value".to_vec()), "{what}");
            let put = map.put(b"key", b"other");
            let (access, stats) = (map.access(), map.stats());
            let is_written = match &put {
                // Another write may find room.
                Ok(()) | Err(Error::DiskFull { .. }) => true,
                Err(Error::ReadOnly(_)) => false,
                Err(other) => panic!("{what}: {other}"),
            };
            let expected = if is_written { Access::Write } else { Access::FullDisk };
            assert_eq!(access, expected, "{what}: {put:?}");
            assert_eq!(stats.stopped.as_deref(), access.refusal(), "{what}");
            seen[usize::from(is_written)] += 1;
        }
    }
    assert!(seen.iter().all(|times| *times > 0), "both were met: {seen:?}");
}

/// The child of the next test: writes all keys and dies.
#[test]
fn write_and_die() {
    let Some(store) = std::env::var_os("TERRACE_TEST_FULL") else { return };
    let form = std::env::var("TERRACE_TEST_FORM").expect("with it").parse().expect("a number");
    let map = Map::open(Path::new(&store), of_form(form)).expect("open");
    put(&map, 0..KEYS);
    std::process::abort();
}

const FORMS: [(ValueDesign, Domain, Persist); 7] = [
    (ValueDesign::Log, Domain::PageCache, Persist::Values),
    (ValueDesign::Log, Domain::Adr, Persist::Values),
    (ValueDesign::Log, Domain::Adr, Persist::Index),
    (ValueDesign::Log, Domain::Adr, Persist::Full),
    (ValueDesign::Slab, Domain::Adr, Persist::Values),
    (ValueDesign::Slab, Domain::Adr, Persist::Index),
    (ValueDesign::Slab, Domain::Adr, Persist::Full),
];

fn of_form(form: usize) -> MapOptions {
    let (values, domain, persist) = FORMS[form];
    MapOptions { values, domain, persist, ..options() }
}

/// What each design leaves after a kill on a disk that is full is read.
#[test]
fn every_form_that_was_killed_is_opened_on_a_full_disk() {
    for (form, what) in FORMS.iter().enumerate() {
        let disk_dir = tempfile::tempdir().expect("directory");
        let Some(disk) = SmallDisk::mount(disk_dir.path(), 160 << 20) else { return };
        let store = disk_dir.path().join("store");
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "a_full_disk_stops_writes_alone::write_and_die"])
            .env("TERRACE_TEST_FULL", &store)
            .env("TERRACE_TEST_FORM", form.to_string())
            .stderr(Stdio::null())
            .output()
            .expect("child");
        assert_eq!(child.status.code(), None, "it was to die: {child:?}");
        let ballast = disk.fill();
        let open = || Map::open(&store, of_form(form));
        let map = open().unwrap_or_else(|error| panic!("{what:?}: {error}"));
        all_are_there(&map);
        let more = map.put(b"more", b"value");
        let is_read_only = matches!(more, Err(Error::ReadOnly(_)));
        assert_eq!(is_read_only, map.access() == Access::FullDisk, "{what:?}: {more:?}");
        drop(map);
        ballast.remove();
        let map = open().unwrap_or_else(|error| panic!("{what:?}: {error}"));
        all_are_there(&map);
        put(&map, 0..KEYS);
    }
}

/// Where the disk had no room for a redo log, another try found none either, however much room there was by then.
#[test]
fn a_redo_log_is_tried_again_when_the_interval_is_set_again() {
    let disk_dir = tempfile::tempdir().expect("directory");
    let Some(disk) = SmallDisk::mount(disk_dir.path(), 64 << 20) else { return };
    let store = disk_dir.path().join("store");
    let none = MapOptions { durability: Durability::None, ..options() };
    let map = Map::open(&store, none).expect("open");
    map.put(b"a", b"1").expect("put");
    let ballast = disk.fill();
    map.set_durability(INTERVAL).expect("promised, with a checkpoint for each");
    map.put(b"b", b"2").expect("put");
    assert_eq!(map.stats().redo_log, None);
    assert_eq!(std::fs::read_dir(&store).expect("read").count(), 2, "values and lock");
    ballast.remove();
    map.set_durability(INTERVAL).expect("set again");
    assert!(map.stats().redo_log.is_some());
    let syncs = map.stats().syncs;
    for key in 0..50u64 {
        map.put(&key.to_be_bytes(), b"3").expect("put");
    }
    assert!(map.stats().syncs < syncs + 25, "no checkpoint for each");
    let copied = tempfile::tempdir().expect("directory");
    copy(&store, copied.path());
    let killed = Map::open(copied.path(), options()).expect("recover");
    assert_eq!(killed.len(), 52);
}

/// A directory that was never used says at once that there is no room for it.
#[test]
fn a_new_map_needs_room() {
    let disk_dir = tempfile::tempdir().expect("directory");
    let Some(disk) = SmallDisk::mount(disk_dir.path(), 4 << 20) else { return };
    disk.fill();
    let refused = Map::open(&disk_dir.path().join("store"), options()).err().expect("no room");
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
}
