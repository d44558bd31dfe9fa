//! MULTI, EXEC, WATCH: the commands, and that a transaction is one step to everybody.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, request};
use std::sync::atomic::{AtomicBool, Ordering};

/// Each transaction stopped all loops, the ones that watch a key and write it, too.
#[test]
fn one_that_writes_one_key_runs_among_others() {
    let server = TestServer::start();
    let mut client = server.client();
    let alone = |client: &mut crate::common::Client<std::net::TcpStream>| -> u64 {
        crate::common::info(client, "turns_alone").parse().unwrap()
    };
    let mut run = |lines: &[&str]| {
        let before = alone(&mut client);
        let last = lines.iter().map(|line| client.line(line)).last().unwrap();
        (last, alone(&mut client) - before)
    };
    let one = ["SET a 1", "WATCH a", "MULTI", "GET a", "GET b", "INCR a", "EXEC"];
    assert_eq!(run(&one), ("[\"1\", nil, :2]".into(), 0));
    assert_eq!(run(&["MULTI", "MGET a b", "GET a", "EXEC"]).1, 0);
    let two = ["MULTI", "INCR a", "INCR b", "EXEC"];
    assert_eq!(run(&two), ("[:3, :1]".into(), 1));
    // What is read by other ways than by its name; what is watched elsewhere; and all, once there are lists.
    assert_eq!(run(&["MULTI", "INCR a", "DBSIZE", "EXEC"]).1, 1);
    assert_eq!(run(&["SELECT 1", "WATCH a", "SELECT 0", "MULTI", "SET a 1", "EXEC"]).1, 1);
    assert_eq!(run(&["RPUSH q x"]).1, 1);
    assert_eq!(run(&["RPUSH r x"]).1, 0);
    assert_eq!(run(&["MULTI", "SET a 1", "EXEC"]).1, 1);
    assert_eq!(run(&["SELECT 1", "MULTI", "SET a 1", "EXEC"]).1, 0);
}

/// One loop raises two counters one after the other, the other reads both in a transaction: never the second before the
/// first. And of two that each write one key if neither is there, one comes first.
#[test]
fn what_runs_among_others_reads_one_moment() {
    let server = TestServer::start();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut client, done) = (server.client(), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    client.send(&[request(&["INCR", "a"]), request(&["INCR", "b"])].concat());
                    client.reply();
                    client.reply();
                }
            });
        }
        let _over = Over(&done);
        let mut client = server.client();
        for _ in 0..3000 {
            ["MULTI", "GET a", "GET b"].iter().for_each(|line| drop(client.line(line)));
            let Reply::Array(pair) = client.call(&["EXEC"]) else { panic!("EXEC") };
            let number = |reply: &Reply| reply.to_string().trim_matches('"').parse().unwrap_or(0);
            let [a, b]: [i64; 2] = [number(&pair[0]), number(&pair[1])];
            assert!(a >= b && a - b <= 2, "{a} {b}");
        }
    });
    let rounds = 500;
    let both = |own: &'static str, server: &TestServer| {
        let mut client = server.client();
        move |round: usize| {
            client.line(&format!("WATCH x{round} y{round}"));
            let Reply::Array(found) =
                client.call(&["MGET", &format!("x{round}"), &format!("y{round}")])
            else {
                panic!("MGET")
            };
            client.line("MULTI");
            if found.iter().all(|value| value.to_string() == "nil") {
                client.line(&format!("SET {own}{round} 1"));
            }
            client.line("EXEC")
        }
    };
    std::thread::scope(|scope| {
        for own in ["x", "y"] {
            let mut once = both(own, &server);
            scope.spawn(move || (0..rounds).for_each(|round| drop(once(round))));
        }
    });
    let mut client = server.client();
    for round in 0..rounds {
        let there = client.line(&format!("EXISTS x{round} y{round}"));
        assert!(there == ":0" || there == ":1", "round {round}: {there}");
    }
}

#[test]
fn the_commands() {
    crate::common::script::run(
        r#"
        EXEC => -ERR EXEC without MULTI
        DISCARD => -ERR DISCARD without MULTI
        MULTI => OK
        MULTI => -ERR MULTI calls can not be nested
        SET a 1 => QUEUED
        INCR a => QUEUED
        GET a => QUEUED
        @2 GET a => nil
        EXEC => [OK, :2, "2"]
        GET a => "2"
        MULTI => OK
        SET a 9 => QUEUED
        DISCARD => OK
        GET a => "2"
        MULTI => OK
        EXEC => []
        # An error when queueing spoils the transaction; one when running does not.
        MULTI => OK
        SET a => -ERR wrong number of arguments for 'set' command
        SET a 5 => QUEUED
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        MULTI => OK
        CONFIG NONSENSE => -ERR unknown subcommand 'NONSENSE'. Try CONFIG HELP.
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        MULTI => OK
        OBJECT ENCODING => -ERR wrong number of arguments for 'object|encoding' command
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        MULTI => OK
        CLIENT GETNAME x => -ERR wrong number of arguments for 'client|getname' command
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        MULTI => OK
        NONSENSE => -ERR unknown command 'NONSENSE', with args beginning with: 
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        GET a => "2"
        SET text abc => OK
        MULTI => OK
        INCR text => QUEUED
        SET a 3 => QUEUED
        EXEC => [-ERR value is not an integer or out of range, OK]
        GET a => "3"
        # WATCH.
        WATCH => -ERR wrong number of arguments for 'watch' command
        WATCH a b => OK
        MULTI => OK
        WATCH a => -ERR WATCH inside MULTI is not allowed
        SET a 4 => QUEUED
        EXEC => [OK]
        WATCH a => OK
        @2 SET a 5 => OK
        MULTI => OK
        SET a 6 => QUEUED
        EXEC => nil
        GET a => "5"
        # Watched and set to the same value: still changed.
        WATCH a => OK
        @2 SET a 5 => OK
        MULTI => OK
        EXEC => nil
        # Absent, then there; there, then gone; gone and back.
        WATCH absent => OK
        @2 SET absent 1 => OK
        MULTI => OK
        EXEC => nil
        WATCH absent => OK
        @2 DEL absent => :1
        MULTI => OK
        EXEC => nil
        WATCH a => OK
        @2 DEL a => :1
        @2 SET a 5 => OK
        MULTI => OK
        EXEC => nil
        # Other keys, or the same name in another database, do not matter.
        WATCH a => OK
        @2 SET other 1 => OK
        @2 SELECT 5 => OK
        @2 SET a 1 => OK
        @2 SELECT 0 => OK
        MULTI => OK
        EXEC => []
        WATCH a => OK
        @2 EXPIRE a 100 => :1
        MULTI => OK
        EXEC => nil
        WATCH a => OK
        @2 SET a 1 => OK
        UNWATCH => OK
        MULTI => OK
        EXEC => []
        WATCH a => OK
        @2 FLUSHALL => OK
        MULTI => OK
        EXEC => nil
        # Absent, written, deleted again; written after a flush as often as before; nothing appended.
        WATCH never => OK
        @2 SET never 1 => OK
        @2 DEL never => :1
        MULTI => OK
        EXEC => nil
        SET a 1 => OK
        WATCH a => OK
        @2 FLUSHALL => OK
        @2 SET a 1 => OK
        MULTI => OK
        EXEC => nil
        WATCH never => OK
        @2 FLUSHDB => OK
        MULTI => OK
        EXEC => []
        SET a 1 => OK
        WATCH a => OK
        @2 APPEND a "" => :1
        MULTI => OK
        EXEC => nil
        # What changes nothing is no change.
        SET a text => OK
        WATCH a never => OK
        @2 INCR a => -ERR value is not an integer or out of range
        @2 SETRANGE a 0 "" => :4
        @2 DEL never => :0
        @2 SET a x NX => nil
        @2 PERSIST a => :0
        MULTI => OK
        EXEC => []
        # Lists, too: pushed to, popped from, and both.
        WATCH q => OK
        @2 RPUSH q x => :1
        MULTI => OK
        EXEC => nil
        WATCH q => OK
        @2 LPOP q => "x"
        MULTI => OK
        EXEC => nil
        WATCH q => OK
        @2 RPUSH q y => :1
        @2 LPOP q => "y"
        MULTI => OK
        EXEC => nil
        WATCH q => OK
        @2 LLEN q => :0
        MULTI => OK
        EXEC => []
        # A queue that was removed and made again is another one; one that came and went was there.
        RPUSH r a => :1
        WATCH r => OK
        @2 DEL r => :1
        @2 RPUSH r b => :1
        MULTI => OK
        EXEC => nil
        WATCH s => OK
        @2 RPUSH s x => :1
        @2 DEL s => :1
        MULTI => OK
        EXEC => nil
        # DISCARD and EXEC both forget what was watched.
        WATCH a => OK
        MULTI => OK
        DISCARD => OK
        @2 SET a 1 => OK
        MULTI => OK
        EXEC => []
        # My own write counts too.
        WATCH a => OK
        SET a 2 => OK
        MULTI => OK
        EXEC => nil
        # Databases inside.
        MULTI => OK
        SET here 0 => QUEUED
        SELECT 1 => QUEUED
        SET here 1 => QUEUED
        GET here => QUEUED
        FLUSHDB => QUEUED
        GET here => QUEUED
        SELECT 0 => QUEUED
        GET here => QUEUED
        EXEC => [OK, OK, OK, "1", OK, nil, OK, "0"]
        # All kinds of commands inside.
        MULTI => OK
        MSET a 1 b 2 => QUEUED
        MSETNX c 3 d 4 => QUEUED
        RENAME a e => QUEUED
        COPY e f => QUEUED
        DEL b c => QUEUED
        APPEND f x => QUEUED
        SETRANGE f 4 y => QUEUED
        INCRBYFLOAT d 0.5 => QUEUED
        EXPIRE e 100 => QUEUED
        MGET a b c d e f => QUEUED
        PING => QUEUED
        EXEC => [OK, :1, OK, :1, :2, :2, :5, "4.5", :1, [nil, nil, nil, "4.5", "1", "1x\x00\x00y"], PONG]
        MULTI => OK
        SAVE => -ERR Command not allowed inside a transaction
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        MULTI => OK
        RESET => RESET
        EXEC => -ERR EXEC without MULTI
    "#,
    );
}

#[test]
fn a_transaction_too_large_for_one_log_is_refused_whole() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.line("SET k0 old"), "OK");
    assert_eq!(client.line("MULTI"), "OK");
    let value = "x".repeat(1 << 20);
    for i in 0..8 {
        assert_eq!(client.call(&["SET", &format!("k{i}"), &value]).to_string(), "QUEUED");
    }
    let reply = client.call(&["EXEC"]).to_string();
    let expected = "-EXECABORT Transaction discarded because of: a batch of ";
    assert!(reply.starts_with(expected), "{reply}");
    assert_eq!(client.line("GET k0"), "\"old\"");
    assert_eq!(client.line("EXISTS k1"), ":0");
}

/// Each small write was charged 144 bytes: MSET of 100,000 pairs, 0.8 MB, was refused, and so were 30,000
/// INCRs in a transaction.
#[test]
fn a_transaction_may_be_as_large_as_a_log() {
    let server = TestServer::start();
    let mut client = server.client();
    let mut request_of = vec!["MSET".to_string()];
    (0..100_000).for_each(|i| request_of.extend([format!("{i:05}"), "abc".to_string()]));
    assert_eq!(client.call(&request_of).to_string(), "OK");
    assert_eq!(client.line("DBSIZE"), ":100000");
    let mut asks = request(&["MULTI"]);
    (0..30_000).for_each(|i| asks.extend(request(&["INCR", &format!("counter{i}")])));
    asks.extend(request(&["DBSIZE"]));
    asks.extend(request(&["EXEC"]));
    client.send(&asks);
    (0..30_002).for_each(|_| drop(client.reply()));
    let Reply::Array(replies) = client.reply() else { panic!("EXEC") };
    assert!(replies[..30_000].iter().all(|reply| *reply == Reply::Integer(1)));
    assert_eq!(replies[30_000], Reply::Integer(130_000));
}

/// WATCH of 30,000 keys compared each with all before it: 1.8 s in which nobody was served.
#[test]
fn many_keys_are_watched_quickly() {
    let server = TestServer::start();
    let mut client = server.client();
    let names: Vec<String> = (0..30_000).map(|i| format!("key{i}")).collect();
    let watch: Vec<&str> = ["WATCH"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let start = std::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(client.call(&watch).to_string(), "OK");
    }
    // Turns of a client that watches much cost no more than others'.
    (0..1000).for_each(|_| assert_eq!(client.line("PING"), "PONG"));
    assert_eq!(client.line("MULTI"), "OK");
    assert_eq!(client.line("EXEC"), "[]");
    let took = start.elapsed();
    assert!(took < std::time::Duration::from_millis(1500), "{took:?}");
}

/// Commands that look at many keys see what the transaction has written before, as single ones do.
#[test]
fn a_transaction_sees_its_own_writes_in_every_way() {
    crate::common::script::run(
        r#"
        MSET a 1 b 2 => OK
        MULTI => OK
        SET c 3 => QUEUED
        DEL a => QUEUED
        DBSIZE => QUEUED
        KEYS ? => QUEUED
        EXISTS a b c => QUEUED
        RANDOMKEY => QUEUED
        MGET a b c => QUEUED
        EXPIRE b 0 => QUEUED
        DBSIZE => QUEUED
        SCAN 0 => QUEUED
        RENAME c d => QUEUED
        TYPE d => QUEUED
        EXEC => [OK, :1, :2, *
        GET d => "3"
        DBSIZE => :1
    "#,
    );
}

/// Tells the other threads of a test that it is over, also when it is because one panicked.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Transfers between two accounts by MULTI/EXEC on several connections (and so on both loops),
/// while others read both accounts in one MGET or one EXEC: the sum never changes.
#[test]
fn nobody_sees_half_a_transaction() {
    const ROUNDS: usize = 1500;
    let server = TestServer::start();
    assert_eq!(server.client().line("MSET from 1000000 to 0"), "OK");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let mut client = server.client();
                scope.spawn(move || {
                    let batch = [
                        request(&["MULTI"]),
                        request(&["DECR", "from"]),
                        request(&["INCR", "to"]),
                        request(&["EXEC"]),
                    ]
                    .concat();
                    for _ in 0..ROUNDS {
                        client.send(&batch);
                        let replies: Vec<Reply> = (0..4).map(|_| client.reply()).collect();
                        assert!(
                            matches!(&replies[3], Reply::Array(items) if items.len() == 2),
                            "{replies:?}"
                        );
                    }
                })
            })
            .collect();
        for reader in 0..3 {
            let mut client = server.client();
            let done = &done;
            scope.spawn(move || {
                let mut rounds = 0;
                while !done.load(Ordering::Relaxed) || rounds == 0 {
                    let reply = match reader {
                        0 => {
                            client.line("MULTI");
                            client.line("GET from");
                            client.line("GET to");
                            client.call(&["EXEC"])
                        }
                        _ => client.call(&["MGET", "from", "to"]),
                    };
                    let Reply::Array(items) = &reply else { panic!("{reply}") };
                    let sum: i64 = items
                        .iter()
                        .map(|item| item.to_string().trim_matches('"').parse::<i64>().unwrap())
                        .sum();
                    assert_eq!(sum, 1_000_000, "{reply}");
                    rounds += 1;
                }
            });
        }
        let _over = Over(&done);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    assert_eq!(
        server.client().line("MGET from to"),
        format!("[\"{}\", \"{}\"]", 1_000_000 - 3 * ROUNDS, 3 * ROUNDS)
    );
}

/// The same for MSET, RENAME and FLUSHDB against MGET and EXISTS.
#[test]
fn nobody_sees_half_a_command() {
    let server = TestServer::start();
    assert_eq!(server.client().line("MSET a 0 b 0 left x"), "OK");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut client = server.client();
            let done = &done;
            scope.spawn(move || {
                let _over = Over(done);
                for _ in 0..2000 {
                    let Reply::Array(pair) = client.call(&["MGET", "a", "b"]) else {
                        panic!("MGET")
                    };
                    assert_eq!(pair[0], pair[1]);
                    assert_eq!(client.line("EXISTS left right"), ":1");
                }
            });
        }
        for _ in 0..2 {
            let mut client = server.client();
            let done = &done;
            scope.spawn(move || {
                let mut i = 0;
                while !done.load(Ordering::Relaxed) {
                    i += 1;
                    assert_eq!(client.line(&format!("MSET a {i} b {i}")), "OK");
                    client.line("RENAME left right");
                    client.line("RENAME right left");
                }
            });
        }
    });
}

/// Optimistic locking: increments by WATCH, GET, MULTI, SET, EXEC lose no update.
#[test]
fn watched_updates_are_not_lost() {
    const EACH: usize = 300;
    let server = TestServer::start();
    assert_eq!(server.client().line("SET n 0"), "OK");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                let mut done = 0;
                while done < EACH {
                    assert_eq!(client.line("WATCH n"), "OK");
                    let n: i64 = client.line("GET n").trim_matches('"').parse().unwrap();
                    client.line("MULTI");
                    client.line(&format!("SET n {}", n + 1));
                    done += usize::from(client.line("EXEC") == "[OK]");
                }
            });
        }
    });
    assert_eq!(server.client().line("GET n"), format!("\"{}\"", 4 * EACH));
}

/// Counters are atomic by themselves, whichever loop they run on.
#[test]
fn increments_from_all_loops_add_up() {
    const EACH: usize = 2000;
    let server = TestServer::start();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                for _ in 0..EACH {
                    client.send(&request(&["INCR", "n"]));
                }
                (0..EACH).for_each(|_| assert!(matches!(client.reply(), Reply::Integer(_))));
            });
        }
    });
    assert_eq!(server.client().line("GET n"), format!("\"{}\"", 4 * EACH));
}

/// A section runs again if somebody else wrote what it read: COPY had then been to the other database already, and
/// found its own copy there.
#[test]
fn a_copy_to_another_database_is_made_once() {
    let server = TestServer::start();
    let mut client = server.client();
    let map = server.database.map("0").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                map.put(b"contended", b"1").unwrap();
            }
        });
        for _ in 0..2_000 {
            client.line("SET a 1");
            for line in ["MULTI", "COPY a b DB 1", "INCR contended"] {
                client.line(line);
            }
            let answer = client.line("EXEC");
            if !answer.starts_with("[:1, :") {
                stop.store(true, Ordering::Relaxed);
                panic!("{answer}");
            }
            client.line("SELECT 1");
            assert_eq!(client.line("GETDEL b"), "\"1\"");
            client.line("SELECT 0");
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Its place is kept, and what goes before it.
    for (line, answer) in [
        ("MULTI", "OK"),
        ("SET a 2", "QUEUED"),
        ("COPY a b DB 1", "QUEUED"),
        ("COPY a b DB nonsense", "QUEUED"),
        ("COPY a c", "QUEUED"),
        ("SELECT 1", "QUEUED"),
        ("GET b", "QUEUED"),
        ("EXEC", "[OK, :1, -ERR value is not an integer or out of range, :1, OK, \"2\"]"),
    ] {
        assert_eq!(client.line(line), answer, "{line}");
    }
}
