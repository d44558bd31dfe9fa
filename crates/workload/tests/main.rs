//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-workload --test suite NAME::` runs those of one file.

mod crash_oracle_is_right;
mod durable_linearizability;
mod isolation_checker_is_right;
mod linearizability_checker_is_right;
mod ycsb_runs_and_finds_faults;
