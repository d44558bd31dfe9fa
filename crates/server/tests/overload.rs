//! A server at its limit of memory, after a failure of its disk, and with more queues made and deleted than it keeps:
//! what other clients notice of it.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, Reply, TestServer, options, request};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace::{Domain, Durability, MapOptions, WhenFull};
use terrace_server::ServerOptions;

const MIB: u64 = 1 << 20;

fn maps(when_full: WhenFull, budget_bytes: u64) -> MapOptions {
    MapOptions {
        durability: Durability::Interval(Duration::from_secs(1)),
        memory_budget_bytes: budget_bytes,
        when_full,
        ..MapOptions::default()
    }
}

fn used_memory(client: &mut Client<TcpStream>) -> u64 {
    let Reply::Bulk(info) = client.call(&["INFO", "memory"]) else { panic!("INFO answers a text") };
    let info = String::from_utf8(info).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    line.trim().parse().unwrap()
}

/// New keys `from..to` with values of 100 bytes, pipelined; how many were refused.
fn fill(client: &mut Client<TcpStream>, from: u32, to: u32) -> usize {
    let value = [b'v'; 100];
    let mut refused = 0;
    for first in (from..to).step_by(1000) {
        let requests: Vec<u8> = (first..to.min(first + 1000))
            .flat_map(|n| request(&[&b"SET"[..], format!("key:{n}").as_bytes(), &value[..]]))
            .collect();
        client.send(&requests);
        refused += (first..to.min(first + 1000))
            .filter(|_| matches!(client.reply(), Reply::Error(_)))
            .count();
    }
    refused
}

/// A client that pipelined new keys once took a server of 64 MiB to 383 MiB in 15 seconds.
#[test]
fn evicting_new_keys_stays_within_maxmemory() {
    let server = TestServer::with_maps(options(), maps(WhenFull::Evict, 64 * MIB));
    let mut client = server.client();
    let mut most = 0;
    for n in 0..20 {
        assert_eq!(fill(&mut client, n * 100_000, (n + 1) * 100_000), 0, "nothing is refused");
        most = most.max(used_memory(&mut client));
    }
    assert!(most <= 64 * MIB, "{} MiB", most >> 20);
    assert_eq!(client.line("EXISTS key:1999999 key:0"), ":1");
    // Lowered at run time, it is met promptly.
    assert_eq!(client.line("CONFIG SET maxmemory 40mb"), "OK");
    let deadline = Instant::now() + Duration::from_secs(10);
    while used_memory(&mut client) > 40 * MIB {
        assert!(Instant::now() < deadline, "{} MiB", used_memory(&mut client) >> 20);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.line("EXISTS key:1999999"), ":1", "the newest key stays");
}

/// One writer that goes on at the limit once made every other client of its event loop wait for half a second: each
/// write that was refused slept there.
#[test]
fn a_writer_at_the_limit_does_not_hold_up_other_clients() {
    let one_loop = ServerOptions { threads: 1, ..options() };
    let server = TestServer::with_maps(one_loop, maps(WhenFull::Refuse, 48 * MIB));
    let mut client = server.client();
    assert_eq!(client.line("SET hot x"), "OK");
    let mut writer = server.client();
    while fill(&mut writer, 0, 500_000) == 0 {}
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 1_000_000;
            while !stop.load(Ordering::Relaxed) {
                fill(&mut writer, next, next + 64);
                next += 64;
            }
        });
        let mut took: Vec<Duration> = (0..400)
            .map(|_| {
                let begun = Instant::now();
                assert_eq!(client.line("GET hot"), "\"x\"");
                begun.elapsed()
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        took.sort();
        // A loaded machine takes its time; what slept took hundreds of milliseconds at the median.
        assert!(took[200] < Duration::from_millis(20), "half take {:?} and longer", took[200]);
        assert!(took[380] < Duration::from_millis(100), "a twentieth takes {:?}", took[380]);
    });
}

/// Commands that rewrite a value, or write elsewhere than to the selected database, were not known to need memory
/// before they ran: each then slept up to 5 ms on the event loop, until the collector had said that there is none.
/// Every small write in between made the next one sleep again, and a turn takes thousands of them.
#[test]
fn writes_larger_than_their_arguments_do_not_hold_up_other_clients() {
    let one_loop = ServerOptions { threads: 1, ..options() };
    let server = TestServer::with_maps(one_loop, maps(WhenFull::Refuse, 64 * MIB));
    let mut client = server.client();
    assert_eq!(client.line("SET hot x"), "OK");
    // To open a database takes syncs, which are not what this is about.
    for line in ["SELECT 1", "SET warm x", "SELECT 0"] {
        assert_eq!(client.line(line), "OK");
    }
    let big = vec![b'v'; MIB as usize];
    let mut n = 0;
    loop {
        client.send(&request(&[&b"SET"[..], format!("big:{n}").as_bytes(), &big[..]]));
        if matches!(client.reply(), Reply::Error(_)) {
            break;
        }
        n += 1;
    }
    let large = String::from_utf8(big).unwrap();
    let script: [&[&str]; 9] = [
        &["APPEND big:1 x", "SET s v"],
        &["SETRANGE grown 4000000 x", "SET s v"],
        &["EXPIRE big:1 1000", "SET s v"],
        &["GETEX big:2 EX 1000", "SET s v"],
        &["COPY big:1 other REPLACE", "SET s v"],
        &["RENAME big:3 big:3b", "RENAME big:3b big:3", "SET s v"],
        &["COPY big:1 big DB 1 REPLACE", "SET s v"],
        &["MULTI", "SELECT 1", "APPEND big x", "SELECT 0", "APPEND big:1 x", "EXEC", "SET s v"],
        &["SELECT 1", &format!("SET big {large}"), "SELECT 0", "SET s v"],
    ];
    for lines in script {
        let bytes: Vec<u8> =
            lines.iter().flat_map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect();
        // As much as is executed in one turn, and some more; nobody reads the replies.
        let times = (600 << 10) / bytes.len().min(300 << 10);
        let what = &lines[0][..lines[0].len().min(40)];
        let mut writer = server.client();
        // What they take by themselves, on a machine that runs other tests too: nobody waits for more than a few.
        let begun = Instant::now();
        writer.send(&bytes);
        lines.iter().for_each(|_| drop(writer.reply()));
        let alone = begun.elapsed();
        writer.send(&bytes.repeat(times.min(4_000)));
        let mut took: Vec<Duration> = (0..60)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(5));
                let begun = Instant::now();
                assert_eq!(client.line("GET hot"), "\"x\"", "{what}");
                begun.elapsed()
            })
            .collect();
        took.sort();
        println!("{what}: alone {alone:?}, beside it {:?}, {:?}", took[30], took[57]);
        let (half, most) = (Duration::from_millis(20), Duration::from_millis(100));
        assert!(took[30] < half.max(3 * alone), "{what}: {alone:?}, half take {:?}", took[30]);
        assert!(took[57] < most.max(9 * alone), "{what}: {alone:?}, a few took {:?}", took[57]);
    }
}

/// What is held until there is memory is executed once, in its order, whatever was gathered with it.
#[test]
fn requests_that_wait_for_memory_are_executed_once_and_in_order() {
    let one_loop = ServerOptions { threads: 1, ..options() };
    let server = TestServer::with_maps(one_loop, maps(WhenFull::Evict, 64 * MIB));
    let value = vec![b'v'; MIB as usize];
    let times = 300;
    std::thread::scope(|scope| {
        let mut client = server.client();
        let mut sender = Client::over(client.stream.try_clone().unwrap());
        scope.spawn(move || {
            for n in 0..times {
                let (key, small) = (format!("big:{n}"), n.to_string());
                let set: [&[u8]; 3] = [b"SET", key.as_bytes(), &value];
                let requests = [
                    request(&["INCR", "count"]),
                    request(&["SET", "small", &small]),
                    request(&set),
                    request(&["GET", "small"]),
                    request(&["MULTI"]),
                    request(&["SELECT", "1"]),
                    request(&["INCR", "within"]),
                    request(&set),
                    request(&["EXEC"]),
                    request(&["SELECT", "0"]),
                    request(&["COPY", &key, "copy", "DB", "1", "REPLACE"]),
                ];
                sender.send(&requests.concat());
            }
        });
        for n in 0..times {
            let replies: Vec<String> = (0..11).map(|_| client.reply().to_string()).collect();
            let count = n + 1;
            let expected =
                format!(":{count} OK OK \"{n}\" OK QUEUED QUEUED QUEUED [OK, :{count}, OK] OK :1");
            assert_eq!(replies.join(" "), expected);
        }
        let Reply::Bulk(info) = client.call(&["INFO", "commandstats"]) else { panic!("a text") };
        let info = String::from_utf8(info).unwrap();
        assert!(info.contains(&format!("cmdstat_incr:calls={},", 2 * times)), "{info}");
        assert!(info.contains(&format!("cmdstat_copy:calls={times},")), "{info}");
        assert!(info.contains(&format!("cmdstat_select:calls={},", 2 * times)), "{info}");
    });
}

/// A sync that failed once left its debt to the session that all clients of an event loop share: until the server was
/// started again every GET, SCAN and TTL failed with it.
#[test]
fn after_a_failed_sync_what_was_durable_is_read() {
    let one_loop = ServerOptions { threads: 1, ..options() };
    let durable = MapOptions { durability: Durability::Sync, ..maps(WhenFull::Refuse, 128 * MIB) };
    let server = TestServer::with_maps(one_loop, durable);
    let mut client = server.client();
    assert_eq!(client.line("SET kept before"), "OK");
    assert_eq!(client.line("SET changed before"), "OK");
    assert_eq!(client.line("SET short x EX 1000"), "OK");
    // The logs that are made ready ahead of need are.
    std::thread::sleep(Duration::from_millis(500));
    server.database.map("0").unwrap().medium().inject_write_fault(0);
    let refused = client.line("SET changed after");
    assert!(refused.starts_with("-MISCONF "), "{refused}");
    let mut other = server.client();
    for _ in 0..3 {
        assert_eq!(other.line("GET kept"), "\"before\"");
        assert_eq!(other.line("MGET kept kept"), "[\"before\", \"before\"]");
        assert!(other.line("TTL short").starts_with(':'), "{}", other.line("TTL short"));
        assert_eq!(other.line("GET absent"), "nil");
        let scanned = other.line("SCAN 0 COUNT 100");
        assert!(scanned.contains("kept") && scanned.contains("short"), "{scanned}");
        // Whoever copies it, as `terrace export --server` does, meets no error on the way.
        let Reply::Array(page) = other.call(&["SCAN", "0", "COUNT", "100"]) else {
            panic!("{scanned}")
        };
        let Reply::Array(keys) = &page[1] else { panic!("{scanned}") };
        assert_eq!(keys.len(), 2, "{scanned}");
        for key in keys {
            let Reply::Bulk(key) = key else { panic!("{scanned}") };
            assert!(matches!(other.call(&[&b"GET"[..], key]), Reply::Bulk(_)), "{scanned}");
        }
        let all = other.line("KEYS *");
        assert!(all.contains("kept") && !all.contains("changed"), "{all}");
        // What was not durable is not told, neither as it was nor as it is, and nobody else's answer fails with it.
        let untold = other.line("GET changed");
        assert!(untold.contains("reopen"), "{untold}");
        other.send(&[request(&["GET", "kept"]), request(&["GET", "changed"])].concat());
        other.send(&request(&["GET", "kept"]));
        assert_eq!(other.reply().to_string(), "\"before\"");
        assert!(matches!(other.reply(), Reply::Error(_)));
        assert_eq!(other.reply().to_string(), "\"before\"");
        assert!(other.line("SET kept again").starts_with("-MISCONF "), "writes are refused");
        assert_eq!(other.line("GET kept"), "\"before\"", "and change nothing");
    }
}

fn disk_bytes(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            if found.is_dir() { disk_bytes(&entry.path()) } else { found.blocks() * 512 }
        })
        .sum()
}

/// Sixteen queues, made and deleted, once held 1.1 GB of memory and disk for good, and a seventeenth name was refused.
#[test]
fn deleted_queues_give_back_their_name_their_memory_and_their_disk() {
    queues_are_released(maps(WhenFull::Refuse, 256 * MIB));
}

#[test]
fn deleted_queues_give_all_back_on_a_byte_addressable_medium() {
    queues_are_released(MapOptions { domain: Domain::Adr, ..maps(WhenFull::Refuse, 256 * MIB) });
}

fn queues_are_released(maps: MapOptions) {
    // There a queue takes all of its memory at once.
    let takes_all = maps.domain.is_byte_addressable();
    let server = TestServer::with_maps(options(), maps);
    let mut client = server.client();
    assert_eq!(client.line("SET key x"), "OK");
    let before = used_memory(&mut client);
    let queues = server.dir().join("queues");
    for n in 0..40 {
        assert_eq!(client.line(&format!("RPUSH queue{n} a b c")), ":3");
        if !takes_all {
            assert!(disk_bytes(&queues) < 4 * MIB, "three elements: {}", disk_bytes(&queues));
            assert!(used_memory(&mut client) < before + 8 * MIB, "three elements");
        }
        assert_eq!(client.line(&format!("DEL queue{n}")), ":1");
        assert_eq!(client.line(&format!("LLEN queue{n}")), ":0");
    }
    assert!(disk_bytes(&queues) < MIB, "{}", disk_bytes(&queues));
    assert!(used_memory(&mut client) <= before + MIB);
    // Those that were emptied by pops make way for others too, and what has elements stays.
    assert_eq!(client.line("RPUSH full x"), ":1");
    for n in 0..40 {
        assert_eq!(client.line(&format!("RPUSH popped{n} a")), ":1");
        assert_eq!(client.line(&format!("LPOP popped{n}")), "\"a\"");
    }
    assert_eq!(client.line("LPOP full"), "\"x\"");
    assert_eq!(client.line("RPUSH popped3 again"), ":1");
    assert_eq!(client.line("FLUSHALL"), "OK");
    assert_eq!(client.line("EXISTS popped3"), ":0");
    assert!(disk_bytes(&queues) < 4 * MIB);
}

/// At the limit these were refused as writes are, though all they do is delete.
#[test]
fn commands_that_delete_need_no_room_at_the_limit() {
    let server = TestServer::with_maps(options(), maps(WhenFull::Refuse, 48 * MIB));
    let mut client = server.client();
    let mut n = 0;
    while fill(&mut client, n, n + 100_000) == 0 {
        n += 100_000;
    }
    let refused = |answer: &str| answer.starts_with("-OOM");
    let mut small = 0;
    while !refused(&client.line(&format!("SET small:{small} x"))) {
        small += 1;
    }
    for (command, first, done) in [
        ("GETDEL key:{}", 0, "\"vvv"),
        ("EXPIRE key:{} -1", 100, ":1"),
        ("PEXPIREAT key:{} 1", 200, ":1"),
        ("GETEX key:{} PXAT 1", 300, "\"vvv"),
    ] {
        for key in first..first + 50 {
            let answer = client.line(&command.replace("{}", &key.to_string()));
            assert!(answer.starts_with(done), "{command}, {key}: {answer}");
            assert_eq!(client.line(&format!("EXISTS key:{key}")), ":0");
        }
    }
    let keys = |client: &mut Client<TcpStream>| {
        let answer = client.line("DBSIZE");
        answer[1..].parse::<u32>().unwrap()
    };
    let before = keys(&mut client);
    for first in (1_000..75_000).step_by(10) {
        let named: String = (first..first + 10).map(|key| format!(" key:{key}")).collect();
        assert_eq!(client.line("MULTI"), "OK");
        assert_eq!(client.line(&format!("DEL{named}")), "QUEUED");
        assert_eq!(client.line(&format!("EXISTS{named}")), "QUEUED");
        assert_eq!(client.line("EXEC"), "[:10, :0]");
    }
    assert_eq!(keys(&mut client), before - 74_000);
    // That made room, as soon as the collector has seen it.
    let begun = Instant::now();
    while refused(&client.line("SET once:more x")) {
        assert!(begun.elapsed() < Duration::from_secs(10), "no room");
        std::thread::sleep(Duration::from_millis(1));
    }
    let refusals = fill(&mut client, n, n + 10_000);
    assert!(refusals < 1_000, "{refusals} of 10,000 are refused");
}
