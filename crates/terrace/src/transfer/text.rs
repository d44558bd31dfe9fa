//! CSV and JSON lines: for eyes and for other tools, able to carry any bytes.
//!
//! **CSV**: the first line names the columns, `key,value,expires_at_ms`; a file from elsewhere may
//! order them differently and may leave the last one out. One record is one line: in a field `\`
//! starts an escape (`\\`, `\n`, `\r`, `\t`, `\xNN`), fields with a comma or a quote are quoted and
//! a quote inside is doubled (RFC 4180).
//!
//! **JSON lines**: `{"key":"a","value":"b","expires_at_ms":1700000000000}`. Bytes that are not
//! UTF-8 stand under `key_base64` and `value_base64` instead.

use super::{OwnedRecord, RECORD_BYTES_MAX, Record, RecordReader, RecordWriter, TransferError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};

/// Escapes can make a byte four.
const LINE_BYTES_MAX: usize = RECORD_BYTES_MAX * 4 + 1024;

/// Writes CSV.
pub struct CsvWriter<W: Write> {
    out: W,
    line: String,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the line of column names.
    ///
    /// ```
    /// let mut file = Vec::new();
    /// terrace::transfer::text::CsvWriter::new(&mut file)?;
    /// assert_eq!(file, b"key,value,expires_at_ms\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file could not be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"key,value,expires_at_ms\n")?;
        Ok(Self { out, line: String::new() })
    }
}

impl<W: Write> RecordWriter for CsvWriter<W> {
    fn write(&mut self, record: Record<'_>) -> io::Result<()> {
        self.line.clear();
        push_field(&mut self.line, record.key);
        self.line.push(',');
        push_field(&mut self.line, record.value);
        self.line.push(',');
        if let Some(ms) = record.expires_at_ms {
            self.line.push_str(&ms.to_string());
        }
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Appends `bytes` as text that [`unescape`] takes back: readable where they are UTF-8.
///
/// ```
/// let mut line = String::new();
/// terrace::transfer::text::escape(&mut line, b"a\n\x00");
/// assert_eq!(line, "a\\n\\x00");
/// ```
pub fn escape(line: &mut String, bytes: &[u8]) {
    let push = |line: &mut String, c: char| match c {
        '\\' => line.push_str("\\\\"),
        '\n' => line.push_str("\\n"),
        '\r' => line.push_str("\\r"),
        '\t' => line.push_str("\\t"),
        c if c.is_ascii_control() => {
            let _ = write!(line, "\\x{:02x}", c as u32);
        }
        c => line.push(c),
    };
    if let Ok(text) = std::str::from_utf8(bytes) {
        text.chars().for_each(|c| push(line, c));
        return;
    }
    for &b in bytes {
        if b.is_ascii() {
            push(line, char::from(b));
        } else {
            let _ = write!(line, "\\x{b:02x}");
        }
    }
}

fn push_field(line: &mut String, bytes: &[u8]) {
    if !bytes.iter().any(|b| matches!(b, b',' | b'"')) {
        escape(line, bytes);
        return;
    }
    let mut field = String::new();
    escape(&mut field, bytes);
    line.push('"');
    line.push_str(&field.replace('"', "\"\""));
    line.push('"');
}

/// The bytes that [`escape`] made `text` from.
///
/// ```
/// assert_eq!(terrace::transfer::text::unescape("a\\n\\x00")?, b"a\n\x00");
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// An escape nobody writes.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&b, tail)) = rest.split_first() {
        rest = tail;
        if b != b'\\' {
            out.push(b);
            continue;
        }
        let (&kind, tail) = rest.split_first().ok_or("a lone `\\` at the end of a field")?;
        rest = tail;
        match kind {
            b'\\' => out.push(b'\\'),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'x' => {
                let digits = rest.get(..2).and_then(|d| std::str::from_utf8(d).ok());
                let byte = digits
                    .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|d| u8::from_str_radix(d, 16).ok())
                    .ok_or("`\\x` needs two hexadecimal digits")?;
                out.push(byte);
                rest = &rest[2..];
            }
            other => {
                let c = char::from(other);
                return Err(format!("`\\{c}` is no escape; known: \\\\ \\n \\r \\t \\xNN"));
            }
        }
    }
    Ok(out)
}

/// Lines with their numbers, of bounded length.
struct Lines<R> {
    input: R,
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn new(input: R) -> Self {
        Self { input, number: 0, buffer: Vec::new() }
    }

    fn fault(&self, what: impl Into<String>) -> TransferError {
        TransferError::Line { line: self.number, what: what.into() }
    }

    /// The next line without its end, or false at the end of the file.
    fn advance(&mut self) -> Result<bool, TransferError> {
        self.buffer.clear();
        self.number += 1;
        let limit = LINE_BYTES_MAX as u64;
        let got = (&mut self.input).take(limit).read_until(b'\n', &mut self.buffer)?;
        if got == LINE_BYTES_MAX {
            return Err(self.fault(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        while matches!(self.buffer.last(), Some(b'\n' | b'\r')) {
            self.buffer.pop();
        }
        Ok(got > 0)
    }

    fn text(&self) -> Result<&str, TransferError> {
        std::str::from_utf8(&self.buffer).map_err(|e| self.fault(format!("not UTF-8: {e}")))
    }
}

/// Reads CSV.
pub struct CsvReader<R: BufRead> {
    lines: Lines<R>,
    key: usize,
    value: usize,
    expires: Option<usize>,
    columns: usize,
}

impl<R: BufRead> CsvReader<R> {
    /// Reads the line of column names.
    ///
    /// ```
    /// use terrace::transfer::text::CsvReader;
    /// assert!(CsvReader::new(&b"key,value\n"[..]).is_ok());
    /// assert!(CsvReader::new(&b"name,value\n"[..]).is_err());
    /// ```
    ///
    /// # Errors
    /// No such line, or a column that is missing or unknown.
    pub fn new(input: R) -> Result<Self, TransferError> {
        let mut lines = Lines::new(input);
        lines.advance()?;
        let names = split_fields(lines.text()?).map_err(|e| lines.fault(e))?;
        let find = |name: &str| names.iter().position(|n| n == name);
        let (Some(key), Some(value)) = (find("key"), find("value")) else {
            return Err(lines.fault("the first line must name the columns `key` and `value`"));
        };
        let expires = find("expires_at_ms");
        if let Some(other) =
            names.iter().find(|n| !["key", "value", "expires_at_ms"].contains(&n.as_str()))
        {
            return Err(lines.fault(format!("unknown column `{other}`")));
        }
        Ok(Self { key, value, expires, columns: names.len(), lines })
    }

    fn parse(&self, into: &mut OwnedRecord) -> Result<(), String> {
        let text =
            std::str::from_utf8(&self.lines.buffer).map_err(|e| format!("not UTF-8: {e}"))?;
        let fields = split_fields(text)?;
        if fields.len() != self.columns {
            return Err(format!("{} fields where {} are due", fields.len(), self.columns));
        }
        into.key = unescape(&fields[self.key])?;
        into.value = unescape(&fields[self.value])?;
        let expires = self.expires.map_or("", |at| fields[at].as_str());
        into.expires_at_ms = match expires {
            "" => None,
            ms => Some(ms.parse().map_err(|_| format!("`{ms}` is not a time in milliseconds"))?),
        };
        Ok(())
    }
}

/// The fields of one CSV line, quotes resolved, escapes kept.
fn split_fields(line: &str) -> Result<Vec<String>, String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let field = fields.last_mut().ok_or("no field")?;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted => {
                quoted = false;
                if !matches!(chars.peek(), None | Some(',')) {
                    return Err("text after a closing quote".into());
                }
            }
            '"' if field.is_empty() => quoted = true,
            '"' => return Err("a quote within an unquoted field".into()),
            ',' if !quoted => fields.push(String::new()),
            c => field.push(c),
        }
    }
    if quoted {
        return Err("a quoted field does not end on its line; write line ends as \\n".into());
    }
    Ok(fields)
}

impl<R: BufRead> RecordReader for CsvReader<R> {
    fn read(&mut self, into: &mut OwnedRecord) -> Result<bool, TransferError> {
        if !self.lines.advance()? {
            return Ok(false);
        }
        self.parse(into).map_err(|e| self.lines.fault(e))?;
        Ok(true)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRecord<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
}

/// Writes JSON lines.
pub struct JsonWriter<W: Write> {
    out: W,
}

impl<W: Write> JsonWriter<W> {
    /// JSON lines have no head.
    ///
    /// ```
    /// use terrace::transfer::{Record, RecordWriter, text::JsonWriter};
    /// let mut file = Vec::new();
    /// JsonWriter::new(&mut file).write(Record { key: b"k", value: b"v", expires_at_ms: None })?;
    /// assert_eq!(file, b"{\"key\":\"k\",\"value\":\"v\"}\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(out: W) -> Self {
        Self { out }
    }
}

/// `record` as the JSON object of one line.
///
/// ```
/// use terrace::transfer::{Record, text::json_of};
/// let json = json_of(Record { key: b"k", value: &[0xff], expires_at_ms: None });
/// assert_eq!((&json["key"], &json["value_base64"]), (&"k".into(), &"/w==".into()));
/// ```
#[must_use]
pub fn json_of(record: Record<'_>) -> serde_json::Value {
    let (key, key_base64) = text_or_base64(record.key);
    let (value, value_base64) = text_or_base64(record.value);
    let line =
        JsonRecord { key, key_base64, value, value_base64, expires_at_ms: record.expires_at_ms };
    serde_json::to_value(line).unwrap_or_default()
}

fn text_or_base64(bytes: &[u8]) -> (Option<std::borrow::Cow<'_, str>>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(BASE64.encode(bytes))),
    }
}

impl<W: Write> RecordWriter for JsonWriter<W> {
    fn write(&mut self, record: Record<'_>) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &json_of(record))?;
        self.out.write_all(b"\n")
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads JSON lines.
pub struct JsonReader<R: BufRead> {
    lines: Lines<R>,
}

impl<R: BufRead> JsonReader<R> {
    /// JSON lines have no head.
    ///
    /// ```
    /// use terrace::transfer::{OwnedRecord, RecordReader, text::JsonReader};
    /// let mut reader = JsonReader::new(&b"not a record\n"[..]);
    /// assert!(reader.read(&mut OwnedRecord::default()).unwrap_err().to_string().contains("line 1"));
    /// ```
    pub fn new(input: R) -> Self {
        Self { lines: Lines::new(input) }
    }

    fn parse(&self, into: &mut OwnedRecord) -> Result<(), String> {
        let line: JsonRecord<'_> =
            serde_json::from_slice(&self.lines.buffer).map_err(|e| e.to_string())?;
        into.key = one_of("key", line.key, line.key_base64)?;
        into.value = one_of("value", line.value, line.value_base64)?;
        into.expires_at_ms = line.expires_at_ms;
        Ok(())
    }
}

fn one_of(
    name: &str,
    text: Option<std::borrow::Cow<'_, str>>,
    base64: Option<String>,
) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_owned().into_bytes()),
        (None, Some(code)) => {
            BASE64.decode(code).map_err(|e| format!("`{name}_base64` is not base64: {e}"))
        }
        _ => Err(format!("needs either `{name}` or `{name}_base64`")),
    }
}

impl<R: BufRead> RecordReader for JsonReader<R> {
    fn read(&mut self, into: &mut OwnedRecord) -> Result<bool, TransferError> {
        if !self.lines.advance()? {
            return Ok(false);
        }
        self.parse(into).map_err(|e| self.lines.fault(e))?;
        Ok(true)
    }
}
