//! Kill -9 of a process that moves money in transactions, again and again on one directory: the sum is what it was, and
//! every commit that was acknowledged is there.
//!
//! The process is this test binary, started anew with `TERRACE_BANK_DIR`. Each transaction also counts in a key of its
//! thread; what is acknowledged is noted in a file that outlives the process. In places called `two-` the accounts lie
//! in two maps. The control writes the same without transactions: there money is lost or made.
//!
//! 6 cycles of each kind of map; `TERRACE_LONG=1` makes it 100.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use terrace_memory::Domain;
use terrace_store::{Durability, Error, Kind, Map, MapOptions, Moments, Together, ValueDesign};
use terrace_workload::random::Rng;

const THREADS: u64 = 3;
const ACCOUNTS: u64 = 40;
const BALANCE: u64 = 1_000;

fn options(place: &str) -> MapOptions {
    // So short that checkpoints come and go, and so long that none comes.
    let [short, hour] =
        [Duration::from_millis(10), Duration::from_secs(3600)].map(Durability::Interval);
    let hash = MapOptions { writers: THREADS as usize, durability: short, ..MapOptions::default() };
    match place.trim_start_matches("two-") {
        "interval" | "parts" => hash,
        "hour" => MapOptions { durability: hour, ..hash },
        "sync" => MapOptions { durability: Durability::Sync, ..hash },
        "adr" => MapOptions { domain: Domain::Adr, values: ValueDesign::Log, ..hash },
        "ordered" => MapOptions { kind: Kind::Ordered, ..hash },
        other => panic!("no place {other}"),
    }
}

/// The maps, of one clock: two, or one that is in the place of both.
struct Bank {
    moments: Arc<Moments>,
    maps: [Map; 2],
}

impl Bank {
    fn open(dir: &Path, place: &str) -> Bank {
        let moments = Arc::<Moments>::default();
        let options = MapOptions { moments: Arc::clone(&moments), ..options(place) };
        let together = Together::in_directory(dir, &options).expect("a commit journal");
        let open = |name: &str| {
            let database = Some(together.map(name));
            Map::open(&dir.join(name), MapOptions { database, ..options.clone() }).expect("open")
        };
        let first = open("map");
        let second = if place.starts_with("two-") { open("other") } else { first.clone() };
        Bank { moments, maps: [first, second] }
    }

    /// The map of an account.
    fn of(&self, account: u64) -> &Map {
        &self.maps[account as usize % 2]
    }
}

fn account(number: u64) -> Vec<u8> {
    format!("account {number}").into_bytes()
}

fn counter(thread: u64) -> Vec<u8> {
    format!("commits of {thread}").into_bytes()
}

fn number(bytes: Option<Vec<u8>>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// What the killed process does; nothing in an ordinary run of the tests.
#[test]
fn the_bank_that_is_killed() {
    let of = std::env::var("TERRACE_BANK_DIR").ok().zip(std::env::var("TERRACE_BANK_PLACE").ok());
    let Some((dir, place)) = of else { return };
    let dir = Path::new(&dir);
    let bank = Bank::open(dir, &place);
    let acknowledged =
        std::fs::File::options().write(true).open(dir.join("acknowledged")).expect("file");
    if bank.maps[0].is_empty() {
        let opened = bank.moments.transaction(|transaction| {
            let open =
                |number| transaction.put(bank.of(number), &account(number), &BALANCE.to_le_bytes());
            (0..ACCOUNTS).try_for_each(open)
        });
        opened.expect("accounts");
    }
    println!("ready");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (bank, acknowledged) = (&bank, &acknowledged);
            let in_parts = place == "parts";
            scope.spawn(move || {
                let mut rng = Rng::new(u64::from(std::process::id()) * THREADS + thread);
                loop {
                    let transfer = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.below(20));
                    let done = match in_parts {
                        true => move_in_parts(&bank.maps[0], thread, transfer),
                        false => move_money(bank, thread, transfer),
                    };
                    let done = done.expect("a transfer").to_le_bytes();
                    acknowledged.write_all_at(&done, thread * 8).expect("noted");
                }
            });
        }
    });
}

/// The number of the commit among those of the thread.
fn move_money(bank: &Bank, thread: u64, (from, to, sum): (u64, u64, u64)) -> Result<u64, Error> {
    bank.moments.transaction(|transaction| {
        let done = number(transaction.get(bank.of(thread), &counter(thread))?) + 1;
        transaction.put(bank.of(thread), &counter(thread), &done.to_le_bytes())?;
        let has = number(transaction.get(bank.of(from), &account(from))?);
        let sum = sum.min(has);
        transaction.put(bank.of(from), &account(from), &(has - sum).to_le_bytes())?;
        // May be the same account: it is read as it was left a moment before.
        let has = number(transaction.get(bank.of(to), &account(to))?);
        transaction.put(bank.of(to), &account(to), &(has + sum).to_le_bytes())?;
        Ok(done)
    })
}

/// The same key by key, each of which no other thread loses.
fn move_in_parts(map: &Map, thread: u64, (from, to, sum): (u64, u64, u64)) -> Result<u64, Error> {
    let add = |key: Vec<u8>, by: i64| loop {
        let before = map.get(&key)?;
        let after = number(before.clone()).saturating_add_signed(by).to_le_bytes();
        if map.compare_and_set(&key, before.as_deref(), Some(&after))? {
            return Ok::<_, Error>(u64::from_le_bytes(after));
        }
    };
    add(account(from), -(sum as i64))?;
    add(account(to), sum as i64)?;
    add(counter(thread), 1)
}

/// Runs the bank for a moment and kills it.
fn run_and_kill(dir: &Path, place: &str, alive: Duration) {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "transactions_survive_kills::the_bank_that_is_killed", "--nocapture"])
        .env("TERRACE_BANK_DIR", dir)
        .env("TERRACE_BANK_PLACE", place)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let stdout = child.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("ready")), "the process opened its map");
    std::thread::sleep(alive);
    child.kill().expect("kill");
    let status = child.wait().expect("wait");
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(9), "it was alive until killed");
}

/// What is wrong after the last kill, if anything is; and how many commits of each thread there are.
fn found(dir: &Path, place: &str) -> (Option<String>, Vec<u64>) {
    let bank = Bank::open(dir, place);
    let of_account = |of| number(bank.of(of).get(&account(of)).expect("get"));
    let money: u64 = (0..ACCOUNTS).map(of_account).sum();
    let acknowledged = std::fs::read(dir.join("acknowledged")).expect("file");
    let (acknowledged, _) = acknowledged.as_chunks();
    let mut commits = Vec::new();
    let mut wrong = None;
    for (thread, acknowledged) in acknowledged.iter().enumerate() {
        let acknowledged = u64::from_le_bytes(*acknowledged);
        let thread_of = thread as u64;
        let there = number(bank.of(thread_of).get(&counter(thread_of)).expect("get"));
        // One may have ended without the process learning of it.
        if there != acknowledged && there != acknowledged + 1 {
            let told = format!("thread {thread}: {acknowledged} acknowledged, {there} there");
            wrong.get_or_insert(told);
        }
        commits.push(there);
    }
    if money != ACCOUNTS * BALANCE {
        wrong.get_or_insert(format!("{money} instead of {}", ACCOUNTS * BALANCE));
    }
    bank.maps.iter().for_each(|map| map.close().expect("close"));
    (wrong, commits)
}

/// What is wrong after one of so many kills.
fn killed(place: &str, cycles: u64) -> Option<String> {
    let dir = tempfile::tempdir().expect("directory");
    let acknowledged = dir.path().join("acknowledged");
    std::fs::write(&acknowledged, vec![0; 8 * THREADS as usize]).expect("file");
    let mut rng = Rng::new(1);
    let mut commits = 0;
    for cycle in 0..cycles {
        run_and_kill(dir.path(), place, Duration::from_micros(2_000 + rng.below(80_000)));
        let (wrong, there) = found(dir.path(), place);
        if let Some(wrong) = wrong {
            return Some(format!("{place}, after kill {cycle}: {wrong}"));
        }
        commits = there.iter().sum();
        // What was there without anybody being told stays there.
        let there: Vec<u8> = there.into_iter().flat_map(u64::to_le_bytes).collect();
        std::fs::write(&acknowledged, there).expect("file");
    }
    assert!(commits > 0, "{place}: nothing was committed");
    None
}

fn cycles() -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { 100 } else { 6 }
}

#[test]
fn all_of_a_commit_is_there_or_nothing() {
    for place in ["interval", "hour", "sync", "adr", "ordered"] {
        assert_eq!(killed(place, cycles()), None);
    }
}

#[test]
fn all_of_a_commit_is_in_both_maps_or_in_none() {
    for place in ["two-interval", "two-hour", "two-sync", "two-adr", "two-ordered"] {
        assert_eq!(killed(place, cycles()), None);
    }
}

/// The control: what is moved in parts is caught half done.
#[test]
fn what_is_no_transaction_is_caught() {
    assert!(killed("parts", 60).is_some(), "60 kills, and no transfer was half done");
}
