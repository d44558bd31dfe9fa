//! Records of the commit journal.
//!
//! ```text
//! 1 begin:  number (8), what it survives (1: power, 2: process), boot (36, if 2), parts (2), then of each:
//!           bytes of the map's name (2), name, what is done (1: writes, 2: checkpoint), its bytes (4), and
//!             writes:      of each: 0 delete, 1 put, 2 put with expiry; bytes of the key (2), key;
//!                          expiry (8, if 2); bytes of the value (4), value (neither if 0)
//!             checkpoint:  checksum of the checkpoint record before (4), the new one
//! 2 end:    number (8)
//! ```
//! The state is begins alone, each behind its length (4). Integers are little-endian; checksums are the journal's.

use super::Survives;
use crate::redo_log::{BOOT_BYTES, Redo};
use std::collections::BTreeMap;
use std::sync::Arc;

const BEGIN: u8 = 1;
const END: u8 = 2;

/// Which run of the kernel it is.
pub(super) type Boot = [u8; BOOT_BYTES];
/// None.
pub(super) const NO_BOOT: Boot = [0; BOOT_BYTES];
type Refused<T> = Result<T, String>;

/// What a commit does to a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// Writes keys: [`Writes`].
    Writes(Vec<u8>),
    /// Goes from the checkpoint record with the checksum `after` to this one.
    Checkpoint {
        /// The checksum.
        after: u32,
        /// The record, a block.
        block: Vec<u8>,
    },
}

/// A map, and what is done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The map's name.
    pub map: Arc<str>,
    /// What is done.
    pub does: Does,
}

/// Puts together what is written to a map.
#[derive(Debug, Default)]
pub struct Writes(Vec<u8>);

impl Writes {
    /// Puts down that `key` gets this value and expiry, or is deleted.
    pub fn push(&mut self, key: &[u8], value: Option<(&[u8], Option<u64>)>) {
        let Writes(bytes) = self;
        bytes.push(match value {
            None => 0,
            Some((_, None)) => 1,
            Some((_, Some(_))) => 2,
        });
        bytes.extend((key.len() as u16).to_le_bytes());
        bytes.extend(key);
        if let Some((value, expires_at_ms)) = value {
            bytes.extend(expires_at_ms.iter().flat_map(|at| at.to_le_bytes()));
            bytes.extend((value.len() as u32).to_le_bytes());
            bytes.extend(value);
        }
    }

    /// What was put together.
    pub fn does(self) -> Does {
        Does::Writes(self.0)
    }
}

/// What [`Writes`] put together; nothing of bytes that it did not.
pub fn writes(bytes: &[u8]) -> Vec<Redo<'_>> {
    let mut from = Bytes(bytes);
    let mut next = || {
        let kind = from.number::<1>()?;
        let key = from.number::<2>().and_then(|bytes| from.take(bytes as usize))?;
        let expires_at_ms = if kind == 2 { Some(from.number::<8>()?) } else { None };
        let value = match kind {
            0 => None,
            _ => Some((
                from.number::<4>().and_then(|bytes| from.take(bytes as usize))?,
                expires_at_ms,
            )),
        };
        Some(Redo { key, value })
    };
    std::iter::from_fn(&mut next).collect()
}

/// A commit that is not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    /// The boot that it does not survive, if it need only survive the process.
    boot: Option<Boot>,
    parts: Vec<Part>,
}

impl Commit {
    /// `boot`: that of the kernel, if it need only survive the process.
    pub fn new(boot: Option<Boot>, parts: Vec<Part>) -> Commit {
        Commit { boot, parts }
    }

    pub fn survives(&self) -> Survives {
        if self.boot.is_some() { Survives::Process } else { Survives::Power }
    }

    pub fn writes_keys(&self) -> bool {
        self.parts.iter().any(|part| matches!(part.does, Does::Writes(_)))
    }

    /// Whether it counts where the kernel's boot is `boot`.
    pub fn counts_in(&self, boot: Option<Boot>) -> bool {
        self.boot.is_none_or(|of| boot == Some(of))
    }

    /// What it does to `map`.
    pub fn of<'c>(&'c self, map: &'c str) -> impl Iterator<Item = &'c Does> {
        self.parts.iter().filter(move |part| *part.map == *map).map(|part| &part.does)
    }

    pub fn forget(&mut self, map: &str) {
        self.parts.retain(|part| *part.map != *map);
    }

    pub fn is_done(&self) -> bool {
        self.parts.is_empty()
    }

    /// About what its record takes.
    pub fn bytes(&self) -> usize {
        let of = |part: &Part| match &part.does {
            Does::Writes(bytes) => part.map.len() + bytes.len() + 6,
            Does::Checkpoint { block, .. } => part.map.len() + block.len() + 10,
        };
        self.parts.iter().map(of).sum::<usize>() + 64
    }

    pub fn encode(&self, number: u64) -> Vec<u8> {
        let mut to = Vec::with_capacity(self.bytes());
        to.push(BEGIN);
        to.extend(number.to_le_bytes());
        to.push(if self.boot.is_some() { 2 } else { 1 });
        to.extend(self.boot.iter().flatten());
        to.extend((self.parts.len() as u16).to_le_bytes());
        for Part { map, does } in &self.parts {
            to.extend((map.len() as u16).to_le_bytes());
            to.extend(map.as_bytes());
            match does {
                Does::Writes(bytes) => {
                    to.push(1);
                    to.extend((bytes.len() as u32).to_le_bytes());
                    to.extend(bytes);
                }
                Does::Checkpoint { after, block } => {
                    to.push(2);
                    to.extend((block.len() as u32 + 4).to_le_bytes());
                    to.extend(after.to_le_bytes());
                    to.extend(block);
                }
            }
        }
        to
    }

    fn decode(from: &mut Bytes<'_>) -> Option<(u64, Commit)> {
        let number = from.number::<8>()?;
        let boot = match from.number::<1>()? {
            1 => None,
            2 => Some(from.take(BOOT_BYTES)?.try_into().ok()?),
            _ => return None,
        };
        let count = from.number::<2>()?;
        let part = |from: &mut Bytes<'_>| {
            let name = from.number::<2>().and_then(|bytes| from.take(bytes as usize))?;
            let map = std::str::from_utf8(name).ok()?.into();
            let kind = from.number::<1>()?;
            let bytes = from.number::<4>().and_then(|bytes| from.take(bytes as usize))?;
            let does = match kind {
                1 => Does::Writes(bytes.to_vec()),
                2 => {
                    let (after, block) = bytes.split_first_chunk()?;
                    Does::Checkpoint { after: u32::from_le_bytes(*after), block: block.to_vec() }
                }
                _ => return None,
            };
            Some(Part { map, does })
        };
        let parts: Option<Vec<Part>> = (0..count).map(|_| part(from)).collect();
        Some((number, Commit { boot, parts: parts? }))
    }
}

/// Says that a commit has ended.
pub(super) fn end(number: u64) -> [u8; 9] {
    let mut record = [END; 9];
    record[1..].copy_from_slice(&number.to_le_bytes());
    record
}

/// What is read of a journal.
#[derive(Default)]
pub(super) struct Read {
    /// Commits that have begun and not ended.
    pub left: BTreeMap<u64, Commit>,
    /// The highest number.
    pub last: u64,
}

const UNKNOWN: &str = "a record of the commit journal is none that is known here";

impl Read {
    pub fn state(&mut self, state: &[u8]) -> Refused<()> {
        let mut from = Bytes(state);
        while !from.0.is_empty() {
            let record = from.number::<4>().and_then(|bytes| from.take(bytes as usize));
            self.record(record.ok_or(UNKNOWN)?)?;
        }
        Ok(())
    }

    pub fn record(&mut self, record: &[u8]) -> Refused<()> {
        let mut from = Bytes(record);
        match from.number::<1>().map(|kind| kind as u8) {
            Some(BEGIN) => {
                let (number, commit) = Commit::decode(&mut from).ok_or(UNKNOWN)?;
                self.last = self.last.max(number);
                self.left.insert(number, commit);
            }
            Some(END) => {
                let number = from.number::<8>().ok_or(UNKNOWN)?;
                self.left.remove(&number);
                self.last = self.last.max(number);
            }
            _ => return Err(UNKNOWN.into()),
        }
        Ok(())
    }
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<u64> {
        let mut word = [0; 8];
        word[..N].copy_from_slice(self.take(N)?);
        Some(u64::from_le_bytes(word))
    }
}
