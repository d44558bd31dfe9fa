//! A memory that remembers what was done to it, so that every image a crash may leave can be built.

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_memory::{Domain, Memory};

#[derive(Clone, Debug)]
pub enum Event {
    Store {
        at: u64,
        bytes: Vec<u8>,
    },
    WriteBack {
        line: u64,
    },
    Fence,
    /// Not of the memory: so many sections have been acknowledged.
    Acknowledged(usize),
}

/// Words that are stored atomically, or written by whoever owns them.
pub struct Traced {
    words: UnsafeCell<Vec<u64>>,
    domain: Domain,
    is_recording: AtomicBool,
    events: Mutex<Vec<Event>>,
    pub written_back: AtomicU64,
}

// SAFETY: access follows the contract of `Memory`, which says who may touch what when.
unsafe impl Sync for Traced {}

impl Traced {
    pub fn new(bytes: usize, domain: Domain) -> Traced {
        Traced::from(vec![0; bytes / 8], domain)
    }

    pub fn from(words: Vec<u64>, domain: Domain) -> Traced {
        Traced {
            words: UnsafeCell::new(words),
            domain,
            is_recording: AtomicBool::new(false),
            events: Mutex::default(),
            written_back: AtomicU64::new(0),
        }
    }

    /// From here on events are kept; what was stored until now counts as durable.
    pub fn record(&self) -> Vec<u64> {
        self.is_recording.store(true, Ordering::Relaxed);
        self.words()
    }

    pub fn note(&self, acknowledged: usize) {
        self.push(Event::Acknowledged(acknowledged));
    }

    pub fn events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().expect("lock"))
    }

    /// What the memory holds, while nobody writes.
    pub fn words(&self) -> Vec<u64> {
        // SAFETY: the tests call this between sections.
        unsafe { (*self.words.get()).clone() }
    }

    fn push(&self, event: Event) {
        if self.is_recording.load(Ordering::Relaxed) {
            self.events.lock().expect("lock").push(event);
        }
    }

    fn at(&self, at: u64, bytes: u64) -> *mut u8 {
        assert!(at + bytes <= self.len(), "{at} + {bytes} is in the memory");
        // SAFETY: in bounds (asserted).
        unsafe { (*self.words.get()).as_mut_ptr().cast::<u8>().add(at as usize) }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8));
        // SAFETY: in bounds and aligned (asserted).
        unsafe { &*self.at(at, 8).cast() }
    }
}

impl Memory for Traced {
    fn len(&self) -> u64 {
        // SAFETY: the length never changes.
        8 * unsafe { (*self.words.get()).len() } as u64
    }

    fn domain(&self) -> Domain {
        self.domain
    }

    unsafe fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    unsafe fn store(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Release);
        self.push(Event::Store { at, bytes: value.to_le_bytes().into() });
    }

    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        let found =
            self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)?;
        self.push(Event::Store { at, bytes: new.to_le_bytes().into() });
        Ok(found)
    }

    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        let mut copy = vec![0; bytes];
        // SAFETY: passed on; `target` has room for `bytes`.
        unsafe {
            self.read(at, &mut copy);
            target.copy_from_nonoverlapping(copy.as_ptr(), bytes);
        }
    }

    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        let from = self.at(at, target.len() as u64);
        // SAFETY: in bounds (asserted in `at`); not written meanwhile, by contract.
        unsafe { std::ptr::copy_nonoverlapping(from, target.as_mut_ptr(), target.len()) };
    }

    unsafe fn write(&self, at: u64, source: &[u8]) {
        let to = self.at(at, source.len() as u64);
        // SAFETY: in bounds (asserted in `at`); the caller's alone, by contract.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), to, source.len()) };
        if self.domain != Domain::Eadr {
            return self.push(Event::Store { at, bytes: source.into() });
        }
        // Each word is durable at once, so a crash may come between any two.
        let mut done = 0;
        while done < source.len() {
            let here = at + done as u64;
            let length = (8 - here as usize % 8).min(source.len() - done);
            self.push(Event::Store { at: here, bytes: source[done..done + length].into() });
            done += length;
        }
    }

    unsafe fn stream(&self, at: u64, source: &[u8]) {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            self.write(at, source);
            self.write_back(at, source.len() as u64);
        }
    }

    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: in bounds (asserted in `at`); not written meanwhile, by contract.
        unsafe { std::slice::from_raw_parts(self.at(at, bytes), bytes as usize) }
    }

    unsafe fn write_back(&self, at: u64, bytes: u64) {
        for line in at / 64..(at + bytes).div_ceil(64) {
            self.push(Event::WriteBack { line });
            self.written_back.fetch_add(64, Ordering::Relaxed);
        }
    }

    fn fence(&self) {
        self.push(Event::Fence);
    }

    fn prefetch(&self, _at: u64) {}

    unsafe fn demote(&self, _at: u64, _bytes: u64) {}
}
