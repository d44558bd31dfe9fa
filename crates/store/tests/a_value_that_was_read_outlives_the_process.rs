//! Under `interval` what was told outlives the process, also what the redo log had no room for: whoever tells it takes
//! a checkpoint first. A session that had only read asked nobody: it committed at once, told the value to its client,
//! and `kill -9` took it.

use std::path::Path;
use std::time::{Duration, Instant};
use terrace_store::{Durability, Error, Map, MapOptions, Session};

/// More than a chunk of the smallest redo log: there is never room for it.
const LEFT_OUT_BYTES: usize = 300 << 10;
/// Before an idle map takes a checkpoint by itself.
const SOON: Duration = Duration::from_millis(500);

fn options() -> MapOptions {
    MapOptions {
        durability: Durability::Interval(Duration::from_secs(3600)),
        memory_budget_bytes: 64 << 20,
        ..MapOptions::default()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("read") {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copy");
    }
}

/// What a process that dies now leaves of `key`: the pages of its files are the kernel's.
fn after_a_kill(dir: &Path, key: &[u8]) -> Option<usize> {
    let copied = tempfile::tempdir().expect("directory");
    copy(dir, copied.path());
    let map = Map::open(copied.path(), options()).expect("recover");
    map.get(key).expect("get").map(|value| value.len())
}

/// Whether what `tell` read survives the process, and whether it would have before.
fn told(tell: impl Fn(&Map, &mut Session) -> usize) -> (Option<usize>, Option<usize>) {
    loop {
        let dir = tempfile::tempdir().expect("directory");
        let map = Map::open(dir.path(), options()).expect("open");
        let begun = Instant::now();
        let (mut writer, mut reader) = (map.session(), map.session());
        writer.put(b"key", &[7; LEFT_OUT_BYTES], None).expect("put");
        let before = after_a_kill(dir.path(), b"key");
        if begun.elapsed() > SOON {
            continue;
        }
        assert_eq!(tell(&map, &mut reader), LEFT_OUT_BYTES);
        return (before, after_a_kill(dir.path(), b"key"));
    }
}

fn read(_: &Map, session: &mut Session) -> usize {
    let bytes = session.get(b"key", |value| value.bytes.len()).expect("get");
    session.commit().expect("commit");
    bytes.expect("visible")
}

fn read_many(map: &Map, _: &mut Session) -> usize {
    let mut bytes = 0;
    map.multi_get(&[b"key"], |_, value| bytes = value.map_or(0, |value| value.bytes.len()))
        .expect("multi_get");
    bytes
}

fn read_alone(map: &Map, _: &mut Session) -> usize {
    map.get(b"key").expect("get").map_or(0, |value| value.len())
}

#[test]
fn a_value_that_a_session_read_and_committed_outlives_the_process() {
    assert_eq!(told(read), (None, Some(LEFT_OUT_BYTES)));
}

#[test]
fn a_value_that_a_map_returned_outlives_the_process() {
    assert_eq!(told(read_alone), (None, Some(LEFT_OUT_BYTES)));
    assert_eq!(told(read_many), (None, Some(LEFT_OUT_BYTES)));
}

/// Nothing makes good any more, once the medium has failed, what found no room: it is not told, and all else is.
#[test]
fn after_a_failure_what_found_no_room_is_not_observed() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options()).expect("open");
    map.put(b"old", b"value").expect("put");
    map.sync().expect("sync");
    let (mut writer, mut early) = (map.session(), map.session());
    map.medium().inject_write_fault(0);
    writer.put(b"key", &[7; LEFT_OUT_BYTES], None).expect("put");
    assert!(early.get(b"key", |_| ()).expect("visible").is_some());
    assert!(early.commit().is_err() && early.commit().is_err(), "it read what may be lost");
    assert!(map.stats().stopped.is_some());
    let mut late = map.session();
    assert!(matches!(late.get(b"key", |_| ()), Err(Error::Untold(_))));
    assert!(matches!(map.get(b"key"), Err(Error::Untold(_))));
    assert_eq!(
        late.get(b"old", |value| value.bytes.to_vec()).expect("read").expect("there"),
        b"value"
    );
    late.commit().expect("it told what is durable alone");
    assert_eq!(map.get(b"old").expect("read").expect("there"), b"value");
}
