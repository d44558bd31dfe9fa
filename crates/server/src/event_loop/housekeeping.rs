//! What a loop does now and then: timeouts, kills, the end.

use super::connection::Phase;
use super::{EventLoop, TICK_MS};

/// A TLS handshake has to be done within this time.
const HANDSHAKE_MS: u64 = 10_000;

impl EventLoop<'_> {
    /// Looks at the timeouts, twice a second.
    pub(super) fn tick(&mut self) {
        let now_ms = self.core.uptime_ms;
        if now_ms < self.last_tick_ms + TICK_MS {
            return;
        }
        self.last_tick_ms = now_ms;
        for index in 0..self.connections.len() {
            if self.is_overdue(index, now_ms) {
                self.close(index);
            }
        }
        // Whoever forgot one does not keep what writers replace.
        for connection in self.connections.iter_mut().flatten() {
            connection.client.snapshots.close_old(now_ms);
            connection.client.sql.close_old(now_ms, self.core.limits.snapshot_ms);
        }
    }

    fn is_overdue(&self, index: usize, now_ms: u64) -> bool {
        let Some(connection) = self.connections[index].as_deref() else { return false };
        let silent_ms = now_ms.saturating_sub(connection.moved_ms);
        let exceeds = |limit: Option<u64>| limit.is_some_and(|limit| silent_ms >= limit);
        let unfinished = !connection.input.is_empty() && !connection.in_backlog && !connection.held;
        let overdue = match connection.phase {
            Phase::Lingering { until_ms, .. } => return now_ms >= until_ms,
            Phase::Open | Phase::Closing if unfinished || !self.outputs[index].is_empty() => {
                exceeds(self.core.limits.stall_ms)
            }
            Phase::Open if connection.handshaking() => exceeds(Some(HANDSHAKE_MS)),
            Phase::Open if connection.client.waits() => false,
            Phase::Open => exceeds(self.core.limits.idle_ms),
            Phase::Closing => exceeds(self.core.limits.stall_ms),
        };
        if overdue {
            self.handle.stats.closed_for_silence.add(1);
        }
        overdue
    }

    /// Closes the connection with this id, if it is still here.
    pub(super) fn kill(&mut self, id: u64) {
        let has_id = |connection: &Option<Box<super::Connection>>| {
            connection.as_ref().is_some_and(|connection| connection.client.info.id == id)
        };
        if let Some(index) = self.connections.iter().position(has_id) {
            self.close(index);
        }
    }

    /// A pause ended or changed: those it held back may go on (and are held again if need be).
    pub(super) fn release_held(&mut self) {
        for index in std::mem::take(&mut self.held) {
            let Some(connection) = self.connections[index].as_deref_mut() else { continue };
            if connection.release() && !connection.in_backlog {
                connection.in_backlog = true;
                self.backlog.push(index);
                self.mark_to_write(index);
            }
        }
    }

    /// Called after each turn once the server stops: sends what is owed, closes who has it.
    /// True: everybody is gone, or had enough time.
    pub(super) fn drained(&mut self) -> bool {
        let now_ms = self.shared.uptime_ms();
        let patience_ms = self.shared.options.drain_timeout.as_millis() as u64;
        let until_ms = *self.drain_until_ms.get_or_insert(now_ms + patience_ms);
        self.read_inbox();
        for index in 0..self.connections.len() {
            let Some(connection) = self.connections[index].as_deref_mut() else { continue };
            match connection.phase {
                Phase::Open
                    if connection.in_backlog
                        || !connection.owed.is_empty()
                        || connection.client.script.is_some() => {}
                Phase::Open => {
                    connection.phase = Phase::Closing;
                    self.mark_to_write(index);
                }
                Phase::Closing => {}
                // The client has its replies and the end of the stream; it is not waited for.
                Phase::Lingering { .. } => self.close(index),
            }
        }
        self.send_replies();
        let empty = self.connections.len() == self.free.len();
        if !empty && now_ms >= until_ms {
            (0..self.connections.len()).for_each(|index| self.close(index));
        }
        empty || now_ms >= until_ms
    }
}
