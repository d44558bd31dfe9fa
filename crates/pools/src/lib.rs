//! Pools for programs in C and C++: [`terrace::pool`] behind the functions of `include/terrace_pools.h`, where each is
//! described. Nothing is decided here.
//!
//! # Safety
//! Every function trusts its caller as C functions do: texts end with a zero, handles came from the function that makes
//! them and were not given back, ranges may be read or written.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use terrace::pool::{EngineKind, Offset, ROOTS, Root, SectionError, Tx};
use terrace::{Database, Domain, Error, MapOptions, Pool, PoolOptions};

const ARGUMENT: c_int = -1;
const OPEN: c_int = -2;
const NO_ROOM: c_int = -3;
const NOTHING: c_int = -4;
const OUTSIDE: c_int = -5;
const TOO_LARGE: c_int = -6;
const DISK: c_int = -7;
const SECTION: c_int = -8;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps what went wrong for the thread, and returns its status.
fn told(status: c_int, what: &impl ToString) -> c_int {
    let text = what.to_string().replace('\0', " ");
    LAST.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    status
}

/// An error as C has it.
enum Failure {
    Section(SectionError),
    /// What the body returned.
    Body(c_int),
}

impl From<SectionError> for Failure {
    fn from(error: SectionError) -> Failure {
        Failure::Section(error)
    }
}

fn status_of(error: &SectionError) -> c_int {
    let status = match error {
        SectionError::NoRoom { .. } => NO_ROOM,
        SectionError::NotAllocated { .. } => NOTHING,
        SectionError::OutOfHeap { .. } => OUTSIDE,
        SectionError::SectionTooLarge { .. } => TOO_LARGE,
        SectionError::Disk { .. } => DISK,
        _ => SECTION,
    };
    told(status, error)
}

fn done(result: Result<(), SectionError>) -> c_int {
    result.map_or_else(|error| status_of(&error), |()| 0)
}

/// How a pool is opened, as the header lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header describes them")]
pub struct Options {
    pub bytes: u64,
    pub log_bytes: u64,
    pub layout: u64,
    pub engine: c_int,
    pub later: c_int,
    pub at_once: c_int,
}

impl Options {
    /// None for an engine that there is not.
    fn over(&self, base: PoolOptions) -> Option<PoolOptions> {
        let engine = match self.engine {
            0 => None,
            number => Some(*EngineKind::ALL.iter().find(|kind| **kind as c_int == number)?),
        };
        let set = |number: u64| (number != 0).then_some(number);
        Some(PoolOptions {
            engine,
            bytes: set(self.bytes),
            log_bytes: set(self.log_bytes),
            layout: set(self.layout),
            waits: self.later == 0,
            at_once: self.at_once != 0,
            ..base
        })
    }
}

/// # Safety
/// `text` is null or ends with a zero, and stays as it is meanwhile.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: by contract.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

fn bad(what: &str) -> c_int {
    told(ARGUMENT, &what)
}

/// See the header.
///
/// # Safety
/// `directory` ends with a zero; `database` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_database_open(
    directory: *const c_char,
    domain: c_int,
    database: *mut *mut Database,
) -> c_int {
    // SAFETY: by contract.
    let Some(directory) = (unsafe { text(directory) }).filter(|_| !database.is_null()) else {
        return bad("no directory, or no place for the handle");
    };
    let domain = match domain {
        0 => MapOptions::default().domain,
        1 => Domain::Adr,
        2 => Domain::Eadr,
        _ => return bad("no such domain"),
    };
    match Database::open(directory, MapOptions { domain, ..MapOptions::default() }) {
        // SAFETY: by contract.
        Ok(opened) => unsafe { database.write(Box::into_raw(Box::new(opened))) },
        Err(error) => return told(OPEN, &error),
    }
    0
}

/// See the header.
///
/// # Safety
/// `database` is null or a handle, which is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_database_close(database: *mut Database) -> c_int {
    if database.is_null() {
        return 0;
    }
    // SAFETY: a handle, which was boxed when it was made, and is given back by this call.
    let database = unsafe { Box::from_raw(database) };
    database.close().map_or_else(|error| of_error(&error), |()| 0)
}

fn of_error(error: &Error) -> c_int {
    match error {
        Error::Section(error) => status_of(error),
        other => told(DISK, other),
    }
}

/// See the header.
///
/// # Safety
/// `database` is a handle, `name` ends with a zero, `options` is null or can be read, `pool` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_open(
    database: *mut Database,
    name: *const c_char,
    options: *const Options,
    pool: *mut *mut Pool,
) -> c_int {
    // SAFETY: by contract.
    let (database, name, options) = unsafe { (database.as_ref(), text(name), options.as_ref()) };
    let (Some(database), Some(name), false) = (database, name, pool.is_null()) else {
        return bad("no database, no name, or no place for the handle");
    };
    let is_engine = options.is_none_or(|options| options.over(PoolOptions::default()).is_some());
    if !is_engine {
        return bad("no such engine");
    }
    let opened = database.pool_with(name, |base| match options {
        None => base,
        Some(options) => options.over(base.clone()).unwrap_or(base),
    });
    match opened {
        // SAFETY: by contract.
        Ok(opened) => unsafe { pool.write(Box::into_raw(Box::new(opened))) },
        Err(error) => return told(OPEN, &error),
    }
    0
}

/// See the header.
///
/// # Safety
/// `pool` is null or a handle, which is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_release(pool: *mut Pool) {
    if !pool.is_null() {
        // SAFETY: a handle, which was boxed when it was made, and is given back by this call.
        drop(unsafe { Box::from_raw(pool) });
    }
}

/// A section as C has it: it is used by pointer alone, while its body runs.
pub struct Section<'s, 't>(&'t mut Tx<'s>);

impl std::fmt::Debug for Section<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").finish_non_exhaustive()
    }
}

/// What a caller runs as a section.
type Body = unsafe extern "C" fn(*mut Section<'_, '_>, *mut c_void) -> c_int;

/// See the header.
///
/// # Safety
/// `pool` is a handle; `body` may be called with a section and `argument`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_section(
    pool: *mut Pool,
    body: Option<Body>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: by contract.
    let (Some(pool), Some(body)) = (unsafe { pool.as_ref() }, body) else {
        return bad("no pool, or no body");
    };
    // The pool outlives this call, whoever lets go of the handle meanwhile.
    let pool = pool.clone();
    let ran = pool.section(|tx| {
        let mut section = Section(tx);
        // SAFETY: by contract.
        match unsafe { body(&raw mut section, argument) } {
            0 => Ok(()),
            returned => Err(Failure::Body(returned)),
        }
    });
    match ran {
        Ok(()) => 0,
        Err(Failure::Body(returned)) => returned,
        Err(Failure::Section(error)) => status_of(&error),
    }
}

/// See the header.
///
/// # Safety
/// `pool` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_pool_sync(pool: *mut Pool) -> c_int {
    // SAFETY: by contract.
    match unsafe { pool.as_ref() } {
        // As for a section.
        Some(pool) => pool.clone().sync().map_or_else(|error| of_error(&error), |()| 0),
        None => bad("no pool"),
    }
}

/// See the header.
///
/// # Safety
/// `section` is one whose body runs; `bytes` bytes can be written at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_section_read(
    section: *mut Section<'_, '_>,
    at: u64,
    to: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: by contract.
    let Some(section) = (unsafe { section.as_ref() }).filter(|_| !to.is_null() || bytes == 0)
    else {
        return bad("no section, or no place to read to");
    };
    if bytes == 0 {
        return 0;
    }
    // SAFETY: by contract; the bytes are the caller's, and nothing else of this call.
    let target = unsafe {
        std::ptr::write_bytes(to.cast::<u8>(), 0, bytes);
        std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes)
    };
    done(section.0.read(at, target))
}

/// See the header.
///
/// # Safety
/// `section` is one whose body runs; `bytes` bytes can be read at `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_section_write(
    section: *mut Section<'_, '_>,
    at: u64,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: by contract.
    let Some(section) = (unsafe { section.as_mut() }).filter(|_| !from.is_null() || bytes == 0)
    else {
        return bad("no section, or no place to write from");
    };
    if bytes == 0 {
        return 0;
    }
    // SAFETY: by contract.
    let source = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    done(section.0.write(at, source))
}

/// See the header.
///
/// # Safety
/// `section` is one whose body runs; `at` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_section_allocate(
    section: *mut Section<'_, '_>,
    bytes: u64,
    at: *mut u64,
) -> c_int {
    // SAFETY: by contract.
    let Some(section) = (unsafe { section.as_mut() }).filter(|_| !at.is_null()) else {
        return bad("no section, or no place for the offset");
    };
    match section.0.allocate(bytes) {
        // SAFETY: by contract.
        Ok(place) => unsafe { at.write(place) },
        Err(error) => return status_of(&error),
    }
    0
}

/// See the header.
///
/// # Safety
/// `section` is one whose body runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_section_free(section: *mut Section<'_, '_>, at: u64) -> c_int {
    // SAFETY: by contract.
    match unsafe { section.as_mut() } {
        Some(section) => done(section.0.free(at)),
        None => bad("no section"),
    }
}

/// A root of C, which points to bytes.
fn root(slot: c_uint) -> Option<Root<u8>> {
    ((slot as usize) < ROOTS).then(|| Root::new(slot as usize))
}

/// See the header.
///
/// # Safety
/// `section` is one whose body runs; `at` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_section_root(
    section: *mut Section<'_, '_>,
    slot: c_uint,
    at: *mut u64,
) -> c_int {
    // SAFETY: by contract.
    let section = (unsafe { section.as_ref() }).filter(|_| !at.is_null());
    let (Some(section), Some(root)) = (section, root(slot)) else {
        return bad("no section, no such root, or no place for the offset");
    };
    match section.0.root(root) {
        // SAFETY: by contract.
        Ok(place) => unsafe { at.write(place.at()) },
        Err(error) => return status_of(&error),
    }
    0
}

/// See the header.
///
/// # Safety
/// `section` is one whose body runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_section_set_root(
    section: *mut Section<'_, '_>,
    slot: c_uint,
    at: u64,
) -> c_int {
    // SAFETY: by contract.
    match (unsafe { section.as_mut() }, root(slot)) {
        (Some(section), Some(root)) => done(section.0.set_root(root, Offset::new(at))),
        _ => bad("no section, or no such root"),
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_pool_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
