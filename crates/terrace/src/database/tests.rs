use super::*;
use terrace_memory::tier::SystemPaths;
use terrace_memory::{ByteSize, Domain, TierKind, TierSpec, Topology};
use terrace_store::{Access, Durability, Kind, Persist, QueueOptions, ValueDesign, WhenFull};

const MIB: usize = 1 << 20;

/// Values alone in a tier.
fn values_in(tier: &Tier) -> MapTiers {
    MapTiers { values: Some(tier.clone()), ..MapTiers::default() }
}

/// How many values of a mebibyte go into a map before it has no room, 80 at the most.
fn room_of(map: &Map) -> usize {
    let value = vec![7; MIB];
    (0..80usize).take_while(|key| map.put(&key.to_le_bytes(), &value).is_ok()).count()
}

#[test]
fn a_map_in_a_tier_is_on_its_node_and_within_its_bytes() {
    let topology = Topology::read().expect("a topology");
    let node = topology.nodes[0].node;
    let spec = TierSpec {
        node: Some(node),
        bytes: Some(ByteSize(64 << 20)),
        ..TierSpec::new("near", TierKind::Node)
    };
    let tier = spec.resolve(&topology, &SystemPaths).expect("it fits");
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions { when_full: WhenFull::Refuse, ..MapOptions::default() };
    let db = Database::open(dir.path(), options).expect("open");
    let placed = match db.map_builder("placed").tiers(values_in(&tier)).open() {
        // Containers without the capability, kernels without NUMA.
        Err(e) if e.to_string().contains("not permitted") => return,
        placed => placed.expect("a map in the tier"),
    };
    let free = db.map("free").expect("a map anywhere");
    let room = room_of(&placed);
    assert!((32..64).contains(&room), "{room} MiB in a tier of 64");
    assert_eq!(room_of(&free), 80, "the others' budget is the database's");
    let pages = placed.medium().placement(64 << 20).expect("the kernel tells");
    assert!(pages.is_only_on(node) && !pages.pages_by_node.is_empty(), "{pages}");
    // The database's budget is changed, and the tier's stays.
    db.set_memory_budget(1 << 30);
    assert_eq!(db.memory_budget(), 1 << 30);
    assert_eq!(free.stats().memory_budget_bytes, 1 << 30);
    assert_eq!(placed.stats().memory_budget_bytes, 64 << 20);
    let told = db.tiers();
    let [shared, near] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (shared.name.as_str(), shared.node, &shared.maps[..]),
        (SHARED_TIER, None, &["free".to_string()][..])
    );
    assert_eq!(
        (near.name.as_str(), near.node, &near.maps[..]),
        ("near", Some(node), &["placed".to_string()][..])
    );
    assert_eq!([shared, near].map(|tier| tier.budget_bytes), [1 << 30, 64 << 20]);
    assert_eq!((db.tier_of("placed").as_deref(), db.tier_of("absent")), (Some("near"), None));
    assert_eq!(near.used_bytes, placed.stats().memory_used_bytes);
    assert_eq!(shared.used_bytes, free.stats().memory_used_bytes);
    drop((placed, free));
    db.close().expect("close");
    // What is kept is in the directory, wherever it was used.
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    let small = Tier { name: "small".into(), bytes: Some(32 << 20), ..tier };
    let refused = db.map_builder("free").tiers(values_in(&small)).open().err().expect("a refusal");
    assert!(refused.to_string().contains("and the tier 33554432"), "{refused}");
    assert_eq!(db.map("placed").expect("open").len(), room as u64);
}

#[test]
fn a_tier_is_refused_where_the_file_is_the_memory_and_where_no_such_node_is() {
    let topology = Topology::read().expect("a topology");
    let spec =
        TierSpec { node: Some(topology.nodes[0].node), ..TierSpec::new("near", TierKind::Node) };
    let tier = spec.resolve(&topology, &SystemPaths).expect("it fits");
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions { domain: Domain::Eadr, ..MapOptions::default() };
    let db = Database::open(dir.path(), options).expect("open");
    let refused =
        db.map_builder("a").tiers(values_in(&tier)).open().err().expect("a refusal").to_string();
    assert!(refused.contains("the values are in the mapped file"), "{refused}");
    assert!(refused.starts_with("tier: ") && !refused.contains('\n'), "{refused}");
    drop(db);
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    let nowhere = Tier { node: Some(1023), ..tier };
    let refused =
        db.map_builder("b").tiers(values_in(&nowhere)).open().err().expect("a refusal").to_string();
    assert!(refused.contains("node 1023") && !refused.contains('\n'), "{refused}");
}

/// Where an index is apart from its values: another tier, another budget, and pages on that tier's node alone.
#[test]
fn an_index_in_a_tier_of_its_own_counts_there_and_is_refused_there() {
    let topology = Topology::read().expect("a topology");
    let node = topology.nodes[0].node;
    let spec = TierSpec {
        node: Some(node),
        bytes: Some(ByteSize(4 << 20)),
        ..TierSpec::new("near", TierKind::Node)
    };
    let near = spec.resolve(&topology, &SystemPaths).expect("it fits");
    let apart = MapTiers { index: Some(near), ..MapTiers::default() };
    for kind in [Kind::Hash, Kind::Ordered] {
        let dir = tempfile::tempdir().expect("directory");
        let none = MapOptions { durability: Durability::None, ..MapOptions::default() };
        let db = Database::open(dir.path(), none).expect("open");
        let map = match db.map_builder("apart").kind(kind).tiers(apart.clone()).open() {
            // Containers without the capability, kernels without NUMA.
            Err(e) if e.to_string().contains("not permitted") => return,
            map => map.expect("a map"),
        };
        let put = |n: &u32| map.put(&n.to_be_bytes(), b"x");
        let keys = (0..1_000_000u32).take_while(|n| put(n).is_ok()).count();
        assert!((30_000..900_000).contains(&keys), "{keys} keys");
        let refused = put(&1_000_001).expect_err("a refusal").to_string();
        assert!(refused.contains("4194304 bytes of tier `near` used"), "{refused}");
        let [shared, near] = &db.tiers()[..] else { panic!("{:?}", db.tiers()) };
        assert_eq!((&shared.maps[..], shared.indexes.len()), (&["apart".to_string()][..], 0));
        assert_eq!((near.maps.len(), &near.indexes[..]), (0, &["apart".to_string()][..]));
        assert_eq!(near.used_bytes, map.stats().index_bytes);
        assert_eq!(shared.used_bytes, map.stats().memory_used_bytes);
        assert_eq!(db.tier_of("apart").as_deref(), Some(SHARED_TIER));
        assert_eq!(db.index_tier_of("apart").as_deref(), Some("near"));
        // The kernel's own word, of all memory of this process.
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        let bound = format!(" bind:{node} ");
        assert!(maps.is_empty() || maps.contains(&bound), "nothing is bound to node {node}");
    }
}

/// A server on a RAM disk once said that its writes were made durable by fdatasync.
#[test]
fn a_volatile_file_system_is_not_called_durable() {
    let shm = Path::new("/dev/shm");
    if !dax::filesystem_of(shm).is_ok_and(|found| found.kind == "tmpfs") {
        return;
    }
    let dir = tempfile::tempdir_in(shm).expect("directory");
    let told = |domain| {
        let options = MapOptions { domain, ..MapOptions::default() };
        Database::open(dir.path(), options).expect("open").durability_of_medium()
    };
    assert_eq!(told(Domain::PageCache), "none: tmpfs at /dev/shm, lost with the power");
    let emulated = "declared for tmpfs at /dev/shm, emulated; not safe from a power cut";
    assert_eq!(told(Domain::Adr), format!("{}: {emulated}", Domain::Adr));
}

#[test]
fn maps_are_kept_apart_named_and_found_again() {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    db.map("a").and_then(|m| m.put(b"k", b"in a")).expect("put");
    db.map("b").and_then(|m| m.put(b"k", b"in b")).expect("put");
    db.close().expect("close");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    assert_eq!(db.map_names().expect("names"), ["a", "b"]);
    assert_eq!(db.map("a").and_then(|m| m.get(b"k")).expect("get"), Some(b"in a".to_vec()));
    for bad in ["", ".hidden", "a/b", "..", &"x".repeat(65)] {
        assert!(db.map(bad).is_err(), "{bad}");
        assert!(db.queue(bad).is_err(), "{bad}");
    }
}

#[test]
fn queues_are_beside_maps_and_found_again() {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    let small = |options| QueueOptions { capacity_bytes: Some(1 << 20), ..options };
    let jobs = db.queue_with("mail:jobs", small).expect("a queue");
    assert!(db.map("mail:jobs").is_err(), "no name of a map");
    jobs.push(b"first").and_then(|()| jobs.push(b"second")).expect("push");
    assert_eq!(jobs.pop().expect("pop"), Some(b"first".to_vec()));
    drop(jobs);
    db.close().expect("close");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    assert_eq!(db.queue_names().expect("names"), ["mail:jobs"]);
    let jobs = db.queue("mail:jobs").expect("the queue, as it was made");
    assert_eq!(jobs.pop().expect("pop"), Some(b"second".to_vec()));
    assert_eq!(jobs.pop().expect("pop"), None);
}

/// What cannot be read was once taken for empty.
#[test]
fn names_that_cannot_be_read_are_an_error() {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    assert!(db.queue_names().expect("no folder, no queue").is_empty());
    let refused = |names: Result<Vec<String>>, what: &str| {
        let refused = names.expect_err("a refusal").to_string();
        assert!(refused.contains(what), "{refused}");
    };
    std::fs::write(dir.path().join("queues"), "a file").expect("written");
    refused(db.queue_names(), "queues");
    let map = dir.path().join("maps").join("elsewhere");
    std::os::unix::fs::symlink("/nowhere/at/all", map).expect("a link");
    refused(db.map_names(), "maps/elsewhere");
}

/// It was silently ignored: a map with a budget of its own took from the database's, and nobody was told.
#[test]
fn a_budget_of_a_maps_own_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    let own = MapOptions { memory_budget_bytes: 64 << 20, ..db.options().clone() };
    let refused = db.map_builder("a").options(own).open().err().expect("a refusal").to_string();
    assert!(refused.starts_with("memory_budget_bytes: ") && refused.contains("tiers"), "{refused}");
    assert_eq!(db.map_names().expect("names"), [""; 0]);
    // A change at run time is of the database, and a map opened after it starts from that.
    db.set_memory_budget(1 << 30);
    assert_eq!(db.map("a").expect("a map").stats().memory_budget_bytes, 1 << 30);
}

/// Settings of a map that was open were silently ignored: whoever asked for `sync` got `interval`, and no error.
#[test]
fn a_map_that_is_open_otherwise_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    let map = db.map("a").expect("a map");
    let builder = || db.map_builder("a");
    let same =
        builder().kind(Kind::Hash).values(ValueDesign::Log).persist(Persist::Auto).writers(0);
    let same = same.durability(map.durability()).when_full(WhenFull::Spill).open();
    assert!(same.is_ok(), "{:?}", same.err());
    let others = [
        ("kind", builder().kind(Kind::Ordered)),
        ("durability", builder().durability(Durability::Sync)),
        ("values", builder().values(ValueDesign::Slab)),
        ("persist", builder().persist(Persist::Index)),
        ("when_full", builder().when_full(WhenFull::Evict)),
        ("writers", builder().writers(map.writers() + 1)),
    ];
    for (field, other) in others {
        let refused = other.open().err().expect("a refusal").to_string();
        assert!(refused.starts_with(field) && refused.contains("`a` is open already"), "{refused}");
    }
    // What counts is what is in force.
    map.set_durability(Durability::Sync).expect("switched");
    assert!(builder().durability(Durability::Sync).open().is_ok());
    assert!(
        builder().options(db.options().clone()).open().is_ok(),
        "settings as a whole ask nothing"
    );
}

/// The number that "one per processor" came to was refused, with "0 and not 2" for a reason.
#[test]
fn writers_are_compared_with_those_in_force() {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    let map = db.map_builder("a").writers(0).open().expect("a map");
    let in_force = map.writers();
    for writers in [0, in_force] {
        let again = db.map_builder("a").writers(writers).open();
        assert!(again.is_ok(), "{writers}: {:?}", again.err());
    }
    let other = in_force + 1;
    let refused = db.map_builder("a").writers(other).open().err().expect("a refusal").to_string();
    assert!(refused.contains(&format!("with {in_force} and not {other}")), "{refused}");
}

/// A reader may name what is persistent, and nothing follows from it. The first opening was let through, the second
/// one refused.
#[test]
fn a_map_is_opened_to_be_read_twice_with_the_same_settings() {
    let dir = tempfile::tempdir().expect("directory");
    let open = |access| {
        let options = MapOptions { access, domain: Domain::Adr, ..MapOptions::default() };
        Database::open(dir.path(), options).expect("open")
    };
    for (name, persist) in [("a", Persist::Values), ("b", Persist::Index), ("c", Persist::Full)] {
        let db = open(Access::Write);
        let map = db.map_builder(name).persist(persist).values(ValueDesign::Slab).writers(2).open();
        map.and_then(|map| map.put(b"ada", b"lovelace")).expect("put");
        db.close().expect("close");
        let db = open(Access::Read);
        for _ in 0..2 {
            let settings = db.map_builder(name).persist(persist).values(ValueDesign::Slab);
            let settings = settings.writers(2).kind(Kind::Hash).when_full(WhenFull::Refuse);
            let map = settings.durability(MapOptions::default().durability).open();
            let map = map.unwrap_or_else(|refused| panic!("{persist:?}: {refused}"));
            assert_eq!(map.get(b"ada").expect("get").as_deref(), Some(&b"lovelace"[..]));
        }
    }
}

/// A kill between the renaming of a removed queue's folder and its removal left its file there for ever.
#[test]
fn remains_of_removed_queues_are_deleted_at_the_next_opening() {
    let dir = tempfile::tempdir().expect("directory");
    let open = |access| {
        let options = MapOptions { access, ..MapOptions::default() };
        Database::open(dir.path(), options).expect("open")
    };
    let db = open(Access::Write);
    for name in ["jobs", "others"] {
        db.queue(name).and_then(|queue| queue.push(b"element")).expect("push");
    }
    db.close().expect("close");
    let folder = dir.path().join("queues");
    std::fs::rename(folder.join("jobs"), folder.join(".jobs")).expect("renamed");
    // Somebody's own.
    let own = folder.join(".snapshots");
    std::fs::create_dir(&own).and_then(|()| std::fs::write(own.join("ring"), "")).expect("made");
    std::fs::write(own.join("notes"), "").expect("written");
    drop(open(Access::Read));
    assert!(folder.join(".jobs").exists(), "who reads changes nothing");
    let db = open(Access::Write);
    assert!(!folder.join(".jobs").exists());
    assert!(own.join("notes").exists() && own.join("ring").exists());
    assert_eq!(db.queue_names().expect("names"), ["others"]);
    assert_eq!(
        db.queue("others").and_then(|queue| queue.pop()).expect("pop"),
        Some(b"element".to_vec())
    );
}
