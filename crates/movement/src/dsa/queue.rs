//! The driver of one work queue: builds descriptors, submits them through a portal, and reads completion records.
//!
//! It knows nothing of what is behind the portal: a device of Intel's or the emulated one. A part of a task becomes a
//! *flight*: one descriptor, or a batch of them. What a page fault left undone is touched and submitted again; any
//! other error ends the part. A flight owns its part until the device has written that it ended, so the device never
//! meets memory that was freed.

use super::completion::{
    BATCH_FAILED, BATCH_PAGE_FAULT, BY_WRITE, Completion, CompletionRecord, PAGE_FAULT, SUCCESS,
    meaning,
};
use super::descriptor::{BLOCK_ON_FAULT, Descriptor, FENCE};
use crate::engine::Backend;
use crate::error::{Error, Failure};
use crate::job::{Part, Ran};
use crate::task::{Step, Verb};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Times that a full queue is asked again before the task is refused.
const RETRIES: u32 = 32;
/// Faults at one place before the driver gives up.
const FAULTS_MOST: u32 = 8;
const PAGE: usize = 4096;
/// Pages that are touched after a fault: the next ones are likely missing too.
const TOUCHED: usize = 512;

/// Where descriptors are written.
pub(crate) trait Portal: Send + Sync + 'static {
    /// Submits a descriptor; false if the queue is full: submit it again later.
    ///
    /// # Safety
    /// What the descriptor points to is valid, and nobody else uses what it writes, until its completion record is
    /// written or [`Portal::stop`] has returned true. The same for all descriptors of a list.
    unsafe fn submit(&self, descriptor: &Descriptor) -> bool;

    /// Waits until what was submitted has ended, and returns whether it did: nothing touches memory any more then.
    fn stop(&self) -> bool;
}

/// Waits until everything that was submitted through a portal has ended, by a drain descriptor behind it; false if the
/// device did not answer in time.
pub(crate) fn drain(portal: &impl Portal, most: Duration) -> bool {
    let record = Box::new(CompletionRecord::default());
    let (descriptor, end) = (Descriptor::drain(&record), Instant::now() + most);
    let mut is_submitted = false;
    loop {
        // SAFETY: a drain points to its record alone, which is leaked below unless it was written.
        is_submitted = is_submitted || unsafe { portal.submit(&descriptor) };
        if is_submitted && record.read().is_some() {
            return true;
        }
        if Instant::now() > end {
            // The device may still write to it.
            Box::leak(record);
            return false;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// What a queue allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Descriptors in the queue; of a dedicated one the driver counts, since nothing else would.
    pub size: usize,
    pub is_dedicated: bool,
    pub batch: usize,
    pub transfer_bytes: usize,
    pub block_on_fault: bool,
}

/// The driver.
pub(crate) struct Driver<P: Portal> {
    name: Arc<str>,
    portal: P,
    limits: Limits,
    flights: Mutex<Vec<Flight>>,
}

/// A part in the hands of the device.
struct Flight {
    part: Part,
    ran: Ran,
    /// Steps that are to be submitted, each with the place of its first byte in the part's step.
    todo: VecDeque<(Step, u64)>,
    /// Submitted.
    sent: Vec<(Step, u64)>,
    /// One for each of them, and one more for a batch. Shared, and not a box, like the list: a box that moves with its
    /// flight would claim for itself what the device writes and reads.
    records: Arc<[CompletionRecord]>,
    /// Of a batch.
    list: Arc<[Descriptor]>,
    /// Whether a checksum or a move was divided: its pieces follow one another, each after the end of the one before.
    is_chained: bool,
    /// Faults since a byte was done.
    stuck: u32,
}

/// How a step came back.
enum Back {
    Done,
    Rest(Step, u64),
    Failed(Failure),
}

impl<P: Portal> Driver<P> {
    pub fn new(name: &str, portal: P, limits: Limits) -> Driver<P> {
        Driver { name: name.into(), portal, limits, flights: Mutex::default() }
    }

    /// Submits the next steps of a flight; false if the queue is full.
    fn send(&self, flight: &mut Flight) -> bool {
        let is_single = self.limits.batch < 2 || flight.is_chained;
        let count = if is_single { 1 } else { flight.todo.len().min(self.limits.batch) };
        flight.sent = flight.todo.iter().take(count).copied().collect();
        let records = if count == 1 { 1 } else { count + 1 };
        if flight.records.len() < records {
            flight.records = (0..records).map(|_| CompletionRecord::default()).collect();
        }
        let is_ordered = flight.part.steps().is_ordered();
        let block = if self.limits.block_on_fault { BLOCK_ON_FAULT } else { 0 };
        let describe = |(at, (step, _)): (usize, &(Step, u64))| {
            flight.records[at].clear();
            let fence = if is_ordered && at > 0 { FENCE } else { 0 };
            Descriptor::of(step, block | fence, &flight.records[at])
        };
        let descriptor = if count == 1 {
            describe((0, &flight.sent[0]))
        } else {
            flight.list = flight.sent.iter().enumerate().map(describe).collect();
            flight.records[count].clear();
            Descriptor::batch(&flight.list, &flight.records[count])
        };
        let is_taken = (0..RETRIES).any(|retry| {
            (0..retry).for_each(|_| std::hint::spin_loop());
            // SAFETY: the flight owns its part, and with it the memory of the steps, and records and list, which nobody
            // frees before the device has ended (`harvest`, `drop`).
            unsafe { self.portal.submit(&descriptor) }
        });
        if is_taken {
            flight.todo.drain(..count);
        } else {
            flight.sent.clear();
        }
        is_taken
    }

    /// Whether the device has ended what was sent.
    fn is_back(flight: &Flight) -> bool {
        Self::lead(flight).read().is_some()
    }

    /// The record that is written last.
    fn lead(flight: &Flight) -> &CompletionRecord {
        let count = flight.sent.len();
        &flight.records[if count == 1 { 0 } else { count }]
    }

    /// Reads what came back. True if the flight has ended, well or not.
    fn land(&self, flight: &mut Flight) -> bool {
        let lead = (flight.sent.len() > 1).then(|| Self::lead(flight).read().unwrap_or_default());
        if let Some(lead) = lead
            && !matches!(lead.status & !BY_WRITE, SUCCESS | BATCH_FAILED | BATCH_PAGE_FAULT)
        {
            flight.ran.failure = Some(self.failure(lead.status, &flight.ran));
            return true;
        }
        let done_before = flight.ran.bytes;
        let mut rest = VecDeque::new();
        let sent = std::mem::take(&mut flight.sent);
        for (at, (step, place)) in sent.into_iter().enumerate() {
            // A descriptor behind one that failed may not have been executed.
            let back = match flight.records[at].read() {
                Some(completion) => self.back(step, place, completion, &mut flight.ran),
                None => Back::Rest(step, place),
            };
            match back {
                Back::Done => flight.chain(),
                Back::Rest(step, place) => rest.push_back((step, place)),
                Back::Failed(failure) => {
                    flight.ran.failure.get_or_insert(failure);
                }
            }
        }
        if flight.ran.failure.is_some() {
            return true;
        }
        flight.stuck = if flight.ran.bytes > done_before { 0 } else { flight.stuck + 1 };
        if flight.stuck > FAULTS_MOST {
            let (faults, done) = (flight.ran.faults, flight.ran.bytes);
            flight.ran.failure =
                Some(Failure::Faults { engine: self.name.to_string(), faults, done });
            return true;
        }
        rest.append(&mut flight.todo);
        flight.todo = rest;
        flight.todo.is_empty()
    }

    /// What a completion says of its step.
    fn back(&self, step: Step, place: u64, completion: Completion, ran: &mut Ran) -> Back {
        // No device has done more than it was asked to.
        let done = (completion.done as usize).min(step.bytes);
        match completion.status & !BY_WRITE {
            SUCCESS => {
                ran.bytes += step.bytes as u64;
                match step.verb {
                    Verb::Compare if completion.result != 0 => {
                        let found = place + done as u64;
                        ran.difference =
                            Some(ran.difference.map_or(found, |first| first.min(found)));
                    }
                    Verb::Crc => ran.crc = Some(completion.crc),
                    _ => {}
                }
                Back::Done
            }
            PAGE_FAULT => {
                ran.faults += 1;
                ran.bytes += done as u64;
                let left = step.bytes - done;
                // One operation to the device, which may do any copy from its end.
                let is_copy = matches!(step.verb, Verb::Copy | Verb::Move);
                let from_the_end = is_copy && completion.result != 0;
                let (at, place) =
                    if from_the_end { (0, place) } else { (done, place + done as u64) };
                let mut rest = step.part(at, left);
                if step.verb == Verb::Crc && done > 0 {
                    rest.value = completion.crc.into();
                }
                if left > 0 {
                    touch(&rest, completion);
                    return Back::Rest(rest, place);
                }
                if step.verb == Verb::Crc {
                    ran.crc = Some(completion.crc);
                }
                Back::Done
            }
            _ => {
                ran.bytes += done as u64;
                Back::Failed(self.failure(completion.status, ran))
            }
        }
    }

    fn failure(&self, status: u8, ran: &Ran) -> Failure {
        Failure::Engine {
            engine: self.name.to_string(),
            status,
            meaning: meaning(status),
            done: ran.bytes,
        }
    }

    /// Looks at every flight, and sends on those with something left unless the queue `is_closing`. Returns those that
    /// have ended.
    fn harvest(&self, flights: &mut Vec<Flight>, is_closing: bool) -> Vec<Flight> {
        let mut ended = Vec::new();
        let mut at = 0;
        while at < flights.len() {
            let flight = &mut flights[at];
            let is_sent = !flight.sent.is_empty();
            if is_sent && Self::is_back(flight) && self.land(flight) {
                ended.push(flights.swap_remove(at));
                continue;
            }
            if flights[at].sent.is_empty() && !is_closing {
                // Full now; the next look tries again.
                let _later = self.send(&mut flights[at]);
            }
            at += 1;
        }
        ended
    }

    fn end(&self, ended: Vec<Flight>) {
        for flight in ended {
            let name = &self.name;
            harmless(|| flight.part.end(name, flight.ran));
        }
    }

    /// Flights that the queue has room for. A dedicated one tells nobody that it is full, and needs a place for the
    /// drain of a closing driver.
    fn room(&self) -> usize {
        let spared = usize::from(self.limits.is_dedicated && self.limits.size > 1);
        self.limits.size - spared
    }

    /// A flight of a part; steps are divided to what one descriptor may transfer.
    fn flight(&self, part: Part) -> Flight {
        let most = self.limits.transfer_bytes;
        let (mut todo, mut is_chained) = (VecDeque::new(), false);
        for step in part.steps().as_slice() {
            let piece = |at: usize| (step.part(at, most.min(step.bytes - at)), at as u64);
            let pieces = (0..step.bytes.div_ceil(most)).map(|number| piece(number * most));
            is_chained |= step.bytes > most && matches!(step.verb, Verb::Crc | Verb::Move);
            // A move to a higher place begins at its end, or it would overwrite bytes that it still needs.
            if step.verb == Verb::Move && step.target > step.source {
                todo.extend(pieces.rev());
            } else {
                todo.extend(pieces);
            }
        }
        let (records, list) = (Arc::from([]), Arc::from([]));
        Flight {
            part,
            ran: Ran::default(),
            todo,
            sent: Vec::new(),
            records,
            list,
            is_chained,
            stuck: 0,
        }
    }
}

impl Flight {
    /// Lets the next piece of a checksum continue the one that has ended.
    fn chain(&mut self) {
        if let Some((next, 1..)) = self.todo.front_mut()
            && next.verb == Verb::Crc
        {
            next.value = self.ran.crc.unwrap_or_default().into();
        }
    }
}

/// The memory of a task whose handle is gone is freed with its last part, by code of the user's: a panic there is
/// nobody else's, who only looked at the engine for a task of his own.
fn harmless(end: impl FnOnce()) {
    let _panicked = catch_unwind(AssertUnwindSafe(end));
}

/// Brings in the pages behind a fault, so that the device finds them. Only memory of the step is touched, whatever the
/// device wrote.
fn touch(rest: &Step, completion: Completion) {
    let has_target = matches!(rest.verb, Verb::Copy | Verb::Move | Verb::Fill);
    let is_write = has_target && completion.status & BY_WRITE != 0;
    let start = if is_write { rest.target } else { rest.source };
    let fault = completion.fault as usize & !(PAGE - 1);
    let first = fault.saturating_sub(start.as_ptr() as usize);
    for at in (first..rest.bytes).step_by(PAGE).take(TOUCHED) {
        // SAFETY: inside the range of the step, which the flight keeps and no device works on now; a fill or checksum
        // has only one range, and both addresses point to it.
        unsafe {
            let byte = start.add(at).as_ptr();
            let value = byte.read_volatile();
            if is_write {
                byte.write_volatile(value);
            }
        }
    }
}

impl<P: Portal> Backend for Driver<P> {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn start(&self, part: Part) -> Result<(), (Part, Error)> {
        let mut flights = self.flights.lock();
        let room = self.room();
        let ended =
            if flights.len() >= room { self.harvest(&mut flights, false) } else { Vec::new() };
        let queued = flights.len();
        let is_taken = if self.limits.is_dedicated && queued >= room {
            Err(part)
        } else {
            let mut flight = self.flight(part);
            if self.send(&mut flight) {
                flights.push(flight);
                Ok(())
            } else {
                Err(flight.part)
            }
        };
        drop(flights);
        self.end(ended);
        is_taken.map_err(|part| (part, Error::Full { engine: self.name.to_string(), queued }))
    }

    fn progress(&self) {
        // Whoever has the lock looks at all flights.
        if let Some(mut flights) = self.flights.try_lock() {
            let ended = self.harvest(&mut flights, false);
            drop(flights);
            self.end(ended);
        }
    }

    fn is_polled(&self) -> bool {
        true
    }
}

impl<P: Portal> Drop for Driver<P> {
    fn drop(&mut self) {
        let mut flights = std::mem::take(self.flights.get_mut());
        let is_stopped = self.portal.stop();
        // What is submitted now would work behind the drain, on memory that is freed below.
        let ended = self.harvest(&mut flights, true);
        self.end(ended);
        for flight in flights {
            if is_stopped || flight.sent.is_empty() {
                harmless(|| flight.part.abandon(&self.name, "the queue was closed"));
            } else {
                // The device may still write there: better lost than freed.
                std::mem::forget(flight);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::range::{Buffer, Source};
    use crate::task::Task;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    /// A device of which the test is the hand: it answers when it is told, and with what it is told.
    #[derive(Default)]
    struct Puppet {
        has: Mutex<Vec<Descriptor>>,
        is_stopped: AtomicBool,
        was_used_after: AtomicBool,
    }

    impl Puppet {
        /// Answers everything, the descriptors of lists too.
        fn answer(&self, with: impl Fn(&Descriptor) -> Completion) {
            for descriptor in std::mem::take(&mut *self.has.lock()) {
                if descriptor.opcode() == 1 {
                    // SAFETY: a list of so many descriptors, which has not ended.
                    let list = unsafe {
                        let list = descriptor.first() as *const Descriptor;
                        std::slice::from_raw_parts(list, descriptor.size() as usize)
                    };
                    list.iter().for_each(|one| tell(one, with(one)));
                }
                tell(&descriptor, with(&descriptor));
            }
        }
    }

    fn tell(descriptor: &Descriptor, completion: Completion) {
        // SAFETY: a record of a descriptor that has not ended.
        unsafe { &*(descriptor.completion() as *const CompletionRecord) }.write(completion);
    }

    fn well(_: &Descriptor) -> Completion {
        Completion { status: SUCCESS, ..Completion::default() }
    }

    impl Portal for Arc<Puppet> {
        unsafe fn submit(&self, descriptor: &Descriptor) -> bool {
            self.was_used_after.fetch_or(self.is_stopped.load(SeqCst), SeqCst);
            self.has.lock().push(*descriptor);
            true
        }

        fn stop(&self) -> bool {
            self.answer(well);
            self.is_stopped.store(true, SeqCst);
            true
        }
    }

    fn engine(is_dedicated: bool) -> (Engine, Arc<Puppet>) {
        let puppet = Arc::new(Puppet::default());
        let limits = Limits {
            size: 4,
            is_dedicated,
            batch: 2,
            transfer_bytes: 1 << 20,
            block_on_fault: false,
        };
        (Engine::of(Driver::new("puppet", Arc::clone(&puppet), limits)), puppet)
    }

    fn copy(bytes: usize) -> Task {
        let source = Source::from((0..bytes).map(|n| n as u8).collect::<Vec<_>>());
        Task::copy(&source, Buffer::new(vec![0; bytes]), 0).unwrap()
    }

    /// What was left of a batch was submitted again by the closing driver, behind the drain, and its memory then freed
    /// under the device.
    #[test]
    fn a_closing_queue_submits_nothing_after_the_drain() {
        let (engine, puppet) = engine(false);
        let pieces: Vec<_> = (0..5).map(|n| (Source::from(vec![1; 10]), n * 10)).collect();
        drop(engine.submit(Task::gather(&pieces, Buffer::new(vec![0; 50])).unwrap()).unwrap());
        drop(engine);
        assert!(puppet.is_stopped.load(SeqCst) && !puppet.was_used_after.load(SeqCst));
    }

    /// Nobody answers what a full dedicated queue loses, the drain of a closing driver least of all.
    #[test]
    fn a_dedicated_queue_has_a_place_left_for_the_drain() {
        let (engine, puppet) = engine(true);
        let taken: Vec<_> = (0..10).filter_map(|_| engine.submit(copy(10)).ok()).collect();
        assert_eq!((taken.len(), puppet.has.lock().len()), (3, 3));
        puppet.answer(well);
        assert!(taken.into_iter().all(|handle| handle.wait().result.is_ok()));
    }

    /// A device that copies from the end says so with the fault, for any copy: the rest lies in front.
    #[test]
    fn a_copy_that_went_from_its_end_goes_on_in_front() {
        let (engine, puppet) = engine(false);
        let handle = engine.submit(copy(100)).unwrap();
        let start = puppet.has.lock()[0].second();
        let fault = start + 39;
        puppet.answer(|_| Completion {
            status: PAGE_FAULT | BY_WRITE,
            result: 1,
            done: 60,
            fault,
            crc: 0,
        });
        assert!(!handle.poll());
        let rest = puppet.has.lock()[0];
        assert_eq!((rest.second(), rest.size()), (start, 40));
        puppet.answer(well);
        assert_eq!(handle.wait().result.map(|report| report.bytes), Ok(100));
    }

    /// A comparison writes nothing, whatever a device says of its fault; the driver wrote to the source.
    #[test]
    fn only_targets_are_written_after_a_fault() {
        static CONSTANT: [u8; 100] = [7; 100];
        let (engine, puppet) = engine(false);
        let constant = Source::new(Arc::new(&CONSTANT[..]));
        let other = Source::from(vec![7; 100]);
        let handle = engine.submit(Task::compare(&other, &constant).unwrap()).unwrap();
        let fault = CONSTANT.as_ptr() as u64;
        puppet.answer(|_| Completion {
            status: PAGE_FAULT | BY_WRITE,
            fault,
            ..Completion::default()
        });
        assert!(!handle.poll(), "a write to a constant would have ended the process");
        puppet.answer(well);
        assert_eq!(handle.wait().result.map(|report| report.difference), Ok(None));
    }

    /// A checksum that faults behind its last byte has ended, with the sum that the record has.
    #[test]
    fn a_checksum_that_is_done_at_its_fault_is_reported() {
        let (engine, puppet) = engine(false);
        let handle = engine.submit(Task::crc(&Source::from(vec![7; 100])).unwrap()).unwrap();
        puppet.answer(|_| Completion {
            status: PAGE_FAULT,
            done: 100,
            crc: 0xabcd,
            ..Completion::default()
        });
        assert_eq!(handle.wait().result.map(|report| report.crc), Ok(Some(0xabcd)));
    }
}
