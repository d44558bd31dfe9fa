//! Sections over the words of two memories: what makes `persist = "full"` (Wu, section 2.4).
//!
//! A map's index and its allocation metadata lie in one memory, its values in another, and each has a layout of its
//! own, which no [`Pool`](super::Pool) could give them. What they need of one is its redo log: an
//! operation lists the words it changes, wherever they are ([`Changes`]), and they are there after a
//! crash together or not at all.
//!
//! ```text
//! commit  LOCK | new words into the log | write back | FENCE | publish | apply | write back | FENCE
//! open    if the log holds a whole record: apply | write back | FENCE; then it is void
//! ```
//! # What is durable when
//! * An operation is durable, as a whole, from the first fence on. Its words are stored only then, so
//!   that whoever reads one of them reads what survives.
//! * The log is written over only when the words it holds are durable in their places.
//! * What is stored outside of sections, such as an item's bytes or an overflow line, is made durable
//!   before the commit and cannot be reached without it.
//! * Replaying the last record puts words back as they were when it was written. That is harmless as long as
//!   its words are changed by sections alone, since each replaces the record before; whoever changes
//!   them otherwise makes the log void first ([`Joint::make_void`]).
//!
//! One section commits at a time, under a lock that is innermost of all. The paper's transactions hold
//! such a lock around allocation, insertion and write; here what is done under it is the log and the
//! words, with two fences.

use super::record::{self, HEAD, Record};
use crate::sync::lock;
use parking_lot::{Mutex, MutexGuard};
use terrace_memory::{Domain, Memory};

/// Where the log lies among the values: behind the head blocks, before the first segment.
const LOG_AT: u64 = 64 << 10;
/// Its length.
const LOG_BYTES: u64 = 64 << 10;
/// Addresses from here on are those of the values' memory.
const VALUES: u64 = 1 << 42;

/// A word that sections change: an offset in one of the two memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(u64);

impl Address {
    /// In the index's memory.
    ///
    /// # Safety
    /// A word that its structure changes by sections, and that nobody borrows: whatever a section makes of it, the
    /// structure has asked for.
    #[inline(always)]
    pub unsafe fn in_index(at: u64) -> Address {
        debug_assert!(at < VALUES && at.is_multiple_of(8), "words are aligned");
        Address(at)
    }

    /// Where it is in the index's memory.
    ///
    /// # Panics
    /// If it is in the other.
    pub fn offset_in_index(self) -> u64 {
        assert!(self.0 < VALUES, "a word of the index");
        self.0
    }

    /// In the values' memory.
    #[inline(always)]
    pub(crate) fn in_values(at: u64) -> Address {
        debug_assert!(at < VALUES && at.is_multiple_of(8), "words are aligned");
        Address(VALUES + at)
    }
}

/// What becomes of a word; all but `Set` of what it is when the section commits.
#[derive(Clone, Copy, Debug)]
enum Change {
    Set(u64),
    Add(u64),
    SetBits(u64),
    ClearBits(u64),
    /// Adds to the low half if the high half is the tag, else begins at zero under it.
    Count(u32, u32),
}

/// The words that a section changes, in the order in which readers may see them change.
#[derive(Debug, Default)]
pub struct Changes {
    words: Vec<(Address, Change)>,
}

impl Changes {
    /// Words of a section at most. Structures stay far below, but for a bucket in which hundreds of
    /// hashes collide.
    pub const MOST: usize = 2_000;

    /// None.
    pub const fn new() -> Changes {
        Changes { words: Vec::new() }
    }

    /// Makes the word `value`.
    pub fn set(&mut self, at: Address, value: u64) {
        self.words.push((at, Change::Set(value)));
    }

    /// Adds to the word, or subtracts.
    pub fn add(&mut self, at: Address, change: i64) {
        self.words.push((at, Change::Add(change as u64)));
    }

    /// Sets these bits of the word.
    pub fn set_bits(&mut self, at: Address, bits: u64) {
        self.words.push((at, Change::SetBits(bits)));
    }

    /// Clears these bits of the word.
    pub fn clear_bits(&mut self, at: Address, bits: u64) {
        self.words.push((at, Change::ClearBits(bits)));
    }

    /// Adds to a count that belongs to `tag`, in the word's low half below the tag. Under another tag the
    /// word counts from zero: it was about something that is no more.
    pub fn count(&mut self, at: Address, tag: u32, more: u32) {
        self.words.push((at, Change::Count(tag, more)));
    }

    /// What the word was [set](Changes::set) to last, if it was.
    pub fn pending(&self, at: Address) -> Option<u64> {
        self.words.iter().rev().find_map(|(address, change)| match change {
            Change::Set(value) if *address == at => Some(*value),
            _ => None,
        })
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }
}

/// The log, and what is needed to write it.
#[derive(Debug)]
struct Log {
    /// Of the last section that committed.
    generation: u64,
    record: Record,
    /// The words of the section at hand, each once.
    words: Vec<(Address, u64)>,
}

/// The two memories.
#[derive(Debug)]
pub struct Both<'a, M, I> {
    /// Of the values.
    pub values: &'a M,
    /// Of index and allocation metadata.
    pub index: &'a I,
}

/// Sections over words of two memories.
#[derive(Debug)]
pub struct Joint {
    log: Mutex<Log>,
}

/// What [`Joint::open`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Words of the last section, which were stored again.
    pub words: u64,
}

impl Joint {
    /// Bytes at the front of the values' memory that must be usable.
    pub const VALUES_BYTES: u64 = LOG_AT + LOG_BYTES;
    /// Its log begins there.
    pub const VALUES_FROM: u64 = LOG_AT;

    /// Replays what the log holds, durably, and makes it void. Words for the index are passed over if
    /// there is none that goes with the values; so are words beyond `values_bytes` and `index_bytes`,
    /// which no section wrote.
    pub fn open<M: Memory, I: Memory>(
        values: (&M, u64),
        index: Option<(&I, u64)>,
    ) -> (Joint, Replayed) {
        let (memory, values_bytes) = values;
        let mut log = Log { generation: 0, record: Record::new(), words: Vec::new() };
        let mut replayed = Replayed::default();
        if values_bytes < Joint::VALUES_BYTES {
            return (Joint { log: Mutex::new(log) }, replayed);
        }
        // SAFETY: the log is usable (above), here and below; nobody else has the memories yet.
        let (generation, mark) = unsafe { (memory.load(LOG_AT), memory.load(LOG_AT + 8)) };
        log.generation = generation;
        if let Some(bytes) = record::promised(mark, LOG_BYTES) {
            let mut runs = vec![0; bytes as usize];
            // SAFETY: as above.
            unsafe { memory.read(LOG_AT + HEAD as u64, &mut runs) };
            if record::is_whole(generation, mark, &runs) {
                for (address, new) in record::parse(&runs) {
                    let (words, _) = new.as_chunks::<8>();
                    for (word, at) in words.iter().zip((address..).step_by(8)) {
                        let word = u64::from_le_bytes(*word);
                        replayed.words += u64::from(match at.checked_sub(VALUES) {
                            Some(at) => put_back(memory, values_bytes, at, word),
                            None => {
                                index.is_some_and(|(index, bytes)| put_back(index, bytes, at, word))
                            }
                        });
                    }
                }
                memory.fence();
            }
        }
        let joint = Joint { log: Mutex::new(log) };
        if mark != 0 {
            joint.make_void(memory);
        }
        (joint, replayed)
    }

    /// What the log holds is not to be replayed: durable on return.
    pub fn make_void<M: Memory>(&self, values: &M) {
        let _alone = self.lock(values);
        // SAFETY: the log is usable, which `open` found or its caller saw to; under its lock.
        unsafe {
            values.store(LOG_AT + 8, 0);
            values.persist(LOG_AT + 8, 8);
        }
    }

    fn lock<M: Memory>(&self, memory: &M) -> MutexGuard<'_, Log> {
        lock(memory, &self.log)
    }

    /// Changes the words together: durable on return, all or none of them until then. `publish` runs
    /// when they are durable and before any of them is stored. `changes` are none afterwards.
    ///
    /// Two fences, and the lines of the log and of the words written back.
    ///
    /// # Panics
    /// For more than [`Changes::MOST`] words, and for addresses beyond the memories: before anything
    /// was changed.
    pub fn commit<M: Memory, I: Memory>(
        &self,
        both: Both<'_, M, I>,
        changes: &mut Changes,
        publish: impl FnOnce(),
    ) {
        let mut log = self.lock(both.values);
        log.take(&both, changes);
        let Log { generation, record, words } = &mut *log;
        *generation += 1;
        let bytes = record.mark(*generation);
        let writes_back = both.values.domain() == Domain::Adr;
        // SAFETY: the log is usable and ours alone under its lock; the record fits (`Changes::MOST`).
        unsafe {
            both.values.write(LOG_AT, bytes);
            if writes_back {
                both.values.write_back(LOG_AT, bytes.len() as u64);
            }
        }
        both.values.fence();
        publish();
        for (address, word) in &*words {
            // SAFETY: `take` has loaded the word: it is in its memory. Its owner, who made the change,
            // holds what keeps other writers away from it.
            unsafe { both.store(*address, *word, writes_back) };
        }
        // One fence is the processor's: it orders both memories.
        both.values.fence();
    }
}

impl Log {
    /// Works out what the words become, each once, and makes the record of it.
    fn take<M: Memory, I: Memory>(&mut self, both: &Both<'_, M, I>, changes: &mut Changes) {
        assert!(changes.len() <= Changes::MOST, "a section of {} words", changes.len());
        self.words.clear();
        for (address, change) in changes.words.drain(..) {
            let known = self.words.iter_mut().find(|(at, _)| *at == address);
            let before = known.as_ref().map_or_else(|| both.load(address), |(_, word)| *word);
            let after = match change {
                Change::Set(value) => value,
                Change::Add(more) => before.wrapping_add(more),
                Change::SetBits(bits) => before | bits,
                Change::ClearBits(bits) => before & !bits,
                Change::Count(tag, more) => {
                    let counted = if (before >> 32) as u32 == tag { before as u32 } else { 0 };
                    u64::from(tag) << 32 | u64::from(counted.saturating_add(more))
                }
            };
            match known {
                Some((_, word)) => *word = after,
                None => self.words.push((address, after)),
            }
        }
        self.record.clear();
        for (address, word) in &self.words {
            self.record.push(address.0, word.to_le_bytes());
        }
    }
}

impl<M: Memory, I: Memory> Both<'_, M, I> {
    fn load(&self, address: Address) -> u64 {
        let in_values = address.0.checked_sub(VALUES);
        let end = in_values.unwrap_or(address.0) + 8;
        let bytes = if in_values.is_some() { self.values.len() } else { self.index.len() };
        assert!(end <= bytes, "a word at {end} of {bytes}");
        // SAFETY: in the memory (asserted) and usable, since its owner is about to change it; aligned,
        // as addresses are.
        unsafe {
            match in_values {
                Some(at) => self.values.load(at),
                None => self.index.load(address.0),
            }
        }
    }

    /// # Safety
    /// The word can be loaded, and nobody else stores to it.
    unsafe fn store(&self, address: Address, word: u64, writes_back: bool) {
        // SAFETY: by contract.
        unsafe {
            match address.0.checked_sub(VALUES) {
                Some(at) => store_in_values(self.values, at, word, writes_back),
                None => store(self.index, address.0, word, writes_back),
            }
        }
    }
}

/// Stores a word of the values: its low half alone if the other stays as it is. That is how the checksum of an item
/// comes and goes, whose key may begin in the same word and be borrowed meanwhile.
///
/// # Safety
/// A usable, aligned word that nobody else stores to; nobody borrows what changes of it.
#[inline(always)]
unsafe fn store_in_values(memory: &impl Memory, at: u64, word: u64, writes_back: bool) {
    // SAFETY: by contract.
    unsafe {
        if (memory.load(at) ^ word) >> 32 != 0 {
            return store(memory, at, word, writes_back);
        }
        memory.write_changing(at, &word.to_le_bytes()[..4]);
        if writes_back {
            memory.write_back(at, 8);
        }
    }
}

/// # Safety
/// A usable, aligned word that nobody else stores to.
#[inline(always)]
unsafe fn store(memory: &impl Memory, at: u64, word: u64, writes_back: bool) {
    // SAFETY: by contract.
    unsafe {
        memory.store(at, word);
        if writes_back {
            memory.write_back(at, 8);
        }
    }
}

/// Stores a word of a record, if it is where sections could have written.
fn put_back(memory: &impl Memory, bytes: u64, at: u64, word: u64) -> bool {
    let is_there = at + 8 <= bytes;
    if is_there {
        // SAFETY: in the file; nobody else has the memory yet.
        unsafe { store(memory, at, word, memory.domain() == Domain::Adr) };
    }
    is_there
}
