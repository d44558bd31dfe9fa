//! What an insert of each form of tree asks of its memory, counted and held to a budget: beside table
//! 5.1 of Ni (write-backs and fences of an insert into nodes of 512 bytes).

use std::sync::Arc;
use terrace_index::Reserved;
use terrace_index::tree::{Change, Form, Sixteen, Tree, TreeOptions};
use terrace_machine::{Counted, Counts};
use terrace_memory::{Backing, Budget, Domain, Region};

const ENTRIES: u64 = 20_000;

fn region() -> Reserved<Counted> {
    let bytes = 64 << 20;
    let region = Region::reserve(bytes, Backing::Anonymous).expect("memory").declared(Domain::Adr);
    let memory = Counted::new(region.native());
    Reserved { memory, commit: Box::new(move |at, bytes| region.commit(at, bytes)), start: 0 }
}

fn key(n: u64) -> [u8; 16] {
    u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes()
}

/// A tree of many entries, and what its leaves were asked for by one more, on average of as many.
fn insert(form: Form) -> (f64, f64) {
    let leaves = region();
    let counted = leaves.memory.clone();
    let budget = Arc::new(Budget::new(1 << 40));
    let tree = Tree::over(&TreeOptions::of(form, 512), leaves, region(), &budget).expect("memory");
    let put = |n: u64| {
        tree.update(&key(n), &Sixteen, |_| Change::Set([n, n])).map(drop).expect("memory");
    };
    (1..=ENTRIES).for_each(put);
    let counts = counted.measure(|| (ENTRIES + 1..=2 * ENTRIES).for_each(put));
    let Counts { write_backs, fences, .. } = counts;
    (write_backs as f64 / ENTRIES as f64, fences as f64 / ENTRIES as f64)
}

#[test]
fn an_insert_stays_within_what_the_paper_measured() {
    // Of table 5.1: write-backs, fences.
    let paper = [(0.0, 0.0), (0.0, 0.0), (12.0, 4.0), (6.0, 10.0), (5.0, 5.0)];
    for (form, (write_backs, fences)) in Form::ALL.into_iter().zip(paper) {
        let found = insert(form);
        println!("{form}: {:.2} write-backs, {:.2} fences", found.0, found.1);
        assert!(found.0 <= write_backs && found.1 <= fences, "{form}: {found:?}");
        assert_eq!(form.is_persistent(), found.1 >= 1.0, "{form}: {found:?}");
    }
}

#[test]
fn lookups_and_ranges_make_nothing_durable() {
    for form in Form::ALL {
        let leaves = region();
        let counted = leaves.memory.clone();
        let budget = Arc::new(Budget::new(1 << 40));
        let tree = Tree::over(&TreeOptions::of(form, 512), leaves, region(), &budget);
        let tree = tree.expect("memory");
        for n in 1..=1_000 {
            tree.update(&key(n), &Sixteen, |_| Change::Set([n, n])).expect("memory");
        }
        let counts = counted.measure(|| {
            assert_eq!(tree.get(&key(7), &Sixteen), Some([7, 7]));
            tree.range(
                std::ops::Bound::Unbounded,
                terrace_index::tree::Direction::Up,
                100,
                &Sixteen,
                |_| (),
            );
        });
        assert_eq!(counts.ordering(), Counts::default(), "{form}: {counts}");
        assert_eq!(counts.stores + counts.compare_exchanges, 0, "{form}: readers write nothing");
    }
}

/// Steps of single operations on one leaf, exactly.
#[test]
fn single_changes_cost_what_their_protocols_say() {
    let cost = |form, change: Change| {
        let leaves = region();
        let counted = leaves.memory.clone();
        let budget = Arc::new(Budget::new(1 << 40));
        let tree = Tree::over(&TreeOptions::of(form, 512), leaves, region(), &budget);
        let tree = tree.expect("memory");
        for n in 1..=8u64 {
            tree.update(&u128::from(2 * n).to_be_bytes(), &Sixteen, |_| Change::Set([n, n]))
                .expect("memory");
        }
        let key = u128::from(if matches!(change, Change::Set([99, _])) { 17u64 } else { 16 });
        let counts = counted.measure(|| {
            tree.update(&key.to_be_bytes(), &Sixteen, |_| change).expect("memory");
        });
        (counts.write_backs, counts.fences)
    };
    let (last, value, gone) = (Change::Set([99, 9]), Change::Set([50, 8]), Change::Remove);
    // An entry behind the last one: its line. A record of seven words or less: one line, its words, that it
    // is done.
    assert_eq!(cost(Form::FastFair, last), (1, 1));
    assert_eq!(cost(Form::PersistentUnsorted, last), (2, 2), "the entry, the bitmap");
    assert_eq!(cost(Form::WriteAhead, last), (3, 3), "the record, the entry, that it is done");
    // A value's first word.
    assert_eq!(cost(Form::FastFair, value), (1, 1));
    assert_eq!(cost(Form::PersistentUnsorted, value), (1, 1));
    assert_eq!(cost(Form::WriteAhead, value), (3, 3));
    // The last entry.
    assert_eq!(cost(Form::FastFair, gone), (1, 1));
    assert_eq!(cost(Form::PersistentUnsorted, gone), (1, 1));
    assert_eq!(cost(Form::WriteAhead, gone), (3, 3));
}
