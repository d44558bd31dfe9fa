//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-cli --test suite NAME::` runs those of one file.

mod backup;
mod commands;
mod common;
mod copy;
mod evicting_server;
mod help_examples;
mod kill_ledger;
mod kill_queue;
mod kill_server;
mod killed_under_interval;
mod place;
mod preset;
mod probe;
mod reproduce;
mod served;
#[path = "../../store/tests/small_disk.rs"]
#[allow(dead_code, reason = "shared with the store, whose tests need more of it")]
mod small_disk;
mod sql;
mod verify;
