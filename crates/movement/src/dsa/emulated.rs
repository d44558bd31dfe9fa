//! An emulated DSA: a thread that executes the descriptors of a bounded queue, as the device would.
//!
//! It stands behind the same driver as the device, and gets nothing but descriptors: addresses, sizes, flags. It
//! answers retry when its queue is full, fetches the lists of batches from memory, keeps fences, ends early at pages
//! that it declares missing, and can be paced and made to fail. What it shows is that the driver is right, and the
//! shape of what costs how much; its speed is this processor's and says nothing of the device.

use super::completion::{
    BAD_COUNT, BAD_OPCODE, BAD_SIZE, BATCH_FAILED, BY_WRITE, Completion, CompletionRecord,
    HARDWARE, PAGE_FAULT, SUCCESS,
};
use super::descriptor::{BLOCK_ON_FAULT, Descriptor, FENCE, Opcode};
use super::queue::{Driver, Limits, Portal};
use crate::cpu::Stores;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::job::Ran;
use crate::mailbox::Mailbox;
use crate::pool::{bound, join, worker};
use crate::task::{Step, Verb};
use parking_lot::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// How long the system takes to bring a page in, for a device that waits for it.
const FAULT_TAKES: Duration = Duration::from_micros(2);

/// What the emulated device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatedOptions {
    /// Descriptors of its queue.
    pub queue: usize,
    /// Whether the queue has one client, whose descriptors are lost when it is full: the driver has to count. Otherwise
    /// it is shared and answers retry.
    pub dedicated: bool,
    /// Most descriptors of a batch; fewer than two for none.
    pub batch: usize,
    /// Most bytes of a descriptor.
    pub transfer_bytes: usize,
    /// Whether the device waits where a page is missing.
    pub block_on_fault: bool,
    /// Of a million descriptors, those that meet a missing page.
    pub faults_ppm: u32,
    /// Of a million descriptors, those that end with a hardware error half done.
    pub errors_ppm: u32,
    /// Bytes it works on in a second; 0 for as many as the thread can.
    pub bytes_per_second: u64,
    /// Of the randomness.
    pub seed: u64,
}

impl Default for EmulatedOptions {
    /// As Intel's sample configurations of a shared queue: 128 descriptors, batches of 256, transfers of 2 GiB.
    fn default() -> EmulatedOptions {
        EmulatedOptions {
            queue: 128,
            dedicated: false,
            batch: 256,
            transfer_bytes: 2 << 30,
            block_on_fault: true,
            faults_ppm: 0,
            errors_ppm: 0,
            bytes_per_second: 0,
            seed: 1,
        }
    }
}

/// What an emulated device counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmulatedStats {
    /// Descriptors that its queue took; a batch is one.
    pub accepted: u64,
    /// Times that it answered retry.
    pub retries: u64,
    /// Descriptors that it lost, because a dedicated queue was full.
    pub overruns: u64,
    /// Descriptors that it executed, those of batches each.
    pub executed: u64,
    /// Batches.
    pub batches: u64,
    /// Missing pages.
    pub faults: u64,
    /// Hardware errors.
    pub errors: u64,
}

/// What a device that is not right does to every so many descriptors.
#[cfg(feature = "faults")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misdeed {
    /// Takes it and forgets it.
    Lose,
    /// Executes it twice.
    Twice,
    /// Reports success after a part of it.
    FalseSuccess,
}

/// An emulated device, to look at; [`Emulated::engine`] is what copies.
///
/// ```
/// use terrace_movement::{Buffer, Emulated, EmulatedOptions, Source, Task};
///
/// let options = EmulatedOptions { faults_ppm: 500_000, block_on_fault: false, ..EmulatedOptions::default() };
/// let emulated = Emulated::new(options).unwrap();
/// let source = Source::from(vec![9; 100_000]);
/// let target = Buffer::new(vec![0; 100_000]);
/// let finished = emulated.engine().submit(Task::copy(&source, target, 0).unwrap()).unwrap().wait();
/// assert_eq!(finished.target.unwrap().bytes(), source.bytes());
/// assert_eq!(u64::from(finished.result.unwrap().faults), emulated.stats().faults);
/// ```
#[derive(Debug)]
pub struct Emulated {
    engine: Engine,
    device: Arc<Device>,
}

/// What the thread and its portal share.
struct Device {
    options: EmulatedOptions,
    mailbox: Mailbox<Descriptor>,
    counts: Counts,
    #[cfg(feature = "faults")]
    misdeed: Mutex<Option<(Misdeed, u64)>>,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicU64,
    retries: AtomicU64,
    overruns: AtomicU64,
    executed: AtomicU64,
    batches: AtomicU64,
    faults: AtomicU64,
    errors: AtomicU64,
}

/// The end of the device that the driver writes to.
struct DevicePortal {
    device: Arc<Device>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The thread's own state.
struct Executor<'a> {
    device: &'a Device,
    random: u64,
    /// When the device has done what it was given, at its pace.
    free_at: Instant,
    /// Descriptors so far.
    number: u64,
}

impl Emulated {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option); [`Error::System`](crate::Error::System) if there is no thread for it.
    pub fn new(options: EmulatedOptions) -> Result<Emulated> {
        bound("queue", options.queue, 1 << 16, "from 1 to 65536")?;
        if !(4096..=2 << 30).contains(&options.transfer_bytes) {
            let found = options.transfer_bytes as u64;
            let bounds = "from 4096 to 2147483648";
            return Err(Error::Option { option: "transfer_bytes", found, bounds });
        }
        let device = Arc::new(Device {
            options,
            mailbox: Mailbox::new(options.queue),
            counts: Counts::default(),
            #[cfg(feature = "faults")]
            misdeed: Mutex::new(None),
        });
        let executing = Arc::clone(&device);
        let thread = Mutex::new(Some(worker("emulated-dsa", move || executing.serve())?));
        let portal = DevicePortal { device: Arc::clone(&device), thread };
        let limits = Limits {
            size: options.queue,
            is_dedicated: options.dedicated,
            batch: options.batch,
            transfer_bytes: options.transfer_bytes / 64 * 64,
            block_on_fault: options.block_on_fault,
        };
        Ok(Emulated { engine: Engine::of(Driver::new("dsa-emulated", portal, limits)), device })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the device has counted.
    pub fn stats(&self) -> EmulatedStats {
        let counts = &self.device.counts;
        EmulatedStats {
            accepted: counts.accepted.load(Relaxed),
            retries: counts.retries.load(Relaxed),
            overruns: counts.overruns.load(Relaxed),
            executed: counts.executed.load(Relaxed),
            batches: counts.batches.load(Relaxed),
            faults: counts.faults.load(Relaxed),
            errors: counts.errors.load(Relaxed),
        }
    }

    /// From now on the device does this to every `every`th descriptor: a control that tests must catch.
    #[cfg(feature = "faults")]
    pub fn misbehave(&self, misdeed: Misdeed, every: u64) {
        *self.device.misdeed.lock() = Some((misdeed, every.max(1)));
    }
}

impl Portal for DevicePortal {
    unsafe fn submit(&self, descriptor: &Descriptor) -> bool {
        let counts = &self.device.counts;
        match self.device.mailbox.room(1) {
            Ok(mut room) => {
                room.push(*descriptor);
                counts.accepted.fetch_add(1, Relaxed);
                true
            }
            // A dedicated queue does not answer.
            Err(crate::mailbox::NoRoom::Full(_)) if self.device.options.dedicated => {
                counts.overruns.fetch_add(1, Relaxed);
                true
            }
            Err(_) => {
                counts.retries.fetch_add(1, Relaxed);
                false
            }
        }
    }

    fn stop(&self) -> bool {
        // The thread ends after everything that its queue has.
        self.device.mailbox.close();
        join(self.thread.lock().take().into_iter());
        true
    }
}

impl Device {
    fn serve(&self) {
        let mut executor = Executor {
            device: self,
            random: self.options.seed | 1,
            free_at: Instant::now(),
            number: 0,
        };
        while let Some(descriptor) = self.mailbox.next() {
            executor.take(&descriptor);
        }
    }
}

impl Executor<'_> {
    fn count(&self, counter: impl Fn(&Counts) -> &AtomicU64) {
        counter(&self.device.counts).fetch_add(1, Relaxed);
    }

    /// Whether something happens that happens to so many of a million.
    fn happens(&mut self, ppm: u32) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000_000 < u64::from(ppm)
    }

    /// Executes a descriptor from the queue, and tells of its end.
    fn take(&mut self, descriptor: &Descriptor) {
        if descriptor.opcode() != Opcode::Batch as u8 {
            self.one(descriptor);
            return;
        }
        self.count(|counts| &counts.batches);
        let count = descriptor.size() as usize;
        if count < 2 || count > self.device.options.batch {
            write(descriptor, Completion { status: BAD_COUNT, ..Completion::default() });
            return;
        }
        // SAFETY: the driver submits the address of so many descriptors, and keeps them until this one has ended
        // (`Portal::submit`).
        let list =
            unsafe { std::slice::from_raw_parts(descriptor.first() as *const Descriptor, count) };
        let (mut done, mut are_well) = (0, true);
        for descriptor in list {
            if descriptor.flags() & FENCE != 0 && !are_well {
                break;
            }
            are_well &= self.one(descriptor);
            done += 1;
        }
        let status = if are_well { SUCCESS } else { BATCH_FAILED };
        write(descriptor, Completion { status, done, ..Completion::default() });
    }

    /// Executes one operation; whether it ended well.
    fn one(&mut self, descriptor: &Descriptor) -> bool {
        self.number += 1;
        #[cfg(feature = "faults")]
        if let Some(is_well) = self.misbehave(descriptor) {
            return is_well;
        }
        let completion = self.execute(descriptor);
        write(descriptor, completion);
        completion.status == SUCCESS
    }

    /// The operation, as far as it comes.
    fn execute(&mut self, descriptor: &Descriptor) -> Completion {
        self.count(|counts| &counts.executed);
        let options = self.device.options;
        let bytes = descriptor.size() as usize;
        let Some(step) = step(descriptor) else {
            let is_drain = descriptor.opcode() == Opcode::Drain as u8;
            // One thread in order: everything before a drain has ended.
            return Completion {
                status: if is_drain { SUCCESS } else { BAD_OPCODE },
                ..Completion::default()
            };
        };
        if bytes == 0 || bytes > options.transfer_bytes {
            return Completion { status: BAD_SIZE, ..Completion::default() };
        }
        self.pace(bytes as u64);
        if self.happens(options.errors_ppm) {
            self.count(|counts| &counts.errors);
            run(&step.part(0, bytes / 2));
            return Completion {
                status: HARDWARE,
                done: (bytes / 2) as u32,
                ..Completion::default()
            };
        }
        if self.happens(options.faults_ppm) {
            self.count(|counts| &counts.faults);
            if descriptor.flags() & BLOCK_ON_FAULT == 0 {
                return self.fault(&step);
            }
            std::thread::sleep(FAULT_TAKES);
        }
        ended(&step, &run(&step))
    }

    /// Ends at a page that is declared missing.
    fn fault(&mut self, step: &Step) -> Completion {
        let is_write = matches!(step.verb, Verb::Copy | Verb::Move | Verb::Fill);
        let start = if is_write { step.target } else { step.source }.as_ptr() as u64;
        let pages = (start + step.bytes as u64 - 1) / PAGE - start / PAGE;
        // The first page, or one that begins inside.
        let page = start / PAGE + self.random / 7 % (pages + 1);
        let before = (page * PAGE).saturating_sub(start) as usize;
        let is_backward = goes_backward(step);
        let part = if is_backward {
            // From the end to the start, down to the end of the missing page.
            let behind = ((page + 1) * PAGE - start).min(step.bytes as u64) as usize;
            step.part(behind, step.bytes - behind)
        } else {
            step.part(0, before)
        };
        let ran = run(&part);
        if let Some(found) = ran.difference {
            return Completion {
                status: SUCCESS,
                result: 1,
                done: found as u32,
                ..Completion::default()
            };
        }
        let by = if is_write { BY_WRITE } else { 0 };
        Completion {
            status: PAGE_FAULT | by,
            result: is_backward.into(),
            done: part.bytes as u32,
            fault: page * PAGE,
            crc: ran.crc.unwrap_or(step.value as u32),
        }
    }

    /// Waits until a device of this pace would have done so many bytes more.
    fn pace(&mut self, bytes: u64) {
        let rate = self.device.options.bytes_per_second;
        if rate == 0 {
            return;
        }
        let takes =
            Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64);
        self.free_at = self.free_at.max(Instant::now()) + takes;
        while let Some(left) =
            self.free_at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            if left > Duration::from_micros(200) {
                std::thread::sleep(left - Duration::from_micros(100));
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// What a device that is not right does instead; `None` if this descriptor is spared.
    #[cfg(feature = "faults")]
    fn misbehave(&mut self, descriptor: &Descriptor) -> Option<bool> {
        let (misdeed, every) = (*self.device.misdeed.lock())?;
        if !self.number.is_multiple_of(every) {
            return None;
        }
        match misdeed {
            Misdeed::Lose => return Some(true),
            Misdeed::Twice => {
                // Before the end is told: afterwards the memory may be somebody else's.
                let _first = self.execute(descriptor);
                write(descriptor, self.execute(descriptor));
            }
            Misdeed::FalseSuccess => {
                let half =
                    step(descriptor).map(|step| ended(&step, &run(&step.part(0, step.bytes / 2))));
                write(
                    descriptor,
                    half.unwrap_or(Completion { status: SUCCESS, ..Completion::default() }),
                );
            }
        }
        Some(true)
    }
}

/// The operation of a descriptor, as the processor would do it.
fn step(descriptor: &Descriptor) -> Option<Step> {
    let address = |word: u64| NonNull::new(word as *mut u8);
    let (first, second) = (descriptor.first(), descriptor.second());
    let (verb, source, target, value) = match descriptor.opcode() {
        op if op == Opcode::Move as u8 => (Verb::Move, first, second, 0),
        op if op == Opcode::Fill as u8 => (Verb::Fill, second, second, first),
        op if op == Opcode::Compare as u8 => (Verb::Compare, first, second, 0),
        op if op == Opcode::Crc as u8 => (Verb::Crc, first, first, descriptor.seed().into()),
        _ => return None,
    };
    Some(Step {
        verb,
        source: address(source)?,
        target: address(target)?,
        bytes: descriptor.size() as usize,
        value,
    })
}

/// Whether a move has to begin at its end, because its start would overwrite bytes that it still needs.
fn goes_backward(step: &Step) -> bool {
    let (source, target) = (step.source.as_ptr() as usize, step.target.as_ptr() as usize);
    step.verb == Verb::Move && target > source && target - source < step.bytes
}

fn run(step: &Step) -> Ran {
    let mut ran = Ran::default();
    if step.bytes > 0 {
        // SAFETY: the ranges of a descriptor that the driver submitted and that has not ended (`Portal::submit`).
        unsafe { step.run(Stores::Cached, &mut ran) };
    }
    ran
}

/// The record of a step that was executed whole.
fn ended(step: &Step, ran: &Ran) -> Completion {
    let done = ran.difference.unwrap_or(step.bytes as u64) as u32;
    let (result, crc) = (ran.difference.is_some().into(), ran.crc.unwrap_or_default());
    Completion { status: SUCCESS, result, done, fault: 0, crc }
}

fn write(descriptor: &Descriptor, completion: Completion) {
    // SAFETY: the driver keeps the record until the status is written, which is the last access to it.
    let record = unsafe { &*(descriptor.completion() as *const CompletionRecord) };
    record.write(completion);
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::drain;
    use super::*;

    #[test]
    fn a_drain_ends_after_everything_before_it() {
        let options = EmulatedOptions { bytes_per_second: 100 << 20, ..EmulatedOptions::default() };
        let device = Arc::new(Device {
            options,
            mailbox: Mailbox::new(8),
            counts: Counts::default(),
            #[cfg(feature = "faults")]
            misdeed: Mutex::new(None),
        });
        let executing = Arc::clone(&device);
        let thread = Mutex::new(Some(std::thread::spawn(move || executing.serve())));
        let portal = DevicePortal { device, thread };
        let (source, mut target) = (vec![6u8; 1 << 20], vec![0u8; 1 << 20]);
        let start = |bytes: &[u8]| NonNull::from(bytes).cast();
        let step = Step {
            verb: Verb::Copy,
            source: start(&source),
            target: NonNull::from(&mut target[..]).cast(),
            bytes: source.len(),
            value: 0,
        };
        let record = CompletionRecord::default();
        let copy = Descriptor::of(&step, 0, &record);
        // SAFETY: both ranges and the record outlive the drain, which is waited for.
        assert!(unsafe { portal.submit(&copy) });
        assert!(record.read().is_none(), "ten milliseconds at this pace");
        assert!(drain(&portal, Duration::from_secs(10)));
        assert_eq!(record.read().map(|completion| completion.status), Some(SUCCESS));
        assert!(portal.stop() && target == source);
    }
}
