//! EVAL, EVALSHA, their kinds that read only, and SCRIPT. How scripts are isolated: `scripts`.

use super::execute::{Executor, Ran};
use super::{Client, Command, Context, Failure, Handler, Outcome, flag, help, keys, table};
use super::{integer, unsupported};
use crate::event_loop::Core;
use crate::pause::Paused;
use crate::resp::{Args, Output};
use crate::scripts::{
    Answer, Given, Job, LONGEST, LONGEST_ALONE, Limits, Machine, ON_LOOP, Script, Stop,
};
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::stats::LoopStats;
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use terrace::{Error, Session, Wait};

/// How often a worker runs a script again that others came before, until it runs alone.
const OVERTAKEN: u32 = 8;
/// How often it looks whether what a script waits for has come.
const WAITS: Duration = Duration::from_millis(1);
/// Commands that a script may execute: what it read is kept until its end.
const COMMANDS: usize = 250_000;

/// A script with its arguments.
#[derive(Clone)]
struct Request<'a> {
    script: Arc<Script>,
    keys: usize,
    args: Args<'a>,
    reads_only: bool,
}

impl<'a> Request<'a> {
    /// Of EVAL and its like.
    fn of(shared: &Shared, command: &Command, args: Args<'a>) -> Result<Request<'a>, Failure> {
        let keys = integer(args.at(2))?;
        let keys = usize::try_from(keys).map_err(|_| "ERR Number of keys can't be negative")?;
        if keys > args.len() - 3 {
            return Err("ERR Number of keys can't be greater than number of args".into());
        }
        let known = &shared.scripts.known;
        let script = match command.name.starts_with("evalsha") {
            true => known.get(args.at(1)).ok_or(NO_SCRIPT)?,
            false => known.evaluated(args.at(1))?,
        };
        let reads_only = script.reads_only || command.name.ends_with("_ro");
        Ok(Request { script, keys, args, reads_only })
    }

    fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.args.from(3).take(self.keys)
    }
}

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// How a script is run.
struct Mode {
    limits: Limits,
    /// Nothing else runs meanwhile.
    is_alone: bool,
}

/// What a script did.
#[derive(Default)]
struct Ended {
    ran: Vec<Ran>,
    /// Keys that it wrote, about.
    written: usize,
}

/// Runs a script in a batch of the session's; what it wrote is applied by whoever began that, and its reply is in the
/// context's output.
///
/// # Errors
/// It did not come to its end.
fn run(
    context: &mut Context<'_>,
    session: &mut Session,
    request: &Request<'_>,
    mode: &Mode,
) -> Result<Ended, Stop> {
    let mut machine = match context.core.machine.take() {
        Some(machine) => machine,
        None => {
            let made = Machine::new();
            Box::new(made.map_err(|error| Stop::Failed(format!("ERR {error}")))?)
        }
    };
    let result = run_in(&mut machine, context, session, request, mode);
    context.core.machine = Some(machine).filter(|machine| !machine.is_spent);
    result
}

fn run_in(
    machine: &mut Machine,
    context: &mut Context<'_>,
    session: &mut Session,
    request: &Request<'_>,
    mode: &Mode,
) -> Result<Ended, Stop> {
    let function = machine.compile(&context.shared.scripts.known, &request.script);
    let function = function.map_err(Stop::Failed)?;
    let mut ended = Ended::default();
    let Context { shared, stats, core, client, out, .. } = context;
    let (shared, stats) = (*shared, *stats);
    let execute = |args: Args<'_>, replies: &mut Output| {
        if ended.ran.len() == COMMANDS {
            return Err(Stop::Failed(format!("ERR a script executes at most {COMMANDS} commands")));
        }
        let Some(command) = table::find(args.at(0)) else {
            replies.error(&unsupported::error(args).text());
            return Ok(());
        };
        if let Some(text) = refusal(command, args, request.reads_only) {
            replies.error(&text);
            return Ok(());
        }
        let is_of_data = matches!(command.handler, Handler::Data(_));
        if is_of_data && command.keys.first == 0 && !mode.is_alone {
            return Err(Stop::NeedsAlone);
        }
        let (core, client) = (&mut **core, &mut **client);
        let mut context = Context { shared, stats, core, client, out: replies, atomic: true };
        let ran = Executor::run_queued(&mut context, Some(session), command, args);
        if ran.is_fetching {
            return Err(Stop::Engine(Error::Fetching));
        }
        if command.writes() {
            ended.written += command.keys.of(args.len()).count();
        }
        ended.ran.push(ran);
        Ok(())
    };
    let arguments = request.args.from(3 + request.keys);
    machine
        .run(&function, (request.keys(), arguments), mode.limits.clone(), out, execute)
        .map_err(|stop| with_name(stop, &request.script))?;
    Ok(ended)
}

/// Says in an error which script it is of.
fn with_name(stop: Stop, script: &Script) -> Stop {
    match stop {
        Stop::Failed(text) => Stop::Failed(format!("{text} script: {}", script.sha)),
        stop => stop,
    }
}

/// Why a script may not execute a command, if it may not.
fn refusal(command: &Command, args: Args<'_>, reads_only: bool) -> Option<String> {
    const NOT_IN_SCRIPTS: u32 =
        flag::NO_SCRIPT | flag::NO_MULTI | flag::NOT_QUEUED | flag::OUTSIDE_ATOMIC;
    if !command.takes(args.len()) {
        return Some(command.arity_error().text());
    }
    if let Some(refusal) = super::subcommands::refusal(command, args) {
        return Some(refusal.text());
    }
    if command.flags & NOT_IN_SCRIPTS != 0 || command.name == "copy" && keys::names_database(args) {
        return Some("ERR This Redis command is not allowed from script".into());
    }
    (reads_only && command.writes())
        .then(|| "ERR Write commands are not allowed from read-only scripts.".into())
}

/// What a client is told where its script did not come to its end, for other reasons than the engine's.
fn text_of(stop: Stop) -> String {
    match stop {
        Stop::Failed(text) => text,
        Stop::Killed => "ERR the script was killed; nothing of it has happened".into(),
        Stop::TooLong | Stop::NeedsAlone | Stop::Paused => format!(
            "ERR the script took more than {} ms, or {} ms where others wait for it; nothing of it has happened",
            LONGEST.as_millis(),
            LONGEST_ALONE.as_millis()
        ),
        Stop::Engine(error) => Failure::Engine(error).text(),
    }
}

/// EVAL and its like, outside of MULTI.
pub(super) fn eval(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    command: &'static Command,
    args: Args<'_>,
) -> Outcome {
    if let Some(given) = &client.script {
        let answer = given.0.answer.lock().take();
        let Some(answer) = answer else {
            client.is_held = true;
            return Ok(());
        };
        client.script = None;
        let (reply, ran) = answer?;
        out.raw(&reply);
        ran.into_iter().for_each(|ran| executor.count_queued(ran));
        return Ok(());
    }
    let request = Request::of(executor.shared, command, args)?;
    if !request.script.is_long() {
        let started = Instant::now();
        let result = attempt(executor, client, out, &request);
        if started.elapsed() > ON_LOOP {
            request.script.set_long(true);
        }
        match result {
            Ok(ran) => {
                ran.into_iter().for_each(|ran| executor.count_queued(ran));
                return Ok(());
            }
            Err(Stop::TooLong | Stop::NeedsAlone) => {}
            Err(Stop::Engine(error)) => return Err(error.into()),
            Err(stop) => return Err(text_of(stop).into()),
        }
    }
    hand_over(executor, client, out, &request);
    Ok(())
}

/// Runs a script in this event loop, for a short time.
fn attempt(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &mut Output,
    request: &Request<'_>,
) -> Result<Vec<Ran>, Stop> {
    let Executor { shared, stats, core, sessions, turn } = executor;
    let (shared, stats, core) = (*shared, *stats, &mut **core);
    client.touched |= 1 << client.database;
    let session = sessions.open(client.database, &shared.maps)?;
    session.set_wait(client.wait());
    near(session, request)?;
    let mark = out.mark();
    let mut context = Context { shared, stats, core, client, out, atomic: true };
    let (mut ran, mut last) = (Vec::new(), None);
    session.atomic(|session| {
        if let Some(stop) = last.take() {
            return Err(stop);
        }
        context.out.truncate(mark);
        let limits = Limits { until: Instant::now() + ON_LOOP, killed: None };
        let mode = Mode { limits, is_alone: false };
        let result = run(&mut context, session, request, &mode);
        let ended = result.inspect_err(|stop| last = stop.again())?;
        if ended.written > 1 {
            // They become visible one after the other: nobody looks.
            turn.close();
            context.stats.alone_turns.add(1);
        }
        ran = ended.ran;
        Ok::<_, Stop>(())
    })?;
    Ok(ran)
}

/// Has what the keys of a script are read from the disk together.
fn near(session: &mut Session, request: &Request<'_>) -> Result<(), Stop> {
    if request.keys > 0 {
        session.bring_near(&request.keys().collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Gives the script to a worker; the client is held until it has answered.
fn hand_over(
    executor: &mut Executor<'_, '_>,
    client: &mut Client,
    out: &Output,
    request: &Request<'_>,
) {
    let mut text = Vec::with_capacity(request.args.bytes());
    let spans = request.args.from(0).map(|argument| {
        let start = text.len() as u32;
        text.extend_from_slice(argument);
        (start, text.len() as u32)
    });
    let spans = spans.collect();
    let job = Arc::new(Job {
        script: Arc::clone(&request.script),
        database: client.database,
        reads_only: request.reads_only,
        resp3: out.resp3,
        client: Arc::clone(&client.info),
        text,
        spans,
        keys: request.keys,
        output_bytes: executor.core.limits.output_buffer_bytes,
        owner: executor.core.id,
        killed: Arc::new(AtomicBool::new(false)),
        answer: parking_lot::Mutex::default(),
    });
    client.script = Some(Given(Arc::clone(&job)));
    client.is_held = true;
    executor.shared.scripts.workers.give(job);
}

/// EVAL in MULTI, or where EXEC has closed the gate: within the batch of the transaction.
pub(super) fn eval_queued(
    context: &mut Context<'_>,
    session: &mut Session,
    command: &Command,
    args: Args<'_>,
) -> Outcome {
    let request = Request::of(context.shared, command, args)?;
    // All scripts of a transaction have it together.
    let until = context.core.scripts_until.get_or_insert_with(|| Instant::now() + LONGEST_ALONE);
    let mode = Mode { limits: Limits { until: *until, killed: None }, is_alone: true };
    let result = session.atomic(|session| run(context, session, &request, &mode));
    match result {
        Ok(ended) => {
            ended.ran.into_iter().for_each(|ran| ran.count_in(context.stats));
            Ok(())
        }
        Err(Stop::Engine(error)) => Err(error.into()),
        Err(stop) => Err(text_of(stop).into()),
    }
}

/// What a worker has to run scripts with.
pub(crate) struct LongScripts<'s> {
    shared: &'s Shared,
    core: Core,
    sessions: Sessions,
    stats: CachePadded<LoopStats>,
}

impl<'s> LongScripts<'s> {
    /// `id`: its own at the gate.
    pub(crate) fn new(shared: &'s Shared, id: usize) -> LongScripts<'s> {
        LongScripts {
            shared,
            core: Core::new(shared, id),
            sessions: Sessions::new(shared.maps.count()),
            stats: LoopStats::new(table::count()),
        }
    }

    /// Runs a script to its end; what it wrote has the durability of the map when this returns.
    pub(crate) fn run(&mut self, job: &Job) -> Answer {
        let started = Instant::now();
        let result = self.run_whole(job);
        job.script.set_long(started.elapsed() > ON_LOOP / 2);
        let mut failed = None;
        self.sessions.commit(|_, error| failed = Some(error));
        match (result, failed) {
            (Ok(_), Some(error)) => Err(Failure::Engine(error).text()),
            (Ok(answer), None) => Ok(answer),
            (Err(stop), _) => Err(text_of(stop)),
        }
    }

    fn run_whole(&mut self, job: &Job) -> Result<(Vec<u8>, Vec<Ran>), Stop> {
        let LongScripts { shared, core, sessions, stats } = self;
        let shared = *shared;
        let args = Args::new(&job.text, &job.spans);
        let script = Arc::clone(&job.script);
        let request = Request { script, keys: job.keys, args, reads_only: job.reads_only };
        let mut client = Client::new(Arc::clone(&job.client), true);
        client.database = job.database;
        let mut out = Output::new(job.output_bytes);
        out.resp3 = job.resp3;
        let session = sessions.open(job.database, &shared.maps)?;
        session.set_wait(Wait::ForRoom);
        near(session, &request)?;
        let (client, out) = (&mut client, &mut out);
        let mut context = Context { shared, stats, core, client, out, atomic: true };
        let mut tries = Tries { until: Instant::now() + LONGEST, runs: 0, is_alone: false };
        loop {
            wait_for_pause(shared, job, &mut tries);
            context.core.look(shared);
            match run_once(&mut context, session, &request, job, &mut tries) {
                Ok(ran) => return Ok((context.out.unsent().to_vec(), ran)),
                Err(Stop::NeedsAlone) if !tries.is_alone => tries.is_alone = true,
                Err(Stop::Paused) => {}
                // What it writes needs room, or something from the disk: nobody waits for that but its client.
                Err(Stop::Engine(Error::Busy { .. } | Error::Fetching))
                    if Instant::now() < tries.until =>
                {
                    std::thread::sleep(WAITS);
                }
                Err(stop) => return Err(stop),
            }
        }
    }
}

/// How often a worker has run a script, and how it is to be run next.
struct Tries {
    until: Instant,
    runs: u32,
    is_alone: bool,
}

/// Waits for the end of a pause that holds the script back.
fn wait_for_pause(shared: &Shared, job: &Job, tries: &mut Tries) {
    while is_paused(shared, job) && !job.is_killed() {
        std::thread::sleep(WAITS);
        tries.until = Instant::now() + LONGEST;
    }
}

fn is_paused(shared: &Shared, job: &Job) -> bool {
    match shared.pause.now(shared.uptime_ms()) {
        Paused::Nothing => false,
        Paused::Writes => !job.reads_only,
        Paused::Everything => true,
    }
}

/// Runs a script until it has come to its end and nobody came before it, and applies what it wrote: with the gate
/// closed if that is several keys, and without waiting for anything there.
fn run_once(
    context: &mut Context<'_>,
    session: &mut Session,
    request: &Request<'_>,
    job: &Job,
    tries: &mut Tries,
) -> Result<Vec<Ran>, Stop> {
    let shared = context.shared;
    let (mut ran, mut last, mut turn) = (Vec::new(), None, None);
    session.atomic(|session| {
        drop(turn.take());
        if let Some(stop) = last.take() {
            return Err(stop);
        }
        context.out.truncate(0);
        session.set_wait(Wait::ForRoom);
        tries.runs += 1;
        let is_alone = tries.is_alone || tries.runs > OVERTAKEN;
        let mut until = tries.until;
        if is_alone {
            turn.insert(shared.gate.enter(context.core.id)).close();
            until = until.min(Instant::now() + LONGEST_ALONE);
        }
        let killed = Some(Arc::clone(&job.killed));
        let mode = Mode { limits: Limits { until, killed }, is_alone };
        let result = run(context, session, request, &mode);
        let ended = result.inspect_err(|stop| last = stop.again())?;
        let turn = turn.get_or_insert_with(|| shared.gate.enter(context.core.id));
        if ended.written > 1 {
            turn.close();
        }
        let refused = match ended.written > 0 {
            _ if job.is_killed() => Some(Stop::Killed),
            true if is_paused(shared, job) => Some(Stop::Paused),
            _ => None,
        };
        if let Some(stop) = refused {
            last = stop.again();
            return Err(stop);
        }
        session.set_wait(Wait::Never { since: None });
        ran = ended.ran;
        Ok::<_, Stop>(())
    })?;
    Ok(ran)
}

const HELP: &[&str] = &[
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Forget all scripts.",
    "KILL",
    "    End the scripts that run, and undo what they did.",
    "LOAD <script>",
    "    Load a script into the script cache without executing it.",
];

pub(super) fn script(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let scripts = &context.shared.scripts;
    match &args.at(1).to_ascii_lowercase()[..] {
        b"exists" => {
            context.out.array(args.len() - 2);
            for sha in args.from(2) {
                context.out.integer(i64::from(scripts.known.get(sha).is_some()));
            }
        }
        b"flush" => {
            let is_way = |way: &[u8]| {
                way.eq_ignore_ascii_case(b"async") || way.eq_ignore_ascii_case(b"sync")
            };
            if !args.get(2).is_none_or(is_way) {
                return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
            }
            scripts.known.flush();
            context.out.ok();
        }
        b"kill" if scripts.workers.kill() => context.out.ok(),
        b"kill" => return Err("NOTBUSY No scripts in execution right now.".into()),
        b"load" => {
            let mut machine = match context.core.machine.take() {
                Some(machine) => machine,
                None => Box::new(Machine::new().map_err(|error| format!("ERR {error}"))?),
            };
            let loaded = scripts.known.made(args.at(2)).and_then(|script| {
                machine.compile(&scripts.known, &script)?;
                scripts.known.load(&script)?;
                Ok(script)
            });
            context.core.machine = Some(machine);
            context.out.bulk(loaded?.sha.as_bytes());
        }
        _ => return help(context.out, "SCRIPT", HELP),
    }
    Ok(())
}
