//! A map's own threads: the checkpointer writes logs out, takes checkpoints and sweeps expired keys; the
//! collector frees logs; the fetcher reads items from the disk for threads that serve others meanwhile; the saver saves
//! the index, and reads logs again to verify them.

use crate::engine::{Change, Engine, Hint, Stored};
use crate::error::Error;
use crate::index::{KeyIndex, Position};
use crate::options::Durability;
use crate::pace::Pace;
use crate::pressure::{By, Wait};
use crate::scrub;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_durable::Values;
use terrace_durable::item::now_ms;
use terrace_durable::logs::Logs;
use terrace_durable::values::Room;
use terrace_memory::Memory;

/// How often the checkpointer looks for sealed logs to write.
const CHECKPOINTER_TICK: Duration = Duration::from_millis(10);
/// How often the collector looks for work when nobody presses it.
const COLLECTOR_TICK: Duration = Duration::from_millis(5);
/// Segments of an index in logs that are collected in a row.
const TIDIED_MOST: usize = 64;
/// Sealed logs that wait for the next checkpoint all the same: what is updated often is overwritten there,
/// and written out once. A device of 1 GB/s takes them in 64 ms.
const KEPT_UNWRITTEN_BYTES: u64 = 64 << 20;
/// How often a map without a durability promise takes a checkpoint all the same.
const UNPROMISED_CHECKPOINT: Duration = Duration::from_secs(5);
/// Free logs that are kept, in a hundred of those in use; and how often the others are given back to
/// the system.
const KEPT_FREE: usize = 8;
const RELEASE_TICK: Duration = Duration::from_secs(1);
/// How soon after the last checkpoint a pause brings the next, or a quarter of the interval if that is
/// sooner.
const PAUSE_CHECKPOINT: Duration = Duration::from_secs(1);
/// How often the durable ends of open logs are noted where every write is durable once it is told: what a crash
/// cuts off cannot be told from damage if it is younger.
const NOTE_TICK: Duration = Duration::from_secs(1);
/// How often expired keys are looked for, and how many items each time.
const SWEEP_TICK: Duration = Duration::from_millis(100);
const SWEEP_ITEMS: usize = 2_000;
/// Sweeps go on at once while anything had expired in the last pass over all items, or has in this one: for so long at
/// each tick of theirs, and where one item in so many has, for longer at each tick of the checkpointer.
const SWEEP_TIME: Duration = Duration::from_millis(5);
const SWEEP_SHARE: usize = 128;
const SWEEP_TIME_MUCH: Duration = Duration::from_millis(25);
/// How long a sweep waits for the collector while more than the budget is used.
const SWEEP_PATIENCE: Duration = Duration::from_secs(2);
/// How long the fetcher waits for something to read before it looks whether the map is closed.
const FETCHER_TICK: Duration = Duration::from_millis(50);
/// Items that the fetcher reads together at the most.
const FETCHED_AT_ONCE: usize = 256;
/// How often it is looked whether the index is to be saved, and how soon again after that failed.
const SAVER_TICK: Duration = Duration::from_millis(500);
const SAVER_PATIENCE: Duration = Duration::from_secs(10);
/// How often an ordered index hears of time.
const LOAD_TICK: Duration = Duration::from_millis(100);

pub(crate) struct Background {
    stop: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts all, or none.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start<M: Memory, I: Memory>(engine: &Arc<Engine<M, I>>) -> io::Result<Background> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let checkpointer = Checkpointer {
            engine: Arc::clone(engine),
            pace: Pace::default(),
            last_sweep: Instant::now(),
            last_release: Instant::now(),
            last_load: Instant::now(),
            last_note: Instant::now(),
            sweep_at: Position::Start,
            pass: Pass::default(),
            last_pass: Pass::default(),
            beyond_since: None,
            writes: 0,
            writes_in_checkpoint: 0,
        };
        let collector = Arc::clone(engine);
        let mut is_index_damaged = false;
        let keeping = spawn("terrace-checkpt", &stop, CHECKPOINTER_TICK, {
            let mut checkpointer = checkpointer;
            move || checkpointer.tick()
        })?;
        let mut background = Background { stop, threads: vec![keeping] };
        let is_over = Arc::clone(&background.stop);
        let collecting = spawn("terrace-collect", &background.stop, COLLECTOR_TICK, move || {
            // More may be due: go on without waiting while rounds free something, which they do for as long as
            // others press for room.
            let freed = || collector.collect().is_ok_and(|round| round.freed_segments > 0);
            while freed() && !(*is_over.0.lock() && collector.is_pressed()) {}
            while collector.warm_up() && !*is_over.0.lock() && !collector.is_pressed() {}
            is_index_damaged = is_index_damaged || !tidy_index(&collector);
            collector.values.stopped().is_none()
        });
        let may_spill = engine.plan.may_spill;
        let fetching = may_spill.then(|| spawn_fetcher(engine, &background.stop));
        let saving = may_spill.then(|| spawn_saver(engine, &background.stop));
        for thread in [Some(collecting), fetching, saving].into_iter().flatten() {
            match thread {
                Ok(thread) => background.threads.push(thread),
                Err(refused) => {
                    background.stop();
                    return Err(refused);
                }
            }
        }
        Ok(background)
    }

    pub fn stop(self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        for thread in self.threads {
            // The last handle may be dropped by one of these threads; it cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _panicked = thread.join();
            }
        }
    }
}

fn spawn(
    name: &str,
    stop: &Arc<(Mutex<bool>, Condvar)>,
    tick: Duration,
    mut work: impl FnMut() -> bool + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let stop = Arc::clone(stop);
    let body = move || {
        loop {
            {
                let mut stopped = stop.0.lock();
                if !*stopped {
                    stop.1.wait_for(&mut stopped, tick);
                }
                if *stopped {
                    return;
                }
            }
            if !work() {
                return;
            }
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(body)
}

/// Reads from the disk what was asked for by threads that serve others meanwhile.
fn spawn_fetcher<M: Memory, I: Memory>(
    engine: &Arc<Engine<M, I>>,
    stop: &Arc<(Mutex<bool>, Condvar)>,
) -> io::Result<JoinHandle<()>> {
    let (engine, stop) = (Arc::clone(engine), Arc::clone(stop));
    let body = move || {
        while !*stop.0.lock() {
            let wanted = engine.fetches.take(FETCHER_TICK);
            // Before others are told: whoever waits for all blind writes looks again then.
            if engine.blind.is_paused() && engine.blind.are_some() {
                engine.take_in_while(|| !*stop.0.lock());
                engine.fetches.done();
            }
            // A few at a time: who waits for the first goes on while the next are read.
            for some in wanted.chunks(engine.near_at_once(FETCHED_AT_ONCE)) {
                engine
                    .values
                    .fetch_all(some.to_vec(), |wanted, error| engine.fetches.failed(wanted, error));
                engine.fetches.done();
            }
            // What the disk does not give back is not tried again at once.
            if engine.blind.are_some() && !engine.blind.is_stuck() {
                engine.take_in_while(|| !*stop.0.lock());
                engine.fetches.done();
            }
        }
    };
    std::thread::Builder::new().name("terrace-fetch".into()).spawn(body)
}

/// Saves the index again and again, when much was written since, and scrubs meanwhile.
fn spawn_saver<M: Memory, I: Memory>(
    engine: &Arc<Engine<M, I>>,
    stop: &Arc<(Mutex<bool>, Condvar)>,
) -> io::Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    let mut not_before = Instant::now();
    let mut last_scrub = Instant::now();
    spawn("terrace-save", stop, SAVER_TICK, move || {
        if Instant::now() >= not_before
            && engine.is_saving_due(false)
            && !engine.save_index().is_ok_and(|is_saved| is_saved)
        {
            // A disk that is full, perhaps. Without it the next opening takes longer.
            not_before = Instant::now() + SAVER_PATIENCE;
        }
        if last_scrub.elapsed() >= scrub::EVERY {
            last_scrub = Instant::now();
            engine.scrub_one();
        }
        engine.values.stopped().is_none()
    })
}

/// Gives up garbage of an index in logs, as far as there is much of it; `false` if a damaged record is in the way,
/// which whoever needs the room is told.
fn tidy_index<M: Memory, I: Memory>(engine: &Engine<M, I>) -> bool {
    let guard = crossbeam_epoch::pin();
    let is_more = || engine.index.tidy(&engine.located(&guard));
    for _ in 0..TIDIED_MOST {
        match is_more() {
            Ok(true) => {}
            Ok(false) => return true,
            Err(error) => return error.kind() != io::ErrorKind::InvalidData,
        }
    }
    true
}

/// What the checkpointer does at a tick under a promise that takes checkpoints, but for the clock: writes the oldest
/// logs out, but for so many bytes, and takes a checkpoint if it is due.
pub(crate) fn keep<M: Memory, I: Memory>(
    engine: &Engine<M, I>,
    unwritten_bytes: u64,
    is_checkpoint_due: bool,
) -> terrace_durable::Result<()> {
    engine.values.write_sealed(unwritten_bytes)?;
    if is_checkpoint_due { engine.values.flush_all() } else { Ok(()) }
}

struct Checkpointer<M: Memory, I: Memory> {
    engine: Arc<Engine<M, I>>,
    pace: Pace,
    last_sweep: Instant,
    last_release: Instant,
    last_load: Instant,
    last_note: Instant,
    sweep_at: Position,
    /// What the sweeps found since the start, and in the pass before.
    pass: Pass,
    last_pass: Pass,
    /// Since when more than the budget is used and sweeping waits.
    beyond_since: Option<Instant>,
    /// Items written, at the last tick and at the last checkpoint.
    writes: u64,
    writes_in_checkpoint: u64,
}

/// What a pass over all items in search of expired ones came to.
#[derive(Clone, Copy, Default)]
struct Pass {
    looked_at: usize,
    expired: usize,
}

impl Pass {
    fn is_much(self) -> bool {
        self.expired > 0 && self.expired * SWEEP_SHARE >= self.looked_at
    }
}

impl<M: Memory, I: Memory> Checkpointer<M, I> {
    /// Whether to go on. An error has stopped the logs by itself; callers learn of it.
    fn tick(&mut self) -> bool {
        let engine = Arc::clone(&self.engine);
        let kept = match engine.durability.get() {
            Durability::Sync => self.get_ready(),
            Durability::Interval(every) => self.keep(every),
            Durability::None => self.keep(UNPROMISED_CHECKPOINT),
        };
        if self.last_release.elapsed() >= RELEASE_TICK {
            self.last_release = Instant::now();
            engine.release_unused(KEPT_FREE);
            if let Some(logs) = engine.values.logs() {
                logs.release_redo();
                logs.look_at_disk();
                if engine.has_away() || engine.counters.expiries.load(Ordering::Relaxed) {
                    // What expires, or is deleted where no value is written, opens no log, which would count it.
                    logs.recount_backlog();
                }
            }
        }
        engine.versions.moments().tick();
        engine.versions.sweep(engine.values.medium().memory());
        if self.last_load.elapsed() >= LOAD_TICK {
            engine.index.went_by(self.last_load.elapsed());
            self.last_load = Instant::now();
        }
        if engine.counters.expiries.load(Ordering::Relaxed)
            && (self.is_much_expired() || self.last_sweep.elapsed() >= SWEEP_TICK)
        {
            self.last_sweep = Instant::now();
            self.sweep_for_a_while();
        }
        kept.is_ok() && engine.values.stopped().is_none()
    }

    /// Makes fresh logs ready ahead of need, and notes how long the file is and how far its logs are durable. A full
    /// disk refuses them; whoever needs one is told.
    fn get_ready(&mut self) -> Result<(), ()> {
        let _refused = self.engine.values.prepare(2);
        let Stored::Logs(logs) = &self.engine.values else { return Ok(()) };
        if self.last_note.elapsed() < NOTE_TICK {
            return logs.note_growth().map_err(|_| ());
        }
        self.last_note = Instant::now();
        logs.note_tails().map_err(|_| ())
    }

    /// Writes the oldest logs out, and takes a checkpoint when it is time, or earlier when nobody writes: an
    /// idle map is durable, and its items are read where they lie.
    fn keep(&mut self, every: Duration) -> Result<(), ()> {
        let writes = self.engine.values.logs().map_or(0, Logs::writes);
        // Not after every single write of a trickle.
        let soon = (every / 4).min(PAUSE_CHECKPOINT);
        let pause = writes == self.writes
            && writes != self.writes_in_checkpoint
            && self.pace.since() >= soon;
        self.writes = writes;
        let engine = &self.engine;
        let presses = engine.values.logs().is_some_and(Logs::redo_presses);
        let is_due = self.pace.is_due(every) || pause || presses;
        if !is_due {
            return keep(engine, KEPT_UNWRITTEN_BYTES, false).map_err(|_| ());
        }
        self.writes_in_checkpoint = writes;
        self.pace.run(|| keep(engine, KEPT_UNWRITTEN_BYTES, true)).map_err(|_| ())
    }

    fn is_much_expired(&self) -> bool {
        self.pass.is_much() || self.last_pass.is_much()
    }

    /// Sweeps once, and again for a while where anything had expired: keys that are due together leave together.
    fn sweep_for_a_while(&mut self) {
        let start = Instant::now();
        while self.sweep() {
            let most = if self.is_much_expired() { SWEEP_TIME_MUCH } else { SWEEP_TIME };
            if self.pass.expired + self.last_pass.expired == 0 || start.elapsed() >= most {
                return;
            }
        }
    }

    /// Whether sweeping waits for the collector, as more than the budget is used; not for long, since below a lowered
    /// budget the collector may have nothing to gain.
    fn waits_for_collector(&mut self) -> bool {
        if self.engine.budget.excess() == 0 {
            self.beyond_since = None;
            return false;
        }
        let since = *self.beyond_since.get_or_insert_with(Instant::now);
        since.elapsed() < SWEEP_PATIENCE
    }

    /// Looks at the next items. False: there was no room to write down that they are gone.
    fn sweep(&mut self) -> bool {
        if self.waits_for_collector() {
            return false;
        }
        let engine = Arc::clone(&self.engine);
        let now = now_ms();
        let mut gone = Vec::new();
        let mut looked_at = 0;
        let reached = {
            let guard = crossbeam_epoch::pin();
            let located = engine.located(&guard);
            engine.index.scan(&self.sweep_at, SWEEP_ITEMS, &located, |location| {
                looked_at += 1;
                if let Some(key) = engine.expired_key(location, now, &guard) {
                    gone.push(key);
                }
            })
        };
        let by = By { writer: 1, wait: Wait::Never { since: None } };
        for key in gone {
            let swept = engine.update(by, &key, Hint::Bytes(8), Room::Urgent, |live| match live {
                // Written again meanwhile.
                Some(_) => Change::Keep,
                None => Change::Delete,
            });
            match swept {
                Ok(_) => {
                    engine.counters.expired.fetch_add(1, Ordering::Relaxed);
                    self.pass.expired += 1;
                }
                // From the same place at the next tick: checkpoints do not wait for the collector.
                Err(Error::Busy { .. }) => return false,
                Err(_) => {}
            }
        }
        self.pass.looked_at += looked_at;
        let is_over = reached == Position::End;
        self.sweep_at = if is_over { Position::Start } else { reached };
        if is_over {
            self.last_pass = std::mem::take(&mut self.pass);
        }
        // A small map has been looked through: not again before the next tick.
        !is_over
    }
}
