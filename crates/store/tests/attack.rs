//! Damage of every kind to every file that a map or a queue keeps, after an orderly end and after a kill: what is
//! read then is what was written, or an error that names file and offset. Never a value that nobody wrote, never a key
//! that is gone without a word, never a panic or a signal.
//!
//! Value logs have tests of their own (`damage_is_named_and_never_hides_keys`); here they are damaged beside an index
//! that is kept, which is reopened without reading them: a GET that met a damaged item there ended the server.
//! `TERRACE_LONG=1` tries twenty times as much, `TERRACE_SEED` begins elsewhere.

use crate::adversary::{Random, cases, in_memory, value_of};
use rustix::fs::SeekFrom;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_memory::{Budget, Domain};
use terrace_store::queue::Form;
use terrace_store::{
    Access, Durability, Error, Kind, Map, MapOptions, Persist, Queue, QueueOptions, ValueDesign,
};

/// All values that a key ever had.
type Versions = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { at: u64, bit: u8 },
    Zero { at: u64, bytes: u64 },
    Swap { a: u64, b: u64, bytes: u64 },
    Truncate { to: u64 },
}

fn seed() -> u64 {
    std::env::var("TERRACE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(19)
}

/// Offsets of 512-byte blocks of a file that hold anything: it has holes.
fn blocks(file: &File) -> Vec<u64> {
    let (mut blocks, mut at) = (Vec::new(), 0);
    while let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(file, SeekFrom::Hole(data)).expect("the end of data");
        let mut bytes = vec![0; (end - data) as usize];
        let read = file.read_at(&mut bytes, data).expect("read");
        let held = bytes[..read].chunks(512).enumerate();
        let held = held.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        blocks.extend(held.map(|(number, _)| data + 512 * number as u64));
        at = end;
    }
    blocks
}

impl Damage {
    fn drawn(file: &File, random: &mut Random) -> Damage {
        let blocks = blocks(file);
        let length = file.metadata().expect("length").len();
        let one = |random: &mut Random| blocks[random.below(blocks.len() as u64) as usize];
        let bytes = if random.one_in(2) { 512 } else { 4096 };
        match random.below(5) {
            0 | 1 => {
                Damage::Flip { at: one(random) + random.below(512), bit: random.below(8) as u8 }
            }
            2 => Damage::Zero { at: one(random) / bytes * bytes, bytes },
            3 => {
                let (a, b) = (one(random) / bytes * bytes, one(random) / bytes * bytes);
                Damage::Swap { a, b, bytes }
            }
            _ => Damage::Truncate {
                to: [random.below(9000), one(random) + random.below(512)][random.below(2) as usize],
            },
        }
        .within(length)
    }

    fn within(self, length: u64) -> Damage {
        match self {
            Damage::Flip { at, bit } => Damage::Flip { at: at.min(length - 1), bit },
            Damage::Zero { at, bytes } => Damage::Zero { at, bytes: bytes.min(length - at) },
            Damage::Swap { a, b, bytes } => {
                Damage::Swap { a, b, bytes: bytes.min(length - a).min(length - b) }
            }
            Damage::Truncate { to } => Damage::Truncate { to: to.min(length - 1) },
        }
    }

    fn apply(self, file: &File) {
        let read = |at: u64, bytes: u64| {
            let mut block = vec![0; bytes as usize];
            file.read_exact_at(&mut block, at).expect("read");
            block
        };
        let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).expect("written");
        match self {
            Damage::Flip { at, bit } => write(at, &[read(at, 1)[0] ^ 1 << bit]),
            Damage::Zero { at, bytes } => write(at, &vec![0; bytes as usize]),
            Damage::Swap { a, b, bytes } => {
                let (first, second) = (read(a, bytes), read(b, bytes));
                write(a, &second);
                write(b, &first);
            }
            Damage::Truncate { to } => file.set_len(to).expect("shorter"),
        }
    }
}

fn copied(dir: &Path) -> TempDir {
    let copy = in_memory();
    let from = dir.join(".");
    let done =
        Command::new("cp").args(["-r", "--sparse=always"]).arg(from).arg(copy.path()).status();
    assert!(done.expect("cp").success());
    copy
}

fn open_file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("file")
}

/// How a map is made, and whether it was closed.
#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: Kind,
    values: ValueDesign,
    persist: Persist,
    domain: Domain,
    is_closed: bool,
}

impl Shape {
    fn all() -> Vec<Shape> {
        let mut all = Vec::new();
        for (kind, persist) in [
            (Kind::Hash, Persist::Values),
            (Kind::Hash, Persist::Index),
            (Kind::Hash, Persist::Full),
            (Kind::Ordered, Persist::Index),
        ] {
            for values in [ValueDesign::Log, ValueDesign::Slab] {
                for is_closed in [true, false] {
                    all.push(Shape { kind, values, persist, domain: Domain::Adr, is_closed });
                }
            }
        }
        all.push(Shape {
            kind: Kind::Hash,
            values: ValueDesign::Slab,
            persist: Persist::Values,
            domain: Domain::Eadr,
            is_closed: false,
        });
        all
    }

    fn options(self) -> MapOptions {
        MapOptions {
            durability: Durability::Sync,
            kind: self.kind,
            values: self.values,
            persist: self.persist,
            domain: self.domain,
            memory_budget_bytes: 256 << 20,
            writers: 2,
            ..MapOptions::default()
        }
    }

    /// Files that are damaged.
    fn files(self) -> Vec<&'static str> {
        let values = match self.values {
            ValueDesign::Slab => Some("values.slab"),
            // Without an index beside it, and after a kill, others see to it.
            _ if self.persist == Persist::Values || !self.is_closed => None,
            _ => Some("values.log"),
        };
        let index = (self.persist != Persist::Values).then_some("index");
        values.into_iter().chain(index).collect()
    }

    /// A directory with a few hundred keys, as it was left, and what it holds; and every value that was written.
    fn made(self) -> (TempDir, Contents, Versions) {
        let dir = in_memory();
        let map = Map::open(dir.path(), self.options()).expect("open");
        let (mut holds, mut ever) = (Contents::new(), BTreeMap::<_, Vec<_>>::new());
        let mut random = Random(7);
        for write in 0..700 {
            let key = random.below(400);
            let bytes = key.to_be_bytes().to_vec();
            if random.one_in(8) {
                map.delete(&bytes).expect("delete");
                holds.remove(&bytes);
                continue;
            }
            let value = value_of(key, write, 30 + random.below(100) as usize);
            map.put(&bytes, &value).expect("put");
            holds.insert(bytes.clone(), value.clone());
            ever.entry(bytes).or_default().push(value);
        }
        if !self.is_closed {
            return (copied(dir.path()), holds, ever);
        }
        map.close().expect("close");
        // Slabs say that they are whole when the last handle goes.
        drop(map);
        (copied(dir.path()), holds, ever)
    }
}

/// Whether an error names a file of the directory.
fn is_typed(error: &Error, dir: &Path) -> bool {
    use terrace_durable::Error as Below;
    let known = matches!(
        error,
        Error::Missing { .. } | Error::Medium(Below::Damaged { .. } | Below::Mismatch { .. })
    );
    // Readers are told to have it opened once, to be written.
    let is_half_done = matches!(error, Error::Option { field: "access", .. });
    known && error.to_string().contains(&*dir.to_string_lossy()) || is_half_done
}

/// What is wrong with how a damaged directory is received, if anything. `hides`: keys may be gone without a word.
fn received(
    shape: Shape,
    hides: bool,
    dir: &Path,
    holds: &Contents,
    ever: &BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
) -> Result<(), String> {
    for access in [Access::Salvage, Access::Read, Access::Write] {
        let map = match Map::open(dir, MapOptions { access, ..shape.options() }) {
            Ok(map) => map,
            Err(error) if is_typed(&error, dir) => continue,
            Err(error) => return Err(format!("{access:?}: an unclear error: {error:?}")),
        };
        let report = map.recovery();
        let passes = access == Access::Salvage;
        // What a crash may have torn is dropped, and told of.
        let torn = report.torn.len();
        let mut gone = 0;
        for (key, value) in holds {
            match map.get(key) {
                Ok(Some(found)) if found == *value => {}
                Ok(Some(found)) if passes && ever[key].contains(&found) => gone += 1,
                Ok(Some(_)) => return Err(format!("{access:?}: a wrong value")),
                Ok(None) => gone += 1,
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(format!("{access:?}: GET answers {error:?}")),
            }
        }
        let is_told = passes && !report.damage.is_empty() || gone <= torn || hides;
        if gone > 0 && !is_told {
            return Err(format!("{access:?}: {gone} keys are gone, {torn} torn, {report:?}"));
        }
        let (mut cursor, mut calls) = (0, 0);
        loop {
            let mut invented = false;
            let scanned = map.scan(cursor, 50, |key, value| {
                invented |=
                    !ever.get(key).is_some_and(|values| values.iter().any(|v| v == value.bytes));
            });
            calls += 1;
            match scanned {
                _ if invented => return Err(format!("{access:?}: a scan tells what nobody wrote")),
                _ if calls > 1000 => return Err(format!("{access:?}: a scan has no end")),
                Ok(0) => break,
                Ok(next) => cursor = next,
                Err(error) if error.is_damage() => break,
                Err(error) => return Err(format!("{access:?}: a scan answers {error:?}")),
            }
        }
        if access == Access::Write {
            // The others go on.
            match map.put(b"another key", b"value") {
                Ok(()) => {}
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(format!("a write answers {error:?}")),
            }
        }
        drop(map);
    }
    Ok(())
}

#[test]
fn a_damaged_map_is_read_right_or_refused() {
    // From 1 on, blocks are exchanged that hold whole items: keys were gone that a persistent index named.
    for seed in [seed(), 1] {
        a_damaged_map_from(seed);
    }
}

fn a_damaged_map_from(seed: u64) {
    let mut random = Random(seed);
    let mut wrong = Vec::new();
    let mut tried = 0;
    for shape in Shape::all() {
        let (left, holds, ever) = shape.made();
        for file in shape.files() {
            for _ in 0..cases(4) {
                let dir = copied(left.path());
                let path = dir.path().join(file);
                let damage = Damage::drawn(&open_file(&path), &mut random);
                damage.apply(&open_file(&path));
                tried += 1;
                // After a kill a slot that is zero is a free one, and what a block of before holds was freed since.
                let is_block = matches!(damage, Damage::Zero { .. } | Damage::Swap { .. });
                let hides = !shape.is_closed && file == "values.slab" && is_block;
                if let Err(why) = received(shape, hides, dir.path(), &holds, &ever) {
                    wrong.push(format!("{shape:?} {file} {damage:?}: {why}"));
                }
            }
            let dir = copied(left.path());
            std::fs::remove_file(dir.path().join(file)).expect("removed");
            if let Err(why) = received(shape, false, dir.path(), &holds, &ever) {
                wrong.push(format!("{shape:?} {file} removed: {why}"));
            }
        }
    }
    let shown = wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n  ");
    assert!(wrong.is_empty(), "seed {seed}: {} of {tried}:\n  {shown}", wrong.len());
}

/// Every block of 4 KiB of a persistent index, zeroed in turn: keys that were in it were gone without a word, and SCAN
/// counted others that GET did not find.
#[test]
fn no_zeroed_block_of_a_persistent_index_hides_a_key() {
    for shape in Shape::all().into_iter().filter(|shape| shape.persist != Persist::Values) {
        let (left, holds, ever) = shape.made();
        let path: PathBuf = left.path().join("index");
        let mut at: Vec<u64> =
            blocks(&open_file(&path)).iter().map(|at| at / 4096 * 4096).collect();
        at.dedup();
        let step =
            if std::env::var_os("TERRACE_LONG").is_some() { 1 } else { (at.len() / 4).max(1) };
        for at in at.into_iter().step_by(step) {
            let dir = copied(left.path());
            Damage::Zero { at, bytes: 4096 }.apply(&open_file(&dir.path().join("index")));
            let outcome = received(shape, false, dir.path(), &holds, &ever);
            assert_eq!(outcome, Ok(()), "{shape:?}: block at {at}");
        }
    }
}

/// One byte of every item in turn, beside an index that was closed in order: the key's GET says file and offset, again
/// and again, and every other key is read.
#[test]
fn a_get_that_meets_a_damaged_item_is_an_error_with_its_place() {
    for values in [ValueDesign::Log, ValueDesign::Slab] {
        for (kind, persist) in [
            (Kind::Hash, Persist::Index),
            (Kind::Hash, Persist::Full),
            (Kind::Ordered, Persist::Index),
        ] {
            let shape = Shape { kind, values, persist, domain: Domain::Adr, is_closed: true };
            let (left, holds, _) = shape.made();
            let name = shape.files()[0];
            let image = std::fs::read(left.path().join(name)).expect("values");
            let mut places = holds.iter().map(|(key, value)| {
                let at =
                    image.windows(value.len()).position(|bytes| bytes == value).expect("a value");
                (key.clone(), at)
            });
            let (key, at) = places.next().expect("a key");
            for (offset, mask) in [(0isize, 0x10u8), (-1, 1), (-12, 0xff), (-15, 4), (5, 0xff)] {
                let dir = copied(left.path());
                let file = open_file(&dir.path().join(name));
                let place = (at as isize + offset) as u64;
                let mut byte = [0];
                file.read_exact_at(&mut byte, place).expect("read");
                file.write_all_at(&[byte[0] ^ mask], place).expect("written");
                let map =
                    Map::open(dir.path(), shape.options()).expect("its index is as it was closed");
                for _ in 0..2 {
                    let error = map.get(&key).expect_err("damaged");
                    let told = error.to_string();
                    assert!(
                        error.is_damage() && told.contains(name) && told.contains("offset"),
                        "{told}"
                    );
                }
                let others = holds.iter().filter(|(other, _)| **other != key);
                for (other, value) in others {
                    assert_eq!(map.get(other).expect("get").as_ref(), Some(value), "{shape:?}");
                }
                let keys: Vec<&[u8]> = holds.keys().map(Vec::as_slice).collect();
                assert!(map.multi_get(&keys, |_, _| {}).expect_err("one is damaged").is_damage());
                assert!(
                    map.put(&key, b"new").expect_err("what it would take the place of").is_damage()
                );
                let batch: [(&[u8], &[u8]); 2] = [(b"first", b"1"), (&key, b"2")];
                assert!(map.multi_put(&batch).expect_err("one of them is damaged").is_damage());
                map.put(b"another", b"value").expect("put");
            }
        }
    }
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 30))
}

#[test]
fn a_damaged_queue_gives_out_what_was_pushed_or_is_refused() {
    let mut random = Random(seed());
    let mut wrong = Vec::new();
    for (form, domain) in [
        (Form::Tx, Domain::Adr),
        (Form::TxFree, Domain::Adr),
        (Form::TxFree, Domain::Eadr),
        (Form::TxFree, Domain::PageCache),
    ] {
        for is_closed in [true, false] {
            let dir = in_memory();
            let options = QueueOptions {
                form,
                domain,
                durability: Durability::Sync,
                capacity_bytes: Some(64 << 10),
                slot_bytes: Some(128),
                ..QueueOptions::default()
            };
            let queue = Queue::open(dir.path(), &options, &budget()).expect("open");
            let element = |number: u64| value_of(number, 1, 24 + (number * 7 % 200) as usize);
            for number in 0..600 {
                queue.push(&element(number)).expect("push");
                if number >= 100 {
                    queue.pop().expect("pop").expect("an element");
                }
            }
            if is_closed {
                queue.close().expect("close");
            }
            let left = copied(dir.path());
            for _ in 0..cases(12) {
                let dir = copied(left.path());
                let file = open_file(&dir.path().join("ring"));
                let damage = Damage::drawn(&file, &mut random);
                damage.apply(&file);
                let opened = Queue::open(dir.path(), &options, &budget());
                let queue = match opened {
                    Ok(queue) => queue,
                    Err(error) if is_typed(&error, dir.path()) => continue,
                    Err(error) => {
                        wrong.push(format!("{form} {domain} {damage:?}: {error:?}"));
                        continue;
                    }
                };
                let found: Vec<_> = std::iter::from_fn(|| queue.pop().expect("pop")).collect();
                let mut rest = (500..600).map(element);
                let in_order = found.iter().all(|element| rest.any(|pushed| pushed == *element));
                // Where nothing says how far the queue reached, what does not verify may never have been pushed.
                let is_whole = found.len() == 100 || !is_closed;
                if !in_order || !is_whole {
                    let found = found.len();
                    wrong.push(format!(
                        "{form} {domain} closed {is_closed} {damage:?}: {found} elements"
                    ));
                }
            }
        }
    }
    let shown = wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n  ");
    assert!(wrong.is_empty(), "seed {}: {}:\n  {shown}", seed(), wrong.len());
}
