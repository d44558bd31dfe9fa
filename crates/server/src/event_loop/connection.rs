//! A connection as its loop keeps it: socket, input, parser, and where it is in its life.

use super::owed::Owed;
use crate::clients::{ClientInfo, NO_TRANSACTION};
use crate::commands::Client;
use crate::resp::{Output, Parser, shrink};
use crate::tls;
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A connection the acceptor hands over.
pub(crate) struct Incoming {
    pub(crate) socket: OwnedFd,
    pub(crate) tls: Option<tls::Session>,
    pub(crate) info: Arc<ClientInfo>,
}

/// Bytes received and not yet executed. Most connections have none between turns: a request
/// that came whole is executed from the loop's own read buffer.
#[derive(Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
}

/// Input buffers above this size are not kept when they run empty.
const INPUT_BYTES_KEPT: usize = 16 << 10;

impl Input {
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    pub(super) fn consume(&mut self, n: usize) {
        self.start += n;
        if self.is_empty() {
            match self.bytes.capacity() > INPUT_BYTES_KEPT {
                true => self.bytes = Vec::new(),
                false => self.bytes.clear(),
            }
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
            shrink(&mut self.bytes);
        }
    }
    /// The buffer, with room for `more` bytes behind what is there.
    pub(super) fn room(&mut self, more: usize) -> &mut Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.reserve(more);
        &mut self.bytes
    }
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests are read and executed.
    Open,
    /// The client has closed its side, or was told to go: what is owed is sent, nothing read.
    Closing,
    /// All is sent and our side is closed. The client's last bytes are read and dropped, for a
    /// little while: closing on unread bytes would reset the connection and could destroy the
    /// last reply, the one that says why, before the client has seen it.
    Lingering { until_ms: u64, bytes_left: usize },
}

/// A connection.
pub(super) struct Connection {
    socket: OwnedFd,
    tls: Option<tls::Session>,
    pub(super) client: Client,
    pub(super) parser: Parser,
    pub(super) input: Input,
    pub(super) phase: Phase,
    /// Bytes known to be missing from the request under way.
    pub(super) missing: usize,
    /// Keys of GETs that were executed, and are answered once their values were read from the disk.
    pub(super) owed: Owed,
    /// What epoll watches for.
    pub(super) interest: EventFlags,
    /// In the list of connections to write to in this turn.
    pub(super) to_write: bool,
    /// In the list of connections with requests left over for the next turn.
    pub(super) in_backlog: bool,
    /// Held back by a pause, or by what it waits for.
    pub(super) held: bool,
    /// When bytes last moved, in milliseconds since the server started.
    pub(super) moved_ms: u64,
    /// Memory of the buffers, as last counted into the loop's total.
    pub(super) counted_bytes: usize,
}

/// What came of a read.
pub(super) enum Received {
    /// This many bytes, and whether there may be more at once.
    Bytes(usize, bool),
    Nothing,
    /// The client closed its side.
    End,
    /// The connection is broken.
    Broken,
}

impl Received {
    fn of(result: Result<usize, Errno>, room: usize) -> Received {
        match result {
            Ok(0) => Received::End,
            Ok(n) => Received::Bytes(n, n == room),
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::Broken,
        }
    }
}

impl Connection {
    pub(super) fn new(incoming: Incoming, authenticated: bool) -> Connection {
        Connection {
            socket: incoming.socket,
            tls: incoming.tls,
            moved_ms: incoming.info.connected_ms,
            client: Client::new(incoming.info, authenticated),
            parser: Parser::default(),
            input: Input::default(),
            phase: Phase::Open,
            missing: 0,
            interest: EventFlags::empty(),
            to_write: false,
            in_backlog: false,
            owed: Owed::default(),
            held: false,
            counted_bytes: 0,
        }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
    pub(super) fn handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(tls::Session::handshaking)
    }
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(tls::Session::wants_write)
    }

    /// Reads what fits into `bytes`. Not for TLS.
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> Received {
        let room = bytes.len();
        Received::of(rustix::io::read(&self.socket, bytes), room)
    }

    /// Reads up to about `most` bytes behind the input already there.
    pub(super) fn receive_more(&mut self, most: usize) -> Received {
        let Some(tls) = &mut self.tls else {
            let buffer = self.input.room(most);
            let before = buffer.len();
            let room = buffer.capacity() - before;
            let result = rustix::io::read(&self.socket, rustix::buffer::spare_capacity(buffer));
            return Received::of(result, room);
        };
        match tls.read(&self.socket, self.input.room(most), most) {
            Ok((0, _)) => Received::End,
            Ok((n, more)) => Received::Bytes(n, more),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
            Err(_) => Received::Broken,
        }
    }

    /// Sends as much of `out` as the socket takes. `Ok(true)`: all of it.
    pub(super) fn send(&mut self, out: &mut Output) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            return tls.send(&self.socket, out);
        }
        while !out.is_empty() {
            match rustix::net::send(&self.socket, out.unsent(), SendFlags::NOSIGNAL) {
                Ok(n) => {
                    let all = n == out.len();
                    out.advance(n);
                    // A short write means that the socket is full: asking again would only say so.
                    return Ok(all);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Closes our side; the client reads what was sent and then the end.
    pub(super) fn close_our_side(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&self.socket);
        }
        // A peer that is gone already needs no goodbye.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }

    /// A pause holds it back, or what its request waits for.
    pub(super) fn hold(&mut self) {
        self.held = true;
        self.client.info.paused.store(!self.client.waits(), Relaxed);
    }

    /// It may go on; whether it was held.
    pub(super) fn release(&mut self) -> bool {
        self.client.info.paused.store(false, Relaxed);
        std::mem::take(&mut self.held)
    }

    /// What epoll has to watch for, given whether replies wait to be sent.
    pub(super) fn wanted(&self, unsent: bool) -> EventFlags {
        let out = if unsent || self.wants_write() { EventFlags::OUT } else { EventFlags::empty() };
        match self.phase {
            Phase::Open if self.client.waits() => out | EventFlags::RDHUP,
            Phase::Open if self.held => out,
            Phase::Open => EventFlags::IN | out,
            Phase::Closing => out,
            Phase::Lingering { .. } => EventFlags::IN,
        }
    }

    /// Memory of the buffers.
    pub(super) fn memory_bytes(&self, out: &Output) -> usize {
        self.input.memory_bytes()
            + out.memory_bytes()
            + self.parser.memory_bytes()
            + self.client.memory_bytes()
            + self.owed.memory_bytes()
    }

    /// Tells the other loops how things stand.
    pub(super) fn publish(&self, out: &Output, memory_bytes: usize) {
        let info = &self.client.info;
        info.seen_ms.store(self.moved_ms, Relaxed);
        info.database.store(self.client.database as u32, Relaxed);
        let queued =
            self.client.transaction.as_ref().map_or(NO_TRANSACTION, |queue| queue.len() as u32);
        info.queued.store(queued, Relaxed);
        info.watched.store(self.client.watched.len() as u32, Relaxed);
        info.input_bytes.store(self.input.len() as u64, Relaxed);
        info.output_bytes.store(out.len() as u64, Relaxed);
        info.memory_bytes.store(memory_bytes as u64, Relaxed);
        info.command.store(self.client.last_command, Relaxed);
        info.resp3.store(out.resp3, Relaxed);
    }
}
