//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-transact --test suite NAME::` runs those of one file.

mod kill;
mod ledger;
mod procedure;
