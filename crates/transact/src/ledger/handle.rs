//! The ledger as its users hold it.

use super::bank::{BankOptions, Executed, Refused};
use super::block::Block;
use super::book::Book;
use super::sum::Sum;
use super::{Account, LedgerEngine, Profile};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace_durable::Access;
use terrace_durable::journal::Syncer;
use terrace_memory::binding::Placement;
use terrace_memory::{Budget, Domain};
use terrace_store::{Durability, Error as StoreError, Pace};

/// How a ledger is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerOptions {
    /// What its orders do; as it was made, or [`Profile::SmallCoin`]. Fixed when it is made.
    pub profile: Option<Profile>,
    /// How far below zero a floor may let accounts go; as it was made, or 0. Fixed when it is made.
    pub overdraft: Option<u64>,
    /// How blocks are executed.
    pub engine: LedgerEngine,
    /// Threads that execute them, the caller's among them.
    pub workers: usize,
    /// When a block is answered.
    pub durability: Durability,
    /// What survives a power cut in its directory.
    pub domain: Domain,
    /// Whether the directory is on a DAX file system.
    pub dax: bool,
    /// The NUMA node whose memory its accounts lie in; wherever the system puts them.
    pub node: Option<u32>,
    /// Bytes of the log: blocks until the state is rewritten. A longer block writes the state at once. Fixed
    /// when it is made.
    pub log_bytes: u64,
    /// What it is opened for. Unless that is writing, the ledger must be there, and nothing in its directory changes.
    pub access: Access,
}

impl Default for LedgerOptions {
    fn default() -> LedgerOptions {
        LedgerOptions {
            profile: None,
            overdraft: None,
            engine: LedgerEngine::default(),
            workers: BankOptions::default().workers,
            durability: Durability::Interval(Duration::from_secs(1)),
            domain: Domain::PageCache,
            dax: false,
            node: None,
            log_bytes: 32 << 20,
            access: Access::Write,
        }
    }
}

/// Why a ledger did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The block, or the account, cannot be. Nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The file, its directory, or the memory budget.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<terrace_durable::Error> for LedgerError {
    fn from(error: terrace_durable::Error) -> LedgerError {
        LedgerError::Store(error.into())
    }
}

/// Result of a ledger's operations.
pub type LedgerResult<T> = Result<T, LedgerError>;

/// How large a ledger is, and what it has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerStats {
    /// Accounts opened.
    pub accounts: u64,
    /// Entries executed since it was made: blocks, and openings of accounts.
    pub entries: u64,
    /// The hash of its state.
    pub hash: Sum,
    /// Bytes of memory: accounts, and the image of the file.
    pub memory_bytes: u64,
    /// Bytes of the log in use.
    pub log_bytes: u64,
    /// Entries that were executed again when it was opened.
    pub replayed: u64,
    /// What was damaged, if it was opened with [`Access::Salvage`].
    pub damage: Option<String>,
}

/// A durable ledger. Clones are handles on the same one; the last one's end closes it.
#[derive(Clone)]
pub struct Ledger(Arc<Held>);

struct Held {
    book: Mutex<Book>,
    checkpointer: Option<(Stop, std::thread::JoinHandle<()>)>,
}

/// Tells the background flusher to end.
type Stop = Arc<(Mutex<bool>, Condvar)>;

/// How often the background flusher looks at the clock.
const TICK: Duration = Duration::from_millis(10);

impl Ledger {
    /// Opens the ledger in directory `dir`, made if absent, and recovers it. Its memory comes from `budget`.
    ///
    /// # Errors
    /// Another process has it; it was made with another profile or overdraft; its file is damaged, by offset; the
    /// budget is too small.
    pub fn open(dir: &Path, options: &LedgerOptions, budget: &Arc<Budget>) -> LedgerResult<Ledger> {
        let book = Book::open(dir, options, budget)?;
        let checkpointer = match options.durability {
            Durability::Interval(interval) if options.access.writes() => {
                let (syncer, stop) = (Arc::clone(&book.syncer), Stop::default());
                let told = Arc::clone(&stop);
                let body = move || keep_synced(&syncer, &told, interval);
                let started = std::thread::Builder::new().name("terrace-ledger".into()).spawn(body);
                let io = |source| {
                    let path = dir.to_path_buf();
                    StoreError::Io { path, doing: "start a thread for", source }
                };
                Some((stop, started.map_err(io)?))
            }
            _ => None,
        };
        Ok(Ledger(Arc::new(Held { book: Mutex::new(book), checkpointer })))
    }

    /// Opens accounts, each with its number and balance: all of them or none.
    ///
    /// # Errors
    /// [`LedgerError::Refused`]: nothing has changed. Others: it may or may not have happened.
    pub fn open_accounts(&self, accounts: &[(u64, u64)]) -> LedgerResult<()> {
        self.open_before_commit(accounts)?;
        Ok(self.commit()?)
    }

    /// The same without a wait for the medium: nobody is told before [`Ledger::commit`].
    ///
    /// # Errors
    /// As [`Ledger::open_accounts`].
    pub fn open_before_commit(&self, accounts: &[(u64, u64)]) -> LedgerResult<()> {
        self.book().open_accounts(accounts)
    }

    /// Executes a block, as if its orders were executed one after another: all of it or nothing.
    ///
    /// # Errors
    /// [`LedgerError::Refused`]: nothing has changed. Others: it may or may not have happened.
    pub fn execute(&self, block: Block) -> LedgerResult<Executed> {
        let executed = self.execute_before_commit(block)?;
        self.commit()?;
        Ok(executed)
    }

    /// The same without a wait for the medium: nobody is told before [`Ledger::commit`].
    ///
    /// # Errors
    /// As [`Ledger::execute`].
    pub fn execute_before_commit(&self, block: Block) -> LedgerResult<Executed> {
        self.book().execute(block)
    }

    /// Everything that was executed, or can be seen, is as durable as the ledger promises on return.
    ///
    /// # Errors
    /// Those of the medium: the ledger answers nothing more then.
    pub fn commit(&self) -> Result<(), StoreError> {
        self.book().settle()
    }

    /// Executes blocks one after another, with one wait for the medium at the end. A block that is refused is left
    /// out; the others go on.
    ///
    /// # Errors
    /// Those of the medium: the last blocks may or may not have happened.
    pub fn execute_all(
        &self,
        blocks: impl IntoIterator<Item = Block>,
    ) -> LedgerResult<Vec<Result<Executed, Refused>>> {
        let mut book = self.book();
        let all = book.execute_all(blocks)?;
        book.settle()?;
        Ok(all)
    }

    /// Executes one block that comes in pieces, and may be larger than memory; `tell` hears of each. All of it or
    /// nothing: it is durable, whatever the durability, when this returns. Ids are looked at within a piece.
    ///
    /// # Errors
    /// The first piece that is one, or that is refused: nothing has changed. Those of the medium.
    pub fn execute_pieces<E: From<LedgerError>>(
        &self,
        pieces: impl IntoIterator<Item = Result<Block, E>>,
        tell: impl FnMut(&Executed),
    ) -> Result<Sum, E> {
        self.book().execute_pieces(pieces, tell)
    }

    /// What an account holds.
    ///
    /// # Errors
    /// The ledger has stopped.
    pub fn account(&self, number: u64) -> LedgerResult<Option<Account>> {
        let book = self.book();
        book.check()?;
        Ok(book.bank.account(number))
    }

    /// What each of several accounts holds, all at one moment.
    ///
    /// # Errors
    /// The ledger has stopped.
    pub fn look(&self, numbers: &[u64]) -> LedgerResult<Vec<Option<Account>>> {
        let book = self.book();
        book.check()?;
        Ok(numbers.iter().map(|number| book.bank.account(*number)).collect())
    }

    /// Every account, by what the ledger is at one moment: after some block.
    ///
    /// # Errors
    /// The ledger has stopped.
    pub fn accounts(&self) -> LedgerResult<Vec<(u64, Account)>> {
        let book = self.book();
        book.check()?;
        let mut accounts: Vec<_> = book.bank.accounts().iter().collect();
        accounts.sort_unstable_by_key(|(number, _)| *number);
        Ok(accounts)
    }

    /// The hash of the state, and after how many entries it is that.
    ///
    /// # Errors
    /// The ledger has stopped.
    pub fn hash(&self) -> LedgerResult<(u64, Sum)> {
        let book = self.book();
        book.check()?;
        Ok((book.entries, book.bank.hash()))
    }

    /// Whether the hash is that of the accounts, which are all looked at.
    ///
    /// # Errors
    /// The ledger has stopped.
    pub fn verify(&self) -> LedgerResult<bool> {
        let book = self.book();
        book.check()?;
        Ok(book.bank.hash() == Sum::of(book.bank.accounts().iter()))
    }

    /// Everything that was executed is durable on return.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.book().sync()
    }

    /// Changes how blocks are executed.
    pub fn set_engine(&self, engine: LedgerEngine) {
        self.book().bank.set_engine(engine);
    }

    /// How large it is, and what it has done.
    pub fn stats(&self) -> LedgerStats {
        self.book().stats()
    }

    /// Where its accounts are.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn placement(&self) -> LedgerResult<Placement> {
        self.book().placement()
    }

    /// What its orders do.
    pub fn profile(&self) -> Profile {
        self.book().bank.options().profile
    }

    /// Whether both are handles on one ledger.
    pub fn is_same(&self, other: &Ledger) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes everything durable and takes no more. Other handles are told that it is closed.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn close(&self) -> Result<(), StoreError> {
        self.book().close()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock()
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("dir", &self.book().dir).finish_non_exhaustive()
    }
}

/// Syncs until it is told to stop, once an interval and early enough, whatever the ledger is doing: who executes a long
/// block does not hold up the blocks before. An error stops the ledger, and is told to whoever asks next.
fn keep_synced(syncer: &Mutex<Arc<Syncer>>, stop: &(Mutex<bool>, Condvar), interval: Duration) {
    let mut pace = Pace::default();
    let mut is_over = stop.0.lock();
    while !*is_over {
        stop.1.wait_for(&mut is_over, TICK);
        if pace.is_due(interval) {
            let syncer = Arc::clone(&syncer.lock());
            if !syncer.is_synced() {
                let _told_then = MutexGuard::unlocked(&mut is_over, || pace.run(|| syncer.sync()));
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _told_nobody = self.book.lock().close();
        if let Some((stop, checkpointer)) = self.checkpointer.take() {
            *stop.0.lock() = true;
            stop.1.notify_all();
            let _ended = checkpointer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Transfer;
    use super::*;
    use std::time::Instant;
    use terrace_durable::medium::Event;
    use terrace_workload::window::watch;

    const INTERVAL: Duration = Duration::from_millis(400);

    fn open(dir: &Path) -> Ledger {
        let options = LedgerOptions {
            profile: Some(Profile::SmallCoin),
            workers: 1,
            durability: Durability::Interval(INTERVAL),
            ..LedgerOptions::default()
        };
        Ledger::open(dir, &options, &Arc::new(Budget::new(1 << 30))).expect("the ledger")
    }

    fn block(number: u64) -> Block {
        let one = Transfer { id: number + 1, from: 0, to: 1, amount: 1, gas: 0 };
        Block::of_transfers(vec![one]).expect("a block")
    }

    #[test]
    fn blocks_executed_longer_ago_than_the_interval_survive() {
        let dir = tempfile::tempdir().expect("directory");
        let ledger = open(dir.path());
        ledger.open_accounts(&[(0, 1 << 30), (1, 0)]).expect("accounts");
        ledger.sync().expect("sync");
        let syncer = ledger.book().journal.syncer();
        let medium = syncer.medium();
        medium.start_trace();
        let base = std::fs::read(dir.path().join("ledger-1")).expect("base");
        medium.slow_down(50);
        let execute = |number: u64| drop(ledger.execute(block(number)).expect("executed"));
        let watched = watch(8 * INTERVAL, || medium.trace_length(), execute);
        medium.slow_down(0);
        ledger.close().expect("close");
        let events = medium.trace();
        let oldest = watched.oldest_lost(40, |cut| {
            let scratch = tempfile::tempdir().expect("directory");
            let image = Event::least_left(&base, &events[..cut]);
            std::fs::write(scratch.path().join("ledger-1"), image).expect("image");
            open(scratch.path()).stats().entries as usize - 1
        });
        assert!(oldest <= INTERVAL + watched.late, "{oldest:?}, {:?} late", watched.late);
        assert!(oldest > Duration::ZERO, "some cuts came before a sync");
    }

    /// The background flusher waited for the ledger's lock, which a long block holds.
    #[test]
    fn a_long_block_does_not_hold_up_the_blocks_before_it() {
        let dir = tempfile::tempdir().expect("directory");
        let ledger = open(dir.path());
        ledger.open_accounts(&[(0, 1 << 30), (1, 0)]).expect("accounts");
        ledger.execute(block(0)).expect("executed");
        let long_block = ledger.book();
        let begun = Instant::now();
        while !long_block.journal.syncer().is_synced() {
            assert!(begun.elapsed() < 20 * INTERVAL, "nobody syncs");
            std::thread::sleep(INTERVAL / 10);
        }
    }
}
