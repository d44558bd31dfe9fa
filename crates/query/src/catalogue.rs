//! The tables of a database: their definitions in a map of their own, and their rows in a map each.
//!
//! Map `sql` has a definition for each table, map `sql.NAME` the rows. A table is there when its definition is. What of
//! a map was left by a table that was dropped is cleared before there is another of its name. A transaction that writes
//! to a table certifies its definition: if the table is dropped meanwhile, the transaction is refused.

use crate::access::{Place, Way};
use crate::columns::{
    Condition, Ended, SEAL_ROWS, Sealed, UNKNOWN_SHARE, can_ask, schema_of_rows, seal,
};
use crate::error::{Error, Result};
use crate::facts::of_filters;
use crate::items;
use crate::row::Layout;
use crate::scan::{Scan, Scanned};
use crate::schema::{Column, Definition, Index, IndexState};
use crate::units::Units;
use crate::view::View;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::common::{Constraint, Constraints};
use datafusion::datasource::TableType;
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace::{Database, Kind, Map, ValueDesign, WhenFull};

/// The map of definitions; with a point and a table's name: the map of its rows.
const MAP: &str = "sql";
/// The longest name of a map, less what stands before a table's.
const NAME_MOST: usize = 64 - MAP.len() - 1;

/// The tables of a database.
pub(crate) struct Catalogue {
    pub db: Arc<Database>,
    pub definitions: Map,
    /// Of tables of columns: how many rows were written since they were sealed.
    unsealed: Mutex<HashMap<String, u64>>,
}

/// Creating and dropping happen one at a time, whoever does it: one process writes to a directory.
static CHANGES: Mutex<()> = Mutex::new(());
/// Definitions that were written, and may not be durable yet: also such whose syncing failed.
static UNSYNCED: AtomicUsize = AtomicUsize::new(0);

/// Makes definitions durable that were seen and may not be: before rows are written by them.
///
/// # Errors
/// Those of the database.
pub(crate) fn settle(definitions: &Map) -> Result<()> {
    if UNSYNCED.load(Ordering::SeqCst) > 0 {
        definitions.sync()?;
    }
    Ok(())
}

/// A map of the catalogue, or of rows. Whatever the settings of the database: nothing of it is ever evicted, and a
/// transaction writes several of its items.
fn opened(db: &Database, name: &str) -> Result<Map> {
    let opener = db.map_builder(name).kind(Kind::Ordered).when_full(WhenFull::Refuse);
    Ok(opener.values(ValueDesign::Log).open()?)
}

impl Catalogue {
    /// # Errors
    /// Those of the database.
    pub fn open(db: Arc<Database>) -> Result<Catalogue> {
        let definitions = opened(&db, MAP)?;
        Ok(Catalogue { db, definitions, unsealed: Mutex::default() })
    }

    /// The map of a table's rows.
    ///
    /// # Errors
    /// Those of the database.
    pub fn rows(&self, name: &str) -> Result<Map> {
        opened(&self.db, &format!("{MAP}.{name}"))
    }

    /// The table as it is in the transaction of `view`, with its definition's bytes.
    ///
    /// # Errors
    /// [`Error::Definition`], and those of the database.
    pub fn definition(&self, view: &View, name: &str) -> Result<Option<(Definition, Vec<u8>)>> {
        let bytes =
            view.with(|transaction| Ok(transaction.get(&self.definitions, name.as_bytes())?))?;
        bytes.map(|bytes| Ok((Definition::decode(name, &bytes)?, bytes))).transpose()
    }

    /// Makes a table; whether there was none.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a name that a map cannot have, and those of the database.
    pub fn create(&self, definition: &Definition) -> Result<bool> {
        let name = &definition.name;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty()
            || name.len() > NAME_MOST
            || !name.chars().all(fits)
            || self.is_map(name)?
        {
            return Err(Error::Unsupported {
                what: format!("a table of the name `{name}`"),
                instead: "use 1 to 60 lowercase letters, digits and `_`, and no name of a map",
            });
        }
        let _changes = CHANGES.lock();
        if self.definitions.get(name.as_bytes())?.is_some() {
            return Ok(false);
        }
        // Of one that was dropped, and whose rows were not removed before the end of the process.
        self.rows(name)?.clear()?;
        // No row is ever durable before the definition that says what it is.
        self.define(definition)?;
        Ok(true)
    }

    /// A table as it is now.
    ///
    /// # Errors
    /// [`Error::Definition`], and those of the database.
    pub fn defined(&self, name: &str) -> Result<Option<Definition>> {
        let bytes = self.definitions.get(name.as_bytes())?;
        bytes.map(|bytes| Definition::decode(name, &bytes)).transpose()
    }

    /// The index of this name, with its table.
    ///
    /// # Errors
    /// As [`Catalogue::defined`].
    pub fn index(&self, name: &str) -> Result<Option<(Definition, Index)>> {
        for table in self.tables(&View::new(self.db.begin(), false))? {
            let Some(table) = self.defined(&table)? else { continue };
            let found = table.indexes.iter().find(|index| index.name == name).cloned();
            if let Some(index) = found {
                return Ok(Some((table, index)));
            }
        }
        Ok(None)
    }

    /// Adds an index to a table, unless there is one of its name by now; none if there is no such table. It is durable
    /// when this returns, and no transaction that read the definition before will commit.
    ///
    /// # Errors
    /// Those of `new`, and of the database.
    pub fn add_index(
        &self,
        table: &str,
        name: &str,
        new: impl FnOnce(&Definition) -> Result<Index>,
    ) -> Result<Option<Option<(Definition, Index)>>> {
        let _changes = CHANGES.lock();
        if self.index(name)?.is_some() {
            return Ok(Some(None));
        }
        let Some(definition) = self.defined(table)? else { return Ok(None) };
        let index = new(&definition)?;
        let definition = definition.with(|definition| {
            definition.next_index = index.number + 1;
            definition.indexes.push(index.clone());
        });
        self.define(&definition)?;
        Ok(Some(Some((definition, index))))
    }

    /// Has an index of this table go from one state to another; whether it was there in the first. Durable as
    /// [`Catalogue::add_index`] is.
    ///
    /// # Errors
    /// Those of the database.
    pub fn set_index(
        &self,
        of: &Definition,
        index: &Index,
        from: IndexState,
        to: IndexState,
    ) -> Result<bool> {
        let is_it = |same: &Index| same.number == index.number && same.state == from;
        self.change_indexes(of, |indexes| {
            let same = indexes.iter_mut().find(|same| is_it(same));
            same.map(|same| same.state = to).is_some()
        })
    }

    /// Takes an index of this table that is being dropped out of its definition.
    ///
    /// # Errors
    /// Those of the database.
    pub fn remove_index(&self, of: &Definition, index: &Index) -> Result<()> {
        let is_it =
            |same: &Index| same.number == index.number && same.state == IndexState::Dropping;
        let removed = |indexes: &mut Vec<Index>| {
            let before = indexes.len();
            indexes.retain(|same| !is_it(same));
            indexes.len() < before
        };
        self.change_indexes(of, removed).map(drop)
    }

    /// Changes the indexes of a table if it is still the same; whether `change` did.
    fn change_indexes(
        &self,
        of: &Definition,
        change: impl FnOnce(&mut Vec<Index>) -> bool,
    ) -> Result<bool> {
        let _changes = CHANGES.lock();
        let Some(now) = self.defined(&of.name)?.filter(|now| now.is_of(of)) else {
            return Ok(false);
        };
        let mut is_changed = false;
        let now = now.with(|now| is_changed = change(&mut now.indexes));
        if is_changed {
            self.define(&now)?;
        }
        Ok(is_changed)
    }

    /// Changes a table's definition; whether there is such a table. Durable as [`Catalogue::add_index`] is.
    ///
    /// # Errors
    /// Those of `change`, which leave it as it is, and of the database.
    pub fn alter(
        &self,
        table: &str,
        change: impl FnOnce(&mut Definition) -> Result<()>,
    ) -> Result<bool> {
        let _changes = CHANGES.lock();
        let Some(definition) = self.defined(table)? else { return Ok(false) };
        let (mut changed, before) = (Ok(()), definition.clone());
        let definition = definition.with(|definition| changed = change(definition));
        changed?;
        if definition != before {
            self.define(&definition)?;
        }
        Ok(true)
    }

    /// Writes a definition; it is durable when this returns.
    fn define(&self, definition: &Definition) -> Result<()> {
        // It is seen before it is durable: until it is, who writes rows makes it so.
        UNSYNCED.fetch_add(1, Ordering::SeqCst);
        let put = self.definitions.put(definition.name.as_bytes(), &definition.encode());
        put.inspect_err(|_| {
            // Nobody has seen it.
            UNSYNCED.fetch_sub(1, Ordering::SeqCst);
        })?;
        self.definitions.sync()?;
        UNSYNCED.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// Drops a table; whether there was one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        let _changes = CHANGES.lock();
        let was_there = self.definitions.delete(name.as_bytes())?;
        if was_there {
            // Its definition is gone for good before the first of its rows is.
            self.definitions.sync()?;
            self.rows(name)?.clear()?;
        }
        Ok(was_there)
    }

    /// Notes that rows of a table were written.
    pub fn wrote(&self, definition: &Definition, rows: u64) {
        if definition.is_columns() {
            *self.unsealed.lock().entry(definition.name.clone()).or_default() += rows;
        }
    }

    /// Seals the tables of columns in which many rows were written. Those are committed: what fails here leaves them as
    /// they are, and is tried again when as many have come.
    pub fn seal_full(&self) {
        let mut full = Vec::new();
        self.unsealed.lock().retain(|name, rows| {
            let is_full = *rows >= SEAL_ROWS;
            full.extend(is_full.then(|| name.clone()));
            !is_full
        });
        for name in full {
            let _left_as_rows = self.seal(&name, false);
        }
    }

    /// Seals a table's rows, those that are few beside their segment too if `all`; how that ended, if there is such a
    /// table.
    ///
    /// # Errors
    /// Those of the database.
    pub fn seal(&self, name: &str, all: bool) -> Result<Option<Ended>> {
        loop {
            let Some(bytes) = self.definitions.get(name.as_bytes())? else { return Ok(None) };
            let definition = Definition::decode(name, &bytes)?;
            if !definition.is_columns() {
                return Ok(Some(Ended::default()));
            }
            let (map, layout) = (&self.rows(name)?, &Arc::new(Layout::new(definition)));
            let (db, definitions, definition) = (&self.db, &self.definitions, &*bytes);
            let ended = seal(&Sealed { db, map, layout, definitions, definition }, all)?;
            // It ends early where the definition is another by now: a column was added.
            if self.definitions.get(name.as_bytes())?.as_deref() == Some(definition) {
                return Ok(Some(ended));
            }
        }
    }

    /// Whether it is a map that no table was made of.
    fn is_map(&self, name: &str) -> Result<bool> {
        Ok(self.maps()?.iter().any(|map| map == name))
    }

    fn maps(&self) -> Result<Vec<String>> {
        let is_own = |name: &String| name == MAP || name.starts_with("sql.");
        Ok(self.db.map_names()?.into_iter().filter(|name| !is_own(name)).collect())
    }

    fn tables(&self, view: &View) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let all = (Bound::<&[u8]>::Unbounded, Bound::<&[u8]>::Unbounded);
        view.with(|transaction| {
            for item in transaction.iter(&self.definitions, all) {
                names.push(String::from_utf8_lossy(&item?.0).into_owned());
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// What there is: tables, and maps.
    ///
    /// # Errors
    /// Those of the database.
    pub fn names(&self, view: &View) -> Result<Vec<String>> {
        let mut names = self.tables(view)?;
        names.extend(self.maps()?);
        Ok(names)
    }
}

/// What a session's statements name: the tables of its view.
pub(crate) struct Tables {
    pub catalogue: Arc<Catalogue>,
    pub view: Arc<Mutex<Option<Arc<View>>>>,
}

impl Tables {
    /// That of the statement that is being planned; of what asks later, as the lists of tables do, one of now.
    fn view(&self) -> Arc<View> {
        let view = self.view.lock().clone();
        view.unwrap_or_else(|| View::new(self.catalogue.db.begin(), false))
    }

    fn found(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let view = self.view();
        if let Some((definition, bytes)) = self.catalogue.definition(&view, name)? {
            let map = self.catalogue.rows(name)?;
            return Ok(Some(Arc::new(Table::of_rows(definition, bytes, map, view))));
        }
        if !self.catalogue.is_map(name)? {
            return Ok(None);
        }
        if !view.is_alone {
            return Err(Error::NotAlone);
        }
        let map = self.catalogue.db.map(name)?;
        Ok(Some(Arc::new(Table::of_items(name, map, view))))
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tables")
    }
}

#[async_trait::async_trait]
impl SchemaProvider for Tables {
    /// Of tables: to know whether a map can be read, it would have to be opened.
    fn table_names(&self) -> Vec<String> {
        self.catalogue.tables(&self.view()).unwrap_or_default()
    }

    async fn table_type(&self, _: &str) -> EngineResult<Option<TableType>> {
        Ok(Some(TableType::Base))
    }

    async fn table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>> {
        Ok(self.found(name)?)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.found(name).is_ok_and(|found| found.is_some())
    }
}

/// A table, or a map as one of keys and values, as a view has it.
pub(crate) struct Table {
    scanned: Scanned,
    /// The definition as it is in the catalogue; empty for a map.
    pub bytes: Vec<u8>,
    pub map: Map,
    view: Arc<View>,
    schema: SchemaRef,
    constraints: Constraints,
    /// What an INSERT puts into columns that it does not name.
    defaults: HashMap<String, Expr>,
}

impl Table {
    fn of_rows(definition: Definition, bytes: Vec<u8>, map: Map, view: Arc<View>) -> Table {
        let schema = definition.schema();
        let key = Constraint::PrimaryKey(definition.key.clone());
        let with_default = definition.columns.iter().filter(|column| column.default.is_some());
        let default =
            |column: &Column| Some((column.name.clone(), Expr::Literal(column.default()?, None)));
        let defaults = with_default.filter_map(default).collect();
        let scanned = Scanned::Rows(Arc::new(Layout::new(definition)));
        Table {
            scanned,
            bytes,
            map,
            view,
            schema,
            constraints: Constraints::new_unverified(vec![key]),
            defaults,
        }
    }

    fn of_items(name: &str, map: Map, view: Arc<View>) -> Table {
        let field = |name: &str| Field::new(name, DataType::Binary, false);
        let schema = Arc::new(Schema::new(items::COLUMNS.map(field).to_vec()));
        let constraints = Constraints::new_unverified(vec![Constraint::PrimaryKey(vec![0])]);
        Table {
            scanned: Scanned::Items(name.into()),
            bytes: Vec::new(),
            map,
            view,
            schema,
            constraints,
            defaults: HashMap::new(),
        }
    }

    /// How its rows lie; none for a map.
    pub fn layout(&self) -> Option<&Arc<Layout>> {
        match &self.scanned {
            Scanned::Rows(layout) => Some(layout),
            Scanned::Items(_) => None,
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("schema", &self.schema).finish()
    }
}

#[async_trait::async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let mut columns =
            projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&columns)?);
        // What conditions ask for is read too; of a map the engine asks for it, and looks at it again.
        if self.layout().is_some() {
            let asked = filters.iter().flat_map(Expr::column_refs);
            let asked: BTreeSet<usize> =
                asked.filter_map(|column| self.schema.index_of(&column.name).ok()).collect();
            let wanted: BTreeSet<usize> = columns.iter().copied().collect();
            columns.extend(asked.difference(&wanted));
        }
        let read = Arc::new(self.schema.project(&columns)?);
        let condition = match self.layout() {
            Some(layout) if !filters.is_empty() => {
                let of = schema_of_rows(&read)?;
                let planned = |filter| session.create_physical_expr(filter, &of);
                Condition::of(&layout.definition, filters, planned)?
            }
            _ => Condition::default(),
        };
        let source = self.view.source(&self.map)?;
        let partitions = session.config().target_partitions();
        let (mut facts, mut way, mut key) = (Vec::new(), Way::all(), &[0][..]);
        let units = match &self.scanned {
            Scanned::Rows(layout) if layout.definition.is_columns() => {
                key = &layout.definition.key;
                facts = of_filters(&layout.definition, filters);
                way.spans = Place { map: &self.map, source: &source, layout }.by_key(&facts);
                let of = schema_of_rows(&self.schema)?;
                let whole = conjunction(filters.iter().cloned());
                let whole = whole.map(|whole| session.create_physical_expr(whole, &of));
                let (asked, schema) = ((whole.transpose()?, &condition), &self.schema);
                match way.spans.hull() {
                    Some(hull) => Units::of_columns(&source, layout, &hull, schema, asked)?,
                    None => Units { rows: Some(0), ..Units::default() },
                }
            }
            Scanned::Rows(layout) => {
                key = &layout.definition.key;
                facts = of_filters(&layout.definition, filters);
                way = Place { map: &self.map, source: &source, layout }.best(&facts)?;
                let is_more = |filter: &Expr| {
                    let says = of_filters(&layout.definition, std::slice::from_ref(filter));
                    !says.iter().any(|fact| fact.is_of(way.columns(layout)))
                };
                let share = if filters.iter().any(is_more) { UNKNOWN_SHARE } else { 1.0 };
                Units::of_rows(&self.map, &way, partitions, share)
            }
            Scanned::Items(_) => Units::of_items(&self.map, &items::spans(filters), partitions),
        };
        let scanned = (self.scanned.clone(), self.map.clone(), source, self.view.began);
        let columns = (columns, read, schema, Arc::clone(&self.schema));
        let (asked, order) = ((facts, condition), (key, partitions));
        Ok(Arc::new(Scan::new(scanned, (way, units), columns, asked, order)))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        let narrows = |filter: &&Expr| match &self.scanned {
            Scanned::Rows(_) if can_ask(filter) => TableProviderFilterPushDown::Exact,
            Scanned::Items(_) if items::narrows(filter) => TableProviderFilterPushDown::Inexact,
            _ => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(narrows).collect())
    }
}
