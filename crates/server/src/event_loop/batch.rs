//! GETs that wait to be answered together.
//!
//! A batch gathers plain `GET`s as they are parsed: those of one pipeline, and those of the
//! connections read after it, as long as their keys lie in the same read buffer. The engine then
//! looks all keys up at once and can overlap their cache misses. Replies keep each connection's
//! order because a connection's own next command of another kind has the batch answered first;
//! between connections there is no order to keep, since nobody in this turn has been answered.
//! A GET whose value is on the disk alone is owed to its client, and so are those behind it.

use super::EventLoop;
use crate::commands::{self, Executor, Failure};
use crate::gate::Turn;
use crate::resp::Output;
use crate::stats::LoopStats;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use terrace::{Error, Session, Value, Wait};

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
    /// Whose GETs wait for the disk, and their keys: from the first one of a connection on all of its.
    owed: Vec<(usize, Box<[u8]>)>,
}

impl Default for GetBatch {
    fn default() -> GetBatch {
        GetBatch {
            waiting: [Waiting::default(); BATCH_KEYS],
            len: 0,
            database: 0,
            heavy: Vec::new(),
            owed: Vec::new(),
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
        self.owed.retain(|(owed, _)| *owed != connection);
    }

    /// Whether a GET of `connection` waits for the disk.
    pub(super) fn owes(&self, connection: usize) -> bool {
        self.owed.iter().any(|(owed, _)| *owed == connection)
    }

    /// What waits for the disk since the last call.
    pub(super) fn take_owed(&mut self) -> Vec<(usize, Box<[u8]>)> {
        std::mem::take(&mut self.owed)
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
        let whose = |number: usize| waiting[number].connection as usize;
        let mut tally = Tally::default();
        tally.answer_all(
            (self.database, Wait::Never { since: None }),
            keys,
            whose,
            outputs,
            executor,
        );
        if tally.value_bytes > HEAVY_BYTES {
            self.heavy.extend(waiting.iter().map(|entry| entry.connection as usize));
        }
        let owed = tally.owed.iter().map(|number| (whose(*number), keys[*number].into()));
        self.owed.extend(owed);
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
pub(super) struct Tally {
    answered: usize,
    hits: u64,
    value_bytes: usize,
    /// Numbers of the keys that wait for the disk, and of those behind them that are the same client's.
    pub(super) owed: Vec<usize>,
}

impl Tally {
    /// Answers all `keys` of a database, but those that are owed: `whose` says where each answer goes.
    pub(super) fn answer_all(
        &mut self,
        (database, wait): (usize, Wait),
        keys: &[&[u8]],
        whose: impl Fn(usize) -> usize,
        outputs: &mut [Output],
        executor: &mut Executor<'_, '_>,
    ) {
        let started = Instant::now();
        let Executor { sessions, shared, .. } = executor;
        match sessions.open(database, &shared.maps) {
            Ok(session) => self.look_up((session, wait), keys, &whose, outputs, executor.stats),
            Err(error) => {
                let text = Failure::from(error).text();
                for number in 0..keys.len() {
                    executor.stats.error(&text);
                    outputs[whose(number)].error(&text);
                }
            }
        }
        for number in &self.owed {
            outputs[whose(*number)].uncount_reply();
        }
        self.count(keys.len() - self.owed.len(), started.elapsed(), executor, keys);
    }

    fn look_up(
        &mut self,
        (session, wait): (&mut Session, Wait),
        keys: &[&[u8]],
        whose: &impl Fn(usize) -> usize,
        outputs: &mut [Output],
        stats: &LoopStats,
    ) {
        session.set_wait(wait);
        let owed = RefCell::new(Vec::new());
        // The replies of a client come in the order of its requests.
        let is_owed = |number: usize| {
            let owed = owed.borrow();
            owed.iter().any(|before| whose(*before) == whose(number))
        };
        let away = |number| owed.borrow_mut().push(number);
        let each = |number, value: Option<Value<'_>>| match is_owed(number) {
            false => self.answer(&mut outputs[whose(number)], value),
            true => away(number),
        };
        let result = match wait {
            Wait::ForRoom => session.multi_get(keys, each),
            Wait::Never { .. } => session.multi_get_near(keys, each, away),
        };
        let told = self.answered + owed.borrow().len();
        // One bad key must not cost the others their answers.
        let mut failed = result.err();
        let rest = if failed.is_some() { told } else { keys.len() };
        for (number, key) in keys.iter().enumerate().skip(rest) {
            let failed = failed.take();
            if is_owed(number) {
                away(number);
                continue;
            }
            let out = &mut outputs[whose(number)];
            let got = match failed {
                Some(error) => Err(error),
                None => session.get(key, |value| self.answer(out, Some(value))),
            };
            match got {
                Ok(Some(())) => {}
                Ok(None) => self.answer(out, None),
                Err(Error::Fetching) => away(number),
                Err(error) => self.fail(out, error, stats),
            }
        }
        self.owed = owed.into_inner();
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
        self.hold_owed();
    }

    /// Answers the batch, whose keys lie in the loop's read buffer, which is free afterwards.
    pub(super) fn flush_arena(&mut self, turn: &mut Turn<'_>) {
        let arena = std::mem::take(&mut self.arena);
        self.flush_batch(&arena, turn);
        self.arena = arena;
        self.arena_used = 0;
    }
}
