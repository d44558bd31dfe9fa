use super::*;
use crate::access::Access;
use crate::error::Error;
use crate::item::{MAX_HEADER_BYTES, NewItem, encode_batch_end};
use crate::superblock::Rule;
use std::collections::BTreeMap;
use terrace_memory::Backing;

const SALT: u32 = 7;

type Pairs = BTreeMap<String, Option<String>>;

/// Nobody explores crashes here.
fn nobody() -> Native {
    Region::reserve(4096, Backing::Anonymous).expect("address space").native()
}

fn checkpoint(number: u64) -> Checkpoint {
    Checkpoint {
        number,
        rule: Rule::Bounded,
        generation: 1,
        next_sequence: 9,
        segments: 3,
        open: Vec::new(),
        index: 0,
        saved: Default::default(),
        redo: 0,
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    budget: Arc<Budget>,
    owed: Arc<Owed>,
    log: Arc<RedoLog>,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::within(64 << 20)
    }

    fn within(budget: u64) -> Fixture {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (budget, owed) = (Arc::new(Budget::new(budget)), Arc::default());
        let log = RedoLog::make(&dir.path().join(NAME), dir.path(), &budget, &owed).expect("made");
        log.expect(&nobody(), &checkpoint(1));
        Fixture { dir, budget, owed, log: Arc::new(log) }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }

    /// What the process's death leaves: the mapping is shared, so another of the file shows it.
    fn left(&self, checkpoint: &Checkpoint) -> Result<Option<Pairs>> {
        self.left_under(Access::Read, checkpoint)
    }

    fn left_under(&self, access: Access, checkpoint: &Checkpoint) -> Result<Option<Pairs>> {
        let values = self.dir.path();
        let Some(left) = Left::find(&self.path(), values, checkpoint, access, &self.budget)? else {
            return Ok(None);
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let newest = left.newest()?;
        let of = |redo: &Redo<'_>| (text(redo.key), redo.value.map(|(value, _)| text(value)));
        Ok(Some(newest.keys.iter().map(of).collect()))
    }

    fn found(&self, checkpoint: &Checkpoint) -> Pairs {
        self.left(checkpoint).expect("readable").expect("it belongs to the checkpoint")
    }

    /// Flips a bit of the file, as whoever has it mapped sees it.
    fn flip(&self, at: u64) {
        self.log.store(at / 8 * 8, self.log.load(at / 8 * 8) ^ 1 << (at % 8 * 8));
    }
}

fn put(pen: &mut Pen, key: &str, value: &str, in_batch: bool) {
    let tombstone = value.is_empty();
    let (key, value) = (key.as_bytes(), if tombstone { &[0; 8] } else { value.as_bytes() });
    let item = NewItem { key, value, version: 1, expires_at_ms: None, tombstone };
    let mut header = [0; MAX_HEADER_BYTES];
    let length = item.encode_header(SALT, in_batch, &mut header);
    pen.record(&nobody(), Some(key), SALT, &[&header[..length], key, value]);
}

fn pairs(pairs: &[(&str, &str)]) -> Pairs {
    let value = |value: &str| (!value.is_empty()).then(|| value.to_string());
    pairs.iter().map(|(key, v)| (key.to_string(), value(v))).collect()
}

#[test]
fn the_newest_of_each_key_is_found_whoever_wrote_it() {
    let fixture = Fixture::new();
    let (mut one, mut two) = (Pen::new(&fixture.log, 1), Pen::new(&fixture.log, 2));
    put(&mut two, "a", "older", false);
    put(&mut one, "a", "newer", false);
    put(&mut one, "b", "x", false);
    put(&mut two, "b", "", false);
    assert_eq!(fixture.found(&checkpoint(1)), pairs(&[("a", "newer"), ("b", "")]));
}

#[test]
fn records_are_skipped_only_once_their_checkpoint_exists() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    put(&mut pen, "a", "1", false);
    assert!(pen.note(&nobody(), 2, &mut Vec::new()) && !pen.note(&nobody(), 3, &mut Vec::new()));
    put(&mut pen, "b", "2", false);
    fixture.log.expect(&nobody(), &checkpoint(2));
    assert_eq!(fixture.found(&checkpoint(1)), pairs(&[("a", "1"), ("b", "2")]));
    assert_eq!(fixture.found(&checkpoint(2)), pairs(&[("b", "2")]));
}

#[test]
fn a_log_of_another_checkpoint_or_another_boot_is_none() {
    let fixture = Fixture::new();
    put(&mut Pen::new(&fixture.log, 1), "a", "1", false);
    let other = Checkpoint { next_sequence: 10, ..checkpoint(1) };
    assert_eq!(fixture.left(&other).expect("readable"), None);
    assert_eq!(fixture.left(&checkpoint(2)).expect("readable"), None);
    let boot = fixture.log.load(BOOT_AT);
    fixture.log.store(BOOT_AT, boot ^ 1);
    fixture.log.store(CHECK_AT, fixture.log.control_check());
    assert_eq!(fixture.left(&checkpoint(1)).expect("readable"), None);
}

#[test]
fn a_batch_counts_with_its_end() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    put(&mut pen, "a", "1", true);
    put(&mut pen, "b", "2", true);
    assert_eq!(fixture.found(&checkpoint(1)), pairs(&[]));
    pen.record(&nobody(), None, SALT, &[&encode_batch_end(SALT)]);
    assert_eq!(fixture.found(&checkpoint(1)), pairs(&[("a", "1"), ("b", "2")]));
}

/// A batch whose second item the redo log had no room for has no end there. Behind the note of the checkpoint that was
/// to make up for that, the end of the next batch completed it: half of it came back, if the process was killed before
/// that checkpoint was durable.
#[test]
fn a_batch_that_was_left_out_in_part_does_not_end_with_the_next() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    put(&mut pen, "a", "1", true);
    put(&mut pen, "b", &"x".repeat(8 << 20), true);
    pen.record(&nobody(), None, SALT, &[&encode_batch_end(SALT)]);
    assert!(fixture.owed.is_any(), "the second item was left out");
    pen.note(&nobody(), 2, &mut Vec::new());
    put(&mut pen, "c", "3", true);
    pen.record(&nobody(), None, SALT, &[&encode_batch_end(SALT)]);
    assert_eq!(fixture.found(&checkpoint(1)), pairs(&[("c", "3")]));
}

/// A checkpoint record that names `fixture`'s redo log.
fn named(fixture: &Fixture) -> Checkpoint {
    let checkpoint = Checkpoint { redo: fixture.log.name(), ..checkpoint(1) };
    fixture.log.expect(&nobody(), &checkpoint);
    checkpoint
}

/// A flipped bit in the head of a chunk dropped up to 4 MiB of acknowledged writes without a word, one in the control
/// page all of them, one in the head of a last record that record. Here every byte is flipped of all that a process
/// stored, with records in several chunks, one of them freed: each time everything is there, or the damage is named.
#[test]
fn no_flipped_byte_loses_anything_silently() {
    let fixture = Fixture::new();
    let mut pens = [1, 2].map(|id| Pen::new(&fixture.log, id));
    let big = "x".repeat(100 << 10);
    put(&mut pens[1], "b", "2", false);
    for _ in 0..4 {
        put(&mut pens[0], "filler", &big, false);
    }
    let mut full = Vec::new();
    pens[0].note(&nobody(), 1, &mut full);
    fixture.log.covered(&nobody(), 0, full);
    put(&mut pens[0], "a", "1", false);
    put(&mut pens[1], "c", "", false);
    let checkpoint = named(&fixture);
    let whole = pairs(&[("a", "1"), ("b", "2"), ("c", "")]);
    assert_eq!(fixture.found(&checkpoint), whole);
    let made = fixture.log.load_sealed(MADE_AT).expect("intact") as u32;
    assert!(made >= 3, "{made} chunks");
    // The big items are sampled.
    let of_chunk = |chunk| {
        let start = fixture.log.start_of(chunk);
        let sampled = (start + 256..start + fixture.log.chunk_bytes).step_by(4099);
        (start..start + 256).chain(sampled)
    };
    let (mut named_ones, mut harmless) = (0, 0);
    for at in (0..CHECKPOINTS_AT + 32).chain((0..made).flat_map(of_chunk)) {
        fixture.flip(at);
        match fixture.left(&checkpoint) {
            Ok(found) => assert_eq!(found.expect("it belongs to it"), whole, "silent at {at}"),
            Err(error) => assert!(error.to_string().contains("--salvage"), "{at}: {error}"),
        }
        match fixture.left(&checkpoint).is_err() {
            true => named_ones += 1,
            false => harmless += 1,
        }
        let salvaged = fixture.left_under(Access::Salvage, &checkpoint);
        let salvaged = salvaged.ok().flatten().unwrap_or_default();
        let is_older = |(key, value): (&String, &Option<String>)| whole.get(key) == Some(value);
        let known = salvaged.iter().filter(|(key, _)| *key != "filler").all(is_older);
        assert!(known, "{at}: invented {salvaged:?}");
        fixture.flip(at);
    }
    assert!(named_ones > 200 && harmless > 50, "{named_ones} named, {harmless} harmless");
    assert_eq!(fixture.found(&checkpoint), whole);
}

/// The control of the test above: a head that says, with a right check, that its records do not count. What is lost
/// then is seen.
#[test]
fn a_head_that_lies_loses_records() {
    let fixture = Fixture::new();
    put(&mut Pen::new(&fixture.log, 1), "a", "1", false);
    let checkpoint = named(&fixture);
    let start = fixture.log.start_of(0);
    let head = Head::of(fixture.log.load_sealed(start).expect("intact"));
    fixture.log.store_sealed(start, Head { is_used: false, ..head }.word());
    assert_eq!(fixture.found(&checkpoint), pairs(&[]));
}

#[test]
fn zeros_in_place_of_a_head_or_a_first_page_are_damage() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    (0..100).for_each(|key| put(&mut pen, &format!("{key}"), &"x".repeat(100), false));
    let checkpoint = named(&fixture);
    let start = fixture.log.start_of(0);
    for bytes in [8, 4096] {
        (start..start + bytes).step_by(8).for_each(|at| fixture.log.store(at, 0));
        let error = fixture.left(&checkpoint).expect_err("damage").to_string();
        assert!(error.contains(&format!("offset {start}")), "{error}");
    }
}

/// A process was killed when one thread had made a chunk, and another the next one, and the head of the first was not
/// there yet: what it left was taken for damage, and the map did not open. Only the last may be without a head.
#[test]
fn a_chunk_has_a_head_before_the_next_is_made() {
    for _ in 0..100 {
        let fixture = Fixture::new();
        let log = &fixture.log;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|writer| {
                    scope.spawn(move || {
                        for _ in 0..3 {
                            let _taken = log.take(&nobody(), writer);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let made = log.load_sealed(MADE_AT).expect("intact") as u32;
                    for chunk in 0..made.saturating_sub(1) {
                        let head = log.load_sealed(log.start_of(chunk));
                        assert!(head.is_some(), "chunk {chunk} of {made}");
                    }
                }
            });
            takers.into_iter().for_each(|taker| taker.join().expect("taken"));
            is_over.store(true, Ordering::Release);
        });
    }
}

/// What was lost of a file, or the file itself, is missed in the boot that its checkpoint record names and beside the
/// value file that it names; a copy, another boot and a record that names none go without.
#[test]
fn a_missing_or_short_redo_log_is_an_error_where_there_must_be_one() {
    let fixture = Fixture::new();
    put(&mut Pen::new(&fixture.log, 1), "a", "1", false);
    let here = named(&fixture);
    let (copied, rebooted) = (here.redo ^ 1 << 40, here.redo ^ 1 << 8);
    let open = |redo| {
        let checkpoint = Checkpoint { redo, ..here.clone() };
        Left::find(&fixture.path(), fixture.dir.path(), &checkpoint, Access::Read, &fixture.budget)
    };
    let bytes = std::fs::read(fixture.path()).expect("read");
    for length in [0, 100, CONTROL_BYTES as usize, bytes.len() - 1] {
        // The log keeps its mapping of the old file.
        std::fs::remove_file(fixture.path()).expect("removed");
        std::fs::write(fixture.path(), &bytes[..length]).expect("written");
        let read = |redo| open(redo).map(|left| left.map(|left| left.newest().map(drop)));
        let is_named = |redo| {
            matches!(read(redo), Err(Error::Damaged { .. }) | Ok(Some(Err(Error::Damaged { .. }))))
        };
        assert!(is_named(here.redo) && is_named(copied) || length > 100, "{length}");
        if length > 100 {
            let of_here = Checkpoint { redo: here.redo, ..here.clone() };
            let error = fixture.left(&of_here).expect_err("it is short").to_string();
            assert!(error.contains("ends before its last chunk"), "{error}");
        } else {
            assert!(matches!(open(rebooted), Ok(None)) && matches!(open(0), Ok(None)), "{length}");
        }
    }
    std::fs::remove_file(fixture.path()).expect("removed");
    let error = open(here.redo).expect_err("it is missing").to_string();
    assert!(error.contains("missing") && error.contains("redo"), "{error}");
    for redo in [copied, rebooted, 0] {
        assert!(matches!(open(redo), Ok(None)), "{redo:x}");
    }
}

/// Before its checksum is looked at.
#[test]
fn a_newer_redo_log_is_refused_by_its_number() {
    let fixture = Fixture::new();
    let checkpoint = named(&fixture);
    fixture.log.store(VERSION_AT, VERSION + 1);
    // Had the rest stayed, it would be the number that is damaged.
    assert!(matches!(fixture.left(&checkpoint), Err(Error::Damaged { .. })));
    fixture.log.store(CHECK_AT, 1);
    for access in [Access::Read, Access::Write, Access::Salvage] {
        let error = fixture.left_under(access, &checkpoint).expect_err("newer");
        assert!(matches!(error, Error::Newer { found: 2, .. }), "{error}");
    }
}

/// A process dies between any two of its stores: the last record may be there in part, and none behind it.
#[test]
fn an_unfinished_record_is_the_last() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    put(&mut pen, "a", "1", false);
    put(&mut pen, "b", "2", false);
    let second = fixture.log.records_of(0) + 40;
    // Its first word comes last, and is zero before.
    fixture.log.store(second, 0);
    assert_eq!(fixture.found(&checkpoint(1)), pairs(&[("a", "1")]));
}

/// Puts values of 100 KiB down until one is left out; how many were not.
fn fill(fixture: &Fixture, pen: &mut Pen) -> usize {
    let value = "x".repeat(100 << 10);
    for keys in 0..1000 {
        put(pen, &format!("{keys}"), &value, false);
        if fixture.owed.is_any() {
            return keys;
        }
    }
    1000
}

/// A chunk is allocated step by step, and here in the middle of one there was no room for another step.
#[test]
fn a_chunk_that_cannot_grow_gives_way_to_those_that_a_checkpoint_has_freed() {
    let fixture = Fixture::within(8 << 30);
    fixture.budget.take_anyway(fixture.budget.limit() / 16 * 15);
    let mut pen = Pen::new(&fixture.log, 1);
    let first = fill(&fixture, &mut pen);
    assert!((150..170).contains(&first), "{first} values in the 16 MiB that are set aside");
    for number in 2..5 {
        let (left_out, mut full) = (fixture.log.left_out(), Vec::new());
        pen.note(&nobody(), number, &mut full);
        fixture.log.expect(&nobody(), &checkpoint(number));
        fixture.log.covered(&nobody(), left_out, full);
        assert!(!fixture.owed.is_any());
        let again = fill(&fixture, &mut pen);
        assert!(again + 25 > first, "{again} values after a checkpoint, and {first} before");
    }
}

#[test]
fn a_redo_log_takes_what_the_budget_has_to_spare() {
    let fixture = Fixture::within(8 << 30);
    assert_eq!(
        fill(&fixture, &mut Pen::new(&fixture.log, 1)),
        1000,
        "100 MB, of 256 MiB that may be"
    );
}

#[test]
fn without_room_a_checkpoint_is_owed_and_brings_the_room_back() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    let value = "x".repeat(100 << 10);
    let mut keys = 0;
    while !fixture.owed.is_any() {
        put(&mut pen, &format!("{keys}"), &value, false);
        keys += 1;
        assert!(keys < 1000, "there is an end to it");
    }
    put(&mut pen, "behind", "lost", false);
    assert_eq!(fixture.found(&checkpoint(1)).len(), keys - 1, "nothing behind what is missing");
    assert!(fixture.budget.used() >= 4 << 20, "it is counted");
    let (left_out, mut full) = (fixture.log.left_out(), Vec::new());
    pen.note(&nobody(), 2, &mut full);
    fixture.log.expect(&nobody(), &checkpoint(2));
    fixture.log.covered(&nobody(), left_out, full);
    assert!(!fixture.owed.is_any());
    // As long as those before: the rest of its chunk has no room for it, and the others do.
    put(&mut pen, "a", &value, false);
    assert!(!fixture.owed.is_any());
    assert_eq!(fixture.found(&checkpoint(2)), pairs(&[("a", &value)]));
    for _ in 0..40 {
        fixture.log.release_unused();
    }
    assert!(fixture.budget.used() <= 2 << 20, "{} bytes are kept", fixture.budget.used());
}
