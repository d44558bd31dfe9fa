//! Pools through the facade: what is refused leaves them as they were, damage is named and never served, and kill -9 of
//! a process whose threads run sections leaves each of them whole or absent, and every acknowledged one.
//!
//! The killed process is this test binary, started anew with `TERRACE_POOL_DIR`. 8 kills of each kind of pool;
//! `TERRACE_LONG=1` makes it 100.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use terrace::pool::{EngineKind, Offset, Root, SectionError};
use terrace::{Access, Database, Domain, Error, MapOptions, Pool, PoolOptions, plain};

plain! {
    struct Link {
        value: u64,
        next: Offset<Link>,
    }
}
const HEAD: Root<Link> = Root::new(0);

fn database(dir: &Path, domain: Domain) -> Database {
    let options = MapOptions { domain, ..MapOptions::default() };
    Database::open(dir, options).expect("a database")
}

/// The mediums that a pool can be on.
const MEDIUMS: [Domain; 2] = [Domain::PageCache, Domain::Adr];

fn push(pool: &Pool, value: u64) -> Result<(), SectionError> {
    pool.section(|tx| {
        let next = tx.root(HEAD)?;
        let link = tx.create(&Link { value, next })?;
        tx.set_root(HEAD, link)
    })
}

fn values(pool: &Pool) -> Vec<u64> {
    let read = pool.section(|tx| {
        let (mut values, mut at) = (Vec::new(), tx.root(HEAD)?);
        while !at.is_null() {
            let link = tx.get(at)?;
            values.push(link.value);
            at = link.next;
        }
        Ok::<_, SectionError>(values)
    });
    read.expect("a list")
}

/// A pool of 2 MiB named `list` that holds 3, 2, 1.
fn made(dir: &Path, domain: Domain) {
    let db = database(dir, domain);
    let options = |o| PoolOptions { bytes: Some(2 << 20), layout: Some(7), ..o };
    let pool = db.pool_with("list", options).expect("a pool");
    (1..=3).for_each(|value| push(&pool, value).expect("room"));
    db.close().expect("closed");
}

#[test]
fn what_was_committed_is_there_and_an_error_or_a_panic_takes_a_section_back() {
    for domain in MEDIUMS {
        let dir = tempfile::tempdir().expect("directory");
        made(dir.path(), domain);
        let db = database(dir.path(), domain);
        let pool = db.pool("list").expect("as it was made");
        assert_eq!(values(&pool), [3, 2, 1]);
        let refused: Result<(), Error> = pool.section(|tx| {
            let link = tx.create(&Link { value: 9, next: Offset::NULL })?;
            tx.set_root(HEAD, link)?;
            Err(Error::Unordered)
        });
        assert!(matches!(refused, Err(Error::Unordered)), "the caller's own error");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.section(|tx| -> Result<(), SectionError> {
                tx.set_root(HEAD, Offset::NULL)?;
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(values(&pool), [3, 2, 1]);
        assert_eq!(pool.stats().expect("a walk").objects, 3, "nothing leaked");
    }
}

#[test]
fn an_inner_section_that_fails_takes_the_outer_one_back() {
    for domain in MEDIUMS {
        let dir = tempfile::tempdir().expect("directory");
        made(dir.path(), domain);
        let db = database(dir.path(), domain);
        let pool = db.pool("list").expect("as it was made");
        let failed = pool.section(|tx| {
            tx.set_root(HEAD, Offset::NULL)?;
            let _swallowed = tx.section(|_| Err::<(), _>(SectionError::InnerFailed));
            Ok::<_, SectionError>(())
        });
        assert_eq!(failed, Err(SectionError::InnerFailed));
        assert_eq!(values(&pool), [3, 2, 1]);
        pool.section(|tx| tx.section(|_| push(&pool, 4)))
            .expect("nested, on one handle or another");
        assert_eq!(values(&pool), [4, 3, 2, 1]);
        let inside = pool.section(|_| Ok::<_, SectionError>(pool.close().is_err()));
        assert_eq!(inside, Ok(true), "not closed from inside");
    }
}

#[test]
fn sections_that_outgrow_the_pool_are_refused_and_change_nothing() {
    for domain in MEDIUMS {
        let dir = tempfile::tempdir().expect("directory");
        made(dir.path(), domain);
        let db = database(dir.path(), domain);
        let pool = db.pool("list").expect("as it was made");
        let whole = pool.section(|tx| tx.allocate(1 << 30));
        assert!(matches!(whole, Err(SectionError::NoRoom { .. })), "{whole:?}");
        let filled = pool.section(|tx| -> Result<(), SectionError> {
            loop {
                let next = tx.root(HEAD)?;
                let link = tx.create(&Link { value: 0, next })?;
                tx.set_root(HEAD, link)?;
            }
        });
        let is_full = |e: &SectionError| {
            matches!(e, SectionError::NoRoom { .. } | SectionError::SectionTooLarge { .. })
        };
        assert!(filled.as_ref().is_err_and(is_full), "{filled:?}");
        assert_eq!(values(&pool), [3, 2, 1]);
        // The log of this one holds less than its heap.
        let short = |o| PoolOptions { bytes: Some(4 << 20), log_bytes: Some(1 << 16), ..o };
        let short = db.pool_with("short", short).expect("a pool");
        let large = short.section(|tx| {
            for _ in 0..100 {
                let at = tx.allocate(4000)?;
                tx.write(at, &[7; 4000])?;
            }
            Ok::<_, SectionError>(())
        });
        // Shadow journals pages, not their contents: it has room for them.
        if domain == Domain::PageCache {
            assert!(matches!(large, Err(SectionError::SectionTooLarge { .. })), "{large:?}");
            assert_eq!(short.stats().expect("a walk").objects, 0);
        }
        push(&short, 1).expect("it goes on");
    }
}

#[test]
fn another_engine_layout_size_or_medium_is_refused_and_changes_nothing() {
    for domain in MEDIUMS {
        let dir = tempfile::tempdir().expect("directory");
        made(dir.path(), domain);
        type Adjust = fn(PoolOptions) -> PoolOptions;
        let cases: [(&str, Adjust); 3] = [
            ("engine", |o| PoolOptions { engine: Some(EngineKind::Undo), ..o }),
            ("layout", |o| PoolOptions { layout: Some(8), ..o }),
            ("size", |o| PoolOptions { bytes: Some(8 << 20), ..o }),
        ];
        for is_open in [false, true] {
            for (field, other) in cases {
                let db = database(dir.path(), domain);
                let _kept = is_open.then(|| db.pool("list").expect("as it was made"));
                let refused = db.pool_with("list", other).expect_err(field).to_string();
                assert!(refused.contains(field) && !refused.contains('\n'), "{refused}");
                assert_eq!(values(&db.pool("list").expect("intact")), [3, 2, 1]);
            }
        }
        let other = MEDIUMS[usize::from(domain == MEDIUMS[0])];
        let refused = database(dir.path(), other).pool("list").expect_err("made elsewhere");
        assert!(matches!(refused, Error::Option { field: "domain", .. }), "{refused}");
        let db = database(dir.path(), domain);
        assert!(matches!(db.pool("a/b"), Err(Error::Option { field: "pool name", .. })));
        assert_eq!(db.pool_names().expect("names"), ["list"]);
    }
    let dir = tempfile::tempdir().expect("directory");
    let shadow = |o| PoolOptions { engine: Some(EngineKind::Shadow), ..o };
    let refused = database(dir.path(), Domain::PageCache).pool_with("new", shadow);
    let refused = refused.expect_err("no engine of a disk").to_string();
    assert!(refused.contains("redo") && refused.contains("shadow"), "{refused}");
}

/// A pool is found where it lies by one that only reads, and is not changed.
/// The bytes behind the end of a file read as zeros, and a store there ended the process.
#[test]
fn a_file_that_was_shortened_is_named() {
    for (domain, name) in MEDIUMS.into_iter().zip(["pool-journal", "pool"]) {
        let dir = tempfile::tempdir().expect("directory");
        made(dir.path(), domain);
        let path = dir.path().join("pools/list").join(name);
        let bytes = std::fs::metadata(&path).expect("there").len();
        for left in [bytes - 4096, bytes / 2 + 512, 100, 0] {
            let file = File::options().write(true).open(&path).expect("opened");
            file.set_len(left).expect("shortened");
            for access in [Access::Write, Access::Read] {
                let options = MapOptions { domain, access, ..MapOptions::default() };
                let db = Database::open(dir.path(), options).expect("a database");
                let refused = db.pool("list").expect_err("it is not whole");
                assert!(refused.to_string().contains(name), "{left} bytes: {refused}");
            }
        }
    }
}

#[test]
fn a_pool_that_was_closed_opens_again_and_one_in_use_keeps_its_settings() {
    for domain in MEDIUMS {
        let dir = tempfile::tempdir().expect("directory");
        made(dir.path(), domain);
        let db = database(dir.path(), domain);
        let pool = db.pool("list").expect("a pool");
        let other = db.pool_with("list", |o| PoolOptions { waits: false, ..o });
        match domain {
            Domain::PageCache => {
                let refused = other.expect_err("others rely on waiting").to_string();
                assert!(refused.contains("open already with waits = true"), "{refused}");
            }
            _ => drop(other.expect("sections are durable when they return in any case")),
        }
        pool.close().expect("closed");
        assert_eq!(push(&pool, 4), Err(SectionError::Closed));
        drop(pool);
        let pool = db.pool("list").expect("opened again");
        push(&pool, 4).expect("room");
        assert_eq!(values(&pool), [4, 3, 2, 1]);
    }
}

#[test]
fn a_reader_opens_a_pool_of_either_medium_and_writes_nothing() {
    for domain in MEDIUMS {
        let dir = tempfile::tempdir().expect("directory");
        made(dir.path(), domain);
        let options = MapOptions { access: Access::Read, ..MapOptions::default() };
        let db = Database::open(dir.path(), options).expect("a database");
        let path = db.pool("list").expect("wherever it lies").path().to_path_buf();
        let before = std::fs::read(&path).expect("a file");
        let pool = db.pool("list").expect("open");
        assert_eq!(values(&pool), [3, 2, 1]);
        assert_eq!(push(&pool, 4), Err(SectionError::ReadOnly));
        assert!(db.pool("none").is_err(), "nothing is made");
        db.close().expect("closed");
        assert!(before == std::fs::read(&path).expect("a file"));
    }
}

/// Every block of a file that was closed, one at a time: an opening names the damage or finds what was there.
#[test]
fn a_damaged_journal_is_named_and_what_it_held_is_not_served() {
    let dir = tempfile::tempdir().expect("directory");
    made(dir.path(), Domain::PageCache);
    let path = dir.path().join("pools/list/pool-journal");
    let whole = std::fs::read(&path).expect("a file");
    let mut named = 0;
    for at in (0..whole.len()).step_by(64) {
        if whole[at..at + 64].iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut damaged = whole.clone();
        damaged[at..at + 64].iter_mut().for_each(|byte| *byte ^= 0x40);
        std::fs::write(&path, &damaged).expect("written");
        let db = database(dir.path(), Domain::PageCache);
        match db.pool("list") {
            Ok(pool) => assert_eq!(values(&pool), [3, 2, 1], "damaged at {at}"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("pool-journal") && !text.contains('\n'), "{at}: {text}");
                assert!(matches!(error, Error::Medium(_)), "{at}: {error:?}");
                named += 1;
                drop(db);
                let now = std::fs::read(&path).expect("a file");
                assert!(now == damaged, "{at}: what was refused was changed");
            }
        }
    }
    // The head, the state's pages and three records.
    assert!(named >= 5, "{named} blocks of damage were named");
    std::fs::write(&path, b"something else").expect("written");
    assert!(database(dir.path(), Domain::PageCache).pool("list").is_err(), "no pool");
}

#[test]
fn threads_that_wait_share_syncs_and_all_of_their_sections_are_there() {
    const THREADS: u64 = 8;
    const SECTIONS: u64 = 40;
    let dir = tempfile::tempdir().expect("directory");
    let db = database(dir.path(), Domain::PageCache);
    let small = |o| PoolOptions { bytes: Some(1 << 20), log_bytes: Some(16 << 10), ..o };
    let pool = db.pool_with("list", small).expect("a pool");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                (0..SECTIONS).for_each(|n| push(pool, thread * SECTIONS + n).expect("room"));
            });
        }
    });
    let stats = pool.stats().expect("a walk");
    assert!(stats.syncs < THREADS * SECTIONS, "{} syncs", stats.syncs);
    let mut found = values(&pool);
    drop(pool);
    db.close().expect("closed");
    let again = database(dir.path(), Domain::PageCache);
    assert_eq!(values(&again.pool("list").expect("the pool")), found);
    found.sort_unstable();
    assert!(found.into_iter().eq(0..THREADS * SECTIONS));
}

/// Objects of all sizes, made, freed and taken back by threads at once, in a pool that is nearly full at times.
#[test]
fn threads_at_once_allocate_and_free_and_own_what_they_got() {
    const ROUNDS: u64 = 300;
    let dir = tempfile::tempdir().expect("directory");
    let db = database(dir.path(), Domain::PageCache);
    let options = |o| PoolOptions {
        bytes: Some(1 << 20),
        log_bytes: Some(128 << 10),
        at_once: true,
        waits: false,
        ..o
    };
    let pool = db.pool_with("objects", options).expect("a pool");
    let kept: Vec<Vec<(u64, usize, u8)>> = std::thread::scope(|scope| {
        let one = |thread: u64| {
            let pool = &pool;
            move || {
                let (mut seed, mut kept) = (thread + 1, Vec::<(u64, usize, u8)>::new());
                for round in 0..ROUNDS {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let random = |bits: u32, below: usize| (seed >> bits) as usize % below;
                    let length = [16, 40, 100, 700, 3000, 9000][random(33, 6)];
                    let frees =
                        (!kept.is_empty() && random(40, 3) > 0).then(|| random(20, kept.len()));
                    let byte = ((thread << 6) | (round % 64)) as u8;
                    let done = pool.section(|tx| {
                        if let Some((at, _, _)) = frees.map(|index| kept[index]) {
                            tx.free(at)?;
                            assert_eq!(tx.free(at), Err(SectionError::NotAllocated { at }));
                        }
                        let at = tx.allocate(length as u64)?;
                        tx.write(at, &vec![byte; length])?;
                        // Taken back, now and then.
                        if random(45, 4) == 0 { Err(SectionError::InnerFailed) } else { Ok(at) }
                    });
                    match done {
                        Ok(at) => {
                            frees.map(|index| kept.swap_remove(index));
                            kept.push((at, length, byte));
                        }
                        Err(SectionError::InnerFailed | SectionError::NoRoom { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                kept
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(one(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let check = |pool: &Pool| {
        let objects = kept.iter().map(Vec::len).sum::<usize>() as u64;
        assert_eq!(pool.stats().expect("every byte has one owner").objects, objects);
        for (at, length, byte) in kept.iter().flatten() {
            let mut bytes = vec![0; *length];
            pool.section(|tx| tx.read(*at, &mut bytes)).expect("in the heap");
            assert!(bytes.iter().all(|found| found == byte), "the object at {at}");
        }
    };
    check(&pool);
    drop(pool);
    db.close().expect("closed");
    let db = database(dir.path(), Domain::PageCache);
    check(&db.pool("objects").expect("the pool"));
    let dir = tempfile::tempdir().expect("directory");
    let refused = database(dir.path(), Domain::Adr).pool_with("objects", options);
    assert!(refused.is_err(), "in memory sections run one at a time");
}

const THREADS: u64 = 4;
const ACCOUNTS: usize = 16;
const MONEY: u64 = 1000;

plain! {
    struct Bank {
        accounts: [u64; ACCOUNTS],
        done: [u64; THREADS as usize],
        receipts: [Offset<Link>; THREADS as usize],
    }
}
const BANK: Root<Bank> = Root::new(1);

/// What a pool is killed on: how it is opened, and what is done wrong, which must be noticed.
#[derive(Clone, Copy)]
struct Kind {
    domain: Domain,
    engine: EngineKind,
    /// Sections run at once.
    at_once: bool,
    /// Sections are cut in two.
    is_cut: bool,
    /// Sections that run at once take no lock.
    is_unlocked: bool,
}

impl Kind {
    fn of(name: &str) -> Kind {
        let medium = name.split('-').next().unwrap_or(name);
        let (domain, engine) = match medium {
            "disk" | "threads" => (Domain::PageCache, EngineKind::Redo),
            "undo" => (Domain::Adr, EngineKind::Undo),
            "redo" => (Domain::Adr, EngineKind::Redo),
            _ => (Domain::Adr, EngineKind::Shadow),
        };
        let (at_once, is_cut) = (medium == "threads", name.ends_with("-cut"));
        Kind { domain, engine, at_once, is_cut, is_unlocked: name.ends_with("-unlocked") }
    }

    fn open(self, db: &Database) -> Pool {
        let bank = |o| PoolOptions {
            engine: Some(self.engine),
            at_once: self.at_once,
            bytes: Some(2 << 20),
            log_bytes: Some(64 << 10),
            ..o
        };
        db.pool_with("bank", bank).expect("a kill is no damage")
    }
}

/// The first half of a transfer, and the second, which replaces the thread's receipt by a new object.
fn withdraw(pool: &Pool, from: usize) -> Result<(), SectionError> {
    pool.section(|tx| {
        let account = Bank::accounts(tx.root(BANK)?).item(from);
        tx.set(account, tx.get(account)?.wrapping_sub(1))
    })
}

fn deposit(pool: &Pool, to: usize, thread: usize) -> Result<u64, SectionError> {
    pool.section(|tx| {
        let bank = tx.root(BANK)?;
        let account = Bank::accounts(bank).item(to);
        tx.set(account, tx.get(account)?.wrapping_add(1))?;
        let counter = Bank::done(bank).item(thread);
        let done = tx.get(counter)? + 1;
        tx.set(counter, done)?;
        let receipt = Bank::receipts(bank).item(thread);
        let old = tx.get(receipt)?;
        if !old.is_null() {
            tx.destroy(old)?;
        }
        let new = tx.create(&Link { value: done, next: Offset::NULL })?;
        tx.set(receipt, new)?;
        Ok(done)
    })
}

/// What the killed process does; nothing in an ordinary run of the tests.
#[test]
fn the_process_that_is_killed() {
    let (Ok(dir), Ok(name)) =
        (std::env::var("TERRACE_POOL_DIR"), std::env::var("TERRACE_POOL_KIND"))
    else {
        return;
    };
    let (dir, kind) = (Path::new(&dir), Kind::of(&name));
    let db = database(dir, kind.domain);
    let pool = kind.open(&db);
    let acknowledged = File::options().write(true).open(dir.join("acknowledged")).expect("a file");
    // Of accounts; in their order. Two may be one.
    let locks = [const { Mutex::new(()) }; ACCOUNTS];
    println!("ready");
    std::thread::scope(|scope| {
        for thread in 0..THREADS as usize {
            let (pool, acknowledged, locks) = (&pool, &acknowledged, &locks);
            scope.spawn(move || {
                for n in thread.. {
                    let (from, to) = (n % ACCOUNTS, (n / ACCOUNTS + thread) % ACCOUNTS);
                    let lock = |account: usize| locks[account].lock().expect("no panic");
                    let is_locked = kind.at_once && !kind.is_unlocked;
                    let _first = is_locked.then(|| lock(from.min(to)));
                    let _second = (is_locked && from != to).then(|| lock(from.max(to)));
                    let done = match kind.is_cut {
                        false => pool.section(|_| {
                            withdraw(pool, from)?;
                            deposit(pool, to, thread)
                        }),
                        true => withdraw(pool, from).and_then(|()| deposit(pool, to, thread)),
                    };
                    let done = done.expect("room").to_le_bytes();
                    acknowledged.write_all_at(&done, 8 * thread as u64).expect("written");
                }
            });
        }
    });
}

/// What is wrong after a kill, if anything is; and how many transfers there are.
fn found(dir: &Path, kind: Kind) -> (Option<String>, u64) {
    let db = database(dir, kind.domain);
    let pool = kind.open(&db);
    let bank = pool.section(|tx| tx.get(tx.root(BANK)?)).expect("the bank");
    let acknowledged = std::fs::read(dir.join("acknowledged")).expect("a file");
    let (words, _) = acknowledged.as_chunks::<8>();
    let mut wrong = None;
    let money = bank.accounts.iter().fold(0u64, |sum, account| sum.wrapping_add(*account));
    if money != MONEY * ACCOUNTS as u64 {
        wrong = Some(format!("{money} in all accounts"));
    }
    let mut objects = 1;
    for (thread, word) in words.iter().enumerate() {
        let (acknowledged, there) = (u64::from_le_bytes(*word), bank.done[thread]);
        // One may have ended without the process learning of it.
        if there != acknowledged && there != acknowledged + 1 {
            wrong = Some(format!("thread {thread}: {acknowledged} acknowledged, {there} there"));
        }
        let receipt = bank.receipts[thread];
        objects += u64::from(!receipt.is_null());
        if !receipt.is_null()
            && pool.section(|tx| tx.get(Link::value(receipt))) != Ok(bank.done[thread])
        {
            wrong = Some(format!("thread {thread} has another section's receipt"));
        }
    }
    let stats = pool.stats().expect("every byte has one owner");
    assert_eq!(stats.objects, objects, "nothing leaked");
    (wrong, bank.done.iter().sum())
}

/// Kills the process again and again, until something is wrong or it was killed `kills` times.
fn killed(name: &str, kills: u64) -> Option<String> {
    let dir = tempfile::tempdir().expect("directory");
    let (dir, kind) = (dir.path(), Kind::of(name));
    let db = database(dir, kind.domain);
    let pool = kind.open(&db);
    let made = pool.section(|tx| {
        let (accounts, done) = ([MONEY; ACCOUNTS], [0; THREADS as usize]);
        let receipts = [Offset::NULL; THREADS as usize];
        let bank = tx.create(&Bank { accounts, done, receipts })?;
        tx.set_root(BANK, bank)
    });
    made.expect("room");
    drop((pool, db));
    std::fs::write(dir.join("acknowledged"), [0; 8 * THREADS as usize]).expect("a file");
    let mut transfers = 0;
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "the_process_that_is_killed", "--nocapture"])
            .env("TERRACE_POOL_DIR", dir)
            .env("TERRACE_POOL_KIND", name)
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let stdout = child.stdout.take().expect("piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("ready")), "the process opened its pool");
        if kill == 0 {
            let options = MapOptions { domain: kind.domain, ..MapOptions::default() };
            let refused = Database::open(dir, options).err();
            assert!(matches!(refused, Some(Error::Locked(_))), "another process has it");
        }
        std::thread::sleep(Duration::from_millis(20 + 37 * kill % 160));
        child.kill().expect("kill");
        let status = child.wait().expect("wait");
        assert_eq!(status.signal(), Some(9), "it was alive until killed");
        let (wrong, there) = found(dir, kind);
        if wrong.is_some() {
            return wrong;
        }
        transfers = there;
    }
    assert!(transfers > kills, "{name}: {transfers} transfers in {kills} lives");
    None
}

fn kills() -> u64 {
    if std::env::var("TERRACE_LONG").is_ok() { 100 } else { 8 }
}

#[test]
fn sections_are_whole_or_absent_after_kills_and_the_acknowledged_ones_are_there() {
    for name in ["disk", "threads", "undo", "redo", "shadow"] {
        assert_eq!(killed(name, kills()), None, "{name}");
    }
}

/// The judge: sections cut in two are noticed, for some kill falls between the halves; and sections that run at once
/// without their caller's locks, for they lose each other's changes.
#[test]
fn transfers_of_two_sections_and_without_locks_are_found_out() {
    for name in ["disk-cut", "shadow-cut", "threads-cut", "threads-unlocked"] {
        assert!(killed(name, 100).is_some(), "{name}");
    }
}
