//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-server --test suite NAME::` runs those of one file.

mod access;
mod backups;
mod bad_frames;
mod commands_on_connections;
mod commands_on_keys;
mod commands_on_ledgers;
mod commands_on_lists;
mod commands_on_strings;
mod common;
mod damage;
mod edges;
mod expiry;
mod limits;
mod lists_are_removed;
mod loading;
mod memories;
mod ordered;
mod overload;
mod pipelining;
mod real_clients;
mod scripts;
mod server_commands;
mod shutdown;
mod side_by_side;
mod slow_clients;
mod snapshots;
#[cfg(feature = "sql")]
mod sql;
mod tls;
mod transactions;
mod values_on_disk;
