//! Regions as their owners use them: declared to be of another domain, brought in, borrowed.

use terrace_memory::{Backing, Domain, Memory, Region};

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
