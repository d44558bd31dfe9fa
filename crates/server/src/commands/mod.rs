//! The commands: one table, and handlers grouped in files by family.
//!
//! A handler gets a [`Context`] and the request's arguments, writes its reply into the context's
//! output and returns, or returns a [`Failure`], which takes back what it wrote and becomes the
//! error reply. Handlers of data commands get the session of the selected database as well; a
//! transaction passes the session of its atomic section in the same place.

mod admin;
mod client;
mod config;
mod connection;
mod counters;
mod docs;
mod execute;
mod expiry;
mod info;
mod introspect;
mod keys;
mod ledgers;
mod lists;
mod long_scripts;
mod made;
mod memory;
mod multi;
mod observe;
mod options;
mod ordered;
mod ranges;
mod scan;
mod scripts;
mod snapshots;
mod strings;
mod subcommands;
mod table;
mod transactions;
mod unsupported;

use crate::clients::ClientInfo;
use crate::event_loop::{Core, FETCHES};
use crate::resp::{Args, Output};
use crate::scripts::Given;
use crate::shared::Shared;
use crate::sql::OfClient;
use crate::stats::LoopStats;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace::{Session, Wait};

pub(crate) use execute::{Executor, Ran, Went};
pub(crate) use info::{resident_bytes, totals};
pub(crate) use long_scripts::LongScripts;
pub(crate) use snapshots::Snapshots;
pub(crate) use table::{COMMANDS, count, get_index, name_of, set_index};
pub(crate) use transactions::{Transaction, Watching};

/// Whether a connection is to be closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Close {
    #[default]
    No,
    /// Once its replies are sent.
    AfterReplies,
    /// At once, replies and all.
    Now,
}

/// `CLIENT REPLY`: which commands are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replies {
    /// None are.
    pub(crate) are_off: bool,
    /// The command that runs is not; `CLIENT REPLY ON` and `OFF` make it forget that.
    pub(crate) skip_this: bool,
    /// The next one is not.
    pub(crate) skip_next: bool,
}

/// A connection as the commands know it.
pub(crate) struct Client {
    pub(crate) info: Arc<ClientInfo>,
    pub(crate) database: usize,
    pub(crate) authenticated: bool,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) watched: Watching,
    pub(crate) snapshots: Snapshots,
    pub(crate) replies: Replies,
    pub(crate) close: Close,
    /// Databases touched in this turn, a bit each: whose failed commits concern this client.
    pub(crate) touched: u64,
    /// The same of queues and ledgers.
    pub(crate) touched_apart: bool,
    /// Its request waits for an element of a queue, at most until then (milliseconds since the server started).
    pub(crate) waits_until_ms: Option<u64>,
    /// Its script, which a worker runs.
    pub(crate) script: Option<Given>,
    pub(crate) sql: OfClient,
    /// The command has not been executed: it is to be tried again.
    pub(crate) is_held: bool,
    /// It is, until there is memory for what it writes: what the engine said when that was missing first.
    pub(crate) busy_since: Option<u64>,
    /// How often what its command needs was to be read from the disk first.
    pub(crate) fetches: u32,
    /// KEYS, as far as it came before that.
    pub(crate) keys: Option<Box<scan::Listing>>,
    /// It is, until something of what it was answered has been sent.
    pub(crate) awaits_room: bool,
    /// Index of the last command in the table.
    pub(crate) last_command: u32,
    /// Nothing about this client keeps a GET or SET from the short way.
    pub(crate) plain: bool,
}

impl Client {
    pub(crate) fn new(info: Arc<ClientInfo>, authenticated: bool) -> Client {
        Client {
            info,
            database: 0,
            authenticated,
            transaction: None,
            watched: Watching::default(),
            snapshots: Snapshots::default(),
            replies: Replies::default(),
            close: Close::No,
            touched: 0,
            touched_apart: false,
            waits_until_ms: None,
            script: None,
            sql: OfClient::default(),
            is_held: false,
            busy_since: None,
            fetches: 0,
            keys: None,
            awaits_room: false,
            last_command: u32::MAX,
            plain: authenticated,
        }
    }

    /// What its commands do where memory or the disk is to be waited for: the client is held, so that others are
    /// served; but one whose values leave memory again and again before it comes to them waits.
    pub(crate) fn wait(&self) -> Wait {
        match self.fetches < FETCHES {
            true => Wait::Never { since: self.busy_since },
            false => Wait::ForRoom,
        }
    }

    /// Notes that `command` ran on `database`.
    #[inline]
    pub(crate) fn note(&mut self, command: usize, database: usize) {
        self.last_command = command as u32;
        self.touched |= 1 << database;
    }

    /// Whether it waits for an element of a queue, its script or its statement: until it goes, or that has come.
    pub(crate) fn waits(&self) -> bool {
        self.waits_until_ms.is_some() || self.script.is_some() || self.sql.waits()
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.memory_bytes())
    }
    pub(crate) fn memory_bytes(&self) -> usize {
        let listed = self.keys.as_ref().map_or(0, |keys| keys.memory_bytes());
        let script = self.script.as_ref().map_or(0, |given| given.0.text.len());
        let sql = self.sql.memory_bytes();
        self.queued_bytes() + self.watched.memory_bytes() + listed + script + sql
    }
    pub(crate) fn no_evict(&self) -> bool {
        self.info.no_evict.load(Relaxed)
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The error as it goes to the client, its code first.
    Text(Cow<'static, str>),
    /// The engine refused.
    Engine(terrace::Error),
}

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Failure {
        Failure::Text(text.into())
    }
}
impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Text(text.into())
    }
}
impl From<terrace::Error> for Failure {
    fn from(error: terrace::Error) -> Failure {
        Failure::Engine(error)
    }
}

impl Failure {
    /// The error reply. The engine's errors get the codes that Redis clients know.
    pub(crate) fn text(&self) -> String {
        use terrace::Error;
        match self {
            Failure::Text(text) => text.to_string(),
            Failure::Engine(Error::OutOfMemory { .. } | Error::Busy { .. }) => {
                "OOM command not allowed when used memory > 'maxmemory'.".into()
            }
            Failure::Engine(
                error @ (Error::IndexFull { .. }
                | Error::HeldByReaders { .. }
                | Error::DiskFull { limit: Some(_), .. }),
            ) => {
                format!("OOM {error}")
            }
            Failure::Engine(
                error @ (Error::KeySize(..)
                | Error::ItemSize(..)
                | Error::BatchSize(..)
                | Error::Option { .. }
                | Error::Unordered
                | Error::Cursor(_)),
            ) => {
                format!("ERR {error}")
            }
            // Of one key, or queue: nothing else stops.
            Failure::Engine(error) if error.is_damage() => format!("ERR damaged: {error}"),
            Failure::Engine(error) if error.is_unreadable() => format!("ERR {error}"),
            Failure::Engine(error @ Error::Fetching) => format!("TRYAGAIN {error}"),
            Failure::Engine(error @ Error::SnapshotEnded { .. }) => format!("ERR {error}"),
            Failure::Engine(error) => {
                format!(
                    "MISCONF Terrace cannot keep this on disk. Commands that may modify the data set are disabled: {error}"
                )
            }
        }
    }
}

/// What a handler returns; its reply is in the context's output.
pub(crate) type Outcome = Result<(), Failure>;

/// What a handler may use.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) stats: &'a LoopStats,
    pub(crate) core: &'a mut Core,
    pub(crate) client: &'a mut Client,
    pub(crate) out: &'a mut Output,
    /// The session given to the handler is inside an atomic section already.
    pub(crate) atomic: bool,
}

impl Context<'_> {
    /// Counts a look-up, for `keyspace_hits` and `keyspace_misses`.
    pub(crate) fn looked_up(&self, found: bool) {
        match found {
            true => self.stats.key_hits.add(1),
            false => self.stats.key_misses.add(1),
        }
    }
}

/// How a command is run.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Touches keys of the selected database.
    Data(fn(&mut Context<'_>, &mut Session, Args<'_>) -> Outcome),
    /// Touches the connection or the server.
    Server(fn(&mut Context<'_>, Args<'_>) -> Outcome),
    /// Runs the queued transaction.
    Exec,
    /// Runs a script.
    Script,
    /// Runs a statement of SQL.
    Sql,
}

/// When a command has to run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    Never,
    Always,
    /// Always, and all maps keep what is replaced by then: what that waits for others do not wait for too.
    Armed,
    /// When it names more than one key.
    IfSeveralKeys,
}

/// Where a command's keys stand among its arguments, as `COMMAND` reports it: first and last
/// position (negative: from the end) and the distance between two. All 0: no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPositions {
    pub(crate) first: i32,
    pub(crate) last: i32,
    pub(crate) step: i32,
}

impl KeyPositions {
    /// The positions of the keys among `len` arguments.
    pub(crate) fn of(self, len: usize) -> impl Iterator<Item = usize> {
        let last =
            if self.last < 0 { len as i32 + self.last } else { self.last.min(len as i32 - 1) };
        let step = self.step.max(1) as usize;
        let range =
            if self.first > 0 { self.first as usize..(last + 1).max(0) as usize } else { 0..0 };
        range.step_by(step)
    }
}

/// Flags of a command.
pub(crate) mod flag {
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const READ: u32 = 1 << 1;
    /// May need memory.
    pub(crate) const DENY_OOM: u32 = 1 << 2;
    pub(crate) const ADMIN: u32 = 1 << 3;
    pub(crate) const FAST: u32 = 1 << 4;
    /// Allowed before `AUTH`.
    pub(crate) const NO_AUTH: u32 = 1 << 5;
    /// Runs inside `MULTI` at once instead of being queued.
    pub(crate) const NOT_QUEUED: u32 = 1 << 6;
    /// Refused inside `MULTI`.
    pub(crate) const NO_MULTI: u32 = 1 << 7;
    /// Not run inside a transaction's atomic section: it reaches beyond one session.
    pub(crate) const OUTSIDE_ATOMIC: u32 = 1 << 8;
    pub(crate) const LOADING: u32 = 1 << 9;
    pub(crate) const STALE: u32 = 1 << 10;
    pub(crate) const NO_SCRIPT: u32 = 1 << 11;
    /// Its arguments hold a password: they are kept out of the slow log.
    pub(crate) const SECRET: u32 = 1 << 12;
}

/// One command, as the table has it.
pub(crate) struct Command {
    /// In small letters.
    pub(crate) name: &'static str,
    /// Number of arguments, the name included; negative: at least so many.
    pub(crate) arity: i32,
    pub(crate) flags: u32,
    pub(crate) keys: KeyPositions,
    pub(crate) alone: Alone,
    pub(crate) handler: Handler,
    /// Position in the table.
    index: usize,
}

impl Command {
    pub(crate) fn writes(&self) -> bool {
        self.is(flag::WRITE)
    }
    pub(crate) fn index(&self) -> usize {
        self.index
    }
    pub(crate) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        match self.arity {
            exact @ 0.. => arguments == exact as usize,
            least => arguments >= least.unsigned_abs() as usize,
        }
    }
    pub(crate) fn runs_alone(&self, arguments: usize) -> bool {
        match self.alone {
            Alone::Never => false,
            Alone::Always | Alone::Armed => true,
            Alone::IfSeveralKeys => self.keys.of(arguments).nth(1).is_some(),
        }
    }
    /// Whether clients may run it while the database is opened: it touches no data.
    pub(crate) fn runs_while_loading(&self) -> bool {
        const THEY: [&str; 8] =
            ["auth", "client", "command", "hello", "info", "quit", "reset", "select"];
        THEY.contains(&self.name)
    }
    /// The error for a wrong number of arguments.
    pub(crate) fn arity_error(&self) -> Failure {
        format!("ERR wrong number of arguments for '{}' command", self.name).into()
    }
}

/// The error for an option that is not one.
pub(crate) const SYNTAX_ERROR: &str = "ERR syntax error";
/// The error for an argument that is not an integer.
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// An argument that has to be an integer.
pub(crate) fn integer(argument: &[u8]) -> Result<i64, Failure> {
    crate::resp::number::integer(argument).ok_or(Failure::from(NOT_AN_INTEGER))
}

/// Writes the lines of a `HELP` subcommand.
pub(crate) fn help(out: &mut Output, command: &str, lines: &[&str]) -> Outcome {
    out.array(lines.len() + 3);
    out.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| out.simple(line));
    out.simple("HELP");
    out.simple("    Prints this help.");
    Ok(())
}
