//! Where a persistent index lies: in a file beside the values, or in a memory that was given.

use crate::error::{Error, Result};
use crate::index::Index;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_durable::sections::{Both, Changes, Joint};
use terrace_durable::{Allocation, Area, Error as Below, IndexFile, Medium, MediumSpec, Pages};
use terrace_index::{HashIndex, Reserved};
use terrace_memory::{Backing, Budget, Divide, Memory, Native};

/// Parts of a memory begin at multiples of this.
const PART_BYTES: u64 = 4096;

/// A persistent index's file, and what is kept with it.
pub(crate) struct Kept<I: Memory> {
    pub file: IndexFile<I>,
    pub allocation: Allocation<I>,
    /// Whether every operation is a section (`persist = "full"`).
    pub sections: Option<Joint>,
}

impl<I: Memory> Kept<I> {
    /// Changes the words together.
    pub fn commit<M: Memory>(&self, values: &M, changes: &mut Changes, publish: impl FnOnce()) {
        let sections = self.sections.as_ref().expect("words of sections are where there are some");
        sections.commit(Both { values, index: self.allocation.memory() }, changes, publish);
    }
}

/// A place for an index.
pub(crate) trait IndexPlace<I: Divide> {
    /// The index that is there.
    fn existing(&self) -> std::result::Result<Option<IndexFile<I>>, Below>;
    /// An empty place for one, whatever was there.
    fn make(&self, tables: u32, seed: u64, mark: u64, pages: Pages) -> Result<IndexFile<I>>;
    /// What it is called in errors.
    fn path(&self) -> PathBuf;
    /// Room in the same memory for inner nodes, which are rebuilt: nothing of before is there.
    fn inner(&self, bytes: u64) -> std::io::Result<Reserved<Native>>;
}

/// In a file.
pub(crate) struct IndexInDirectory(pub MediumSpec);

impl IndexInDirectory {
    /// Removes the file, if there is one: the values do not name it any more.
    pub fn remove(&self) -> Result<()> {
        let doing = "remove";
        removed(&self.0.path).map_err(|source| Error::Io {
            path: self.0.path.clone(),
            doing,
            source,
        })
    }
}

/// Removes a file, if there is one.
fn removed(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl IndexPlace<Native> for IndexInDirectory {
    fn existing(&self) -> std::result::Result<Option<IndexFile>, Below> {
        if !Path::new(&self.0.path).exists() {
            return Ok(None);
        }
        IndexFile::open(Medium::open(&self.0)?).map(Some)
    }

    fn make(&self, tables: u32, seed: u64, mark: u64, pages: Pages) -> Result<IndexFile> {
        self.remove()?;
        Ok(IndexFile::make(Medium::open(&self.0)?, tables, seed, mark, pages)?)
    }

    fn path(&self) -> PathBuf {
        self.0.path.clone()
    }

    fn inner(&self, bytes: u64) -> std::io::Result<Reserved<Native>> {
        let path = self.0.path.with_file_name("index.inner");
        // Of one that a process left behind between the next lines nothing is read.
        removed(&path)?;
        let spec = MediumSpec { path: path.clone(), capacity_bytes: bytes, ..self.0.clone() };
        let medium = Medium::open(&spec).map_err(as_io)?;
        // Nobody is to find it: it is gone with the process, however that ends.
        removed(&path)?;
        let memory = medium.memory().clone();
        let commit = Box::new(move |at, bytes| medium.grow(at, bytes).map_err(as_io));
        Ok(Reserved { memory, commit, start: 0 })
    }
}

/// In a memory.
pub(crate) struct IndexInMemory<I> {
    pub memory: I,
    /// Whether nothing was ever written to it.
    pub is_new: bool,
}

impl<I: Divide + Clone> IndexPlace<I> for IndexInMemory<I> {
    fn existing(&self) -> std::result::Result<Option<IndexFile<I>>, Below> {
        IndexFile::open(Medium::over(self.memory.clone(), false, 0)).map(Some)
    }

    fn make(&self, tables: u32, seed: u64, mark: u64, pages: Pages) -> Result<IndexFile<I>> {
        let medium = Medium::over(self.memory.clone(), self.is_new, 0);
        Ok(IndexFile::make(medium, tables, seed, mark, pages)?)
    }

    fn path(&self) -> PathBuf {
        "(memory)".into()
    }

    /// In this process: whatever its memory is, nothing of inner nodes is to be found again.
    fn inner(&self, bytes: u64) -> std::io::Result<Reserved<Native>> {
        Reserved::reserve(bytes, Backing::HugePages, None)
    }
}

/// What a medium says, as an error of memory that is made usable.
fn as_io(error: Below) -> std::io::Error {
    let kind = match error {
        Below::DiskFull { .. } => ErrorKind::StorageFull,
        _ => ErrorKind::Other,
    };
    std::io::Error::new(kind, error)
}

fn region<I: Divide>(area: Area<I>) -> Reserved<I> {
    Reserved {
        memory: area.memory(),
        start: area.start(),
        commit: Box::new(move |at, bytes| area.grow(at, bytes).map_err(as_io)),
    }
}

/// The regions of the index's tables.
pub(crate) fn regions<I: Divide>(file: &IndexFile<I>) -> Vec<[Reserved<I>; 2]> {
    file.areas().into_iter().map(|areas| areas.map(region)).collect()
}

/// The region of leaves, if the file has no tables.
pub(crate) fn leaves<I: Divide>(file: &IndexFile<I>) -> Option<Reserved<I>> {
    file.leaves().map(region)
}

/// A new index, in a memory of zeros, all of it there: a quarter of it is for overflow lines.
pub(crate) fn index_on<I: Divide>(memory: &I, budget: &Arc<Budget>) -> Result<Index<I>> {
    let buckets = memory.len() / 4 * 3 / PART_BYTES * PART_BYTES;
    let region = |start: u64, end: u64| Reserved {
        memory: memory.part(start, end - start),
        commit: Box::new(|_, _| Ok(())),
        start,
    };
    let regions = vec![[region(0, buckets), region(buckets, memory.len())]];
    HashIndex::on(regions, budget).map(Index::Hash).map_err(|source| {
        let path = "(memory)".into();
        Error::Io { path, doing: "make room in the index", source }
    })
}

/// What an index says of its memory, as an error of the map.
pub(crate) fn index_error<I: Divide>(
    place: &impl IndexPlace<I>,
) -> impl FnOnce(std::io::Error) -> Error {
    let path = place.path();
    move |source| Error::Io { path, doing: "make room in the index", source }
}
