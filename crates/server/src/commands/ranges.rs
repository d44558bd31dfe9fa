//! Parts of values: GETRANGE, SUBSTR, SETRANGE.

use super::made::Made;
use super::strings::TOO_LONG;
use super::{Context, Outcome, integer};
use crate::resp::Args;
use terrace::{Change, Session};

/// The part of `value` between two inclusive positions; negative ones count from the end.
fn part(value: &[u8], first: i64, last: i64) -> &[u8] {
    let len = value.len() as i64;
    if first < 0 && last < 0 && first > last {
        return &[];
    }
    let from_start = |position: i64| if position < 0 { (len + position).max(0) } else { position };
    let (first, last) = (from_start(first), from_start(last).min(len - 1));
    if first > last {
        return &[];
    }
    &value[first as usize..=last as usize]
}

pub(super) fn getrange(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
) -> Outcome {
    let (first, last) = (integer(args.at(2))?, integer(args.at(3))?);
    let out = &mut *context.out;
    let found =
        session.get(args.at(1), |value| out.bulk(part(value.bytes, first, last)))?.is_some();
    if !found {
        out.bulk(b"");
    }
    context.looked_up(found);
    Ok(())
}

pub(super) fn setrange(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
) -> Outcome {
    let patch = args.at(3);
    let offset = usize::try_from(integer(args.at(2))?).map_err(|_| "ERR offset is out of range")?;
    let most = context.core.limits.value_bytes;
    if !patch.is_empty() && offset.saturating_add(patch.len()) > most {
        return Err(TOO_LONG.into());
    }
    let made = Made::default();
    let mut len = 0;
    session.update(args.at(1), |old| {
        let (bytes, expires_at_ms) =
            old.map_or((&[][..], None), |old| (old.bytes, old.expires_at_ms));
        len = bytes.len();
        if patch.is_empty() {
            return Change::Keep;
        }
        len = len.max(offset + patch.len());
        let mut value = Vec::with_capacity(len);
        value.extend_from_slice(bytes);
        value.resize(len, 0);
        value[offset..offset + patch.len()].copy_from_slice(patch);
        Change::Put { value: made.keep(value), expires_at_ms }
    })?;
    context.out.integer(len as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_as_redis_cuts_them() {
        let value = b"This is a string";
        let cases: &[(i64, i64, &[u8])] = &[
            (0, 3, b"This"),
            (-3, -1, b"ing"),
            (0, -1, value),
            (10, 100, b"string"),
            (5, 3, b""),
            (-1, -3, b""),
            (-100, 3, b"This"),
            (16, 20, b""),
            (0, -100, b"T"),
            (i64::MIN, i64::MAX, value),
        ];
        for (first, last, expected) in cases {
            assert_eq!(part(value, *first, *last), *expected, "{first} {last}");
        }
        assert_eq!(part(b"", 0, -1), b"");
    }
}
