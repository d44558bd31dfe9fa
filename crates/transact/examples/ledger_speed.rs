//! Transactions a second of one engine, to be profiled: `ledger_speed [ENGINE [BLOCK [WORKERS [ACCOUNTS]]]]`.
//!
//! Uniform SmallCoin transfers that all succeed, five seconds.

use std::time::{Duration, Instant};
use terrace_memory::{Backing, Divide, Native, Region};
use terrace_transact::ledger::accounts::{Account, Accounts};
use terrace_transact::ledger::{Bank, BankOptions, Block, LedgerEngine, Transfer};
use terrace_workload::random::Rng;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let engine: LedgerEngine =
        words.next().map_or(Ok(LedgerEngine::Orangutan), |word| word.parse())?;
    let orders: usize = words.next().map_or(Ok(1_000), |word| word.parse())?;
    let workers: usize = words.next().map_or(Ok(2), |word| word.parse())?;
    let accounts: u64 = words.next().map_or(Ok(1_000_000), |word| word.parse())?;
    let bytes = Accounts::<Native>::bytes_for(accounts);
    let region = Region::reserve(bytes, Backing::HugePages)?;
    region.commit(0, bytes)?;
    let options = BankOptions { engine, workers, ..BankOptions::default() };
    let mut bank = Bank::over(Accounts::over(region.native().part(0, bytes), accounts), options);
    for number in 0..accounts {
        bank.restore(number, Account { balance: 1_000_000, ..Account::default() })?;
    }
    let mut rng = Rng::new(1);
    let mut transfer = || Transfer {
        id: 0,
        from: rng.below(accounts),
        to: rng.below(accounts),
        amount: 1,
        gas: 0,
    };
    let blocks: Vec<Block> = (0..2_000_000 / orders)
        .map(|_| Block::of_transfers((0..orders).map(|_| transfer()).collect()))
        .collect::<Result<_, _>>()?;
    let (mut executed, mut took) = (0, Duration::ZERO);
    while took < Duration::from_secs(5) {
        let copies = blocks.clone();
        let start = Instant::now();
        executed += copies.iter().map(Block::len).sum::<usize>();
        bank.execute_all(copies, |_, executed| executed.map(drop))?;
        took += start.elapsed();
    }
    println!("{engine}: {:.2} million a second", executed as f64 / took.as_secs_f64() / 1e6);
    Ok(())
}
