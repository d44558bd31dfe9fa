//! Statements: what each does to the database, in which transaction.
//!
//! A statement outside of a transaction is one of its own: a query reads all tables at one moment; a change is
//! committed before its result is told, and done again if others came first. Between BEGIN and COMMIT, all statements
//! read the moment of BEGIN and what the transaction wrote, and nothing is written before COMMIT. If a change fails
//! within, the transaction can only be rolled back, so that no half of a statement is ever committed.

use crate::catalogue::{Catalogue, Table, Tables};
use crate::error::{Error, Result};
use crate::numbers;
use crate::row::Layout;
use crate::rows::Rows;
use crate::schema::{Column, ColumnType, Definition};
use crate::threads::Threads;
use crate::view::View;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::TableReference;
use datafusion::common::{Constraint, DataFusionError};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    CreateMemoryTable, DdlStatement, DmlStatement, DropTable, LogicalPlan,
    Statement as PlanStatement, WriteOp,
};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{
    self, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How often a change outside of a transaction is done again that others came before.
const TRIES: usize = 100;
/// The same where its moment had ended, which it may have outlived by itself.
const ENDED_TRIES: usize = 3;

/// What a statement gives.
#[derive(Debug)]
pub enum Answer {
    /// Rows, which are computed while they are read.
    Rows(Rows),
    /// So many rows were inserted, updated or deleted.
    Changed(u64),
    /// It is done: what, in the words of SQL.
    Done(&'static str),
}

/// One user of SQL on a database, with a transaction perhaps.
pub struct SqlSession {
    catalogue: Arc<Catalogue>,
    runtime: Arc<Threads>,
    context: SessionContext,
    /// What statements that are being planned read.
    view: Arc<Mutex<Option<Arc<View>>>>,
    transaction: Option<Open>,
}

/// A transaction between BEGIN and COMMIT.
struct Open {
    view: Arc<View>,
    has_failed: bool,
}

impl SqlSession {
    pub(crate) fn new(
        catalogue: Arc<Catalogue>,
        runtime: Arc<Threads>,
        memory: Arc<RuntimeEnv>,
    ) -> SqlSession {
        let view = Arc::<Mutex<Option<Arc<View>>>>::default();
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema("terrace", "public")
            .with_information_schema(true)
            .with_target_partitions(std::thread::available_parallelism().map_or(1, usize::from));
        config.options_mut().sql_parser.map_string_types_to_utf8view = false;
        // 0.1 is a tenth, as in the standard.
        config.options_mut().sql_parser.parse_float_as_decimal = true;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(memory)
            .with_default_features();
        let state = state.with_analyzer_rules(numbers::analyzer_rules());
        let context = SessionContext::new_with_state(state.build());
        let tables = Tables { catalogue: Arc::clone(&catalogue), view: Arc::clone(&view) };
        let home =
            context.catalog("terrace").expect("invariant: the default catalogue was just made");
        // An error would mean that such catalogues have no schemas.
        let _before = home.register_schema("public", Arc::new(tables));
        SqlSession { catalogue, runtime, context, view, transaction: None }
    }

    /// Whether a transaction is open (BEGIN).
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Runs statements, one or several with `;` between; returns the answer of each. Rows of the last one are computed
    /// while they are read, those of others are held.
    ///
    /// ```
    /// use terrace_query::{Answer, Sql};
    /// # let dir = tempfile::tempdir()?;
    /// let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let sql = Sql::open(std::sync::Arc::new(db))?;
    /// let mut session = sql.session();
    /// session.run("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INT)")?;
    /// session.run("INSERT INTO stock VALUES ('chair', 7), ('table', 2)")?;
    /// let answers = session.run("BEGIN; UPDATE stock SET pieces = 6 WHERE item = 'chair'; COMMIT")?;
    /// assert!(matches!(answers[1], Answer::Changed(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// That of the first statement that failed; none behind it was run. Outside of a transaction nothing of it was
    /// written; within, only ROLLBACK is left if it was a change.
    pub fn run(&mut self, text: &str) -> Result<Vec<Answer>> {
        let statements = DFParser::parse_sql(text)?;
        let (mut answers, last) = (Vec::with_capacity(statements.len()), statements.len());
        for (number, statement) in statements.into_iter().enumerate() {
            answers.push(match self.statement(statement)? {
                Answer::Rows(rows) if number + 1 < last => Answer::Rows(rows.held()?),
                answer => answer,
            });
        }
        Ok(answers)
    }

    /// The same, with `each` told of an answer before the next statement is run: no rows are held.
    ///
    /// # Errors
    /// As [`SqlSession::run`], and those of `each`.
    pub fn run_each<E: From<Error>>(
        &mut self,
        text: &str,
        mut each: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<(), E> {
        for statement in DFParser::parse_sql(text).map_err(Error::from)? {
            each(self.statement(statement)?)?;
        }
        Ok(())
    }

    fn statement(&mut self, mut statement: Statement) -> Result<Answer> {
        numbers::make_floats(&mut statement);
        let tries = if self.transaction.is_none() { TRIES } else { 1 };
        for tried in 1..tries {
            match self.once(statement.clone()) {
                Err(Error::Conflict(_)) => {}
                Err(Error::Database(terrace::Error::SnapshotEnded { .. }))
                    if tried <= ENDED_TRIES => {}
                ended => return ended,
            }
            // Longer each time, up to some milliseconds: others get on.
            std::thread::sleep(Duration::from_micros(20 << tried.min(8)));
        }
        self.once(statement)
    }

    fn once(&mut self, statement: Statement) -> Result<Answer> {
        if let Statement::Statement(statement) = &statement {
            if let Some(answer) = self.of_transaction(statement) {
                return answer;
            }
            // Rows of the other table could be taken for rows of this one.
            if matches!(&**statement, ast::Statement::Update(update) if !update.table.joins.is_empty())
            {
                return Err(Error::Unsupported {
                    what: "UPDATE of a join".into(),
                    instead: "UPDATE one table, with conditions on others as subqueries",
                });
            }
        }
        let view = match &self.transaction {
            Some(Open { has_failed: true, .. }) => return Err(Error::TransactionFailed),
            Some(open) => Arc::clone(&open.view),
            None => View::new(self.catalogue.db.begin(), false),
        };
        *self.view.lock() = Some(Arc::clone(&view));
        let plan = self.runtime.block_on(self.context.state().statement_to_plan(statement));
        let ended = plan.map_err(Error::from).and_then(|plan| self.execute(plan, &view));
        *self.view.lock() = None;
        ended
    }

    /// BEGIN, COMMIT and ROLLBACK; none if it is another statement.
    fn of_transaction(&mut self, statement: &ast::Statement) -> Option<Result<Answer>> {
        let none_open = || Error::Statement("no transaction is open; BEGIN one first".into());
        let unsupported =
            |what: &str, instead| Err(Error::Unsupported { what: what.to_owned(), instead });
        Some(match statement {
            ast::Statement::StartTransaction { .. } if self.transaction.is_some() => {
                Err(Error::Statement("a transaction is open; COMMIT or ROLLBACK it first".into()))
            }
            ast::Statement::StartTransaction { modes, modifier, statements, .. } => {
                if modifier.is_some() || !statements.is_empty() {
                    return Some(unsupported(
                        "this form of BEGIN",
                        "BEGIN, or BEGIN ISOLATION LEVEL SERIALIZABLE",
                    ));
                }
                if modes.contains(&TransactionMode::AccessMode(TransactionAccessMode::ReadOnly)) {
                    return Some(unsupported("READ ONLY", "BEGIN, and only read"));
                }
                let serializable =
                    TransactionMode::IsolationLevel(TransactionIsolationLevel::Serializable);
                let view = View::new(self.catalogue.db.begin(), modes.contains(&serializable));
                self.transaction = Some(Open { view, has_failed: false });
                Ok(Answer::Done("BEGIN"))
            }
            ast::Statement::Rollback { savepoint: Some(_), .. } => {
                unsupported("ROLLBACK TO a savepoint", "ROLLBACK ends the whole transaction")
            }
            ast::Statement::Rollback { chain: true, .. }
            | ast::Statement::Commit { chain: true, .. } => {
                unsupported("AND CHAIN", "BEGIN the next transaction")
            }
            ast::Statement::Rollback { .. } => {
                self.transaction.take().map(|_| Answer::Done("ROLLBACK")).ok_or_else(none_open)
            }
            ast::Statement::Commit { .. } => match self.transaction.take() {
                None => Err(none_open()),
                Some(Open { has_failed: true, .. }) => Err(Error::FailedIsRolledBack),
                Some(open) => open.view.commit().map(|()| Answer::Done("COMMIT")),
            },
            _ => return None,
        })
    }

    fn execute(&mut self, plan: LogicalPlan, view: &Arc<View>) -> Result<Answer> {
        match plan {
            LogicalPlan::Ddl(change) if self.transaction.is_none() => self.define(change),
            LogicalPlan::Ddl(change) => Err(Error::Unsupported {
                what: format!("{} within a transaction", change.name()),
                instead: "COMMIT or ROLLBACK first",
            }),
            LogicalPlan::Dml(change) => {
                let changed = self.change(change, view);
                if let (Err(_), Some(open)) = (&changed, &mut self.transaction) {
                    open.has_failed = true;
                }
                let changed = changed?;
                if self.transaction.is_none() {
                    view.commit()?;
                }
                Ok(Answer::Changed(changed))
            }
            // A prepared plan would go on reading the moment of PREPARE.
            LogicalPlan::Statement(
                PlanStatement::Prepare(_)
                | PlanStatement::Execute(_)
                | PlanStatement::Deallocate(_),
            ) => Err(Error::Unsupported {
                what: "PREPARE and EXECUTE".into(),
                instead: "run the statement as it is",
            }),
            LogicalPlan::Analyze(analyze) if matches!(*analyze.input, LogicalPlan::Dml(_)) => {
                Err(Error::Unsupported {
                    what: "EXPLAIN ANALYZE of a change".into(),
                    instead: "EXPLAIN it, or run it",
                })
            }
            // These do something, whether their rows are read or not.
            plan @ (LogicalPlan::Statement(_) | LogicalPlan::Copy(_) | LogicalPlan::Analyze(_)) => {
                self.query(plan)?.held().map(Answer::Rows)
            }
            plan => self.query(plan).map(Answer::Rows),
        }
    }

    fn query(&self, plan: LogicalPlan) -> Result<Rows> {
        let stream =
            async { self.context.execute_logical_plan(plan).await?.execute_stream().await };
        let stream = self.runtime.block_on(stream)?;
        Ok(Rows::new(stream, Arc::clone(&self.runtime)))
    }

    fn define(&self, change: DdlStatement) -> Result<Answer> {
        match change {
            DdlStatement::CreateMemoryTable(table) => self.create(&table),
            DdlStatement::DropTable(DropTable { name, if_exists, .. }) => {
                let name = own_name(&name)?;
                if self.catalogue.drop_table(&name)? || if_exists {
                    return Ok(Answer::Done("DROP TABLE"));
                }
                Err(self.no_table(&name))
            }
            other => Err(Error::Unsupported {
                what: other.name().to_owned(),
                instead: "CREATE TABLE and DROP TABLE are",
            }),
        }
    }

    fn create(&self, table: &CreateMemoryTable) -> Result<Answer> {
        let name = own_name(&table.name)?;
        let unsupported =
            |what: &str, instead| Err(Error::Unsupported { what: what.to_owned(), instead });
        if !matches!(&*table.input, LogicalPlan::EmptyRelation(_)) {
            return unsupported(
                "CREATE TABLE AS",
                "CREATE TABLE with columns, then INSERT INTO ... SELECT",
            );
        }
        if table.or_replace || table.temporary {
            return unsupported("CREATE OR REPLACE or TEMPORARY", "DROP TABLE, then CREATE TABLE");
        }
        if !table.column_defaults.is_empty() {
            return unsupported("DEFAULT", "give each value in INSERT");
        }
        let keys: Vec<&Constraint> = table.constraints.iter().collect();
        let [Constraint::PrimaryKey(key)] = &keys[..] else {
            return unsupported(
                "a table without a PRIMARY KEY, or with other constraints,",
                "name the columns that tell rows apart: PRIMARY KEY (a, b)",
            );
        };
        let column = |(number, field): (usize, &Arc<Field>)| {
            let nullable = field.is_nullable() && !key.contains(&number);
            Ok(Column {
                name: field.name().clone(),
                kind: ColumnType::of(field.data_type())?,
                nullable,
            })
        };
        let columns =
            table.input.schema().fields().iter().enumerate().map(column).collect::<Result<_>>()?;
        let definition = Definition::new(unique(), name.clone(), columns, key.clone());
        if !definition.has_no_twins() {
            return unsupported(
                "a column that is named twice",
                "name each column once, in the PRIMARY KEY too",
            );
        }
        match self.catalogue.create(&definition)? {
            false if !table.if_not_exists => Err(Error::TableExists(name)),
            _ => Ok(Answer::Done("CREATE TABLE")),
        }
    }

    fn no_table(&self, name: &str) -> Error {
        let view = View::new(self.catalogue.db.begin(), false);
        let names = self.catalogue.names(&view).unwrap_or_default();
        let near = names.iter().find(|there| is_near(there, name));
        let nearest = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Error::NoTable { name: name.to_owned(), nearest }
    }

    /// All rows of a change, as those of a table of this schema. They are read before the first one is written: no
    /// statement meets what it wrote itself.
    fn held(&self, input: LogicalPlan, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
        // That none is NULL where it may not be is looked at when rows are encoded.
        let nullable =
            schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        let (mut batches, mut bytes) = (Vec::new(), 0);
        for batch in self.query(input)? {
            let batch = batch?;
            bytes += batch.get_array_memory_size();
            if bytes > CHANGE_MOST {
                return Err(Error::Unsupported {
                    what: "a change of so many rows in one transaction".into(),
                    instead: "change some at a time: what a transaction writes takes at most 4 MiB",
                });
            }
            let fitted =
                |(column, field): (&ArrayRef, &Arc<Field>)| cast(column, field.data_type());
            let columns = batch.columns().iter().zip(schema.fields()).map(fitted);
            let columns = columns.collect::<Result<_, _>>().map_err(DataFusionError::from)?;
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns);
            batches.push(batch.map_err(DataFusionError::from)?);
        }
        Ok(batches)
    }

    /// Inserts, updates or deletes, in the transaction of `view`; returns of how many rows.
    fn change(&self, change: DmlStatement, view: &Arc<View>) -> Result<u64> {
        let DmlStatement { table_name, target, op, input, .. } = change;
        let provider = source_as_provider(&target)?;
        let table = provider.downcast_ref::<Table>();
        let Some((table, layout)) =
            table.and_then(|table| table.layout().map(|layout| (table, layout)))
        else {
            return Err(Error::Unsupported {
                what: format!("writing to `{table_name}`, which is no table,"),
                instead: "CREATE TABLE makes one; maps are written through the database",
            });
        };
        let what = match op {
            WriteOp::Insert(InsertOp::Append) => Change::Insert,
            WriteOp::Insert(InsertOp::Replace) => Change::Replace,
            WriteOp::Update if moves_key(&input, layout) => {
                return Err(Error::Unsupported {
                    what: "UPDATE of a column of the primary key".into(),
                    instead: "DELETE the row and INSERT it anew, in one transaction",
                });
            }
            WriteOp::Update => Change::Replace,
            WriteOp::Delete => Change::Delete,
            other => {
                let (what, instead) =
                    (other.name().to_owned(), "INSERT, REPLACE, UPDATE and DELETE are");
                return Err(Error::Unsupported { what, instead });
            }
        };
        let batches = self.held(Arc::unwrap_or_clone(input), &layout.definition.schema())?;
        view.write(|transaction| {
            let name = layout.definition.name.as_bytes();
            transaction.compare(&self.catalogue.definitions, name, Some(&table.bytes))?;
            let mut changed = 0;
            for batch in &batches {
                (0..batch.num_rows())
                    .try_for_each(|row| write(transaction, table, layout, what, batch, row))?;
                changed += batch.num_rows() as u64;
            }
            Ok(changed)
        })
    }
}

/// Bytes of rows that one change may read: what it writes fits a transaction, which is far less.
const CHANGE_MOST: usize = 256 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Insert,
    /// Writes the row, whether there is one or not.
    Replace,
    Delete,
}

fn write(
    transaction: &mut terrace::Transaction,
    table: &Table,
    layout: &Layout,
    what: Change,
    batch: &RecordBatch,
    row: usize,
) -> Result<()> {
    let key = layout.key(batch, row)?;
    if what == Change::Delete {
        transaction.delete(&table.map, &key)?;
        return Ok(());
    }
    if what == Change::Insert && transaction.get_with(&table.map, &key, |_| ())?.is_some() {
        let table = layout.definition.name.clone();
        return Err(Error::KeyExists { table, key: layout.key_text(batch, row) });
    }
    Ok(transaction.put(&table.map, &key, &layout.value(batch, row)?)?)
}

/// Whether an update's plan has something else in the place of a column of the primary key.
fn moves_key(input: &LogicalPlan, layout: &Layout) -> bool {
    let LogicalPlan::Projection(projection) = input else { return false };
    let of = &layout.definition;
    of.key.iter().any(|key| {
        let name = &of.columns[*key].name;
        match &projection.expr[*key] {
            datafusion::logical_expr::Expr::Column(column) => column.name != *name,
            datafusion::logical_expr::Expr::Alias(alias) => {
                !matches!(&*alias.expr, datafusion::logical_expr::Expr::Column(column) if column.name == *name)
            }
            _ => true,
        }
    })
}

/// The name of a table of the one schema that there is.
fn own_name(reference: &TableReference) -> Result<String> {
    match (reference.catalog(), reference.schema()) {
        (None | Some("terrace"), None | Some("public")) => Ok(reference.table().to_owned()),
        _ => Err(Error::Unsupported {
            what: format!("the schema of `{reference}`"),
            instead: "there is one, `public`",
        }),
    }
}

/// A number that no other definition has: of the moment, and of this process's count within it.
fn unique() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Whether two names differ by a sign or two.
fn is_near(one: &str, other: &str) -> bool {
    datafusion::common::utils::datafusion_strsim::levenshtein(one, other) <= 2
}
