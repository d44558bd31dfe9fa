//! Writes of memory that others store to meanwhile, and what the file ends as.

use super::*;
use std::sync::{Arc, Mutex};

/// Reads what it is given twice, as a file system with checksums does. In between others store to the bytes around
/// the range that is written out.
#[derive(Debug)]
struct ReadsTwice {
    memory: Arc<Mutex<Option<Native>>>,
    written_out: (u64, u64),
    writes: Arc<Mutex<Vec<(u64, usize)>>>,
}

impl Disk for ReadsTwice {
    fn capacity_bytes(&self) -> u64 {
        1 << 20
    }

    fn write(&self, at: u64, blocks: &[u8], _durable: bool) -> Result<()> {
        let first = blocks.to_vec();
        let (start, end) = self.written_out;
        let memory = self.memory.lock().expect("no other thread");
        let memory = memory.as_ref().expect("given");
        let before = start / BLOCK_BYTES * BLOCK_BYTES..start;
        let behind = end..end.next_multiple_of(BLOCK_BYTES);
        for others in [before, behind].iter().filter(|others| !others.is_empty()) {
            // SAFETY: within the memory, and beside the range.
            unsafe { memory.write_changing(others.start, &[0xee; 16]) };
        }
        assert!(first == blocks, "what is written at {at} changes under the disk");
        self.writes.lock().expect("no other thread").push((at, blocks.len()));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn read(&self, _at: u64, _blocks: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

/// The last block of a log, to which its writer appends; and the first of a queue's range, before which elements
/// that were popped make room for others.
#[test]
fn blocks_that_a_range_shares_with_others_do_not_change_while_they_are_written() {
    let long = stable::MOST_BYTES + 5 * BLOCK_BYTES;
    let ranges = [
        (BLOCK_BYTES, long),
        (BLOCK_BYTES + 64, long),
        (BLOCK_BYTES, long + 64),
        (BLOCK_BYTES + 64, long + 128),
        (BLOCK_BYTES + 64, 128),
        (BLOCK_BYTES + 64, BLOCK_BYTES - 64),
    ];
    let each = |range: (u64, u64)| [(range, false), (range, true)];
    for ((at, bytes), is_at_rest) in ranges.into_iter().flat_map(each) {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let memory = Arc::new(Mutex::new(None));
        let disk = ReadsTwice {
            memory: Arc::clone(&memory),
            written_out: (at, at + bytes),
            writes: Arc::clone(&writes),
        };
        let medium = Medium::mirrored(Box::new(disk), true, 1).expect("memory");
        medium.commit(0, 1 << 20).expect("memory");
        *memory.lock().expect("no other thread") = Some(medium.memory().clone());
        match is_at_rest {
            // SAFETY: nobody writes the range itself.
            true => unsafe { medium.write_out_at_rest(at, bytes, true) },
            false => medium.write_out(at, bytes, true),
        }
        .expect("written");
        let mut reached = at / BLOCK_BYTES * BLOCK_BYTES;
        for (start, length) in writes.lock().expect("no other thread").iter() {
            assert_eq!(*start, reached, "block after block, once");
            reached += *length as u64;
        }
        assert_eq!(reached, (at + bytes).next_multiple_of(BLOCK_BYTES));
    }
}

#[test]
fn a_memory_from_elsewhere_is_asked_of_its_owner() {
    let region = Region::reserve(4096, Backing::Anonymous).expect("memory");
    let medium = Medium::over(region.native(), true, 1);
    let refused = medium.placement(4096).expect_err("not known here").to_string();
    assert!(refused.ends_with("ask its owner") && !refused.contains('\n'), "{refused}");
    assert!(medium.bind(0).is_err());
}
