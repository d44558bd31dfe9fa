//! The lookup function of a level: ranks to buckets, in order.
//!
//! `f(x) = clamp(floor(N (x - a) / D), 0, N - 1)` over the predicted ranks `[a, a + D)`, in exact integer
//! arithmetic. A rounded factor `N / D` would put some keys before the marker of their bucket, where nobody
//! finds them. The division is a multiplication by the factor, rounded down to 64 bits, and one correction: the
//! estimate is never too large, and too small by one at most.

use std::cmp::Ordering;

/// A monotone map from ranks to `0..buckets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    first: u64,
    /// How many ranks are predicted: at least as many as there are buckets.
    distance: u64,
    buckets: u64,
    /// `floor(2^64 buckets / distance)`, at most `2^64 - 1`.
    scale: u64,
}

impl Function {
    /// Spreads the ranks from `first` up to but not including `end` over `buckets`, or over as many as there
    /// are ranks.
    ///
    /// `end` lies behind `first`.
    pub fn new(first: u64, end: u64, buckets: u64) -> Function {
        let distance = end - first;
        let buckets = buckets.clamp(1, distance);
        let scale = (u128::from(buckets) << 64) / u128::from(distance);
        let scale = u64::try_from(scale).unwrap_or(u64::MAX);
        Function { first, distance, buckets, scale }
    }

    pub fn buckets(&self) -> usize {
        self.buckets as usize
    }

    /// Whether a rank lies before the predicted range, in it, or behind it.
    pub fn side(&self, rank: u64) -> Ordering {
        match rank.checked_sub(self.first) {
            None => Ordering::Less,
            Some(distance) if distance < self.distance => Ordering::Equal,
            Some(_) => Ordering::Greater,
        }
    }

    /// The bucket of a rank.
    #[inline]
    pub fn index(&self, rank: u64) -> usize {
        if rank <= self.first {
            return 0;
        }
        let distance = rank - self.first;
        if distance >= self.distance {
            return (self.buckets - 1) as usize;
        }
        let estimate = ((u128::from(distance) * u128::from(self.scale)) >> 64) as u64;
        let rest = u128::from(distance) * u128::from(self.buckets)
            - u128::from(estimate) * u128::from(self.distance);
        (estimate + u64::from(rest >= u128::from(self.distance))) as usize
    }

    /// How many buckets some ranks are in, which ascend.
    pub fn used(&self, ranks: impl Iterator<Item = u64>) -> u64 {
        let (mut used, mut last) = (0, None);
        for bucket in ranks.map(|rank| self.index(rank)) {
            used += u64::from(last != Some(bucket));
            last = Some(bucket);
        }
        used
    }

    /// The smallest rank of a bucket; of the first, the smallest that is predicted.
    pub fn lower(&self, bucket: usize) -> u64 {
        let ranks = (bucket as u128 * u128::from(self.distance)).div_ceil(u128::from(self.buckets));
        self.first + ranks as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buckets(function: Function, ranks: std::ops::Range<u64>) -> Vec<usize> {
        ranks.map(|rank| function.index(rank)).collect()
    }

    /// Miller, figures 6.1, 6.2 and 6.4.
    #[test]
    fn the_examples_of_the_paper() {
        assert_eq!(buckets(Function::new(0, 7, 4), 0..9), [0, 0, 1, 1, 2, 2, 3, 3, 3]);
        assert_eq!(buckets(Function::new(2, 4, 2), 0..6), [0, 0, 0, 1, 1, 1]);
        assert_eq!(buckets(Function::new(0, 9, 5), 0..10), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
        let markers: Vec<u64> = (0..4).map(|bucket| Function::new(0, 7, 4).lower(bucket)).collect();
        assert_eq!(markers, [0, 2, 4, 6]);
    }

    #[test]
    fn every_small_function_is_the_exact_quotient_and_its_inverse() {
        for distance in 1..40u64 {
            for count in 1..=distance {
                let function = Function::new(5, 5 + distance, count);
                for rank in 0..60u64 {
                    let exact = rank.saturating_sub(5) * count / distance;
                    assert_eq!(
                        function.index(rank) as u64,
                        exact.min(count - 1),
                        "{function:?} {rank}"
                    );
                }
                for bucket in 1..count as usize {
                    let lower = function.lower(bucket);
                    assert_eq!(
                        (function.index(lower - 1), function.index(lower)),
                        (bucket - 1, bucket)
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn large_functions_are_exact(first: u64, end: u64, buckets in 1u64..1 << 40, rank: u64, near in 0u64..3) {
            prop_assume!(first < end);
            let function = Function::new(first, end, buckets);
            let (n, d) = (function.buckets, u128::from(end - first));
            let exact = |rank: u64| {
                let quotient = u128::from(rank.saturating_sub(first)) * u128::from(n) / d;
                quotient.min(u128::from(n - 1)) as usize
            };
            prop_assert_eq!(function.index(rank), exact(rank));
            let bucket = (rank % n) as usize;
            let edge = function.lower(bucket).saturating_add(near).saturating_sub(1);
            prop_assert_eq!(function.index(edge), exact(edge));
            prop_assert_eq!(function.index(function.lower(bucket)), bucket);
        }
    }
}
