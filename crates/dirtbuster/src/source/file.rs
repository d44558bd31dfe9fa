//! Traces in files, and the stream of the emulator's plug-in: the same chunks, behind a head in a file.

use super::{TraceError, Traced};
use crate::event::{Event, Image, Kind, Sink};
use crate::wire::{self, Chunk, Raw};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The first line of a file; the second is a [`TraceFile`] in JSON.
const FIRST_LINE: &str = "terrace-dirtbuster-trace 1\n";
/// The longest second line.
const HEAD_MAX: u64 = 1 << 22;

/// What a file says of its trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceFile<T> {
    /// The command that ran.
    pub command: Vec<String>,
    /// What else was known of it before.
    pub found: T,
    /// How it was traced, if the recorder came to its end.
    #[serde(skip)]
    pub traced: Option<Traced>,
}

fn kind_of(raw: u8) -> Option<Kind> {
    Some(match raw {
        wire::READ => Kind::Read,
        wire::WRITE => Kind::Write,
        wire::SPILL => Kind::Spill,
        wire::FENCE => Kind::Fence,
        wire::CALL => Kind::Call,
        wire::RETURN => Kind::Return,
        _ => return None,
    })
}

fn number_of(kind: Kind) -> u8 {
    match kind {
        Kind::Read => wire::READ,
        Kind::Write => wire::WRITE,
        Kind::Spill => wire::SPILL,
        Kind::Fence => wire::FENCE,
        Kind::Call => wire::CALL,
        Kind::Return => wire::RETURN,
    }
}

/// How a stream of chunks ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// Behind a whole chunk.
    Whole,
    /// In the middle of one.
    Torn,
    /// The sink wanted no more.
    Stopped,
    /// With bytes that are no chunk.
    Damaged,
}

/// Reads chunks until they end; the last note is put into `note`.
pub(super) fn read_chunks(
    input: &mut dyn Read,
    sink: &mut dyn Sink,
    note: &mut Vec<u8>,
) -> io::Result<StreamEnd> {
    let mut head = [0; wire::HEAD_BYTES];
    let mut body = Vec::new();
    loop {
        match fill(input, &mut head)? {
            0 => return Ok(StreamEnd::Whole),
            bytes if bytes < head.len() => return Ok(StreamEnd::Torn),
            _ => {}
        }
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (of, thread, bytes) = (head[0], number(1), number(5) as usize);
        if bytes > wire::BODY_BYTES_MAX {
            return Ok(StreamEnd::Damaged);
        }
        body.resize(bytes, 0);
        if fill(input, &mut body)? < bytes {
            return Ok(StreamEnd::Torn);
        }
        match of {
            wire::EVENTS => match events(&body, thread, sink) {
                StreamEnd::Whole => {}
                other => return Ok(other),
            },
            wire::IMAGE => match image(&body) {
                Some(image) => sink.image(&image),
                None => return Ok(StreamEnd::Damaged),
            },
            wire::NOTE => note.clone_from(&body),
            _ => return Ok(StreamEnd::Damaged),
        }
    }
}

/// Reads until the buffer is full or nothing comes any more; returns how much.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn events(body: &[u8], thread: u32, sink: &mut dyn Sink) -> StreamEnd {
    let mut at = 0;
    let mut last = Raw::default();
    while at < body.len() {
        let Some(raw) = next(body, &mut at, &last) else { return StreamEnd::Damaged };
        let Some(kind) = kind_of(raw.kind) else { return StreamEnd::Damaged };
        let Raw { count, ip, address, size, .. } = raw;
        if !sink.take(&Event { count, kind, ip, address, size, thread }) {
            return StreamEnd::Stopped;
        }
        last = raw;
    }
    StreamEnd::Whole
}

fn next(body: &[u8], at: &mut usize, last: &Raw) -> Option<Raw> {
    let first = *body.get(*at)?;
    *at += 1;
    let size = match first >> 3 {
        0 => 0,
        31 => u32::try_from(number(body, at)?).ok()?,
        short @ 1..=16 => 1 << (short - 1),
        _ => return None,
    };
    let mut plus = |last: u64| {
        let value = number(body, at)?;
        Some(last.wrapping_add((value >> 1) ^ (value & 1).wrapping_neg()))
    };
    let (count, ip, address) = (plus(last.count)?, plus(last.ip)?, plus(last.address)?);
    Some(Raw { kind: first & 7, size, count, ip, address })
}

fn number(body: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *body.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn image(body: &[u8]) -> Option<Image> {
    let number = |at: usize| {
        let bytes = body.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let path = PathBuf::from(OsStr::from_bytes(body.get(24..)?));
    Some(Image { path, start: number(0)?, end: number(8)?, offset: number(16)? })
}

/// Writes a trace to a file, and hands every event on.
pub struct Recorder<'a> {
    path: PathBuf,
    out: BufWriter<File>,
    chunks: Vec<Chunk>,
    bytes: Vec<u8>,
    failed: Option<io::Error>,
    next: &'a mut dyn Sink,
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<'a> Recorder<'a> {
    /// Creates the file, with what is known before the trace.
    ///
    /// # Errors
    /// [`TraceError::File`] if it cannot be written.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Event, Kind, Recorder, Sink, Symbols, Analysis, Thresholds, TraceFile};
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("trace");
    /// let mut analysis = Analysis::new(Symbols::default(), Thresholds::default());
    /// let head = TraceFile { command: vec!["true".into()], found: 7, traced: None };
    /// let mut recorder = Recorder::create(&path, &head, &mut analysis).unwrap();
    /// recorder.take(&Event { count: 1, kind: Kind::Write, ip: 2, address: 3, size: 8, thread: 0 });
    /// recorder.finish(None).unwrap();
    /// let mut again = Analysis::new(Symbols::default(), Thresholds::default());
    /// assert_eq!(TraceFile::<u32>::replay(&path, &mut again).unwrap(), Some(head));
    /// assert_eq!(again.totals(), analysis.totals());
    /// ```
    pub fn create<T: Serialize>(
        path: &Path,
        head: &TraceFile<T>,
        next: &'a mut dyn Sink,
    ) -> Result<Recorder<'a>, TraceError> {
        let failed = |source| TraceError::File { path: path.to_path_buf(), source };
        let mut out = BufWriter::with_capacity(1 << 18, File::create(path).map_err(failed)?);
        let head = serde_json::to_string(head).map_err(io::Error::from).map_err(failed)?;
        out.write_all(format!("{FIRST_LINE}{head}\n").as_bytes()).map_err(failed)?;
        Ok(Recorder {
            path: path.to_path_buf(),
            out,
            chunks: Vec::new(),
            bytes: Vec::new(),
            failed: None,
            next,
        })
    }

    /// Writes what is left, and how the program was traced.
    ///
    /// # Errors
    /// [`TraceError::File`] if something could not be written, now or before.
    ///
    /// # Examples
    /// As for [`Recorder::create`].
    pub fn finish(mut self, traced: Option<&Traced>) -> Result<(), TraceError> {
        for thread in 0..self.chunks.len() {
            self.end_chunk(thread);
        }
        if let (Some(traced), None) = (traced, &self.failed) {
            let text = serde_json::to_vec(traced).unwrap_or_default();
            self.bytes.clear();
            wire::note(&text, &mut self.bytes);
            self.failed = self.out.write_all(&self.bytes).err();
        }
        let done = match self.failed.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        };
        done.map_err(|source| TraceError::File { path: self.path, source })
    }

    fn end_chunk(&mut self, thread: usize) {
        if self.chunks[thread].is_empty() || self.failed.is_some() {
            return;
        }
        self.bytes.clear();
        self.chunks[thread].take(thread as u32, &mut self.bytes);
        self.failed = self.out.write_all(&self.bytes).err();
    }
}

/// Threads that a file tells apart.
const THREADS: usize = 1 << 12;

impl Sink for Recorder<'_> {
    fn take(&mut self, event: &Event) -> bool {
        let thread = (event.thread as usize).min(THREADS - 1);
        if self.chunks.len() <= thread {
            self.chunks.resize_with(thread + 1, Chunk::new);
        }
        let Event { count, ip, address, size, .. } = *event;
        let raw = Raw { kind: number_of(event.kind), size, count, ip, address };
        if self.chunks[thread].push(&raw) {
            self.end_chunk(thread);
        }
        self.next.take(event) && self.failed.is_none()
    }

    fn image(&mut self, image: &Image) {
        self.bytes.clear();
        let path = image.path.as_os_str().as_bytes();
        wire::image(image.start, image.end, image.offset, path, &mut self.bytes);
        if self.failed.is_none() {
            self.failed = self.out.write_all(&self.bytes).err();
        }
        self.next.image(image);
    }
}

impl<T: for<'de> Deserialize<'de>> TraceFile<T> {
    /// Replays a file; none if it is of another format.
    ///
    /// # Errors
    /// [`TraceError::File`] if it cannot be read, [`TraceError::Damaged`] if it ends in the middle or is not what was
    /// written.
    ///
    /// # Examples
    /// As for [`Recorder::create`].
    pub fn replay(path: &Path, sink: &mut dyn Sink) -> Result<Option<TraceFile<T>>, TraceError> {
        let failed = |source| TraceError::File { path: path.to_path_buf(), source };
        let damaged = |what: String| TraceError::Damaged { path: path.to_path_buf(), what };
        let file = File::open(path).map_err(failed)?;
        let mut input = BufReader::with_capacity(1 << 18, file);
        let mut first = vec![0; FIRST_LINE.len()];
        let bytes = fill(&mut input, &mut first).map_err(failed)?;
        if first[..bytes] != *FIRST_LINE.as_bytes() {
            return Ok(None);
        }
        let mut head = Vec::new();
        io::BufRead::read_until(&mut (&mut input).take(HEAD_MAX), b'\n', &mut head)
            .map_err(failed)?;
        let mut head: TraceFile<T> =
            serde_json::from_slice(&head).map_err(|e| damaged(format!("its second line: {e}")))?;
        let mut note = Vec::new();
        match read_chunks(&mut input, sink, &mut note).map_err(failed)? {
            StreamEnd::Whole | StreamEnd::Stopped => {
                head.traced = serde_json::from_slice(&note).ok();
                Ok(Some(head))
            }
            StreamEnd::Torn => Err(damaged("it ends in the middle; record it again".into())),
            StreamEnd::Damaged => Err(damaged("bytes that are no event; record it again".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct All(Vec<Event>);

    impl Sink for All {
        fn take(&mut self, event: &Event) -> bool {
            self.0.push(*event);
            true
        }
        fn image(&mut self, _: &Image) {}
    }

    fn kind() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![
            Kind::Read,
            Kind::Write,
            Kind::Spill,
            Kind::Fence,
            Kind::Call,
            Kind::Return,
        ])
    }

    proptest! {
        #[test]
        fn events_come_back_as_they_were_written(
            events in prop::collection::vec((any::<u64>(), kind(), any::<u64>(), any::<u64>(), any::<u32>()), 0..200)
        ) {
            let events: Vec<Event> = events
                .into_iter()
                .map(|(count, kind, ip, address, size)| Event { count, kind, ip, address, size, thread: 3 })
                .collect();
            let mut chunk = Chunk::new();
            for Event { count, kind, ip, address, size, .. } in events.iter().copied() {
                chunk.push(&Raw { kind: number_of(kind), size, count, ip, address });
            }
            let mut bytes = Vec::new();
            chunk.take(3, &mut bytes);
            let mut all = All::default();
            prop_assert_eq!(read_chunks(&mut &*bytes, &mut all, &mut Vec::new()).unwrap(), StreamEnd::Whole);
            prop_assert_eq!(all.0, events);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut framed = vec![b'E', 0, 0, 0, 0];
            framed.extend((bytes.len() as u32).to_le_bytes());
            framed.extend(&bytes);
            read_chunks(&mut &*framed, &mut All::default(), &mut Vec::new()).unwrap();
            read_chunks(&mut &*bytes, &mut All::default(), &mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn a_torn_stream_is_told_from_a_whole_one() {
        let mut chunk = Chunk::new();
        chunk.push(&Raw { kind: wire::WRITE, size: 8, count: 1, ip: 2, address: 3 });
        let mut bytes = Vec::new();
        chunk.take(0, &mut bytes);
        wire::image(1, 2, 3, b"/bin/x", &mut bytes);
        for end in 0..bytes.len() {
            let whole = end == 0 || end == wire::HEAD_BYTES + 4;
            let found =
                read_chunks(&mut &bytes[..end], &mut All::default(), &mut Vec::new()).unwrap();
            assert_eq!(found == StreamEnd::Whole, whole, "{end} of {}", bytes.len());
        }
    }
}
