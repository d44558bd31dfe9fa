//! What lies where in a journal, and how a whole piece is told from a torn one.

use super::step::{Step, Steps};
use super::write_out;
use crate::checksum::Crc;
use crate::error::{Error, Result};
use crate::medium::{BLOCK_BYTES, Medium};
use crate::superblock::{block_is_intact, get_u32, get_u64, put_u32, put_u64, seal_block};
use crate::version;
use terrace_memory::Memory;

const MAGIC: &[u8; 8] = b"TERRACEj";
const FORMAT: u32 = 1;
const MARK_MAGIC: u32 = 0x004b_524d;
const RECORD_MAGIC: u32 = 0x5243_4a54;
/// Bytes of the head: what it is, and two marks.
pub(super) const HEAD_BYTES: u64 = 3 * BLOCK_BYTES;
/// Bytes of a record before its payload.
pub(super) const RECORD_HEAD: u64 = 40;
/// Records begin at multiples of this.
pub(super) const RECORD_ALIGN: u64 = 64;
/// Most bytes of a state, and of a log.
const MOST_BYTES: u64 = 1 << 44;
/// Words that a journal keeps for its user, unchanging and with each state.
pub const WORDS: usize = 8;

/// What a journal is made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalShape {
    /// Whose it is: another kind is refused.
    pub kind: [u8; 8],
    /// Most bytes of a state.
    pub state_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// What its user keeps with it for ever.
    pub words: [u64; WORDS],
}

impl JournalShape {
    fn area_bytes(&self) -> u64 {
        self.state_bytes.next_multiple_of(BLOCK_BYTES)
    }

    /// Where one of the two states begins.
    pub(super) fn area(&self, area: u64) -> u64 {
        HEAD_BYTES + area * self.area_bytes()
    }

    /// Where the log begins.
    pub(super) fn log(&self) -> u64 {
        self.area(2)
    }

    /// Bytes of the whole.
    pub fn bytes(&self) -> u64 {
        self.log() + self.log_bytes.next_multiple_of(BLOCK_BYTES)
    }

    pub(super) fn encode(&self, seed: u32) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        block[..8].copy_from_slice(MAGIC);
        put_u32(&mut block, 8, FORMAT);
        put_u32(&mut block, 12, seed);
        block[16..24].copy_from_slice(&self.kind);
        put_u64(&mut block, 24, self.state_bytes);
        put_u64(&mut block, 32, self.log_bytes);
        (0..WORDS).for_each(|word| put_u64(&mut block, 40 + 8 * word, self.words[word]));
        seal_block(&mut block);
        block
    }

    /// What the first block says, and the seed of its records' checksums.
    pub(super) fn decode<M: Memory>(
        block: &[u8],
        kind: [u8; 8],
        medium: &Medium<M>,
    ) -> Result<(JournalShape, u32)> {
        let damaged = |what: &str| Error::Damaged {
            path: medium.path().into(),
            offset: 0,
            what: what.into(),
        };
        if &block[..8] != MAGIC {
            return Err(damaged("no Terrace journal: the magic number is missing"));
        }
        version::check_block(medium.path(), "journal of format", block, FORMAT)?;
        if !block_is_intact(block) {
            return Err(damaged("the first block does not match its checksum"));
        }
        let mismatch = |field, found, wanted| {
            Err(Error::Mismatch { path: medium.path().into(), field, found, wanted })
        };
        let format = get_u32(block, 8);
        if format != FORMAT {
            return mismatch("journal format", format.to_string(), FORMAT.to_string());
        }
        let found: [u8; 8] = block[16..24].try_into().expect("eight bytes");
        if found != kind {
            let name =
                |kind: [u8; 8]| String::from_utf8_lossy(&kind).trim_end_matches('\0').to_string();
            return mismatch("kind", name(found), name(kind));
        }
        let shape = JournalShape {
            kind,
            state_bytes: get_u64(block, 24),
            log_bytes: get_u64(block, 32),
            words: std::array::from_fn(|word| get_u64(block, 40 + 8 * word)),
        };
        if shape.state_bytes.max(shape.log_bytes) > MOST_BYTES {
            return Err(damaged("a state or a log of more than 2^44 bytes"));
        }
        Ok((shape, get_u32(block, 12)))
    }
}

/// Which state counts, and what of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Grows with every mark.
    pub number: u64,
    /// Grows with every state: records of another are not of this one.
    pub generation: u64,
    /// Grows with every opening: what an earlier one left behind the end is not taken for what follows.
    pub session: u32,
    /// Which area the state is in.
    pub area: u64,
    pub state_bytes: u64,
    pub state_crc: u32,
    /// Records of the generation that were synced when the mark was stored.
    pub records: u64,
    /// What its user keeps with the state.
    pub words: [u64; WORDS],
}

impl Mark {
    fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        put_u32(&mut block, 0, MARK_MAGIC);
        put_u32(&mut block, 4, self.session);
        put_u64(&mut block, 8, self.generation);
        put_u64(&mut block, 16, self.area);
        put_u64(&mut block, 24, self.state_bytes);
        put_u32(&mut block, 32, self.state_crc);
        put_u64(&mut block, 40, self.records);
        put_u64(&mut block, 48 + 8 * WORDS, self.number);
        (0..WORDS).for_each(|word| put_u64(&mut block, 48 + 8 * word, self.words[word]));
        seal_block(&mut block);
        block
    }

    pub fn decode(block: &[u8]) -> Option<Mark> {
        let is_whole = get_u32(block, 0) == MARK_MAGIC && block_is_intact(block);
        is_whole.then(|| Mark {
            session: get_u32(block, 4),
            generation: get_u64(block, 8),
            area: get_u64(block, 16) & 1,
            state_bytes: get_u64(block, 24),
            state_crc: get_u32(block, 32),
            records: get_u64(block, 40),
            number: get_u64(block, 48 + 8 * WORDS),
            words: std::array::from_fn(|word| get_u64(block, 48 + 8 * word)),
        })
    }

    /// Writes the mark. Durable on return; a crash before leaves the mark before it. Then the other block says
    /// the same, so that one that goes bad later takes nothing with it.
    pub fn store<M: Memory>(&mut self, medium: &Medium<M>, steps: Steps) -> Result<()> {
        self.number += 1;
        let turn = self.number % 2;
        let block = self.encode();
        for (at, durable) in [(1 + turn, true), (2 - turn, false)] {
            // SAFETY: the head was committed by who opened the journal, who stores marks one at a time.
            unsafe { medium.memory().write(at * BLOCK_BYTES, &block) };
            let is_taken = steps.has(Step::MarkSync);
            write_out(medium, at * BLOCK_BYTES, BLOCK_BYTES, durable, is_taken)?;
        }
        Ok(())
    }
}

/// The head of a record. Its checksum begins with the journal's seed, drawn at random: nobody who fills a payload
/// can make it look like a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub generation: u64,
    pub session: u32,
    /// How many records of the generation come before it.
    pub number: u64,
    /// How many of them were synced when it was written.
    pub synced: u64,
    pub payload_bytes: u32,
}

impl RecordHead {
    /// Bytes of the record in the log.
    pub fn record_bytes(&self) -> u64 {
        (RECORD_HEAD + u64::from(self.payload_bytes)).next_multiple_of(RECORD_ALIGN)
    }

    /// The head, with the checksum over it and the payload's `parts`.
    pub fn encode(&self, seed: u32, parts: &[&[u8]]) -> [u8; RECORD_HEAD as usize] {
        let mut head = [0; RECORD_HEAD as usize];
        put_u32(&mut head, 0, RECORD_MAGIC);
        put_u32(&mut head, 8, self.payload_bytes);
        put_u32(&mut head, 12, self.session);
        put_u64(&mut head, 16, self.generation);
        put_u64(&mut head, 24, self.number);
        put_u64(&mut head, 32, self.synced);
        let start = Crc::new(seed).update(&head[8..]);
        let crc = parts.iter().fold(start, |crc, part| crc.update(part)).finish();
        put_u32(&mut head, 4, crc);
        head
    }

    /// The record at the beginning of `bytes`, if there is a whole one.
    pub fn decode(bytes: &[u8], seed: u32, steps: Steps) -> Option<(RecordHead, &[u8])> {
        if bytes.len() < RECORD_HEAD as usize || get_u32(bytes, 0) != RECORD_MAGIC {
            return None;
        }
        let payload_bytes = get_u32(bytes, 8);
        let end = RECORD_HEAD as usize + payload_bytes as usize;
        let payload = bytes.get(RECORD_HEAD as usize..end)?;
        let crc = Crc::new(seed).update(&bytes[8..RECORD_HEAD as usize]).update(payload).finish();
        (crc == get_u32(bytes, 4) || !steps.has(Step::RecordChecksum)).then(|| {
            let head = RecordHead {
                payload_bytes,
                session: get_u32(bytes, 12),
                generation: get_u64(bytes, 16),
                number: get_u64(bytes, 24),
                synced: get_u64(bytes, 32),
            };
            (head, payload)
        })
    }
}
