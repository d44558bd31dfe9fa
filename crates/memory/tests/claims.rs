//! A memory belongs to one structure at a time. Two tables on clones of one memory used to be made without a word, and
//! stored over each other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_memory::{Backing, Divide, Memory, Part, Region};

fn is_refused(memory: &impl Memory, at: u64, bytes: u64) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(memory.claim(at, bytes)))).is_err()
}

#[test]
fn a_range_is_claimed_once_by_whatever_name_it_goes() {
    let region = Region::reserve(1 << 20, Backing::Anonymous).expect("address space");
    let memory = region.native();
    let claim = memory.claim(4096, 4096);
    let wrapped = Part::new(memory.clone(), 4096, 8192);
    assert!(is_refused(&region.native(), 0, 1 << 20), "another name of the region");
    assert!(is_refused(&memory.part(4096, 64), 0, 64), "a part");
    assert!(is_refused(&wrapped, 4032, 128), "through a wrapper");
    // What lies beside it is free: the first page, and the third, which is the wrapper's second.
    drop((memory.claim(0, 4096), wrapped.claim(4096, 4096)));
    drop(claim);
    drop(region.native().claim(0, 1 << 20));
}

#[test]
fn what_is_claimed_lies_in_the_memory() {
    let region = Region::reserve(1 << 20, Backing::Anonymous).expect("address space");
    let part = region.native().part(64, 64);
    assert!(is_refused(&part, 0, 65) && is_refused(&part, 65, u64::MAX));
}
