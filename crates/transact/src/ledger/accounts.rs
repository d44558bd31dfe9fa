//! Accounts by number: cache lines, one an account, that many threads add to at once, and an index over them.
//!
//! ```text
//! index  words, a power of two: fingerprint of the number, 32 bits | line + 1, 32 bits (0: nobody)
//! line   number + 1 (0: nobody) | balance | turns | sent | received | reserved | 0 | 0
//! ```
//! A line holds all of an account, so that a sum costs one atomic addition to one line. Lines are taken one after
//! another; the index, of open addressing with linear probing over 8-byte words, says which. Were the lines
//! themselves the hash table, every further probe would be a miss that nobody asked for in time: in a profile at
//! half load more than 40 % of a block's time was spent waiting there. Accounts are opened, not closed. Words are
//! added to atomically ([`Accounts::add`]), or, by the one thread that an account is known to be of, without an
//! atomic operation ([`Accounts::add_alone`]).
//!
//! Look up many accounts in three steps: [`Accounts::prefetch`] for the word, [`Accounts::locate`] for the line
//! that it names, and, when that has come, [`Accounts::holds`] whether it is the one.
//!
//! The table makes nothing durable: its owner keeps what happened to it elsewhere.
#![allow(unsafe_code, reason = "words of a raw memory")]

use terrace_memory::{Claim, Memory};

/// Bytes of an account.
pub const ACCOUNT_BYTES: u64 = 64;
/// Words of the index in a cache line: there are no fewer.
const WORDS_OF_LINE: u64 = 8;

/// A word of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// What it has.
    Balance = 1,
    /// Transactions it paid for: its sequence number.
    Turns = 2,
    /// Sums it has sent.
    Sent = 3,
    /// Sums it was sent.
    Received = 4,
    /// The reserved part of the balance while a block runs; 0 between blocks.
    Reserved = 5,
}

impl Field {
    /// Those that are kept.
    pub const KEPT: [Field; 4] = [Field::Balance, Field::Turns, Field::Sent, Field::Received];
}

/// What an account holds between blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What it has.
    pub balance: i64,
    /// Transactions it paid for.
    pub turns: i64,
    /// Sums it has sent.
    pub sent: i64,
    /// Sums it was sent.
    pub received: i64,
}

impl Account {
    /// The words in the order of [`Field::KEPT`].
    pub fn words(&self) -> [i64; 4] {
        [self.balance, self.turns, self.sent, self.received]
    }
}

/// The line of an account in the table that gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);

impl Slot {
    /// The slot of a line, as [`Slot::line`] said.
    #[inline(always)]
    pub const fn of_line(line: u32) -> Slot {
        Slot(line)
    }

    /// The number of the line.
    #[inline(always)]
    pub fn line(self) -> u32 {
        self.0
    }
}

/// Why an account is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenAccountError {
    /// There is one of that number.
    #[error("the account exists")]
    Exists,
    /// No line is left.
    #[error("the table of accounts is full")]
    Full,
    /// The largest number stands for nobody.
    #[error("no account has the number 18446744073709551615")]
    Number,
}

/// A table of accounts in a memory.
#[derive(Debug)]
pub struct Accounts<M: Memory> {
    memory: M,
    _claim: Claim,
    /// Words of the index less one.
    mask: u64,
    /// Where the lines begin.
    lines: u64,
    capacity: u64,
    taken: u64,
}

/// Words of the index for so many accounts: of four at most three are taken.
fn words_for(accounts: u64) -> u64 {
    (accounts + accounts / 3 + 1).next_power_of_two().max(WORDS_OF_LINE)
}

impl<M: Memory> Accounts<M> {
    /// Bytes of a table for so many accounts.
    pub fn bytes_for(accounts: u64) -> u64 {
        8 * words_for(accounts) + ACCOUNT_BYTES * accounts
    }

    /// The memory it lies in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// A table for `accounts` accounts over `memory`, which is zeroed, or holds such a table.
    ///
    /// # Panics
    /// If the memory has fewer than [`Accounts::bytes_for`] bytes, or there are none or 2^32 accounts and more.
    pub fn over(memory: M, capacity: u64) -> Accounts<M> {
        let fits = Self::bytes_for(capacity) <= memory.len();
        let numbered = (1..u64::from(u32::MAX)).contains(&capacity);
        assert!(fits && numbered, "{} bytes are no table of {capacity} accounts", memory.len());
        let words = words_for(capacity);
        let claim = memory.claim(0, memory.len());
        let mut accounts = Accounts {
            memory,
            _claim: claim,
            mask: words - 1,
            lines: 8 * words,
            capacity,
            taken: 0,
        };
        let is_taken = |line: &u64| accounts.word(*line, 0) != 0;
        accounts.taken = (0..capacity).take_while(is_taken).count() as u64;
        accounts
    }

    /// Accounts there are.
    pub fn len(&self) -> u64 {
        self.taken
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Accounts that have room.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> u64 {
        Self::bytes_for(self.capacity)
    }

    #[inline(always)]
    fn word(&self, line: u64, word: u64) -> u64 {
        debug_assert!(line < self.capacity);
        // SAFETY: a line of the table; words are loaded atomically.
        unsafe { self.memory.load(self.lines + line * ACCOUNT_BYTES + 8 * word) }
    }

    /// The line of a slot. One of a larger table would lie outside.
    #[inline(always)]
    fn line(&self, slot: Slot) -> u64 {
        u64::from(slot.0).min(self.capacity - 1)
    }

    #[inline(always)]
    fn at(&self, slot: Slot, field: Field) -> u64 {
        self.lines + self.line(slot) * ACCOUNT_BYTES + 8 * field as u64
    }

    /// Asks for the word of the index where `number` probably is.
    #[inline(always)]
    pub fn prefetch(&self, number: u64) {
        self.memory.prefetch(8 * (mixed(number) & self.mask));
    }

    /// Asks for the line of an account, to write to it.
    #[inline(always)]
    pub fn prefetch_slot(&self, slot: Slot) {
        self.memory.prefetch_to_write(self.lines + self.line(slot) * ACCOUNT_BYTES);
    }

    /// The line of an account in all likelihood, asked for to be written to; whether it is, [`Accounts::holds`]
    /// says. Nothing if there is no such account.
    #[inline(always)]
    pub fn locate(&self, number: u64) -> Option<Slot> {
        let slot = self.probe(number, |_| true)?;
        self.prefetch_slot(slot);
        Some(slot)
    }

    /// Whether a line is that of `number`. No line is that of the largest one, which an empty line would pass for.
    #[inline(always)]
    pub fn holds(&self, slot: Slot, number: u64) -> bool {
        let wanted = number.wrapping_add(1);
        wanted != 0 && self.word(self.line(slot), 0) == wanted
    }

    /// The account of that number; about two misses.
    #[inline(always)]
    pub fn find(&self, number: u64) -> Option<Slot> {
        self.probe(number, |slot| self.holds(slot, number))
    }

    /// The first line with the fingerprint of `number` that `is_it`.
    #[inline(always)]
    fn probe(&self, number: u64, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        let hash = mixed(number);
        let mut at = hash & self.mask;
        loop {
            // SAFETY: a word of the index; they are loaded atomically.
            let word = unsafe { self.memory.load(8 * at) };
            if word == 0 {
                return None;
            }
            let slot = Slot((word as u32).wrapping_sub(1));
            if word >> 32 == hash >> 32 && is_it(slot) {
                return Some(slot);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Opens an account.
    ///
    /// # Errors
    /// There is one, no line is left, or the number is not one.
    pub fn open(&mut self, number: u64, account: Account) -> Result<Slot, OpenAccountError> {
        if number == u64::MAX {
            return Err(OpenAccountError::Number);
        }
        if self.find(number).is_some() {
            return Err(OpenAccountError::Exists);
        }
        if self.taken == self.capacity {
            return Err(OpenAccountError::Full);
        }
        let (line, hash) = (self.taken, mixed(number));
        let start = self.lines + line * ACCOUNT_BYTES;
        // SAFETY: a line and words of the table, which is borrowed for this alone. Of the words one in four is
        // nobody's.
        unsafe {
            for (field, word) in Field::KEPT.iter().zip(account.words()) {
                self.memory.store(start + 8 * *field as u64, word as u64);
            }
            self.memory.store(start, number + 1);
            let mut at = hash & self.mask;
            while self.memory.load(8 * at) != 0 {
                at = (at + 1) & self.mask;
            }
            self.memory.store(8 * at, hash >> 32 << 32 | (line + 1));
        }
        self.taken += 1;
        Ok(Slot(line as u32))
    }

    /// The number of an account.
    #[inline(always)]
    pub fn number(&self, slot: Slot) -> u64 {
        self.word(self.line(slot), 0).wrapping_sub(1)
    }

    /// A word of an account.
    #[inline(always)]
    pub fn get(&self, slot: Slot, field: Field) -> i64 {
        // SAFETY: within the table; words are loaded atomically.
        unsafe { self.memory.load(self.at(slot, field)) as i64 }
    }

    /// Adds to a word, atomically; what it is then.
    #[inline(always)]
    pub fn add(&self, slot: Slot, field: Field, sum: i64) -> i64 {
        // SAFETY: within the table; words are changed atomically.
        let was = unsafe { self.memory.fetch_add(self.at(slot, field), sum as u64) };
        (was as i64).wrapping_add(sum)
    }

    /// Adds to a word by a load and a store; what it is then. Additions of other threads meanwhile are lost: for
    /// the one thread that the account is of.
    #[inline(always)]
    pub fn add_alone(&self, slot: Slot, field: Field, sum: i64) -> i64 {
        let is = self.get(slot, field).wrapping_add(sum);
        self.set(slot, field, is);
        is
    }

    /// Stores a word.
    #[inline(always)]
    pub fn set(&self, slot: Slot, field: Field, value: i64) {
        // SAFETY: within the table; words are stored atomically.
        unsafe { self.memory.store(self.at(slot, field), value as u64) };
    }

    /// What an account holds.
    pub fn account(&self, slot: Slot) -> Account {
        let [balance, turns, sent, received] = Field::KEPT.map(|field| self.get(slot, field));
        Account { balance, turns, sent, received }
    }

    /// Every account with its number, in the order in which they were opened.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Account)> + '_ {
        (0..self.taken).map(|line| {
            let slot = Slot(line as u32);
            (self.number(slot), self.account(slot))
        })
    }
}

/// Spreads numbers that follow each other over the index, so that no pattern of numbers makes long probes.
#[inline(always)]
fn mixed(number: u64) -> u64 {
    let mut bits = number ^ (number >> 32);
    bits = bits.wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^= bits >> 32;
    bits = bits.wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ (bits >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use terrace_memory::{Backing, Region};

    type Table = Accounts<terrace_memory::Native>;

    fn over(region: &Region, accounts: u64) -> Table {
        let memory = terrace_memory::Divide::part(&region.native(), 0, Table::bytes_for(accounts));
        Accounts::over(memory, accounts)
    }

    fn table(accounts: u64) -> (Region, Table) {
        let bytes = Table::bytes_for(accounts);
        let region = Region::reserve(bytes, Backing::Anonymous).expect("memory");
        region.commit(0, bytes).expect("memory");
        let accounts = over(&region, accounts);
        (region, accounts)
    }

    #[test]
    fn accounts_are_found_by_number_until_the_table_is_full() {
        let (region, mut accounts) = table(224);
        let mut model = HashMap::new();
        for line in [0, 223, u32::MAX] {
            assert!(!accounts.holds(Slot::of_line(line), u64::MAX), "an empty line is nobody's");
        }
        for turn in 0..accounts.capacity() {
            let number = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (turn % 60);
            let account = Account { balance: turn as i64, turns: 1, sent: -2, received: 3 };
            match accounts.open(number, account) {
                Ok(_) => assert!(model.insert(number, account).is_none()),
                Err(e) => {
                    assert_eq!(e, OpenAccountError::Exists);
                    assert!(model.contains_key(&number));
                }
            }
        }
        while accounts.len() < accounts.capacity() {
            let number = 1 << 63 | accounts.len();
            accounts.open(number, Account::default()).expect("room");
            model.insert(number, Account::default());
        }
        assert_eq!(accounts.open(77 << 32, Account::default()), Err(OpenAccountError::Full));
        assert_eq!(accounts.open(u64::MAX, Account::default()), Err(OpenAccountError::Number));
        assert_eq!(accounts.find(u64::MAX), None);
        assert_eq!(accounts.find(77 << 32), None);
        for (number, account) in &model {
            let slot = accounts.find(*number).expect("opened");
            assert_eq!((accounts.account(slot), accounts.number(slot)), (*account, *number));
            assert!(accounts.locate(*number).is_some());
        }
        assert_eq!(accounts.iter().collect::<HashMap<_, _>>(), model);
        let found = (accounts.len(), accounts.find(77));
        drop(accounts);
        let accounts = over(&region, 224);
        assert_eq!((accounts.len(), accounts.find(77)), found);
        // A slot of a larger table is not this one's, and harmless.
        assert!(!accounts.holds(Slot::of_line(u32::MAX), 77 << 32));
    }

    #[test]
    fn additions_of_threads_are_all_counted() {
        let (_region, mut accounts) = table(64);
        let slot = accounts.open(5, Account::default()).expect("room");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        accounts.add(slot, Field::Balance, 3);
                        accounts.add(slot, Field::Sent, -1);
                    }
                });
            }
        });
        assert_eq!(accounts.account(slot).words(), [120_000, 0, -40_000, 0]);
    }
}
