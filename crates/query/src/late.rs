//! What a join says of a table's rows once its other side has been read: the table is then read at these keys alone, if
//! they are few, or between the least and the greatest of them.

use crate::access::{Place, Way};
use crate::batches::keys_of_entries;
use crate::columns::Condition;
use crate::error::Result;
use crate::facts::{Fact, of_expression};
use crate::row::Layout;
use crate::span::Spans;
use crate::units::Units;
use crate::view::Source;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use std::sync::Arc;
use terrace::Map;

/// Rows that an index leads to are read in the order of the primary key, which other operators may rely on. So their
/// keys are held: not more than these.
const KEYS_MOST: usize = 1 << 18;
/// A table as its scan was planned, and what is known of its rows since.
pub(crate) struct Planned<'a> {
    pub map: &'a Map,
    pub source: &'a Source,
    pub layout: &'a Layout,
    pub readers: usize,
    /// What the statement says.
    pub facts: &'a [Fact],
    pub way: &'a Way,
    pub condition: &'a Condition,
    /// All columns of the table.
    pub schema: SchemaRef,
}

/// What a filter that changes says by now.
fn current(filter: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(match filter.downcast_ref::<DynamicFilterPhysicalExpr>() {
        Some(dynamic) => dynamic.current()?,
        None => Arc::clone(filter),
    })
}

/// The facts that these filters say by now, of columns which are these of the table.
///
/// # Errors
/// Those of the filters.
pub(crate) fn said(filters: &[Arc<dyn PhysicalExpr>], columns: &[usize]) -> Result<Vec<Fact>> {
    let mut facts = Vec::new();
    for filter in filters {
        of_expression(&current(filter)?, columns, &mut facts);
    }
    Ok(facts)
}

impl Planned<'_> {
    /// What is to be read, by what these filters over the first of these columns say now; none if that is no less.
    ///
    /// # Errors
    /// Those of the database and of the filters.
    pub fn now(
        &self,
        filters: &[Arc<dyn PhysicalExpr>],
        columns: &[usize],
    ) -> Result<Option<Units>> {
        let new = said(filters, columns)?;
        if new.is_empty() {
            return Ok(None);
        }
        let facts = [self.facts, &new].concat();
        let place = Place { map: self.map, source: self.source, layout: self.layout };
        if self.layout.definition.is_columns() {
            let current = filters.iter().map(current).collect::<Result<_>>()?;
            return self.of_columns(&place.by_key(&facts), current);
        }
        let way = place.best(&facts)?;
        if way.cost >= self.way.cost {
            return Ok(None);
        }
        match way.index {
            Some(_) => self.of_entries(&way),
            None => Ok(Some(Units::of_rows(self.map, &way, self.readers, 1.0))),
        }
    }

    /// Segments that may have such rows.
    fn of_columns(
        &self,
        spans: &Spans,
        mut said: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Option<Units>> {
        let Some(hull) = spans.hull() else { return Ok(Some(Units::default())) };
        said.extend(self.condition.whole.clone());
        let of_table = |said| reassign_expr_columns(said, &self.schema);
        let whole = said.into_iter().map(of_table).collect::<Result<Vec<_>, DataFusionError>>()?;
        let asked = (Some(conjunction(whole)), self.condition);
        Units::of_columns(self.source, self.layout, &hull, &self.schema, asked).map(Some)
    }

    /// The rows of these entries of an index.
    fn of_entries(&self, way: &Way) -> Result<Option<Units>> {
        let index = way.index.expect("invariant: asked of indexes only");
        let mut keys = Vec::new();
        for span in &way.spans.parts {
            keys_of_entries(self.source, self.layout, index, span, &mut |_, key| {
                keys.push(key);
                keys.len() <= KEYS_MOST
            })?;
            if keys.len() > KEYS_MOST {
                return Ok(None);
            }
        }
        keys.sort_unstable();
        // What the primary key is known of by the statement.
        let own = Place { map: self.map, source: self.source, layout: self.layout };
        match own.by_key(self.facts).hull() {
            Some(hull) => keys.retain(|key| hull.has(key)),
            None => keys.clear(),
        }
        Ok(Some(Units::of_keys(&keys)))
    }
}
