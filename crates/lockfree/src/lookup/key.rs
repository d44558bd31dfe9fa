//! Keys: an order, and how far apart two of them are.
//!
//! A level interpolates over *ranks*: 64-bit numbers in the order of the keys. Integers and floats are their
//! own ranks, so that the distance of two keys is how many keys lie between them. The rank of a byte string is
//! its eight bytes behind those that all keys of the level share.

use super::error::{Error, Result};

/// A type of keys: `u64`, `i64`, [`Float`] or [`Bytes`](super::Bytes).
pub trait Key: Ord + Clone + std::fmt::Debug + Send + Sync + sealed::Ranked + 'static {}

pub(super) mod sealed {
    /// The distances of keys. `rank` is monotone: a larger key never has a smaller rank.
    pub trait Ranked: Sized {
        /// What all keys of a level share.
        type Shared: Clone + std::fmt::Debug + Send + Sync;

        /// The smallest key.
        fn least() -> Self;
        /// A key so far behind the smallest that most lie between.
        fn far() -> Self;
        /// What all keys from one to another share.
        fn shared(first: &Self, last: &Self) -> Self::Shared;
        /// Where it lies among the keys of a level; the smallest or largest number for one outside.
        fn rank(&self, shared: &Self::Shared) -> u64;
        /// The smallest key of this rank, or of the first rank behind it that has a key.
        fn at(shared: &Self::Shared, rank: u64) -> Self;
        /// Bytes of it that lie elsewhere.
        fn bytes_elsewhere(&self) -> usize {
            0
        }
    }
}

use sealed::Ranked;

impl Key for u64 {}

impl Ranked for u64 {
    type Shared = ();

    fn least() -> u64 {
        0
    }

    fn far() -> u64 {
        u64::MAX
    }

    fn shared(_: &u64, _: &u64) {}

    #[inline(always)]
    fn rank(&self, (): &()) -> u64 {
        *self
    }

    fn at((): &(), rank: u64) -> u64 {
        rank
    }
}

impl Key for i64 {}

/// The bit that negative numbers have, and that is to make the others larger.
const SIGN: u64 = 1 << 63;

impl Ranked for i64 {
    type Shared = ();

    fn least() -> i64 {
        i64::MIN
    }

    fn far() -> i64 {
        i64::MAX
    }

    fn shared(_: &i64, _: &i64) {}

    #[inline(always)]
    fn rank(&self, (): &()) -> u64 {
        *self as u64 ^ SIGN
    }

    fn at((): &(), rank: u64) -> i64 {
        (rank ^ SIGN) as i64
    }
}

/// A floating-point number as a key: any but NaN; both zeros are one key.
///
/// Two of them are as far apart as there are numbers between.
///
/// ```
/// use terrace_lockfree::lookup::Float;
///
/// assert!(Float::new(-1.5)? < Float::new(0.0)? && Float::new(0.0)? == Float::new(-0.0)?);
/// assert_eq!(Float::new(2.5)?.get(), 2.5);
/// assert!(Float::new(f64::NAN).is_err());
/// # Ok::<(), terrace_lockfree::lookup::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Float(u64);

impl Float {
    /// The key of a number.
    ///
    /// # Errors
    /// [`Error::NotANumber`].
    pub fn new(number: f64) -> Result<Float> {
        if number.is_nan() {
            return Err(Error::NotANumber);
        }
        // Adding zero makes the negative zero the other one.
        let bits = (number + 0.0).to_bits();
        // Larger negative numbers have smaller bits.
        Ok(Float(if bits & SIGN == 0 { bits | SIGN } else { !bits }))
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(if self.0 & SIGN == 0 { !self.0 } else { self.0 ^ SIGN })
    }
}

impl std::fmt::Debug for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.get())
    }
}

impl Key for Float {}

impl Ranked for Float {
    type Shared = ();

    fn least() -> Float {
        Float(0)
    }

    fn far() -> Float {
        Float(u64::MAX)
    }

    fn shared(_: &Float, _: &Float) {}

    #[inline(always)]
    fn rank(&self, (): &()) -> u64 {
        self.0
    }

    fn at((): &(), rank: u64) -> Float {
        Float(rank)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn floats_are_in_the_order_of_their_numbers(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            let (left, right) = (Float::new(a).unwrap(), Float::new(b).unwrap());
            prop_assert_eq!(left.cmp(&right), a.partial_cmp(&b).unwrap());
            prop_assert_eq!(left.get(), a);
        }

        #[test]
        fn integers_are_in_the_order_of_their_ranks(a: i64, b: i64) {
            prop_assert_eq!(a.cmp(&b), a.rank(&()).cmp(&b.rank(&())));
            prop_assert_eq!(i64::at(&(), a.rank(&())), a);
        }
    }
}
