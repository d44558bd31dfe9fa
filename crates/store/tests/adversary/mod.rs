//! What the hostile tests share: seeded choices, values that tell what they are, and the files
//! that a kill, a power cut or a bad sector leaves behind.

#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use terrace_durable::medium::Event;
use terrace_store::{Durability, Error, Kind, Map, MapOptions};

/// Bytes that reach a disk together.
pub const SECTOR: usize = 512;
/// Bytes of a log.
pub const SEGMENT: usize = 4 << 20;
/// Bytes of a superblock or checkpoint record.
pub const BLOCK: usize = 4096;

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 >> 13)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// `normal`, or twenty times that where `TERRACE_LONG` is set.
pub fn cases(normal: u64) -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { normal * 20 } else { normal }
}

/// What `TERRACE_KIND` asks for: maps by hash, or ordered ones under the same tests.
pub fn kind() -> Kind {
    match std::env::var("TERRACE_KIND").as_deref() {
        Ok("ordered") => Kind::Ordered,
        _ => Kind::Hash,
    }
}

/// A small map, two writers.
pub fn options(durability: Durability) -> MapOptions {
    let kind = kind();
    MapOptions {
        durability,
        kind,
        memory_budget_bytes: 256 << 20,
        writers: 2,
        ..MapOptions::default()
    }
}

/// The value file of the map in `dir`.
pub fn file_of(dir: &Path) -> PathBuf {
    dir.join("values.log")
}

/// The value file as a kill at this moment would leave it.
pub fn file_now(dir: &Path) -> Vec<u8> {
    std::fs::read(file_of(dir)).expect("the value file is readable")
}

/// A directory that holds `image` as its value file.
pub fn planted(image: &[u8]) -> TempDir {
    let dir = in_memory();
    std::fs::write(file_of(dir.path()), image).expect("image written");
    dir
}

/// A directory in memory where there is one: what is recovered from an image does not depend on
/// the disk it lies on, and thousands of them do.
pub fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("directory")
}

/// A map whose value file is `image`, in a directory of its own.
pub fn opened(image: &[u8], options: MapOptions) -> Result<(TempDir, Map), Error> {
    let dir = planted(image);
    let map = Map::open(dir.path(), options)?;
    Ok((dir, map))
}

/// All keys and values.
pub fn contents(map: &Map) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = map
            .scan(cursor, 100, |key, value| {
                all.insert(key.to_vec(), value.bytes.to_vec());
            })
            .expect("a scan reads what is there");
        if cursor == 0 {
            return all;
        }
    }
}

fn mixed(number: u64) -> u64 {
    let x = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (x >> 31)
}

/// A value of at least 24 bytes that says which key it is of, which write it is from, and whether
/// every byte of it is there.
pub fn value_of(key: u64, write: u64, bytes: usize) -> Vec<u8> {
    let bytes = bytes.max(24);
    let mut value = Vec::with_capacity(bytes + 8);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&write.to_le_bytes());
    value.extend_from_slice(&(bytes as u64).to_le_bytes());
    let mut word = mixed(key ^ write.rotate_left(32) ^ bytes as u64);
    while value.len() < bytes {
        value.extend_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    }
    value.truncate(bytes);
    value
}

/// Which write of `key` the value is from; panics unless it is a whole value of that key.
pub fn write_of(key: u64, value: &[u8]) -> u64 {
    assert!(value.len() >= 24, "key {key}: a value of {} bytes", value.len());
    let write = u64::from_le_bytes(value[8..16].try_into().expect("eight bytes"));
    assert!(
        value == value_of(key, write, value.len()),
        "key {key}: the value of write {write} is not whole"
    );
    write
}

/// Which write every key's value is from, keys being eight bytes.
pub fn writes(map: &Map) -> BTreeMap<u64, u64> {
    let of = |(key, value): (Vec<u8>, Vec<u8>)| {
        let key = u64::from_be_bytes(key.try_into().expect("eight bytes"));
        (key, write_of(key, &value))
    };
    contents(map).into_iter().map(of).collect()
}

/// The file as a power cut after `cut` of `events` could leave it: what was synced is there; of
/// what was not, and of the write that was under way, any sector is there or not.
pub fn image_after(base: &[u8], events: &[Event], cut: usize, random: &mut Random) -> Vec<u8> {
    let mut image = base.to_vec();
    let synced = Event::synced(&events[..cut]);
    for (i, event) in events[..events.len().min(cut + 1)].iter().enumerate() {
        match event {
            Event::Grow(to) if i < synced || random.one_in(2) => lengthen(&mut image, *to as usize),
            Event::Write { at, bytes, durable } => {
                let safe = i < synced || (*durable && i < cut);
                let fate = if safe { 0 } else { random.below(4) };
                apply(&mut image, *at as usize, bytes, |_| match fate {
                    0 => true,
                    1 => false,
                    _ => random.one_in(2),
                });
            }
            Event::Release { at, bytes } if i < synced || random.one_in(2) => {
                Event::release(&mut image, *at, *bytes);
            }
            Event::Grow(_) | Event::Release { .. } | Event::Sync { .. } => {}
        }
    }
    image
}

/// Writes the sectors of `bytes` that `there` chooses, by number.
pub fn apply(image: &mut Vec<u8>, at: usize, bytes: &[u8], mut there: impl FnMut(usize) -> bool) {
    lengthen(image, at + bytes.len());
    for (n, sector) in bytes.chunks(SECTOR).enumerate() {
        if there(n) {
            let from = at + n * SECTOR;
            image[from..from + sector.len()].copy_from_slice(sector);
        }
    }
}

fn lengthen(image: &mut Vec<u8>, to: usize) {
    if image.len() < to {
        image.resize(to, 0);
    }
}

/// A map being recorded: the file when recording began, and everything since.
pub struct Recording {
    pub base: Vec<u8>,
    pub events: Vec<Event>,
}

/// Starts recording `map`, which lies in `dir` and is quiet.
pub fn recording(map: &Map, dir: &Path) -> Vec<u8> {
    map.sync().expect("sync");
    map.medium().start_trace();
    file_now(dir)
}

/// Runs the test with this name, module and all, in a process of its own: what is freed waits for readers of all maps
/// of a process, and those of other tests, held up on a busy machine, would count.
pub fn alone(name: &str, test: impl FnOnce()) {
    const ALONE: &str = "TERRACE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("child");
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{told}{}", String::from_utf8_lossy(&child.stderr));
    assert!(told.contains("1 passed"), "{told}");
}
