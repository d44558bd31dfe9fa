//! RANGE: keys and values of an ordered map, in the order of keys.

use super::{Context, Outcome, SYNTAX_ERROR, integer};
use crate::resp::{Args, Output};
use std::ops::Bound;
use terrace::{Direction, Range, Session};

/// Keys of a range if no limit is given, and at most, so that one call cannot hold up a loop for long.
const LIMIT: usize = 1000;
const LIMIT_MAX: i64 = 1 << 20;

/// What RANGE was asked for, but for the bounds.
struct Asked {
    direction: Direction,
    limit: usize,
    with_values: bool,
}

impl Asked {
    fn parse(args: Args<'_>) -> Result<Asked, super::Failure> {
        let mut asked = Asked { direction: Direction::Up, limit: LIMIT, with_values: true };
        let mut rest = args.from(3);
        while let Some(option) = rest.next() {
            if option.eq_ignore_ascii_case(b"rev") {
                asked.direction = Direction::Down;
            } else if option.eq_ignore_ascii_case(b"keys") {
                asked.with_values = false;
            } else if option.eq_ignore_ascii_case(b"limit") {
                let limit = integer(rest.next().ok_or(SYNTAX_ERROR)?)?;
                if limit < 1 {
                    return Err("ERR LIMIT must be 1 or more".into());
                }
                asked.limit = limit.min(LIMIT_MAX) as usize;
            } else {
                return Err(SYNTAX_ERROR.into());
            }
        }
        Ok(asked)
    }
}

/// A bound as those of ZRANGEBYLEX: `[key` with the key, `(key` without, `-` and `+` for none.
fn bound(argument: &[u8]) -> Result<Bound<&[u8]>, super::Failure> {
    match argument {
        b"-" | b"+" => Ok(Bound::Unbounded),
        [b'[', key @ ..] => Ok(Bound::Included(key)),
        [b'(', key @ ..] => Ok(Bound::Excluded(key)),
        _ => Err("ERR min or max not valid string range item: use [key, (key, - or +".into()),
    }
}

/// `RANGE min max [LIMIT n] [KEYS]`, or `RANGE max min REV ...`. The next page begins behind the last key.
pub(super) fn range(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let asked = Asked::parse(args)?;
    let (low, high) = match asked.direction {
        Direction::Up => (args.at(1), args.at(2)),
        Direction::Down => (args.at(2), args.at(1)),
    };
    // The end of keys where their beginning is meant, or the other way round: nothing lies between.
    let is_empty = low == b"+" || high == b"-";
    let (mut from, mut to) = (bound(low)?, bound(high)?);
    if is_empty {
        let nothing = Bound::Excluded(&b""[..]);
        (from, to) = (nothing, nothing);
    }
    let range = Range { from, to, direction: asked.direction };
    let mut found = Output::new(context.core.limits.output_buffer_bytes);
    let mut count = 0;
    session.range(range, asked.limit, |key, value| {
        count += 1;
        found.bulk(key);
        if asked.with_values {
            count += 1;
            found.bulk(value.bytes);
        }
    })?;
    context.out.array(count);
    context.out.raw(found.unsent());
    if found.overflowed() {
        context.out.overflow();
    }
    Ok(())
}
