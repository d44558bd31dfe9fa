//! Places in a program that pre-store, each with counters.
//!
//! A site is a `static`. It is put on the list when it first issues something, and gets a number, under
//! which every thread counts in its own stripe (see [`instructions`](crate::instructions)): a locked
//! addition would wait for the very write-back that nobody should wait for.

use super::{Op, copy_range, fill_range, hint, is_enabled, is_wanted};
use crate::instructions::{
    LINE_BYTES, SITES_MAX, SiteCount, WriteBack, add_to_site, site_counts, write_back_method,
};
use crate::memory::Memory;
use serde::Serialize;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A place in a program that pre-stores.
///
/// ```
/// use terrace_memory::prestore::{Site, sites};
///
/// static VALUE: Site = Site::new("value of a put");
///
/// let value = [7; 256];
/// VALUE.clean(&value);
/// let found = sites().into_iter().find(|site| site.name == "value of a put").unwrap();
/// assert_eq!((found.calls, found.bytes), (1, 256));
/// ```
#[derive(Debug)]
pub struct Site {
    name: &'static str,
    file: &'static str,
    line: u32,
    /// Its place on the list, counted from 1; 0 while it is not there.
    number: AtomicUsize,
}

/// What a site has issued since the process started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteReport {
    /// What it is called.
    pub name: String,
    /// The file it is in.
    pub file: String,
    /// The line there.
    pub line: u32,
    /// How often it pre-stored. Calls that were switched off do not count.
    pub calls: u64,
    /// Lines these touched.
    pub lines: u64,
    /// Bytes these were of.
    pub bytes: u64,
}

/// Whether pre-stores are issued in this process, and which were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether they are switched on.
    pub enabled: bool,
    /// Whether this processor can clean without evicting; where not, cleaning does nothing.
    pub can_clean: bool,
    /// Every [site](sites).
    pub sites: Vec<SiteReport>,
}

/// What there is to say of this process's pre-stores.
pub fn report() -> Report {
    Report {
        enabled: is_enabled(),
        can_clean: write_back_method() == WriteBack::Clwb,
        sites: sites(),
    }
}

static SITES: Mutex<Vec<&'static Site>> = Mutex::new(Vec::new());

fn list() -> MutexGuard<'static, Vec<&'static Site>> {
    SITES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every site that has issued something, in the order of its first time.
///
/// Of more than 64 sites those from the 64th on are counted together, as one named `(others)`.
pub fn sites() -> Vec<SiteReport> {
    let list = list();
    let report = |(number, site): (usize, &&'static Site)| {
        let SiteCount { calls, lines, bytes } = site_counts(number);
        let (name, file, line) = match list.len() > SITES_MAX && number == SITES_MAX - 1 {
            true => ("(others)", "", 0),
            false => (site.name, site.file, site.line),
        };
        SiteReport { name: name.into(), file: file.into(), line, calls, lines, bytes }
    };
    list.iter().take(SITES_MAX).enumerate().map(report).collect()
}

impl Site {
    /// A site of this name where this is called.
    #[track_caller]
    pub const fn new(name: &'static str) -> Site {
        let here = Location::caller();
        Site::at(name, here.file(), here.line())
    }

    /// A site of this name elsewhere: in another language.
    pub const fn at(name: &'static str, file: &'static str, line: u32) -> Site {
        Site { name, file, line, number: AtomicUsize::new(0) }
    }

    /// As [`clean`](super::clean).
    #[inline]
    pub fn clean(&'static self, bytes: &[u8]) {
        // SAFETY: a slice is mapped.
        unsafe { self.hint(Op::Clean, bytes.as_ptr(), bytes.len()) };
    }

    /// As [`demote`](super::demote).
    #[inline]
    pub fn demote(&'static self, bytes: &[u8]) {
        // SAFETY: a slice is mapped.
        unsafe { self.hint(Op::Demote, bytes.as_ptr(), bytes.len()) };
    }

    /// As [`hint`](super::hint).
    ///
    /// # Safety
    /// The range must be mapped.
    #[inline]
    pub unsafe fn hint(&'static self, op: Op, start: *const u8, bytes: usize) {
        self.count(start as u64, bytes);
        // SAFETY: passed on.
        unsafe { hint(op, start, bytes) };
    }

    /// Does `op` to a range of a memory.
    ///
    /// # Safety
    /// As for every method of [`Memory`].
    #[inline]
    pub unsafe fn hint_in<M: Memory>(&'static self, op: Op, memory: &M, at: u64, bytes: u64) {
        if !is_wanted(bytes as usize) {
            return;
        }
        self.count(at, bytes as usize);
        match op {
            // SAFETY: the caller's promise is passed on.
            Op::Clean => unsafe { memory.clean(at, bytes) },
            // SAFETY: as above.
            Op::Demote => unsafe { memory.demote(at, bytes) },
        }
    }

    /// Writes `source` to `at` of a memory, past the caches where pre-stores are wanted and plainly where they are
    /// not; says which it was. What went past is durable after a fence, as by [`Memory::stream`].
    ///
    /// # Safety
    /// As for every method of [`Memory`].
    #[inline]
    pub unsafe fn write_in<M: Memory>(&'static self, memory: &M, at: u64, source: &[u8]) -> bool {
        let is_past = is_wanted(source.len());
        if is_past {
            self.count(at, source.len());
            // SAFETY: the caller's promise is passed on.
            unsafe { memory.stream(at, source) };
        } else {
            // SAFETY: as above.
            unsafe { memory.write(at, source) };
        }
        is_past
    }

    /// As [`copy`](super::copy).
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn copy(&'static self, target: &mut [u8], source: &[u8]) {
        self.count(target.as_ptr() as u64, target.len());
        super::copy(target, source);
    }

    /// As [`fill`](super::fill).
    #[inline]
    pub fn fill(&'static self, target: &mut [u8], byte: u8) {
        self.count(target.as_ptr() as u64, target.len());
        super::fill(target, byte);
    }

    /// As [`copy_range`](super::copy_range).
    ///
    /// # Safety
    /// The conditions of [`copy_range`](super::copy_range).
    pub unsafe fn copy_range(&'static self, target: *mut u8, source: *const u8, bytes: usize) {
        self.count(target as u64, bytes);
        // SAFETY: passed on.
        unsafe { copy_range(target, source, bytes) };
    }

    /// As [`fill_range`](super::fill_range).
    ///
    /// # Safety
    /// The conditions of [`fill_range`](super::fill_range).
    pub unsafe fn fill_range(&'static self, target: *mut u8, byte: u8, bytes: usize) {
        self.count(target as u64, bytes);
        // SAFETY: passed on.
        unsafe { fill_range(target, byte, bytes) };
    }

    /// Counts a call, if it is to be issued.
    #[inline]
    fn count(&'static self, start: u64, bytes: usize) {
        if !is_wanted(bytes) {
            return;
        }
        let lines = match bytes {
            0 => 0,
            _ => (start + bytes as u64 - 1) / LINE_BYTES - start / LINE_BYTES + 1,
        };
        let number = match self.number.load(Relaxed) {
            0 => self.register(),
            number => number,
        };
        let count = SiteCount { calls: 1, lines, bytes: bytes as u64 };
        add_to_site((number - 1).min(SITES_MAX - 1), count);
    }

    /// Puts it on the list, once.
    #[cold]
    fn register(&'static self) -> usize {
        let mut list = list();
        if self.number.load(Relaxed) == 0 {
            list.push(self);
            self.number.store(list.len(), Relaxed);
        }
        self.number.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_past_the_last_is_counted_with_the_others() {
        static FIRST: Site = Site::new("first");
        FIRST.clean(&[0; 10]);
        for line in 0..80 {
            let site: &'static Site = Box::leak(Box::new(Site::at("one of many", "x.f90", line)));
            site.demote(&[0; 1]);
        }
        let sites = sites();
        assert_eq!(sites.len(), SITES_MAX);
        let others = sites.last().expect("many");
        assert_eq!((others.name.as_str(), others.calls >= 80 - 63), ("(others)", true));
        let first = sites.iter().find(|site| site.name == "first").expect("registered");
        assert_eq!((first.calls, first.bytes, first.file.as_str()), (1, 10, file!()));
        assert!(first.line > 0);
    }
}
