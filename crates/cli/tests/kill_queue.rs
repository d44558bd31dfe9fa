//! Kill -9 in a loop: clients push to a queue and pop from it over the wire, the server dies at a random moment,
//! starts again, and the queue is drained.
//!
//! What must hold: an element whose push was acknowledged was popped once or is there; none whose pop was
//! acknowledged comes back; what is there is in its producer's order. A pop in flight at the kill may have taken
//! an element with it, one for each consumer; a push in flight may have happened or not.
//!
//! 12 cycles; `TERRACE_LONG=1` makes it 120. `TERRACE_SEED=N` repeats a run's choices.

use crate::common::{Served, cycles, seed};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use terrace_workload::random::Rng;

const PRODUCERS: u64 = 3;
const CONSUMERS: usize = 2;
/// Seconds a consumer waits for an element.
const PATIENCE: &str = "0.02";

/// An element is its producer and its number, and some more that tells whether it is whole.
fn element(producer: u64, number: u64) -> String {
    format!("{producer}:{number}:{}", "x".repeat((number * 31 % 900) as usize))
}

fn parsed(text: &str) -> (u64, u64) {
    let mut parts = text.split(':');
    let mut number = || parts.next().and_then(|part| part.parse().ok()).expect("a number");
    let (producer, number) = (number(), number());
    assert_eq!(text, element(producer, number), "an element is whole");
    (producer, number)
}

/// Pushes until the server is gone: the numbers acknowledged, and the one in flight.
fn produce(mut client: redis::Connection, producer: u64, first: u64) -> (Vec<u64>, u64) {
    let mut acknowledged = Vec::new();
    for number in first.. {
        let pushed =
            redis::cmd("LPUSH").arg("jobs").arg(element(producer, number)).exec(&mut client);
        match pushed {
            Ok(()) => acknowledged.push(number),
            // Full: the consumers will make room.
            Err(error) if error.code() == Some("OOM") => std::thread::yield_now(),
            Err(_) => return (acknowledged, number),
        }
    }
    unreachable!("the server is killed")
}

/// Pops until the server is gone.
fn consume(mut client: redis::Connection) -> Vec<(u64, u64)> {
    let mut taken = Vec::new();
    let mut pop = || redis::cmd("BRPOP").arg("jobs").arg(PATIENCE).query(&mut client);
    while let Ok(found) = pop() {
        let found: Option<(String, String)> = found;
        taken.extend(found.map(|(_, element)| parsed(&element)));
    }
    taken
}

fn drain(served: &Served) -> Vec<(u64, u64)> {
    let mut client = served.connect();
    let mut pop = || redis::cmd("RPOP").arg("jobs").query::<Option<String>>(&mut client);
    std::iter::from_fn(|| pop().expect("asked")).map(|element| parsed(&element)).collect()
}

/// What one cycle came to.
#[derive(Default)]
struct Cycle {
    pushed: BTreeSet<(u64, u64)>,
    in_flight: BTreeSet<(u64, u64)>,
    popped: Vec<(u64, u64)>,
    left: Vec<(u64, u64)>,
}

impl Cycle {
    fn judge(&self) -> Result<u64, String> {
        let mut seen = BTreeSet::new();
        for element in self.popped.iter().chain(&self.left) {
            if !seen.insert(*element) {
                return Err(format!("{element:?} came twice"));
            }
            if !self.pushed.contains(element) && !self.in_flight.contains(element) {
                return Err(format!("{element:?} was never pushed"));
            }
        }
        let lost: Vec<_> = self.pushed.difference(&seen).collect();
        if lost.len() > CONSUMERS {
            return Err(format!("{} elements lost: {lost:?}", lost.len()));
        }
        let mut last = BTreeMap::new();
        for (producer, number) in &self.left {
            if last.insert(producer, number).is_some_and(|before| before >= number) {
                return Err(format!("{producer}:{number} is out of order"));
            }
        }
        Ok(lost.len() as u64)
    }
}

/// Kills servers that were started with the first arguments, and starts them again with the second.
fn kill_loop(
    dir: &Path,
    [before, after]: [&[&str]; 2],
    cycles: u64,
    seed: u64,
) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let (mut pushed, mut popped, mut left, mut in_flight) = (0, 0, 0, 0);
    for cycle in 0..cycles {
        let served = Served::start(dir, before);
        let first = cycle * 1_000_000;
        let alive = Duration::from_micros(20_000 + rng.below(150_000));
        let mut came = Cycle::default();
        std::thread::scope(|scope| {
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let client = served.connect();
                    scope.spawn(move || (producer, produce(client, producer, first)))
                })
                .collect();
            let consumers: Vec<_> = (0..CONSUMERS)
                .map(|_| {
                    let client = served.connect();
                    scope.spawn(move || consume(client))
                })
                .collect();
            std::thread::sleep(alive);
            served.kill();
            for producer in producers {
                let (producer, (numbers, last)) = producer.join().expect("a producer");
                came.pushed.extend(numbers.into_iter().map(|number| (producer, number)));
                came.in_flight.insert((producer, last));
            }
            for consumer in consumers {
                came.popped.extend(consumer.join().expect("a consumer"));
            }
        });
        let served = Served::start(dir, after);
        came.left = drain(&served);
        let lost = came.judge().map_err(|what| format!("cycle {cycle}, seed {seed}: {what}"))?;
        pushed += came.pushed.len();
        popped += came.popped.len();
        left += came.left.len();
        in_flight += lost;
        if rng.one_in(2) { served.kill() } else { served.terminate() }
    }
    println!(
        "{cycles} kills, seed {seed}: {pushed} pushes acknowledged, {popped} pops, {left} left and \
         drained, {in_flight} taken by pops in flight"
    );
    let few = pushed.min(popped) as u64;
    assert!(few > cycles, "the clients hardly did anything: {pushed} pushes, {popped} pops");
    Ok(())
}

#[test]
fn acknowledged_elements_survive_kill_9_under_sync() {
    let dir = tempfile::tempdir().expect("temporary directory");
    kill_loop(dir.path(), [&["--durability", "sync"]; 2], cycles(), seed(1)).expect("sound");
}

#[test]
fn acknowledged_elements_survive_kill_9_on_a_declared_medium() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        eprintln!("left out: no tmpfs at /dev/shm");
        return;
    }
    let dir = tempfile::tempdir_in(shm).expect("temporary directory");
    let small = ["--domain", "adr", "--queue", "jobs.capacity=256 KiB"];
    kill_loop(dir.path(), [&small; 2], cycles(), seed(2)).expect("sound");
}

/// The same where every push and pop is a transaction, and where the form changes from start to start.
#[test]
fn acknowledged_elements_survive_kill_9_in_the_form_tx() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        eprintln!("left out: no tmpfs at /dev/shm");
        return;
    }
    let dir = tempfile::tempdir_in(shm).expect("temporary directory");
    let of = |form| ["--domain", "adr", "--queue", "jobs.capacity=256 KiB", "--queue", form];
    let (tx, tx_free) = (of("jobs.form=tx"), of("jobs.form=tx-free"));
    kill_loop(dir.path(), [&tx, &tx], cycles(), seed(4)).expect("sound");
    kill_loop(dir.path(), [&tx, &tx_free], cycles() / 2, seed(5)).expect("sound");
    kill_loop(dir.path(), [&tx_free, &tx], cycles() / 2, seed(6)).expect("sound");
}

/// A canary of another kind: what is volatile is lost, however durable the rest is.
#[test]
fn the_judge_notices_what_a_volatile_queue_loses() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let volatile = ["--durability", "sync", "--queue", "jobs.form=volatile"];
    let found = kill_loop(dir.path(), [&volatile, &volatile], 10, 7).expect_err("losses");
    assert!(found.contains("lost"), "{found}");
}

/// A canary: without durability elements are lost or come twice, and a judge that does not see it sees nothing.
#[test]
fn the_judge_notices_what_is_lost_without_durability() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let found = kill_loop(dir.path(), [&["--durability", "none"]; 2], 10, 3).expect_err("losses");
    assert!(found.contains("lost") || found.contains("twice"), "{found}");
}
