//! What a server that was killed under `interval` leaves, and how that is told: its redo log, replayed at the next
//! opening, and read where the disk has no room for that.

use crate::common::{Served, run};
use crate::small_disk::SmallDisk;
use serde_json::Value;

/// No checkpoint comes within a test.
const INTERVAL: [&str; 4] = ["--durability", "interval", "--interval-ms", "3600000"];

fn json(arguments: &[&str]) -> Value {
    let (code, printed, told) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {printed}{told}");
    serde_json::from_str(&printed).expect("JSON")
}

fn set(connection: &mut redis::Connection, keys: std::ops::Range<usize>, bytes: usize) {
    for key in keys {
        redis::cmd("SET").arg(key).arg(vec![b'v'; bytes]).exec(connection).expect("set");
    }
}

fn info(connection: &mut redis::Connection, section: &str) -> String {
    redis::cmd("INFO").arg(section).query(connection).expect("INFO")
}

/// A redo log may take 256 MiB, and nothing said that there is one.
#[test]
fn a_redo_log_is_listed_with_its_bytes_and_what_was_replayed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dir.path().to_str().expect("text");
    let served = Served::start(dir.path(), &INTERVAL);
    let mut connection = served.connect();
    set(&mut connection, 0..50, 100);
    let told = info(&mut connection, "persistence");
    let line = told.lines().find(|line| line.starts_with("db0_redo_log:")).expect(&told);
    assert!(line.contains("replayed_keys=0,path=") && line.ends_with("/redo"), "{line}");
    assert!(!told.contains("redo_log_bytes:0\r\n"), "{told}");
    served.kill();
    let listed = &json(&["stats", data, "--json"])["maps"][0];
    assert_eq!(listed["replayed_keys"], 50);
    assert!(listed["redo_log_bytes"].as_u64().is_some_and(|bytes| bytes > 5_000), "{listed}");
    assert!(listed["redo_log"].as_str().is_some_and(|path| path.ends_with("/redo")), "{listed}");
    let (_, printed, _) = run(&["stats", data]);
    assert!(
        printed.contains("redo log of 0: ") && printed.contains(", 50 keys replayed"),
        "{printed}"
    );
    let (_, printed, _) = run(&["open", data, "--explain", "--durability", "interval"]);
    assert!(printed.contains("redo log: 50 keys replayed; now "), "{printed}");
    let opened = &json(&["open", data, "--json", "--durability", "interval"])["maps"][0];
    assert_eq!(opened["replayed_keys"], 0, "it was closed in order");
    let (_, printed, _) = run(&["stats", data]);
    assert!(!printed.contains("redo log"), "{printed}");
}

/// After a crash on a full disk the server did not start, though all that it had could be read.
#[test]
fn a_server_starts_on_a_full_disk_and_reads_go_on() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let Some(disk) = SmallDisk::mount(dir.path(), 48 << 20) else { return };
    let data = dir.path().join("data");
    let served = Served::start(&data, &INTERVAL);
    let mut connection = served.connect();
    set(&mut connection, 0..30, 100_000);
    redis::cmd("SAVE").exec(&mut connection).expect("save");
    set(&mut connection, 30..40, 100_000);
    served.kill();
    let ballast = disk.fill();
    for _ in 0..2 {
        let served = Served::start(&data, &INTERVAL);
        let mut connection = served.connect();
        for key in 0..40 {
            let value: Vec<u8> = redis::cmd("GET").arg(key).query(&mut connection).expect("get");
            assert_eq!(value.len(), 100_000, "{key}");
        }
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
        assert_eq!(keys.len(), 40);
        served.kill();
        let (code, printed, told) =
            run(&[&["open", data.to_str().expect("text")], &INTERVAL[..2]].concat());
        assert_eq!(code, 0, "{told}");
        assert!(told.contains("map 0 is read-only: the disk was full"), "{printed}{told}");
    }
    ballast.remove();
    let served = Served::start(&data, &INTERVAL);
    let mut connection = served.connect();
    set(&mut connection, 40..50, 100_000);
    let size: u64 = redis::cmd("DBSIZE").query(&mut connection).expect("size");
    assert_eq!(size, 50);
    served.terminate();
}
