//! A directory in memory: which lines another socket may hold.
//!
//! On a machine of several sockets each line carries, in the memory itself, a note whether another socket
//! may hold it (Intel's optimization manual, 2.1.31, which warns that on Optane reads of another
//! socket so become writes). A note that is new is a write of the line. It waits in the write queue,
//! where a write of the same line that comes soon enough takes its place: lines that are fetched, stored
//! and written back at once cost no more than they would, until the queue is full of other work.

use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub(super) struct Notes {
    /// A bit a line.
    held: Vec<u64>,
    /// Lines of each channel whose note is not yet written, the oldest first.
    waiting: Vec<VecDeque<u64>>,
}

impl Notes {
    pub fn new(channels: usize) -> Self {
        Notes { held: Vec::new(), waiting: vec![VecDeque::new(); channels] }
    }

    /// Another socket holds the line.
    pub fn add(&mut self, channel: usize, line: u64) {
        let (word, bit) = ((line / 64) as usize, 1 << (line % 64));
        if word >= self.held.len() {
            self.held.resize(2 * word + 1, 0);
        }
        if self.held[word] & bit == 0 {
            self.held[word] |= bit;
            self.waiting[channel].push_back(line);
        }
    }

    /// The oldest line whose note must be written, if more wait than there is room for.
    pub fn beyond(&mut self, channel: usize, room: usize) -> Option<u64> {
        let waiting = &mut self.waiting[channel];
        if waiting.len() > room { waiting.pop_front() } else { None }
    }

    /// The line is written: no other socket holds it, and the line says so itself.
    pub fn forget(&mut self, channel: usize, line: u64) {
        let (word, bit) = ((line / 64) as usize, 1 << (line % 64));
        if self.held.get(word).is_none_or(|word| word & bit == 0) {
            return;
        }
        self.held[word] &= !bit;
        self.waiting[channel].retain(|waiting| *waiting != line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_waits_for_room_or_for_the_lines_own_write() {
        let mut notes = Notes::new(1);
        (0..5).for_each(|line| notes.add(0, line));
        notes.add(0, 3);
        assert_eq!(notes.beyond(0, 4), Some(0));
        assert_eq!(notes.beyond(0, 4), None);
        notes.forget(0, 1);
        assert_eq!(
            [notes.beyond(0, 0), notes.beyond(0, 0), notes.beyond(0, 2)],
            [Some(2), Some(3), None]
        );
        // It was written, so that the next read of another socket is news again; the others' are not.
        notes.add(0, 1);
        notes.add(0, 2);
        assert_eq!(
            [notes.beyond(0, 0), notes.beyond(0, 0), notes.beyond(0, 0)],
            [Some(4), Some(1), None]
        );
    }
}
