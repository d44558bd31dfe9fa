//! Which record an operation touches.
//!
//! A *rank* is a record's place in the order of popularity. Ranks are drawn from the distribution
//! before the timing starts, and turned into records: as they are (uniform), scrambled over them
//! (Zipfian), also before the timing, or counted back from the newest (latest).
//!
//! One difference from YCSB: its scrambled generator draws ranks over 10^10 items and hashes them
//! onto the records; here ranks are drawn over the records themselves, so the skew is that of the
//! stated theta at this count, a little stronger than YCSB's. As there, a few records share a
//! rank's place and a few are never chosen.

use crate::random::{Rng, mix};
use serde::{Deserialize, Serialize};

/// How popularity is spread over the records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// All records alike.
    Uniform,
    /// Record of rank r with probability proportional to `1 / r^theta`, ranks scrambled over the
    /// records.
    Zipfian {
        /// Skew, between 0 (uniform) and 1, both excluded; YCSB's is 0.99.
        theta: f64,
    },
    /// Zipfian with theta 0.99 counted back from the newest record.
    Latest,
}

impl Distribution {
    /// YCSB's default: Zipfian, theta 0.99, scrambled.
    pub const ZIPFIAN: Distribution = Distribution::Zipfian { theta: 0.99 };

    /// Ranks in `0..records` for a worker to walk through, `length` of them.
    pub fn ranks(self, records: u64, length: usize, seed: u64) -> Vec<u32> {
        let mut rng = Rng::new(seed);
        let zipfian = match self {
            Self::Uniform => {
                return (0..length).map(|_| rng.below(records) as u32).collect();
            }
            Self::Zipfian { theta } => Zipfian::new(records, theta),
            Self::Latest => Zipfian::new(records, 0.99),
        };
        (0..length).map(|_| zipfian.rank(&mut rng)).collect()
    }

    /// Choices among `records` records, `length` of them.
    pub fn choices(self, records: u64, length: usize, seed: u64) -> Choices {
        let mut ranks = self.ranks(records, length, seed);
        if self == Self::Latest {
            return Choices::Latest(ranks);
        }
        // Scrambling sends some ranks to one record and none to others: records alike stay as drawn.
        if self != Self::Uniform {
            ranks.iter_mut().for_each(|rank| *rank = scrambled(*rank, records) as u32);
        }
        Choices::Records(ranks)
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Zipfian { theta } => write!(f, "zipfian({theta})"),
            Self::Latest => write!(f, "latest"),
        }
    }
}

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "zipfian" => Ok(Self::ZIPFIAN),
            "latest" => Ok(Self::Latest),
            other => Err(format!("\"{other}\" is not one of uniform, zipfian, latest")),
        }
    }
}

/// What a worker walks through, drawn ahead of time.
#[derive(Clone, Debug)]
pub enum Choices {
    /// Records.
    Records(Vec<u32>),
    /// Ranks, to be counted back from the newest record.
    Latest(Vec<u32>),
}

impl Choices {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Records(all) | Self::Latest(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The record of a scrambled rank.
#[inline]
pub fn scrambled(rank: u32, records: u64) -> u64 {
    let hash = mix(u64::from(rank) ^ 0x5bd1_e995_97f4_a7c1);
    ((u128::from(hash) * u128::from(records)) >> 64) as u64
}

/// Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994), as in YCSB.
struct Zipfian {
    items: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
    /// Below this share of `zeta` the rank is 0 or 1.
    two_ranks: f64,
}

impl Zipfian {
    fn new(items: u64, theta: f64) -> Self {
        let zeta = zeta(items, theta);
        let items = items as f64;
        Self {
            items,
            alpha: 1.0 / (1.0 - theta),
            zeta,
            eta: (1.0 - (2.0 / items).powf(1.0 - theta)) / (1.0 - self::zeta(2, theta) / zeta),
            two_ranks: 1.0 + 0.5f64.powf(theta),
        }
    }

    fn rank(&self, rng: &mut Rng) -> u32 {
        let unit = rng.unit();
        let share = unit * self.zeta;
        if share < 1.0 {
            return 0;
        }
        if share < self.two_ranks {
            return (self.items as u32 - 1).min(1);
        }
        let rank = self.items * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u32).min(self.items as u32 - 1)
    }
}

/// The sum of `1 / i^theta` for `i` in `1..=items`: term by term up to a million, the rest by
/// Euler and Maclaurin's formula (relative error below 1e-12).
fn zeta(items: u64, theta: f64) -> f64 {
    const EXACT: u64 = 1 << 20;
    let exact: f64 = (1..=items.min(EXACT)).map(|i| (i as f64).powf(-theta)).sum();
    if items <= EXACT {
        return exact;
    }
    let (a, b) = (EXACT as f64, items as f64);
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (b.powf(-theta) - a.powf(-theta)) / 2.0;
    let slopes = theta / 12.0 * (a.powf(-theta - 1.0) - b.powf(-theta - 1.0));
    exact + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_by_formula_is_zeta_by_sum() {
        let items = 3_000_000;
        for theta in [0.5, 0.8, 0.99] {
            let sum: f64 = (1..=items).map(|i| (i as f64).powf(-theta)).sum();
            assert!((zeta(items, theta) / sum - 1.0).abs() < 1e-9, "theta {theta}");
        }
    }

    #[test]
    fn ranks_have_the_stated_skew() {
        let items = 100_000;
        for theta in [0.5, 0.99] {
            let draws = 400_000;
            let ranks = Distribution::Zipfian { theta }.ranks(items, draws, 7);
            assert!(ranks.iter().all(|rank| u64::from(*rank) < items));
            // Gray's formula is exact for ranks 0 and 1 and close over a range of ranks.
            for below in [1, 2, 1000, 50_000] {
                let share = ranks.iter().filter(|r| **r < below).count() as f64 / draws as f64;
                let expected = zeta(u64::from(below), theta) / zeta(items, theta);
                assert!((share - expected).abs() < 0.02, "{theta} {below}: {share} {expected}");
            }
        }
    }

    #[test]
    fn uniform_ranks_are_even() {
        let ranks = Distribution::Uniform.ranks(10, 100_000, 1);
        for rank in 0..10 {
            let n = ranks.iter().filter(|r| **r == rank).count();
            assert!((9_400..10_600).contains(&n));
        }
    }

    #[test]
    fn a_uniform_choice_reaches_every_record() {
        let Choices::Records(chosen) = Distribution::Uniform.choices(1000, 50_000, 1) else {
            panic!("records, not ranks");
        };
        let mut times = vec![0; 1000];
        chosen.iter().for_each(|record| times[*record as usize] += 1);
        assert!(times.iter().all(|times| (15..120).contains(times)), "{times:?}");
    }

    #[test]
    fn the_smallest_sets_have_ranks_too() {
        for items in 1..5 {
            let ranks = Distribution::ZIPFIAN.ranks(items, 1000, 1);
            assert!(ranks.iter().all(|rank| u64::from(*rank) < items));
        }
    }

    #[test]
    fn scrambling_stays_in_range_and_spreads() {
        let mut hit = vec![false; 1000];
        for rank in 0..10_000 {
            hit[scrambled(rank, 1000) as usize] = true;
        }
        assert!(hit.iter().all(|h| *h));
    }

    #[test]
    fn names_are_read_back() {
        for text in ["uniform", "zipfian", "latest"] {
            assert!(text.parse::<Distribution>().unwrap().to_string().starts_with(text));
        }
        assert!("zipf".parse::<Distribution>().is_err());
    }
}
