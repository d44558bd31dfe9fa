//! The record of a redo log: new words under a mark, counting only as a whole.
//!
//! ```text
//! record: | generation | bytes, 32 bits; CRC-32C, 32 bits | runs .. |
//! run:    | address / 8, 40 bits; words, 24 bits | new words .. |
//! ```
//! The first two words are the mark. Its checksum covers generation and runs, so that one fence behind
//! the whole record is enough: whichever of its words are there after a crash, it counts only if all
//! are.

use crate::checksum::Crc;

/// Bytes of the mark.
pub(super) const HEAD: usize = 16;
const SEED: u32 = 0x5245_444f;
/// Words of a run at most: what its head can say.
const RUN_WORDS: u64 = (1 << 24) - 1;

fn checksum(generation: u64, runs: &[u8]) -> u32 {
    Crc::new(SEED).update(&generation.to_le_bytes()).update(runs).finish()
}

/// A record being made.
#[derive(Debug)]
pub(super) struct Record {
    bytes: Vec<u8>,
    /// The open run: where its head is, its words, the address behind it.
    run: (usize, u64, u64),
}

impl Record {
    pub(super) fn new() -> Record {
        Record { bytes: vec![0; HEAD], run: (0, 0, u64::MAX) }
    }

    /// Begins anew, in the memory it has.
    pub(super) fn clear(&mut self) {
        self.bytes.truncate(HEAD);
        self.run = (0, 0, u64::MAX);
    }

    /// Adds the word at `address`; words that follow each other share a run.
    pub(super) fn push(&mut self, address: u64, word: [u8; 8]) {
        let (mut head, mut count, end) = self.run;
        if address != end || count == RUN_WORDS {
            (head, count) = (self.bytes.len(), 0);
            self.bytes.extend_from_slice(&[0; 8]);
        }
        count += 1;
        let start = (address + 8) / 8 - count;
        self.bytes[head..head + 8].copy_from_slice(&(start | count << 40).to_le_bytes());
        self.bytes.extend_from_slice(&word);
        self.run = (head, count, address + 8);
    }

    /// Puts the mark before the words, and returns the whole.
    pub(super) fn mark(&mut self, generation: u64) -> &[u8] {
        let crc = checksum(generation, self.runs());
        let mark = (self.bytes.len() - HEAD) as u64 | u64::from(crc) << 32;
        self.bytes[..8].copy_from_slice(&generation.to_le_bytes());
        self.bytes[8..HEAD].copy_from_slice(&mark.to_le_bytes());
        &self.bytes
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn runs(&self) -> &[u8] {
        &self.bytes[HEAD..]
    }
}

/// Bytes of the runs that a mark's second word promises; none if there is no record.
pub(super) fn promised(mark: u64, log_bytes: u64) -> Option<u64> {
    let bytes = mark & 0xffff_ffff;
    (mark != 0 && bytes + HEAD as u64 <= log_bytes).then_some(bytes)
}

/// Whether the runs are those the mark was made for.
pub(super) fn is_whole(generation: u64, mark: u64, runs: &[u8]) -> bool {
    mark >> 32 == u64::from(checksum(generation, runs))
}

/// The runs of a record: address, new words.
pub(super) fn parse(mut runs: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = runs.split_first_chunk::<8>()?;
        let head = u64::from_le_bytes(*head);
        let (new, rest) = rest.split_at_checked(8 * (head >> 40) as usize)?;
        runs = rest;
        Some((8 * (head & ((1 << 40) - 1)), new))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_run_and_everything_reads_back() {
        let mut record = Record::new();
        for _ in 0..2 {
            record.clear();
            for (at, word) in [(64, 1), (72, 2), (80, 3), (8, 4), (1 << 42, 5)] {
                record.push(at, u64::to_le_bytes(word));
            }
            let found: Vec<_> = parse(record.runs()).map(|(at, new)| (at, new.len() / 8)).collect();
            assert_eq!(found, [(64, 3), (8, 1), (1 << 42, 1)]);
            assert_eq!(record.len(), 16 + 3 * 8 + 5 * 8);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut record = Record::new();
        record.push(64, [7; 8]);
        let mut bytes = record.mark(3).to_vec();
        let whole = |bytes: &[u8]| {
            let word =
                |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            promised(word(8), 4096).is_some_and(|n| {
                let runs = bytes.get(HEAD..HEAD + n as usize);
                runs.is_some_and(|runs| is_whole(word(0), word(8), runs))
            })
        };
        assert!(whole(&bytes));
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!whole(&bytes), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
