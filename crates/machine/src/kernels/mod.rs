//! The programs that Wu pre-stores in (chapter 3), as kernels: what they do to memory and
//! nothing else, on this machine or on a modelled one.
//!
//! * [`listing_2`](fn@listing_2), [`listing_3`](fn@listing_3) and [`listing_4`](fn@listing_4) are its
//!   microbenchmarks.
//! * [`Puts`] is a key-value store under YCSB A, with a hash table (CLHT) or a tree (Masstree) before its
//!   values; [`Stencil`] two loops of NAS MG; [`Tensor`] the operation of Eigen that TensorFlow trains
//!   with; [`Scratch`] and [`Ranks`] the loops of NAS FT and IS that should *not* be pre-stored;
//!   [`Inbox`] a message passed as X9 does.
//!
//! A kernel runs with or without its pre-store, and its [`Cost`]s say what that changed. Of work that is
//! no access there is none: on a modelled machine only memory takes time, so a gain there is what is
//! gained where memory is all that is waited for.

mod arrays;
mod inbox;
mod listings;
mod puts;

pub use arrays::{Loop, Ranks, Scratch, Stencil, Tensor};
pub use inbox::Inbox;
pub use listings::{Listing2, listing_2, listing_3, listing_4};
pub use puts::{Index, Puts};

use crate::model::NodeCounts;
use crate::test_bed::Bench;
use std::time::Duration;
use terrace_memory::Memory;

/// The operation on written lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prestore {
    /// Nothing: it leaves the caches when they need the room.
    Nothing,
    /// It is cleaned.
    Clean,
    /// It is demoted.
    Demote,
    /// It is written past the caches to begin with.
    Skip,
}

/// What a kernel cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Operations done by all threads.
    pub operations: u64,
    /// From the first to the last.
    pub time: Duration,
    /// What the node's devices counted meanwhile; `None` where they do not tell.
    pub counts: Option<NodeCounts>,
}

impl Cost {
    /// Operations a second.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.time.as_secs_f64()
    }

    /// Nanoseconds from one operation to the next, all threads together.
    pub fn ns(&self) -> f64 {
        1e9 / self.per_second()
    }

    /// How many times as fast as another it was.
    pub fn gain_over(&self, other: &Cost) -> f64 {
        self.per_second() / other.per_second()
    }

    /// Bytes written to the medium for each that left the caches; not a number where nobody counts.
    pub fn amplification(&self) -> f64 {
        self.counts.map_or(f64::NAN, |counts| counts.write_amplification())
    }
}

/// Runs workers, each a closure that does a step and says whether an operation ended with it: `warm`
/// operations of each first, then `each` of each that count.
fn measure<B: Bench, W: FnMut() -> bool + Send>(
    bench: &B,
    node: &str,
    workers: &mut [W],
    warm: u64,
    each: u64,
) -> Cost {
    let mut go = |operations: u64| {
        let mut steps: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let mut left = operations;
                move || {
                    left -= u64::from(worker());
                    left > 0
                }
            })
            .collect();
        bench.run(&mut steps)
    };
    if warm > 0 {
        go(warm);
    }
    let each = each.max(1);
    let before = bench.counts(node);
    let time = go(each);
    let counts = bench.counts(node).zip(before).map(|(after, before)| after - before);
    Cost { operations: each * workers.len() as u64, time, counts }
}

/// The largest part of a piece that is written in one step: what one step does to a device's buffers
/// is not interleaved with what other modelled threads do.
const PART: u64 = 256;

/// A piece of data being written, a part at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    at: u64,
    bytes: u64,
    done: u64,
}

impl Piece {
    fn new(at: u64, bytes: u64) -> Piece {
        Piece { at, bytes, done: 0 }
    }

    /// Writes a part; after the last, pre-stores all of it. Whether that was the last.
    ///
    /// # Safety
    /// The piece lies inside the memory and nobody else uses it.
    #[inline]
    unsafe fn step<M: Memory>(&mut self, memory: &M, prestore: Prestore) -> bool {
        let part = PART.min(self.bytes - self.done);
        let source = &[5; PART as usize][..part as usize];
        // SAFETY: inside of the piece.
        unsafe {
            match prestore {
                Prestore::Skip => memory.stream(self.at + self.done, source),
                _ => memory.write(self.at + self.done, source),
            }
            self.done += part;
            if self.done < self.bytes {
                return false;
            }
            match prestore {
                Prestore::Clean => memory.clean(self.at, self.bytes),
                Prestore::Demote => memory.demote(self.at, self.bytes),
                Prestore::Nothing | Prestore::Skip => {}
            }
        }
        true
    }
}

/// Reads every word, so that a borrow becomes an access where memory is real.
#[inline]
pub(crate) fn look_at(bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word));
    std::hint::black_box((sum, rest));
}
