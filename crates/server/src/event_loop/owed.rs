//! GETs whose values are read from the disk: their clients wait, and nobody else.

use super::EventLoop;
use super::batch::{BATCH_KEYS, Tally};
use crate::commands::Executor;
use crate::gate::Turn;
use terrace::Wait;

/// How often what a client waits for may have left memory again before the loop waits for the disk itself.
pub(crate) const FETCHES: u32 = 32;

/// Keys of GETs of one client, in order.
#[derive(Default)]
pub(super) struct Owed {
    keys: Vec<Box<[u8]>>,
    /// How often they were asked for without an answer.
    tries: u32,
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.iter().map(|key| key.len() + size_of::<Box<[u8]>>()).sum()
    }
}

impl EventLoop<'_> {
    /// Holds the clients whose GETs wait for the disk.
    pub(super) fn hold_owed(&mut self) {
        for (index, key) in self.batch.take_owed() {
            let Some(connection) = self.connections[index].as_deref_mut() else { continue };
            connection.owed.keys.push(key);
            self.hold(index);
        }
    }

    /// The connection is not executed until something has happened.
    pub(super) fn hold(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        if !connection.held {
            connection.hold();
            self.held.push(index);
        }
    }

    /// Answers the GETs of a connection whose values were read. Whether those were all, and it may go on.
    pub(super) fn answer_owed(&mut self, index: usize, turn: &mut Turn<'_>) -> bool {
        let Some(connection) = self.connections[index].as_deref_mut() else { return true };
        if connection.owed.is_empty() {
            return true;
        }
        let database = connection.client.database;
        connection.client.note(crate::commands::get_index(), database);
        let mut owed = std::mem::take(&mut connection.owed);
        self.start_replies(index);
        let mut executor = Executor {
            shared: self.shared,
            stats: &self.handle.stats,
            core: &mut self.core,
            sessions: &mut self.sessions,
            turn,
        };
        let mut answered = 0;
        while answered < owed.keys.len() {
            let some = &owed.keys[answered..];
            let keys: Vec<&[u8]> = some.iter().take(BATCH_KEYS).map(|key| &**key).collect();
            let wait = match owed.tries >= FETCHES && answered == 0 {
                true => Wait::ForRoom,
                false => Wait::Never { since: None },
            };
            keys.iter().for_each(|_| self.outputs[index].count_reply());
            let mut tally = Tally::default();
            tally.answer_all((database, wait), &keys, |_| index, &mut self.outputs, &mut executor);
            answered += keys.len() - tally.owed.len();
            if !tally.owed.is_empty() {
                break;
            }
        }
        owed.keys.drain(..answered);
        owed.tries = if answered == 0 { owed.tries + 1 } else { 0 };
        self.mark_to_write(index);
        let Some(connection) = self.connections[index].as_deref_mut() else { return true };
        connection.owed = owed;
        let is_done = connection.owed.is_empty();
        if !is_done {
            self.hold(index);
        }
        is_done
    }
}
