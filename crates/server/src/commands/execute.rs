//! Runs one request: finds the command, checks what may keep it from running, runs it.

use super::{
    Alone, Client, Close, Command, Context, Failure, Handler, flag, subcommands, table, unsupported,
};
use super::{scripts, transactions};
use crate::clients::Waits;
use crate::event_loop::{Core, FETCHES};
use crate::gate::Turn;
use crate::pause::Paused;
use crate::resp::{Args, Output};
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::slowlog::{SlowEntry, abridge};
use crate::stats::LoopStats;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};
use terrace::{Error, Session};

/// What running a request needs, apart from the connection.
pub(crate) struct Executor<'a, 'g> {
    pub(crate) shared: &'a Shared,
    pub(crate) stats: &'a LoopStats,
    pub(crate) core: &'a mut Core,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) turn: &'a mut Turn<'g>,
}

/// A command that takes so long ends its connection's share of the turn: others had to wait for it.
const LONG: Duration = Duration::from_millis(2);

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Went {
    /// It was executed.
    On,
    /// The same, and it took long.
    Long,
    /// A pause holds it back, or what it waits for: nothing happened.
    Held,
}

/// A command of a transaction that ran.
pub(crate) struct Ran {
    command: usize,
    error: Option<String>,
    /// What it needs is read from the disk.
    pub(super) is_fetching: bool,
    took: Duration,
}

impl Ran {
    pub(super) fn count_in(self, stats: &LoopStats) {
        count(stats, self.command, 1, u64::from(self.error.is_some()), self.took);
        self.error.iter().for_each(|text| stats.error(text));
    }
}

fn count(stats: &LoopStats, command: usize, calls: u64, failures: u64, took: Duration) {
    let stats = &stats.commands[command];
    stats.ran(calls, took);
    if failures > 0 {
        stats.failed.add(failures);
    }
}

impl Executor<'_, '_> {
    /// Runs a request of at least one argument.
    pub(crate) fn request(
        &mut self,
        client: &mut Client,
        out: &mut Output,
        args: Args<'_>,
    ) -> Went {
        let command = table::find(args.at(0));
        let refusal = self.refusal(client, command, args);
        // What is refused need not wait for that.
        let held = command.is_some_and(|command| self.is_held(client, command));
        if refusal.is_none() && held {
            return Went::Held;
        }
        let before = client.replies;
        client.replies.skip_this = std::mem::take(&mut client.replies.skip_next);
        let mark = out.mark();
        out.count_reply();
        let started = Instant::now();
        self.checked(client, out, command, refusal, args);
        let replies = client.replies;
        let waits = self.waits_on(client);
        if waits {
            client.replies = before;
        }
        if waits || replies.are_off || replies.skip_this {
            out.truncate(mark);
        }
        if out.mark() == mark {
            out.uncount_reply();
        }
        client.plain = client.authenticated
            && client.transaction.is_none()
            && client.busy_since.is_none()
            && !(client.replies.are_off || client.replies.skip_next);
        match waits {
            true => Went::Held,
            false if started.elapsed() >= LONG => Went::Long,
            false => Went::On,
        }
    }

    /// Whether the client goes on waiting, for an element of a queue, for room or the disk. One that does no more is
    /// not counted.
    fn waits_on(&mut self, client: &mut Client) -> bool {
        if std::mem::take(&mut client.is_held) {
            let until_ms = client.waits_until_ms.unwrap_or(u64::MAX);
            self.core.next_wait_ms = self.core.next_wait_ms.min(until_ms);
            return true;
        }
        client.busy_since = None;
        client.fetches = 0;
        if client.waits_until_ms.take().is_some() {
            client.info.waits.set(Waits::Not);
            self.shared.queues.waiting.fetch_sub(1, SeqCst);
        }
        false
    }

    fn is_held(&self, client: &Client, command: &Command) -> bool {
        let queued_writes =
            client.transaction.as_ref().is_some_and(|transaction| transaction.writes());
        let writes = match command.handler {
            Handler::Exec => queued_writes,
            _ => command.is(flag::WRITE) && client.transaction.is_none(),
        };
        match self.core.paused {
            Paused::Nothing => false,
            Paused::Writes => writes,
            // Whoever paused everything must be able to end it.
            Paused::Everything => command.name != "client",
        }
    }

    /// Why the request does not run, and is not queued, whatever is paused.
    fn refusal(
        &self,
        client: &Client,
        command: Option<&'static Command>,
        args: Args<'_>,
    ) -> Option<Failure> {
        let Some(command) = command else { return Some(unsupported::error(args)) };
        if !command.takes(args.len()) {
            return Some(command.arity_error());
        }
        if let Some(refusal) = subcommands::refusal(command, args) {
            return Some(refusal);
        }
        if !client.authenticated && !command.is(flag::NO_AUTH) {
            return Some("NOAUTH Authentication required.".into());
        }
        if self.core.is_loading && !command.runs_while_loading() {
            return Some("LOADING Terrace is loading the dataset in memory".into());
        }
        let not_here = client.transaction.is_some() && command.is(flag::NO_MULTI);
        not_here.then(|| "ERR Command not allowed inside a transaction".into())
    }

    /// Runs the command or queues it, or says why not.
    fn checked(
        &mut self,
        client: &mut Client,
        out: &mut Output,
        command: Option<&'static Command>,
        refusal: Option<Failure>,
        args: Args<'_>,
    ) {
        if command.is_none() && unsupported::is_web_request(args.at(0)) {
            client.close = Close::AfterReplies;
            return;
        }
        match (command, refusal) {
            (Some(command), None) => match &mut client.transaction {
                Some(transaction) if !command.is(flag::NOT_QUEUED) => {
                    if !transaction.queue(command, args, self.core.limits.query_buffer_bytes) {
                        self.stats.closed_for_query.add(1);
                        client.close = Close::Now;
                    }
                    out.simple("QUEUED");
                }
                _ => self.run(client, out, command, args),
            },
            (command, refusal) => {
                if let Some(command) = command {
                    self.stats.commands[command.index()].rejected.add(1);
                }
                let mut text = refusal.map(|refusal| refusal.text()).unwrap_or_default();
                if command.is_some_and(|command| matches!(command.handler, Handler::Exec)) {
                    transactions::discard_all(client);
                    text = transactions::abort_text(&text);
                }
                if let Some(transaction) = &mut client.transaction {
                    transaction.spoil();
                }
                self.stats.error(&text);
                out.error(&text);
            }
        }
    }

    /// Runs a command outside of a transaction.
    fn run(
        &mut self,
        client: &mut Client,
        out: &mut Output,
        command: &'static Command,
        args: Args<'_>,
    ) {
        let _armed =
            (command.alone == Alone::Armed).then(|| self.shared.maps.database().snapshot());
        if command.runs_alone(args.len()) || self.makes_first_list(command) {
            self.close_gate();
        }
        client.last_command = command.index() as u32;
        let started = Instant::now();
        let mark = out.mark();
        let result = match command.handler {
            Handler::Server(handler) => handler(&mut self.context(client, out, false), args),
            Handler::Data(handler) => {
                client.touched |= 1 << client.database;
                let (sessions, mut context) = self.split(client, out);
                match sessions.open(context.client.database, &context.shared.maps) {
                    Ok(session) => {
                        session.set_wait(context.client.wait());
                        handler(&mut context, session, args)
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Handler::Exec => transactions::exec(self, client, out),
            Handler::Script => scripts::eval(self, client, out, command, args),
            Handler::Sql => crate::sql::execute(self, client, out, args),
        };
        if let Err(Failure::Engine(waits @ (Error::Busy { .. } | Error::Fetching))) = &result {
            client.is_held = true;
            self.hold(client, waits);
            out.truncate(mark);
            return;
        }
        if let Err(failure) = &result {
            let text = failure.text();
            out.truncate(mark);
            out.error(&text);
            self.stats.error(&text);
        }
        if client.is_held {
            return;
        }
        let took = client.sql.took().unwrap_or_else(|| started.elapsed());
        self.count(command.index(), 1, u64::from(result.is_err()), took);
        if self.is_slow(took) {
            match command.is(flag::SECRET) {
                true => self.note_slow(client, [args.at(0), b"(redacted)"].into_iter(), took),
                false => self.note_slow(client, args.from(0), took),
            }
        }
    }

    /// Whether there will be lists from now on: transactions that run beside this loop do not look for them.
    fn makes_first_list(&self, command: &Command) -> bool {
        ["lpush", "rpush"].contains(&command.name) && !self.shared.queues.are_used()
    }

    /// Notes what the client is held for, memory or the disk: this thread has others to serve, and does not wait.
    pub(crate) fn hold(&mut self, client: &mut Client, waits: &Error) {
        if let Error::Busy { since } = waits {
            client.busy_since = Some(*since);
            client.plain = false;
            self.core.awaits_memory = true;
            return;
        }
        client.fetches += 1;
        // One that has been tried so often waits, which a run of SETs does not.
        client.plain &= client.fetches < FETCHES;
    }

    /// Runs a queued command inside a transaction, to be counted once it stands; `session` is that of the atomic
    /// section.
    pub(super) fn run_queued(
        context: &mut Context<'_>,
        session: Option<&mut Session>,
        command: &'static Command,
        args: Args<'_>,
    ) -> Ran {
        let started = Instant::now();
        let mark = context.out.mark();
        let result = match (command.handler, session) {
            (Handler::Server(handler), _) => handler(context, args),
            (Handler::Data(handler), Some(session)) => handler(context, session, args),
            (Handler::Script, Some(session)) => {
                scripts::eval_queued(context, session, command, args)
            }
            _ => Err("ERR Command not allowed inside a transaction".into()),
        };
        let is_fetching = matches!(result, Err(Failure::Engine(Error::Fetching)));
        let error = result.err().map(|failure| failure.text());
        if let Some(text) = &error {
            context.out.truncate(mark);
            context.out.error(text);
        }
        Ran { command: command.index(), error, is_fetching, took: started.elapsed() }
    }

    pub(super) fn count_queued(&self, ran: Ran) {
        ran.count_in(self.stats);
    }

    /// From here to the end of the turn no other loop runs a command.
    pub(super) fn close_gate(&mut self) {
        self.turn.close();
        self.stats.alone_turns.add(1);
    }

    /// The handler's context.
    pub(super) fn context<'c>(
        &'c mut self,
        client: &'c mut Client,
        out: &'c mut Output,
        atomic: bool,
    ) -> Context<'c> {
        Context { shared: self.shared, stats: self.stats, core: self.core, client, out, atomic }
    }

    /// The sessions beside the handler's context.
    pub(super) fn split<'c>(
        &'c mut self,
        client: &'c mut Client,
        out: &'c mut Output,
    ) -> (&'c mut Sessions, Context<'c>) {
        let context = Context {
            shared: self.shared,
            stats: self.stats,
            core: self.core,
            client,
            out,
            atomic: false,
        };
        (self.sessions, context)
    }

    /// Counts `calls` of a command that took `took` together; so many of them failed, and their errors were
    /// counted.
    pub(crate) fn count(&self, command: usize, calls: u64, failures: u64, took: Duration) {
        count(self.stats, command, calls, failures, took);
    }

    /// Whether something that took this long is to be noted.
    #[inline]
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        let limits = &self.core.limits;
        limits.slow_log.is_some_and(|threshold| took >= threshold)
            || limits.latency.is_some_and(|threshold| took >= threshold)
    }

    /// Notes a slow command in the slow log and the latency monitor.
    pub(crate) fn note_slow<'b>(
        &self,
        client: &Client,
        arguments: impl ExactSizeIterator<Item = &'b [u8]>,
        took: Duration,
    ) {
        self.note(
            client.info.address.clone(),
            client.info.words.read().name.clone(),
            arguments,
            took,
        );
    }

    /// Notes a slow batch of GETs, which is nobody's alone.
    pub(crate) fn note_slow_batch<'b>(
        &self,
        arguments: impl ExactSizeIterator<Item = &'b [u8]>,
        took: Duration,
    ) {
        self.note(String::new(), String::new(), arguments, took);
    }

    fn note<'b>(
        &self,
        address: String,
        client_name: String,
        arguments: impl ExactSizeIterator<Item = &'b [u8]>,
        took: Duration,
    ) {
        let at_s = self.core.now_ms / 1000;
        let limits = &self.core.limits;
        if limits.latency.is_some_and(|threshold| took >= threshold) {
            self.shared.latency.add("command", at_s, took.as_millis() as u64);
        }
        if limits.slow_log.is_some_and(|threshold| took >= threshold) {
            let microseconds = took.as_micros() as u64;
            let arguments = abridge(arguments);
            let entry = SlowEntry { id: 0, at_s, microseconds, arguments, address, client_name };
            self.shared.slow_log.add(entry, self.shared.config.slow_log_entries.load(Relaxed));
        }
    }
}
