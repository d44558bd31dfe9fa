//! By which way rows are found: by the primary key, or by an index; all at once, or one by one.
//!
//! A row that is looked up by its key costs more than one that is read along with its neighbours. So lists of keys, as
//! a join gives them, and entries of indexes are followed while they are few beside the rows that would be read
//! otherwise; beyond, those are read along.

use crate::error::Result;
use crate::facts::Fact;
use crate::row::Layout;
use crate::schema::IndexState;
use crate::span::{Span, Spans};
use crate::view::Reads;
use terrace::Map;

/// What looking a row up costs, in rows that are read along. As keys and values it is eight to ten (the experiment
/// `snapkv-crossover`); here both pay for decoding, and look-ups are made some at a time.
const LOOKED_UP: usize = 3;
/// Keys that are drawn to see how large a part of a map is.
const DRAWN: usize = 32;
/// Fewer keys are counted, of so many parts of several.
const COUNTED: usize = 64;
const PARTS_COUNTED: usize = 4;

/// A way to rows.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The place of the index among the table's; none: the primary key.
    pub index: Option<usize>,
    pub spans: Spans,
    /// About how many rows it leads to.
    pub rows: Option<usize>,
}

impl Way {
    /// All of a map.
    pub fn all() -> Way {
        let parts = vec![Span::all()];
        let spans = Spans { parts, equal: 0, bounded: false, has_lists: false };
        Way { index: None, spans, rows: None }
    }

    /// The columns of its key.
    pub fn columns<'a>(&self, layout: &'a Layout) -> &'a [usize] {
        let table = &layout.definition;
        self.index.map_or(&table.key, |index| &table.indexes[index].columns)
    }
}

/// The map of a table, and what is read of it.
pub(crate) struct Place<'a, R> {
    pub map: &'a Map,
    pub source: &'a R,
    pub layout: &'a Layout,
}

impl<R: Reads> Place<'_, R> {
    /// The way by the primary key.
    pub fn by_key(&self, facts: &[Fact]) -> Way {
        let spans = Spans::of(&self.layout.definition, &self.layout.key_columns(), facts);
        Way { index: None, spans, rows: None }
    }

    /// The best of all ways by what these facts say; `rows`: what there is to beat, if that is known.
    ///
    /// # Errors
    /// Those of the database.
    pub fn best(&self, facts: &[Fact], rows: Option<usize>) -> Result<Way> {
        let mut best = self.by_key(facts);
        let table = &self.layout.definition;
        let ready = |(_, index): &(usize, &crate::schema::Index)| index.state == IndexState::Ready;
        let mut others = Vec::new();
        for (place, index) in table.indexes.iter().enumerate().filter(ready) {
            let spans = Spans::of(table, &index.key_columns(), facts);
            if spans.is_bounded() {
                others.push(Way { index: Some(place), spans, rows: None });
            }
        }
        // A list may have more values than looking them up is worth.
        if best.spans.has_lists {
            let plain: Vec<Fact> = facts
                .iter()
                .filter(|fact| matches!(fact, Fact::Compared { .. }))
                .cloned()
                .collect();
            others.push(std::mem::replace(&mut best, self.by_key(&plain)));
        }
        if best.spans.is_bounded() || !others.is_empty() {
            best.rows = Some(self.rows(&best.spans)?);
        }
        let mut least = best.rows.zip(rows).map_or(best.rows, |(one, other)| Some(one.min(other)));
        for mut way in others {
            let rows = self.rows(&way.spans)?;
            way.rows = Some(rows);
            let looked_up = match way.index {
                Some(_) => rows + way.spans.parts.len(),
                None => way.spans.parts.len(),
            };
            let cost = rows.saturating_add(looked_up.saturating_mul(LOOKED_UP - 1));
            if least.is_none_or(|least| cost < least) {
                (best, least) = (way, Some(cost));
            }
        }
        Ok(best)
    }

    /// About how many keys there are in these parts.
    fn rows(&self, spans: &Spans) -> Result<usize> {
        if spans.parts.iter().all(Span::is_one_key) {
            return Ok(spans.parts.len());
        }
        if !spans.is_bounded() {
            return Ok(self.layout.rows_of(self.map.len()));
        }
        let counted = &spans.parts[..spans.parts.len().min(PARTS_COUNTED)];
        let mut rows = 0;
        for span in counted {
            rows += self.rows_of(span)?;
        }
        Ok(rows.saturating_mul(spans.parts.len()) / counted.len().max(1))
    }

    fn rows_of(&self, span: &Span) -> Result<usize> {
        let mut count = 0;
        let (from, to) =
            (span.from.as_ref().map(Vec::as_slice), span.to.as_ref().map(Vec::as_slice));
        self.source.visit(from, to, &mut |_, _| {
            count += 1;
            count < COUNTED
        })?;
        if count < COUNTED {
            return Ok(count);
        }
        let keys = self.map.sample_keys(DRAWN);
        let within = keys.iter().filter(|key| span.has(key)).count();
        Ok((self.map.len() as usize * within / keys.len().max(1)).max(COUNTED))
    }
}

impl Layout {
    /// About how many rows a map has that has so many items.
    pub fn rows_of(&self, items: u64) -> usize {
        items as usize / (1 + self.definition.kept_indexes().count())
    }
}
