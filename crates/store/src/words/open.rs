//! Opening a word table: the directory's lock, the file, recovery.

use super::any::{AnyTable, Form};
use super::{DEFAULT_CAPACITY, Inner, Words, WordsOptions, WordsRecovery};
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::refused::check;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use terrace_durable::{Medium, MediumSpec};
use terrace_lockfree::list::{self, Made, Media, Size};
use terrace_memory::{Backing, Budget, Domain, Memory, Native, Region};

/// Bytes of the file's first line, which says what it is.
const HEAD_BYTES: u64 = 64;
/// A file is mapped in pages of this size where it can be.
const PAGE_BYTES: u64 = 2 << 20;

pub(super) fn open(dir: &Path, options: &WordsOptions, budget: &Arc<Budget>) -> Result<Words> {
    check(options, Some(dir))?;
    let lock = DirectoryLock::take(dir, options.access)?;
    lock.check_there(dir)?;
    let path = dir.join("table");
    let there = match std::fs::metadata(&path) {
        Ok(found) => Some(found.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => return Err(Error::Io { path, doing: "asking for its size", source }),
    };
    let wanted = wanted(options);
    let bytes = match there {
        None => wanted.0.bytes(wanted.1)?,
        Some(bytes) if bytes >= HEAD_BYTES => bytes,
        Some(offset) => return Err(damaged(&path, offset, "the file ends within its head".into())),
    };
    let spec = MediumSpec {
        path,
        domain: options.domain,
        dax: options.dax,
        capacity_bytes: bytes.next_multiple_of(PAGE_BYTES),
        access: options.access,
    };
    let medium = if options.access.writes() { Medium::open(&spec)? } else { as_it_lies(spec)? };
    let (form, size) = if medium.is_new() { wanted } else { as_made(&medium, options)? };
    let needed = form.bytes(size)?;
    if !medium.is_new() && bytes < needed {
        let what = format!("the file ends early: its table takes {needed} bytes");
        return Err(damaged(medium.path(), bytes, what));
    }
    // What the file has is counted as memory, as for a queue; links are there once more, and a bit a node.
    let copies = if form.has_links_apart() { 2 } else { 1 };
    let budget_bytes = copies * needed + size.capacity / 8;
    if budget.take(budget_bytes).is_err() {
        return Err(Error::OutOfMemory { used: budget.used(), budget: budget.limit() });
    }
    let taken = reopen(&medium, form, size, needed);
    let (table, links, recovery) = taken.inspect_err(|_| budget.give(budget_bytes))?;
    if options.access.writes() {
        lock.note_made("table");
    }
    let (budget, medium) = (Arc::clone(budget), Some(medium));
    let inner =
        Inner { table, _links: links, medium, recovery, budget, budget_bytes, _lock: Some(lock) };
    Ok(Words { inner: Arc::new(inner) })
}

/// The file of a table that is only read, in the domain it was made in, wherever it lies: no store reaches it.
fn as_it_lies(spec: MediumSpec) -> Result<Medium> {
    let medium = Medium::open(&MediumSpec { domain: Domain::Eadr, ..spec.clone() })?;
    let made = Made::read(medium.memory()).map_err(|error| named(medium.path(), &error))?;
    if !made.domain.is_byte_addressable() {
        let what = format!("it says that it was made in the domain: {}", made.domain);
        return Err(damaged(medium.path(), 0, what));
    }
    Ok(Medium::open(&MediumSpec { domain: made.domain, ..spec })?)
}

pub(super) fn on<M: Memory + Clone>(
    media: Media<M>,
    is_new: bool,
    options: &WordsOptions,
) -> Result<Words<M>> {
    let (form, size) = wanted(options);
    let began = Instant::now();
    let table = match is_new {
        true => AnyTable::create(form, media, size),
        false => AnyTable::open(form, media),
    };
    let table = table.map_err(|error| named(Path::new("(memory)"), &error))?;
    let recovery = recovered(&table, began);
    let budget = Arc::new(Budget::new(u64::MAX));
    let inner =
        Inner { table, _links: None, medium: None, recovery, budget, budget_bytes: 0, _lock: None };
    Ok(Words { inner: Arc::new(inner) })
}

/// What the options ask for, where nothing is there.
fn wanted(options: &WordsOptions) -> (Form, Size) {
    let size = Size::table(options.capacity.unwrap_or(DEFAULT_CAPACITY));
    (options.form.unwrap_or_default(), size)
}

/// What the file was made as, if that is what is asked for.
fn as_made(medium: &Medium, options: &WordsOptions) -> Result<(Form, Size)> {
    let made = Made::read(medium.memory()).map_err(|error| named(medium.path(), &error))?;
    let refused = |field, made: String, asked: String| {
        let file = medium.path().display();
        let why = format!(
            "{file} was made with {made}, not {asked}; leave it out, or move what it holds to a new table"
        );
        Err(Error::Option { field, why })
    };
    let form: Form = made.form.parse().map_err(|what| damaged(medium.path(), 0, what))?;
    if let Some(asked) = options.form.filter(|asked| *asked != form) {
        return refused("form", form.to_string(), asked.to_string());
    }
    if made.domain != options.domain && options.access.writes() {
        return refused("domain", made.domain.to_string(), options.domain.to_string());
    }
    match options.capacity {
        Some(asked) if asked != made.size.capacity => {
            refused("capacity", format!("{} keys", made.size.capacity), asked.to_string())
        }
        _ => Ok((form, made.size)),
    }
}

type Taken = (AnyTable<Native>, Option<Region>, WordsRecovery);

/// Makes the table, or recovers it.
fn reopen(medium: &Medium, form: Form, size: Size, bytes: u64) -> Result<Taken> {
    let began = Instant::now();
    let links = if form.has_links_apart() { Some(reserve(medium, bytes)?) } else { None };
    let kept = medium.memory().clone();
    let media = match &links {
        Some(links) => Media::two(kept, links.native()),
        None => Media::one(kept),
    };
    let table = if medium.is_new() {
        medium.grow(0, bytes)?;
        let table = AnyTable::create(form, media, size);
        // Only now does the file get its name: a file of that name always has a whole table.
        table.map_err(|error| named(medium.path(), &error)).and_then(|table| {
            medium.publish()?;
            Ok(table)
        })?
    } else {
        AnyTable::open(form, media).map_err(|error| named(medium.path(), &error))?
    };
    let recovery = recovered(&table, began);
    Ok((table, links, recovery))
}

fn recovered<M: Memory + Clone>(table: &AnyTable<M>, began: Instant) -> WordsRecovery {
    let keys = table.size().capacity - table.free_nodes();
    WordsRecovery { keys, elapsed: began.elapsed() }
}

/// A table's error, with the file and the way out.
fn named(path: &Path, error: &list::Error) -> Error {
    match error {
        list::Error::Damaged { at, what, .. } => damaged(path, *at, what.clone()),
        list::Error::Newer { found, known } => {
            let (path, what) = (path.to_path_buf(), "word table of format");
            let (found, known) = (*found, *known);
            Error::Medium(terrace_durable::Error::Newer { path, what, found, known })
        }
        list::Error::NotThere { .. } => damaged(path, 0, error.to_string()),
        list::Error::Unfit { .. } => Error::Option { field: "form", why: error.to_string() },
        list::Error::Size { what, .. } => Error::Option { field: what, why: error.to_string() },
        list::Error::Other { what, .. } => {
            Error::Option { field: what, why: format!("{}: {error}", path.display()) }
        }
        other => Error::Option { field: "words", why: format!("{}: {other}", path.display()) },
    }
}

fn damaged(path: &Path, offset: u64, what: String) -> Error {
    Error::Medium(terrace_durable::Error::Damaged { path: path.to_path_buf(), offset, what })
}

fn reserve(medium: &Medium, bytes: u64) -> Result<Region> {
    let io = |source| Error::Io {
        path: medium.path().to_path_buf(),
        doing: "reserve memory for the links of",
        source,
    };
    let region = Region::reserve(bytes, Backing::HugePages).map_err(io)?;
    region.commit(0, region.len()).map_err(io)?;
    Ok(region)
}
