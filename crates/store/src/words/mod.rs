//! A durable table of 64-bit words by 64-bit words: persistent lists of `index` as the buckets of a hash table,
//! in a file that is used where it lies.
//!
//! Any number of threads insert, remove and look at once without locks, and each call is durable when it
//! returns: what it told is there after a crash, and so is what it was told. Nothing is written later, so there
//! is no durability to choose, nothing to flush, and an orderly end writes nothing.
//!
//! That takes memory of which single lines become durable by instructions: a DAX mount, or a directory declared to
//! be such memory ([`WordsOptions::domain`]). On a disk a word table is refused: it would promise what no
//! instruction keeps there.
//!
//! Four forms make the same table durable in different ways ([`Form`]). Number of keys and form are fixed when it
//! is made, and opening it reads all of it, or walks it: O(capacity).

mod any;
mod open;

use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use any::{AnySession, AnyTable};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace_durable::{Access, Medium};
use terrace_lockfree::list::Media;
use terrace_memory::{Budget, Domain, Memory, Native, Region};

pub use any::Form;
pub use terrace_lockfree::list::SESSIONS;

/// How a word table is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct WordsOptions {
    /// How it is made durable. None: as it was made; for a new one, link-free.
    pub form: Option<Form>,
    /// The most keys, less a few hundred for each session whose removals are not done with; 64 bytes of the
    /// file each, and half as many again for buckets. None: as it was made; for a new one, 2^20.
    pub capacity: Option<u64>,
    /// The persistence domain of the directory: found by the caller, or declared.
    pub domain: Domain,
    /// Whether the directory is on a DAX mount.
    pub dax: bool,
    /// What it is opened for. To be read, the table must be there, wherever it lies; nothing can be inserted, and what
    /// is removed is in the file as before.
    pub access: Access,
}

/// Keys of a table that says nothing else.
pub const DEFAULT_CAPACITY: u64 = 1 << 20;

impl Default for WordsOptions {
    fn default() -> WordsOptions {
        let (domain, access) = (Domain::PageCache, Access::Write);
        WordsOptions { form: None, capacity: None, domain, dax: false, access }
    }
}

/// What opening a table found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordsRecovery {
    /// Keys in it.
    pub keys: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// What a table is, and how full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordsStats {
    /// How it is made durable.
    pub form: Form,
    /// Nodes: the most keys.
    pub capacity: u64,
    /// Nodes in use: keys, and removed ones that a thread may still look at.
    pub used: u64,
    /// Lists that keys are spread over.
    pub buckets: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Bytes of the memory budget that it takes: the file's, and what it has in DRAM.
    pub memory_bytes: u64,
}

/// A durable word table. Clones are handles on the same table; threads have a [session](Words::session) each.
#[derive(Clone)]
pub struct Words<M: Memory + Clone = Native> {
    inner: Arc<Inner<M>>,
}

struct Inner<M: Memory + Clone> {
    // Dropped in this order: the table first, the lock on the directory last.
    table: AnyTable<M>,
    /// The memory of the table's links, where they have one.
    _links: Option<Region>,
    /// Its file; a table on memories alone has none.
    medium: Option<Medium>,
    recovery: WordsRecovery,
    budget: Arc<Budget>,
    budget_bytes: u64,
    _lock: Option<DirectoryLock>,
}

impl<M: Memory + Clone> std::fmt::Debug for Words<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.inner.medium.as_ref().map(Medium::path);
        f.debug_struct("Words").field("path", &path).finish_non_exhaustive()
    }
}

impl Words {
    /// Opens the table in directory `dir`, made if absent, and recovers it. Its memory comes from `budget`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// use terrace_store::{Domain, Words, WordsOptions};
    /// let options = WordsOptions { domain: Domain::Adr, ..WordsOptions::default() };
    /// let words = Words::open(dir.path(), &options, &budget)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Durability
    /// A new table is there as a whole or not at all. Recovery writes only what leaves the same to the next one.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it;
    /// [`Error::Option`] on a disk, and for options that cannot be or that differ from
    /// those it was made with; [`Error::OutOfMemory`];
    /// [`Error::Medium`] naming file and offset of damage.
    pub fn open(dir: &Path, options: &WordsOptions, budget: &Arc<Budget>) -> Result<Words> {
        open::open(dir, options, budget)
    }

    /// Its file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// assert!(words.path().starts_with(dir.path()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path(&self) -> PathBuf {
        let medium = self.inner.medium.as_ref();
        medium.map_or_else(PathBuf::new, |medium| medium.path().to_path_buf())
    }
}

impl<M: Memory + Clone> Words<M> {
    /// Opens, or makes, the table in memories that somebody else has: for trying it on those that crash.
    ///
    /// ```
    /// use terrace_lockfree::list::Media;
    /// use terrace_store::{Words, WordsOptions};
    /// let region = terrace_memory::Region::reserve(16 << 20, terrace_memory::Backing::Anonymous)?;
    /// region.commit(0, 16 << 20)?;
    /// let options = WordsOptions { capacity: Some(1000), ..WordsOptions::default() };
    /// let words = Words::on(Media::one(region.native()), true, &options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Words::open`].
    pub fn on(media: Media<M>, is_new: bool, options: &WordsOptions) -> Result<Words<M>> {
        open::on(media, is_new, options)
    }

    /// A handle for one thread: [`SESSIONS`] of them at most.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// let mut session = words.session()?;
    /// session.insert(1, 10)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Sessions`].
    pub fn session(&self) -> Result<WordsSession<M>> {
        let session = self.inner.table.session()?;
        let refusal = self.inner.medium.as_ref().and_then(|medium| medium.access().refusal());
        Ok(WordsSession { session, refusal, _words: self.clone() })
    }

    /// What opening it found.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// assert_eq!(words.recovery().keys, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recovery(&self) -> WordsRecovery {
        self.inner.recovery
    }

    /// What it is, and how full. O(capacity / 64).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// words.session()?.insert(1, 10)?;
    /// assert_eq!(words.stats().used, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> WordsStats {
        let table = &self.inner.table;
        let (size, file) = (table.size(), self.inner.medium.as_ref());
        WordsStats {
            form: table.form(),
            capacity: size.capacity,
            used: size.capacity - table.free_nodes(),
            buckets: size.buckets,
            file_bytes: file.and_then(|medium| medium.file_bytes().ok()).unwrap_or(0),
            memory_bytes: self.inner.budget_bytes,
        }
    }

    /// Whether both are handles on one table.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// assert!(words.is_same(&words.clone()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_same(&self, other: &Words<M>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl<M: Memory + Clone> Drop for Inner<M> {
    fn drop(&mut self) {
        self.budget.give(self.budget_bytes);
    }
}

/// One thread's handle on a word table.
///
/// Calls of all sessions are linearizable. Each is durable on return, a reader's too: what it was told comes back.
/// Cost: a walk over the keys of a bucket, two on the average, a line each; what is written back and waited
/// for is said of each [`Form`].
pub struct WordsSession<M: Memory + Clone = Native> {
    session: AnySession<M>,
    /// Why nothing can be inserted, if so.
    refusal: Option<&'static str>,
    /// The memory that the session works on outlives it.
    _words: Words<M>,
}

impl<M: Memory + Clone> WordsSession<M> {
    /// Adds `key` with its value, unless it is there; whether it was not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// # let mut session = words.session()?;
    /// assert!(session.insert(1, 10)? && !session.insert(1, 11)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WordsFull`], [`Error::ReadOnly`]: nothing has changed.
    pub fn insert(&mut self, key: u64, value: u64) -> Result<bool> {
        match self.refusal {
            Some(reason) => Err(Error::ReadOnly(reason.into())),
            None => self.session.insert(key, value),
        }
    }

    /// Removes `key`; its value, if it was there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// # let mut session = words.session()?;
    /// session.insert(1, 10)?;
    /// assert_eq!(session.remove(1), Some(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        self.session.remove(key)
    }

    /// The value of `key`, if it is there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// # let mut session = words.session()?;
    /// session.insert(1, 10)?;
    /// assert_eq!(session.get(1), Some(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn get(&mut self, key: u64) -> Option<u64> {
        self.session.get(key)
    }

    /// Visits every key with its value, in no order that means anything. One that is there from the first step
    /// to the last is visited once; one that comes or goes meanwhile may be or not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let domain = terrace_store::Domain::Adr;
    /// # let options = terrace_store::WordsOptions { domain, ..Default::default() };
    /// # let words = terrace_store::Words::open(dir.path(), &options, &budget)?;
    /// # let mut session = words.session()?;
    /// session.insert(1, 10)?;
    /// let mut sum = 0;
    /// session.visit(|key, value| sum += key + value);
    /// assert_eq!(sum, 11);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn visit(&mut self, visit: impl FnMut(u64, u64)) {
        self.session.visit(visit);
    }
}

impl<M: Memory + Clone> std::fmt::Debug for WordsSession<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WordsSession").finish_non_exhaustive()
    }
}
