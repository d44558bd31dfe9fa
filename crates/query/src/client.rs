//! What a session needs that is used from afar: a statement that can be ended, values that come as texts, and moments
//! that are taken while nobody writes half of something.

use crate::error::{Error, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::{Database, Transaction};
use tokio::sync::Notify;

/// Ends statements of sessions, from any thread. A clone is the same.
///
/// ```
/// # use terrace_query::{Canceller, Error, Sql};
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
/// let mut session = Sql::open(std::sync::Arc::new(db))?.session();
/// let canceller = Canceller::default();
/// session.cancelled_by(&canceller);
/// std::thread::spawn(move || canceller.cancel()).join().unwrap();
/// assert!(matches!(session.run("SELECT 1"), Err(Error::Cancelled)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<Cancelled>);

#[derive(Debug, Default)]
struct Cancelled {
    is_set: AtomicBool,
    told: Notify,
}

impl Canceller {
    /// Ends the statements that run, soon, and each that comes after them: [`Error::Cancelled`]. What is being
    /// committed may be committed.
    pub fn cancel(&self) {
        self.0.is_set.store(true, Ordering::SeqCst);
        self.0.told.notify_waiters();
    }

    /// Whether that was done.
    ///
    /// ```
    /// # use terrace_query::Canceller;
    /// let canceller = Canceller::default();
    /// assert!(!canceller.is_cancelled());
    /// canceller.cancel();
    /// assert!(canceller.is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.0.is_set.load(Ordering::SeqCst)
    }

    /// # Errors
    /// [`Error::Cancelled`].
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// What `future` gives, unless it is cancelled before.
    pub(crate) async fn or<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        let told = self.0.told.notified();
        let (mut told, future) = (pin!(told), pin!(future));
        // From here on a call is heard; one before it was seen.
        told.as_mut().enable();
        self.check()?;
        match futures::future::select(future, told).await {
            futures::future::Either::Left((output, _)) => Ok(output),
            futures::future::Either::Right(_) => Err(Error::Cancelled),
        }
    }
}

/// How a session's moments are taken where that matters.
pub(crate) type Begin = Arc<dyn Fn(&Database) -> Transaction + Send + Sync>;

/// Puts texts in the place of the parameters `$1`, `$2` and so on of a statement, as if they stood there in quotes;
/// what is no text stands there as bytes.
///
/// # Errors
/// [`Error::Statement`] for a parameter without a value, and a value without a parameter.
pub(crate) fn with_texts(statement: &mut Statement, values: &[&[u8]]) -> Result<()> {
    let inner = match statement {
        Statement::Statement(statement) => &mut **statement,
        Statement::Explain(explain) => return with_texts(&mut explain.statement, values),
        _ if values.is_empty() => return Ok(()),
        _ => return Err(Error::Statement("this statement takes no values".into())),
    };
    let (mut used, mut missing) = (0, None);
    let _all = ast::visit_expressions_mut(inner, |expression| {
        let ast::Expr::Value(value) = expression else { return ControlFlow::Continue(()) };
        let ast::Value::Placeholder(name) = &value.value else {
            return ControlFlow::Continue(());
        };
        let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        let given = number.and_then(|number| values.get(number.checked_sub(1)?));
        let Some(given) = given else {
            missing = Some(name.clone());
            return ControlFlow::Break(());
        };
        used = used.max(number.unwrap_or_default());
        value.value = match std::str::from_utf8(given) {
            Ok(text) => ast::Value::SingleQuotedString(text.to_owned()),
            Err(_) => {
                let digits: String = given.iter().map(|byte| format!("{byte:02X}")).collect();
                ast::Value::HexStringLiteral(digits)
            }
        };
        ControlFlow::Continue(())
    });
    match missing {
        Some(name) => Err(Error::Statement(format!(
            "parameter {name} has no value: {} were given; the first one is $1",
            values.len()
        ))),
        None if used < values.len() => Err(Error::Statement(format!(
            "{} values were given, and the statement names no ${}",
            values.len(),
            values.len()
        ))),
        None => Ok(()),
    }
}

/// Refuses what reads or writes files of the machine, or changes settings of the process.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) fn refuse_files(statement: &Statement) -> Result<()> {
    let refused = |what: &str, instead| Err(Error::Unsupported { what: what.into(), instead });
    let inner = match statement {
        Statement::Statement(statement) => &**statement,
        Statement::Explain(explain) => return refuse_files(&explain.statement),
        Statement::CopyTo(_) => return refused("COPY for clients of a server", COPY_INSTEAD),
        _ => return Ok(()),
    };
    match inner {
        ast::Statement::Copy { .. } => refused("COPY for clients of a server", COPY_INSTEAD),
        ast::Statement::Set(_) | ast::Statement::Reset(_) => {
            refused("SET for clients of a server", "leave the options as they are")
        }
        _ => Ok(()),
    }
}

const COPY_INSTEAD: &str =
    "files are copied where they are, by `terrace sql`; INSERT rows, or ask for FORMAT CSV";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn filled(text: &str, values: &[&[u8]]) -> Result<String> {
        let mut statement = parse(text)?.pop_front().expect("one");
        with_texts(&mut statement, values)?;
        Ok(statement.to_string())
    }

    #[test]
    fn a_value_is_a_text_in_quotes_whatever_it_says() {
        let filled = |text, values: &[&[u8]]| filled(text, values).expect("filled");
        assert_eq!(filled("SELECT $1", &[b"a'b; DROP TABLE t"]), "SELECT 'a''b; DROP TABLE t'");
        assert_eq!(filled("SELECT $2, $1, $1", &[b"a", b"$1"]), "SELECT '$1', 'a', 'a'");
        assert_eq!(
            filled("INSERT INTO t VALUES ($1)", &[&[0xff, 0]]),
            "INSERT INTO t VALUES (X'FF00')"
        );
        assert_eq!(filled("EXPLAIN SELECT $1", &[b"a"]), "EXPLAIN SELECT 'a'");
        assert_eq!(
            filled("UPDATE t SET a = $1 WHERE b IN ($2)", &[b"x", b"y"]),
            "UPDATE t SET a = 'x' WHERE b IN ('y')"
        );
    }

    #[test]
    fn values_and_parameters_are_as_many() {
        let refused =
            |text, values: &[&[u8]]| filled(text, values).expect_err("refused").to_string();
        assert!(refused("SELECT $2", &[b"a"]).contains("parameter $2 has no value: 1 were given"));
        assert!(refused("SELECT $0", &[b"a"]).contains("parameter $0 has no value"));
        assert!(refused("SELECT $a", &[b"a"]).contains("parameter $a has no value"));
        assert!(refused("SELECT ?", &[b"a"]).contains("parameter ? has no value"));
        assert!(refused("SELECT $1", &[b"a", b"b"]).contains("names no $2"));
        assert!(refused("SELECT 1", &[b"a"]).contains("names no $1"));
    }
}
