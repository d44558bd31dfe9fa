//! Rows as keys and values of a map.
//!
//! # The format
//! The key of a row is a byte, 1 (what else a table's map has begins with others), and the columns of the primary
//! key, encoded so that bytes are in their order ([`terrace::Key`]). The value has the other columns:
//!
//! | part | bytes |
//! |---|---|
//! | format: the number 1; with columns that were added, 3 and how many there are in all | 1, or 1 and 2 |
//! | a bit for each column that is not of the key, set where it is NULL | (columns + 7) / 8 |
//! | columns of fixed size, little-endian; zeros where NULL | as their types say |
//! | the end of each text and byte string, counted from the first of them | 4 each |
//! | texts and byte strings | |
//!
//! So a column is found without reading those before it. A row that was written before a column was added has none of
//! it: it says how many columns it has, and is read as one of so many. This is a format on the disk: it never changes.

use crate::error::{Error, Result};
use crate::schema::{ColumnType, Definition};
use crate::values::{Builder, encode_part, skip_part, text_or_bytes, write_fixed};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes as arrow;
use std::sync::Arc;

/// What the key of a row begins with.
pub(crate) const ROWS: u8 = 1;
const FORMAT: u8 = 1;
const COUNTED: u8 = 3;
/// What is in the place of a row that was deleted, where a segment has it still.
pub(crate) const DELETED: &[u8] = &[2];

/// Where a column is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the key.
    Key,
    /// Its bit among the NULLs, its first byte in the value, and how many.
    Fixed { null: usize, at: usize, bytes: usize },
    /// Its bit among the NULLs, its number among texts and byte strings.
    Varied { null: usize, number: usize },
}

/// How the values of a table's rows lie, of those that have so many columns.
#[derive(Debug)]
struct Shape {
    places: Vec<Place>,
    /// What such a value begins with.
    begin: Vec<u8>,
    /// First byte of the ends, and how many there are.
    ends: usize,
    varied: usize,
}

/// How a table's rows lie in its map.
#[derive(Debug)]
pub(crate) struct Layout {
    pub definition: Definition,
    /// Of rows with as many columns as the first had, with one more, and so on.
    shapes: Vec<Shape>,
}

impl Shape {
    fn new(definition: &Definition, columns: usize) -> Shape {
        let mut begin = vec![FORMAT];
        if columns > definition.first_columns() {
            begin = vec![COUNTED];
            begin.extend_from_slice(&(columns as u16).to_le_bytes());
        }
        let others = columns - definition.key.len();
        let (mut at, mut null, mut varied) = (begin.len() + others.div_ceil(8), 0, 0);
        let mut places = Vec::with_capacity(columns);
        for (number, column) in definition.columns[..columns].iter().enumerate() {
            if definition.key.contains(&number) {
                places.push(Place::Key);
                continue;
            }
            places.push(match column.kind.fixed_bytes() {
                Some(bytes) => {
                    at += bytes;
                    Place::Fixed { null, at: at - bytes, bytes }
                }
                None => {
                    varied += 1;
                    Place::Varied { null, number: varied - 1 }
                }
            });
            null += 1;
        }
        Shape { places, begin, ends: at, varied }
    }

    /// Whether the NULL with this number is set in a value.
    fn is_null(&self, value: &[u8], null: usize) -> bool {
        value[self.begin.len() + null / 8] >> (null % 8) & 1 == 1
    }

    /// The bytes of a column in a value that is long enough for its ends; none of one that is NULL, nothing if they are
    /// not within it.
    fn bytes<'v>(&self, value: &'v [u8], place: Place) -> Option<Option<&'v [u8]>> {
        let end = |number: usize| {
            let end =
                value[self.ends + 4 * number..].first_chunk().expect("invariant: looked at before");
            u32::from_le_bytes(*end) as usize
        };
        let (null, bytes) = match place {
            Place::Key => return None,
            Place::Fixed { null, at, bytes } => (null, &value[at..at + bytes]),
            Place::Varied { null, number } => {
                let begin = if number == 0 { 0 } else { end(number - 1) };
                (null, value[self.ends + 4 * self.varied..].get(begin..end(number))?)
            }
        };
        Some((!self.is_null(value, null)).then_some(bytes))
    }
}

impl Layout {
    pub fn new(definition: Definition) -> Layout {
        let columns = definition.first_columns()..=definition.columns.len();
        let shapes = columns.map(|columns| Shape::new(&definition, columns)).collect();
        Layout { definition, shapes }
    }

    /// Of rows that are written now.
    fn shape(&self) -> &Shape {
        self.shapes.last().expect("invariant: there is one for each number of columns")
    }

    /// The number of the shape that a value has, if it is one, and long enough for it.
    fn shape_of(&self, value: &[u8]) -> Option<usize> {
        let number = match value {
            [FORMAT, ..] => 0,
            [COUNTED, low, high, ..] => {
                let columns = usize::from(u16::from_le_bytes([*low, *high]));
                columns.checked_sub(self.definition.first_columns()).filter(|later| *later > 0)?
            }
            _ => return None,
        };
        let shape = self.shapes.get(number)?;
        (value.len() >= shape.ends + 4 * shape.varied).then_some(number)
    }

    pub fn wrong(&self, why: &'static str) -> Error {
        Error::Row { table: self.definition.name.clone(), why }
    }

    pub fn null_error(&self, column: usize) -> Error {
        let column = self.definition.columns[column].name.clone();
        Error::Null { table: self.definition.name.clone(), column }
    }

    /// The key of row `row` of a batch that has the table's columns.
    ///
    /// # Errors
    /// [`Error::Null`].
    pub fn key(&self, batch: &RecordBatch, row: usize) -> Result<Vec<u8>> {
        let mut key = vec![ROWS];
        for (number, column) in self.definition.key.iter().enumerate() {
            let is_last = number + 1 == self.definition.key.len();
            let array = batch.column(*column);
            if array.is_null(row) {
                return Err(self.null_error(*column));
            }
            encode_part(array, row, self.definition.columns[*column].kind, &mut key, is_last);
        }
        Ok(key)
    }

    /// The key of row `row` of the key's columns alone, none of which is NULL there.
    pub fn key_of_parts(&self, parts: &[ArrayRef], row: usize) -> Vec<u8> {
        let mut key = vec![ROWS];
        for (number, (column, array)) in self.definition.key.iter().zip(parts).enumerate() {
            let (kind, is_last) =
                (self.definition.columns[*column].kind, number + 1 == parts.len());
            encode_part(array, row, kind, &mut key, is_last);
        }
        key
    }

    /// The value of row `row` of a batch that has the table's columns.
    ///
    /// # Errors
    /// [`Error::Null`].
    pub fn value(&self, batch: &RecordBatch, row: usize) -> Result<Vec<u8>> {
        let shape = self.shape();
        let mut value = vec![0; shape.ends];
        let nulls = shape.begin.len();
        value[..nulls].copy_from_slice(&shape.begin);
        let mut varied = Vec::new();
        for (column, place) in shape.places.iter().enumerate() {
            let (array, of) = (batch.column(column), &self.definition.columns[column]);
            let is_null = array.is_null(row);
            if is_null && !of.nullable {
                return Err(self.null_error(column));
            }
            match *place {
                Place::Key => {}
                Place::Fixed { null, at, bytes } if !is_null => {
                    write_fixed(array, row, of.kind, &mut value[at..at + bytes]);
                    debug_assert!(!shape.is_null(&value, null));
                }
                Place::Varied { .. } if !is_null => {
                    varied.extend_from_slice(text_or_bytes(array, row, of.kind));
                    let end =
                        u32::try_from(varied.len()).expect("invariant: an item is far smaller");
                    value.extend_from_slice(&end.to_le_bytes());
                }
                Place::Fixed { null, .. } | Place::Varied { null, .. } => {
                    value[nulls + null / 8] |= 1 << (null % 8);
                    if matches!(place, Place::Varied { .. }) {
                        value.extend_from_slice(&(varied.len() as u32).to_le_bytes());
                    }
                }
            }
        }
        value.extend_from_slice(&varied);
        Ok(value)
    }

    /// These rows, with all columns.
    ///
    /// # Errors
    /// [`Error::Row`].
    pub fn decoded(self: &Arc<Self>, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<RecordBatch> {
        let columns: Vec<usize> = (0..self.definition.columns.len()).collect();
        let mut builder = RowBuilder::new(Arc::clone(self), &columns, self.definition.schema());
        rows.iter().try_for_each(|(key, value)| builder.push(key, value))?;
        builder.finish()
    }

    /// The texts of a key's values, for messages.
    pub fn key_text(&self, batch: &RecordBatch, row: usize) -> String {
        self.text(&self.definition.key, batch, row)
    }

    /// The texts of some columns' values.
    pub fn text(&self, columns: &[usize], batch: &RecordBatch, row: usize) -> String {
        let text = |column: &usize| {
            let value =
                datafusion::arrow::util::display::array_value_to_string(batch.column(*column), row);
            value.unwrap_or_default()
        };
        columns.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

/// Some columns of rows, gathered to batches.
pub(crate) struct RowBuilder {
    layout: Arc<Layout>,
    schema: arrow::SchemaRef,
    builders: Vec<Builder>,
    /// The key's columns up to the last one that is wanted, each with its builder if it is.
    parts: Vec<(ColumnType, Option<usize>)>,
    /// Of each shape the other columns that are wanted, with their builders.
    others: Vec<Vec<(Place, usize)>>,
    /// Columns that were added and are wanted, with their builders, and what rows that lack them have there.
    before: Vec<(usize, usize, Option<Vec<u8>>)>,
    pub rows: usize,
    pub bytes: usize,
}

impl RowBuilder {
    /// For these columns, whose schema this is.
    pub fn new(layout: Arc<Layout>, columns: &[usize], schema: arrow::SchemaRef) -> RowBuilder {
        let of = &layout.definition;
        let builder = |column: &usize| Builder::new(of.columns[*column].kind);
        let wanted = |column: &usize| columns.iter().position(|wanted| wanted == column);
        let mut parts: Vec<_> =
            of.key.iter().map(|column| (of.columns[*column].kind, wanted(column))).collect();
        let needed =
            parts.iter().rposition(|(_, builder)| builder.is_some()).map_or(0, |last| last + 1);
        parts.truncate(needed);
        let others = layout.shapes.iter().map(|shape| {
            let place =
                |(builder, column): (usize, &usize)| Some((*shape.places.get(*column)?, builder));
            let places = columns.iter().enumerate().filter_map(place);
            places.filter(|(place, _)| !matches!(place, Place::Key)).collect()
        });
        let others = others.collect();
        let later = columns.iter().enumerate().filter(|(_, column)| **column >= of.first_columns());
        let before =
            later.map(|(builder, column)| (*column, builder, of.columns[*column].bytes_before()));
        let before = before.collect();
        let builders = columns.iter().map(builder).collect();
        RowBuilder { layout, schema, builders, parts, others, before, rows: 0, bytes: 0 }
    }

    /// Appends a row.
    ///
    /// # Errors
    /// [`Error::Row`].
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.rows += 1;
        self.bytes += key.len() + value.len();
        let pushed = self.push_key(key).and_then(|()| self.push_value(value));
        pushed.ok_or_else(|| self.layout.wrong("its bytes are not those of a row"))
    }

    fn push_key(&mut self, key: &[u8]) -> Option<()> {
        let mut key = key.strip_prefix(&[ROWS])?;
        let count = self.layout.definition.key.len();
        for (number, (kind, builder)) in self.parts.iter().enumerate() {
            let is_last = number + 1 == count;
            match builder {
                Some(builder) => self.builders[*builder].push_part(&mut key, is_last)?,
                None => skip_part(*kind, &mut key, is_last)?,
            }
        }
        Some(())
    }

    fn push_value(&mut self, value: &[u8]) -> Option<()> {
        let number = self.layout.shape_of(value)?;
        let shape = &self.layout.shapes[number];
        for (place, builder) in &self.others[number] {
            match shape.bytes(value, *place)? {
                Some(bytes) => self.builders[*builder].push(bytes)?,
                None => self.builders[*builder].push_null(),
            }
        }
        for (column, builder, before) in &self.before {
            match before {
                _ if *column < shape.places.len() => {}
                Some(bytes) => self.builders[*builder].push(bytes)?,
                None => self.builders[*builder].push_null(),
            }
        }
        Some(())
    }

    /// What was gathered since the last time.
    ///
    /// # Errors
    /// Those of Arrow, for NULL where there may be none: the row is not one of the table.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let columns = self.builders.iter_mut().map(Builder::finish).collect();
        let options =
            datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        batch.map_err(|_| self.layout.wrong("it has NULL where there may be none"))
    }
}
