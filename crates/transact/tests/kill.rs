//! kill -9 while blocks are executed under `sync`: what was told is there, and the state is that of a model after
//! some entry at or behind the last one that was told.
//!
//! The child is this test program, told by its environment to be one. It prints the number of each entry when it
//! has been acknowledged; the parent kills it somewhere, opens the ledger and looks. The next child goes on from
//! there. A child that tells before it executes is the control: it must be caught.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use terrace_memory::Budget;
use terrace_store::Durability;
use terrace_transact::ledger::{Block, Ledger, LedgerEngine, LedgerOptions, Profile, Transfer};
use terrace_workload::random::Rng;

/// Tells a child its directory; and, if it is set, that it is to tell too early.
const DIRECTORY: &str = "TERRACE_KILL_DIRECTORY";
const EARLY: &str = "TERRACE_KILL_EARLY";
const ROUNDS: u64 = 25;
/// Every so many entries open accounts; the others are blocks.
const OPENS: u64 = 50;
const OPENED: u64 = 20;

enum Entry {
    Opens(Vec<(u64, u64)>),
    Block(Vec<Transfer>),
}

/// What entry `number` does, whoever executes it.
fn entry(number: u64) -> Entry {
    let mut random = Rng::new(number);
    let opened = (number / OPENS + 1) * OPENED;
    if number.is_multiple_of(OPENS) {
        return Entry::Opens((opened - OPENED..opened).map(|n| (n, random.below(500))).collect());
    }
    let one = |_| Transfer {
        id: 0,
        from: random.below(opened),
        to: random.below(opened),
        amount: random.below(50),
        gas: random.below(3),
    };
    Entry::Block((0..1 + number % 90).map(one).collect())
}

/// Balances after so many entries, as the paper writes them down.
fn model(entries: u64) -> BTreeMap<u64, i64> {
    let mut balances = BTreeMap::new();
    for number in 0..entries {
        match entry(number) {
            Entry::Opens(accounts) => {
                balances
                    .extend(accounts.iter().map(|(number, balance)| (*number, *balance as i64)));
            }
            Entry::Block(transfers) => {
                for Transfer { from, to, amount, gas, .. } in transfers {
                    let (gas, amount) = (gas as i64, amount as i64);
                    let had = balances[&from];
                    let paid = if had < gas {
                        0
                    } else if had < gas + amount {
                        gas
                    } else {
                        gas + amount
                    };
                    *balances.get_mut(&from).expect("opened") -= paid;
                    if had >= gas + amount {
                        *balances.get_mut(&to).expect("opened") += amount;
                    }
                }
            }
        }
    }
    balances
}

fn open(dir: &Path, engine: LedgerEngine) -> Ledger {
    let options = LedgerOptions {
        profile: Some(Profile::SmallCoinPlus),
        durability: Durability::Sync,
        workers: 2,
        engine,
        // Full after a few dozen blocks.
        log_bytes: 64 << 10,
        ..LedgerOptions::default()
    };
    Ledger::open(dir, &options, &Arc::new(Budget::new(1 << 30))).expect("a kill is no damage")
}

/// Not a test: what the parents below run and kill.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let is_early = std::env::var_os(EARLY).is_some();
    let ledger = open(Path::new(&dir), LedgerEngine::Orangutan);
    for number in ledger.hash().expect("whole").0.. {
        if is_early {
            println!("\nexecuted {}", number + 1);
            std::thread::sleep(Duration::from_millis(2));
        }
        match entry(number) {
            Entry::Opens(accounts) => ledger.open_accounts(&accounts).expect("new ones"),
            Entry::Block(transfers) => {
                let block = Block::of_transfers(transfers).expect("a block");
                drop(ledger.execute(block).expect("accounts that there are"));
            }
        }
        if !is_early {
            println!("\nexecuted {}", number + 1);
        }
    }
}

/// Runs a child for a moment from its first entry on and kills it; how many entries it said were executed.
fn killed(dir: &Path, is_early: bool, moment: Duration) -> u64 {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["kill::child", "--exact", "--nocapture"])
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped());
    if is_early {
        command.env(EARLY, "1");
    }
    let mut child = command.spawn().expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let told = std::thread::spawn(move || {
        let numbers = lines.map_while(Result::ok).filter_map(|line| {
            let number = line.strip_prefix("executed ")?.parse::<u64>().ok();
            let _only_the_first_is_waited_for = begun.send(());
            number
        });
        numbers.last()
    });
    has_begun.recv().expect("it executes something");
    std::thread::sleep(moment);
    child.kill().expect("a child that runs");
    let status = child.wait().expect("a child");
    assert!(!status.success(), "it was killed");
    told.join().expect("read to the end").unwrap_or(0)
}

/// What is wrong with a ledger whose child said that it had executed so many entries.
fn judge(dir: &Path, told: u64) -> Result<u64, String> {
    let ledger = open(dir, LedgerEngine::Sequential);
    let (entries, _) = ledger.hash().map_err(|e| e.to_string())?;
    if entries < told {
        return Err(format!("{told} entries were told, {entries} are there"));
    }
    let found = ledger.accounts().map_err(|e| e.to_string())?;
    let found: BTreeMap<u64, i64> =
        found.into_iter().map(|(n, account)| (n, account.balance)).collect();
    if found != model(entries) {
        return Err(format!("the state is not that after {entries} entries"));
    }
    match ledger.verify() {
        Ok(true) => Ok(entries),
        other => Err(format!("the hash is not that of the accounts: {other:?}")),
    }
}

fn moment(random: &mut Rng) -> Duration {
    Duration::from_millis(20 + random.below(120))
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let dir = tempfile::tempdir().expect("directory");
    let mut random = Rng::new(9);
    let mut last = 0;
    for round in 0..ROUNDS {
        let told = killed(dir.path(), false, moment(&mut random));
        let entries = judge(dir.path(), told).unwrap_or_else(|why| panic!("round {round}: {why}"));
        assert!(entries >= last, "round {round}: {last} entries were there before, {entries} now");
        last = entries;
    }
    assert!(last > ROUNDS, "children were killed before they had executed anything: {last}");
}

/// Without this the test above might pass since nobody looks.
#[test]
fn a_child_that_tells_too_early_is_caught() {
    let dir = tempfile::tempdir().expect("directory");
    let mut random = Rng::new(4);
    let caught = (0..ROUNDS).find_map(|_| {
        let told = killed(dir.path(), true, moment(&mut random));
        judge(dir.path(), told).err()
    });
    assert!(caught.expect("caught").contains("are there"));
}
