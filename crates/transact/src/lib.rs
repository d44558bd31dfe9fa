//! What is atomic over many records: [`Procedure`]s, transactions that compute on a [`device`], and [`ledger`]s, which
//! execute ordered blocks of transfers in parallel.
#![deny(unsafe_code)]

pub mod device;
pub mod ledger;
mod procedure;

pub use device::{Device, DeviceError};
pub use ledger::{Bank, Block, Executed, LedgerEngine, Movement, Profile, Status, Transfer};
pub use procedure::{Call, Procedure, ProcedureError, ProcedureStats};
