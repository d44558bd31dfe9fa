//! What is opened to be read is found as it is, and its directory stays as it was.

use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use terrace_memory::Budget;
use terrace_store::queue::Form;
use terrace_store::{
    Access, Domain, Durability, Error, Kind, Map, MapOptions, Persist, Queue, QueueOptions,
    RecoveryProcedure, ValueDesign, Words, WordsOptions,
};

const KEYS: u64 = 3000;

fn options(kind: Kind, values: ValueDesign, persist: Persist) -> MapOptions {
    MapOptions {
        kind,
        values,
        persist,
        domain: Domain::Eadr,
        durability: Durability::Sync,
        memory_budget_bytes: 64 << 20,
        writers: 1,
        ..MapOptions::default()
    }
}

fn filled(dir: &Path, options: MapOptions) -> Map {
    let map = Map::open(dir, options).expect("a new map");
    for key in 0..KEYS {
        map.put(&key.to_be_bytes(), &[key as u8; 100]).expect("put");
    }
    for key in (0..KEYS).step_by(3) {
        map.put(&key.to_be_bytes(), &[1; 200]).expect("put");
    }
    for key in (0..KEYS).step_by(7) {
        map.delete(&key.to_be_bytes()).expect("delete");
    }
    map
}

fn contents(map: &Map) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let found = |key: u64| {
        let key = key.to_be_bytes().to_vec();
        let value = map.session().get(&key, |value| value.bytes.to_vec()).expect("readable")?;
        Some((key, value))
    };
    (0..KEYS).filter_map(found).collect()
}

/// A file's length and its blocks that hold anything: an index has room for a large map in its file.
type Image = (u64, BTreeMap<u64, Vec<u8>>);

const BLOCK_BYTES: u64 = 4096;

fn image(path: &Path) -> Image {
    let file = File::open(path).expect("a file");
    let length = file.metadata().expect("its length").len();
    let (mut blocks, mut at) = (BTreeMap::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        let end = seek(&file, SeekFrom::Hole(start)).expect("an end");
        for block in (start..end).step_by(BLOCK_BYTES as usize) {
            let mut bytes = vec![0; BLOCK_BYTES.min(end - block) as usize];
            file.read_exact_at(&mut bytes, block).expect("its bytes");
            if bytes.iter().any(|byte| *byte != 0) {
                blocks.insert(block, bytes);
            }
        }
        at = end;
    }
    (length, blocks)
}

/// But for the lock, which is empty and made where it is not there.
fn files(dir: &Path) -> BTreeMap<String, Image> {
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        (entry.file_name().into_string().expect("a name"), image(&entry.path()))
    };
    let all = std::fs::read_dir(dir).expect("the directory").map(file);
    all.filter(|(name, _)| name != "lock").collect()
}

fn copied(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a directory");
    for (name, (length, blocks)) in files(from) {
        let copy = File::create(to.path().join(name)).expect("a copy");
        copy.set_len(length).expect("its length");
        blocks.iter().for_each(|(at, bytes)| copy.write_all_at(bytes, *at).expect("its bytes"));
    }
    to
}

/// Puts half an item behind the last one of a log; of slabs, into a slot that nobody has.
fn tear(dir: &Path) {
    for (name, free) in [("values.log", 0), ("values.slab", 3 << 20)] {
        let path = dir.join(name);
        let Ok(file) = File::options().write(true).open(&path) else { continue };
        let (_, blocks) = image(&path);
        let (block, bytes) = blocks.last_key_value().expect("it has items");
        let end = block + 1 + bytes.iter().rposition(|byte| *byte != 0).expect("not zero") as u64;
        let segment = end / (4 << 20) * (4 << 20);
        let at = end.next_multiple_of(64).max(segment + free);
        file.write_all_at(&[0x5a; 40], at).expect("half an item");
    }
}

/// What the next opening takes back must not be read: the index alone says what of such logs counts.
fn is_half_done(dir: &Path, asked: &MapOptions) {
    let to_read = MapOptions { access: Access::Read, ..asked.clone() };
    let error = Map::open(dir, to_read).map(drop).expect_err("half done").to_string();
    assert!(error.contains("open it once for writing"), "{error}");
    Map::open(dir, asked.clone()).expect("to be written").close().expect("close");
    let to_read = MapOptions { access: Access::Read, ..asked.clone() };
    Map::open(dir, to_read).expect("to be read");
}

/// Reads the map in `dir` in every way; its directory stays as it is.
fn is_read(dir: &Path, asked: &MapOptions, expected: &BTreeMap<Vec<u8>, Vec<u8>>, what: &str) {
    let before = files(dir);
    for domain in [Domain::Eadr, Domain::PageCache] {
        // Not what it was made with: whoever only looks need not know.
        let to_read = MapOptions { access: Access::Read, domain, ..asked.clone() };
        let to_read = MapOptions { persist: Persist::Auto, ..to_read };
        let map = Map::open(dir, to_read.clone()).expect(what);
        assert!(contents(&map) == *expected, "{what}, {domain}: other contents");
        assert!(matches!(map.put(b"new", b"value"), Err(Error::ReadOnly(_))), "{what}");
        assert!(matches!(map.delete(&1u64.to_be_bytes()), Err(Error::ReadOnly(_))), "{what}");
        assert!(matches!(map.clear(), Err(Error::ReadOnly(_))), "{what}");
        let other = Map::open(dir, to_read).expect("readers share");
        assert!(contents(&other) == *expected, "{what}: the second reader");
        assert!(matches!(Map::open(dir, asked.clone()), Err(Error::LockedHere(_))), "{what}");
        other.close().expect("nothing to save");
        map.close().expect("nothing to save");
    }
    assert!(files(dir) == before, "{what}: reading changed a file");
}

#[test]
fn a_map_is_read_at_rest_and_after_a_crash_and_its_files_stay_as_they_are() {
    for kind in [Kind::Hash, Kind::Ordered] {
        for values in [ValueDesign::Log, ValueDesign::Slab] {
            for persist in [Persist::Values, Persist::Index, Persist::Full] {
                if (kind, persist) == (Kind::Ordered, Persist::Full) {
                    continue;
                }
                let what = format!("{kind:?} {values:?} {persist:?}");
                let dir = tempfile::tempdir().expect("a directory");
                let asked = options(kind, values, persist);
                let map = filled(dir.path(), asked.clone());
                let expected = contents(&map);
                let to_read = MapOptions { access: Access::Read, ..asked.clone() };
                let beside = Map::open(dir.path(), to_read).map(drop);
                assert!(matches!(beside, Err(Error::LockedHere(_))), "{what}: beside its writer");
                // The process's end, whatever it was in the middle of.
                let killed = copied(dir.path());
                map.close().expect("close");
                drop(map);
                // The copy has no lock; a crash may have torn an end, or a slot that was being written.
                tear(killed.path());
                match (values, persist) {
                    (ValueDesign::Log, Persist::Full) => is_half_done(killed.path(), &asked),
                    _ => is_read(killed.path(), &asked, &expected, &format!("{what}, killed")),
                }
                is_read(dir.path(), &asked, &expected, &what);
                let before = files(dir.path());
                let map = Map::open(dir.path(), asked).expect("as before");
                if persist != Persist::Values {
                    assert_eq!(map.recovery().procedure, RecoveryProcedure::AsClosed, "{what}");
                }
                assert!(contents(&map) == expected, "{what}");
                map.put(b"new", b"value").expect("it is to be written");
                drop(map);
                assert!(files(dir.path()) != before, "{what}: writing changes nothing either");
            }
        }
    }
}

#[test]
fn reading_creates_nothing_and_reports_damage() {
    let dir = tempfile::tempdir().expect("a directory");
    let asked = options(Kind::Hash, ValueDesign::Log, Persist::Values);
    let to_read = MapOptions { access: Access::Read, ..asked.clone() };
    let absent = dir.path().join("absent");
    assert!(matches!(Map::open(&absent, to_read.clone()), Err(Error::Io { .. })));
    assert!(!absent.exists(), "nothing was made");
    filled(dir.path(), asked).close().expect("close");
    let mut image = std::fs::read(dir.path().join("values.log")).expect("image");
    image[(4 << 20) + 10_000] ^= 1;
    std::fs::write(dir.path().join("values.log"), image).expect("damaged");
    let error = Map::open(dir.path(), to_read.clone()).map(drop).expect_err("damage");
    assert!(error.to_string().contains("salvage"), "{error}");
    let salvage = MapOptions { access: Access::Salvage, ..to_read };
    let map = Map::open(dir.path(), salvage).expect("what is intact");
    assert_eq!(map.recovery().damage.len(), 1);
}

#[test]
fn a_queue_is_read_and_stays_as_it_is() {
    for (form, domain) in [(Form::TxFree, Domain::PageCache), (Form::Tx, Domain::Adr)] {
        let dir = tempfile::tempdir().expect("a directory");
        let (place, budget) = (dir.path().join("q"), Arc::new(Budget::new(1 << 30)));
        let asked =
            QueueOptions { form, domain, capacity_bytes: Some(1 << 20), ..QueueOptions::default() };
        // Neither its form nor its domain: whoever only looks need not know.
        let to_read = QueueOptions { access: Access::Read, ..QueueOptions::default() };
        assert!(matches!(Queue::open(&place, &to_read, &budget), Err(Error::Io { .. })));
        assert!(!place.exists(), "nothing was made");
        let queue = Queue::open(&place, &asked, &budget).expect("a new queue");
        queue.push(b"first").expect("room");
        queue.push(b"second").expect("room");
        assert!(matches!(Queue::open(&place, &to_read, &budget), Err(Error::LockedHere(_))));
        queue.close().expect("close");
        drop(queue);
        let before = files(&place);
        for _ in 0..2 {
            let queue = Queue::open(&place, &to_read, &budget).expect("to be read");
            assert!(matches!(queue.push(b"third"), Err(Error::ReadOnly(_))));
            for expected in [&b"first"[..], b"second"] {
                assert_eq!(queue.pop().expect("read").as_deref(), Some(expected));
            }
            queue.close().expect("nothing to save");
        }
        assert!(files(&place) == before, "{form}: reading changed a file");
    }
}

#[test]
fn a_table_of_words_is_read_and_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let (place, budget) = (dir.path().join("w"), Arc::new(Budget::new(1 << 30)));
    let asked =
        WordsOptions { capacity: Some(5000), domain: Domain::Adr, ..WordsOptions::default() };
    // On what is taken for a disk: no store reaches the file.
    let to_read = WordsOptions { access: Access::Read, ..WordsOptions::default() };
    assert!(matches!(Words::open(&place, &to_read, &budget), Err(Error::Io { .. })));
    assert!(!place.exists(), "nothing was made");
    let words = Words::open(&place, &asked, &budget).expect("a new table");
    let mut session = words.session().expect("a session");
    (0..3000).for_each(|key| assert!(session.insert(key, key + 1).expect("room")));
    drop(session);
    assert!(matches!(Words::open(&place, &to_read, &budget), Err(Error::LockedHere(_))));
    drop(words);
    let before = files(&place);
    for _ in 0..2 {
        let words = Words::open(&place, &to_read, &budget).expect("to be read");
        let mut session = words.session().expect("a session");
        assert!(matches!(session.insert(9000, 1), Err(Error::ReadOnly(_))));
        (0..3000).for_each(|key| assert_eq!(session.get(key), Some(key + 1)));
        assert_eq!(session.remove(7), Some(8));
    }
    assert!(files(&place) == before, "reading changed the file");
}
