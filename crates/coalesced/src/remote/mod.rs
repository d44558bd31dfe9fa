//! An emulated remote memory, accessed from one side: reads, writes and compare-and-swaps over a network, without the
//! help of the computer that has the memory.
//!
//! What is emulated is what such hardware promises, and no more. An access of several words is done in *chunks*, each
//! of them atomic, in a random order with anything in between: by lines of 64 bytes, or by words of 8 only. A
//! compare-and-swap takes one word. Time is virtual, and each client has a clock of its own: an access takes half a
//! round trip, waits its turn at the network card of the memory's server, is served there (a fixed time and one for
//! each byte) and comes back. The figures of a network are given to it; none is fitted to a result.
//!
//! Without turns clients are threads that run freely, which meet at the locks of single lines. With turns
//! ([`Remote::take_turns`]) the order of all accesses follows from the [`Schedule`].

#[cfg(test)]
mod tests;
mod turns;

use crate::backend::{Backend, Context, LINE_WORDS, Method, Objects, Regime, Transactions, take};
use crate::error::{Error, Result};
use crate::native::MOST_WORDS;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use turns::Turns;
pub use turns::{Schedule, each_schedule};

/// What one access does at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// 8 bytes.
    Word,
    /// 64 aligned bytes.
    Line,
}

/// Times of a network, and the servers that share the memory in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Servers.
    pub servers: usize,
    /// There and back, without service; ns.
    pub round_trip_ns: u64,
    /// Of a server's card for each access; ns.
    pub request_ns: u64,
    /// Of a server's card for each 1000 bytes; ns.
    pub kilobyte_ns: u64,
}

impl Default for Network {
    /// One server, 2 us for a round trip, 0.1 us for a request, 10 Gbit/s.
    fn default() -> Network {
        Network { servers: 1, round_trip_ns: 2_000, request_ns: 100, kilobyte_ns: 800 }
    }
}

const SERVER_BLOCK_WORDS: u64 = 512;

/// The memory of other computers.
///
/// ```
/// use terrace_coalesced::{Atomicity, Backend, Context, Network, Regime, Remote};
///
/// let memory = Remote::new(1 << 12, Atomicity::Line, Network::default(), 1)?;
/// let at = memory.allocate(1, 8, Regime::Full)?.first;
/// let mut context = memory.context();
/// context.store(at, 7);
/// assert_eq!((context.load(at), context.round_trips()), (7, 2));
/// # Ok::<(), terrace_coalesced::Error>(())
/// ```
#[derive(Debug)]
pub struct Remote {
    lines: Box<[Mutex<[u64; LINE_WORDS]>]>,
    fresh: AtomicU64,
    atomicity: Atomicity,
    network: Network,
    /// When the card of each server is free; ns.
    cards: Box<[AtomicU64]>,
    turns: OnceLock<Turns>,
    clients: AtomicUsize,
    /// Of the clients that ended: the longest virtual time, in ns, and all accesses.
    ended: (AtomicU64, AtomicU64),
    seed: u64,
}

impl Remote {
    /// A memory of so many words, all zero; the order of chunks follows from `seed`.
    ///
    /// # Errors
    /// [`Error::NoServers`].
    pub fn new(words: usize, atomicity: Atomicity, network: Network, seed: u64) -> Result<Remote> {
        if network.servers == 0 {
            return Err(Error::NoServers);
        }
        Ok(Remote {
            lines: (0..words.div_ceil(LINE_WORDS)).map(|_| Mutex::default()).collect(),
            fresh: AtomicU64::new(LINE_WORDS as u64),
            atomicity,
            network,
            cards: (0..network.servers).map(|_| AtomicU64::new(0)).collect(),
            turns: OnceLock::new(),
            clients: AtomicUsize::new(0),
            ended: Default::default(),
            seed,
        })
    }

    /// The next `clients` contexts are clients that take turns, in the order in which they are given out: each runs in
    /// a thread of its own, the first access of each waits until all have begun or ended, and one ends when its
    /// context is dropped. Contexts before and after go without turns, while no client runs. Only the first call
    /// counts: it also sets what has been measured back to nothing.
    pub fn take_turns(&self, clients: usize, schedule: Schedule) {
        if self.turns.set(Turns::new(clients, schedule)).is_err() {
            return;
        }
        self.clients.store(0, Ordering::Relaxed);
        let ended = [&self.ended.0, &self.ended.1];
        self.cards.iter().chain(ended).for_each(|figure| figure.store(0, Ordering::Relaxed));
    }

    /// The longest virtual time of a client that has ended, in nanoseconds.
    pub fn ended_ns(&self) -> u64 {
        self.ended.0.load(Ordering::Relaxed)
    }

    /// Accesses over the network of all clients that have ended.
    pub fn ended_round_trips(&self) -> u64 {
        self.ended.1.load(Ordering::Relaxed)
    }

    /// Steps taken in turns.
    pub fn steps(&self) -> u64 {
        self.turns.get().map_or(0, Turns::steps)
    }
}

/// A number below `bound`, by xorshift.
fn below(random: &mut u64, bound: usize) -> usize {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *random;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(x ^ (x >> 31)) * bound as u128) >> 64) as usize
}

impl Backend for Remote {
    type Context<'a> = RemoteContext<'a>;

    fn context(&self) -> RemoteContext<'_> {
        let client = self.clients.fetch_add(1, Ordering::Relaxed);
        let turns = self.turns.get().filter(|turns| client < turns.clients());
        let random = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(client as u64);
        let counts = Transactions::default();
        RemoteContext {
            remote: self,
            turns,
            client,
            random,
            clock: 0,
            has_entered: false,
            round_trips: 0,
            counts,
        }
    }

    fn allocate(&self, objects: usize, words: usize, _: Regime) -> Result<Objects> {
        take(&self.fresh, objects, words, self.words())
    }

    fn most_words(&self, regime: Regime) -> Result<usize> {
        match (regime, self.atomicity) {
            (Regime::ElementWise, _) => Ok(MOST_WORDS),
            (Regime::Full, Atomicity::Line) => Ok(LINE_WORDS),
            (Regime::Full, Atomicity::Word) => Err(Error::NotAtomic { backend: "a remote memory" }),
        }
    }

    fn words(&self) -> u64 {
        (self.lines.len() * LINE_WORDS) as u64
    }
}

/// A client's access to a [`Remote`] memory.
#[derive(Debug)]
pub struct RemoteContext<'r> {
    remote: &'r Remote,
    turns: Option<&'r Turns>,
    client: usize,
    random: u64,
    /// Virtual time; ns.
    clock: u64,
    has_entered: bool,
    round_trips: u64,
    counts: Transactions,
}

impl RemoteContext<'_> {
    /// Virtual time that has passed for this client, in nanoseconds.
    pub fn clock_ns(&self) -> u64 {
        self.clock
    }

    /// Accesses that went over the network.
    pub fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// The next step is this client's.
    fn step(&mut self, time: u64, waits: bool) {
        if let Some(turns) = self.turns {
            if !self.has_entered {
                self.has_entered = true;
                turns.enter(self.client);
            }
            turns.step(self.client, time, waits);
        }
    }

    /// An access of `words` words at `at` reaches the server, is served there and returns. How long the service takes.
    fn travel(&mut self, at: u64, words: usize) -> u64 {
        let network = &self.remote.network;
        let card = &self.remote.cards[(at / SERVER_BLOCK_WORDS) as usize % network.servers];
        let arrives = self.clock.saturating_add(network.round_trip_ns / 2);
        let bytes_ns = (words as u64 * 8).saturating_mul(network.kilobyte_ns).div_ceil(1000);
        let service = network.request_ns.saturating_add(bytes_ns);
        // Nobody else writes it between the two where clients take turns; without turns time is only a count.
        let ends = arrives.max(card.load(Ordering::Relaxed)).saturating_add(service);
        card.store(ends, Ordering::Relaxed);
        self.clock = ends.saturating_add(network.round_trip_ns / 2);
        self.round_trips += 1;
        service
    }

    /// One access of one word.
    fn word<T>(&mut self, at: u64, access: impl FnOnce(&mut u64) -> T) -> T {
        self.step(self.clock, false);
        self.travel(at, 1);
        let mut line = self.remote.lines[at as usize / LINE_WORDS].lock();
        access(&mut line[at as usize % LINE_WORDS])
    }

    /// One access of `words` words: `visit` is called for each chunk, with the part of its line that is concerned and
    /// the number of the first word. The steps of all chunks but the first belong to it.
    fn chunks(&mut self, at: u64, words: usize, mut visit: impl FnMut(&mut [u64], usize)) {
        let size = if self.remote.atomicity == Atomicity::Line { LINE_WORDS } else { 1 };
        let (first, end) = (at as usize, at as usize + words);
        let mut starts: Vec<usize> = (first / size * size..end).step_by(size).collect();
        let count = starts.len();
        self.step(self.clock, false);
        let begins = self.clock;
        let service = self.travel(at, words);
        for done in 0..count {
            let chosen = done + below(&mut self.random, count - done);
            starts.swap(done, chosen);
            let (from, to) = (starts[done].max(first), (starts[done] + size).min(end));
            if done > 0 && self.turns.is_some() {
                self.step(begins.saturating_add(service / count as u64 * done as u64), false);
            } else if done > 0 && below(&mut self.random, 64) == 0 {
                std::thread::yield_now();
            }
            let mut line = self.remote.lines[from / LINE_WORDS].lock();
            let in_line = from % LINE_WORDS;
            visit(&mut line[in_line..in_line + to - from], from - first);
        }
    }

    /// The accesses that move an object: `(first word, words)` of each.
    fn accesses(words: usize, method: Method) -> impl Iterator<Item = (usize, usize)> {
        let size = if method == Method::Fragment { LINE_WORDS } else { words };
        (0..words).step_by(size.max(1)).map(move |from| (from, size.min(words - from)))
    }
}

impl Drop for RemoteContext<'_> {
    fn drop(&mut self) {
        self.remote.ended.0.fetch_max(self.clock, Ordering::Relaxed);
        self.remote.ended.1.fetch_add(self.round_trips, Ordering::Relaxed);
        if let Some(turns) = self.turns {
            turns.leave(self.client);
        }
    }
}

impl Context for RemoteContext<'_> {
    fn load(&mut self, at: u64) -> u64 {
        self.counts.loads += 1;
        self.word(at, |word| *word)
    }

    fn store(&mut self, at: u64, value: u64) {
        self.counts.stores += 1;
        self.word(at, |word| *word = value);
    }

    fn compare_and_swap(
        &mut self,
        at: u64,
        current: u64,
        new: u64,
    ) -> std::result::Result<(), u64> {
        self.counts.swaps += 1;
        self.word(at, |word| match *word {
            found if found == current => {
                *word = new;
                Ok(())
            }
            found => Err(found),
        })
    }

    fn get(&mut self, at: u64, copy: &mut [u64], _: Regime, method: Method) {
        self.counts.gets += copy.len().div_ceil(LINE_WORDS) as u64;
        for (from, words) in Self::accesses(copy.len(), method) {
            self.chunks(at + from as u64, words, |chunk, i| {
                copy[from + i..from + i + chunk.len()].copy_from_slice(chunk);
            });
        }
    }

    fn set(&mut self, at: u64, copy: &[u64], _: Regime, method: Method) {
        self.counts.sets += copy.len().div_ceil(LINE_WORDS) as u64;
        for (from, words) in Self::accesses(copy.len(), method) {
            self.chunks(at + from as u64, words, |chunk, i| {
                chunk.copy_from_slice(&copy[from + i..from + i + chunk.len()]);
            });
        }
    }

    fn pause(&mut self, tries: u32) {
        self.counts.waits += 1;
        // Virtual time passes, longer each time, so that others get ahead.
        let wait = (self.remote.network.round_trip_ns / 4).saturating_mul(1 << tries.min(4));
        let wait = wait.saturating_add(below(&mut self.random, 256) as u64);
        self.clock = self.clock.saturating_add(wait);
        match self.turns {
            Some(_) => self.step(self.clock, true),
            None => std::thread::yield_now(),
        }
    }

    fn transactions(&self) -> Transactions {
        self.counts
    }
}
