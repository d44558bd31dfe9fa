//! A loop's sessions with the engine: one per database, made when first needed.

use crate::shared::Maps;
use terrace::Session;

/// The sessions of one loop, and which of them have something to commit.
pub(crate) struct Sessions {
    slots: Vec<Option<Session>>,
    used: u64,
}

impl Sessions {
    pub(crate) fn new(databases: usize) -> Sessions {
        Sessions { slots: (0..databases).map(|_| None).collect(), used: 0 }
    }

    /// The session with `database`, which from here on has to be committed.
    #[inline]
    pub(crate) fn open(&mut self, database: usize, maps: &Maps) -> terrace::Result<&mut Session> {
        self.used |= 1 << database;
        let slot = &mut self.slots[database];
        match slot {
            Some(session) => Ok(session),
            None => Ok(slot.insert(maps.get(database)?.session())),
        }
    }

    /// Commits every session used since the last call. `failed` hears of each that could not be.
    pub(crate) fn commit(&mut self, mut failed: impl FnMut(usize, terrace::Error)) -> bool {
        let mut used = std::mem::take(&mut self.used);
        let any = used != 0;
        while used != 0 {
            let database = used.trailing_zeros() as usize;
            used &= used - 1;
            if let Some(session) = &mut self.slots[database]
                && let Err(error) = session.commit()
            {
                failed(database, error);
                // All who were owed something are told of the failure. The next clients are owed nothing of it.
                self.slots[database] = None;
            }
        }
        any
    }
}
