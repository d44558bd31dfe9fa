//! Kill -9 in a loop: clients have blocks of transfers executed over the wire, the server dies at a random moment
//! and starts again.
//!
//! What must hold: the balances are those after the first so many blocks, in the order in which they were
//! acknowledged, each wholly or not at all; under `sync` no acknowledged block is missing. A block in flight at the
//! kill may have happened, one for each client.
//!
//! 12 cycles; `TERRACE_LONG=1` makes it 120. `TERRACE_SEED=N` repeats a run's choices.

use crate::common::{Served, cycles, seed};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use terrace_workload::random::Rng;

const CLIENTS: u64 = 2;
const ACCOUNTS: u64 = 50;
const BALANCE: i64 = 1_000;

/// From, to and amount of each order.
type Block = Vec<[u64; 3]>;

fn block(rng: &mut Rng) -> Block {
    let orders = 1 + rng.below(20);
    (0..orders).map(|_| [rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.below(300)]).collect()
}

fn apply(balances: &mut [i64], block: &Block) {
    for [from, to, amount] in block {
        if balances[*from as usize] >= *amount as i64 {
            balances[*from as usize] -= *amount as i64;
            balances[*to as usize] += *amount as i64;
        }
    }
}

/// Has blocks executed until the server is gone: those acknowledged, by which entry they are, and the one in flight.
fn trade(mut client: redis::Connection, mut rng: Rng) -> (BTreeMap<u64, Block>, Block) {
    let mut acknowledged = BTreeMap::new();
    loop {
        let block = block(&mut rng);
        let mut command = redis::cmd("LEDGER.EXEC");
        command.arg("bank");
        block.iter().flatten().for_each(|word| {
            command.arg(*word);
        });
        let done = command.query::<(u64, String, Vec<String>)>(&mut client);
        let Ok((entry, _, statuses)) = done else { return (acknowledged, block) };
        assert_eq!(statuses.len(), block.len());
        acknowledged.insert(entry, block);
    }
}

/// What the server says: entries, and all balances.
fn look(served: &Served) -> (u64, Vec<i64>) {
    let mut client = served.connect();
    let (entries, _): (u64, String) =
        redis::cmd("LEDGER.HASH").arg("bank").query(&mut client).expect("a ledger");
    let mut command = redis::cmd("LEDGER.BALANCE");
    command.arg("bank").arg((0..ACCOUNTS).collect::<Vec<_>>());
    (entries, command.query(&mut client).expect("accounts"))
}

/// What the clients know.
struct Told {
    /// Entries and balances when they began.
    before: (u64, Vec<i64>),
    acknowledged: BTreeMap<u64, Block>,
    in_flight: Vec<Block>,
}

impl Told {
    /// Whether `found` is what the first so many blocks come to; blocks in flight are in places nobody was told of.
    fn judge(&self, found: &(u64, Vec<i64>), is_synced: bool) -> Result<(), String> {
        let last = self.acknowledged.keys().last().copied().unwrap_or(self.before.0);
        if is_synced && found.0 < last {
            return Err(format!("lost: entry {last} was acknowledged, and {} are there", found.0));
        }
        if !self.comes_to(self.before.0, self.before.1.clone(), &self.in_flight, found) {
            return Err(format!("torn: no {} blocks come to these balances", found.0));
        }
        Ok(())
    }

    fn comes_to(
        &self,
        entry: u64,
        mut balances: Vec<i64>,
        unknown: &[Block],
        found: &(u64, Vec<i64>),
    ) -> bool {
        for entry in entry + 1..=found.0 {
            let Some(block) = self.acknowledged.get(&entry) else {
                return (0..unknown.len()).any(|which| {
                    let mut rest = unknown.to_vec();
                    let mut balances = balances.clone();
                    apply(&mut balances, &rest.remove(which));
                    self.comes_to(entry, balances, &rest, found)
                });
            };
            apply(&mut balances, block);
        }
        balances == found.1
    }
}

fn kill_loop(dir: &Path, arguments: &[&str], cycles: u64, seed: u64) -> Result<(), String> {
    let is_synced = !arguments.contains(&"interval");
    let mut rng = Rng::new(seed);
    let (mut executed, mut gone) = (0, 0);
    for cycle in 0..cycles {
        let served = Served::start(dir, arguments);
        if cycle == 0 {
            let mut command = redis::cmd("LEDGER.OPEN");
            command.arg("bank");
            (0..ACCOUNTS).for_each(|account| {
                command.arg(account).arg(BALANCE);
            });
            command.exec(&mut served.connect()).expect("new accounts");
            redis::cmd("SAVE").exec(&mut served.connect()).expect("saved");
        }
        let mut told =
            Told { before: look(&served), acknowledged: BTreeMap::new(), in_flight: Vec::new() };
        let alive = Duration::from_micros(20_000 + rng.below(150_000));
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let (client, rng) = (served.connect(), Rng::new(rng.bits()));
                    scope.spawn(move || trade(client, rng))
                })
                .collect();
            std::thread::sleep(alive);
            served.kill();
            for client in clients {
                let (acknowledged, in_flight) = client.join().expect("a client");
                told.acknowledged.extend(acknowledged);
                told.in_flight.push(in_flight);
            }
        });
        let served = Served::start(dir, arguments);
        let found = look(&served);
        told.judge(&found, is_synced)
            .map_err(|what| format!("cycle {cycle}, seed {seed}: {what}"))?;
        executed += told.acknowledged.len() as u64;
        let last = told.acknowledged.keys().last().copied().unwrap_or(0);
        gone += last.saturating_sub(found.0);
        if rng.one_in(2) { served.kill() } else { served.terminate() }
    }
    println!("{cycles} kills, seed {seed}: {executed} blocks acknowledged, {gone} of them gone");
    assert!(executed > cycles, "the clients hardly did anything: {executed} blocks");
    Ok(())
}

#[test]
fn acknowledged_blocks_survive_kill_9_under_sync() {
    let dir = tempfile::tempdir().expect("temporary directory");
    // A log so small that states are written all the time.
    let small = ["--durability", "sync", "--ledger", "bank.log=64 KiB"];
    kill_loop(dir.path(), &small, cycles(), seed(1)).expect("sound");
}

#[test]
fn a_prefix_of_the_blocks_survives_kill_9_under_interval() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let arguments = ["--durability", "interval", "--interval-ms", "20"];
    kill_loop(dir.path(), &arguments, cycles(), seed(2)).expect("sound");
}

#[test]
fn acknowledged_blocks_survive_kill_9_on_a_declared_medium() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        eprintln!("left out: no tmpfs at /dev/shm");
        return;
    }
    let dir = tempfile::tempdir_in(shm).expect("temporary directory");
    kill_loop(dir.path(), &["--domain", "adr"], cycles(), seed(3)).expect("sound");
}

/// A canary for the judge: a process that is killed leaves what it wrote to the page cache, so the loops above
/// lose nothing however early they are told.
#[test]
fn the_judge_notices_half_a_block_and_one_that_is_gone() {
    let whole = vec![[0, 1, 5], [1, 2, 5]];
    let told = Told {
        before: (1, vec![10, 10, 10]),
        acknowledged: BTreeMap::from([(2, whole.clone())]),
        in_flight: Vec::new(),
    };
    assert_eq!(told.judge(&(2, vec![5, 10, 15]), true), Ok(()));
    let torn = told.judge(&(2, vec![5, 15, 10]), true).expect_err("half of it");
    assert!(torn.contains("torn"), "{torn}");
    let gone = told.judge(&(1, vec![10, 10, 10]), true).expect_err("none of it");
    assert!(gone.contains("lost"), "{gone}");
}
