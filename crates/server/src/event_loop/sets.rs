//! SETs that stand next to each other in a pipeline.
//!
//! A write has to find its key in the index first, and that is a cache miss or two. A run of SETs
//! is therefore gathered, its keys are looked up together, which overlaps the misses, and then
//! the values are put one by one, in order, with everything they need at hand.

use crate::commands::{self, Client, Executor, Failure};
use crate::resp::Output;
use std::time::Instant;

/// SETs gathered at most.
const SETS: usize = 32;
/// A shorter run is not worth the look-up.
const SETS_LOOKED_UP_MIN: usize = 4;

/// A SET that waits: where its key and its value lie.
#[derive(Clone, Copy, Default)]
struct Waiting {
    key: (usize, usize),
    value: (usize, usize),
}

/// The SETs gathered so far, of one connection.
#[derive(Default)]
pub(super) struct SetRun {
    waiting: [Waiting; SETS],
    len: usize,
}

impl SetRun {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == SETS
    }
    /// Adds a SET; not when the run is full.
    #[inline]
    pub(super) fn push(&mut self, key: (usize, usize), value: (usize, usize)) {
        self.waiting[self.len] = Waiting { key, value };
        self.len += 1;
    }

    /// Does them all; keys and values lie in `buffer`.
    pub(super) fn flush(
        &mut self,
        buffer: &[u8],
        client: &mut Client,
        out: &mut Output,
        executor: &mut Executor<'_, '_>,
    ) {
        let len = std::mem::take(&mut self.len);
        let started = Instant::now();
        let key = |entry: &Waiting| &buffer[entry.key.0..entry.key.1];
        let waiting = &self.waiting[..len];
        let Executor { sessions, shared, .. } = &mut *executor;
        let mut session = sessions.open(client.database, &shared.maps);
        if let Ok(session) = &mut session
            && len >= SETS_LOOKED_UP_MIN
        {
            let mut keys: [&[u8]; SETS] = [&[]; SETS];
            keys.iter_mut().zip(waiting).for_each(|(place, entry)| *place = key(entry));
            // What comes of it is of no interest: the puts will tell.
            let _ = session.multi_get(&keys[..len], |_, _| ());
        }
        let mut failures = 0;
        for entry in waiting {
            let value = &buffer[entry.value.0..entry.value.1];
            let done = match &mut session {
                Ok(session) => session.put(key(entry), value, None).map_err(Failure::from),
                Err(error) => Err(Failure::from(error.to_string())),
            };
            out.count_reply();
            match done {
                Ok(()) => out.ok(),
                Err(failure) => {
                    failures += 1;
                    out.error(&failure.text());
                }
            }
        }
        client.note(commands::set_index(), client.database);
        executor.count(commands::set_index(), len as u64, failures, started.elapsed());
        let took = started.elapsed();
        if executor.is_slow(took) {
            let text = format!("(a run of {len} SETs)");
            executor.note_slow(client, [b"SET", text.as_bytes()].into_iter(), took);
        }
    }
}
