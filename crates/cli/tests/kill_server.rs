//! Kill -9 in a loop: recording clients write and delete over the wire, the server dies at a
//! random moment, starts again, and everything is looked up.
//!
//! What must hold under `sync` and `interval`: an acknowledged write is there or was followed by another, a
//! deleted key is not back, a batch is there entirely or not at all, and a walk over all keys
//! meets each exactly once. Writes in flight at the kill may be there or not.
//!
//! A killed process leaves the page cache to the kernel, so this is the test of recovery and of
//! acknowledging in time, not of the medium; power loss is the crash explorer's matter.
//!
//! 20 cycles; `TERRACE_LONG=1` makes it 200. `TERRACE_SEED=N` repeats a run's choices.

use crate::common::Served;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_workload::Failure;
use terrace_workload::crash::{
    Ledger, Promise, Recovered, Script, SharedLedger, Writer, drive, verify,
};
use terrace_workload::random::Rng;

const ACK: Promise = Promise::OnAcknowledge;
const CLIENTS: u64 = 4;
const KEYS_PER_CLIENT: u64 = 400;

struct Client(redis::Connection);

impl Writer for Client {
    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failure> {
        Ok(redis::cmd("SET").arg(name).arg(value).exec(&mut self.0)?)
    }

    fn delete(&mut self, name: &[u8]) -> Result<(), Failure> {
        Ok(redis::cmd("DEL").arg(name).exec(&mut self.0)?)
    }

    fn sync(&mut self) -> Result<(), Failure> {
        Ok(redis::cmd("SAVE").exec(&mut self.0)?)
    }

    fn put_all(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), Failure> {
        let mut command = redis::cmd("MSET");
        for (name, value) in pairs {
            command.arg(*name).arg(*value);
        }
        Ok(command.exec(&mut self.0)?)
    }
}

impl Recovered for Client {
    fn get(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(redis::cmd("GET").arg(name).query(&mut self.0)?)
    }

    fn walk(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool, Failure> {
        let mut cursor = 0u64;
        loop {
            let (next, names): (u64, Vec<Vec<u8>>) =
                redis::cmd("SCAN").arg(cursor).arg("COUNT").arg(500).query(&mut self.0)?;
            for name in names {
                if let Some(value) = self.get(&name)? {
                    each(&name, &value);
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(true);
            }
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Kills a server `cycles` times on `dir` and verifies after each; what was violated is an error.
fn kill_loop(
    dir: &Path,
    arguments: &[&str],
    (promise, cycles, seed): (Promise, u64, u64),
) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut ledger = Ledger::new(promise);
    let sync_one_in = if promise == Promise::OnSync { 50 } else { 0 };
    // In slabs each item of a batch is durable by itself: there is no whole to verify.
    let batch_one_in = if arguments.contains(&"slab") { 0 } else { 10 };
    let (mut acknowledged, mut in_flight) = (0, 0);
    for cycle in 0..cycles {
        let served = Served::start(dir, arguments);
        let shared = SharedLedger::new(ledger);
        let stop = AtomicBool::new(false);
        let alive = Duration::from_micros(10_000 + rng.below(150_000));
        let scripts: Vec<Script> = (0..CLIENTS)
            .map(|client| Script {
                first_key: client * KEYS_PER_CLIENT,
                keys: KEYS_PER_CLIENT,
                batch_one_in,
                sync_one_in,
                ..Script::new(rng.bits())
            })
            .collect();
        let connections: Vec<_> = scripts.iter().map(|_| Client(served.connect())).collect();
        std::thread::scope(|scope| {
            let clients: Vec<_> = connections
                .into_iter()
                .zip(scripts)
                .map(|(mut client, mut script)| {
                    let (shared, stop) = (&shared, &stop);
                    scope.spawn(move || drive(shared, &mut client, &mut script, stop))
                })
                .collect();
            std::thread::sleep(alive);
            served.kill();
            stop.store(true, Ordering::Relaxed);
            for client in clients {
                acknowledged += client.join().expect("a client").acknowledged;
            }
        });
        ledger = shared.into_ledger();
        let served = Served::start(dir, arguments);
        let report = verify(&mut ledger, &mut Client(served.connect())).expect("asked");
        assert!(report.walked);
        if !report.is_sound() {
            return Err(format!("cycle {cycle}, TERRACE_SEED={seed}: {report}"));
        }
        in_flight += report.in_flight;
        // Half of the time the verified server is the one that dies next, else it ends in order.
        if rng.one_in(2) { served.kill() } else { served.terminate() }
    }
    println!(
        "{cycles} kills, seed {seed}: {acknowledged} acknowledged writes kept, {in_flight} were in \
         flight"
    );
    assert!(acknowledged > cycles, "the clients hardly wrote anything");
    Ok(())
}

fn cycles() -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { 200 } else { 20 }
}

#[test]
fn acknowledged_writes_survive_kill_9_under_sync_with_logs() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let seed = number("TERRACE_SEED").unwrap_or(1);
    kill_loop(dir.path(), &["--durability", "sync", "--values", "log"], (ACK, cycles(), seed))
        .expect("sound");
}

/// On a declared medium, which is byte-addressable memory to the server.
fn kill_loop_in_memory(settings: &str, seed: u64) {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        eprintln!("left out: no tmpfs at /dev/shm");
        return;
    }
    let dir = tempfile::tempdir_in(shm).expect("temporary directory");
    let arguments: Vec<_> =
        "--durability sync --domain adr".split(' ').chain(settings.split(' ')).collect();
    let seed = number("TERRACE_SEED").unwrap_or(seed);
    kill_loop(dir.path(), &arguments, (ACK, cycles(), seed)).expect("sound");
}

#[test]
fn acknowledged_writes_survive_kill_9_with_slabs() {
    kill_loop_in_memory("--values slab --persist values", 2);
}

#[test]
fn acknowledged_writes_survive_kill_9_with_slabs_and_a_persistent_index() {
    kill_loop_in_memory("--values slab --persist index", 5);
}

#[test]
fn acknowledged_writes_survive_kill_9_with_logs_on_a_declared_medium() {
    kill_loop_in_memory("--values log --persist values", 6);
}

#[test]
fn acknowledged_writes_survive_kill_9_with_logs_and_a_persistent_index() {
    kill_loop_in_memory("--values log --persist index", 7);
}

#[test]
fn acknowledged_writes_survive_kill_9_with_slabs_by_sections() {
    kill_loop_in_memory("--values slab --persist full", 8);
}

#[test]
fn acknowledged_writes_survive_kill_9_with_logs_by_sections() {
    kill_loop_in_memory("--values log --persist full", 9);
}

#[test]
fn acknowledged_writes_survive_kill_9_in_an_ordered_map() {
    kill_loop_in_memory("--kind ordered --values log --persist values", 10);
}

#[test]
fn acknowledged_writes_survive_kill_9_with_logs_and_a_persistent_tree() {
    kill_loop_in_memory("--kind ordered --values log --persist index", 11);
}

// Other forms of trees are killed in the store's own tests: no setting of the server asks for them.
#[test]
fn acknowledged_writes_survive_kill_9_with_slabs_and_a_persistent_tree() {
    kill_loop_in_memory("--kind ordered --values slab --persist index", 12);
}

/// It used to lose up to a second of them: a killed process had them in memory of its own alone.
fn kill_loop_under_interval(settings: &[&str], seed: u64) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let seed = number("TERRACE_SEED").unwrap_or(seed);
    // No checkpoint comes within the test: nothing but the redo log keeps what is acknowledged.
    let arguments = [&["--durability", "interval", "--interval-ms", "3600000"], settings].concat();
    kill_loop(dir.path(), &arguments, (ACK, cycles(), seed)).expect("sound");
}

#[test]
fn acknowledged_writes_survive_kill_9_under_interval() {
    kill_loop_under_interval(&[], 13);
}

#[test]
fn acknowledged_writes_survive_kill_9_under_interval_in_an_ordered_map() {
    kill_loop_under_interval(&["--kind", "ordered"], 14);
}

/// As the server is started without any setting: checkpoints come and go.
#[test]
fn acknowledged_writes_survive_kill_9_by_default() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let seed = number("TERRACE_SEED").unwrap_or(15);
    kill_loop(dir.path(), &["--interval-ms", "30"], (ACK, cycles(), seed)).expect("sound");
}

/// Without a promise, what was saved is kept all the same.
#[test]
fn saved_writes_survive_kill_9_without_durability() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let seed = number("TERRACE_SEED").unwrap_or(4);
    let arguments = ["--durability", "none"];
    kill_loop(dir.path(), &arguments, (Promise::OnSync, cycles(), seed)).expect("sound");
}

/// A canary: without durability, and so without a redo log, writes are lost, and an oracle that does not see it sees
/// nothing.
#[test]
fn the_oracle_notices_what_is_lost_without_durability() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let found = kill_loop(dir.path(), &["--durability", "none"], (ACK, 10, 3)).expect_err("losses");
    assert!(found.contains("violations"), "{found}");
}

#[test]
fn an_orderly_end_loses_nothing_under_any_durability() {
    for durability in ["sync", "interval", "none"] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let arguments = ["--durability", durability];
        let served = Served::start(dir.path(), &arguments);
        let mut connection = served.connect();
        for key in 0..2000 {
            redis::cmd("SET").arg(key).arg(key * 7).exec(&mut connection).expect("set");
        }
        drop(connection);
        served.terminate();
        let served = Served::start(dir.path(), &arguments);
        let mut connection = served.connect();
        let size: u64 = redis::cmd("DBSIZE").query(&mut connection).expect("size");
        assert_eq!(size, 2000, "{durability}");
        let value: u64 = redis::cmd("GET").arg(1999).query(&mut connection).expect("get");
        assert_eq!(value, 1999 * 7);
    }
}
