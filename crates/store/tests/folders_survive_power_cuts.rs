//! The folders above a new map, queue or table were never synced: a power cut could take an acknowledged first write
//! with its folder. What is lost here is every name that was not synced when the write was acknowledged.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use terrace_durable::medium::FolderTrace;
use terrace_memory::Budget;
use terrace_store::{
    Domain, Durability, Map, MapOptions, Queue, QueueOptions, Words, WordsOptions,
};

/// What a power cut now may leave of the traced folder.
fn cut(trace: &FolderTrace, root: &Path, left: &Path) {
    copy(root, left);
    for lost in trace.undurable() {
        let lost = left.join(lost);
        let gone = if lost.is_dir() { fs::remove_dir_all(&lost) } else { fs::remove_file(&lost) };
        // With a folder goes what is in it.
        assert!(gone.is_ok() || !lost.exists());
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("make");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, target).expect("copy");
        }
    }
}

/// Writes by `write` in a folder below others that are not there yet; then `find` finds it after a power cut.
fn survives(write: impl FnOnce(&Path), find: impl FnOnce(&Path)) {
    let (root, left) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    let trace = FolderTrace::start(root.path()).expect("a trace");
    write(&root.path().join("data/maps/m"));
    cut(&trace, root.path(), left.path());
    find(&left.path().join("data/maps/m"));
}

#[test]
fn the_first_write_of_a_map_survives_with_its_folders() {
    for domain in [Domain::PageCache, Domain::Adr] {
        let options = || MapOptions {
            durability: Durability::Sync,
            domain,
            writers: 1,
            memory_budget_bytes: 64 << 20,
            ..MapOptions::default()
        };
        let open = |dir: &Path| Map::open(dir, options()).expect("open");
        survives(
            |dir| open(dir).put(b"first", b"told").expect("put"),
            |dir| assert_eq!(open(dir).get(b"first").expect("get").as_deref(), Some(&b"told"[..])),
        );
    }
}

#[test]
fn the_first_push_to_a_queue_survives_with_its_folders() {
    let options = QueueOptions {
        durability: Durability::Sync,
        capacity_bytes: Some(64 << 10),
        ..QueueOptions::default()
    };
    let open =
        |dir: &Path| Queue::open(dir, &options, &Arc::new(Budget::new(1 << 30))).expect("open");
    survives(
        |dir| open(dir).push(b"first").expect("push"),
        |dir| assert_eq!(open(dir).pop().expect("pop").as_deref(), Some(&b"first"[..])),
    );
}

#[test]
fn the_first_key_of_a_table_of_words_survives_with_its_folders() {
    let options =
        WordsOptions { domain: Domain::Adr, capacity: Some(1 << 10), ..WordsOptions::default() };
    let open =
        |dir: &Path| Words::open(dir, &options, &Arc::new(Budget::new(1 << 30))).expect("open");
    survives(
        |dir| assert!(open(dir).session().expect("a session").insert(1, 2).expect("room")),
        |dir| assert_eq!(open(dir).session().expect("a session").get(1), Some(2)),
    );
}

/// A map's file had got its name, and its process died before the folder was synced. The next process found a file that
/// was not new, and acknowledged writes to a name that a power cut could take.
#[test]
fn writes_to_a_file_whose_name_was_never_synced_survive() {
    for domain in [Domain::PageCache, Domain::Adr] {
        let options = || MapOptions {
            durability: Durability::Sync,
            domain,
            writers: 1,
            memory_budget_bytes: 64 << 20,
            ..MapOptions::default()
        };
        let (root, left) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let (dir, inside) = (root.path().join("maps/m"), Path::new("maps/m"));
        let trace = FolderTrace::start(root.path()).expect("a trace");
        trace.fail_sync_of(Some(inside));
        let opened = Map::open(&dir, options()).map(drop);
        opened.expect_err("its end before the last sync");
        trace.fail_sync_of(None);
        let unsynced = trace.undurable();
        assert!(unsynced.iter().any(|path| path.starts_with(inside)), "{unsynced:?}");

        let map = Map::open(&dir, options()).expect("open");
        map.put(b"first", b"acknowledged").expect("put");
        cut(&trace, root.path(), left.path());
        let map = Map::open(&left.path().join(inside), options()).expect("open");
        assert_eq!(map.get(b"first").expect("get").as_deref(), Some(&b"acknowledged"[..]));
    }
}
