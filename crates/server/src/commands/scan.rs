//! Whole databases: SCAN, KEYS, RANDOMKEY, DBSIZE, FLUSHDB, FLUSHALL.
//!
//! All of them are about keys; queues are listed by SCAN with TYPE list, and emptied by FLUSHDB of database 0 and
//! FLUSHALL.

use super::{Context, Failure, Outcome, SYNTAX_ERROR, integer, lists};
use crate::glob;
use crate::resp::{Args, Output};
use terrace::{Error, Session};

/// Keys looked at per step of KEYS.
const STEP_KEYS: usize = 1024;
/// Keys looked at per step when a random one is sought.
const RANDOM_STEP_KEYS: usize = 16;
/// Random places tried before any key will do.
const RANDOM_TRIES: usize = 8;
/// Most keys one SCAN may ask for, so that one call cannot hold up a loop for long.
const SCAN_COUNT_MAX: i64 = 1 << 20;

/// KEYS, as far as it came.
pub(crate) struct Listing {
    keys: Output,
    count: usize,
    cursor: u64,
}

impl Listing {
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }
}

/// What SCAN was asked for.
struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    /// A type was named that no key here has.
    nothing: bool,
    /// Queues were asked for.
    lists: bool,
}

impl<'a> ScanOptions<'a> {
    fn parse(args: Args<'a>) -> Result<ScanOptions<'a>, Failure> {
        let mut options = ScanOptions { pattern: None, count: 10, nothing: false, lists: false };
        let mut rest = args.from(2);
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or(SYNTAX_ERROR)?;
            if option.eq_ignore_ascii_case(b"match") {
                options.pattern = Some(value).filter(|pattern| *pattern != b"*");
            } else if option.eq_ignore_ascii_case(b"count") {
                let count = integer(value)?;
                if count < 1 {
                    return Err(SYNTAX_ERROR.into());
                }
                options.count = count.min(SCAN_COUNT_MAX) as usize;
            } else if option.eq_ignore_ascii_case(b"type") {
                options.nothing = !value.eq_ignore_ascii_case(b"string");
                options.lists = value.eq_ignore_ascii_case(b"list");
            } else {
                return Err(SYNTAX_ERROR.into());
            }
        }
        Ok(options)
    }
}

/// A cursor: an unsigned integer in decimal.
fn cursor(argument: &[u8]) -> Result<u64, Failure> {
    let digits = argument.iter().all(u8::is_ascii_digit);
    let number =
        std::str::from_utf8(argument).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    Ok(number.ok_or("ERR invalid cursor")?)
}

pub(super) fn scan(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let cursor = cursor(args.at(1))?;
    let options = ScanOptions::parse(args)?;
    if options.lists {
        return scan_queues(context, &options);
    }
    let mut keys = Output::new(context.core.limits.output_buffer_bytes);
    let mut count = 0;
    let next = session.scan(cursor, options.count, |key, _| {
        if !options.nothing && options.pattern.is_none_or(|pattern| glob::matches(pattern, key)) {
            count += 1;
            keys.bulk(key);
        }
    })?;
    context.out.array(2);
    context.out.bulk(next.to_string().as_bytes());
    context.out.array(count);
    context.out.raw(keys.unsent());
    Ok(())
}

/// All queues at once, whatever the cursor and the count: they are few.
fn scan_queues(context: &mut Context<'_>, options: &ScanOptions<'_>) -> Outcome {
    let is_here = context.client.database == 0;
    let mut names = if is_here { context.shared.queues.names() } else { Vec::new() };
    names.retain(|name| options.pattern.is_none_or(|pattern| glob::matches(pattern, name)));
    context.out.array(2);
    context.out.bulk(b"0");
    context.out.array(names.len());
    names.iter().for_each(|name| context.out.bulk(name));
    Ok(())
}

pub(super) fn keys(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let pattern = args.at(1);
    let listing = context.client.keys.take();
    let new = || {
        Box::new(Listing {
            keys: Output::new(context.core.limits.output_buffer_bytes),
            count: 0,
            cursor: 0,
        })
    };
    let mut listing = listing.unwrap_or_else(new);
    loop {
        let Listing { keys, count, cursor } = &mut *listing;
        let before = (keys.mark(), *count);
        let step = session.scan(*cursor, STEP_KEYS, |key, _| {
            if pattern == b"*" || glob::matches(pattern, key) {
                *count += 1;
                keys.bulk(key);
            }
        });
        match step {
            Ok(next) => *cursor = next,
            Err(waits @ Error::Fetching) if !context.atomic => {
                // Some of a step may have been seen.
                keys.truncate(before.0);
                *count = before.1;
                context.client.keys = Some(listing);
                return Err(waits.into());
            }
            Err(error) => return Err(error.into()),
        }
        context.client.fetches = 0;
        if *cursor == 0 || keys.overflowed() {
            break;
        }
    }
    let Listing { keys, count, .. } = *listing;
    context.out.array(count);
    context.out.raw(keys.unsent());
    if keys.overflowed() {
        context.out.overflow();
    }
    Ok(())
}

/// RANDOMKEY: a key near a random place of the index; likely, not exactly, uniform.
pub(super) fn randomkey(
    context: &mut Context<'_>,
    session: &mut Session,
    _args: Args<'_>,
) -> Outcome {
    let mut chosen: Option<Vec<u8>> = None;
    let mut seen = 0;
    let mut choose = |random: u64, key: &[u8]| {
        seen += 1;
        if random.is_multiple_of(seen) {
            chosen = Some(key.to_vec());
        }
    };
    let mut random = || context.core.next_random();
    let mut found = 0;
    for _ in 0..RANDOM_TRIES {
        let place = random();
        found += session.scan_near(place, RANDOM_STEP_KEYS, |key, _| choose(random(), key))?;
        if found > 0 {
            break;
        }
    }
    // At last everything is searched: an index may be nearly empty.
    let mut cursor = 0;
    while found == 0 {
        cursor = session.scan(cursor, RANDOM_STEP_KEYS, |key, _| {
            found += 1;
            choose(random(), key);
        })?;
        if cursor == 0 {
            break;
        }
    }
    match chosen {
        Some(key) => context.out.bulk(&key),
        None => context.out.null(),
    }
    Ok(())
}

pub(super) fn dbsize(context: &mut Context<'_>, session: &mut Session, _args: Args<'_>) -> Outcome {
    context.out.integer(session.len()? as i64);
    Ok(())
}

/// FLUSHDB and FLUSHALL take `SYNC` or `ASYNC`; the engine frees in its own time either way.
fn check_flush_option(args: Args<'_>) -> Outcome {
    match args.get(1) {
        None => Ok(()),
        Some(option)
            if args.len() == 2
                && (option.eq_ignore_ascii_case(b"sync")
                    || option.eq_ignore_ascii_case(b"async")) =>
        {
            Ok(())
        }
        Some(_) => Err(SYNTAX_ERROR.into()),
    }
}

pub(super) fn flushdb(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_flush_option(args)?;
    if context.client.database == 0 {
        lists::empty_all(context)?;
    }
    context.shared.maps.get(context.client.database)?.clear()?;
    context.out.ok();
    Ok(())
}

pub(super) fn flushall(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_flush_option(args)?;
    lists::empty_all(context)?;
    context.shared.maps.opened().try_for_each(|(_, map)| map.clear())?;
    context.out.ok();
    Ok(())
}
