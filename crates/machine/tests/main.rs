//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-machine --test suite NAME::` runs those of one file.

mod controls;
mod counted;
mod fluid;
mod kernels;
mod modelled;
mod oracle;
mod recovery;
mod replayed;
mod reports;
mod shrinking;
mod ssp;
mod threads;
mod wrappers;
