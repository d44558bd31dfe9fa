//! One column of a segment as bytes.
//!
//! | part | bytes |
//! |---|---|
//! | encoding, width, 1 if there are NULLs, 0 | 4 |
//! | rows | 4 |
//! | with NULLs: a bit for each row, set where there is a value | (rows + 7) / 8 |
//! | encoding 1: the values, little-endian | as the type says, each |
//! | encoding 2: the least value, then by how much each is above it, in `width` bytes: 0, 1, 2, 4 or 8 | 16, `width` each |
//! | encoding 3: the end of each text or byte string, counted from the first; then they | 4 each |
//! | encoding 4: how many different ones there are, these as by encoding 3, the number of each row's in `width` bytes | 4, then as above, 1 or 2 each |
//!
//! This is a format on the disk: it never changes, but there may be more encodings.

use crate::schema::ColumnType;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, PrimitiveArray,
    StringArray, StringViewArray, UInt16Array, UInt32Array,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{self as arrow, ArrowNativeType};
use std::collections::HashMap;
use std::sync::Arc;

const PLAIN: u8 = 1;
const ABOVE_LEAST: u8 = 2;
const TEXTS: u8 = 3;
const DICTIONARY: u8 = 4;

const HEADER_BYTES: usize = 8;
/// A dictionary has so many values at the most, and one for so many rows.
const DIFFERENT_MOST: usize = 1 << 12;
const ROWS_FOR_EACH: usize = 4;

/// The least and the greatest value of a column, as bytes like those of a row.
pub(crate) type Least = Option<(Vec<u8>, Vec<u8>)>;

/// A column as bytes, and what is its least and greatest value.
pub(crate) fn encode(array: &ArrayRef, kind: ColumnType) -> (Vec<u8>, Least) {
    match kind {
        ColumnType::Boolean => {
            let array = array.as_boolean();
            let bytes = array.values().iter().map(i16::from);
            let words =
                PrimitiveArray::<arrow::Int16Type>::new(bytes.collect(), array.nulls().cloned());
            let (bytes, least) = whole(&words);
            (bytes, least.map(|(least, most)| (least[..1].to_vec(), most[..1].to_vec())))
        }
        ColumnType::SmallInt => whole(array.as_primitive::<arrow::Int16Type>()),
        ColumnType::Integer => whole(array.as_primitive::<arrow::Int32Type>()),
        ColumnType::BigInt => whole(array.as_primitive::<arrow::Int64Type>()),
        ColumnType::Decimal(..) => whole(array.as_primitive::<arrow::Decimal128Type>()),
        ColumnType::Date => whole(array.as_primitive::<arrow::Date32Type>()),
        ColumnType::Timestamp => whole(array.as_primitive::<arrow::TimestampNanosecondType>()),
        ColumnType::Real => {
            let array = array.as_primitive::<arrow::Float32Type>();
            let bytes = array.values().iter().flat_map(|value| value.to_le_bytes());
            plain(array, bytes, |value| value.to_le_bytes().to_vec(), f32::total_cmp)
        }
        ColumnType::Double => {
            let array = array.as_primitive::<arrow::Float64Type>();
            let bytes = array.values().iter().flat_map(|value| value.to_le_bytes());
            plain(array, bytes, |value| value.to_le_bytes().to_vec(), f64::total_cmp)
        }
        ColumnType::Text => {
            let array = array.as_string_view();
            texts(array, array.iter().map(|value| value.unwrap_or_default().as_bytes()).collect())
        }
        ColumnType::Bytes => {
            let array = array.as_binary::<i32>();
            texts(array, array.iter().map(Option::unwrap_or_default).collect())
        }
    }
}

/// The column that these bytes are, or of its rows those at these places; none if they are not one of this type with so
/// many rows.
pub(crate) fn decode(
    bytes: &[u8],
    kind: ColumnType,
    rows: usize,
    places: Option<&[u32]>,
) -> Option<ArrayRef> {
    let chunk = Chunk::open(bytes, rows)?;
    if let Some(places) = places
        && (chunk.encoding != ABOVE_LEAST || kind == ColumnType::Boolean)
    {
        let all = decode(bytes, kind, rows, None)?;
        return take(&all, &UInt32Array::from(places.to_vec()), None).ok();
    }
    let chunk = Chunk { places, ..chunk };
    Some(match kind {
        ColumnType::Boolean => {
            let words = chunk.whole::<arrow::Int16Type>()?;
            let values: BooleanBuffer = words.values().iter().map(|word| *word != 0).collect();
            Arc::new(BooleanArray::new(values, words.nulls().cloned()))
        }
        ColumnType::SmallInt => Arc::new(chunk.whole::<arrow::Int16Type>()?),
        ColumnType::Integer => Arc::new(chunk.whole::<arrow::Int32Type>()?),
        ColumnType::BigInt => Arc::new(chunk.whole::<arrow::Int64Type>()?),
        ColumnType::Decimal(..) => {
            Arc::new(chunk.whole::<arrow::Decimal128Type>()?.with_data_type(kind.arrow()))
        }
        ColumnType::Date => Arc::new(chunk.whole::<arrow::Date32Type>()?),
        ColumnType::Timestamp => Arc::new(chunk.whole::<arrow::TimestampNanosecondType>()?),
        ColumnType::Real => Arc::new(chunk.plain::<arrow::Float32Type, 4>(f32::from_le_bytes)?),
        ColumnType::Double => Arc::new(chunk.plain::<arrow::Float64Type, 8>(f64::from_le_bytes)?),
        ColumnType::Text => chunk.texts(|ends, text, nulls| {
            let array = StringArray::try_new(ends, text, nulls).ok()?;
            Some(Arc::new(StringViewArray::from(&array)))
        })?,
        ColumnType::Bytes => chunk.texts(|ends, text, nulls| {
            Some(Arc::new(BinaryArray::try_new(ends, text, nulls).ok()?))
        })?,
    })
}

/// Asks each whether it is within the range, by one comparison of numbers of its own width.
macro_rules! within {
    ($above:expr, $holds:expr, $first:expr, $last:expr, $type:ty, $number:expr) => {{
        match <$type>::try_from($first) {
            Err(_) => $holds.fill(0),
            Ok(first) => {
                let width = <$type>::try_from($last).unwrap_or(<$type>::MAX) - first;
                for (more, holds) in $above.iter().zip(&mut *$holds) {
                    *holds &= u8::from($number(more).wrapping_sub(first) <= width);
                }
            }
        }
    }};
}
/// Leaves in `holds`, which has a 1 for each row that is still wanted, those rows whose value is from one number to
/// another, both included; none if the bytes are not such a column.
pub(crate) fn select(
    bytes: &[u8],
    kind: ColumnType,
    from: i128,
    to: i128,
    holds: &mut [u8],
) -> Option<()> {
    let chunk = Chunk::open(bytes, holds.len())?;
    if chunk.encoding == PLAIN {
        let wide = kind.fixed_bytes().filter(|bytes| *bytes == size_of::<i128>())?;
        for (value, holds) in chunk.values(chunk.body, wide)?.zip(&mut *holds) {
            let value = i128::from_le_bytes(value.try_into().ok()?);
            *holds &= u8::from(from <= value && value <= to);
        }
    } else {
        let (least, above) = chunk.above()?;
        let most = i128::from(u64::MAX);
        // How far above the least the range begins and ends; none if it ends before.
        let first = from.saturating_sub(least).max(0);
        let last = to.saturating_sub(least).min(most);
        if first > last || first > most {
            holds.fill(0);
            return Some(());
        }
        let (first, last) = (first as u64, last as u64);
        match above {
            Above::None if first > 0 => holds.fill(0),
            Above::None => {}
            Above::One(above) => within!(above, holds, first, last, u8, |more: &u8| *more),
            Above::Two(above) => {
                within!(above, holds, first, last, u16, |more: &[u8; 2]| u16::from_le_bytes(*more));
            }
            Above::Four(above) => {
                within!(above, holds, first, last, u32, |more: &[u8; 4]| u32::from_le_bytes(*more));
            }
            Above::Eight(above) => {
                within!(above, holds, first, last, u64, |more: &[u8; 8]| u64::from_le_bytes(*more));
            }
        }
    }
    if let Some(nulls) = &chunk.nulls {
        holds
            .iter_mut()
            .zip(nulls.iter())
            .for_each(|(holds, is_there)| *holds &= u8::from(is_there));
    }
    Some(())
}

/// Whole numbers, as what they are in Arrow.
trait Whole: Copy + Ord {
    fn wide(self) -> i128;
    fn narrow(wide: i128) -> Self;
    /// This and `more`, which is less than all there are from it on.
    fn above(self, more: u64) -> Self;
    fn bytes(self) -> Vec<u8>;
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Whole for $type {
            fn wide(self) -> i128 {
                self as i128
            }
            fn narrow(wide: i128) -> $type {
                wide as $type
            }
            fn above(self, more: u64) -> $type {
                self.wrapping_add(more as $type)
            }
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
        }
    )*};
}

whole_numbers!(i16, i32, i64, i128);

fn header(encoding: u8, width: usize, array: &dyn Array) -> Vec<u8> {
    let rows = u32::try_from(array.len()).expect("invariant: a segment is far smaller");
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let mut bytes = vec![encoding, width as u8, u8::from(nulls.is_some()), 0];
    bytes.extend_from_slice(&rows.to_le_bytes());
    if let Some(nulls) = nulls {
        bytes.extend((0..array.len()).step_by(8).map(|first| {
            let bit = |at: usize| u8::from(first + at < array.len() && nulls.is_valid(first + at));
            (0..8).map(|at| bit(at) << at).sum::<u8>()
        }));
    }
    bytes
}

fn whole<T: ArrowPrimitiveType<Native: Whole>>(array: &PrimitiveArray<T>) -> (Vec<u8>, Least) {
    let bounds =
        array.iter().flatten().fold(None, |bounds: Option<(T::Native, T::Native)>, value| {
            let (least, most) = bounds.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        });
    let Some((least, most)) = bounds else {
        let mut bytes = header(ABOVE_LEAST, 0, array);
        bytes.extend_from_slice(&[0; 16]);
        return (bytes, None);
    };
    let width = match most.wide().wrapping_sub(least.wide()) as u128 {
        0 => 0,
        0x01..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        0x1_0000_0000..=0xffff_ffff_ffff_ffff => 8,
        _ => 16,
    };
    let bounds = Some((least.bytes(), most.bytes()));
    if width == 16 {
        let mut bytes = header(PLAIN, 0, array);
        array.values().iter().for_each(|value| bytes.extend(value.bytes()));
        return (bytes, bounds);
    }
    let mut bytes = header(ABOVE_LEAST, width, array);
    bytes.extend_from_slice(&least.wide().to_le_bytes());
    for (row, value) in array.values().iter().enumerate() {
        let above = if array.is_null(row) { 0 } else { value.wide() - least.wide() };
        bytes.extend_from_slice(&above.to_le_bytes()[..width]);
    }
    (bytes, bounds)
}

fn plain<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    values: impl Iterator<Item = u8>,
    bytes_of: impl Fn(T::Native) -> Vec<u8>,
    order: impl Fn(&T::Native, &T::Native) -> std::cmp::Ordering,
) -> (Vec<u8>, Least) {
    let mut bytes = header(PLAIN, 0, array);
    bytes.extend(values);
    let least = array.iter().flatten().min_by(&order).map(&bytes_of);
    (bytes, least.zip(array.iter().flatten().max_by(&order).map(&bytes_of)))
}

fn texts(array: &dyn Array, values: Vec<&[u8]>) -> (Vec<u8>, Least) {
    let there = || values.iter().enumerate().filter(|(row, _)| array.is_valid(*row));
    let least = there().map(|(_, value)| *value).min();
    let bounds = least.zip(there().map(|(_, value)| *value).max());
    let bounds = bounds.map(|(least, most)| (least.to_vec(), most.to_vec()));
    let (mut numbers, mut different, mut codes) = (HashMap::new(), Vec::new(), Vec::new());
    let most = DIFFERENT_MOST.min(values.len() / ROWS_FOR_EACH);
    for value in &values {
        let number = *numbers.entry(*value).or_insert_with(|| {
            different.push(*value);
            different.len() - 1
        });
        if different.len() > most {
            let mut bytes = header(TEXTS, 0, array);
            push_texts(&values, &mut bytes);
            return (bytes, bounds);
        }
        codes.push(number);
    }
    let width = if different.len() <= 1 << 8 { 1 } else { 2 };
    let mut bytes = header(DICTIONARY, width, array);
    bytes.extend_from_slice(&(different.len() as u32).to_le_bytes());
    push_texts(&different, &mut bytes);
    codes.iter().for_each(|code| bytes.extend_from_slice(&code.to_le_bytes()[..width]));
    (bytes, bounds)
}

fn push_texts(values: &[&[u8]], bytes: &mut Vec<u8>) {
    let mut end = 0;
    for value in values {
        end += value.len() as u32;
        bytes.extend_from_slice(&end.to_le_bytes());
    }
    values.iter().for_each(|value| bytes.extend_from_slice(value));
}

/// A chunk that is being read.
struct Chunk<'a> {
    encoding: u8,
    width: usize,
    rows: usize,
    nulls: Option<NullBuffer>,
    body: &'a [u8],
    /// Of values above the least: which rows are wanted, if not all are.
    places: Option<&'a [u32]>,
}

/// By how much values are above the least, in so many bytes each.
enum Above<'a> {
    None,
    One(&'a [u8]),
    Two(&'a [[u8; 2]]),
    Four(&'a [[u8; 4]]),
    Eight(&'a [[u8; 8]]),
}

impl<'a> Chunk<'a> {
    fn open(bytes: &'a [u8], rows: usize) -> Option<Chunk<'a>> {
        let (header, mut body) = bytes.split_at_checked(HEADER_BYTES)?;
        let [encoding, width, has_nulls, 0, count @ ..] = header else { return None };
        if u32::from_le_bytes(count.try_into().ok()?) as usize != rows {
            return None;
        }
        let nulls = match has_nulls {
            0 => None,
            1 => {
                let (bits, rest) = body.split_at_checked(rows.div_ceil(8))?;
                body = rest;
                Some(NullBuffer::new(BooleanBuffer::new(Buffer::from(bits), 0, rows)))
            }
            _ => return None,
        };
        let width = usize::from(*width);
        Some(Chunk { encoding: *encoding, width, rows, nulls, body, places: None })
    }

    fn whole<T: ArrowPrimitiveType<Native: Whole>>(self) -> Option<PrimitiveArray<T>> {
        if self.encoding == PLAIN {
            let bytes = size_of::<T::Native>();
            let values = self.values(self.body, bytes)?.map(|value| {
                let mut wide = [0; 16];
                wide[..bytes].copy_from_slice(value);
                T::Native::narrow(i128::from_le_bytes(wide))
            });
            return Some(PrimitiveArray::new(values.collect(), self.nulls));
        }
        let (least, above) = self.above()?;
        let least = T::Native::narrow(least);
        let values: ScalarBuffer<T::Native> = match above {
            Above::None => {
                let count = self.places.map_or(self.rows, <[u32]>::len);
                std::iter::repeat_n(least, count).collect()
            }
            Above::One(above) => self.each(above, |more| least.above(u64::from(more))),
            Above::Two(above) => {
                self.each(above, |more| least.above(u64::from(u16::from_le_bytes(more))))
            }
            Above::Four(above) => {
                self.each(above, |more| least.above(u64::from(u32::from_le_bytes(more))))
            }
            Above::Eight(above) => self.each(above, |more| least.above(u64::from_le_bytes(more))),
        };
        let nulls = match (self.nulls, self.places) {
            (Some(nulls), Some(places)) => {
                let there: BooleanBuffer =
                    places.iter().map(|place| nulls.is_valid(*place as usize)).collect();
                Some(NullBuffer::new(there))
            }
            (nulls, _) => nulls,
        };
        Some(PrimitiveArray::new(values, nulls))
    }

    /// What is made of each value, or of those at the places.
    fn each<N: Copy, T: ArrowNativeType>(
        &self,
        above: &[N],
        of: impl Fn(N) -> T,
    ) -> ScalarBuffer<T> {
        match self.places {
            None => above.iter().map(|more| of(*more)).collect(),
            Some(places) => places.iter().map(|place| of(above[*place as usize])).collect(),
        }
    }

    /// The least value, and by how much each is above it.
    fn above(&self) -> Option<(i128, Above<'a>)> {
        let (least, above) =
            self.body.split_first_chunk().filter(|_| self.encoding == ABOVE_LEAST)?;
        let above = match self.width {
            0 if above.is_empty() => Above::None,
            1 if above.len() == self.rows => Above::One(above),
            2 => Above::Two(self.words(above)?),
            4 => Above::Four(self.words(above)?),
            8 => Above::Eight(self.words(above)?),
            _ => return None,
        };
        Some((i128::from_le_bytes(*least), above))
    }

    /// One for each row; none if there are not as many.
    fn words<const N: usize>(&self, bytes: &'a [u8]) -> Option<&'a [[u8; N]]> {
        let (words, rest) = bytes.as_chunks();
        (words.len() == self.rows && rest.is_empty()).then_some(words)
    }

    /// The values of a fixed size; none if they are not one for each row.
    fn values(&self, body: &'a [u8], bytes: usize) -> Option<std::slice::ChunksExact<'a, u8>> {
        (body.len() == self.rows * bytes).then(|| body.chunks_exact(bytes))
    }

    fn plain<T: ArrowPrimitiveType, const N: usize>(
        self,
        value: impl Fn([u8; N]) -> T::Native,
    ) -> Option<PrimitiveArray<T>> {
        let (values, rest) = self.body.as_chunks();
        let fits = self.encoding == PLAIN && values.len() == self.rows && rest.is_empty();
        let values = || values.iter().map(|bytes| value(*bytes)).collect();
        fits.then(|| PrimitiveArray::new(values(), self.nulls))
    }

    /// Texts or byte strings; `make` makes an array of ends and bytes, if they are what it may have.
    fn texts(
        self,
        make: impl Fn(OffsetBuffer<i32>, Buffer, Option<NullBuffer>) -> Option<ArrayRef>,
    ) -> Option<ArrayRef> {
        match self.encoding {
            TEXTS => {
                let (ends, rest) = ends_of(self.body, self.rows)?;
                let all = *ends.last()? as usize == rest.len();
                if all { make(ends, Buffer::from(rest), self.nulls) } else { None }
            }
            DICTIONARY => {
                let (count, body) = self.body.split_first_chunk()?;
                let count = u32::from_le_bytes(*count) as usize;
                let (ends, rest) = ends_of(body, count)?;
                let (text, codes) = rest.split_at_checked(*ends.last()? as usize)?;
                let different = make(ends, Buffer::from(text), None)?;
                let codes: Vec<u16> = match self.width {
                    1 => self.values(codes, 1)?.map(|code| u16::from(code[0])).collect(),
                    2 => {
                        let code = |code: &[u8]| u16::from_le_bytes([code[0], code[1]]);
                        self.values(codes, 2)?.map(code).collect()
                    }
                    _ => return None,
                };
                let within = codes.iter().all(|code| usize::from(*code) < count);
                let codes = UInt16Array::new(codes.into(), self.nulls);
                within.then(|| take(&different, &codes, None).ok()).flatten()
            }
            _ => None,
        }
    }
}

/// The ends of so many texts, from 0 on, and what is behind them; none if they go back or are beyond that.
fn ends_of(body: &[u8], count: usize) -> Option<(OffsetBuffer<i32>, &[u8])> {
    let (ends, rest) = body.split_at_checked(count.checked_mul(4)?)?;
    let mut offsets = Vec::with_capacity(count + 1);
    offsets.push(0);
    for end in ends.as_chunks().0 {
        offsets.push(i32::from_le_bytes(*end));
    }
    let in_order = offsets.is_sorted() && *offsets.last()? as usize <= rest.len();
    in_order.then(|| (OffsetBuffer::new(offsets.into()), rest))
}

#[cfg(test)]
mod tests;
