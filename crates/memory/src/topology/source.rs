//! Reading the kernel's small text files.
//!
//! Three outcomes, never mixed: the file is there and makes sense; it is absent or may not be read,
//! which is normal (an older kernel, a container, no such hardware) and is written down as unknown;
//! or it is there and makes no sense, which is an error that names the file and what it said.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Why a topology could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file is there but does not say what such a file says.
    #[error("{}: expected {expected}, found {content:?}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it said, or the part of it at fault.
        content: String,
        /// What was expected there.
        expected: &'static str,
    },
}

/// Something the system does not tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// The file or folder that would have told it.
    pub path: PathBuf,
    /// Why it did not, in words.
    pub reason: String,
}

/// The place files are read from, and the list of what they did not tell.
#[derive(Default)]
pub(super) struct Source {
    unknown: RefCell<Vec<Unknown>>,
}

impl Source {
    /// Everything not told so far, in the order it was asked.
    pub(super) fn into_unknown(self) -> Vec<Unknown> {
        self.unknown.into_inner()
    }

    /// Writes down that `path` did not tell something.
    pub(super) fn note(&self, path: &Path, reason: impl Into<String>) {
        self.unknown.borrow_mut().push(Unknown { path: path.to_owned(), reason: reason.into() });
    }

    /// Writes down a file that could not be read.
    fn note_failure(&self, path: &Path, failure: &io::Error) {
        let reason = match failure.kind() {
            io::ErrorKind::NotFound => "absent".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => failure.to_string(),
        };
        self.note(path, reason);
    }

    /// The whole file, or `None` with a note.
    pub(super) fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        fs::read(path).inspect_err(|failure| self.note_failure(path, failure)).ok()
    }

    /// The file's text without surrounding white space, or `None` with a note.
    pub(super) fn text(&self, path: &Path) -> Result<Option<String>, TopologyError> {
        self.bytes(path).map(|bytes| as_text(path, bytes)).transpose()
    }

    /// The file's text, or `None` without a note: for attributes most machines lack.
    pub(super) fn optional_text(&self, path: &Path) -> Result<Option<String>, TopologyError> {
        fs::read(path).ok().map(|bytes| as_text(path, bytes)).transpose()
    }

    /// A file holding one unsigned number, or `None` with a note.
    pub(super) fn number(&self, path: &Path) -> Result<Option<u64>, TopologyError> {
        self.text(path)?.map(|text| number(path, &text)).transpose()
    }

    /// A file holding one unsigned number, or `None` without a note.
    pub(super) fn optional_number(&self, path: &Path) -> Result<Option<u64>, TopologyError> {
        self.optional_text(path)?.map(|text| number(path, &text)).transpose()
    }

    /// A file holding a node number where -1 means none; `None` without a note where absent.
    pub(super) fn optional_node(&self, path: &Path) -> Result<Option<u32>, TopologyError> {
        let Some(text) = self.optional_text(path)? else {
            return Ok(None);
        };
        if text == "-1" {
            return Ok(None);
        }
        narrow(path, &text).map(Some)
    }

    /// A file holding a list such as `0-3,8`, or `None` with a note.
    pub(super) fn list(&self, path: &Path) -> Result<Option<Vec<u32>>, TopologyError> {
        self.text(path)?.map(|text| parse_list(path, &text)).transpose()
    }

    /// Entries of a folder named `prefix` and a number, by number; empty with a note where
    /// unreadable.
    pub(super) fn numbered(&self, folder: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
        let mut found: Vec<(u32, PathBuf)> = self
            .names(folder)
            .iter()
            .filter_map(|name| {
                let number = name.strip_prefix(prefix)?.parse().ok()?;
                Some((number, folder.join(name)))
            })
            .collect();
        found.sort();
        found
    }

    /// Names in a folder, sorted; empty with a note where unreadable.
    pub(super) fn names(&self, folder: &Path) -> Vec<String> {
        match fs::read_dir(folder) {
            Ok(entries) => sorted_names(entries),
            Err(failure) => {
                self.note_failure(folder, &failure);
                Vec::new()
            }
        }
    }

    /// Names in a folder, sorted; empty without a note where it is not there.
    pub(super) fn optional_names(&self, folder: &Path) -> Vec<String> {
        fs::read_dir(folder).map(sorted_names).unwrap_or_default()
    }
}

/// Names that are text, sorted; sysfs has no others.
fn sorted_names(entries: fs::ReadDir) -> Vec<String> {
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn as_text(path: &Path, bytes: Vec<u8>) -> Result<String, TopologyError> {
    String::from_utf8(bytes).map(|text| text.trim().to_owned()).map_err(|failure| {
        let shown = String::from_utf8_lossy(failure.as_bytes()).into_owned();
        malformed(path, &shown, "text")
    })
}

/// The error for `content` found in `path`; long content is cut so that the message stays readable.
pub(super) fn malformed(path: &Path, content: &str, expected: &'static str) -> TopologyError {
    const SHOWN_CHARS: usize = 120;
    let mut shown: String = content.chars().take(SHOWN_CHARS).collect();
    if shown.len() < content.len() {
        shown.push_str("...");
    }
    TopologyError::Malformed { path: path.to_owned(), content: shown, expected }
}

/// One unsigned decimal number.
pub(super) fn number(path: &Path, text: &str) -> Result<u64, TopologyError> {
    text.parse().map_err(|_| malformed(path, text, "an unsigned number"))
}

/// One unsigned decimal number that fits 32 bits.
pub(super) fn narrow(path: &Path, text: &str) -> Result<u32, TopologyError> {
    text.parse().map_err(|_| malformed(path, text, "an unsigned 32-bit number"))
}

/// A size such as `48K`, `2M` or `1G` in bytes; without a letter it is bytes.
pub(super) fn size(path: &Path, text: &str) -> Result<u64, TopologyError> {
    const EXPECTED: &str = "a size such as 48K";
    let shift = match text.chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|units| units.checked_mul(1 << shift))
        .ok_or_else(|| malformed(path, text, EXPECTED))
}

/// A list such as `0-3,8`, in rising order; the empty text is the empty list.
pub(super) fn parse_list(path: &Path, text: &str) -> Result<Vec<u32>, TopologyError> {
    /// No machine has this many processors or nodes; a range beyond it is damage, not data.
    const ITEMS_MAX: u32 = 1 << 20;
    let fail = || malformed(path, text, "a list such as 0-3,8");
    let mut items = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| fail())?;
        let last: u32 = last.parse().map_err(|_| fail())?;
        if last < first || last > ITEMS_MAX {
            return Err(fail());
        }
        items.extend(first..=last);
        if items.len() > ITEMS_MAX as usize {
            return Err(fail());
        }
    }
    items.sort_unstable();
    items.dedup();
    Ok(items)
}

/// The inverse of [`parse_list`].
pub(super) fn show_list(items: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = items;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|(item, next)| **item == *next).count();
        parts.push(match run {
            1 => first.to_string(),
            _ => format!("{first}-{}", rest[run - 1]),
        });
        rest = &rest[run..];
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_parse_and_print_back() {
        let path = Path::new("cpulist");
        for (text, items) in [
            ("", vec![]),
            ("0", vec![0]),
            ("0-3,8", vec![0, 1, 2, 3, 8]),
            ("1,3,5-6", vec![1, 3, 5, 6]),
        ] {
            assert_eq!(parse_list(path, text).as_ref(), Ok(&items));
            assert_eq!(show_list(&items), text);
        }
        for bad in ["x", "3-1", "1-", "-1", "0-4294967295", "1;2"] {
            assert!(parse_list(path, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_take_a_letter_and_refuse_overflow() {
        let path = Path::new("size");
        assert_eq!(size(path, "48K"), Ok(48 << 10));
        assert_eq!(size(path, "1G"), Ok(1 << 30));
        assert_eq!(size(path, "512"), Ok(512));
        for bad in ["", "K", "12Q", "-1K", "99999999999999999999", "18446744073709551615K"] {
            assert!(size(path, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn messages_name_file_content_and_expectation() {
        let message = malformed(Path::new("/sys/x"), &"z".repeat(500), "a size").to_string();
        assert!(message.starts_with("/sys/x: expected a size, found \"zzz"));
        assert!(message.len() < 200);
    }
}
