//! A request for a line: where it is found, which caches share it, and which line it evicts.
//!
//! Private caches are inclusive of one another; the shared cache holds what they gave up (as on the
//! Xeons since Skylake) and loses what they take back. Between cores a line is owned by one, or
//! shared; a core that wrote it and must share it stays responsible for writing it back.
//! Requests change the caches at once, in the order in which they are simulated; only the time they
//! take is spread. Two threads that race for a line within one window therefore meet in the order
//! of the simulation.

use super::cache::{DIRTY, OWNED};
use super::directory::{DirectorySlot, Holders, cores_of};
use super::node::{Read, Write};
use super::state::ModelState;
use super::time::Ps;

impl ModelState {
    /// Brings a line into the private caches with these flags, of which `OWNED` is asked for and
    /// `DIRTY` given; returns when it is there.
    pub(super) fn fetch(&mut self, line: u64, at: Ps, flags: u32, why: Read) -> Ps {
        let me = self.threads[self.running].core;
        self.fetch_tags(me, line);
        let write = flags & OWNED != 0;
        if write && self.cores[me].first.touch(line, flags).is_some() {
            if let Some(second) = &mut self.cores[me].second {
                second.touch(line, OWNED);
            }
            return self.upgrade(line, at);
        }
        if let Some(second) = &mut self.cores[me].second
            && let Some(held) = second.touch(line, flags & OWNED)
        {
            self.threads[self.running].counts.second_level_hits += 1;
            let there = self.threads[self.running].arrival(line, at + self.costs.second_level);
            self.fill_first(me, line, held & OWNED | flags, at);
            let asks = write && held & OWNED == 0;
            return if asks { self.upgrade(line, there) } else { there };
        }
        self.fetch_tags_of_victim(me, line);
        let (there, got) = self.find(line, at, write, why);
        there + self.fill(me, line, got | flags, at)
    }

    /// Asks the computer that this runs on for what will be looked at: most of the time a miss costs is
    /// its waiting for these, one after the other.
    fn fetch_tags(&self, core: usize, line: u64) {
        if let Some(second) = &self.cores[core].second {
            second.fetch(line);
        }
        self.sockets.iter().for_each(|socket| socket.shared.fetch(line));
        if let Some(directory) = &self.directory {
            directory.fetch(line);
        }
    }

    /// The same for the line that the core will give up for this one.
    fn fetch_tags_of_victim(&self, core: usize, line: u64) {
        let caches = &self.cores[core];
        let last = caches.second.as_ref().unwrap_or(&caches.first);
        if let Some(victim) = last.likely_victim(line) {
            self.sockets[self.socket_of(core)].shared.fetch(victim);
            if let Some(directory) = &self.directory {
                directory.fetch(victim);
            }
        }
    }

    /// Brings a line into the second private cache, if the core has it nowhere and has such a cache;
    /// returns when it is there.
    pub(super) fn fetch_ahead(&mut self, line: u64, at: Ps) -> Option<Ps> {
        let me = self.threads[self.running].core;
        self.fetch_tags(me, line);
        if self.cores[me].second.as_ref()?.peek(line).is_some() {
            return None;
        }
        self.fetch_tags_of_victim(me, line);
        let (there, flags) = self.find(line, at, false, Read::Prefetch);
        Some(there + self.fill_second(me, line, flags, at))
    }

    /// Finds a line that the core has not: in another core, in a shared cache or in memory. Returns
    /// when it is there and its flags.
    fn find(&mut self, line: u64, at: Ps, write: bool, why: Read) -> (Ps, u32) {
        let me = self.threads[self.running].core;
        let (holders, place) = self.look_up(line);
        let others = holders.others(me);
        let node = self.node_of(line).0;
        let directory = self.nodes[node].directory;
        let (there, mut flags) = if others != 0 {
            self.threads[self.running].counts.from_cores += 1;
            (at + self.answer_time(others), self.ask_cores(line, others, write))
        } else {
            self.find_below(line, at, why)
        };
        // Where the memory keeps the directory, the right to write must be asked for there.
        let owned = write || others == 0 && directory == 0;
        if owned {
            flags |= OWNED;
        }
        let cores = if write { 0 } else { others } | 1 << me;
        self.note(line, place, Holders { cores, owned });
        (there + if write { directory } else { 0 }, flags)
    }

    /// Asks the right to write a line that is held; returns when it is given.
    fn upgrade(&mut self, line: u64, at: Ps) -> Ps {
        let me = self.threads[self.running].core;
        let (holders, place) = self.look_up(line);
        let others = holders.others(me);
        let mut there = at + self.nodes[self.node_of(line).0].directory;
        if others != 0 {
            there += self.answer_time(others);
            self.ask_cores(line, others, true);
        }
        for socket in &mut self.sockets {
            socket.shared.remove(line);
        }
        self.note(line, place, Holders { cores: 1 << me, owned: true });
        there
    }

    /// How long the answer of other cores takes: of the farthest.
    fn answer_time(&self, cores: u128) -> Ps {
        let mine = self.threads[self.running].socket;
        let farthest = cores_of(cores).map(|core| self.links.latency(mine, self.socket_of(core)));
        self.costs.core_to_core + farthest.max().unwrap_or(0)
    }

    fn socket_of(&self, core: usize) -> usize {
        core / self.costs.cores_per_socket
    }

    /// Takes a line from other cores to write it, or their right to write it; returns whether what
    /// was taken is dirty, as flags.
    fn ask_cores(&mut self, line: u64, cores: u128, write: bool) -> u32 {
        let mut dirty = 0;
        for core in cores_of(cores) {
            if write {
                dirty |= self.take_from(core, line).unwrap_or(0) & DIRTY;
            } else {
                self.cores[core].first.clear(line, OWNED);
                if let Some(second) = &mut self.cores[core].second {
                    second.clear(line, OWNED);
                }
            }
        }
        dirty
    }

    /// The line from the shared caches, the nearest first, or from memory.
    fn find_below(&mut self, line: u64, at: Ps, why: Read) -> (Ps, u32) {
        let mine = self.threads[self.running].socket;
        for far in 0..self.sockets.len() {
            let socket = (mine + far) % self.sockets.len();
            if let Some(flags) = self.sockets[socket].shared.remove(line) {
                let counts = &mut self.threads[self.running].counts;
                *if far == 0 { &mut counts.shared_hits } else { &mut counts.from_cores } += 1;
                let there = self.links.carry(socket, mine, at + self.costs.shared);
                return (there, flags & DIRTY);
            }
        }
        self.threads[self.running].counts.misses += 1;
        let (node, local) = self.node_of(line);
        let there = self.nodes[node].read(local, at, why, mine);
        (self.links.carry(self.nodes[node].socket, mine, there), 0)
    }

    /// The holders of a line, and their entry in the directory.
    fn look_up(&self, line: u64) -> (Holders, Option<DirectorySlot>) {
        match &self.directory {
            Some(directory) => {
                let (holders, place) = directory.find(line);
                (holders, Some(place))
            }
            None => (Holders::default(), None),
        }
    }

    /// Notes who has a line; whoever loses one for it gives it up.
    fn note(&mut self, line: u64, place: Option<DirectorySlot>, holders: Holders) {
        let (Some(directory), Some(place)) = (&mut self.directory, place) else {
            return;
        };
        if let Some((old, holders)) = directory.set(line, place, holders) {
            let at = self.threads[self.running].clock;
            for core in cores_of(holders.cores) {
                if let Some(flags) = self.take_from(core, old) {
                    self.hand_down(core, old, flags, at);
                }
            }
        }
    }

    /// The core has a line no more.
    pub(super) fn left(&mut self, core: usize, line: u64) {
        if let Some(directory) = &mut self.directory {
            let (mut holders, place) = directory.find(line);
            holders.cores = holders.others(core);
            directory.set(line, place, holders);
        }
    }

    /// Takes a line out of a core's caches; returns its flags.
    pub(super) fn take_from(&mut self, core: usize, line: u64) -> Option<u32> {
        let caches = &mut self.cores[core];
        let first = caches.first.remove(line);
        let second = caches.second.as_mut().and_then(|second| second.remove(line));
        (first.is_some() || second.is_some()).then(|| first.unwrap_or(0) | second.unwrap_or(0))
    }

    /// Puts a line into the private caches; returns how long what must leave for it makes it wait.
    fn fill(&mut self, core: usize, line: u64, flags: u32, at: Ps) -> Ps {
        self.fill_second(core, line, flags, at) + self.fill_first(core, line, flags, at)
    }

    fn fill_second(&mut self, core: usize, line: u64, flags: u32, at: Ps) -> Ps {
        let Some(second) = &mut self.cores[core].second else {
            return 0;
        };
        let Some(victim) = second.insert(line, flags) else {
            return 0;
        };
        let first = self.cores[core].first.remove(victim.line).unwrap_or(0);
        self.left(core, victim.line);
        self.hand_down(core, victim.line, victim.flags | first, at)
    }

    fn fill_first(&mut self, core: usize, line: u64, flags: u32, at: Ps) -> Ps {
        let caches = &mut self.cores[core];
        let Some(victim) = caches.first.insert(line, flags) else {
            return 0;
        };
        if let Some(second) = &mut caches.second {
            if victim.is_dirty() {
                second.touch(victim.line, DIRTY);
            }
            return 0;
        }
        self.left(core, victim.line);
        self.hand_down(core, victim.line, victim.flags, at)
    }

    /// Puts a line that a core gave up into the shared cache; returns how long the line that leaves for
    /// it makes it wait.
    pub(super) fn hand_down(&mut self, core: usize, line: u64, flags: u32, at: Ps) -> Ps {
        let socket = self.socket_of(core);
        match self.sockets[socket].insert(core, line, flags & DIRTY) {
            Some(victim) if victim.is_dirty() => self.evict(socket, victim.line, at),
            _ => 0,
        }
    }

    /// Sends a dirty line that was given up to its memory through the socket's queue, of which an
    /// entry is taken until the memory accepts it; returns how long the queue was full. What is in
    /// the queue never waits for more than a full queue.
    fn evict(&mut self, socket: usize, line: u64, at: Ps) -> Ps {
        let accepted = self.send_to_memory(line, at, Write::Evict);
        let most = self.nodes[self.node_of(line).0].time_of(self.costs.write_back_queue);
        let begin = self.sockets[socket].write_backs.reserve(at, (accepted - at).min(most));
        self.threads[self.running].counts.eviction_wait_ps += begin - at;
        begin - at
    }

    /// Cleans a line wherever it is, and takes it out if this processor's write-backs do; returns
    /// whether it was dirty.
    pub(super) fn clean(&mut self, line: u64) -> bool {
        if self.costs.write_back == super::preset::WriteBack::Invalidates {
            return self.forget(line) & DIRTY != 0;
        }
        let mut flags = 0;
        for core in cores_of(self.holders(line)) {
            let caches = &mut self.cores[core];
            flags |= caches.first.clear(line, DIRTY).unwrap_or(0);
            if let Some(second) = &mut caches.second {
                flags |= second.clear(line, DIRTY).unwrap_or(0);
            }
        }
        for socket in &mut self.sockets {
            flags |= socket.shared.clear(line, DIRTY).unwrap_or(0);
        }
        flags & DIRTY != 0
    }

    /// Takes a line out of every cache; returns its flags.
    pub(super) fn forget(&mut self, line: u64) -> u32 {
        let mut flags = 0;
        for core in cores_of(self.holders(line)) {
            flags |= self.take_from(core, line).unwrap_or(0);
        }
        for socket in &mut self.sockets {
            flags |= socket.shared.remove(line).unwrap_or(0);
        }
        if let Some(directory) = &mut self.directory {
            let place = directory.find(line).1;
            directory.set(line, place, Holders::default());
        }
        flags
    }

    /// The cores that may have a line.
    fn holders(&self, line: u64) -> u128 {
        match &self.directory {
            Some(directory) => directory.find(line).0.cores,
            None => 1 << self.threads[self.running].core,
        }
    }

    /// Empties all caches, dirty lines in the order of their addresses to their memories; all threads
    /// wait until they are accepted.
    pub(super) fn clear_caches(&mut self) {
        let first = self.cores.iter_mut().map(|core| core.first.drain());
        let mut held: Vec<_> = first.flatten().collect();
        held.extend(
            self.cores.iter_mut().filter_map(|core| core.second.as_mut()).flat_map(|c| c.drain()),
        );
        held.extend(self.sockets.iter_mut().flat_map(|socket| socket.shared.drain()));
        held.retain(|victim| victim.is_dirty());
        held.sort_unstable_by_key(|victim| victim.line);
        held.dedup_by_key(|victim| victim.line);
        if let Some(directory) = &mut self.directory {
            directory.clear();
        }
        let mut at = self.threads.iter().map(|thread| thread.clock).max().unwrap_or(0);
        for victim in held {
            at = at.max(self.send_to_memory(victim.line, at, Write::Evict));
        }
        self.threads.iter_mut().for_each(|thread| thread.clock = at);
    }
}
