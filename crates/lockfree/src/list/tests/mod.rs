//! The lists alone: what they hold against a model, across openings, at other addresses, and what is refused.

mod budgets;
mod epochs;
mod threads;

use super::node::LINE;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_memory::{Backing, Domain, Memory, Native, Region};

/// Runs a function of a protocol for each of the four.
macro_rules! each_list {
    ($run:ident $(, $argument:expr)*) => {
        $run::<TLog>($($argument),*);
        $run::<LogFree>($($argument),*);
        $run::<LinkFree>($($argument),*);
        $run::<Soft>($($argument),*);
    };
}
use each_list;

/// Memory for a table of this size, as many times as it has memories; the domain in which all are right.
struct Fixture {
    kept: Region,
    links: Region,
}

impl Fixture {
    fn of<P: Protocol>(size: Size) -> Fixture {
        let region = || {
            let bytes = size.bytes::<P>().unwrap().next_multiple_of(4096);
            let region = Region::reserve(bytes, Backing::Anonymous).unwrap().declared(Domain::Eadr);
            region.commit(0, bytes).unwrap();
            region
        };
        Fixture { kept: region(), links: region() }
    }

    fn media<P: Protocol>(&self) -> Media<Native> {
        media::<_, P>(self.kept.native(), self.links.native())
    }

    /// What survived, elsewhere; links that did not survive are not even zero.
    fn moved<P: Protocol>(&self, size: Size) -> Fixture {
        let other = Fixture::of::<P>(size);
        let (from, to) = (self.kept.native(), other.kept.native());
        for at in (0..from.len()).step_by(8) {
            // SAFETY: words of two memories of one length that only this test uses.
            unsafe { to.store(at, from.load(at)) };
            // SAFETY: as above.
            unsafe { other.links.native().store(at, u64::MAX) };
        }
        other
    }
}

fn media<M: Memory + Clone, P: Protocol>(kept: M, links: M) -> Media<M> {
    if P::LINKS_APART { Media::two(kept, links) } else { Media::one(kept) }
}

fn contents<P: Protocol>(table: &Arc<ListTable<Native, P>>) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    table.session().unwrap().visit(|key, value| {
        assert_eq!(found.insert(key, value), None, "key {key} once");
    });
    found
}

#[derive(Clone, Debug)]
enum Asked {
    Insert(u64, u64),
    Remove(u64),
    Get(u64),
    Open,
}

fn asked() -> impl Strategy<Value = Asked> {
    // The ends of the range are keys like all others.
    let key = || prop_oneof![4 => 0..24u64, 1 => u64::MAX - 2..=u64::MAX];
    prop_oneof![
        4 => (key(), any::<u64>()).prop_map(|(key, value)| Asked::Insert(key, value)),
        4 => key().prop_map(Asked::Remove),
        2 => key().prop_map(Asked::Get),
        1 => Just(Asked::Open),
    ]
}

fn is_a_map<P: Protocol>(size: Size, script: &[Asked]) {
    let fixture = Fixture::of::<P>(size);
    let mut model = BTreeMap::new();
    let mut table = ListTable::<_, P>::create(fixture.media::<P>(), size).unwrap();
    let mut session = table.session().unwrap();
    for asked in script {
        match *asked {
            Asked::Insert(key, value) => {
                let is_new = !model.contains_key(&key);
                assert_eq!(session.insert(key, value), Ok(is_new), "{} {asked:?}", P::NAME);
                model.entry(key).or_insert(value);
            }
            Asked::Remove(key) => assert_eq!(session.remove(key), model.remove(&key)),
            Asked::Get(key) => assert_eq!(session.get(key), model.get(&key).copied()),
            Asked::Open => {
                drop((session, table));
                table = ListTable::open(fixture.media::<P>()).unwrap();
                session = table.session().unwrap();
                assert_eq!(table.free_nodes(), size.capacity - model.len() as u64, "{}", P::NAME);
            }
        }
    }
    assert_eq!(contents(&table), model, "{}", P::NAME);
}

proptest! {
    #[test]
    fn a_list_is_a_map(script in prop::collection::vec(asked(), 0..200)) {
        each_list!(is_a_map, Size::list(32), &script);
    }

    #[test]
    fn a_table_is_a_map(script in prop::collection::vec(asked(), 0..200)) {
        each_list!(is_a_map, Size { capacity: 40, buckets: 8 }, &script);
    }
}

fn is_ordered<P: Protocol>() {
    let size = Size::list(200);
    let fixture = Fixture::of::<P>(size);
    let table = ListTable::<_, P>::create(fixture.media::<P>(), size).unwrap();
    let mut session = table.session().unwrap();
    (0..200u64).for_each(|n| assert!(session.insert(n.wrapping_mul(7919) % 200, n).unwrap()));
    let mut keys = Vec::new();
    session.visit(|key, _| keys.push(key));
    assert_eq!(keys, (0..200).collect::<Vec<u64>>(), "{}", P::NAME);
}

#[test]
fn one_list_is_in_order() {
    each_list!(is_ordered);
}

/// Slots are used again for ever, and the whole slab can be had; nothing leaks over openings.
fn leaks_nothing<P: Protocol>() {
    let size = Size::list(300);
    let fixture = Fixture::of::<P>(size);
    let mut table = ListTable::<_, P>::create(fixture.media::<P>(), size).unwrap();
    for round in 0..30 {
        let mut session = table.session().unwrap();
        for key in 0..300 {
            assert_eq!(session.insert(key, round), Ok(true), "{} round {round}", P::NAME);
        }
        assert_eq!(session.insert(300, 0), Err(Error::Full { capacity: 300 }));
        assert_eq!(session.insert(299, 0), Ok(false), "a full list tells what it has");
        (0..300).for_each(|key| assert_eq!(session.remove(key), Some(round)));
        if round % 3 == 0 {
            drop((session, table));
            table = ListTable::open(fixture.media::<P>()).unwrap();
            assert_eq!(table.free_nodes(), 300, "{}", P::NAME);
        }
    }
}

#[test]
fn no_slot_is_lost() {
    each_list!(leaks_nothing);
}

fn can_be_moved<P: Protocol>() {
    let size = Size::table(100);
    let fixture = Fixture::of::<P>(size);
    let table = ListTable::<_, P>::create(fixture.media::<P>(), size).unwrap();
    let mut session = table.session().unwrap();
    (0..100).for_each(|key| assert_eq!(session.insert(key, key + 1), Ok(true)));
    (0..50).for_each(|key| assert_eq!(session.remove(2 * key), Some(2 * key + 1)));
    let before = contents(&table);
    drop((session, table));
    let moved = fixture.moved::<P>(size);
    drop(fixture);
    let table = ListTable::<_, P>::open(moved.media::<P>()).unwrap();
    assert_eq!(contents(&table), before, "{}", P::NAME);
    assert_eq!((table.size(), table.free_nodes()), (size, 50));
}

#[test]
fn a_list_means_the_same_at_another_address() {
    each_list!(can_be_moved);
}

#[test]
fn memory_without_a_list_is_refused() {
    let size = Size::list(10);
    let fixture = Fixture::of::<TLog>(Size::list(100));
    let not_there = ListTable::<_, TLog>::open(fixture.media::<TLog>()).unwrap_err().to_string();
    assert_eq!(not_there, "no list lies here: it begins with 0x0000000000000000");
    drop(ListTable::<_, TLog>::create(fixture.media::<TLog>(), size).unwrap());
    let other = ListTable::<_, LinkFree>::open(fixture.media::<LinkFree>()).unwrap_err();
    assert_eq!(other.to_string(), "form: it was made with tlog, and link-free is asked for");
    for (size, words) in [
        (Size { capacity: 0, buckets: 1 }, "capacity 0; valid: 1 to 2^40 nodes"),
        (Size { capacity: 9, buckets: 3 }, "buckets 3; valid: a power of two up to 2^40"),
    ] {
        let refused = ListTable::<_, TLog>::create(fixture.media::<TLog>(), size).unwrap_err();
        assert_eq!(refused.to_string(), words);
    }
    let too_small = ListTable::<_, TLog>::create(fixture.media::<TLog>(), Size::list(1000));
    assert!(matches!(too_small, Err(Error::TooSmall { .. })), "{too_small:?}");
    let alone = ListTable::<_, Soft>::create(Media::one(fixture.kept.native()), size).unwrap_err();
    assert!(alone.to_string().contains("a second memory"), "{alone}");
    let adr = fixture.kept.declared(Domain::Adr);
    let lost = ListTable::<_, LogFree>::create(Media::one(adr.native()), size).unwrap_err();
    assert!(lost.to_string().contains("under ADR use tlog, link-free or soft"), "{lost}");
}

#[test]
fn damage_is_named_with_its_place() {
    let size = Size::list(10);
    let fixture = Fixture::of::<LogFree>(size);
    let table = ListTable::<_, LogFree>::create(fixture.media::<LogFree>(), size).unwrap();
    let mut session = table.session().unwrap();
    (1..4).for_each(|key| assert_eq!(session.insert(key, 0), Ok(true)));
    drop((session, table));
    let opened =
        |fixture: &Fixture| ListTable::<_, LogFree>::open(fixture.media::<LogFree>()).map(drop);
    // Slots 0 and 1 are the head of the file and of the list; 2 to 4 the nodes.
    let memory = fixture.kept.native();
    let damaged = |at, value| {
        // SAFETY: a word of the memory, which only this test uses.
        let before = unsafe { memory.load(at) };
        // SAFETY: as above.
        unsafe { memory.store(at, value) };
        let words = opened(&fixture).unwrap_err().to_string();
        // SAFETY: as above.
        unsafe { memory.store(at, before) };
        words
    };
    assert_eq!(
        damaged(4 * LINE, 1 << 20),
        format!("slot {} (byte {}) is damaged: a link to it, and it is no node", 1 << 18, 1 << 24)
    );
    assert_eq!(damaged(4 * LINE, 2 << 2), "slot 2 (byte 128) is damaged: two links to it");
    let key = damaged(3 * LINE + 8, 9);
    assert_eq!(key, "slot 4 (byte 256) is damaged: key 3, which does not belong there");
    assert_eq!(opened(&fixture), Ok(()));
}
