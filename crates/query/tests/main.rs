//! SQL on a database, from outside.

mod columns;
mod common;
mod copy;
mod errors;
mod filters;
mod tables;
mod transactions;
