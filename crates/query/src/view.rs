//! What a statement reads: all maps at one moment, with what its transaction has written.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::{Map, MapSnapshot, Moment, Range, Transaction};

/// The transaction of a statement, or of several.
pub(crate) struct View {
    pub moment: Arc<Moment>,
    transaction: Mutex<Option<Transaction>>,
    /// Whether reads must go through the transaction: it has written, or certifies what it reads.
    through: AtomicBool,
}

impl View {
    pub fn new(mut transaction: Transaction, is_serializable: bool) -> Arc<View> {
        if is_serializable {
            transaction.certify_reads();
        }
        let (moment, through) =
            (Arc::clone(transaction.moment()), AtomicBool::new(is_serializable));
        Arc::new(View { moment, transaction: Mutex::new(Some(transaction)), through })
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
        self.through.store(true, Ordering::Relaxed);
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

    /// What a scan of `map` reads.
    ///
    /// # Errors
    /// Those of the database.
    pub fn source(self: &Arc<Self>, map: &Map) -> Result<Source> {
        match self.through.load(Ordering::Relaxed) {
            true => Ok(Source::Transaction(Arc::clone(self), map.clone())),
            false => Ok(Source::Snapshot(map.at(&self.moment)?)),
        }
    }
}

/// Where a scan reads.
pub(crate) enum Source {
    Snapshot(MapSnapshot),
    Transaction(Arc<View>, Map),
}

/// Keys of a transaction that are read as one.
const PAGE: usize = 256;

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
            Source::Transaction(view, map) => {
                let mut rest: Option<Vec<u8>> = None;
                while goes_on {
                    let range = rest.as_deref().map_or(range, |last| range.behind(last));
                    let tell = |key: &[u8], value: terrace::Value<'_>| {
                        goes_on = goes_on && each(key, value.bytes);
                    };
                    rest =
                        view.with(|transaction| Ok(transaction.range(map, range, PAGE, tell)?))?;
                    if rest.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(goes_on)
    }
}
