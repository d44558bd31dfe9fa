//! Pre-stores for programs in C, C++ and Fortran: [`terrace_memory::prestore`] behind the functions of
//! `include/terrace_prestore.h`, where each is described. Nothing is decided here.
//!
//! # Safety
//! Every function trusts its caller as C functions do: ranges are mapped, texts end with a zero, sites
//! came from [`terrace_prestore_site_at`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};
use terrace_memory::instructions;
use terrace_memory::prestore::{self, Op, Site, SiteReport, Verdict};

fn op_of(op: c_int) -> Option<Op> {
    match op {
        0 => Some(Op::Clean),
        1 => Some(Op::Demote),
        _ => None,
    }
}

/// See the header.
///
/// # Safety
/// `size` bytes at `location` are mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore(location: *const c_void, size: usize, op: c_int) {
    if let Some(op) = op_of(op) {
        // SAFETY: by contract.
        unsafe { prestore::hint(op, location.cast(), size) };
    }
}

/// See the header.
///
/// # Safety
/// `size` bytes may be read at `from` and written at `to`, and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore_copy(to: *mut c_void, from: *const c_void, size: usize) {
    // SAFETY: by contract.
    unsafe { prestore::copy_range(to.cast(), from.cast(), size) };
}

/// See the header.
///
/// # Safety
/// `size` bytes may be written at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore_fill(to: *mut c_void, byte: c_int, size: usize) {
    // SAFETY: by contract. As `memset`, the low byte counts.
    unsafe { prestore::fill_range(to.cast(), byte as u8, size) };
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_prestore_fence() {
    instructions::fence();
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_prestore_enable(on: c_int) {
    prestore::set_enabled(on != 0);
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_prestore_least(bytes: usize) {
    prestore::set_least_bytes(bytes);
}

/// A site and what it was asked for by.
struct Known {
    name: &'static str,
    file: &'static str,
    line: u32,
    site: &'static Site,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// See the header.
///
/// # Safety
/// `name` and `file` end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore_site_at(
    name: *const c_char,
    file: *const c_char,
    line: u32,
) -> *const Site {
    // SAFETY: by contract.
    let (name, file) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(file)) };
    let (name, file) = (name.to_string_lossy(), file.to_string_lossy());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.iter().find(|k| k.line == line && k.name == name && k.file == file) {
        return found.site;
    }
    let leaked = |text: &str| -> &'static str { Box::leak(text.into()) };
    let (name, file) = (leaked(&name), leaked(&file));
    let site: &'static Site = Box::leak(Box::new(Site::at(name, file, line)));
    known.push(Known { name, file, line, site });
    site
}

/// See the header.
///
/// # Safety
/// `site` is null or came from [`terrace_prestore_site_at`]; the rest as for [`terrace_prestore`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore_at(
    site: *const Site,
    location: *const c_void,
    size: usize,
    op: c_int,
) {
    // SAFETY: by contract; sites are never freed.
    match (unsafe { site.as_ref::<'static>() }, op_of(op)) {
        // SAFETY: by contract.
        (Some(site), Some(op)) => unsafe { site.hint(op, location.cast(), size) },
        // SAFETY: by contract.
        _ => unsafe { terrace_prestore(location, size, op) },
    }
}

/// See the header.
///
/// # Safety
/// `site` as for [`terrace_prestore_at`], the rest as for [`terrace_prestore_copy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore_copy_at(
    site: *const Site,
    to: *mut c_void,
    from: *const c_void,
    size: usize,
) {
    // SAFETY: by contract; sites are never freed.
    match unsafe { site.as_ref::<'static>() } {
        // SAFETY: by contract.
        Some(site) => unsafe { site.copy_range(to.cast(), from.cast(), size) },
        // SAFETY: by contract.
        None => unsafe { terrace_prestore_copy(to, from, size) },
    }
}

/// See the header.
///
/// # Safety
/// `site` as for [`terrace_prestore_at`], the rest as for [`terrace_prestore_fill`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore_fill_at(
    site: *const Site,
    to: *mut c_void,
    byte: c_int,
    size: usize,
) {
    // SAFETY: by contract; sites are never freed.
    match unsafe { site.as_ref::<'static>() } {
        // SAFETY: by contract.
        Some(site) => unsafe { site.fill_range(to.cast(), byte as u8, size) },
        // SAFETY: by contract.
        None => unsafe { terrace_prestore_fill(to, byte, size) },
    }
}

/// What a site has issued, as the header lays it out.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "the header describes them")]
pub struct Counts {
    pub name: [u8; 64],
    pub file: [u8; 128],
    pub line: u32,
    pub calls: u64,
    pub lines: u64,
    pub bytes: u64,
}

impl Counts {
    fn of(site: &SiteReport) -> Counts {
        Counts {
            name: cut_off(&site.name),
            file: cut_off(&site.file),
            line: site.line,
            calls: site.calls,
            lines: site.lines,
            bytes: site.bytes,
        }
    }
}

/// As much of a text as fits, and a zero at its end.
fn cut_off<const ROOM: usize>(text: &str) -> [u8; ROOM] {
    let mut bytes = [0; ROOM];
    let length = text.floor_char_boundary(ROOM - 1);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

/// See the header.
///
/// # Safety
/// There is room for `most` counts at `counts`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore_sites(counts: *mut Counts, most: usize) -> usize {
    let sites = prestore::sites();
    for (number, site) in sites.iter().take(most).enumerate() {
        // SAFETY: by contract; what was there has nothing to drop.
        unsafe { counts.add(number).write(Counts::of(site)) };
    }
    sites.len()
}

/// How long lines take to be read again, as the header lays it out.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "the header describes them")]
pub struct Retention {
    pub verdict: c_int,
    pub cached_ns: f64,
    pub cleaned_ns: f64,
    pub demoted_ns: f64,
    pub evicted_ns: f64,
}

/// See the header.
///
/// # Safety
/// `found` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_prestore_try(found: *mut Retention) {
    let tried = prestore::retention();
    let verdict = match tried.verdict {
        Verdict::Keeps => 0,
        Verdict::KeepsFurther => 1,
        Verdict::Evicts => 2,
        Verdict::Absent => 3,
        Verdict::Unclear => 4,
    };
    let prestore::Retention { cached_ns, cleaned_ns, demoted_ns, evicted_ns, .. } = tried;
    // SAFETY: by contract.
    unsafe { found.write(Retention { verdict, cached_ns, cleaned_ns, demoted_ns, evicted_ns }) };
}
