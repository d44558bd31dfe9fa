//! What snapshots read, copied: it is told once it is known to be of their moment.

use crate::engine::Value;

/// What a page of a visit aims at, and its most keys.
const PAGE_BYTES: usize = 1 << 20;
const PAGE_MOST: usize = 256;

/// A value as it was, of its own.
pub(crate) struct Then {
    bytes: Box<[u8]>,
    version: u64,
    location: u64,
    expires_at_ms: Option<u64>,
}

impl Then {
    pub fn of(value: &Value<'_>) -> Then {
        let Value { bytes, version, location, expires_at_ms } = *value;
        Then { bytes: bytes.into(), version, location, expires_at_ms }
    }

    pub fn value(&self) -> Value<'_> {
        let Then { bytes, version, location, expires_at_ms } = self;
        Value { bytes, version: *version, location: *location, expires_at_ms: *expires_at_ms }
    }
}

/// Keys and values as they were, copied one behind the other.
#[derive(Default)]
pub(crate) struct Copies {
    bytes: Vec<u8>,
    /// Where each key and its value end, and what else there is of the value.
    all: Vec<(usize, usize, u64, u64, Option<u64>)>,
}

impl Copies {
    pub fn push(&mut self, key: &[u8], value: &Value<'_>) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.bytes);
        let Value { version, location, expires_at_ms, .. } = *value;
        self.all.push((key_end, self.bytes.len(), version, location, expires_at_ms));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Value<'_>)> {
        let mut begin = 0;
        self.all.iter().map(move |(key_end, end, version, location, expires_at_ms)| {
            let (key, bytes) = (&self.bytes[begin..*key_end], &self.bytes[*key_end..*end]);
            begin = *end;
            let (version, location, expires_at_ms) = (*version, *location, *expires_at_ms);
            (key, Value { bytes, version, location, expires_at_ms })
        })
    }
}

/// How many keys are read as one: about a megabyte of them and their values, as those before were.
pub(crate) struct Page {
    pub keys: usize,
    met: usize,
    bytes: usize,
}

impl Page {
    pub fn new() -> Page {
        Page { keys: 16, met: 0, bytes: 0 }
    }

    pub fn count(&mut self, key: &[u8], value: &Value<'_>) {
        self.met += 1;
        self.bytes += key.len() + value.bytes.len();
    }

    pub fn end(&mut self) {
        if let Some(mean) = self.bytes.checked_div(self.met) {
            self.keys = (PAGE_BYTES / mean.max(1)).clamp(1, PAGE_MOST);
        }
        (self.met, self.bytes) = (0, 0);
    }
}
