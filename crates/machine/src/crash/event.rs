//! Events, which the explorer counts, hashes, schedules and, when it shows a case, prints.

use std::fmt;

/// One access to the memory, or a note.
#[derive(Clone, Debug)]
pub(crate) enum Event<'a> {
    Load { at: u64 },
    Read { at: u64, bytes: u64 },
    Store { at: u64, value: u64 },
    CompareExchange { at: u64, current: u64, new: u64 },
    Write { at: u64, source: &'a [u8], streamed: bool },
    WriteBack { at: u64, bytes: u64 },
    Fence,
    Sync,
    Pause,
    Beside(Beside),
    Outlives { at: u64, bytes: &'a [u8] },
    Note { text: Option<String> },
}

/// Something that is done beside the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub what: &'static str,
    pub at: u64,
    /// What tells it from others at the same place: the word that is stored or added, or a mixture of more.
    pub word: u64,
}

impl Event<'_> {
    /// Whether a reader of a trace with one thread can do without it.
    pub fn only_reads(&self) -> bool {
        matches!(self, Event::Load { .. } | Event::Read { .. } | Event::Pause | Event::Beside(_))
    }

    /// Mixes the event into a hash.
    pub fn mix(&self, mut mix: impl FnMut(u64)) {
        let (kind, at, what) = match self {
            Event::Load { at } => (1, *at, 0),
            Event::Read { at, bytes } => (2, *at, *bytes),
            Event::Store { at, value } => (3, *at, *value),
            Event::CompareExchange { at, current, new } => (4, *at, current.rotate_left(32) ^ new),
            Event::Write { at, source, streamed } => {
                for byte in *source {
                    mix(u64::from(*byte));
                }
                (5 + u64::from(*streamed), *at, source.len() as u64)
            }
            Event::WriteBack { at, bytes } => (7, *at, *bytes),
            Event::Fence => (8, 0, 0),
            Event::Sync => (9, 0, 0),
            Event::Pause => (10, 0, 0),
            Event::Note { .. } => (11, 0, 0),
            Event::Beside(beside) => {
                for byte in beside.what.bytes() {
                    mix(u64::from(byte));
                }
                (12, beside.at, beside.word)
            }
            Event::Outlives { at, bytes } => {
                for byte in *bytes {
                    mix(u64::from(*byte));
                }
                (13, *at, bytes.len() as u64)
            }
        };
        mix(kind);
        mix(at);
        mix(what);
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Load { at } => write!(f, "load {at:#x}"),
            Event::Read { at, bytes } => write!(f, "read {at:#x} ({bytes} bytes)"),
            Event::Store { at, value } => write!(f, "store {at:#x} <- {}", Value(*value)),
            Event::CompareExchange { at, current, new } => {
                write!(f, "compare-exchange {at:#x}: {} -> {}", Value(*current), Value(*new))
            }
            Event::Write { at, source, streamed } => {
                let how = if *streamed { "stream" } else { "write" };
                write!(f, "{how} {at:#x} <- {}", Bytes(source))
            }
            Event::WriteBack { at, bytes } => {
                let (first, last) = (at / 64 * 64, (at + bytes - 1) / 64 * 64);
                match first == last {
                    true => write!(f, "write-back line {first:#x}"),
                    false => write!(f, "write-back lines {first:#x} to {last:#x}"),
                }
            }
            Event::Fence => f.write_str("fence"),
            Event::Sync => f.write_str("sync"),
            Event::Pause => f.write_str("pause"),
            Event::Beside(Beside { what, at: 0, .. }) => f.write_str(what),
            Event::Beside(Beside { what, at, .. }) => write!(f, "{what} {at:#x}"),
            Event::Outlives { at, bytes } => {
                write!(f, "beside, outliving the process: {at:#x} <- {}", Bytes(bytes))
            }
            Event::Note { text } => write!(f, "note {}", text.as_deref().unwrap_or("")),
        }
    }
}

/// A word as people read it: small numbers in decimal.
pub(crate) struct Value(pub u64);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10_000 { write!(f, "{}", self.0) } else { write!(f, "{:#x}", self.0) }
    }
}

/// The first bytes of a range, by words where they are words.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.len().min(64);
        let mut separator = "[";
        for chunk in self.0[..shown].chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            write!(f, "{separator}{}", Value(u64::from_le_bytes(word)))?;
            separator = ", ";
        }
        let more = if shown < self.0.len() { ", ..." } else { "" };
        write!(f, "{more}] ({} bytes)", self.0.len())
    }
}
