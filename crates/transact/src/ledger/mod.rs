//! Ordered blocks of transfers, executed in parallel (Miller, chapter 4).
//!
//! A block is a list of orders to move money between accounts. After a block the accounts are as if its orders had
//! been executed one after another, whatever engine executed them on however many threads: two ledgers that are
//! given the same blocks hold the same balances, and their [hashes](sum::Sum) say so.
//!
//! ```text
//! block -> accounts of its orders found (unknown: refused, nothing changed) -> an engine -> statuses, hash
//! ```
//! | engine | how | Miller, section |
//! |---|---|---|
//! | [`LedgerEngine::Sequential`] | one order after another | |
//! | [`LedgerEngine::Orangutan`] | all withdrawals, a barrier, all deposits; a failed order's cluster again | 4.4 |
//! | [`LedgerEngine::Dag`] | clusters that share no account, in parallel; finds the next block's meanwhile | 4.6 |
//! | [`LedgerEngine::DagByPairs`] | the same, with clusters found by comparing all pairs of orders | algorithm 13 |
//! | [`LedgerEngine::Reserve`] | sums reserved first, as in SPEEDEX | 4.7 |
//! | [`LedgerEngine::BlockStm`] | speculation over versions, validated in block order | 4.7 |
//! | [`LedgerEngine::Strife`] | clusters around sampled orders; orders that span several run where they meet | 4.7 |
//! | [`LedgerEngine::Auto`] | the engine that the last blocks show to be the fastest | |

pub mod accounts;
mod auto;
mod bank;
mod block;
mod book;
mod clusters;
mod dag;
mod fast;
mod handle;
mod orders;
mod record;
mod reserve;
mod stm;
mod strife;
mod sum;
#[cfg(test)]
mod tests;
mod worker_pool;

pub use accounts::Account;
pub use auto::Forecast;
pub use bank::{Bank, BankOptions, Executed, Refused};
pub use block::{Block, BlockError, MOST_MONEY, MOST_ORDERS, Movement, Transfer};
pub use clusters::Clusters;
pub use handle::{Ledger, LedgerError, LedgerOptions, LedgerResult, LedgerStats};
pub use sum::Sum;

use std::fmt;
use std::str::FromStr;

/// What an order of a ledger does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// A sum goes from one account to another if the sender has it.
    #[default]
    SmallCoin,
    /// The same, paid for with gas, and counted; who has the gas but not the sum pays the gas alone.
    SmallCoinPlus,
    /// Sums are taken from several accounts, none of which may fall below a floor, and given to several.
    Movements,
}

/// How blocks are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LedgerEngine {
    /// One order after another.
    Sequential,
    /// Withdrawals, barrier, deposits.
    Orangutan,
    /// Clusters side by side.
    Dag,
    /// The same, clusters being found as published.
    DagByPairs,
    /// Reservations.
    Reserve,
    /// Speculation.
    BlockStm,
    /// Sampled clusters.
    Strife,
    /// What suits, by block.
    #[default]
    Auto,
}

impl LedgerEngine {
    /// Every engine.
    pub const ALL: [LedgerEngine; 8] = [
        LedgerEngine::Sequential,
        LedgerEngine::Orangutan,
        LedgerEngine::Dag,
        LedgerEngine::DagByPairs,
        LedgerEngine::Reserve,
        LedgerEngine::BlockStm,
        LedgerEngine::Strife,
        LedgerEngine::Auto,
    ];

    /// Its name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LedgerEngine::Sequential => "sequential",
            LedgerEngine::Orangutan => "orangutan",
            LedgerEngine::Dag => "dag",
            LedgerEngine::DagByPairs => "dag-pairs",
            LedgerEngine::Reserve => "reserve",
            LedgerEngine::BlockStm => "block-stm",
            LedgerEngine::Strife => "strife",
            LedgerEngine::Auto => "auto",
        }
    }
}

impl fmt::Display for LedgerEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Profile {
    /// Every profile.
    pub const ALL: [Profile; 3] = [Profile::SmallCoin, Profile::SmallCoinPlus, Profile::Movements];

    /// Its name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::SmallCoin => "smallcoin",
            Profile::SmallCoinPlus => "smallcoin+",
            Profile::Movements => "movements",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none, with those there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is none of {known}")]
pub struct UnknownName {
    name: String,
    known: String,
}

fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, wanted: &str) -> Result<T, UnknownName> {
    let found = all.iter().find(|one| name(**one) == wanted);
    found.copied().ok_or_else(|| UnknownName {
        name: wanted.into(),
        known: all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", "),
    })
}

impl FromStr for LedgerEngine {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<LedgerEngine, UnknownName> {
        named(&LedgerEngine::ALL, LedgerEngine::name, text)
    }
}

impl FromStr for Profile {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Profile, UnknownName> {
        named(&Profile::ALL, Profile::name, text)
    }
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// It was carried out.
    Done = 0,
    /// The sender had the gas but not the sum: the gas is paid, nothing was sent.
    GasOnly = 1,
    /// An account had too little: nothing was changed.
    Refused = 2,
}

impl Status {
    fn of(byte: u8) -> Status {
        match byte {
            0 => Status::Done,
            1 => Status::GasOnly,
            _ => Status::Refused,
        }
    }
}
