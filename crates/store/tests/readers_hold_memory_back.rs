//! What is freed serves nobody while a reader may look at it. A writer waits for readers, but not for one that stays:
//! a scan whose caller sleeps once held up every writer of its map for as long as it slept.

use crate::budget_is_held::{DESIGNS, directory, key, options};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use terrace_store::{Error, Kind, Map, ValueDesign, Wait, WhenFull};

/// Two seconds, and what a loaded machine takes beside.
const MOST: Duration = Duration::from_secs(6);

/// Runs `f` beside a reader that looks at `key` meanwhile.
fn beside_a_reader<R>(map: &Map, read: &[u8], f: impl FnOnce() -> R) -> R {
    let (begun, has_begun) = channel();
    let (over, is_over) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let found = map.get_with(read, |_| {
                begun.send(()).expect("somebody waits for it");
                let _ended = is_over.recv();
            });
            assert!(found.expect("a read").is_some());
        });
        has_begun.recv().expect("it reads");
        let result = f();
        drop(over);
        result
    })
}

/// Does `f` until it is refused; how long the longest took.
fn until_refused(mut f: impl FnMut(u64) -> Result<(), Error>) -> (Duration, Error) {
    let mut longest = Duration::ZERO;
    for n in 0.. {
        let begun = Instant::now();
        let done = f(n);
        longest = longest.max(begun.elapsed());
        match done {
            Ok(()) => {}
            // The collector has not run for a while, and does not know yet why there is no room.
            Err(Error::OutOfMemory { .. }) => std::thread::sleep(Duration::from_millis(1)),
            Err(refused) => return (longest, refused),
        }
    }
    unreachable!("numbers do not end")
}

fn writers_are_refused(design: (Kind, ValueDesign), when_full: WhenFull) {
    let what = format!("{design:?} {when_full:?}");
    let dir = directory();
    let map = Map::open(dir.path(), options(design, when_full)).expect("open");
    let value = [7; 1000];
    // What is read is the newest, which no eviction takes.
    let filled = 60_000;
    let keys = (0..filled).find(|n| map.put(&key(*n), &value).is_err()).unwrap_or(filled);
    map.put(&key(keys - 1), &value).or_else(|_| map.delete(&key(0)).map(drop)).expect("room");
    beside_a_reader(&map, &key(keys - 1), || {
        if when_full == WhenFull::Refuse {
            for gone in 0..keys / 2 {
                map.delete(&key(gone)).expect("deletes go on");
            }
        }
        let put = |n| map.put(&key(1_000_000 + n), &value);
        let (longest, refused) = until_refused(put);
        assert!(matches!(refused, Error::HeldByReaders { .. }), "{what}: {refused:?}");
        assert!(longest < MOST, "{what}: {longest:?}");
        // The next ones need not find that out again, unless the collector has not run for a while.
        let again = |round: u64| {
            let (longest, refused) =
                until_refused(|n| map.put(&key(2_000_000 + 10_000 * round + n), &value));
            assert!(matches!(refused, Error::HeldByReaders { .. }), "{what}: {refused:?}");
            longest
        };
        let shortest = (0..5).map(again).min().expect("five");
        assert!(shortest < Duration::from_secs(1), "{what}: {shortest:?}");
        // Whoever does not wait is told in the same time.
        let mut session = map.session();
        let (begun, mut since) = (Instant::now(), None);
        let refused = loop {
            session.set_wait(Wait::Never { since });
            match session.put(&key(3_000_000), &value, None) {
                Ok(()) => {}
                Err(Error::Busy { since: again }) => {
                    since = Some(again);
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Error::OutOfMemory { .. }) => std::thread::sleep(Duration::from_millis(1)),
                Err(other) => break other,
            }
            assert!(begun.elapsed() < MOST, "{what}: busy for ever");
        };
        assert!(matches!(refused, Error::HeldByReaders { .. }), "{what}: {refused:?}");
        let begun = Instant::now();
        for gone in keys / 2..keys / 2 + 10 {
            map.delete(&key(gone)).expect("deletes go on");
        }
        assert!(begun.elapsed() < MOST, "{what}: {:?}", begun.elapsed());
    });
    let begun = Instant::now();
    while let Err(refused) = map.put(&key(4_000_000), &value) {
        assert!(begun.elapsed() < MOST, "{what}: no room after the reader left: {refused:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

const CHILD: &str = "TERRACE_TEST_READER";

/// Each in a process of its own: a reader of one map keeps what others freed from being used again too.
#[test]
fn a_reader_that_stays_has_writers_refused_and_not_wait_for_ever() {
    let start = |form: usize| {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "readers_hold_memory_back::beside_a_reader_that_stays"])
            .env(CHILD, form.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("child")
    };
    for design in 0..DESIGNS.len() {
        // No more at a time: times are looked at.
        for child in [2 * design, 2 * design + 1].map(start) {
            let ended = child.wait_with_output().expect("child");
            let printed = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && printed.contains("1 passed"), "{printed}");
        }
    }
}

/// A child of the test above.
#[test]
fn beside_a_reader_that_stays() {
    let Ok(form) = std::env::var(CHILD) else { return };
    let form: usize = form.parse().expect("a number");
    let when_full = if form.is_multiple_of(2) { WhenFull::Refuse } else { WhenFull::Evict };
    writers_are_refused(DESIGNS[form / 2], when_full);
}
