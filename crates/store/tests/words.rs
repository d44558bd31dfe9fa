//! A word table in a directory: what a call told is in the file, what was made as one thing is not opened as
//! another, threads agree, and damage is named.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Barrier};
use terrace_memory::Budget;
use terrace_store::words::{Form, SESSIONS};
use terrace_store::{Domain, Error, Words, WordsOptions, WordsSession};
use terrace_workload::history::{Call, Recorder, Response, joined};
use terrace_workload::linearizability::{DEFAULT_BUDGET, check};
use terrace_workload::random::Rng;

const CAPACITY: u64 = 2000;

fn options(form: Form) -> WordsOptions {
    let domain = if form == Form::LogFree { Domain::Eadr } else { Domain::Adr };
    let (form, capacity) = (Some(form), Some(CAPACITY));
    WordsOptions { form, capacity, domain, ..WordsOptions::default() }
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 30))
}

fn open(dir: &Path, options: &WordsOptions) -> Words {
    Words::open(dir, options, &budget()).expect("the table")
}

fn refused(dir: &Path, options: &WordsOptions) -> String {
    let refused = Words::open(dir, options, &budget()).expect_err("a refusal").to_string();
    assert!(!refused.contains('\n'), "{refused}");
    refused
}

fn contents(words: &Words) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    words.session().expect("a session").visit(|key, value| {
        assert_eq!(found.insert(key, value), None, "key {key} once");
    });
    found
}

/// Nothing is flushed or closed: what the file holds when a call has returned is what it promised.
#[test]
fn acknowledged_words_are_in_the_file() {
    for form in Form::ALL {
        let (dir, copy) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let words = open(dir.path(), &options(form));
        let mut session = words.session().expect("a session");
        let (mut model, mut rng) = (BTreeMap::new(), Rng::new(7));
        for turn in 0..6000 {
            let (key, value) = (rng.below(900), turn);
            if rng.one_in(3) {
                assert_eq!(session.remove(key), model.remove(&key), "{form} {turn}");
            } else {
                let is_new = !model.contains_key(&key);
                assert_eq!(session.insert(key, value).expect("room"), is_new, "{form} {turn}");
                model.entry(key).or_insert(value);
            }
            if turn % 1500 == 0 {
                let (from, to) = (dir.path().join("table"), copy.path().join("table"));
                std::fs::copy(from, to).expect("a copy");
                let copied = open(copy.path(), &options(form));
                assert_eq!(contents(&copied), model, "{form} {turn}");
                assert_eq!(copied.recovery().keys, model.len() as u64);
            }
        }
        let used = words.stats().used;
        assert!((model.len() as u64..CAPACITY).contains(&used), "{form}: {:?}", words.stats());
        drop((session, words));
        // Form and capacity are known from the file.
        let as_made = WordsOptions { form: None, capacity: None, ..options(form) };
        let words = open(dir.path(), &as_made);
        assert_eq!((words.stats().form, words.stats().capacity), (form, CAPACITY));
        assert_eq!(contents(&words), model, "{form}");
    }
}

#[test]
fn a_table_opens_only_with_the_options_it_was_made_with() {
    let dir = tempfile::tempdir().expect("directory");
    let adr = options(Form::LinkFree);
    let words = open(dir.path(), &adr);
    let locked = refused(dir.path(), &adr);
    assert!(locked.contains("already open in this process"), "{locked}");
    // A session keeps the table open.
    let session = words.session().expect("a session");
    drop(words);
    assert!(refused(dir.path(), &adr).contains("already open in this process"));
    drop(session);
    let form = refused(dir.path(), &WordsOptions { form: Some(Form::Soft), ..adr.clone() });
    assert!(form.starts_with("form: ") && form.contains("made with link-free, not soft"), "{form}");
    let domain = refused(dir.path(), &WordsOptions { domain: Domain::Eadr, ..adr.clone() });
    assert!(domain.starts_with("domain: "), "{domain}");
    assert!(domain.contains("ADR") && domain.contains("not eADR"), "{domain}");
    let capacity = refused(dir.path(), &WordsOptions { capacity: Some(9), ..adr.clone() });
    assert!(capacity.contains("made with 2000 keys, not 9"), "{capacity}");
    let disk = refused(dir.path(), &WordsOptions { domain: Domain::PageCache, ..adr.clone() });
    assert!(disk.starts_with("domain: ") && disk.contains("byte-addressable"), "{disk}");
    let other = tempfile::tempdir().expect("directory");
    let log_free = WordsOptions { form: Some(Form::LogFree), ..adr.clone() };
    assert!(refused(other.path(), &log_free).contains("needs caches that survive (eADR)"));
    let none = refused(other.path(), &WordsOptions { capacity: Some(0), ..adr.clone() });
    assert!(none.starts_with("capacity: ") && none.contains("1 to 2^40"), "{none}");
    // What was refused has left nothing that an opening would find.
    assert!(!other.path().join("table").exists());
    drop(open(other.path(), &adr));
}

#[test]
fn the_budget_is_taken_and_given_back() {
    let dir = tempfile::tempdir().expect("directory");
    let budget = Arc::new(Budget::new(100_000));
    let small = WordsOptions { capacity: Some(500), ..options(Form::LinkFree) };
    let words = Words::open(dir.path(), &small, &budget).expect("room");
    assert_eq!(budget.used(), words.stats().memory_bytes);
    assert!(words.stats().memory_bytes >= words.stats().file_bytes);
    drop(words);
    assert_eq!(budget.used(), 0);
    let other = tempfile::tempdir().expect("directory");
    let soft = WordsOptions { capacity: Some(800), ..options(Form::Soft) };
    let refused = Words::open(other.path(), &soft, &budget);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_full_table_and_too_many_sessions_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let words = open(dir.path(), &WordsOptions { capacity: Some(10), ..options(Form::LinkFree) });
    let mut session = words.session().expect("a session");
    for key in 0..10 {
        assert!(session.insert(key, key).expect("room"));
    }
    let full = session.insert(10, 10);
    assert!(matches!(full, Err(Error::WordsFull { capacity: 10 })), "{full:?}");
    assert!(session.remove(3).is_some() && session.insert(10, 10).expect("room"));
    let more: Vec<_> = (1..SESSIONS).map(|_| words.session().expect("a session")).collect();
    assert!(matches!(words.session(), Err(Error::Sessions(SESSIONS))));
    drop(more);
    words.session().expect("a session");
}

#[test]
fn damage_is_named_with_file_and_offset() {
    let dir = tempfile::tempdir().expect("directory");
    let tlog = options(Form::TLog);
    let words = open(dir.path(), &tlog);
    let mut session = words.session().expect("a session");
    (0..100).for_each(|key| assert!(session.insert(key, key).expect("room")));
    let buckets = words.stats().buckets;
    drop((session, words));
    let path = dir.path().join("table");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("the file");
    let with = |at: u64, word: u64| {
        let mut before = [0; 8];
        file.read_exact_at(&mut before, at).expect("a word");
        file.write_all_at(&word.to_le_bytes(), at).expect("damage");
        let what = refused(dir.path(), &tlog);
        file.write_all_at(&before, at).expect("as it was");
        assert!(what.contains(path.to_str().expect("text")), "{what}");
        what
    };
    // The head; a record of a session; the head of a bucket; a node's key, of the first that was linked.
    assert!(with(16, 77).contains("at offset 0: its head does not match its checksum"));
    assert!(with(0, 77).contains("no list lies here"));
    assert!(with(64, 9).contains("at offset 64: a record of kind 9"));
    let head = 64 * (1 + SESSIONS as u64);
    assert!(with(head, 3 << 50).contains("a link to it, and it is no node"));
    let node = head + 64 * buckets + 8;
    let key = with(node, u64::MAX >> 1);
    assert!(key.contains(&format!("at offset {}", node - 8)), "{key}");
    // A file that was cut.
    let bytes = file.metadata().expect("stat").len();
    file.set_len(bytes - 64).expect("cut");
    assert!(refused(dir.path(), &tlog).contains("the file ends early"));
    file.set_len(20).expect("cut");
    assert!(refused(dir.path(), &tlog).contains("at offset 20: the file ends within its head"));
}

/// Inserts, however often no node is free because a thread that may hold them does not run.
fn insert(session: &mut WordsSession, key: u64, value: u64) -> bool {
    loop {
        match session.insert(key, value) {
            Ok(is_new) => return is_new,
            Err(Error::WordsFull { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Keys so few that threads meet.
fn has_an_order(form: Form, threads: u64, seed: u64) {
    let dir = tempfile::tempdir().expect("directory");
    let words = open(dir.path(), &options(form));
    let (recorder, barrier) = (Recorder::new(), Barrier::new(threads as usize));
    let logs: Vec<_> = std::thread::scope(|scope| {
        let run = |thread: u64| {
            let (words, recorder, barrier) = (&words, &recorder, &barrier);
            scope.spawn(move || {
                let (mut session, mut client) = (words.session().expect("one"), recorder.client());
                let mut rng = Rng::new(seed ^ thread << 40);
                barrier.wait();
                for number in 0..3000 / threads {
                    let (key, value) = (rng.below(6), (thread * 1_000_000 + number) as i64);
                    let call = match rng.below(3) {
                        0 => Call::CompareAndSet { expected: None, new: Some(value) },
                        1 => Call::Delete,
                        _ => Call::Get,
                    };
                    let pending = client.call(key, call);
                    let told = match call {
                        Call::Delete => Response::Flag(session.remove(key).is_some()),
                        Call::Get => Response::Value(session.get(key).map(|value| value as i64)),
                        _ => Response::Flag(insert(&mut session, key, value as u64)),
                    };
                    client.returned(pending, told);
                }
                client.into_operations()
            })
        };
        let threads: Vec<_> = (0..threads).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let verdict = check(&joined(logs), DEFAULT_BUDGET);
    assert!(verdict.is_linearizable(), "{form}, {threads} threads, seed {seed}: {verdict:?}");
    let left = contents(&words);
    drop(words);
    assert_eq!(contents(&open(dir.path(), &options(form))), left, "{form}");
}

#[test]
fn concurrent_histories_are_linearizable() {
    for form in Form::ALL {
        for (threads, seed) in [(2, 1), (4, 2), (8, 3)] {
            has_an_order(form, threads, seed);
        }
    }
}
