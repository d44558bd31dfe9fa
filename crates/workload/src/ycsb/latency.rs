//! Latency histograms, and their summary in a report.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest latency told apart from longer ones: one minute.
const MAX_NS: u64 = 60_000_000_000;

/// Latencies of one kind of operation, to three significant digits.
#[derive(Clone, Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, MAX_NS, 3).expect("invariant: the bounds are valid"))
    }

    pub(super) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos().min(u128::from(MAX_NS)) as u64);
    }

    pub(super) fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("invariant: both have the same bounds");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn summary(&self) -> Latency {
        let us = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            samples: self.0.len(),
            mean_us: self.0.mean().round() / 1e3,
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p99_9_us: us(0.999),
            p99_99_us: us(0.9999),
            max_us: self.0.max() as f64 / 1e3,
        }
    }
}

/// Latencies of one kind of operation, in microseconds, as the caller saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Operations timed; a percentile of fewer than ten times its odds means little.
    pub samples: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p99_9_us: f64,
    /// 99.99th percentile.
    pub p99_99_us: f64,
    /// Slowest one timed.
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let (mut low, mut high) = (Latencies::new(), Latencies::new());
        for us in 1..=5_000 {
            low.record(Duration::from_micros(us));
            high.record(Duration::from_micros(us + 5_000));
        }
        low.add(&high);
        let summary = low.summary();
        assert_eq!(summary.samples, 10_000);
        let close = |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.002);
        close(summary.mean_us, 5_000.5);
        close(summary.p50_us, 5_000.0);
        close(summary.p99_us, 9_900.0);
        close(summary.p99_99_us, 9_999.0);
        close(summary.max_us, 10_000.0);
    }

    #[test]
    fn an_hour_is_recorded_as_the_longest() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(3600));
        assert!(latencies.summary().max_us >= 59e6);
    }
}
