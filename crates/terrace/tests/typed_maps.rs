//! Typed maps: what does not fit a type is told with its key, and stays.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terrace::{Database, Error, Kind, MapOptions, TypedMap};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Old {
    name: String,
    age: u8,
}

/// The same, later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct New {
    age: u32,
    #[serde(default)]
    mail: Option<String>,
    name: String,
}

fn opened() -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), MapOptions::default()).expect("open");
    (dir, db)
}

fn is_of_other_type<T: std::fmt::Debug>(told: terrace::Result<T>, on: &str) {
    match told {
        Err(Error::NotOfType { key, .. }) => assert_eq!(key, on),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_struct_may_get_fields_and_give_them_another_order() {
    let (_dir, db) = opened();
    let old = db.typed_map::<u16, Old>("people").expect("open");
    old.put(&7, &Old { name: "ada".into(), age: 36 }).expect("put");
    let new = TypedMap::<u16, New>::new(old.map().clone());
    let ada = New { age: 36, mail: None, name: "ada".into() };
    assert_eq!(new.get(&7).expect("it is read"), Some(ada.clone()));
    new.put(&7, &New { mail: Some("ada@example.org".into()), ..ada }).expect("put");
    assert_eq!(
        old.get(&7).expect("what it does not know is left out").map(|ada| ada.age),
        Some(36)
    );
}

#[test]
fn what_is_of_another_type_is_refused_with_its_key() {
    let (_dir, db) = opened();
    let numbers = db.typed_map::<u16, u64>("numbers").expect("open");
    numbers.put(&1, &1).expect("put");
    numbers.map().put(&[0, 2], b"").expect("put");
    numbers.map().put(&[0, 3], &[5, 5]).expect("put");
    numbers.map().put(&[0, 4, 0], &[5]).expect("put");
    is_of_other_type(numbers.get(&2), "\\x00\\x02");
    is_of_other_type(numbers.get(&3), "\\x00\\x03");
    is_of_other_type(numbers.update(&3, |_| Some(1)), "\\x00\\x03");
    assert_eq!(numbers.map().get(&[0, 3]).expect("read"), Some(vec![5, 5]), "it stays");
    let mut items = numbers.range(4..=4);
    assert!(items.next().is_none(), "a longer key is beyond");
    let mut items = numbers.range(..).rev();
    is_of_other_type(items.next().expect("the last"), "\\x00\\x04\\x00");
    is_of_other_type(items.next().expect("it goes on"), "\\x00\\x03");
    assert_eq!(items.nth(1).transpose().expect("behind another"), Some((1, 1)));
    let moved = db.transaction(|tx| {
        numbers.put_in(tx, &9, &9)?;
        numbers.get_in(tx, &2)
    });
    is_of_other_type(moved, "\\x00\\x02");
    assert_eq!(numbers.get(&9).expect("read"), None, "nothing was written");
    let unordered = db.map_builder("hashed").kind(Kind::Hash).open_typed::<u16, u64>();
    let unordered = unordered.expect("open");
    assert!(matches!(unordered.range(..).next(), Some(Err(Error::Unordered))));
    assert!(matches!(db.typed_map::<u16, u64>("hashed"), Err(Error::Option { .. })));
}

#[test]
fn values_of_all_forms_come_back() {
    let (_dir, db) = opened();
    let map = db.typed_map::<u8, (Vec<u8>, Option<i64>, f64, BTreeMap<String, char>)>("forms");
    let map = map.expect("open");
    let value = (vec![0, 200, 255], Some(-7), f64::NEG_INFINITY, [("a".to_string(), 'b')].into());
    map.put(&0, &value).expect("put");
    assert_eq!(map.get(&0).expect("read"), Some(value));
    let bytes = db.typed_map::<u8, Vec<u8>>("bytes").expect("open");
    bytes.put(&0, &vec![200; 1000]).expect("put");
    assert_eq!(bytes.map().get(&[0]).expect("read").map(|value| value.len()), Some(1003));
    assert_eq!(bytes.get(&0).expect("read"), Some(vec![200; 1000]));
}

/// Every way to go through a range against a `BTreeMap`: pages of all sizes, from both ends, in steps of any length.
#[test]
fn iterators_meet_whatever_ends_are_taken_from() {
    let (_dir, db) = opened();
    let map = db.typed_map::<i32, String>("text").expect("open");
    let mut expected = BTreeMap::new();
    for number in -700..700 {
        // Some much larger: a page is bounded by bytes too.
        let text = "x".repeat(if number % 97 == 0 { 100_000 } else { 5 });
        map.put(&number, &text).expect("put");
        expected.insert(number, text);
    }
    for (from, to) in [(-700, 700), (-5, 5), (3, 4), (10, 10), (-2000, -699)] {
        for (front, back) in [(1, 0), (0, 1), (1, 1), (7, 2), (300, 1), (1, 40)] {
            let mut items = map.range(from..to);
            let mut wanted = expected.range(from..to);
            let item =
                |item: Option<terrace::Result<(i32, String)>>| item.transpose().expect("read");
            let owned =
                |item: Option<(&i32, &String)>| item.map(|(key, text)| (*key, text.clone()));
            let mut is_over = false;
            while !is_over {
                for _ in 0..front {
                    let next = item(items.next());
                    is_over |= next.is_none();
                    assert_eq!(next, owned(wanted.next()));
                }
                for _ in 0..back {
                    let next = item(items.next_back());
                    is_over |= next.is_none();
                    assert_eq!(next, owned(wanted.next_back()));
                }
            }
            assert!(items.next().is_none() && items.next_back().is_none());
        }
    }
    let (from, to) = (5, -5);
    assert!(map.range(from..to).next().is_none(), "it ends before it begins");
    let reversed = map.map().iter(terrace::Range::ALL.reversed()).map(|item| item.expect("read").0);
    assert!(reversed.eq(map.map().iter(..).rev().map(|item| item.expect("read").0)));
}
