//! Checking a persistent index against the values beside it, of a map that is only read.
//!
//! What of an index an opening relies on has sums (`reopen`); after a kill of a map whose operations are no sections
//! one thing has none: a word of an entry that became zero. The values know every key, so that is found here, by
//! looking each of them up.

use crate::error::{Error, Result};
use crate::index::{Index, KeyIndex, Position, found_in};
use crate::kept::{IndexInDirectory, IndexPlace, regions};
use crate::map::Map;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_durable::{Access, Error as Below, IndexFile, MediumSpec, Seen, Values};
use terrace_index::{HashIndex, hash_key};
use terrace_memory::{Budget, Domain, Native};

/// Entries looked at together.
const PAGE: usize = 1000;

/// What [`Map::verify_index`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexVerified {
    /// The file of the index.
    pub path: PathBuf,
    /// Its entries; 0 where they were not counted.
    pub entries: u64,
    /// What is wrong with it. The values alone say what the map holds: the next opening finds the same, or rebuilds
    /// the index.
    pub damage: Option<String>,
    /// Keys that the values hold and the index does not name, or names by an older version. A kill explains what its
    /// writers had under way, a batch among it; of an index at rest there are none.
    pub unnamed: u64,
    /// Why not all of it was verified, if it was not.
    pub skipped: Option<&'static str>,
}

type Looked = std::result::Result<Option<Index<Native>>, String>;

impl Map {
    /// Verifies the persistent index beside the values: its sums, and that it names every key that they hold. `None`
    /// where none goes with them. The map was opened to be read; nothing is changed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use terrace_store::{Access, Domain, Map, MapOptions, Persist};
    /// let options = MapOptions { domain: Domain::Adr, persist: Persist::Index, ..MapOptions::default() };
    /// let map = Map::open(dir.path(), options.clone())?;
    /// map.put(b"ada", b"lovelace")?;
    /// drop(map);
    /// let map = Map::open(dir.path(), MapOptions { access: Access::Read, ..options })?;
    /// let verified = map.verify_index()?.expect("there is one");
    /// assert_eq!((verified.entries, verified.damage, verified.unnamed), (1, None, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] of a map that was opened to be written; [`Error::Medium`] and [`Error::Io`] if a file cannot
    /// be read.
    pub fn verify_index(&self) -> Result<Option<IndexVerified>> {
        let engine = &self.inner.engine;
        if engine.plan.access.writes() {
            let why =
                "an index can only be verified while no process writes: open the map for reading"
                    .into();
            return Err(Error::Option { field: "access", why });
        }
        let mark = engine.values.index_mark();
        if mark == 0 {
            return Ok(None);
        }
        let medium = engine.values.medium();
        let path = medium.path().with_file_name("index");
        let place = IndexInDirectory(MediumSpec {
            path: path.clone(),
            domain: Domain::Eadr,
            dax: false,
            capacity_bytes: 2 * medium.capacity_bytes(),
            access: Access::Read,
        });
        let mut verified = IndexVerified { path, ..IndexVerified::default() };
        let file = match place.existing() {
            Ok(Some(file)) if file.marks.contains(&mark) => file,
            Ok(Some(_)) => {
                verified.damage = Some("it belongs to other values".into());
                return Ok(Some(verified));
            }
            Ok(None) => {
                verified.damage = Some("it is missing".into());
                return Ok(Some(verified));
            }
            Err(error @ (Below::Damaged { .. } | Below::Mismatch { .. })) => {
                verified.damage = Some(error.to_string());
                return Ok(Some(verified));
            }
            Err(error) => return Err(error.into()),
        };
        match looked_at(&file, &mut verified)? {
            Ok(Some(index)) => self.hold_against(&index, file.seed, &mut verified),
            Ok(None) => {}
            Err(what) => verified.damage = Some(what),
        }
        Ok(Some(verified))
    }

    /// Looks every key of the values up in the index.
    fn hold_against(&self, index: &Index<Native>, seed: u64, verified: &mut IndexVerified) {
        let engine = &self.inner.engine;
        verified.entries = index.len();
        let mut reached = Position::Start;
        while reached != Position::End {
            let guard = crossbeam_epoch::pin();
            let located = engine.located(&guard);
            let mut page = Vec::with_capacity(PAGE);
            reached = engine.index.scan(&reached, PAGE, &located, |at| page.push(at));
            for at in page {
                let Ok(Seen::AtRest(item)) = engine.values.seen(at, &guard) else { continue };
                let named = index.get(hash_key(seed, item.key), item.key, &located);
                let named = named.and_then(|at| engine.values.seen(at, &guard).ok()?.at_rest());
                verified.unnamed += u64::from(named.is_none_or(|n| n.version < item.version));
            }
        }
    }
}

/// The table in the file, on a copy of it, after its own sums were verified; `Err` is what is wrong.
fn looked_at(file: &IndexFile, verified: &mut IndexVerified) -> Result<Looked> {
    let state = file.state();
    if !file.is_present_format() {
        verified.skipped = Some("it has an earlier format; the next opening rebuilds it");
        return Ok(Ok(None));
    }
    if state.is_exact && !state.is_closed {
        verified.skipped = Some(
            "its process was killed; the next opening replays its last section and verifies it",
        );
        return Ok(Ok(None));
    }
    let is_closed = |used: &[(u64, u64)]| match state.is_closed {
        true => file.is_as_closed(used).map_err(io::Error::other),
        false => Ok(true),
    };
    if file.tables == 0 {
        return Ok(
            match found_in::<Index<Native>>(file).and_then(|found| is_closed(&[found.used])) {
                Ok(true) => {
                    let why = "its process was killed; the next opening verifies it";
                    verified.skipped = (!state.is_closed).then_some(why);
                    Ok(None)
                }
                Ok(false) => Err("the index is not as it was closed".into()),
                Err(error) => Err(error.to_string()),
            },
        );
    }
    let budget = Arc::new(Budget::new(u64::MAX));
    let table = match state.is_exact {
        true => HashIndex::reopen(regions(file), &budget, is_closed),
        false => HashIndex::repair(regions(file), &budget),
    };
    Ok(match table {
        Ok(table) => Ok(Some(Index::Hash(table))),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
        Err(source) => {
            let path = verified.path.clone();
            return Err(Error::Io { path, doing: "verify", source });
        }
    })
}
