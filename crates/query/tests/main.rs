//! SQL on a database, from outside.

mod alter;
mod columns;
mod common;
mod copy;
mod errors;
mod filters;
mod indexes;
mod inserts;
mod joins;
mod maps;
mod points;
mod tables;
mod transactions;
