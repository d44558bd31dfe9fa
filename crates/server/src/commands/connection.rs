//! The connection itself: PING, ECHO, SELECT, AUTH, HELLO, RESET, QUIT.

use super::keys::database;
use super::{Close, Context, Failure, Outcome, Replies, SYNTAX_ERROR, Watching};
use crate::resp::Args;
use crate::resp::number;
use crate::sql::OfClient;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

/// The version of Redis whose behaviour clients may expect.
pub(super) const REDIS_VERSION: &str = "7.0.15";

pub(super) fn ping(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.get(1) {
        _ if args.len() > 2 => {
            return Err("ERR wrong number of arguments for 'ping' command".into());
        }
        Some(text) => context.out.bulk(text),
        None => context.out.simple("PONG"),
    }
    Ok(())
}

pub(super) fn echo(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.out.bulk(args.at(1));
    Ok(())
}

pub(super) fn select(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.client.database = database(context, args.at(1))?;
    context.out.ok();
    Ok(())
}

pub(super) fn quit(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.client.close = Close::AfterReplies;
    context.out.ok();
    Ok(())
}

pub(super) fn reset(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let client = &mut *context.client;
    client.transaction = None;
    client.watched = Watching::default();
    client.snapshots.close_all();
    client.sql = OfClient::default();
    client.database = 0;
    client.replies = Replies::default();
    client.authenticated = !context.shared.config.has_password();
    client.info.no_evict.store(false, Relaxed);
    client.info.no_touch.store(false, Relaxed);
    client.info.words.write().name.clear();
    context.out.resp3 = false;
    context.out.simple("RESET");
    Ok(())
}

/// Whether two passwords are the same, in a time that depends on the given one's length alone.
fn same_password(expected: &[u8], given: &[u8]) -> bool {
    let mut difference = usize::from(expected.len() != given.len());
    for (i, byte) in given.iter().enumerate() {
        let other = expected.get(i % expected.len().max(1)).copied().unwrap_or(0);
        difference |= usize::from(black_box(byte ^ other));
    }
    black_box(difference) == 0
}

fn authenticate(context: &mut Context<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let expected = context.shared.config.password.read();
    // Without a password the user `default` takes any.
    let right =
        expected.as_ref().is_none_or(|expected| same_password(expected.as_bytes(), password));
    if !right || user != b"default" {
        return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
    }
    context.client.authenticated = true;
    Ok(())
}

pub(super) fn auth(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if !context.shared.config.has_password() => {
            return Err("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?".into());
        }
        2 => authenticate(context, b"default", args.at(1))?,
        3 => authenticate(context, args.at(1), args.at(2))?,
        _ => return Err(SYNTAX_ERROR.into()),
    }
    context.out.ok();
    Ok(())
}

/// Whether a client may call itself so: printable, no blanks.
pub(super) fn is_good_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// The error for a name with blanks or worse.
pub(super) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

/// HELLO [version [AUTH user password] [SETNAME name]].
pub(super) fn hello(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let version = match args.get(1).map(number::integer) {
        None => None,
        Some(None) => return Err("ERR Protocol version is not an integer or out of range".into()),
        Some(Some(version @ 2..=3)) => Some(version),
        Some(Some(_)) => return Err("NOPROTO unsupported protocol version".into()),
    };
    let mut credentials = None;
    let mut name = None;
    let mut rest = args.from(2);
    while let Some(option) = rest.next() {
        let syntax = || -> Failure {
            format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option)).into()
        };
        if option.eq_ignore_ascii_case(b"auth") && rest.len() >= 2 {
            credentials = rest.next().zip(rest.next());
        } else if option.eq_ignore_ascii_case(b"setname") {
            let given = rest.next().ok_or_else(syntax)?;
            if !is_good_name(given) {
                return Err(BAD_NAME.into());
            }
            name = Some(String::from_utf8_lossy(given).into_owned());
        } else {
            return Err(syntax());
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(context, user, password)?;
    }
    if !context.client.authenticated {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into());
    }
    if let Some(name) = name {
        context.client.info.words.write().name = name;
    }
    if let Some(version) = version {
        context.out.resp3 = version == 3;
    }
    greet(context);
    Ok(())
}

/// What HELLO replies.
fn greet(context: &mut Context<'_>) {
    let id = context.client.info.id as i64;
    let out = &mut *context.out;
    let version = if out.resp3 { 3 } else { 2 };
    out.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        out.bulk(key.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"proto");
    out.integer(version);
    out.bulk(b"id");
    out.integer(id);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        out.bulk(key.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"modules");
    out.array(0);
}

#[cfg(test)]
mod tests {
    use super::same_password;

    #[test]
    fn passwords() {
        let cases: [(&str, &str, bool); 6] = [
            ("a", "a", true),
            ("a", "b", false),
            ("ab", "a", false),
            ("a", "aa", false),
            ("a", "", false),
            ("secret", "secret", true),
        ];
        for (expected, given, same) in cases {
            assert_eq!(
                same_password(expected.as_bytes(), given.as_bytes()),
                same,
                "{expected} {given}"
            );
        }
    }
}
