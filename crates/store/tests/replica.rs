//! A disk that writes everything to two files: whoever keeps a replica needs no more of a medium than its disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use terrace_durable::medium::{Disk, FileDisk};
use terrace_durable::{Error, Medium, MediumSpec, Result};
use terrace_store::{Access, Domain, Durability, Map, MapOptions};

/// What is acknowledged is in both. The second gets each change first, so that it never lacks what the first has.
#[derive(Debug)]
struct Tee {
    first: FileDisk,
    second: FileDisk,
    /// Whether the second is out of reach.
    is_lost: Arc<AtomicBool>,
}

impl Tee {
    fn second(&self) -> Result<&FileDisk> {
        if !self.is_lost.load(SeqCst) {
            return Ok(&self.second);
        }
        let source = std::io::Error::other("the replica is out of reach");
        Err(Error::Io { path: "replica".into(), doing: "write", source })
    }
}

impl Disk for Tee {
    fn path(&self) -> Option<&Path> {
        self.first.path()
    }
    fn capacity_bytes(&self) -> u64 {
        self.first.capacity_bytes()
    }
    fn bytes(&self) -> Result<u64> {
        self.first.bytes()
    }
    fn write(&self, at: u64, blocks: &[u8], durable: bool) -> Result<()> {
        self.second()?.write(at, blocks, durable)?;
        self.first.write(at, blocks, durable)
    }
    fn sync(&self) -> Result<()> {
        self.second()?.sync()?;
        self.first.sync()
    }
    fn read(&self, at: u64, blocks: &mut [u8]) -> Result<()> {
        self.first.read(at, blocks)
    }
    fn grow(&self, at: u64, bytes: u64) -> Result<()> {
        self.second()?.grow(at, bytes)?;
        self.first.grow(at, bytes)
    }
    fn release(&self, at: u64, bytes: u64) -> Result<()> {
        self.second()?.release(at, bytes)?;
        self.first.release(at, bytes)
    }
    fn publish(&self) -> Result<()> {
        self.second()?.publish()?;
        self.first.publish()
    }
}

fn options(durability: Durability) -> MapOptions {
    MapOptions { durability, writers: 1, memory_budget_bytes: 64 << 20, ..MapOptions::default() }
}

/// A map in `first` whose file is in `second` too.
fn open(first: &Path, second: &Path, durability: Durability) -> (Map, Arc<AtomicBool>) {
    let spec = |dir: &Path| MediumSpec {
        path: dir.join("values.log"),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 1 << 30,
        access: Access::Write,
    };
    let is_lost = Arc::new(AtomicBool::new(false));
    let medium = Medium::open_through(&spec(first), |first| {
        let second = FileDisk::open(&spec(second))?;
        Ok(Box::new(Tee { first, second, is_lost: Arc::clone(&is_lost) }))
    });
    (Map::on(medium.expect("two files"), options(durability)).expect("a map"), is_lost)
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn pairs(map: &Map) -> Pairs {
    let (mut found, mut cursor) = (Pairs::new(), 0);
    loop {
        let each = |key: &[u8], value: terrace_store::Value<'_>| {
            found.insert(key.to_vec(), value.bytes.to_vec());
        };
        cursor = map.scan(cursor, 100, each).expect("scan");
        if cursor == 0 {
            return found;
        }
    }
}

/// Writes, overwrites and deletes, more than a log of it.
fn write(map: &Map, expected: &mut Pairs, round: u8) {
    for n in 0..600_u32 {
        let key = format!("{:03}", (n * 7) % 500).into_bytes();
        match n % 11 {
            0 => {
                map.delete(&key).expect("delete");
                expected.remove(&key);
            }
            _ => {
                let value = vec![round ^ n as u8; 10_000];
                map.put(&key, &value).expect("put");
                expected.insert(key, value);
            }
        }
    }
}

#[test]
fn acknowledged_writes_are_in_both_files() {
    for durability in [Durability::Sync, Durability::None] {
        let (first, second) =
            (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let mut expected = Pairs::new();
        for round in 1..=2 {
            let (map, _) = open(first.path(), second.path(), durability);
            assert!(pairs(&map) == expected, "round {round} finds what the one before wrote");
            write(&map, &mut expected, round);
            if durability != Durability::Sync {
                map.sync().expect("sync");
            }
            // What another machine has of it at this moment.
            let copy = tempfile::tempdir().expect("dir");
            let name = "values.log";
            std::fs::copy(second.path().join(name), copy.path().join(name)).expect("copy");
            let copied = Map::open(copy.path(), options(durability)).expect("open the copy");
            assert!(pairs(&copied) == expected, "the replica under {durability:?}");
            map.close().expect("close");
        }
        for dir in [&first, &second] {
            let map = Map::open(dir.path(), options(durability)).expect("open");
            assert!(pairs(&map) == expected);
        }
    }
}

#[test]
fn nothing_is_acknowledged_that_the_replica_does_not_have() {
    let (first, second) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    let (map, is_lost) = open(first.path(), second.path(), Durability::Sync);
    map.put(b"before", b"in both").expect("put");
    is_lost.store(true, SeqCst);
    map.put(b"during", b"in one").expect_err("the replica does not have it");
    map.put(b"after", b"in one").expect_err("writes have stopped");
    assert_eq!(map.get(b"before").expect("get").as_deref(), Some(&b"in both"[..]));
    drop(map);
    let map = Map::open(second.path(), options(Durability::Sync)).expect("open the replica");
    assert_eq!(map.get(b"before").expect("get").as_deref(), Some(&b"in both"[..]));
    assert_eq!(map.len(), 1);
}
