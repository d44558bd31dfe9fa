//! SQL over the wire: the command SQL, and threads for its statements.
//!
//! - `statements`: what a server has for SQL; the threads.
//! - `reply`: rows as replies.
//!
//! # Who waits
//! No event loop runs a statement: each is handed to a thread of its own, and its client is held until that has
//! answered. So one that takes an hour makes nobody wait but its client; when there are [`statements::THREADS_MOST`],
//! the next one waits. When its client goes, or the server stops, it is cancelled.
//!
//! # Transactions
//! A connection has a session, with a transaction from BEGIN to COMMIT or ROLLBACK. While it is open, what others
//! replace is kept; so it is rolled back when its client has been silent for as long as a snapshot may be open
//! (`snapshot-timeout`).
//!
//! # Durability
//! A statement answers when what it wrote, or read, has the durability of its maps.

mod reply;
mod statements;

pub(crate) use statements::Statements;

use crate::commands::{Client, Executor, Failure, Outcome, SYNTAX_ERROR};
use crate::resp::{Args, Output};
use parking_lot::Mutex;
use statements::{Ended, Job};
use std::sync::Arc;
use std::time::Duration;
use terrace_query::{Canceller, Format, SqlSession};

/// What a client has of SQL.
#[derive(Default)]
pub(crate) struct OfClient {
    session: Option<Box<SqlSession>>,
    /// Its statement, which a thread runs.
    running: Option<Given>,
    /// When its last statement ended, in milliseconds since the server started.
    ended_ms: u64,
    /// How long that took.
    took: Option<Duration>,
}

/// A client's hold on its statement, which ends with it.
struct Given(Arc<Job>);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.canceller.cancel();
    }
}

impl OfClient {
    /// Whether it waits for a statement.
    pub(crate) fn waits(&self) -> bool {
        self.running.is_some()
    }

    /// Bytes of the statement that runs.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.running.as_ref().map_or(0, |given| given.0.bytes())
    }

    /// Rolls a transaction back whose client has been silent for `most_ms`.
    pub(crate) fn close_old(&mut self, now_ms: u64, most_ms: u64) {
        if let Some(session) = &mut self.session
            && session.in_transaction()
            && now_ms.saturating_sub(self.ended_ms) >= most_ms
        {
            session.expire();
        }
    }

    /// How long the statement took that has just been answered.
    pub(crate) fn took(&mut self) -> Option<Duration> {
        self.took.take()
    }
}

/// `SQL statement [FORMAT TABLE|CSV|JSON|ARROW] [VALUES value [value ...]]`.
pub(crate) fn execute(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    args: Args<'_>,
) -> Outcome {
    if let Some(given) = &client.sql.running {
        let ended = given.0.ended.lock().take();
        let Some(Ended { session, answer, took }) = ended else {
            client.is_held = true;
            return Ok(());
        };
        let ended_ms = executor.core.uptime_ms;
        client.sql = OfClient { session, running: None, ended_ms, took: Some(took) };
        out.raw(&answer?);
        return Ok(());
    }
    let (format, values) = asked(args)?;
    let statement =
        String::from_utf8(args.at(1).to_vec()).map_err(|_| "ERR the statement is no UTF-8")?;
    let job = Arc::new(Job {
        session: Mutex::new(client.sql.session.take()),
        statement,
        values: args.from(values).map(<[u8]>::to_vec).collect(),
        format,
        resp3: out.resp3,
        output_bytes: executor.core.limits.output_buffer_bytes,
        owner: executor.core.id,
        canceller: Canceller::default(),
        ended: Mutex::default(),
    });
    client.sql.running = Some(Given(Arc::clone(&job)));
    client.is_held = true;
    executor.shared.sql.give(job);
    Ok(())
}

/// The format that is asked for, and where the values begin.
fn asked(args: Args<'_>) -> Result<(Option<Format>, usize), Failure> {
    let mut at = 2;
    let is =
        |at: usize, word: &[u8]| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
    let mut format = None;
    if is(at, b"format") {
        format = Some(match args.get(at + 1).map(<[u8]>::to_ascii_lowercase).as_deref() {
            Some(b"table") => Format::Table,
            Some(b"csv") => Format::Csv,
            Some(b"json") => Format::Json,
            Some(b"arrow") => Format::Arrow,
            _ => return Err("ERR FORMAT is TABLE, CSV, JSON or ARROW".into()),
        });
        at += 2;
    }
    match args.len() {
        len if len == at => Ok((format, at)),
        len if is(at, b"values") && len > at + 1 => Ok((format, at + 1)),
        _ => Err(SYNTAX_ERROR.into()),
    }
}
