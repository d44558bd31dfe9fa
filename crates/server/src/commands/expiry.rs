//! Keys that end: EXPIRE and its variants, TTL and its variants, PERSIST.

use super::made::Made;
use super::options::When;
use super::{Context, Failure, Outcome};
use crate::resp::Args;
use terrace::{Change, Session, Value};

/// When EXPIRE may change a key's expiry.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Conditions, Failure> {
        let mut conditions = Conditions::default();
        for option in args.from(3) {
            match &option.to_ascii_uppercase()[..] {
                b"NX" => conditions.if_none = true,
                b"XX" => conditions.if_some = true,
                b"GT" => conditions.if_later = true,
                b"LT" => conditions.if_sooner = true,
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(format!("ERR Unsupported option {option}").into());
                }
            }
        }
        let Conditions { if_none, if_some, if_later, if_sooner } = conditions;
        if if_none && (if_some || if_later || if_sooner) {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".into()
            );
        }
        if if_later && if_sooner {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(conditions)
    }

    /// Whether a key that ends at `old` (`None`: never) may be made to end at `new`.
    fn allow(self, old: Option<u64>, new: i64) -> bool {
        let later = old.is_some_and(|old| new > old as i64);
        let sooner = old.is_none_or(|old| new < old as i64);
        !(self.if_none && old.is_some()
            || self.if_some && old.is_none()
            || self.if_later && !later
            || self.if_sooner && !sooner)
    }
}

fn expire_key(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
    when: When,
    command: &str,
) -> Outcome {
    let now_ms = context.core.now_ms;
    let conditions = Conditions::parse(args)?;
    let at = when.moment(args.at(2), now_ms, command)?;
    let allows = |old: &Value<'_>| conditions.allow(old.expires_at_ms, at);
    let Some(later_ms) = u64::try_from(at).ok().filter(|at| *at > now_ms) else {
        let deleted = session.delete_if(args.at(1), |old| allows(&old))?;
        context.out.integer(i64::from(deleted));
        return Ok(());
    };
    let made = Made::default();
    let mut changed = false;
    session.update(args.at(1), |old| {
        let allowed = old.filter(allows);
        changed = allowed.is_some();
        allowed.map_or(Change::Keep, |old| made.again(&old, Some(later_ms)))
    })?;
    context.out.integer(i64::from(changed));
    Ok(())
}

pub(super) fn expire(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    expire_key(context, session, args, When::Seconds, "expire")
}
pub(super) fn pexpire(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    expire_key(context, session, args, When::Milliseconds, "pexpire")
}
pub(super) fn expireat(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
) -> Outcome {
    expire_key(context, session, args, When::AtSeconds, "expireat")
}
pub(super) fn pexpireat(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
) -> Outcome {
    expire_key(context, session, args, When::AtMilliseconds, "pexpireat")
}

/// Replies what `shown` makes of the moment a key ends, -1 if it does not, -2 if there is none.
fn reply_moment(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
    shown: impl FnOnce(u64) -> u64,
) -> Outcome {
    let found = session.get(args.at(1), |value| value.expires_at_ms)?;
    context.looked_up(found.is_some());
    context.out.integer(match found {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => shown(at) as i64,
    });
    Ok(())
}

pub(super) fn ttl(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let now_ms = context.core.now_ms;
    reply_moment(context, session, args, |at| (at.saturating_sub(now_ms) + 500) / 1000)
}
pub(super) fn pttl(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let now_ms = context.core.now_ms;
    reply_moment(context, session, args, |at| at.saturating_sub(now_ms))
}
pub(super) fn expiretime(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
) -> Outcome {
    reply_moment(context, session, args, |at| (at + 500) / 1000)
}
pub(super) fn pexpiretime(
    context: &mut Context<'_>,
    session: &mut Session,
    args: Args<'_>,
) -> Outcome {
    reply_moment(context, session, args, |at| at)
}

pub(super) fn persist(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let made = Made::default();
    let mut changed = false;
    session.update(args.at(1), |old| {
        let expiring = old.filter(|old| old.expires_at_ms.is_some());
        changed = expiring.is_some();
        expiring.map_or(Change::Keep, |old| made.again(&old, None))
    })?;
    context.out.integer(i64::from(changed));
    Ok(())
}
