//! Scripts that take long, as a worker runs them: until they come to their end and nobody came before them.

use super::execute::Ran;
use super::scripts::{Mode, Request, near, run, text_of};
use super::{Client, Context, Failure, table};
use crate::event_loop::Core;
use crate::pause::Paused;
use crate::resp::{Args, Output};
use crate::scripts::{Answer, Job, LONGEST, LONGEST_ALONE, Limits, ON_LOOP, Stop};
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::stats::LoopStats;
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::{Error, Session, Wait};

/// How often a script runs again that others came before, until it runs alone.
const OVERTAKEN: u32 = 8;
/// How often it is looked whether what a script waits for has come.
const WAITS: Duration = Duration::from_millis(1);

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
