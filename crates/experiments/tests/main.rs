//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-experiments --test suite NAME::` runs those of one file.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

mod crash;
mod rings;
mod sections_model;

/// What a thread frees comes back when no thread of the process holds it: so events of one run depend on all that runs
/// beside it, and what must repeat runs [`alone`].
static RUNS: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    RUNS.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    RUNS.write().unwrap_or_else(PoisonError::into_inner)
}
