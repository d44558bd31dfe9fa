//! A small blocking client for the Redis protocol: what export and import need to go through a
//! server, and nothing more.

use crate::output::Failure;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Status(String),
    /// `-ERR ...`
    Error(String),
    /// `:7`
    Integer(i64),
    /// `$3`; absent is `$-1`
    Bulk(Option<Vec<u8>>),
    /// `*2`
    Array(Vec<Reply>),
}

/// Connects; a failure says what to do.
pub fn connect(address: &str, password: Option<&str>) -> Result<Connection, Failure> {
    Connection::open(address, password).map_err(|error| {
        let way = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "; no server listens there: start it with `terrace serve DIR`, or check host and port"
            }
            io::ErrorKind::InvalidInput => "; expected HOST:PORT, like 127.0.0.1:6379",
            io::ErrorKind::TimedOut => "; check host and port",
            _ => "",
        };
        Failure::new(format_args!("{address}: {error}{way}"))
    })
}

/// The largest reply that is believed.
const BULK_BYTES_MAX: usize = 1 << 30;
const DEPTH_MAX: usize = 8;

/// A connection; requests are collected and sent together.
pub struct Connection {
    input: BufReader<TcpStream>,
    output: Vec<u8>,
    waiting: usize,
}

impl Connection {
    /// Connects, and authenticates if there is a password.
    pub fn open(address: &str, password: Option<&str>) -> io::Result<Self> {
        let mut last = io::Error::other(format!("{address}: no such host"));
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                    let input = BufReader::with_capacity(256 << 10, stream);
                    let mut connection = Self { input, output: Vec::new(), waiting: 0 };
                    if let Some(password) = password {
                        connection.call(&[b"AUTH", password.as_bytes()])?;
                    }
                    return Ok(connection);
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Adds a request to those that [`Connection::replies`] will send.
    pub fn queue(&mut self, words: &[&[u8]]) {
        encode(&mut self.output, words);
        self.waiting += 1;
    }

    /// Bytes queued and not sent.
    pub fn queued_bytes(&self) -> usize {
        self.output.len()
    }

    /// Sends what was queued and reads its replies in order.
    pub fn replies(&mut self) -> io::Result<Vec<Reply>> {
        self.input.get_mut().write_all(&self.output)?;
        self.output.clear();
        let waiting = std::mem::take(&mut self.waiting);
        (0..waiting).map(|_| read_reply(&mut self.input, 0)).collect()
    }

    /// One request, one reply; an error reply is an error.
    pub fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.queue(words);
        match self.replies()?.pop() {
            Some(Reply::Error(what)) => Err(io::Error::other(what)),
            Some(reply) => Ok(reply),
            None => Err(io::Error::other("no reply")),
        }
    }
}

/// Appends one request.
pub fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed reply: {what}"))
}

fn read_line(input: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    input.take(64 << 10).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the server closed the connection",
        ));
    }
    let text = line.strip_suffix(b"\r\n").ok_or_else(|| malformed("a line without its end"))?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn read_reply(input: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    let line = read_line(input)?;
    let mut chars = line.chars();
    let kind = chars.next().ok_or_else(|| malformed("an empty line"))?;
    let rest = chars.as_str();
    let number = || rest.parse::<i64>().map_err(|_| malformed(&line));
    match kind {
        '+' => Ok(Reply::Status(rest.to_string())),
        '-' => Ok(Reply::Error(rest.to_string())),
        ':' => Ok(Reply::Integer(number()?)),
        '$' => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Bulk(None)),
            Ok(len) if len > BULK_BYTES_MAX => Err(malformed("a length beyond reason")),
            Ok(len) => {
                let mut bytes = Vec::new();
                let got = input.take(len as u64 + 2).read_to_end(&mut bytes)?;
                if got < len + 2 || !bytes.ends_with(b"\r\n") {
                    return Err(malformed("a value without its end"));
                }
                bytes.truncate(len);
                Ok(Reply::Bulk(Some(bytes)))
            }
        },
        '*' if depth < DEPTH_MAX => {
            let len = usize::try_from(number()?).unwrap_or(0);
            (0..len)
                .map(|_| read_reply(input, depth + 1))
                .collect::<io::Result<_>>()
                .map(Reply::Array)
        }
        _ => Err(malformed(&line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> io::Result<Reply> {
        read_reply(&mut io::Cursor::new(text), 0)
    }

    #[test]
    fn replies_are_read_and_nonsense_is_refused() {
        assert_eq!(read(b"+OK\r\n").expect("valid"), Reply::Status("OK".into()));
        assert_eq!(read(b"$-1\r\n").expect("valid"), Reply::Bulk(None));
        assert_eq!(
            read(b"*2\r\n$1\r\n0\r\n*1\r\n$4\r\na\r\nb\r\n").expect("valid"),
            Reply::Array(vec![
                Reply::Bulk(Some(b"0".to_vec())),
                Reply::Array(vec![Reply::Bulk(Some(b"a\r\nb".to_vec()))]),
            ])
        );
        for bad in
            ["", "\r\n", "+OK", "?\r\n", ":x\r\n", "$3\r\nab", "$9999999999999\r\n", "$1\r\nabc"]
        {
            assert!(read(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(read("*1\r\n".repeat(20).as_bytes()).is_err());
    }

    #[test]
    fn requests_are_binary_safe() {
        let mut out = Vec::new();
        encode(&mut out, &[b"SET", b"a\r\n", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$0\r\n\r\n");
    }
}
