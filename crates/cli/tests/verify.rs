//! `terrace verify`: one flipped bit anywhere is named by file, and nothing in the directory changes.

use crate::common::run;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn fine(arguments: &[&str]) -> String {
    let (code, out, said) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}{said}");
    out
}

/// A map of a few keys, closed.
fn map(dir: &Path, settings: &str) -> String {
    let data = dir.join("data").to_str().expect("text").to_string();
    std::fs::create_dir_all(&data).expect("directory");
    std::fs::write(dir.join("data/terrace.toml"), settings).expect("settings");
    let text = dir.join("text").to_str().expect("text").to_string();
    let lines: String = (0..500).map(|i| format!("key{i},{}\n", "v".repeat(100))).collect();
    std::fs::write(&text, format!("key,value\n{lines}")).expect("written");
    fine(&["import", &data, "users", &text, "--format", "csv"]);
    data
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

/// Offset of what is found in the file.
fn place_of(path: &Path, what: &[u8]) -> usize {
    let bytes = std::fs::read(path).expect("read");
    bytes.windows(what.len()).position(|found| found == what).expect("it is there")
}

#[test]
fn intact_files_are_listed_one_by_one() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = map(dir.path(), "");
    let told = fine(&["verify", &data]);
    assert!(told.contains("values.log: intact; 500 keys"), "{told}");
    let json: serde_json::Value =
        serde_json::from_str(&fine(&["verify", &data, "--json"])).expect("one object");
    assert_eq!(json["intact"], true);
    assert_eq!(json["files"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_flipped_bit_of_a_value_is_named_with_its_offset() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = map(dir.path(), "");
    let file = dir.path().join("data/maps/users/values.log");
    let at = place_of(&file, b"key77vvvv") + 20;
    flip(&file, at);
    let before = std::fs::read(&file).expect("read");
    let (code, told, said) = run(&["verify", &data]);
    assert_eq!(code, 1, "{told}{said}");
    assert!(told.contains("values.log: damaged at offset "), "{told}");
    assert!(said.contains("1 file is damaged"), "{said}");
    let (code, json, _) = run(&["verify", &data, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("one object");
    assert_eq!((code, &json["intact"]), (1, &serde_json::Value::Bool(false)));
    let offset = json["files"][0]["damage"][0]["offset"].as_u64().expect("an offset");
    assert!((at as u64).abs_diff(offset) < 200, "the item of the bit: {offset}, {at}");
    assert_eq!(std::fs::read(&file).expect("read"), before, "nothing was changed");
}

#[test]
fn values_that_are_gone_are_missed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = map(dir.path(), "");
    std::fs::remove_file(dir.path().join("data/maps/users/values.log")).expect("removed");
    let (code, told, said) = run(&["verify", &data]);
    assert!(code == 1 && told.contains("values.log is missing"), "{told}{said}");
}

const KEPT: &str = "domain = \"adr\"\npersist = \"index\"\n";

fn index_of(dir: &Path) -> PathBuf {
    dir.join("data/maps/users/index")
}

/// Flips a bit of an entry of the first table, which lies behind the head and the allocation metadata: the file is
/// mostly holes.
fn flip_entry(path: &Path) {
    let file = File::options().read(true).write(true).open(path).expect("the index");
    let (mut head, mut buckets) = ([0; 64], [0; 1 << 16]);
    file.read_exact_at(&mut head, 0).expect("its head");
    let allocation = u64::from_le_bytes(*head[32..].first_chunk().expect("a word"));
    file.read_exact_at(&mut buckets, 4096 + allocation).expect("buckets");
    let at = (0..buckets.len()).find(|at| at % 64 >= 8 && buckets[*at] != 0).expect("an entry");
    file.write_all_at(&[buckets[at] ^ 1], 4096 + allocation + at as u64).expect("written");
}

#[test]
fn a_persistent_index_is_held_against_its_sum() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = map(dir.path(), KEPT);
    let told = fine(&["verify", &data]);
    assert!(told.contains("users/index: intact; 500 entries"), "{told}");
    flip_entry(&index_of(dir.path()));
    let (code, told, said) = run(&["verify", &data]);
    assert_eq!(code, 1, "{told}{said}");
    assert!(told.contains("users/index: damaged"), "{told}");
    assert!(told.contains("intact; 500 keys"), "the values are not: {told}");
}
