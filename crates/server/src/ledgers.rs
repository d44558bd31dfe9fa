//! The ledgers that clients reach, and what a loop has done to them in its turn.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use terrace::Database;
use terrace::ledger::{Ledger, LedgerError};

/// The ledgers of the database, opened at the start or when a client first opens an account in one.
pub(crate) struct Ledgers {
    database: Arc<Database>,
    open: RwLock<HashMap<Vec<u8>, Ledger>>,
    /// How many more clients may make.
    left: AtomicUsize,
}

impl Ledgers {
    pub(crate) fn new(database: Arc<Database>, most: usize) -> Ledgers {
        Ledgers { database, open: RwLock::default(), left: AtomicUsize::new(most) }
    }

    /// Opens those that exist.
    pub(crate) fn open_all(&self) -> terrace::Result<()> {
        for name in self.database.ledger_names()? {
            let ledger = match self.database.ledger(&name) {
                Ok(ledger) => ledger,
                Err(LedgerError::Store(error)) => return Err(error),
                Err(other) => {
                    let why = other.to_string();
                    return Err(terrace::Error::Option { field: "ledger", why });
                }
            };
            self.open.write().insert(name.into_bytes(), ledger);
        }
        Ok(())
    }

    /// The ledger of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Result<Ledger, String> {
        self.open.read().get(name).cloned().ok_or_else(|| {
            let name = String::from_utf8_lossy(&name[..name.len().min(64)]);
            format!("ERR no ledger '{name}': LEDGER.OPEN opens accounts in it, and makes it")
        })
    }

    /// The ledger of this name, made if there is none.
    pub(crate) fn get_or_make(&self, name: &[u8]) -> Result<Ledger, String> {
        if let Ok(ledger) = self.get(name) {
            return Ok(ledger);
        }
        let mut open = self.open.write();
        if let Some(ledger) = open.get(name) {
            return Ok(ledger.clone());
        }
        let refused =
            |_| "ERR a ledger's name is 1 to 64 letters, digits, '_', '-' or '.'".to_string();
        let text = std::str::from_utf8(name).map_err(refused)?;
        if self.left.load(SeqCst) == 0 {
            return Err(format!(
                "ERR no ledger '{text}', and clients may make no more: declare [ledgers.{text}] in \
                 terrace.toml, or raise limits.ledgers"
            ));
        }
        let ledger = self.database.ledger(text).map_err(|error| format!("ERR {error}"))?;
        self.left.fetch_sub(1, SeqCst);
        open.insert(name.to_vec(), ledger.clone());
        Ok(ledger)
    }
}

/// The ledgers that a loop has used in this turn.
#[derive(Default)]
pub(crate) struct LedgerTurn(Vec<Ledger>);

impl LedgerTurn {
    /// What was done to it, or seen of it, has to be durable before anyone is told.
    pub(crate) fn note(&mut self, ledger: &Ledger) {
        if !self.0.iter().any(|used| used.is_same(ledger)) {
            self.0.push(ledger.clone());
        }
    }

    /// Commits what this turn has done; the first error.
    pub(crate) fn commit(&mut self) -> terrace::Result<()> {
        let commits = self.0.drain(..).map(|ledger| ledger.commit());
        commits.fold(Ok(()), terrace::Result::and)
    }
}
