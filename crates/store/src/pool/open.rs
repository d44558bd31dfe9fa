//! Opening a pool: the directory's lock, the file that its medium has, recovery.

use super::{DEFAULT_BYTES, Inner, Pool, PoolOptions};
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_durable::{Access, Medium, MediumSpec, sections};
use terrace_memory::{Budget, Domain, Native};

/// A pool on byte-addressable memory, and one on a disk. Which of them is there says how it was made.
pub(crate) const FILES: [&str; 2] = ["pool", "pool-journal"];
/// A file is mapped in pages of this size where it can be.
const FILE_PAGE_BYTES: u64 = 2 << 20;
/// Pages of a heap.
const PAGE_BYTES: u64 = 4096;

/// A pool that was opened, its file where that is its memory, and its size.
type Opened = (sections::Pool<Native>, Option<Medium>, u64);

pub(super) fn open(dir: &Path, options: &PoolOptions, budget: &Arc<Budget>) -> Result<Pool> {
    let lock = DirectoryLock::take(dir, options.access)?;
    lock.check_there(dir)?;
    let [in_memory, on_disk] = FILES.map(|file| dir.join(file));
    let is_on_disk = is_on_disk(&in_memory, &on_disk, options)?;
    let path = if is_on_disk { on_disk } else { in_memory };
    let there = file_bytes(&path)?;
    if there.is_none() && !options.access.writes() {
        return Err(Error::Io { path, doing: "open", source: ErrorKind::NotFound.into() });
    }
    let mut taken = Taken { budget: Arc::clone(budget), bytes: 0 };
    let (pool, medium, bytes) = match is_on_disk {
        true => of_disk(&path, there, options, &mut taken)?,
        false => of_memory(&path, there, options, &mut taken)?,
    };
    if options.access.writes() {
        lock.note_made(FILES[0]);
    }
    let budget_bytes = std::mem::take(&mut taken.bytes);
    let inner = Inner {
        pool,
        _medium: medium,
        path,
        is_on_disk,
        bytes,
        budget: Arc::clone(budget),
        budget_bytes,
        _lock: lock,
    };
    Ok(Pool { inner: Arc::new(inner) })
}

/// Bytes of a budget, given back unless the pool that they are for is opened.
struct Taken {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Taken {
    fn take(&mut self, bytes: u64) -> Result<()> {
        if self.budget.take(bytes).is_err() {
            let (used, budget) = (self.budget.used(), self.budget.limit());
            return Err(Error::OutOfMemory { used, budget });
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back what an opening took beyond this.
    fn keep(&mut self, bytes: u64) {
        self.budget.give(self.bytes.saturating_sub(bytes));
        self.bytes = self.bytes.min(bytes);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// Where the pool is, or is to be made.
fn is_on_disk(in_memory: &Path, on_disk: &Path, options: &PoolOptions) -> Result<bool> {
    let (memory, disk) = (file_bytes(in_memory)?.is_some(), file_bytes(on_disk)?.is_some());
    let wants_disk = !options.domain.is_byte_addressable();
    let refused = |path: &Path, made: &str| {
        let why = format!(
            "{} was made {made}, and the directory's domain is now: {}; open it as it was made, or only to be read",
            path.display(),
            options.domain
        );
        Err(Error::Option { field: "domain", why })
    };
    match (memory, disk) {
        (false, false) => Ok(wants_disk),
        (true, true) => Err(damaged(in_memory, 0, "a pool of two files: one is a copy".into())),
        (true, false) if wants_disk && options.access.writes() => {
            refused(in_memory, "on byte-addressable memory")
        }
        (false, true) if !wants_disk && options.access.writes() => refused(on_disk, "on a disk"),
        (_, disk) => Ok(disk),
    }
}

fn file_bytes(path: &Path) -> Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { path: path.into(), doing: "asking for its size", source }),
    }
}

/// The size that a pool has which is asked to have `bytes`.
pub(super) fn rounded(bytes: u64, is_on_disk: bool) -> u64 {
    let unit = if is_on_disk { PAGE_BYTES } else { FILE_PAGE_BYTES };
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX / unit * unit)
}

/// A file that was shortened: whole pools have whole pages.
fn ends_early(path: &Path, bytes: u64) -> Error {
    let what = "the file ends early".into();
    terrace_durable::Error::Damaged { path: path.into(), offset: bytes, what }.into()
}

fn section_options(options: &PoolOptions) -> sections::Options {
    let base = options.engine.map_or_else(sections::Options::any, sections::Options::new);
    let base = options.layout.map_or(base.clone().any_layout(), |layout| base.layout(layout));
    let base = base.waits(options.waits).at_once(options.at_once);
    options.log_bytes.map_or(base.clone(), |bytes| base.log_bytes(bytes))
}

fn of_disk(
    path: &Path,
    there: Option<u64>,
    options: &PoolOptions,
    taken: &mut Taken,
) -> Result<Opened> {
    let wanted = section_options(options);
    let spec = |capacity_bytes| MediumSpec {
        path: path.into(),
        domain: if options.domain.is_byte_addressable() {
            Domain::PageCache
        } else {
            options.domain
        },
        dax: false,
        capacity_bytes,
        access: options.access,
    };
    let named = |error: sections::Error| named(path, &error);
    let Some(there) = there else {
        let bytes = rounded(options.bytes.unwrap_or(DEFAULT_BYTES), true);
        let shape = wanted.disk_shape(bytes).map_err(named)?;
        // The image, and the mirror of the log.
        taken.take(shape.state_bytes + shape.log_bytes)?;
        let medium = Medium::open(&spec(shape.bytes().next_multiple_of(FILE_PAGE_BYTES)))?;
        let pool = sections::Pool::create_on_disk(medium, shape, &wanted)?;
        return Ok((pool, None, bytes));
    };
    if there == 0 {
        return Err(ends_early(path, there));
    }
    // Two states and the log are read, and the image made of them.
    taken.take(there)?;
    let mut medium = Medium::open(&spec(there.next_multiple_of(FILE_PAGE_BYTES)))?;
    medium.read_all()?;
    let pool = sections::Pool::open_on_disk(medium, &wanted)?;
    let bytes = pool.heap_bytes();
    taken.keep(bytes + pool.log_use().map_or(0, |[_, log]| log));
    if let Some(asked) = options.bytes {
        must_match(path, "size in bytes", &bytes, &rounded(asked, true))?;
    }
    Ok((pool, None, bytes))
}

fn of_memory(
    path: &Path,
    there: Option<u64>,
    options: &PoolOptions,
    taken: &mut Taken,
) -> Result<Opened> {
    let wanted = section_options(options);
    let asked = options.bytes.map(|bytes| rounded(bytes, false));
    // What lies behind the end of a file reads as zeros, and cannot be written.
    if let Some(found) = there
        && (found == 0 || !found.is_multiple_of(FILE_PAGE_BYTES))
    {
        return Err(ends_early(path, found));
    }
    let bytes = there.or(asked).unwrap_or(DEFAULT_BYTES);
    if let (Some(found), Some(asked)) = (there, asked) {
        must_match(path, "size in bytes", &found, &asked)?;
    }
    taken.take(bytes)?;
    let spec = |domain| MediumSpec {
        path: path.into(),
        domain,
        dax: options.dax,
        capacity_bytes: bytes.next_multiple_of(FILE_PAGE_BYTES),
        access: options.access,
    };
    let named = |error: sections::Error| named(path, &error);
    if there.is_none() {
        let medium = Medium::open(&spec(options.domain))?;
        medium.grow(0, bytes)?;
        let pool = sections::Pool::create(medium.memory().clone(), &wanted).map_err(named)?;
        // Only now does the file get its name: a file of that name always has a whole pool.
        medium.publish()?;
        return Ok((pool, Some(medium), bytes));
    }
    if options.access.writes() {
        let medium = Medium::open(&spec(options.domain))?;
        let pool = sections::Pool::open(medium.memory().clone(), &wanted).map_err(named)?;
        return Ok((pool, Some(medium), bytes));
    }
    read_in_memory(spec, &wanted, options.access)
        .map_err(named_or(path))
        .map(|(pool, medium)| (pool, Some(medium), bytes))
}

/// What opening a file says, or the pool in it.
enum Failed {
    Medium(terrace_durable::Error),
    Pool(sections::Error),
}

fn named_or(path: &Path) -> impl Fn(Failed) -> Error {
    let path: PathBuf = path.into();
    move |failed| match failed {
        Failed::Medium(error) => error.into(),
        Failed::Pool(error) => named(&path, &error),
    }
}

/// The file of a pool that is only read, in the domain it was made in, wherever it lies: no store reaches it.
fn read_in_memory(
    spec: impl Fn(Domain) -> MediumSpec,
    wanted: &sections::Options,
    access: Access,
) -> std::result::Result<(sections::Pool<Native>, Medium), Failed> {
    let open = |domain| {
        let medium = Medium::open(&spec(domain)).map_err(Failed::Medium)?;
        let pool = sections::Pool::open_read_only(medium.memory().clone(), wanted);
        let pool = pool.map_err(Failed::Pool)?;
        match pool.recovery().damage.first() {
            Some(what) if !access.passes_damage() => {
                Err(Failed::Pool(sections::Error::Damaged { at: 0, what: what.clone() }))
            }
            _ => Ok((pool, medium)),
        }
    };
    match open(Domain::Adr) {
        Err(Failed::Pool(sections::Error::Mismatch { field: "domain", .. })) => open(Domain::Eadr),
        other => other,
    }
}

/// Refuses a pool that was made otherwise than it is asked for.
/// What others rely on while a pool is open.
pub(super) fn must_hold(
    path: &Path,
    field: &'static str,
    in_force: bool,
    asked: bool,
) -> Result<()> {
    if in_force == asked {
        return Ok(());
    }
    let why = format!(
        "{} is open already with {field} = {in_force}; open it with the same, or close it first",
        path.display()
    );
    Err(Error::Option { field, why })
}

pub(super) fn must_match<T: PartialEq + Display>(
    path: &Path,
    field: &'static str,
    found: T,
    asked: T,
) -> Result<()> {
    if found == asked {
        return Ok(());
    }
    let file = path.display();
    let why = format!(
        "{file} was made with {found}, not {asked}; leave it out, or move what it holds to a new pool"
    );
    Err(Error::Option { field, why })
}

/// A pool's error, with the file.
fn named(path: &Path, error: &sections::Error) -> Error {
    match error {
        sections::Error::Damaged { at, what } => damaged(path, *at, what.clone()),
        sections::Error::NoPool { .. } => damaged(path, 0, error.to_string()),
        sections::Error::Mismatch { field, found, wanted } => {
            let (path, found, wanted) = (path.to_path_buf(), found.clone(), wanted.clone());
            Error::Medium(terrace_durable::Error::Mismatch { path, field, found, wanted })
        }
        other => Error::Option { field: "pool", why: format!("{}: {other}", path.display()) },
    }
}

pub(super) fn damaged(path: &Path, offset: u64, what: String) -> Error {
    Error::Medium(terrace_durable::Error::Damaged { path: path.to_path_buf(), offset, what })
}
