//! By which way rows are found: by the primary key, or by an index; all at once, or one by one.
//!
//! A row that is looked up by its key costs more than one that is read along with its neighbours. So lists of keys, as
//! a join gives them, and entries of indexes are followed while they are few beside the rows that would be read
//! otherwise; beyond, those are read along.

use crate::error::Result;
use crate::facts::Fact;
use crate::row::Layout;
use crate::schema::{Index, IndexState};
use crate::span::{Span, Spans};
use crate::view::Reads;
use terrace::Map;

/// What looking a row up costs, in rows that are read along. As keys and values it is seven to ten (the experiment
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
    /// About how many rows it leads to, and what that costs, in rows that are read along.
    pub rows: usize,
    pub cost: usize,
}

impl Way {
    /// All of a map.
    pub fn all() -> Way {
        let parts = vec![Span::all()];
        let spans = Spans { parts, equal: 0, bounded: false, has_lists: false };
        Way { index: None, spans, rows: usize::MAX, cost: usize::MAX }
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
    /// What these facts leave of the primary key.
    pub fn by_key(&self, facts: &[Fact]) -> Spans {
        Spans::of(&self.layout.definition, &self.layout.key_columns(), facts)
    }

    fn way(&self, index: Option<usize>, spans: Spans) -> Result<Way> {
        let rows = self.rows(&spans)?;
        let looked_up = match index {
            Some(_) => rows.saturating_add(spans.parts.len()),
            // The beginning of each part is.
            None => spans.parts.len(),
        };
        let cost = rows.saturating_add(looked_up.saturating_mul(LOOKED_UP - 1));
        Ok(Way { index, spans, rows, cost })
    }

    /// The best of all ways by what these facts say.
    ///
    /// # Errors
    /// Those of the database.
    pub fn best(&self, facts: &[Fact]) -> Result<Way> {
        let (table, by_key) = (&self.layout.definition, self.by_key(facts));
        let mut ways = Vec::new();
        // A list may have more values than looking them up is worth.
        if by_key.has_lists {
            let is_plain = |fact: &&Fact| matches!(fact, Fact::Compared { .. });
            let plain: Vec<Fact> = facts.iter().filter(is_plain).cloned().collect();
            ways.push(self.way(None, self.by_key(&plain))?);
        }
        ways.push(self.way(None, by_key)?);
        let ready = |(_, index): &(usize, &Index)| index.state == IndexState::Ready;
        for (place, index) in table.indexes.iter().enumerate().filter(ready) {
            let spans = Spans::of(table, &index.key_columns(), facts);
            if spans.is_bounded() {
                ways.push(self.way(Some(place), spans)?);
            }
        }
        let best = ways.into_iter().min_by_key(|way| way.cost);
        Ok(best.expect("invariant: there is one by the primary key"))
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
