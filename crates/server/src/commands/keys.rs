//! Keys as such: DEL, EXISTS, TYPE, RENAME, COPY and the like. The first three know of queues too.

use super::{Context, Failure, Outcome, SYNTAX_ERROR, integer, lists};
use crate::resp::Args;
use terrace::{Session, Wait};

pub(super) fn del(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let mut deleted = 0;
    for key in args.from(1) {
        let was_key = session.delete(key)?;
        // Those that are gone are to be told of: from here on the others wait for room. In a transaction nothing is
        // done before its end.
        if !context.atomic {
            session.set_wait(Wait::ForRoom);
        }
        let was_queue = lists::empty(context, key)?;
        deleted += i64::from(was_key || was_queue);
    }
    context.out.integer(deleted);
    Ok(())
}

/// EXISTS and TOUCH: a key named twice counts twice.
pub(super) fn exists(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let mut found = 0;
    for key in args.from(1) {
        let there = session.get(key, |_| ())?.is_some() || lists::find(context, key).is_some();
        context.looked_up(there);
        found += i64::from(there);
    }
    context.out.integer(found);
    Ok(())
}

pub(super) fn type_of(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let name = match session.get(args.at(1), |_| ())? {
        Some(()) => "string",
        None if lists::find(context, args.at(1)).is_some() => "list",
        None => "none",
    };
    context.out.simple(name);
    Ok(())
}

/// Moves the value of `source` to `target`; false when `target` exists and must not be replaced.
fn rename_key(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
    replace: bool,
) -> Result<bool, Failure> {
    let (source, target) = (args.at(1), args.at(2));
    let held = session.get(source, |value| (value.bytes.to_vec(), value.expires_at_ms))?;
    if held.is_none() {
        lists::refuse_queue(context, source)?;
    }
    let (value, expires_at_ms) = held.ok_or("ERR no such key")?;
    if source == target {
        return Ok(replace);
    }
    if !replace && session.get(target, |_| ())?.is_some() {
        return Ok(false);
    }
    session.atomic(|session| {
        session.put(target, &value, expires_at_ms)?;
        session.delete(source)
    })?;
    Ok(true)
}

pub(super) fn rename(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    rename_key(context, session, args, true)?;
    context.out.ok();
    Ok(())
}

pub(super) fn renamenx(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
) -> Outcome {
    let renamed = rename_key(context, session, args, false)?;
    context.out.integer(i64::from(renamed));
    Ok(())
}

/// A database number that exists.
pub(super) fn database(context: &Context<'_>, argument: &[u8]) -> Result<usize, Failure> {
    let number = usize::try_from(integer(argument)?).ok();
    let number = number.filter(|number| *number < context.shared.maps.count());
    Ok(number.ok_or("ERR DB index is out of range")?)
}

/// Whether COPY is told a database: it may be another one than the client's.
pub(super) fn names_database(args: Args<'_>) -> bool {
    args.from(3).any(|option| option.eq_ignore_ascii_case(b"db"))
}

/// COPY source target [DB n] [REPLACE].
pub(super) fn copy(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let (source, target) = (args.at(1), args.at(2));
    let mut to = context.client.database;
    let mut replace = false;
    let mut rest = args.from(3);
    while let Some(option) = rest.next() {
        if option.eq_ignore_ascii_case(b"replace") {
            replace = true;
        } else if option.eq_ignore_ascii_case(b"db") {
            to = database(context, rest.next().ok_or(SYNTAX_ERROR)?)?;
        } else {
            return Err(SYNTAX_ERROR.into());
        }
    }
    let same_database = to == context.client.database;
    if same_database && source == target {
        return Err("ERR source and destination objects are the same".into());
    }
    let copied = match session.get(source, |value| (value.bytes.to_vec(), value.expires_at_ms))? {
        None => {
            lists::refuse_queue(context, source)?;
            false
        }
        Some((value, expires_at_ms)) if same_database => {
            put_copy(session, target, &value, expires_at_ms, replace)?
        }
        Some((value, expires_at_ms)) => {
            // The other database is written through a session of its own, committed at the end of the turn.
            context.client.touched |= 1 << to;
            let session = context.core.others.open(to, &context.shared.maps)?;
            session.set_wait(match context.atomic {
                true => Wait::ForRoom,
                false => context.client.wait(),
            });
            put_copy(session, target, &value, expires_at_ms, replace)?
        }
    };
    context.out.integer(i64::from(copied));
    Ok(())
}

fn put_copy(
    session: &mut Session,
    target: &[u8],
    value: &[u8],
    expires_at_ms: Option<u64>,
    replace: bool,
) -> terrace::Result<bool> {
    if !replace && session.get(target, |_| ())?.is_some() {
        return Ok(false);
    }
    session.put(target, value, expires_at_ms)?;
    Ok(true)
}
