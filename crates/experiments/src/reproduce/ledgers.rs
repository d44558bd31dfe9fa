//! Banks, and blocks of transfers between their accounts, for the rows about ledgers (Miller, section 4.7).

use std::io;
use std::time::Instant;
use terrace_memory::{Backing, Divide, Memory, Native, Region};
use terrace_transact::ledger::accounts::Accounts;
use terrace_transact::ledger::{
    Account, Bank, BankOptions, Block, Executed, LedgerEngine, Profile, Transfer,
};
use terrace_workload::random::Rng;
use terrace_workload::ycsb::{Choices, Distribution};

/// Sums go from 1 to this.
pub(super) const LARGEST_SUM: u64 = 100;
/// What an order of a profile with gas pays.
const GAS: u64 = 1;

/// A bank, and the memory that its accounts are in.
pub(super) struct Held<M: Memory = Native> {
    pub bank: Bank<M>,
    _region: Region,
}

impl<M: Memory> Held<M> {
    /// Accounts 0, 1, .. with a balance each, in a memory that `wrap` makes of this machine's.
    pub fn new(
        accounts: u64,
        balance: i64,
        options: BankOptions,
        wrap: impl FnOnce(Native) -> M,
    ) -> io::Result<Held<M>> {
        let bytes = Accounts::<Native>::bytes_for(accounts);
        let region = Region::reserve(bytes, Backing::HugePages)?;
        region.commit(0, bytes)?;
        let mut bank =
            Bank::over(Accounts::over(wrap(region.native().part(0, bytes)), accounts), options);
        for number in 0..accounts {
            let account = Account { balance, ..Account::default() };
            bank.restore(number, account).map_err(io::Error::other)?;
        }
        Ok(Held { bank, _region: region })
    }

    /// Executes a block.
    pub fn execute(&mut self, block: &Block) -> Executed {
        self.bank.execute(block.clone()).expect("invariant: accounts that there are")
    }

    /// Transactions a second of these blocks, one after another, from the call for the first to the last one's end.
    pub fn throughput(&mut self, engine: LedgerEngine, blocks: &[Block]) -> f64 {
        self.bank.set_engine(engine);
        let orders: usize = blocks.iter().map(Block::len).sum();
        // What is executed is used up: copies are made before the clock starts.
        let copies = blocks.to_vec();
        let start = Instant::now();
        let executed = self.bank.execute_all(copies, |_, executed| executed.map(drop));
        executed.expect("invariant: accounts that there are");
        orders as f64 / start.elapsed().as_secs_f64()
    }
}

/// Transfers between accounts that are drawn.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub profile: Profile,
    pub accounts: u64,
    /// Of a block.
    pub orders: usize,
    pub blocks: usize,
    /// Skew of senders and of receivers; the two do not have the same favourites.
    pub theta: f64,
}

impl Load {
    pub fn blocks(&self, seed: u64) -> Vec<Block> {
        let mut random = Rng::new(seed);
        let all = self.orders * self.blocks;
        let [senders, receivers] = [1, 2].map(|who| self.chosen(all, seed << 2 | who));
        let gas = if self.profile == Profile::SmallCoinPlus { GAS } else { 0 };
        // The popular receivers are other accounts than the popular senders.
        let away = |account: u32| (u64::from(account) + self.accounts / 2) % self.accounts;
        let transfer = |order: usize| Transfer {
            id: 0,
            from: u64::from(senders[order]),
            to: away(receivers[order]),
            amount: 1 + random.below(LARGEST_SUM),
            gas,
        };
        let transfers: Vec<Transfer> = (0..all).map(transfer).collect();
        let block = |orders: &[Transfer]| Block::of_transfers(orders.to_vec());
        transfers.chunks(self.orders).map(|orders| block(orders).expect("small sums")).collect()
    }

    fn chosen(&self, all: usize, seed: u64) -> Vec<u32> {
        let distribution = match self.theta {
            0.0 => Distribution::Uniform,
            theta => Distribution::Zipfian { theta },
        };
        match distribution.choices(self.accounts, all, seed) {
            Choices::Records(records) | Choices::Latest(records) => records,
        }
    }
}

/// Threads that the rows measure with: all there are, two at least, for a barrier of one is none.
pub(super) fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).max(2)
}
