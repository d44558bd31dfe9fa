//! Whatever the bytes, reading an item answers or refuses; what it answers is consistent.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_durable::checksum::Crc;
use terrace_durable::item::{Header, Item, NewItem, Record, verify};

fn consistent(bytes: &[u8], seed: u32) {
    match verify(bytes, seed) {
        Record::Item(item, length) => {
            assert!(length <= bytes.len(), "an item lies inside its bytes");
            assert_eq!(Item::read(bytes), Some(item), "reading agrees with verifying");
            assert_eq!(
                Item::read_if_key(bytes, item.key),
                Some(item),
                "an item is found by its key"
            );
            let Item { key, value, version, expires_at_ms, tombstone, in_batch } = item;
            let again =
                NewItem { key, value, version, expires_at_ms, tombstone }.encode(seed, in_batch);
            assert!(again.len() <= length, "the encoder is the shortest");
            assert_eq!(
                verify(&again, seed),
                Record::Item(item, again.len()),
                "what was read can be written"
            );
        }
        Record::BatchEnd(length) => {
            assert!(length <= bytes.len(), "a batch end lies inside its bytes")
        }
        Record::Invalid => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((seed, bytes)) = data.split_first_chunk() else { return };
    let seed = u32::from_le_bytes(*seed);
    consistent(bytes, seed);
    // Once more with a checksum that is right.
    let Some(length) = Header::decode(bytes).map(|header| header.item_bytes()) else { return };
    let Some(covered) = bytes.get(4..length) else { return };
    let crc = Crc::new(seed).update(covered).finish();
    let repaired = [&crc.to_le_bytes(), &bytes[4..]].concat();
    assert_ne!(verify(&repaired, seed), Record::Invalid, "a right checksum is enough");
    consistent(&repaired, seed);
});
