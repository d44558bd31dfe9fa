//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! MULTI queues copies of the requests. EXEC closes the gate, so that nothing else runs on any
//! loop; compares what WATCH saw; and runs the queue. Its writes go through the engine's atomic
//! section and survive a crash together or not at all. A queue that selects another database, or
//! flushes one, is cut there: the parts before and after are isolated as one, but each is its own
//! atomic section, since a section belongs to one map.

use super::execute::Executor;
use super::keys::ITEM_OVERHEAD_BYTES;
use super::{Client, Command, Context, Outcome, flag, too_much_together};
use crate::resp::{Args, Output, Span};
use std::collections::HashMap;
use std::ops::Range;
use terrace::{Bound, Session};

/// A queue of requests.
#[derive(Default)]
pub(crate) struct Transaction {
    text: Vec<u8>,
    spans: Vec<Span>,
    /// Each command, and where its arguments' spans end.
    commands: Vec<(&'static Command, usize)>,
    spoiled: bool,
    writes: bool,
}

impl Transaction {
    /// Adds a request. False: the queue would take more than `bytes_max`.
    pub(crate) fn queue(
        &mut self,
        command: &'static Command,
        args: Args<'_>,
        bytes_max: usize,
    ) -> bool {
        if self.memory_bytes() + args.bytes() > bytes_max {
            return false;
        }
        for argument in args.from(0) {
            let start = self.text.len() as u32;
            self.text.extend_from_slice(argument);
            self.spans.push((start, self.text.len() as u32));
        }
        self.commands.push((command, self.spans.len()));
        self.writes |= command.is(flag::WRITE);
        true
    }
    /// A request could not be queued: EXEC will refuse.
    pub(crate) fn spoil(&mut self) {
        self.spoiled = true;
    }
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }
    pub(crate) fn memory_bytes(&self) -> usize {
        self.text.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.commands.capacity() * size_of::<(&Command, usize)>()
    }
    fn request(&self, i: usize) -> (&'static Command, Args<'_>) {
        let (command, end) = self.commands[i];
        let start = if i == 0 { 0 } else { self.commands[i - 1].1 };
        (command, Args::new(&self.text, &self.spans[start..end]))
    }
    /// The requests from `first` on that can share an atomic section.
    fn section(&self, first: usize) -> Range<usize> {
        let cut = |i: &usize| self.commands[*i].0.is(flag::OUTSIDE_ATOMIC);
        first..(first..self.len()).find(cut).unwrap_or(self.len())
    }
}

/// A watched key, and what WATCH saw of it: version and location, `None` if it was absent.
pub(crate) struct Watch {
    database: usize,
    key: Vec<u8>,
    seen: Option<(u64, u64)>,
}

impl Watch {
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Watch>() + self.key.capacity()
    }
}

fn look(session: &mut Session, key: &[u8]) -> terrace::Result<Option<(u64, u64)>> {
    session.get(key, |value| (value.version, value.location))
}

pub(super) fn multi(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    if context.client.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    context.client.transaction = Some(Box::default());
    context.out.ok();
    Ok(())
}

pub(super) fn discard(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.client.transaction.take().ok_or("ERR DISCARD without MULTI")?;
    context.client.watched.clear();
    context.out.ok();
    Ok(())
}

pub(super) fn watch(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    if context.client.transaction.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let database = context.client.database;
    for key in args.from(1) {
        let watched = &mut context.client.watched;
        if !watched.iter().any(|watch| watch.database == database && watch.key == key) {
            watched.push(Watch { database, key: key.to_vec(), seen: look(session, key)? });
        }
    }
    context.out.ok();
    Ok(())
}

pub(super) fn unwatch(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.client.watched.clear();
    context.out.ok();
    Ok(())
}

/// Runs the queue; the gate is closed already.
pub(super) fn exec(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
) -> Outcome {
    let transaction = client.transaction.take().ok_or("ERR EXEC without MULTI")?;
    let watched = std::mem::take(&mut client.watched);
    if transaction.spoiled {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    for watch in &watched {
        let session = executor.sessions.open(watch.database, &executor.shared.maps)?;
        if look(session, &watch.key)? != watch.seen {
            out.null_array();
            return Ok(());
        }
    }
    out.array(transaction.len());
    let mut next = 0;
    while next < transaction.len() {
        let section = transaction.section(next);
        if section.is_empty() {
            let (command, args) = transaction.request(next);
            Executor::run_queued(&mut executor.context(client, out, false), None, command, args);
            next += 1;
        } else {
            next = section.end;
            run_section(executor, client, out, &transaction, section);
        }
    }
    Ok(())
}

/// Runs requests of one database, atomically if any of them writes.
fn run_section(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    transaction: &Transaction,
    section: Range<usize>,
) {
    client.touched |= 1 << client.database;
    let replies = section.len();
    let (sessions, mut context) = executor.split(client, out);
    context.atomic = true;
    let mark = context.out.mark();
    let result = (|| {
        let session = sessions.open(context.client.database, &context.shared.maps)?;
        let mut run = |session: &mut Session| {
            for i in section.clone() {
                let (command, args) = transaction.request(i);
                Executor::run_queued(&mut context, Some(session), command, args);
            }
        };
        if section.clone().any(|i| transaction.request(i).0.is(flag::WRITE)) {
            let bound = bound(session, transaction, section.clone())?;
            session.atomic(bound, run)
        } else {
            run(session);
            Ok(())
        }
    })();
    if let Err(error) = result {
        let text = too_much_together(error).text();
        context.out.truncate(mark);
        (0..replies).for_each(|_| context.out.error(&text));
    }
}

/// What a section writes at the most: key, value and overhead of every write, given how long the values can have
/// become by then.
fn bound(
    session: &mut Session,
    transaction: &Transaction,
    section: Range<usize>,
) -> terrace::Result<Bound> {
    // By key: the longest its value can be, and whether the map had it before.
    let mut known: HashMap<&[u8], (usize, bool)> = HashMap::new();
    let mut bound = Bound { bytes: 0, adds: false };
    for i in section {
        let (command, args) = transaction.request(i);
        if !command.is(flag::WRITE) {
            continue;
        }
        let mut longest = 0;
        for position in command.keys.of(args.len()) {
            let key = args.at(position);
            let (len, was_there) = match known.get(key) {
                Some(known) => *known,
                None => {
                    let found = session.get(key, |value| value.bytes.len())?;
                    *known.entry(key).or_insert((found.unwrap_or(0), found.is_some()))
                }
            };
            bound.adds |= !was_there && may_add(command);
            longest = longest.max(len);
        }
        for position in command.keys.of(args.len()) {
            let key = args.at(position);
            let len = longest_after(command, args, position, longest);
            known.entry(key).and_modify(|known| known.0 = len);
            let key_bytes = key.len() + ITEM_OVERHEAD_BYTES;
            bound.bytes = bound.bytes.saturating_add(len).saturating_add(key_bytes);
        }
    }
    Ok(bound)
}

/// Whether the command may make a key that is not there: it needs memory, or another key's value.
fn may_add(command: &Command) -> bool {
    command.is(flag::DENY_OOM) || matches!(command.name, "rename" | "renamenx")
}

/// The longest that the value of the key at `position` can be after the command, when the longest
/// value among its keys was `longest` before.
fn longest_after(command: &Command, args: Args<'_>, position: usize, longest: usize) -> usize {
    const NUMBER_BYTES: usize = 64;
    let offset =
        || crate::resp::number::integer(args.at(2)).and_then(|offset| usize::try_from(offset).ok());
    match command.name {
        "del" | "unlink" | "getdel" => 0,
        "mset" | "msetnx" => args.get(position + 1).map_or(0, <[u8]>::len),
        "setrange" => longest.max(offset().unwrap_or(0)).saturating_add(args.at(3).len()),
        _ => longest.saturating_add(args.bytes()).saturating_add(NUMBER_BYTES),
    }
}
