//! Kill -9 of a process that writes to a map of its own, again and again on one directory: every
//! acknowledged write is there, no deleted key is back, and no slot has two owners.
//!
//! The process is this test binary, started anew with `TERRACE_KILL_DIR`. What it asks for and what
//! is acknowledged it notes in a journal that outlives it, before and after each call.
//!
//! 10 cycles; `TERRACE_LONG=1` makes it 200. `TERRACE_SEED=N` repeats a run's choices.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use terrace_durable::slabs::Slabs;
use terrace_durable::{Access, Medium, MediumSpec};
use terrace_memory::Budget;
use terrace_store::laboratory::{Laboratory, LeafForm, TreeForm};
use terrace_store::{
    Domain, Durability, Kind, Map, MapOptions, RecoveryProcedure, Session, ValueDesign,
};
use terrace_workload::Failure;
use terrace_workload::crash::{Journal, Promise, Recovered, Script, Writer, drive, verify};
use terrace_workload::random::Rng;

const CLIENTS: u64 = 3;
const KEYS_PER_CLIENT: u64 = 300;

fn options(place: &str) -> MapOptions {
    let (values, domain, tree) = match place {
        "log-block" | "log-block-interval" | "log-block-hour" | "log-block-switch" => {
            (ValueDesign::Log, Domain::PageCache, None)
        }
        "log-adr" | "log-adr-hour" => (ValueDesign::Log, Domain::Adr, None),
        "slab-adr" | "slab-adr-hour" => (ValueDesign::Slab, Domain::Adr, None),
        "log-tree" => (ValueDesign::Log, Domain::Adr, Some(LeafForm::FastFair.into())),
        "slab-tree" => (ValueDesign::Slab, Domain::Adr, Some(LeafForm::PersistentUnsorted.into())),
        "log-ls-tree" => (ValueDesign::Log, Domain::Adr, Some(TreeForm::Logs)),
        "slab-ls-tree" => (ValueDesign::Slab, Domain::Adr, Some(TreeForm::Logs)),
        other => panic!("no place {other}"),
    };
    MapOptions {
        durability: match place.rsplit_once('-') {
            // Checkpoints come and go.
            Some((_, "interval")) => Durability::Interval(Duration::from_millis(10)),
            // None comes in time.
            Some((_, "hour" | "switch")) => Durability::Interval(Duration::from_secs(3600)),
            _ => Durability::Sync,
        },
        values,
        domain,
        // With a tree that is kept.
        kind: if tree.is_some() { Kind::Ordered } else { Kind::Hash },
        laboratory: Laboratory { tree, ..Laboratory::default() },
        memory_budget_bytes: 256 << 20,
        ..MapOptions::default()
    }
}

struct Client {
    session: Session,
    /// Only logs keep batches whole.
    batches: bool,
}

impl Writer for Client {
    fn put(&mut self, name: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.session.put(name, value, None)?;
        Ok(self.session.commit()?)
    }

    fn delete(&mut self, name: &[u8]) -> Result<(), Failure> {
        self.session.delete(name)?;
        Ok(self.session.commit()?)
    }

    fn put_all(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), Failure> {
        assert!(self.batches);
        Ok(self.session.map().multi_put(pairs)?)
    }
}

struct Reader(Map);

impl Recovered for Reader {
    fn get(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.0.get(name)?)
    }

    fn walk(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool, Failure> {
        let mut cursor = 0;
        loop {
            cursor = self.0.scan(cursor, 500, |name, value| each(name, value.bytes))?;
            if cursor == 0 {
                return Ok(true);
            }
        }
    }
}

/// What the killed process does; nothing in an ordinary run of the tests.
#[test]
fn the_process_that_is_killed() {
    let (Ok(dir), Ok(place), Ok(seed)) = (
        std::env::var("TERRACE_KILL_DIR"),
        std::env::var("TERRACE_KILL_PLACE"),
        std::env::var("TERRACE_KILL_SEED"),
    ) else {
        return;
    };
    let dir = Path::new(&dir);
    let map = Map::open(&dir.join("map"), options(&place)).expect("open");
    let journal = Journal::open(&dir.join("journal"), Promise::OnAcknowledge).expect("journal");
    let mut rng = Rng::new(seed.parse().expect("a number"));
    println!("ready");
    let never = AtomicBool::new(false);
    let batches = !place.starts_with("slab");
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut script = Script {
                first_key: client * KEYS_PER_CLIENT,
                keys: KEYS_PER_CLIENT,
                batch_one_in: if batches { 10 } else { 0 },
                ..Script::new(rng.bits())
            };
            let mut client = Client { session: map.session(), batches };
            let (journal, never) = (&journal, &never);
            scope.spawn(move || drive(journal, &mut client, &mut script, never));
        }
        if place.ends_with("-switch") {
            switch(&map, &mut rng);
        }
    });
}

/// Changes the durability of `map` until the process is killed, to one that keeps acknowledged writes each time.
fn switch(map: &Map, rng: &mut Rng) {
    let hour = Durability::Interval(Duration::from_secs(3600));
    loop {
        let durability = if rng.one_in(3) { Durability::Sync } else { hour };
        map.set_durability(durability).expect("switch");
        std::thread::sleep(Duration::from_micros(rng.below(3_000)));
    }
}

fn run_and_kill(dir: &Path, place: &str, seed: u64, alive: Duration) {
    run_and_kill_after(dir, place, seed, || std::thread::sleep(alive));
}

/// Kills the process when `wait`, which begins once the map is open, returns.
fn run_and_kill_after(dir: &Path, place: &str, seed: u64, wait: impl FnOnce()) {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "kill::the_process_that_is_killed", "--nocapture"])
        .env("TERRACE_KILL_DIR", dir)
        .env("TERRACE_KILL_PLACE", place)
        .env("TERRACE_KILL_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let stdout = child.stdout.take().expect("piped");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    let ready = lines.map_while(Result::ok).any(|line| line.contains("ready"));
    assert!(ready, "the process opened its map");
    wait();
    child.kill().expect("kill");
    let status = child.wait().expect("wait");
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "it was alive until killed"
    );
}

/// Every slot is an item's or free. Opened as a crash left it, before the map is.
fn check_slots(dir: &Path) {
    let spec = MediumSpec {
        path: dir.join("map/values.slab"),
        domain: Domain::Adr,
        dax: false,
        capacity_bytes: 1 << 32,
        access: Access::Write,
    };
    let slabs =
        Slabs::open(Medium::open(&spec).expect("medium"), 1, &Arc::new(Budget::new(1 << 30)))
            .expect("head");
    slabs.recover(2, &|_, _, _| {}).expect("a crash is no damage");
    slabs.check().expect("every slot has one owner");
}

fn kill_loop(parent: Option<&Path>, place: &str) {
    let cycles = if std::env::var_os("TERRACE_LONG").is_some() { 200 } else { 10 };
    let seed = std::env::var("TERRACE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let dir = parent.map_or_else(tempfile::tempdir, tempfile::tempdir_in).expect("directory");
    let journal = dir.path().join("journal");
    let mut rng = Rng::new(seed);
    let (mut in_flight, mut torn, mut walks, mut clock) = (0, 0, 0, 0);
    for cycle in 0..cycles {
        run_and_kill(
            dir.path(),
            place,
            rng.bits(),
            Duration::from_micros(2_000 + rng.below(120_000)),
        );
        let mut ledger = Journal::read(&journal, Promise::OnAcknowledge).expect("journal");
        if place == "slab-adr" && rng.one_in(2) {
            check_slots(dir.path());
        }
        let map = Map::open(&dir.path().join("map"), options(place)).expect("recover");
        torn += map.recovery().torn.len();
        walks += usize::from(matches!(
            map.recovery().procedure,
            RecoveryProcedure::WalkToLogs | RecoveryProcedure::WalkToSlots
        ));
        let report = verify(&mut ledger, &mut Reader(map.clone())).expect("asked");
        assert!(
            report.walked && report.is_sound(),
            "{place} cycle {cycle}, TERRACE_SEED={seed}: {report}"
        );
        in_flight += report.in_flight;
        clock = ledger.clock();
        Journal::replace(&journal, &ledger).expect("journal");
        map.close().expect("close");
        drop(map);
        if place == "slab-adr" {
            check_slots(dir.path());
        }
    }
    println!(
        "{place}: {cycles} kills, seed {seed}: {clock} notes, {in_flight} writes in flight, {torn} torn ends, \
         {walks} walks"
    );
    assert_eq!(walks > 0, place.ends_with("tree"), "a persistent index is walked");
    assert!(clock > 10 * cycles, "the process hardly wrote anything: {clock} notes");
}

fn memory() -> Option<&'static Path> {
    Some(Path::new("/dev/shm")).filter(|shm| shm.is_dir())
}

#[test]
fn acknowledged_writes_survive_with_slabs_on_a_declared_medium() {
    kill_loop(memory(), "slab-adr");
}

#[test]
fn acknowledged_writes_survive_with_logs_on_a_declared_medium() {
    kill_loop(memory(), "log-adr");
}

#[test]
fn acknowledged_writes_survive_with_logs_and_a_persistent_tree() {
    kill_loop(memory(), "log-tree");
}

#[test]
fn acknowledged_writes_survive_with_slabs_and_a_persistent_tree() {
    kill_loop(memory(), "slab-tree");
}

#[test]
fn acknowledged_writes_survive_with_logs_and_a_tree_in_logs() {
    kill_loop(memory(), "log-ls-tree");
}

#[test]
fn acknowledged_writes_survive_with_slabs_and_a_tree_in_logs() {
    kill_loop(memory(), "slab-ls-tree");
}

#[test]
fn acknowledged_writes_survive_with_logs_on_a_block_device() {
    kill_loop(None, "log-block");
}

/// Also in maps that overwrite in place; each process begins with what the one before left.
#[test]
fn acknowledged_writes_survive_under_interval_on_a_block_device() {
    kill_loop(None, "log-block-interval");
    kill_loop(None, "log-block-hour");
}

/// `CONFIG SET appendfsync everysec`, said twice, put an empty redo log in place of the one in use before a checkpoint
/// had what that held; and from `always` to `everysec` writes were acknowledged before there was a redo log.
#[test]
fn acknowledged_writes_survive_while_durability_is_switched() {
    kill_loop(None, "log-block-switch");
}

#[test]
fn acknowledged_writes_survive_under_interval_on_a_declared_medium() {
    kill_loop(memory(), "log-adr-hour");
    kill_loop(memory(), "slab-adr-hour");
}

/// Whoever only looks after a kill sees what the next opening to write finds, and changes nothing.
#[test]
fn readers_see_what_a_killed_process_acknowledged() {
    let dir = tempfile::tempdir().expect("directory");
    let journal = dir.path().join("journal");
    kill_after_1000_notes(dir.path());
    let mut ledger = Journal::read(&journal, Promise::OnAcknowledge).expect("journal");
    let read = |access| {
        let options = MapOptions { access, ..options("log-block-hour") };
        Map::open(&dir.path().join("map"), options).expect("open")
    };
    let keys = [Access::Read, Access::Read, Access::Write].map(|access| {
        let map = read(access);
        let report = verify(&mut ledger, &mut Reader(map.clone())).expect("asked");
        assert!(report.is_sound(), "{access:?}: {report}");
        assert!(map.recovery().replayed > 0, "{access:?}");
        map.len()
    });
    assert!(keys[0] > 0 && keys.iter().all(|count| *count == keys[0]), "{keys:?}");
    let map = read(Access::Write);
    assert_eq!((map.recovery().replayed, map.len()), (0, keys[0]), "it was taken in once");
}

fn kill_after_1000_notes(dir: &Path) {
    let journal = dir.join("journal");
    run_and_kill_after(dir, "log-block-hour", 1, || {
        let begun = std::time::Instant::now();
        let notes = || Journal::read(&journal, Promise::OnAcknowledge).expect("journal").clock();
        while notes() < 1_000 {
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(60), "the process hardly writes anything");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// A redo log that was deleted after a kill, or one flipped bit in the head of one of its chunks, lost acknowledged
/// writes without a word. Now whoever opens the map hears of it, and salvage shows the rest. A copy of the directory
/// that was made without it opens as of its checkpoint.
#[test]
fn damage_in_the_redo_log_of_a_killed_process_is_named() {
    let dir = tempfile::tempdir().expect("directory");
    kill_after_1000_notes(dir.path());
    let (map_dir, redo) = (dir.path().join("map"), dir.path().join("map/redo"));
    let open =
        |access, dir: &Path| Map::open(dir, MapOptions { access, ..options("log-block-hour") });
    let keys = open(Access::Read, &map_dir).expect("whole").len();
    let is_named = |what: &str| {
        for access in [Access::Read, Access::Write] {
            let error = open(access, &map_dir).err().expect(what).to_string();
            let is_named = error.contains("map/redo") && error.contains("--salvage");
            assert!(is_named, "{what}: {error}");
        }
        let map = open(Access::Salvage, &map_dir).expect("what is intact");
        assert!(!map.recovery().damage.is_empty(), "{what}");
        map.len()
    };
    let bytes = std::fs::read(&redo).expect("read");
    // Control words, then the heads of chunks.
    let chunk_bytes = u64::from_le_bytes(bytes[56..64].try_into().expect("eight")) as usize;
    let heads = (4096..bytes.len()).step_by(chunk_bytes).filter(|at| bytes[*at] & 1 == 1);
    let (mut named, mut lost) = (0, 0);
    for at in (0..120).step_by(5).chain(heads.flat_map(|at| at..at + 8)) {
        let file = std::fs::File::options().read(true).write(true).open(&redo).expect("open");
        // As it is by now: an opening that is refused may have taken a checkpoint.
        let mut byte = [0];
        file.read_exact_at(&mut byte, at as u64).expect("read");
        file.write_all_at(&[byte[0] ^ 4], at as u64).expect("written");
        if open(Access::Read, &map_dir).is_ok_and(|map| map.len() == keys) {
            // The place of another checkpoint, or of none.
            assert!((88..120).contains(&at), "{at}");
        } else {
            named += 1;
            lost += u64::from(is_named(&at.to_string()) < keys);
        }
        file.write_all_at(&byte, at as u64).expect("written");
    }
    assert!(named >= 20 && lost > 0, "{named} named, {lost} with keys lost");
    let aside = dir.path().join("aside");
    std::fs::rename(&redo, &aside).expect("moved");
    assert!(is_named("missing") < keys);
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).expect("made");
    std::fs::copy(map_dir.join("values.log"), copy.join("values.log")).expect("copied");
    let restored = open(Access::Write, &copy).expect("a copy without its redo log");
    assert!(restored.len() < keys, "{} of {keys}", restored.len());
    std::fs::copy(&aside, &redo).expect("back");
    let map = open(Access::Write, &map_dir).expect("whole again");
    assert_eq!(map.len(), keys);
    map.close().expect("closed");
    drop(map);
    assert!(!redo.exists(), "nothing names it any more");
    let map = open(Access::Write, &map_dir).expect("closed in order");
    assert_eq!((map.recovery().replayed, map.len()), (0, keys));
}
