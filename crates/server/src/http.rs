//! The metrics page and the health check, over as little HTTP as that takes.
//!
//! One thread answers one request after another; each has two seconds for its head and its reply
//! together, so a slow scraper delays the next one and nothing else.

use crate::metrics;
use crate::shared::Shared;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::net::{SocketFlags, accept_with};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Time for one request and its reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Serves HTTP until the server stops.
pub(crate) fn run(shared: &Shared, listener: &OwnedFd) {
    while !shared.stopping() {
        let mut polled = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(shared.metrics_waker.file(), PollFlags::IN),
        ];
        // An interrupted wait is a wait that ended early.
        let _ = poll(&mut polled, None);
        if let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC) {
            let mut stream = TcpStream::from(socket);
            // A scraper that cannot be answered comes again.
            let _ = answer(shared, &mut stream).and_then(|()| see_off(&mut stream));
        }
    }
}

/// Reads one request and replies to it.
fn answer(shared: &Shared, stream: &mut TcpStream) -> std::io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let Some(head) = read_head(stream, deadline)? else {
        return reply(stream, "400 Bad Request", "text/plain", "not an HTTP request\n");
    };
    let mut words = head.split_ascii_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    match (method, path) {
        ("GET" | "HEAD", "/metrics") if shared.loading.is_on() => {
            reply(stream, "503 Service Unavailable", "text/plain", "loading\n")
        }
        ("GET" | "HEAD", "/metrics") => {
            let text = metrics::render(shared);
            let body = if method == "GET" { text.as_str() } else { "" };
            reply(stream, "200 OK", "text/plain; version=0.0.4; charset=utf-8", body)
        }
        ("GET" | "HEAD", "/healthz") => match ill(shared) {
            Some(reason) => {
                reply(stream, "503 Service Unavailable", "text/plain", &(reason + "\n"))
            }
            None => reply(stream, "200 OK", "text/plain", "ok\n"),
        },
        ("GET" | "HEAD", _) => {
            reply(stream, "404 Not Found", "text/plain", "try /metrics or /healthz\n")
        }
        _ => reply(stream, "405 Method Not Allowed", "text/plain", "only GET\n"),
    }
}

/// What keeps the server from doing its whole job.
fn ill(shared: &Shared) -> Option<String> {
    match (shared.stopping(), shared.loading.is_on()) {
        (true, _) => Some("stopping".into()),
        (_, true) => Some("loading".into()),
        _ => shared.maps.stopped(),
    }
}

/// Closes our side and reads what the client still sends: closing on unread bytes would reset the
/// connection, and the reply with it.
fn see_off(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let rest = std::io::copy(&mut stream.take(HEAD_BYTES_MAX as u64 * 4), &mut std::io::sink());
    rest.map(|_| ())
}

/// The head of a request, up to the empty line; `None` if it is none, or too long.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if head.len() > HEAD_BYTES_MAX || left.is_zero() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Ok(None),
            n => head.extend_from_slice(&part[..n]),
        }
    }
    Ok(String::from_utf8(head).ok())
}

fn reply(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
