//! What is claimed without being true.

use super::*;

/// Under an interval an I/O failure stops the map; `close` then has nothing to write and answers
/// that all is well, though what was acknowledged is lost.
#[test]
fn a_close_that_saved_nothing_says_so() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    map.put(b"key", b"acknowledged").expect("put");
    map.medium().inject_write_fault(0);
    assert!(map.sync().is_err());
    let closed = map.close();
    drop(map);
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    assert!(
        closed.is_err() || map.get(b"key").expect("get").is_some(),
        "closed without error, and the key is lost"
    );
}

/// Only the opening of a new log asks whether the map still takes writes: after a failure, up to
/// 4 MB more are acknowledged and lost.
#[test]
fn nothing_is_acknowledged_after_a_failed_write() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    map.put(b"before", b"x").expect("put");
    map.medium().inject_write_fault(0);
    assert!(map.sync().is_err());
    assert!(map.stats().stopped.is_some());
    let answers: Vec<_> = (0..10u8).map(|n| map.put(&[n], b"value").is_ok()).collect();
    assert!(!answers.contains(&true), "acknowledged after the failure: {answers:?}");
}

/// The same after `close`, which promises that operations through other handles are refused.
#[test]
fn nothing_is_acknowledged_after_a_close() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    let other = map.clone();
    map.put(b"before", b"x").expect("put");
    map.close().expect("close");
    let answer = other.put(b"after", b"x");
    let mut session = other.session();
    let batch = session.atomic(|session| session.put(b"in a batch", b"x", None));
    drop((session, other, map));
    let map = Map::open(dir.path(), options(LONG_INTERVAL)).expect("open");
    assert!(
        answer.is_err() || map.get(b"after").expect("get").is_some(),
        "put acknowledged after close, and lost"
    );
    assert!(
        batch.is_err() || map.get(b"in a batch").expect("get").is_some(),
        "batch acknowledged after close, and lost"
    );
}

/// "The old durability stays", says `set_durability` of an error; what stays is no durability: the
/// flag that makes commits wait has been cleared.
#[test]
fn a_failed_change_of_durability_keeps_the_old_promise() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    map.put(b"before", b"x").expect("put");
    map.medium().inject_write_fault(0);
    assert!(map.set_durability(Durability::None).is_err());
    assert_eq!(map.durability(), Durability::Sync);
    let answer = map.put(b"after", b"x");
    let image = file_now(dir.path());
    let (_dir, killed) = opened(&image, options(Durability::Sync)).expect("open");
    assert!(
        answer.is_err() || killed.get(b"after").expect("get").is_some(),
        "acknowledged under sync, and lost"
    );
}

/// A commit that failed has forgotten what it was to commit; asked again, it answers success.
#[test]
fn a_commit_that_failed_never_succeeds_later() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    let mut session = map.session();
    session.put(b"key", b"value", None).expect("put");
    map.medium().inject_write_fault(0);
    assert!(session.commit().is_err());
    assert!(session.commit().is_err(), "the second commit of the same writes answers success");
}

/// A scan skips deleted keys and forgets to note that their deletion is not durable yet: the
/// absence was told, and a crash brings the key back.
#[test]
fn an_absence_that_a_scan_observed_survives() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    map.put(b"key", b"value").expect("put");
    let mut session = map.session();
    session.delete(b"key").expect("delete, not committed");
    assert!(contents(&map).is_empty(), "the map's own scan has committed what it tells");
    let (_dir, killed) =
        opened(&file_now(dir.path()), options(Durability::Sync)).expect("a kill is no damage");
    assert_eq!(killed.get(b"key").expect("get"), None, "a scan had told that the key is gone");
}

/// An error leaves the map as it was, except one of the medium: so says `Error`. A batch whose
/// second pair is refused has written the first.
#[test]
fn a_refused_batch_changes_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    let long = vec![0; 70_000];
    assert!(matches!(map.multi_put(&[(b"a", b"1"), (&long, b"2")]), Err(Error::KeySize(..))));
    assert_eq!(map.get(b"a").expect("get"), None, "a refused batch wrote its first pair");
}

/// A batch asked for room by its caller's bound; the operations inside asked for more than the bound
/// allowed for. Near the end of a log a batch was then cut in two: what was to be all or nothing was half.
#[test]
fn a_batch_is_never_split_at_the_end_of_a_log() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), one_writer(Durability::None)).expect("open");
    let mut session = map.session();
    for n in 0..200_000u64 {
        let value = n.to_le_bytes();
        let half = session.atomic(|session| {
            session.put(&1u64.to_be_bytes(), &value, None)?;
            session
                .update(&2u64.to_be_bytes(), |_| Change::Put { value: &value, expires_at_ms: None })
        });
        assert!(half.is_ok(), "batch {n}: the first write was made, the second refused: {half:?}");
    }
}
