//! Tables of columns: rows that have settled lie in segments, column by column; what was written since lies as rows.
//!
//! A table of this layout is an ordered map like any other table's. A row that is written goes to its key, as in a
//! table of rows, and whoever reads takes it instead of what a segment has of that key; for a row that is deleted while
//! a segment has it, a mark is written there. When many rows have come, they are *sealed*: a transaction writes
//! segments of them, with the rows of old segments between them, and removes both. So all of it is as atomic and as
//! durable as any transaction is, and a snapshot sees rows and segments of one moment.
//!
//! | key begins with | what it is |
//! |---|---|
//! | 1 | rows, and marks of deleted ones ([`crate::row`]) |
//! | 2, then the first row's key | a segment: rows, NULLs, least and greatest values (`segment.rs`) |
//! | 3, the segment's number, the column's (8 and 2 bytes) | a column of a segment (`chunk.rs`) |
//! | 4 | the number of the next segment |
//! | 5 | how often rows were written as segments at once ([`LOADS`]) |
//!
//! # Why sealing meets no writer
//! A writer that came after the sealing transaction's moment wins over the segment, whatever is in it. One that writes
//! a row which is being sealed writes a key that is being removed: one of both is refused, as in any transaction.

mod chunk;
mod find;
mod opened;
mod prune;
mod seal;
mod segment;
mod select;
mod write;

pub(crate) use find::{Finder, is_free};
pub(crate) use opened::Opened;
pub(crate) use prune::may_match;
pub(crate) use seal::{Ended, SEAL_ROWS, Sealed, seal};
pub(crate) use segment::{Segment, segments};
pub(crate) use select::{Condition, UNKNOWN_SHARE, can_ask, read_selected, schema_of_rows};
pub(crate) use write::{ROW_MOST, row_bytes, write_segments};

/// A segment has so many rows at the most, and takes about so many bytes.
pub(crate) const SEGMENT_ROWS: usize = 8192;
pub(crate) const SEGMENT_BYTES: usize = 3 << 19;

/// Where the number of the next segment is.
const NEXT_NUMBER: &[u8] = &[4];

/// How often rows came as segments without being rows before. Who inserts a row has seen that no segment has its key:
/// it certifies this, since a segment that comes meanwhile may.
pub(crate) const LOADS: &[u8] = &[5];
