//! One client for every server: requests over many connections from one thread, pipelined, in the
//! Redis protocol or memcached's text protocol, so that servers that share no protocol share
//! everything else.
//!
//! The loop is closed, as `redis-benchmark`'s is: a connection sends a batch of `pipeline`
//! requests, waits for all replies and sends the next. Every request of a batch is given the time
//! from the start of its sending to the arrival of the batch's last reply. What this does not
//! measure is latency under a given arrival rate: a closed loop asks less while a server is slow.
//!
//! Every reply is parsed and checked: a miss, an error or a value of another length ends the run.

use hdrhistogram::Histogram;
use rustix::event::epoll;
use rustix::time::Timespec;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Redis's, version 2.
    Resp,
    /// memcached's text protocol.
    Memcached,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads of keys that are there.
    Get,
    /// Writes of keys that are there.
    Set,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub address: SocketAddr,
    pub protocol: Protocol,
    pub operation: Operation,
    pub connections: usize,
    pub pipeline: usize,
    /// Keys chosen uniformly; in order where `sequential`.
    pub keys: u64,
    pub sequential: bool,
    pub value_bytes: usize,
    pub duration: Duration,
    /// Ends after about so many requests, if that comes first.
    pub requests: u64,
}

/// What it found.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Outcome {
    pub requests: u64,
    pub seconds: f64,
    pub ops_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub max_us: f64,
}

const KEY_DIGITS: usize = 12;
const READ_BYTES: usize = 256 << 10;

/// Runs one measurement.
pub fn run(load: &Load) -> io::Result<Outcome> {
    let mut client = Client::connect(load)?;
    let start = Instant::now();
    let end = start + load.duration;
    let mut open = 0;
    for index in 0..client.connections.len() {
        client.send(index)?;
        open += 1;
    }
    let mut events: Vec<epoll::Event> = Vec::with_capacity(load.connections);
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    while open > 0 {
        events.clear();
        epoll::wait(&client.poll, rustix::buffer::spare_capacity(&mut events), Some(&patience))?;
        if events.is_empty() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no reply within 10 s"));
        }
        for event in &events {
            let index = event.data.u64() as usize;
            if client.connections[index].unsent() {
                client.flush(index)?;
            }
            if !client.receive(index)? {
                continue;
            }
            if Instant::now() >= end || client.sent >= load.requests {
                open -= 1;
            } else {
                client.send(index)?;
            }
        }
    }
    Ok(client.outcome(start.elapsed()))
}

struct Connection {
    stream: TcpStream,
    batch: Vec<u8>,
    batch_at: usize,
    input: Vec<u8>,
    input_len: usize,
    replies_due: usize,
    started: Instant,
}

impl Connection {
    fn unsent(&self) -> bool {
        self.batch_at < self.batch.len()
    }
}

struct Client<'l> {
    load: &'l Load,
    poll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    /// Where the digits of each key stand in a batch.
    key_at: Vec<usize>,
    replies: Replies,
    latencies_us: Histogram<u64>,
    sent: u64,
    received: u64,
    random: u64,
    next_key: u64,
}

impl<'l> Client<'l> {
    fn connect(load: &'l Load) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (batch, key_at) = batch(load);
        let mut connections = Vec::with_capacity(load.connections);
        for index in 0..load.connections {
            let stream = TcpStream::connect_timeout(&load.address, Duration::from_secs(5))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&poll, &stream, data, epoll::EventFlags::IN)?;
            connections.push(Connection {
                stream,
                batch: batch.clone(),
                batch_at: batch.len(),
                input: vec![0; READ_BYTES],
                input_len: 0,
                replies_due: 0,
                started: Instant::now(),
            });
        }
        let histogram = Histogram::new_with_bounds(1, 60_000_000, 3);
        Ok(Self {
            load,
            poll,
            connections,
            key_at,
            replies: Replies::of(load),
            latencies_us: histogram.map_err(io::Error::other)?,
            sent: 0,
            received: 0,
            random: 0x9E37_79B9_7F4A_7C15,
            next_key: 0,
        })
    }

    fn key(&mut self) -> u64 {
        if self.load.sequential {
            self.next_key += 1;
            return (self.next_key - 1) % self.load.keys;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % self.load.keys
    }

    /// Draws the keys of the next batch and sends it.
    fn send(&mut self, index: usize) -> io::Result<()> {
        for slot in 0..self.load.pipeline {
            let mut key = self.key();
            let at = self.key_at[slot];
            for digit in self.connections[index].batch[at..at + KEY_DIGITS].iter_mut().rev() {
                *digit = b'0' + (key % 10) as u8;
                key /= 10;
            }
        }
        let connection = &mut self.connections[index];
        connection.batch_at = 0;
        connection.replies_due = self.load.pipeline;
        connection.started = Instant::now();
        self.sent += self.load.pipeline as u64;
        self.flush(index)
    }

    fn flush(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        let full = loop {
            if !connection.unsent() {
                break false;
            }
            match connection.stream.write(&connection.batch[connection.batch_at..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => connection.batch_at += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        };
        if full || connection.batch_at < connection.batch.len() {
            return self.watch(index, epoll::EventFlags::IN | epoll::EventFlags::OUT);
        }
        Ok(())
    }

    fn watch(&self, index: usize, flags: epoll::EventFlags) -> io::Result<()> {
        let data = epoll::EventData::new_u64(index as u64);
        Ok(epoll::modify(&self.poll, &self.connections[index].stream, data, flags)?)
    }

    /// Reads what is there. True: the batch is answered.
    fn receive(&mut self, index: usize) -> io::Result<bool> {
        let connection = &mut self.connections[index];
        loop {
            let space = &mut connection.input[connection.input_len..];
            match connection.stream.read(space) {
                Ok(0) => {
                    let what = "the server closed a connection";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
                }
                Ok(n) => {
                    let short = n < space.len();
                    connection.input_len += n;
                    let input = &connection.input[..connection.input_len];
                    let (used, done) = self.replies.count(input, connection.replies_due)?;
                    connection.input.copy_within(used..connection.input_len, 0);
                    connection.input_len -= used;
                    connection.replies_due -= done;
                    self.received += done as u64;
                    if short || connection.replies_due == 0 {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if connection.replies_due > 0 {
            return Ok(false);
        }
        let us = connection.started.elapsed().as_micros().clamp(1, 60_000_000) as u64;
        let requests = self.load.pipeline as u64;
        self.latencies_us.record_n(us, requests).map_err(io::Error::other)?;
        self.watch(index, epoll::EventFlags::IN)?;
        Ok(true)
    }

    fn outcome(&self, elapsed: Duration) -> Outcome {
        let seconds = elapsed.as_secs_f64();
        let at = |q| self.latencies_us.value_at_quantile(q) as f64;
        Outcome {
            requests: self.received,
            seconds,
            ops_per_s: self.received as f64 / seconds.max(1e-9),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: self.latencies_us.max() as f64,
        }
    }
}

/// The bytes of one batch with all keys 0, and where each key's digits stand.
fn batch(load: &Load) -> (Vec<u8>, Vec<usize>) {
    let key = format!("key:{}", "0".repeat(KEY_DIGITS));
    let value = "x".repeat(load.value_bytes);
    let (key_len, value_len) = (key.len(), value.len());
    let request = match (load.protocol, load.operation) {
        (Protocol::Resp, Operation::Get) => format!("*2\r\n$3\r\nGET\r\n${key_len}\r\n{key}\r\n"),
        (Protocol::Resp, Operation::Set) => {
            format!("*3\r\n$3\r\nSET\r\n${key_len}\r\n{key}\r\n${value_len}\r\n{value}\r\n")
        }
        (Protocol::Memcached, Operation::Get) => format!("get {key}\r\n"),
        (Protocol::Memcached, Operation::Set) => {
            format!("set {key} 0 0 {value_len}\r\n{value}\r\n")
        }
    };
    let digits = request.find(&key).unwrap_or(0) + "key:".len();
    let at = (0..load.pipeline).map(|slot| slot * request.len() + digits).collect();
    (request.repeat(load.pipeline).into_bytes(), at)
}

/// What a right reply looks like. Replies differ in nothing but the digits of a key.
struct Replies {
    head: Vec<u8>,
    /// Digits of the key between head and tail (memcached names it again).
    skip: usize,
    tail: Vec<u8>,
}

impl Replies {
    fn of(load: &Load) -> Self {
        let value = "x".repeat(load.value_bytes);
        let len = load.value_bytes;
        let (head, skip, tail) = match (load.protocol, load.operation) {
            (Protocol::Resp, Operation::Get) => {
                (format!("${len}\r\n{value}\r\n"), 0, String::new())
            }
            (Protocol::Resp, Operation::Set) => ("+OK\r\n".into(), 0, String::new()),
            (Protocol::Memcached, Operation::Get) => {
                ("VALUE key:".into(), KEY_DIGITS, format!(" 0 {len}\r\n{value}\r\nEND\r\n"))
            }
            (Protocol::Memcached, Operation::Set) => ("STORED\r\n".into(), 0, String::new()),
        };
        Self { head: head.into_bytes(), skip, tail: tail.into_bytes() }
    }

    /// Whole replies at the start of `input`: the bytes they take and their number, `most` at the
    /// most. Anything but a right reply is an error.
    fn count(&self, input: &[u8], most: usize) -> io::Result<(usize, usize)> {
        let len = self.head.len() + self.skip + self.tail.len();
        let mut at = 0;
        let mut done = 0;
        while done < most && input.len() - at >= len {
            let reply = &input[at..at + len];
            let (head, rest) = reply.split_at(self.head.len());
            if head != self.head || rest[self.skip..] != self.tail {
                return Err(self.wrong(&input[at..]));
            }
            at += len;
            done += 1;
        }
        let rest = &input[at..];
        let known = rest.len().min(self.head.len());
        if done < most && rest[..known] != self.head[..known] {
            return Err(self.wrong(rest));
        }
        Ok((at, done))
    }

    fn wrong(&self, input: &[u8]) -> io::Error {
        let shown = String::from_utf8_lossy(&input[..input.len().min(80)]).into_owned();
        io::Error::new(io::ErrorKind::InvalidData, format!("unexpected reply {shown:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(protocol: Protocol, operation: Operation) -> Load {
        Load {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            protocol,
            operation,
            connections: 3,
            pipeline: 4,
            keys: 10,
            sequential: false,
            value_bytes: 5,
            duration: Duration::from_millis(50),
            requests: 1000,
        }
    }

    #[test]
    fn replies_are_counted_whole_and_wrong_ones_are_refused() {
        let get = Replies::of(&load(Protocol::Memcached, Operation::Get));
        let one = b"VALUE key:000000000007 0 5\r\nxxxxx\r\nEND\r\n";
        assert_eq!(get.count(one, 9).expect("right"), (one.len(), 1));
        assert_eq!(get.count(&one[..20], 9).expect("a part"), (0, 0));
        assert_eq!(get.count(&one.repeat(3), 2).expect("right"), (one.len() * 2, 2));
        assert!(get.count(b"END\r\n", 1).is_err());
        let resp = Replies::of(&load(Protocol::Resp, Operation::Get));
        assert_eq!(resp.count(b"$5\r\nxxxxx\r\n$5\r\nxx", 9).expect("right"), (11, 1));
        for wrong in [&b"$-1\r\n"[..], b"-ERR no\r\n", b"$5\r\nxxxxy\r\n"] {
            assert!(resp.count(wrong, 1).is_err());
        }
    }

    #[test]
    fn a_server_that_answers_is_measured() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            for stream in listener.incoming().take(3) {
                std::thread::spawn(move || answer(stream.expect("a client")));
            }
        });
        let load = Load { address, ..load(Protocol::Resp, Operation::Set) };
        let outcome = run(&load).expect("measured");
        assert!(outcome.requests >= 12 && outcome.requests.is_multiple_of(4), "{outcome:?}");
        assert!(outcome.p50_us <= outcome.p99_us && outcome.p99_us <= outcome.max_us);
    }

    /// One `+OK` for every request, wherever reads split them.
    fn answer(mut stream: TcpStream) {
        let request = batch(&load(Protocol::Resp, Operation::Set)).0.len() / 4;
        let (mut buffer, mut got, mut answered) = ([0; 4096], 0, 0);
        while let Ok(n) = stream.read(&mut buffer) {
            if n == 0 {
                return;
            }
            got += n;
            while (answered + 1) * request <= got {
                answered += 1;
                if stream.write_all(b"+OK\r\n").is_err() {
                    return;
                }
            }
        }
    }
}
