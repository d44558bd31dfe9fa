//! What a ledger's journal holds, as bytes.
//!
//! ```text
//! record   kind, 8 bytes | number of the block | hash after it, 16 bytes | orders or accounts, 8-byte words
//! state    number, balance, turns, sent, received of each account
//! ```
//! Ids of orders are not kept: they mean something within their block alone.

use super::block::{Block, Listed, Movement, Transfer};
use super::sum::Sum;
use crate::ledger::accounts::Account;

const OPENED: u64 = 1;
const PLAIN: u64 = 2;
const PAID: u64 = 3;
const MOVED: u64 = 4;
/// Bytes of an account in a state.
pub(super) const STATE_BYTES: u64 = 40;

/// A record, read.
pub(super) struct Entry {
    /// How many entries there were before it.
    pub number: u64,
    /// The hash after it.
    pub hash: Sum,
    pub what: Entered,
}

pub(super) enum Entered {
    Opened(Vec<(u64, u64)>),
    Block(Block),
}

/// Words as they are kept.
struct Words(Vec<u8>);

impl Words {
    fn put(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_le_bytes()));
    }
}

/// The payload of an entry but for its head, which is not known before it was executed.
pub(super) fn body(block: &Block) -> (u64, Vec<u8>) {
    let mut words = Words(Vec::with_capacity(32 * block.len()));
    let kind = match &block.orders {
        Listed::Transfers(transfers) if transfers.iter().all(|t| t.gas == 0) => {
            transfers.iter().for_each(|t| words.put(&[t.from, t.to, t.amount]));
            PLAIN
        }
        Listed::Transfers(transfers) => {
            transfers.iter().for_each(|t| words.put(&[t.from, t.to, t.amount, t.gas]));
            PAID
        }
        Listed::Movements(movements) => {
            for movement in movements {
                let legs = (movement.takes.len() as u64) << 32 | movement.gives.len() as u64;
                words.put(&[legs, movement.floor as u64]);
                let all = movement.takes.iter().chain(&movement.gives);
                all.for_each(|(number, sum)| words.put(&[*number, *sum]));
            }
            MOVED
        }
    };
    (kind, words.0)
}

/// The payload of an entry of accounts that were opened.
pub(super) fn opened(accounts: &[(u64, u64)]) -> (u64, Vec<u8>) {
    let mut words = Words(Vec::with_capacity(16 * accounts.len()));
    accounts.iter().for_each(|(number, balance)| words.put(&[*number, *balance]));
    (OPENED, words.0)
}

/// The head of an entry's payload.
pub(super) fn head(kind: u64, number: u64, hash: Sum) -> [u8; 32] {
    let mut head = [0; 32];
    head[..8].copy_from_slice(&kind.to_le_bytes());
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[16..].copy_from_slice(&hash.0.to_le_bytes());
    head
}

/// Reads an entry.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(bytes: &[u8]) -> Result<Entry, String> {
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let [kind, number, low, high, body @ ..] = &words[..] else {
        return Err(format!("an entry of {} bytes has no head", bytes.len()));
    };
    let whole = |words: usize| match body.len().is_multiple_of(words) {
        true => Ok(body.chunks_exact(words)),
        false => Err(format!("entry {number} ends within an order")),
    };
    let transfer = |words: &[u64]| Transfer {
        id: 0,
        from: words[0],
        to: words[1],
        amount: words[2],
        gas: words.get(3).copied().unwrap_or(0),
    };
    let block = match *kind {
        OPENED => {
            let accounts = whole(2)?.map(|words| (words[0], words[1])).collect();
            let hash = Sum(u128::from(*low) | u128::from(*high) << 64);
            return Ok(Entry { number: *number, hash, what: Entered::Opened(accounts) });
        }
        PLAIN => Block::of_transfers(whole(3)?.map(transfer).collect()),
        PAID => Block::of_transfers(whole(4)?.map(transfer).collect()),
        MOVED => Block::of_movements(movements(body).ok_or("an entry ends within a movement")?),
        other => return Err(format!("entry {number} is of kind {other}, which is none")),
    };
    let block = block.map_err(|error| format!("entry {number}: {error}"))?;
    let hash = Sum(u128::from(*low) | u128::from(*high) << 64);
    Ok(Entry { number: *number, hash, what: Entered::Block(block) })
}

fn movements(mut words: &[u64]) -> Option<Vec<Movement>> {
    let mut movements = Vec::new();
    while let [legs, floor, rest @ ..] = words {
        let (takes, gives) = ((legs >> 32) as usize, *legs as u32 as usize);
        let all = rest.get(..2 * (takes + gives))?;
        let pairs = |words: &[u64]| words.chunks_exact(2).map(|leg| (leg[0], leg[1])).collect();
        movements.push(Movement {
            id: 0,
            takes: pairs(&all[..2 * takes]),
            gives: pairs(&all[2 * takes..]),
            floor: *floor as i64,
        });
        words = &rest[2 * (takes + gives)..];
    }
    words.is_empty().then_some(movements)
}

/// An account in a state.
pub(super) fn in_state(number: u64, account: &Account) -> [u8; STATE_BYTES as usize] {
    let mut bytes = [0; STATE_BYTES as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    for (at, word) in account.words().iter().enumerate() {
        bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The accounts of a state.
pub(super) fn of_state(bytes: &[u8]) -> impl Iterator<Item = (u64, Account)> + '_ {
    bytes.chunks_exact(STATE_BYTES as usize).map(|account| {
        let word =
            |at: usize| i64::from_le_bytes(account[8 * at..8 * at + 8].try_into().expect("8"));
        let held = Account { balance: word(1), turns: word(2), sent: word(3), received: word(4) };
        (word(0) as u64, held)
    })
}
