//! Whole values: GET, SET and their variants, APPEND, STRLEN.

use super::made::Made;
use super::options::{Condition, Expiry, Family, SetOptions, When};
use super::{Context, Failure, Outcome, SYNTAX_ERROR};
use crate::resp::Args;
use terrace::{Change, Session};

/// The error for a value that would grow beyond what a request may carry.
pub(super) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

pub(super) fn get(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let out = &mut *context.out;
    let found = session.get(args.at(1), |value| out.bulk(value.bytes))?.is_some();
    if !found {
        out.null();
    }
    context.looked_up(found);
    Ok(())
}

pub(super) fn strlen(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let len = session.get(args.at(1), |value| value.bytes.len())?;
    context.looked_up(len.is_some());
    context.out.integer(len.unwrap_or(0) as i64);
    Ok(())
}

pub(super) fn set(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let options = SetOptions::parse(Family::Set, args, 3, context.core.now_ms)?;
    store(context, session, args.at(1), args.at(2), options)
}

/// Stores `value` as `options` say and replies as SET does.
fn store(
    context: &mut Context<'_>,
    session: &mut Session,
    key: &[u8],
    value: &[u8],
    options: SetOptions,
) -> Outcome {
    let at = match options.expiry {
        Expiry::At(ms) => Some(ms),
        _ => None,
    };
    let keep = options.expiry == Expiry::Keep;
    let out = &mut *context.out;
    if options.condition == Condition::Always && !options.get && !keep {
        session.put(key, value, at)?;
        out.ok();
        return Ok(());
    }
    let mark = out.mark();
    let mut stored = false;
    let mut found = false;
    session.update(key, |old| {
        out.truncate(mark);
        found = old.is_some();
        stored = match options.condition {
            Condition::Always => true,
            Condition::IfAbsent => old.is_none(),
            Condition::IfPresent => old.is_some(),
        };
        if options.get {
            match old {
                Some(old) => out.bulk(old.bytes),
                None => out.null(),
            }
        }
        let expires_at_ms = if keep { old.and_then(|old| old.expires_at_ms) } else { at };
        if stored { Change::Put { value, expires_at_ms } } else { Change::Keep }
    })?;
    match (options.get, stored) {
        (true, _) => context.looked_up(found),
        (false, true) => out.ok(),
        (false, false) => out.null(),
    }
    Ok(())
}

pub(super) fn setnx(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let value = args.at(2);
    let mut stored = false;
    session.update(args.at(1), |old| {
        stored = old.is_none();
        if stored { Change::Put { value, expires_at_ms: None } } else { Change::Keep }
    })?;
    context.out.integer(i64::from(stored));
    Ok(())
}

pub(super) fn setex(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let at = When::Seconds.positive_moment(args.at(2), context.core.now_ms, "setex")?;
    session.put(args.at(1), args.at(3), Some(at))?;
    context.out.ok();
    Ok(())
}

pub(super) fn psetex(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let at = When::Milliseconds.positive_moment(args.at(2), context.core.now_ms, "psetex")?;
    session.put(args.at(1), args.at(3), Some(at))?;
    context.out.ok();
    Ok(())
}

pub(super) fn getset(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let options = SetOptions { get: true, ..SetOptions::default() };
    store(context, session, args.at(1), args.at(2), options)
}

pub(super) fn getdel(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let out = &mut *context.out;
    let mark = out.mark();
    let found = session.delete_if(args.at(1), |old| {
        out.truncate(mark);
        out.bulk(old.bytes);
        true
    })?;
    if !found {
        out.truncate(mark);
        out.null();
    }
    context.looked_up(found);
    Ok(())
}

pub(super) fn getex(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let now_ms = context.core.now_ms;
    let options = match SetOptions::parse(Family::GetEx, args, 2, now_ms) {
        // A key that is not there has no time that could be wrong.
        Err(Failure::Text(text))
            if text != SYNTAX_ERROR && session.get(args.at(1), |_| ())?.is_none() =>
        {
            context.looked_up(false);
            context.out.null();
            return Ok(());
        }
        options => options?,
    };
    match options.expiry {
        Expiry::Unsaid => return get(context, session, args),
        Expiry::At(ms) if ms <= now_ms => return getdel(context, session, args),
        Expiry::At(_) | Expiry::Keep | Expiry::Persist => {}
    }
    let out = &mut *context.out;
    let mark = out.mark();
    let made = Made::default();
    let mut found = false;
    session.update(args.at(1), |old| {
        out.truncate(mark);
        found = old.is_some();
        let Some(old) = old else {
            out.null();
            return Change::Keep;
        };
        out.bulk(old.bytes);
        match options.expiry {
            Expiry::At(ms) => made.again(&old, Some(ms)),
            _ if old.expires_at_ms.is_some() => made.again(&old, None),
            _ => Change::Keep,
        }
    })?;
    context.looked_up(found);
    Ok(())
}

pub(super) fn append(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let added = args.at(2);
    let most = context.core.limits.value_bytes;
    let made = Made::default();
    let mut len = 0;
    session.update(args.at(1), |old| {
        let (bytes, expires_at_ms) =
            old.map_or((&[][..], None), |old| (old.bytes, old.expires_at_ms));
        len = bytes.len() + added.len();
        if len > most {
            return Change::Keep;
        }
        Change::Put { value: made.keep([bytes, added].concat()), expires_at_ms }
    })?;
    if len > most {
        return Err(TOO_LONG.into());
    }
    context.out.integer(len as i64);
    Ok(())
}
