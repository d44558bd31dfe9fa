//! SQL on a database, from outside.

mod common;
mod errors;
mod filters;
mod tables;
mod transactions;
