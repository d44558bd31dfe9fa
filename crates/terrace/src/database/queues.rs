//! Queues: beside maps.

use super::{Database, check_name, may_be_name};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use terrace_store::{Error, Queue, QueueOptions, Result};

impl Database {
    /// The queue `name`, opened or made: bounded, first in first out, for any number of producers and
    /// consumers. It has the database's durability, domain and budget, and otherwise what
    /// [`QueueOptions::default`] says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let jobs = db.queue("jobs")?;
    /// jobs.push(b"first")?;
    /// assert_eq!(jobs.pop()?.as_deref(), Some(&b"first"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Queue::open`], and [`Error::Option`](crate::Error::Option) for a name that is not 1 to 64 letters,
    /// digits, `_`, `-`, `:` or `.` (not first).
    pub fn queue(&self, name: &str) -> Result<Queue> {
        self.queue_with(name, |options| options)
    }

    /// The queue `name`; if it is not open yet, opened with these options as changed by `adjust`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::QueueOptions;
    /// let small = |options| QueueOptions { capacity_bytes: Some(1 << 20), ..options };
    /// assert_eq!(db.queue_with("jobs", small)?.stats().elements, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::queue`].
    pub fn queue_with(
        &self,
        name: &str,
        adjust: impl FnOnce(QueueOptions) -> QueueOptions,
    ) -> Result<Queue> {
        check_name("queue", "_-.:", name)?;
        let is_open = || {
            let found = self.queues().get(name).cloned();
            found.filter(|queue| !queue.was_given_up())
        };
        if let Some(queue) = is_open() {
            return Ok(queue);
        }
        let _alone = self.queue_changes();
        if let Some(queue) = is_open() {
            return Ok(queue);
        }
        let options = adjust(QueueOptions {
            durability: self.options.durability,
            domain: self.options.domain,
            dax: self.options.dax,
            access: self.options.access,
            ..QueueOptions::default()
        });
        let queue =
            Queue::open(&self.dir.join("queues").join(name), &options, &self.shared.budget)?;
        self.queues().insert(name.to_string(), queue.clone());
        Ok(queue)
    }

    /// Removes the queue `name` if it is open and has no elements: its name, memory and disk are free on return, and
    /// other handles on it refuse everything, [`Queue::was_given_up`]. Whether it was removed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.queue("jobs")?.push(b"first")?;
    /// assert!(!db.give_up_queue("jobs")?, "it has an element");
    /// db.queue("jobs")?.pop()?;
    /// assert!(db.give_up_queue("jobs")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Queue::close`]: then it has stopped, and its name is not free. [`Error::Io`] when its folder cannot
    /// be removed: then an empty queue may be there again when the database is opened.
    pub fn give_up_queue(&self, name: &str) -> Result<bool> {
        let _alone = self.queue_changes();
        let Some(queue) = self.queues().get(name).cloned() else { return Ok(false) };
        if !queue.give_up()? {
            return Ok(false);
        }
        self.queues().remove(name);
        // Handles that are still about have its lock: whoever makes a queue of this name makes another folder.
        let folder = self.dir.join("queues");
        let (named, unnamed) = (folder.join(name), folder.join(format!(".{name}")));
        let failed = |doing| {
            let path = named.clone();
            move |source| Error::Io { path, doing, source }
        };
        // One that could not be removed.
        let _none_as_a_rule = std::fs::remove_dir_all(&unnamed);
        std::fs::rename(&named, &unnamed).map_err(failed("rename"))?;
        std::fs::remove_dir_all(&unnamed).map_err(failed("remove"))?;
        let synced = std::fs::File::open(&folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed("sync the folder of"))?;
        Ok(true)
    }

    /// Names of the queues, open or on disk, sorted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.queue("jobs")?;
    /// assert_eq!(db.queue_names()?, ["jobs"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when their folder cannot be read.
    pub fn queue_names(&self) -> Result<Vec<String>> {
        let open = self.queues().keys().cloned().collect();
        self.names("queues", open, |file| file == "ring")
    }

    /// The queues that are open, by name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.queue("jobs")?;
    /// assert_eq!(db.open_queues()[0].0, "jobs");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_queues(&self) -> Vec<(String, Queue)> {
        self.queues().iter().map(|(name, queue)| (name.clone(), queue.clone())).collect()
    }

    /// Held by whoever makes or removes a queue, while it waits for the disk; never inside [`Database::queues`].
    fn queue_changes(&self) -> MutexGuard<'_, ()> {
        self.queue_changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what a crash left between the renaming and the removal of queues' folders. One that cannot be is left
    /// to the next opening, and one that holds anything else is somebody's.
    pub(super) fn sweep_queues(&self) {
        let folder = self.dir.join("queues");
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            let was_queue = name.strip_prefix('.').is_some_and(|name| may_be_name("_-.:", name));
            let is_ours = |file: std::io::Result<std::fs::DirEntry>| {
                file.is_ok_and(|file| file.file_name() == "ring" || file.file_name() == "lock")
            };
            let path = entry.path();
            if was_queue && std::fs::read_dir(&path).is_ok_and(|mut files| files.all(is_ours)) {
                let _later = std::fs::remove_dir_all(&path);
            }
        }
    }

    /// Never held while somebody waits for the disk.
    pub(super) fn queues(&self) -> MutexGuard<'_, BTreeMap<String, Queue>> {
        // As for maps.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
