//! Regions as their owners use them: declared to be of another domain, brought in, borrowed.

use terrace_memory::{Backing, Divide, Domain, Memory, Region};

#[test]
fn a_declared_region_persists_as_its_domain_asks_and_stays_what_it_is() {
    let region = Region::reserve(1 << 20, Backing::Anonymous).expect("address space");
    assert_eq!(region.native().domain(), Domain::None);
    let mut region = region.declared(Domain::Adr);
    assert_eq!((region.domain(), region.native().domain()), (Domain::Adr, Domain::Adr));
    region.populate(0, 1 << 20).expect("memory");
    let bytes = region.bytes_mut(4096, 4096).expect("committed");
    assert!(bytes.iter().all(|byte| *byte == 0), "new memory reads as zero");
    bytes.fill(7);
    region.populate(0, 1 << 20).expect("again");
    assert!(region.bytes_mut(4096, 4096).expect("committed").iter().all(|byte| *byte == 7));
    assert_eq!(region.bytes_mut(0, 4096).expect("committed")[4095], 0);
}

/// A structure kept a memory whose region was dropped before it: its words were unmapped under it.
#[test]
fn a_memory_stays_mapped_when_its_region_is_gone() {
    let region = Region::reserve(1 << 20, Backing::Anonymous).expect("address space");
    region.commit(0, 4096).expect("memory");
    let part = region.native().part(64, 64);
    drop(region);
    // SAFETY: committed words, which nobody else uses.
    unsafe {
        part.store(8, 7);
        assert_eq!(part.load(8), 7);
    }
}

/// The bytes of a region could be borrowed to be changed while a structure stood on it.
#[test]
fn the_bytes_of_a_region_in_use_are_not_lent_to_be_changed() {
    let mut region = Region::reserve(1 << 20, Backing::Anonymous).expect("address space");
    let memory = region.native();
    let refused = region.bytes_mut(0, 4096).expect_err("in use");
    assert_eq!(refused.kind(), std::io::ErrorKind::ResourceBusy);
    drop(memory);
    region.bytes_mut(0, 4096).expect("nobody has it");
}

/// The end of a range was computed with a sum that wraps around in a release build: such a range passed for one
/// inside, and pages far away would have been made accessible, or released.
#[test]
#[should_panic(expected = "is inside the region")]
fn a_range_that_wraps_around_is_not_inside() {
    let region = Region::reserve(1 << 20, Backing::Anonymous).expect("address space");
    let _panics = region.commit(u64::MAX - 4095, 4096);
}
