//! SNAPSHOT.OPEN, SNAPSHOT.GET, SNAPSHOT.MGET, SNAPSHOT.RANGE, SNAPSHOT.READ, SNAPSHOT.CLOSE, SNAPSHOT.LIST: all
//! databases as they were at one moment, read while others write.
//!
//! A snapshot belongs to its connection and ends with it. While it is open, writers keep what it may still read: so a
//! client has a few, each for a limited time. When the copies of a database take more than a quarter of the memory
//! budget, the snapshots of all clients lose it.

use super::ordered::{Asked, Found, between};
use super::{Context, Failure, Outcome, integer};
use crate::resp::{Args, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace::{MapSnapshot, Moment, Range, Session, Value};

/// Snapshots that a client may have open, and all clients together: each write of a key looks at those that are.
const OPEN_MOST: usize = 16;
const ALL_OPEN_MOST: usize = 1_000;
/// Records, and ranges, of one SNAPSHOT.READ, and keys that a command looks at in vain: none holds up a loop for long.
const RECORDS_MOST: usize = 10_000;
const RANGES_MOST: usize = 1_000;
const LOOKS_MOST: usize = 100_000;
/// Keys whose values are held in memory until they are told.
const TOGETHER: usize = 16;

/// The snapshots of a client.
#[derive(Default)]
pub(crate) struct Snapshots {
    open: Vec<Held>,
    /// Numbers are not used twice: what was closed is not mistaken for what was opened later.
    last: u64,
}

struct Held {
    number: u64,
    moment: Arc<Moment>,
    /// When it is closed, in milliseconds since the server started.
    until_ms: u64,
    /// Those of all clients.
    count: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}

impl Snapshots {
    /// Closes those whose time is over.
    pub(crate) fn close_old(&mut self, now_ms: u64) {
        self.open.retain(|held| now_ms < held.until_ms);
    }

    pub(crate) fn close_all(&mut self) {
        self.open.clear();
    }
}

/// `SNAPSHOT.OPEN`: the number of a new one.
pub(super) fn open(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let now_ms = context.core.uptime_ms;
    let snapshots = &mut context.client.snapshots;
    snapshots.close_old(now_ms);
    if snapshots.open.len() >= OPEN_MOST {
        let text =
            format!("ERR a client has at most {OPEN_MOST} snapshots: close one (SNAPSHOT.CLOSE)");
        return Err(text.into());
    }
    let count = &context.shared.open_snapshots;
    if count.load(Relaxed) >= ALL_OPEN_MOST {
        let text =
            format!("ERR all clients have at most {ALL_OPEN_MOST} snapshots: try again later");
        return Err(text.into());
    }
    count.fetch_add(1, Relaxed);
    snapshots.last += 1;
    snapshots.open.push(Held {
        number: snapshots.last,
        moment: context.shared.maps.database().snapshot(),
        until_ms: now_ms + context.core.limits.snapshot_ms,
        count: Arc::clone(count),
    });
    context.out.integer(snapshots.last as i64);
    Ok(())
}

/// The moment of the snapshot that the first argument names.
fn moment(context: &Context<'_>, args: Args<'_>) -> Result<Arc<Moment>, Failure> {
    let (number, now_ms) = (integer(args.at(1))?, context.core.uptime_ms);
    let is_it = |held: &&Held| held.number as i64 == number && now_ms < held.until_ms;
    let held = context.client.snapshots.open.iter().find(is_it);
    held.map(|held| Arc::clone(&held.moment)).ok_or_else(|| {
        let text =
            "it was closed, or its time is over (snapshot-timeout): open a new one (SNAPSHOT.OPEN)";
        format!("ERR this connection has no snapshot {number}: {text}").into()
    })
}

/// `SNAPSHOT.GET number key`.
pub(super) fn get(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let moment = moment(context, args)?;
    let out = &mut *context.out;
    let told = session
        .at(&moment, |snapshot| snapshot.get_with(args.at(2), |value| out.bulk(value.bytes)))?;
    if told.is_none() {
        out.null();
    }
    context.looked_up(told.is_some());
    Ok(())
}

/// Looks up `keys`, few at a time, until `each` says no; the snapshot holds what it tells of those few in memory.
fn look_up(
    snapshot: &MapSnapshot,
    keys: &[&[u8]],
    mut each: impl FnMut(&[u8], Option<Value<'_>>) -> bool,
) -> terrace::Result<()> {
    for some in keys.chunks(TOGETHER) {
        let mut goes_on = true;
        snapshot.multi_get(some, |number, value| {
            goes_on = goes_on && each(some[number], value);
        })?;
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// `SNAPSHOT.MGET number key [key ...]`.
pub(super) fn mget(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let moment = moment(context, args)?;
    let keys: Vec<&[u8]> = args.from(2).collect();
    let (out, mut found) = (&mut *context.out, 0);
    out.array(keys.len());
    session.at(&moment, |snapshot| {
        look_up(snapshot, &keys, |_, value| {
            found += u64::from(value.is_some());
            match value {
                Some(value) => out.bulk(value.bytes),
                None => out.null(),
            }
            !out.overflowed()
        })
    })?;
    context.stats.key_hits.add(found);
    context.stats.key_misses.add(keys.len() as u64 - found);
    Ok(())
}

/// Visits a range until `each` says no; `looks` is less by the keys that were looked at then.
fn visit(
    snapshot: &MapSnapshot,
    range: Range<'_>,
    looks: &mut usize,
    each: impl FnMut(&[u8], Value<'_>) -> bool,
) -> Result<(), Failure> {
    match snapshot.range_while(range, looks, each)? {
        true => Ok(()),
        false => {
            let text = "are newer than the snapshot: ask for parts, or open a new snapshot";
            Err(format!("ERR more than {LOOKS_MOST} keys of what was asked for {text}").into())
        }
    }
}

/// `SNAPSHOT.RANGE number min max [LIMIT n] [KEYS]`, or `SNAPSHOT.RANGE number max min REV ...`, as RANGE.
pub(super) fn range(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let asked = Asked::parse(args, 2)?;
    let moment = moment(context, args)?;
    let mut found = Found::of(&asked, context.core.limits.output_buffer_bytes);
    let (mut left, mut looks) = (asked.limit, asked.limit + LOOKS_MOST);
    within(session, &moment, |snapshot| {
        visit(snapshot, asked.range, &mut looks, |key, value| {
            left -= 1;
            found.push(key, value) && left > 0
        })
    })?;
    found.reply(context.out);
    Ok(())
}

/// [`Session::at`] for what fails as commands do.
fn within(
    session: &mut Session,
    moment: &Arc<Moment>,
    f: impl FnOnce(&MapSnapshot) -> Result<(), Failure>,
) -> Outcome {
    session.at(moment, |snapshot| Ok(f(snapshot)))?
}

/// `SNAPSHOT.READ number keys key ... [min max ...]`: the records of so many keys, and of ranges, as three arrays.
/// Their keys, their values, and where in these the records of each key and range end.
pub(super) fn read(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let rest: Vec<&[u8]> = args.from(3).collect();
    let count = usize::try_from(integer(args.at(2))?).ok().filter(|count| *count <= rest.len());
    let count = count.ok_or("ERR SNAPSHOT.READ takes a number of keys, and then so many keys")?;
    let (keys, bounds) = rest.split_at(count);
    if !bounds.len().is_multiple_of(2) {
        return Err("ERR SNAPSHOT.READ takes pairs of min and max behind the keys".into());
    }
    if bounds.len() / 2 > RANGES_MOST {
        return Err(format!("ERR SNAPSHOT.READ reads at most {RANGES_MOST} ranges").into());
    }
    let too_many = || {
        let text = "ask for parts, or use SNAPSHOT.RANGE";
        Failure::from(format!("ERR SNAPSHOT.READ reads at most {RECORDS_MOST} records: {text}"))
    };
    if keys.len() > RECORDS_MOST {
        return Err(too_many());
    }
    let moment = moment(context, args)?;
    let mut records = Records::new(context.core.limits.output_buffer_bytes);
    let mut looks = RECORDS_MOST + LOOKS_MOST;
    within(session, &moment, |snapshot| {
        look_up(snapshot, keys, |key, value| {
            let goes_on = value.is_none_or(|value| records.push(key, value));
            records.ends.push(records.count);
            goes_on
        })?;
        for pair in bounds.chunks_exact(2) {
            visit(snapshot, between(pair[0], pair[1])?, &mut looks, |key, value| {
                records.push(key, value) && records.count <= RECORDS_MOST
            })?;
            if records.count > RECORDS_MOST {
                return Err(too_many());
            }
            records.ends.push(records.count);
        }
        Ok(())
    })?;
    records.reply(context.out);
    Ok(())
}

/// Records on their way into a reply.
struct Records {
    keys: Output,
    values: Output,
    count: usize,
    ends: Vec<usize>,
}

impl Records {
    fn new(limit_bytes: usize) -> Records {
        let output = || Output::new(limit_bytes);
        Records { keys: output(), values: output(), count: 0, ends: Vec::new() }
    }

    /// Whether there is room for more.
    fn push(&mut self, key: &[u8], value: Value<'_>) -> bool {
        self.keys.bulk(key);
        self.values.bulk(value.bytes);
        self.count += 1;
        !(self.keys.overflowed() || self.values.overflowed())
    }

    fn reply(&self, out: &mut Output) {
        out.array(3);
        for records in [&self.keys, &self.values] {
            out.array(self.count);
            out.raw(records.unsent());
            if records.overflowed() {
                out.overflow();
            }
        }
        out.array(self.ends.len());
        self.ends.iter().for_each(|end| out.integer(*end as i64));
    }
}

/// `SNAPSHOT.CLOSE number [number ...]`: how many were open.
pub(super) fn close(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let numbers = args.from(1).map(integer).collect::<Result<Vec<_>, _>>()?;
    let snapshots = &mut context.client.snapshots;
    snapshots.close_old(context.core.uptime_ms);
    let before = snapshots.open.len();
    snapshots.open.retain(|held| !numbers.contains(&(held.number as i64)));
    context.out.integer((before - snapshots.open.len()) as i64);
    Ok(())
}

/// `SNAPSHOT.LIST`: those of this connection, each as its number and the milliseconds that are left.
pub(super) fn list(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let now_ms = context.core.uptime_ms;
    let snapshots = &mut context.client.snapshots;
    snapshots.close_old(now_ms);
    context.out.array(snapshots.open.len());
    for held in &snapshots.open {
        context.out.array(2);
        context.out.integer(held.number as i64);
        context.out.integer((held.until_ms - now_ms) as i64);
    }
    Ok(())
}
