//! Statements: what each does to the database, in which transaction.
//!
//! A statement outside of a transaction is one of its own: a query reads all tables at one moment; a change is
//! committed before its result is told, and done again if others came first. Between BEGIN and COMMIT, all statements
//! read the moment of BEGIN and what the transaction wrote, and nothing is written before COMMIT. If a change fails
//! within, the transaction can only be rolled back, so that no half of a statement is ever committed.

mod tables;

use crate::catalogue::{Catalogue, Tables};
use crate::change::change;
use crate::client::{Begin, Canceller, refuse_files, with_texts};
use crate::define::{define, no_table, take_layout};
use crate::depth::is_deep;
use crate::error::{Error, Result};
use crate::insert::Values;
use crate::numbers;
use crate::parquet;
use crate::parse::parse;
use crate::point::Point;
use crate::prepared::{Prepared, refuse_here};
use crate::progress::Progress;
use crate::rows::Rows;
use crate::schema::TableLayout;
use crate::threads::{Threads, with_stack};
use crate::update::OfRow;
use crate::view::View;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue as Value;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use terrace::{Database, Transaction};

/// How often a change outside of a transaction is done again that others came before.
const TRIES: usize = 100;
/// The same where its moment had ended, which it may have outlived by itself.
const ENDED_TRIES: usize = 3;

/// Values of one side of a join that are looked up in the other.
const JOINED_MOST: usize = 1 << 14;

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

impl Answer {
    fn deep(self, is_deep: bool) -> Answer {
        match self {
            Answer::Rows(rows) => Answer::Rows(rows.deep(is_deep)),
            other => other,
        }
    }
}

/// One user of SQL on a database, with a transaction perhaps.
pub struct SqlSession {
    catalogue: Arc<Catalogue>,
    runtime: Arc<Threads>,
    context: SessionContext,
    /// What statements that are being planned read.
    view: Arc<Mutex<Option<Arc<View>>>>,
    transaction: Option<Open>,
    progress: Option<Box<dyn FnMut(Progress) + Send>>,
    /// Whether an option of the engine was SET.
    has_options: bool,
    canceller: Canceller,
    /// Whether it is used by somebody whose files are not those of this machine.
    is_remote: bool,
    /// Takes moments while nobody writes several keys of a map as one.
    begin_alone: Option<Begin>,
}

/// A transaction between BEGIN and COMMIT.
enum Open {
    Running(Arc<View>),
    /// Only ROLLBACK is left: a statement failed, or it was open for too long.
    Failed,
    TooOld,
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
        // 0.1 is a tenth, as in the standard.
        config.options_mut().sql_parser.parse_float_as_decimal = true;
        // What a join may say of a table's rows one by one (`late.rs`).
        let optimizer = &mut config.options_mut().optimizer;
        optimizer.hash_join_inlist_pushdown_max_distinct_values = JOINED_MOST;
        optimizer.hash_join_inlist_pushdown_max_size = JOINED_MOST * 64;
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
        SqlSession {
            catalogue,
            runtime,
            context,
            view,
            transaction: None,
            progress: None,
            has_options: false,
            canceller: Canceller::default(),
            is_remote: false,
            begin_alone: None,
        }
    }

    /// The same for somebody elsewhere, a client of a server: COPY and SET are refused. `begin_alone` begins a
    /// transaction at a moment when nobody has written some of the keys that others are to see change together; those
    /// that read maps which are no tables begin so.
    ///
    /// ```
    /// # use terrace_query::{Error, Sql};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let sql = Sql::open(std::sync::Arc::new(db))?;
    /// let mut session = sql.session().remote(std::sync::Arc::new(|db| db.begin()));
    /// assert!(matches!(session.run("COPY (SELECT 1) TO 'file.csv'"), Err(Error::Unsupported { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remote(
        self,
        begin_alone: Arc<dyn Fn(&Database) -> Transaction + Send + Sync>,
    ) -> SqlSession {
        SqlSession { is_remote: true, begin_alone: Some(begin_alone), ..self }
    }

    /// Lets `canceller` end its statements from here on, and no other any more.
    pub fn cancelled_by(&mut self, canceller: &Canceller) {
        self.canceller = canceller.clone();
    }

    /// Rolls an open transaction back, because it has been open for too long: what it reads keeps what others replace.
    /// Its later statements answer [`Error::TransactionTooOld`], until COMMIT, which does too, or ROLLBACK.
    ///
    /// ```
    /// # use terrace_query::{Error, Sql};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let mut session = Sql::open(std::sync::Arc::new(db))?.session();
    /// session.run("BEGIN")?;
    /// session.expire();
    /// assert!(matches!(session.run("SELECT 1"), Err(Error::TransactionTooOld)));
    /// session.run("ROLLBACK")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expire(&mut self) {
        if let Some(open) = &mut self.transaction {
            *open = Open::TooOld;
        }
    }

    /// Has `tell` told of the progress of COPY and CREATE INDEX, several times a second and at the end.
    ///
    /// ```
    /// # use terrace_query::Sql;
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let mut session = Sql::open(std::sync::Arc::new(db))?.session();
    /// session.on_progress(|so_far| eprintln!("{} {}", so_far.done, so_far.what));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_progress(&mut self, tell: impl FnMut(Progress) + Send + 'static) {
        self.progress = Some(Box::new(tell));
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
        let is_deep = is_deep(text)?;
        let statements = with_stack(is_deep, || parse(text))??;
        let (mut answers, last) = (Vec::with_capacity(statements.len()), statements.len());
        for (number, statement) in statements.into_iter().enumerate() {
            answers.push(match self.statement(statement, is_deep)? {
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
        let is_deep = is_deep(text)?;
        for statement in with_stack(is_deep, || parse(text)).flatten()? {
            each(self.statement(statement, is_deep)?)?;
        }
        Ok(())
    }

    /// Parses a statement that is to be run more than once, with `$1`, `$2` and so on in the place of values. It
    /// belongs to no session, and sees the tables that there are when it is run.
    ///
    /// ```
    /// use terrace_query::{Answer, Sql, Value};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let mut session = Sql::open(std::sync::Arc::new(db))?.session();
    /// session.run("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INT)")?;
    /// let insert = session.prepare("INSERT INTO stock VALUES ($1, $2)")?;
    /// session.run_prepared(&insert, &[Value::from("chair"), Value::from(7)])?;
    /// let query = session.prepare("SELECT pieces FROM stock WHERE item = $1")?;
    /// let Answer::Rows(rows) = session.run_prepared(&query, &[Value::from("chair")])? else { panic!() };
    /// assert_eq!(rows.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Statement`] if it is none, or several.
    pub fn prepare(&self, text: &str) -> Result<Prepared> {
        let is_deep = is_deep(text)?;
        let mut statements = with_stack(is_deep, || parse(text))??;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(statement), true) => Ok(Prepared { statement: Arc::new(statement), is_deep }),
            _ => Err(Error::Statement("one statement is prepared at a time".into())),
        }
    }

    /// Runs a prepared statement with these values of its parameters.
    ///
    /// # Errors
    /// As [`SqlSession::run`]; [`Error::Statement`] for a parameter without a value.
    pub fn run_prepared(&mut self, prepared: &Prepared, values: &[Value]) -> Result<Answer> {
        let statement = || Statement::clone(&prepared.statement);
        with_stack(prepared.is_deep, || self.with_values(statement(), values))?
            .map(|answer| answer.deep(prepared.is_deep))
    }

    /// Runs one statement with these texts in the place of `$1`, `$2` and so on, as if they stood there in quotes; what
    /// is no UTF-8 stands there as bytes. Where a text has no place, in arithmetic or behind LIMIT, write `$1::INT`.
    ///
    /// ```
    /// use terrace_query::{Answer, Sql};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let mut session = Sql::open(std::sync::Arc::new(db))?.session();
    /// session.run("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INT)")?;
    /// let answer = session.run_texts("INSERT INTO stock VALUES ($1, $2)", &[b"chair", b"7"])?;
    /// assert!(matches!(answer, Answer::Changed(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`SqlSession::run`]; [`Error::Statement`] if there are several statements, or not as many values.
    pub fn run_texts(&mut self, text: &str, values: &[&[u8]]) -> Result<Answer> {
        let Prepared { statement, is_deep } = self.prepare(text)?;
        let mut statement = Arc::unwrap_or_clone(statement);
        with_texts(&mut statement, values)?;
        self.statement(statement, is_deep)
    }

    fn statement(&mut self, statement: Statement, is_deep: bool) -> Result<Answer> {
        let answer = with_stack(is_deep, || self.with_values(statement, &[]))?;
        answer.map(|answer| answer.deep(is_deep))
    }

    fn with_values(&mut self, statement: Statement, values: &[Value]) -> Result<Answer> {
        let answer = self.tried(statement, values)?;
        // Its moment has ended by now: nobody needs what is replaced.
        self.catalogue.seal_full();
        Ok(answer)
    }

    fn tried(&mut self, mut statement: Statement, values: &[Value]) -> Result<Answer> {
        self.canceller.check()?;
        if self.is_remote {
            refuse_files(&statement)?;
        }
        numbers::make_floats(&mut statement);
        // These try their parts again by themselves.
        let is_tried = matches!(&statement, Statement::Statement(statement) if matches!(&**statement,
            ast::Statement::Copy { .. } | ast::Statement::OptimizeTable { .. } | ast::Statement::CreateIndex(_)));
        let tries = if self.transaction.is_none() && !is_tried { TRIES } else { 1 };
        let mut is_alone = false;
        for tried in 1..tries {
            match self.once(statement.clone(), values, is_alone) {
                Err(Error::NotAlone) => {
                    is_alone = true;
                    continue;
                }
                Err(Error::Conflict(_)) => {}
                Err(Error::Database(terrace::Error::SnapshotEnded { .. }))
                    if tried <= ENDED_TRIES => {}
                ended => return ended,
            }
            // Longer each time, up to some milliseconds: others get on.
            std::thread::sleep(Duration::from_micros(20 << tried.min(8)));
            self.canceller.check()?;
        }
        self.once(statement, values, is_alone)
    }

    fn once(
        &mut self,
        mut statement: Statement,
        values: &[Value],
        is_alone: bool,
    ) -> Result<Answer> {
        let file = parquet::take_target(&mut statement)?;
        match (self.planned(statement, values, is_alone)?, file) {
            (Answer::Rows(rows), Some(path)) => {
                parquet::write(&path, rows, &mut self.teller()).map(Answer::Rows)
            }
            (answer, _) => Ok(answer),
        }
    }

    /// Tells whoever wants to know of progress.
    fn teller(&mut self) -> impl FnMut(Progress) {
        |progress| {
            if let Some(tell) = &mut self.progress {
                tell(progress);
            }
        }
    }

    fn planned(
        &mut self,
        mut statement: Statement,
        values: &[Value],
        is_alone: bool,
    ) -> Result<Answer> {
        let (mut layout, mut point) = (TableLayout::Rows, None);
        let (mut inserted, mut updated) = (None, None);
        if let Statement::Statement(statement) = &mut statement {
            if let Some(answer) = self.of_transaction(statement) {
                return answer;
            }
            if let Some(answer) = self.described(statement).or_else(|| self.of_tables(statement)) {
                return answer;
            }
            layout = take_layout(statement)?;
            // Options may say what names mean, and of which types answers are.
            self.has_options |= matches!(&**statement, ast::Statement::Set(_));
            if !self.has_options {
                point = Point::of(statement);
                (inserted, updated) = (Values::of(statement), OfRow::of(statement));
            }
            refuse_here(statement)?;
        }
        let view = match &self.transaction {
            Some(open) => open.view()?,
            None => self.begin(false, is_alone),
        };
        if let Some(point) = point
            && let Some(rows) = point.read(&self.catalogue, &view, values)?
        {
            return Ok(Answer::Rows(rows));
        }
        if let Some(given) = inserted
            && let Some(rows) = given.insert(&self.catalogue, &view, values).transpose()
        {
            return self.changed(rows, &view);
        }
        if let Some(update) = updated
            && let Some(rows) = update.run(&self.catalogue, &view, values).transpose()
        {
            return self.changed(rows, &view);
        }
        *self.view.lock() = Some(Arc::clone(&view));
        let state = self.context.state();
        let planned = self.canceller.or(state.statement_to_plan(statement));
        let plan = self.runtime.block_on(planned).and_then(|plan| match values {
            [] => Ok(plan?),
            values => Ok(plan?.with_param_values(values.to_vec())?),
        });
        let ended = plan.and_then(|plan| self.execute(plan, &view, layout));
        *self.view.lock() = None;
        ended.map_err(|error| match error.of_missing_table() {
            Some(name) => no_table(&self.catalogue, name),
            None => error,
        })
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
                let view = self.begin(modes.contains(&serializable), true);
                self.transaction = Some(Open::Running(view));
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
                Some(Open::Failed) => Err(Error::FailedIsRolledBack),
                Some(Open::TooOld) => Err(Error::TransactionTooOld),
                Some(Open::Running(view)) => view.commit().map(|()| Answer::Done("COMMIT")),
            },
            _ => return None,
        })
    }

    fn execute(
        &mut self,
        plan: LogicalPlan,
        view: &Arc<View>,
        layout: TableLayout,
    ) -> Result<Answer> {
        match plan {
            LogicalPlan::Ddl(change) if self.transaction.is_none() => {
                define(&self.catalogue, change, layout)
            }
            LogicalPlan::Ddl(change) => Err(Error::Unsupported {
                what: format!("{} within a transaction", change.name()),
                instead: "COMMIT or ROLLBACK first",
            }),
            LogicalPlan::Dml(what) => {
                let changed = change(&self.catalogue, what, view, |plan| self.query(plan));
                self.changed(changed, view)
            }
            LogicalPlan::Analyze(analyze)
                if matches!(*analyze.input, LogicalPlan::Dml(_) | LogicalPlan::Copy(_)) =>
            {
                Err(Error::Unsupported {
                    what: "EXPLAIN ANALYZE of a change, or of COPY,".into(),
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

    /// The end of a change: outside of a transaction it is committed; within one that it fails, only ROLLBACK is left.
    fn changed(&mut self, changed: Result<u64>, view: &View) -> Result<Answer> {
        if let (Err(_), Some(open)) = (&changed, &mut self.transaction) {
            *open = Open::Failed;
        }
        let changed = changed?;
        if self.transaction.is_none() {
            view.commit()?;
        }
        Ok(Answer::Changed(changed))
    }

    fn query(&self, plan: LogicalPlan) -> Result<Rows> {
        let context = &self.context;
        let stream = async { context.execute_logical_plan(plan).await?.execute_stream().await };
        let stream = self.runtime.block_on(self.canceller.or(stream))??;
        Ok(Rows::new(stream, Arc::clone(&self.runtime), self.canceller.clone()))
    }

    /// A transaction of now.
    fn begin(&self, is_serializable: bool, is_alone: bool) -> Arc<View> {
        let db = &self.catalogue.db;
        match &self.begin_alone {
            None => View::new(db.begin(), is_serializable),
            Some(begin) if is_alone => View::new(begin(db), is_serializable),
            Some(_) => View::shared(db.begin()),
        }
    }
}

impl Open {
    /// What its statements read and write.
    fn view(&self) -> Result<Arc<View>> {
        match self {
            Open::Running(view) => Ok(Arc::clone(view)),
            Open::Failed => Err(Error::TransactionFailed),
            Open::TooOld => Err(Error::TransactionTooOld),
        }
    }
}
