//! A ledger under crashes: entries executed by a bank and appended to a journal, on a byte-addressable memory and
//! mirrored to a disk whose sectors, or pages, persist in any order until a sync.
//!
//! The script opens accounts and executes blocks, syncs now and then, and fills the log often enough for the state
//! to be rewritten. What recovery finds is executed again by another engine, and must end at a boundary of
//! entries with the hash that the entry says and with the balances of a model; all that was synced is there.
//! Every recovery executes and syncs an entry of its own, unlike the one of its number in the script, so that what
//! an earlier life left behind the end would be found out.

use super::exhaustive::Explored;
use super::maps::{MEMORY_BYTES, OnDisk, in_lines};
use super::{Control, Settings};
use std::collections::BTreeMap;
use terrace_durable::journal::{Step, Steps};
use terrace_durable::{Error, Journal, JournalPiece, JournalShape, Medium};
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_memory::{Backing, Divide, Memory, Native, Region};
use terrace_store::Durability;
use terrace_transact::ledger::accounts::Accounts;
use terrace_transact::ledger::{Account, Bank, BankOptions, Block, LedgerEngine, Sum, Transfer};
use terrace_workload::random::Rng;

const KIND: [u8; 8] = *b"scripted";
/// Entries of the script.
const ENTRIES: u64 = 16;
/// One entry in this many opens accounts; the others are blocks.
const OPENS: u64 = 4;
/// Accounts that an entry opens.
const OPENED: u64 = 2;
/// Accounts that there is room for: those of the script, and of two recoveries.
const ACCOUNTS: u64 = (ENTRIES / OPENS + 2) * OPENED;
/// Words of an account in a state: its number and its balance.
const STATE_WORDS: usize = 2;

const SHAPE: JournalShape = JournalShape {
    kind: KIND,
    state_bytes: ACCOUNTS * STATE_WORDS as u64 * 8,
    log_bytes: 4096,
    words: [0; 8],
};

/// What the thread has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// So many entries.
    Done(u64),
    /// So many are durable.
    Synced(u64),
}

/// What an entry does: opens accounts with balances, or executes transfers.
enum Entry {
    Opens(Vec<(u64, u64)>),
    Block(Vec<Transfer>),
}

/// How many entries the script has done, and which lives after a crash one each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Past {
    script: u64,
    lives: u64,
}

impl Past {
    /// Entries in all.
    fn entries(self) -> u64 {
        self.script + u64::from(self.lives.count_ones())
    }

    /// One more, in life `life`; the script's is 0.
    fn with(self, life: u64) -> Past {
        match life {
            0 => Past { script: self.script + 1, ..self },
            _ => Past { lives: self.lives | 1 << life, ..self },
        }
    }
}

type Balances = BTreeMap<u64, i64>;

/// The entry of a number and life, between the accounts that there are. Entries of one number are equally long.
fn entry(seed: u64, number: u64, life: u64, balances: &Balances) -> Entry {
    let mut random = Rng::new(seed ^ number << 8 ^ life << 40);
    if number.is_multiple_of(OPENS) {
        let opened = number / OPENS * OPENED..(number / OPENS + 1) * OPENED;
        return Entry::Opens(opened.map(|account| (account, 50 + random.below(50))).collect());
    }
    let accounts: Vec<u64> = balances.keys().copied().collect();
    let any = |random: &mut Rng| accounts[random.below(accounts.len() as u64) as usize];
    // Within a sector, and over several.
    let orders = [2, 20, 45][number as usize % 3];
    let transfer = |_| Transfer {
        from: any(&mut random),
        to: any(&mut random),
        amount: random.below(40),
        ..Transfer::default()
    };
    Entry::Block((0..orders).map(transfer).collect())
}

/// What an entry does, as the paper writes it down.
fn apply(balances: &mut Balances, entry: &Entry) {
    match entry {
        Entry::Opens(accounts) => {
            balances.extend(accounts.iter().map(|(number, balance)| (*number, *balance as i64)));
        }
        Entry::Block(transfers) => {
            for transfer in transfers {
                let sum = transfer.amount as i64;
                if balances[&transfer.from] >= sum {
                    *balances.entry(transfer.from).or_default() -= sum;
                    *balances.entry(transfer.to).or_default() += sum;
                }
            }
        }
    }
}

/// Balances after a past.
fn expected(seed: u64, past: Past) -> Balances {
    let lives = (1..64).filter(|life| past.lives >> life & 1 == 1);
    let mut balances = Balances::new();
    for (number, life) in (0..).zip((0..past.script).map(|_| 0).chain(lives)) {
        let next = entry(seed, number, life, &balances);
        apply(&mut balances, &next);
    }
    balances
}

fn balances(bank: &Bank<Native>) -> Balances {
    bank.accounts().iter().map(|(number, account)| (number, account.balance)).collect()
}

fn held(balance: i64) -> Account {
    Account { balance, ..Account::default() }
}

fn execute(bank: &mut Bank<Native>, entry: &Entry) -> Result<(), String> {
    let done = match entry {
        Entry::Opens(accounts) => {
            accounts.iter().try_for_each(|(number, balance)| bank.open(*number, *balance))
        }
        Entry::Block(transfers) => {
            let block = Block::of_transfers(transfers.clone()).map_err(|e| e.to_string())?;
            bank.execute(block).map(|_| ())
        }
    };
    done.map_err(|e| e.to_string())
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    bytes.chunks_exact(8).map(word).collect()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn hash_words(hash: Sum) -> [u64; 2] {
    [hash.0 as u64, (hash.0 >> 64) as u64]
}

/// A bank whose entries are in a journal.
struct Book<M: Memory> {
    bank: Bank<Native>,
    /// Of the accounts; after the bank, which uses it.
    _region: Region,
    journal: Journal<M>,
    past: Past,
}

impl<M: Memory> Book<M> {
    /// Recovers the ledger on a medium.
    fn open(medium: Medium<M>, steps: Steps, engine: LedgerEngine) -> Result<Book<M>, String> {
        let bytes = Accounts::<Native>::bytes_for(ACCOUNTS);
        let region = Region::reserve(bytes, Backing::Anonymous).map_err(|e| e.to_string())?;
        region.commit(0, bytes).map_err(|e| e.to_string())?;
        let options = BankOptions { engine, workers: 1, ..BankOptions::default() };
        let mut bank =
            Bank::over(Accounts::over(region.native().part(0, bytes), ACCOUNTS), options);
        let mut past = Past::default();
        let opened = Journal::open_in(medium, KIND, steps, |piece| match piece {
            JournalPiece::State(_, state, beside) => load(&mut bank, &mut past, state, beside),
            JournalPiece::Record(_, payload) => replay(&mut bank, &mut past, payload),
        });
        let (journal, _) = opened.map_err(|e| e.to_string())?;
        Ok(Book { bank, _region: region, journal, past })
    }

    /// Executes the next entry, in life `life`, and appends it; or the state with it, if the log is full.
    fn go_on(&mut self, seed: u64, life: u64) -> Result<(), String> {
        let number = self.past.entries();
        let next = entry(seed, number, life, &balances(&self.bank));
        execute(&mut self.bank, &next)?;
        self.past = self.past.with(life);
        let hash = hash_words(self.bank.hash());
        let mut payload = vec![life, number, hash[0], hash[1]];
        match &next {
            Entry::Opens(accounts) => accounts.iter().for_each(|(a, b)| payload.extend([*a, *b])),
            Entry::Block(transfers) => {
                transfers.iter().for_each(|t| payload.extend([t.from, t.to, t.amount]));
            }
        }
        let appended = match self.journal.append(&[&bytes(&payload)]) {
            Err(Error::NoRoom { .. }) => {
                let Past { script, lives } = self.past;
                let accounts = balances(&self.bank);
                self.journal.set_state([script, lives, hash[0], hash[1], 0, 0, 0, 0], |pen| {
                    accounts.iter().for_each(|(a, b)| pen.put(&bytes(&[*a, *b as u64])));
                })
            }
            other => other,
        };
        appended.map_err(|e| e.to_string())
    }
}

fn load(
    bank: &mut Bank<Native>,
    past: &mut Past,
    state: &[u8],
    beside: [u64; 8],
) -> Result<(), String> {
    for account in words(state).chunks_exact(STATE_WORDS) {
        bank.restore(account[0], held(account[1] as i64)).map_err(|e| e.to_string())?;
    }
    *past = Past { script: beside[0], lives: beside[1] };
    match hash_words(bank.hash()) == beside[2..4] {
        true => Ok(()),
        false => Err("the state has another hash".into()),
    }
}

fn replay(bank: &mut Bank<Native>, past: &mut Past, payload: &[u8]) -> Result<(), String> {
    let words = words(payload);
    let [life, number, low, high, body @ ..] = &words[..] else {
        return Err("a record without a head".into());
    };
    if *number != past.entries() {
        return Err(format!("entry {number} stands where {} should", past.entries()));
    }
    let next = match number.is_multiple_of(OPENS) {
        true => Entry::Opens(body.chunks_exact(2).map(|words| (words[0], words[1])).collect()),
        false => Entry::Block(body.chunks_exact(3).map(transfer).collect()),
    };
    execute(bank, &next)?;
    *past = past.with(*life);
    match hash_words(bank.hash()) == [*low, *high] {
        true => Ok(()),
        false => Err(format!("entry {number} ends with another hash")),
    }
}

fn transfer(words: &[u64]) -> Transfer {
    Transfer { from: words[0], to: words[1], amount: words[2], ..Transfer::default() }
}

fn run<M: Memory>(mut book: Book<M>, seed: u64, log: &Log<Note>) {
    let mut random = Rng::new(seed);
    for done in 1..=ENTRIES {
        book.go_on(seed, 0).expect("room");
        log.note(Note::Done(done));
        if random.below(3) == 0 {
            book.journal.sync().expect("a sync");
        }
        if book.journal.syncer().is_synced() {
            log.note(Note::Synced(done));
        }
    }
}

/// What recovery may leave: all that was synced, at most one entry that was not told, and the last life's entry.
fn judge<M: Memory>(
    notes: &[Noted<Note>],
    seed: u64,
    life: u64,
    found: &Book<M>,
) -> Result<(), String> {
    let (done, synced) = notes.iter().fold((0, 0), |(done, synced), note| match note.event {
        Note::Done(done) => (done, synced),
        Note::Synced(synced) => (done, synced),
    });
    let past = found.past;
    if !(synced..=done + 1).contains(&past.script) {
        return Err(format!("{done} entries, {synced} of them synced: {} are there", past.script));
    }
    if past.lives >> life & 1 == 0 {
        return Err(format!("what life {life} synced is gone: {past:?}"));
    }
    let expected = expected(seed, past);
    let accounts = expected.iter().map(|(number, balance)| (*number, held(*balance)));
    match balances(&found.bank) == expected && found.bank.hash() == Sum::of(accounts) {
        true => Ok(()),
        false => Err(format!("{past:?}: found {:?}, expected {expected:?}", balances(&found.bank))),
    }
}

/// The script on a medium that `medium` makes of the explorer's memory; new, if it is told so.
fn explorer_on<M: Memory>(
    medium: impl Fn(&Crashable, bool) -> Medium<M> + Clone + Send + Sync + 'static,
    steps: Steps,
    settings: &Settings,
    memory_bytes: u64,
) -> Explorer<Note> {
    let (made, ran, recovered, looked) = (medium.clone(), medium.clone(), medium.clone(), medium);
    let seed = settings.seed;
    Explorer::new(settings.domain, memory_bytes)
        .setup(move |memory| {
            drop(Journal::create(made(memory, true), SHAPE, [0; 8], |_| {}).expect("a journal"));
        })
        .thread(move |memory, log| {
            let book =
                Book::open(ran(memory, false), steps, LedgerEngine::Orangutan).expect("the ledger");
            run(book, seed, log);
        })
        .recover(move |memory| {
            let opened = Book::open(recovered(memory, false), steps, LedgerEngine::Sequential);
            let mut book = opened.expect("a crash is no damage");
            book.go_on(seed, memory.crashes() as u64).expect("room");
            book.journal.sync().expect("a sync");
        })
        .check(move |memory, notes: &[Noted<Note>]| {
            let found = Book::open(looked(memory, false), steps, LedgerEngine::Dag)?;
            judge(notes, seed, memory.crashes() as u64, &found)
        })
        .crashes(2)
}

fn in_memory(steps: Steps, settings: &Settings) -> Explorer<Note> {
    let medium = |memory: &Crashable, is_new: bool| {
        Medium::over(memory.clone(), is_new, 1 + memory.crashes() as u32)
    };
    explorer_on(medium, steps, settings, SHAPE.bytes())
}

fn on_disk(steps: Steps, settings: &Settings) -> Explorer<Note> {
    let disk = OnDisk::new(Durability::Sync, true, settings);
    let medium = move |memory: &Crashable, is_new: bool| {
        let mut medium = disk.medium(memory, is_new, 1 + memory.crashes() as u32);
        if !is_new {
            medium.read_all().expect("a disk");
        }
        medium
    };
    explorer_on(medium, steps, &in_lines(settings), MEMORY_BYTES)
}

pub(super) fn memory(settings: &Settings) -> Explorer<Note> {
    in_memory(Steps::ALL, settings)
}

pub(super) fn disk(settings: &Settings) -> Explorer<Note> {
    on_disk(Steps::ALL, settings)
}

/// Every step left out. In a byte-addressable memory one record at most is not durable, so that none is ever left
/// behind one that is gone: there an opening need not be told from the last.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let is_on_disk = test == "ledger-disk";
    let explorer = if is_on_disk { on_disk } else { in_memory };
    let steps = Step::ALL.iter().filter(|step| is_on_disk || **step != Step::RecordSession);
    let run = |step: &Step| {
        let steps = Steps::ALL.without(&[*step]);
        let explore = |settings: &Settings| explorer(steps, settings).left_out(settings);
        let control = Control::of(&format!("{step:?}"), step.meaning(), test, settings, explore);
        tell(&control);
        control
    };
    steps.map(run).collect()
}
