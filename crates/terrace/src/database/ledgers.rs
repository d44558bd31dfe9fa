//! Ledgers: beside maps and queues.

use super::{Database, check_name};
use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use terrace_memory::dax;
use terrace_store::Result;
use terrace_transact::ledger::{Ledger, LedgerOptions, LedgerResult};

impl Database {
    /// The ledger `name`, opened or made: accounts, and ordered blocks of transfers between them that are executed
    /// in parallel, each wholly or not at all. It has the database's durability, domain and budget, and otherwise
    /// what [`LedgerOptions::default`] says.
    ///
    /// ```
    /// use terrace::ledger::{Block, Status, Transfer};
    /// use terrace::{Database, MapOptions};
    ///
    /// let dir = tempfile::tempdir()?;
    /// let db = Database::open(dir.path(), MapOptions::default())?;
    /// let bank = db.ledger("bank")?;
    /// bank.open_accounts(&[(1, 100), (2, 0)])?;
    /// let pay = |amount| Transfer { from: 1, to: 2, amount, ..Transfer::default() };
    /// let block = bank.execute(Block::of_transfers(vec![pay(70), pay(70)])?)?;
    /// assert_eq!(block.statuses, [Status::Done, Status::Refused]);
    /// assert_eq!(bank.account(2)?.map(|account| account.balance), Some(70));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Ledger::open`], and [`Error::Option`](crate::Error::Option) for a name that is not one of a map.
    pub fn ledger(&self, name: &str) -> LedgerResult<Ledger> {
        self.ledger_with(name, |options| options)
    }

    /// The ledger `name`; if it is not open yet, opened with these options as changed by `adjust`.
    ///
    /// # Errors
    /// As [`Database::ledger`].
    pub fn ledger_with(
        &self,
        name: &str,
        adjust: impl FnOnce(LedgerOptions) -> LedgerOptions,
    ) -> LedgerResult<Ledger> {
        check_name("ledger", "_-.", name)?;
        let mut ledgers = self.ledgers();
        if let Some(ledger) = ledgers.get(name) {
            return Ok(ledger.clone());
        }
        let base = LedgerOptions {
            durability: self.options().durability,
            domain: self.options().domain,
            ..LedgerOptions::default()
        };
        let mut options = adjust(base);
        options.dax = options.domain.is_byte_addressable()
            && dax::direct_access(self.dir())
                .is_ok_and(|access| access.map_sync == dax::MapSync::Works);
        let ledger =
            Ledger::open(&self.dir().join("ledgers").join(name), &options, &self.shared.budget)?;
        ledgers.insert(name.to_string(), ledger.clone());
        Ok(ledger)
    }

    /// Names of the ledgers, open or on disk, sorted.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) for a folder that cannot be read.
    pub fn ledger_names(&self) -> Result<Vec<String>> {
        let open = self.ledgers().keys().cloned().collect();
        self.names("ledgers", open)
    }

    pub(super) fn ledgers(&self) -> MutexGuard<'_, BTreeMap<String, Ledger>> {
        // As for maps.
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_store::{Durability, MapOptions};
    use terrace_transact::ledger::{Block, LedgerError, Transfer};

    #[test]
    fn ledgers_are_beside_maps_and_found_again() {
        let dir = tempfile::tempdir().expect("directory");
        let options = MapOptions { durability: Durability::Sync, ..MapOptions::default() };
        let db = Database::open(dir.path(), options.clone()).expect("open");
        let bank = db.ledger("bank").expect("a ledger");
        assert!(bank.is_same(&db.ledger("bank").expect("open")));
        bank.open_accounts(&[(7, 10), (8, 0)]).expect("new ones");
        let pay = Transfer { from: 7, to: 8, amount: 4, ..Transfer::default() };
        bank.execute(Block::of_transfers(vec![pay]).expect("a block")).expect("known");
        let hash = bank.hash().expect("whole");
        db.close().expect("close");
        assert!(matches!(bank.hash(), Err(LedgerError::Store(_))), "it was closed");
        drop(bank);
        let db = Database::open(dir.path(), options).expect("open");
        assert_eq!(db.ledger_names().expect("names"), ["bank"]);
        assert_eq!(db.ledger("bank").expect("the ledger").hash().expect("whole"), hash);
        assert!(db.ledger("../bank").is_err());
    }
}
