//! An entry that became zero after a kill hides its key from every opening, and no sum notices: verifying holds the
//! index against the values, which hold the key.

use super::*;
use std::os::unix::fs::FileExt;
use terrace_store::Access;

const KEYS: u64 = 300;

fn to_read(kept: Kept) -> MapOptions {
    MapOptions { access: Access::Read, ..options(kept) }
}

/// Sets the first entry of the first table to zero.
fn zero_an_entry(dir: &Path) {
    let path = dir.join("index");
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the index");
    let (mut head, mut buckets) = ([0; 64], [0; 1 << 14]);
    file.read_exact_at(&mut head, 0).expect("its head");
    let at = 4096 + u64::from_le_bytes(*head[32..].first_chunk().expect("a word"));
    file.read_exact_at(&mut buckets, at).expect("buckets");
    let entry = (0..buckets.len())
        .step_by(8)
        .find(|word| word % 64 > 0 && buckets[*word..word + 8] != [0; 8])
        .expect("an entry");
    file.write_all_at(&[0; 8], at + entry as u64).expect("written");
}

#[test]
fn a_zeroed_entry_is_found_after_a_kill_and_after_an_orderly_end() {
    for values in DESIGNS {
        let kept = Kept::hash(values, Persist::Index);
        let dir = in_memory();
        let map = Map::open(dir.path(), options(kept)).expect("open");
        assert!(map.verify_index().is_err(), "it is in use");
        for key in 0..KEYS {
            map.put(&name(key), &value_of(key, 1, 40)).expect("put");
        }
        let left = killed(dir.path());
        drop(map);
        for (dir, is_closed) in [(left.path(), false), (dir.path(), true)] {
            let verified = || {
                let map = Map::open(dir, to_read(kept)).expect("to be read");
                map.verify_index().expect("legible").expect("an index")
            };
            let found = verified();
            assert_eq!((found.damage, found.unnamed, found.skipped), (None, 0, None), "{values:?}");
            assert_eq!(found.entries, KEYS);
            zero_an_entry(dir);
            let found = verified();
            assert_eq!(found.damage.is_some(), is_closed, "{values:?}: {found:?}");
            assert_eq!(found.unnamed, u64::from(!is_closed), "{values:?}: {found:?}");
        }
    }
}

#[test]
fn trees_and_sections_are_verified_as_closed() {
    for kept in Kept::ways(None) {
        let dir = in_memory();
        let map = Map::open(dir.path(), options(kept)).expect("open");
        for key in 0..KEYS {
            map.put(&name(key), &value_of(key, 1, 40)).expect("put");
        }
        drop(map);
        let map = Map::open(dir.path(), to_read(kept)).expect("to be read");
        let found = map.verify_index().expect("legible").expect("an index");
        assert_eq!((found.damage, found.unnamed, found.skipped), (None, 0, None), "{kept:?}");
    }
}
