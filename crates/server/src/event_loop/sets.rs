//! SETs that stand next to each other in a pipeline.
//!
//! A write has to find its key in the index first, and that is a cache miss or two. A run of SETs
//! is therefore gathered, its keys are looked up together, which overlaps the misses, and then
//! the values are put one by one, in order, with everything they need at hand.

use crate::commands::{self, Client, Executor, Failure};
use crate::resp::Output;
use std::time::Instant;
use terrace::Session;

/// SETs gathered at most.
const SETS: usize = 32;
/// A shorter run is not worth it.
const SETS_PREFETCHED_MIN: usize = 4;

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
        let waiting = &self.waiting[..len];
        let started = Instant::now();
        (0..len).for_each(|_| out.count_reply());
        let Executor { sessions, shared, stats, .. } = &mut *executor;
        let mut failures = 0;
        match sessions.open(client.database, &shared.maps) {
            Ok(session) => {
                prefetch(session, buffer, waiting);
                for Waiting { key, value } in waiting {
                    let (key, value) = (&buffer[key.0..key.1], &buffer[value.0..value.1]);
                    match session.put(key, value, None) {
                        Ok(()) => out.ok(),
                        Err(error) => {
                            failures += 1;
                            let text = Failure::from(error).text();
                            stats.error(&text);
                            out.error(&text);
                        }
                    }
                }
            }
            Err(error) => {
                failures = len as u64;
                let text = Failure::from(error).text();
                for _ in waiting {
                    stats.error(&text);
                    out.error(&text);
                }
            }
        }
        let took = started.elapsed();
        client.note(commands::set_index(), client.database);
        executor.count(commands::set_index(), len as u64, failures, took);
        if executor.is_slow(took) {
            // As one request would have them: each key with its value.
            let of = |(start, end): (usize, usize)| &buffer[start..end];
            let pairs = waiting.iter().flat_map(|each| [of(each.key), of(each.value)]);
            let arguments: Vec<&[u8]> = [&b"SET"[..]].into_iter().chain(pairs).collect();
            executor.note_slow(client, arguments.into_iter(), took);
        }
    }
}

/// Brings near what the puts of a run will need.
fn prefetch(session: &Session, buffer: &[u8], waiting: &[Waiting]) {
    if waiting.len() < SETS_PREFETCHED_MIN {
        return;
    }
    let mut keys: [&[u8]; SETS] = [&[]; SETS];
    for (place, Waiting { key, .. }) in keys.iter_mut().zip(waiting) {
        *place = &buffer[key.0..key.1];
    }
    session.prefetch(&keys[..waiting.len()]);
}
