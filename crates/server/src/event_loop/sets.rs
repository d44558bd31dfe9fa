//! SETs that stand next to each other in a pipeline.
//!
//! A write has to find its key in the index first, and that is a cache miss or two. A run of SETs
//! is therefore gathered, its keys are looked up together, which overlaps the misses, and then
//! the values are put one by one, in order, with everything they need at hand.

use crate::commands::{self, Client, Executor, Failure};
use crate::resp::Output;
use std::time::Instant;
use terrace::{Error, Session, Wait};

/// SETs gathered at most.
const SETS: usize = 32;
/// A shorter run is not worth it.
const SETS_PREFETCHED_MIN: usize = 4;

/// A SET that waits: where it begins, and where its key and its value lie.
#[derive(Clone, Copy, Default)]
struct Waiting {
    at: usize,
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
    pub(super) fn push(&mut self, at: usize, key: (usize, usize), value: (usize, usize)) {
        self.waiting[self.len] = Waiting { at, key, value };
        self.len += 1;
    }

    /// Does them all, or those before the first that waits for memory or the disk: returns where that one begins. Keys
    /// and values lie in `buffer`.
    pub(super) fn flush(
        &mut self,
        buffer: &[u8],
        client: &mut Client,
        out: &mut Output,
        executor: &mut Executor<'_, '_>,
    ) -> Option<usize> {
        let len = std::mem::take(&mut self.len);
        let mut waiting = &self.waiting[..len];
        let mut held = None;
        let started = Instant::now();
        let Executor { sessions, shared, stats, .. } = &mut *executor;
        let mut failures = 0;
        match sessions.open(client.database, &shared.maps) {
            Ok(session) => {
                prefetch(session, buffer, waiting);
                session.set_wait(Wait::Never { since: None });
                for (done, Waiting { at, key, value }) in waiting.iter().enumerate() {
                    let (key, value) = (&buffer[key.0..key.1], &buffer[value.0..value.1]);
                    match session.put(key, value, None) {
                        Ok(()) => out.ok(),
                        Err(waits @ (Error::Busy { .. } | Error::Fetching)) => {
                            // What the others need of the disk is read together with this one's.
                            let of = |each: &Waiting| &buffer[each.key.0..each.key.1];
                            let keys: Vec<&[u8]> = waiting[done..].iter().map(of).collect();
                            let _asked = session.bring_near(&keys);
                            executor.hold(client, &waits);
                            held = Some(*at);
                            waiting = &waiting[..done];
                            break;
                        }
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
        if !waiting.is_empty() {
            client.fetches = 0;
        }
        waiting.iter().for_each(|_| out.count_reply());
        let took = started.elapsed();
        client.note(commands::set_index(), client.database);
        executor.count(commands::set_index(), waiting.len() as u64, failures, took);
        if executor.is_slow(took) {
            // As one request would have them: each key with its value.
            let of = |(start, end): (usize, usize)| &buffer[start..end];
            let pairs = waiting.iter().flat_map(|each| [of(each.key), of(each.value)]);
            let arguments: Vec<&[u8]> = [&b"SET"[..]].into_iter().chain(pairs).collect();
            executor.note_slow(client, arguments.into_iter(), took);
        }
        held
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
