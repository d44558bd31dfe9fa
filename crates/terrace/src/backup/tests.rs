use super::*;
use crate::{Durability, MapOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

fn database(dir: &Path) -> Database {
    Database::open(dir, MapOptions::default()).expect("a database")
}

fn restored(backup: &Backup, dir: &Path) -> Result<Database, BackupError> {
    let db = database(dir);
    let mut open = |name: &str, kind| db.map_builder(name).kind(kind).open();
    backup.restore(&db, backup.settings().as_deref(), &mut open, &mut |_| true).map(|()| db)
}

fn contents(map: &Map) -> BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)> {
    let mut all = BTreeMap::new();
    let keep = |key: &[u8], value: crate::Value<'_>| {
        all.insert(key.to_vec(), (value.bytes.to_vec(), value.expires_at_ms));
    };
    map.snapshot().for_each(keep).expect("read");
    all
}

/// Everything comes back, of both kinds, in any size, with its expiry, binary keys included; what expired does not.
#[test]
fn what_was_backed_up_is_restored() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    let db = database(&at("data"));
    let later = transfer::now_ms() + 3_600_000;
    let users = db.map("users").expect("map");
    let events = db.map_builder("events").kind(Kind::Ordered).open().expect("map");
    for number in 0..3000_u32 {
        let value = vec![number as u8; number as usize % 4000];
        users.put(&number.to_le_bytes(), &value).expect("put");
        events.put(&number.to_be_bytes(), &value).expect("put");
    }
    users.put(b"large", &vec![3; 2 << 20]).expect("put");
    let mut session = users.session();
    session.put(b"later", b"v", Some(later)).expect("put");
    session.put(b"soon", b"v", Some(transfer::now_ms() + 500)).expect("put");
    drop(session);
    db.map("empty").expect("map");
    std::fs::write(at("data").join("terrace.toml"), "durability = \"none\"\n").expect("settings");
    let backup = db.backup(at("monday")).expect("a backup");
    std::thread::sleep(std::time::Duration::from_millis(510));
    let names: Vec<_> = backup.manifest.maps.iter().map(|map| (&*map.name, map.kind)).collect();
    let expected = [("empty", Kind::Hash), ("events", Kind::Ordered), ("users", Kind::Hash)];
    assert_eq!(names, expected);
    assert_eq!(backup.settings(), Some(at("monday").join("terrace.toml")));

    let again = Backup::open(at("monday")).expect("there");
    assert_eq!(again.manifest, backup.manifest);
    again.verify(&mut |_| true).expect("whole");
    let copy = restored(&again, &at("copy")).expect("restored");
    assert_eq!(copy.map_names().expect("names"), ["empty", "events", "users"]);
    for name in ["empty", "users"] {
        let (map, other) = (db.map(name).expect("map"), copy.map(name).expect("map"));
        assert_eq!(contents(&map), contents(&other), "{name}");
    }
    let other = copy.map_builder("events").kind(Kind::Ordered).open().expect("ordered");
    assert_eq!(contents(&events), contents(&other));
    assert_eq!(copy.map("users").expect("map").len(), 3002);
    assert!(!at("copy").join(RESTORING).exists());
    let settings = std::fs::read_to_string(at("copy").join("terrace.toml")).expect("settings");
    assert_eq!(settings, "durability = \"none\"\n");
    // Neither is written over.
    assert!(matches!(db.backup(at("monday")), Err(BackupError::Exists(_))));
    let mut open = |name: &str, kind| copy.map_builder(name).kind(kind).open();
    let twice = again.restore(&copy, None, &mut open, &mut |_| true);
    assert!(matches!(twice, Err(BackupError::NotEmpty(_))));
}

/// Each order is of a user who was there before, in every backup made meanwhile.
#[test]
fn a_backup_is_of_one_moment() {
    let folder = tempfile::tempdir().expect("folder");
    let options = MapOptions { durability: Durability::None, ..MapOptions::default() };
    let db = Database::open(folder.path().join("data"), options).expect("a database");
    let (users, orders) = (db.map("users").expect("map"), db.map("orders").expect("map"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..u32::MAX).take_while(|_| !done.load(Ordering::Relaxed)) {
                let key = (number % 20_000).to_be_bytes();
                orders.delete(&key).expect("delete");
                users.put(&key, &number.to_be_bytes()).expect("put");
                orders.put(&key, &number.to_be_bytes()).expect("put");
            }
        });
        let ends = scope.spawn(|| {
            for round in 0..5 {
                std::thread::sleep(std::time::Duration::from_millis(30));
                let backup =
                    db.backup(folder.path().join(format!("backup-{round}"))).expect("made");
                let copy = restored(&backup, &folder.path().join(format!("copy-{round}")))
                    .expect("restored");
                let users = contents(&copy.map("users").expect("map"));
                let orders = contents(&copy.map("orders").expect("map"));
                assert!(!orders.is_empty());
                let is_of_one =
                    |(key, order): (&Vec<u8>, &(Vec<u8>, _))| users.get(key) == Some(order);
                assert!(orders.iter().all(is_of_one), "round {round}");
            }
        });
        let ended = ends.join();
        done.store(true, Ordering::Relaxed);
        ended.expect("of one moment");
    });
}

/// Every file is watched over.
#[test]
fn a_damaged_backup_is_named_and_not_restored() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    let db = database(&at("data"));
    for number in 0..50_u32 {
        db.map("users").expect("map").put(&number.to_be_bytes(), b"lovelace").expect("put");
        db.map("other").expect("map").put(&number.to_be_bytes(), b"hopper").expect("put");
    }
    std::fs::write(at("data").join("terrace.toml"), "durability = \"none\"\n").expect("settings");
    let backup = db.backup(at("monday")).expect("made");
    let is_refused = || match Backup::open(at("monday")).and_then(|b| b.verify(&mut |_| true)) {
        Err(BackupError::Damaged { .. } | BackupError::NoBackup { .. }) => true,
        Err(BackupError::Io { source, .. }) => source.kind() == io::ErrorKind::NotFound,
        other => panic!("{other:?}"),
    };
    let files = ["maps/users.terrace", "maps/other.terrace", "manifest.json", "terrace.toml"];
    for file in files.map(|file| at("monday").join(file)) {
        let whole = std::fs::read(&file).expect("read");
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&file, &damaged).expect("write");
            assert!(is_refused(), "{} at {at}", file.display());
        }
        std::fs::write(&file, &whole[..whole.len() / 2]).expect("write");
        assert!(is_refused(), "{} cut", file.display());
        std::fs::remove_file(&file).expect("removed");
        assert!(is_refused(), "{} gone", file.display());
        let refused = Backup::open(at("monday")).and_then(|b| restored(&b, &at("copy")).map(drop));
        assert!(refused.is_err());
        assert_eq!(database(&at("copy")).map_names().expect("names"), [""; 0], "nothing was done");
        std::fs::write(&file, &whole).expect("write");
    }
    // Files changed places.
    let (users, other) = (file_of(&backup.folder, "users"), file_of(&backup.folder, "other"));
    std::fs::rename(&users, at("aside")).expect("renamed");
    std::fs::rename(&other, &users).expect("renamed");
    std::fs::rename(at("aside"), &other).expect("renamed");
    assert!(is_refused());
    std::fs::rename(&other, at("aside")).expect("renamed");
    std::fs::rename(&users, &other).expect("renamed");
    std::fs::rename(at("aside"), &users).expect("renamed");
    backup.verify(&mut |_| true).expect("as it was");
    // One of another moment, of the same size.
    db.map("users").expect("map").put(&0_u32.to_be_bytes(), b"lovelacf").expect("put");
    let later = db.backup(at("tuesday")).expect("made");
    std::fs::copy(file_of(&later.folder, "users"), &users).expect("copied");
    assert!(is_refused());
}

/// What is cut off is never taken for a whole: neither a backup, nor a directory that one was restored to.
#[test]
fn half_a_backup_is_none_and_half_a_restore_is_not_opened() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    let db = database(&at("data"));
    for number in 0..5000_u32 {
        db.map("users").expect("map").put(&number.to_be_bytes(), b"lovelace").expect("put");
    }
    let mut open = |name: &str| db.map(name).map(Some);
    let mut left = 3;
    let mut tell = |_: &Progress<'_>| {
        left -= 1;
        left > 0
    };
    let stopped = Backup::make((&db, &db.snapshot()), &at("monday/"), &mut open, &mut tell);
    assert!(matches!(stopped, Err(BackupError::Stopped)));
    assert!(!at("monday").exists() && !at("monday.partial").exists(), "nothing is left");
    // As after a power cut.
    std::fs::create_dir(at("monday.partial")).expect("made");
    let refused = db.backup(at("monday")).expect_err("another may be at work").to_string();
    assert!(
        refused.contains("monday.partial exists already")
            && refused.contains("not come to its end"),
        "{refused}"
    );
    assert!(matches!(Backup::open(at("monday.partial")), Err(BackupError::NoBackup { .. })));
    std::fs::remove_dir(at("monday.partial")).expect("removed");

    let backup = db.backup(at("monday")).expect("made");
    let copy = database(&at("copy"));
    let mut open = |name: &str, kind| copy.map_builder(name).kind(kind).open();
    // Five times while it is verified.
    let mut left = 8;
    let mut tell = |_: &Progress<'_>| {
        left -= 1;
        left > 0
    };
    let stopped = backup.restore(&copy, None, &mut open, &mut tell);
    assert!(matches!(stopped, Err(BackupError::Stopped)));
    assert_eq!(copy.map_names().expect("names"), ["users"], "in the middle of it");
    drop(copy);
    for access in [crate::Access::Write, crate::Access::Read] {
        let again = Database::open(at("copy"), MapOptions { access, ..MapOptions::default() });
        assert!(matches!(again, Err(Error::NotRestored(_))), "{access:?}");
    }
    let access = crate::Access::Salvage;
    Database::open(at("copy"), MapOptions { access, ..MapOptions::default() })
        .expect("what is there");
}

/// What there is no memory for is told, and not evicted.
#[test]
fn a_restore_evicts_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    let db = database(&at("data"));
    for number in 0..3000_u32 {
        db.map("users").expect("map").put(&number.to_be_bytes(), &[7; 20_000]).expect("put");
    }
    let backup = db.backup(at("monday")).expect("made");
    let when_full = WhenFull::Evict;
    let options = MapOptions { when_full, memory_budget_bytes: 32 << 20, ..MapOptions::default() };
    let copy = Database::open(at("copy"), options).expect("a database");
    let mut open = |name: &str, kind| copy.map_builder(name).kind(kind).open();
    let refused = backup.restore(&copy, None, &mut open, &mut |_| true);
    assert!(matches!(refused, Err(BackupError::DoesNotFit { .. })), "{refused:?}");
}

/// What is missing is told, and nobody else may read what was backed up.
#[test]
fn a_map_without_its_values_is_no_empty_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    let db = database(&at("data"));
    db.map("users").expect("map").put(b"ada", b"lovelace").expect("put");
    db.map("other").expect("map").put(b"grace", b"hopper").expect("put");
    let backup = db.backup(at("monday")).expect("made");
    for (path, mode) in [(backup.folder.clone(), 0o700), (file_of(&backup.folder, "users"), 0o600)]
    {
        let about = path.metadata().expect("there");
        assert_eq!(about.permissions().mode() & 0o777, mode, "{}", path.display());
    }
    db.close().expect("closed");
    std::fs::remove_file(at("data").join("maps/users/values.log")).expect("removed");
    let refused = database(&at("data")).backup(at("tuesday"));
    let Err(BackupError::Map { map, source: Error::Missing { .. } }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(map, "users");
}
