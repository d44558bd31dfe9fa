//! A key-value store under YCSB A, half puts and half gets.
//!
//! A put crafts the value in a place of its thread's, which was that of a value replaced a while ago, and
//! then switches the key's entry to it: values are written whole, anywhere, and an atomic operation
//! follows (Wu, 3.7.2.3). Index and values lie in one memory. Keys are chosen alike.

use super::{Cost, Piece, Prestore, measure};
use crate::random::Rng;
use crate::test_bed::{Bench, TestBed};
use std::collections::VecDeque;
use std::io;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::{Domain, Memory, lab};

/// What leads to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// Buckets of a line with a lock each, as CLHT's.
    Hash,
    /// A tree whose readers check the version of a node before and after, like Masstree.
    Ordered {
        /// Whether fences keep these looks in order: where the processor does not by itself.
        fences: bool,
    },
}

/// The store and its load.
#[derive(Clone, Copy, Debug)]
pub struct Puts<'a> {
    /// The memory of all of it.
    pub node: &'a str,
    /// What leads to the values.
    pub index: Index,
    /// How many keys there are.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// How many put and get.
    pub threads: usize,
    /// What a put does to the value before it is published.
    pub prestore: Prestore,
    /// Operations of all threads that count.
    pub operations: u64,
}

/// Keys of a bucket.
const IN_BUCKET: u64 = 2;
/// Bytes of a tree's node, and its children.
const NODE_BYTES: u64 = 256;
const CHILDREN: u64 = 16;
/// Free places of a thread: after this many puts it writes the same place again.
const FREE: u64 = 512;

impl Puts<'_> {
    /// Runs it; an operation is a put or a get.
    ///
    /// # Errors
    /// The machine has fewer threads, or no such node, or refuses the memory.
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Cost> {
        let bench = test_bed.bench(self.threads)?;
        let places = self.keys + FREE * self.threads as u64;
        let values = self.index_bytes().next_multiple_of(4096);
        let bytes = (values + places * self.value_bytes).next_multiple_of(1 << 20);
        let memory = bench.memory(self.node, bytes, Domain::Eadr)?;
        let store = Store { puts: self, memory: &memory, values };
        (0..self.keys).for_each(|key| store.fill(key));
        let mut workers: Vec<_> = (0..self.threads as u64)
            .map(|thread| {
                let first = self.keys + thread * FREE;
                let mut free: VecDeque<u64> = (first..first + FREE).collect();
                let (mut rng, mut piece, mut mine) = (Rng::new(7 + thread), Piece::default(), 0);
                let (store, mut copy) = (&store, vec![0; self.value_bytes as usize]);
                move || {
                    if piece.done == piece.bytes {
                        if rng.below(2) == 0 {
                            store.get(rng.below(self.keys), &mut copy);
                            return true;
                        }
                        mine = free.pop_front().expect("every put gives one back");
                        piece = Piece::new(store.place(mine), self.value_bytes);
                    }
                    // SAFETY: the place is the thread's own until it is put.
                    if !unsafe { piece.step(store.memory, self.prestore) } {
                        return false;
                    }
                    if self.prestore == Prestore::Skip {
                        // A fence: streamed values must be complete before the entry is switched.
                        store.memory.fence();
                    }
                    free.push_back(store.put(rng.below(self.keys), mine));
                    true
                }
            })
            .collect();
        let each = self.operations / self.threads as u64;
        // Until the caches are full of written values.
        let written = self.value_bytes.max(LINE) / 2;
        let warm = (test_bed.cache_bytes() * 5 / 4).div_ceil(written) / self.threads as u64;
        Ok(measure(&bench, self.node, &mut workers, warm, each))
    }

    fn index_bytes(&self) -> u64 {
        match self.index {
            Index::Hash => self.keys.div_ceil(IN_BUCKET) * LINE,
            Index::Ordered { .. } => {
                (0..self.levels()).map(|level| self.nodes(level) * NODE_BYTES).sum()
            }
        }
    }

    /// Levels of the tree; that of the leaves is 0.
    fn levels(&self) -> u32 {
        (0..).find(|level| self.nodes(*level) == 1).expect("a root") + 1
    }

    fn nodes(&self, level: u32) -> u64 {
        self.keys.div_ceil(CHILDREN.pow(level + 1))
    }
}

/// The store in its memory: the index, and the values behind it.
struct Store<'a, M> {
    puts: Puts<'a>,
    memory: &'a M,
    values: u64,
}

impl<M: Memory> Store<'_, M> {
    fn place(&self, number: u64) -> u64 {
        self.values + number * self.puts.value_bytes
    }

    /// Lets an entry name the place of its key's number.
    fn fill(&self, key: u64) {
        // SAFETY: the entry lies inside the index; nobody else is there yet.
        unsafe { self.memory.store(self.entry(key), key) };
    }

    /// Where the word is that names a key's place.
    fn entry(&self, key: u64) -> u64 {
        match self.puts.index {
            Index::Hash => {
                let (bucket, slot) = self.bucket(key);
                bucket + 8 * (4 + slot)
            }
            Index::Ordered { .. } => {
                let leaf = self.node(0, key);
                leaf + NODE_BYTES / 2 + 8 * (key % CHILDREN)
            }
        }
    }

    fn bucket(&self, key: u64) -> (u64, u64) {
        let buckets = self.puts.keys.div_ceil(IN_BUCKET);
        (key % buckets * LINE, key / buckets)
    }

    /// A node on the way to a key; leaves are laid out first.
    fn node(&self, level: u32, key: u64) -> u64 {
        let below: u64 = (0..level).map(|level| self.puts.nodes(level)).sum();
        (below + key / CHILDREN.pow(level + 1)) * NODE_BYTES
    }

    /// Copies a value out; it may be one that is being replaced.
    fn get(&self, key: u64, copy: &mut [u8]) {
        self.find(key);
        // SAFETY: the entry and the place it names lie inside, and `copy` is as long as a value.
        unsafe {
            let place = self.place(self.memory.load(self.entry(key)));
            self.memory.copy_changing(place, copy.as_mut_ptr(), copy.len());
        }
        std::hint::black_box(copy);
    }

    /// Switches a key to a value that was crafted; returns the place it had.
    fn put(&self, key: u64, place: u64) -> u64 {
        self.find(key);
        let lock = match self.puts.index {
            Index::Hash => self.bucket(key).0,
            Index::Ordered { .. } => self.node(0, key),
        };
        let entry = self.entry(key);
        // SAFETY: both words lie inside the index, and are only ever accessed as words.
        unsafe {
            while self.memory.compare_exchange(lock, 0, 1).is_err() {
                lab::pause(self.memory);
            }
            let old = self.memory.load(entry);
            self.memory.store(entry, place);
            self.memory.store(lock, 0);
            old
        }
    }

    /// Goes down a tree to its leaf.
    fn find(&self, key: u64) {
        let Index::Ordered { fences } = self.puts.index else {
            return;
        };
        for level in (0..self.puts.levels()).rev() {
            let node = self.node(level, key);
            let key_at = node + LINE + 8 * (key % 8);
            let child_at = node + NODE_BYTES / 2 + 8 * (key / CHILDREN.pow(level) % CHILDREN);
            // SAFETY: words of a node inside the index.
            unsafe {
                self.memory.load(node);
                if fences {
                    self.memory.fence();
                }
                self.memory.load(key_at);
                self.memory.load(child_at);
                if fences {
                    self.memory.fence();
                }
                self.memory.load(node);
            }
        }
    }
}
