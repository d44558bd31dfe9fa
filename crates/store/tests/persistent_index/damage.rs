//! Whatever happens to the file of an index is noticed, and the index rebuilt from the values.

use super::*;

/// At rest any bit that changes is noticed, and the index rebuilt: a walk misses what it does not name.
#[test]
fn allocation_metadata_and_lines_that_changed_at_rest_are_noticed() {
    for kept in Kept::ways(None) {
        let harms: [fn(&Path); 3] = [
            |index| write_at(index, 4096 + 512, &[0xff]),
            |index| write_at(index, 2 * 4096, &[0x55; 64]),
            |index| write_at(index, areas_at(index) + 4, &[0x55]),
        ];
        for harm in harms {
            let dir = in_memory();
            let (mut model, mut random) = (Contents::new(), Random(15));
            let map = Map::open(dir.path(), options(kept)).expect("open");
            work(&map, &mut model, &mut random, 5_000);
            drop(map);
            harm(&dir.path().join("index"));
            let map = reopened(dir.path(), options(kept), &model, Way::Read);
            assert!(map.recovery().unfit.as_ref().is_some_and(|why| why.contains("closed")));
            work(&map, &mut model, &mut random, 1_000);
            drop(map);
            drop(reopened(dir.path(), options(kept), &model, Way::AsClosed));
        }
    }
}

#[test]
fn a_missing_index_is_rebuilt() {
    survives("a missing index", &Kept::ways(None), |path| {
        std::fs::remove_file(path).expect("removed")
    });
}

#[test]
fn a_truncated_index_is_rebuilt() {
    survives("an index cut short", &Kept::ways(None), |path| {
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("index");
        file.set_len(100).expect("cut");
    });
}

#[test]
fn a_flipped_bit_in_the_head_is_noticed() {
    survives("a flipped bit", &Kept::ways(None), |path| {
        let byte = {
            use std::os::unix::fs::FileExt;
            let mut byte = [0];
            let file = std::fs::File::open(path).expect("index");
            file.read_exact_at(&mut byte, 20).map(|()| byte[0]).expect("a head")
        };
        write_at(path, 20, &[byte ^ 0x10]);
    });
}

fn hash_words() -> [Kept; 2] {
    DESIGNS.map(|design| Kept::hash(design, Persist::Index))
}

#[test]
fn an_entry_that_names_nothing_is_noticed() {
    // The first slots of the first buckets, of which some were in use.
    survives("entries that name nothing", &hash_words(), |path| {
        let buckets = areas_at(path);
        (0..8u64).for_each(|bucket| {
            write_at(path, buckets + 64 * bucket + 8, &0x0001_0000_0fff_fff8u64.to_le_bytes());
        });
    });
}

#[test]
fn an_entry_under_a_wrong_tag_is_noticed() {
    // The highest byte of the first slots: part of the tag, if they are in use.
    survives("entries that nobody would find", &hash_words(), |path| {
        let buckets = areas_at(path);
        (0..8u64).for_each(|bucket| write_at(path, buckets + 64 * bucket + 8 + 7, &[0x5a]));
    });
}

/// In slabs a lost line is made good: what nobody names is looked at before it is freed.
#[test]
fn keys_of_a_lost_line_are_found_in_their_slots() {
    let dir = in_memory();
    let (mut model, mut random) = (Contents::new(), Random(8));
    let options = || options(Kept::hash(ValueDesign::Slab, Persist::Index));
    let map = Map::open(dir.path(), options()).expect("open");
    work(&map, &mut model, &mut random, 5_000);
    let after = killed(dir.path());
    let index = after.path().join("index");
    let buckets = areas_at(&index);
    (0..8u64).for_each(|bucket| write_at(&index, buckets + 64 * bucket, &[0; 64]));
    // Its lines say that they are not what the table wrote: the index is rebuilt.
    drop(reopened(after.path(), options(), &model, Way::Read));
    drop(reopened(after.path(), options(), &model, Way::AsClosed));
}

/// An index of before, put back, would hide what was written since: its mark tells.
#[test]
fn an_index_of_before_does_not_pass_for_the_present_one() {
    for kept in Kept::ways(None) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(6));
        let turn = |model: &mut Contents, random: &mut Random| {
            let map = Map::open(dir.path(), options(kept)).expect("open");
            work(&map, model, random, 3_000);
        };
        turn(&mut model, &mut random);
        let (index, before) = (dir.path().join("index"), dir.path().join("before"));
        let copied = std::process::Command::new("cp").args([&index, &before]).status();
        assert!(copied.expect("cp").success());
        turn(&mut model, &mut random);
        std::fs::rename(before, index).expect("put back");
        drop(reopened(dir.path(), options(kept), &model, Way::Read));
    }
}
