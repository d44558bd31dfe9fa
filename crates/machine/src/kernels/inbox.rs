//! Messages through an inbox of slots, as X9 passes them (Wu, 3.7.3.2).
//!
//! The writer fills a message in place, in the next slot of a ring, and then takes the slot's head by
//! compare-exchange and marks it as sent. The reader looks at the head until it is, reads the message and
//! gives the slot back. One message is under way at a time: what is measured is latency.

use super::{Cost, Piece, Prestore, look_at, measure};
use crate::test_bed::{Bench, TestBed};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_memory::{Domain, Memory};

/// An inbox and its messages.
#[derive(Clone, Copy, Debug)]
pub struct Inbox<'a> {
    /// The memory of the slots.
    pub node: &'a str,
    /// Bytes of a message.
    pub message_bytes: u64,
    /// Slots of the ring.
    pub slots: u64,
    /// The operation on a message before it is sent.
    pub prestore: Prestore,
    /// Messages that count.
    pub messages: u64,
}

/// The words of a slot's head: its owner.
const FREE: u64 = 0;
const TAKEN: u64 = 1;
const SENT: u64 = 2;
/// A head has lines of its own, the processors' largest.
const HEAD_BYTES: u64 = 128;

impl Inbox<'_> {
    /// Sends and receives; an operation is a message, and its time that from the first byte of the
    /// message to the last that is read.
    ///
    /// # Errors
    /// The machine has not two threads, or no such node, or refuses the memory.
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Cost> {
        let bench = test_bed.bench(2)?;
        let slot = HEAD_BYTES + self.message_bytes.next_multiple_of(HEAD_BYTES);
        let bytes = (2 * slot * self.slots).next_multiple_of(1 << 20);
        let memory = bench.memory(self.node, bytes, Domain::None)?;
        let ring = Ring { inbox: self, memory: &memory, slot };
        // SAFETY: heads lie inside; nobody else is there yet.
        (0..self.slots).for_each(|number| unsafe { memory.store(ring.head(number), FREE) });
        let (begun, latency) = (AtomicU64::new(0), AtomicU64::new(0));
        // A modelled thread may be behind the sender in virtual time: it does not see its own future.
        let (sent_at, received_at) = (AtomicU64::new(0), AtomicU64::new(0));
        let (ring, bench_of) = (&ring, &bench);
        let mut sent = 0;
        let mut piece = Piece::default();
        let mut write = || {
            if piece.done == piece.bytes {
                // Until the last one was received and its slot given back.
                let is_received = sent == 0 || ring.is(FREE, sent - 1);
                if !is_received || bench_of.now_ps() < received_at.load(Relaxed) {
                    return false;
                }
                begun.store(bench_of.now_ps(), Relaxed);
                piece = Piece::new(ring.message(sent), self.message_bytes);
            }
            // SAFETY: messages being filled are the writer's alone.
            if !unsafe { piece.step(ring.memory, self.prestore) } || !ring.send(sent) {
                return false;
            }
            sent_at.store(bench_of.now_ps(), Relaxed);
            sent += 1;
            true
        };
        let mut received = 0;
        let mut read = || {
            if !ring.is(SENT, received) || bench_of.now_ps() < sent_at.load(Relaxed) {
                return false;
            }
            ring.read(received);
            let took = bench_of.now_ps().saturating_sub(begun.load(Relaxed));
            latency.fetch_add(took, Relaxed);
            ring.give_back(received);
            received_at.store(bench_of.now_ps(), Relaxed);
            received += 1;
            true
        };
        let mut workers: [&mut (dyn FnMut() -> bool + Send); 2] = [&mut write, &mut read];
        measure(&bench, self.node, &mut workers, 0, 2 * self.slots);
        latency.store(0, Relaxed);
        let cost = measure(&bench, self.node, &mut workers, 0, self.messages);
        Ok(Cost {
            operations: self.messages,
            time: std::time::Duration::from_nanos(latency.load(Relaxed) / 1000),
            ..cost
        })
    }
}

/// The messages being filled, and the slots behind them.
struct Ring<'a, M> {
    inbox: Inbox<'a>,
    memory: &'a M,
    slot: u64,
}

impl<M: Memory> Ring<'_, M> {
    fn message(&self, number: u64) -> u64 {
        number % self.inbox.slots * self.slot
    }

    fn head(&self, number: u64) -> u64 {
        (self.inbox.slots + number % self.inbox.slots) * self.slot
    }

    /// Whether the slot is in this state.
    fn is(&self, state: u64, number: u64) -> bool {
        // SAFETY: heads are only ever accessed as words.
        unsafe { self.memory.load(self.head(number)) == state }
    }

    /// Takes the slot, copies the message into it and marks it as sent. `false` if the slot is not free
    /// yet.
    fn send(&self, number: u64) -> bool {
        let (message, head) = (self.message(number), self.head(number));
        // SAFETY: heads are only ever accessed as words; whoever has taken a slot has its body alone,
        // and messages being filled are the writer's.
        unsafe {
            // A look first: a compare-exchange that fails takes the line from the reader for nothing.
            if !self.is(FREE, number) || self.memory.compare_exchange(head, FREE, TAKEN).is_err() {
                return false;
            }
            let bytes = self.memory.bytes(message, self.inbox.message_bytes);
            self.memory.write(head + HEAD_BYTES, bytes);
            self.memory.store(head, SENT);
        }
        self.memory.fence();
        true
    }

    /// Reads the message of a slot that was sent.
    fn read(&self, number: u64) {
        let at = self.head(number) + HEAD_BYTES;
        // SAFETY: the slot is the reader's until it gives it back.
        look_at(unsafe { self.memory.bytes(at, self.inbox.message_bytes) });
    }

    fn give_back(&self, number: u64) {
        // SAFETY: heads are only ever accessed as words.
        unsafe { self.memory.store(self.head(number), FREE) };
        self.memory.fence();
    }
}
