//! RANGE: keys and values of an ordered map, in the order of keys.

use super::{Context, Failure, Outcome, SYNTAX_ERROR, integer};
use crate::resp::{Args, Output};
use std::ops::Bound;
use terrace::{Direction, Range, Session, Value};

/// Keys of a range if no limit is given, and at most, so that one call cannot hold up a loop for long.
const LIMIT: usize = 1000;
const LIMIT_MAX: i64 = 1 << 20;

/// What RANGE was asked for.
pub(super) struct Asked<'a> {
    pub(super) range: Range<'a>,
    pub(super) limit: usize,
    with_values: bool,
}

impl<'a> Asked<'a> {
    /// The arguments from `first` on.
    pub(super) fn parse(args: Args<'a>, first: usize) -> Result<Asked<'a>, Failure> {
        let mut asked = Asked { range: Range::ALL, limit: LIMIT, with_values: true };
        let mut rest = args.from(first + 2);
        while let Some(option) = rest.next() {
            if option.eq_ignore_ascii_case(b"rev") {
                asked.range.direction = Direction::Down;
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
        let (one, other) = (args.at(first), args.at(first + 1));
        asked.range = match asked.range.direction {
            Direction::Up => between(one, other)?,
            Direction::Down => between(other, one)?.reversed(),
        };
        Ok(asked)
    }
}

/// Keys and values of a range on their way into a reply.
pub(super) struct Found {
    found: Output,
    count: usize,
    with_values: bool,
}

impl Found {
    pub(super) fn of(asked: &Asked<'_>, limit_bytes: usize) -> Found {
        Found { found: Output::new(limit_bytes), count: 0, with_values: asked.with_values }
    }

    /// Whether there is room for more.
    pub(super) fn push(&mut self, key: &[u8], value: Value<'_>) -> bool {
        self.count += 1;
        self.found.bulk(key);
        if self.with_values {
            self.count += 1;
            self.found.bulk(value.bytes);
        }
        !self.found.overflowed()
    }

    pub(super) fn reply(&self, out: &mut Output) {
        out.array(self.count);
        out.raw(self.found.unsent());
        if self.found.overflowed() {
            out.overflow();
        }
    }
}

/// A range by two bounds as those of ZRANGEBYLEX: `[key` with the key, `(key` without, `-` and `+` for none.
pub(super) fn between<'a>(low: &'a [u8], high: &'a [u8]) -> Result<Range<'a>, Failure> {
    let (mut from, mut to) = (bound(low)?, bound(high)?);
    // The end of keys where their beginning is meant, or the other way round: nothing lies between.
    if low == b"+" || high == b"-" {
        let nothing = Bound::Excluded(&b""[..]);
        (from, to) = (nothing, nothing);
    }
    Ok(Range { from, to, direction: Direction::Up })
}

fn bound(argument: &[u8]) -> Result<Bound<&[u8]>, Failure> {
    match argument {
        b"-" | b"+" => Ok(Bound::Unbounded),
        [b'[', key @ ..] => Ok(Bound::Included(key)),
        [b'(', key @ ..] => Ok(Bound::Excluded(key)),
        _ => Err("ERR min or max not valid string range item: use [key, (key, - or +".into()),
    }
}

/// `RANGE min max [LIMIT n] [KEYS]`, or `RANGE max min REV ...`. The next page begins behind the last key.
pub(super) fn range(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let asked = Asked::parse(args, 1)?;
    let mut found = Found::of(&asked, context.core.limits.output_buffer_bytes);
    session.range(asked.range, asked.limit, |key, value| {
        found.push(key, value);
    })?;
    found.reply(context.out);
    Ok(())
}
