//! From bytes to executed commands.
//!
//! The two commands that make up nearly all of a key-value server's load, plain `GET key` and
//! `SET key value`, are recognised right behind the parser and take a short way: GETs gather in
//! a batch, SETs in a run. Everything else, and these two inside a
//! transaction, before `AUTH` and so on, takes the long way through the table of commands.

use super::EventLoop;
use super::batch::GetBatch;
use super::connection::{Connection, Phase};
use super::sets::SetRun;
use crate::commands::{self, Client, Close, Executor, Went};
use crate::gate::Turn;
use crate::resp::{Args, Output, Parser, ProtocolError, Step};
use std::ops::Range;

/// Bytes of requests executed for a connection in one turn (one request may be larger).
const TURN_INPUT_BYTES: usize = 256 << 10;
/// Bytes of replies after which a connection's next request waits for the next turn.
const TURN_OUTPUT_BYTES: usize = 1 << 20;

/// Why the execution of a connection's input came to a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// No complete request is left; at least so many bytes are missing from the next.
    InputEnds { missing: usize },
    /// The connection had its share of this turn.
    Share,
    /// A pause holds the next command back, or what it waits for.
    Held,
    /// The connection is to be closed after its replies.
    Close,
}

/// The execution of one connection's input.
struct Run<'r, 'g> {
    executor: Executor<'r, 'g>,
    batch: &'r mut GetBatch,
    outputs: &'r mut [Output],
    index: usize,
    parser: &'r mut Parser,
    client: &'r mut Client,
    /// Where the input lies, and the keys of the batch with it.
    buffer: &'r [u8],
    sets: &'r mut SetRun,
    /// Where the first SET begins that waits for memory or the disk.
    held_at: Option<usize>,
}

/// What the short way can take.
enum Shape {
    Get,
    Set,
    Other,
}

#[inline]
fn shape(args: &Args<'_>) -> Shape {
    if args.len() > 3 || args.len() < 2 {
        return Shape::Other;
    }
    let &[a, b, c] = args.at(0) else { return Shape::Other };
    match ([a | 0x20, b | 0x20, c | 0x20], args.len()) {
        ([b'g', b'e', b't'], 2) => Shape::Get,
        ([b's', b'e', b't'], 3) => Shape::Set,
        _ => Shape::Other,
    }
}

impl Run<'_, '_> {
    /// Executes the requests in `range` of the buffer: how far it came, and why no further.
    fn all(&mut self, range: Range<usize>) -> (usize, Stop) {
        let mut at = range.start;
        loop {
            if at - range.start > TURN_INPUT_BYTES
                || self.outputs[self.index].turn_bytes() > TURN_OUTPUT_BYTES
            {
                return (at, Stop::Share);
            }
            let buffer = self.buffer;
            let rest = &buffer[at..range.end];
            let limits = match self.client.authenticated {
                true => &self.executor.core.limits.authenticated,
                false => &self.executor.core.limits.unauthenticated,
            };
            match self.parser.next(rest, limits) {
                Step::Request(len) => {
                    let went = self.request(rest, at);
                    if went == Went::Held {
                        return (self.held_at.unwrap_or(at), Stop::Held);
                    }
                    at += len;
                    if self.client.close != Close::No {
                        return (range.end, Stop::Close);
                    }
                    if went == Went::Long {
                        return (at, Stop::Share);
                    }
                }
                Step::Partial(missing) => return (at, Stop::InputEnds { missing }),
                Step::Bad(error) => {
                    if !self.flush() {
                        return (self.held_at.unwrap_or(at), Stop::Held);
                    }
                    self.refuse(error);
                    return (range.end, Stop::Close);
                }
            }
        }
    }

    /// Executes what was gathered: how far it came in the end, and why no further.
    fn end(&mut self, (at, stop): (usize, Stop)) -> (usize, Stop) {
        self.flush_sets();
        match self.held_at {
            Some(held) => {
                self.parser.restart();
                (held, Stop::Held)
            }
            None => (at, stop),
        }
    }

    /// Executes the request at the start of `rest`, which lies at `at` in the buffer. Held may be one before it.
    #[inline]
    fn request(&mut self, rest: &[u8], at: usize) -> Went {
        let args = self.parser.args(rest);
        if self.client.plain && self.executor.core.takes_all() {
            match shape(&args) {
                Shape::Get if !self.parser.was_inline() => {
                    let (start, end) = self.parser.span(1);
                    return self.get(at + start, at + end);
                }
                Shape::Set if !self.parser.was_inline() => {
                    let (key, value) = (self.parser.span(1), self.parser.span(2));
                    return self.set(at, (at + key.0, at + key.1), (at + value.0, at + value.1));
                }
                _ => {}
            }
        }
        self.long_way(rest)
    }

    #[inline]
    fn get(&mut self, start: usize, end: usize) -> Went {
        if !self.flush_sets() {
            return Went::Held;
        }
        let database = self.client.database;
        if self.batch.must_flush_before(database) && !self.flush_gets() {
            return Went::Held;
        }
        self.batch.push(self.index, database, start, end);
        self.client.note(commands::get_index(), database);
        self.outputs[self.index].count_reply();
        Went::On
    }

    #[inline]
    fn set(&mut self, at: usize, key: (usize, usize), value: (usize, usize)) -> Went {
        if self.batch.holds(self.index) && !self.flush_gets() {
            return Went::Held;
        }
        if self.sets.is_full() && !self.flush_sets() {
            return Went::Held;
        }
        self.sets.push(at, key, value);
        Went::On
    }

    /// Does what waits of this connection's GETs and SETs. False: one of them is held.
    fn flush(&mut self) -> bool {
        let done = self.flush_sets();
        (!self.batch.holds(self.index) || self.flush_gets()) && done
    }

    /// Answers the GETs that wait. False: one of this connection waits for the disk.
    fn flush_gets(&mut self) -> bool {
        self.batch.flush(self.buffer, self.outputs, &mut self.executor);
        !self.batch.owes(self.index)
    }

    /// Does the SETs that wait. False: from `held_at` on they wait for memory or the disk.
    #[inline]
    fn flush_sets(&mut self) -> bool {
        if self.sets.is_empty() {
            return true;
        }
        let out = &mut self.outputs[self.index];
        self.held_at = self.sets.flush(self.buffer, self.client, out, &mut self.executor);
        self.held_at.is_none()
    }

    /// Through the table of commands.
    fn long_way(&mut self, rest: &[u8]) -> Went {
        if !self.flush() {
            return Went::Held;
        }
        let args = self.parser.args(rest);
        if args.len() == 0 {
            return Went::On;
        }
        self.executor.request(self.client, &mut self.outputs[self.index], args)
    }

    fn refuse(&mut self, error: ProtocolError) {
        let out = &mut self.outputs[self.index];
        let text = format!("ERR {error}");
        out.count_reply();
        out.error(&text);
        self.executor.stats.error(&text);
    }
}

impl EventLoop<'_> {
    /// Executes what was read into the loop's own buffer; what is left over moves to the
    /// connection's.
    pub(super) fn execute_arena(&mut self, index: usize, read: Range<usize>, turn: &mut Turn<'_>) {
        let arena = std::mem::take(&mut self.arena);
        let end = read.end;
        let (consumed, stop) = self.execute(index, &arena, read, turn);
        if consumed < end
            && let Some(connection) = self.connections[index].as_mut()
        {
            connection.input.append(&arena[consumed..end]);
        }
        // A batch worth sending does not wait for company; then the buffer is free again.
        if self.batch.is_worth_flushing() {
            self.flush_batch(&arena, turn);
        }
        self.arena_used = if self.batch.is_empty() { 0 } else { end };
        self.arena = arena;
        self.stopped(index, stop);
    }

    /// Executes what waits in the connection's own buffer.
    pub(super) fn execute_input(&mut self, index: usize, turn: &mut Turn<'_>) {
        self.flush_arena(turn);
        if !self.answer_owed(index, turn) {
            return;
        }
        let Some(connection) = self.connections[index].as_mut() else { return };
        let mut input = std::mem::take(&mut connection.input);
        let unread = input.unread();
        let (consumed, stop) = self.execute(index, unread, 0..unread.len(), turn);
        self.flush_batch(input.unread(), turn);
        input.consume(consumed);
        if let Some(connection) = self.connections[index].as_mut() {
            connection.input = input;
        }
        self.stopped(index, stop);
    }

    fn execute(
        &mut self,
        index: usize,
        buffer: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> (usize, Stop) {
        self.start_replies(index);
        let Some(connection) = self.connections[index].as_deref_mut() else {
            return (range.end, Stop::Close);
        };
        let Connection { parser, client, .. } = connection;
        let executor = Executor {
            shared: self.shared,
            stats: &self.handle.stats,
            core: &mut self.core,
            sessions: &mut self.sessions,
            turn,
        };
        let mut run = Run {
            executor,
            batch: &mut self.batch,
            outputs: &mut self.outputs,
            index,
            parser,
            client,
            buffer,
            sets: &mut self.sets,
            held_at: None,
        };
        let came = run.all(range);
        let came = run.end(came);
        self.hold_owed();
        came
    }

    /// Draws the consequences of a stop.
    fn stopped(&mut self, index: usize, stop: Stop) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        connection.missing = 0;
        match stop {
            Stop::InputEnds { missing } if !connection.input.is_empty() => {
                connection.missing = missing;
                let needed = connection.input.len() + missing + connection.client.queued_bytes();
                if needed > self.core.limits.query_buffer_bytes {
                    self.handle.stats.closed_for_query.add(1);
                    let out = &mut self.outputs[index];
                    out.count_reply();
                    out.error("ERR Protocol error: the request does not fit the query buffer");
                    connection.phase = Phase::Closing;
                }
            }
            Stop::InputEnds { .. } => connection.parser.shrink(),
            Stop::Share => {
                connection.in_backlog = true;
                self.backlog.push(index);
            }
            Stop::Held => self.hold(index),
            Stop::Close => {
                let pending = connection.input.len();
                connection.input.consume(pending);
                connection.phase = Phase::Closing;
            }
        }
        self.mark_to_write(index);
        self.keep_within_buffers(index);
    }
}
