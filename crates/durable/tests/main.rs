//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-durable --test suite NAME::` runs those of one file.

mod claims;
mod crash_in_recovery;
mod failed_syncs;
mod flush;
mod journal;
mod looks;
mod marks;
mod released;
mod reopened;
mod sections;
mod slabs;
