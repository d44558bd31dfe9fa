//! Whether a segment has a row.

use super::opened::read_columns;
use super::segment::{Segment, segment_at};
use crate::error::Result;
use crate::row::Layout;
use crate::view::Reads;
use datafusion::arrow::array::ArrayRef;
use std::ops::Bound;

/// Whether there is no row between these two keys, nor a mark of one.
///
/// # Errors
/// As [`Finder::has`].
pub(crate) fn is_free(
    source: &impl Reads,
    layout: &Layout,
    (first, last): (&[u8], &[u8]),
) -> Result<bool> {
    let mut is_free = true;
    source.visit(Bound::Included(first), Bound::Included(last), &mut |_, _| {
        is_free = false;
        false
    })?;
    let before = segment_at(source, layout, first)?;
    is_free &= before.is_none_or(|before| *before.last < *first);
    let next = Segment::next(source, first)?;
    Ok(is_free && next.is_none_or(|next| *next > *last))
}

/// Looks rows up in segments; keys that come in their order cost one look at each segment.
#[derive(Default)]
pub(crate) struct Finder {
    /// The last segment that was looked at, with its key's columns.
    at: Option<(Segment, Vec<ArrayRef>)>,
    /// Between these two keys no segment has a row.
    gap: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Finder {
    /// Whether a segment has the row of this key; that it has been deleted or changed since is not looked at.
    ///
    /// # Errors
    /// [`Error::Row`](crate::Error::Row), and those of the database.
    pub fn has(&mut self, source: &impl Reads, layout: &Layout, key: &[u8]) -> Result<bool> {
        if let Some((after, before)) = &self.gap
            && **after < *key
            && before.as_deref().is_none_or(|before| key < before)
        {
            return Ok(false);
        }
        let is_here = |segment: &Segment| *segment.first <= *key && *key <= *segment.last;
        if !self.at.as_ref().is_some_and(|(segment, _)| is_here(segment)) {
            let found = segment_at(source, layout, key)?;
            let Some(segment) = found.as_ref().filter(|segment| is_here(segment)) else {
                let after = found.map_or_else(Vec::new, |segment| segment.last);
                self.gap = Some((after, Segment::next(source, key)?));
                return Ok(false);
            };
            let parts = read_columns(source, layout, segment, &layout.definition.key)?;
            self.at = found.zip(Some(parts));
        }
        let (segment, parts) = self.at.as_ref().expect("invariant: found above");
        let (mut low, mut high) = (0, segment.rows);
        while low < high {
            let middle = low.midpoint(high);
            match (*layout.key_of_parts(parts, middle)).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(true),
            }
        }
        Ok(false)
    }
}
