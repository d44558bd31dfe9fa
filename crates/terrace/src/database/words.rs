//! Word tables: beside maps and queues, or on a mount of their own.

use super::{Database, check_name};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{MutexGuard, PoisonError};
use terrace_memory::dax;
use terrace_store::{Result, Words, WordsOptions};

impl Database {
    /// The word table `name`, opened or made: 64-bit keys to 64-bit values, without locks, each call durable
    /// when it returns. It has the database's domain and budget, and otherwise what
    /// [`WordsOptions::default`] says. Only where the directory is byte-addressable memory, or declared so.
    ///
    /// ```
    /// use terrace::{Database, Domain, MapOptions};
    ///
    /// let dir = tempfile::tempdir()?;
    /// let db = Database::open(dir.path(), MapOptions { domain: Domain::Adr, ..MapOptions::default() })?;
    /// let seats = db.words("seats")?;
    /// let mut session = seats.session()?;
    /// assert!(session.insert(17, 4)? && !session.insert(17, 5)?);
    /// assert_eq!((session.get(17), session.remove(17), session.get(17)), (Some(4), Some(4), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Words::open`], and [`Error::Option`](terrace_store::Error::Option) for a name that is not one
    /// of a map.
    pub fn words(&self, name: &str) -> Result<Words> {
        self.words_with(name, |options| options)
    }

    /// The table `name`; if it is not open yet, opened with these options as changed by `adjust`.
    ///
    /// ```
    /// use terrace::{Database, Domain, MapOptions, WordsOptions};
    /// # let dir = tempfile::tempdir()?;
    /// let adr = MapOptions { domain: Domain::Adr, ..MapOptions::default() };
    /// let db = Database::open(dir.path(), adr)?;
    /// let small = |options| WordsOptions { capacity: Some(1000), ..options };
    /// assert_eq!(db.words_with("seats", small)?.stats().capacity, 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::words`].
    pub fn words_with(
        &self,
        name: &str,
        adjust: impl FnOnce(WordsOptions) -> WordsOptions,
    ) -> Result<Words> {
        self.words_in(name, &self.dir().join("words"), adjust)
    }

    /// The same in a folder of the directory `place` instead of one of the database's: on the mount of a
    /// persistent memory, while maps are on a disk.
    ///
    /// ```
    /// use terrace::{Database, Domain, MapOptions};
    /// # let (dir, pmem) = (tempfile::tempdir()?, tempfile::tempdir()?);
    /// let adr = MapOptions { domain: Domain::Adr, ..MapOptions::default() };
    /// let db = Database::open(dir.path(), adr)?;
    /// let small = |options| terrace::WordsOptions { capacity: Some(1000), ..options };
    /// let seats = db.words_in("seats", pmem.path(), small)?;
    /// assert!(seats.session()?.insert(17, 4)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::words`].
    pub fn words_in(
        &self,
        name: &str,
        place: &Path,
        adjust: impl FnOnce(WordsOptions) -> WordsOptions,
    ) -> Result<Words> {
        check_name("word table", "_-.", name)?;
        let mut tables = self.tables_of_words();
        if let Some(words) = tables.get(name) {
            return Ok(words.clone());
        }
        let base = WordsOptions {
            domain: self.options().domain,
            access: self.options().access,
            ..WordsOptions::default()
        };
        let mut options = adjust(base);
        options.dax = options.domain.is_byte_addressable()
            && dax::direct_access(existing(place))
                .is_ok_and(|access| access.map_sync == dax::MapSync::Works);
        let words = Words::open(&place.join(name), &options, &self.shared.budget)?;
        tables.insert(name.to_string(), words.clone());
        Ok(words)
    }

    /// Names of the word tables, open or in the database's directory, sorted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// assert!(db.words_names()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) for a folder that cannot be read.
    pub fn words_names(&self) -> Result<Vec<String>> {
        let open = self.tables_of_words().keys().cloned().collect();
        self.names("words", open, |file| file == "table")
    }

    pub(super) fn tables_of_words(&self) -> MutexGuard<'_, BTreeMap<String, Words>> {
        // As for maps.
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a path that is there already: what a new folder will be on.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|part| part.is_dir()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_memory::Domain;
    use terrace_store::MapOptions;

    #[test]
    fn tables_of_words_are_found_again_and_refused_on_a_disk() {
        let dir = tempfile::tempdir().expect("directory");
        let adr = MapOptions { domain: Domain::Adr, ..MapOptions::default() };
        let db = Database::open(dir.path(), adr.clone()).expect("open");
        let small = |options| WordsOptions { capacity: Some(1000), ..options };
        let seats = db.words_with("seats", small).expect("a table");
        assert!(seats.is_same(&db.words("seats").expect("open")));
        assert!(seats.session().expect("a session").insert(3, 33).expect("room"));
        let elsewhere = tempfile::tempdir().expect("directory");
        db.words_in("more", &elsewhere.path().join("pmem"), small).expect("elsewhere");
        assert!(elsewhere.path().join("pmem/more/table").is_file());
        assert!(db.words("a/b").is_err() && db.words("").is_err());
        drop(seats);
        db.close().expect("close");
        let db = Database::open(dir.path(), adr).expect("open");
        assert_eq!(db.words_names().expect("names"), ["seats"]);
        let seats = db.words("seats").expect("as it was made");
        assert_eq!(seats.session().expect("a session").get(3), Some(33));
        assert_eq!(seats.recovery().keys, 1);
        let disk = tempfile::tempdir().expect("directory");
        let db = Database::open(disk.path(), MapOptions::default()).expect("open");
        let refused = db.words("seats").expect_err("a disk").to_string();
        assert!(refused.contains("byte-addressable") && !refused.contains('\n'), "{refused}");
    }
}
