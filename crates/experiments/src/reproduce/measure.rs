//! Clocks and medians.

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread so far, in nanoseconds.
pub(super) fn thread_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Processor time of this process so far, in nanoseconds.
pub(super) fn process_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time of this thread per operation of `f`, which executes `operations` of them; ns.
pub(super) fn ns_per_operation<E>(
    operations: u64,
    f: impl FnOnce() -> Result<(), E>,
) -> Result<f64, E> {
    let start = thread_ns();
    f()?;
    Ok((thread_ns() - start) as f64 / operations.max(1) as f64)
}

/// Repeated measurements of one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle one, or the mean of the middle two; none of no measurements is a number.
    pub fn median(&self) -> f64 {
        let mut values = self.0.clone();
        values.sort_by(f64::total_cmp);
        match values.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => values[n / 2],
            n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
        }
    }

    /// How far they lie apart: the largest less the smallest, over the median.
    pub fn spread(&self) -> f64 {
        let largest = self.0.iter().copied().fold(f64::MIN, f64::max);
        let smallest = self.0.iter().copied().fold(f64::MAX, f64::min);
        (largest - smallest) / self.median()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Samples {
        Samples(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        let samples: Samples = [3.0, 1.0, 2.0].into_iter().collect();
        assert_eq!((samples.median(), samples.spread()), (2.0, 1.0));
        let even: Samples = [4.0, 1.0, 2.0, 3.0].into_iter().collect();
        assert_eq!(even.median(), 2.5);
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn the_clock_of_a_thread_stands_while_it_sleeps() {
        let start = thread_ns();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(thread_ns() - start < 20_000_000);
        let spun = ns_per_operation(1, || {
            let end = std::time::Instant::now() + std::time::Duration::from_millis(5);
            while std::time::Instant::now() < end {}
            Ok::<_, ()>(())
        });
        assert!(spun.expect("spun") > 0.0 && process_ns() > 0);
    }
}
