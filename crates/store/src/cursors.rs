//! Where scans of an ordered map stand. A cursor is a number, and a place between keys is not: so each
//! number stands for a key that was written down here. The keys are part of the map's memory budget.

use crate::error::{Error, Result};
use crate::index::Position;
use crate::map::Cursor;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use terrace_memory::Budget;

/// Scans that may be under way at a time; the cursor that was given out longest ago is forgotten.
const MOST: usize = 4096;
/// And bytes of their keys, likewise; the newest is known whatever its length.
const MOST_BYTES: u64 = 4 << 20;
/// What a key takes beside its bytes.
const KEY_BYTES: u64 = 32;

#[derive(Default)]
pub(crate) struct Cursors {
    given: Mutex<Given>,
}

struct Given {
    /// The last that was given.
    last: Cursor,
    /// The keys of the last ones.
    keys: VecDeque<Box<[u8]>>,
    /// Bytes that they take of the budget, since the first was given.
    bytes: u64,
    budget: Option<Arc<Budget>>,
}

impl Default for Given {
    /// Begins anywhere: a cursor of an earlier opening must not stand for another place.
    fn default() -> Given {
        let last = RandomState::new().hash_one(0) >> 8;
        Given { last, keys: VecDeque::new(), bytes: 0, budget: None }
    }
}

impl Given {
    fn add(&mut self, key: Box<[u8]>, budget: &Arc<Budget>) {
        let bytes = key.len() as u64 + KEY_BYTES;
        self.budget.get_or_insert_with(|| Arc::clone(budget));
        while self.keys.len() >= MOST || self.bytes + bytes > MOST_BYTES {
            if !self.forget_oldest(budget) {
                break;
            }
        }
        while budget.take(bytes).is_err() {
            if !self.forget_oldest(budget) {
                // A scan has to go on, and one key is little.
                budget.take_anyway(bytes);
                break;
            }
        }
        self.bytes += bytes;
        self.last += 1;
        self.keys.push_back(key);
    }

    /// Whether there was one.
    fn forget_oldest(&mut self, budget: &Budget) -> bool {
        let Some(key) = self.keys.pop_front() else { return false };
        let bytes = key.len() as u64 + KEY_BYTES;
        self.bytes -= bytes;
        budget.give(bytes);
        true
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give(self.bytes);
        }
    }
}

impl Cursors {
    /// The cursor that stands for a position. What is written down for it is taken from the budget, always the
    /// same one.
    pub fn give(&self, position: Position, budget: &Arc<Budget>) -> Cursor {
        match position {
            Position::Start | Position::End => 0,
            Position::Bucket(cursor) => cursor,
            Position::At(key) | Position::Key(key) => {
                let mut given = self.given.lock();
                given.add(key, budget);
                given.last
            }
        }
    }

    /// The position that a cursor stands for.
    ///
    /// # Errors
    /// [`Error::Cursor`] if it is not known (any more).
    pub fn position(&self, cursor: Cursor, is_ordered: bool) -> Result<Position> {
        match cursor {
            0 => Ok(Position::Start),
            cursor if !is_ordered => Ok(Position::Bucket(cursor)),
            cursor => {
                let given = self.given.lock();
                let from_the_end =
                    given.last.checked_sub(cursor).and_then(|n| usize::try_from(n).ok());
                let at = from_the_end.and_then(|n| given.keys.len().checked_sub(n + 1));
                let key = at.and_then(|at| given.keys.get(at)).ok_or(Error::Cursor(cursor))?;
                Ok(Position::Key(key.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_stands_for_its_key_until_many_more_were_given() {
        let cursors = Cursors::default();
        let budget = Arc::new(Budget::new(1 << 30));
        let key = |n: u64| Position::Key(n.to_be_bytes().into());
        let given: Vec<Cursor> = (0..=MOST as u64).map(|n| cursors.give(key(n), &budget)).collect();
        for (n, cursor) in given.iter().enumerate().skip(1) {
            assert_eq!(cursors.position(*cursor, true).expect("known"), key(n as u64));
        }
        for unknown in [given[0], given[MOST] + 1, u64::MAX] {
            let refused = cursors.position(unknown, true).expect_err("unknown");
            assert!(matches!(refused, Error::Cursor(cursor) if cursor == unknown));
        }
        let first = || Cursors::default().give(key(0), &budget);
        assert_ne!(first(), first());
        assert_eq!(cursors.give(Position::End, &budget), 0);
        assert_eq!(cursors.position(0, true).expect("the start"), Position::Start);
        assert_eq!(cursors.position(7, false).expect("a bucket"), Position::Bucket(7));
    }

    #[test]
    fn keys_are_within_the_budget_and_given_back() {
        let budget = Arc::new(Budget::new(10_000));
        let cursors = Cursors::default();
        let long = |n: u64| Position::Key(n.to_be_bytes().repeat(250).into());
        let given: Vec<Cursor> = (0..50).map(|n| cursors.give(long(n), &budget)).collect();
        assert!((2032..=10_000).contains(&budget.used()), "{}", budget.used());
        assert_eq!(cursors.position(given[49], true).expect("the newest"), long(49));
        assert!(cursors.position(given[0], true).is_err(), "forgotten for the newer ones");
        // Where nothing is left the newest is known all the same.
        let spent = budget.limit() - budget.used();
        budget.take(spent).expect("room");
        let newest = cursors.give(long(7), &budget);
        assert_eq!(cursors.position(newest, true).expect("the newest"), long(7));
        drop(cursors);
        assert_eq!(budget.used(), spent);
        // Nor do they take all of a large one.
        let budget = Arc::new(Budget::new(1 << 40));
        let cursors = Cursors::default();
        (0..MOST as u64)
            .for_each(|n| _ = cursors.give(Position::Key(vec![n as u8; 60_000].into()), &budget));
        assert!(budget.used() <= MOST_BYTES, "{}", budget.used());
    }
}
