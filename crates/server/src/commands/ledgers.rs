//! LEDGER.OPEN, LEDGER.EXEC, LEDGER.BALANCE, LEDGER.ACCOUNT, LEDGER.HASH: accounts, and blocks of transfers between
//! them.
//!
//! A ledger has a name of its own, beside those of keys and queues, in whatever database a client is. A block is one
//! command: all of its orders as if one after another, all of it or nothing through a crash.

use super::{Context, Failure, Outcome, integer};
use crate::resp::Args;
use terrace::ledger::{Block, Ledger, LedgerError, Movement, Profile, Status, Transfer};

/// Accounts opened, or orders executed, by one command at most: one loop must not stand still for long.
const MOST: usize = 65_536;

/// The ledger's own refusals have no code that clients know.
fn refused(error: LedgerError) -> Failure {
    match error {
        LedgerError::Store(error) => error.into(),
        other => format!("ERR {other}").into(),
    }
}

fn number(argument: &[u8]) -> Result<u64, Failure> {
    let text = std::str::from_utf8(argument).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        let shown = String::from_utf8_lossy(&argument[..argument.len().min(40)]).into_owned();
        format!("ERR '{shown}' is not a number from 0 to 18446744073709551615").into()
    })
}

/// The ledger that a command is about. What is seen of it is told when it is durable.
fn existing(context: &mut Context<'_>, name: &[u8]) -> Result<Ledger, Failure> {
    let ledger = context.shared.ledgers.get(name)?;
    note(context, &ledger);
    Ok(ledger)
}

fn note(context: &mut Context<'_>, ledger: &Ledger) {
    context.client.touched_apart = true;
    context.core.ledgers.note(ledger);
}

/// `LEDGER.OPEN ledger account balance [account balance ...]`: how many were opened, all or none.
pub(super) fn open(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let rest: Vec<&[u8]> = args.from(2).collect();
    if !rest.len().is_multiple_of(2) {
        return Err("ERR LEDGER.OPEN takes pairs of an account and its balance".into());
    }
    if rest.len() / 2 > MOST {
        return Err(format!("ERR at most {MOST} accounts are opened at once").into());
    }
    let pair = |pair: &[&[u8]]| Ok((number(pair[0])?, number(pair[1])?));
    let accounts = rest.chunks_exact(2).map(pair).collect::<Result<Vec<_>, Failure>>()?;
    let ledger = context.shared.ledgers.get_or_make(args.at(1))?;
    ledger.open_before_commit(&accounts).map_err(refused)?;
    note(context, &ledger);
    context.out.integer(accounts.len() as i64);
    Ok(())
}

/// `LEDGER.EXEC ledger order [order ...]`. An order is `from to amount`, with gas `from to amount gas`, and of
/// movements `floor takes account amount ... gives account amount ...`, `takes` and `gives` being how many follow.
/// The reply: after how many entries, the hash then, and a word for each order: done, gas-only or refused.
pub(super) fn exec(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let ledger = context.shared.ledgers.get(args.at(1))?;
    let rest: Vec<&[u8]> = args.from(2).collect();
    let block = match ledger.profile() {
        Profile::SmallCoin => transfers(&rest, 3)?,
        Profile::SmallCoinPlus => transfers(&rest, 4)?,
        Profile::Movements => movements(&rest)?,
    };
    if block.len() > MOST {
        return Err(format!("ERR a block of one command has at most {MOST} orders").into());
    }
    let executed = ledger.execute_before_commit(block).map_err(refused)?;
    note(context, &ledger);
    context.out.array(3);
    context.out.integer(executed.entry as i64);
    context.out.bulk(executed.hash.to_string().as_bytes());
    context.out.array(executed.statuses.len());
    for status in &executed.statuses {
        context.out.simple(match status {
            Status::Done => "done",
            Status::GasOnly => "gas-only",
            Status::Refused => "refused",
        });
    }
    Ok(())
}

fn transfers(rest: &[&[u8]], each: usize) -> Result<Block, Failure> {
    if !rest.len().is_multiple_of(each) {
        let form = if each == 3 { "from to amount" } else { "from to amount gas" };
        return Err(format!("ERR an order of this ledger is: {form}").into());
    }
    let one = |order: &[&[u8]]| {
        let gas = order.get(3).map_or(Ok(0), |gas| number(gas))?;
        let (from, to, amount) = (number(order[0])?, number(order[1])?, number(order[2])?);
        Ok(Transfer { id: 0, from, to, amount, gas })
    };
    let transfers = rest.chunks_exact(each).map(one).collect::<Result<_, Failure>>()?;
    Block::of_transfers(transfers).map_err(|error| format!("ERR {error}").into())
}

fn movements(mut rest: &[&[u8]]) -> Result<Block, Failure> {
    let mut movements = Vec::new();
    while !rest.is_empty() {
        let floor = integer(rest[0])?;
        rest = &rest[1..];
        let (takes, gives) = (legs(&mut rest)?, legs(&mut rest)?);
        movements.push(Movement { id: 0, takes, gives, floor });
    }
    Block::of_movements(movements).map_err(|error| format!("ERR {error}").into())
}

/// How many pairs of account and amount, and those.
fn legs(rest: &mut &[&[u8]]) -> Result<Vec<(u64, u64)>, Failure> {
    const FORM: &str = "ERR an order of this ledger is: floor takes account amount ... gives account amount ..., \
                        takes and gives being how many follow";
    let count = number(rest.first().ok_or(FORM)?)?;
    let words = usize::try_from(count).ok().and_then(|count| count.checked_mul(2)).ok_or(FORM)?;
    let pairs = rest[1..].get(..words).ok_or(FORM)?;
    *rest = &rest[1 + words..];
    pairs.chunks_exact(2).map(|pair| Ok((number(pair[0])?, number(pair[1])?))).collect()
}

/// `LEDGER.BALANCE ledger account [account ...]`: of each its balance, or nothing if there is no such account.
pub(super) fn balance(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let ledger = existing(context, args.at(1))?;
    let numbers = args.from(2).map(number).collect::<Result<Vec<_>, Failure>>()?;
    let accounts = ledger.look(&numbers).map_err(refused)?;
    context.out.array(accounts.len());
    for account in accounts {
        match account {
            Some(account) => context.out.integer(account.balance),
            None => context.out.null(),
        }
    }
    Ok(())
}

/// `LEDGER.ACCOUNT ledger account`: balance, transactions paid for, sums sent, sums received.
pub(super) fn account(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let ledger = existing(context, args.at(1))?;
    match ledger.account(number(args.at(2))?).map_err(refused)? {
        None => context.out.null_array(),
        Some(account) => {
            context.out.array(4);
            account.words().into_iter().for_each(|word| context.out.integer(word));
        }
    }
    Ok(())
}

/// `LEDGER.HASH ledger`: how many entries there were, and the hash of all accounts after them.
pub(super) fn hash(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (entries, hash) = existing(context, args.at(1))?.hash().map_err(refused)?;
    context.out.array(2);
    context.out.integer(entries as i64);
    context.out.bulk(hash.to_string().as_bytes());
    Ok(())
}
