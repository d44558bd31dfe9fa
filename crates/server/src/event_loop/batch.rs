//! GETs that wait to be answered together.
//!
//! A batch gathers plain `GET`s as they are parsed: those of one pipeline, and those of the
//! connections read after it, as long as their keys lie in the same read buffer. The engine then
//! looks all keys up at once and can overlap their cache misses. Replies keep each connection's
//! order because a connection's own next command of another kind has the batch answered first;
//! between connections there is no order to keep, since nobody in this turn has been answered.

use super::EventLoop;
use crate::commands::{self, Executor, Failure};
use crate::gate::Turn;
use crate::resp::Output;
use crate::stats::LoopStats;
use std::time::{Duration, Instant};
use terrace::{Session, Value};

/// Keys of one batch.
pub(super) const BATCH_KEYS: usize = 48;

/// A GET that waits: whose it is and where its key lies.
#[derive(Clone, Copy, Default)]
struct Waiting {
    connection: u32,
    start: u32,
    end: u32,
}

/// The GETs gathered so far, all of one database.
pub(super) struct GetBatch {
    waiting: [Waiting; BATCH_KEYS],
    len: usize,
    database: usize,
    /// Connections that were given much: to be looked at before others are.
    heavy: Vec<usize>,
}

impl Default for GetBatch {
    fn default() -> GetBatch {
        GetBatch {
            waiting: [Waiting::default(); BATCH_KEYS],
            len: 0,
            database: 0,
            heavy: Vec::new(),
        }
    }
}

impl GetBatch {
    /// Whether a GET from `database` has to have the batch answered first.
    #[inline]
    pub(super) fn must_flush_before(&self, database: usize) -> bool {
        self.len == BATCH_KEYS || (self.len > 0 && self.database != database)
    }

    #[inline]
    pub(super) fn push(&mut self, connection: usize, database: usize, start: usize, end: usize) {
        self.waiting[self.len] =
            Waiting { connection: connection as u32, start: start as u32, end: end as u32 };
        self.len += 1;
        self.database = database;
    }

    /// Whether `connection`, the one being executed, has a GET in the batch.
    #[inline]
    pub(super) fn holds(&self, connection: usize) -> bool {
        self.len > 0 && self.waiting[self.len - 1].connection as usize == connection
    }

    /// A connection was closed: its GETs have nobody to answer to.
    pub(super) fn forget(&mut self, connection: usize) {
        let mut kept = 0;
        for i in 0..self.len {
            if self.waiting[i].connection as usize != connection {
                self.waiting[kept] = self.waiting[i];
                kept += 1;
            }
        }
        self.len = kept;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the batch is large enough to be answered without waiting for more.
    pub(super) fn is_worth_flushing(&self) -> bool {
        self.len >= BATCH_KEYS / 3
    }

    /// Answers the batch; its keys lie in `buffer`.
    pub(super) fn flush(
        &mut self,
        buffer: &[u8],
        outputs: &mut [Output],
        executor: &mut Executor<'_, '_>,
    ) {
        let len = std::mem::take(&mut self.len);
        if len == 0 {
            return;
        }
        let waiting = &self.waiting[..len];
        let mut keys: [&[u8]; BATCH_KEYS] = [&[]; BATCH_KEYS];
        for (key, entry) in keys.iter_mut().zip(waiting) {
            *key = &buffer[entry.start as usize..entry.end as usize];
        }
        let keys = &keys[..len];
        let started = Instant::now();
        let mut tally = Tally::default();
        let Executor { sessions, shared, .. } = executor;
        match sessions.open(self.database, &shared.maps) {
            Ok(session) => tally.look_up(session, keys, waiting, outputs, executor.stats),
            Err(error) => {
                let text = Failure::from(error).text();
                for entry in waiting {
                    executor.stats.error(&text);
                    outputs[entry.connection as usize].error(&text);
                }
            }
        }
        tally.count(len, started.elapsed(), executor, keys);
        if tally.value_bytes > HEAVY_BYTES {
            self.heavy.extend(waiting.iter().map(|entry| entry.connection as usize));
        }
    }

    /// Connections that large values went to since the last call.
    pub(super) fn take_heavy(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.heavy)
    }
}

/// Bytes of a batch's values from which on its connections are looked at.
const HEAVY_BYTES: usize = 64 << 10;

/// What a batch came to.
#[derive(Default)]
struct Tally {
    answered: usize,
    hits: u64,
    value_bytes: usize,
}

impl Tally {
    fn look_up(
        &mut self,
        session: &mut Session,
        keys: &[&[u8]],
        waiting: &[Waiting],
        outputs: &mut [Output],
        stats: &LoopStats,
    ) {
        let result = session.multi_get(keys, |i, value| {
            debug_assert_eq!(i, self.answered, "the engine answers in the order of the keys");
            self.answer(&mut outputs[waiting[i].connection as usize], value);
        });
        if result.is_ok() {
            return;
        }
        // One bad key must not cost the others their answers.
        for (key, entry) in keys.iter().zip(waiting).skip(self.answered) {
            let out = &mut outputs[entry.connection as usize];
            match session.get(key, |value| self.answer(out, Some(value))) {
                Ok(Some(())) => {}
                Ok(None) => self.answer(out, None),
                Err(error) => self.fail(out, error, stats),
            }
        }
    }

    #[inline]
    fn answer(&mut self, out: &mut Output, value: Option<Value<'_>>) {
        self.answered += 1;
        match value {
            Some(value) => {
                self.hits += 1;
                self.value_bytes += value.bytes.len();
                out.bulk(value.bytes);
            }
            None => out.null(),
        }
    }

    fn fail(&mut self, out: &mut Output, error: terrace::Error, stats: &LoopStats) {
        self.answered += 1;
        let command = &stats.commands[commands::get_index()];
        let text = Failure::from(error).text();
        command.failed.add(1);
        stats.error(&text);
        out.error(&text);
    }

    fn count(&self, len: usize, took: Duration, executor: &mut Executor<'_, '_>, keys: &[&[u8]]) {
        let stats = executor.stats;
        stats.key_hits.add(self.hits);
        stats.key_misses.add(self.answered as u64 - self.hits);
        stats.commands[commands::get_index()].ran(len as u64, took);
        if executor.is_slow(took) {
            let name: &[u8] = b"GET";
            let arguments: Vec<&[u8]> = [name].into_iter().chain(keys.iter().copied()).collect();
            executor.note_slow_batch(arguments.into_iter(), took);
        }
    }
}

impl EventLoop<'_> {
    /// Answers the batch, whose keys lie in `buffer`.
    pub(super) fn flush_batch(&mut self, buffer: &[u8], turn: &mut Turn<'_>) {
        if self.batch.is_empty() {
            return;
        }
        let mut executor = Executor {
            shared: self.shared,
            stats: &self.handle.stats,
            core: &mut self.core,
            sessions: &mut self.sessions,
            turn,
        };
        self.batch.flush(buffer, &mut self.outputs, &mut executor);
    }

    /// Answers the batch, whose keys lie in the loop's read buffer, which is free afterwards.
    pub(super) fn flush_arena(&mut self, turn: &mut Turn<'_>) {
        let arena = std::mem::take(&mut self.arena);
        self.flush_batch(&arena, turn);
        self.arena = arena;
        self.arena_used = 0;
    }
}
