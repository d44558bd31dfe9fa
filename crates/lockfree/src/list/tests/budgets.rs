//! What an operation asks of the memory, to the line: budgets of Gugnani, section 6.2.

use super::*;
use terrace_machine::Counted;

/// Lines written back, and fences.
type Cost = (u64, u64);
const FREE: Cost = (0, 0);

/// Costs of operations in the middle of a list, uncontended.
#[derive(Debug, PartialEq)]
struct Costs {
    insert: Cost,
    remove: Cost,
    /// An insertion of a key that is there.
    found: Cost,
    /// A removal of one that is not.
    absent: Cost,
    get: Cost,
}

fn costs<P: Protocol>(domain: Domain, left_out: &[Step]) -> Costs {
    let size = Size::list(100);
    let Fixture { kept, links } = Fixture::of::<P>(size);
    let (kept, links) = (kept.declared(domain), links.declared(domain));
    let [memory, links] = [&kept, &links].map(|region| Counted::new(region.native()));
    let here = media::<_, P>(memory.clone(), links.clone());
    let table = ListTable::<_, P>::create_without(here, size, left_out).unwrap();
    let mut session = table.session().unwrap();
    (0..20).for_each(|key| assert_eq!(session.insert(2 * key, key), Ok(true)));
    let mut counted = |does: &dyn Fn(&mut Session<Counted, P>)| {
        let counts = memory.measure(|| does(&mut session));
        assert_eq!(counts.streams, 0);
        (counts.write_backs, counts.fences)
    };
    let insert = counted(&|list| assert_eq!(list.insert(11, 1), Ok(true)));
    let found = counted(&|list| assert_eq!(list.insert(11, 1), Ok(false)));
    let get = counted(&|list| assert_eq!(list.get(11), Some(1)));
    let remove = counted(&|list| assert_eq!(list.remove(11), Some(1)));
    let absent = counted(&|list| assert_eq!(list.remove(11), None));
    assert_eq!(counted(&|list| assert_eq!(list.get(11), None)), FREE);
    let of_links = links.totals();
    assert_eq!((of_links.write_backs, of_links.fences), FREE, "what need not survive");
    Costs { insert, remove, found, absent, get }
}

fn updates(insert: Cost, remove: Cost) -> Costs {
    Costs { insert, remove, found: FREE, absent: FREE, get: FREE }
}

#[test]
fn tlog_as_published() {
    let published = costs::<TLog>(Domain::Adr, &NOT_PUBLISHED);
    assert_eq!(published, updates((4, 3), (4, 4)));
}

/// The link to the node that something is linked behind is written back too, before the same fence.
#[test]
fn tlog_corrected_writes_one_line_more() {
    assert_eq!(costs::<TLog>(Domain::Adr, &[]), updates((5, 3), (4, 4)));
}

#[test]
fn link_free_and_soft_write_one_line_and_wait_once() {
    assert_eq!(costs::<LinkFree>(Domain::Adr, &[]), updates((1, 1), (1, 1)));
    assert_eq!(costs::<Soft>(Domain::Adr, &[]), updates((1, 1), (1, 1)));
}

#[test]
fn where_caches_survive_nothing_is_written_back() {
    assert_eq!(costs::<LogFree>(Domain::Eadr, &[]), updates((0, 2), (0, 1)));
    assert_eq!(costs::<TLog>(Domain::Eadr, &[]), updates((0, 3), (0, 4)));
    assert_eq!(costs::<LinkFree>(Domain::Eadr, &[]), updates((0, 1), (0, 1)));
    assert_eq!(costs::<Soft>(Domain::Eadr, &[]), updates((0, 1), (0, 1)));
}

#[test]
fn in_a_page_cache_nothing_is_asked() {
    for cost in [costs::<TLog>(Domain::PageCache, &[]), costs::<LogFree>(Domain::PageCache, &[])] {
        assert_eq!(cost, updates(FREE, FREE));
    }
}
