//! What all threads of a server share.

use crate::backups::Backups;
use crate::clients::Clients;
use crate::config::Config;
use crate::event_loop::{Incoming, WAKER};
use crate::gate::Gate;
use crate::ledgers::Ledgers;
use crate::options::{ServerError, ServerOptions};
use crate::pause::Pause;
use crate::queues::Queues;
use crate::scripts::{Scripts, WORKERS};
use crate::slowlog::{LatencyMonitor, SlowLog};
use crate::sql::Statements;
use crate::stats::LoopStats;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terrace::{Database, Durability, Map, TierUse, WhenFull};

/// Where a server listens.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// The clear-text ports.
    pub tcp: Vec<SocketAddr>,
    /// The TLS port.
    pub tls: Option<SocketAddr>,
    /// The Unix socket.
    pub unix: Option<PathBuf>,
    /// The HTTP port of metrics and health.
    pub metrics: Option<SocketAddr>,
}

/// A file descriptor that wakes whoever polls it.
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> rustix::io::Result<Waker> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Waker)
    }
    pub(crate) fn wake(&self) {
        // A full counter means that the wake-up is already pending.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
    pub(crate) fn reset(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What a loop is told by other threads.
pub(crate) enum Message {
    /// A connection to serve.
    Accepted(Box<Incoming>),
    /// Close the connection with this id.
    Kill(u64),
    /// The pause ended, or changed.
    Pause,
}

/// An event loop as the others see it.
pub(crate) struct LoopHandle {
    /// What the loop waits on; made before the loop's thread, so that a system without one more
    /// epoll refuses the start and not a loop.
    pub(crate) poll: OwnedFd,
    pub(crate) waker: Waker,
    pub(crate) inbox: Mutex<Vec<Message>>,
    /// Clients that are held may ask again: something was pushed to a queue, or read from the disk.
    may_ask: AtomicBool,
    pub(crate) connections: AtomicUsize,
    pub(crate) stats: CachePadded<LoopStats>,
}

impl LoopHandle {
    fn new() -> rustix::io::Result<LoopHandle> {
        let handle = LoopHandle {
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            waker: Waker::new()?,
            inbox: Mutex::default(),
            may_ask: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            stats: LoopStats::new(crate::commands::count()),
        };
        let name = epoll::EventData::new_u64(WAKER);
        epoll::add(&handle.poll, handle.waker.file(), name, epoll::EventFlags::IN)?;
        Ok(handle)
    }
    pub(crate) fn send(&self, message: Message) {
        self.inbox.lock().push(message);
        self.waker.wake();
    }
    /// Clients of this loop that are held may ask again.
    pub(crate) fn tell_held(&self) {
        if !self.may_ask.swap(true, SeqCst) {
            self.waker.wake();
        }
    }
    /// Whether that was said since the last call.
    pub(crate) fn may_ask(&self) -> bool {
        self.may_ask.swap(false, SeqCst)
    }
}

/// How maps opened later are set up, when `CONFIG SET` has changed what the database was opened
/// with. The memory budget is the database's and needs no repeating.
#[derive(Clone, Copy, Default)]
struct MapSettings {
    durability: Option<Durability>,
    when_full: Option<WhenFull>,
}

/// The numbered databases: maps of the database, opened when first selected.
pub(crate) struct Maps {
    database: Arc<Database>,
    /// Bytes of key and value together that the engine takes.
    item_bytes_max: OnceLock<usize>,
    open: Vec<OnceLock<Map>>,
    opening: Mutex<MapSettings>,
    /// Who is told when something was read from the disk.
    loops: Arc<[LoopHandle]>,
}

impl Maps {
    /// What they are maps of.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    fn new(database: Arc<Database>, count: usize, loops: Arc<[LoopHandle]>) -> Maps {
        Maps {
            loops,
            item_bytes_max: OnceLock::new(),
            open: (0..count).map(|_| OnceLock::new()).collect(),
            opening: Mutex::default(),
            database,
        }
    }

    /// Opens database 0 and those that exist already.
    fn open(&self) -> terrace::Result<()> {
        let most = self.get(0)?.item_bytes_max();
        self.item_bytes_max.get_or_init(|| most);
        for name in self.database.map_names()? {
            if let Some(number) = self.number_of(&name) {
                self.get(number)?;
            }
        }
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }
    pub(crate) fn item_bytes_max(&self) -> usize {
        self.item_bytes_max.get().copied().unwrap_or(usize::MAX)
    }

    /// Database `number` (below [`Maps::count`]), opened or made.
    pub(crate) fn get(&self, number: usize) -> terrace::Result<&Map> {
        if let Some(map) = self.open[number].get() {
            return Ok(map);
        }
        let settings = self.opening.lock();
        if let Some(map) = self.open[number].get() {
            return Ok(map);
        }
        let map = self.database.map(&number.to_string())?;
        settings.apply(&map)?;
        let loops = Arc::clone(&self.loops);
        map.on_fetched(move || loops.iter().for_each(LoopHandle::tell_held));
        Ok(self.open[number].get_or_init(|| map))
    }

    /// Which database a map is.
    fn number_of(&self, name: &str) -> Option<usize> {
        let number = name.parse::<usize>().ok().filter(|number| *number < self.count())?;
        (number.to_string() == name).then_some(number)
    }

    /// The databases opened so far.
    pub(crate) fn opened(&self) -> impl Iterator<Item = (usize, &Map)> {
        self.open.iter().enumerate().filter_map(|(number, map)| Some((number, map.get()?)))
    }

    fn change(&self, change: impl FnOnce(&mut MapSettings)) -> terrace::Result<()> {
        let mut settings = self.opening.lock();
        change(&mut settings);
        self.opened().try_for_each(|(_, map)| settings.apply(map))
    }
    pub(crate) fn set_durability(&self, durability: Durability) -> terrace::Result<()> {
        self.change(|settings| settings.durability = Some(durability))
    }
    pub(crate) fn set_when_full(&self, when_full: WhenFull) -> terrace::Result<()> {
        self.change(|settings| settings.when_full = Some(when_full))
    }
    /// Sets the memory that all databases share, but those in tiers of their own.
    pub(crate) fn set_memory_budget(&self, bytes: u64) {
        self.database.set_memory_budget(bytes);
    }

    /// Sets what all databases may take of the disk; none: what it has, less a reserve.
    pub(crate) fn set_disk_budget(&self, bytes: Option<u64>) {
        self.database.disk_budget().set_limit(bytes);
    }

    /// The memories that databases take from.
    pub(crate) fn tiers(&self) -> Vec<TierUse> {
        self.database.tiers()
    }

    /// The memory that database `number` takes from, which is open.
    pub(crate) fn tier_of(&self, number: usize) -> String {
        self.database.tier_of(&number.to_string()).unwrap_or_default()
    }

    /// The memory that its index takes from.
    pub(crate) fn index_tier_of(&self, number: usize) -> String {
        self.database.index_tier_of(&number.to_string()).unwrap_or_default()
    }

    /// Why a database takes no more writes, if one does not.
    pub(crate) fn stopped(&self) -> Option<String> {
        let reason = |(number, map): (usize, &Map)| {
            map.stats().stopped.map(|reason| format!("database {number} is read-only: {reason}"))
        };
        self.opened().find_map(reason)
    }

    /// The durability in force.
    pub(crate) fn durability(&self) -> Durability {
        self.open[0].get().map_or_else(|| self.database.options().durability, Map::durability)
    }

    /// What happens to a write that finds no memory.
    pub(crate) fn when_full(&self) -> WhenFull {
        self.open[0].get().map_or_else(|| self.database.options().when_full, Map::when_full)
    }

    /// The memory that all databases share.
    pub(crate) fn memory_budget(&self) -> u64 {
        self.database.memory_budget()
    }

    /// Everything acknowledged before the call is durable after it.
    pub(crate) fn sync(&self) -> terrace::Result<()> {
        self.database.sync()
    }
}

impl MapSettings {
    fn apply(&self, map: &Map) -> terrace::Result<()> {
        match self.when_full {
            None => {}
            // Whatever is not evicted leaves memory, of a map that was opened so; another refuses.
            Some(WhenFull::Spill) if map.set_when_full(WhenFull::Spill).is_ok() => {}
            Some(WhenFull::Spill) => map.set_when_full(WhenFull::Refuse)?,
            Some(when_full) => map.set_when_full(when_full)?,
        }
        self.durability.map_or(Ok(()), |durability| map.set_durability(durability))
    }
}

/// Whether the database is still being opened: clients are told so, and wait.
pub(crate) struct Loading(AtomicBool);

impl Loading {
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// Counters of the acceptor.
#[derive(Default)]
pub(crate) struct AcceptCounters {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused_full: AtomicU64,
    pub(crate) refused_protected: AtomicU64,
}

/// The state of a server.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    pub(crate) config: Config,
    pub(crate) maps: Maps,
    pub(crate) loading: Loading,
    pub(crate) queues: Queues,
    pub(crate) ledgers: Ledgers,
    pub(crate) gate: Arc<Gate>,
    pub(crate) scripts: Scripts,
    pub(crate) sql: Statements,
    pub(crate) backups: Backups,
    pub(crate) loops: Arc<[LoopHandle]>,
    pub(crate) clients: Clients,
    pub(crate) connected: AtomicUsize,
    pub(crate) accepts: AcceptCounters,
    /// Snapshots that clients have open.
    pub(crate) open_snapshots: Arc<AtomicUsize>,
    pub(crate) slow_log: SlowLog,
    pub(crate) latency: LatencyMonitor,
    pub(crate) pause: Pause,
    pub(crate) started: Instant,
    pub(crate) run_id: String,
    pub(crate) addresses: OnceLock<Addresses>,
    /// Commands per second over the last second, and the counts it was made from.
    pub(crate) rate: Mutex<Rate>,
    /// Seconds since 1970 of the last `SAVE` that worked, and whether the last one did.
    pub(crate) saved_s: AtomicU64,
    /// Commands that had written when it began.
    saved_changes: AtomicU64,
    pub(crate) save_failed: AtomicBool,
    pub(crate) saving: AtomicBool,
    /// `BGSAVE` waits to be started by the acceptor thread.
    pub(crate) save_requested: AtomicBool,
    stopping: AtomicBool,
    /// The data need not be flushed at the end: `SHUTDOWN NOSAVE`.
    pub(crate) skip_final_sync: AtomicBool,
    pub(crate) acceptor_waker: Waker,
    pub(crate) metrics_waker: Waker,
}

/// A sample of the command rate.
#[derive(Default)]
pub(crate) struct Rate {
    pub(crate) commands: u64,
    pub(crate) per_second: u64,
}

impl Shared {
    pub(crate) fn new(
        database: Arc<Database>,
        options: ServerOptions,
        threads: usize,
    ) -> Result<Shared, ServerError> {
        let system = |what| {
            move |cause: rustix::io::Errno| ServerError::System { what, cause: cause.into() }
        };
        let waker = || Waker::new().map_err(system("eventfd"));
        let loops = (0..threads)
            .map(|_| LoopHandle::new().map_err(system("epoll")))
            .collect::<Result<Arc<[_]>, ServerError>>()?;
        // The event loops, the workers, the thread for backups, and statements of SQL.
        let gate = Arc::new(Gate::new(threads + WORKERS + 2));
        let (db, memory) = (Arc::clone(&database), options.limits.sql_bytes_max);
        let at_gate = (Arc::clone(&gate), threads + WORKERS + 1);
        Ok(Shared {
            sql: Statements::new(db, memory, Arc::clone(&loops), at_gate),
            config: Config::new(&options),
            queues: Queues::new(Arc::clone(&database), options.limits.queues_max),
            ledgers: Ledgers::new(Arc::clone(&database), options.limits.ledgers_max),
            maps: Maps::new(database, options.databases, Arc::clone(&loops)),
            loading: Loading(AtomicBool::new(true)),
            gate,
            scripts: Scripts::default(),
            backups: Backups::default(),
            loops,
            clients: Clients::default(),
            connected: AtomicUsize::new(0),
            accepts: AcceptCounters::default(),
            open_snapshots: Arc::default(),
            slow_log: SlowLog::default(),
            latency: LatencyMonitor::default(),
            pause: Pause::default(),
            started: Instant::now(),
            run_id: run_id(),
            addresses: OnceLock::new(),
            rate: Mutex::default(),
            saved_s: AtomicU64::new(unix_time().as_secs()),
            saved_changes: AtomicU64::new(0),
            save_failed: AtomicBool::new(false),
            saving: AtomicBool::new(false),
            save_requested: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            skip_final_sync: AtomicBool::new(false),
            acceptor_waker: waker()?,
            metrics_waker: waker()?,
            options,
        })
    }

    /// Opens what clients may ask for; from then on they are answered.
    pub(crate) fn open(&self) -> terrace::Result<()> {
        self.maps.open()?;
        self.queues.open_all()?;
        self.ledgers.open_all()?;
        self.loading.0.store(false, SeqCst);
        self.tell_of_settings();
        Ok(())
    }

    /// Has every loop look at the settings at once, not when its next client comes.
    pub(crate) fn tell_of_settings(&self) {
        self.config.changed();
        self.loops.iter().for_each(|each| each.waker.wake());
    }

    /// Commands that wrote, since the server started.
    fn changes(&self) -> u64 {
        let writes = crate::commands::COMMANDS.iter().filter(|command| command.writes());
        let done = |command: &crate::commands::Command| {
            self.sum(|stats| {
                let stats = &stats.commands[command.index()];
                stats.calls.get().saturating_sub(stats.failed.get())
            })
        };
        writes.map(done).sum()
    }

    /// Commands that wrote since the last save.
    pub(crate) fn changes_since_save(&self) -> u64 {
        self.changes().saturating_sub(self.saved_changes.load(Relaxed))
    }

    /// Starts the end: no more connections, no more requests; loops drain and return.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.acceptor_waker.wake();
        self.metrics_waker.wake();
        self.scripts.workers.stop();
        self.sql.stop();
        self.backups.stop();
        self.loops.iter().for_each(|each| {
            each.tell_held();
            each.waker.wake();
        });
    }
    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Clients that wait for an element of a queue may ask again.
    pub(crate) fn tell_pushed(&self) {
        if self.queues.waiting.load(SeqCst) > 0 {
            self.loops.iter().for_each(LoopHandle::tell_held);
        }
    }

    /// Milliseconds since the server started.
    pub(crate) fn uptime_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// The sum of a counter over the loops.
    pub(crate) fn sum(&self, counter: impl Fn(&LoopStats) -> u64) -> u64 {
        self.loops.iter().map(|each| counter(&each.stats)).sum()
    }
    pub(crate) fn commands_processed(&self) -> u64 {
        self.sum(|stats| stats.commands.iter().map(|command| command.calls.get()).sum())
    }

    /// Takes the sample behind `instantaneous_ops_per_sec`; called about once a second.
    pub(crate) fn sample_rate(&self, elapsed: Duration) {
        let now = self.commands_processed();
        let mut rate = self.rate.lock();
        let per_second =
            now.saturating_sub(rate.commands) as f64 / elapsed.as_secs_f64().max(0.001);
        *rate = Rate { commands: now, per_second: per_second as u64 };
    }

    /// Has the acceptor thread start a save in the background.
    pub(crate) fn request_save(&self) {
        self.save_requested.store(true, SeqCst);
        self.acceptor_waker.wake();
    }

    /// Makes everything acknowledged so far durable, and remembers how that went.
    pub(crate) fn save(&self) -> terrace::Result<()> {
        let changes = self.changes();
        let result = self.maps.sync();
        self.save_failed.store(result.is_err(), Relaxed);
        if result.is_ok() {
            self.saved_s.store(unix_time().as_secs(), Relaxed);
            self.saved_changes.store(changes, Relaxed);
        }
        result
    }
}

/// Time since 1970.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Forty hexadecimal digits that tell one run of a server from another.
fn run_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let words = (0..3u64).map(|i| format!("{:016x}", RandomState::new().hash_one(i)));
    words.collect::<String>()[..40].to_string()
}
