//! An event loop: one thread, one epoll, its share of the connections.
//!
//! The loop turns. A turn reads every readable connection once, executes what came, commits,
//! and only then sends the replies: whatever a client is told has the durability the map
//! promises, and all clients of a turn share one commit. GETs that stand next to each other,
//! in one pipeline or in several connections' input, go to the engine as one batch.
//!
//! ```text
//! wait -> [enter gate] read, parse, execute ... [leave gate] -> commit -> send -> wait
//! ```
//!
//! Work per connection and turn is bounded (bytes read, bytes of requests executed, bytes of
//! replies produced); what is left over goes to the backlog and is continued in the next turn,
//! after everybody else had theirs.

mod batch;
mod connection;
mod execute;
mod housekeeping;
mod owed;
mod send;
mod sets;

use crate::clients::Waits;
use crate::config::LoopLimits;
use crate::gate::Turn;
use crate::ledgers::LedgerTurn;
use crate::pause::Paused;
use crate::queues::QueueTurn;
use crate::resp::Output;
use crate::scripts::Interpreter;
use crate::sessions::Sessions;
use crate::shared::{LoopHandle, Message, Shared, unix_time};
use batch::GetBatch;
use connection::{Connection, Phase, Received};
use rustix::event::{Timespec, epoll};
use sets::SetRun;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

pub(crate) use connection::Incoming;
pub(crate) use owed::FETCHES;

/// Bytes read from a connection in one turn.
const READ_BYTES: usize = 64 << 10;
/// The loop's own read buffer; several connections' input lies in it side by side.
const ARENA_BYTES: usize = 4 * READ_BYTES;
/// Most that is read directly behind an unfinished request.
const DIRECT_READ_BYTES_MAX: usize = 1 << 20;
/// Bytes missing from a request that make a direct read worth its own buffer.
const DIRECT_READ_BYTES_MIN: usize = 32 << 10;
/// Events taken from epoll at once.
const EVENTS: usize = 512;
/// How often timeouts are looked at.
const TICK_MS: u64 = 500;
/// How often clients that are held for want of memory are tried again: the collector frees enough for several of
/// these at a time.
const MEMORY_TICK_MS: u64 = 1;
/// Epoll's name for the waker; connections are named by their index.
pub(crate) const WAKER: u64 = u64::MAX;

/// The state that commands share within a loop, connections apart.
pub(crate) struct Core {
    pub(crate) id: usize,
    pub(crate) limits: LoopLimits,
    /// Milliseconds since 1970, read once per turn.
    pub(crate) now_ms: u64,
    /// Milliseconds since the server started, read once per turn.
    pub(crate) uptime_ms: u64,
    pub(crate) paused: Paused,
    /// Whether a connection is held until there is memory for its next write.
    pub(crate) awaits_memory: bool,
    /// The database is being opened.
    pub(crate) is_loading: bool,
    /// For commands that write to another database than the one they are executed in.
    pub(crate) others: Sessions,
    /// What this turn has done to queues.
    pub(crate) queues: QueueTurn,
    /// And to ledgers.
    pub(crate) ledgers: LedgerTurn,
    /// When the next client has waited long enough for an element of a queue.
    pub(crate) next_wait_ms: u64,
    /// State of a small random number generator.
    pub(crate) random: u64,
    /// Runs scripts, once there was one.
    pub(crate) interpreter: Option<Box<Interpreter>>,
    /// When the scripts of the transaction that runs are to end.
    pub(crate) scripts_until: Option<Instant>,
}

impl Core {
    pub(crate) fn new(shared: &Shared, id: usize) -> Core {
        Core {
            id,
            limits: LoopLimits::new(shared),
            now_ms: 0,
            uptime_ms: 0,
            paused: Paused::Nothing,
            awaits_memory: false,
            is_loading: shared.loading.is_on(),
            others: Sessions::new(shared.maps.count()),
            queues: QueueTurn::default(),
            ledgers: LedgerTurn::default(),
            next_wait_ms: u64::MAX,
            random: (unix_time().as_nanos() as u64 ^ (id as u64) << 32) | 1,
            interpreter: None,
            scripts_until: None,
        }
    }

    /// Looks at the clock, and at the limits if they have changed: whether they have.
    pub(crate) fn look(&mut self, shared: &Shared) -> bool {
        self.now_ms = unix_time().as_millis() as u64;
        self.uptime_ms = shared.uptime_ms();
        let has_changed = self.limits.generation != shared.config.generation();
        if has_changed {
            self.limits = LoopLimits::new(shared);
            self.is_loading = shared.loading.is_on();
        }
        has_changed
    }

    /// Whether commands run, whatever they are.
    #[inline(always)]
    pub(crate) fn takes_all(&self) -> bool {
        self.paused == Paused::Nothing && !self.is_loading
    }

    /// The next of a sequence that is random enough to pick keys by (xorshift).
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

struct EventLoop<'s> {
    shared: &'s Shared,
    handle: &'s LoopHandle,
    core: Core,
    sessions: Sessions,
    /// By index, with their replies beside them: a batch of GETs answers several connections.
    connections: Vec<Option<Box<Connection>>>,
    outputs: Vec<Output>,
    free: Vec<usize>,
    batch: GetBatch,
    sets: SetRun,
    arena: Vec<u8>,
    arena_used: usize,
    to_write: Vec<usize>,
    backlog: Vec<usize>,
    /// Connections that a pause holds back, or that wait: for an element of a queue, memory, or the disk.
    held: Vec<usize>,
    /// Buffers for replies, handed to connections that have some to write.
    spare_buffers: Vec<Vec<u8>>,
    /// Memory of all connections' buffers.
    buffer_bytes: usize,
    last_tick_ms: u64,
    /// When the loop gives up on clients that do not take their last replies.
    drain_until_ms: Option<u64>,
}

/// Runs loop `id` until the server stops.
pub(crate) fn run(shared: &Shared, id: usize) {
    let handle = &shared.loops[id];
    let mut event_loop = EventLoop {
        shared,
        handle,
        core: Core::new(shared, id),
        sessions: Sessions::new(shared.maps.count()),
        connections: Vec::new(),
        outputs: Vec::new(),
        free: Vec::new(),
        batch: GetBatch::default(),
        sets: SetRun::default(),
        arena: vec![0; ARENA_BYTES],
        arena_used: 0,
        to_write: Vec::new(),
        backlog: Vec::new(),
        held: Vec::new(),
        spare_buffers: Vec::new(),
        buffer_bytes: 0,
        last_tick_ms: 0,
        drain_until_ms: None,
    };
    event_loop.run();
}

impl EventLoop<'_> {
    fn run(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let timeout = self.timeout();
            events.clear();
            let waited = epoll::wait(
                &self.handle.poll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            );
            debug_assert!(matches!(waited, Ok(_) | Err(rustix::io::Errno::INTR)));
            self.start_turn();
            let woken = self.execute_turn(&events);
            self.commit();
            self.send_replies();
            if woken {
                self.handle.waker.reset();
                if self.handle.may_ask() {
                    self.release_held();
                }
                self.read_inbox();
            }
            self.tick();
            if self.shared.stopping() && self.drained() {
                return;
            }
        }
    }

    /// How long to wait for events.
    fn timeout(&self) -> Option<Timespec> {
        let ms = match self.core.paused {
            _ if !self.backlog.is_empty() => 0,
            _ if self.core.awaits_memory => MEMORY_TICK_MS,
            Paused::Nothing if self.drain_until_ms.is_some() => 20,
            Paused::Nothing if self.connections.len() == self.free.len() => return None,
            Paused::Nothing => {
                self.core.next_wait_ms.saturating_sub(self.core.uptime_ms).clamp(1, TICK_MS)
            }
            _ => self.shared.pause.until_ms().saturating_sub(self.core.uptime_ms).clamp(1, TICK_MS),
        };
        Some(Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 })
    }

    fn start_turn(&mut self) {
        if self.core.look(self.shared) {
            let limit_bytes = self.core.limits.output_buffer_bytes;
            self.outputs.iter_mut().for_each(|out| out.set_limit_bytes(limit_bytes));
            self.close_beyond_buffers();
        }
        let paused = self.shared.pause.now(self.core.uptime_ms);
        if self.core.paused != paused {
            self.core.paused = paused;
            self.release_held();
        }
        if std::mem::take(&mut self.core.awaits_memory) {
            self.release_held();
        }
        if self.core.next_wait_ms <= self.core.uptime_ms {
            self.core.next_wait_ms = u64::MAX;
            self.release_held();
        }
        self.handle.stats.turns.add(1);
    }

    /// Reads and executes everything that is ready. Whether the waker was among it.
    fn execute_turn(&mut self, events: &[epoll::Event]) -> bool {
        let shared = self.shared;
        let mut turn = shared.gate.enter(self.core.id);
        let mut woken = false;
        let mut backlog = std::mem::take(&mut self.backlog);
        for event in events {
            let (flags, name) = (event.flags, event.data.u64());
            if name == WAKER {
                woken = true;
                continue;
            }
            let index = name as usize;
            if flags.contains(epoll::EventFlags::OUT) {
                self.mark_to_write(index);
            }
            let broken = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            // Nobody is there to take what it waits for.
            let left = flags.contains(epoll::EventFlags::RDHUP) && self.is_waiting(index);
            if flags.contains(epoll::EventFlags::IN) {
                self.readable(index, &mut turn);
            } else if broken || left {
                self.close(index);
            }
        }
        for index in backlog.drain(..) {
            self.resume(index, &mut turn);
        }
        // Whoever was put into the backlog during this turn stays; the emptied list is reused.
        if self.backlog.is_empty() {
            self.backlog = backlog;
        }
        self.flush_arena(&mut turn);
        woken
    }

    /// Whether the connection waits for an element of a queue, or for its script.
    fn is_waiting(&self, index: usize) -> bool {
        self.connections[index].as_deref().is_some_and(|connection| connection.client.waits())
    }

    /// Reads once from a connection and executes what is complete.
    fn readable(&mut self, index: usize, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections[index].as_mut() else { return };
        match connection.phase {
            Phase::Open if connection.held || connection.in_backlog => return,
            Phase::Open => {}
            Phase::Closing => return,
            Phase::Lingering { .. } => return self.discard(index),
        }
        if connection.is_tls() || connection.missing >= DIRECT_READ_BYTES_MIN {
            let most = connection.missing.clamp(READ_BYTES, DIRECT_READ_BYTES_MAX);
            let received = connection.receive_more(most);
            if self.received(index, &received) {
                self.execute_input(index, turn);
                if matches!(received, Received::Bytes(_, true)) {
                    self.read_again(index);
                }
            }
            return;
        }
        if ARENA_BYTES - self.arena_used < READ_BYTES {
            self.flush_arena(turn);
        }
        let start = self.arena_used;
        let Some(connection) = self.connections[index].as_mut() else { return };
        let received = connection.receive(&mut self.arena[start..start + READ_BYTES]);
        if !self.received(index, &received) {
            return;
        }
        let Received::Bytes(n, _) = received else { return };
        let Some(connection) = self.connections[index].as_mut() else { return };
        if !connection.input.is_empty() {
            connection.input.append(&self.arena[start..start + n]);
            return self.execute_input(index, turn);
        }
        self.execute_arena(index, start..start + n, turn);
    }

    /// Notes the outcome of a read. False: nothing to execute.
    fn received(&mut self, index: usize, received: &Received) -> bool {
        let Some(connection) = self.connections[index].as_mut() else { return false };
        match received {
            Received::Bytes(n, _) => {
                connection.moved_ms = self.core.uptime_ms;
                self.handle.stats.bytes_read.add(*n as u64);
                true
            }
            Received::Nothing => {
                if connection.wants_write() {
                    self.mark_to_write(index);
                }
                false
            }
            Received::End => {
                // Replies still owed are sent; then the connection goes.
                connection.phase = Phase::Closing;
                self.mark_to_write(index);
                false
            }
            Received::Broken => {
                self.close(index);
                false
            }
        }
    }

    /// A TLS session may hold more than was taken from it, and epoll does not see that.
    fn read_again(&mut self, index: usize) {
        if let Some(connection) = self.connections[index].as_mut()
            && connection.is_tls()
            && connection.phase == Phase::Open
            && !connection.in_backlog
            && !connection.held
        {
            connection.in_backlog = true;
            self.backlog.push(index);
        }
    }

    /// Continues what the last turn left over.
    fn resume(&mut self, index: usize, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections[index].as_mut() else { return };
        connection.in_backlog = false;
        if connection.phase != Phase::Open {
            return;
        }
        match connection.is_tls() && !self.shared.stopping() {
            true => {
                self.execute_input(index, turn);
                self.readable(index, turn);
            }
            false => self.execute_input(index, turn),
        }
    }

    fn read_inbox(&mut self) {
        let messages = std::mem::take(&mut *self.handle.inbox.lock());
        for message in messages {
            match message {
                Message::Accepted(incoming) => self.add(*incoming),
                Message::Kill(id) => self.kill(id),
                Message::Pause => self.release_held(),
            }
        }
    }

    fn add(&mut self, incoming: Incoming) {
        let authenticated = !self.shared.config.has_password();
        let mut connection = Box::new(Connection::new(incoming, authenticated));
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.outputs.push(Output::default());
            self.connections.len() - 1
        });
        self.outputs[index] = Output::new(self.core.limits.output_buffer_bytes);
        connection.interest = connection.wanted(false);
        let name = epoll::EventData::new_u64(index as u64);
        let watched = epoll::add(&self.handle.poll, connection.socket(), name, connection.interest);
        self.connections[index] = Some(connection);
        if watched.is_err() || self.shared.stopping() {
            self.close(index);
        }
    }

    /// Closes a connection at once.
    fn close(&mut self, index: usize) {
        let Some(connection) = self.connections[index].take() else { return };
        let info = &connection.client.info;
        self.buffer_bytes -= connection.counted_bytes;
        self.handle.stats.buffer_bytes.set(self.buffer_bytes as u64);
        if connection.client.waits_until_ms.is_some() {
            info.waits.set(Waits::Not);
            self.shared.queues.waiting.fetch_sub(1, SeqCst);
        }
        self.shared.clients.remove(info.id);
        self.shared.connected.fetch_sub(1, Relaxed);
        self.handle.connections.fetch_sub(1, Relaxed);
        self.outputs[index] = Output::default();
        self.batch.forget(index);
        self.free.push(index);
    }
}
