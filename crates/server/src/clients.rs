//! Who is connected, as other loops may know it.
//!
//! A connection belongs to one loop, but `CLIENT LIST` runs on any. What it prints lies in a
//! [`ClientInfo`] of relaxed atomics that the owning loop refreshes once per turn.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// What everybody may know about a connection.
pub(crate) struct ClientInfo {
    pub(crate) id: u64,
    /// Index of the loop that owns the connection.
    pub(crate) owner: usize,
    pub(crate) address: String,
    pub(crate) local_address: String,
    pub(crate) file: i32,
    /// Milliseconds since the server started.
    pub(crate) connected_ms: u64,
    pub(crate) seen_ms: AtomicU64,
    pub(crate) database: AtomicU32,
    /// Commands queued by `MULTI`; -1 outside of one, as two's complement.
    pub(crate) queued: AtomicU32,
    pub(crate) watched: AtomicU32,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    pub(crate) memory_bytes: AtomicU64,
    /// Index of the last command in the table.
    pub(crate) command: AtomicU32,
    pub(crate) resp3: AtomicBool,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// Another loop wants the connection closed.
    pub(crate) killed: AtomicBool,
    /// Whether a pause holds its next command back.
    pub(crate) paused: AtomicBool,
    pub(crate) waits: WaitState,
    pub(crate) words: RwLock<ClientWords>,
}

/// Whether a client waits for an element of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Not = 0,
    /// It does.
    Yes = 1,
    /// It was told that its time is over.
    ToldOver = 2,
    /// It was told that somebody ended the wait.
    ToldError = 3,
}

/// The same, as the client's loop and those who end its wait know it.
#[derive(Default)]
pub(crate) struct WaitState(AtomicU32);

impl WaitState {
    pub(crate) fn get(&self) -> Waits {
        match self.0.load(SeqCst) {
            0 => Waits::Not,
            1 => Waits::Yes,
            2 => Waits::ToldOver,
            _ => Waits::ToldError,
        }
    }
    pub(crate) fn set(&self, waits: Waits) {
        self.0.store(waits as u32, SeqCst);
    }
    /// Ends the wait; whether there was one.
    pub(crate) fn tell(&self, how: Waits) -> bool {
        self.0.compare_exchange(Waits::Yes as u32, how as u32, SeqCst, SeqCst).is_ok()
    }
}

/// What a client said about itself.
#[derive(Default)]
pub(crate) struct ClientWords {
    pub(crate) name: String,
    pub(crate) library_name: String,
    pub(crate) library_version: String,
}

/// `queued` outside of a transaction.
pub(crate) const NO_TRANSACTION: u32 = u32::MAX;

impl ClientInfo {
    /// One line of `CLIENT LIST`, without the line end.
    pub(crate) fn line(&self, now_ms: u64) -> String {
        let words = self.words.read();
        let queued = self.queued.load(Relaxed) as i32;
        let input = self.input_bytes.load(Relaxed);
        let output = self.output_bytes.load(Relaxed);
        let memory = self.memory_bytes.load(Relaxed);
        let command = crate::commands::name_of(self.command.load(Relaxed));
        let mut flags = String::new();
        for (set, flag) in [
            (self.waits.get() != Waits::Not || self.paused.load(Relaxed), 'b'),
            (queued >= 0, 'x'),
            (self.no_evict.load(Relaxed), 'e'),
            (self.no_touch.load(Relaxed), 'T'),
            (self.address.starts_with('/'), 'U'),
        ] {
            if set {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let mut line = String::with_capacity(320);
        let written = write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 \
             multi={queued} watch={} qbuf={input} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl={output} \
             oll=0 omem={output} tot-mem={memory} events={} cmd={command} user=default redir=-1 resp={} \
             lib-name={} lib-ver={} loop={}",
            self.id,
            self.address,
            self.local_address,
            self.file,
            words.name,
            now_ms.saturating_sub(self.connected_ms) / 1000,
            now_ms.saturating_sub(self.seen_ms.load(Relaxed)) / 1000,
            self.database.load(Relaxed),
            self.watched.load(Relaxed),
            if output > 0 { "rw" } else { "r" },
            if self.resp3.load(Relaxed) { 3 } else { 2 },
            words.library_name,
            words.library_version,
            self.owner,
        );
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
        line
    }
}

/// The connections of all loops, by id.
#[derive(Default)]
pub(crate) struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
}

impl Clients {
    pub(crate) fn add(&self, info: Arc<ClientInfo>) {
        self.by_id.lock().insert(info.id, info);
    }
    pub(crate) fn remove(&self, id: u64) {
        self.by_id.lock().remove(&id);
    }
    pub(crate) fn find(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.by_id.lock().get(&id).cloned()
    }
    /// How many a pause holds back.
    pub(crate) fn paused(&self) -> usize {
        self.by_id.lock().values().filter(|info| info.paused.load(Relaxed)).count()
    }
    /// Everybody, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<ClientInfo>> {
        self.by_id.lock().values().cloned().collect()
    }
}
