//! I4 and I5: what p-stores lose to a link, and plain stores to the order in which caches give up lines.

use super::sweep::{Grid, Sweep};
use super::{NO_REMOTE, Reading};
use serde::{Deserialize, Serialize};
use std::io;
use terrace_machine::load::Op;
use terrace_machine::test_bed::TestBed;

/// Bandwidth lost by threads and size, as shares: negative where it is gained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// Of pieces one after the other.
    pub sequential: Grid,
    /// Of any pieces.
    pub random: Grid,
}

impl Losses {
    /// I4: p-stores to `remote`, another socket's memory, against those to `node`.
    ///
    /// # Errors
    /// There is no such node, or the system refuses memory or threads.
    pub fn of_remote<G: TestBed>(
        sweep: &Sweep<'_, G>,
        node: &str,
        remote: Option<&str>,
    ) -> io::Result<Reading<Losses>> {
        let Some(remote) = remote else {
            return Ok(Reading::NotMeasurable(NO_REMOTE.into()));
        };
        let losses = |random| -> io::Result<Grid> {
            let near = sweep.grid(node, Op::StoreFlush, random)?;
            Ok(near.losses(&sweep.grid(remote, Op::StoreFlush, random)?))
        };
        Ok(Reading::Measured(Losses { sequential: losses(false)?, random: losses(true)? }))
    }

    /// I5: plain stores, which caches write out when they must, against p-stores.
    ///
    /// # Errors
    /// As [`Losses::of_remote`].
    pub fn of_plain_stores<G: TestBed>(sweep: &Sweep<'_, G>, node: &str) -> io::Result<Losses> {
        let losses = |random| -> io::Result<Grid> {
            let flushed = sweep.grid(node, Op::StoreFlush, random)?;
            Ok(flushed.losses(&sweep.grid(node, Op::Store, random)?))
        };
        Ok(Losses { sequential: losses(false)?, random: losses(true)? })
    }

    /// The largest loss.
    pub fn most(&self) -> f64 {
        self.sequential.most().max(self.random.most())
    }

    /// By what factor bandwidth falls where it falls most.
    pub fn effect(&self) -> f64 {
        1.0 / (1.0 - self.most())
    }
}
