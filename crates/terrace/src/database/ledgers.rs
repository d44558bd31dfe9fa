//! Ledgers: beside maps and queues.

use super::{Database, OpenedLedger, Share, check_name};
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use terrace_memory::{Tier, dax};
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
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::ledger::{LedgerOptions, Profile};
    /// let movements = |o| LedgerOptions { profile: Some(Profile::Movements), ..o };
    /// assert_eq!(db.ledger_with("bank", movements)?.profile(), Profile::Movements);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::ledger`].
    pub fn ledger_with(
        &self,
        name: &str,
        adjust: impl FnOnce(LedgerOptions) -> LedgerOptions,
    ) -> LedgerResult<Ledger> {
        self.ledger_within(name, adjust, &self.shared)
    }

    /// The same with its accounts in a tier of memory: on its node, and of its bytes, which maps and ledgers in one
    /// tier share. The image of its file counts against them too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::memory::tier::{SystemPaths, found_specs};
    /// use terrace::memory::Topology;
    /// let topology = Topology::read()?;
    /// if let Some(spec) = found_specs(&topology).first() {
    ///     let dram = spec.resolve(&topology, &SystemPaths)?;
    ///     if let Ok(bank) = db.ledger_in("bank", &dram, |options| options) {
    ///         assert_eq!(bank.stats().accounts, 0); // not so in a container without the capability
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::ledger`]; the kernel's reason where it does not give memory of the node.
    pub fn ledger_in(
        &self,
        name: &str,
        tier: &Tier,
        adjust: impl FnOnce(LedgerOptions) -> LedgerOptions,
    ) -> LedgerResult<Ledger> {
        let (node, share) = (tier.node, self.share_of(tier));
        self.ledger_within(name, |options| LedgerOptions { node, ..adjust(options) }, &share)
    }

    fn ledger_within(
        &self,
        name: &str,
        adjust: impl FnOnce(LedgerOptions) -> LedgerOptions,
        share: &Arc<Share>,
    ) -> LedgerResult<Ledger> {
        check_name("ledger", "_-.", name)?;
        let mut ledgers = self.ledgers();
        if let Some(opened) = ledgers.get(name) {
            return Ok(opened.ledger.clone());
        }
        let base = LedgerOptions {
            durability: self.options().durability,
            domain: self.options().domain,
            access: self.options().access,
            ..LedgerOptions::default()
        };
        let mut options = adjust(base);
        options.dax = options.domain.is_byte_addressable()
            && dax::direct_access(self.dir())
                .is_ok_and(|access| access.map_sync == dax::MapSync::Works);
        let ledger = Ledger::open(&self.dir().join("ledgers").join(name), &options, &share.budget)?;
        let opened = OpenedLedger { ledger: ledger.clone(), share: Arc::clone(share) };
        ledgers.insert(name.to_string(), opened);
        Ok(ledger)
    }

    /// Names of the ledgers, open or on disk, sorted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.ledger("bank")?;
    /// assert_eq!(db.ledger_names()?, ["bank"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) for a folder that cannot be read.
    pub fn ledger_names(&self) -> Result<Vec<String>> {
        let open = self.ledgers().keys().cloned().collect();
        let is_ledger = |file: &str| {
            file.strip_prefix("ledger-").is_some_and(|number| number.parse::<u64>().is_ok())
        };
        self.names("ledgers", open, is_ledger)
    }

    /// The ledgers that are open, by name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.ledger("bank")?;
    /// assert_eq!(db.open_ledgers()[0].0, "bank");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_ledgers(&self) -> Vec<(String, Ledger)> {
        let handle =
            |(name, opened): (&String, &OpenedLedger)| (name.clone(), opened.ledger.clone());
        self.ledgers().iter().map(handle).collect()
    }

    pub(super) fn ledgers(&self) -> MutexGuard<'_, BTreeMap<String, OpenedLedger>> {
        // As for maps.
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_memory::tier::SystemPaths;
    use terrace_memory::{ByteSize, TierKind, TierSpec, Topology};
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

    #[test]
    fn a_ledger_in_a_tier_is_on_its_node_and_within_its_bytes() {
        let topology = Topology::read().expect("a topology");
        let node = topology.nodes[0].node;
        let near = |bytes| TierSpec {
            node: Some(node),
            bytes: Some(ByteSize(bytes)),
            ..TierSpec::new("near", TierKind::Node)
        };
        let tier = near(80 << 20).resolve(&topology, &SystemPaths).expect("it fits");
        let dir = tempfile::tempdir().expect("directory");
        let db = Database::open(dir.path(), MapOptions::default()).expect("open");
        let bank = match db.ledger_in("bank", &tier, |options| options) {
            // Containers without the capability, kernels without NUMA.
            Err(e) if e.to_string().contains("not permitted") => return,
            bank => bank.expect("a ledger in the tier"),
        };
        let open = |from: u64, to: u64| {
            bank.open_accounts(&(from..to).map(|number| (number, 1)).collect::<Vec<_>>())
        };
        open(0, 100_000).expect("room");
        let pages = bank.placement().expect("the kernel tells");
        assert!(pages.is_only_on(node) && !pages.pages_by_node.is_empty(), "{pages}");
        let told = db.tiers();
        assert_eq!((told[1].name.as_str(), &told[1].ledgers[..]), ("near", &["bank".into()][..]));
        assert_eq!(told[1].used_bytes, bank.stats().memory_bytes);
        assert_eq!((told[0].used_bytes, told[0].ledgers.len()), (0, 0));
        let full = open(100_000, 1_000_000).expect_err("more than the tier has");
        assert!(full.to_string().contains("out of memory"), "{full}");
        assert_eq!(bank.stats().accounts, 100_000);
    }
}
