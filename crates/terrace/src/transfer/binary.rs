//! The export file: little-endian, checksummed (CRC-32C), self-delimiting.
//!
//! | part | offset | bytes | content |
//! |---|---|---|---|
//! | header | 0 | 8 | `TERRACEX` |
//! | | 8 | 4 | version, 1 |
//! | | 12 | 4 | 0 |
//! | | 16 | 8 | written at, milliseconds since 1970 |
//! | | 24 | 4 | 0 |
//! | | 28 | 4 | checksum of bytes 0..28 |
//! | block | 0 | 4 | `BLCK` |
//! | | 4 | 4 | number of the block, from 0 |
//! | | 8 | 4 | records in the payload |
//! | | 12 | 4 | bytes of the payload |
//! | | 16 | 4 | checksum of the payload |
//! | | 20 | 4 | checksum of bytes 0..20 |
//! | | 24 | | payload |
//! | record | 0 | 4 | bytes of the key |
//! | | 4 | 4 | bytes of the value |
//! | | 8 | 8 | expiry, milliseconds since 1970; 0 is none |
//! | | 16 | | key, then value |
//! | trailer | 0 | 4 | `TEND` |
//! | | 4 | 4 | blocks |
//! | | 8 | 8 | records |
//! | | 16 | 4 | checksum of the blocks' payload checksums in order |
//! | | 20 | 4 | checksum of bytes 0..20 |
//!
//! Nothing may follow the trailer. The block's number tells a lost or doubled block; the block
//! header has its own checksum so that a damaged length is never believed. A block aims at 256 KiB
//! of payload; a record larger than that is alone in its block.

use super::{OwnedRecord, RECORD_BYTES_MAX, Record, RecordReader, RecordWriter, TransferError};
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use std::io::{self, BufRead, Read, Write};

pub(super) const MAGIC: &[u8; 8] = b"TERRACEX";
const BLOCK: &[u8; 4] = b"BLCK";
const TRAILER: &[u8; 4] = b"TEND";
const VERSION: u32 = 1;
/// No format will have a higher number: one that says so is damaged.
const VERSION_MAX: u32 = u16::MAX as u32;
const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 24;
const RECORD_HEAD_BYTES: usize = 16;
const BLOCK_BYTES: usize = 256 << 10;

fn checksum(bytes: &[u8]) -> u32 {
    // The algorithm yields 32 bits in a 64-bit word.
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A frame is a block's header or the trailer: 20 bytes and their checksum.
fn sealed(frame: &[u8]) -> bool {
    let (body, sum) = frame.split_at(frame.len() - 4);
    checksum(body) == u32_at(sum, 0)
}

fn seal(frame: &mut Vec<u8>) {
    let sum = checksum(frame);
    frame.extend_from_slice(&sum.to_le_bytes());
}

/// Writes the format above.
pub struct Writer<W: Write> {
    out: W,
    payload: Vec<u8>,
    payload_records: u32,
    blocks: u32,
    records: u64,
    sums: Vec<u8>,
    chain: u32,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// ```
    /// use terrace::transfer::{RecordWriter, binary::Writer};
    /// let mut file = Vec::new();
    /// Writer::new(&mut file, 0)?.finish()?;
    /// assert!(!file.is_empty(), "a header and a trailer");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file could not be written.
    pub fn new(mut out: W, written_at_ms: u64) -> io::Result<Self> {
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&written_at_ms.to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        seal(&mut header);
        out.write_all(&header)?;
        Ok(Self {
            out,
            payload: Vec::with_capacity(BLOCK_BYTES),
            payload_records: 0,
            blocks: 0,
            records: 0,
            sums: Vec::new(),
            chain: 0,
        })
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.payload_records == 0 {
            return Ok(());
        }
        let bytes = u32::try_from(self.payload.len()).map_err(io::Error::other)?;
        let sum = checksum(&self.payload);
        let mut frame = BLOCK.to_vec();
        for word in [self.blocks, self.payload_records, bytes, sum] {
            frame.extend_from_slice(&word.to_le_bytes());
        }
        seal(&mut frame);
        self.out.write_all(&frame)?;
        self.out.write_all(&self.payload)?;
        self.chain = chained(&mut self.sums, self.chain, sum);
        self.blocks += 1;
        self.payload.clear();
        self.payload_records = 0;
        Ok(())
    }
}

/// The next link of the chain over the blocks' checksums; constant memory.
fn chained(scratch: &mut Vec<u8>, chain: u32, sum: u32) -> u32 {
    scratch.clear();
    scratch.extend_from_slice(&chain.to_le_bytes());
    scratch.extend_from_slice(&sum.to_le_bytes());
    checksum(scratch)
}

impl<W: Write> RecordWriter for Writer<W> {
    fn write(&mut self, record: Record<'_>) -> io::Result<()> {
        let bytes = RECORD_HEAD_BYTES + record.key.len() + record.value.len();
        if bytes > RECORD_BYTES_MAX {
            return Err(io::Error::other(format!("a record of {bytes} bytes is too large")));
        }
        if !self.payload.is_empty() && self.payload.len() + bytes > BLOCK_BYTES {
            self.end_block()?;
        }
        for len in [record.key.len(), record.value.len()] {
            let len = u32::try_from(len).map_err(io::Error::other)?;
            self.payload.extend_from_slice(&len.to_le_bytes());
        }
        self.payload.extend_from_slice(&record.expires_at_ms.unwrap_or(0).to_le_bytes());
        self.payload.extend_from_slice(record.key);
        self.payload.extend_from_slice(record.value);
        self.payload_records += 1;
        self.records += 1;
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.end_block()?;
        let mut frame = TRAILER.to_vec();
        frame.extend_from_slice(&self.blocks.to_le_bytes());
        frame.extend_from_slice(&self.records.to_le_bytes());
        frame.extend_from_slice(&self.chain.to_le_bytes());
        seal(&mut frame);
        self.out.write_all(&frame)?;
        self.out.flush()
    }
}

/// Reads the format above; every record returned has passed its block's checksum.
pub struct Reader<R: BufRead> {
    input: R,
    salvage: bool,
    offset: u64,
    payload: Vec<u8>,
    at: usize,
    records_left: u32,
    blocks: u32,
    records: u64,
    scratch: Vec<u8>,
    chain: u32,
    done: bool,
    skipped: Vec<String>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// ```
    /// use terrace::transfer::binary::Reader;
    /// let refused = Reader::new(&b"no export of ours"[..], false).err().expect("a refusal");
    /// assert_eq!(refused.to_string(), "not a Terrace export: it does not begin with TERRACEX");
    /// ```
    ///
    /// # Errors
    /// The file could not be read, or is not an export of a known version.
    pub fn new(input: R, salvage: bool) -> Result<Self, TransferError> {
        let mut reader = Self {
            input,
            salvage,
            offset: 0,
            payload: Vec::new(),
            at: 0,
            records_left: 0,
            blocks: 0,
            records: 0,
            scratch: Vec::new(),
            chain: 0,
            done: false,
            skipped: Vec::new(),
        };
        let mut header = [0; HEADER_BYTES];
        let got = reader.fill(&mut header)?;
        if got < 8 || &header[..8] != MAGIC {
            let why = if got == 0 { "is empty" } else { "does not begin with TERRACEX" };
            return Err(TransferError::Foreign(why));
        }
        let version = u32_at(&header, 8);
        let is_ours = || {
            let mut as_ours = header;
            as_ours[8..12].copy_from_slice(&VERSION.to_le_bytes());
            sealed(&as_ours)
        };
        if (VERSION + 1..=VERSION_MAX).contains(&version) && !is_ours() {
            return Err(TransferError::Newer { found: version, known: VERSION });
        }
        let fault = if got < HEADER_BYTES {
            "the file ends within its header".to_string()
        } else if !sealed(&header) {
            "the header's checksum does not match".to_string()
        } else if version != VERSION {
            let what = format!("version {version}; this build reads version {VERSION}");
            return Err(reader.damaged(8, what));
        } else {
            return Ok(reader);
        };
        reader.fault(0, fault)?;
        Ok(reader)
    }

    fn damaged(&self, offset: u64, what: impl Into<String>) -> TransferError {
        TransferError::Damaged { offset, what: what.into(), records_before: self.records }
    }

    /// Damage: the end of a strict reading, a note in a salvage.
    fn fault(&mut self, offset: u64, what: impl Into<String>) -> Result<(), TransferError> {
        let what = what.into();
        if !self.salvage {
            return Err(self.damaged(offset, what));
        }
        self.skipped.push(format!("offset {offset}: {what}"));
        Ok(())
    }

    /// Reads until `into` is full or the file ends; returns the bytes read.
    fn fill(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        while got < into.len() {
            match self.input.read(&mut into[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.offset += got as u64;
        Ok(got)
    }

    /// Reads frames until there is a block with records or the file has ended.
    fn next_block(&mut self) -> Result<bool, TransferError> {
        loop {
            let at = self.offset;
            let mut frame = [0; FRAME_BYTES];
            let got = self.fill(&mut frame)?;
            if got < FRAME_BYTES {
                self.done = true;
                let what = if got == 0 { "without its trailer" } else { "within a frame" };
                self.fault(at, format!("the file ends {what}"))?;
                return Ok(false);
            }
            let known = &frame[..4] == BLOCK || &frame[..4] == TRAILER;
            if !known || !sealed(&frame) {
                self.fault(at, "neither a block nor the trailer, or its checksum does not match")?;
                if !self.resynchronise(&mut frame)? {
                    self.done = true;
                    return Ok(false);
                }
            }
            if &frame[..4] == TRAILER {
                self.end(&frame)?;
                return Ok(false);
            }
            if self.block(&frame)? {
                return Ok(true);
            }
        }
    }

    /// Salvage: moves on byte by byte to the next sound frame.
    fn resynchronise(&mut self, frame: &mut [u8; FRAME_BYTES]) -> io::Result<bool> {
        let mut next = [0; 1];
        while self.fill(&mut next)? == 1 {
            frame.copy_within(1.., 0);
            frame[FRAME_BYTES - 1] = next[0];
            if (&frame[..4] == BLOCK || &frame[..4] == TRAILER) && sealed(frame) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Loads the payload of a sound block header. False: its payload was damaged and skipped.
    fn block(&mut self, frame: &[u8; FRAME_BYTES]) -> Result<bool, TransferError> {
        let at = self.offset - FRAME_BYTES as u64;
        let (number, records, bytes, sum) =
            (u32_at(frame, 4), u32_at(frame, 8), u32_at(frame, 12), u32_at(frame, 16));
        if number != self.blocks {
            let expected = self.blocks;
            self.fault(at, format!("block {number} where block {expected} was due"))?;
        }
        self.blocks = number.saturating_add(1);
        if bytes as usize > RECORD_BYTES_MAX.max(BLOCK_BYTES) {
            self.fault(at, format!("a block of {bytes} bytes is larger than any written"))?;
            return Ok(false);
        }
        self.payload.clear();
        let mut payload = std::mem::take(&mut self.payload);
        // Grows as bytes arrive: a lying length costs no memory.
        let got = (&mut self.input).take(u64::from(bytes)).read_to_end(&mut payload)?;
        self.payload = payload;
        self.offset += got as u64;
        if got < bytes as usize {
            self.done = true;
            self.fault(at, format!("the file ends within block {number}"))?;
            return Ok(false);
        }
        if checksum(&self.payload) != sum {
            let what = format!("block {number} ({records} records): its checksum does not match");
            self.fault(at, what)?;
            return Ok(false);
        }
        self.chain = chained(&mut self.scratch, self.chain, sum);
        self.at = 0;
        self.records_left = records;
        Ok(records > 0)
    }

    fn end(&mut self, frame: &[u8; FRAME_BYTES]) -> Result<(), TransferError> {
        self.done = true;
        let at = self.offset - FRAME_BYTES as u64;
        let (blocks, records, chain) = (u32_at(frame, 4), u64_at(frame, 8), u32_at(frame, 16));
        if (blocks, records, chain) != (self.blocks, self.records, self.chain) {
            let what = format!(
                "the trailer promises {records} records in {blocks} blocks; found {} in {}",
                self.records, self.blocks
            );
            self.fault(at, what)?;
        }
        if self.fill(&mut [0; 1])? != 0 {
            self.fault(at + FRAME_BYTES as u64, "bytes after the trailer")?;
        }
        Ok(())
    }

    /// Takes the next record from the payload.
    fn cut(&mut self, into: &mut OwnedRecord) -> Option<()> {
        let head = self.payload.get(self.at..self.at + RECORD_HEAD_BYTES)?;
        let (key_len, value_len) = (u32_at(head, 0) as usize, u32_at(head, 4) as usize);
        let expires_at_ms = u64_at(head, 8);
        let key_at = self.at + RECORD_HEAD_BYTES;
        let value_at = key_at.checked_add(key_len)?;
        let end = value_at.checked_add(value_len)?;
        let value = self.payload.get(value_at..end)?;
        into.value.clear();
        into.value.extend_from_slice(value);
        into.key.clear();
        into.key.extend_from_slice(&self.payload[key_at..value_at]);
        into.expires_at_ms = (expires_at_ms != 0).then_some(expires_at_ms);
        self.at = end;
        Some(())
    }
}

impl<R: BufRead> RecordReader for Reader<R> {
    fn read(&mut self, into: &mut OwnedRecord) -> Result<bool, TransferError> {
        loop {
            if self.records_left == 0 && (self.done || !self.next_block()?) {
                return Ok(false);
            }
            self.records_left -= 1;
            if self.cut(into).is_some() {
                self.records += 1;
                return Ok(true);
            }
            self.records_left = 0;
            let at = self.offset;
            self.fault(at, "a record reaches beyond its block")?;
        }
    }

    fn skipped(&self) -> &[String] {
        &self.skipped
    }
}
