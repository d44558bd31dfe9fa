//! Where scans of an ordered map stand. A cursor is a number, and a place between keys is not: so each
//! number stands for a key that was written down here.

use crate::error::{Error, Result};
use crate::index::Position;
use crate::map::Cursor;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

/// Scans that may be under way at a time; the cursor that was given out longest ago is forgotten.
const MOST: usize = 4096;

#[derive(Default)]
pub(crate) struct Cursors {
    given: Mutex<Given>,
}

struct Given {
    /// The last that was given.
    last: Cursor,
    /// The keys of the last ones.
    keys: VecDeque<Box<[u8]>>,
}

impl Default for Given {
    /// Begins anywhere: a cursor of an earlier opening must not stand for another place.
    fn default() -> Given {
        Given { last: RandomState::new().hash_one(0) >> 8, keys: VecDeque::new() }
    }
}

impl Cursors {
    /// The cursor that stands for a position.
    pub fn give(&self, position: Position) -> Cursor {
        match position {
            Position::Start | Position::End => 0,
            Position::Bucket(cursor) => cursor,
            Position::At(key) | Position::Key(key) => {
                let mut given = self.given.lock();
                given.last += 1;
                given.keys.push_back(key);
                if given.keys.len() > MOST {
                    given.keys.pop_front();
                }
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
        let key = |n: u64| Position::Key(n.to_be_bytes().into());
        let given: Vec<Cursor> = (0..=MOST as u64).map(|n| cursors.give(key(n))).collect();
        for (n, cursor) in given.iter().enumerate().skip(1) {
            assert_eq!(cursors.position(*cursor, true).expect("known"), key(n as u64));
        }
        for unknown in [given[0], given[MOST] + 1, u64::MAX] {
            let refused = cursors.position(unknown, true).expect_err("unknown");
            assert!(matches!(refused, Error::Cursor(cursor) if cursor == unknown));
        }
        assert_ne!(Cursors::default().give(key(0)), Cursors::default().give(key(0)));
        assert_eq!(cursors.give(Position::End), 0);
        assert_eq!(cursors.position(0, true).expect("the start"), Position::Start);
        assert_eq!(cursors.position(7, false).expect("a bucket"), Position::Bucket(7));
    }
}
