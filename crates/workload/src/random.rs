//! Seeded randomness: a generator of one multiplication a draw, and a mixing function.
//!
//! Timed loops draw between operations, so the generator must cost next to nothing; nothing here
//! is fit for secrets.

/// Wang Yi's wyrand: 64-bit state, one 64x64-bit multiplication a draw.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole sequence follows from `seed`; near seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        ((product >> 64) ^ product) as u64
    }

    /// A number in `0..bound` (0 where `bound` is 0), by Lemire's multiplication; its bias is
    /// below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `0.0..1.0`, of 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True once in `n` draws on average.
    #[inline]
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A bijection on 64-bit numbers (the finaliser of splitmix64): distinct numbers stay distinct,
/// neighbours end up far apart.
#[inline]
pub fn mix(number: u64) -> u64 {
    let x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_from_the_seed_and_stay_in_range() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for bound in 1..2000 {
            assert_eq!(a.bits(), b.bits());
            assert!(a.below(bound) < bound);
            b.below(bound);
            let unit = a.unit();
            assert!((0.0..1.0).contains(&unit));
            b.unit();
        }
        assert_ne!(Rng::new(1).bits(), Rng::new(2).bits());
    }

    #[test]
    fn small_bounds_are_drawn_evenly() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
    }
}
