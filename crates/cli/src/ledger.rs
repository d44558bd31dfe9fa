//! `ledger open`, `run`, `show`: accounts and blocks of transfers in a directory no other process has open.

use crate::output::{Failure, Outcome, print, print_json, table};
use crate::progress;
use crate::settings::{self, Flags};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::time::Instant;
use terrace::ledger::{
    Account, Block, Executed, Ledger, LedgerEngine, LedgerError, Profile, Status,
};
use terrace::orders::{OrderError, OrderFormat, OrderReader};
use terrace::{Access, Database};

#[derive(Subcommand)]
pub enum Command {
    /// Open accounts; creates the ledger if it does not exist
    #[command(after_help = "Examples:\n  \
                      terrace ledger open ./data bank --count 1000000 --balance 100\n  \
                      terrace ledger open ./data coins --profile smallcoin+ --accounts accounts.csv")]
    Open(OpenArguments),
    /// Execute a file of transfers, in blocks
    #[command(after_help = "Examples:\n  \
                      terrace ledger run ./data bank transfers.csv\n  \
                      terrace ledger run ./data bank transfers.jsonl --format jsonl --block 10000 --json\n  \
                      terrace ledger run ./data bank day.csv --one-block --statuses statuses.csv\n\n\
                      A line of CSV is from,to,amount[,gas[,id]], or what a first line with the names of columns \
                      says.\nA line that is no order ends the run; its block, and what follows, is not executed.")]
    Run(RunArguments),
    /// Print accounts and state of a ledger
    #[command(after_help = "Examples:\n  \
                      terrace ledger show ./data bank\n  \
                      terrace ledger show ./data bank 17 18 --json\n  \
                      terrace ledger show ./data bank --all --verify")]
    Show(ShowArguments),
}

#[derive(Args)]
struct Place {
    /// Directory of the database
    dir: PathBuf,
    /// Name of the ledger
    name: String,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct OpenArguments {
    #[command(flatten)]
    place: Place,
    /// Profile of a new ledger: smallcoin, smallcoin+ or movements
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// Overdraft limit of a new ledger: how far below zero the floor of a movement may be
    #[arg(long, value_name = "SUM")]
    overdraft: Option<u64>,
    /// File with lines `account,balance`
    #[arg(long, value_name = "FILE", conflicts_with = "count")]
    accounts: Option<PathBuf>,
    /// Number of accounts to open, numbered from --first
    #[arg(long, value_name = "N", default_value_t = 0)]
    count: u64,
    /// Number of the first account
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "count")]
    first: u64,
    /// Balance of each account
    #[arg(long, value_name = "SUM", default_value_t = 0, requires = "count")]
    balance: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormatName {
    /// Columns
    Csv,
    /// One JSON object per line
    Jsonl,
}

#[derive(Args)]
pub struct RunArguments {
    #[command(flatten)]
    place: Place,
    /// The file of orders
    file: PathBuf,
    /// Format of the file
    #[arg(long, value_enum, default_value = "csv")]
    format: FormatName,
    /// Orders per block
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    block: u32,
    /// Execute the whole file as one block: all of it or nothing
    #[arg(long)]
    one_block: bool,
    /// Engine: sequential, orangutan, dag, dag-pairs, reserve, block-stm, strife or auto
    #[arg(long, value_name = "NAME")]
    engine: Option<LedgerEngine>,
    /// Write one line per order to this file: `done`, `gas-only` or `refused`
    #[arg(long, value_name = "FILE")]
    statuses: Option<PathBuf>,
}

#[derive(Args)]
pub struct ShowArguments {
    #[command(flatten)]
    place: Place,
    /// Accounts to print
    accounts: Vec<u64>,
    /// Print all accounts
    #[arg(long)]
    all: bool,
    /// Read all accounts and compare their hash with the recorded one
    #[arg(long)]
    verify: bool,
    /// Read the intact part of a damaged ledger
    #[arg(long)]
    salvage: bool,
}

pub fn main(command: Command) -> Outcome {
    match command {
        Command::Open(arguments) => open(&arguments),
        Command::Run(arguments) => run(&arguments),
        Command::Show(arguments) => show(&arguments),
    }
}

impl Place {
    /// The ledger; made, if `make` says what as.
    fn open(
        &self,
        make: Option<&OpenArguments>,
        access: Access,
    ) -> Result<(Database, Ledger), Failure> {
        let config = settings::read(&self.dir, self.config.as_deref(), &Flags::default())?.0;
        let db = match make {
            Some(_) => Database::open(&self.dir, config.options())
                .map_err(|e| settings::locked_or(&self.dir, e))?,
            None => settings::open_existing(&self.dir, &config, access)?,
        };
        if make.is_none() && !db.ledger_names().map_err(Failure::new)?.contains(&self.name) {
            let (name, dir) = (&self.name, self.dir.display());
            return Err(Failure::new(format!(
                "no ledger `{name}` in {dir}; create it with: terrace ledger open {dir} {name}"
            )));
        }
        let ledger = settings::ledger_with(&db, &self.name, &config, |base| {
            let mut options = config.ledger_options_of(&self.name, base);
            if let Some(make) = make {
                options.profile = make.profile.or(options.profile);
                options.overdraft = make.overdraft.or(options.overdraft);
            }
            options
        })?;
        Ok((db, ledger))
    }
}

/// Accounts that are opened at once.
const TOGETHER: u64 = 10_000;

fn open(arguments: &OpenArguments) -> Outcome {
    let (db, ledger) = arguments.place.open(Some(arguments), Access::Write)?;
    let started = Instant::now();
    let mut opened = 0;
    let mut take = |accounts: &[(u64, u64)]| {
        let refused =
            |error| Failure::new(format!("{error}; {opened} accounts were opened before"));
        ledger.open_before_commit(accounts).map_err(refused)?;
        opened += accounts.len() as u64;
        Ok::<_, Failure>(())
    };
    if let Some(path) = &arguments.accounts {
        let file =
            File::open(path).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        let mut lines = BufReader::new(file).lines().enumerate().peekable();
        while lines.peek().is_some() {
            let some = lines.by_ref().take(TOGETHER as usize).filter_map(|(number, line)| {
                let account = line.map_err(|e| e.to_string()).and_then(|line| pair(line.trim()));
                let at =
                    |what| Failure::new(format!("{}: line {}: {what}", path.display(), number + 1));
                account.map_err(at).transpose()
            });
            take(&some.collect::<Result<Vec<_>, Failure>>()?)?;
        }
    } else {
        let bar = progress::bar(arguments.count, "accounts", false);
        let mut from = 0;
        while from < arguments.count {
            let to = arguments.count.min(from + TOGETHER);
            let number = |n| arguments.first.saturating_add(n);
            take(&(from..to).map(|n| (number(n), arguments.balance)).collect::<Vec<_>>())?;
            bar.set_position(to);
            from = to;
        }
        bar.finish_and_clear();
    }
    ledger.commit().map_err(Failure::new)?;
    let stats = ledger.stats();
    drop(ledger);
    db.close().map_err(Failure::new)?;
    if arguments.place.json {
        return print_json(&serde_json::json!({
            "opened": opened, "accounts": stats.accounts, "hash": stats.hash.to_string(),
            "seconds": started.elapsed().as_secs_f64(),
        }));
    }
    print(format!("{opened} accounts opened, {} in all; hash {}", stats.accounts, stats.hash))
}

/// A line `account,balance`; nothing if it is empty.
fn pair(line: &str) -> Result<Option<(u64, u64)>, String> {
    if line.is_empty() {
        return Ok(None);
    }
    let pair = line.split_once(',').and_then(|(account, balance)| {
        Some((account.trim().parse().ok()?, balance.trim().parse().ok()?))
    });
    pair.map(Some).ok_or_else(|| format!("`{line}` is not `account,balance`, two numbers"))
}

/// What a run has done so far.
#[derive(Default, Serialize)]
struct Done {
    blocks: u64,
    orders: u64,
    done: u64,
    gas_only: u64,
    refused: u64,
    executed_again: u64,
    hash: String,
    seconds: f64,
    /// In the engines alone.
    seconds_executing: f64,
}

impl Done {
    fn add(&mut self, executed: &Executed, statuses: &mut Option<impl Write>) -> Outcome {
        self.orders += executed.statuses.len() as u64;
        self.executed_again += executed.rerun as u64;
        self.seconds_executing += executed.took.as_secs_f64();
        for status in &executed.statuses {
            let (count, word) = match status {
                Status::Done => (&mut self.done, "done"),
                Status::GasOnly => (&mut self.gas_only, "gas-only"),
                Status::Refused => (&mut self.refused, "refused"),
            };
            *count += 1;
            if let Some(file) = statuses {
                writeln!(file, "{word}")?;
            }
        }
        self.hash = executed.hash.to_string();
        Ok(())
    }
}

/// Why a block was not executed.
enum Stopped {
    Order(OrderError),
    Ledger(LedgerError),
}

impl From<LedgerError> for Stopped {
    fn from(error: LedgerError) -> Stopped {
        Stopped::Ledger(error)
    }
}

fn run(arguments: &RunArguments) -> Outcome {
    let path = &arguments.file;
    let named =
        |e: std::io::Error, path: &PathBuf| Failure::new(format!("{}: {e}", path.display()));
    let file = File::open(path).map_err(|e| named(e, path))?;
    let bytes = file.metadata().map_or(0, |found| found.len());
    let bar = progress::bar(bytes, "", true);
    let format = match arguments.format {
        FormatName::Csv => OrderFormat::Csv,
        FormatName::Jsonl => OrderFormat::Jsonl,
    };
    let mut statuses = match &arguments.statuses {
        Some(path) => {
            Some(std::io::BufWriter::new(File::create(path).map_err(|e| named(e, path))?))
        }
        None => None,
    };
    let (db, ledger) = arguments.place.open(None, Access::Write)?;
    if let Some(engine) = arguments.engine {
        ledger.set_engine(engine);
    }
    let started = Instant::now();
    let mut reader = OrderReader::new(BufReader::new(bar.wrap_read(file)), format);
    let mut done = Done::default();
    let mut written = Ok(());
    let orders = arguments.block as usize;
    let blocks =
        std::iter::from_fn(|| reader.next_block(orders).map_err(Stopped::Order).transpose());
    let ended = match arguments.one_block {
        true => ledger
            .execute_pieces(blocks, |executed| {
                if written.is_ok() {
                    written = done.add(executed, &mut statuses);
                }
            })
            .map(|_| done.blocks = 1),
        false => blocks.map(|block| execute(&ledger, block?)).try_for_each(|executed| {
            let executed = executed?;
            done.blocks += 1;
            if written.is_ok() {
                written = done.add(&executed, &mut statuses);
            }
            Ok(())
        }),
    };
    bar.finish_and_clear();
    let line = reader.line();
    let (hash, closed) = (ledger.hash(), ledger.commit());
    drop(ledger);
    closed.and(db.close()).map_err(Failure::new)?;
    written?;
    statuses.map_or(Ok(()), |mut file| file.flush())?;
    if let Err(stopped) = ended {
        let why = match stopped {
            Stopped::Order(error) => error.to_string(),
            Stopped::Ledger(error) => format!("in the block that ends at line {line}: {error}"),
        };
        let before = match arguments.one_block {
            true => "nothing of the file was executed".to_string(),
            false => format!("{} blocks before it were executed", done.blocks),
        };
        return Err(Failure::new(format!("{}: {why}; {before}", path.display())));
    }
    done.hash = hash.map_err(Failure::new)?.1.to_string();
    done.seconds = started.elapsed().as_secs_f64();
    if arguments.place.json {
        return print_json(&done);
    }
    tell(&done)
}

fn execute(ledger: &Ledger, block: Block) -> Result<Executed, Stopped> {
    Ok(ledger.execute(block)?)
}

fn tell(done: &Done) -> Outcome {
    let a_second = |seconds: f64| done.orders as f64 / seconds.max(1e-9);
    print(format!(
        "{} blocks, {} orders: {} done, {} paid gas alone, {} refused; {} executed again\n\
         {:.3} s, {:.0} orders a second; in the engine {:.0} a second\n\
         hash {}",
        done.blocks,
        done.orders,
        done.done,
        done.gas_only,
        done.refused,
        done.executed_again,
        done.seconds,
        a_second(done.seconds),
        a_second(done.seconds_executing),
        done.hash
    ))
}

#[derive(Serialize)]
struct Shown {
    profile: String,
    accounts: u64,
    entries: u64,
    hash: String,
    verified: Option<bool>,
    replayed: u64,
    memory_bytes: u64,
    damage: Option<String>,
    shown: Vec<ShownAccount>,
}

#[derive(Serialize)]
struct ShownAccount {
    account: u64,
    balance: i64,
    turns: i64,
    sent: i64,
    received: i64,
}

fn show(arguments: &ShowArguments) -> Outcome {
    let (db, ledger) = arguments.place.open(None, settings::reading(arguments.salvage))?;
    let stats = ledger.stats();
    let verified = arguments.verify.then(|| ledger.verify()).transpose().map_err(Failure::new)?;
    let found: Vec<(u64, Option<Account>)> = match arguments.all {
        true => {
            let all = ledger.accounts().map_err(Failure::new)?;
            all.into_iter().map(|(number, account)| (number, Some(account))).collect()
        }
        false => {
            let found = ledger.look(&arguments.accounts).map_err(Failure::new)?;
            arguments.accounts.iter().copied().zip(found).collect()
        }
    };
    let profile = ledger.profile().to_string();
    drop(ledger);
    db.close().map_err(Failure::new)?;
    let missing: Vec<u64> = found.iter().filter(|(_, a)| a.is_none()).map(|(n, _)| *n).collect();
    let shown = found.iter().filter_map(|(account, held)| {
        let Account { balance, turns, sent, received } = (*held)?;
        Some(ShownAccount { account: *account, balance, turns, sent, received })
    });
    let shown = Shown {
        profile,
        accounts: stats.accounts,
        entries: stats.entries,
        hash: stats.hash.to_string(),
        verified,
        replayed: stats.replayed,
        memory_bytes: stats.memory_bytes,
        damage: stats.damage,
        shown: shown.collect(),
    };
    match arguments.place.json {
        true => print_json(&shown)?,
        false => print_shown(&shown)?,
    }
    if shown.verified == Some(false) {
        return Err(Failure::new("the hash of the accounts differs from the recorded hash"));
    }
    match missing.first() {
        Some(number) => Err(Failure::new(format!("there is no account {number}"))),
        None => Ok(()),
    }
}

fn print_shown(shown: &Shown) -> Outcome {
    let verified = match shown.verified {
        None => "",
        Some(true) => ", verified",
        Some(false) => ", but the accounts have another hash",
    };
    print(format!(
        "profile   {}\naccounts  {}\nentries   {} ({} executed again at opening)\nhash      {}{verified}",
        shown.profile, shown.accounts, shown.entries, shown.replayed, shown.hash
    ))?;
    if let Some(damage) = &shown.damage {
        print(format!("damage    {damage}"))?;
    }
    if shown.shown.is_empty() {
        return Ok(());
    }
    print(format!("\n{}", accounts_table(shown)))
}

/// Accounts as lines. Turns and what was sent and received stand there where the ledger counts them.
fn accounts_table(shown: &Shown) -> String {
    let is_counted = shown.shown.iter().any(|a| (a.turns, a.sent, a.received) != (0, 0, 0));
    let mut head = vec!["account", "balance"];
    if is_counted {
        head.extend(["turns", "sent", "received"]);
    }
    let row = |a: &ShownAccount| {
        let mut row = vec![a.account.to_string(), a.balance.to_string()];
        if is_counted {
            row.extend([a.turns, a.sent, a.received].map(|count| count.to_string()));
        }
        row
    };
    let rows = std::iter::once(head.into_iter().map(String::from).collect());
    table(&rows.chain(shown.shown.iter().map(row)).collect::<Vec<_>>())
}
