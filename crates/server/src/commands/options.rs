//! Options that several commands share: conditions and times of expiry.

use super::{Failure, SYNTAX_ERROR, integer};
use crate::resp::Args;

/// Units and origin of a time given by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
    /// Seconds since 1970.
    AtSeconds,
    /// Milliseconds since 1970.
    AtMilliseconds,
}

impl When {
    fn in_seconds(self) -> bool {
        matches!(self, When::Seconds | When::AtSeconds)
    }
    fn is_relative(self) -> bool {
        matches!(self, When::Seconds | When::Milliseconds)
    }

    /// The moment `argument` stands for, in milliseconds since 1970; may lie in the past.
    pub(super) fn moment(
        self,
        argument: &[u8],
        now_ms: u64,
        command: &str,
    ) -> Result<i64, Failure> {
        let invalid = || Failure::from(format!("ERR invalid expire time in '{command}' command"));
        let mut ms = integer(argument)?;
        if self.in_seconds() {
            ms = ms.checked_mul(1000).ok_or_else(invalid)?;
        }
        if self.is_relative() {
            ms = ms.checked_add(now_ms as i64).ok_or_else(invalid)?;
        }
        Ok(ms)
    }

    /// The same, for commands that take positive times only.
    pub(super) fn positive_moment(
        self,
        argument: &[u8],
        now_ms: u64,
        command: &str,
    ) -> Result<u64, Failure> {
        if integer(argument)? <= 0 {
            return Err(format!("ERR invalid expire time in '{command}' command").into());
        }
        Ok(self.moment(argument, now_ms, command)? as u64)
    }
}

/// When a key may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Condition {
    #[default]
    Always,
    IfAbsent,
    IfPresent,
}

/// What becomes of a key's expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Expiry {
    /// None was asked for: SET clears it, GETEX leaves it.
    #[default]
    Unsaid,
    Keep,
    Persist,
    At(u64),
}

/// The options of SET, and those of GETEX.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetOptions {
    pub(super) condition: Condition,
    pub(super) expiry: Expiry,
    /// Reply with the old value.
    pub(super) get: bool,
}

/// Which command's options are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Set,
    GetEx,
}

impl SetOptions {
    /// Reads the options from argument `first` on.
    pub(super) fn parse(
        family: Family,
        args: Args<'_>,
        first: usize,
        now_ms: u64,
    ) -> Result<SetOptions, Failure> {
        let set = family == Family::Set;
        let mut options = SetOptions::default();
        let mut time: Option<(When, &[u8])> = None;
        let mut rest = args.from(first);
        while let Some(option) = rest.next() {
            let free = time.is_none() && options.expiry == Expiry::Unsaid;
            match &option.to_ascii_uppercase()[..] {
                b"NX" if set && options.condition != Condition::IfPresent => {
                    options.condition = Condition::IfAbsent
                }
                b"XX" if set && options.condition != Condition::IfAbsent => {
                    options.condition = Condition::IfPresent
                }
                b"GET" if set => options.get = true,
                b"KEEPTTL" if set && time.is_none() => options.expiry = Expiry::Keep,
                b"PERSIST" if !set && time.is_none() => options.expiry = Expiry::Persist,
                name => {
                    let when = match name {
                        b"EX" => When::Seconds,
                        b"PX" => When::Milliseconds,
                        b"EXAT" => When::AtSeconds,
                        b"PXAT" => When::AtMilliseconds,
                        _ => return Err(SYNTAX_ERROR.into()),
                    };
                    let again = time.is_some_and(|(before, _)| before == when);
                    match rest.next() {
                        Some(argument) if free || again => time = Some((when, argument)),
                        _ => return Err(SYNTAX_ERROR.into()),
                    }
                }
            }
        }
        if let Some((when, argument)) = time {
            let command = if set { "set" } else { "getex" };
            options.expiry = Expiry::At(when.positive_moment(argument, now_ms, command)?);
        }
        Ok(options)
    }
}
