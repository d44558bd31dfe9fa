//! How events are written, by the emulator's plug-in and in files: chunks of events of one thread, and images.
//!
//! A chunk is a type (1 byte), a thread and a length (4 bytes each, little-endian) and so many bytes. Type `E`: events,
//! each a byte with its kind and size, then the differences to the last event's count, instruction and address, 7 bits
//! a byte. A chunk begins from zero, so it can be read alone. Type `I`: an image, three numbers of 8 bytes and a path.
//! Type `N`: what is known at the end of a file, in JSON.
//!
//! The plug-in is compiled alone, without dependencies, and includes this file: nothing here uses the crate.

/// Bytes of a chunk's head.
pub const HEAD_BYTES: usize = 9;
/// The longest body that a reader accepts.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The body at which a writer ends a chunk.
pub const BODY_BYTES: usize = 1 << 15;
/// Type of a chunk of events.
pub const EVENTS: u8 = b'E';
/// Type of an image.
pub const IMAGE: u8 = b'I';

/// Type of a note at the end of a file.
pub const NOTE: u8 = b'N';

/// Kinds as numbers.
pub const READ: u8 = 0;
/// A write.
pub const WRITE: u8 = 1;
/// A write through the stack pointer.
pub const SPILL: u8 = 2;
/// An instruction with the meaning of a fence.
pub const FENCE: u8 = 3;
/// A call.
pub const CALL: u8 = 4;
/// A return.
pub const RETURN: u8 = 5;

/// An event as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// One of the kinds above.
    pub kind: u8,
    /// Bytes accessed.
    pub size: u32,
    /// Instructions executed by the thread.
    pub count: u64,
    /// Its instruction.
    pub ip: u64,
    /// The first byte accessed.
    pub address: u64,
}

/// The size that has no short form.
const SIZE_FOLLOWS: u8 = 31;

/// A chunk that is being written.
#[derive(Debug)]
pub struct Chunk {
    body: Vec<u8>,
    last: Raw,
}

impl Chunk {
    /// One without events.
    pub const fn new() -> Chunk {
        Chunk { body: Vec::new(), last: Raw { kind: 0, size: 0, count: 0, ip: 0, address: 0 } }
    }

    /// Adds an event; true if the chunk is long enough to be taken.
    pub fn push(&mut self, raw: &Raw) -> bool {
        let short = match raw.size {
            0 => 0,
            size if size.is_power_of_two() && size <= 1 << 15 => size.trailing_zeros() as u8 + 1,
            _ => SIZE_FOLLOWS,
        };
        self.body.push(raw.kind | short << 3);
        if short == SIZE_FOLLOWS {
            self.number(u64::from(raw.size));
        }
        self.difference(raw.count, self.last.count);
        self.difference(raw.ip, self.last.ip);
        self.difference(raw.address, self.last.address);
        self.last = *raw;
        self.body.len() >= BODY_BYTES
    }

    /// Whether it has no event.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Forgets its events.
    pub fn clear(&mut self) {
        self.body.clear();
        self.last = Raw::default();
    }

    /// Appends it to `out`, as one of this thread, and empties it.
    pub fn take(&mut self, thread: u32, out: &mut Vec<u8>) {
        head(EVENTS, thread, self.body.len(), out);
        out.extend_from_slice(&self.body);
        self.clear();
    }

    fn difference(&mut self, value: u64, last: u64) {
        let difference = value.wrapping_sub(last) as i64;
        self.number((difference << 1 ^ difference >> 63) as u64);
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.body.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.body.push(value as u8);
    }
}

fn head(of: u8, thread: u32, bytes: usize, out: &mut Vec<u8>) {
    out.push(of);
    out.extend_from_slice(&thread.to_le_bytes());
    out.extend_from_slice(&(bytes as u32).to_le_bytes());
}

/// Appends a note to `out`; a longer one than a body may be is left out.
pub fn note(text: &[u8], out: &mut Vec<u8>) {
    if text.len() <= BODY_BYTES_MAX {
        head(NOTE, 0, text.len(), out);
        out.extend_from_slice(text);
    }
}

/// Appends an image to `out`.
pub fn image(start: u64, end: u64, offset: u64, path: &[u8], out: &mut Vec<u8>) {
    head(IMAGE, 0, 24 + path.len(), out);
    for number in [start, end, offset] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(path);
}
