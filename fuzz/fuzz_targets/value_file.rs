//! Whatever the file, opening it recovers or refuses, with salvage and without; salvage and reading leave the
//! file as it was, and a file that opened once opens again.
//!
//! The input's first byte says how the rest becomes a file: as it is, or as head, checkpoints, log header
//! and items, each with its checksum repaired if a bit says so.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_durable::checksum::Crc;
use terrace_durable::item::{Header, NewItem};
use terrace_durable::logs::{Logs, Room};
use terrace_durable::sections::Changes;
use terrace_durable::{Access, Medium, MediumSpec};
use terrace_memory::{Budget, Domain};

const BLOCK: usize = 4096;
const SEGMENT: usize = 4 << 20;
const CAPACITY_BYTES: u64 = 8 << 22;

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

fn seal(block: &mut [u8], seed: u32) {
    let end = block.len() - 4;
    let crc = Crc::new(seed).update(&block[..end]).finish();
    put(block, end, &crc.to_le_bytes());
}

/// Takes `n` bytes off the front; zeros where there are none left.
fn take<'a>(data: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (front, rest) = data.split_at(n.min(data.len()));
    *data = rest;
    front
}

/// A file with a head that passes, whose fields are the fuzzer's.
fn composed(how: u8, mut data: &[u8]) -> Vec<u8> {
    let mut file = vec![0; SEGMENT];
    put(&mut file, 0, b"TERRACEv");
    put(&mut file, 8, &1u32.to_le_bytes());
    put(&mut file, 12, &(SEGMENT as u32).to_le_bytes());
    put(&mut file, 16, &1u32.to_le_bytes());
    seal(&mut file[..BLOCK], 1);
    for block in [1, 2] {
        let record = &mut file[block * BLOCK..(block + 1) * BLOCK];
        put(record, 0, &0x0054_5543u32.to_le_bytes());
        // Rule, number, generation, next sequence, segments, count; then the open logs.
        put(record, 4, take(&mut data, 36 + 32));
        if how & (1 << block) == 0 {
            seal(record, 1);
        }
    }
    for _ in 0..1 + (how >> 4 & 1) {
        let mut log = vec![0; 64];
        put(&mut log, 0, b"TLOG");
        put(&mut log, 4, take(&mut data, 28));
        let salt = u32::from_le_bytes([log[16], log[17], log[18], log[19]]);
        let mut word = [0; 4];
        put(&mut word, 0, take(&mut data, 3));
        let sealed = u32::from_le_bytes(word);
        if how & 128 == 0 {
            put(&mut log, 32, &sealed.to_le_bytes());
            put(&mut log, 36, &(sealed ^ salt ^ 0x5ea1_ed00).to_le_bytes());
        }
        if how & 8 == 0 {
            let crc = Crc::new(u32::from_le_bytes(*b"TLOG")).update(&log[..32]).finish();
            put(&mut log, 60, &crc.to_le_bytes());
        }
        let bytes = sealed as usize & 0x3fff;
        let mut items = take(&mut data, bytes.min(8_000)).to_vec();
        if how & 32 == 0 {
            repair(&mut items, salt);
        }
        log.extend(items);
        log.resize(if how & 64 == 0 { log.len() } else { SEGMENT }, 0);
        file.resize(file.len().next_multiple_of(SEGMENT), 0);
        file.extend(log);
    }
    file
}

/// Gives every item, one behind the other, the checksum it should have.
fn repair(items: &mut [u8], salt: u32) {
    let mut at = 0;
    while let Some(length) =
        items.get(at..).and_then(Header::decode).map(|header| header.item_bytes())
    {
        let Some(covered) = items.get(at + 4..at + length) else { return };
        let crc = Crc::new(salt).update(covered).finish();
        put(items, at, &crc.to_le_bytes());
        at += length;
    }
}

/// Writes what is not zero: most of a file is.
fn plant(path: &PathBuf, bytes: &[u8]) {
    let file = std::fs::File::create(path).expect("file");
    file.set_len(bytes.len() as u64).expect("length");
    for (n, block) in
        bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0))
    {
        file.write_all_at(block, (n * BLOCK) as u64).expect("block");
    }
}

/// Opens and recovers; the sum of what was told keeps the reads from being optimised away.
fn open(path: &PathBuf, access: Access) -> Option<Logs> {
    let spec = MediumSpec {
        path: path.clone(),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: CAPACITY_BYTES,
        access,
    };
    let medium = Medium::open(&spec).expect("a file can be opened");
    let logs = Logs::open(medium, 2, &Arc::new(Budget::new(CAPACITY_BYTES))).ok()?;
    let sum = AtomicU64::new(0);
    let visit = |location: u64, item: &terrace_durable::item::Item<'_>, bytes: usize| {
        assert!(location + bytes as u64 <= CAPACITY_BYTES, "an item lies inside the medium");
        sum.fetch_add(item.version ^ item.key.len() as u64, Ordering::Relaxed);
    };
    let found = logs.recover(1, &visit).ok()?;
    let may_be_damaged = access == Access::Salvage;
    assert!(may_be_damaged || found.damage.is_empty(), "damage is an error without salvage");
    Some(logs)
}

/// Works on what was opened: whatever passed recovery must bear use.
fn used(logs: &Logs) {
    for segment in logs.survey() {
        if logs.claim(segment.number) {
            logs.each_item(segment.number, |location, item, bytes| {
                let guard = crossbeam_epoch::pin();
                assert_eq!(logs.item(location, &guard).key, item.key);
                assert!(bytes > 0);
            });
            logs.unclaim(segment.number);
        }
    }
    let new =
        NewItem { key: b"key", value: b"value", version: 1, expires_at_ms: None, tombstone: false };
    if let Ok(mut appender) = logs.appender(1, new.item_bytes(), Room::Ordinary) {
        appender.append(&new, &mut Changes::new());
    }
    logs.flush_all().expect("the disk is sound");
}

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    let file = if how & 1 == 0 { composed(*how, rest) } else { rest.to_vec() };
    let path = std::env::temp_dir().join(format!("terrace-fuzz-{}.log", std::process::id()));
    plant(&path, &file);
    let can_be_read = [Access::Salvage, Access::Read].map(|access| open(&path, access).is_some());
    assert!(std::fs::read(&path).expect("file") == file, "reading changed the file");
    if let Some(logs) = open(&path, Access::Write) {
        assert_eq!(can_be_read, [true; 2], "what can be written can be read");
        used(&logs);
        drop(logs);
        assert!(open(&path, Access::Write).is_some(), "what opened once opens again");
    }
    std::fs::remove_file(&path).expect("tidy");
});
