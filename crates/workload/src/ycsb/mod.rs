//! YCSB's workloads, and two more, against any [`Target`].
//!
//! The question a run answers: how many operations a second, at which latencies, a store holding
//! `records` records gives `threads` callers that each wait for one reply before they ask again
//! (closed loop). What it does not answer: latency under a given arrival rate. A closed loop asks
//! less while the store is slow, so its high percentiles flatter a store that stalls.
//!
//! | workload | operations | chosen records |
//! |---|---|---|
//! | A | 50 % reads, 50 % updates | Zipfian |
//! | B | 95 % reads, 5 % updates | Zipfian |
//! | C | reads | Zipfian |
//! | D | 95 % reads, 5 % inserts | latest |
//! | E | 95 % scans of 1 to 100 records, 5 % inserts | Zipfian |
//! | F | 50 % reads, 50 % read-modify-writes | Zipfian |
//! | G (ours) | reads in batches, counted in keys | Zipfian |
//! | U (ours) | updates | Zipfian |
//!
//! A to F are those of Cooper et al., "Benchmarking Cloud Serving Systems with YCSB" (SoCC 2010),
//! with whole-value updates. The Zipfian generator is Gray et al.'s, as in YCSB; see
//! [`distribution`] for the one difference. Drawing must not be what is measured: records are drawn
//! before the clock starts, so that choosing one costs one sequential load, and latencies are taken
//! of one operation in `sample_every`.
//!
//! Every value is stamped with its record's number and every read checks the stamp; one in
//! `sample_every` reads has every byte checked. `misses` and `bad` of a sound store are 0.

pub mod distribution;
mod insertion;
pub mod keys;
mod latency;
mod report;
mod runner;
mod settings;
mod target;
mod worker;

pub use distribution::{Choices, Distribution};
pub use latency::Latency;
pub use report::{LoadReport, PhaseReport};
pub use runner::{Bench, LoadBy};
pub use settings::{InsertOrder, Settings, SettingsError, Workload};
pub use target::{Handle, NullTarget, Target};
