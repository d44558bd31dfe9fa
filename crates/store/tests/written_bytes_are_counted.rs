//! The bytes of the items that operations write are counted: on whatever medium, and by threads that
//! share a writer.

use std::path::Path;
use terrace_durable::item::NewItem;
use terrace_store::{Domain, Durability, Kind, Map, MapOptions, Range, ValueDesign};

const VALUE: [u8; 300] = [7; 300];

fn bytes_of(key: &[u8], value: &[u8], version: u64) -> u64 {
    NewItem { key, value, version, expires_at_ms: None, tombstone: false }.item_bytes() as u64
}

fn directory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("directory")
}

fn every_design() -> [(&'static str, MapOptions); 4] {
    let base = MapOptions { memory_budget_bytes: 256 << 20, ..MapOptions::default() };
    let logs = |durability| MapOptions { durability, values: ValueDesign::Log, ..base.clone() };
    let sync = logs(Durability::Sync);
    let slabs = MapOptions { values: ValueDesign::Slab, domain: Domain::Adr, ..sync.clone() };
    [
        ("overwritten where they lie", logs(Durability::None)),
        ("logs in a file", sync.clone()),
        ("logs in memory", MapOptions { domain: Domain::Eadr, ..sync }),
        ("slabs in memory", slabs),
    ]
}

#[test]
fn every_write_counts_and_reads_do_not() {
    for (name, options) in every_design() {
        let dir = directory();
        let is_in_memory = options.domain.is_byte_addressable();
        let map = Map::open(dir.path(), options).expect("open");
        (0..100).for_each(|_| map.put(b"key", &VALUE).expect("put"));
        let expected: u64 = (1..=100).map(|version| bytes_of(b"key", &VALUE, version)).sum();
        let stats = map.stats();
        assert_eq!(stats.item_bytes_written, expected, "{name}");
        assert!(!is_in_memory || stats.bytes_written == 0, "{name}: no write of a file");
        assert_eq!(map.get(b"key").expect("get").as_deref(), Some(&VALUE[..]));
        assert_eq!(map.stats().item_bytes_written, expected, "{name}");
        map.delete(b"key").expect("delete");
        let deleted = map.stats().item_bytes_written - expected;
        assert!(deleted < bytes_of(b"key", &VALUE, 1), "{name}: a tombstone or nothing: {deleted}");
    }
}

#[test]
fn each_read_that_finds_a_value_is_counted_once() {
    for (name, options) in every_design() {
        let dir = directory();
        let map = Map::open(dir.path(), options).expect("open");
        map.put(b"key", &VALUE).expect("put");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut session = map.session();
                    for _ in 0..1000 {
                        assert!(session.get(b"key", |_| ()).expect("get").is_some());
                        assert!(session.get(b"none", |_| ()).expect("get").is_none());
                    }
                    let keys: [&[u8]; 3] = [b"key", b"none", b"key"];
                    session.multi_get(&keys, |_, _| ()).expect("get");
                });
            }
        });
        assert_eq!(
            map.stats().item_reads,
            4 * 1002,
            "{name}: all that was found, of ended sessions"
        );
        let mut session = map.session();
        for _ in 0..100 {
            assert!(session.get(b"key", |_| ()).expect("get").is_some());
        }
        let behind = 4 * 1002 + 100 - map.stats().item_reads;
        assert!(behind < 64, "{name}: a session is {behind} behind");
        let stats = map.stats();
        assert_eq!((stats.index_nodes, stats.index_node_bytes), (1, 64), "{name}: a bucket");
    }
}

#[test]
fn a_tree_tells_how_many_nodes_a_lookup_reads() {
    let dir = directory();
    let options =
        MapOptions { kind: Kind::Ordered, memory_budget_bytes: 256 << 20, ..MapOptions::default() };
    let map = Map::open(dir.path(), options).expect("open");
    assert_eq!(map.stats().index_nodes, 1, "its root");
    for key in 0..20_000u32 {
        map.put(&key.to_be_bytes(), b"x").expect("put");
    }
    let stats = map.stats();
    assert!((3..=5).contains(&stats.index_nodes), "{stats:?}");
    assert!(stats.index_node_bytes.is_power_of_two(), "{stats:?}");
    let mut session = map.session();
    session.range(Range::ALL, 200, |_, _| ()).expect("range");
    drop(session);
    assert_eq!(map.stats().item_reads, 200);
}

#[test]
fn no_count_is_lost_between_threads_that_share_a_writer() {
    const KEYS: u32 = 5000;
    for (name, options) in every_design() {
        let dir = directory();
        let options = MapOptions { writers: 1, durability: Durability::None, ..options };
        let map = Map::open(dir.path(), options).expect("open");
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let mut session = map.session();
                scope.spawn(move || {
                    for key in 0..KEYS {
                        let key = (thread * KEYS + key).to_be_bytes();
                        session.put(&key, &VALUE, None).expect("put");
                    }
                });
            }
        });
        let expected = u64::from(4 * KEYS) * bytes_of(&[0; 4], &VALUE, 1);
        assert_eq!(map.stats().item_bytes_written, expected, "{name}");
    }
}
