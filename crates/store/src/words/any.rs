//! A table of any of the four forms. Which one is known when it is opened, and asked once a call.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use terrace_lockfree::list::{
    self, LinkFree, ListTable, LogFree, Media, Protocol, Session, Size, Soft, TLog,
};
use terrace_memory::Memory;

/// How a word table is made durable. Lines written back and fences are an insertion's and a removal's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Nodes and links survive, with a record of what each session is about to do: 5 lines and 3 fences, 4 and 4.
    TLog,
    /// Nodes and links survive by the order of stores: 2 fences, 1. Where caches survive (eADR) alone.
    LogFree,
    /// Nodes survive, and are linked anew when the table is opened: 1 line and 1 fence, 1 and 1.
    #[default]
    LinkFree,
    /// The same with links and keys in DRAM, which is what readers walk: twice the memory, as few write-backs.
    Soft,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 4] = [Form::TLog, Form::LogFree, Form::LinkFree, Form::Soft];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Form::TLog => TLog::NAME,
            Form::LogFree => LogFree::NAME,
            Form::LinkFree => LinkFree::NAME,
            Form::Soft => Soft::NAME,
        }
    }

    /// Whether its links have a memory of their own, which need not survive.
    pub fn has_links_apart(self) -> bool {
        self == Form::Soft
    }

    /// Bytes of its file, and of the memory of its links, if it has one.
    pub(super) fn bytes(self, size: Size) -> Result<u64> {
        let bytes = match self {
            Form::TLog => size.bytes::<TLog>(),
            Form::LogFree => size.bytes::<LogFree>(),
            Form::LinkFree => size.bytes::<LinkFree>(),
            Form::Soft => size.bytes::<Soft>(),
        };
        bytes.map_err(|error| Error::Option { field: "capacity", why: error.to_string() })
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Form, String> {
        let found = Form::ALL.into_iter().find(|form| form.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of tlog, log-free, link-free, soft"))
    }
}

/// A table of some form.
pub(super) enum AnyTable<M: Memory + Clone> {
    TLog(Arc<ListTable<M, TLog>>),
    LogFree(Arc<ListTable<M, LogFree>>),
    LinkFree(Arc<ListTable<M, LinkFree>>),
    Soft(Arc<ListTable<M, Soft>>),
}

/// A session of one.
pub(super) enum AnySession<M: Memory + Clone> {
    TLog(Session<M, TLog>),
    LogFree(Session<M, LogFree>),
    LinkFree(Session<M, LinkFree>),
    Soft(Session<M, Soft>),
}

/// The same for each form.
macro_rules! each {
    ($any:ident, $self:expr, $one:ident => $what:expr) => {
        match $self {
            $any::TLog($one) => $what,
            $any::LogFree($one) => $what,
            $any::LinkFree($one) => $what,
            $any::Soft($one) => $what,
        }
    };
}

impl<M: Memory + Clone> AnyTable<M> {
    /// Makes an empty one.
    pub(super) fn create(form: Form, media: Media<M>, size: Size) -> list::Result<AnyTable<M>> {
        Ok(match form {
            Form::TLog => AnyTable::TLog(ListTable::create(media, size)?),
            Form::LogFree => AnyTable::LogFree(ListTable::create(media, size)?),
            Form::LinkFree => AnyTable::LinkFree(ListTable::create(media, size)?),
            Form::Soft => AnyTable::Soft(ListTable::create(media, size)?),
        })
    }

    /// Reopens the one that is there.
    pub(super) fn open(form: Form, media: Media<M>) -> list::Result<AnyTable<M>> {
        Ok(match form {
            Form::TLog => AnyTable::TLog(ListTable::open(media)?),
            Form::LogFree => AnyTable::LogFree(ListTable::open(media)?),
            Form::LinkFree => AnyTable::LinkFree(ListTable::open(media)?),
            Form::Soft => AnyTable::Soft(ListTable::open(media)?),
        })
    }

    pub(super) fn form(&self) -> Form {
        match self {
            AnyTable::TLog(_) => Form::TLog,
            AnyTable::LogFree(_) => Form::LogFree,
            AnyTable::LinkFree(_) => Form::LinkFree,
            AnyTable::Soft(_) => Form::Soft,
        }
    }

    pub(super) fn size(&self) -> Size {
        each!(AnyTable, self, table => table.size())
    }

    pub(super) fn free_nodes(&self) -> u64 {
        each!(AnyTable, self, table => table.free_nodes())
    }

    pub(super) fn session(&self) -> Result<AnySession<M>> {
        let session = match self {
            AnyTable::TLog(table) => table.session().map(AnySession::TLog),
            AnyTable::LogFree(table) => table.session().map(AnySession::LogFree),
            AnyTable::LinkFree(table) => table.session().map(AnySession::LinkFree),
            AnyTable::Soft(table) => table.session().map(AnySession::Soft),
        };
        // The only reason there is.
        session.map_err(|_| Error::Sessions(list::SESSIONS))
    }
}

impl<M: Memory + Clone> AnySession<M> {
    pub(super) fn insert(&mut self, key: u64, value: u64) -> Result<bool> {
        let inserted = each!(AnySession, self, session => session.insert(key, value));
        inserted.map_err(|error| match error {
            list::Error::Full { capacity } => Error::WordsFull { capacity },
            other => Error::Option { field: "words", why: other.to_string() },
        })
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<u64> {
        each!(AnySession, self, session => session.remove(key))
    }

    #[inline]
    pub(super) fn get(&mut self, key: u64) -> Option<u64> {
        each!(AnySession, self, session => session.get(key))
    }

    pub(super) fn visit(&mut self, visit: impl FnMut(u64, u64)) {
        each!(AnySession, self, session => session.visit(visit));
    }
}
