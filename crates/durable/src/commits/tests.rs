use super::*;
use crate::Access;
use std::path::Path;
use terrace_memory::Domain;

fn opened(path: &Path) -> CommitJournal {
    let spec = MediumSpec {
        path: path.into(),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 64 << 20,
        access: Access::Write,
    };
    CommitJournal::open(spec).expect("a journal")
}

fn part(map: &str, key: &[u8], value: Option<&[u8]>) -> Part {
    let mut writes = Writes::default();
    writes.push(key, value.map(|value| (value, None)));
    Part { map: map.into(), does: writes.does() }
}

#[test]
fn writes_read_back() {
    let mut put = Writes::default();
    let long = vec![7; 70_000];
    let all = [
        (&b"a"[..], Some((&b"1"[..], None))),
        (b"", None),
        (&[9; 65_535], Some((&long[..], Some(77)))),
        (b"c", Some((b"", None))),
    ];
    all.iter().for_each(|(key, value)| put.push(key, *value));
    let Does::Writes(bytes) = put.does() else { panic!("writes") };
    let read: Vec<_> = writes(&bytes).iter().map(|redo| (redo.key, redo.value)).collect();
    assert_eq!(read, all);
    assert!(writes(&bytes[..2]).is_empty());
}

/// What was begun and not ended is left, for each map until it has taken it in; through full logs and openings.
#[test]
fn what_was_begun_and_not_ended_is_left_for_each_map() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("commits");
    let journal = opened(&path);
    assert!(!path.exists(), "nothing was committed");
    let checkpoint = Does::Checkpoint { after: 5, block: vec![3; 4096] };
    let parts =
        vec![part("a", b"x", Some(b"1")), Part { map: "b".into(), does: checkpoint.clone() }];
    let kept = journal.begin(Survives::Power, parts.clone()).expect("room");
    let of_process = journal.begin(Survives::Process, vec![part("c", b"y", None)]).expect("room");
    assert!(of_process > kept);
    let value = vec![1; 100_000];
    for _ in 0..300 {
        let long = vec![part("a", b"long", Some(&value)), part("b", b"long", None)];
        let number = journal.begin(Survives::Process, long).expect("room");
        assert!(number > of_process);
        journal.end(number).expect("ended");
    }
    assert!(journal.left("a").is_empty(), "they are this process's own");
    drop(journal);
    let journal = opened(&path);
    assert_eq!(journal.left("a"), [parts[0].does.clone()]);
    assert_eq!((journal.left("b"), journal.left("c").len()), (vec![checkpoint.clone()], 1));
    journal.forget("a").expect("noted");
    drop(journal);
    let journal = opened(&path);
    assert!(journal.left("a").is_empty() && journal.has_left());
    assert_eq!(journal.left("b"), [checkpoint]);
    ["b", "c"].iter().for_each(|map| journal.forget(map).expect("noted"));
    let next = journal.begin(Survives::Power, parts).expect("room");
    assert!(next > kept);
    journal.end(next).expect("ended");
    drop(journal);
    assert!(!opened(&path).has_left());
}

#[test]
fn after_another_boot_what_was_to_survive_the_process_counts_for_nothing() {
    let here = crate::redo_log::boot();
    let commit = Commit::new(here, vec![part("a", b"x", None)]);
    assert!(commit.counts_in(here) && !commit.counts_in(None));
    let elsewhere = here.map(|boot| boot.map(|byte| byte ^ 1));
    assert!(!commit.counts_in(elsewhere));
    assert!(Commit::new(None, Vec::new()).counts_in(elsewhere));
}

#[test]
fn what_is_too_long_is_refused_and_what_is_under_way_is_bounded() {
    let dir = tempfile::tempdir().expect("directory");
    let journal = opened(&dir.path().join("commits"));
    let value = vec![1; MOST_COMMIT_BYTES + (64 << 10)];
    let begin = |value: &[u8]| journal.begin(Survives::Process, vec![part("a", b"k", Some(value))]);
    let told = begin(&value);
    assert!(
        matches!(told, Err(NotBegun::Refused(Error::NoRoom { limit, .. })) if limit == 4 << 20)
    );
    let some = &value[..3 << 20];
    let numbers = [begin(some).expect("room"), begin(some).expect("room")];
    assert!(matches!(begin(some), Err(NotBegun::Yet)), "two are under way");
    let checkpoint =
        Part { map: "a".into(), does: Does::Checkpoint { after: 0, block: vec![0; 4096] } };
    journal.begin(Survives::Power, vec![checkpoint]).expect("it is short");
    journal.end(numbers[0]).expect("ended");
    begin(some).expect("room again");
}

/// Whatever byte of it is damaged, an opening says so, or finds what was begun but for what the damage took from the
/// end; and nothing else, and nobody panics.
#[test]
fn a_damaged_byte_is_named_or_takes_the_end() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("commits");
    let medium = || {
        let spec = MediumSpec {
            path: path.clone(),
            domain: Domain::PageCache,
            dax: false,
            capacity_bytes: 1 << 20,
            access: Access::Write,
        };
        Medium::open(&spec)
    };
    let open = || {
        let mut medium = medium().expect("a file");
        medium.read_all()?;
        CommitJournal::open_in(medium, Steps::ALL)
    };
    CommitJournal::make_small(medium().expect("a file")).expect("made");
    let journal = open().expect("it is whole");
    let begun = |key: &[u8]| vec![part("a", key, Some(b"value")), part("b", key, None)];
    let all: Vec<_> = [&b"one"[..], b"two", b"three"].into_iter().map(begun).collect();
    for parts in &all {
        journal.begin(Survives::Power, parts.clone()).expect("room");
    }
    drop(journal);
    let whole = std::fs::read(&path).expect("a file");
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let does: Vec<Does> = all.iter().map(|parts| parts[0].does.clone()).collect();
    let (mut named, mut shorter) = (0, 0);
    for at in used {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        std::fs::write(&path, damaged).expect("written");
        match open() {
            Err(Error::Damaged { .. } | Error::Newer { .. } | Error::Mismatch { .. }) => named += 1,
            Err(other) => panic!("byte {at}: {other}"),
            Ok(journal) => {
                let left = journal.left("a");
                assert!(does.starts_with(&left), "byte {at}: {left:?}");
                shorter += usize::from(left.len() < does.len());
            }
        }
    }
    assert!(named > 100, "{named} bytes are named");
    assert!(shorter > 0, "the last record has no other that says that it was synced");
}
