//! How a queue ends: what was done before its end is as durable as it ever was, and told so to whoever did it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_durable::Medium;
use terrace_durable::medium::Disk;
use terrace_memory::Budget;
use terrace_store::{Durability, Error, Popped, Queue, QueueOptions};

fn options() -> QueueOptions {
    QueueOptions {
        durability: Durability::Sync,
        capacity_bytes: Some(64 << 10),
        slot_bytes: Some(128),
        largest_bytes: 4096,
        ..QueueOptions::default()
    }
}

/// A disk whose syncs wait, or fail.
#[derive(Clone, Debug, Default)]
struct Slow(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    syncs: Mutex<()>,
    is_asked: AtomicBool,
    fails: AtomicBool,
}

impl Slow {
    /// Syncs wait until this is dropped.
    fn hold(&self) -> MutexGuard<'_, ()> {
        self.0.is_asked.store(false, SeqCst);
        self.0.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn await_sync(&self) {
        while !self.0.is_asked.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Disk for Slow {
    fn capacity_bytes(&self) -> u64 {
        2 << 20
    }
    fn write(&self, _: u64, _: &[u8], durable: bool) -> terrace_durable::Result<()> {
        if durable { self.sync() } else { Ok(()) }
    }
    fn sync(&self) -> terrace_durable::Result<()> {
        self.0.is_asked.store(true, SeqCst);
        drop(self.0.syncs.lock().unwrap_or_else(PoisonError::into_inner));
        if !self.0.fails.load(SeqCst) {
            return Ok(());
        }
        let (path, source) = ("disk".into(), std::io::Error::other("it is broken"));
        Err(terrace_durable::Error::Io { path, doing: "sync", source })
    }
    fn read(&self, _: u64, _: &mut [u8]) -> terrace_durable::Result<()> {
        Ok(())
    }
}

/// A pop, and then the removal of the queue that it emptied, before the pop was durable: the removal wrote it out, and
/// whoever popped was told that it failed, so the element was lost.
#[test]
fn a_pop_that_the_end_made_durable_has_not_failed() {
    type End = fn(&Queue) -> bool;
    let ends: [(&str, End); 2] = [
        ("removed", |queue| queue.give_up().expect("its end")),
        ("closed", |queue| queue.close().is_ok()),
    ];
    for (how, end) in ends {
        let slow = Slow::default();
        let medium = Medium::mirrored(Box::new(slow.clone()), true, 1).expect("a medium");
        let queue = Queue::on(medium, &options()).expect("a queue");
        queue.push(b"element").expect("push");
        let mut popped = Popped::new();
        let (taken, ticket) = queue.dequeue(1, &mut popped).expect("pop");
        assert_eq!(taken, 1);
        let held = slow.hold();
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| end(&queue));
            slow.await_sync();
            let told = scope.spawn(|| queue.commit(ticket));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!told.is_finished(), "{how}: {:?} before it is known", told.join());
            drop(held);
            assert!(ended.join().expect("no panic"), "{how}");
            told.join().expect("no panic").expect("the end made it durable");
        });
        // What comes later is refused.
        assert!(matches!(queue.push(b"more"), Err(Error::ReadOnly(_))), "{how}");
        assert_eq!(queue.was_given_up(), how == "removed");
    }
}

/// One whose end failed counted as removed: a name that is free, though a crash may bring its elements back.
#[test]
fn a_queue_whose_end_fails_has_stopped_and_says_why() {
    let disk = Slow::default();
    let medium = Medium::mirrored(Box::new(disk.clone()), true, 1).expect("a medium");
    let queue = Queue::on(medium, &options()).expect("a queue");
    queue.push(b"element").expect("push");
    let (_, ticket) = queue.dequeue(1, &mut Popped::new()).expect("pop");
    disk.0.fails.store(true, SeqCst);
    assert!(matches!(queue.give_up(), Err(Error::Medium(_))));
    assert!(!queue.was_given_up());
    for refused in [queue.commit(ticket), queue.push(b"more"), queue.sync()] {
        let why = refused.expect_err("it has stopped").to_string();
        assert!(why.contains("it is broken"), "{why}");
    }
    assert!(!queue.give_up().expect("it has ended"), "it is not known to be empty");
}

/// A budget that was lowered, or that maps had taken more of, kept a database with a queue from being opened.
#[test]
fn a_queue_that_is_there_is_opened_whatever_the_budget() {
    let dir = tempfile::tempdir().expect("directory");
    let queue = Queue::open(dir.path(), &options(), &Arc::new(Budget::new(1 << 30)));
    queue.expect("a queue").push(&[7; 3000]).expect("push");
    let spent = Arc::new(Budget::new(1000));
    let queue = Queue::open(dir.path(), &options(), &spent).expect("it was there");
    assert!(spent.used() > 1000, "it is counted");
    assert_eq!(queue.pop().expect("pop").as_deref(), Some(&[7; 3000][..]));
    queue.close().expect("close");
    drop(queue);
    assert_eq!(spent.used(), 0);
    // A new one is refused.
    let new = tempfile::tempdir().expect("directory");
    let refused = Queue::open(new.path(), &options(), &spent).expect_err("no memory");
    assert!(matches!(refused, Error::OutOfMemory { .. }));
}
