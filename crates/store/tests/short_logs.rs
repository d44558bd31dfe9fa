//! A process that writes little leaves a log with little in it: many of them do not fill the memory.

use terrace_store::{Domain, Durability, Map, MapOptions, Persist, ValueDesign};

#[test]
fn a_hundred_openings_that_write_a_key_each_leave_a_few_logs() {
    for (domain, persist) in [
        (Domain::PageCache, Persist::Values),
        (Domain::Eadr, Persist::Index),
        (Domain::Eadr, Persist::Full),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let options = MapOptions {
            domain,
            persist,
            values: ValueDesign::Log,
            durability: Durability::Sync,
            writers: 1,
            memory_budget_bytes: 64 << 20,
            ..MapOptions::default()
        };
        for key in 0..100u64 {
            let map = Map::open(dir.path(), options.clone()).expect("open");
            map.put(&key.to_be_bytes(), b"little").expect("room for little");
            map.close().expect("close");
        }
        let map = Map::open(dir.path(), options).expect("open");
        assert_eq!(map.len(), 100);
        for key in 0..100u64 {
            let found = map.get(&key.to_be_bytes()).expect("readable");
            assert_eq!(found.as_deref(), Some(&b"little"[..]), "{domain} {persist:?}");
        }
        let stats = map.stats();
        assert!(stats.disk_bytes <= 12 * (4 << 20), "{domain} {persist:?}: {stats:?}");
    }
}
