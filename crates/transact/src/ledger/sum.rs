//! The hash of a ledger's state.
//!
//! A linear one: the sum, over all words of all accounts, of the word times a weight that only its account and field
//! decide, modulo 2^128. What is added to a word is added to the hash, times its weight: no old value is needed, any
//! order will do, and threads add up their own parts. So it costs a few nanoseconds an account, and can be checked
//! against the accounts at any time.
//!
//! Weights have 64 bits and words fit in 64, so of two different states that somebody did not choose by the
//! weights, one in 2^64 pairs has the same hash. It notices divergence and damage; it is no defence against who
//! wants two states to collide.

use crate::ledger::accounts::{Account, Field};

/// A hash of a state, or of a change of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sum(pub u128);

impl Sum {
    /// A word of an account has changed by so much.
    #[inline(always)]
    pub fn change(&mut self, number: u64, field: Field, by: i64) {
        let weight = u128::from(weight(number, field as u64));
        self.0 = self.0.wrapping_add(weight.wrapping_mul(by as i128 as u128));
    }

    /// An account was opened.
    pub fn open(&mut self, number: u64, account: &Account) {
        self.0 = self.0.wrapping_add(u128::from(weight(number, 0)));
        for (field, word) in Field::KEPT.iter().zip(account.words()) {
            self.change(number, *field, word);
        }
    }

    /// Both changes.
    #[must_use]
    pub fn and(self, other: Sum) -> Sum {
        Sum(self.0.wrapping_add(other.0))
    }

    /// Of all these accounts.
    pub fn of(accounts: impl Iterator<Item = (u64, Account)>) -> Sum {
        let mut sum = Sum::default();
        accounts.for_each(|(number, account)| sum.open(number, &account));
        sum
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a word counts: the finisher of splitmix64, by account and field.
#[inline(always)]
fn weight(number: u64, field: u64) -> u64 {
    let mut bits = number.wrapping_add((field + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
