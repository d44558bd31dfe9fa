//! What a statement reads: all maps at one moment, with what its transaction has written.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::{Map, MapSnapshot, Moment, Range, Transaction};

/// The transaction of a statement, or of several.
pub(crate) struct View {
    pub moment: Arc<Moment>,
    transaction: Mutex<Option<Transaction>>,
    is_serializable: bool,
    /// Statements that have written.
    changes: AtomicU64,
}

impl View {
    pub fn new(mut transaction: Transaction, is_serializable: bool) -> Arc<View> {
        if is_serializable {
            transaction.certify_reads();
        }
        let (moment, changes) = (Arc::clone(transaction.moment()), AtomicU64::new(0));
        Arc::new(View {
            moment,
            transaction: Mutex::new(Some(transaction)),
            is_serializable,
            changes,
        })
    }

    /// Runs `f` on the transaction.
    ///
    /// # Errors
    /// Those of `f`; [`Error::TransactionEnded`] if it has ended.
    pub fn with<R>(&self, f: impl FnOnce(&mut Transaction) -> Result<R>) -> Result<R> {
        f(self.transaction.lock().as_mut().ok_or(Error::TransactionEnded)?)
    }

    /// Runs `f`, which may write.
    ///
    /// # Errors
    /// As [`View::with`].
    pub fn write<R>(&self, f: impl FnOnce(&mut Transaction) -> Result<R>) -> Result<R> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.with(f)
    }

    /// Commits it.
    ///
    /// # Errors
    /// [`Error::Conflict`], and those of the database.
    pub fn commit(&self) -> Result<()> {
        let transaction = self.transaction.lock().take().ok_or(Error::TransactionEnded)?;
        transaction.commit().map_err(|error| match error {
            conflict @ terrace::Error::Conflict { .. } => Error::Conflict(conflict),
            other => Error::Database(other),
        })
    }

    /// What a scan of `map` reads: through the transaction if that has written, or certifies what it reads.
    ///
    /// # Errors
    /// Those of the database.
    pub fn source(self: &Arc<Self>, map: &Map) -> Result<Source> {
        match self.changes.load(Ordering::Relaxed) {
            0 if !self.is_serializable => Ok(Source::Snapshot(map.at(&self.moment)?)),
            changes => {
                Ok(Source::Transaction { view: Arc::clone(self), map: map.clone(), changes })
            }
        }
    }
}

/// Where a scan reads.
pub(crate) enum Source {
    Snapshot(MapSnapshot),
    /// As long as so many statements have written: rows are not to be a mixture.
    Transaction {
        view: Arc<View>,
        map: Map,
        changes: u64,
    },
}

impl Source {
    /// Visits the keys from `from` on until `each` says no; whether there are none any more.
    ///
    /// # Errors
    /// Those of the database.
    pub fn visit(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool> {
        let range = Range::from((from, to));
        let mut goes_on = true;
        match self {
            Source::Snapshot(snapshot) => {
                snapshot.range_while(range, &mut { usize::MAX }, |key, value| {
                    goes_on = goes_on && each(key, value.bytes);
                    goes_on
                })?;
            }
            Source::Transaction { view, map, changes } => {
                let tell = |key: &[u8], value: terrace::Value<'_>| {
                    goes_on = goes_on && each(key, value.bytes);
                    goes_on
                };
                view.with(|transaction| {
                    if view.changes.load(Ordering::Relaxed) != *changes {
                        return Err(Error::RowsAreOld);
                    }
                    Ok(transaction.range_while(map, range, tell)?)
                })?;
            }
        }
        Ok(goes_on)
    }
}
