//! A journal or a persistent index has its memory for itself: a second one on the same bytes is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_durable::{IndexFile, Journal, JournalShape, Medium, Pages};
use terrace_memory::{Backing, Domain, Memory, Region};

fn region() -> Region {
    let region = Region::reserve(4 << 20, Backing::Anonymous).expect("address space");
    region.commit(0, 4 << 20).expect("memory");
    region.declared(Domain::Adr)
}

fn is_refused<T>(make: impl FnOnce() -> T) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(make()))) else { return false };
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or(panic.downcast_ref::<&str>().copied()).expect("it says why");
    assert!(said.contains("another structure uses"), "{said}");
    true
}

#[test]
fn a_journal_has_its_memory_for_itself() {
    const KIND: [u8; 8] = *b"numbers\0";
    let region = region();
    let shape =
        JournalShape { kind: KIND, state_bytes: 8 << 10, log_bytes: 32 << 10, words: [0; 8] };
    let medium = || Medium::over(region.native(), true, 1);
    let make = || Journal::create(medium(), shape, [0; 8], |_| {}).expect("a journal");
    let open = || Journal::open(medium(), KIND, |_| Ok(())).expect("a journal");
    let journal = make();
    assert!(is_refused(make) && is_refused(open));
    let syncer = journal.syncer();
    drop(journal);
    assert!(is_refused(open), "who syncs it still uses it");
    drop(syncer);
    drop(open());
}

#[test]
fn a_persistent_index_has_what_lies_before_its_areas_for_itself() {
    let region = region();
    let medium = || Medium::over(region.native(), true, 1);
    let pages = Pages { count: 4, bytes: 4096 };
    let make = || IndexFile::make(medium(), 1, 7, 1, pages).expect("an index");
    let open = || IndexFile::open(medium()).expect("an index");
    let file = make();
    assert!(is_refused(make) && is_refused(open));
    let before_areas = file.areas_at();
    drop(region.native().claim(before_areas, region.len() - before_areas));
    drop(file);
    drop(open());
}
