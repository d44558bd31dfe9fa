//! Pools: beside maps and queues.

use super::{Database, check_name};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use terrace_store::{Pool, PoolOptions, Result};

impl Database {
    /// The pool `name`, opened or made: a heap of the caller's own structures, changed by failure-atomic sections. It
    /// has the database's domain and budget, and otherwise what [`PoolOptions::default`] says.
    ///
    /// ```
    /// use terrace::pool::{Offset, Root};
    /// use terrace::{Database, MapOptions, plain};
    ///
    /// plain! {
    ///     struct Link {
    ///         value: u64,
    ///         next: Offset<Link>,
    ///     }
    /// }
    /// const HEAD: Root<Link> = Root::new(0);
    ///
    /// let dir = tempfile::tempdir()?;
    /// let db = Database::open(dir.path(), MapOptions::default())?;
    /// let list = db.pool("list")?;
    /// for value in 1..=3 {
    ///     list.section(|tx| {
    ///         let next = tx.root(HEAD)?;
    ///         let link = tx.create(&Link { value, next })?;
    ///         tx.set_root(HEAD, link)
    ///     })?;
    /// }
    /// let first = list.section(|tx| tx.get(tx.root(HEAD)?))?;
    /// assert_eq!(first.value, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Pool::open`], and [`Error::Option`](crate::Error::Option) for a name that is not one of a map.
    pub fn pool(&self, name: &str) -> Result<Pool> {
        self.pool_with(name, |options| options)
    }

    /// The pool `name`; if it is not open yet, opened with these options as changed by `adjust`. One that is open
    /// must be of the engine, size and layout that they name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::PoolOptions;
    /// let small = |options| PoolOptions { bytes: Some(1 << 20), layout: Some(7), ..options };
    /// assert_eq!(db.pool_with("list", small)?.stats()?.heap_bytes, 1 << 20);
    /// let other = |options| PoolOptions { layout: Some(8), ..options };
    /// assert!(db.pool_with("list", other).is_err(), "of another layout");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::pool`].
    pub fn pool_with(
        &self,
        name: &str,
        adjust: impl FnOnce(PoolOptions) -> PoolOptions,
    ) -> Result<Pool> {
        check_name("pool", "_-.", name)?;
        let options = adjust(PoolOptions {
            domain: self.options().domain,
            dax: self.options().dax,
            access: self.options().access,
            ..PoolOptions::default()
        });
        let mut pools = self.pools();
        match pools.get(name) {
            Some(pool) if !pool.is_over() => {
                pool.must_be(&options)?;
                return Ok(pool.clone());
            }
            // Opened again, once its other handles are gone.
            Some(_) => drop(pools.remove(name)),
            None => {}
        }
        let folder = self.dir().join("pools").join(name);
        let pool = Pool::open(&folder, &options, &self.shared.budget)?;
        pools.insert(name.to_string(), pool.clone());
        Ok(pool)
    }

    /// Names of the pools, open or on disk, sorted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.pool("list")?;
    /// assert_eq!(db.pool_names()?, ["list"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) for a folder that cannot be read.
    pub fn pool_names(&self) -> Result<Vec<String>> {
        let open = self.pools().keys().cloned().collect();
        self.names("pools", open, |file| matches!(file, "pool" | "pool-journal"))
    }

    /// The pools that are open, by name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.pool("list")?;
    /// assert_eq!(db.open_pools()[0].0, "list");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_pools(&self) -> Vec<(String, Pool)> {
        self.pools().iter().map(|(name, pool)| (name.clone(), pool.clone())).collect()
    }

    pub(super) fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Pool>> {
        // As for maps.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
