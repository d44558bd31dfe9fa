//! The end of a turn: commit, then send.

use super::EventLoop;
use super::connection::{Connection, Phase};
use crate::commands::{Client, Failure};
use rustix::event::epoll;
use std::time::Instant;

/// Reply buffers that idle connections gave back, kept for others.
const SPARE_BUFFERS_MAX: usize = 64;
/// Larger buffers are freed instead of kept.
const SPARE_BUFFER_BYTES_MAX: usize = 64 << 10;
/// How long, and for how many bytes, a closed connection's last input is read and dropped.
const LINGER_MS: u64 = 1000;
const LINGER_BYTES: usize = 8 << 20;

impl EventLoop<'_> {
    /// Gives a connection a buffer to be answered in, and marks where this turn's replies start.
    pub(super) fn start_replies(&mut self, index: usize) {
        let out = &mut self.outputs[index];
        if !out.has_buffer()
            && let Some(buffer) = self.spare_buffers.pop()
        {
            out.give_buffer(buffer);
        }
    }

    pub(super) fn mark_to_write(&mut self, index: usize) {
        if let Some(connection) = self.connections[index].as_mut()
            && !connection.to_write
        {
            connection.to_write = true;
            self.to_write.push(index);
        }
    }

    /// Waits until everything this turn wrote or saw is as durable as its map promises. If that
    /// fails, those who touched the map are told so instead of what they had been going to hear.
    pub(super) fn commit(&mut self) {
        let mut failures: Vec<(usize, String)> = Vec::new();
        let started = self.core.limits.latency.map(|_| Instant::now());
        for sessions in [&mut self.sessions, &mut self.core.others] {
            let failed = |database, error| failures.push((database, Failure::from(error).text()));
            if sessions.commit(failed) {
                self.handle.stats.commits.add(1);
            }
        }
        // Both, whatever the first says.
        let (queues, ledgers) = (self.core.queues.commit(), self.core.ledgers.commit());
        let apart = queues.and(ledgers).map_err(|error| Failure::from(error).text());
        if let (Some(started), Some(threshold)) = (started, self.core.limits.latency) {
            let took = started.elapsed();
            if took >= threshold {
                self.shared.latency.add("commit", self.core.now_ms / 1000, took.as_millis() as u64);
            }
        }
        for (database, error) in failures {
            self.tell_failure(&error, |client| client.touched & (1 << database) != 0);
        }
        if let Err(error) = apart {
            self.tell_failure(&error, |client| client.touched_apart);
        }
    }

    /// Tells those whom a failed commit concerns, instead of what they had been going to hear.
    fn tell_failure(&mut self, error: &str, concerns: impl Fn(&Client) -> bool) {
        self.handle.stats.commit_failures.add(1);
        for &index in &self.to_write {
            let Some(connection) = self.connections[index].as_deref() else { continue };
            if concerns(&connection.client) {
                self.outputs[index].replace_turn(error);
            }
        }
    }

    /// Sends what this turn answered, and what earlier turns could not.
    pub(super) fn send_replies(&mut self) {
        let mut to_write = std::mem::take(&mut self.to_write);
        for index in to_write.drain(..) {
            self.send(index);
        }
        self.to_write = to_write;
        self.close_beyond_buffers();
    }

    fn send(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let out = &mut self.outputs[index];
        connection.to_write = false;
        connection.client.touched = 0;
        connection.client.touched_apart = false;
        if out.overflowed() || connection.client.close == crate::commands::Close::Now {
            if out.overflowed() {
                self.handle.stats.closed_for_output.add(1);
            }
            return self.close(index);
        }
        let before = out.len();
        let sent_all = match connection.send(out) {
            Ok(sent_all) => sent_all,
            Err(_) => return self.close(index),
        };
        let sent = before - out.len();
        out.start_turn();
        if sent > 0 {
            connection.moved_ms = self.core.uptime_ms;
            self.handle.stats.bytes_written.add(sent as u64);
            if std::mem::take(&mut connection.client.awaits_room) {
                connection.release();
                connection.in_backlog = true;
                self.backlog.push(index);
                self.held.retain(|held| *held != index);
            }
        }
        if sent_all {
            if out.has_buffer() {
                let buffer = out.take_buffer();
                if buffer.capacity() <= SPARE_BUFFER_BYTES_MAX
                    && self.spare_buffers.len() < SPARE_BUFFERS_MAX
                {
                    self.spare_buffers.push(buffer);
                }
            }
            if connection.phase == Phase::Closing {
                return self.linger(index);
            }
        }
        self.watch(index, !sent_all);
        self.account(index);
    }

    /// Tells epoll what to watch a connection for, if that changed.
    pub(super) fn watch(&mut self, index: usize, unsent: bool) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let wanted = connection.wanted(unsent);
        if wanted == connection.interest {
            return;
        }
        connection.interest = wanted;
        let name = epoll::EventData::new_u64(index as u64);
        if epoll::modify(&self.handle.poll, connection.socket(), name, wanted).is_err() {
            self.close(index);
        }
    }

    /// Counts a connection's memory and publishes how it stands.
    fn account(&mut self, index: usize) {
        self.count_buffers(index);
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        connection.publish(&self.outputs[index], connection.counted_bytes);
    }

    /// Counts a connection's memory.
    fn count_buffers(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let bytes = connection.memory_bytes(&self.outputs[index]);
        if bytes == connection.counted_bytes {
            return;
        }
        self.buffer_bytes = self.buffer_bytes - connection.counted_bytes + bytes;
        connection.counted_bytes = bytes;
        self.handle.stats.buffer_bytes.set(self.buffer_bytes as u64);
        self.handle.stats.buffer_bytes_peak.raise(self.buffer_bytes as u64);
    }

    /// Called when something was read for a connection, or executed: before the next one is served, all clients
    /// together hold no more than they may.
    pub(super) fn keep_within_buffers(&mut self, index: usize) {
        self.count_buffers(index);
        for heavy in self.batch.take_heavy() {
            self.count_buffers(heavy);
        }
        self.close_beyond_buffers();
    }

    /// All is sent: closes our side, and the rest once the client has, or after a while.
    fn linger(&mut self, index: usize) {
        let until_ms = self.core.uptime_ms + LINGER_MS;
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        connection.close_our_side();
        connection.phase = Phase::Lingering { until_ms, bytes_left: LINGER_BYTES };
        self.watch(index, false);
        self.discard(index);
    }

    /// Reads and drops what a client sends after its end.
    pub(super) fn discard(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        let Phase::Lingering { until_ms, mut bytes_left } = connection.phase else { return };
        let mut dropped = [0; 4096];
        loop {
            match rustix::io::read(connection.socket(), &mut dropped) {
                Ok(n) if n > 0 && bytes_left > n => bytes_left -= n,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                _ => return self.close(index),
            }
        }
        connection.phase = Phase::Lingering { until_ms, bytes_left };
    }

    /// While the clients of all loops together hold too much, the one of this loop that holds most goes.
    #[inline]
    pub(super) fn close_beyond_buffers(&mut self) {
        if self.buffer_bytes > self.core.limits.unasked_buffers_bytes && self.is_beyond_buffers() {
            self.close_largest();
        }
    }

    #[cold]
    fn is_beyond_buffers(&self) -> bool {
        let all = self.shared.sum(|stats| stats.buffer_bytes.get());
        all > self.core.limits.all_buffers_bytes as u64
    }

    #[cold]
    fn close_largest(&mut self) {
        let holds = |(index, connection): (usize, &Option<Box<Connection>>)| {
            let connection = connection.as_deref().filter(|each| !each.client.no_evict())?;
            Some((connection.counted_bytes, index))
        };
        let mut all: Vec<_> = self.connections.iter().enumerate().filter_map(holds).collect();
        all.sort_unstable();
        while self.buffer_bytes > self.core.limits.unasked_buffers_bytes
            && self.is_beyond_buffers()
            && let Some((_, index)) = all.pop()
        {
            self.handle.stats.closed_for_memory.add(1);
            self.close(index);
        }
    }
}
