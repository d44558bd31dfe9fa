//! Accounts by number: a table of cache lines, one an account, that many threads add to at once.
//!
//! ```text
//! line   number + 1 (0: nobody) | balance | turns | sent | received | reserved | 0 | 0
//! ```
//! A line holds all of an account, so an account costs one miss, and a sum one atomic addition. Open addressing
//! with linear probing: accounts are opened, not closed. Words are added to atomically ([`Accounts::add`]), or, by
//! the one thread that an account is known to be of, without an atomic operation ([`Accounts::add_alone`]).
//!
//! The table makes nothing durable: its owner keeps what happened to it elsewhere.

use terrace_memory::Memory;

/// Bytes of an account.
pub const ACCOUNT_BYTES: u64 = 64;
/// Of eight lines of a table at most seven are taken: probes stay short.
const TAKEN_OF_EIGHT: u64 = 7;

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
    /// What is reserved of the balance while a block runs; 0 between blocks.
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
    pub fn of_line(line: u32) -> Slot {
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
    mask: u64,
    taken: u64,
}

impl<M: Memory> Accounts<M> {
    /// Lines, a power of two, of a table for so many accounts.
    pub fn lines_for(accounts: u64) -> u64 {
        (accounts * 8 / TAKEN_OF_EIGHT + 1).next_power_of_two().max(64)
    }

    /// A table over `memory`, whose length says how many lines it has. The memory is zeroed, or holds a table.
    ///
    /// # Panics
    /// If the memory is not a power of two of lines, at least one and fewer than 2^32.
    pub fn over(memory: M) -> Accounts<M> {
        let lines = memory.len() / ACCOUNT_BYTES;
        let fits = memory.len().is_multiple_of(ACCOUNT_BYTES) && lines.is_power_of_two();
        assert!(fits && lines < 1 << 32, "{} bytes are no table of accounts", memory.len());
        let mut accounts = Accounts { memory, mask: lines - 1, taken: 0 };
        accounts.taken = accounts.iter().count() as u64;
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
        (self.mask + 1) * TAKEN_OF_EIGHT / 8
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> u64 {
        self.memory.len()
    }

    /// The line at which the search for `number` begins.
    #[inline(always)]
    fn home(&self, number: u64) -> u64 {
        mixed(number) & self.mask
    }

    #[inline(always)]
    fn word(&self, line: u64, word: u64) -> u64 {
        debug_assert!(line <= self.mask);
        // SAFETY: a line within the table, as every slot it gave out is; words are loaded atomically.
        unsafe { self.memory.load(line * ACCOUNT_BYTES + 8 * word) }
    }

    #[inline(always)]
    fn at(&self, slot: Slot, field: Field) -> u64 {
        // A slot of a larger table would lie outside.
        (u64::from(slot.0) & self.mask) * ACCOUNT_BYTES + 8 * field as u64
    }

    /// Asks for the line where `number` probably lies, to write to it.
    #[inline(always)]
    pub fn prefetch(&self, number: u64) {
        self.memory.prefetch_to_write(self.home(number) * ACCOUNT_BYTES);
    }

    /// Asks for the line of an account, to write to it.
    #[inline(always)]
    pub fn prefetch_slot(&self, slot: Slot) {
        self.memory.prefetch_to_write(u64::from(slot.0) * ACCOUNT_BYTES);
    }

    /// The account of that number; about one miss.
    #[inline(always)]
    pub fn find(&self, number: u64) -> Option<Slot> {
        let wanted = number.wrapping_add(1);
        if wanted == 0 {
            return None;
        }
        let mut line = self.home(number);
        loop {
            match self.word(line, 0) {
                0 => return None,
                there if there == wanted => return Some(Slot(line as u32)),
                _ => line = (line + 1) & self.mask,
            }
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
        if self.taken >= self.capacity() {
            return Err(OpenAccountError::Full);
        }
        let mut line = self.home(number);
        while self.word(line, 0) != 0 {
            if self.word(line, 0) == number + 1 {
                return Err(OpenAccountError::Exists);
            }
            line = (line + 1) & self.mask;
        }
        let at = line * ACCOUNT_BYTES;
        // SAFETY: a line within the table, which is borrowed for this alone.
        unsafe {
            for (field, word) in Field::KEPT.iter().zip(account.words()) {
                self.memory.store(at + 8 * *field as u64, word as u64);
            }
            self.memory.store(at, number + 1);
        }
        self.taken += 1;
        Ok(Slot(line as u32))
    }

    /// The number of an account.
    #[inline(always)]
    pub fn number(&self, slot: Slot) -> u64 {
        self.word(u64::from(slot.0) & self.mask, 0).wrapping_sub(1)
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

    /// Every account with its number, in the order of lines.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Account)> + '_ {
        let taken = (0..=self.mask).filter(|line| self.word(*line, 0) != 0);
        taken.map(|line| {
            let slot = Slot(line as u32);
            (self.number(slot), self.account(slot))
        })
    }
}

/// Spreads numbers that follow each other over the table, so that no pattern of numbers makes long probes.
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

    fn table(lines: u64) -> (Region, Accounts<terrace_memory::Native>) {
        let region = Region::reserve(lines * ACCOUNT_BYTES, Backing::Anonymous).expect("memory");
        region.commit(0, lines * ACCOUNT_BYTES).expect("memory");
        let memory = terrace_memory::Divide::part(&region.native(), 0, lines * ACCOUNT_BYTES);
        let accounts = Accounts::over(memory);
        (region, accounts)
    }

    #[test]
    fn accounts_are_found_by_number_until_the_table_is_full() {
        let (_region, mut accounts) = table(256);
        let mut model = HashMap::new();
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
            assert_eq!(accounts.account(accounts.find(*number).expect("opened")), *account);
        }
        assert_eq!(accounts.iter().collect::<HashMap<_, _>>(), model);
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
