//! A disk that is watched: it counts what is written and synced, and for the tests of this workspace records that, is
//! slow, or fails.

use super::Disk;
use super::disk::one_by_one;
use crate::disk_budget::DiskSpace;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What happened to the disk, as [`Medium::start_trace`](super::Medium::start_trace) records it.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes were written at an offset; with `durable`, they are safe once it is recorded.
    Write {
        /// Where.
        at: u64,
        /// What was written.
        bytes: Vec<u8>,
        /// Whether the write was synced by itself.
        durable: bool,
    },
    /// It was made at least this long; safe after the next sync.
    Grow(u64),
    /// Its blocks there were given back: from here on, synced or not, they may be gone.
    Release {
        /// Where.
        at: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// A sync has returned: the first `covers` events, those before it began, are safe.
    Sync {
        /// Their number.
        covers: usize,
    },
}

impl Event {
    /// How many of `events`, from the first on, their syncs made safe.
    pub fn synced(events: &[Event]) -> usize {
        let covered = |event: &Event| match event {
            Event::Sync { covers } => Some(*covers),
            _ => None,
        };
        events.iter().filter_map(covered).max().unwrap_or(0)
    }

    /// What a power cut after `events` leaves at the least of a file that was `base`: what was safe, and nothing else.
    pub fn least_left(base: &[u8], events: &[Event]) -> Vec<u8> {
        let (mut image, synced) = (base.to_vec(), Event::synced(events));
        for (number, event) in events.iter().enumerate() {
            match event {
                Event::Grow(to) if number < synced && image.len() < *to as usize => {
                    image.resize(*to as usize, 0);
                }
                Event::Write { at, bytes, durable } if number < synced || *durable => {
                    let (at, end) = (*at as usize, *at as usize + bytes.len());
                    image.resize(image.len().max(end), 0);
                    image[at..end].copy_from_slice(bytes);
                }
                Event::Release { at, bytes } => Event::release(&mut image, *at, *bytes),
                _ => {}
            }
        }
        image
    }

    /// What a release makes of a file that was `image`.
    pub fn release(image: &mut [u8], at: u64, bytes: u64) {
        let [from, to] = [at, at + bytes].map(|end| image.len().min(end as usize));
        image[from..to].fill(0);
    }
}

/// What is seen of a disk, and asked of it.
#[derive(Debug)]
pub(super) struct Watch {
    written: AtomicU64,
    syncs: AtomicU64,
    /// Writes and syncs until one fails on purpose; negative: never.
    fault_after: AtomicI64,
    /// The same of reads; all that follow fail too.
    read_fault_after: AtomicI64,
    /// Milliseconds that each write and sync takes on purpose.
    slowed_ms: AtomicU64,
    /// The same of each read, or of many as one.
    reads_slowed_ms: AtomicU64,
    trace: OnceLock<Mutex<Vec<Event>>>,
}

impl Watch {
    pub fn traffic(&self) -> (u64, u64) {
        (self.written.load(Relaxed), self.syncs.load(Relaxed))
    }

    pub fn inject_write_fault(&self, writes: i64) {
        self.fault_after.store(writes, Relaxed);
    }

    pub fn inject_read_fault(&self, reads: i64) {
        self.read_fault_after.store(reads, Relaxed);
    }

    pub fn slow_down(&self, ms: u64) {
        self.slowed_ms.store(ms, Relaxed);
    }

    pub fn slow_down_reads(&self, ms: u64) {
        self.reads_slowed_ms.store(ms, Relaxed);
    }

    pub fn start_trace(&self) {
        self.trace.get_or_init(Mutex::default);
    }

    pub fn trace(&self) -> Vec<Event> {
        self.trace.get().map(|trace| trace.lock().clone()).unwrap_or_default()
    }

    pub fn trace_length(&self) -> usize {
        self.trace.get().map_or(0, |trace| trace.lock().len())
    }

    fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(trace) = self.trace.get() {
            trace.lock().push(event());
        }
    }
}

/// A disk, and who watches it.
#[derive(Debug)]
pub(super) struct Watched {
    disk: Box<dyn Disk>,
    watch: Arc<Watch>,
}

impl Watched {
    pub fn new(disk: Box<dyn Disk>) -> (Watched, Arc<Watch>) {
        let watch = Arc::new(Watch {
            written: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            fault_after: AtomicI64::new(-1),
            read_fault_after: AtomicI64::new(-1),
            slowed_ms: AtomicU64::new(0),
            reads_slowed_ms: AtomicU64::new(0),
            trace: OnceLock::new(),
        });
        (Watched { disk, watch: Arc::clone(&watch) }, watch)
    }

    fn fail_if_told(&self, doing: &'static str) -> Result<()> {
        let watch = &self.watch;
        sleep(&watch.slowed_ms);
        self.count_down(&watch.fault_after, doing)
    }

    /// Fails if so many have been done, and from then on.
    fn count_down(&self, left: &AtomicI64, doing: &'static str) -> Result<()> {
        if left.load(Relaxed) >= 0 && left.fetch_sub(1, Relaxed) == 0 {
            left.store(0, Relaxed);
            let path = self.path().unwrap_or(Path::new("(memory)")).into();
            let source = io::Error::other("injected fault");
            return Err(Error::Io { path, doing, source });
        }
        Ok(())
    }
}

fn sleep(ms: &AtomicU64) {
    match ms.load(Relaxed) {
        0 => {}
        ms => std::thread::sleep(Duration::from_millis(ms)),
    }
}

impl Disk for Watched {
    fn path(&self) -> Option<&Path> {
        self.disk.path()
    }

    fn capacity_bytes(&self) -> u64 {
        self.disk.capacity_bytes()
    }

    fn bytes(&self) -> Result<u64> {
        self.disk.bytes()
    }

    fn write(&self, at: u64, blocks: &[u8], durable: bool) -> Result<()> {
        let watch = &self.watch;
        if durable {
            watch.syncs.fetch_add(1, Relaxed);
        }
        self.fail_if_told("write")?;
        self.disk.write(at, blocks, durable)?;
        watch.written.fetch_add(blocks.len() as u64, Relaxed);
        watch.record(|| Event::Write { at, bytes: blocks.to_vec(), durable });
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.watch.syncs.fetch_add(1, Relaxed);
        self.fail_if_told("sync")?;
        let covers = self.watch.trace_length();
        self.disk.sync()?;
        self.watch.record(|| Event::Sync { covers });
        Ok(())
    }

    fn read(&self, at: u64, blocks: &mut [u8]) -> Result<()> {
        sleep(&self.watch.reads_slowed_ms);
        self.count_down(&self.watch.read_fault_after, "read")?;
        self.disk.read(at, blocks)
    }

    fn read_many(&self, pieces: &[(u64, usize)], each: &mut dyn FnMut(usize, Result<&[u8]>)) {
        match self.watch.read_fault_after.load(Relaxed) {
            ..0 => {
                sleep(&self.watch.reads_slowed_ms);
                self.disk.read_many(pieces, each);
            }
            _ => one_by_one(pieces, each, |at, blocks| self.read(at, blocks)),
        }
    }

    fn grow(&self, at: u64, bytes: u64) -> Result<()> {
        self.disk.grow(at, bytes)?;
        self.watch.record(|| Event::Grow(at + bytes));
        Ok(())
    }

    fn space(&self) -> Option<DiskSpace> {
        self.disk.space()
    }

    fn has_blocks(&self, at: u64, bytes: u64) -> bool {
        self.disk.has_blocks(at, bytes)
    }

    fn release(&self, at: u64, bytes: u64) -> Result<()> {
        self.disk.release(at, bytes)?;
        self.watch.record(|| Event::Release { at, bytes });
        Ok(())
    }

    fn publish(&self) -> Result<()> {
        self.disk.publish()
    }
}
