//! What is atomic over many records: [`ledger`]s, which execute ordered blocks of transfers in parallel.
#![deny(unsafe_code)]

pub mod ledger;

pub use ledger::{Bank, Block, Executed, LedgerEngine, Movement, Profile, Status, Transfer};
