//! Frames that are not the protocol: the exact reply, and whether the connection goes on. Each
//! row is also sent in two parts, split at every position.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, TestServer};
use std::net::{Shutdown, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The connection is closed after the reply.
    Close,
    /// The connection goes on: a PING after the frame is answered.
    Keep,
    /// The frame is not complete: nothing is said, and the connection waits.
    Wait,
}
use Then::{Close, Keep, Wait};

const COUNT: &str = "-ERR Protocol error: invalid multibulk length\r\n";
const BULK: &str = "-ERR Protocol error: invalid bulk length\r\n";
const END: &str = "-ERR Protocol error: expected CRLF after an argument\r\n";
const QUOTES: &str = "-ERR Protocol error: unbalanced quotes in request\r\n";

#[rustfmt::skip]
const FRAMES: &[(&str, &str, Then)] = &[
    // Counts.
    ("*\r\n", COUNT, Close),
    ("*x\r\n", COUNT, Close),
    ("*-\r\n", COUNT, Close),
    ("*--1\r\n", COUNT, Close),
    ("*+1\r\n", COUNT, Close),
    ("* 1\r\n", COUNT, Close),
    ("*1 \r\n", COUNT, Close),
    ("*01\r\n", COUNT, Close),
    ("*-0\r\n", COUNT, Close),
    ("*1.0\r\n", COUNT, Close),
    ("*1\n", COUNT, Close),
    ("*1\rx", COUNT, Close),
    ("*1\r\r\n", COUNT, Close),
    ("*\n", COUNT, Close),
    ("*1048577\r\n", COUNT, Close),
    ("*2147483647\r\n", COUNT, Close),
    ("*2147483648\r\n", COUNT, Close),
    ("*4294967296\r\n", COUNT, Close),
    ("*999999999999999999\r\n", COUNT, Close),
    ("*9223372036854775807\r\n", COUNT, Close),
    ("*9223372036854775808\r\n", COUNT, Close),
    ("*18446744073709551615\r\n", COUNT, Close),
    ("*99999999999999999999999999\r\n", COUNT, Close),
    ("*1a\r\n", COUNT, Close),
    ("*\x00\r\n", COUNT, Close),
    ("*$\r\n", COUNT, Close),
    ("**1\r\n", COUNT, Close),
    ("*0\r\n", "", Keep),
    ("*-1\r\n", "", Keep),
    ("*-10\r\n", "", Keep),
    ("*0\r\n*0\r\n", "", Keep),
    ("*0\r\n*x\r\n", COUNT, Close),
    // What stands where an argument should.
    ("*1\r\n*", "-ERR Protocol error: expected '$', got '*'\r\n", Close),
    ("*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n", Close),
    ("*1\r\n+PING\r\n", "-ERR Protocol error: expected '$', got '+'\r\n", Close),
    ("*1\r\nPING\r\n", "-ERR Protocol error: expected '$', got 'P'\r\n", Close),
    ("*1\r\n\r\n", "-ERR Protocol error: expected '$', got ' '\r\n", Close),
    ("*1\r\n\n", "-ERR Protocol error: expected '$', got ' '\r\n", Close),
    ("*1\r\n ", "-ERR Protocol error: expected '$', got ' '\r\n", Close),
    ("*1\r\n%1\r\n", "-ERR Protocol error: expected '$', got '%'\r\n", Close),
    ("*1\r\n_\r\n", "-ERR Protocol error: expected '$', got '_'\r\n", Close),
    ("*1\r\n=4\r\n", "-ERR Protocol error: expected '$', got '='\r\n", Close),
    ("*2\r\n$4\r\nPING\r\n*", "-ERR Protocol error: expected '$', got '*'\r\n", Close),
    ("*2\r\n$4\r\nPING\r\nx", "-ERR Protocol error: expected '$', got 'x'\r\n", Close),
    // Lengths.
    ("*1\r\n$\r\n", BULK, Close),
    ("*1\r\n$x\r\n", BULK, Close),
    ("*1\r\n$-1\r\n", BULK, Close),
    ("*1\r\n$-\r\n", BULK, Close),
    ("*1\r\n$+4\r\n", BULK, Close),
    ("*1\r\n$ 4\r\n", BULK, Close),
    ("*1\r\n$4 \r\n", BULK, Close),
    ("*1\r\n$04\r\n", BULK, Close),
    ("*1\r\n$-0\r\n", BULK, Close),
    ("*1\r\n$4.\r\n", BULK, Close),
    ("*1\r\n$4\n", BULK, Close),
    ("*1\r\n$4\rx", BULK, Close),
    ("*1\r\n$4\r\r", BULK, Close),
    ("*1\r\n$$4\r\n", BULK, Close),
    ("*1\r\n$4294967296\r\n", BULK, Close),
    ("*1\r\n$536870913\r\n", BULK, Close),
    ("*1\r\n$2147483648\r\n", BULK, Close),
    ("*1\r\n$536870913\r\n", BULK, Close),
    ("*1\r\n$9223372036854775807\r\n", BULK, Close),
    ("*1\r\n$9223372036854775808\r\n", BULK, Close),
    ("*1\r\n$18446744073709551616\r\n", BULK, Close),
    ("*1\r\n$99999999999999999999999\r\n", BULK, Close),
    ("*1\r\n$-9223372036854775808\r\n", BULK, Close),
    ("*1\r\n$4a\r\n", BULK, Close),
    ("*1\r\n$\x00\r\n", BULK, Close),
    ("*2\r\n$3\r\nGET\r\n$-1\r\n", BULK, Close),
    ("*2\r\n$3\r\nGET\r\n$x\r\n", BULK, Close),
    ("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$-5\r\n", BULK, Close),
    // Ends of arguments.
    ("*1\r\n$4\r\nPINGx", END, Close),
    ("*1\r\n$4\r\nPING\n\n", END, Close),
    ("*1\r\n$4\r\nPING\rx", END, Close),
    ("*1\r\n$4\r\nPING\r\r", END, Close),
    ("*1\r\n$3\r\nPING\r\n", END, Close),
    ("*1\r\n$0\r\nx", END, Close),
    ("*1\r\n$5\r\nPING\r\n\r", END, Close),
    ("*2\r\n$3\r\nGET\r\n$1\r\nab\r\n", END, Close),
    ("*2\r\n$3\r\nGET\r\n$1\r\na\x00\x00", END, Close),
    ("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nabc\r\n", END, Close),
    // Inline requests.
    ("\r\n", "", Keep),
    ("\n", "", Keep),
    ("   \r\n", "", Keep),
    ("\t\r\n", "", Keep),
    ("\r\n\r\n\r\n", "", Keep),
    ("PING\n", "+PONG\r\n", Keep),
    ("  PING  \r\n", "+PONG\r\n", Keep),
    ("\"PING\"\r\n", "+PONG\r\n", Keep),
    ("'PING'\r\n", "+PONG\r\n", Keep),
    ("ECHO \"a b\"\r\n", "$3\r\na b\r\n", Keep),
    ("ECHO \"\\x41\\x42\"\r\n", "$2\r\nAB\r\n", Keep),
    ("ECHO \"\\n\"\r\n", "$1\r\n\n\r\n", Keep),
    ("ECHO ''\r\n", "$0\r\n\r\n", Keep),
    ("ECHO \"a\r\n", QUOTES, Close),
    ("ECHO 'a\r\n", QUOTES, Close),
    ("ECHO \"a\"b\r\n", QUOTES, Close),
    ("ECHO 'a'b\r\n", QUOTES, Close),
    ("ECHO \"a\\\r\n", QUOTES, Close),
    ("\"\r\n", QUOTES, Close),
    ("$4\r\n", "-ERR unknown command '$4', with args beginning with: \r\n", Keep),
    ("+OK\r\n", "-ERR unknown command '+OK', with args beginning with: \r\n", Keep),
    (":1\r\n", "-ERR unknown command ':1', with args beginning with: \r\n", Keep),
    ("-ERR\r\n", "-ERR unknown command '-ERR', with args beginning with: \r\n", Keep),
    ("{}\r\n", "-ERR unknown command '{}', with args beginning with: \r\n", Keep),
    ("GET\r\n", "-ERR wrong number of arguments for 'get' command\r\n", Keep),
    // Requests that are well formed and wrong.
    ("*1\r\n$0\r\n\r\n", "-ERR unknown command '', with args beginning with: \r\n", Keep),
    ("*1\r\n$3\r\nGET\r\n", "-ERR wrong number of arguments for 'get' command\r\n", Keep),
    ("*2\r\n$3\r\nFOO\r\n$2\r\n\r\n\r\n", "-ERR unknown command 'FOO', with args beginning with: '  ' \r\n", Keep),
    ("*1\r\n$7\r\nPI\r\nNG!\r\n", "-ERR unknown command 'PI  NG!', with args beginning with: \r\n", Keep),
    // Good requests before the bad one are answered.
    ("PING\r\n*x\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n", Close),
    ("*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$x\r\n", "$-1\r\n-ERR Protocol error: invalid bulk length\r\n", Close),
    ("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPINGPING", "+PONG\r\n-ERR Protocol error: expected CRLF after an argument\r\n", Close),
    // Somebody's browser.
    ("POST / HTTP/1.1\r\n", "", Close),
    ("GET / HTTP/1.1\r\nHost: x\r\n", "-ERR wrong number of arguments for 'get' command\r\n", Close),
    // Not complete.
    ("*", "", Wait),
    ("*1", "", Wait),
    ("*1\r", "", Wait),
    ("*1\r\n", "", Wait),
    ("*1\r\n$", "", Wait),
    ("*1\r\n$4\r\nPIN", "", Wait),
    ("*1\r\n$4\r\nPING", "", Wait),
    ("*1\r\n$4\r\nPING\r", "", Wait),
    ("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$67108864\r\nabc", "", Wait),
    ("PING", "", Wait),
    ("PING\r", "", Wait),
    ("\"unclosed", "", Wait),
];

fn check(address: SocketAddr, row: (&str, &str, Then), cut: Option<usize>) {
    let (frame, expected, then) = row;
    let mut client = Client::connect(address);
    match cut {
        None => client.send(frame.as_bytes()),
        Some(cut) => {
            client.send(&frame.as_bytes()[..cut]);
            std::thread::sleep(std::time::Duration::from_micros(500));
            // An error in the first part may have closed the connection already.
            let _ = std::io::Write::write_all(&mut client.stream, &frame.as_bytes()[cut..]);
        }
    }
    let expected = match then {
        Keep => {
            client.send(b"ECHO still-here\r\n");
            format!("{expected}$10\r\nstill-here\r\n")
        }
        Close | Wait => expected.to_string(),
    };
    if then != Close {
        client.stream.shutdown(Shutdown::Write).unwrap();
    }
    let actual = client.rest();
    assert_eq!(
        actual.escape_ascii().to_string(),
        expected.as_bytes().escape_ascii().to_string(),
        "{frame:?} cut at {cut:?}"
    );
}

#[test]
fn bad_frames() {
    assert!(FRAMES.len() >= 100, "{}", FRAMES.len());
    let server = TestServer::start();
    for row in FRAMES {
        check(server.address(), *row, None);
    }
    // Nothing of that did any harm.
    assert_eq!(server.client().line("PING"), "PONG");
}

#[test]
fn bad_frames_cut_anywhere() {
    let server = TestServer::start();
    let address = server.address();
    std::thread::scope(|scope| {
        for share in 0..4 {
            scope.spawn(move || {
                for row in FRAMES.iter().skip(share).step_by(4) {
                    (1..row.0.len()).for_each(|cut| check(address, *row, Some(cut)));
                }
            });
        }
    });
    assert_eq!(server.client().line("PING"), "PONG");
}

/// A request that is too long for a line, in one piece and in many.
#[test]
fn endless_lines_and_headers() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send(&vec![b'a'; (64 << 10) + 2]);
    assert_eq!(client.rest(), b"-ERR Protocol error: too big inline request\r\n");
    let mut client = server.client();
    client.send(b"*1\r\n$");
    client.send(&[b'1'; 100]);
    assert_eq!(client.rest(), BULK.as_bytes());
}

/// Random bytes, and random damage to good requests: an answer or a closed connection, and the
/// server lives.
#[test]
fn noise_does_no_harm() {
    let server = TestServer::start();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..400 {
        let mut bytes = match round % 2 {
            0 => crate::common::request(&["SET", "key", "some value"]).repeat(3),
            _ => (0..200).map(|_| random() as u8).collect(),
        };
        for _ in 0..1 + random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        let mut client = server.client();
        let _ = std::io::Write::write_all(&mut client.stream, &bytes);
        let _ = client.stream.shutdown(Shutdown::Write);
        client.rest();
    }
    assert_eq!(server.client().line("PING"), "PONG");
}
