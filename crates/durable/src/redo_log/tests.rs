use super::*;
use crate::item::{MAX_HEADER_BYTES, NewItem, encode_batch_end};
use crate::superblock::Rule;
use std::collections::BTreeMap;

const SALT: u32 = 7;

fn cut(number: u64) -> Cut {
    Cut {
        number,
        rule: Rule::Bounded,
        generation: 1,
        next_sequence: 9,
        segments: 3,
        open: Vec::new(),
        index: 0,
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
        let dir = tempfile::tempdir().expect("temporary directory");
        let (budget, owed) = (Arc::new(Budget::new(64 << 20)), Arc::default());
        let log = RedoLog::make(&dir.path().join(NAME), &budget, &owed).expect("made");
        log.expect(&cut(1));
        Fixture { dir, budget, owed, log: Arc::new(log) }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }

    /// What the process's death leaves: the mapping is shared, so another of the file shows it.
    fn left(&self, cut: &Cut) -> Result<Option<BTreeMap<String, Option<String>>>> {
        let Some(left) = Left::find(&self.path(), cut, false, &self.budget)? else {
            return Ok(None);
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let newest = left.newest()?;
        let of = |redo: &Redo<'_>| (text(redo.key), redo.value.map(|(value, _)| text(value)));
        Ok(Some(newest.iter().map(of).collect()))
    }

    fn found(&self, cut: &Cut) -> BTreeMap<String, Option<String>> {
        self.left(cut).expect("readable").expect("it belongs to the checkpoint")
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
    pen.record(Some(key), SALT, &[&header[..length], key, value]);
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
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
    assert_eq!(fixture.found(&cut(1)), pairs(&[("a", "newer"), ("b", "")]));
}

#[test]
fn what_a_checkpoint_has_is_passed_over_only_once_it_is_there() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    put(&mut pen, "a", "1", false);
    assert!(pen.note(2, &mut Vec::new()) && !pen.note(3, &mut Vec::new()));
    put(&mut pen, "b", "2", false);
    fixture.log.expect(&cut(2));
    assert_eq!(fixture.found(&cut(1)), pairs(&[("a", "1"), ("b", "2")]));
    assert_eq!(fixture.found(&cut(2)), pairs(&[("b", "2")]));
}

#[test]
fn a_log_of_another_checkpoint_or_another_boot_is_none() {
    let fixture = Fixture::new();
    put(&mut Pen::new(&fixture.log, 1), "a", "1", false);
    let other = Cut { next_sequence: 10, ..cut(1) };
    assert_eq!(fixture.left(&other).expect("readable"), None);
    assert_eq!(fixture.left(&cut(2)).expect("readable"), None);
    fixture.flip(BOOT_AT);
    assert_eq!(fixture.left(&cut(1)).expect("readable"), None);
}

#[test]
fn a_batch_counts_with_its_end() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    put(&mut pen, "a", "1", true);
    put(&mut pen, "b", "2", true);
    assert_eq!(fixture.found(&cut(1)), pairs(&[]));
    pen.record(None, SALT, &[&encode_batch_end(SALT)]);
    assert_eq!(fixture.found(&cut(1)), pairs(&[("a", "1"), ("b", "2")]));
}

/// A process dies between any two of its stores: the last record may be there in part, and none behind it.
#[test]
fn an_unfinished_record_is_the_last_and_a_damaged_one_is_named() {
    let fixture = Fixture::new();
    let mut pen = Pen::new(&fixture.log, 1);
    put(&mut pen, "a", "1", false);
    put(&mut pen, "b", "2", false);
    let second = fixture.log.records_of(0) + 40;
    for at in second..second + RECORD_HEAD_BYTES {
        fixture.flip(at);
        assert_eq!(fixture.found(&cut(1)), pairs(&[("a", "1")]), "{at}");
        fixture.flip(at);
    }
    assert_eq!(fixture.found(&cut(1)), pairs(&[("a", "1"), ("b", "2")]));
    for at in fixture.log.records_of(0)..second - 7 {
        fixture.flip(at);
        let error = fixture.left(&cut(1)).expect_err("damage").to_string();
        assert!(error.contains("redo log"), "{at}: {error}");
        fixture.flip(at);
    }
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
    assert_eq!(fixture.found(&cut(1)).len(), keys - 1, "nothing behind what is missing");
    assert!(fixture.budget.used() >= 4 << 20, "it is counted");
    let (left_out, mut full) = (fixture.log.left_out(), Vec::new());
    pen.note(2, &mut full);
    fixture.log.expect(&cut(2));
    fixture.log.covered(left_out, full);
    assert!(!fixture.owed.is_any());
    put(&mut pen, "a", "1", false);
    assert_eq!(fixture.found(&cut(2)), pairs(&[("a", "1")]));
    for _ in 0..40 {
        fixture.log.release_unused();
    }
    assert!(fixture.budget.used() <= 2 << 20, "{} bytes are kept", fixture.budget.used());
}
