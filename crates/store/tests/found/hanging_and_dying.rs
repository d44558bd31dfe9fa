//! Hanging and dying.

use super::*;
use crate::small_disk::SmallDisk;

/// The checkpointer takes a strong handle on the map at every tick; the user's last handle may then not
/// be the last. Its drop returns with the directory still locked, and the map is closed some time
/// later, by its own thread, which goes on to work on a file that may be somebody else's by then.
#[test]
fn a_map_is_closed_when_its_last_handle_is_gone() {
    let dir = tempfile::tempdir().expect("directory");
    for round in 0..60 {
        let map = match Map::open(dir.path(), options(Durability::Sync)) {
            Ok(map) => map,
            Err(error) => panic!("round {round}: the last handle was dropped, and yet: {error}"),
        };
        let until = Instant::now() + Duration::from_millis(15);
        let mut sync = false;
        while Instant::now() < until {
            map.set_durability(if sync { Durability::Sync } else { LONG_INTERVAL })
                .expect("switch");
            sync = !sync;
        }
        drop(map);
    }
}

/// A mapped file that ends early is read beyond its end: the kernel kills the process.
#[test]
fn a_truncated_mapped_file_is_damage_and_kills_nobody() {
    let mapped = || MapOptions { domain: Domain::Eadr, ..one_writer(Durability::Sync) };
    if let Some(dir) = std::env::var_os("TERRACE_TEST_TRUNCATED") {
        let opened = Map::open(Path::new(&dir), mapped());
        assert!(matches!(opened, Err(Error::Medium(_))), "opened, or a strange error");
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), mapped()).expect("open");
    map.put(b"key", &[7; 1 << 20]).expect("put");
    map.close().expect("close");
    drop(map);
    let file = std::fs::OpenOptions::new().write(true).open(file_of(dir.path())).expect("file");
    file.set_len(SEGMENT as u64 + 100_000).expect("truncated");
    let child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "found::hanging_and_dying::a_truncated_mapped_file_is_damage_and_kills_nobody",
        ])
        .env("TERRACE_TEST_TRUNCATED", dir.path())
        .output()
        .expect("child");
    assert!(child.status.success(), "{}", child.status);
}

/// Writers wait for the collector when the budget is spent, until a round has shown that it cannot
/// help. A round that ends with an error (a full disk refuses the collector's own log) shows
/// nothing: they wait for ever.
#[test]
fn writers_are_not_left_waiting_when_the_collector_fails() {
    let dir = tempfile::tempdir().expect("directory");
    let Some(_mount) = SmallDisk::mount(dir.path(), 21 << 20) else { return };
    let full = MapOptions { memory_budget_bytes: 21 << 20, ..one_writer(Durability::None) };
    let map = Map::open(dir.path(), full).expect("open");
    let (told, answer) = mpsc::channel();
    let writer = map.clone();
    std::thread::spawn(move || {
        for n in 0..100_000u64 {
            // Every log a little more than half dead: the collector is due, and needs a log.
            let refused = writer.put(&(n % 400).to_be_bytes(), &[1; 20_000]).err();
            let refused =
                refused.or_else(|| writer.put(&(1_000_000 + n).to_be_bytes(), &[1; 15_000]).err());
            if let Some(error) = refused {
                // Nobody listens only when the test is over.
                let _over = told.send(error.to_string());
                return;
            }
        }
    });
    let told = answer.recv_timeout(Duration::from_secs(20));
    assert!(told.is_ok(), "a put has waited for 20 seconds: {:?}", map.stats());
}
