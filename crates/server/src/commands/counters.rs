//! Numbers in values: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.

use super::made::Made;
use super::{Context, Failure, NOT_AN_INTEGER, Outcome, integer};
use crate::resp::Args;
use crate::resp::number::{self, NotAdded, add_decimal, decimal};
use terrace::{Change, Session};

/// A number as it is stored: the digits, and where in the array they start.
struct Digits {
    text: [u8; 20],
    start: usize,
}

impl Digits {
    fn of(value: i64) -> Digits {
        let mut text = [0; 20];
        let start = text.len() - decimal(value, &mut text).len();
        Digits { text, start }
    }
}

fn add(context: &mut Context<'_>, session: &mut Session, key: &[u8], increment: i64) -> Outcome {
    let made = Made::default();
    let mut result = Err("");
    session.update(key, |old| {
        let (bytes, expires_at_ms) =
            old.map_or((&b"0"[..], None), |old| (old.bytes, old.expires_at_ms));
        let value = number::integer(bytes).ok_or(NOT_AN_INTEGER);
        result = value.and_then(|value| {
            value.checked_add(increment).ok_or("ERR increment or decrement would overflow")
        });
        match result {
            Ok(sum) => {
                let Digits { text, start } = made.keep(Digits::of(sum));
                Change::Put { value: &text[*start..], expires_at_ms }
            }
            Err(_) => Change::Keep,
        }
    })?;
    context.out.integer(result?);
    Ok(())
}

pub(super) fn incr(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    add(context, session, args.at(1), 1)
}

pub(super) fn decr(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    add(context, session, args.at(1), -1)
}

pub(super) fn incrby(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    add(context, session, args.at(1), integer(args.at(2))?)
}

pub(super) fn decrby(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let decrement = integer(args.at(2))?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(context, session, args.at(1), decrement)
}

pub(super) fn incrbyfloat(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
) -> Outcome {
    let increment = args.at(2);
    let made = Made::default();
    let mut result = Err(NotAdded::NotANumber);
    session.update(args.at(1), |old| {
        let (bytes, expires_at_ms) =
            old.map_or((&b"0"[..], None), |old| (old.bytes, old.expires_at_ms));
        result = add_decimal(bytes, increment).map(|sum| made.keep(sum));
        match result {
            Ok(sum) => Change::Put { value: sum.as_bytes(), expires_at_ms },
            Err(_) => Change::Keep,
        }
    })?;
    let text = result.map_err(|error| match error {
        NotAdded::NotANumber => Failure::from("ERR value is not a valid float"),
        NotAdded::NotFinite => "ERR increment would produce NaN or Infinity".into(),
    })?;
    context.out.bulk(text.as_bytes());
    Ok(())
}
