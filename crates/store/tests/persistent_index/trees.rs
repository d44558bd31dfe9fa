//! Persistent trees of ordered maps: which there are, and what becomes of damage inside a leaf.

use super::{
    Contents, DESIGNS, Kept, Way, areas_at, killed, options, reopened, survives, way, work,
    write_at,
};
use crate::adversary::{Random, cases, contents, in_memory};
use std::path::Path;
use tempfile::TempDir;
use terrace_store::laboratory::{InnerTier, Laboratory, LeafForm, TreeForm};
use terrace_store::{Access, Error, Kind, Map, MapOptions, Persist, ValueDesign};

/// What an ordered map keeps, and its kind, may change from opening to opening.
#[test]
fn kinds_and_forms_may_change_from_opening_to_opening() {
    use Persist::{Auto, Full, Index, Values};
    use TreeForm::Logs;
    const FAST_FAIR: TreeForm = TreeForm::Leaves(LeafForm::FastFair);
    const WRITE_AHEAD: TreeForm = TreeForm::Leaves(LeafForm::WriteAhead);
    const PERSISTENT_UNSORTED: TreeForm = TreeForm::Leaves(LeafForm::PersistentUnsorted);
    const UNSORTED: TreeForm = TreeForm::Leaves(LeafForm::Unsorted);
    const ROWS: TreeForm = TreeForm::Leaves(LeafForm::Rows);
    for values in DESIGNS {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(21));
        let ordered = [
            (Kind::Ordered, None, Auto, Way::Read),
            (Kind::Ordered, None, Index, Way::Read),
            (Kind::Ordered, None, Auto, Way::AsClosed),
            (Kind::Ordered, Some(FAST_FAIR), Auto, Way::AsClosed),
            (Kind::Ordered, None, Values, Way::Read),
            (Kind::Ordered, Some(WRITE_AHEAD), Index, Way::Read),
            (Kind::Ordered, Some(WRITE_AHEAD), Auto, Way::AsClosed),
            (Kind::Ordered, None, Auto, Way::Read),
            (Kind::Ordered, None, Values, Way::Read),
            (Kind::Ordered, Some(Logs), Auto, Way::Read),
            (Kind::Ordered, None, Auto, Way::AsClosed),
            (Kind::Ordered, Some(Logs), Index, Way::AsClosed),
            (Kind::Ordered, None, Values, Way::Read),
            (Kind::Ordered, Some(PERSISTENT_UNSORTED), Auto, Way::Read),
            (Kind::Hash, None, Auto, Way::Read),
            (Kind::Hash, None, Auto, Way::AsClosed),
            (Kind::Hash, None, Full, Way::AsClosed),
            (Kind::Ordered, None, Auto, Way::Read),
            (Kind::Ordered, None, Index, Way::AsClosed),
            (Kind::Ordered, Some(UNSORTED), Auto, Way::Read),
            (Kind::Ordered, Some(ROWS), Values, Way::Read),
            (Kind::Ordered, None, Auto, Way::Read),
            (Kind::Hash, None, Values, Way::Read),
        ];
        for (kind, tree, persist, expected) in ordered {
            let options = options(Kept { kind, tree, values, persist });
            let map = reopened(dir.path(), options, &model, expected);
            work(&map, &mut model, &mut random, 2_000);
        }
        assert!(!dir.path().join("index").exists());
    }
}

fn sized(node_bytes: u64, options: MapOptions) -> MapOptions {
    let node_bytes = Some(node_bytes);
    MapOptions { laboratory: Laboratory { node_bytes, ..options.laboratory }, ..options }
}

fn inner_at(inner_tier: InnerTier, options: MapOptions) -> MapOptions {
    MapOptions { laboratory: Laboratory { inner_tier, ..options.laboratory }, ..options }
}

/// A tree that experiments made and the product does not make is no reason not to open: it is rebuilt, and said to be.
#[test]
fn a_tree_of_the_laboratory_is_rebuilt_where_nobody_asks_for_it() {
    let ways = Kept::ways(Some(Kind::Ordered)).into_iter();
    for kept in ways.filter(|kept| !kept.tree.expect("a tree").is_product()) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(32));
        work(&Map::open(dir.path(), options(kept)).expect("open"), &mut model, &mut random, 2_000);
        let auto = options(Kept { tree: None, ..kept.at(Persist::Auto) });
        let map = reopened(dir.path(), auto.clone(), &model, Way::Read);
        let why = map.recovery().unfit.clone().expect("said to be");
        assert!(why.contains("rebuilt as fast-fair") && !why.contains('\n'), "{why}");
        work(&map, &mut model, &mut random, 1_000);
        drop(map);
        drop(reopened(dir.path(), auto, &model, Way::AsClosed));
    }
}

/// Without a name a tree of the product is reopened as it is; one that is asked for where another is, is refused.
#[test]
fn the_tree_that_is_there_is_reopened_and_no_other() {
    let ways = Kept::ways(Some(Kind::Ordered)).into_iter();
    for kept in ways.filter(|kept| kept.tree.expect("a tree").is_product()) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(31));
        let small = sized(256, options(kept));
        work(&Map::open(dir.path(), small).expect("open"), &mut model, &mut random, 2_000);
        let after = {
            let auto = options(Kept { tree: None, ..kept.at(Persist::Auto) });
            let map = reopened(dir.path(), auto, &model, Way::AsClosed);
            let form = kept.tree.expect("a tree");
            let index = map.stats().index;
            assert!(index.starts_with(&format!("{form}: leaves of 256 B")), "{index}");
            assert!(index.ends_with(" inner nodes in DRAM"), "{index}");
            work(&map, &mut model, &mut random, 1_000);
            killed(dir.path())
        };
        let auto = options(Kept { tree: None, ..kept });
        drop(reopened(after.path(), auto, &model, Way::Walked));
        let is_fast_fair = kept.tree == Some(LeafForm::FastFair.into());
        let other = if is_fast_fair { "btree-ls" } else { "fast-fair" };
        let other = Some(other.parse().expect("a form"));
        let refused = [
            (options(Kept { tree: other, ..kept }), "index"),
            (sized(512, options(kept)), "node_bytes"),
        ];
        for (options, expected) in refused {
            match Map::open(after.path(), options) {
                Err(Error::Option { field, why }) if field == expected => {
                    assert!(why.contains("persist = \"values\"") && !why.contains('\n'), "{why}");
                }
                other => panic!("{expected}: {:?}", other.map(|_| "opened")),
            }
        }
        drop(reopened(
            after.path(),
            self::options(Kept { tree: None, ..kept }),
            &model,
            Way::AsClosed,
        ));
    }
}

#[test]
fn impossible_options_of_ordered_maps_are_refused_with_the_way_out() {
    let kept =
        |kind, tree, persist| options(Kept { kind, tree, values: ValueDesign::Log, persist });
    let ordered =
        |tree: Option<LeafForm>, persist| kept(Kind::Ordered, tree.map(TreeForm::Leaves), persist);
    let logs = |persist| kept(Kind::Ordered, Some(TreeForm::Logs), persist);
    let hash = |tree| kept(Kind::Hash, Some(tree), Persist::Index);
    let cases = [
        (
            inner_at(InnerTier::Index, kept(Kind::Hash, None, Persist::Index)),
            "inner_tier",
            "kind = \"ordered\"",
        ),
        (
            inner_at(InnerTier::Index, ordered(None, Persist::Values)),
            "inner_tier",
            "persist = \"index\"",
        ),
        (
            inner_at(InnerTier::Index, ordered(Some(LeafForm::Sorted), Persist::Auto)),
            "inner_tier",
            "persist = \"index\"",
        ),
        (ordered(None, Persist::Full), "persist", "persist = \"index\""),
        (ordered(Some(LeafForm::Sorted), Persist::Index), "index", "fast-fair"),
        (ordered(Some(LeafForm::Sorted), Persist::Index), "index", "btree-ls"),
        (ordered(Some(LeafForm::FastFair), Persist::Values), "index", "\"btree\", \"unsorted\""),
        (logs(Persist::Values), "index", "\"btree\", \"unsorted\""),
        (logs(Persist::Full), "persist", "persist = \"index\""),
        (hash(LeafForm::FastFair.into()), "index", "kind = \"ordered\""),
        (hash(TreeForm::Logs), "index", "kind = \"ordered\""),
        (sized(64, logs(Persist::Index)), "node_bytes", "128 to 4096"),
        (sized(1 << 40, logs(Persist::Auto)), "node_bytes", "128 to 4096"),
        (sized(512, kept(Kind::Hash, None, Persist::Index)), "node_bytes", "kind = \"ordered\""),
        (sized(64, ordered(None, Persist::Index)), "node_bytes", "128 to 4096"),
        (sized(1000, ordered(None, Persist::Values)), "node_bytes", "128 to 4096"),
        (
            sized(4096, ordered(Some(LeafForm::Unsorted), Persist::Auto)),
            "node_bytes",
            "128 to 2048",
        ),
    ];
    for (options, expected, way_out) in cases {
        let dir = in_memory();
        match Map::open(dir.path(), options) {
            Err(Error::Option { field, why }) if field == expected => {
                assert!(why.contains(way_out) && !why.contains('\n'), "{why}");
            }
            other => panic!("{expected}: {:?}", other.map(|_| "opened")),
        }
        assert!(!dir.path().join("values.log").exists());
    }
}

#[test]
fn inner_nodes_may_lie_where_the_index_does_and_are_rebuilt_at_each_opening() {
    let inner = |inner_tier, kept| inner_at(inner_tier, options(kept));
    for kept in Kept::ways(Some(Kind::Ordered)) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(9));
        drop(Map::open(dir.path(), inner(InnerTier::Index, kept)).expect("open"));
        for tier in [InnerTier::Index, InnerTier::Index, InnerTier::Dram, InnerTier::Index] {
            let map = reopened(dir.path(), inner(tier, kept), &model, Way::AsClosed);
            work(&map, &mut model, &mut random, 6_000);
            let stats = map.stats();
            let words = if tier == InnerTier::Dram { "in DRAM" } else { "in the index's memory" };
            assert!(stats.index.ends_with(words), "{}", stats.index);
            let is_in_leaves = matches!(kept.tree, Some(TreeForm::Leaves(_)));
            let reads_levels = tier == InnerTier::Index && is_in_leaves;
            assert_eq!(stats.index_nodes > 1, reads_levels, "{stats:?}");
            // Its file has no name: a kill leaves nothing of it, and nobody is to find it again.
            let names = std::fs::read_dir(dir.path()).expect("a folder");
            let names = names.map(|entry| entry.expect("a file").file_name());
            assert!(names.into_iter().all(|name| name != "index.inner"));
            let after = killed(dir.path());
            for other in [InnerTier::Index, InnerTier::Dram] {
                let copy = killed(after.path());
                drop(reopened(copy.path(), inner(other, kept), &model, kept.found()));
            }
        }
    }
}

/// Persistent trees whose leaves are nodes.
fn in_leaves() -> impl Iterator<Item = (Kept, LeafForm)> {
    Kept::ways(Some(Kind::Ordered)).into_iter().filter_map(|kept| match kept.tree {
        Some(TreeForm::Leaves(form)) => Some((kept, form)),
        _ => None,
    })
}

/// A tree's first leaf lies behind its first line, and logs if its form has some.
fn first_leaf(index: &Path, form: LeafForm) -> u64 {
    let logs = 8 * (64 + 4 * (512 + 128));
    let reserved: u64 = if form == LeafForm::FastFair { 64 } else { 64 + logs };
    areas_at(index) + reserved.next_multiple_of(512)
}

pub fn words_at(path: &Path, at: u64, count: usize) -> Vec<u64> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; 8 * count];
    let file = std::fs::File::open(path).expect("index");
    file.read_exact_at(&mut bytes, at).expect("words");
    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect()
}

/// Bytes of the leaves, from the first to what the tree says is in use.
fn leaves(index: &Path, form: LeafForm) -> std::ops::Range<u64> {
    let areas = areas_at(index);
    first_leaf(index, form)..areas + words_at(index, areas + 24, 1)[0]
}

/// Damage inside leaves, where a walk alone can see it: locations that name nothing, whatever they may be,
/// also of keys that tie; two entries that changed places, or locations; a link.
#[test]
fn damage_inside_a_leaf_is_noticed() {
    // All entries of all leaves: in an unsorted leaf not every slot counts.
    let names = |what: u64| {
        move |path: &Path, leaves: std::ops::Range<u64>| {
            for leaf in leaves.step_by(512) {
                let words = words_at(path, leaf, 64);
                let used = (0..15).filter(|slot| words[4 * slot + 6] != 0);
                used.for_each(|slot| {
                    write_at(path, leaf + 32 * slot as u64 + 48, &what.to_le_bytes());
                });
            }
        }
    };
    let swap = |from: u64, bytes: usize| {
        move |path: &Path, leaves: std::ops::Range<u64>| {
            let [first, second] = [32, 64].map(|at| leaves.start + at + from);
            let words = [first, second].map(|at| words_at(path, at, bytes / 8));
            for (at, words) in [first, second].into_iter().zip(words.iter().rev()) {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                write_at(path, at, &bytes);
            }
        }
    };
    let nowhere = |path: &Path, leaves: std::ops::Range<u64>| {
        write_at(path, leaves.start + 16, &(1u64 << 50).to_le_bytes());
    };
    type Harm<'a> = &'a dyn Fn(&Path, std::ops::Range<u64>);
    let harms: [(&str, Harm<'_>); 7] = [
        ("a location before the first item", &names(8)),
        ("a location far away", &names(u64::MAX - 7)),
        ("a location beyond the file", &names(1 << 37)),
        ("a location inside an item", &names((4 << 20) + 100)),
        ("entries in each other's places", &swap(0, 32)),
        ("each other's locations", &swap(16, 8)),
        ("a link to nowhere", &nowhere),
    ];
    for (kept, form) in in_leaves() {
        // Where entries are in no order their places say nothing, and a slot may be free.
        let is_seen =
            |what: &str| form != LeafForm::PersistentUnsorted || !what.contains("other's");
        for (what, harm) in harms.iter().filter(|(what, _)| is_seen(what)) {
            survives(what, &[kept], |path| harm(path, leaves(path, form)));
        }
    }
}

#[test]
fn a_damaged_first_line_of_leaves_is_noticed() {
    for (at, word) in [(8, 0), (8, u64::MAX), (16, 0), (16, 100), (16, 1 << 40), (24, 1 << 45)] {
        survives("the first line", &Kept::ways(Some(Kind::Ordered)), |path| {
            write_at(path, areas_at(path) + at, &u64::to_le_bytes(word));
        });
    }
}

pub fn copy_of(dir: &Path) -> TempDir {
    let copy = in_memory();
    let from = dir.join(".");
    let copied = std::process::Command::new("cp")
        .args([
            "-r".as_ref(),
            "--sparse=always".as_ref(),
            from.as_os_str(),
            copy.path().as_os_str(),
        ])
        .status();
    assert!(copied.expect("cp").success());
    copy
}

/// Flips any bit of what is in use of leaves after a kill. The map is what it was whatever it is, and a flip
/// in an entry, a link or a bitmap is told, with the file and the place.
#[test]
fn any_bit_of_a_leaf_may_flip_after_a_kill() {
    for (kept, form) in in_leaves() {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(41));
        let map = Map::open(dir.path(), options(kept)).expect("open");
        // Items of one size: the one before of a key often lies one bit away.
        for number in 0..6_000u64 {
            let (name, value) = (random.below(40).to_be_bytes().to_vec(), number.to_be_bytes());
            map.put(&name, &value).expect("put");
            model.insert(name, value.to_vec());
        }
        work(&map, &mut model, &mut random, 600);
        let after = killed(dir.path());
        drop(map);
        let all = leaves(&after.path().join("index"), form);
        let mut told = 0;
        for flip in 0..cases(24) {
            let copy = copy_of(after.path());
            let index = copy.path().join("index");
            let leaf = all.start + 512 * random.below((all.end - all.start) / 512).min(30);
            // The bitmap, the link, a word of an entry that is there.
            let bitmap = words_at(&index, leaf + 8, 1)[0];
            let slot = random.below(15);
            let is_used = match form {
                LeafForm::PersistentUnsorted => bitmap >> slot & 1 == 1,
                _ => words_at(&index, leaf + 48 + 32 * slot, 1)[0] != 0,
            };
            let at = match flip % 3 {
                0 if form == LeafForm::PersistentUnsorted => 8,
                0 | 1 if flip % 2 == 0 => 16,
                _ if is_used => 32 * (slot + 1) + 8 * random.below(4),
                _ => continue,
            };
            let (at, bit) = (leaf + at, random.below(64));
            let word = words_at(&index, at, 1)[0];
            write_at(&index, at, &(word ^ 1 << bit).to_le_bytes());
            let map = Map::open(copy.path(), options(kept)).expect("open");
            assert!(contents(&map) == model, "{kept:?}: bit {bit} of the word at {at}");
            match &map.recovery().unfit {
                Some(why) => {
                    let names = why.contains("index: at offset") || way(&map) == Way::Read;
                    assert!(names && why.contains("index: "), "{why}");
                    told += 1;
                }
                // A leaf that the list does not lead to.
                None => assert_eq!(way(&map), Way::Walked),
            }
        }
        assert!(told > 0, "{kept:?}");
    }
}

/// With salvage the map is read-only, and has what is intact, whatever the index is like; nothing is written.
#[test]
fn with_salvage_a_damaged_index_is_left_as_it_is() {
    for kept in Kept::ways(Some(Kind::Ordered)) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(51));
        let map = Map::open(dir.path(), options(kept)).expect("open");
        work(&map, &mut model, &mut random, 2_000);
        let after = killed(dir.path());
        drop(map);
        let index = after.path().join("index");
        // The first line of a tree's first leaf, or of the logs.
        let leaf = match kept.tree.expect("a tree") {
            TreeForm::Leaves(form) => leaves(&index, form).start,
            TreeForm::Logs => areas_at(&index),
        };
        write_at(&index, leaf + 16, &[0xff; 16]);
        let file = || std::fs::read(&index).expect("index");
        let before = file();
        let map = Map::open(after.path(), MapOptions { access: Access::Salvage, ..options(kept) });
        let map = map.expect("open");
        assert!(contents(&map) == model);
        map.put(b"a", b"b").expect_err("read-only");
        drop(map);
        assert!(file() == before, "nothing is written");
        drop(reopened(after.path(), options(kept), &model, Way::Read));
    }
}

/// Where values are verified when they are read, a damaged key does not say where a range ends: nothing behind the end
/// is told, and nothing before it left out without an error.
#[test]
fn a_damaged_key_neither_ends_a_range_nor_lets_it_go_on() {
    let mut cases = 0;
    for kept in Kept::ways(Some(Kind::Ordered)) {
        for harmed in [3, 50, 99, 100, 101, 110] {
            for first in [b'z', b'a', 0] {
                let dir = in_memory();
                let map = Map::open(dir.path(), options(kept)).expect("open");
                for number in 0..200 {
                    map.put(format!("key {number:03}").as_bytes(), b"value").expect("put");
                }
                map.close().expect("closed");
                drop(map);
                let path = dir.path().join("values.log");
                let path = if path.exists() { path } else { dir.path().join("values.slab") };
                let bytes = std::fs::read(&path).expect("the values");
                let key = format!("key {harmed:03}value").into_bytes();
                let at = bytes.windows(key.len()).position(|window| window == key);
                write_at(&path, at.expect("the item") as u64, &[first]);
                let map = Map::open(dir.path(), options(kept)).expect("open");
                if way(&map) != Way::AsClosed {
                    continue;
                }
                cases += 1;
                let mut told = Vec::new();
                let range = terrace_store::Range::from("key 000".."key 100");
                let ended = map.range(range, 1_000, |key, _| told.push(key.to_vec()));
                let sound = (0..100).map(|number| format!("key {number:03}").into_bytes());
                assert!(
                    told.iter().all(|key| key < &b"key 100".to_vec()),
                    "{kept:?} {harmed} {first}: {told:?}"
                );
                match ended {
                    Ok(_) => assert!(
                        harmed >= 100 && told == sound.collect::<Vec<_>>(),
                        "{kept:?} {harmed} {first}"
                    ),
                    Err(error) => assert!(error.is_damage(), "{error}"),
                }
            }
        }
    }
    assert!(cases >= 50, "{cases}");
}
