//! A server that evicts stays within its budget, in memory that the process has resident too, wherever values and index
//! lie, in several databases, and with values up to the largest.

use crate::common::Served;
use std::path::Path;

const MIB: u64 = 1 << 20;
const BUDGET_BYTES: u64 = 96 * MIB;
/// What the process may have resident beyond its budget and its program: threads, buffers of its clients, and the pages
/// that its allocator keeps.
const MARGIN_BYTES: u64 = 24 * MIB;
const DATABASES: u64 = 3;

fn number_of(connection: &mut redis::Connection, field: &str) -> u64 {
    let told: String = redis::cmd("INFO").query(connection).expect("INFO");
    let line = told.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field} in {told}")).trim().parse().expect("a number")
}

/// Writes six times the budget in values of so many bytes.
fn evict(dir: &Path, settings: &str, value_bytes: u64) {
    let budget = format!("{} MiB", BUDGET_BYTES / MIB);
    let others = ["--memory-budget", &budget, "--when-full", "evict"];
    let served = Served::start_with(dir, &settings.split_whitespace().collect::<Vec<_>>(), &others);
    let mut connection = served.connect();
    let value = vec![b'v'; value_bytes as usize];
    let keys = 6 * BUDGET_BYTES / value_bytes;
    let what = format!("{settings}, values of {value_bytes} bytes");
    // With SQL in it the program of the tests is several times as large.
    let program = number_of(&mut connection, "used_memory_rss");
    let (mut most_used, mut most_resident) = (0, 0);
    for key in 0..keys {
        let database = key % DATABASES;
        let mut both = redis::pipe();
        both.cmd("SELECT").arg(database).ignore().cmd("SET").arg(key).arg(&value).ignore();
        both.exec(&mut connection).unwrap_or_else(|error| panic!("{what}, key {key}: {error}"));
        if key % 20 == 0 {
            most_used = most_used.max(number_of(&mut connection, "used_memory"));
            most_resident = most_resident.max(number_of(&mut connection, "used_memory_rss"));
        }
    }
    let most_resident = most_resident.saturating_sub(program);
    println!("{what}: {} MiB used, {} resident", most_used / MIB, most_resident / MIB);
    assert!(most_used <= BUDGET_BYTES, "{what}: {} MiB used", most_used / MIB);
    let allowed = BUDGET_BYTES + MARGIN_BYTES;
    assert!(most_resident <= allowed, "{what}: {} MiB resident", most_resident / MIB);
    assert!(number_of(&mut connection, "evicted_keys") > keys / 3, "{what}");
    // The newest is there, whole.
    let last: Vec<u8> = redis::cmd("GET").arg(keys - 1).query(&mut connection).expect("get");
    assert_eq!(last.len(), value.len(), "{what}");
}

/// A directory on memory: what is byte-addressable is declared to be.
fn directory() -> Option<tempfile::TempDir> {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        eprintln!("left out: no tmpfs at /dev/shm");
        return None;
    }
    Some(tempfile::tempdir_in(shm).expect("temporary directory"))
}

const FORMS: [&str; 6] = [
    "--durability interval",
    "--durability sync",
    "--domain adr --values log --persist index",
    "--domain adr --values log --persist full",
    "--domain adr --values slab --persist index",
    "--domain adr --values slab --persist full",
];

#[test]
fn values_of_a_megabyte_stay_within_the_budget() {
    for form in FORMS {
        let Some(dir) = directory() else { return };
        evict(dir.path(), form, MIB);
    }
}

#[test]
fn the_largest_values_stay_within_the_budget() {
    for form in FORMS {
        let Some(dir) = directory() else { return };
        evict(dir.path(), form, if form.contains("slab") { 2 * MIB } else { 4 * MIB - 1000 });
    }
}

#[test]
fn values_of_a_few_kilobytes_stay_within_the_budget() {
    for form in FORMS {
        let Some(dir) = directory() else { return };
        evict(dir.path(), form, 20_000);
    }
}
