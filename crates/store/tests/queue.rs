//! A queue in a directory: what was acknowledged comes back, in order and once, for every durability and on
//! every kind of medium; what cannot be is refused by name.

mod damage;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use terrace_durable::{Medium, MediumSpec};
use terrace_memory::Budget;
use terrace_store::queue::Form;
use terrace_store::{Access, Domain, Durability, Error, Popped, Queue, QueueOptions};

const EVERY: [Durability; 3] =
    [Durability::Sync, Durability::Interval(Duration::from_millis(20)), Durability::None];

fn options(durability: Durability) -> QueueOptions {
    QueueOptions {
        durability,
        capacity_bytes: Some(64 << 10),
        slot_bytes: Some(128),
        largest_bytes: 4096,
        ..QueueOptions::default()
    }
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 30))
}

fn open(dir: &Path, options: &QueueOptions) -> Queue {
    Queue::open(dir, options, &budget()).expect("the queue")
}

fn element(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number * 37 % 700) as usize, number as u8);
    bytes
}

#[test]
fn a_queue_agrees_with_a_model_and_comes_back_from_an_orderly_end() {
    for domain in [Domain::PageCache, Domain::Eadr] {
        for durability in EVERY {
            let dir = tempfile::tempdir().expect("directory");
            let options = QueueOptions { domain, ..options(durability) };
            let mut model = VecDeque::new();
            for round in 0..3u64 {
                let queue = open(dir.path(), &options);
                assert_eq!(queue.len(), model.len() as u64, "{domain} {durability:?} {round}");
                for number in round * 1000..round * 1000 + 400 {
                    match queue.push(&element(number)) {
                        Ok(()) => model.push_back(element(number)),
                        Err(Error::QueueFull { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if number % 3 > 0 {
                        assert_eq!(queue.pop().expect("pop"), model.pop_front());
                    }
                }
                assert_eq!(queue.len(), model.len() as u64);
                queue.close().expect("close");
                assert!(matches!(queue.push(b"x"), Err(Error::ReadOnly(why)) if why == "closed"));
            }
            let queue = open(dir.path(), &options);
            let mut popped = Popped::new();
            while queue.pop_many(7, &mut popped).expect("pop") > 0 {}
            assert!(popped.iter().eq(model.iter().map(Vec::as_slice)), "{domain} {durability:?}");
            assert!(queue.is_empty());
        }
    }
}

/// A copy of the file is what a crash leaves at that instant, if everything written has been synced.
#[test]
fn elements_acknowledged_under_sync_are_in_the_file() {
    let (dir, copy) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    let options = options(Durability::Sync);
    let queue = open(dir.path(), &options);
    let look = |left: std::ops::Range<u64>| {
        std::fs::copy(dir.path().join("ring"), copy.path().join("ring")).expect("a copy");
        let found = open(copy.path(), &options);
        assert_eq!(found.recovery().elements, left.end - left.start);
        for number in left {
            assert_eq!(found.pop().expect("pop"), Some(element(number)));
        }
        assert_eq!(found.pop().expect("pop"), None);
    };
    (0..50).for_each(|number| queue.push(&element(number)).expect("push"));
    look(0..50);
    (0..20).for_each(|_| drop(queue.pop().expect("pop").expect("an element")));
    look(20..50);
}

#[test]
fn under_interval_a_crash_leaves_the_queue_as_it_was_at_the_last_checkpoint() {
    let (dir, copy) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    let options = options(Durability::Interval(Duration::from_secs(3600)));
    let queue = open(dir.path(), &options);
    (0..10).for_each(|number| queue.push(&element(number)).expect("push"));
    drop(queue.pop().expect("pop"));
    queue.sync().expect("sync");
    (10..20).for_each(|number| queue.push(&element(number)).expect("push"));
    (0..5).for_each(|_| drop(queue.pop().expect("pop")));
    std::fs::copy(dir.path().join("ring"), copy.path().join("ring")).expect("a copy");
    let found = open(copy.path(), &options);
    for number in 1..10 {
        assert_eq!(found.pop().expect("pop"), Some(element(number)));
    }
    assert_eq!(found.pop().expect("pop"), None);
}

#[test]
fn a_queue_whose_consumers_keep_up_costs_a_disk_its_tail() {
    let dir = tempfile::tempdir().expect("directory");
    let queue = open(dir.path(), &options(Durability::None));
    for number in 0..2_000 {
        queue.push(&element(number)).expect("push");
        assert_eq!(queue.pop().expect("pop"), Some(element(number)));
    }
    let (written, _) = queue.stats().written;
    let payload: u64 = (0..2_000).map(|number| element(number).len() as u64).sum();
    assert!(written < payload / 4, "{written} bytes written for {payload}");
}

#[test]
fn waiting_ends_with_an_element_with_room_or_with_the_time() {
    let dir = tempfile::tempdir().expect("directory");
    let queue = open(dir.path(), &options(Durability::None));
    let started = Instant::now();
    assert_eq!(queue.pop_wait(Some(Duration::from_millis(30))).expect("wait"), None);
    assert!(started.elapsed() >= Duration::from_millis(30));
    let waiting = queue.clone();
    let taker = std::thread::spawn(move || waiting.pop_wait(None).expect("wait"));
    std::thread::sleep(Duration::from_millis(20));
    queue.push(b"at last").expect("push");
    assert_eq!(taker.join().expect("a thread"), Some(b"at last".to_vec()));
    while queue.push(&[7; 1000]).is_ok() {}
    let soon = Some(Duration::from_millis(20));
    assert!(!queue.push_wait(&[8; 1000], soon).expect("wait"), "no room");
    let waiting = queue.clone();
    let giver = std::thread::spawn(move || waiting.push_wait(&[8; 1000], None).expect("wait"));
    std::thread::sleep(Duration::from_millis(20));
    drop(queue.pop().expect("pop"));
    assert!(giver.join().expect("a thread"));
}

#[test]
fn threads_share_syncs_and_each_element_goes_to_one() {
    let dir = tempfile::tempdir().expect("directory");
    let queue = open(dir.path(), &options(Durability::Sync));
    let (count, end) = (AtomicU64::new(0), Instant::now() + Duration::from_secs(60));
    let taken = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    while count.load(SeqCst) < 300 && Instant::now() < end {
                        let popped = queue.pop_wait(Some(Duration::from_millis(20))).expect("pop");
                        count.fetch_add(popped.iter().count() as u64, SeqCst);
                        mine.extend(popped);
                    }
                    mine
                })
            })
            .collect();
        for giver in 0..3u64 {
            let queue = &queue;
            scope.spawn(move || {
                for number in 0..100 {
                    let pushed = queue.push_wait(&element(giver * 1000 + number), None);
                    assert!(pushed.expect("push"));
                }
            });
        }
        takers.into_iter().flat_map(|taker| taker.join().expect("a thread")).collect::<Vec<_>>()
    });
    let mut numbers: Vec<u64> = taken
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes.first_chunk().expect("a number")))
        .collect();
    numbers.sort_unstable();
    let wanted: Vec<u64> = (0..3).flat_map(|giver| giver * 1000..giver * 1000 + 100).collect();
    assert_eq!(numbers, wanted);
}

#[test]
fn a_failed_write_stops_the_queue_and_is_reported() {
    let dir = tempfile::tempdir().expect("directory");
    let spec = MediumSpec {
        path: dir.path().join("ring"),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 1 << 20,
        access: Access::Write,
    };
    let medium = Medium::open(&spec).expect("a medium");
    let options = options(Durability::Sync);
    medium.inject_write_fault(6);
    let queue = Queue::on(medium, &options).expect("the queue");
    let refused = (0..20).map(|number| queue.push(&element(number))).find_map(Result::err);
    assert!(matches!(refused, Some(Error::Medium(_))), "{refused:?}");
    for _ in 0..2 {
        let after = queue.push(b"more").expect_err("stopped").to_string();
        assert!(after.contains("injected fault"), "{after}");
        assert!(matches!(queue.pop(), Err(Error::ReadOnly(_))));
        assert!(matches!(queue.close(), Err(Error::ReadOnly(_))), "a close that saved nothing");
    }
}

#[test]
fn invalid_options_are_refused_by_name() {
    let dir = tempfile::tempdir().expect("directory");
    let good = options(Durability::Sync);
    let queue = open(dir.path(), &good);
    let refused = queue.push(&[0; 4097]).expect_err("too large").to_string();
    assert_eq!(refused, "an element of 4097 bytes: this queue takes at most 4096 (`largest`)");
    let locked = Queue::open(dir.path(), &good, &budget()).expect_err("locked");
    assert!(matches!(locked, Error::LockedHere(_)));
    queue.close().expect("close");
    drop(queue);
    let cases = [
        (QueueOptions { slot_bytes: Some(100), ..good.clone() }, "slot: 100 is not a multiple"),
        (QueueOptions { slot_bytes: Some(256), ..good.clone() }, "slot: "),
        (QueueOptions { capacity_bytes: Some(1), ..good.clone() }, "capacity: 1 bytes are not"),
        (QueueOptions { capacity_bytes: Some(1 << 20), ..good.clone() }, "capacity: "),
        (
            QueueOptions { largest_bytes: 2 << 20, ..good.clone() },
            "largest: 2097152 bytes do not fit",
        ),
    ];
    for (options, begins) in cases {
        let refused =
            Queue::open(dir.path(), &options, &budget()).expect_err("refused").to_string();
        assert!(refused.starts_with(begins) && !refused.contains('\n'), "{refused}");
    }
    let tight = Arc::new(Budget::new(1000));
    let refused = Queue::open(&dir.path().join("new"), &good, &tight).expect_err("no memory");
    assert!(matches!(refused, Error::OutOfMemory { .. }));
    assert_eq!(tight.used(), 0);
    // Nothing said: as it was made.
    let as_made = QueueOptions { capacity_bytes: None, slot_bytes: None, ..good };
    assert_eq!(open(dir.path(), &as_made).stats().slot_bytes, 128);
}

/// Who waits without a limit hears of the end.
#[test]
fn closing_a_queue_wakes_its_waiters_with_an_error() {
    let dir = tempfile::tempdir().expect("directory");
    let options = options(Durability::Sync);
    let queue = Queue::open(dir.path(), &options, &budget()).expect("queue");
    let waiter = queue.clone();
    let thread = std::thread::spawn(move || waiter.pop_wait(None));
    std::thread::sleep(Duration::from_millis(300));
    queue.close().expect("close");
    let end = Instant::now() + Duration::from_secs(60);
    while !thread.is_finished() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(thread.is_finished(), "a minute after the close it still waits");
    thread.join().expect("no panic").expect_err("the queue is closed");
}

/// What was acknowledged while another handle closed is there, on memory where each push is durable.
#[test]
fn a_push_that_was_acknowledged_beside_a_close_is_there() {
    for (domain, durability) in
        [(Domain::Eadr, Durability::Sync), (Domain::PageCache, Durability::None)]
    {
        for round in 0..150u64 {
            let dir = tempfile::tempdir().expect("directory");
            let options = QueueOptions { domain, ..options(durability) };
            let queue = Queue::open(dir.path(), &options, &budget()).expect("queue");
            let pushed = AtomicU64::new(0);
            let started = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        started.store(true, SeqCst);
                        loop {
                            match queue.push(b"x") {
                                Ok(()) => _ = pushed.fetch_add(1, SeqCst),
                                Err(Error::QueueFull { .. }) => {}
                                Err(_) => return,
                            }
                        }
                    });
                }
                while !started.load(SeqCst) {
                    std::hint::spin_loop();
                }
                (0..round % 100).for_each(|_| std::hint::spin_loop());
                queue.close().expect("close");
            });
            drop(queue);
            let again = Queue::open(dir.path(), &options, &budget()).expect("again");
            assert_eq!(again.len(), pushed.load(SeqCst), "{domain} round {round}");
        }
    }
}

/// When the last handle is gone, the queue can be opened again.
#[test]
fn a_queue_whose_last_handle_is_gone_can_be_opened() {
    let dir = tempfile::tempdir().expect("directory");
    let options = options(Durability::Interval(Duration::from_millis(1)));
    let end = Instant::now() + Duration::from_secs(3);
    let mut round = 0u64;
    while Instant::now() < end {
        round += 1;
        let queue = Queue::open(dir.path(), &options, &budget());
        let queue = queue.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let stop = Instant::now() + Duration::from_micros(10_000 + round * 317 % 3000);
        while Instant::now() < stop {
            queue.push(b"x").expect("push");
            queue.pop().expect("pop");
        }
    }
}

/// Pushers that find the queue full write it out themselves, consumers commit, and all of it while the rule
/// changes under them: nobody waits for ever, and each element comes once, in its producer's order.
#[test]
fn durability_may_be_switched_under_load() {
    const PRODUCERS: u64 = 3;
    const EACH: u64 = 1500;
    let dir = tempfile::tempdir().expect("directory");
    let small = QueueOptions { capacity_bytes: Some(8 << 10), ..options(Durability::Sync) };
    let queue = open(dir.path(), &small);
    let (left, switches) = (AtomicU64::new(PRODUCERS * EACH), AtomicU64::new(0));
    let popped: Vec<Vec<u64>> = std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (queue, switches) = (&queue, &switches);
            scope.spawn(move || {
                for number in 0..EACH {
                    while number == EACH - 1 && switches.load(SeqCst) <= 10 {
                        std::thread::yield_now();
                    }
                    let name = (producer << 32 | number).to_le_bytes();
                    while let Err(Error::QueueFull { .. }) = queue.push(&name) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        scope.spawn(|| {
            for durability in EVERY.into_iter().cycle() {
                if left.load(SeqCst) == 0 {
                    break;
                }
                queue.set_durability(durability).expect("a switch");
                switches.fetch_add(1, SeqCst);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let consume = || {
            let mut mine = Vec::new();
            while left.load(SeqCst) > 0 {
                if let Some(element) = queue.pop().expect("pop") {
                    mine.push(u64::from_le_bytes(element.try_into().expect("a name")));
                    left.fetch_sub(1, SeqCst);
                }
            }
            mine
        };
        let consumers = [scope.spawn(consume), scope.spawn(consume)];
        consumers.into_iter().map(|consumer| consumer.join().expect("no panic")).collect()
    });
    for mine in &popped {
        for producer in 0..PRODUCERS {
            let of = mine.iter().filter(|name| *name >> 32 == producer);
            assert!(of.is_sorted(), "in the producer's order");
        }
    }
    let mut all: Vec<u64> = popped.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, PRODUCERS * EACH);
    drop(queue);
    assert!(open(dir.path(), &small).is_empty());
}

/// Elements that a queue has, and how its opening ends.
fn left_in(dir: &Path, options: &QueueOptions, numbers: std::ops::Range<u64>, orderly: bool) {
    let queue = open(dir, options);
    assert!(queue.is_empty(), "{}", queue.len());
    (numbers.start..numbers.end + 2).for_each(|n| queue.push(&element(n)).expect("push"));
    // Wrapped around or not, some slots are used again.
    for number in numbers.start..numbers.start + 2 {
        assert_eq!(queue.pop().expect("pop"), Some(element(number)));
    }
    if orderly { queue.close().expect("close") } else { queue.abandon() }
}

fn popped_from(queue: &Queue) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| queue.pop().expect("pop")).collect()
}

/// The form is no part of the file: whoever opens it in another one finds what was acknowledged, after an orderly
/// end and after a kill, or is told why not.
#[test]
fn each_form_reopens_what_another_left_or_refuses_it() {
    for (domain, durable) in
        [(Domain::Adr, [Form::Tx, Form::TxFree].as_slice()), (Domain::PageCache, &[Form::TxFree])]
    {
        let pairs = durable.iter().flat_map(|form| Form::ALL.map(|next| (*form, next)));
        for (number, (form, next)) in pairs.enumerate() {
            if next == Form::Tx && !durable.contains(&next) {
                continue;
            }
            for orderly in [true, false] {
                let dir = tempfile::tempdir().expect("directory");
                let first = QueueOptions { form, domain, ..options(Durability::Sync) };
                let second = QueueOptions { form: next, ..first.clone() };
                let numbers = 0..5 + number as u64;
                left_in(dir.path(), &first, numbers.clone(), orderly);
                if next == Form::Volatile {
                    let file = std::fs::read(dir.path().join("ring")).expect("the file");
                    let refused =
                        Queue::open(dir.path(), &second, &budget()).expect_err("elements");
                    let refused = refused.to_string();
                    assert!(
                        refused.contains("form: ") && refused.contains("drain it"),
                        "{refused}"
                    );
                    assert!(refused.contains(&format!("{} elements", numbers.end)), "{refused}");
                    assert!(std::fs::read(dir.path().join("ring")).expect("the file") == file);
                    // As it was for the form that it had.
                    assert_eq!(popped_from(&open(dir.path(), &first)).len() as u64, numbers.end);
                    assert!(open(dir.path(), &second).is_empty());
                    continue;
                }
                let queue = open(dir.path(), &second);
                let wanted: Vec<_> = (2..numbers.end + 2).map(element).collect();
                assert_eq!(queue.stats().form, next);
                assert_eq!(popped_from(&queue), wanted, "{domain}: {form} then {next}");
                // And back, with what the second has pushed since.
                drop(queue);
                left_in(dir.path(), &second, 100..103, orderly);
                assert_eq!(
                    popped_from(&open(dir.path(), &first)).len(),
                    3,
                    "{form}, {next}, {form}"
                );
            }
        }
    }
}

/// Nothing of it is written, so nothing of it comes back, whatever the durability; and the next form begins empty.
#[test]
fn a_volatile_queue_keeps_nothing_and_writes_nothing() {
    for domain in [Domain::PageCache, Domain::Adr] {
        for durability in EVERY {
            let dir = tempfile::tempdir().expect("directory");
            let volatile = QueueOptions { form: Form::Volatile, domain, ..options(durability) };
            drop(open(dir.path(), &volatile));
            let path = dir.path().join("ring");
            let shape = std::fs::read(&path).expect("the file");
            for next in [Form::Volatile, Form::TxFree] {
                let queue = open(dir.path(), &volatile);
                let mut model = VecDeque::new();
                for number in 0..600 {
                    match queue.push(&element(number)) {
                        Ok(()) => model.push_back(element(number)),
                        Err(Error::QueueFull { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if number % 3 > 0 {
                        assert_eq!(queue.pop().expect("pop"), model.pop_front());
                    }
                }
                assert!(!model.is_empty() && queue.len() == model.len() as u64);
                queue.set_note(2).and_then(|()| queue.sync()).expect("nothing to do");
                queue.set_durability(Durability::Sync).expect("nothing to do");
                queue.push(b"last").expect("push");
                assert_eq!(queue.note(), 2);
                assert_eq!((queue.stats().written, queue.stats().form), ((0, 0), Form::Volatile));
                queue.close().expect("close");
                drop(queue);
                assert!(
                    std::fs::read(&path).expect("the file") == shape,
                    "{domain} {durability:?}"
                );
                let queue = open(dir.path(), &QueueOptions { form: next, ..volatile.clone() });
                assert_eq!((queue.pop().expect("pop"), queue.note()), (None, 0));
            }
            // The file is as good as any.
            std::fs::write(&path, &shape).expect("as it was");
            let kept = QueueOptions { form: Form::TxFree, ..volatile.clone() };
            left_in(dir.path(), &kept, 0..4, true);
            assert_eq!(open(dir.path(), &kept).len(), 4);
        }
    }
}

#[test]
fn transactions_are_refused_where_the_order_of_stores_means_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let within = dir.path().join("jobs");
    let tx = QueueOptions { form: Form::Tx, ..options(Durability::Sync) };
    let refused = Queue::open(&within, &tx, &budget()).expect_err("a disk").to_string();
    assert!(refused.starts_with("form: form = \"tx\" does not go with domain = "), "{refused}");
    assert!(refused.contains("tx-free or volatile") && !refused.contains('\n'), "{refused}");
    assert!(refused.contains("jobs/ring is: page cache"), "{refused}");
    assert!(!within.exists(), "nothing was made");
    for domain in [Domain::Adr, Domain::Eadr] {
        let tx = QueueOptions { domain, ..tx.clone() };
        left_in(&within, &tx, 0..3, true);
        // Read apart from its memory a queue has no form to refuse.
        let salvage =
            QueueOptions { access: Access::Salvage, domain: Domain::PageCache, ..tx.clone() };
        assert_eq!(open(&within, &salvage).len(), 3);
        assert_eq!(popped_from(&open(&within, &tx)).len(), 3);
    }
}
