//! What is encoded is read as it was, and damage is never a panic.

use super::*;
use datafusion::arrow::array::*;

fn same(kind: ColumnType, array: ArrayRef) -> (Vec<u8>, Least) {
    let (bytes, bounds) = encode(&array, kind);
    let read = decode(&bytes, kind, array.len(), None).expect("readable");
    assert_eq!(&read, &array);
    // No part of it is taken for the whole, nor anything else for it.
    for short in 0..bytes.len() {
        assert!(decode(&bytes[..short], kind, array.len(), None).is_none(), "{short} bytes");
    }
    assert!(decode(&bytes, kind, array.len() + 1, None).is_none());
    (bytes, bounds)
}

#[test]
fn whole_numbers_take_as_many_bytes_as_their_range() {
    for (values, width) in [
        (vec![Some(7), None, Some(7)], 0),
        (vec![Some(-3), Some(252), None], 1),
        (vec![Some(1000), Some(2000)], 2),
        (vec![Some(0), Some(1 << 30)], 4),
        (vec![Some(i64::MIN), Some(i64::MAX), None], 8),
    ] {
        let rows = values.len();
        let bounds = (values.iter().flatten().min(), values.iter().flatten().max());
        let bounds = (
            bounds.0.expect("one").to_le_bytes().to_vec(),
            bounds.1.expect("one").to_le_bytes().to_vec(),
        );
        let has_nulls = usize::from(values.contains(&None));
        let (bytes, found) = same(ColumnType::BigInt, Arc::new(Int64Array::from(values)));
        assert_eq!(bytes.len(), HEADER_BYTES + has_nulls + 16 + rows * width);
        assert_eq!(found, Some(bounds));
    }
    let none = Int32Array::from(vec![None, None]);
    assert_eq!(same(ColumnType::Integer, Arc::new(none)).1, None);
}

#[test]
fn every_type_is_read_as_it_was() {
    let wide = Decimal128Array::from(vec![Some(i128::MIN), None, Some(i128::MAX)]);
    let kind = ColumnType::Decimal(38, 2);
    same(kind, Arc::new(wide.with_data_type(kind.arrow())));
    same(ColumnType::Boolean, Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])));
    same(ColumnType::Double, Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(f64::MAX)])));
    same(ColumnType::Real, Arc::new(Float32Array::from(vec![1.5, f32::NEG_INFINITY])));
    same(ColumnType::Date, Arc::new(Date32Array::from(vec![Some(-1), None])));
    same(
        ColumnType::Text,
        Arc::new(StringViewArray::from(vec![
            Some("ada"),
            None,
            Some(""),
            Some("a text of more than twelve bytes"),
        ])),
    );
    let few: Vec<_> =
        (0..4000).map(|row| (row % 7 > 0).then(|| format!("number {}", row % 300))).collect();
    let (bytes, bounds) = same_ends(ColumnType::Text, Arc::new(StringViewArray::from_iter(few)));
    assert_eq!((bytes[0], bytes[1]), (DICTIONARY, 2));
    assert_eq!(bounds, Some((b"number 0".to_vec(), b"number 99".to_vec())));
    same(ColumnType::Bytes, Arc::new(BinaryArray::from(vec![&b"\xff"[..], b"", b"\0"])));
}

/// Of long ones, with a look at some parts only.
fn same_ends(kind: ColumnType, array: ArrayRef) -> (Vec<u8>, Least) {
    let (bytes, bounds) = encode(&array, kind);
    assert_eq!(&decode(&bytes, kind, array.len(), None).expect("readable"), &array);
    for short in (0..bytes.len()).step_by(997) {
        assert!(decode(&bytes[..short], kind, array.len(), None).is_none(), "{short} bytes");
    }
    (bytes, bounds)
}

#[test]
fn ranges_and_places_are_those_of_the_values() {
    let nullable = |value: i64| (value % 5 != 0).then_some(value);
    for scale in [0, 1, 300, 70_000, 1 << 40, i64::MAX / 64] {
        let values: Vec<_> =
            (-32..32).map(|row| nullable(row * 7 % 32).map(|row| row * scale)).collect();
        let array: ArrayRef = Arc::new(Int64Array::from(values.clone()));
        let (bytes, _) = encode(&array, ColumnType::BigInt);
        let bounds =
            [i128::MIN, i128::from(-31 * scale), -1, 0, 1, i128::from(9 * scale), i128::MAX];
        for (from, to) in bounds.iter().flat_map(|from| bounds.iter().map(move |to| (*from, *to))) {
            let mut holds = vec![1; 64];
            select(&bytes, ColumnType::BigInt, from, to, &mut holds).expect("such a column");
            for (value, holds) in values.iter().zip(&holds) {
                let within = value.is_some_and(|value| (from..=to).contains(&i128::from(value)));
                assert_eq!(*holds == 1, within, "{value:?} from {from} to {to}");
            }
        }
        let places = [0, 5, 6, 63];
        let some = decode(&bytes, ColumnType::BigInt, 64, Some(&places)).expect("readable");
        let taken = take(&array, &UInt32Array::from(places.to_vec()), None).expect("taken");
        assert_eq!(&some, &taken);
    }
    let kind = ColumnType::Decimal(38, 0);
    let wide = Decimal128Array::from(vec![i128::MIN, -1, i128::MAX]).with_data_type(kind.arrow());
    let (bytes, _) = encode(&(Arc::new(wide) as ArrayRef), kind);
    let mut holds = vec![1; 3];
    select(&bytes, kind, -5, i128::MAX, &mut holds).expect("such a column");
    assert_eq!(holds, [0, 1, 1]);
}

#[test]
fn damaged_bytes_are_an_error_or_other_values_and_never_a_panic() {
    let texts: Vec<_> = (0..64).map(|row| (row % 5 > 0).then(|| format!("{}", row % 9))).collect();
    let numbers = Int32Array::from_iter((0..64).map(|row| (row % 5 > 0).then_some(row * 7)));
    for (kind, array) in [
        (ColumnType::Text, Arc::new(StringViewArray::from_iter(texts)) as ArrayRef),
        (ColumnType::Integer, Arc::new(numbers)),
    ] {
        let (bytes, _) = encode(&array, kind);
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= flip;
                if let Some(read) = decode(&other, kind, array.len(), None) {
                    assert_eq!(read.len(), array.len());
                }
            }
        }
    }
}
