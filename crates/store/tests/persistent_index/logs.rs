//! Ordered maps whose index is delta chains in logs: damage of any part of these, and how much memory they take.

use super::trees::{copy_of, words_at};
use super::{
    Contents, DESIGNS, Kept, Kind, Way, areas_at, killed, options, reopened, survives, way, work,
    write_at,
};
use crate::adversary::{Random, cases, contents, in_memory};
use std::path::Path;
use terrace_store::laboratory::TreeForm;
use terrace_store::{Map, Persist, ValueDesign};

fn in_logs(values: ValueDesign) -> Kept {
    Kept { kind: Kind::Ordered, tree: Some(TreeForm::Logs), values, persist: Persist::Index }
}

const LOW_48: u64 = (1 << 48) - 1;
/// Where the first segment begins, from the beginning of the logs, and bytes of one.
const FIRST_AT: u64 = 4096;
const SEGMENT_BYTES: u64 = 64 << 10;

/// Offsets of the segments' heads in the file: of those that are free, and of the others.
fn heads(index: &Path) -> [Vec<u64>; 2] {
    let logs = areas_at(index);
    let end = words_at(index, logs + 24, 1)[0] & LOW_48;
    let heads = (logs + FIRST_AT..logs + end).step_by(SEGMENT_BYTES as usize);
    heads.partition::<Vec<u64>, _>(|at| words_at(index, *at, 1)[0] & 0xffff == 0xffff).into()
}

/// Whatever bit of the logs flips after a kill, the map is what it was; and where it is one of the first line, of a
/// head, or of a record, that is told with the file.
#[test]
fn any_bit_of_the_logs_may_flip_after_a_kill() {
    for kept in DESIGNS.map(in_logs) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(71));
        let map = Map::open(dir.path(), options(kept)).expect("open");
        // Some segments are free by now.
        work(&map, &mut model, &mut random, 20_000);
        // Logs that rest get a mark behind their last record.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let after = killed(dir.path());
        drop(map);
        let index = after.path().join("index");
        let [free, used] = heads(&index);
        assert!(used.len() > 1 && !free.is_empty(), "{} and {}", used.len(), free.len());
        let logs = areas_at(&index);
        for flip in 0..cases(30) {
            let any_of = |heads: &[u64], random: &mut Random| {
                heads[random.below(heads.len() as u64) as usize]
            };
            let at = match flip % 5 {
                0 => logs + 8 * random.below(5),
                1 => any_of(&free, &mut random),
                2 => any_of(&used, &mut random) + 8 * random.below(3),
                // The first record of a segment: a word that every record has.
                3 => any_of(&used, &mut random) + 64 + 8 * random.below(4),
                _ => any_of(&used, &mut random) + 64 + 64 * random.below(400) + 8 * random.below(8),
            };
            let bit = random.below(64);
            let copy = copy_of(after.path());
            let index = copy.path().join("index");
            let word = words_at(&index, at, 1)[0];
            write_at(&index, at, &(word ^ 1 << bit).to_le_bytes());
            let map = Map::open(copy.path(), options(kept)).expect("open");
            assert!(contents(&map) == model, "{kept:?}: bit {bit} of the word at {at}");
            match &map.recovery().unfit {
                Some(why) => assert!(why.contains("index: ") && !why.contains('\n'), "{why}"),
                // What no record is, behind the last of a log or in a record's padding.
                None => {
                    assert!(flip % 5 == 4 && way(&map) == Way::Walked, "{kept:?}: {flip}, {at}")
                }
            }
        }
    }
}

/// A head that is lost, or says with right sums what no log says.
#[test]
fn a_lost_head_is_no_free_segment() {
    for harm in [[0u8; 24], [0xff; 24]] {
        survives("a head", &DESIGNS.map(in_logs), |index| {
            let [free, used] = heads(index);
            let first = used.first().or(free.first()).expect("a segment");
            write_at(index, *first, &harm);
        });
    }
}

/// Every overwrite is a delta: what it takes the place of is given up before the file grows on.
#[test]
fn garbage_is_given_up() {
    for kept in DESIGNS.map(in_logs) {
        let dir = in_memory();
        let (mut model, mut random) = (Contents::new(), Random(81));
        let map = Map::open(dir.path(), options(kept)).expect("open");
        for number in 0..150_000u64 {
            let name = random.below(500).to_be_bytes().to_vec();
            map.put(&name, &number.to_be_bytes()).expect("put");
            model.insert(name, number.to_be_bytes().to_vec());
        }
        let bytes = map.stats().index_bytes;
        assert!(bytes < 3 << 20, "{bytes} bytes for 500 keys");
        let after = killed(dir.path());
        drop(map);
        let map = reopened(after.path(), options(kept), &model, Way::Walked);
        assert!(map.stats().index_bytes < 3 << 20);
        work(&map, &mut model, &mut random, 1_000);
        drop(map);
        drop(reopened(after.path(), options(kept), &model, Way::AsClosed));
        drop(reopened(
            dir.path(),
            options(Kept { tree: None, ..kept }),
            &model_of(dir.path()),
            Way::AsClosed,
        ));
    }
}

/// What the map that was closed in this directory holds, by its values alone.
fn model_of(dir: &Path) -> Contents {
    let copy = copy_of(dir);
    let values =
        options(Kept { tree: None, persist: Persist::Values, ..in_logs(ValueDesign::Auto) });
    contents(&Map::open(copy.path(), values).expect("open"))
}
