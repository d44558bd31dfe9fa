//! When the disk fails, is full or is not ours, writes are refused and reads go on; what was
//! acknowledged before is there afterwards, and nothing is acknowledged that is not.
//!
//! The fault sweep lets the n-th write to the file fail, and all after it, for n from 0 until the
//! scenario runs through untouched.

use crate::adversary::{cases, file_of, options, value_of, write_of};
use crate::small_disk::SmallDisk;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use terrace_store::laboratory::{Laboratory, TreeForm};
use terrace_store::{
    Access, Domain, Durability, Error, Kind, Map, MapOptions, Persist, RecoveryProcedure,
    ValueDesign,
};

/// What each key may hold: the last acknowledged write or deletion, and those begun since.
#[derive(Default)]
struct Expected(BTreeMap<u64, Vec<Option<u64>>>);

impl Expected {
    fn begun(&mut self, key: u64, write: Option<u64>) {
        self.0.entry(key).or_insert_with(|| vec![None]).push(write);
    }
    /// The last write begun is the truth from now on.
    fn acknowledged(&mut self, key: u64) {
        let states = self.0.get_mut(&key).expect("begun");
        states.drain(..states.len() - 1);
    }
    fn cleared(&mut self) {
        self.0.values_mut().for_each(|states| *states = vec![None]);
    }
}

fn read(map: &Map, key: u64) -> Option<u64> {
    map.get(&key.to_be_bytes()).expect("reads go on").map(|value| write_of(key, &value))
}

/// Writes, deletes, batches and a clear under `sync`, through a small log turnover; stops at the
/// first error. Returns whether it met one.
fn scenario(map: &Map, expected: &mut Expected) -> Result<(), Error> {
    for write in 0..70u64 {
        let key = write % 12;
        if write == 40 {
            // A clear that failed may have happened all the same, as any write.
            expected.0.values_mut().for_each(|states| states.push(None));
            map.clear()?;
            expected.cleared();
        }
        if write % 9 == 8 {
            expected.begun(key, None);
            map.delete(&key.to_be_bytes())?;
        } else {
            expected.begun(key, Some(write));
            let value = value_of(key, write, 100_000);
            match write % 3 {
                0 => map.multi_put(&[(&key.to_be_bytes(), &value)])?,
                1 => map.put(&key.to_be_bytes(), &value)?,
                _ => {
                    let mut session = map.session();
                    session.put(&key.to_be_bytes(), &value, None)?;
                    session.commit()?;
                }
            }
        }
        expected.acknowledged(key);
    }
    map.sync()
}

/// Nothing may be acknowledged by a map that has failed.
fn refuses_everything(map: &Map, n: u64) {
    let key = b"after the failure".as_slice();
    assert!(map.put(key, b"value").is_err(), "fault {n}: a put was acknowledged");
    assert!(map.multi_put(&[(key, b"value")]).is_err(), "fault {n}: a batch was acknowledged");
    assert!(
        map.compare_and_set(key, None, Some(b"value")).is_err(),
        "fault {n}: a compare-and-set was acknowledged"
    );
    assert!(
        map.delete(&0u64.to_be_bytes()).is_err() || read(map, 0).is_none(),
        "fault {n}: a delete was acknowledged"
    );
    assert!(map.sync().is_err(), "fault {n}: a sync was acknowledged");
    assert!(map.clear().is_err(), "fault {n}: a clear was acknowledged");
    assert!(map.set_durability(Durability::None).is_err(), "fault {n}: the durability was changed");
    let mut session = map.session();
    let answer = session.put(key, b"value", None).and_then(|()| session.commit());
    assert!(answer.is_err(), "fault {n}: a commit was acknowledged");
    assert!(map.stats().stopped.is_some(), "fault {n}: the map knows that it stopped");
    let told = map.put(key, b"value").expect_err("refused").to_string();
    assert!(told.contains("injected fault"), "the reason is told: {told}");
}

#[test]
fn whichever_write_fails_under_sync() {
    let mut faults = 0;
    for n in 0..cases(10_000) {
        let dir = tempfile::tempdir().expect("directory");
        let map = Map::open(dir.path(), MapOptions { writers: 1, ..options(Durability::Sync) })
            .expect("open");
        map.medium().inject_write_fault(n as i64);
        let mut expected = Expected::default();
        let result = scenario(&map, &mut expected);
        let done = result.is_ok();
        if !done {
            // Preparing logs ahead may have met the fault first, without a word: make sure of it.
            let _refused = map.put(b"make sure", b"");
            for (key, states) in &expected.0 {
                // The last write of a key may be one that failed: it is visible, but not told.
                if let [only] = states[..] {
                    assert_eq!(
                        read(&map, *key),
                        only,
                        "fault {n}: key {key} is read after the failure"
                    );
                }
            }
            refuses_everything(&map, n);
            faults += 1;
        }
        drop(map);
        let map =
            Map::open(dir.path(), options(Durability::Sync)).expect("a failed write is no damage");
        for (key, states) in &expected.0 {
            let now = read(&map, *key);
            assert!(states.contains(&now), "fault {n}: key {key} is {now:?}, allowed {states:?}");
        }
        if done {
            break;
        }
    }
    println!("{faults} writes failed, one after the other");
    assert!(faults > 60, "the sweep reached every write: {faults}");
}

#[test]
fn whichever_write_fails_under_an_interval() {
    let mut faults = 0;
    for n in 0..cases(10_000) {
        let dir = tempfile::tempdir().expect("directory");
        let durability = Durability::Interval(Duration::from_secs(3600));
        let map = Map::open(dir.path(), options(durability)).expect("open");
        map.medium().inject_write_fault(n as i64);
        let mut synced = 0;
        let mut result = Ok(());
        for write in 0..60u64 {
            result = map.put(&(write % 7).to_be_bytes(), &value_of(write % 7, write, 120_000));
            if result.is_ok() && write % 5 == 4 {
                result = map.sync();
                synced = if result.is_ok() { write + 1 } else { synced };
            }
            if result.is_err() {
                break;
            }
        }
        let result = result.and_then(|()| map.close());
        let done = result.is_ok();
        if done {
            synced = 60;
        } else {
            faults += 1;
            assert!(
                map.put(b"key", b"value").is_err(),
                "fault {n}: a put was acknowledged after it"
            );
            assert!(map.close().is_err(), "fault {n}: a close that saved nothing answers success");
        }
        drop(map);
        let map = Map::open(dir.path(), options(durability)).expect("a failed write is no damage");
        for key in 0..7 {
            let last = (0..synced).rev().find(|write| write % 7 == key);
            let now = read(&map, key);
            assert!(now >= last, "fault {n}: key {key} is {now:?}, write {last:?} was synced");
        }
        if done {
            break;
        }
    }
    assert!(faults > 15, "the sweep reached every write: {faults}");
}

// ---------------------------------------------------------------- the disk is full, or not ours

#[test]
fn when_the_disk_is_full() {
    for durability in [Durability::Sync, Durability::None] {
        let dir = tempfile::tempdir().expect("directory");
        let Some(_disk) = SmallDisk::mount(dir.path(), 40 << 20) else { return };
        let ballast = dir.path().join("ballast");
        std::fs::write(&ballast, vec![1; 18 << 20]).expect("ballast");
        let store = dir.path().join("store");
        let map = Map::open(&store, options(durability)).expect("open");
        let mut written = 0u64;
        let refused = loop {
            match map.put(&written.to_be_bytes(), &value_of(written, 1, 50_000)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1_000, "40 MiB are never enough for that");
        };
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
        assert!(refused.to_string().contains("values.log"), "{refused}");
        // A log that was being made ready meanwhile may have come since: then there is room once more.
        let mut refusals = 0;
        while refusals < 3 {
            match map.put(&written.to_be_bytes(), &value_of(written, 1, 50_000)) {
                Ok(()) => (written, refusals) = (written + 1, 0),
                Err(Error::DiskFull { .. }) => refusals += 1,
                Err(other) => panic!("{other:?}"),
            }
            assert!(written < 1_000, "40 MiB are never enough for that");
        }
        // A log at the least: the others may be what is kept for deletes, or was made ready for another writer.
        assert!(written > 80, "{refused} after {written}");
        assert!((0..written).all(|key| read(&map, key) == Some(1)), "reads go on");
        assert_eq!(map.len(), written);
        std::fs::remove_file(&ballast).expect("space is freed");
        for key in written..written + 100 {
            map.put(&key.to_be_bytes(), &value_of(key, 2, 50_000)).expect("writes work again");
        }
        map.close().expect("close");
        drop(map);
        let map = Map::open(&store, options(durability)).expect("a full disk is no damage");
        assert!(
            (0..written + 100).all(|key| read(&map, key) == Some(1 + u64::from(key >= written))),
            "nothing is lost"
        );
    }
}

/// A process that was killed on a full disk left a part of a segment at the end of the file; the next one did not
/// start, since it could not make that whole, and nothing was read.
#[test]
fn when_it_is_opened_on_a_full_disk() {
    for durability in [Durability::Sync, Durability::None] {
        let dir = tempfile::tempdir().expect("directory");
        let Some(_disk) = SmallDisk::mount(dir.path(), 60 << 20) else { return };
        let store = dir.path().join("store");
        let map = Map::open(&store, options(durability)).expect("open");
        for key in 0..300u64 {
            map.put(&key.to_be_bytes(), &value_of(key, 1, 50_000)).expect("put");
        }
        map.close().expect("close");
        drop(map);
        let file = std::fs::OpenOptions::new().write(true).open(file_of(&store)).expect("file");
        let length = file.metadata().expect("metadata").len();
        file.set_len(length + (1 << 20)).expect("a part of a segment");
        let mut ballast = std::fs::File::create(dir.path().join("ballast")).expect("ballast");
        while std::io::Write::write(&mut ballast, &[1; 4096]).is_ok() {}
        let map = Map::open(&store, options(durability)).expect("a full disk is no damage");
        assert!((0..300).all(|key| read(&map, key) == Some(1)), "what is there is read");
        assert_eq!(map.access(), Access::Write, "{durability:?}");
        // In segments that were set aside, whose blocks are there.
        for key in 0..200u64 {
            assert!(
                map.delete(&key.to_be_bytes()).expect("deletes go on"),
                "{durability:?}, {key}"
            );
        }
        map.sync().expect("what was deleted stays so");
        drop(map);
        let map = Map::open(&store, options(durability)).expect("and again");
        assert!((200..300).all(|key| read(&map, key) == Some(1)), "the others are there");
        assert_eq!(map.len(), 100);
    }
}

/// An index in logs needs a line for every change: where the disk has none, a write is refused whole, and garbage
/// is collected first.
#[test]
fn when_the_disk_has_no_room_for_an_index_in_logs() {
    for values in [ValueDesign::Log, ValueDesign::Slab] {
        let dir = tempfile::tempdir().expect("directory");
        let Some(_disk) = SmallDisk::mount(dir.path(), 60 << 20) else { return };
        let (ballast, store) = (dir.path().join("ballast"), dir.path().join("store"));
        let options = || MapOptions {
            kind: Kind::Ordered,
            laboratory: Laboratory { tree: Some(TreeForm::Logs), ..Laboratory::default() },
            persist: Persist::Index,
            domain: Domain::Adr,
            values,
            ..options(Durability::Sync)
        };
        let map = Map::open(&store, options()).expect("open");
        let put =
            |map: &Map, key: u64, write| map.put(&key.to_be_bytes(), &value_of(key, write, 20));
        let mut written = 0u64;
        (0..2_000).for_each(|key| put(&map, key, 1).expect("put"));
        written += 2_000;
        let mut left = std::fs::File::create(&ballast).expect("ballast");
        while std::io::Write::write(&mut left, &[1; 4096]).is_ok() {}
        drop(left);
        let refused = loop {
            match put(&map, written, 1) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 100_000, "a log of 4 MiB has room for more values than the index");
        };
        assert!(
            matches!(&refused, Error::DiskFull { path, limit: None, .. } if path.ends_with("index")),
            "{refused:?}"
        );
        for _ in 0..20 {
            // What is collected meanwhile may make room for a few.
            match put(&map, written, 1) {
                Ok(()) => written += 1,
                Err(again) => assert!(matches!(again, Error::DiskFull { .. }), "{again:?}"),
            }
        }
        assert!((0..written).all(|key| read(&map, key) == Some(1)), "reads go on");
        assert_eq!((map.len(), read(&map, written)), (written, None));
        std::fs::remove_file(&ballast).expect("space is freed");
        for key in written..written + 5_000 {
            put(&map, key, 2).expect("writes work again");
        }
        map.close().expect("close");
        drop(map);
        let map = Map::open(&store, options()).expect("a full disk is no damage");
        assert_eq!(map.recovery().procedure, RecoveryProcedure::AsClosed);
        assert!(
            (0..written + 5_000).all(|key| read(&map, key) == Some(1 + u64::from(key >= written))),
            "nothing is lost"
        );
    }
}

#[test]
fn when_the_directory_is_read_only() {
    let dir = tempfile::tempdir().expect("directory");
    let Some(disk) = SmallDisk::mount(dir.path(), 40 << 20) else { return };
    let store = dir.path().join("store");
    let map = Map::open(&store, options(Durability::Sync)).expect("open");
    map.put(b"key", b"value").expect("put");
    drop(map);
    disk.read_only();
    let error = Map::open(&store, options(Durability::Sync)).err().expect("refused");
    assert!(error.to_string().to_lowercase().contains("read-only"), "{error}");
    assert!(error.to_string().contains(&*dir.path().to_string_lossy()), "{error}");
    let error =
        Map::open(&dir.path().join("another"), options(Durability::Sync)).err().expect("refused");
    assert!(error.to_string().to_lowercase().contains("read-only"), "{error}");
    assert!(file_of(&store).exists());
}

#[test]
fn when_another_process_has_the_directory() {
    const TOLD: &str = "TERRACE_TEST_HOLD";
    if let Some(dir) = std::env::var_os(TOLD) {
        let _held = Map::open(Path::new(&dir), options(Durability::Sync)).expect("open");
        println!("held");
        // Until the parent closes our standard input.
        let _end = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "failed_writes_are_never_acknowledged::when_another_process_has_the_directory",
            "--nocapture",
        ])
        .env(TOLD, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("child");
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    assert!(
        lines.any(|line| line.is_ok_and(|line| line.contains("held"))),
        "the child opened the map"
    );
    for _ in 0..3 {
        let refused = Map::open(dir.path(), options(Durability::Sync)).err().expect("refused");
        assert!(matches!(&refused, Error::Locked(path) if path == dir.path()), "{refused:?}");
    }
    child.kill().expect("killed");
    child.wait().expect("gone");
    drop(lines);
    Map::open(dir.path(), options(Durability::Sync))
        .expect("a killed process holds nothing")
        .close()
        .expect("close");
}
