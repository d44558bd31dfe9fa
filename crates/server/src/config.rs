//! The settings that can change while the server runs.
//!
//! `CONFIG SET` stores them here and raises the generation; each loop notices at its next turn
//! and refreshes its own copy ([`LoopLimits`]), so that the hot path reads no shared line twice.

use crate::options::ServerOptions;
use crate::resp::RequestLimits;
use crate::shared::Shared;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How long a client's snapshot is open if nobody says otherwise, in seconds.
const SNAPSHOT_S: u64 = 60;

/// Settings shared by all threads.
pub(crate) struct Config {
    pub(crate) password: RwLock<Option<String>>,
    pub(crate) protected_mode: AtomicBool,
    pub(crate) clients_max: AtomicUsize,
    pub(crate) bulk_bytes_max: AtomicUsize,
    pub(crate) query_buffer_bytes_max: AtomicUsize,
    pub(crate) output_buffer_bytes_max: AtomicUsize,
    pub(crate) all_buffers_bytes_max: AtomicUsize,
    /// Seconds; 0: never.
    pub(crate) idle_timeout_s: AtomicU64,
    pub(crate) stall_timeout_s: AtomicU64,
    pub(crate) keepalive_s: AtomicU64,
    /// How long a client's snapshot may be open: seconds, one at least.
    pub(crate) snapshot_s: AtomicU64,
    /// Microseconds; negative: none.
    pub(crate) slow_log_us: AtomicI64,
    pub(crate) slow_log_entries: AtomicUsize,
    /// Milliseconds; 0: none.
    pub(crate) latency_ms: AtomicU64,
    generation: AtomicU64,
}

fn seconds(duration: Option<Duration>) -> AtomicU64 {
    AtomicU64::new(duration.map_or(0, |duration| duration.as_secs().max(1)))
}

impl Config {
    pub(crate) fn new(options: &ServerOptions) -> Config {
        let limits = &options.limits;
        Config {
            password: RwLock::new(options.password.clone()),
            protected_mode: AtomicBool::new(options.protected_mode),
            clients_max: AtomicUsize::new(limits.clients_max),
            bulk_bytes_max: AtomicUsize::new(limits.bulk_bytes_max),
            query_buffer_bytes_max: AtomicUsize::new(limits.query_buffer_bytes_max),
            output_buffer_bytes_max: AtomicUsize::new(limits.output_buffer_bytes_max),
            all_buffers_bytes_max: AtomicUsize::new(limits.all_buffers_bytes_max),
            idle_timeout_s: seconds(limits.idle_timeout),
            stall_timeout_s: seconds(limits.stall_timeout),
            keepalive_s: seconds(options.tcp_keepalive),
            snapshot_s: AtomicU64::new(SNAPSHOT_S),
            slow_log_us: AtomicI64::new(
                options.slow_log_threshold.map_or(-1, |threshold| threshold.as_micros() as i64),
            ),
            slow_log_entries: AtomicUsize::new(options.slow_log_entries),
            latency_ms: AtomicU64::new(
                options
                    .latency_threshold
                    .map_or(0, |threshold| threshold.as_millis().max(1) as u64),
            ),
            generation: AtomicU64::new(1),
        }
    }

    /// To be called after a change.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, std::sync::atomic::Ordering::Release);
    }
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(std::sync::atomic::Ordering::Acquire)
    }
    pub(crate) fn has_password(&self) -> bool {
        self.password.read().is_some()
    }
}

/// A loop's copy of the settings it needs in every turn.
#[derive(Clone, Debug)]
pub(crate) struct LoopLimits {
    pub(crate) generation: u64,
    pub(crate) authenticated: RequestLimits,
    pub(crate) unauthenticated: RequestLimits,
    /// Longest value that APPEND and SETRANGE may make.
    pub(crate) value_bytes: usize,
    pub(crate) query_buffer_bytes: usize,
    pub(crate) output_buffer_bytes: usize,
    /// Bytes that the clients of all loops may take together.
    pub(crate) all_buffers_bytes: usize,
    /// While the clients of this loop take no more, it need not ask what the others have: a quarter of its share.
    pub(crate) unasked_buffers_bytes: usize,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) stall_ms: Option<u64>,
    pub(crate) snapshot_ms: u64,
    pub(crate) slow_log: Option<Duration>,
    pub(crate) latency: Option<Duration>,
}

impl LoopLimits {
    pub(crate) fn new(shared: &Shared) -> LoopLimits {
        let Shared { config, options, maps, .. } = shared;
        let generation = config.generation();
        let limits = &options.limits;
        // An argument larger than any value the engine takes is read all the same: the client gets
        // the engine's clear error, and the connection stays.
        let bulk_bytes_max = config.bulk_bytes_max.load(Relaxed);
        let authenticated = RequestLimits {
            arguments_max: limits.arguments_max,
            bulk_bytes_max,
            inline_bytes_max: limits.inline_bytes_max,
            unauthenticated: false,
        };
        let unauthenticated = RequestLimits {
            arguments_max: limits.unauthenticated_arguments_max.min(limits.arguments_max),
            bulk_bytes_max: limits.unauthenticated_bulk_bytes_max.min(bulk_bytes_max),
            inline_bytes_max: limits.inline_bytes_max.min(limits.unauthenticated_bulk_bytes_max),
            unauthenticated: true,
        };
        let ms = |seconds: &AtomicU64| Some(seconds.load(Relaxed) * 1000).filter(|ms| *ms > 0);
        let all_buffers_bytes = config.all_buffers_bytes_max.load(Relaxed);
        LoopLimits {
            generation,
            authenticated,
            unauthenticated,
            value_bytes: bulk_bytes_max.min(maps.item_bytes_max()),
            query_buffer_bytes: config.query_buffer_bytes_max.load(Relaxed),
            // One client alone does not take more than all may.
            output_buffer_bytes: config
                .output_buffer_bytes_max
                .load(Relaxed)
                .min(all_buffers_bytes),
            all_buffers_bytes,
            unasked_buffers_bytes: all_buffers_bytes / options.threads.max(1) / 4,
            idle_ms: ms(&config.idle_timeout_s),
            stall_ms: ms(&config.stall_timeout_s),
            snapshot_ms: config.snapshot_s.load(Relaxed) * 1000,
            slow_log: u64::try_from(config.slow_log_us.load(Relaxed))
                .ok()
                .map(Duration::from_micros),
            latency: Some(config.latency_ms.load(Relaxed))
                .filter(|ms| *ms > 0)
                .map(Duration::from_millis),
        }
    }
}
