//! Byte budgets: how much of a tier a structure may take.
//!
//! Everything that grows with the data takes from a budget before it grows: log images, slabs,
//! indexes. A refused [`Budget::take`] is how a full tier is noticed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A shared limit in bytes.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

/// The budget has no room for what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} bytes asked, {used} of {limit} bytes used")]
pub struct BudgetSpent {
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes in use when they were.
    pub used: u64,
    /// The limit in bytes.
    pub limit: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Budget { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// Takes `bytes`, or refuses and takes nothing.
    pub fn take(&self, bytes: u64) -> Result<(), BudgetSpent> {
        let limit = self.limit();
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= limit)
            })
            .map(|_| ())
            .map_err(|used| BudgetSpent { asked: bytes, used, limit })
    }

    /// Takes `bytes` even beyond the limit: for growth that must not fail half done. Later
    /// [`Budget::take`]s are refused until enough is given back.
    pub fn take_anyway(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    /// How much to grow by where `wanted` bytes would do well: no more than a quarter of what is left, so that others
    /// find some too, in whole `piece`s, but one at the least.
    pub fn step(&self, wanted: u64, piece: u64) -> u64 {
        let left = self.limit().saturating_sub(self.used());
        wanted.min(left / 4 / piece * piece).max(piece)
    }

    /// Gives `bytes` back.
    pub fn give(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "more given back than taken");
    }

    /// Bytes taken beyond the limit, as after the limit was lowered.
    pub fn excess(&self) -> u64 {
        self.used().saturating_sub(self.limit())
    }

    /// Bytes that whoever may be refused leaves to what may not be: growth half done, and whatever frees memory in
    /// the end but takes some first. An eighth, of a large budget less.
    pub fn headroom(&self) -> u64 {
        let limit = self.limit();
        (limit / 8).min((8 << 20) + limit / 64)
    }

    /// Whether growth that was not refused has used the headroom up, but for an eighth: whoever can wait does not add
    /// to it.
    pub fn is_spent(&self) -> bool {
        self.is_spent_by(0)
    }

    /// Whether it would be with so many bytes more.
    pub fn is_spent_by(&self, bytes: u64) -> bool {
        self.used() + bytes + self.headroom() / 8 > self.limit()
    }

    /// Bytes taken.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Changes the limit; what is already taken stays taken.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_beyond_the_limit_and_takes_nothing_then() {
        let budget = Budget::new(100);
        assert!(budget.take(60).is_ok());
        assert_eq!(budget.take(41), Err(BudgetSpent { asked: 41, used: 60, limit: 100 }));
        assert_eq!(budget.used(), 60);
        assert!(budget.take(40).is_ok());
        budget.give(100);
        budget.take_anyway(150);
        assert!(budget.take(1).is_err());
    }

    #[test]
    fn a_budget_is_spent_before_its_last_byte_and_one_without_a_limit_never() {
        let budget = Budget::new(64 << 20);
        assert_eq!(budget.headroom(), 8 << 20);
        budget.take_anyway(63 << 20);
        assert!(!budget.is_spent() && budget.is_spent_by(1));
        budget.take_anyway(2 << 20);
        assert_eq!((budget.is_spent(), budget.excess()), (true, 1 << 20));
        let endless = Budget::new(u64::MAX);
        endless.take_anyway(1 << 50);
        assert!(!endless.is_spent_by(1 << 40) && endless.excess() == 0);
    }

    #[test]
    fn growth_takes_a_part_of_what_is_left_and_then_a_piece_at_a_time() {
        let budget = Budget::new(1000);
        assert_eq!(budget.step(40, 16), 40);
        budget.take_anyway(800);
        assert_eq!(budget.step(64, 16), 48, "a quarter of 200");
        budget.take_anyway(200);
        assert_eq!(budget.step(64, 16), 16, "half done would be worse");
    }
}
