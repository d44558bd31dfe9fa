//! Kill -9 of a process whose threads insert into a word table and remove from it, again and again on one
//! directory: what a call told is there afterwards, and nothing else is, but for the call that each thread was in.
//!
//! The process is this test binary, started anew with `TERRACE_KILL_DIR`. Each thread has keys of its own and a
//! journal, to which it writes a call before it is made and again when it has returned.
//!
//! 10 cycles; `TERRACE_LONG=1` makes it 200. `TERRACE_SEED=N` repeats a run's choices.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use terrace_memory::Budget;
use terrace_store::words::Form;
use terrace_store::{Domain, Error, Words, WordsOptions};
use terrace_workload::random::Rng;

const THREADS: u64 = 3;
const KEYS: u64 = 200;
/// What a journal's record begins with: a call, and its return.
const CALLED: u64 = 1;
const RETURNED: u64 = 2;
/// What the table held when the judge looked last.
const HELD: u64 = 3;
/// The value of a removal.
const REMOVED: u64 = 0;

fn open(dir: &Path, form: Form) -> Words {
    let domain = if form == Form::LogFree { Domain::Eadr } else { Domain::Adr };
    let (form, capacity) = (Some(form), Some(4000));
    let options = WordsOptions { form, capacity, domain, ..WordsOptions::default() };
    let budget = Arc::new(Budget::new(1 << 30));
    Words::open(&dir.join("words"), &options, &budget).expect("a crash is no damage")
}

fn journal(dir: &Path, thread: u64) -> std::path::PathBuf {
    dir.join(format!("journal-{thread}"))
}

/// What the killed process does; nothing in an ordinary run of the tests.
#[test]
fn the_process_that_is_killed() {
    let variable = |name: &str| std::env::var(name);
    let (Ok(dir), Ok(form), Ok(seed)) = (
        variable("TERRACE_KILL_DIR"),
        variable("TERRACE_KILL_FORM"),
        variable("TERRACE_KILL_SEED"),
    ) else {
        return;
    };
    let tells_early = variable("TERRACE_KILL_EARLY").is_ok();
    let dir = Path::new(&dir);
    let words = open(dir, form.parse().expect("a form"));
    let seed: u64 = seed.parse().expect("a number");
    println!("ready");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let words = &words;
            scope.spawn(move || work(words, &journal(dir, thread), thread, seed, tells_early));
        }
    });
}

fn work(words: &Words, journal: &Path, thread: u64, seed: u64, tells_early: bool) {
    let mut session = words.session().expect("a session");
    let mut rng = Rng::new(seed ^ thread << 40);
    let mut journal =
        OpenOptions::new().create(true).append(true).open(journal).expect("a journal");
    for value in 1.. {
        let key = thread * KEYS + rng.below(KEYS);
        let value = if rng.one_in(2) { REMOVED } else { seed.wrapping_add(value) | 1 };
        let mut note = |what: u64| {
            let record: Vec<u8> = [what, key, value].iter().flat_map(|w| w.to_le_bytes()).collect();
            journal.write_all(&record).expect("a note");
        };
        note(CALLED);
        if tells_early {
            note(RETURNED);
            std::thread::sleep(Duration::from_micros(300));
        }
        match value {
            REMOVED => _ = session.remove(key),
            value => {
                session.remove(key);
                // Full while a thread that may hold what was removed does not run.
                while let Err(Error::WordsFull { .. }) = session.insert(key, value) {
                    std::thread::yield_now();
                }
            }
        }
        if !tells_early {
            note(RETURNED);
        }
    }
}

fn run_and_kill(dir: &Path, form: Form, seed: u64, alive: Duration, tells_early: bool) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "kill_words::the_process_that_is_killed", "--nocapture"]);
    if tells_early {
        command.env("TERRACE_KILL_EARLY", "1");
    }
    let mut child = command
        .env("TERRACE_KILL_DIR", dir)
        .env("TERRACE_KILL_FORM", form.name())
        .env("TERRACE_KILL_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let stdout = child.stdout.take().expect("piped");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")), "it opened its table");
    std::thread::sleep(alive);
    child.kill().expect("kill");
    let status = child.wait().expect("wait");
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(9), "it was alive until killed");
}

/// What a journal says of its keys: the values that each may have, [`REMOVED`] for none; and how many calls
/// returned.
fn allowed(journal: &Path) -> (BTreeMap<u64, Vec<u64>>, u64) {
    let bytes = std::fs::read(journal).unwrap_or_default();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let (mut allowed, mut returned) = (BTreeMap::<u64, Vec<u64>>::new(), 0);
    for record in bytes.chunks_exact(24) {
        let [what, key, value] = [0, 8, 16].map(|at| word(&record[at..at + 8]));
        let values = allowed.entry(key).or_insert_with(|| vec![REMOVED]);
        match what {
            // A value is replaced by a removal and an insertion.
            CALLED => values.extend([REMOVED, value]),
            _ => *values = vec![value],
        }
        returned += u64::from(what == RETURNED);
    }
    (allowed, returned)
}

/// Whether the table holds what the journals allow, which begin anew with that.
fn judge(dir: &Path, form: Form) -> Result<u64, String> {
    let words = open(dir, form);
    let mut found = BTreeMap::new();
    words.session().expect("a session").visit(|key, value| _ = found.insert(key, value));
    let mut returned = 0;
    for thread in 0..THREADS {
        let (allowed, calls) = allowed(&journal(dir, thread));
        returned += calls;
        let mut records = Vec::new();
        for key in thread * KEYS..(thread + 1) * KEYS {
            let value = found.remove(&key).unwrap_or(REMOVED);
            let may_be = allowed.get(&key).map_or(&[REMOVED][..], Vec::as_slice);
            if !may_be.contains(&value) {
                return Err(format!("key {key} has {value}, and may have {may_be:?}"));
            }
            records.extend([HELD, key, value].iter().flat_map(|word| word.to_le_bytes()));
        }
        std::fs::write(journal(dir, thread), records).expect("a journal");
    }
    match found.first_key_value() {
        Some((key, value)) => Err(format!("key {key} with {value}, which nobody inserted")),
        None => Ok(returned),
    }
}

fn kill_loop(form: Form, tells_early: bool) -> Result<(), String> {
    let cycles = if std::env::var_os("TERRACE_LONG").is_some() { 200 } else { 10 };
    let seed = std::env::var("TERRACE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let shm = Some(Path::new("/dev/shm")).filter(|shm| shm.is_dir());
    let dir = shm.map_or_else(tempfile::tempdir, tempfile::tempdir_in).expect("directory");
    let mut rng = Rng::new(seed);
    let mut calls = 0;
    for cycle in 0..cycles {
        let alive = Duration::from_micros(2_000 + rng.below(80_000));
        run_and_kill(dir.path(), form, rng.bits(), alive, tells_early);
        let told = judge(dir.path(), form);
        calls += told.map_err(|what| format!("{form} cycle {cycle}, seed {seed}: {what}"))?;
    }
    println!("{form}: {cycles} kills, seed {seed}: {calls} calls returned");
    assert!(calls > 100 * cycles, "the process hardly did anything: {calls} calls");
    Ok(())
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    for form in Form::ALL {
        kill_loop(form, false).expect("sound");
    }
}

/// A canary: a process that tells before it has done anything.
#[test]
fn the_judge_notices_what_was_acknowledged_too_early() {
    let found = kill_loop(Form::LinkFree, true).expect_err("it is lost");
    assert!(found.contains("and may have"), "{found}");
}
