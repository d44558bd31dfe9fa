//! EVAL, EVALSHA, their kinds that read only, and SCRIPT. How scripts are isolated: `scripts`.

use super::execute::{Executor, Ran};
use super::{Client, Command, Context, Failure, Handler, Outcome, flag, help, keys, table};
use super::{integer, unsupported};
use crate::resp::{Args, Output};
use crate::scripts::{
    Given, Interpreter, Job, LONGEST, LONGEST_ALONE, Limits, ON_LOOP, Script, Stop,
};
use crate::shared::Shared;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use terrace::{Error, Session};

/// Commands that a script may execute: what it read is kept until its end.
const COMMANDS: usize = 250_000;

/// A script with its arguments.
pub(super) struct Request<'a> {
    pub(super) script: Arc<Script>,
    pub(super) keys: usize,
    pub(super) args: Args<'a>,
    pub(super) reads_only: bool,
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
pub(super) struct Mode {
    pub(super) limits: Limits,
    /// Nothing else runs meanwhile.
    pub(super) is_alone: bool,
}

/// What a script did.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) ran: Vec<Ran>,
    /// Keys that it wrote, about.
    pub(super) written: usize,
}

/// Runs a script in a batch of the session's; what it wrote is applied by whoever began that, and its reply is in the
/// context's output.
///
/// # Errors
/// It did not come to its end.
pub(super) fn run(
    context: &mut Context<'_>,
    session: &mut Session,
    request: &Request<'_>,
    mode: &Mode,
) -> Result<Ended, Stop> {
    let mut interpreter = interpreter_of(context).map_err(Stop::Failed)?;
    let result = run_in(&mut interpreter, context, session, request, mode);
    context.core.interpreter = Some(interpreter).filter(|interpreter| !interpreter.is_spent);
    result
}

/// That of this thread, to be put back.
fn interpreter_of(context: &mut Context<'_>) -> Result<Box<Interpreter>, String> {
    match context.core.interpreter.take() {
        Some(interpreter) => Ok(interpreter),
        None => Interpreter::new().map(Box::new).map_err(|error| format!("ERR {error}")),
    }
}

fn run_in(
    interpreter: &mut Interpreter,
    context: &mut Context<'_>,
    session: &mut Session,
    request: &Request<'_>,
    mode: &Mode,
) -> Result<Ended, Stop> {
    let function = interpreter.compile(&context.shared.scripts.known, &request.script);
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
    interpreter
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
pub(super) fn text_of(stop: Stop) -> String {
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
pub(super) fn near(session: &mut Session, request: &Request<'_>) -> Result<(), Stop> {
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
            let mut interpreter = interpreter_of(context)?;
            let loaded = scripts.known.made(args.at(2)).and_then(|script| {
                interpreter.compile(&scripts.known, &script)?;
                scripts.known.load(&script)?;
                Ok(script)
            });
            context.core.interpreter = Some(interpreter);
            context.out.bulk(loaded?.sha.as_bytes());
        }
        _ => return help(context.out, "SCRIPT", HELP),
    }
    Ok(())
}
