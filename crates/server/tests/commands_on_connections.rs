//! Connection and server commands, against ourselves and the real redis-server.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, info};

#[test]
fn the_connection_itself() {
    crate::common::script::run(
        r#"
        PING => PONG
        ping hello => "hello"
        PING a b => -ERR wrong number of arguments for 'ping' command
        ECHO "a b" => "a b"
        ECHO => -ERR wrong number of arguments for 'echo' command
        SELECT 3 => OK
        RESET => RESET
        CLIENT GETNAME => nil
        CLIENT SETNAME me => OK
        CLIENT GETNAME => "me"
        CLIENT SETNAME "" => OK
        CLIENT SETNAME "a b" => -ERR Client names cannot contain spaces, newlines or special characters.
        CLIENT ID => :1..100
        CLIENT nonsense => -ERR unknown subcommand 'nonsense'. Try CLIENT HELP.
        CLIENT SETNAME => -ERR wrong number of arguments for 'client|setname' command
        CLIENT => -ERR wrong number of arguments for 'client' command
        CLIENT GETREDIR => :-1
        CLIENT NO-EVICT on => OK
        CLIENT NO-EVICT off => OK
        CLIENT NO-EVICT maybe => -ERR syntax error
        CLIENT NO-TOUCH on !> OK
        CLIENT SETINFO lib-name mine !> OK
        CLIENT SETINFO lib-ver 1.2 !> OK
        CLIENT SETINFO lib-ver "1 2" !> -ERR lib-ver cannot contain spaces, newlines or special characters.
        CLIENT SETINFO nonsense 1 !> -ERR Unrecognized option 'nonsense'
        CLIENT KILL 1.2.3.4:5 => -ERR No such client
        CLIENT KILL ID 4711 => :0
        CLIENT KILL ID x => -ERR client-id should be greater than 0
        CLIENT KILL nonsense 1 => -ERR syntax error
        CLIENT KILL TYPE pubsub => :0
        CLIENT KILL TYPE nonsense => -ERR Unknown client type 'nonsense'
        CLIENT KILL USER nobody => -ERR No such user 'nobody'
        CLIENT LIST TYPE nonsense => -ERR Unknown client type 'nonsense'
        CLIENT LIST ID x => -ERR Invalid client ID
        CLIENT LIST nonsense => -ERR syntax error
        CLIENT LIST TYPE pubsub => ""
        CLIENT INFO => "id=*
        CLIENT REPLY ON => OK
        CLIENT REPLY maybe => -ERR syntax error
        CLIENT PAUSE x => -ERR timeout is not an integer or out of range
        CLIENT PAUSE -1 => -ERR timeout is negative
        CLIENT PAUSE 1 nonsense => -ERR*
        CLIENT UNPAUSE => OK
        CLIENT TRACKINGINFO => ["flags", ["off"], "redirect", :-1, "prefixes", []]
        CLIENT HELP => [CLIENT <subcommand>*
        HELLO 4 => -NOPROTO unsupported protocol version
        HELLO x => -ERR Protocol version is not an integer or out of range
        HELLO 2 nonsense => -ERR Syntax error in HELLO option 'nonsense'
        HELLO 2 SETNAME "a b" => -ERR Client names cannot contain spaces, newlines or special characters.
        HELLO 2 => ["server", "redis", "version", "7.0.15", "proto", :2, "id", *
        HELLO => ["server", "redis", "version", "7.0.15", "proto", :2, "id", *
        HELLO 3 SETNAME you => {"server": "redis", "version": "7.0.15", "proto": :3, "id": *
        CLIENT GETNAME => "you"
        GET nothing => nil
        RESET => RESET
        CLIENT GETNAME => nil
        AUTH secret => -ERR AUTH <password> called without any password configured*
        AUTH default anything => OK
        AUTH nobody anything => -WRONGPASS invalid username-password pair or user is disabled.
        AUTH a b c => -ERR syntax error
    "#,
    );
}

#[test]
fn the_server() {
    crate::common::script::run(
        r#"
        CONFIG SET slowlog-log-slower-than -1 => OK
        TIME => ["1*
        LASTSAVE => :1600000000..9600000000
        SAVE => OK
        WAIT 0 0 => :0
        WAIT x 0 => -ERR value is not an integer or out of range
        WAIT 0 -1 => -ERR timeout is negative
        WAIT 0 x => -ERR timeout is not an integer or out of range
        BGSAVE nonsense => -ERR syntax error
        BGSAVE => Background saving started
        ROLE => ["master", :0, []]
        SHUTDOWN nonsense => -ERR syntax error
        SHUTDOWN SAVE NOSAVE => -ERR syntax error
        SHUTDOWN ABORT => -ERR No shutdown in progress.
        CONFIG GET databases => ["databases", "16"]
        CONFIG GET nothing => []
        CONFIG GET SAVE => ["SAVE", ""]
        CONFIG SET maxmemory 100mb => OK
        CONFIG GET MAXMEMORY => ["MAXMEMORY", "104857600"]
        CONFIG GET MAXMEMOR? => ["maxmemory", "104857600"]
        CONFIG SET maxmemory x => -ERR CONFIG SET failed (possibly related to argument 'maxmemory')*
        CONFIG SET timeout 100 maxmemory abc => -ERR CONFIG SET failed (possibly related to argument 'maxmemory')*
        CONFIG GET timeout => ["timeout", "0"]
        CONFIG SET timeout 18446744073709552 => -ERR CONFIG SET failed (possibly related to argument 'timeout')*
        CONFIG SET timeout 2147483648 => -ERR CONFIG SET failed (possibly related to argument 'timeout')*
        CONFIG SET client-output-buffer-limit "normal 12345678 0 0 pubsub x 0 0" => -ERR CONFIG SET failed (possibly related to argument*
        CONFIG SET nonsense 1 => -ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'
        CONFIG SET databases 5 => -ERR CONFIG SET failed (possibly related to argument 'databases')*
        CONFIG SET maxmemory 1gb timeout 100 => OK
        CONFIG SET timeout 0 timeout 1 => -ERR CONFIG SET failed (possibly related to argument 'timeout')*
        CONFIG GET timeout => ["timeout", "100"]
        CONFIG SET timeout => -ERR wrong number of arguments for 'config|set' command
        CONFIG GET => -ERR wrong number of arguments for 'config|get' command
        CONFIG REWRITE => -ERR The server is running without a config file
        CONFIG RESETSTAT => OK
        CONFIG nonsense => -ERR unknown subcommand 'nonsense'. Try CONFIG HELP.
        # What was written longest ago goes first, whenever it was read: no other policy is claimed.
        CONFIG SET maxmemory-policy allkeys-lru !> -ERR CONFIG SET failed (possibly related to argument*
        CONFIG SET maxmemory-policy volatile-ttl !> -ERR CONFIG SET failed (possibly related to argument*
        CONFIG SET maxmemory-policy nonsense => -ERR CONFIG SET failed (possibly related to argument*
        CONFIG SET maxmemory-policy allkeys-lrm !> OK
        CONFIG GET maxmemory-policy !> ["maxmemory-policy", "allkeys-lrm"]
        CONFIG SET maxmemory-policy noeviction => OK
        # 0 is no limit, where Redis says so, and refused where it would lock everybody out.
        CONFIG SET maxmemory 0 maxmemory-clients 0 => OK
        CONFIG GET maxmemory => ["maxmemory", "0"]
        CONFIG GET maxmemory-clients => ["maxmemory-clients", "0"]
        CONFIG GET disk-budget !> ["disk-budget", "auto"]
        CONFIG SET disk-budget 64mb !> OK
        CONFIG GET disk-budget !> ["disk-budget", "67108864"]
        CONFIG SET disk-budget 1mb !> -ERR CONFIG SET failed (possibly related to argument 'disk-budget')*
        CONFIG SET disk-budget 0 !> -ERR CONFIG SET failed (possibly related to argument 'disk-budget')*
        CONFIG SET disk-budget nonsense !> -ERR CONFIG SET failed (possibly related to argument 'disk-budget')*
        CONFIG SET disk-budget AUTO !> OK
        CONFIG GET disk-budget !> ["disk-budget", "auto"]
        SET a 1 => OK
        CONFIG SET proto-max-bulk-len 0 => -ERR CONFIG SET failed (possibly related to argument*
        CONFIG SET proto-max-bulk-len 1048575 => -ERR CONFIG SET failed (possibly related to argument*
        CONFIG SET proto-max-bulk-len 1048576 => OK
        CONFIG SET proto-max-bulk-len 512mb => OK
        CONFIG SET appendfsync always => OK
        CONFIG GET appendfsync => ["appendfsync", "always"]
        SET a 1 => OK
        CONFIG SET appendfsync no => OK
        SLOWLOG GET 10 => []
        SLOWLOG LEN => :0
        SLOWLOG RESET => OK
        SLOWLOG GET x => -ERR count should be greater than or equal to -1
        SLOWLOG GET -2 => -ERR count should be greater than or equal to -1
        SLOWLOG nonsense => -ERR unknown subcommand 'nonsense'. Try SLOWLOG HELP.
        SLOWLOG HELP => [SLOWLOG <subcommand>*
        LATENCY LATEST => []
        LATENCY HISTORY command => []
        LATENCY RESET => :0
        LATENCY DOCTOR => "*
        LATENCY nonsense => -ERR unknown subcommand 'nonsense'. Try LATENCY HELP.
        LATENCY HELP => [LATENCY <subcommand>*
        MEMORY USAGE nothing => nil
        MEMORY USAGE a => :20..500
        MEMORY USAGE a SAMPLES 5 => :20..500
        MEMORY USAGE a SAMPLES -1 => -ERR syntax error
        MEMORY USAGE a nonsense 1 => -ERR syntax error
        MEMORY DOCTOR => "*
        MEMORY PURGE => OK
        MEMORY STATS => [*
        MEMORY nonsense => -ERR unknown subcommand 'nonsense'. Try MEMORY HELP.
        COMMAND COUNT => :60..400
        COMMAND INFO get !> [["get", :2, [readonly, fast], :1, :1, :1, [@read, @string, @fast], [], [], []]]
        COMMAND INFO nonsense => [nil]
        COMMAND GETKEYS MSET a 1 b 2 => ["a", "b"]
        COMMAND GETKEYS GET a => ["a"]
        COMMAND GETKEYS DEL a b c => ["a", "b", "c"]
        COMMAND GETKEYS PING x => -ERR The command has no key arguments
        COMMAND GETKEYS nonsense x => -ERR Invalid command specified
        COMMAND GETKEYS GET a b => -ERR Invalid number of arguments specified for command
        COMMAND GETKEYS GET => -ERR wrong number of arguments for 'command|getkeys' command
        COMMAND LIST FILTERBY PATTERN mset* !> ["mset", "msetnx"]
        COMMAND LIST FILTERBY nonsense x => -ERR syntax error
        COMMAND DOCS get => ["get", ["summary", "*
        COMMAND DOCS nonsense => []
        COMMAND nonsense => -ERR unknown subcommand 'nonsense'. Try COMMAND HELP.
        DEBUG SLEEP 1 !> -ERR DEBUG command not allowed. Terrace has no way to enable it.
        CLUSTER INFO => -ERR This instance has cluster support disabled
        READONLY => -ERR This instance has cluster support disabled
    "#,
    );
}

#[test]
fn unsupported_commands_are_named_in_their_errors() {
    crate::common::script::run(
        r#"
        SADD l 1 !> -ERR SADD is not supported by Terrace: this server keeps strings and queues
        hset h f v !> -ERR HSET is not supported by Terrace: this server keeps strings and queues
        @2 SUBSCRIBE c !> -ERR SUBSCRIBE is not supported by Terrace: this server keeps strings and queues
        FCALL x 0 !> -ERR FCALL is not supported by Terrace: there are no functions; EVAL and EVALSHA run scripts
        LOLWUT !> -ERR LOLWUT is not supported by Terrace
        SETBIT a 0 1 !> -ERR SETBIT is not supported by Terrace: strings are read and written by the byte*
        GETBIT a 0 !> -ERR GETBIT is not supported by Terrace: strings are read and written by the byte*
        BITCOUNT a !> -ERR BITCOUNT is not supported by Terrace: strings are read and written by the byte*
        DUMP a !> -ERR DUMP is not supported by Terrace: values have no serialized form here; `terrace export`*
        LCS a b !> -ERR LCS is not supported by Terrace: values are not compared here; GET both
        SORT a !> -ERR SORT is not supported by Terrace: lists are queues here and keep their order;*
        GEORADIUSBYMEMBER_RO a b !> -ERR GEORADIUSBYMEMBER_RO is not supported by Terrace: this server keeps strings*
        NONSENSE => -ERR unknown command 'NONSENSE', with args beginning with: 
        nonsense a "b c" => -ERR unknown command 'nonsense', with args beginning with: 'a' 'b c' 
        "" a => -ERR unknown command '', with args beginning with: 'a' 
        PING => PONG
    "#,
    );
}

#[test]
fn info_has_its_sections() {
    let server = TestServer::start();
    let mut client = server.client();
    client.line("SET a 1");
    client.line("GET a");
    client.line("GET nothing");
    client.line("LPUSH jobs 1");
    client.line("LEDGER.OPEN bank 1 100");
    let Reply::Bulk(text) = client.call(&["INFO"]) else { panic!("INFO") };
    let text = String::from_utf8(text).unwrap();
    for section in [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Modules",
        "Cluster",
        "Keyspace",
        "Tiers",
        "Queues",
        "Ledgers",
        "Prestores",
    ] {
        assert!(text.contains(&format!("# {section}\r\n")), "{section} in {text}");
    }
    assert!(!text.contains("# Commandstats"));
    let Reply::Bulk(text) = client.call(&["INFO", "commandstats", "keyspace"]) else {
        panic!("INFO")
    };
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("cmdstat_get:calls=2,") && text.contains("db0:keys=1,"), "{text}");
    assert!(!text.contains("# Server"));
    assert_eq!(info(&mut client, "keyspace_hits"), "1");
    assert_eq!(info(&mut client, "keyspace_misses"), "1");
    assert_eq!(info(&mut client, "connected_clients"), "1");
    assert!(info(&mut client, "db0_memory").starts_with("tier=memory,keys=1,"));
    let jobs = info(&mut client, "queue_jobs");
    assert!(jobs.starts_with("elements=1,") && jobs.ends_with(",form=tx-free"), "{jobs}");
    assert!(
        info(&mut client, "ledger_bank").starts_with("profile=smallcoin,accounts=1,entries=1,")
    );
    assert!(info(&mut client, "latency_percentiles_usec_get").starts_with("p50="));
    assert_eq!(client.line("CONFIG RESETSTAT"), "OK");
    assert_eq!(info(&mut client, "keyspace_hits"), "0");
}

#[test]
fn clients_are_listed_and_killed() {
    let server = TestServer::start();
    let (mut first, mut second, mut third) = (server.client(), server.client(), server.client());
    for (client, name) in [(&mut first, "first"), (&mut second, "second"), (&mut third, "third")] {
        assert_eq!(client.line(&format!("CLIENT SETNAME {name}")), "OK");
    }
    let Reply::Bulk(list) = first.call(&["CLIENT", "LIST"]) else { panic!("CLIENT LIST") };
    let list = String::from_utf8(list).unwrap();
    assert_eq!(list.lines().count(), 3);
    for field in [
        "name=first",
        "name=second",
        "name=third",
        " db=0 ",
        " multi=-1 ",
        " cmd=client ",
        " laddr=127.0.0.1:",
        " resp=2 ",
    ] {
        assert!(list.contains(field), "{field} in {list}");
    }
    // Two loops: somebody else's client is killed across them, whichever it is on.
    let owner = |name: &str| {
        list.lines()
            .find(|line| line.contains(name))
            .unwrap()
            .rsplit_once("loop=")
            .unwrap()
            .1
            .to_string()
    };
    assert!(
        owner("name=first") != owner("name=second") || owner("name=first") != owner("name=third")
    );
    let id = second.line("CLIENT ID");
    assert_eq!(first.line(&format!("CLIENT KILL ID {}", &id[1..])), ":1");
    second.assert_closed();
    let address = third.stream.local_addr().unwrap();
    assert_eq!(first.line(&format!("CLIENT KILL {address}")), "OK");
    third.assert_closed();
    assert_eq!(first.line("CLIENT KILL TYPE normal SKIPME yes"), ":0");
    assert_eq!(first.line("CLIENT KILL TYPE normal SKIPME no"), ":1");
    first.assert_closed();
}

#[test]
fn replies_can_be_turned_off() {
    let server = TestServer::start();
    let mut client = server.client();
    for request in [
        &["CLIENT", "REPLY", "OFF"][..],
        &["SET", "a", "1"],
        &["GET", "a"],
        &["CLIENT", "REPLY", "ON"],
    ] {
        client.send(&crate::common::request(request));
    }
    assert_eq!(client.reply(), Reply::Simple("OK".into()));
    assert_eq!(client.line("GET a"), "\"1\"");
    for request in [&["CLIENT", "REPLY", "SKIP"][..], &["SET", "a", "2"], &["GET", "a"]] {
        client.send(&crate::common::request(request));
    }
    assert_eq!(client.reply(), Reply::Bulk(b"2".to_vec()));
}

/// SKIP swallowed the OK of an ON behind it, and one SKIP behind another was forgotten. Beside the real one.
#[test]
fn skipped_replies_are_those_that_redis_skips() {
    let skip = &["CLIENT", "REPLY", "SKIP"][..];
    let sequences: [&[&[&str]]; 6] = [
        &[skip, &["CLIENT", "REPLY", "ON"]],
        &[skip, skip, &["SET", "a", "1"]],
        &[skip, &["CLIENT", "REPLY", "OFF"], &["PING"], &["CLIENT", "REPLY", "ON"]],
        &[&["CLIENT", "REPLY", "OFF"], skip, &["PING"], &["CLIENT", "REPLY", "ON"], &["GET", "a"]],
        &[skip, &["NONSENSE"], &["GET", "a"]],
        &[skip, &["MULTI"], &["INCR", "n"], &["EXEC"]],
    ];
    let answers = |address| -> Vec<Vec<String>> {
        let answer = |sequence: &&[&[&str]]| {
            let mut client = crate::common::Client::connect(address);
            sequence.iter().for_each(|request| client.send(&crate::common::request(request)));
            client.send(&crate::common::request(&["ECHO", "over"]));
            let mut replies = Vec::new();
            while replies.last().is_none_or(|last| last != "\"over\"") {
                replies.push(client.reply().to_string());
            }
            replies
        };
        sequences.iter().map(answer).collect()
    };
    let server = TestServer::start();
    let ours = answers(server.address());
    assert_eq!(ours[0], ["OK", "\"over\""]);
    assert_eq!(ours[1], ["\"over\""]);
    if let Some(redis) = crate::common::RealRedis::start() {
        assert_eq!(ours, answers(redis.address));
    }
}

#[test]
fn clients_can_be_paused() {
    let server = TestServer::start();
    let (mut boss, mut reader, mut writer) = (server.client(), server.client(), server.client());
    assert_eq!(boss.line("SET a 1"), "OK");
    assert_eq!(boss.line("CLIENT PAUSE 60000 WRITE"), "OK");
    assert_eq!(reader.line("GET a"), "\"1\"");
    writer.send(&crate::common::request(&["SET", "a", "2"]));
    writer.send(&crate::common::request(&["GET", "a"]));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(reader.line("GET a"), "\"1\"");
    assert_eq!(boss.line("CLIENT UNPAUSE"), "OK");
    assert_eq!(writer.reply(), Reply::Simple("OK".into()));
    assert_eq!(writer.reply(), Reply::Bulk(b"2".to_vec()));
    // A pause ends by itself, and holds back reads too if told to.
    let start = std::time::Instant::now();
    assert_eq!(boss.line("CLIENT PAUSE 80"), "OK");
    assert_eq!(reader.line("GET a"), "\"2\"");
    assert!(start.elapsed() >= std::time::Duration::from_millis(70), "{:?}", start.elapsed());
}

/// What is refused waited for the end of the pause first; who waits was not counted, and not marked.
#[test]
fn a_pause_holds_back_what_would_run_and_says_whom() {
    let server = TestServer::start();
    let (mut boss, mut paused) = (server.client(), server.client());
    assert_eq!(paused.line("CLIENT SETNAME paused"), "OK");
    assert_eq!(boss.line("CLIENT PAUSE 60000 ALL"), "OK");
    // CLIENT alone is let through, to end it.
    assert_eq!(paused.line("SET a"), "-ERR wrong number of arguments for 'set' command");
    assert_eq!(
        paused.line("NONSENSE"),
        "-ERR unknown command 'NONSENSE', with args beginning with: "
    );
    assert_eq!(
        paused.line("CONFIG NONSENSE"),
        "-ERR unknown subcommand 'NONSENSE'. Try CONFIG HELP."
    );
    paused.send(&crate::common::request(&["SET", "a", "1"]));
    let list = |boss: &mut crate::common::Client<_>| boss.call(&["CLIENT", "LIST"]).to_string();
    let line = |text: String| {
        text.split("\\n").find(|line| line.contains("name=paused")).unwrap().to_string()
    };
    crate::common::eventually("it is marked", || line(list(&mut boss)).contains(" flags=b "));
    assert_eq!(boss.line("CLIENT UNPAUSE"), "OK");
    assert_eq!(paused.reply().to_string(), "OK");
    crate::common::eventually("it is not any more", || line(list(&mut boss)).contains(" flags=N "));
    assert_eq!(boss.line("CLIENT PAUSE 60000 WRITE"), "OK");
    paused.send(&crate::common::request(&["SET", "a", "2"]));
    crate::common::eventually("it is counted", || {
        crate::common::info(&mut boss, "blocked_clients") == "1"
    });
    assert_eq!(boss.line("CLIENT UNPAUSE"), "OK");
    assert_eq!(paused.reply().to_string(), "OK");
    assert_eq!(crate::common::info(&mut boss, "blocked_clients"), "0");
}

#[test]
fn a_waiting_client_can_be_unblocked() {
    let server = TestServer::start();
    let (mut boss, mut waiting) = (server.client(), server.client());
    let id = waiting.line("CLIENT ID")[1..].to_string();
    assert_eq!(boss.line(&format!("CLIENT UNBLOCK {id}")), ":0");
    for (how, reply) in [
        ("", "nil"),
        (" TIMEOUT", "nil"),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        waiting.send(&crate::common::request(&["BLPOP", "q", "0"]));
        crate::common::eventually("it waits", || {
            crate::common::info(&mut boss, "blocked_clients") == "1"
        });
        assert!(boss.line("CLIENT LIST").contains(" flags=b "));
        assert_eq!(boss.line(&format!("CLIENT UNBLOCK {id}{how}")), ":1");
        assert_eq!(waiting.reply().to_string(), reply);
        assert_eq!(boss.line(&format!("CLIENT UNBLOCK {id}{how}")), ":0");
        assert_eq!(waiting.line("PING"), "PONG");
    }
    assert_eq!(
        boss.line("CLIENT UNBLOCK 1 NONSENSE"),
        "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"
    );
    assert_eq!(boss.line("CLIENT UNBLOCK x"), "-ERR value is not an integer or out of range");
}

/// SETs that stood next to each other were noted as "(a run of 17 SETs)", their keys forgotten.
#[test]
fn the_slow_log_keeps_the_keys_of_sets_in_a_row() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.line("CONFIG SET slowlog-log-slower-than 0"), "OK");
    let sets: Vec<u8> =
        (0..8).flat_map(|i| crate::common::request(&["SET", &format!("key{i}"), "v"])).collect();
    client.send(&sets);
    (0..8).for_each(|_| assert_eq!(client.reply().to_string(), "OK"));
    let entries = client.call(&["SLOWLOG", "GET", "-1"]).to_string();
    (0..8).for_each(|i| assert!(entries.contains(&format!("\"key{i}\"")), "{entries}"));
}

#[test]
fn info_tells_of_errors_latencies_and_changes() {
    let server = TestServer::start();
    let mut client = server.client();
    client.line("NONSENSE");
    client.line("SET a x");
    client.line("INCR a");
    client.line("EXEC");
    assert_eq!(crate::common::info(&mut client, "errorstat_ERR"), "count=3");
    assert_eq!(crate::common::info(&mut client, "total_error_replies"), "3");
    client.line("CONFIG SET appendfsync always");
    client.line("AUTH x y");
    assert_eq!(crate::common::info(&mut client, "errorstat_WRONGPASS"), "count=1");
    assert!(crate::common::info(&mut client, "latency_percentiles_usec_set").starts_with("p50="));
    assert_eq!(crate::common::info(&mut client, "rdb_changes_since_last_save"), "1");
    client.line("SET b 1");
    assert_eq!(crate::common::info(&mut client, "rdb_changes_since_last_save"), "2");
    assert_eq!(client.line("SAVE"), "OK");
    assert_eq!(crate::common::info(&mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(client.line("CONFIG RESETSTAT"), "OK");
    assert!(!client.call(&["INFO", "errorstats"]).to_string().contains("errorstat_"));
}

#[test]
fn slow_commands_are_kept() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.line("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3"), "OK");
    assert_eq!(client.line("CLIENT SETNAME me"), "OK");
    for i in 0..5 {
        assert_eq!(client.line(&format!("APPEND slow{i} x")), ":1");
    }
    assert_eq!(client.line("AUTH default geheim"), "OK");
    assert_eq!(client.line("SLOWLOG LEN"), ":3");
    let Reply::Array(entries) = client.call(&["SLOWLOG", "GET"]) else { panic!("SLOWLOG GET") };
    assert_eq!(entries.len(), 3);
    let texts: Vec<String> = entries.iter().map(Reply::to_string).collect();
    assert!(
        texts.iter().all(|text| text.contains("\"me\"") && text.contains("127.0.0.1:")),
        "{texts:?}"
    );
    assert!(texts.iter().any(|text| text.contains("[\"APPEND\", \"slow4\", \"x\"]")), "{texts:?}");
    assert!(texts.iter().all(|text| !text.contains("geheim")), "{texts:?}");
    assert_eq!(client.line("CONFIG SET slowlog-log-slower-than -1"), "OK");
    assert_eq!(client.line("SLOWLOG RESET"), "OK");
    assert_eq!(client.line("SLOWLOG LEN"), ":0");
    assert!(
        client
            .line("LATENCY HISTOGRAM append")
            .starts_with("[\"append\", [\"calls\", :5, \"histogram_usec\", ")
    );
}
