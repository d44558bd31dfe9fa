//! Under `sync`, after a kill, one flipped bit in an open log dropped the rest of that log without a word: keys were
//! lost, deleted ones came back, and salvage said nothing either. What lies intact behind it says that it is damage.

use crate::adversary::{SEGMENT, contents, file_now, opened, options};
use std::time::Duration;
use terrace_store::{Access, Domain, Durability, Error, Map, MapOptions};

const KEYS: u64 = 200;
const VALUE_BYTES: usize = 100;

fn one_log(domain: Domain, access: Access) -> MapOptions {
    MapOptions { writers: 1, domain, access, ..options(Durability::Sync) }
}

/// What a kill leaves of a map whose first keys were deleted at the end, each write acknowledged.
fn killed(domain: Domain, wait: Duration) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_log(domain, Access::Write)).expect("open");
    for key in 0..KEYS {
        map.put(&key.to_be_bytes(), &[key as u8; VALUE_BYTES]).expect("put");
    }
    for key in 0..KEYS / 2 {
        assert!(map.delete(&key.to_be_bytes()).expect("delete"));
    }
    std::thread::sleep(wait);
    file_now(dir.path())
}

/// Where the value of `key` is in the file.
fn place_of(image: &[u8], key: u64) -> usize {
    let value = [key as u8; VALUE_BYTES];
    let found = image[SEGMENT..].windows(VALUE_BYTES).position(|bytes| bytes == value);
    SEGMENT + found.expect("the value")
}

#[test]
fn one_bit_in_an_open_log_is_named_and_hides_nothing_behind_it() {
    for domain in [Domain::PageCache, Domain::Adr] {
        let image = killed(domain, Duration::ZERO);
        let key = KEYS * 3 / 4;
        let mut damaged = image.clone();
        let at = place_of(&image, key);
        damaged[at + 50] ^= 1;
        match opened(&damaged, one_log(domain, Access::Write)) {
            Err(Error::Medium(terrace_durable::Error::Damaged { offset, .. })) => {
                assert!((1..64).contains(&(at as u64 - offset)), "{offset} is not before {at}");
            }
            Err(error) => panic!("{domain}: {error}"),
            Ok((_dir, map)) => panic!("{domain}: opened with {} keys", map.len()),
        }
        let (_dir, map) = opened(&damaged, one_log(domain, Access::Salvage)).expect("salvage");
        let found = contents(&map);
        assert_eq!(map.recovery().damage.len(), 1, "{domain}: {:?}", map.recovery().damage);
        assert_eq!(
            found.len() as u64,
            KEYS / 2 - 1,
            "{domain}: all but the damaged key, and none deleted"
        );
        assert!(!found.contains_key(&key.to_be_bytes()[..]));
    }
}

/// The last write has nothing behind it that vouches for it, until the checkpointer has noted how far the log came.
#[test]
fn the_last_write_is_vouched_for_after_a_second() {
    for domain in [Domain::PageCache, Domain::Adr] {
        let image = killed(domain, Duration::from_millis(2500));
        let (_dir, map) = opened(&image, one_log(domain, Access::Write)).expect("whole");
        assert_eq!(map.len(), KEYS / 2);
        drop(map);
        let end = image.iter().rposition(|byte| *byte != 0).expect("the last tombstone");
        let mut damaged = image;
        damaged[end] ^= 1;
        let refused = opened(&damaged, one_log(domain, Access::Write)).map(|(_, map)| map.len());
        assert!(refused.is_err(), "{domain}: opened with {refused:?} keys");
    }
}
