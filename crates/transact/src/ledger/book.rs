//! A ledger: a bank whose blocks are in a journal.
//!
//! # What is durable when
//! * A block is executed in memory first, since whether its orders are carried out, and the hash after it, are part
//!   of what is kept; then it is appended to the journal as one record, and under `sync` synced before anybody is
//!   told. Nobody sees the accounts in between: the ledger is held until then.
//! * A crash leaves a prefix of the blocks, each whole or not there: under `sync` all that were answered, under
//!   `interval` all but those of the last interval.
//! * When the log is full the state is written beside the last one, and replaces it with all of its log at once.
//! * More accounts than a file has room for make a new file, whole before it gets its name; the old one goes then.
//! * Recovery executes the blocks of the log again and compares the hash after each: another is damage, or an engine
//!   that is wrong, and is named.
//! * After a failed write nothing more is told: memory may be ahead of the file. Opening it again decides.

use super::Profile;
use super::bank::{Bank, BankOptions, Executed, Refused};
use super::block::Block;
use super::handle::{LedgerError, LedgerOptions, LedgerResult, LedgerStats};
use super::record::{self, Entered};
use super::sum::Sum;
use crate::ledger::accounts::{Account, Accounts};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_durable::journal::Syncer;
use terrace_durable::{
    Journal, JournalPiece, JournalShape, Medium, MediumSpec, Replayed, StatePen,
};
use terrace_memory::binding::Placement;
use terrace_memory::{Backing, Budget, Divide, Native, Region};
use terrace_store::{DirectoryLock, Durability, Error as StoreError};

const KIND: [u8; 8] = *b"ledger\0\0";
/// Accounts that a new ledger has room for; with more it grows.
const FIRST_ACCOUNTS: u64 = 14 << 10;

/// The ledger itself.
pub(super) struct Book {
    pub dir: PathBuf,
    pub options: LedgerOptions,
    pub bank: Bank<Native>,
    /// Of the accounts; after the bank, which uses it.
    region: Region,
    pub journal: Journal,
    /// Of the journal, for the background flusher.
    pub syncer: Arc<Mutex<Arc<Syncer>>>,
    /// Which file it is in.
    file: u64,
    pub entries: u64,
    replayed: u64,
    damage: Option<String>,
    /// Why it answers nothing any more.
    pub stopped: Option<String>,
    budget: Arc<Budget>,
    budget_bytes: u64,
    lock: DirectoryLock,
}

/// A bank, and the memory of its accounts.
type Made = (Bank<Native>, Region);

/// A bank over memory of its own, on a node if one is named.
fn bank_for(accounts: u64, options: BankOptions, node: Option<u32>) -> LedgerResult<Made> {
    let bytes = Accounts::<Native>::bytes_for(accounts);
    let io =
        |doing| move |source| StoreError::Io { path: "memory of accounts".into(), doing, source };
    let region = Region::reserve(bytes, Backing::HugePages).map_err(io("reserve"))?;
    if let Some(node) = node {
        region.bind_untouched(node).map_err(std::io::Error::other).map_err(io("bind"))?;
    }
    region.commit(0, bytes).map_err(io("commit"))?;
    let bank = Bank::over(Accounts::over(region.native().part(0, bytes), accounts), options);
    Ok((bank, region))
}

/// The journal of a bank with room for so many accounts.
fn shape(accounts: u64, bank: BankOptions, log_bytes: u64) -> JournalShape {
    let profile = Profile::ALL.iter().position(|profile| *profile == bank.profile);
    let mut words = [0; 8];
    (words[0], words[1]) = (profile.unwrap_or(0) as u64, bank.overdraft);
    JournalShape { kind: KIND, state_bytes: accounts * record::STATE_BYTES, log_bytes, words }
}

/// The bank that the options ask for, where its maker left nothing else.
fn wanted(options: &LedgerOptions) -> BankOptions {
    BankOptions {
        profile: options.profile.unwrap_or_default(),
        overdraft: options.overdraft.unwrap_or(0),
        engine: options.engine,
        workers: options.workers,
    }
}

fn medium(dir: &Path, file: u64, bytes: u64, options: &LedgerOptions) -> LedgerResult<Medium> {
    let path = dir.join(format!("ledger-{file}"));
    let there = std::fs::metadata(&path).map_or(0, |found| found.len());
    Ok(Medium::open(&MediumSpec {
        path,
        domain: options.domain,
        dax: options.dax,
        capacity_bytes: there.max(bytes).next_multiple_of(2 << 20),
        access: options.access,
    })?)
}

/// Numbers of the files in a ledger's directory, the newest first.
fn files(dir: &Path) -> LedgerResult<Vec<u64>> {
    let io = |source| StoreError::Io { path: dir.into(), doing: "list", source };
    let mut numbers: Vec<u64> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("ledger-")?.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    Ok(numbers)
}

impl Book {
    pub fn open(dir: &Path, options: &LedgerOptions, budget: &Arc<Budget>) -> LedgerResult<Book> {
        let lock = DirectoryLock::take(dir, options.access)?;
        lock.check_there(dir)?;
        let files = files(dir)?;
        let mut book = match files.first() {
            None => Book::make(dir, options, budget, lock)?,
            Some(file) => Book::recover(dir, options, budget, lock, *file)?,
        };
        // A newer file has the name of one that is whole: the older ones are what it was made from.
        for old in files.iter().filter(|file| **file < book.file && options.access.writes()) {
            let path = dir.join(format!("ledger-{old}"));
            let removed = std::fs::remove_file(&path);
            removed.map_err(|source| StoreError::Io { path, doing: "remove", source })?;
        }
        if options.access.writes() {
            book.lock.note_made("ledger-");
        }
        book.take_budget()?;
        Ok(book)
    }

    fn make(
        dir: &Path,
        options: &LedgerOptions,
        budget: &Arc<Budget>,
        lock: DirectoryLock,
    ) -> LedgerResult<Book> {
        if !options.access.writes() {
            let (path, source) = (dir.join("ledger-1"), std::io::ErrorKind::NotFound.into());
            return Err(StoreError::Io { path, doing: "open", source }.into());
        }
        let shape = shape(FIRST_ACCOUNTS, wanted(options), options.log_bytes);
        let medium = medium(dir, 1, shape.bytes(), options)?;
        let journal = Journal::create(medium, shape, [0; 8], |_| {})?;
        let made = bank_for(FIRST_ACCOUNTS, wanted(options), options.node)?;
        Ok(Book::of(dir, options, made, journal, budget, lock))
    }

    fn recover(
        dir: &Path,
        options: &LedgerOptions,
        budget: &Arc<Budget>,
        lock: DirectoryLock,
        file: u64,
    ) -> LedgerResult<Book> {
        let found = Recovered::read(dir, options, file)?;
        let mut book = Book::of(dir, options, found.made, found.journal, budget, lock);
        (book.file, book.entries) = (file, found.entries);
        (book.replayed, book.damage) = (found.replayed.records, found.replayed.damage);
        Ok(book)
    }

    fn of(
        dir: &Path,
        options: &LedgerOptions,
        (bank, region): Made,
        journal: Journal,
        budget: &Arc<Budget>,
        lock: DirectoryLock,
    ) -> Book {
        Book {
            dir: dir.into(),
            options: options.clone(),
            bank,
            region,
            syncer: Arc::new(Mutex::new(journal.syncer())),
            journal,
            file: 1,
            entries: 0,
            replayed: 0,
            damage: None,
            stopped: None,
            budget: Arc::clone(budget),
            budget_bytes: 0,
            lock,
        }
    }

    pub fn stats(&self) -> LedgerStats {
        LedgerStats {
            accounts: self.bank.accounts().len(),
            entries: self.entries,
            hash: self.bank.hash(),
            memory_bytes: self.memory_bytes(),
            log_bytes: self.journal.log_used_bytes(),
            replayed: self.replayed,
            damage: self.damage.clone(),
        }
    }

    /// Accounts that the file has room for.
    fn room(&self) -> u64 {
        self.journal.shape().state_bytes / record::STATE_BYTES
    }

    /// Where its accounts are.
    pub fn placement(&self) -> LedgerResult<Placement> {
        let found = self.region.placement(self.bank.accounts().bytes());
        let (path, doing) = ("memory of accounts".into(), "ask for the nodes of");
        let io = |source| StoreError::Io { path, doing, source: std::io::Error::other(source) };
        Ok(found.map_err(io)?)
    }

    pub fn memory_bytes(&self) -> u64 {
        self.bank.accounts().bytes() + self.journal.shape().bytes()
    }

    /// Counts what it uses now against the budget.
    fn take_budget(&mut self) -> LedgerResult<()> {
        let bytes = self.memory_bytes();
        if bytes > self.budget_bytes && self.budget.take(bytes - self.budget_bytes).is_err() {
            let (used, budget) = (self.budget.used(), self.budget.limit());
            return Err(StoreError::OutOfMemory { used, budget }.into());
        }
        self.budget_bytes = self.budget_bytes.max(bytes);
        Ok(())
    }

    pub fn check(&self) -> LedgerResult<()> {
        // The background flusher may have met a failure.
        match self.stopped.as_deref().or(self.journal.failure()) {
            Some(reason) => Err(StoreError::ReadOnly(reason.into()).into()),
            None => Ok(()),
        }
    }

    fn check_writable(&self) -> LedgerResult<()> {
        self.check()?;
        match self.options.access.refusal() {
            Some(reason) => Err(StoreError::ReadOnly(reason.into()).into()),
            None => Ok(()),
        }
    }

    /// What was executed goes to the journal. An error is the ledger's end: memory is ahead of the file.
    pub(super) fn keep(&mut self, kind: u64, body: &[u8]) -> LedgerResult<()> {
        let kept = append(&mut self.journal, &mut self.entries, &self.bank, kind, body);
        self.stop_on_error(kept)
    }

    fn stop_on_error<E: ToString>(&mut self, result: Result<(), E>) -> Result<(), E> {
        if let Err(error) = &result {
            self.stopped.get_or_insert_with(|| error.to_string());
        }
        result
    }

    /// Everything executed is durable on return.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        let synced = self.journal.sync().map_err(StoreError::from);
        self.stop_on_error(synced)
    }

    /// What the durability asks for before something is told.
    pub fn settle(&mut self) -> Result<(), StoreError> {
        if self.options.durability == Durability::Sync { self.sync() } else { Ok(()) }
    }

    pub fn open_accounts(&mut self, accounts: &[(u64, u64)]) -> LedgerResult<()> {
        self.check_writable()?;
        self.bank.check_new(accounts)?;
        if self.bank.accounts().len() + accounts.len() as u64 > self.room() {
            self.grow(accounts.len() as u64)?;
        }
        for (number, balance) in accounts {
            let account = Account { balance: *balance as i64, ..Account::default() };
            self.bank.restore(*number, account).expect("it was checked, and there is room");
        }
        let (kind, body) = record::opened(accounts);
        self.keep(kind, &body)
    }

    /// Makes room for so many more accounts: a larger table, and a new file with everything in it. The old file is
    /// what counts until the new one has its name.
    fn grow(&mut self, more: u64) -> LedgerResult<()> {
        let wanted = (2 * self.room()).max(self.bank.accounts().len() + more);
        let shape = shape(wanted, self.bank.options(), self.journal.shape().log_bytes);
        let bytes = Accounts::<Native>::bytes_for(wanted) + shape.bytes();
        let extra = bytes.saturating_sub(self.budget_bytes);
        if self.budget.take(extra).is_err() {
            let (used, budget) = (self.budget.used(), self.budget.limit());
            return Err(StoreError::OutOfMemory { used, budget }.into());
        }
        self.budget_bytes += extra;
        let (mut bank, region) = bank_for(wanted, self.bank.options(), self.options.node)?;
        for (number, account) in self.bank.accounts().iter() {
            bank.restore(number, account)?;
        }
        let medium = medium(&self.dir, self.file + 1, shape.bytes(), &self.options)?;
        let words = state_words(&bank, self.entries);
        let journal = Journal::create(medium, shape, words, |pen| put_state(&bank, pen))?;
        let old = self.dir.join(format!("ledger-{}", self.file));
        (self.bank, self.region) = (bank, region);
        self.goes_on_in(journal);
        self.file += 1;
        // One that stays is removed by the next opening.
        let _stays_until_then = std::fs::remove_file(old);
        Ok(())
    }

    pub fn execute(&mut self, block: Block) -> LedgerResult<Executed> {
        self.check_writable()?;
        let (kind, body) = record::body(&block);
        self.begin();
        let executed = self.bank.execute(block);
        self.stopped = None;
        let executed = executed?;
        self.keep(kind, &body)?;
        Ok(Executed { entry: self.entries, ..executed })
    }

    /// Executes blocks one after another, and keeps each as [`Book::execute`] does. A refused one is left out.
    pub fn execute_all(
        &mut self,
        blocks: impl IntoIterator<Item = Block>,
    ) -> LedgerResult<Vec<Result<Executed, Refused>>> {
        self.check_writable()?;
        // Blocks come from the caller's code, which may panic between two of them.
        self.begin();
        let (mut all, bodies) = (Vec::new(), RefCell::new(VecDeque::new()));
        let Book { bank, journal, entries, .. } = self;
        let blocks = blocks.into_iter().inspect(|block| {
            bodies.borrow_mut().push_back(record::body(block));
        });
        let kept = bank.execute_all(blocks, |bank, executed| {
            let (kind, body) = bodies.borrow_mut().pop_front().expect("of every block");
            all.push(match executed {
                Ok(executed) => {
                    append(journal, entries, bank, kind, &body)?;
                    Ok(Executed { entry: *entries, ..executed })
                }
                Err(refused) => Err(refused),
            });
            Ok::<_, LedgerError>(())
        });
        self.stopped = None;
        self.stop_on_error(kept)?;
        Ok(all)
    }

    /// From here until memory is known to be at the end of an entry nothing is told, should somebody panic.
    fn begin(&mut self) {
        self.stopped = Some("a block was left half done; open the ledger again".into());
    }

    /// Executes one block that is too long to be held at once: its pieces one after another, without the journal;
    /// then the state with all of them replaces the one without. Should a piece be refused, memory is read anew
    /// from the file, which knows nothing of the block.
    pub fn execute_pieces<E: From<LedgerError>>(
        &mut self,
        pieces: impl IntoIterator<Item = Result<Block, E>>,
        mut tell: impl FnMut(&Executed),
    ) -> Result<Sum, E> {
        self.check_writable()?;
        // The pieces and who hears of them are the caller's code, and may panic between two of them.
        self.begin();
        for piece in pieces {
            let executed = piece.and_then(|block| {
                self.bank.execute(block).map_err(|refused| E::from(LedgerError::from(refused)))
            });
            match executed {
                Ok(executed) => tell(&executed),
                Err(error) => {
                    self.read_anew()?;
                    return Err(error);
                }
            }
        }
        self.entries += 1;
        save_state(&mut self.journal, &self.bank, self.entries)?;
        self.stopped = None;
        Ok(self.bank.hash())
    }

    fn read_anew(&mut self) -> LedgerResult<()> {
        // Until it is read, nothing may be told.
        self.stopped =
            Some("a block was taken back, and its ledger could not be read again".into());
        let found = Recovered::read(&self.dir, &self.options, self.file)?;
        (self.bank, self.region) = found.made;
        self.goes_on_in(found.journal);
        self.entries = found.entries;
        self.stopped = None;
        Ok(())
    }

    /// Another journal has everything that the last one had, durably.
    fn goes_on_in(&mut self, journal: Journal) {
        *self.syncer.lock() = journal.syncer();
        self.journal = journal;
    }

    pub fn close(&mut self) -> Result<(), StoreError> {
        if self.stopped.is_some() || !self.options.access.writes() {
            return Ok(());
        }
        self.stopped = Some("it was closed".into());
        Ok(self.journal.close()?)
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        // Whoever wants to know closes it.
        let _told_nobody = self.close();
        self.budget.give(self.budget_bytes);
    }
}

/// Puts what was executed as entry `entries` into the journal, or all of it into the state if the log is full: memory
/// holds it already.
fn append(
    journal: &mut Journal,
    entries: &mut u64,
    bank: &Bank<Native>,
    kind: u64,
    body: &[u8],
) -> LedgerResult<()> {
    let head = record::head(kind, *entries, bank.hash());
    *entries += 1;
    match journal.append(&[&head, body]) {
        Err(terrace_durable::Error::NoRoom { .. }) => save_state(journal, bank, *entries),
        other => Ok(other?),
    }
}

fn save_state(journal: &mut Journal, bank: &Bank<Native>, entries: u64) -> LedgerResult<()> {
    journal.set_state(state_words(bank, entries), |pen| put_state(bank, pen))?;
    Ok(())
}

fn put_state(bank: &Bank<Native>, pen: &mut StatePen<'_, Native>) {
    let accounts = bank.accounts().iter();
    accounts.for_each(|(number, account)| pen.put(&record::in_state(number, &account)));
}

fn state_words(bank: &Bank<Native>, entries: u64) -> [u64; 8] {
    let hash = bank.hash().0;
    [entries, hash as u64, (hash >> 64) as u64, 0, 0, 0, 0, 0]
}

/// What a ledger's file holds, executed again.
struct Recovered {
    made: Made,
    journal: Journal,
    entries: u64,
    replayed: Replayed,
}

/// The entry that was refused, and why.
type End = (u64, String);

impl Recovered {
    /// Under salvage, what was there before the first entry that is refused.
    fn read(dir: &Path, options: &LedgerOptions, file: u64) -> LedgerResult<Recovered> {
        let (found, refused) = Recovered::read_until(dir, options, file, None)?;
        match refused {
            None => Ok(found),
            // It was executed before its hash was seen to be another: once more, without it.
            Some(end) => Ok(Recovered::read_until(dir, options, file, Some(end))?.0),
        }
    }

    /// Replays the entries before `end`; says which entry was executed and then refused.
    fn read_until(
        dir: &Path,
        options: &LedgerOptions,
        file: u64,
        end: Option<End>,
    ) -> LedgerResult<(Recovered, Option<End>)> {
        let medium = medium(dir, file, 0, options)?;
        let path = medium.path().to_path_buf();
        let (mut made, mut entries, mut refused) = (None, 0, None);
        // An error that says more than that a piece was not taken.
        let mut failed = None;
        let mut take = |piece: JournalPiece<'_>| match piece {
            JournalPiece::State(shape, state, words) => {
                let bank = as_made(&path, shape, options).and_then(|bank| {
                    bank_for(shape.state_bytes / record::STATE_BYTES, bank, options.node)
                });
                let bank = bank.map_err(|error| {
                    let words = error.to_string();
                    failed = Some(error);
                    words
                })?;
                entries = words[0];
                load(&mut made.insert(bank).0, state, words)
            }
            JournalPiece::Record(_, bytes) => {
                if let Some((_, why)) = end.as_ref().filter(|(entry, _)| *entry == entries) {
                    return Err(why.clone());
                }
                let (bank, _) = made.as_mut().ok_or("a record comes before the state")?;
                replay(bank, bytes, entries)
                    .inspect_err(|why| refused = Some((entries, why.clone())))?;
                entries += 1;
                Ok(())
            }
        };
        let opened = Journal::open(medium, KIND, &mut take);
        if let Some(error) = failed {
            return Err(error);
        }
        let (journal, replayed) = opened?;
        let made = made.expect("a journal that opens has a state");
        Ok((Recovered { made, journal, entries, replayed }, refused))
    }
}

/// Fills a bank with the accounts of a state, whose hash must be what stands beside it.
fn load(bank: &mut Bank<Native>, state: &[u8], words: [u64; 8]) -> Result<(), String> {
    for (number, account) in record::of_state(state) {
        bank.restore(number, account).map_err(|error| error.to_string())?;
    }
    let expected = Sum(u128::from(words[1]) | u128::from(words[2]) << 64);
    match bank.hash() == expected {
        true => Ok(()),
        false => Err(format!("the state has the hash {}, and should have {expected}", bank.hash())),
    }
}

/// Executes an entry of the log again.
fn replay(bank: &mut Bank<Native>, bytes: &[u8], entries: u64) -> Result<(), String> {
    let entry = record::read(bytes)?;
    if entry.number != entries {
        return Err(format!("entry {} stands where {entries} should", entry.number));
    }
    let taken = match entry.what {
        Entered::Opened(accounts) => {
            accounts.iter().try_for_each(|(number, balance)| bank.open(*number, *balance))
        }
        Entered::Block(block) => bank.execute(block).map(|_| ()),
    };
    taken.map_err(|error| format!("entry {entries}: {error}"))?;
    match bank.hash() == entry.hash {
        true => Ok(()),
        false => Err(format!(
            "entry {entries} ends with the hash {}, and ended with {} when it was first executed",
            bank.hash(),
            entry.hash
        )),
    }
}

/// The bank that a file was made for, which must be what is asked for, where something is.
fn as_made(
    path: &Path,
    found: &JournalShape,
    options: &LedgerOptions,
) -> LedgerResult<BankOptions> {
    let mismatch = |field, found: String, wanted: String| {
        let path = path.to_path_buf();
        Err(terrace_durable::Error::Mismatch { path, field, found, wanted }.into())
    };
    let Some(profile) = Profile::ALL.get(found.words[0] as usize).copied() else {
        return mismatch(
            "profile",
            found.words[0].to_string(),
            wanted(options).profile.to_string(),
        );
    };
    if let Some(wanted) = options.profile.filter(|wanted| *wanted != profile) {
        return mismatch("profile", profile.to_string(), wanted.to_string());
    }
    let overdraft = found.words[1];
    if let Some(wanted) = options.overdraft.filter(|wanted| *wanted != overdraft) {
        return mismatch("overdraft", overdraft.to_string(), wanted.to_string());
    }
    Ok(BankOptions { profile, overdraft, ..wanted(options) })
}
