//! What a statement reads: all maps at one moment, with what its transaction has written.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use terrace::{Map, MapSnapshot, Moment, Range, Transaction};

/// The transaction of a statement, or of several.
pub(crate) struct View {
    pub moment: Arc<Moment>,
    /// When that was.
    pub began: Instant,
    transaction: Mutex<Option<Transaction>>,
    is_serializable: bool,
    /// Whether no map has some of the keys that others write as one.
    pub is_alone: bool,
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
            began: Instant::now(),
            transaction: Mutex::new(Some(transaction)),
            is_serializable,
            is_alone: true,
            changes,
        })
    }

    /// The same of a moment when others may have written a part of several keys, of maps that are no tables.
    pub fn shared(transaction: Transaction) -> Arc<View> {
        let mut view = View::new(transaction, false);
        if let Some(view) = Arc::get_mut(&mut view) {
            view.is_alone = false;
        }
        view
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
        transaction.commit().map_err(Error::of_commit)
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

/// What reads a map at one moment.
pub(crate) trait Reads {
    /// Visits the keys of a range until `each` says no; whether there are none any more.
    ///
    /// # Errors
    /// Those of the database.
    fn visit(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool>;

    /// The last item of a range.
    ///
    /// # Errors
    /// Those of the database.
    fn last(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Option<(Vec<u8>, Vec<u8>)>>;

    /// Tells `each` the number and the value of each of these keys.
    ///
    /// # Errors
    /// Those of the database.
    fn many(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;
}

impl Reads for Source {
    fn visit(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool> {
        match self {
            Source::Snapshot(snapshot) => {
                let mut goes_on = true;
                snapshot.range_while(
                    Range::from((from, to)),
                    &mut { usize::MAX },
                    |key, value| {
                        goes_on = goes_on && each(key, value.bytes);
                        goes_on
                    },
                )?;
                Ok(goes_on)
            }
            Source::Transaction { .. } => self.within(|within| within.visit(from, to, each)),
        }
    }

    fn last(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match self {
            Source::Snapshot(snapshot) => {
                let (range, mut last) = (Range::from((from, to)).reversed(), None);
                snapshot.range_while(range, &mut { usize::MAX }, |key, value| {
                    last = Some((key.to_vec(), value.bytes.to_vec()));
                    false
                })?;
                Ok(last)
            }
            Source::Transaction { .. } => self.within(|within| within.last(from, to)),
        }
    }

    fn many(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        match self {
            Source::Snapshot(snapshot) => Ok(snapshot
                .multi_get(keys, |number, value| each(number, value.map(|value| value.bytes)))?),
            Source::Transaction { .. } => self.within(|within| within.many(keys, each)),
        }
    }
}

impl Source {
    /// All items of a map that statements do not write to.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if what is read is to be certified, and those of the database.
    pub fn all(&self) -> Result<MapSnapshot> {
        match self {
            Source::Snapshot(snapshot) => Ok(snapshot.clone()),
            Source::Transaction { view, .. } if view.is_serializable => Err(Error::Unsupported {
                what: "reading all of a hash map in a serializable transaction".into(),
                instead: "BEGIN without ISOLATION LEVEL SERIALIZABLE",
            }),
            Source::Transaction { view, map, .. } => Ok(map.at(&view.moment)?),
        }
    }

    fn within<R>(&self, f: impl FnOnce(Within<'_>) -> Result<R>) -> Result<R> {
        let Source::Transaction { view, map, changes } = self else {
            unreachable!("invariant: asked of transactions only")
        };
        view.with(|transaction| {
            if view.changes.load(Ordering::Relaxed) != *changes {
                return Err(Error::RowsAreOld);
            }
            f(Within::new(transaction, map))
        })
    }
}

/// A map as a transaction reads it.
pub(crate) struct Within<'a> {
    transaction: RefCell<&'a mut Transaction>,
    map: &'a Map,
}

impl<'a> Within<'a> {
    pub fn new(transaction: &'a mut Transaction, map: &'a Map) -> Within<'a> {
        Within { transaction: RefCell::new(transaction), map }
    }
}

impl Reads for Within<'_> {
    fn visit(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool> {
        let mut goes_on = true;
        self.transaction.borrow_mut().range_while(
            self.map,
            Range::from((from, to)),
            |key, value| {
                goes_on = goes_on && each(key, value.bytes);
                goes_on
            },
        )?;
        Ok(goes_on)
    }

    fn last(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (range, mut last) = (Range::from((from, to)).reversed(), None);
        self.transaction.borrow_mut().range_while(self.map, range, |key, value| {
            last = Some((key.to_vec(), value.bytes.to_vec()));
            false
        })?;
        Ok(last)
    }

    fn many(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut transaction = self.transaction.borrow_mut();
        for (number, key) in keys.iter().enumerate() {
            let found =
                transaction.get_with(self.map, key, |value| each(number, Some(value.bytes)))?;
            if found.is_none() {
                each(number, None);
            }
        }
        Ok(())
    }
}
