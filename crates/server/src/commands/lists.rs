//! Lists, as far as a bounded queue can be one: LPUSH, RPUSH, LPUSHX, RPUSHX, LPOP, RPOP, BLPOP, BRPOP, LLEN.
//!
//! A queue is first in, first out, so what goes in at one end comes out at the other: LPUSH with RPOP, or RPUSH
//! with LPOP, the two ways in which lists serve as queues. Which of them a queue is used in is kept with
//! it, and may change when it is empty. The other pairs would be a stack and are refused, as is everything that
//! looks into the middle. Queues have names of their own beside those of keys: a key may be called the same, and
//! GET does not know them. A queue is there for DEL, EXISTS, TYPE and SCAN TYPE list while it has elements;
//! DEL, FLUSHDB and FLUSHALL empty it, and remove it unless the configuration declares it. It cannot be renamed,
//! copied or made to expire.
//!
//! Popped elements are gone from the queue, so no more are popped than the reply takes: a pop with a count
//! answers fewer, and one whose first element does not fit waits until the client has read what it was
//! answered before. One that never fits is refused, and stays.
//!
//! A client that waits (BLPOP, BRPOP) is held as by a pause: its request stays unexecuted, and is tried again
//! when something is pushed, and when its time is over. Those of one loop are tried in the order in which they
//! began to wait.

use super::{Context, Failure, Outcome, integer};
use crate::clients::Waits;
use crate::resp::Args;
use std::sync::atomic::Ordering::SeqCst;
use terrace::queue::Most;
use terrace::{Error, Queue};

/// The end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Left = 1,
    Right = 2,
}

impl End {
    fn other(self) -> End {
        match self {
            End::Left => End::Right,
            End::Right => End::Left,
        }
    }
    fn letter(self) -> char {
        match self {
            End::Left => 'L',
            End::Right => 'R',
        }
    }
    /// Where elements go into the queue, if any ever did.
    fn into(queue: &Queue) -> Option<End> {
        [End::Left, End::Right].into_iter().find(|end| *end as u64 == queue.note())
    }
}

/// Elements pushed or popped by one command at most: one loop must not stand still for long.
const ELEMENTS: usize = 4096;
/// Bytes of a reply around an element, and around all of them: a length and ends of lines.
const AROUND_BYTES: usize = 32;

pub(super) fn lpush(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push_or_make(context, End::Left, args)
}
pub(super) fn rpush(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push_or_make(context, End::Right, args)
}
pub(super) fn lpushx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push_if_any(context, End::Left, args)
}
pub(super) fn rpushx(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    push_if_any(context, End::Right, args)
}
pub(super) fn lpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(context, End::Left, args)
}
pub(super) fn rpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop(context, End::Right, args)
}
pub(super) fn blpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop_or_wait(context, End::Left, args)
}
pub(super) fn brpop(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    pop_or_wait(context, End::Right, args)
}

pub(super) fn llen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let queue = in_database_0(context)?.shared.queues.get(args.at(1));
    context.out.integer(queue.map_or(0, |queue| queue.len() as i64));
    Ok(())
}

fn in_database_0<'c, 'a>(context: &'c mut Context<'a>) -> Result<&'c mut Context<'a>, Failure> {
    match context.client.database {
        0 => Ok(context),
        _ => Err("ERR queues are in database 0 alone".into()),
    }
}

/// Pushes to the queue of this name, which another client may remove at the same time because it is empty.
fn push_or_make(context: &mut Context<'_>, end: End, args: Args<'_>) -> Outcome {
    loop {
        let queue = in_database_0(context)?.shared.queues.get_or_make(args.at(1))?;
        let pushed = push(context, queue.clone(), end, args);
        if pushed.is_ok() || !queue.was_given_up() {
            return pushed;
        }
    }
}

/// Elements of the arguments from the third on, all or none of them. The reply is the length.
fn push(context: &mut Context<'_>, queue: Queue, end: End, args: Args<'_>) -> Outcome {
    if args.len() - 2 > ELEMENTS {
        return Err(format!("ERR at most {ELEMENTS} elements are pushed at once").into());
    }
    if End::into(&queue) != Some(end) {
        turn_round(&queue, end)?;
    }
    let elements: Vec<&[u8]> = args.from(2).collect();
    let ticket = queue.enqueue(&elements).map_err(refused)?;
    context.out.integer(queue.len() as i64);
    note(context, queue, ticket);
    context.shared.tell_pushed();
    Ok(())
}

/// From now on elements go in at `end`.
fn turn_round(queue: &Queue, end: End) -> Outcome {
    match End::into(queue) {
        Some(before) if !queue.is_empty() => Err(format!(
            "ERR this queue is pushed to by {}PUSH: it is first in, first out, and turns round only when \
             it is empty",
            before.letter()
        )
        .into()),
        _ => Ok(queue.set_note(end as u64)?),
    }
}

fn push_if_any(context: &mut Context<'_>, end: End, args: Args<'_>) -> Outcome {
    match in_database_0(context)?.shared.queues.get(args.at(1)) {
        Some(queue) if !queue.is_empty() => push(context, queue, end, args),
        _ => {
            context.out.integer(0);
            Ok(())
        }
    }
}

/// The queue's own refusals have no code that clients know, a full one but for that of a full memory.
fn refused(error: Error) -> Failure {
    match error {
        Error::QueueFull { .. } => format!("OOM {error}").into(),
        Error::ElementSize(..) => format!("ERR {error}").into(),
        error => error.into(),
    }
}

fn note(context: &mut Context<'_>, queue: Queue, ticket: terrace::queue::QueueTicket) {
    context.client.touched_apart = true;
    context.core.queues.note(queue, ticket);
}

/// Pops to the turn's buffer; how many. None of what does not fit yet: then the request is held.
fn take(context: &mut Context<'_>, name: &[u8], end: End, most: usize) -> Result<usize, Failure> {
    let Some(queue) = in_database_0(context)?.shared.queues.get(name) else { return Ok(0) };
    if let Some(into) = End::into(&queue).filter(|into| *into == end && !queue.is_empty()) {
        return Err(format!(
            "ERR this queue is pushed to by {}PUSH: it is first in, first out, and popped by {}POP",
            into.letter(),
            into.other().letter()
        )
        .into());
    }
    let around = name.len() + 2 * AROUND_BYTES;
    let most = Most {
        elements: most,
        bytes: context.out.room_bytes().saturating_sub(around) as u64,
        each_bytes: AROUND_BYTES as u64,
    };
    context.core.queues.popped.clear();
    match queue.dequeue_within(most, &mut context.core.queues.popped) {
        Ok((taken, ticket)) => {
            note(context, queue, ticket);
            Ok(taken)
        }
        Err(Error::ElementBeyond(..)) if !context.out.is_empty() => {
            context.client.is_held = true;
            context.client.awaits_room = true;
            Ok(0)
        }
        Err(Error::ElementBeyond(bytes, most)) => Err(format!(
            "ERR the next element has {bytes} bytes, and a reply takes {most}: raise limits.output_buffer; the \
             element stays"
        )
        .into()),
        // It was empty.
        Err(_) if queue.was_given_up() => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Empties the queue of this name, and removes it if clients made it; whether it had elements.
pub(super) fn empty(context: &mut Context<'_>, name: &[u8]) -> Result<bool, Failure> {
    let is_here = context.client.database == 0;
    let Some(queue) = is_here.then(|| context.shared.queues.get(name)).flatten() else {
        return Ok(false);
    };
    if context.atomic {
        return match queue.is_empty() {
            true => Ok(false),
            false => Err("ERR a queue is not emptied inside a transaction".into()),
        };
    }
    let discarded = discard(context, queue)?;
    context.shared.queues.give_up(name)?;
    Ok(discarded > 0)
}

/// Empties every queue, and removes those that clients made.
pub(super) fn empty_all(context: &mut Context<'_>) -> Outcome {
    for (name, queue) in context.shared.queues.all() {
        discard(context, queue)?;
        context.shared.queues.give_up(&name)?;
    }
    Ok(())
}

fn discard(context: &mut Context<'_>, queue: Queue) -> Result<u64, Failure> {
    match queue.discard() {
        Ok((discarded, ticket)) => {
            note(context, queue, ticket);
            Ok(discarded)
        }
        Err(_) if queue.was_given_up() => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// The queue of this name, if the client can see one: it has elements.
pub(super) fn find(context: &Context<'_>, name: &[u8]) -> Option<Queue> {
    let is_here = context.client.database == 0;
    is_here.then(|| context.shared.queues.get(name))?.filter(|queue| !queue.is_empty())
}

/// What a command answers that moves keys, if `name` is no key but a queue.
pub(super) fn refuse_queue(context: &Context<'_>, name: &[u8]) -> Outcome {
    match find(context, name) {
        Some(_) => Err(format!(
            "ERR '{}' is a queue: it keeps its name, and is not copied",
            String::from_utf8_lossy(name)
        )
        .into()),
        None => Ok(()),
    }
}

fn pop(context: &mut Context<'_>, end: End, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        let name = format!("{}pop", end.letter().to_ascii_lowercase());
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let many = args.get(2).map(|count| match integer(count) {
        Ok(count @ 0..) => Ok(count as usize),
        _ => Err(Failure::from("ERR value is out of range, must be positive")),
    });
    let many = many.transpose()?;
    let taken = take(context, args.at(1), end, many.unwrap_or(1).min(ELEMENTS))?;
    if context.client.is_held {
        return Ok(());
    }
    match many {
        None if taken == 0 => context.out.null(),
        None => {}
        Some(count) if taken == 0 && (count > 0 || find(context, args.at(1)).is_none()) => {
            context.out.null_array();
        }
        Some(_) => context.out.array(taken),
    }
    context.core.queues.popped.iter().take(taken).for_each(|element| context.out.bulk(element));
    Ok(())
}

/// When a wait of so many seconds, 0 for ever, is over, in milliseconds since the server started.
fn deadline(context: &Context<'_>, seconds: &[u8]) -> Result<u64, Failure> {
    let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<f64>().ok());
    match seconds.filter(|seconds| seconds.is_finite()) {
        None => Err("ERR timeout is not a float or out of range".into()),
        Some(..0.0) => Err("ERR timeout is negative".into()),
        Some(0.0) => Ok(u64::MAX),
        Some(seconds) => Ok(context.core.uptime_ms.saturating_add((seconds * 1e3).ceil() as u64)),
    }
}

fn pop_or_wait(context: &mut Context<'_>, end: End, args: Args<'_>) -> Outcome {
    let until_ms = match context.client.waits_until_ms {
        Some(until_ms) => until_ms,
        None => deadline(context, args.at(args.len() - 1))?,
    };
    if pop_first(context, end, args)? {
        return Ok(());
    }
    if context.client.waits_until_ms.is_none() {
        // Counted first, then asked again: who pushes meanwhile sees the count, or is seen here.
        context.client.waits_until_ms = Some(until_ms);
        context.client.info.waits.set(Waits::Yes);
        context.shared.queues.waiting.fetch_add(1, SeqCst);
        if pop_first(context, end, args)? {
            return Ok(());
        }
    }
    match context.client.info.waits.get() {
        Waits::ToldError => return Err("UNBLOCKED client unblocked via CLIENT UNBLOCK".into()),
        Waits::ToldOver => context.out.null_array(),
        _ if context.core.uptime_ms < until_ms => context.client.is_held = true,
        _ => context.out.null_array(),
    }
    Ok(())
}

/// Pops from the first of the named queues that has an element; whether one had, though it may not fit yet.
fn pop_first(context: &mut Context<'_>, end: End, args: Args<'_>) -> Result<bool, Failure> {
    for i in 1..args.len() - 1 {
        let taken = take(context, args.at(i), end, 1)?;
        if context.client.is_held {
            return Ok(true);
        }
        if taken == 1 {
            context.out.array(2);
            context.out.bulk(args.at(i));
            context.core.queues.popped.iter().for_each(|element| context.out.bulk(element));
            return Ok(true);
        }
    }
    Ok(false)
}
