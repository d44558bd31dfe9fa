//! Scripts: lines of `request => reply`.
//!
//! A request is words, `"quoted \r\n \x00"` where need be. A reply is in the notation of
//! [`Reply`](super::Reply); `*` at its end stands for anything, `:5..9` for an integer between
//! the two. Every line is also sent to the real redis-server, if there is one, which has to reply
//! the same; `!>` instead of `=>` marks a line in which we differ on purpose. Lines that start
//! with `#` are comments. `@2 ` before a request sends it over a second connection.

use super::{Client, RealRedis, TestServer};
use std::net::TcpStream;

/// Splits a line into words.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start().as_bytes();
    while !rest.is_empty() {
        let mut word = Vec::new();
        if rest[0] == b'"' {
            let mut i = 1;
            while rest[i] != b'"' {
                if rest[i] == b'\\' {
                    i += 1;
                    word.push(match rest[i] {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b'x' => {
                            i += 2;
                            u8::from_str_radix(std::str::from_utf8(&rest[i - 1..=i]).unwrap(), 16)
                                .unwrap()
                        }
                        other => other,
                    });
                } else {
                    word.push(rest[i]);
                }
                i += 1;
            }
            rest = &rest[i + 1..];
        } else {
            let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
            word.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    words
}

fn matches(expected: &str, actual: &str) -> bool {
    let actual = actual.trim_end();
    let range = || {
        let (low, high) = expected.strip_prefix(':')?.split_once("..")?;
        let value: i64 = actual.strip_prefix(':')?.parse().ok()?;
        Some(low.parse::<i64>().ok()? <= value && value <= high.parse().ok()?)
    };
    match expected.strip_suffix('*') {
        Some(prefix) => actual.starts_with(prefix),
        None => expected == actual || range().unwrap_or(false),
    }
}

struct Line<'a> {
    number: usize,
    connection: usize,
    request: &'a str,
    expected: &'a str,
    same_as_redis: bool,
}

fn parse(script: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for (number, line) in script.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let same_as_redis = line.contains(" => ");
        let separator = if same_as_redis { " => " } else { " !> " };
        let (request, expected) =
            line.split_once(separator).unwrap_or_else(|| panic!("line {number}: {line}"));
        let (connection, request) = match request.strip_prefix("@2 ") {
            Some(request) => (1, request),
            None => (0, request),
        };
        lines.push(Line {
            number: number + 1,
            connection,
            request: request.trim(),
            expected: expected.trim(),
            same_as_redis,
        });
    }
    lines
}

fn play(lines: &[Line<'_>], clients: &mut [Client<TcpStream>], ours: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in lines {
        let actual = clients[line.connection].line(line.request);
        if (ours || line.same_as_redis) && !matches(line.expected, &actual) {
            let who = if ours { "Terrace" } else { "redis-server" };
            wrong.push(format!(
                "line {}: {}\n   expected {}\n   {who} says {actual}",
                line.number, line.request, line.expected
            ));
        }
    }
    wrong
}

/// Runs `script` against a fresh server, and against redis-server if there is one.
pub fn run(script: &str) {
    let lines = parse(script);
    let server = TestServer::start();
    let mut wrong = play(&lines, &mut [server.client(), server.client()], true);
    if let Some(redis) = RealRedis::start() {
        let mut clients = [Client::connect(redis.address), Client::connect(redis.address)];
        wrong.extend(play(&lines, &mut clients, false));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
