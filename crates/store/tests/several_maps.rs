//! Transactions that write to several maps of a database: all maps have them, or none, whatever comes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace_durable::commits::Writes;
use terrace_durable::{Access, CommitJournal, Commits, MediumSpec, Part, Survives};
use terrace_memory::Domain;
use terrace_store::{
    Durability, Error, Kind, Map, MapOptions, Moments, Persist, Result, Together, Transaction,
    ValueDesign,
};

const HOUR: Durability = Durability::Interval(Duration::from_secs(3600));

/// A directory whose maps are opened by name.
struct Database {
    options: MapOptions,
    together: Together,
}

impl Database {
    fn open(dir: &Path, options: &MapOptions) -> Database {
        let options = MapOptions { moments: Arc::default(), ..options.clone() };
        let together = Together::in_directory(dir, &options).expect("a commit journal");
        Database { options, together }
    }

    fn map(&self, dir: &Path, name: &str) -> Map {
        self.try_map(dir, name).expect("a map")
    }

    fn try_map(&self, dir: &Path, name: &str) -> Result<Map> {
        let database = Some(self.together.map(name));
        Map::open(&dir.join(name), MapOptions { database, ..self.options.clone() })
    }

    fn maps<const N: usize>(&self, dir: &Path, names: [&str; N]) -> [Map; N] {
        names.map(|name| self.map(dir, name))
    }

    fn moments(&self) -> &Arc<Moments> {
        &self.options.moments
    }

    fn transaction(&self, f: impl Fn(&mut Transaction) -> Result<()>) -> Result<()> {
        self.moments().transaction(f)
    }
}

fn ways() -> Vec<MapOptions> {
    let interval = MapOptions { writers: 2, durability: HOUR, ..MapOptions::default() };
    let with = |durability| MapOptions { durability, ..interval.clone() };
    let adr = MapOptions { domain: Domain::Adr, values: ValueDesign::Log, ..interval.clone() };
    vec![
        interval.clone(),
        with(Durability::Sync),
        with(Durability::None),
        MapOptions { kind: Kind::Ordered, ..interval.clone() },
        MapOptions { durability: Durability::None, ..adr.clone() },
        MapOptions { kind: Kind::Ordered, persist: Persist::Index, ..adr.clone() },
        adr,
    ]
}

/// The bytes that a power cut leaves for certain: the value files and the commit journal as they are, and no redo log.
fn copied(from: &Path, names: &[&str]) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("directory");
    for name in names {
        std::fs::create_dir_all(to.path().join(name)).expect("a folder");
        std::fs::copy(from.join(name).join("values.log"), to.path().join(name).join("values.log"))
            .expect("copied");
    }
    if from.join("commits").exists() {
        std::fs::copy(from.join("commits"), to.path().join("commits")).expect("copied");
    }
    to
}

#[test]
fn what_is_written_to_several_maps_is_there_as_one() {
    for options in ways() {
        let dir = tempfile::tempdir().expect("directory");
        let database = Database::open(dir.path(), &options);
        let [a, b, c] = database.maps(dir.path(), ["a", "b", "c"]);
        a.put(b"gone", b"soon").expect("put");
        assert!(!dir.path().join("commits").exists(), "nothing needs it yet");
        database
            .transaction(|transaction| {
                transaction.put(&a, b"k", b"1")?;
                transaction.delete(&a, b"gone")?;
                transaction.put(&b, b"k", b"2")?;
                transaction.put_until(&c, b"k", b"3", u64::MAX)
            })
            .expect("all of them");
        // One that comes second is refused, and one that only reads a map does not write to it.
        let mut first = database.moments().begin();
        let mut second = database.moments().begin();
        for (transaction, value) in [(&mut first, b"4"), (&mut second, b"5")] {
            transaction.put(&a, b"k", value).expect("put");
            transaction.put(&b, b"other", value).expect("put");
            transaction.get(&c, b"k").expect("get");
        }
        first.commit().expect("it came first");
        assert!(matches!(second.commit(), Err(Error::Conflict { .. })));
        let is = |maps: &[&Map; 3]| {
            let get = |map: &Map, key: &[u8]| map.get(key).expect("get").unwrap_or_default();
            assert_eq!((get(maps[0], b"k"), get(maps[1], b"k")), (b"4".to_vec(), b"2".to_vec()));
            assert_eq!(
                (get(maps[1], b"other"), get(maps[2], b"k")),
                (b"4".to_vec(), b"3".to_vec())
            );
            assert_eq!(maps.map(|map| map.len()), [1, 2, 1], "{options:?}");
        };
        is(&[&a, &b, &c]);
        [a, b, c].into_iter().for_each(|map| map.close().expect("close"));
        drop(database);
        let database = Database::open(dir.path(), &options);
        let [a, b, c] = database.maps(dir.path(), ["a", "b", "c"]);
        is(&[&a, &b, &c]);
    }
}

/// The checkpoint of one map alone would leave half of the transaction after a power cut.
#[test]
fn maps_that_were_written_together_are_as_of_one_moment_after_a_power_cut() {
    for durability in [HOUR, Durability::None] {
        let dir = tempfile::tempdir().expect("directory");
        let options = MapOptions { durability, writers: 2, ..MapOptions::default() };
        let names = ["a", "b", "c", "d"];
        let found = |number: &str| {
            let left = copied(dir.path(), &names);
            let database = Database::open(left.path(), &options);
            let maps = database.maps(left.path(), names);
            let found =
                maps.each_ref().map(|map| map.get(number.as_bytes()).expect("get").is_some());
            let both = maps.iter().filter(|map| map.get(b"before").expect("get").is_some()).count();
            (found, both)
        };
        let database = Database::open(dir.path(), &options);
        let maps = database.maps(dir.path(), names);
        let [a, b, c, d] = &maps;
        let write = |number: &str, maps: &[&Map]| {
            let all = database.transaction(|transaction| {
                maps.iter().try_for_each(|map| transaction.put(map, number.as_bytes(), b""))
            });
            all.expect("written");
        };
        // What was written before by itself is there if the transaction is.
        [a, b, c].iter().for_each(|map| map.put(b"before", b"").expect("put"));
        write("first", &[a, b]);
        write("first", &[b, c]);
        if durability == Durability::None {
            assert_eq!(found("first"), ([false; 4], 0), "nothing was flushed");
        }
        c.sync().expect("a checkpoint");
        assert_eq!(found("first"), ([true, true, true, false], 3), "by way of b");
        // They are tied no more, and again by the next one.
        d.put(b"alone", b"").expect("put");
        a.put(b"alone", b"").expect("put");
        d.sync().expect("a checkpoint");
        write("second", &[d, a]);
        a.sync().expect("a checkpoint");
        assert_eq!(found("second"), ([true, false, false, true], 3));
        assert_eq!(found("alone").0, [true, false, false, true]);
        write("third", &[b, c]);
        b.set_durability(Durability::Sync).expect("switched");
        assert_eq!(found("third").0, [false, true, true, false]);
        write("fourth", &[c, d]);
        let [_, _, c, d] = maps;
        drop(d);
        let left = copied(dir.path(), &names);
        let other = Database::open(left.path(), &options);
        let there = ["c", "d"]
            .map(|name| other.map(left.path(), name).get(b"fourth").expect("get").is_some());
        assert_eq!(there, [true; 2], "its last checkpoint");
        drop(c);
    }
}

/// Map, key and value that a crash kept from it.
type Lacking<'a> = (&'a str, &'a [u8], Option<&'a [u8]>);

/// As a process leaves it that dies between the note of a transaction and what it writes.
fn leave(dir: &Path, survives: Survives, parts: &[Lacking<'_>]) {
    let journal = CommitJournal::open(MediumSpec {
        path: dir.join("commits"),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 64 << 20,
        access: Access::Write,
    });
    let part = |(map, key, value): &Lacking<'_>| {
        let mut writes = Writes::default();
        writes.push(key, value.map(|value| (value, None)));
        Part { map: (*map).into(), does: writes.does() }
    };
    journal.expect("a journal").begin(survives, parts.iter().map(part).collect()).expect("begun");
}

#[test]
fn what_a_crash_kept_from_a_map_is_written_when_it_is_opened() {
    for (durability, survives) in [(Durability::Sync, Survives::Power), (HOUR, Survives::Process)] {
        let dir = tempfile::tempdir().expect("directory");
        let options = MapOptions { durability, ..MapOptions::default() };
        let database = Database::open(dir.path(), &options);
        let [a, b] = database.maps(dir.path(), ["a", "b"]);
        a.put(b"old", b"1").expect("put");
        b.put(b"old", b"1").expect("put");
        drop((a, b, database));
        leave(
            dir.path(),
            survives,
            &[("a", b"new", Some(b"2")), ("b", b"old", None), ("made later", b"x", Some(b""))],
        );
        // Whoever only reads sees it, and leaves it.
        let reading = MapOptions { access: Access::Read, ..options.clone() };
        for _ in 0..2 {
            let database = Database::open(dir.path(), &reading);
            let [a, b] = database.maps(dir.path(), ["a", "b"]);
            assert_eq!(a.get(b"new").expect("get").as_deref(), Some(&b"2"[..]));
            assert_eq!(b.get(b"old").expect("get"), None);
            assert!(matches!(a.put(b"k", b""), Err(Error::ReadOnly(_))), "{:?}", a.put(b"k", b""));
        }
        // One map now, and it is written to; the other one later.
        let database = Database::open(dir.path(), &options);
        let a = database.map(dir.path(), "a");
        assert_eq!(a.get(b"new").expect("get").as_deref(), Some(&b"2"[..]));
        a.put(b"new", b"3").expect("put");
        drop((a, database));
        let database = Database::open(dir.path(), &options);
        let [a, b] = database.maps(dir.path(), ["a", "b"]);
        assert_eq!(
            a.get(b"new").expect("get").as_deref(),
            Some(&b"3"[..]),
            "it is not written again"
        );
        assert_eq!(b.get(b"old").expect("get"), None);
        b.put(b"old", b"4").expect("put");
        assert!(database.map(dir.path(), "made later").is_empty(), "it is another map of the name");
        drop((a, b, database));
        let database = Database::open(dir.path(), &options);
        assert_eq!(
            database.map(dir.path(), "b").get(b"old").expect("get").as_deref(),
            Some(&b"4"[..])
        );
    }
}

#[test]
fn what_was_taken_in_and_cleared_does_not_come_back() {
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions { durability: Durability::Sync, ..MapOptions::default() };
    let database = Database::open(dir.path(), &options);
    drop(database.maps(dir.path(), ["a", "b"]));
    leave(dir.path(), Survives::Power, &[("a", b"k", Some(b"1")), ("b", b"k", Some(b"1"))]);
    let database = Database::open(dir.path(), &options);
    let a = database.map(dir.path(), "a");
    a.clear().expect("cleared");
    drop((a, database));
    let database = Database::open(dir.path(), &options);
    let [a, b] = database.maps(dir.path(), ["a", "b"]);
    assert!(a.is_empty() && b.len() == 1);
}

#[test]
fn what_could_be_half_lost_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions::default();
    let database = Database::open(dir.path(), &options);
    let [a, b] = database.maps(dir.path(), ["a", "b"]);
    let both = || {
        database.transaction(|transaction| {
            transaction.put(&a, b"k", b"1")?;
            transaction.put(&b, b"k", b"1")
        })
    };
    let refused = |told: Result<()>, of: &str| match told {
        Err(error @ Error::NotTogether { .. }) => {
            assert!(error.to_string().contains(of), "{error}")
        }
        other => panic!("{other:?}"),
    };
    for durability in [Durability::Sync, Durability::None] {
        b.set_durability(durability).expect("set");
        refused(both(), "do not promise the same");
    }
    assert!(a.is_empty() && b.is_empty());
    a.set_durability(Durability::None).expect("set");
    both().expect("they promise the same");
    let alone = Map::open(
        &dir.path().join("alone"),
        MapOptions { moments: Arc::clone(database.moments()), ..options },
    );
    let alone = alone.expect("open");
    let told = database.transaction(|transaction| {
        transaction.put(&a, b"k", b"2")?;
        transaction.put(&alone, b"k", b"2")
    });
    refused(told, "one database");
    assert!(alone.is_empty() && a.get(b"k").expect("get").as_deref() == Some(b"1"));
    let large = vec![0; 3 << 20];
    let told = database.transaction(|transaction| {
        transaction.put(&a, b"large", &large)?;
        transaction.put(&b, b"large", &large)
    });
    assert!(matches!(told, Err(Error::BatchSize(..))), "{told:?}");
    both().expect("they go on");
    assert_eq!((a.len(), b.len()), (1, 1));
}

/// Threads move money between two maps, while both take checkpoints, are collected and saved: none waits for ever, and
/// all of it is there.
#[test]
fn money_moves_between_maps_under_checkpoints() {
    const ACCOUNTS: u64 = 50;
    for durability in
        [Durability::Interval(Duration::from_millis(2)), Durability::Sync, Durability::None]
    {
        let dir = tempfile::tempdir().expect("directory");
        let options = MapOptions { durability, writers: 2, ..MapOptions::default() };
        let database = Database::open(dir.path(), &options);
        let maps = database.maps(dir.path(), ["a", "b", "c"]);
        for map in &maps {
            (0..ACCOUNTS)
                .for_each(|of| map.put(&of.to_be_bytes(), &100u64.to_le_bytes()).expect("put"));
        }
        let number = |bytes: Option<Vec<u8>>| {
            u64::from_le_bytes(bytes.expect("there").try_into().expect("eight"))
        };
        let end = std::time::Instant::now() + Duration::from_millis(500);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (database, maps) = (&database, &maps);
                scope.spawn(move || {
                    let mut rng = terrace_workload::random::Rng::new(thread + 1);
                    while std::time::Instant::now() < end {
                        let [from, to] =
                            [rng.below(3), rng.below(3)].map(|map| &maps[map as usize]);
                        let [payer, payee] =
                            [rng.below(ACCOUNTS), rng.below(ACCOUNTS)].map(u64::to_be_bytes);
                        let moved = database.transaction(|transaction| {
                            let has = number(transaction.get(from, &payer)?);
                            let sum = 10.min(has);
                            transaction.put(from, &payer, &(has - sum).to_le_bytes())?;
                            let has = number(transaction.get(to, &payee)?);
                            transaction.put(to, &payee, &(has + sum).to_le_bytes())
                        });
                        moved.expect("moved");
                    }
                });
            }
            for map in &maps {
                scope.spawn(move || {
                    while std::time::Instant::now() < end {
                        map.sync().expect("a checkpoint");
                        map.collect().expect("a round");
                    }
                });
            }
        });
        let sum = |maps: &[Map; 3]| -> u64 {
            let of_map = |map: &Map| {
                (0..ACCOUNTS)
                    .map(|of| number(map.get(&of.to_be_bytes()).expect("get")))
                    .sum::<u64>()
            };
            maps.iter().map(of_map).sum()
        };
        assert_eq!(sum(&maps), 300 * ACCOUNTS);
        let left = copied(dir.path(), &["a", "b", "c"]);
        drop((maps, database));
        for dir in [dir.path(), left.path()] {
            let database = Database::open(dir, &options);
            assert_eq!(sum(&database.maps(dir, ["a", "b", "c"])), 300 * ACCOUNTS, "{durability:?}");
        }
    }
}

/// Transactions over maps whose collectors have to make room, and take checkpoints together for that: whoever waited
/// for room of one map while it held a writer of the other waited for ever.
#[test]
fn transactions_wait_for_room_without_holding_others_up() {
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions {
        durability: Durability::Interval(Duration::from_millis(5)),
        memory_budget_bytes: 64 << 20,
        when_full: terrace_store::WhenFull::Refuse,
        writers: 2,
        ..MapOptions::default()
    };
    let database = Database::open(dir.path(), &options);
    let maps = database.maps(dir.path(), ["a", "b"]);
    let end = std::time::Instant::now() + Duration::from_secs(3);
    let value = vec![7; 20_000];
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (database, maps, value) = (&database, &maps, &value);
            scope.spawn(move || {
                let mut rng = terrace_workload::random::Rng::new(thread + 1);
                while std::time::Instant::now() < end {
                    let key = rng.below(500).to_be_bytes();
                    let told = database.transaction(|transaction| {
                        maps.iter().try_for_each(|map| transaction.put(map, &key, value))
                    });
                    told.expect("less than half of the budget lives");
                }
            });
        }
    });
    let keys = |map: &Map| {
        let mut keys = std::collections::BTreeSet::new();
        let each = |key: &[u8], _: terrace_store::Value<'_>| {
            keys.insert(key.to_vec());
        };
        map.snapshot().for_each(each).expect("a visit");
        keys
    };
    assert_eq!(keys(&maps[0]), keys(&maps[1]));
    assert!(maps.iter().any(|map| map.stats().collections > 0), "there was something to collect");
}

/// A disk without room for the journal refuses the transaction, and nothing else; one that another handle has is not
/// written to by two.
#[test]
fn a_journal_that_is_not_to_be_had_refuses_transactions_alone() {
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions::default();
    let database = Database::open(dir.path(), &options);
    let beside = Database::open(dir.path(), &options);
    let [a, b] = database.maps(dir.path(), ["a", "b"]);
    let [c, d] = beside.maps(dir.path(), ["c", "d"]);
    let both = |database: &Database, maps: [&Map; 2]| {
        database.transaction(|transaction| {
            maps.iter().try_for_each(|map| transaction.put(map, b"k", b"1"))
        })
    };
    both(&database, [&a, &b]).expect("it makes the journal");
    let told = both(&beside, [&c, &d]).expect_err("another handle has it").to_string();
    assert!(told.contains("another handle"), "{told}");
    assert!(c.is_empty() && d.is_empty());
    c.put(b"k", b"2").expect("the map goes on");
    both(&database, [&a, &b]).expect("so does the other handle");
    assert!(Together::in_directory(dir.path(), &options).is_err());
    drop((a, b, c, d, database, beside));
    // A journal that is damaged is named, and salvage passes it.
    let path = dir.path().join("commits");
    let mut bytes = std::fs::read(&path).expect("a file");
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let told = Together::in_directory(dir.path(), &options).expect_err("damaged").to_string();
    assert!(told.contains("commits") && told.contains("salvage"), "{told}");
    let salvage = MapOptions { access: Access::Salvage, ..options };
    let database = Database::open(dir.path(), &salvage);
    let a = database.map(dir.path(), "a");
    assert_eq!(a.get(b"k").expect("get").as_deref(), Some(&b"1"[..]));
    assert!(
        a.recovery().damage.iter().any(|damage| damage.what.contains("commits")),
        "{:?}",
        a.recovery()
    );
}
