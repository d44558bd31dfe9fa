//! A map larger than its memory, opened again: after a kill, after a close, in less memory, and where logs stay.

use super::{
    BUDGET, KEYS, MIB, VALUE_BYTES, check_all, check_budget, fill, filled, key, open, options,
};
use crate::adversary::{in_memory, value_of, write_of};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use terrace_store::{Error, Map, MapOptions, WhenFull};

/// What the killed process does; nothing in an ordinary run of the tests.
#[test]
fn the_process_that_is_killed() {
    let Ok(dir) = std::env::var("TERRACE_SPILL_DIR") else { return };
    let map = open(Path::new(&dir));
    fill(&map, 0..KEYS, 1);
    for n in (0..KEYS).filter(|n| n % 7 == 0) {
        map.delete(&key(n)).expect("deleted");
    }
    println!("ready");
    for round in 2.. {
        for n in (0..KEYS).filter(|n| n % 3 == 1) {
            map.put(&key(n), &value_of(n, round, VALUE_BYTES)).expect("room");
            println!("{n} {round}");
        }
    }
}

/// What was acknowledged last of each key, after a kill.
fn killed(dir: &Path) -> Vec<Option<u64>> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "values_leave_memory::reopening::the_process_that_is_killed"])
        .arg("--nocapture")
        .env("TERRACE_SPILL_DIR", dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("ready")));
    let mut last: Vec<_> = (0..KEYS).map(|n| (n % 7 != 0).then_some(1)).collect();
    let mut lines_left = 9_000;
    let mut kill = Some(());
    for line in lines.map_while(Result::ok) {
        let Some((n, round)) = line.split_once(' ') else { continue };
        // The last line may be cut off.
        if let (Ok(n), Ok(round)) = (n.parse::<usize>(), round.parse()) {
            last[n] = Some(round);
        }
        lines_left -= i32::from(lines_left > 0);
        if lines_left == 0 && kill.take().is_some() {
            child.kill().expect("kill");
        }
    }
    child.wait().expect("wait");
    last
}

/// Nothing acknowledged is lost; one write more may have happened.
#[track_caller]
fn check_killed(map: &Map, last: &[Option<u64>]) {
    let mut later = 0;
    for (n, write) in last.iter().enumerate() {
        let n = n as u64;
        let found = map.get(&key(n)).expect("read").map(|value| write_of(n, &value));
        if found != *write {
            assert!(n % 3 == 1 && found > *write, "key {n}: {found:?}, not {write:?}");
            later += 1;
        }
    }
    assert!(later <= 1, "{later} writes that nobody heard of");
    check_budget(map);
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_in_less_memory() {
    let dir = in_memory();
    let last = killed(dir.path());
    let map = open(dir.path());
    check_budget(&map);
    check_killed(&map, &last);
    drop(map);
    let less = MapOptions { memory_budget_bytes: 5 * BUDGET / 6, writers: 1, ..options() };
    let map = Map::open(dir.path(), less).expect("open");
    check_budget(&map);
    check_killed(&map, &last);
    assert_eq!(
        map.len(),
        (0..KEYS).filter(|n| map.get(&key(*n)).expect("read").is_some()).count() as u64
    );
    fill(&map, 0..KEYS, 99);
    check_all(&map, 0..KEYS, |_| Some(99));
}

/// Of what is larger than the budget nothing need leave where it was closed: it is read, and writes are refused.
#[test]
fn a_map_whose_logs_stay_opens_what_is_larger_than_its_memory_and_refuses_writes() {
    let dir = in_memory();
    drop(filled(dir.path()));
    let refuse = MapOptions { when_full: WhenFull::Refuse, ..options() };
    let map = Map::open(dir.path(), refuse).expect("it takes more memory than it may");
    let told = map.put(b"new", &[7; VALUE_BYTES]).expect_err("no room");
    let (used, budget) = match told {
        Error::OutOfMemory { used, budget } => (used, budget),
        other => panic!("{other:?}"),
    };
    assert!(used > 3 * BUDGET / 2 && budget == BUDGET, "{} of {} MiB", used / MIB, budget / MIB);
    for n in (0..KEYS).step_by(13) {
        assert_eq!(super::read(&map, n), Some(0));
    }
    let spill = map.set_when_full(WhenFull::Spill).expect_err("it was not opened so");
    assert!(matches!(spill, Error::Option { field: "when_full", .. }), "{spill:?}");
    assert!(map.delete(&key(0)).expect("deletes are never refused"));
    drop(map);
    let map = open(dir.path());
    check_all(&map, 0..KEYS, |n| (n > 0).then_some(0));
}

/// Logs of before a clear are nobody's.
#[test]
fn a_map_that_was_cleared_before_a_crash_is_empty_and_has_its_memory() {
    let dir = in_memory();
    let map = filled(dir.path());
    map.clear().expect("cleared");
    map.put(b"after", b"it").expect("room");
    let copy = in_memory();
    for entry in std::fs::read_dir(dir.path()).expect("readable") {
        let entry = entry.expect("readable");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
    }
    drop(map);
    for dir in [&copy, &dir] {
        let map = open(dir.path());
        check_budget(&map);
        assert_eq!(map.len(), 1);
        fill(&map, 0..KEYS, 3);
        check_all(&map, 0..KEYS, |_| Some(3));
    }
}
