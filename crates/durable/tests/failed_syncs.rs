//! What a write or a sync that failed may have lost is acknowledged by nobody: the system reports it once, to whichever
//! thread comes first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use terrace_durable::item::NewItem;
use terrace_durable::logs::Logs;
use terrace_durable::medium::Disk;
use terrace_durable::sections::Changes;
use terrace_durable::superblock::Rule;
use terrace_durable::values::{Room, Ticket};
use terrace_durable::{Error, Journal, JournalShape, Medium, Result};
use terrace_memory::Budget;

const CAPACITY: u64 = 64 << 20;
/// How long a thread waits for another. If that is not enough, the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a disk is to do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    /// Of two threads that make something durable at the same time, the first is told that it failed; the other one
    /// only goes on when the first has been told.
    FirstSync,
    /// The next write that is not durable by itself, when somebody has had time to wait for who writes.
    NextWrite,
}

#[derive(Debug)]
struct Plan {
    fails: Mutex<Option<Fails>>,
    /// Threads that came to what fails, and that were answered.
    came: AtomicUsize,
    answered: AtomicUsize,
    /// A thread waited in vain. The disk does not panic then: others may be waiting for the thread that came to it.
    is_late: AtomicBool,
}

#[derive(Clone, Debug)]
struct Broken(Arc<Plan>);

fn fault() -> Error {
    let source = std::io::Error::other("it lost what it had");
    Error::Io { path: "disk".into(), doing: "sync", source }
}

/// Waits until `count` is at least `least`. Says whether it came to that.
fn reaches(count: &AtomicUsize, least: usize) -> bool {
    let start = Instant::now();
    while count.load(SeqCst) < least {
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

impl Broken {
    fn new() -> Broken {
        let (fails, is_late) = (Mutex::new(None), AtomicBool::new(false));
        let [came, answered] = [0, 0].map(AtomicUsize::new);
        Broken(Arc::new(Plan { fails, came, answered, is_late }))
    }

    fn fail(&self, fails: Fails) {
        *self.0.fails.lock().expect("no panic") = Some(fails);
    }

    fn is_to_fail(&self, fails: Fails) -> bool {
        *self.0.fails.lock().expect("no panic") == Some(fails)
    }
}

impl Disk for Broken {
    fn capacity_bytes(&self) -> u64 {
        CAPACITY
    }

    fn write(&self, _: u64, _: &[u8], durable: bool) -> Result<()> {
        if durable {
            return self.sync();
        }
        if self.is_to_fail(Fails::NextWrite) {
            *self.0.fails.lock().expect("no panic") = None;
            self.0.came.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_millis(100));
            return Err(fault());
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        if !self.is_to_fail(Fails::FirstSync) {
            return Ok(());
        }
        let number = self.0.came.fetch_add(1, SeqCst);
        let came = reaches(&self.0.came, 2);
        let answered = number == 0 || reaches(&self.0.answered, 1);
        if !came || !answered {
            self.0.is_late.store(true, SeqCst);
        }
        if number == 0 { Err(fault()) } else { Ok(()) }
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

fn logs(rule: Rule) -> (Broken, Logs) {
    let broken = Broken::new();
    let medium = Medium::mirrored(Box::new(broken.clone()), true, 1).expect("a medium");
    let logs = Logs::open(medium, 2, &Arc::new(Budget::new(CAPACITY))).expect("head");
    logs.recover(1, &|_, _, _| {}).expect("a new disk");
    logs.set_rule(rule).expect("rule");
    (broken, logs)
}

fn put(logs: &Logs, writer: usize, bytes: usize) -> Ticket {
    let value = vec![7; bytes];
    let new =
        NewItem { key: b"key", value: &value, version: 1, expires_at_ms: None, tombstone: false };
    let mut appender = logs.appender(writer, new.item_bytes(), Room::Ordinary).expect("room");
    appender.append(&new, &mut Changes::new());
    appender.ticket()
}

/// Both call `sync` at the same time: none of them is told that all is well.
fn neither_succeeds(broken: &Broken, syncs: [&(dyn Fn() -> Result<()> + Sync); 2]) {
    broken.fail(Fails::FirstSync);
    thread::scope(|scope| {
        let threads = syncs.map(|sync| {
            scope.spawn(move || {
                let done = sync();
                broken.0.answered.fetch_add(1, SeqCst);
                done
            })
        });
        for thread in threads {
            thread.join().expect("no panic").expect_err("what the other's sync lost");
        }
    });
    assert!(
        !broken.0.is_late.load(SeqCst),
        "one waited in vain for the other's sync or its answer"
    );
}

#[test]
fn a_commit_does_not_count_what_the_sync_of_another_writer_lost() {
    let (broken, logs) = logs(Rule::All);
    let [first, second] = [1, 2].map(|writer| put(&logs, writer, 100));
    neither_succeeds(&broken, [&|| logs.commit(first), &|| logs.commit(second)]);
}

#[test]
fn a_journal_does_not_count_what_another_sync_lost() {
    let broken = Broken::new();
    let medium = Medium::mirrored(Box::new(broken.clone()), true, 1).expect("a medium");
    let shape = JournalShape { kind: [1; 8], state_bytes: 4096, log_bytes: 1 << 20, words: [0; 8] };
    let mut journal = Journal::create(medium, shape, [0; 8], |_| {}).expect("a journal");
    journal.append(&[b"record"]).expect("room");
    let syncer = journal.syncer();
    neither_succeeds(&broken, [&|| syncer.sync(), &|| syncer.sync()]);
}

/// A checkpoint that waits until the log is written counts on that.
#[test]
fn a_checkpoint_does_not_count_what_was_not_written() {
    let (broken, logs) = logs(Rule::Bounded);
    put(&logs, 1, 3 << 20);
    put(&logs, 1, 3 << 20);
    broken.fail(Fails::NextWrite);
    thread::scope(|scope| {
        let written = scope.spawn(|| logs.write_sealed(0));
        assert!(reaches(&broken.0.came, 1), "the log is not written");
        let flushed = scope.spawn(|| logs.flush_all());
        written.join().expect("no panic").expect_err("the log that was not written");
        flushed.join().expect("no panic").expect_err("the checkpoint of that log");
    });
    logs.flush_all().expect_err("and none after it");
}
