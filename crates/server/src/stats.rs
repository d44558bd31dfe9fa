//! Counters of the hot path.
//!
//! Each event loop has its own set and is the only one that writes it, with plain loads and
//! stores; readers sum over the loops and may be a few commands behind. No command waits for
//! another loop's cache line to count itself.

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter with one writer.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning loop may call this.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
    /// Sets it to `value` if it is less.
    pub(crate) fn raise(&self, value: u64) {
        if self.get() < value {
            self.set(value);
        }
    }
}

/// Durations, in buckets that double: bucket `i` holds those below `2^i` microseconds.
pub(crate) const BUCKETS: usize = 26;

/// Codes of errors that are counted.
const ERROR_CODES_MAX: usize = 128;
/// What a code has at the most.
const CODE_BYTES_MAX: usize = 32;

/// What one loop knows about one command.
#[derive(Default)]
pub(crate) struct CommandStats {
    pub(crate) calls: Counter,
    pub(crate) nanoseconds: Counter,
    /// Refused before they ran: wrong arity, no permission, aborted transaction.
    pub(crate) rejected: Counter,
    /// Ran and ended in an error.
    pub(crate) failed: Counter,
    pub(crate) buckets: [Counter; BUCKETS],
}

impl CommandStats {
    /// Counts `calls` of the command that took `total` together.
    #[inline]
    pub(crate) fn ran(&self, calls: u64, total: Duration) {
        let nanoseconds = total.as_nanos() as u64;
        self.calls.add(calls);
        self.nanoseconds.add(nanoseconds);
        self.buckets[bucket(nanoseconds / calls.max(1))].add(calls);
    }
}

/// The bucket of a duration.
fn bucket(nanoseconds: u64) -> usize {
    let microseconds = nanoseconds.div_ceil(1000);
    (u64::BITS - microseconds.saturating_sub(1).leading_zeros()).min(BUCKETS as u32 - 1) as usize
}

/// The counters of one loop.
#[derive(Default)]
pub(crate) struct LoopStats {
    pub(crate) commands: Vec<CommandStats>,
    pub(crate) turns: Counter,
    pub(crate) commits: Counter,
    pub(crate) commit_failures: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) key_hits: Counter,
    pub(crate) key_misses: Counter,
    pub(crate) error_replies: Counter,
    /// Error replies by their code, the first word. Errors are few; whoever counts one takes the lock.
    errors: Mutex<BTreeMap<Box<str>, u64>>,
    pub(crate) alone_turns: Counter,
    pub(crate) closed_for_output: Counter,
    pub(crate) closed_for_query: Counter,
    pub(crate) closed_for_silence: Counter,
    pub(crate) closed_for_memory: Counter,
    /// Bytes of the loop's connections' buffers, and the most they were since memory was given back last.
    pub(crate) buffer_bytes: Counter,
    pub(crate) buffer_bytes_peak: Counter,
}

impl LoopStats {
    pub(crate) fn new(commands: usize) -> CachePadded<LoopStats> {
        CachePadded::new(LoopStats {
            commands: (0..commands).map(|_| CommandStats::default()).collect(),
            ..LoopStats::default()
        })
    }

    /// Counts an error reply.
    pub(crate) fn error(&self, text: &str) {
        self.error_replies.add(1);
        // A script may say anything.
        let is_of_codes =
            |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let is_code = |code: &&str| code.len() <= CODE_BYTES_MAX && code.bytes().all(is_of_codes);
        let code = text.split(' ').next().filter(is_code).unwrap_or("ERR");
        let mut errors = self.errors.lock();
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.into(), 1);
        }
    }

    /// Error replies by their code.
    pub(crate) fn errors(&self) -> BTreeMap<Box<str>, u64> {
        self.errors.lock().clone()
    }

    /// Forgets everything that `CONFIG RESETSTAT` forgets. Racing with the owner is harmless: a
    /// count or two may survive.
    pub(crate) fn reset(&self) {
        self.errors.lock().clear();
        for command in &self.commands {
            for counter in
                [&command.calls, &command.nanoseconds, &command.rejected, &command.failed]
                    .into_iter()
                    .chain(&command.buckets)
            {
                counter.set(0);
            }
        }
        for counter in [
            &self.turns,
            &self.commits,
            &self.commit_failures,
            &self.bytes_read,
            &self.bytes_written,
            &self.key_hits,
            &self.key_misses,
            &self.error_replies,
            &self.alone_turns,
            &self.closed_for_output,
            &self.closed_for_query,
            &self.closed_for_silence,
            &self.closed_for_memory,
        ] {
            counter.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, bucket};

    #[test]
    fn buckets_double() {
        let cases = [
            (0, 0),
            (1, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4000, 2),
            (1_000_000, 10),
            (u64::MAX, BUCKETS - 1),
        ];
        for (nanoseconds, expected) in cases {
            assert_eq!(bucket(nanoseconds), expected, "{nanoseconds} ns");
        }
    }
}
