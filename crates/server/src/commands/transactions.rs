//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! MULTI queues copies of the requests. EXEC runs them in an atomic section of the engine's: their writes happen, and
//! survive a crash, together or not at all.
//!
//! # Among others
//! A transaction that reads keys by their names, in one database, and writes one at the most runs while other loops do:
//! the section sees to it that what was read or watched is as it was when the write is applied, and else runs it again.
//!
//! # Alone
//! For any other the gate is closed: several keys become visible one after the other; and scans, scripts, lists and
//! other databases are not certified. Once there are lists, what a name stands for is theirs to say as well, so that
//! each of database 0 runs alone. A queue that selects another database, copies to one, or flushes one, is cut there:
//! the parts before and after are isolated as one, but each is its own atomic section, since a section belongs to one
//! map.

use super::execute::{Executor, Ran};
use super::{Client, Command, Context, Failure, Handler, Outcome, flag, keys};
use crate::resp::{Args, Output, Span};
use crate::shared::Shared;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use terrace::{Error, Session, Wait, Watch};

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
    /// Whether a section certifies all that its requests may read, and what they write is seen as one.
    fn may_run_among_others(&self) -> bool {
        let is_of_keys = |i: usize| {
            let (command, _) = self.request(i);
            match command.handler {
                Handler::Data(_) => command.keys.first != 0,
                _ => ["ping", "echo", "time"].contains(&command.name),
            }
        };
        self.section(0).len() == self.len()
            && (0..self.len()).all(is_of_keys)
            && self.written_keys() <= 1
    }

    /// The keys that its requests name.
    fn named_keys(&self) -> Vec<&[u8]> {
        let requests = (0..self.len()).map(|i| self.request(i));
        requests
            .flat_map(|(command, args)| command.keys.of(args.len()).map(move |at| args.at(at)))
            .collect()
    }

    /// Keys that its requests write, one that several write as often.
    fn written_keys(&self) -> usize {
        let keys = |(command, args): (&Command, Args<'_>)| match command.is(flag::WRITE) {
            true => command.keys.of(args.len()).count(),
            false => 0,
        };
        (0..self.len()).map(|i| keys(self.request(i))).sum()
    }

    fn request(&self, i: usize) -> (&'static Command, Args<'_>) {
        let (command, end) = self.commands[i];
        let start = if i == 0 { 0 } else { self.commands[i - 1].1 };
        (command, Args::new(&self.text, &self.spans[start..end]))
    }
    /// The requests from `first` on that can share an atomic section.
    fn section(&self, first: usize) -> Range<usize> {
        // A section may run again, which must not find what it wrote elsewhere.
        let cut = |i: &usize| {
            let (command, args) = self.request(*i);
            command.is(flag::OUTSIDE_ATOMIC) || command.name == "copy" && keys::names_database(args)
        };
        first..(first..self.len()).find(cut).unwrap_or(self.len())
    }
}

/// A watched name: the key, and the queue of that name, which lists are.
struct Watched {
    key: Watch,
    queue: QueueAt,
}

/// Which queue a name stood for, and how far that had come.
#[derive(PartialEq, Eq)]
struct QueueAt {
    life: u64,
    positions: (u64, u64),
}

/// What a client watches.
#[derive(Default)]
pub(crate) struct Watching {
    /// By database and name.
    keys: HashMap<(usize, Box<[u8]>), Watched>,
    name_bytes: usize,
}

impl Watching {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
    pub(crate) fn memory_bytes(&self) -> usize {
        // A name is kept here, by its watch, and by the map.
        self.len() * (size_of::<Watched>() + size_of::<(usize, Box<[u8]>)>()) + 3 * self.name_bytes
    }

    /// The names, if all are of this database.
    fn names_in(&self, database: usize) -> Option<Vec<&[u8]>> {
        self.keys.keys().map(|(of, name)| (*of == database).then_some(&**name)).collect()
    }

    /// Whether nothing watched was written since.
    fn holds(&self, shared: &Shared) -> bool {
        self.keys.iter().all(|((database, name), watched)| {
            watched.key.is_unchanged() && watched.queue == queue_at(shared, *database, name)
        })
    }
}

/// How far the queue of a name has come; queues are in database 0.
fn queue_at(shared: &Shared, database: usize, name: &[u8]) -> QueueAt {
    if database != 0 {
        return QueueAt { life: 0, positions: (0, 0) };
    }
    // First: of a queue that is removed meanwhile the positions belong to an earlier life.
    let life = shared.queues.life(name);
    let queue = shared.queues.get(name);
    QueueAt { life, positions: queue.map_or((0, 0), |queue| queue.positions()) }
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
    context.client.transaction.as_ref().ok_or("ERR DISCARD without MULTI")?;
    discard_all(context.client);
    context.out.ok();
    Ok(())
}

pub(super) fn watch(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    if context.client.transaction.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let database = context.client.database;
    // Whether they are there.
    session.bring_near(&args.from(1).collect::<Vec<_>>())?;
    for name in args.from(1) {
        let watching = &mut context.client.watched;
        if let Entry::Vacant(place) = watching.keys.entry((database, name.into())) {
            watching.name_bytes += name.len();
            // The queue first: it only moves on.
            let queue = queue_at(context.shared, database, name);
            place.insert(Watched { key: session.map().watch(name), queue });
        }
    }
    context.out.ok();
    Ok(())
}

pub(super) fn unwatch(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.client.watched = Watching::default();
    context.out.ok();
    Ok(())
}

/// The error of a transaction that is not run, by what was wrong.
pub(super) fn abort_text(cause: &str) -> String {
    let cause = cause.strip_prefix("ERR ").unwrap_or(cause);
    format!("EXECABORT Transaction discarded because of: {cause}")
}

/// Forgets the transaction, if there is one, and what was watched for it.
pub(super) fn discard_all(client: &mut Client) {
    client.transaction = None;
    client.watched = Watching::default();
}

/// Runs the queue. Where there is no memory yet for its first writes, or what it needs is read from the disk, nothing
/// has happened, and the client has its queue again; later ones wait.
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
    let database = client.database;
    let mut result = Err(Not::Alone);
    let are_lists = database == 0 && executor.shared.queues.are_used();
    if let Some(names) = watched.names_in(database).filter(|_| !are_lists)
        && transaction.may_run_among_others()
    {
        result = run_among_others(executor, client, out, &transaction, (&watched, &names));
    }
    if let Err(Not::Alone) = result {
        result = run_alone(executor, client, out, &transaction, &watched);
    }
    match result {
        Ok(ran) => ran.into_iter().for_each(|ran| executor.count_queued(ran)),
        Err(Not::Watched) => out.null_array(),
        // It is run again from its start, and counted then.
        Err(Not::Engine(error @ (Error::Busy { .. } | Error::Fetching))) => {
            client.database = database;
            client.transaction = Some(transaction);
            client.watched = watched;
            return Err(error.into());
        }
        Err(Not::Engine(error)) => return Err(abort_text(&Failure::from(error).text()).into()),
        Err(Not::Alone) => unreachable!("it was"),
    }
    Ok(())
}

/// Runs of a transaction that others came before.
const OVERTAKEN: u32 = 8;

/// Why a transaction did not run.
enum Not {
    /// What it watched was written.
    Watched,
    /// Nothing else may run beside it.
    Alone,
    /// Nothing has happened.
    Engine(Error),
}

impl From<Error> for Not {
    fn from(error: Error) -> Not {
        Not::Engine(error)
    }
}

/// Runs a transaction while other loops run theirs; what each request came to.
fn run_among_others(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    transaction: &Transaction,
    (watched, names): (&Watching, &[&[u8]]),
) -> Result<Vec<Ran>, Not> {
    client.touched |= 1 << client.database;
    let (sessions, mut context) = executor.split(client, out);
    context.atomic = true;
    let shared = context.shared;
    let session = sessions.open(context.client.database, &shared.maps)?;
    session.set_wait(context.client.wait());
    session.bring_near(&transaction.named_keys())?;
    let (mark, mut runs) = (context.out.mark(), 0);
    let mut ran = Vec::with_capacity(transaction.len());
    let looked_up = (context.stats.key_hits.get(), context.stats.key_misses.get());
    let result = session.atomic(|session| {
        runs += 1;
        if runs > OVERTAKEN {
            return Err(Not::Alone);
        }
        context.out.truncate(mark);
        ran.clear();
        context.stats.key_hits.set(looked_up.0);
        context.stats.key_misses.set(looked_up.1);
        names.iter().for_each(|name| session.certify(name));
        if !watched.holds(shared) {
            return Err(Not::Watched);
        }
        context.out.array(transaction.len());
        for i in 0..transaction.len() {
            let (command, args) = transaction.request(i);
            ran.push(Executor::run_queued(&mut context, Some(session), command, args));
        }
        if ran.iter().any(|ran| ran.is_fetching) {
            return Err(Not::Engine(Error::Fetching));
        }
        Ok(())
    });
    if result.is_err() {
        context.out.truncate(mark);
    }
    match result {
        Ok(()) => Ok(ran),
        // Others came first again and again, or there is no room, which is told once it is alone.
        Err(Not::Engine(Error::Busy { .. })) => Err(Not::Alone),
        Err(not) => Err(not),
    }
}

/// Runs a transaction while nothing else runs on any loop.
fn run_alone(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    transaction: &Transaction,
    watched: &Watching,
) -> Result<Vec<Ran>, Not> {
    executor.close_gate();
    if !watched.holds(executor.shared) {
        return Err(Not::Watched);
    }
    executor.core.scripts_until = None;
    let mut ran = Vec::with_capacity(transaction.len());
    run_all(executor, client, out, transaction, &mut ran)?;
    Ok(ran)
}

fn run_all(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    transaction: &Transaction,
    ran: &mut Vec<Ran>,
) -> terrace::Result<()> {
    let start = out.mark();
    out.array(transaction.len());
    let mut next = 0;
    // Whether something was done that cannot be done again.
    let mut has_begun = false;
    while next < transaction.len() {
        let section = transaction.section(next);
        if section.is_empty() {
            let (command, args) = transaction.request(next);
            ran.push(run_outside(executor, client, out, command, args));
            has_begun |= command.name != "select";
            next += 1;
            continue;
        }
        let (first, len) = (next == 0, section.len());
        next = section.end;
        let wait = match has_begun {
            true => Wait::ForRoom,
            false => client.wait(),
        };
        match run_section(executor, client, out, transaction, section, wait) {
            Ok((wrote, of_section)) => {
                has_begun |= wrote;
                ran.extend(of_section);
            }
            Err(waits @ (Error::Busy { .. } | Error::Fetching)) => return Err(waits),
            Err(error) if first => {
                out.truncate(start);
                return Err(error);
            }
            Err(error) => {
                let text = abort_text(&Failure::from(error).text());
                // The parts before it stand, and so do theirs; those behind it go on.
                (0..len).for_each(|_| out.error(&text));
            }
        }
    }
    Ok(())
}

/// Runs a request that belongs to no section.
fn run_outside(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    command: &'static Command,
    args: Args<'_>,
) -> Ran {
    let Handler::Data(_) = command.handler else {
        let mut context = executor.context(client, out, false);
        return Executor::run_queued(&mut context, None, command, args);
    };
    client.touched |= 1 << client.database;
    let (sessions, mut context) = executor.split(client, out);
    // It is not tried again: it waits.
    context.atomic = true;
    let mut session = sessions.open(context.client.database, &context.shared.maps).ok();
    session.iter_mut().for_each(|session| session.set_wait(Wait::ForRoom));
    Executor::run_queued(&mut context, session, command, args)
}

/// Runs requests of one database, atomically if any of them writes; whether one does, and what each came to.
///
/// # Errors
/// Those of the engine: none of them did anything then, and none is answered.
fn run_section(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    transaction: &Transaction,
    section: Range<usize>,
    wait: Wait,
) -> terrace::Result<(bool, Vec<Ran>)> {
    client.touched |= 1 << client.database;
    let (sessions, mut context) = executor.split(client, out);
    context.atomic = true;
    let mark = context.out.mark();
    let session = sessions.open(context.client.database, &context.shared.maps)?;
    session.set_wait(wait);
    let mut ran = Vec::new();
    let mut run = |session: &mut Session| {
        // Once more, perhaps: an embedded user may have written one of the keys.
        context.out.truncate(mark);
        ran.clear();
        for i in section.clone() {
            let (command, args) = transaction.request(i);
            ran.push(Executor::run_queued(&mut context, Some(session), command, args));
        }
        // All of them have run: what the others need of the disk is read together.
        let is_fetched = !ran.iter().any(|ran| ran.is_fetching);
        is_fetched.then_some(()).ok_or(Error::Fetching)
    };
    let writes = section.clone().any(|i| transaction.request(i).0.is(flag::WRITE));
    let result: terrace::Result<()> = if writes { session.atomic(run) } else { run(session) };
    result.inspect_err(|_| context.out.truncate(mark))?;
    Ok((writes, ran))
}
