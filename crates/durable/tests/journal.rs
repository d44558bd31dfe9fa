//! Journals: what was synced is found again, what was torn is cut off, and what no crash explains is named.

use std::path::Path;
use terrace_durable::{
    Access, Error, Journal, JournalPiece, JournalShape, Medium, MediumSpec, Replayed,
};
use terrace_memory::Domain;

const KIND: [u8; 8] = *b"numbers\0";

fn shape() -> JournalShape {
    JournalShape { kind: KIND, state_bytes: 8 << 10, log_bytes: 32 << 10, words: [7; 8] }
}

fn medium(path: &Path, access: Access) -> Medium {
    let capacity_bytes = shape().bytes().next_multiple_of(2 << 20);
    let spec = MediumSpec {
        path: path.into(),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes,
        access,
    };
    Medium::open(&spec).expect("a medium")
}

/// The state, and the records, as text.
type Held = (Vec<u8>, Vec<Vec<u8>>);

fn open(path: &Path, access: Access) -> Result<(Journal, Replayed, Held), Error> {
    let mut held = Held::default();
    let take = |piece: JournalPiece<'_>| {
        match piece {
            JournalPiece::State(_, state, _) => held.0 = state.to_vec(),
            JournalPiece::Record(_, record) => held.1.push(record.to_vec()),
        }
        Ok(())
    };
    let (journal, found) = Journal::open(medium(path, access), KIND, take)?;
    Ok((journal, found, held))
}

fn record(number: u32) -> Vec<u8> {
    let mut record = format!("record {number} ").into_bytes();
    record.resize(20 + (number as usize * 37) % 300, number as u8);
    record
}

/// A journal with a state and twenty records behind it, all synced.
fn made(path: &Path) -> Held {
    let mut journal =
        Journal::create(medium(path, Access::Write), shape(), [0; 8], |_| {}).expect("a journal");
    journal.append(&[b"before ", b"the state"]).expect("room");
    journal.set_state([1; 8], |pen| pen.put(&[3; 5000])).expect("room");
    let records: Vec<_> = (0..20).map(record).collect();
    for record in &records {
        let (head, tail) = record.split_at(9);
        journal.append(&[head, tail]).expect("room");
        journal.sync().expect("sync");
    }
    journal.close().expect("close");
    (vec![3; 5000], records)
}

#[test]
fn appended_records_are_read_again() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let mut expected = made(&path);
    for turn in 20..60 {
        let (mut journal, found, held) = open(&path, Access::Write).expect("a journal");
        assert_eq!(held, expected, "turn {turn}");
        assert_eq!(journal.shape(), &shape());
        assert_eq!(found.records, held.1.len() as u64);
        if turn % 7 == 0 {
            journal.set_state([turn.into(); 8], |pen| pen.put(&record(turn))).expect("room");
            expected = (record(turn), Vec::new());
        }
        journal.append(&[&record(turn)]).expect("room");
        journal.sync().expect("sync");
        expected.1.push(record(turn));
    }
}

#[test]
fn a_full_log_refuses_and_a_state_empties_it() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let mut journal =
        Journal::create(medium(&path, Access::Write), shape(), [0; 8], |_| {}).expect("a journal");
    let mut records = 0;
    while journal.append(&[&[1; 900]]).is_ok() {
        records += 1;
    }
    assert_eq!(records, (32 << 10) / 960);
    assert!(matches!(journal.append(&[&[1; 900]]), Err(Error::NoRoom { .. })));
    let much = journal.set_state([0; 8], |pen| pen.put(&[0; 9 << 10]));
    assert!(matches!(much, Err(Error::NoRoom { used: 9216, limit: 8192 })));
    journal.set_state([0; 8], |pen| pen.put(b"all of them")).expect("room");
    journal.append(&[&[2; 900]]).expect("room again");
    let longest = journal.longest_record();
    assert!(matches!(journal.append(&[&vec![0; longest as usize + 1]]), Err(Error::NoRoom { .. })));
    drop(journal);
    let (_, _, held) = open(&path, Access::Write).expect("a journal");
    assert_eq!(held, (b"all of them".to_vec(), vec![vec![2; 900]]));
}

#[test]
fn a_torn_end_is_cut_off_and_never_comes_back() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let mut expected = made(&path);
    // Two records that nobody synced; the first is torn, the second whole.
    let (mut journal, _, _) = open(&path, Access::Write).expect("a journal");
    let at = shape().bytes() - (32 << 10) + journal.log_used_bytes();
    journal.append(&[&[8; 100]]).expect("room");
    journal.append(&[&[9; 100]]).expect("room");
    drop(journal);
    flip(&path, at + 60, 1);
    let (mut journal, found, held) = open(&path, Access::Write).expect("a crash explains it");
    assert_eq!(held, expected);
    assert_eq!(found.damage, None);
    // One of the same length before what was left: it does not follow.
    journal.append(&[&[7; 100]]).expect("room");
    expected.1.push(vec![7; 100]);
    journal.sync().expect("sync");
    drop(journal);
    assert_eq!(open(&path, Access::Write).expect("a journal").2, expected);
}

fn flip(path: &Path, at: u64, bit: u8) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ bit], at).expect("write");
}

#[test]
fn every_flipped_byte_is_named_or_does_no_harm() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    let expected = made(&path);
    let whole = std::fs::read(&path).expect("file");
    let (mut named, mut harmless) = (0, 0);
    for at in (0..whole.len() as u64).step_by(53) {
        std::fs::write(&path, &whole).expect("file");
        flip(&path, at, 1 << (at % 8));
        match open(&path, Access::Write) {
            Ok((_, _, held)) => {
                assert!(held == expected, "byte {at} changed what is found");
                harmless += 1;
            }
            Err(Error::Damaged { offset, what, .. }) => {
                assert!(offset <= whole.len() as u64 && !what.is_empty());
                named += 1;
                if let Ok((mut journal, found, held)) = open(&path, Access::Salvage) {
                    assert!(expected.1.starts_with(&held.1), "a prefix is intact");
                    assert!(found.damage.is_some());
                    assert!(matches!(journal.append(&[b"more"]), Err(Error::Stopped(_))));
                }
            }
            Err(Error::Mismatch { .. }) => named += 1,
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    assert!(named > 150 && harmless > 250, "{named} named, {harmless} harmless");
}

#[test]
fn a_file_that_is_no_journal_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("journal");
    made(&path);
    let refused = Journal::open(medium(&path, Access::Write), *b"letters\0", |_| Ok(()));
    assert!(
        refused
            .expect_err("kind")
            .to_string()
            .ends_with("made with kind numbers, opened with letters")
    );
    let refused = Journal::open(medium(&path, Access::Write), KIND, |piece| match piece {
        JournalPiece::Record(_, record) if record.starts_with(b"record 5") => {
            Err("no number".into())
        }
        _ => Ok(()),
    });
    let message = refused.expect_err("refused").to_string();
    assert!(message.contains(" at offset ") && message.ends_with("no number"), "{message}");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("file");
    file.set_len(30_000).expect("truncate");
    assert!(matches!(open(&path, Access::Write), Err(Error::Damaged { offset: 30_000, .. })));
    file.set_len(100).expect("truncate");
    assert!(matches!(open(&path, Access::Write), Err(Error::Damaged { offset: 100, .. })));
}
