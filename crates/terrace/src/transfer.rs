//! Taking a map out of a directory and putting one in: migration, inspection. Of all maps at one moment:
//! [`backup`](crate::backup).
//!
//! Three formats, one record: a key, a value and, if it has one, the moment it expires. The binary
//! format ([`binary`]) is for keeping: every block carries a checksum and the file ends in a
//! trailer, so damage and truncation are found before a single record is trusted. CSV and JSON
//! lines ([`text`]) are for reading and for other tools; both carry any bytes.
//!
//! All of it streams: memory is bounded by one page of the source plus one block, whatever the
//! size of the map. An export may run while the map is written: a key that is present during the
//! whole export is in the file with a value it had during the export; the file is not a snapshot
//! of one instant.

pub mod binary;
pub mod text;

use crate::{Error, Map, Session};
use std::io::{self, BufRead, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest key and value together that a file may hold.
pub const RECORD_BYTES_MAX: usize = 512 << 20;
/// What a page of the source or a commit of the sink aims at.
const BATCH_BYTES: usize = 1 << 20;
const PAGE_RECORDS_MAX: usize = 4096;

/// One entry of a map, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Wall-clock milliseconds since 1970 after which the key is gone.
    pub expires_at_ms: Option<u64>,
}

/// One entry of a map, owned; reused from record to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedRecord {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// Wall-clock milliseconds since 1970 after which the key is gone.
    pub expires_at_ms: Option<u64>,
}

impl OwnedRecord {
    /// The same entry, borrowed.
    ///
    /// ```
    /// let owned = terrace::transfer::OwnedRecord { key: b"k".to_vec(), ..Default::default() };
    /// assert_eq!(owned.as_record().key, b"k");
    /// ```
    #[must_use]
    pub fn as_record(&self) -> Record<'_> {
        Record { key: &self.key, value: &self.value, expires_at_ms: self.expires_at_ms }
    }
}

/// Why a transfer stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The map refused.
    #[error(transparent)]
    Store(#[from] Error),
    /// The server refused or went away.
    #[error("{0}")]
    Remote(String),
    /// A binary file is not what was written.
    #[error("damaged at offset {offset}: {what}; {records_before} records before it are intact")]
    Damaged {
        /// Where, in bytes from the start.
        offset: u64,
        /// What was found and what was expected.
        what: String,
        /// Records whose checksums held before the damage.
        records_before: u64,
    },
    /// What is read as a binary file is none.
    #[error("not a Terrace export: it {0}")]
    Foreign(&'static str),
    /// A binary file is of a format that a later version brought.
    #[error(
        "made by a newer Terrace: an export of version {found}, and this one reads up to {known}"
    )]
    Newer {
        /// Its version.
        found: u32,
        /// The highest that is known here.
        known: u32,
    },
    /// A line of a text file is not a record.
    #[error("line {line}: {what}")]
    Line {
        /// Which line, from 1.
        line: u64,
        /// What was found and what was expected.
        what: String,
    },
}

/// What a transfer did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Records written or read.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Records not imported because their time had passed.
    pub expired: u64,
    /// Damaged stretches skipped by a salvage, in words with offsets.
    pub skipped: Vec<String>,
    /// What an export may lack, and why: the file is whole, the data is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// Where records come from.
pub trait Source {
    /// Hands the next page to `each`. Returns whether there may be more.
    ///
    /// # Errors
    /// The map or the server refused.
    fn page(&mut self, each: &mut dyn FnMut(Record<'_>)) -> Result<bool, TransferError>;

    /// At the end: what the pages may lack of the map, and why.
    ///
    /// # Errors
    /// The map or the server refused.
    fn lacks(&mut self) -> Result<Option<String>, TransferError> {
        Ok(None)
    }
}

/// Where records go.
pub trait Sink {
    /// Takes one record; it may wait for `flush` to take effect.
    ///
    /// # Errors
    /// The map or the server refused.
    fn put(&mut self, record: Record<'_>) -> Result<(), TransferError>;
    /// On return everything put is in the map, as durable as the map promises.
    ///
    /// # Errors
    /// The map or the server refused.
    fn flush(&mut self) -> Result<(), TransferError>;
}

/// Writes records in one format.
pub trait RecordWriter {
    /// Adds one record.
    ///
    /// # Errors
    /// The file could not be written.
    fn write(&mut self, record: Record<'_>) -> io::Result<()>;
    /// Ends the file. Without this call a binary file has no trailer and reads as truncated.
    ///
    /// # Errors
    /// The file could not be written.
    fn finish(&mut self) -> io::Result<()>;
}

/// Reads records of one format.
pub trait RecordReader {
    /// Reads the next record into `into`; false at the proper end of the file.
    ///
    /// # Errors
    /// The file could not be read, or is damaged.
    fn read(&mut self, into: &mut OwnedRecord) -> Result<bool, TransferError>;
    /// Damaged stretches skipped so far (salvage only).
    fn skipped(&self) -> &[String] {
        &[]
    }
}

/// The formats of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Terrace's own, with checksums.
    Binary,
    /// Comma-separated values with escapes, one record a line.
    Csv,
    /// One JSON object a line.
    Jsonl,
}

impl Format {
    /// A writer of this format.
    ///
    /// ```
    /// use terrace::transfer::{Format, Record};
    /// let mut file = Vec::new();
    /// let mut writer = Format::Csv.writer(&mut file)?;
    /// writer.write(Record { key: b"k", value: b"v", expires_at_ms: None })?;
    /// writer.finish()?;
    /// drop(writer);
    /// assert_eq!(file, b"key,value,expires_at_ms\nk,v,\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file could not be written.
    pub fn writer<'w>(self, out: impl Write + 'w) -> io::Result<Box<dyn RecordWriter + 'w>> {
        Ok(match self {
            Self::Binary => Box::new(binary::Writer::new(out, now_ms())?),
            Self::Csv => Box::new(text::CsvWriter::new(out)?),
            Self::Jsonl => Box::new(text::JsonWriter::new(out)),
        })
    }

    /// A reader of this format. `salvage` goes on behind damage in a binary file.
    ///
    /// ```
    /// use terrace::transfer::{Format, OwnedRecord};
    /// let file = b"{\"key\": \"k\", \"value\": \"v\"}\n";
    /// let mut record = OwnedRecord::default();
    /// let mut reader = Format::Jsonl.reader(&file[..], false)?;
    /// assert!(reader.read(&mut record)? && record.value == b"v");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The head of the file could not be read or is of another format.
    pub fn reader<'r>(
        self,
        input: impl BufRead + 'r,
        salvage: bool,
    ) -> Result<Box<dyn RecordReader + 'r>, TransferError> {
        Ok(match self {
            Self::Binary => Box::new(binary::Reader::new(input, salvage)?),
            Self::Csv => Box::new(text::CsvReader::new(input)?),
            Self::Jsonl => Box::new(text::JsonReader::new(input)),
        })
    }
}

/// The format that a file which begins like this probably has.
///
/// ```
/// use terrace::transfer::{Format, format_of};
/// assert_eq!(format_of(b"TERRACEX\x01"), Some(Format::Binary));
/// assert_eq!(format_of(b"value,key\nlovelace,ada\n"), Some(Format::Csv));
/// assert_eq!(format_of(b"{\"key\": \"ada\"}\n"), Some(Format::Jsonl));
/// assert_eq!(format_of(b"a letter"), None);
/// ```
#[must_use]
pub fn format_of(begin: &[u8]) -> Option<Format> {
    let first = begin.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut columns = first.split(|byte| *byte == b',');
    match begin {
        _ if begin.starts_with(binary::MAGIC) => Some(Format::Binary),
        [b'{', ..] => Some(Format::Jsonl),
        _ if columns.any(|column| column == b"key") => Some(Format::Csv),
        _ => None,
    }
}

/// Copies everything of `source` to `writer` and ends the file. `progress` sees the running sums.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
/// use terrace::transfer::{Format, MapSource, export};
/// let map = db.map("users")?;
/// map.put(b"ada", b"lovelace")?;
/// let mut file = Vec::new();
/// let mut writer = Format::Binary.writer(&mut file)?;
/// let done = export(&mut MapSource::new(&map), &mut *writer, &mut |_| ())?;
/// assert_eq!(done.records, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Either side refused; the file is then without its end.
pub fn export(
    source: &mut dyn Source,
    writer: &mut dyn RecordWriter,
    progress: &mut dyn FnMut(&Summary),
) -> Result<Summary, TransferError> {
    let mut summary = Summary::default();
    loop {
        // The source may hold a lock or an epoch while it hands out a page: only copy there.
        let mut page: Vec<OwnedRecord> = Vec::new();
        let more = source.page(&mut |r| {
            page.push(OwnedRecord {
                key: r.key.to_vec(),
                value: r.value.to_vec(),
                expires_at_ms: r.expires_at_ms,
            });
        })?;
        for record in &page {
            writer.write(record.as_record())?;
            count(&mut summary, record);
        }
        progress(&summary);
        if !more {
            summary.lacks = source.lacks()?;
            writer.finish()?;
            return Ok(summary);
        }
    }
}

/// Puts everything of `reader` into `sink`. Records whose time has passed are counted and left out.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
/// use terrace::transfer::{Format, MapSink, import};
/// let map = db.map("users")?;
/// let file = b"key,value\nada,lovelace\n";
/// let mut reader = Format::Csv.reader(&file[..], false)?;
/// import(&mut *reader, &mut MapSink::new(&map), &mut |_| ())?;
/// assert_eq!(map.get(b"ada")?.as_deref(), Some(&b"lovelace"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Either side refused; what was put before stays.
pub fn import(
    reader: &mut dyn RecordReader,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(&Summary),
) -> Result<Summary, TransferError> {
    let mut summary = Summary::default();
    let mut record = OwnedRecord::default();
    while reader.read(&mut record)? {
        if record.expires_at_ms.is_some_and(|t| t <= now_ms()) {
            summary.expired += 1;
        } else {
            sink.put(record.as_record())?;
            count(&mut summary, &record);
        }
        progress(&summary);
    }
    sink.flush()?;
    summary.skipped = reader.skipped().to_vec();
    Ok(summary)
}

/// Reads the whole file and keeps nothing: the first pass of an import.
///
/// ```
/// use terrace::transfer::{Format, verify};
/// let mut reader = Format::Csv.reader(&b"key,value\nada,lovelace\n"[..], false)?;
/// assert_eq!(verify(&mut *reader, &mut |_| ())?.records, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The file could not be read, or is damaged.
pub fn verify(
    reader: &mut dyn RecordReader,
    progress: &mut dyn FnMut(&Summary),
) -> Result<Summary, TransferError> {
    let mut summary = Summary::default();
    let mut record = OwnedRecord::default();
    while reader.read(&mut record)? {
        count(&mut summary, &record);
        progress(&summary);
    }
    summary.skipped = reader.skipped().to_vec();
    Ok(summary)
}

fn count(summary: &mut Summary, record: &OwnedRecord) {
    summary.records += 1;
    summary.bytes += (record.key.len() + record.value.len()) as u64;
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A map in this process, read page by page.
pub struct MapSource {
    session: Session,
    cursor: u64,
    page_records: usize,
}

impl MapSource {
    /// From the first record of `map`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::transfer::{MapSource, Source};
    /// let map = db.map("users")?;
    /// let more = MapSource::new(&map).page(&mut |record| println!("{:?}", record.key))?;
    /// assert!(!more, "an empty map is one page");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(map: &Map) -> Self {
        Self { session: map.session(), cursor: 0, page_records: 16 }
    }
}

impl Source for MapSource {
    fn page(&mut self, each: &mut dyn FnMut(Record<'_>)) -> Result<bool, TransferError> {
        let (mut records, mut bytes) = (0usize, 0usize);
        self.cursor = self.session.scan(self.cursor, self.page_records, |key, value| {
            records += 1;
            bytes += key.len() + value.bytes.len();
            each(Record { key, value: value.bytes, expires_at_ms: value.expires_at_ms });
        })?;
        // What is told to a file is told to someone: it must be as durable as the map promises.
        self.session.commit()?;
        if let Some(mean) = bytes.checked_div(records) {
            self.page_records = (BATCH_BYTES / mean.max(1)).clamp(1, PAGE_RECORDS_MAX);
        }
        Ok(self.cursor != 0)
    }

    fn lacks(&mut self) -> Result<Option<String>, TransferError> {
        let keys = self.session.withheld();
        let why = self.session.map().stats().stopped.filter(|_| keys > 0);
        Ok(why.map(|why| format!("{keys} keys whose last write is not durable: {why}")))
    }
}

/// A map in this process, written in commits of about a megabyte.
pub struct MapSink {
    session: Session,
    pending_bytes: usize,
}

impl MapSink {
    /// Into `map`; keys already there are overwritten.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::transfer::{MapSink, Record, Sink};
    /// let map = db.map("users")?;
    /// let mut sink = MapSink::new(&map);
    /// sink.put(Record { key: b"ada", value: b"lovelace", expires_at_ms: None })?;
    /// sink.flush()?;
    /// assert_eq!(map.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(map: &Map) -> Self {
        Self { session: map.session(), pending_bytes: 0 }
    }
}

impl Sink for MapSink {
    fn put(&mut self, record: Record<'_>) -> Result<(), TransferError> {
        self.session.put(record.key, record.value, record.expires_at_ms)?;
        self.pending_bytes += record.key.len() + record.value.len();
        if self.pending_bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        self.pending_bytes = 0;
        Ok(self.session.commit()?)
    }
}

#[cfg(test)]
mod tests;
