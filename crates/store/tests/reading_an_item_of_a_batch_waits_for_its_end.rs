//! Where every item is durable at once, those of a batch still are nothing without its end: a crash
//! before that drops them. What a session saw of a batch under way was told under `sync` all the same,
//! and a crash could take it back. The crash tests show that (`map-logs-batches`); here is every way to
//! see an item, each of which must make the commit wait.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use terrace_memory::Domain;
use terrace_store::{Change, Durability, Error, Map, MapOptions, Session, Value, ValueDesign};

type Sees = fn(&mut Session) -> bool;

const OLD: &[u8] = b"written before";
const NEW: &[u8] = b"in the batch";

fn map() -> (tempfile::TempDir, Map) {
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions {
        durability: Durability::Sync,
        domain: Domain::Adr,
        values: ValueDesign::Log,
        writers: 2,
        ..MapOptions::default()
    };
    let map = Map::open(dir.path(), options).expect("open");
    for key in [&b"put"[..], b"deleted", b"untouched"] {
        map.put(key, OLD).expect("put");
    }
    (dir, map)
}

/// Whether a commit after `sees` waits for the batch of another session to end, which goes on for so long, or until
/// the commit has returned.
fn waits(sees: Sees, patience: Duration) -> bool {
    let (_dir, map) = map();
    // Sessions take the two writers in turn.
    let (mut writer, mut reader) = (map.session(), map.session());
    let (tell, told) = channel();
    let mut waited = false;
    let put = Change::Put { value: NEW, expires_at_ms: None };
    let written = writer.write_pausing(&[(b"put", put), (b"deleted", Change::Delete)], || {
        std::thread::spawn(move || {
            assert!(sees(&mut reader), "the batch is not seen");
            reader.commit().expect("commit");
            tell.send(()).expect("somebody listens");
        });
        waited = told.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
    });
    written.expect("there is room");
    if waited {
        told.recv_timeout(Duration::from_secs(30)).expect("the batch has ended");
    }
    waited
}

fn is_new(value: Option<Value<'_>>) -> bool {
    value.is_some_and(|value| value.bytes == NEW)
}

#[test]
fn a_commit_waits_for_the_batch_it_saw() {
    let ways: [(&str, Sees); 9] = [
        ("get", |s| s.get(b"put", |value| value.bytes == NEW).expect("get") == Some(true)),
        ("get of what the batch deleted", |s| s.get(b"deleted", |_| ()).expect("get").is_none()),
        ("multi_get", |s| {
            let mut seen = false;
            s.multi_get(&[b"untouched", b"put"], |i, value| seen |= i == 1 && is_new(value))
                .expect("multi_get");
            seen
        }),
        ("multi_get of what the batch deleted", |s| {
            let mut seen = false;
            s.multi_get(&[b"deleted"], |_, value| seen = value.is_none()).expect("multi_get");
            seen
        }),
        ("scan", |s| {
            let mut seen = false;
            s.scan(0, 1000, |key, value| seen |= key == b"put" && is_new(Some(value)))
                .expect("scan");
            seen
        }),
        ("an update that changes nothing", |s| {
            let mut seen = false;
            s.update(b"put", |value| {
                seen = is_new(value);
                Change::Keep
            })
            .expect("update");
            seen
        }),
        ("an update", |s| {
            let mut seen = false;
            s.update(b"put", |value| {
                seen = is_new(value);
                Change::Put { value: b"longer than what the batch has", expires_at_ms: None }
            })
            .expect("update");
            seen
        }),
        ("a deletion", |s| s.delete(b"put").expect("delete")),
        ("a deletion of what the batch deleted", |s| !s.delete(b"deleted").expect("delete")),
    ];
    for (way, sees) in ways {
        assert!(waits(sees, Duration::from_millis(100)), "{way}: told before the batch had ended");
    }
}

#[test]
fn items_outside_a_batch_are_acknowledged_at_once() {
    let ways: [(&str, Sees); 3] = [
        ("get", |s| s.get(b"untouched", |value| value.bytes == OLD).expect("get") == Some(true)),
        ("put", |s| s.put(b"other", b"value", None).is_ok()),
        ("delete", |s| s.delete(b"untouched").expect("delete")),
    ];
    for (way, sees) in ways {
        assert!(!waits(sees, Duration::from_secs(30)), "{way}: waited for somebody else's batch");
    }
}

#[test]
fn a_commit_inside_a_batch_is_an_error() {
    let (_dir, map) = map();
    let mut session = map.session();
    let inside = session.atomic(|session| {
        session.put(b"put", NEW, None)?;
        session.commit()
    });
    assert!(matches!(inside, Err(Error::Medium(terrace_durable::Error::InBatch))), "{inside:?}");
    session.commit().expect("the batch has ended");
}
