//! Traces of other tools, as text, line by line.

use super::TraceError;
use super::drmemtrace::DrMemTrace;
use super::lackey::Lackey;
use super::maps::Nowhere;
use crate::event::Sink;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Lines longer than this are no lines of a trace.
const LONGEST: u64 = 4096;
/// Lines that are looked at to find out whose they are.
const TRIED: usize = 4096;

/// Who wrote a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Valgrind's lackey.
    Lackey,
    /// DynamoRIO's `view`.
    DrMemTrace,
}

/// Takes a trace line by line.
pub(super) trait Reader {
    /// Takes a line; returns false when the sink wants no more.
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> bool;
}

impl Format {
    /// Whose line this is, if it can be said.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::Format;
    /// assert_eq!(Format::of_line(" S 1fff000758,8"), Some(Format::Lackey));
    /// assert_eq!(Format::of_line("  9  3:  77 write  8 byte(s) @ 0x10 by PC 0x20"), Some(Format::DrMemTrace));
    /// assert_eq!(Format::of_line("hello"), None);
    /// ```
    pub fn of_line(line: &str) -> Option<Format> {
        let is_lackey = ["I  ", " S ", " L ", " M "].iter().any(|head| line.starts_with(head))
            && line.contains(',');
        let is_view = line.contains(" byte(s) @ 0x");
        if is_lackey { Some(Format::Lackey) } else { is_view.then_some(Format::DrMemTrace) }
    }
}

/// Reads a trace that lackey or DynamoRIO's `view` wrote. Returns which of them it was.
///
/// # Errors
/// [`TraceError::File`] if it cannot be read, [`TraceError::Damaged`] if none of its first lines is one of a trace.
///
/// # Examples
/// ```
/// use terrace_dirtbuster::{Analysis, Format, Symbols, Thresholds, import};
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("trace");
/// std::fs::write(&path, "I  1000,3\n S 5000,8\n").unwrap();
/// let mut analysis = Analysis::new(Symbols::default(), Thresholds::default());
/// assert_eq!(import(&path, &mut analysis).unwrap(), Format::Lackey);
/// assert_eq!(analysis.totals().writes, 1);
/// ```
pub fn import(path: &Path, sink: &mut dyn Sink) -> Result<Format, TraceError> {
    let failed = |source| TraceError::File { path: path.to_path_buf(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut input = BufReader::with_capacity(1 << 18, file);
    let mut head = Vec::new();
    let mut format = None;
    for _ in 0..TRIED {
        let mut line = Vec::new();
        if !next_line(&mut input, &mut line).map_err(failed)? {
            break;
        }
        format = std::str::from_utf8(&line).ok().and_then(Format::of_line);
        head.push(line);
        if format.is_some() {
            break;
        }
    }
    let Some(format) = format else {
        return Err(TraceError::Damaged {
            path: path.to_path_buf(),
            what: "no trace: neither of `terrace dirtbuster record`, nor lackey's (`valgrind --tool=lackey --trace-mem=yes`), \
                   nor the output of DynamoRIO's view tool"
                .into(),
        });
    };
    let mut reader: Box<dyn Reader> = match format {
        Format::Lackey => Box::new(Lackey::new(Nowhere)),
        Format::DrMemTrace => Box::new(DrMemTrace::default()),
    };
    if head.iter().all(|line| reader.line(line, sink)) {
        feed(&mut input, &mut *reader, sink).map_err(failed)?;
    }
    Ok(format)
}

/// Feeds lines to a reader until there are no more, or nobody wants more: false then.
pub(super) fn feed(
    input: &mut dyn BufRead,
    reader: &mut dyn Reader,
    sink: &mut dyn Sink,
) -> io::Result<bool> {
    let mut line = Vec::with_capacity(128);
    while next_line(input, &mut line)? {
        if !reader.line(&line, sink) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn next_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = input.take(LONGEST).read_until(b'\n', line)?;
    while line.last().is_some_and(|last| matches!(last, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(read > 0)
}
