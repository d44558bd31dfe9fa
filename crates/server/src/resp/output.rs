//! Replies, formatted into the bytes that go to the client.
//!
//! One [`Output`] per connection. A handler writes its reply here and nowhere else; a value is
//! copied once, from where the engine keeps it to here. The buffer has a hard limit: past it
//! nothing more is stored and the connection is marked to be closed, so a client that asks much
//! and reads little costs a bounded amount of memory.

use super::number::decimal;

/// Buffers above this size give memory back while they run empty.
const SHRUNK_BYTES: usize = 1 << 20;

/// Gives back what a large buffer does not use of its memory, if that is most of it.
pub(crate) fn shrink(buffer: &mut Vec<u8>) {
    if buffer.capacity() > SHRUNK_BYTES && buffer.len() < buffer.capacity() / 4 {
        buffer.shrink_to(2 * buffer.len());
    }
}

/// What a client has been answered and has not been sent yet.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// How much of `bytes` the socket has taken.
    sent: usize,
    /// The client speaks RESP3.
    pub(crate) resp3: bool,
    limit_bytes: usize,
    overflowed: bool,
    /// Where this turn's replies start, and how many there are: if the commit fails they are
    /// taken back.
    turn_start: usize,
    turn_replies: u32,
}

impl Output {
    pub(crate) fn new(limit_bytes: usize) -> Output {
        Output { limit_bytes, ..Output::default() }
    }

    pub(crate) fn set_limit_bytes(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    // What is there, for the one who sends it.

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
    /// Bytes that may still be added.
    pub(crate) fn room_bytes(&self) -> usize {
        self.limit_bytes.saturating_sub(self.bytes.len())
    }
    /// The limit was passed: replies are missing, the connection has to go.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed || self.len() > self.limit_bytes
    }
    /// The reply could not be put together: treated as one that passed the limit.
    pub(crate) fn overflow(&mut self) {
        self.overflowed = true;
    }
    /// The socket took `n` bytes.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
            shrink(&mut self.bytes);
        }
        self.turn_start = self.bytes.len();
    }
    /// Exchanges the buffer: an idle connection holds none.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty());
        self.sent = 0;
        self.turn_start = 0;
        std::mem::take(&mut self.bytes)
    }
    pub(crate) fn has_buffer(&self) -> bool {
        self.bytes.capacity() > 0
    }
    pub(crate) fn give_buffer(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.bytes.is_empty() && buffer.is_empty());
        self.bytes = buffer;
    }

    // A turn's replies, which may have to be taken back.

    pub(crate) fn start_turn(&mut self) {
        self.turn_start = self.bytes.len();
        self.turn_replies = 0;
    }
    #[inline]
    pub(crate) fn count_reply(&mut self) {
        self.turn_replies += 1;
    }
    pub(crate) fn uncount_reply(&mut self) {
        self.turn_replies -= 1;
    }
    pub(crate) fn turn_bytes(&self) -> usize {
        self.bytes.len() - self.turn_start
    }
    /// Puts `error` in the place of every reply of this turn.
    pub(crate) fn replace_turn(&mut self, error: &str) {
        self.bytes.truncate(self.turn_start);
        for _ in 0..self.turn_replies {
            self.error(error);
        }
    }

    /// A place to return to with [`Output::truncate`].
    #[inline]
    pub(crate) fn mark(&self) -> usize {
        self.bytes.len()
    }
    pub(crate) fn truncate(&mut self, mark: usize) {
        self.bytes.truncate(mark);
    }

    // The replies.

    pub(crate) fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }
    /// An error; `text` starts with its code (`ERR`, `WRONGPASS`...). Line breaks become blanks.
    pub(crate) fn error(&mut self, text: &str) {
        self.bytes.push(b'-');
        self.bytes.extend(
            text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }),
        );
        self.bytes.extend_from_slice(b"\r\n");
    }
    pub(crate) fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }
    /// A number with a fraction: a text in RESP2.
    #[cfg(feature = "sql")]
    pub(crate) fn double(&mut self, value: f64) {
        let text = match value {
            value if value.is_nan() => "nan".into(),
            f64::INFINITY => "inf".into(),
            f64::NEG_INFINITY => "-inf".into(),
            value => value.to_string(),
        };
        match self.resp3 {
            true => self.line(b',', text.as_bytes()),
            false => self.bulk(text.as_bytes()),
        }
    }
    /// Yes or no: 1 or 0 in RESP2.
    #[cfg(feature = "sql")]
    pub(crate) fn boolean(&mut self, value: bool) {
        match self.resp3 {
            true => self.line(b'#', if value { b"t" } else { b"f" }),
            false => self.integer(i64::from(value)),
        }
    }
    #[inline]
    pub(crate) fn bulk(&mut self, value: &[u8]) {
        if self.bytes.len() + value.len() > self.limit_bytes {
            self.overflowed = true;
            return;
        }
        self.bytes.reserve(value.len() + 32);
        self.number(b'$', value.len() as i64);
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
    }
    /// Text whose format is named in RESP3 (`txt`), a plain bulk in RESP2.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if !self.resp3 {
            return self.bulk(text.as_bytes());
        }
        self.number(b'=', text.len() as i64 + 4);
        self.bytes.extend_from_slice(b"txt:");
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }
    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }
    pub(crate) fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }
    pub(crate) fn array(&mut self, len: usize) {
        self.number(b'*', len as i64);
    }
    /// The header of a map of `pairs`: in RESP2 an array of twice as many.
    pub(crate) fn map(&mut self, pairs: usize) {
        match self.resp3 {
            true => self.number(b'%', pairs as i64),
            false => self.number(b'*', 2 * pairs as i64),
        }
    }
    pub(crate) fn set(&mut self, len: usize) {
        self.number(if self.resp3 { b'~' } else { b'*' }, len as i64);
    }
    /// Appends replies formatted elsewhere, under the same limit.
    pub(crate) fn raw(&mut self, replies: &[u8]) {
        if self.bytes.len() + replies.len() > self.limit_bytes {
            self.overflowed = true;
            return;
        }
        self.bytes.extend_from_slice(replies);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `kind`, the number and a line end, appended as one slice.
    #[inline]
    fn number(&mut self, kind: u8, value: i64) {
        if (0..10).contains(&value) {
            self.bytes.extend_from_slice(&[kind, b'0' + value as u8, b'\r', b'\n']);
            return;
        }
        let mut text = [0; 24];
        let mut digits = [0; 20];
        let digits = decimal(value, &mut digits);
        text[0] = kind;
        text[1..=digits.len()].copy_from_slice(digits);
        text[digits.len() + 1] = b'\r';
        text[digits.len() + 2] = b'\n';
        self.bytes.extend_from_slice(&text[..digits.len() + 3]);
    }
}

#[cfg(test)]
mod tests {
    use super::Output;

    fn written(resp3: bool, write: impl FnOnce(&mut Output)) -> String {
        let mut out = Output::new(1 << 20);
        out.resp3 = resp3;
        write(&mut out);
        String::from_utf8_lossy(out.unsent()).into_owned()
    }

    #[test]
    fn both_protocols() {
        assert_eq!(written(false, |o| o.null()), "$-1\r\n");
        assert_eq!(written(true, |o| o.null()), "_\r\n");
        assert_eq!(written(false, |o| o.map(2)), "*4\r\n");
        assert_eq!(written(true, |o| o.map(2)), "%2\r\n");
        assert_eq!(written(false, |o| o.verbatim("ab")), "$2\r\nab\r\n");
        assert_eq!(written(true, |o| o.verbatim("ab")), "=6\r\ntxt:ab\r\n");
        assert_eq!(written(true, |o| o.integer(i64::MIN)), ":-9223372036854775808\r\n");
        assert_eq!(written(false, |o| o.integer(-7)), ":-7\r\n");
        assert_eq!(written(false, |o| o.bulk(&[b'x'; 12])), "$12\r\nxxxxxxxxxxxx\r\n");
        assert_eq!(written(false, |o| o.error("ERR a\r\nb")), "-ERR a  b\r\n");
    }

    #[test]
    fn the_limit_stops_growth() {
        let mut out = Output::new(100);
        out.bulk(&[0; 90]);
        assert!(!out.overflowed());
        out.bulk(&[0; 90]);
        assert!(out.overflowed());
        assert!(out.len() < 100 + 16);
    }

    #[test]
    fn a_turn_can_be_taken_back() {
        let mut out = Output::new(1 << 20);
        out.ok();
        out.start_turn();
        for value in [b"a", b"b"] {
            out.count_reply();
            out.bulk(value);
        }
        out.replace_turn("MISCONF no");
        assert_eq!(out.unsent(), b"+OK\r\n-MISCONF no\r\n-MISCONF no\r\n");
    }

    #[test]
    fn sending_in_pieces() {
        let mut out = Output::new(1 << 20);
        for i in 0..1000 {
            out.integer(i);
        }
        let all = out.unsent().to_vec();
        let mut sent = Vec::new();
        while !out.is_empty() {
            let n = out.len().min(7);
            sent.extend_from_slice(&out.unsent()[..n]);
            out.advance(n);
        }
        assert_eq!(sent, all);
    }
}
