//! Pools: the caller's own structures of plain data, changed by failure-atomic sections.
//!
//! A pool is a heap with typed roots. What a section writes, allocates and frees is there after a crash as a whole or
//! not at all ([`terrace_durable::sections`]), and durable once [`Pool::section`] has returned.
//!
//! The medium decides how:
//! * On byte-addressable memory the file is the heap, mapped. The engine is shadow sub-paging if none is named: it
//!   writes least. Undo and redo can be named.
//! * On a disk the heap is in memory, and a section is a record of a journal in a file, synced once for all sections
//!   that wait. The engine is redo: the others would sync before each write, or write parts of sectors.
//!
//! Isolation is one lock a pool: its sections run one at a time, reads included, and wait for the disk without it. On
//! a disk it can be the caller's instead ([`PoolOptions::at_once`]): sections run at once, and commit one at a time.

mod open;

use crate::error::Result;
use crate::lock::DirectoryLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_durable::{Access, Medium, sections};
use terrace_memory::{Budget, Domain, Native};

pub use terrace_durable::plain;
pub use terrace_durable::sections::{
    EngineKind, Error as SectionError, HeapCensus, Maintenance, Offset, Plain, ROOTS, Root,
};

/// An open section of a pool.
pub type Tx<'s> = sections::Tx<'s, Native>;

/// How a pool is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// What makes its sections atomic. None: as it was made; a new one by its medium: shadow on byte-addressable
    /// memory, redo on a disk, where nothing else can be asked for.
    pub engine: Option<EngineKind>,
    /// Its size: on byte-addressable memory of the file, on a disk of the heap. None: as it was made; a new one 64
    /// MiB.
    pub bytes: Option<u64>,
    /// Bytes of the log of a new pool, which bounds what one section may write. None: 256 KiB in memory; on a disk a
    /// quarter of the heap, from 1 to 64 MiB.
    pub log_bytes: Option<u64>,
    /// The caller's number for what lies in it, the version of its structures say: opening with another one is
    /// refused. None: as it was made; a new one 0.
    pub layout: Option<u64>,
    /// On a disk: whether a section returns only when it is durable, together with those that others committed
    /// meanwhile. Otherwise [`Pool::sync`] makes all of them so, and a power cut before takes the last ones.
    pub waits: bool,
    /// On a disk: whether sections of several threads run at once. Who reads or writes what others change then holds a
    /// lock of their own for it, taken before the section and held until it has returned; what different locks protect
    /// lies in different words of 8 bytes, as objects do. A lock that is missing costs wrong values, never memory
    /// safety. What a section frees is used again by later ones. Refused in memory.
    pub at_once: bool,
    /// The persistence domain of the directory: found by the caller, or declared.
    pub domain: Domain,
    /// Whether the directory is on a DAX mount.
    pub dax: bool,
    /// What it is opened for. To be read, the pool must be there, and sections that write are refused.
    pub access: Access,
}

/// Bytes of a pool that says nothing else.
pub const DEFAULT_BYTES: u64 = 64 << 20;

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            engine: None,
            bytes: None,
            log_bytes: None,
            layout: None,
            waits: true,
            at_once: false,
            domain: Domain::PageCache,
            dax: false,
            access: Access::Write,
        }
    }
}

/// What a pool is, and how full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// What makes its sections atomic.
    pub engine: String,
    /// Whether its file is on a disk, and its heap in memory.
    pub is_on_disk: bool,
    /// The caller's number for what lies in it.
    pub layout: u64,
    /// Bytes of the heap.
    pub heap_bytes: u64,
    /// Allocated objects.
    pub objects: u64,
    /// Bytes of their slots and pages.
    pub objects_bytes: u64,
    /// Bytes of free slots and pages.
    pub free_bytes: u64,
    /// On a disk, bytes of the log that the next opening would read.
    pub log_used_bytes: u64,
    /// On a disk, bytes of the log.
    pub log_bytes: u64,
    /// On a disk, bytes written to the file since it was opened; in memory, bytes of lines written back.
    pub written_bytes: u64,
    /// On a disk, syncs since it was opened.
    pub syncs: u64,
    /// Bytes of the memory budget that it takes.
    pub memory_bytes: u64,
    /// Sections that opening it applied again.
    pub replayed: u64,
    /// What is damaged; empty but with salvage.
    pub damage: Vec<String>,
}

/// A pool. Clones are handles on the same one, for any number of threads.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    // Dropped in this order: the pool first, the lock on the directory last.
    pool: sections::Pool<Native>,
    /// The file that is the pool's memory; a pool on a disk has it in its engine.
    _medium: Option<Medium>,
    path: PathBuf,
    is_on_disk: bool,
    /// What a later opening is compared with.
    bytes: u64,
    budget: Arc<Budget>,
    budget_bytes: u64,
    _lock: DirectoryLock,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Pool {
    /// Opens the pool in directory `dir`, or makes it, and recovers it. Its memory comes from `budget`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// use terrace_store::{Pool, PoolOptions};
    /// let pool = Pool::open(dir.path(), &PoolOptions::default(), &budget)?;
    /// assert_eq!(pool.stats()?.engine, "redo", "on a disk");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Durability
    /// A new pool is there as a whole or not at all.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) if another process has it,
    /// [`Error::LockedHere`](crate::Error::LockedHere) if this one has;
    /// [`Error::Option`](crate::Error::Option) for options that cannot be, or that differ from those it was made with;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), [`Error::DiskFull`](crate::Error::DiskFull);
    /// [`Error::Medium`](crate::Error::Medium) naming file and offset of damage. What is there is not changed then.
    pub fn open(dir: &Path, options: &PoolOptions, budget: &Arc<Budget>) -> Result<Pool> {
        open::open(dir, options, budget)
    }

    /// Runs `body` as a section: all of it is there and durable when this returns `Ok`, none of it when it returns
    /// `Err` or panics. A section within one of the same thread is part of that one. Other threads' sections wait.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # use terrace_store::{Pool, PoolOptions};
    /// use terrace_store::pool::Root;
    /// const COUNT: Root<u64> = Root::new(0);
    /// let pool = Pool::open(dir.path(), &PoolOptions::default(), &budget)?;
    /// pool.section(|tx| {
    ///     let count = tx.create(&41u64)?;
    ///     tx.set(count, 42)?;
    ///     tx.set_root(COUNT, count)
    /// })?;
    /// let count = pool.section(|tx| tx.get(tx.root(COUNT)?))?;
    /// assert_eq!(count, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body`, which can be of any type that takes a [`SectionError`].
    /// [`SectionTooLarge`](SectionError::SectionTooLarge), [`InnerFailed`](SectionError::InnerFailed),
    /// [`Closed`](SectionError::Closed); [`Disk`](SectionError::Disk): then it may be there when the pool is opened
    /// again.
    pub fn section<R, E: From<SectionError>>(
        &self,
        body: impl FnOnce(&mut Tx<'_>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.inner.pool.section(body)
    }

    /// Makes all sections that have returned durable, where they do not [wait](PoolOptions::waits).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # use terrace_store::{Pool, PoolOptions};
    /// let later = PoolOptions { waits: false, ..PoolOptions::default() };
    /// let pool = Pool::open(dir.path(), &later, &budget)?;
    /// for _ in 0..100 {
    ///     pool.section(|tx| tx.create(&7u64))?;
    /// }
    /// pool.sync()?; // one sync for all of them
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Disk`](SectionError::Disk).
    pub fn sync(&self) -> Result<()> {
        Ok(self.inner.pool.sync()?)
    }

    /// The engine's background work, on this thread; sections wait meanwhile. On a disk a checkpoint, once half of the
    /// log is used; in memory, shadow's consolidation. Never needed: sections that find no room do it themselves.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let pool = terrace_store::Pool::open(dir.path(), &terrace_store::PoolOptions::default(), &budget)?;
    /// assert_eq!(pool.maintain()?.journal_lines_freed, 0, "nothing to do");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InsideSection`](SectionError::InsideSection), [`ReadOnly`](SectionError::ReadOnly),
    /// [`Closed`](SectionError::Closed).
    pub fn maintain(&self) -> Result<Maintenance> {
        Ok(self.inner.pool.maintain()?)
    }

    /// What it is, and how full; a walk over the allocation metadata, whose every byte has one owner. Sections wait
    /// meanwhile. O(heap / 4 KiB + objects).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let pool = terrace_store::Pool::open(dir.path(), &terrace_store::PoolOptions::default(), &budget)?;
    /// pool.section(|tx| tx.create(&7u64))?;
    /// assert_eq!(pool.stats()?.objects, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Medium`](crate::Error::Medium): the metadata is inconsistent, which no crash explains.
    pub fn stats(&self) -> Result<PoolStats> {
        let Inner { pool, path, is_on_disk, budget_bytes, .. } = &*self.inner;
        let census = pool.check().map_err(|what| open::damaged(path, 0, what))?;
        let [log_used_bytes, log_bytes] = pool.log_use().unwrap_or_default();
        let in_memory = || (pool.written().bytes(), 0);
        let (written_bytes, syncs) = pool.traffic().unwrap_or_else(in_memory);
        Ok(PoolStats {
            engine: pool.engine().to_string(),
            is_on_disk: *is_on_disk,
            layout: pool.layout(),
            heap_bytes: census.objects_bytes + census.free_bytes + census.metadata_bytes,
            objects: census.objects,
            objects_bytes: census.objects_bytes,
            free_bytes: census.free_bytes,
            log_used_bytes,
            log_bytes,
            written_bytes,
            syncs,
            memory_bytes: *budget_bytes,
            replayed: pool.recovery().rolled_forward,
            damage: pool.recovery().damage.clone(),
        })
    }

    /// On a disk, bytes of the log that are used, and of the whole; without a walk.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let pool = terrace_store::Pool::open(dir.path(), &terrace_store::PoolOptions::default(), &budget)?;
    /// assert_eq!(pool.log_use(), Some([0, 16 << 20]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log_use(&self) -> Option<[u64; 2]> {
        self.inner.pool.log_use()
    }

    /// What of it is damaged: nothing, unless it was opened with salvage.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let pool = terrace_store::Pool::open(dir.path(), &terrace_store::PoolOptions::default(), &budget)?;
    /// assert!(pool.damage().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn damage(&self) -> &[String] {
        &self.inner.pool.recovery().damage
    }

    /// Its file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let pool = terrace_store::Pool::open(dir.path(), &terrace_store::PoolOptions::default(), &budget)?;
    /// assert!(pool.path().starts_with(dir.path()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Makes everything durable and closes it: sections of all handles are refused then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let pool = terrace_store::Pool::open(dir.path(), &terrace_store::PoolOptions::default(), &budget)?;
    /// use terrace_store::pool::SectionError;
    /// pool.close()?;
    /// assert_eq!(pool.section(|tx| tx.create(&7u64)), Err(SectionError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InsideSection`](SectionError::InsideSection); [`Disk`](SectionError::Disk), after which it is closed all the
    /// same.
    pub fn close(&self) -> Result<()> {
        Ok(self.inner.pool.end()?)
    }

    /// Whether both are handles on one pool.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let pool = terrace_store::Pool::open(dir.path(), &terrace_store::PoolOptions::default(), &budget)?;
    /// assert!(pool.is_same(&pool.clone()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_same(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether sections are refused until it is opened again: it was closed, or its disk failed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let pool = terrace_store::Pool::open(dir.path(), &terrace_store::PoolOptions::default(), &budget)?;
    /// assert!(!pool.is_over());
    /// pool.close()?;
    /// assert!(pool.is_over());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_over(&self) -> bool {
        self.inner.pool.is_over()
    }

    /// Refuses options that ask for another pool than this open one is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # use terrace_store::{Pool, PoolOptions};
    /// let pool = Pool::open(dir.path(), &PoolOptions::default(), &budget)?;
    /// assert!(pool.must_be(&PoolOptions { layout: Some(2), ..PoolOptions::default() }).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) with both values.
    pub fn must_be(&self, options: &PoolOptions) -> Result<()> {
        let Inner { pool, path, bytes, .. } = &*self.inner;
        let engine = options.engine.unwrap_or(pool.engine());
        open::must_match(path, "engine", pool.engine(), engine)?;
        open::must_match(path, "layout", pool.layout(), options.layout.unwrap_or(pool.layout()))?;
        if let Some([waits, at_once]) = pool.on_disk_as() {
            open::must_hold(path, "waits", waits, options.waits)?;
            open::must_hold(path, "at_once", at_once, options.at_once)?;
        }
        let asked =
            options.bytes.map_or(*bytes, |bytes| open::rounded(bytes, self.inner.is_on_disk));
        open::must_match(path, "size in bytes", bytes, &asked)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.budget.give(self.budget_bytes);
    }
}
