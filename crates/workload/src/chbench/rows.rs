//! The rows of TPC-C's tables as bytes: keys that are in the order of their columns, values of fixed size.

use std::array;

/// A part of a row.
trait Part: Sized {
    fn write(&self, to: &mut Vec<u8>);
    fn read(from: &mut &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Part for $number {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn read(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        }
    )*};
}

numbers!(u8, u16, u32, i64);

impl<const N: usize> Part for [u8; N] {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(*bytes)
    }
}

/// A row without its key.
pub(super) trait Row: Sized {
    fn encode(&self) -> Vec<u8>;
    /// None if the bytes are not those of such a row.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

macro_rules! rows {
    ($($(#[$doc:meta])* $row:ident { $($field:ident: $part:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(super) struct $row {
            $(pub $field: $part,)*
        }

        impl Row for $row {
            fn encode(&self) -> Vec<u8> {
                #[allow(unused_mut)]
                let mut bytes = Vec::with_capacity(size_of::<$row>());
                $(self.$field.write(&mut bytes);)*
                bytes
            }

            #[allow(unused_mut)]
            fn decode(mut bytes: &[u8]) -> Option<$row> {
                let row = $row { $($field: Part::read(&mut bytes)?,)* };
                bytes.is_empty().then_some(row)
            }
        }
    )*};
}

rows! {
    /// Rates are in ten thousandths, money in cents, here and in all rows.
    Warehouse { tax: u16, paid: i64, address: [u8; 79] }
    District { tax: u16, next_order: u32, paid: i64, address: [u8; 79] }
    Customer { state: [u8; 2], discount: u16, balance: i64, deliveries: u32, name: [u8; 34], data: [u8; 500] }
    Item { price: u32, image: u32, name: [u8; 24], data: [u8; 50] }
    Stock { quantity: u32, sold: u32, orders: u32, remote: u32, districts: [u8; 240], data: [u8; 50] }
    /// `carrier` is 0 until it is delivered.
    Order { customer: u32, entered: i64, carrier: u8, lines: u8 }
    /// That an order is to be delivered.
    NewOrder {}
    /// `delivered` is 0 until it is.
    Line { item: u32, supplier: u32, delivered: i64, quantity: u8, amount: u32, info: [u8; 24] }
}

/// A key of these numbers; less than 256 takes a byte.
pub(super) fn key<const N: usize>(parts: [(u32, usize); N]) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    for (part, bytes) in parts {
        key.extend_from_slice(&part.to_be_bytes()[4 - bytes..]);
    }
    key
}

pub(super) fn warehouse(warehouse: u32) -> Vec<u8> {
    key([(warehouse, 4)])
}

pub(super) fn district(warehouse: u32, district: u32) -> Vec<u8> {
    key([(warehouse, 4), (district, 1)])
}

/// A customer, an order or a new order of a district.
pub(super) fn of_district(warehouse: u32, district: u32, number: u32) -> Vec<u8> {
    key([(warehouse, 4), (district, 1), (number, 4)])
}

pub(super) fn item(item: u32) -> Vec<u8> {
    key([(item, 4)])
}

pub(super) fn stock(warehouse: u32, item: u32) -> Vec<u8> {
    key([(warehouse, 4), (item, 4)])
}

pub(super) fn line(warehouse: u32, district: u32, order: u32, line: u32) -> Vec<u8> {
    key([(warehouse, 4), (district, 1), (order, 4), (line, 1)])
}

/// Warehouse, district and order (or customer) of a key of [`of_district`] or [`line`].
pub(super) fn place(key: &[u8]) -> Option<(u32, u32, u32)> {
    let (warehouse, rest) = key.split_first_chunk()?;
    let (district, rest) = rest.split_first()?;
    let (number, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*warehouse), u32::from(*district), u32::from_be_bytes(*number)))
}

/// Letters that nobody reads.
pub(super) fn letters<const N: usize>(mut random: impl FnMut() -> u64) -> [u8; N] {
    let mut bits = 0;
    array::from_fn(|at| {
        bits = if at % 12 == 0 { random() } else { bits >> 5 };
        b'a' + (bits % 26) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written_and_keys_are_in_order() {
        let order = Order { customer: 7, entered: -3, carrier: 0, lines: 15 };
        let bytes = order.encode();
        assert_eq!(Order::decode(&bytes), Some(order));
        assert_eq!(Order::decode(&bytes[1..]), None);
        assert_eq!(Order::decode(&[&bytes[..], &[0]].concat()), None);
        assert!(of_district(1, 2, 300) > of_district(1, 2, 299));
        assert!(of_district(1, 3, 0) > line(1, 2, u32::MAX, 15));
        assert_eq!(place(&line(70_000, 10, 80_000, 3)), Some((70_000, 10, 80_000)));
    }
}
