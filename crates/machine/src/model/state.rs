//! What a machine is made of, and what one access does to it.
//!
//! Every method acts for the logical thread that runs (`running`) and moves its clock. Lines are
//! numbered machine-wide: the node in the upper bits, the offset within it below.

use super::cache::{Cache, DIRTY, OWNED, Replacement, Victim};
use super::calendar::Calendar;
use super::directory::Directory;
use super::link::Links;
use super::node::{Node, Read, Write};
use super::preset::{CacheLevel, Policy, Preset, Stores, WriteBack};
use super::thread::Thread;
use super::time::{Ps, from_ns};

/// Everything that is measured in time and the same for all cores.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    pub cycle: Ps,
    pub fence: Ps,
    pub exchange: Ps,
    pub first_level: Ps,
    pub second_level: Ps,
    pub shared: Ps,
    pub core_to_core: Ps,
    pub stores: Stores,
    pub store_buffer: usize,
    pub store_bytes: u64,
    pub write_back: WriteBack,
    pub write_back_queue: u64,
    pub prefetch_lines: u64,
    pub cores_per_socket: usize,
}

/// A core's own caches.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub first: Cache,
    pub second: Option<Cache>,
}

/// A socket's own: the shared cache and the queue of lines on their way to memory.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub shared: Cache,
    pub write_backs: Calendar,
    /// The core that filled the shared cache last, and how many lines it has filled since another core did.
    filler: (usize, u64),
    /// How many of 100 lines given up are any: while one core fills, and while several do.
    random: (u8, u8),
}

/// Lines after which a core fills the shared cache alone.
const ALONE_LINES: u64 = 4096;

impl Socket {
    /// Puts in a line that a core gave up; returns the one given up for it.
    pub fn insert(&mut self, core: usize, line: u64, flags: u32) -> Option<Victim> {
        let (last, lines) = self.filler;
        self.filler = (core, if last == core { lines + 1 } else { 0 });
        let alone = self.filler.1 >= ALONE_LINES;
        self.shared.mix(if alone { self.random.0 } else { self.random.1 });
        // It may be there: what several cores share, and one of them wrote, is given up twice.
        if self.shared.touch(line, flags).is_some() {
            None
        } else {
            self.shared.insert(line, flags)
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ModelState {
    pub costs: Costs,
    pub line_shift: u32,
    /// Bits of an offset within a node, bytes.
    pub node_shift: u32,
    pub threads: Vec<Thread>,
    pub cores: Vec<Core>,
    pub sockets: Vec<Socket>,
    /// None where one core is used: it owns what it has.
    pub directory: Option<Directory>,
    pub nodes: Vec<Node>,
    pub links: Links,
    /// The logical thread that runs.
    pub running: usize,
    /// Past this time the running thread lets another run.
    pub limit: Ps,
}

/// Bits of a line's number: as many as every cache has place for.
fn line_bits(preset: &Preset) -> u32 {
    let lines = |level: &CacheLevel| level.bytes / preset.processor.line_bytes;
    let bits = |level: &CacheLevel| Cache::line_bits(lines(level), level.ways);
    preset.cache.iter().map(bits).min().expect("a preset has caches")
}

fn cache(level: &CacheLevel, line_bytes: u64, seed: u64) -> Cache {
    let replacement = match level.replacement {
        Policy::Lru => Replacement::Lru,
        Policy::TreePlru => Replacement::TreePlru,
        Policy::Random => Replacement::Random,
        Policy::Mixed => Replacement::Mixed(level.random_percent),
    };
    Cache::new(level.bytes / line_bytes, level.ways, replacement, seed)
}

impl ModelState {
    /// The machine with a logical thread on each of `cores`; cores are numbered socket by socket.
    pub fn new(preset: &Preset, cores: &[usize], seed: u64) -> Self {
        let processor = &preset.processor;
        let line_bytes = processor.line_bytes;
        let (private, shared) = preset.cache.split_at(preset.cache.len() - 1);
        let used = cores.iter().max().map_or(1, |core| core + 1);
        let seed = |what: u64, which: usize| crate::random::mix(seed ^ (what << 32) ^ which as u64);
        let core = |which: usize| Core {
            first: cache(&private[0], line_bytes, seed(1, which)),
            second: private.get(1).map(|level| cache(level, line_bytes, seed(2, which))),
        };
        let write_back = preset.node.iter().map(|node| from_ns(node.write_back_ns)).max();
        let socket = |which: usize| Socket {
            shared: cache(&shared[0], line_bytes, seed(3, which)),
            write_backs: Calendar::new(
                processor.write_back_queue,
                write_back.unwrap_or(1),
                !preset.without.queueing,
            ),
            filler: (0, ALONE_LINES),
            random: (shared[0].random_percent, shared[0].random_percent_shared),
        };
        let (line_shift, line_bits) = (line_bytes.trailing_zeros(), line_bits(preset));
        let node_bits = preset.node.len().next_power_of_two().trailing_zeros();
        let private_lines = private.iter().map(|level| level.bytes / line_bytes).max();
        let thread = |core: &usize| {
            let socket = core / processor.cores_per_socket;
            Thread::new(*core, socket, processor.line_fill_buffers, processor.store_buffer)
        };
        let notes = preset.link.as_ref().is_some_and(|link| link.notes_in_memory);
        let nodes =
            preset.node.iter().map(|node| Node::new(node, line_bytes, notes, preset.without));
        ModelState {
            costs: costs(preset),
            line_shift,
            node_shift: line_bits + line_shift - node_bits,
            threads: cores.iter().map(thread).collect(),
            cores: (0..used).map(core).collect(),
            sockets: (0..processor.sockets).map(socket).collect(),
            directory: (used > 1).then(|| {
                Directory::new(private_lines.unwrap_or(1) * used as u64, line_bits, seed(4, 0))
            }),
            nodes: nodes.collect(),
            links: Links::new(preset.link.as_ref(), processor.sockets, line_bytes, preset.without),
            running: 0,
            limit: Ps::MAX,
        }
    }

    /// The node of a line and the line's number there.
    pub fn node_of(&self, line: u64) -> (usize, u64) {
        let bits = self.node_shift - self.line_shift;
        ((line >> bits) as usize, line & ((1 << bits) - 1))
    }

    pub fn thread(&mut self) -> &mut Thread {
        &mut self.threads[self.running]
    }

    /// A load whose result is waited for.
    #[inline]
    pub fn load(&mut self, line: u64) {
        let thread = &mut self.threads[self.running];
        thread.counts.accesses += 1;
        if self.cores[thread.core].first.touch(line, 0).is_some() {
            thread.counts.first_level_hits += 1;
            let done = thread.load_arrival(line, thread.clock + self.costs.first_level);
            let waited = done - thread.clock - self.costs.first_level;
            thread.counts.memory_wait_ps += waited;
            thread.clock = done;
            return;
        }
        let done = self.load_miss(line);
        let thread = self.thread();
        thread.counts.memory_wait_ps += done - thread.clock;
        thread.clock = done;
    }

    /// Loads of consecutive lines that overlap; all are waited for.
    pub fn load_lines(&mut self, lines: std::ops::Range<u64>) {
        if lines.end - lines.start == 1 {
            return self.load(lines.start);
        }
        let mut last = 0;
        for line in lines {
            let thread = &mut self.threads[self.running];
            thread.counts.accesses += 1;
            thread.clock += self.costs.cycle;
            let done = if self.cores[thread.core].first.touch(line, 0).is_some() {
                thread.counts.first_level_hits += 1;
                thread.load_arrival(line, thread.clock + self.costs.first_level)
            } else {
                self.load_miss(line)
            };
            last = last.max(done);
        }
        let thread = self.thread();
        thread.counts.memory_wait_ps += last.saturating_sub(thread.clock);
        thread.clock = thread.clock.max(last);
    }

    /// Asks for a line that the nearest cache does not have; returns when it is there. The clock moves
    /// only as far as a line fill buffer must be waited for.
    fn load_miss(&mut self, line: u64) -> Ps {
        let thread = &mut self.threads[self.running];
        if thread.private.contains(&line) {
            return thread.clock + self.costs.first_level;
        }
        let start = thread.arrival(line, thread.fill.free(thread.clock));
        thread.counts.buffer_wait_ps += start - thread.clock;
        let done = self.fetch(line, start, 0, Read::Demand);
        self.thread().fill.take(done);
        self.prefetch_after(line, start);
        done
    }

    /// The processor's prefetcher: fetches ahead of a sequence of misses, as far as the page goes and
    /// into the second cache.
    fn prefetch_after(&mut self, line: u64, at: Ps) {
        if self.costs.prefetch_lines == 0 {
            return;
        }
        let page_end = (line | ((4096 >> self.line_shift) - 1)) + 1;
        let ahead = self.costs.prefetch_lines;
        let lines = self.thread().lines_ahead(line, ahead);
        for next in lines.start..lines.end.min(page_end) {
            let thread = self.thread();
            let start = thread.ahead.free(at);
            if let Some(done) = self.fetch_ahead(next, start) {
                let thread = self.thread();
                thread.counts.prefetches += 1;
                thread.ahead.take(done);
                thread.send(next, done, false);
            }
        }
    }

    /// Asks for a line without waiting for it.
    pub fn prefetch(&mut self, line: u64, flags: u32) {
        let thread = &mut self.threads[self.running];
        thread.clock += self.costs.cycle;
        let held = self.cores[thread.core].first.touch(line, 0);
        if held.is_some_and(|held| held & flags == flags) {
            return;
        }
        thread.counts.prefetches += 1;
        let start = thread.fill.free(thread.clock);
        thread.counts.buffer_wait_ps += start - thread.clock;
        thread.clock = start;
        let done = self.fetch(line, start, flags, Read::Demand);
        let thread = self.thread();
        thread.fill.take(done);
        thread.send(line, done, false);
    }

    /// A store, into the store buffer.
    #[inline]
    pub fn store(&mut self, line: u64) {
        let thread = &mut self.threads[self.running];
        thread.counts.accesses += 1;
        thread.clock += self.costs.cycle;
        if self.cores[thread.core].first.write(line) {
            thread.counts.first_level_hits += 1;
            let done = thread.arrival(line, thread.clock);
            thread.drained = done.max(thread.drained + self.costs.cycle);
            return self.buffer_store();
        }
        match self.costs.stores {
            Stores::Eager => {
                self.own(line);
                self.buffer_store();
            }
            Stores::Lazy => self.keep_private(line),
        }
    }

    /// The cycles of stores to `lines` lines beyond the first of each, for so many bytes in all.
    pub fn store_more(&mut self, bytes: u64, lines: u64) {
        let more = bytes.div_ceil(self.costs.store_bytes).saturating_sub(lines);
        let cycles = more * self.costs.cycle;
        self.thread().clock += cycles;
    }

    /// Brings a line in to be written, in the background; the store buffer's order is kept.
    fn own(&mut self, line: u64) {
        let thread = self.thread();
        let start = thread.arrival(line, thread.fill.free(thread.clock));
        let done = self.fetch(line, start, OWNED | DIRTY, Read::Demand);
        let thread = self.thread();
        thread.fill.take(done);
        thread.send(line, done, true);
        thread.drained = thread.drained.max(done);
        self.prefetch_after(line, start);
    }

    fn buffer_store(&mut self) {
        let thread = &mut self.threads[self.running];
        let free = thread.stores.free(thread.clock);
        thread.counts.store_wait_ps += free - thread.clock;
        thread.clock = free;
        thread.stores.take(thread.drained);
    }

    fn keep_private(&mut self, line: u64) {
        let room = self.costs.store_buffer;
        let thread = self.thread();
        if thread.private.contains(&line) {
            return;
        }
        thread.private.push(line);
        if thread.private.len() > room {
            let oldest = thread.private.remove(0);
            self.own(oldest);
            self.buffer_store();
        }
    }

    /// Makes all private lines public, or the one line.
    fn publish(&mut self, only: Option<u64>) {
        if self.thread().private.is_empty() {
            return;
        }
        match only {
            Some(line) => {
                if let Some(place) = self.thread().private.iter().position(|kept| *kept == line) {
                    self.thread().private.remove(place);
                    self.own(line);
                }
            }
            None => {
                for place in 0..self.thread().private.len() {
                    let line = self.thread().private[place];
                    self.own(line);
                }
                self.thread().private.clear();
            }
        }
    }

    /// A compare-exchange: waits for earlier stores, then has the line for itself.
    pub fn exchange(&mut self, line: u64) {
        self.publish(None);
        let thread = self.thread();
        let before = thread.clock;
        thread.clock = thread.clock.max(thread.drained);
        thread.counts.fence_wait_ps += thread.clock - before;
        thread.counts.accesses += 1;
        let owned = self.cores[self.threads[self.running].core].first.write(line);
        let thread = self.thread();
        let ready = if owned {
            thread.counts.first_level_hits += 1;
            thread.arrival(line, thread.clock)
        } else {
            let start = thread.arrival(line, thread.fill.free(thread.clock));
            let done = self.fetch(line, start, OWNED | DIRTY, Read::Demand);
            self.thread().fill.take(done);
            done
        };
        let exchange = self.costs.exchange;
        let thread = self.thread();
        thread.counts.memory_wait_ps += ready - thread.clock;
        thread.clock = ready + exchange;
        thread.drained = thread.drained.max(thread.clock);
    }

    /// Waits for stores, write-backs and streams.
    pub fn fence(&mut self) {
        self.publish(None);
        let fence = self.costs.fence;
        let thread = self.thread();
        let done = thread.clock.max(thread.drained).max(thread.accepted);
        thread.counts.fences += 1;
        thread.counts.fence_wait_ps += done - thread.clock;
        thread.clock = done + fence;
        thread.streaming = None;
    }

    /// Starts the write-back of a line.
    pub fn write_back(&mut self, line: u64) {
        self.publish(Some(line));
        let cycle = self.costs.cycle;
        let thread = self.thread();
        thread.clock += cycle;
        if !self.clean(line) {
            return;
        }
        let thread = self.thread();
        let start = thread.fill.free(thread.clock).max(thread.drained);
        let accepted = self.send_to_memory(line, start, Write::Clean);
        let thread = self.thread();
        thread.fill.take(accepted);
        thread.drained = start;
        thread.accepted = thread.accepted.max(accepted);
        // Until it is accepted, nobody writes the line again or fetches it.
        thread.send(line, accepted, true);
        self.buffer_store();
    }

    /// Writes a line past the caches.
    pub fn stream(&mut self, line: u64) {
        let cycle = self.costs.cycle;
        let thread = self.thread();
        thread.clock += cycle;
        if thread.streaming.replace(line) == Some(line) {
            return;
        }
        self.forget(line);
        let thread = self.thread();
        let start = thread.fill.free(thread.clock);
        thread.counts.buffer_wait_ps += start - thread.clock;
        thread.clock = start;
        let accepted = self.send_to_memory(line, start, Write::Stream);
        let thread = self.thread();
        thread.fill.take(accepted);
        thread.accepted = thread.accepted.max(accepted);
    }

    /// Moves a line towards the shared cache; a store that was kept private begins.
    pub fn demote(&mut self, line: u64) {
        let cycle = self.costs.cycle;
        self.thread().clock += cycle;
        if self.costs.stores == Stores::Lazy {
            return self.publish(Some(line));
        }
        let (at, core) = (self.thread().clock, self.threads[self.running].core);
        if let Some(flags) = self.take_from(core, line) {
            self.left(core, line);
            self.hand_down(core, line, flags, at);
        }
    }

    /// Sends a line to its memory; returns when it is accepted.
    pub fn send_to_memory(&mut self, line: u64, at: Ps, why: Write) -> Ps {
        let (node, local) = self.node_of(line);
        let home = self.nodes[node].socket;
        let there = self.links.carry(self.threads[self.running].socket, home, at);
        self.nodes[node].write(local, there, why)
    }
}

fn costs(preset: &Preset) -> Costs {
    let processor = &preset.processor;
    let cycle = 1e6 / f64::from(processor.clock_mhz);
    let cycles = |count: u64| (cycle * count as f64).round() as Ps;
    let levels = &preset.cache;
    let latency = |level: usize| from_ns(levels[level].latency_ns);
    Costs {
        cycle: cycles(1),
        fence: cycles(processor.fence_cycles),
        exchange: cycles(processor.exchange_cycles),
        first_level: latency(0),
        second_level: latency(levels.len() - 2),
        shared: latency(levels.len() - 1),
        core_to_core: from_ns(processor.core_to_core_ns),
        stores: processor.stores,
        store_buffer: processor.store_buffer,
        store_bytes: processor.store_bytes,
        write_back: processor.write_back,
        write_back_queue: processor.write_back_queue,
        prefetch_lines: if preset.without.prefetching { 0 } else { processor.prefetch_lines },
        cores_per_socket: processor.cores_per_socket,
    }
}
