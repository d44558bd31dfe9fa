//! Lending an item where it lies: to its end, and no byte behind it.

use super::{BATCH_END, BATCH_END_BYTES, CONTROL, FLAGS_AT, Header, header_bytes, usual};
use crate::control::CONTROL_HEADER_BYTES;
use terrace_memory::{Memory, lab};

/// Fewest bytes of an item: its key and its value are empty.
const SHORTEST_BYTES: u64 = 7;

/// Borrows what claims to be an item at `at`, if it ends at or before `end`, and nothing behind it. Of it header and
/// key are looked at; whoever looks at the value says so ([`lab::looked_at`]).
///
/// # Safety
/// The range to `end` is committed, and the item is not written while borrowed.
#[inline(always)]
pub(crate) unsafe fn borrow<M: Memory>(memory: &M, at: u64, end: u64) -> Option<&[u8]> {
    // SAFETY: by contract; the item ends at or before `end`.
    unsafe { length(memory, at, end).map(|bytes| lab::borrow(memory, at, bytes)) }
}

/// The same of what follows its checksum, for [`Item::of_rest`].
///
/// # Safety
/// As for [`borrow`]; the checksum may be written meanwhile.
#[inline(always)]
pub(crate) unsafe fn borrow_rest<M: Memory>(memory: &M, at: u64, end: u64) -> Option<&[u8]> {
    let rest = |bytes| (at + FLAGS_AT, bytes - FLAGS_AT);
    // SAFETY: by contract, as above.
    unsafe { length(memory, at, end).map(rest).map(|(at, bytes)| lab::borrow(memory, at, bytes)) }
}

/// Bytes of what claims to be an item at `at`, if it ends at or before `end`. No byte behind it is looked at: another
/// item may be written there.
///
/// # Safety
/// As for [`borrow_rest`].
#[inline(always)]
unsafe fn length<M: Memory>(memory: &M, at: u64, end: u64) -> Option<u64> {
    let room = end.saturating_sub(at);
    let head_bytes = room.min(SHORTEST_BYTES).checked_sub(FLAGS_AT)?;
    // SAFETY: an item has as many bytes; only the end of a batch is shorter, which nobody looks for where others write.
    let head = unsafe { lab::borrow(memory, at + FLAGS_AT, head_bytes) };
    let lengths = match head {
        [flags, key, value] => usual(u64::from(u32::from_le_bytes([*flags, *key, *value, 0]))),
        _ => None,
    };
    let (before_value, bytes) = match lengths {
        Some((before, key, bytes)) => (before + key, bytes),
        // SAFETY: by contract.
        None => unsafe { unusual_lengths(memory, at, *head.first()?, room)? },
    };
    if bytes > room {
        return None;
    }
    lab::looked_at(memory, at, before_value);
    Some(bytes)
}

/// Bytes before the value and of all of what has these flags.
///
/// # Safety
/// As for [`borrow_rest`]: `room` bytes are committed.
unsafe fn unusual_lengths<M: Memory>(
    memory: &M,
    at: u64,
    flags: u8,
    room: u64,
) -> Option<(u64, u64)> {
    let head_bytes = match flags & CONTROL {
        CONTROL => CONTROL_HEADER_BYTES,
        BATCH_END => BATCH_END_BYTES,
        _ => header_bytes(flags),
    } as u64;
    if head_bytes > room {
        return None;
    }
    // SAFETY: an item with these flags has as many bytes, which are within the room.
    let head = unsafe { lab::borrow(memory, at + FLAGS_AT, head_bytes - FLAGS_AT) };
    let header = Header::of_rest(head)?;
    Some(((header.header_bytes + header.key_bytes) as u64, header.item_bytes() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control;
    use crate::item::{NewItem, encode_batch_end};
    use terrace_memory::{Backing, Region};

    /// Readers used to borrow the longest header's bytes of every item, and with them the one behind it, which a writer
    /// was just putting there.
    #[test]
    fn an_item_is_lent_to_its_end_and_not_a_byte_further() {
        let region = Region::reserve(1 << 20, Backing::Anonymous).expect("memory");
        region.commit(0, 1 << 20).expect("memory");
        let (memory, at) = (region.native(), 4096);
        let mut records = vec![encode_batch_end(5).to_vec()];
        records.push(control::encode_commit_mark(64, 5).to_vec());
        for version in [1, 2, 300, 1 << 40] {
            for (key, value) in [(0, 0), (1, 0), (0, 1), (3, 255), (256, 2), (9, 256), (9, 65_536)]
            {
                for expires_at_ms in [None, Some(7)] {
                    let (key, value) = (&vec![1; key], &vec![2; value]);
                    let new = NewItem { key, value, version, expires_at_ms, tombstone: false };
                    records.extend([new.encode(5, false), new.encode(5, true)]);
                }
            }
        }
        for record in records {
            // SAFETY: committed bytes, which nobody borrows any more.
            unsafe { memory.write(at, &record) };
            let end = at + record.len() as u64;
            for behind in [0, 1, 100] {
                // SAFETY: committed, and nobody writes there.
                let lent = unsafe { borrow(&memory, at, end + behind) };
                assert_eq!(lent, Some(&record[..]), "and {behind} bytes behind it");
                // SAFETY: as above.
                let rest = unsafe { borrow_rest(&memory, at, end + behind) };
                assert_eq!(rest, Some(&record[4..]));
            }
            // SAFETY: as above.
            assert_eq!(unsafe { borrow(&memory, at, end - 1) }, None, "it does not end there");
        }
    }
}
